"""Gradients of the images of convolutions in steps, held against sums scattered by NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.cpu import transposed
from flambeau._core.dtypes import float32, float64, int32
from flambeau._core.kernels.specs import Convolution
from flambeau._core.layout import contiguous_strides

F = torch.nn.functional
CASES = [(kernel, stride, padding, dilation) for kernel, stride, padding, dilation in itertools.product((1, 2, 3, 5), (2, 3, 4), (0, 1, 2), (1, 2, 3))
         if padding <= dilation * (kernel - 1)]


def scattered(gy: Any, w: Any, image: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int) -> Any:
    n, o, out = gy.shape[0], gy.shape[1] // groups, gy.shape[2:]
    padded = np.zeros((n, groups, w.shape[1], *[i + 2 * p for i, p in zip(image, padding, strict=True)]))
    g, k = gy.reshape(n, groups, o, *out), w.reshape(groups, o, *w.shape[1:])
    for at in itertools.product(*map(range, w.shape[2:])):
        places = tuple(slice(a * d, a * d + (q - 1) * s + 1, s) for a, d, q, s in zip(at, dilation, out, stride, strict=True))
        padded[(..., *places)] += np.einsum("ngo...,goc->ngc...", g, k[(..., *at)])
    inside = tuple(slice(p, p + i) for p, i in zip(padding, image, strict=True))
    return padded.reshape(n, -1, *padded.shape[3:])[(..., *inside)]


def check(image: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int = 1,
          dtype: torch.dtype = torch.float64, channels: int = 3) -> None:
    out = tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, p, d, k, s in zip(image, padding, dilation, kernel, stride, strict=True))
    rng = np.random.default_rng(sum(image) + 10 * stride[-1])
    w, gy = rng.standard_normal((2 * groups, channels, *kernel)), rng.standard_normal((2, 2 * groups, *out))
    call = (F.conv1d, F.conv2d, F.conv3d)[len(image) - 1]
    x = torch.zeros(2, channels * groups, *image, dtype=dtype, requires_grad=True)
    call(x, torch.from_numpy(w).to(dtype), None, stride, padding, dilation, groups).backward(torch.from_numpy(gy).to(dtype))
    tight = dtype is torch.float64
    np.testing.assert_allclose(x.grad.numpy(), scattered(gy, w, image, stride, padding, dilation, groups), rtol=1e-10 if tight else 1e-4,
                               atol=1e-10 if tight else 1e-4)


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), CASES)
def test_lines(kernel: int, stride: int, padding: int, dilation: int) -> None:
    for image in (24, 19):
        if image + 2 * padding >= dilation * (kernel - 1) + 1:
            check((image,), (kernel,), (stride,), (padding,), (dilation,))


@pytest.mark.parametrize("image", [(12, 8), (11, 8), (7, 9)])
@pytest.mark.parametrize(("kernel", "padding"), [((3, 3), (1, 1)), ((2, 2), (0, 0)), ((1, 1), (0, 0)), ((1, 3), (0, 1)), ((4, 5), (3, 2)), ((3, 3), (0, 2))])
def test_images(image: tuple[int, int], kernel: tuple[int, int], padding: tuple[int, int]) -> None:
    for stride in ((2, 2), (1, 2), (2, 1), (4, 3)):
        check(image, kernel, stride, padding, (1, 1))
        check(image, kernel, stride, padding, (1, 1), groups=2, dtype=torch.float32)


def test_volumes_channels_beyond_a_block_and_many_remainders() -> None:
    check((6, 5, 8), (3, 2, 3), (2, 2, 2), (1, 0, 1), (1, 1, 1))
    check((16, 16), (3, 3), (2, 2), (1, 1), (1, 1), dtype=torch.float32, channels=150)
    check((20, 20), (5, 5), (5, 5), (0, 0), (1, 1))  # 25 remainders: one product for all


def test_a_transposed_convolution_has_the_same_bits_on_more_threads() -> None:
    x, w = torch.randn(2, 40, 17, 17), torch.randn(40, 24, 4, 4)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(F.conv_transpose2d(x, w, None, 2, 1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_places_that_fall_on_a_remainder() -> None:
    # at step 2, places 0, 2 ... of the image are seen by the kernel's middle, the others by both its ends
    even, odd = transposed.remainders(8, 3, 2, 1, 1)
    assert (even.begin, even.length, even.tap, even.taps, even.padding) == (0, 4, 1, 1, 0)
    assert (odd.begin, odd.length, odd.tap, odd.taps, odd.apart, odd.dilation, odd.padding) == (1, 4, 0, 2, 2, 1, 0)
    assert [r.taps for r in transposed.remainders(8, 1, 2, 0, 1)] == [1, 0]


def test_what_is_not_for_it() -> None:
    def spec(stride: int, d: Any = float32, gap: int = 0) -> Convolution:
        x, w, y = (1, 4, 9, 9), (4, 4, 3, 3), (1, 4, *[(9 - 3) // stride + 1] * 2)
        steps = contiguous_strides(x)
        return Convolution("images", d, (x, (*steps[:3], 1 + gap)), (w, contiguous_strides(w)), (y, contiguous_strides(y)), (0, 0), (stride,) * 2, (1, 1), 1,
                           False)
    assert transposed.images(spec(2)) is not None and transposed.images(spec(2, float64)) is not None
    assert all(transposed.images(s) is None for s in (spec(1), spec(6), spec(2, int32), spec(2, gap=1)))
