"""Blocks of a thread's stream: words against the plain Philox of test_philox.py, a number known beforehand and one found by its lane alike."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import dtype, float32, float64, uint32, uint64
from flambeau._core.kernels import curand, target
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.expr import Expr
from flambeau._core.kernels.programs import Map
from tests._core.kernels.test_philox import MASK, reference

SEED, OFFSET = 0x1234_5678_9ABC_DEF0, 40


def carried_out(value: Expr, n: int) -> np.ndarray:
    out = np.zeros(n, value.dtype.np)
    target.prepare(Map((value,), (), (uint64, uint64)), (n,), ((1,),)).entry(out.ctypes.data, SEED, OFFSET)
    return out


def blocks(lane: int | Expr) -> curand.Block:
    return curand.Block(E.scalar(0, uint64), E.scalar(1, uint64), E.coord(-1), 3, lane)


def test_words_are_those_of_the_thread_and_its_block() -> None:
    for lane in range(4):
        got = carried_out(blocks(lane).word(), 9)
        assert got.dtype == uint32.np
        assert got.tolist() == [reference([OFFSET // 4 + 3, 0, thread, 0], [SEED & MASK, SEED >> 32])[lane] for thread in range(9)]
    w = reference([OFFSET // 4 + 3, 0, 5, 0], [SEED & MASK, SEED >> 32])
    assert [int(carried_out(blocks(k).long_word(), 6)[5]) for k in (0, 1)] == [w[0] << 32 | w[1], w[2] << 32 | w[3]]


@pytest.mark.parametrize("d,each", [(float32, 4), (float64, 2)], ids=str)
@pytest.mark.parametrize("kind", ["unit", "normal"])
def test_a_lane_that_is_found(kind: str, d: dtype, each: int) -> None:
    n = 12
    lane = E.make("rem", uint64, (E.cast(E.coord(-1), uint64), E.const(each, uint64)))
    found = carried_out(getattr(blocks(lane), kind)(d), n)
    known = [carried_out(getattr(blocks(k), kind)(d), n) for k in range(each)]
    assert found.tolist() == [known[i % each][i] for i in range(n)] and len(set(found.tolist())) == n


def test_sines_and_cosines_of_a_turn() -> None:
    angle = np.concatenate([np.linspace(0, 2 * np.pi, 200_001), np.arange(9) * np.pi / 4]).astype(np.float32)
    parts = curand._circle(E.input(0, float32))
    out = np.zeros((2, angle.size), np.float32)
    target.prepare(Map(parts, (float32,)), (angle.size,), ((1,),) * 3).entry(out[0].ctypes.data, out[1].ctypes.data, angle.ctypes.data)
    wide = angle.astype(np.float64)
    assert np.abs(out - [np.sin(wide), np.cos(wide)]).max() < 1.2e-7


def test_threads_and_what_they_use() -> None:
    """256 threads a block, as many blocks as a GPU holds at once, whole blocks of a stream."""
    assert curand.threads_of(1, 132, 2048) == 256 and curand.threads_of(257, 132, 2048) == 512
    assert curand.threads_of(10 ** 9, 132, 2048) == 132 * 8 * 256 and curand.threads_of(10 ** 9, 40, 1536) == 40 * 6 * 256
    assert [curand.consumed(n, 256, 4) for n in (1, 256, 1024, 1025)] == [4, 4, 4, 8] and curand.consumed(513, 256, 2) == 8
