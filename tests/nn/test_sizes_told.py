"""The formulas for sizes in the docstrings of layers give the sizes that come out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn

# by the layer's name without its dimensions: the arguments that are tried, and the sizes
WINDOWS = {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1)}
TRIED: dict[str, dict[str, tuple[Any, ...]]] = {
    "Conv": WINDOWS | {"dilation": (1, 2)},
    "MaxPool": WINDOWS | {"dilation": (1, 2)}, "AvgPool": WINDOWS,
    "LPPool": {k: WINDOWS[k] for k in ("kernel_size", "stride")},
    "ConvTranspose": WINDOWS | {"dilation": (1, 2), "output_padding": (0,)},
    "AdaptiveMaxPool": {"output_size": (1, 3)}, "AdaptiveAvgPool": {"output_size": (1, 3)},
    "ConstantPad": {"padding": (0, 2)}, "ZeroPad": {"padding": (0, 2)}, "ReflectionPad": {"padding": (0, 2)}, "ReplicationPad": {"padding": (0, 2)},
    "CircularPad": {"padding": (0, 2)},
}


def formula(name: str) -> str:
    """What a layer's docstring says of sizes."""
    found = re.search(r"`out = (.+?)`", getattr(nn, name).__doc__)
    assert found is not None, name
    return found[1]


def layers() -> Iterator[tuple[str, int]]:
    for name in dir(nn):
        m = re.fullmatch(r"([A-Z]\w*?(?:Conv|ConvTranspose|Pool|Pad))([123])d", name)
        if m and not name.startswith(("Lazy", "Fractional")) or re.fullmatch(r"Conv(Transpose)?[123]d", name):
            yield name, int(name[-2])


@pytest.mark.parametrize(("name", "dims"), list(layers()), ids=lambda v: str(v))
def test_the_formula_is_the_size(name: str, dims: int) -> None:
    tried = TRIED[name[:-2]]
    text = formula(name)
    for values in itertools.product(*tried.values()):
        given = dict(zip(tried, values, strict=True))
        own = {"Conv": (2, 2), "ConvTranspose": (2, 2), "LPPool": (2,)}.get(name[:-2], ())
        extra = (0.0,) if name.startswith("Constant") else ()
        layer = getattr(nn, name)(*own, *((given["padding"], *extra) if "Pad" in name else ()), **({} if "Pad" in name else given))
        for size in (7, 8):
            names = given | {"size": size, "before": given.get("padding", 0), "after": given.get("padding", 0)}
            out = layer(torch.ones(1, 2, *[size] * dims))
            assert tuple(out.shape[2:]) == (eval(text, {}, names),) * dims, (name, names)


def test_there_is_a_formula_for_every_layer_that_changes_sizes() -> None:
    found = [name for name, _ in layers()]
    assert len(found) >= 30 and {"Conv2d", "ConvTranspose3d", "MaxPool1d", "LPPool2d", "AdaptiveAvgPool3d", "ReflectionPad2d"} <= set(found)
    for name in (*found, "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Unfold", "Upsample", "FractionalMaxPool2d"):
        assert formula(name)


def test_sizes_that_are_undone_or_scaled() -> None:
    pool, back = nn.MaxPool1d(2, 2, return_indices=True), nn.MaxUnpool1d(2, 2)
    x = torch.arange(8.0).reshape(1, 1, 8)
    y, places = pool(x)
    assert back(y, places).shape[-1] == eval(formula("MaxUnpool1d"), {}, {"size": 4, "stride": 2, "padding": 0, "kernel_size": 2}) == 8
    assert nn.Upsample(scale_factor=1.5)(x).shape[-1] == eval(formula("Upsample"), {}, {"size": 8, "scale_factor": 1.5}) == 12
    rows = nn.Unfold(3, padding=1, stride=2)(torch.ones(1, 2, 7, 7))
    assert rows.shape[-1] == eval(formula("Unfold"), {}, {"size": 7, "padding": 1, "dilation": 1, "kernel_size": 3, "stride": 2}) ** 2
    assert nn.FractionalMaxPool2d(2, output_ratio=0.5)(torch.ones(1, 2, 8, 8)).shape[-1] == eval(formula("FractionalMaxPool2d"), {}, {
        "size": 8, "output_ratio": 0.5})
