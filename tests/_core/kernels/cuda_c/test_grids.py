"""Launches of huge domains, which nobody carries out here, stay within what hardware takes: grids, blocks, shared memory, parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from flambeau._core.dtypes import bfloat16, complex64, float32, int8, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import Kernel, render
from flambeau._core.kernels.cuda_c.handwritten import nonzero, searching, sorting, topk
from flambeau._core.kernels.cuda_c.handwritten.attention import Attention
from flambeau._core.kernels.programs import Map, Reduce, Rows, Scan
from tests._core.kernels.cuda_c.test_compile import dense, softmax

SHAPES = [(1 << 33,), (1 << 20, 1 << 13), (7, 1 << 31), (1 << 31, 3), (3, 5, 1 << 29), (70000, 70000), (1 << 17, 65537, 2), (65536, 1, 65536), (1, 1 << 32),
          (1 << 32, 1), (1 << 16, 3, 1 << 16), (1 << 25, 257), (300000, 30000)]


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first axis innermost."""
    return dense(shape[::-1])[::-1]


def loops() -> Iterator[tuple[str, Kernel]]:
    for shape, d in itertools.product(SHAPES, (float32, bfloat16, int8, complex64)):
        x, here = E.input(0, d), f"{shape} {d}"
        for one, other in ((dense(shape), dense(shape)), (dense(shape), turned(shape)), (turned(shape), turned(shape))):
            yield f"map {here}", render(Map((x + 1,) if d is not complex64 else (x * x,), (d,)), shape, (one, other))
        for steps in (dense(shape), turned(shape)):
            outs = (dense(shape[:-1]),)
            yield f"reduce {here}", render(Reduce((x,), ("sum",), (E.acc(0, d),), (d,)), shape, (*outs, steps))
            if d is not complex64:
                yield f"argmax {here}", render(Reduce((x,), ("argmax",), (E.acc(0, d), E.acc(1, int64)), (d,)), shape, (*outs, *outs, steps))
                yield f"scan {here}", render(Scan(x, "sum", (E.acc(0, d),), (d,)), shape, (steps, steps))
            few = shape[-1] > 2 or shape[0] * dense(shape)[0] < 1 << 33  # a row takes a quarter of a block
            if d in (float32, bfloat16) and few:
                yield f"softmax {here}", render(softmax(d), shape, (steps, steps))
            if d is complex64 and few:
                yield f"rows {here}", render(Rows((("reduce", "prod", x), ("map", 0, x * E.acc(0, d))), (d,)), shape, (steps, steps))
            yield f"whole sum {here}", render(Reduce((x,), ("sum",), (E.acc(0, d),), (d,)), shape, ((), steps))


def others() -> Iterator[tuple[str, Kernel]]:
    for n, mode in itertools.product((1 << 20, 1 << 31, 1 << 33), ("set", "add")):
        yield f"scatter {n}", render(Map((E.input(0, float32),), (float32, int64), (), ((mode, E.input(1, int64)),)), (n,), ((0,), (1,), (1,)))
        offset = E.input(1, int64) * 8 + E.coord(1)
        yield f"rows {n}", render(Map((E.input(0, float32),), (float32, int64), (), ((mode, offset),), (1,)), (n // 8, 8), ((0, 0), (8, 1), (1, 0)))
    for shape in ((1 << 20, 300), (1 << 26, 30), (3, 1 << 28), (70000, 5000)):
        n = shape[1]
        steps = ((n, 1),) * 3
        yield f"sort {shape}", sorting.sort(float32, shape, steps, False, n)
        yield f"first {shape}", topk.first(float32, shape, ((5, 1), (5, 1), (n, 1)), True, 5)
        yield f"median {shape}", topk.one(float32, shape, ((1, 0), (1, 0), (n, 1)), 0, "median")
        yield f"count {shape}", nonzero.count(float32, shape, (n, 1))
        yield f"write {shape}", nonzero.write(float32, shape, (n, 1))
        yield f"check {shape}", searching.check(shape, (n, 1), 0, 5, 0, 4096, 1)
    for sizes in ((70000, 16, 1, 64, 64, 64, 64), (1, 70000, 1, 64, 64, 64, 64), (2, 8, 2, 1 << 20, 1 << 20, 64, 64), (1, 1, 1, 1, 1 << 22, 64, 64)):
        batch, heads, group, length, source, depth, _ = sizes
        steps = dict.fromkeys(("q", "o", "g", "dq"), (heads * length * depth, length * depth, depth))
        steps |= dict.fromkeys(("k", "v", "dk", "dv"), (heads // group * source * depth, source * depth, depth))
        plan = Attention(bfloat16, None, True, False, sizes, 0.1, steps, 227 << 10)
        yield f"attention {sizes}", plan.forward()
        yield f"attention back {sizes}", plan.backward()


@pytest.mark.parametrize("family", [loops, others], ids=lambda f: f.__name__)
def test_limits(family: object) -> None:
    wrong, seen = [], 0
    for name, kernel in family():  # type: ignore[operator]
        assert kernel.launches, name
        for function, grid, block, shared in kernel.launches:
            seen += 1
            fits = 0 < grid[0] < 1 << 31 and 0 < grid[1] <= 65535 and 0 < grid[2] <= 65535
            fits = fits and 0 < block[0] * block[1] * block[2] <= 1024 and 0 < block[2] <= 64 and shared <= 227 << 10
            if not fits or kernel.words * 8 > 4096:
                wrong.append(f"{name}: {function} {grid} {block} {shared} {kernel.words}")
    assert not wrong, "\n".join(wrong[:20])
    assert seen > 30
