"""Many native launches as one."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import float32, float64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import native
from flambeau._core.kernels.llvm import foreach, prepare
from flambeau._core.kernels.programs import Map, Reduce


def _scaled(n: int) -> object:
    return prepare(Map((E.input(0, float32) * E.scalar(0, float32) + E.scalar(1, float32),), (float32,), (float32, float32)), (n,), ((1,), (1,)))


@pytest.mark.parametrize("threads", [1, 2])
def test_each_piece_finds_its_addresses_and_the_shared_numbers(threads: int) -> None:
    before = native.get_num_threads()
    native.set_num_threads(threads)
    try:
        sizes = [1, 5, 64, 100_000, 3, 40_000]
        sources = [np.arange(n, dtype=np.float32) for n in sizes]
        results = [np.zeros(n + 1, np.float32) for n in sizes]
        entry = native.join([_scaled(n).entry for n in sizes], 2)  # type: ignore[attr-defined]
        assert entry is not None
        for factor in (2.0, -3.0):
            entry(factor, 1.0, *[a for y, x in zip(results, sources, strict=True) for a in (y.ctypes.data, x.ctypes.data)])
            for y, x in zip(results, sources, strict=True):
                np.testing.assert_array_equal(y[:-1], x * np.float32(factor) + 1)
                assert y[-1] == 0
    finally:
        native.set_num_threads(before)


def test_launches_of_several_stages() -> None:
    total = Reduce((E.input(0, float64),), ("sum",), (E.acc(0, float64),), (float64,))
    sizes = [10, 3_000_000, 1]
    made = [prepare(total, (n,), ((), (1,))) for n in sizes]
    sources = [np.arange(n, dtype=np.float64) for n in sizes]
    results, works = np.zeros(len(sizes)), [np.zeros(max(p.workspace, 8) // 8 + 1) for p in made]
    entry = native.join([p.entry for p in made], 0)
    assert entry is not None
    args = []
    for k, p in enumerate(made):
        args += [results.ctypes.data + 8 * k, sources[k].ctypes.data]
        args += [works[k].ctypes.data] if p.workspace else []
    entry(*args)
    assert any(p.workspace for p in made)
    np.testing.assert_array_equal(results, [a.sum() for a in sources])


def test_what_is_no_native_launch_is_not_joined() -> None:
    assert native.join([_scaled(4).entry, lambda *a: None], 2) is None  # type: ignore[attr-defined]
    assert native.join([_scaled(4).entry, len], 2) is None  # type: ignore[attr-defined]


def test_a_wrong_number_of_arguments() -> None:
    entry = native.join([_scaled(4).entry, _scaled(5).entry], 2)  # type: ignore[attr-defined]
    assert entry is not None
    with pytest.raises(TypeError, match="takes 6 arguments"):
        entry(1.0, 2.0)


def test_the_text_has_a_function_for_each_stage() -> None:
    assert all(f"@{name}(" in foreach.text() for name in foreach.NAMES)
