"""Everything of `torch.nn.functional`: functions without state.

The primitive ones (convolutions, pooling, norms, softmax, activations, ...) are operations, found in the op table when
they are first used; the composite ones are written here, by family.
"""

from __future__ import annotations

import importlib
from typing import Any

from .activations import glu, prelu, rrelu, rrelu_
from .arrange import (
    channel_shuffle,
    fold,
    max_unpool,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
    native_channel_shuffle,
    one_hot,
    pad,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
)
from .attention import multi_head_attention_forward
from .bags import embedding_bag
from .ctc import ctc_loss
from .distances import cosine_similarity, normalize, pairwise_distance, pdist
from .dropouts import alpha_dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout, feature_dropout
from .grouped import grouped_mm
from .losses import (
    cosine_embedding_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from .pointwise_losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
)
from .resample import affine_grid, grid_sample, interpolate, upsample, upsample_bilinear, upsample_nearest
from .sampling import gumbel_softmax, local_response_norm, lp_pool1d, lp_pool2d, lp_pool3d


def _operations() -> None:
    """The functions written here are operations too, as interpreters and overriding classes see them."""
    from ..._core.engine.operation import Operation

    here = globals()
    for name, value in list(here.items()):
        if not name.startswith("_") and hasattr(value, "__code__") and value.__module__.startswith(__name__) and not hasattr(value, "__operation__"):
            here[name] = Operation(name, value).function
            here[name].__module__ = __name__  # where a pickle finds it


_operations()


# what PyTorch's module of this name has from its others
_ELSEWHERE = {
    "Tensor": "_core.tensor",
    **dict.fromkeys("has_torch_function has_torch_function_unary has_torch_function_variadic handle_torch_function".split(), "overrides"),
    **dict.fromkeys("BroadcastingList1 BroadcastingList2 BroadcastingList3 assert_int_or_pair boolean_dispatch".split(), "_jit_internal"),
}


def __getattr__(name: str) -> Any:
    """An operation of the table, by its name here, or a name that lies elsewhere; it becomes an ordinary attribute, so this runs once for each."""
    if name in _ELSEWHERE:
        value = globals()[name] = getattr(importlib.import_module(f"flambeau.{_ELSEWHERE[name]}"), name)
        return value
    from ..._core.ops import table
    from .shared import SHARED

    found: Any = table.find("nn.functional", name) or table.find("torch", name)
    if found is None:
        raise AttributeError(f"module 'flambeau.nn.functional' has no attribute {name!r}")
    if name not in SHARED and found is table.find("torch", name) and hasattr(found, "__operation__"):
        found = found.__operation__.twin(__name__)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from ..._core.ops import table

    return sorted({*globals(), *__all__, *_ELSEWHERE, *table.namespace("nn.functional")})


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid",
    "alpha_dropout", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "elu_",
    "embedding", "embedding_bag", "feature_alpha_dropout", "feature_dropout", "fold", "fractional_max_pool2d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d", "fractional_max_pool3d_with_indices", "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "grouped_mm",
    "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "hinge_embedding_loss", "huber_loss", "instance_norm",
    "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear", "linear_cross_entropy", "local_response_norm",
    "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish",
    "mse_loss", "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "native_channel_shuffle", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle",
    "poisson_nll_loss", "prelu", "relu", "relu6", "relu_", "rms_norm", "rrelu", "rrelu_", "scaled_dot_product_attention", "selu", "selu_", "sigmoid",
    "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
    "threshold_", "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear", "upsample_nearest",
]
