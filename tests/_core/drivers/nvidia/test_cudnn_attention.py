"""Attention by cuDNN's graphs, through the driver on the fake libraries."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.nvidia.cudnn_attention import Shape, _sound, why_not

from .running import each_case

test_case = each_case("cases_cudnn_attention.py")
SIZES = (2, 4, 2, 32, 48, 16, 24)


def steps(order: str, **changed: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Of dense operands with the heads before the rows ("bhld") or after them."""
    batch, heads, group, length, source, depth, value_depth = SIZES

    def dense(h: int, n: int, e: int) -> tuple[int, ...]:
        return (h * n * e, n * e, e, 1) if order == "bhld" else (h * n * e, e, h * e, 1)
    found = {"q": dense(heads, length, depth), "k": dense(heads // group, source, depth), "v": dense(heads // group, source, value_depth)}
    return found | {"o": dense(heads, length, value_depth)[:3]} | changed


@pytest.mark.parametrize("order", ["bhld", "blhd"])
def test_operands_that_fit(order: str) -> None:
    made = Shape(torch.bfloat16, True, SIZES, 0.5, steps(order))
    assert made.fits() and made.sizes["k"] == (2, 2, 48, 16) and made.sizes["o"] == (2, 4, 32, 24)
    assert made.strides("v") == steps(order)["v"] and made.strides("o") == (*steps(order)["o"], 1)


@pytest.mark.parametrize("changed", [{"q": (2048, 512, 16, 2)}, {"k": (1536, 768, 20, 1)}, {"v": (0, 1152, 24, 1)}, {"o": (3072, 0, 24)}])
def test_operands_that_do_not(changed: dict[str, Any]) -> None:
    assert not Shape(torch.bfloat16, True, SIZES, 0.5, steps("bhld", **changed)).fits()


def test_axes_of_length_one_get_the_strides_of_dense_operands() -> None:
    for sizes, odd in itertools.product(((1, 1, 1, 8, 8, 8, 8),), (0, 3, 12345)):
        made = Shape(torch.float16, False, sizes, 1.0, dict.fromkeys("qkvo", (odd, odd, 8, 1)))
        assert made.fits() and made.strides("q") == (64, 64, 8, 1)
        assert made.key() == Shape(torch.float16, False, sizes, 1.0, dict.fromkeys("qkvo", (64, 64, 8, 1))).key()


def test_whom_it_does_not_serve() -> None:
    assert "not installed" in why_not(None) and "9.10.1 is older" in why_not(91001) and "below 8.0" in why_not(91900, (7, 5))
    assert not why_not(91002) and not why_not(92800, (9, 0))


def test_gradients_that_are_known_to_be_wrong() -> None:
    plain, odd, deep = (1, 1, 1, 64, 128, 64, 64), (1, 1, 1, 64, 100, 64, 64), (1, 1, 1, 64, 128, 160, 128)
    assert _sound(91200, 9, plain, False) and not _sound(91500, 9, odd, False) and _sound(91501, 9, odd, False)
    assert not _sound(91200, 9, deep, False) and _sound(91300, 9, deep, False) and _sound(91200, 9, (*deep[:5], 192, 128), False)
    assert _sound(92800, 9, odd, True) and not _sound(92800, 10, odd, True)
