"""Values at offsets of their own in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, bool_, complex64, dtype, float16, float32, int32, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.cuda_c.handwritten import scatter, scatter_rows
from flambeau._core.kernels.programs import Map, size_of
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, check_all, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
LIMIT = {"float16": 1e-2, "bfloat16": 2e-2, "float32": 1e-6, "complex64": 1e-6}


def some(d: dtype, shape: tuple[int, ...], rng: np.random.Generator, exact: bool) -> np.ndarray:
    """exact: whole numbers, whose sums are the same in any order, as those of long offsets are added up in pieces."""
    x = values(d, shape, rng, False, True)
    return np.round(x * 4) if exact else x


def case(mode: str, d: dtype, shape: tuple[int, ...], places: int, rng: np.random.Generator, how: int = 0, known: bool = True) -> Case:
    """known: whether it is told how far offsets reach."""
    program = Map((E.input(0, d),), (d, int64), (), ((mode, E.input(1, int64) * 2 + 1),)).within(2 * places * known)
    offsets = Operand(rng.integers(0, places, shape), how)
    exact = mode == "add" and d is float32 and size_of(shape) > 8 * places
    given = Operand(some(d, shape, rng, exact), how)
    out = Operand(some(d, (2 * places + 1,), rng, exact))
    return Case(program, shape, [out], [given, offsets], (), LIMIT.get(d.name, 0.0), LIMIT.get(d.name, 0.0), strides={0: (0,) * len(shape)})


def joins(n: int, piece: int) -> int:
    """How many launches join the pieces of n sorted elements."""
    return 0 if n <= piece else 1 + joins(-(-n // piece), piece)


def in_pieces(x: np.ndarray, begin: int, piece: int, start: np.ndarray) -> np.ndarray:
    """The sum of what lies sorted from `begin` on, one after another from `start`, cut at multiples of `piece` that lie at least so far behind the
    beginning; of the pieces' sums the same."""
    cuts = [m - begin for m in range(piece, begin + len(x), piece) if m - begin >= piece]
    sums = []
    for k, part in enumerate(np.split(x, cuts)):
        total = np.zeros_like(start) if k else start
        for v in part:
            total = total + v
        sums.append(total)
    return sums[0] if not cuts else in_pieces(np.stack(sums), (begin + cuts[0]) // piece - 1, piece, np.zeros_like(start))


def test_every_mode_and_type() -> None:
    rng, cases = np.random.default_rng(1), []
    for d in (float32, float16, bfloat16, int32, int64, bool_):
        for mode in ("set", "add", "mul", "max", "min"):
            cases.append(case(mode, d, (100,), 40, rng))
            cases.append(case(mode, d, (5, 30), 7, rng, 1))
    for mode in ("set", "add", "mul", "max", "min"):
        cases.append(case(mode, complex64, (50,), 20, rng))
    check_all(cases)


def test_many_elements_are_sorted() -> None:
    rng, cases = np.random.default_rng(2), []
    for n, places in ((4097, 3000), (5000, 1), (9000, 20), (6200, 100000)):
        for mode, d in (("add", float32), ("set", float32), ("max", int32)):
            cases.append(case(mode, d, (n,), places, rng, 0, (mode, n) != ("add", 9000)))
    cases.append(case("add", float32, (70, 80), 300, rng, 2))
    cases += [case("mul", complex64, (n,), 900, rng, 0, n != 4099) for n in (4098, 4099)]
    assert all(len(c.kernel.launches) > 3 for c in cases)
    assert sum("scatter_merge" in c.kernel.source for c in cases) == 2
    few = [case(mode, d, (n,), places, rng) for mode, d in (("add", float32), ("set", int64), ("max", complex64))
           for n, places in ((1025, 40), (3000, 70000), (4096, 2))]
    assert all(len(c.kernel.launches) == 3 + joins(c.domain[0], scatter.PIECE) and "sort_few" in c.kernel.source for c in few)
    cases += few
    check_all(cases, (0, 7))


def test_more_elements_than_an_int_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for more than 2**30 elements, made for fewer."""
    monkeypatch.setattr(scatter, "NARROW", 100)
    rng = np.random.default_rng(5)
    cases = [case("add", float32, (5000,), 300, rng), case("mul", complex64, (4500,), 4000, rng), case("set", int64, (60,), 9, rng)]
    assert all("long long i" in c.kernel.source for c in cases)
    check_all(cases, (0, 7))


def test_a_real_launch_of_that_size() -> None:
    n = 1 << 31
    kernel = render(Map((E.input(0, float32),), (float32, int64), (), (("add", E.input(1, int64)),)), (n,), ((0,), (1,), (1,)))
    assert kernel.workspace > 36 * n and all(grid[0] < 1 << 31 for _, grid, _, _ in kernel.launches)
    program = Map((E.input(0, float32),), (float32, int64), (), (("add", E.input(1, int64)),)).within(1 << 33)  # keys of 64 bits
    kernel = render(program, (1 << 29,), ((0,), (1,), (1,)))
    assert "typedef unsigned long long Key;" in kernel.source and len(kernel.launches) == 2 + 3 * 5 + joins(1 << 29, scatter.PIECE)


def test_offsets_that_reach_far() -> None:
    """Keys of 64 bits, most of which are of few elements."""
    rng, cases = np.random.default_rng(8), []
    for n in (2000, 2049, 5000):
        program = Map((E.input(0, float32),), (float32, int64), (), (("add", E.input(1, int64)),)).within(1 << 34)
        x, at, out = values(float32, (n,), rng, False), rng.integers(0, 40, n), values(float32, (40,), rng, False)
        cases.append(Case(program, (n,), [Operand(out)], [Operand(x), Operand(at)], (), 1e-6, 1e-6, strides={0: (0,)}))
    check_all(cases, (0, 7))


def test_digits_as_many_as_places_need() -> None:
    """The gradient of an embedding of 50257 rows: two digits of 8 bits; their places in memory would take four."""
    offset = E.input(1, int64) * E.scalar(0, int64) + E.coord(1) * E.scalar(1, int64)
    rows = Map((E.input(0, float32),), (float32, int64), (int64, int64), (("add", offset),), (1,), 768)
    shape = (32768, 768)
    assert len(render(rows.within(50257 * 768), shape, ((0, 0), (768, 1), (1, 0))).launches) == 2 + 3 * 2 + joins(32768, scatter_rows.PIECE)
    rows = Map((E.input(0, float32),), (float32, int64), (int64, int64), (("add", offset),), (1,))
    assert len(render(rows.within(50257 * 768), shape, ((0, 0), (768, 1), (1, 0))).launches) == 2 + 3 * 4 + joins(32768, scatter_rows.PIECE)


def by_rows(mode: str, d: dtype, rows: int, width: tuple[int, ...], places: int, rng: np.random.Generator, first: bool = True, how: int = 0,
            known: bool = True) -> Case:
    """Values of (rows, *width) to the rows of a table at an index; or, not `first`, of (*width, rows) to its columns."""
    n = 1 + len(width)
    axis = 0 if first else n - 1
    others = [a for a in range(n) if a != axis]
    offset = E.where(E.input(1, int64) < 0, E.input(1, int64) + places, E.input(1, int64)) * E.scalar(0, int64)
    for k, a in enumerate(others):
        offset = offset + E.coord(a) * E.scalar(1 + k, int64)
    shape = (rows, *width) if first else (*width, rows)
    table = (places, *width) if first else (*width, places)
    exact = mode == "add" and d is float32 and rows > 8 * places
    x = Operand(some(d, shape, rng, exact), how)
    out = Operand(some(d, table, rng, exact))
    at = Operand(rng.integers(-places, places, (rows,)))
    strides = out.strides
    value = E.input(0, d) * 2.0 if d.kind == "f" else E.input(0, d)
    program = Map((value,), (d, int64), (int64,) * n, ((mode, offset),), tuple(others), strides[axis] if known else 1).within(out.view.size * known)
    along = tuple(1 if a == axis else 0 for a in range(n))
    limit = LIMIT.get(d.name, 0.0)
    if mode == "mul":
        limit = max(limit, 3e-7 * rows / places)  # each factor rounds once more
    return Case(program, shape, [out], [x, at], [strides[axis], *(strides[a] for a in others)], limit, limit, strides={0: (0,) * n, 2: along})


def test_rows_are_sorted_not_elements() -> None:
    rng, cases = np.random.default_rng(6), []
    for mode, d in (("add", float32), ("set", float32), ("max", int32), ("add", bfloat16), ("mul", complex64)):
        for rows, width, places in ((5, (7,), 3), (70, (33,), 20), (1500, (4,), 600), (300, (3, 5), 2), (70, (300,), 30), (3, (1100,), 2)):
            cases.append(by_rows(mode, d, rows, width, places, rng, how=int(rng.integers(0, 4)), known=d is not float32))
            cases.append(by_rows(mode, d, rows, width, places, rng, first=False))
    # keys, their order and counts of each row, and the pieces' sums
    assert all(c.kernel.source.count("scatter_rows_") and c.kernel.workspace < 40 * max(c.domain) + 8192 + 8 * size_of(c.domain) // 30 for c in cases)
    assert len({len(c.kernel.launches) for c in cases}) > 2  # few rows, one tile, several
    check_all(cases, (0, 7))


def test_rows_that_are_not_apart_go_by_elements() -> None:
    x, at = E.input(0, float32), E.input(1, int64)
    strides = ((0, 0), (8, 1), (1, 0))
    for offset, index in ((at * 4 + E.coord(1), (8, 1)), (at * E.coord(1), (1, 0)), (E.maximum(at, E.coord(1)), (1, 0))):
        program = Map((x,), (float32, int64), (), (("add", offset),), (1,))
        assert "scatter_rows" not in render(program, (9, 8), (*strides[:2], index)).source
    program = Map((x,), (float32, int64), (), (("add", at * 4 + E.coord(1)),), (1,))
    assert "scatter_rows" in render(program, (9, 8), strides).source


def test_sums_are_those_of_a_loop_to_the_bit() -> None:
    """Whatever else there is, of offsets that are not longer than a piece."""
    rng = np.random.default_rng(3)
    for n, known in ((500, True), (3000, True), (5000, True), (5000, False)):
        places = -(-n // 40)
        x, at = values(float32, (n,), rng, False), rng.permutation(np.arange(n) % places)
        got = added(x, at, places, known)
        want = np.zeros(places, np.float32)
        for v, k in zip(x, at):
            want[k] += v
        assert got.tobytes() == want.tobytes()


def added(x: np.ndarray, at: np.ndarray, places: int, known: bool = True, out: np.ndarray | None = None) -> np.ndarray:
    """What x, added at these places, gives; a row at each where x has rows."""
    out = np.zeros((places, *x.shape[1:]), np.float32) if out is None else out.copy()
    if x.ndim == 1:
        program, strides = Map((E.input(0, float32),), (float32, int64), (), (("add", E.input(1, int64)),)), {0: (0,)}
    else:
        offset = E.input(1, int64) * E.scalar(0, int64) + E.coord(1)
        program, strides = Map((E.input(0, float32),), (float32, int64), (int64,), (("add", offset),), (1,), x.shape[1]), {0: (0, 0), 2: (1, 0)}
    c = Case(program.within(out.size * known), x.shape, [Operand(out)], [Operand(x), Operand(at)], list(x.shape[1:]), strides=strides)
    host.Batch([c.kernel]).launch(c.kernel, [o.memory for o in (*c.outs, *c.ins)], c.arguments())
    return np.asarray(c.outs[0].memory).view(np.float32)[:out.size].reshape(out.shape)


@pytest.mark.parametrize("places", [1, 3, 40])
@pytest.mark.parametrize("known", [True, False])
def test_long_offsets_are_summed_in_pieces_of_a_fixed_order(places: int, known: bool) -> None:
    """To the bit: which threads add up what follows from the offsets alone."""
    rng = np.random.default_rng(places)
    for shape, piece in (((9000,), scatter.PIECE), ((3000, 5), scatter_rows.PIECE)):
        x, out = values(float32, shape, rng, False), values(float32, (places, *shape[1:]), rng, False)
        at = np.minimum(rng.integers(0, places, shape[0]), rng.integers(0, places, shape[0]))
        got, order = added(x, at, places, known, out), np.argsort(at, kind="stable")
        for k in range(places):
            own = np.flatnonzero(at[order] == k)
            want = in_pieces(x[order][own], int(own[0]), piece, out[k]) if len(own) else out[k]
            assert got[k].tobytes() == want.tobytes(), (shape, k)


def test_some_outputs_at_their_own_place() -> None:
    rng = np.random.default_rng(4)
    shape = (6, 20)
    offset, x = E.coord(1) * 3 + E.coord(0), E.input(0, float32)
    program = Map((x * 2.0, x, x + 1.0), (float32,), (), (None, ("add", offset), ("set", E.coord(0))))
    outs = [Operand(np.zeros(shape, np.float32), 2), Operand(np.zeros(80, np.float32)), Operand(np.zeros(6, np.float32))]
    check_all([Case(program, shape, outs, [Operand(values(float32, shape, rng, False))], (), 1e-6, 1e-6, strides={1: (0, 0), 2: (0, 0)})])
