"""Libraries that nobody asked for when they were tried first: einx, pytorch-metric-learning, vector-quantize-pytorch."""

from __future__ import annotations

import fed
import torch
from fed import DEVICE, case, fill, integers, numbers, steps


@case("einx")
def einx_():
    import einx
    x, w = numbers(2, 6, 8), numbers(8, 3, seed=1)
    return [einx.id("b (h d) t -> b t h d", x, h=3)[0, 0], einx.dot("b c t, t e -> b c e", x, w)[0, 0], einx.softmax("b [c] t", x)[0, :, 0],
            einx.sum("b [c] t", x)[0], einx.get_at("b [c] t, b i -> b i t", x, integers(6, 2, 3))[1, 0]]


@case("pytorch-metric-learning: losses and a miner")
def metric_learning():
    from pytorch_metric_learning import distances, losses, miners, reducers
    net = fill(torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)), 0.3)
    x, y = numbers(16, 6), integers(4, 16)
    miner = miners.MultiSimilarityMiner()
    gave = []
    for loss in (losses.TripletMarginLoss(distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0)), losses.ContrastiveLoss(),
                 losses.NTXentLoss(), losses.MultiSimilarityLoss(), losses.SupConLoss(), losses.CircleLoss(), losses.LiftedStructureLoss()):
        gave.append(steps(net, lambda loss=loss: loss(net(x), y, miner(net(x), y)), 2))
    proxies = fill(losses.ProxyAnchorLoss(4, 8), 0.3)
    gave.append(steps(net, lambda: proxies(net(x), y), 2))
    return [gave, net(x)[0]]


@case("vector-quantize-pytorch")
def quantized():
    from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, VectorQuantize
    x = numbers(2, 10, 8)
    vq = fill(VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=0.5))
    vq._codebook.embed.copy_(numbers(1, 16, 8, seed=4))
    vq._codebook.embed_avg.copy_(numbers(1, 16, 8, seed=4))
    out, indices, loss = vq(x)
    again = vq(x)[2]
    fsq = FSQ([5, 3, 3]).to(DEVICE)
    lfq = LFQ(codebook_size=16, dim=4, entropy_loss_weight=0.1).to(DEVICE)
    residual = ResidualVQ(dim=8, num_quantizers=2, codebook_size=8).to(DEVICE).eval()
    return [out, indices, loss, again, fsq(numbers(1, 4, 3))[1], lfq(numbers(1, 5, 4))[1], list(residual(x)[0].shape)]


fed.main()
