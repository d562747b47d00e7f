"""Which functions `torch` and `torch.nn.functional` share."""

from __future__ import annotations

# functions that PyTorch has once for `torch` and for this module, in machine code; of the others it has one in Python here
SHARED = frozenset("""adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc
 conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid
 native_channel_shuffle one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ scaled_dot_product_attention selu_
 softplus softshrink threshold_""".split())
