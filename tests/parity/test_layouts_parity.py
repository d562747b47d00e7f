"""How results and gradients lie in memory, beside PyTorch's: of images with their channels innermost, whatever the layout of the gradient that arrives, and
of leaves."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

EXPANDED = "the gradient of a mean is the arriving one, divided and seen by strides of 0: no element is written"
AS_IMAGES = "the gradient lies as the images do, where PyTorch begins with zeros row by row"
ONE_RULE = "the gradient lies as the images do, where PyTorch's lies as the arriving one does"
OF_THE_CPU = "PyTorch's kernel for CPUs asks for rows; its kernel for GPUs keeps the layout"
# operations whose results or gradients lie otherwise than PyTorch's, when the gradient arrives in these layouts
OTHERWISE: dict[str, tuple[str, str]] = {
    "mean over the image": (EXPANDED, "like rows"), "mean over the image, kept": (EXPANDED, "like rows"),
    "chunk": (AS_IMAGES, "like rows"), "slice": (AS_IMAGES, "like rows"), "narrow": (AS_IMAGES, "like rows"), "mse_loss": (AS_IMAGES, "like rows"),
    "glu": (AS_IMAGES, "like rows"), "max of all": (AS_IMAGES, "like rows"), "pairwise_distance": (AS_IMAGES, "like rows"),
    "rms_norm": ("PyTorch's kernel for GPUs gives rows; for CPUs it is composed of operations that keep the layout", "like rows"),
    "rrelu": (OF_THE_CPU, "like rows"), "logsigmoid": (OF_THE_CPU, "like rows"),
    "adaptive_avg_pool2d to one": (ONE_RULE, "like rows"), "nearest": (ONE_RULE, "rows"), "bilinear": (ONE_RULE, "rows"), "bicubic": (ONE_RULE, "like rows"),
    "pixel_shuffle": (ONE_RULE, "rows"), "pixel_unshuffle": (ONE_RULE, "rows"), "channel_shuffle": (ONE_RULE, "rows"),
    "pad": ("the gradient is the part of the arriving one within the border, and nothing is copied", "like rows"),
    **dict.fromkeys(("conv2d", "conv2d of rows", "conv_transpose2d", "conv2d of channels apart"), (
        "the CPU's convolutions are done row by row; to lay each result anew would cost 8 to 30 %. Those of GPUs lie as PyTorch's", "like rows")),
}


def cases(t: Any) -> dict[str, Any]:
    f = t.nn.functional
    t.manual_seed(0)
    last = functools.partial(t.Tensor.to, memory_format=t.channels_last)
    w, w1, wt, wd = t.randn(6, 8, 3, 3), t.randn(6, 8, 1, 1), t.randn(8, 6, 3, 3), t.randn(8, 1, 3, 3)
    b, ones, zeros = t.randn(8), t.ones(8), t.zeros(8)
    low, high = t.zeros(2, 8, 6, 6), t.ones(2, 8, 6, 6)
    return {
        "conv2d": lambda x: f.conv2d(x, last(w), padding=1), "conv2d of rows": lambda x: f.conv2d(x, w, padding=1),
        "conv2d of points": lambda x: f.conv2d(x, w1), "conv_transpose2d": lambda x: f.conv_transpose2d(x, wt, stride=2),
        "conv2d of channels apart": lambda x: f.conv2d(x, wd, groups=8, padding=1),
        "batch_norm": lambda x: f.batch_norm(x, None, None, ones, zeros, True),
        "batch_norm by statistics": lambda x: f.batch_norm(x, zeros, ones, ones, zeros, False),
        "group_norm": lambda x: f.group_norm(x, 4, ones, zeros), "instance_norm": f.instance_norm, "layer_norm": lambda x: f.layer_norm(x, (6, 6)),
        "rms_norm": lambda x: f.rms_norm(x, (6, 6)), "local_response_norm": lambda x: f.local_response_norm(x, 2), "normalize": f.normalize,
        "layer_norm of channels": lambda x: f.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2),
        "relu": f.relu, "relu6": f.relu6, "gelu": f.gelu, "silu": f.silu, "leaky_relu": f.leaky_relu, "hardswish": f.hardswish, "sigmoid": t.sigmoid,
        "prelu": lambda x: f.prelu(x, b), "elu": f.elu, "selu": f.selu, "celu": f.celu, "softplus": f.softplus, "hardshrink": f.hardshrink,
        "softshrink": f.softshrink, "hardsigmoid": f.hardsigmoid, "hardtanh": f.hardtanh, "mish": f.mish, "rrelu": f.rrelu, "logsigmoid": f.logsigmoid,
        "threshold": lambda x: f.threshold(x, 0.1, 0.0), "glu": lambda x: f.glu(x, 1),
        "clamp": lambda x: x.clamp(0, 1), "clamp_min": lambda x: x.clamp_min(0), "clamp_max": lambda x: x.clamp_max(0),
        "clamp between tensors": lambda x: x.clamp(low, high), "where": lambda x: t.where(x > 0, x, x * 2),
        "where by rows": lambda x: t.where(low > 0, x, 0.0), "maximum": lambda x: t.maximum(x, x.detach() * 0.5),
        "maximum with rows": lambda x: t.maximum(x, low),
        "minimum": lambda x: t.minimum(x, x.detach() * 0.5), "masked_fill": lambda x: x.masked_fill(x.detach() > 0, 0.0),
        "abs": t.abs, "exp": t.exp, "tanh": t.tanh, "erf": t.erf, "pow": lambda x: x ** 2, "sign": t.sign, "nan_to_num": t.nan_to_num,
        "add a number": lambda x: x + 1, "add": lambda x: x + x, "mul": lambda x: x * x, "div": lambda x: x / 2,
        "mul of channels": lambda x: x * b.view(8, 1, 1),
        "lerp": lambda x: x.lerp(x * 2, 0.5), "addcmul": lambda x: t.addcmul(x, x, x), "to float64": lambda x: x.to(t.float64),
        "softmax of channels": lambda x: x.softmax(1), "log_softmax of channels": lambda x: x.log_softmax(1), "softmax of rows": lambda x: x.softmax(3),
        "max_pool2d": lambda x: f.max_pool2d(x, 2), "max_pool2d, overlapping": lambda x: f.max_pool2d(x, 3, 2, 1),
        "max_pool2d, large": lambda x: f.max_pool2d(x, 6),
        "avg_pool2d": lambda x: f.avg_pool2d(x, 2), "avg_pool2d, overlapping": lambda x: f.avg_pool2d(x, 3, 2, 1),
        "avg_pool2d, oblong": lambda x: f.avg_pool2d(x, (2, 3)), "avg_pool2d, large": lambda x: f.avg_pool2d(x, 6),
        "adaptive_avg_pool2d to one": lambda x: f.adaptive_avg_pool2d(x, 1), "adaptive_avg_pool2d": lambda x: f.adaptive_avg_pool2d(x, 3),
        "adaptive_avg_pool2d, uneven": lambda x: f.adaptive_avg_pool2d(x, 4), "adaptive_max_pool2d": lambda x: f.adaptive_max_pool2d(x, 2),
        "adaptive_max_pool2d, uneven": lambda x: f.adaptive_max_pool2d(x, 4), "lp_pool2d": lambda x: f.lp_pool2d(x, 2, 2),
        "mean over the image": lambda x: x.mean((2, 3)), "mean over the image, kept": lambda x: x.mean((2, 3), keepdim=True), "sum": lambda x: x.sum(),
        "amax": lambda x: x.amax((2, 3)), "amax of all": lambda x: x.amax(), "max of all": lambda x: x.max(), "max along": lambda x: x.max(1)[0],
        "var": lambda x: x.var((2, 3)), "std": lambda x: x.std(1), "var_mean": lambda x: t.var_mean(x, 1)[0], "norm": lambda x: x.norm(dim=1),
        "norm of all": lambda x: x.norm(), "logsumexp": lambda x: x.logsumexp(1), "prod": lambda x: x.prod(1), "nansum": lambda x: x.nansum(1),
        "aminmax": lambda x: t.aminmax(x, dim=1)[0], "cosine_similarity": lambda x: f.cosine_similarity(x, x * 2 + 1),
        "pairwise_distance": lambda x: f.pairwise_distance(x, x * 2), "cumsum": lambda x: x.cumsum(2),
        "nearest": lambda x: f.interpolate(x, scale_factor=2), "bilinear": lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"),
        "bicubic": lambda x: f.interpolate(x, scale_factor=2, mode="bicubic"),
        "grid_sample": lambda x: f.grid_sample(x, t.zeros(2, 4, 4, 2), align_corners=False),
        "pad": lambda x: f.pad(x, (1, 1, 1, 1)), "pad by reflection": lambda x: f.pad(x, (1, 1, 1, 1), mode="reflect"),
        "pad by repetition": lambda x: f.pad(x, (1, 1, 1, 1), mode="replicate"),
        "pixel_shuffle": lambda x: f.pixel_shuffle(x, 2), "pixel_unshuffle": lambda x: f.pixel_unshuffle(x, 2),
        "channel_shuffle": lambda x: f.channel_shuffle(x, 2), "unfold": lambda x: f.unfold(x, 3),
        "cat": lambda x: t.cat([x, x], 1), "chunk": lambda x: x.chunk(2, 1)[0], "slice": lambda x: x[:, :, 1:4], "narrow": lambda x: x[:, 2:5],
        "stack": lambda x: t.stack([x, x]).sum(0), "index": lambda x: x[t.tensor([1, 0])], "flip": lambda x: x.flip(3), "roll": lambda x: x.roll(1, 2),
        "flatten": lambda x: x.flatten(1), "permute": lambda x: x.permute(0, 2, 3, 1), "clone": lambda x: x.clone(),
        "contiguous": lambda x: x.contiguous(),
        "dropout of nothing": lambda x: f.dropout(x, 0.0), "dropout": lambda x: f.dropout(x, 0.5), "dropout2d": lambda x: f.dropout2d(x, 0.5),
        "matmul": lambda x: x @ t.ones(6, 5), "mse_loss": lambda x: f.mse_loss(x, t.zeros_like(x)),
        "cross_entropy": lambda x: f.cross_entropy(x, t.zeros(2, 6, 6, dtype=t.int64)),
    }


@functools.cache
def found(lib: Any) -> dict[str, Any]:
    """Of each case and each layout of the gradient that arrives: the strides of the result and of the gradient."""
    made = {}
    for name, call in cases(lib).items():
        x = lib.randn(2, 8, 6, 6).to(memory_format=lib.channels_last).requires_grad_()
        y = call(x)
        for how, g in (("like", lib.ones_like(y)), ("rows", lib.ones(tuple(y.shape), dtype=y.dtype))):
            gx, = lib.autograd.grad(y, x, g, retain_graph=True)
            made[name, how] = tuple(y.stride()), tuple(gx.stride())
    return made


@pytest.mark.parametrize("how", ["like", "rows"])
@pytest.mark.parametrize("name", list(cases(flambeau)))
def test_images(name: str, how: str) -> None:
    same = found(flambeau)[name, how] == found(torch)[name, how]
    reason, hows = OTHERWISE.get(name, ("", ""))
    assert same != (how in hows.split()), reason or "a layout other than PyTorch's"


def leaves(t: Any) -> dict[str, Any]:
    return {
        "rows": t.randn(4, 3, 5, 5), "channels last": t.randn(4, 3, 5, 5).to(memory_format=t.channels_last),
        "another order": t.randn(5, 5, 3, 4).permute(3, 2, 0, 1),
        "gaps": t.randn(4, 6, 5, 5)[:, ::2], "expanded": t.randn(1, 3, 5, 5).expand(4, 3, 5, 5),
        "an axis of one": t.randn(4, 1, 5, 5).to(memory_format=t.channels_last),
        "any stride of one": t.randn(4, 1, 5, 5).as_strided((4, 1, 5, 5), (25, 7, 5, 1)),
        "nothing": t.randn(0, 3, 5, 5).to(memory_format=t.channels_last),
    }


def arriving(t: Any, shape: tuple[int, ...], how: str) -> Any:
    if how == "channels last":
        return t.ones(shape).to(memory_format=t.channels_last)
    return t.ones(tuple(reversed(shape))).permute(3, 2, 1, 0) if how == "reversed" else t.ones(()).expand(shape) if how == "expanded" else t.ones(shape)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("how", ["rows", "channels last", "reversed", "expanded"])
@pytest.mark.parametrize("name", list(leaves(flambeau)))
def test_gradients_of_leaves(name: str, how: str, create: bool, held: bool) -> None:
    """PyTorch's "gradient layout contract": a gradient lies as a leaf that fills its block, else row by row; it is copied where it does not, or is held."""
    made = []
    for lib in (torch, flambeau):
        x = leaves(lib)[name].detach().requires_grad_()
        g, kept = arriving(lib, tuple(x.shape), how), []

        class Given(lib.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.view_as(x)

            @staticmethod
            def backward(ctx: Any, up: Any, g: Any = g, kept: Any = kept) -> Any:
                mine = g if how == "expanded" else g.clone()
                if held:
                    kept.append(mine)
                return mine
        Given.apply(x).backward(arriving(lib, tuple(x.shape), "rows"), create_graph=create)
        assert bool((x.grad == 1).all())
        made.append((tuple(x.grad.stride()), [k.data_ptr() == x.grad.data_ptr() for k in kept] if x.numel() else []))
    assert made[0] == made[1]
