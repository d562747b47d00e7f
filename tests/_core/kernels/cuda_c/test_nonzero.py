"""Compaction, searching and counting, carried out on the CPU in three orders of threads, give what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import ALL, bfloat16, bool_, dtype, float32, float64, int32, int64, uint8
from flambeau._core.kernels.cuda_c.handwritten import nonzero, searching
from flambeau._core.kernels.interpret import widen_bfloat16
from tests import halving
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Operand, values
from tests._core.kernels.cuda_c.test_sorting import Job, check_all

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")


def nonzero_jobs(d: dtype, shape: tuple[int, ...], rng: np.random.Generator, how: int = 0, most: int | None = None) -> list[Job]:
    a = values(d, shape, rng, True, True)
    a[rng.random(shape) < 0.5] = 0
    if d.kind in "fc":
        a[rng.random(shape) < 0.1] = 0x8000 if d is bfloat16 else -0.0
    source = Operand(a, how)
    set_ = (widen_bfloat16(a) if d is bfloat16 else a) != 0
    found = np.argwhere(set_)
    begins = np.arange(0, a.size, nonzero.TILE)
    flat = np.concatenate([[0], np.cumsum(set_.reshape(-1))])
    counts = np.concatenate([[len(found)], flat[begins]])
    assert len(counts) == nonzero.room(a.size)
    out = [Operand(np.zeros(counts.shape, np.int64))]
    jobs = [Job(nonzero.count(d, shape, source.strides), out, [source], [counts])]
    if most is None:  # by columns
        result = Operand(np.zeros((len(shape), len(found)), np.int64))
        jobs.append(Job(nonzero.write(d, shape, source.strides), [result], [source, Operand(counts)], [found.T], [len(found), 1, len(found)]))
    else:  # by rows, as many as there is room for
        result = Operand(np.zeros((min(most, len(found)), len(shape)), np.int64))
        jobs.append(Job(nonzero.write(d, shape, source.strides), [result], [source, Operand(counts)], [found[:most]], [most, len(shape), 1]))
    return jobs


def test_nonzero_of_every_type() -> None:
    rng = np.random.default_rng(1)
    check_all([j for d in ALL if d.name != "complex32" for j in nonzero_jobs(d, (5, 13), rng)])


def test_nonzero_of_many_shapes() -> None:
    rng, jobs = np.random.default_rng(2), []
    for shape in ((1,), (2047,), (2048,), (2049,), (9000,), (3, 700), (2, 3, 4, 50)):
        for how in (0, 1, 2):
            jobs += nonzero_jobs(bool_, shape, rng, how)
    jobs += nonzero_jobs(float32, (40, 60), rng, 3, 100)
    check_all(jobs, (0, 7))


def test_nothing_is_counted_of_nothing() -> None:
    counts = Operand(np.zeros(1, np.int64))
    check_all([Job(nonzero.count(bool_, (0, 3), (3, 1)), [counts], [Operand(np.zeros((0, 3), bool))], [np.zeros(1)])])


def test_values_at_places_of_their_own() -> None:
    rng = np.random.default_rng(3)
    at, v = rng.permutation(1000), rng.integers(0, 99, 1000)
    want = np.zeros(1000, np.int64)
    want[at] = v
    check_all([Job(nonzero.spread(1000), [Operand(want)], [Operand(at), Operand(v)], [want])])


def test_values_put_into_rows() -> None:
    rng, jobs = np.random.default_rng(7), []
    for d, how in ((float32, 0), (bfloat16, 1), (int64, 2), (bool_, 3)):
        at = Operand(np.argsort(rng.random((4, 5, 90)), -1)[..., :70], how)
        v, out = Operand(values(d, (4, 5, 70), rng), how), Operand(np.zeros((4, 5, 90), d.np or np.uint16), how)
        want = np.zeros((4, 5, 90), out.view.dtype)
        np.put_along_axis(want, at.view, v.view, -1)
        jobs.append(Job(nonzero.put(d, (4, 5, 70), 90, (out.strides, at.strides, v.strides)), [out], [at, v], [want]))
        jobs[-1].start = 0
    check_all(jobs)


def search_job(d: dtype, rows: tuple[int, ...], n: int, k: int, rng: np.random.Generator, right: bool, how: int = 0, result: dtype = int64) -> Job:
    a, v = values(d, (*rows, n), rng, True, True), values(d, (*rows, k), rng, True, True)
    widen = widen_bfloat16 if d is bfloat16 else np.asarray
    if how != 2:  # rows out of order have places too
        a = np.take_along_axis(a, np.argsort(widen(a), -1), -1)
    want = np.array([halving.places(widen(x), widen(y), right)
                     for x, y in zip(a.reshape(-1, n), v.reshape(-1, k), strict=True)]).reshape(v.shape)
    out, sequence, wanted = Operand(np.zeros(v.shape, result.np), how), Operand(a, how), Operand(v, how)
    return Job(searching.search(d, result, v.shape, n, out.strides, sequence.strides, wanted.strides, right), [out], [sequence, wanted], [want])


def test_places_in_rows() -> None:
    rng, jobs = np.random.default_rng(4), []
    for d in ALL:
        if not d.is_complex:
            jobs += [search_job(d, (), 40, 30, rng, right) for right in (False, True)]
    for how in (1, 2):
        jobs += [search_job(float64, (2, 3), n, 300, rng, True, how, int32) for n in (1, 2, 33)]
    check_all(jobs, (0, 7))


def test_occurrences() -> None:
    rng, jobs = np.random.default_rng(5), []
    for n, bins in ((0, 3), (1, 1), (3000, 1), (3000, 300), (2000, 4096), (2000, 9000)):
        a = rng.integers(0, bins, n)
        job = Job(searching.occurrences(n, bins), [Operand(np.zeros(bins, np.int64))], [Operand(a)], [np.bincount(a, minlength=bins)])
        job.start = 0
        jobs.append(job)
    check_all(jobs)


def test_what_is_out_of_range_is_told() -> None:
    jobs = []
    for bad, spared in (((), -1), ((-1,), -1), ((-2,), -1), ((10,), -1), ((77, 77), -100)):
        a = np.arange(2000).reshape(40, 50) % 10
        a[3, 4:4 + len(bad)] = bad
        slot, source = Operand(np.zeros(2, np.int64)), Operand(a, 1)
        told = [v for v in bad if v != spared]
        job = Job(searching.check(a.shape, source.strides, 0, 10, spared, slot.address, 5), [slot], [source], [np.array([5, told[0]] if told else [0, 0])])
        job.start, job.own = 0, [source.address]
        assert "atomic" not in job.kernel.source  # the slot is the host's memory
        jobs.append(job)
    check_all(jobs)


def test_bytes_are_counted_too() -> None:
    check_all(nonzero_jobs(uint8, (3000,), np.random.default_rng(6)))
