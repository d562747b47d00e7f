"""Convolutions by cuDNN, through the driver on the fake libraries; what NVIDIA's own says of the graphs is in `test_cudnn_real`."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.nvidia.cudnn import Unsupported
from flambeau._core.drivers.nvidia.cudnn_convolutions import Shape

from .running import each_case

test_case = each_case("cases_cudnn.py")


NUMBERS = ((1, 1), (2, 1), (1, 1))
PLAIN = {"x": ((2, 4, 8, 8), (256, 64, 8, 1)), "w": ((6, 2, 3, 3), (18, 9, 3, 1)), "y": ((2, 6, 4, 8), (192, 32, 8, 1))}
LAST = {"x": ((2, 4, 8, 8), (256, 1, 32, 4)), "w": ((6, 2, 3, 3), (18, 1, 6, 2)), "y": ((2, 6, 4, 8), (192, 1, 48, 6))}


@pytest.mark.parametrize("operands", [PLAIN, LAST], ids=["plain", "last"])
def test_operands_as_they_lie(operands: dict[str, Any]) -> None:
    made = Shape("forward", torch.float32, operands["x"], operands["w"], operands["y"], NUMBERS, False)
    assert [(made.sizes[n], made.strides[n]) for n in "xwy"] == [operands[n] for n in "xwy"]


def test_one_axis_is_two() -> None:
    made = Shape("images", torch.float16, ((2, 4, 8), (32, 8, 1)), ((6, 2, 3), (6, 3, 1)), ((2, 6, 4), (24, 4, 1)), ((1,), (2,), (1,)), False)
    assert made.sizes == {"x": (2, 4, 1, 8), "w": (6, 2, 1, 3), "y": (2, 6, 1, 4)} and made.strides["x"] == (32, 8, 8, 1)
    assert (made.padding, made.stride, made.dilation) == ((0, 1), (1, 2), (1, 1))


@pytest.mark.parametrize("change", [
    {"x": ((2, 4, 8, 8), (256, 64, 1, 8))}, {"w": ((6, 2, 3, 3), (18, 1, 6, 2))}, {"x": ((2, 4, 1 << 15, 1 << 15), (1 << 32, 1 << 30, 1 << 15, 1))}])
def test_what_is_not_asked_of_it(change: dict[str, Any]) -> None:
    """Strides that are neither of the two formats, operands of both, and too many elements."""
    o: dict[str, Any] = PLAIN | change
    with pytest.raises(Unsupported):
        Shape("forward", torch.float32, o["x"], o["w"], o["y"], NUMBERS, False)
    for d in (torch.complex64, torch.float64):
        with pytest.raises(Unsupported):
            Shape("forward", d, PLAIN["x"], PLAIN["w"], PLAIN["y"], NUMBERS, False)


def test_axes_of_length_one_have_no_order() -> None:
    o = LAST | {"w": ((6, 2, 1, 1), (2, 1, 1, 1))}
    made = Shape("forward", torch.float32, o["x"], o["w"], o["y"], NUMBERS, False)
    assert made.strides["x"] == LAST["x"][1] and made.strides["w"] == (2, 1, 2, 2)
    assert made.key() == Shape("forward", torch.float32, o["x"], ((6, 2, 1, 1), (2, 1, 7, 9)), o["y"], NUMBERS, False).key()
