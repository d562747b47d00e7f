"""Convolutions of one channel a group, held against dense ones whose kernels are 0 elsewhere."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.cpu import depthwise
from flambeau._core.dtypes import float32, int32
from flambeau._core.kernels.specs import Convolution
from flambeau._core.layout import contiguous_strides

F = torch.nn.functional
CASES = [(kernel, stride, padding, dilation) for kernel, stride, padding, dilation in itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2))
         if padding <= dilation * (kernel - 1)]


def both(axes: int, each: int, bias: bool, kernel: int, stride: int, padding: int, dilation: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(kernel + 10 * stride + 100 * padding)
    c, size = 3, (19, 9, 7)[:axes]
    x, w = rng.standard_normal((2, c, *size)), rng.standard_normal((c * each, 1, *[kernel] * axes))
    dense = np.zeros((c * each, c, *[kernel] * axes))
    for m in range(c * each):
        dense[m, m // each] = w[m, 0]
    b = rng.standard_normal(c * each) if bias else None
    call = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    found = []
    for kernels, groups in ((w, c), (dense, 1)):
        t, k = (torch.from_numpy(a).to(dtype).requires_grad_() for a in (x, kernels))
        y = call(t, k, None if b is None else torch.from_numpy(b).to(dtype), stride, padding, dilation, groups)
        (y * torch.arange(y.numel(), dtype=dtype).reshape(y.shape).sin()).sum().backward()
        gw = k.grad.numpy()
        found.append((y.detach().numpy(), t.grad.numpy(), gw if groups > 1 else np.stack([gw[m, m // each] for m in range(c * each)])[:, None]))
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9 if dtype is torch.float64 else 2e-4, atol=1e-9 if dtype is torch.float64 else 2e-4)


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), CASES)
def test_lines(kernel: int, stride: int, padding: int, dilation: int) -> None:
    both(1, 1, True, kernel, stride, padding, dilation, torch.float64)


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [c for c in CASES if c[0] == 3 or c[1] == 2])
@pytest.mark.parametrize("each", [1, 2])
def test_images(each: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    both(2, each, each == 1, kernel, stride, padding, dilation, torch.float64 if each == 1 else torch.float32)


def test_volumes_and_steps_that_skip_places() -> None:
    both(3, 1, False, 2, 2, 1, 1, torch.float64)
    both(2, 1, False, 2, 3, 0, 1, torch.float64)  # some places of the image are in no window
    both(2, 1, False, 2, 3, 1, 2, torch.float64)


def test_kernels_of_many_places_and_uneven_steps() -> None:
    for kernel, stride, padding, dilation in ((5, 1, 2, 1), (5, 2, 2, 1), (7, 1, 3, 1), (7, 4, 1, 1), (4, 5, 0, 1), (3, 4, 6, 3)):
        both(1, 2, True, kernel, stride, padding, dilation, torch.float64)
        both(1, 1, False, kernel, stride, padding, dilation, torch.float32)
    for kernel, stride, padding in ((5, 2, 2), (7, 1, 3), (4, 3, 1)):
        both(2, 1, True, kernel, stride, padding, 1, torch.float32)


def test_numbers_at_an_edge_that_are_none_do_not_reach_the_other_edge() -> None:
    # rows lie one behind the other: what is summed between them is left out, and is multiplied with nothing
    x, w = torch.ones(1, 2, 5, 6), torch.ones(2, 1, 3, 3, requires_grad=True)
    x[0, 0, 2, 5] = math.inf
    y = F.conv2d(x, w, padding=1, groups=2)
    assert bool(y[0, 0, :, :4].isfinite().all()) and bool(y[0, 0, 1:4, 4:].isinf().all())
    y.sum().backward()
    assert w.grad[0, 0].isinf().tolist() == [[False, True, True]] * 3 and not bool(w.grad.isnan().any())


@pytest.mark.parametrize("stride", [1, 2])
def test_bits_do_not_depend_on_threads(stride: int) -> None:
    x, w, before, found = torch.randn(3, 40, 23, 19), torch.randn(80, 1, 5, 5), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            a, b = x.clone().requires_grad_(), w[:40].clone().requires_grad_()
            F.conv2d(a, b, None, stride, 2, 1, 40).square().sum().backward()
            found.append((a.grad, b.grad, F.conv2d(x, w, None, stride, 2, 1, 40)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_an_image_with_steps_between_rows_and_batches_is_read_where_it_lies() -> None:
    x, w = torch.randn(4, 3, 12, 20, dtype=torch.float64), torch.randn(3, 1, 3, 3, dtype=torch.float64)
    part = x[::2, :, 1::2, 2:11]
    assert torch.equal(F.conv2d(part, w, None, 2, 1, 1, 3), F.conv2d(part.contiguous(), w, None, 2, 1, 1, 3))


def test_other_groups_and_types_are_not_for_it() -> None:
    def spec(groups: int, kernel: int, d: Any = float32) -> Convolution:
        x, w, y = (1, 4, 9, 9), (4, 4 // groups, kernel, kernel), (1, 4, 10 - kernel, 10 - kernel)
        return Convolution("forward", d, *[(s, contiguous_strides(s)) for s in (x, w, y)], (0, 0), (1, 1), (1, 1), groups)
    assert depthwise.convolution(spec(4, 3)) is not None
    assert depthwise.convolution(spec(2, 3)) is None and depthwise.convolution(spec(4, 3, int32)) is None
