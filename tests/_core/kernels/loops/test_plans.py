"""What the plans of loops say: the same data for every renderer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flambeau._core.dtypes import complex64, dtype, float32, float64, int32, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import opencl_c
from flambeau._core.kernels.interpret import evaluate
from flambeau._core.kernels.loops import accumulators, maps, reductions, rows, scans, short_axes
from flambeau._core.kernels.loops.launch import Launch
from flambeau._core.kernels.loops.machine import Machine
from flambeau._core.kernels.programs import Map, Reduce, Rows, Scan
from flambeau._core.layout import contiguous_strides
from tests._core.kernels.row_programs import layer_norm

X, Y = E.input(0, float32), E.input(1, float32)
ADD = Map((X + Y,), (float32, float32))
SUM = Reduce((X,), ("sum",), (E.acc(0, float32),), (float32,))
GPU = Machine()


def softmax() -> Rows:
    e = E.exp(X - E.acc(0, float32))
    return Rows((("reduce", "max", X), ("reduce", "sum", e), ("map", 0, e / E.acc(1, float32))), (float32,))


def test_axes_merge_and_operands_have_classes() -> None:
    for plan in (maps.ByVectors(ADD, (4, 5, 6), ((30, 6, 1), (30, 6, 1), (0, 0, 1))), maps.ByThreads(ADD, (4, 5, 6), ((30, 6, 1), (30, 6, 1), (0, 0, 1)), GPU)):
        assert [(a.size, a.strides) for a in plan.axes] == [(20, (24, 24, 0)), (6, (4, 4, 4))]
        assert plan.step_classes(plan.inner) == ("1", "1", "1") and plan.step_classes(plan.axes[0]) == ("s", "s", "0")
    flat = maps.ByVectors(ADD, (4, 5, 6), ((30, 6, 1),) * 3)
    assert (flat.form, flat.classes, flat.units) == ("flat", ("1", "1", "1"), 120)


@pytest.mark.parametrize("domain", [(2,), (7, 1, 5), (1, 64), (300, 200), (3, 1 << 20), (5, 1 << 20)])
@pytest.mark.parametrize("program", [ADD, Map((E.cast(E.exp(X), float64), X > Y), (float32, float32)), Map((E.const(1.0, float32),), ())])
def test_dense_maps_are_planned_by_their_number_of_elements(program: Map, domain: tuple[int, ...]) -> None:
    strides = (contiguous_strides(domain),) * (len(program.outs) + len(program.inputs))
    dense, loops = maps.dense_of(program, domain, strides), maps.ByVectors(program, domain, strides)
    assert dense is not None and (loops.form, loops.places, loops.coords) == ("flat", (), []) and set(loops.classes) == {"1"}
    assert (dense.elements, dense.sizes, dense.streams, dense.chunk, dense.parallel) == (
        loops.units, loops.inner.strides, loops.streams, loops.chunk, loops.parallel)
    assert (loops.inner.size, loops.segments, loops.length, loops.outer) == (dense.elements, 1, dense.elements, [])


def test_which_short_axes_become_outputs() -> None:
    copy = Map((X,), (float32,))

    def times(domain: tuple[int, ...], strides: tuple[int, ...]) -> int:
        found = short_axes.spread_of(copy, maps.ByVectors(copy, domain, (contiguous_strides(domain), strides)))
        return 1 if found is None else found.times
    planes = (5000, 100, 1, 10000)
    assert [times((2, 100, 100, n), (n * 10000, *planes[1:])) for n in (2, 3, 8, 15, 16)] == [2, 3, 8, 15, 1]
    # every second element of rows of 14, which lie nearer to one another than the rows, and pieces of wider rows
    assert times((50, 14, 14), (784, 56, 2)) == 1 and times((100, 7), (9, 1)) == 1 and times((100, 3), (9, 1)) == 3


def test_operands_that_lie_alike_in_each_row_are_known() -> None:
    costly = Map((X + E.exp(Y),), (float32, float32))
    alike, other = ((500, 1), (500, 1), (0, 1)), ((500, 1),) * 3
    assert maps.ByVectors(costly, (400, 500), alike).still == (False, False, True)
    assert maps.ByVectors(costly, (400, 500), other).still == () and maps.ByVectors(ADD, (400, 500), alike).still == ()
    assert maps.ByVectors(costly, (3, 500), alike).still == () and maps.ByVectors(costly, (400, 5000), ((5000, 1), (5000, 1), (0, 1))).still == ()
    (kept,) = maps.repeated(costly.roots(), (float32,) * 3, 1, (False, False, True), {}, 2, False)
    assert kept is E.exp(Y) and not maps.repeated(costly.roots(), (float32,) * 3, 1, (False, False, True), {}, 2, True)


def test_what_is_not_dense_or_asks_for_its_place_is_not_planned_so() -> None:
    inner, placed = ((6, 1), (6, 1), (0, 1)), Map((X + E.cast(E.coord(1), float32),), (float32,))
    assert maps.dense_of(ADD, (4, 6), inner) is None and maps.dense_of(ADD, (4, 6), ((1, 4),) * 3) is None
    assert maps.dense_of(placed, (4, 6), ((6, 1),) * 2) is None and maps.dense_of(ADD, (1, 1), ((1, 1),) * 3) is None
    assert maps.dense_of(Map((X,), (float32, float32)), (4, 6), ((6, 1),) * 3) is None  # an input is not read


def test_inputs_across_the_outputs_go_by_tiles() -> None:
    strides = ((500, 1), (1, 400), (500, 1))
    vectors, threads = maps.ByVectors(ADD, (400, 500), strides), maps.ByThreads(ADD, (400, 500), strides, GPU)
    for plan in (vectors, threads):
        assert plan.across is not None and (plan.across.axis, plan.across.operands) == (0, [1])
    assert vectors.classes == ("1", "t", "1") and vectors.form == "tiles"
    assert maps.ByThreads(ADD, (400, 500), strides, Machine(tile=0)).across is None


def test_places_beyond_32_bits_are_wide() -> None:
    assert not maps.ByThreads(ADD, (1 << 20,), ((1,),) * 3, GPU).wide
    assert maps.ByThreads(ADD, (1 << 20,), ((1,), (1 << 12,), (1,)), GPU).wide


@pytest.mark.parametrize("columns", [False, True])
def test_lanes_of_a_reduction_lie_where_memory_does(columns: bool) -> None:
    domain, inner = (3000, 2000), ((1, 3000) if columns else (2000, 1))
    assert reductions.ByVectors(SUM, domain, ((1,), inner)).across == columns
    threads = reductions.ByThreads(SUM, domain, ((1,), inner), GPU)
    assert threads.group.kind == ("across" if columns else "block") and threads.v == (1 if columns else 4)


def test_long_reductions_are_cut_by_their_domain_alone() -> None:
    n = 3_000_000
    for plan in (reductions.ByVectors(SUM, (n,), ((), (1,))), reductions.ByThreads(SUM, (n,), ((), (1,)), GPU)):
        assert plan.pieces > 1 and plan.piece * plan.pieces >= n > plan.piece * (plan.pieces - 1)
        assert plan.workspace >= 4 * plan.pieces and plan.rooms == [0]
    assert Launch(SUM, (n,), ((), (1,)), GPU).addresses == 3
    assert Launch(SUM, (100,), ((), (1,)), GPU).addresses == 2


def test_a_row_is_kept_where_it_fits() -> None:
    def way(n: int, count: int, machine: Machine = GPU) -> str:
        return rows.ByThreads(softmax(), (count, n), ((n, 1), (n, 1)), machine).way
    assert [way(100, 64), way(4000, 64), way(20_000, 4000), way(50_000, 4000), way(400_000, 2)] == ["registers", "registers", "shared", "again", "pieces"]
    assert way(20_000, 4000, Machine(shared=0)) == "again"
    assert way(400_000, 2, Machine(launch=float("inf"))) == "again"


def test_passes() -> None:
    assert [[s[0] for s in p] for p in rows.passes_of(layer_norm(float32).stages, mixed=True)] == [["reduce"], ["reduce"], ["row", "row", "map"]]
    assert [len(p) for p in rows.passes_of(layer_norm(float32).stages, mixed=False)] == [1, 1, 2, 1]


def test_a_maximum_and_the_sum_by_it_are_one_pass() -> None:
    x, y = E.input(0, float32), E.input(1, float32)
    top = E.acc(0, float32)

    def hows(e: E.Expr, first: E.Expr = x, how: str = "max") -> list[str]:
        return [s[1] for s in rows.in_one_pass((("reduce", how, first), ("reduce", "sum", e)))]
    assert hows(E.exp(x - top)) == [accumulators.EXPSUM, ""]
    for e in (E.exp(y - top), E.exp(top - x), E.exp(x - top) * y, E.exp2(x - top)):
        assert hows(e) == ["max", "sum"]
    assert hows(E.exp(x - top), how="min") == ["min", "sum"] and hows(E.exp(x - top), y) == ["max", "sum"]
    # accumulators between the two have other numbers then
    mixed = (("reduce", "max", x), ("reduce", "sum", y), ("reduce", "sum", E.exp(x - top)), ("row", 0, E.acc(1, float32) / E.acc(2, float32) + top))
    assert rows.in_one_pass(mixed) == [("reduce", accumulators.EXPSUM, x), ("reduce", "", x), ("reduce", "sum", y),
                                       ("row", 0, E.acc(2, float32) / E.acc(1, float32) + top)]


def test_scans_along_a_row_or_a_thread_for_each() -> None:
    program = Scan(X, "sum", (E.acc(0, float32),), (float32,))
    along, across = (scans.ByThreads(program, (500, 600), (s, s), GPU) for s in ((600, 1), (1, 500)))
    assert along.shape is not None and not along.across and across.shape is None and across.across
    cut = scans.ByThreads(program, (4_000_000,), ((1,), (1,)), GPU)
    assert cut.pieces > 1 and cut.piece % cut.shape.tile == 0
    assert scans.ByVectors(program, (4_000_000,), ((1,), (1,))).pieces == -(-4_000_000 // scans.PIECE)
    lanes = scans.scan_lanes(program)
    for length in (2, lanes, 2 * lanes - 1, 2 * lanes):  # every lane has a row where those are shorter than two vectors
        assert scans.ByVectors(program, (1000, length), ((length, 1), (length, 1))).across == (length < 2 * lanes)


def test_a_target_takes_at_most_600_lines() -> None:
    """OpenCL C has all four kinds of program: what it does not decide, it does not have to say."""
    assert sum(len(f.read_text().splitlines()) for f in Path(opencl_c.__file__).parent.glob("*.py")) <= 600


# --------------------------------------------------------------------------------------------------------------- partials
def value(made: list[E.Expr], given: list[object]) -> list[object]:
    return [np.asarray(v).item() for v in evaluate(tuple(made), lambda e, _: np.asarray(given[e.value], e.dtype.np))]


@pytest.mark.parametrize(("how", "d", "a", "b", "want"), [
    ("sum", float32, [2.0], [3.0], [5.0]), ("max", int32, [2], [3], [3]), ("min", float32, [np.nan], [3.0], [np.nan]),
    ("argmax", float32, [3.0, 5], [3.0, 2], [3.0, 2]), ("argmax", float32, [3.0, 5], [np.nan, 9], [np.nan, 9]),
    ("argmin", float32, [np.nan, 5], [np.nan, 9], [np.nan, 5]), ("argmin", int32, [4, 1], [3, 7], [3, 7]),
    ("cprod", complex64, [1.0, 2.0], [3.0, 4.0], [-5.0, 10.0]), ("cargmax", float32, [1.0, 2.0, 4], [1.0, 3.0, 6], [1.0, 3.0, 6])])
def test_two_partial_results_become_one(how: str, d: dtype, a: list[object], b: list[object], want: list[object]) -> None:
    types = accumulators.flat_types([d.to_real()], [how])
    first, later = accumulators.leaves(types)
    np.testing.assert_equal(value(accumulators.joined(how, first, later), [*a, *b]), want)


def test_a_scan_keeps_the_later_of_equal_extremes() -> None:
    first, later = accumulators.leaves([float64, int64])
    for a, b, want in (([2.0, 1], [2.0, 3], [2.0, 3]), ([np.nan, 1], [5.0, 3], [np.nan, 1]), ([4.0, 1], [5.0, 3], [5.0, 3])):
        np.testing.assert_equal(value(accumulators.follows("max", first, later), [*a, *b]), want)


def test_nothing_changes_what_it_is_joined_to() -> None:
    for how in ("sum", "prod", "max", "min", "and", "or"):
        for d in (int32,) if how in ("and", "or") else (int32, float32):
            (first,), (later,) = accumulators.leaves([d])
            assert value(accumulators.joined(how, [first], [later]), [accumulators.start_of(how, d), 6]) == [6]
    assert accumulators.starts("cargmin", float32) == [np.inf, np.inf, accumulators.NOWHERE]


def test_short_rows_are_joined_side_by_side() -> None:
    def strides(rows: int, length: int) -> tuple[tuple[int, ...], ...]:
        return ((length, 1),) * 2
    for shape, blocks in (((1000, 20), True), (((1000, 200)), True), ((1000, 300), False), ((9, 20), False), ((1000, 5), False)):
        assert rows.ByVectors(softmax(), shape, strides(*shape)).blocks == blocks
    plan = rows.ByVectors(softmax(), (1000, 20), strides(1000, 20))
    assert plan.stage.by_lines and (plan.stage.vector.size, plan.stage.line.size) == (20, 1000)
    assert (plan.stage.width, plan.stage.units) == (256, 4) and plan.stage.turned().vector.size == 1000
    for length, blocks in ((12, True), (127, True), (128, False), (8, False)):
        assert reductions.ByVectors(SUM, (1000, length), ((1,), (length, 1))).blocks == blocks


def test_few_rows_along_an_axis_are_walked_outside_of_more() -> None:
    def walked(rows: int, far: int) -> list[int]:
        domain, steps = (8, far, rows, 16), (far * rows * 16, rows * 16, 16, 1)
        return [a.size for a in maps.ByVectors(ADD, domain, (steps, (far * rows * 16, 16, far * 16, 1), steps)).outer]
    assert walked(2, 32) == [32, 2, 8] and walked(8, 32) == [8, 32, 8] and walked(2, 3) == [2, 3, 8]
    assert walked(2, 1 << 10) == [2, 1 << 10, 8]  # beyond the first cache
    placed = Map((X + E.cast(E.coord(1), float32),), (float32,))
    plan = maps.ByVectors(placed, (8, 32, 2, 16), ((1024, 32, 16, 1), (1024, 16, 512, 1)))
    assert [a.size for a in plan.outer] == [32, 2, 8] and plan.places == ((1, 1),)
