"""Selecting kernels, carried out on the CPU in three orders of threads, give what NumPy gives, positions too."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.drivers.cpu import row_order
from flambeau._core.dtypes import ALL, bfloat16, dtype, float32, int64, uint8
from flambeau._core.kernels.cuda_c.handwritten import topk
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Operand, values
from tests._core.kernels.cuda_c.test_sorting import Job, check_all

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
REAL = [d for d in ALL if not d.is_complex]


def first_job(d: dtype, shape: tuple[int, ...], k: int, rng: np.random.Generator, largest: bool = True, how: tuple[int, int] = (0, 0),
              few: bool = False) -> Job:
    a = values(d, shape, rng, True, few)
    to = (*shape[:-1], k)
    source, outs = Operand(a, how[0]), [Operand(np.zeros(to, a.dtype), how[1]), Operand(np.zeros(to, np.int64), how[1])]
    at = row_order.order(a.reshape(-1, shape[-1]), d, largest)[:, :k].reshape(to)
    kernel = topk.first(d, shape, [outs[0].strides, outs[1].strides, source.strides], largest, k)
    return Job(kernel, outs, [source], [np.take_along_axis(a, at, -1), at])


def one_job(d: dtype, shape: tuple[int, ...], k: int, rng: np.random.Generator, middle: str = "", how: int = 0, few: bool = False) -> Job:
    a = values(d, shape, rng, True, few)
    if middle:  # rows with and without NaN
        a[::2] = values(d, a[::2].shape, rng, False, few)
    source, outs = Operand(a, how), [Operand(np.zeros(shape[:-1], a.dtype)), Operand(np.zeros(shape[:-1], np.int64))]
    rows = a.reshape(-1, shape[-1])
    at = row_order.middle(rows, d, middle == "nanmedian") if middle else row_order.order(rows, d)[:, k]
    at = at.reshape(*shape[:-1], 1)
    kernel = topk.one(d, shape, [(*o.strides, 0) for o in outs] + [source.strides], k, middle)
    return Job(kernel, outs, [source], [np.take_along_axis(a, at, -1)[..., 0], at[..., 0]])


def test_first_of_every_type() -> None:
    rng = np.random.default_rng(1)
    check_all([first_job(d, (2, 3000), 7, rng, bool(k % 2)) for k, d in enumerate(REAL)])


def test_first_of_many_sizes() -> None:
    rng, jobs = np.random.default_rng(2), []
    for n, k in ((5000, 1), (5000, 512), (5000, 513), (5000, 2048), (2048, 2048), (700, 699), (33000, 40), (50000, 3)):
        jobs.append(first_job(float32, (1, n), k, rng))
    jobs.append(first_job(int64, (2, 34000), 20, rng))
    jobs.append(first_job(float32, (2, 3, 2500), 9, rng, how=(1, 2)))
    jobs.append(first_job(bfloat16, (2, 3, 2500), 9, rng, False, how=(2, 1)))
    check_all(jobs, (0, 7))


def test_equal_ones_are_taken_in_order() -> None:
    rng = np.random.default_rng(3)
    check_all([first_job(d, (2, 4500), k, rng, few=True) for d in (float32, uint8, int64) for k in (3, 1000)] +
              [first_job(uint8, (1, 40000), 50, rng, few=True)], (0, 7))


def test_one_of_every_type() -> None:
    rng, jobs = np.random.default_rng(4), []
    for j, d in enumerate(REAL):
        jobs.append(one_job(d, (2, 3000), 100 * j, rng))
    check_all(jobs)


def test_medians_and_ranks() -> None:
    rng, jobs = np.random.default_rng(5), []
    for middle in ("median", "nanmedian"):
        jobs += [one_job(d, (4, n), 0, rng, middle) for d in (float32, bfloat16, int64) for n in (1, 2, 999, 5000)]
    for k in (0, 1, 2500, 4998, 4999):
        jobs.append(one_job(float32, (3, 5000), k, rng, few=True))
        jobs.append(one_job(uint8, (3, 5000), k, rng, how=2, few=True))
    a = one_job(float32, (2, 100), 0, rng, "nanmedian")
    a.ins[0].view[...] = np.nan  # nothing but NaN: the first
    a.want = [np.full(2, np.nan, np.float32), np.zeros(2)]
    check_all([*jobs, a], (0, 7))
