"""The calls of LAPACK: batches, workspaces, threads."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.drivers.cpu import lapack
from flambeau._core.kernels import native


@pytest.mark.parametrize("letter", "sdcz")
def test_a_batch_is_what_single_calls_give(letter):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(300, 5, 5)).astype(lapack.TYPE[letter])
    batch, single = a.copy(), a.copy()
    pivots, info = np.zeros((300, 5), np.int64), np.zeros(300, np.int64)
    lapack.getrf(letter, 300, 5, 5, lapack.at(batch), pivots, info)
    for i in range(300):
        own = np.zeros(5, np.int64)
        lapack.getrf(letter, 1, 5, 5, lapack.at(single[i]), own, np.zeros(1, np.int64))
        np.testing.assert_array_equal(own, pivots[i])
    np.testing.assert_array_equal(batch, single)
    assert not info.any()


def test_parts_cover_the_batch_and_errors_arrive():
    seen = []
    lapack.share(10, 3, lambda first, last: seen.append((first, last)))
    assert sorted(seen) == [(0, 3), (3, 6), (6, 10)]

    def fail(first, last):
        if first:
            raise ValueError("part")
    with pytest.raises(ValueError, match="part"):
        lapack.share(4, 2, fail)


def test_each_thread_has_its_workspace(monkeypatch):
    monkeypatch.setattr(native, "get_num_threads", lambda: 4)
    rng = np.random.default_rng(1)
    a = rng.normal(size=(64, 30, 30))
    a = a + a.swapaxes(-1, -2)
    work, w, info = a.copy(), np.zeros((64, 30)), np.zeros(64, np.int64)
    lapack.syevd("d", 64, 30, True, True, lapack.at(work), lapack.at(w), info)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=1e-10)
    vectors = work.swapaxes(-1, -2)
    np.testing.assert_allclose((vectors * w[:, None, :]) @ work, a, atol=1e-10)
