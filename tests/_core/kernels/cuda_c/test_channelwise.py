"""Convolutions of one channel a group, carried out on the CPU in several orders of threads, give what NumPy gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, dtype, float16, float32, float64
from flambeau._core.kernels import interpret
from flambeau._core.kernels.cuda_c.handwritten import channelwise
from tests._core.kernels.cuda_c import host

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
RTOL = {float64: 1e-12, float32: 2e-6, float16: 2e-3, bfloat16: 1.6e-2}


def laid(a: np.ndarray, last: bool) -> np.ndarray:
    """The same numbers, channels after the axes in memory where `last` is."""
    return np.ascontiguousarray(np.moveaxis(a, 1, -1)).transpose(0, a.ndim - 1, *range(1, a.ndim - 1)) if last else np.ascontiguousarray(a)


def stored(a: np.ndarray, d: dtype) -> np.ndarray:
    return interpret.narrow_bfloat16(a.astype(np.float32)) if d is bfloat16 else a.astype(d.np)


def numbers(a: np.ndarray, d: dtype) -> np.ndarray:
    return (interpret.widen_bfloat16(a) if d is bfloat16 else a).astype(np.float64)


def expected(kind: str, x: np.ndarray, w: np.ndarray, y: np.ndarray, padding, stride, dilation) -> np.ndarray:
    """By the definition, of two axes, in float64; what is asked for is read as zeros before."""
    n, channels, height, width = x.shape
    each = y.shape[1] // channels
    out = {"forward": np.zeros(y.shape), "images": np.zeros(x.shape), "weights": np.zeros(w.shape)}[kind]
    for i, j in itertools.product(*map(range, w.shape[2:])):
        for row, place in itertools.product(*map(range, y.shape[2:])):
            up, along = row * stride[0] - padding[0] + i * dilation[0], place * stride[1] - padding[1] + j * dilation[1]
            if not (0 <= up < height and 0 <= along < width):
                continue
            for c in range(y.shape[1]):
                if kind == "forward":
                    out[:, c, row, place] += x[:, c // each, up, along] * w[c, 0, i, j]
                elif kind == "images":
                    out[:, c // each, up, along] += y[:, c, row, place] * w[c, 0, i, j]
                else:
                    out[c, 0, i, j] += (y[:, c, row, place] * x[:, c // each, up, along]).sum()
    return out


class Job:
    """One convolution of a kind: operands, kernel, and what is right."""

    def __init__(self, kind: str, d: dtype, images: tuple[int, ...], each: int, kernel: tuple[int, int], padding: tuple[int, int], stride: tuple[int, int],
                 dilation: tuple[int, int], rng: np.random.Generator, last: bool = False, bias: bool = False, flat: bool = False) -> None:
        n, c = images[:2]
        out = tuple((i + 2 * p - dd * (k - 1) - 1) // s + 1 for i, p, dd, k, s in zip(images[2:], padding, dilation, kernel, stride))
        x, w, y = (stored(rng.standard_normal(s), d) for s in (images, (c * each, 1, *kernel), (n, c * each, *out)))
        x, y = laid(x, last), laid(y, last)
        b = stored(rng.standard_normal(c * each), d)
        self.want = expected(kind, *(numbers(a, d) for a in (x, w, y)), padding, stride, dilation)
        if bias:
            self.want += numbers(b, d)[:, None, None]
        place = [(a.shape, tuple(s // a.itemsize for s in a.strides)) for a in (x, y)]
        steps = [kernel, padding, stride, dilation]
        if flat:
            place, steps = [((*s[:2], s[3]), (*t[:2], t[3])) for s, t in place], [v[1:] for v in steps]
        s = channelwise.shape(*place, *steps)
        self.kernel = channelwise.forward(d, s, bias) if kind == "forward" else getattr(channelwise, kind)(d, s)
        # the caller of a convolution gives its workspace, be it empty; that of a kernel which has one the launch gives here
        space = [] if self.kernel.workspace else [np.zeros(8, np.uint8)]
        self.d, self.out = d, {"forward": y, "images": x, "weights": w}[kind]
        rest = {"forward": [x, w, *([b] if bias else [])], "images": [w, y], "weights": [x, y]}[kind]
        self.memory = [self.out, *rest, *space]

    def check(self, batch: host.Batch, orders: tuple[int, ...]) -> None:
        results = []
        for order in orders:
            self.out.transpose(np.argsort([-s for s in self.out.strides], kind="stable")).view(np.uint8)[...] = 0xA5
            batch.launch(self.kernel, self.memory, [a.__array_interface__["data"][0] for a in self.memory], order)
            results.append(np.array(self.out))
        assert all(r.tobytes() == results[0].tobytes() for r in results)
        got = numbers(results[0], self.d)
        np.testing.assert_allclose(got, self.want, rtol=RTOL[self.d], atol=RTOL[self.d] * max(1.0, np.abs(self.want).max()))


def check_all(jobs: list[Job], orders: tuple[int, ...] = (0, 7)) -> None:
    batch = host.Batch([j.kernel for j in jobs])
    for j in jobs:
        j.check(batch, orders)


KINDS = ("forward", "images", "weights")
ONE = (1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_and_layout(kind: str) -> None:
    rng = np.random.default_rng(1)
    check_all([Job(kind, d, (2, 5, 6, 9), 1, (3, 3), ONE, ONE, ONE, rng, last) for d in RTOL for last in (False, True)], host.ORDERS)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_borders_and_results_a_channel(kind: str) -> None:
    rng, jobs = np.random.default_rng(2), []
    for last in (False, True):
        for each, kernel, padding, stride, dilation in ((1, (7, 7), (3, 3), ONE, ONE), (2, (3, 2), (0, 1), (2, 3), ONE), (1, (2, 3), (3, 4), (1, 2), (2, 3)),
                                                        (3, (1, 1), (0, 0), (2, 2), ONE), (1, (4, 5), (2, 0), (3, 1), (1, 2)), (1, ONE, (0, 0), ONE, ONE)):
            jobs.append(Job(kind, float32, (2, 3, 11, 13), each, kernel, padding, stride, dilation, rng, last))
    check_all(jobs)


@pytest.mark.parametrize("kind", KINDS)
def test_one_axis_many_channels_one_place(kind: str) -> None:
    rng, jobs = np.random.default_rng(3), []
    for last in (False, True):
        jobs += [Job(kind, float32, (3, 4, 1, 40), 1, (1, 5), (0, 2), ONE, ONE, rng, last, flat=True),
                 Job(kind, float32, (2, 70, 4, 5), 1, (3, 3), ONE, ONE, ONE, rng, last),
                 Job(kind, float32, (2, 1, 3, 3), 2, (3, 3), (0, 0), ONE, ONE, rng, last),
                 Job(kind, float32, (40, 2, 16, 17), 1, (2, 3), (0, 1), ONE, ONE, rng, last)]
    check_all(jobs)


def test_a_bias() -> None:
    rng = np.random.default_rng(4)
    check_all([Job("forward", d, (2, 5, 6, 9), 2, (3, 3), ONE, (1, 2), ONE, rng, last, bias=True) for d in (float32, bfloat16) for last in (False, True)])


def test_weights_of_many_parts() -> None:
    rng = np.random.default_rng(5)
    jobs = [Job("weights", float32, (64, 3, 14, 12), 1, (3, 3), ONE, ONE, ONE, rng, last) for last in (False, True)]
    assert all(j.kernel.workspace > 4 * 27 for j in jobs)
    check_all(jobs)


def test_what_is_not_there() -> None:
    flat = ((2, 3, 4, 4, 4), (192, 64, 16, 4, 1))
    for x, kernel in ((flat, (3, 3, 3)), (((2, 3, 50, 50), (7500, 2500, 50, 1)), (5, 33)), (((1 << 20, 64, 8, 8), (4096, 64, 8, 1)), (3, 3))):
        with pytest.raises(NotImplementedError):
            channelwise.shape(x, x, kernel, *((1,) * len(kernel),) * 3)
