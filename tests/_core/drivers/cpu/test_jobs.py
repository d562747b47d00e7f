"""Jobs: steps over a batch, conditions, workspace, threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.drivers.cpu.jobs import LENGTH, WORK, Job
from flambeau._core.kernels import native

TYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def start(array):
    return array.ctypes.data


def launch(job, *arrays):
    entry, workspace = job.launch()
    room = np.full(workspace, 0xA5, np.uint8)
    entry(*map(start, arrays), *([start(room)] if workspace else []))
    return workspace


def factors(d, batch, n):
    job = Job(d, batch)
    a, pivots, code = job.matrix(n, n), job.operand(8 * n), job.operand(8)
    job.call("?getrf", n, n, a, n, pivots, code, flops=n ** 3)
    return job


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_a_batch_is_what_single_matrices_give(d):
    a = np.random.default_rng(0).normal(size=(300, 5, 5)).astype(d.np)
    batch, single = a.copy(), a.copy()
    pivots, codes, own = np.zeros((300, 5), np.int64), np.zeros(300, np.int64), np.zeros(5, np.int64)
    launch(factors(d, 300, 5), batch, pivots, codes)
    for i in range(300):
        launch(factors(d, 1, 5), single[i], own, np.zeros(1, np.int64))
        np.testing.assert_array_equal(own, pivots[i])
    np.testing.assert_array_equal(batch, single)
    assert not codes.any()


def decompositions(batch, n):
    """Eigenvalues and eigenvectors, with a workspace that is too large for the stack."""
    job = Job(dtypes.float64, batch)
    a, w = job.matrix(n, n), job.operand(8 * n)
    job.call("?syevd", b"V", b"L", n, a, n, w, WORK, LENGTH, job.room(8 * (3 + 5 * n)), 3 + 5 * n, job.room(8), flops=4 * n ** 3)
    return job


def test_each_chunk_has_its_workspace(monkeypatch):
    a = np.random.default_rng(1).normal(size=(64, 60, 60))
    a = a + a.swapaxes(-1, -2)
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(native, "get_num_threads", lambda threads=threads: threads)
        work, w = a.copy(), np.zeros((64, 60))
        size = launch(decompositions(64, 60), work, w)
        assert size >= threads * 2 * 60 * 60 * 8
        found.append((work, w))
    (work, w), (again, values) = found
    np.testing.assert_array_equal(work, again)
    np.testing.assert_array_equal(w, values)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=1e-10)
    np.testing.assert_allclose((work.swapaxes(-1, -2) * w[:, None, :]) @ work, a, atol=1e-10)


def test_one_launch_serves_several_threads_at_once():
    n, rounds = 12, 30
    for batch in (1, 40):
        entry, workspace = factors(dtypes.float64, batch, n).launch()
        assert not workspace
        a = np.random.default_rng(2).normal(size=(batch, n, n))
        want, pivots, codes = a.copy(), np.zeros((batch, n), np.int64), np.zeros(batch, np.int64)
        entry(start(want), start(pivots), start(codes))
        wrong = []

        def call(entry=entry, batch=batch, a=a, want=want, wrong=wrong):
            pivots, codes = np.zeros((batch, n), np.int64), np.zeros(batch, np.int64)
            for _ in range(rounds):
                got = a.copy()
                entry(start(got), start(pivots), start(codes))
                if not np.array_equal(got, want):
                    wrong.append(got)
        threads = [threading.Thread(target=call) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


def test_a_step_may_have_a_condition():
    job = Job(dtypes.float32, 3)
    flags, out = job.operand(8), job.operand(8)
    job.call("dcopy", 1, 7, 1, out, 1, when=(flags, True))
    job.call("dcopy", 1, 9, 1, out, 1, when=(flags, False))
    given, found = np.array([0, -2, 0]), np.zeros(3, np.int64)
    launch(job, given, found)
    assert found.tolist() == [9, 7, 9]


def test_numbers_have_the_types_that_routines_read():
    for d in TYPES:
        a = np.zeros((2, 2), d.np)
        job = Job(d, 1)
        job.call("?laset", b"A", 2, 2, 2.5, -3.0 if not d.is_complex else -3 + 1j, job.matrix(2, 2), 2)
        launch(job, a)
        np.testing.assert_array_equal(a, np.where(np.eye(2), -3 if not d.is_complex else -3 + 1j, 2.5).astype(d.np))


def test_a_large_matrix_is_left_to_the_librarys_own_threads(monkeypatch):
    monkeypatch.setattr(native, "get_num_threads", lambda: 2)
    n = 600
    a = np.random.default_rng(3).normal(size=(1, n, n))
    got, pivots, codes = a.copy(), np.zeros((1, n), np.int64), np.zeros(1, np.int64)
    launch(factors(dtypes.float64, 1, n), got, pivots, codes)
    packed = got[0].T
    p = np.arange(n)
    for i, j in enumerate(pivots[0] - 1):
        p[[i, j]] = p[[j, i]]
    np.testing.assert_allclose((np.tril(packed, -1) + np.eye(n)) @ np.triu(packed), a[0].T[p], atol=1e-9)


def test_what_does_not_fit_is_refused():
    job = Job(dtypes.float64, 1)
    with pytest.raises(ValueError, match="17 arguments, and a step has at most 16"):
        job.call("dcopy", *range(17))
    for _ in range(9):
        job.operand(8)
    with pytest.raises(ValueError, match="9 operands, and a job has at most 8"):
        job.launch()
