"""Maps in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from flambeau._core.dtypes import ALL, bfloat16, bool_, complex64, complex128, dtype, float16, float32, float64, int8, int32, int64, uint8, uint16, uint64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import philox
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.loops import maps
from flambeau._core.kernels.programs import Map
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, check_all, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
REAL = [d for d in ALL if not d.is_complex]
# how far a result may be from NumPy's, whose functions are not those of the C library
LIMIT = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 3e-6, "float64": 1e-13}


def flat(program: Map, ins: list[np.ndarray], numbers=(), rtol: float = 0.0, how: int = 0, atol: float = 0.0) -> Case:
    shape = ins[0].shape if ins else (37,)
    outs = [Operand(np.zeros(shape, d.np), how) for d in program.out_types]
    return Case(program, shape, outs, [Operand(a, how) for a in ins], numbers, rtol, atol)


def test_casts() -> None:
    rng = np.random.default_rng(1)
    cases = [flat(Map((E.cast(E.input(0, a), b),), (a,)), [values(a, (67,), rng)]) for a, b in itertools.product(REAL, REAL)]
    check_all(cases, (0,))


def test_comparisons_and_where() -> None:
    rng, cases = np.random.default_rng(2), []
    for d in REAL:
        a, b = E.input(0, d), E.input(1, d)
        outs = tuple(E.compare(op, a, b) for op in sorted(E.COMPARE)) + (E.where(a < b, a, b),)
        cases.append(flat(Map(outs, (d, d)), [values(d, (67,), rng), values(d, (67,), rng)]))
    check_all(cases, (0,))


def test_arithmetic_to_the_bit() -> None:
    rng, cases = np.random.default_rng(3), []
    for d in REAL:
        a, b, c = (E.input(k, d) for k in range(3))
        ops = ["add", "sub", "mul", "maximum", "minimum", *(["div", "rem", "fmod", "floordiv", "truncdiv"] if d is not bool_ else ["and", "or", "xor"])]
        if d.kind in "ui":
            ops += ["and", "or", "xor", "shl", "shr", "pow"]
        ops = [op for op in ops if not (op == "div" and d.kind != "f")]
        outs = tuple(E.binary(op, a, b) for op in ops) + (E.abs_(a),)
        if d.kind != "b":
            outs += (-a,)
        if d.kind == "f":
            outs += (E.sqrt(a), E.floor(a), E.ceil(a), E.round_(a), E.trunc(a), E.copysign(a, b))
        if d in (float32, float64):
            outs += (E.rsqrt(a),)  # in halves the interpreter rounds the root too
        cases.append(flat(Map(outs, (d, d)), [values(d, (67,), rng), values(d, (67,), rng)]))
        if d.kind != "b":
            # products next to sums are rounded on their own, as the interpreter rounds them
            cases.append(flat(Map((a * b + c, a * b - b * c), (d, d, d)), [values(d, (67,), rng) for _ in range(3)]))
    check_all(cases, (0,))


FUNCTIONS = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma""".split()


def test_functions() -> None:
    rng, cases = np.random.default_rng(4), []
    for d in (float32, float64, float16, bfloat16):
        a, b = E.input(0, d), E.input(1, d)
        outs = tuple(E.unary(op, a) for op in FUNCTIONS) + (E.atan2(a, b), E.hypot(a, b), E.pow_(a, b), E.rsqrt(a))
        cases.append(flat(Map(outs, (d, d)), [values(d, (67,), rng), values(d, (67,), rng)], rtol=LIMIT[d.name], atol=LIMIT[d.name] / 10))
    a = E.input(0, float32)
    cases.append(flat(Map((E.nextafter(a, E.const(0.0, float32)),), (float32,)), [values(float32, (67,), rng)]))
    check_all(cases, (0,))


def test_constants() -> None:
    cases = []
    for d in REAL:
        numbers = [0, 1, -1, 0.1, -0.0, 1e30, float("inf"), float("-inf"), float("nan")] if d.kind == "f" else [0, 1, 5, -(1 << 63), (1 << 63) - 1, -1]
        cases.append(Case(Map(tuple(E.const(v, d) for v in numbers), ()), (5,), [Operand(np.zeros(5, d.np)) for _ in numbers], []))
    check_all(cases, (0,))


def test_numbers_of_every_type() -> None:
    given = {"b": True, "u": 200, "i": -3, "f": 1.7}
    cases = [Case(Map((E.scalar(0, d), E.scalar(1, float32)), (), (d, float32)), (9,), [Operand(np.zeros(9, d.np)), Operand(np.zeros(9, np.float32))], [],
                  [given[d.kind], 2.5]) for d in REAL]
    cases.append(Case(Map((E.scalar(0, uint64),), (), (uint64,)), (9,), [Operand(np.zeros(9, np.uint64))], [], [(1 << 64) - 3]))
    check_all(cases, (0,))


SHAPES = [(), (1,), (3,), (1000,), (1027,), (2, 1), (5, 3), (3, 64), (4, 1, 6), (3, 5, 7), (2, 3, 4, 5), (33, 8), (2, 2, 256)]


@pytest.mark.parametrize("d", [float32, float64, bfloat16, int8], ids=str)
def test_layouts(d: dtype) -> None:
    """Every way of laying out, broadcast operands among them; what is not the domain's stays untouched."""
    rng, cases = np.random.default_rng(5), []
    program = Map((E.input(0, d) + E.input(1, d),), (d, d))
    for shape in SHAPES:
        for hows in ((0, 0, 0), (0, 4, 0), (4, 4, 4), (1, 0, 0), (0, 2, 0), (0, 3, 1), (2, 2, 2), (0, 5, 0), (0, 0, 6), (0, 7, 0)):
            ins = []
            for how in hows[1:]:
                part = shape if how < 5 else shape[1:] if how == 5 else (*shape[:-1], 1)[-len(shape):] if how == 6 and shape else ()
                ins.append(Operand(values(d, part, rng), how if how < 5 else 0).over(shape))
            cases.append(Case(program, shape, [Operand(np.zeros(shape, d.np), hows[0])], ins))
    check_all(cases, (0, 7))


def test_random_layouts() -> None:
    rng, cases = np.random.default_rng(6), []
    types = [float32, bool_, float16, int64, uint8, float64]
    for _ in range(60):
        rank = int(rng.integers(0, 5))
        shape = tuple(int(n) for n in rng.integers(1, 9, rank))
        ds = [types[k] for k in rng.integers(0, len(types), 2)]
        total = E.cast(E.input(0, ds[0]), float32) + E.cast(E.input(1, ds[1]), float32)
        program = Map((total, total > 1.0), tuple(ds))
        ins = [Operand(values(d, tuple(n if rng.random() < 0.7 else 1 for n in shape), rng, small=True), int(rng.integers(0, 5))).over(shape) for d in ds]
        outs = [Operand(np.zeros(shape, d.np), int(rng.integers(0, 5))) for d in program.out_types]
        cases.append(Case(program, shape, outs, ins))
    check_all(cases, (7,))


def test_coordinates_and_gathers() -> None:
    rng, cases = np.random.default_rng(7), []
    for shape in ((5, 7), (1029,), (4, 8, 16), (1, 6), (3, 1)):
        table = values(float32, (11,), rng)
        place = E.coord(-1) * 3 + E.coord(0)
        program = Map((E.gather(0, E.binary("rem", place + E.input(1, int64), E.const(11, int64)), float32), place, E.coord(-1)), (float32, int64))
        outs = [Operand(np.zeros(shape, d.np)) for d in program.out_types]
        offsets = Operand(rng.integers(0, 50, shape))
        cases.append(Case(program, shape, outs, [Operand(table), offsets], strides={3: ()}))
        # a table seen through no axes at all has no place of its own
    check_all(cases)


def test_philox_gives_the_same_numbers() -> None:
    cases = []
    w = philox.words(philox.counter_at(E.coord(-1), E.scalar(1, uint64)), E.scalar(0, uint64))
    for d in (float32, float64, float16, bfloat16):
        u = E.cast(philox.uniform(w, d), d)
        cases.append(Case(Map((u, *w), (), (uint64, uint64)), (70,), [Operand(np.zeros(70, d.np)), *(Operand(np.zeros(70, np.uint32)) for _ in w)], [],
                          [0xFEDCBA9876543210, 5]))
    normal = philox.normal(w, float32)
    cases.append(Case(Map((normal,), (), (uint64, uint64)), (300,), [Operand(np.zeros(300, np.float32))], [], [1234, 9], 1e-5, 1e-6))
    check_all(cases, (0,))


def test_complex_numbers() -> None:
    rng, cases = np.random.default_rng(8), []
    for d in (complex64, complex128):
        a, b, s = E.input(0, d), E.input(1, d), E.scalar(0, d)
        limit = 1e-5 if d is complex64 else 1e-12
        program = Map((a + b, a * b, a / b, E.exp(a), E.sqrt(a), E.abs_(a), E.conj(a) * s, E.real(a)), (d, d), (d,))
        for how in (0, 1):
            cases.append(flat(program, [values(d, (5, 9), rng, False), values(d, (5, 9), rng, False)], [1.5 - 2j], limit, how, limit))
    check_all(cases, (0,))


def test_complex_numbers_in_order() -> None:
    rng, cases = np.random.default_rng(9), []
    for d in (complex64, complex128):
        a, b = E.input(0, d), E.input(1, d)
        outs = tuple(E.compare(op, a, b) for op in sorted(E.COMPARE)) + (E.binary("maximum", a, b), E.binary("minimum", a, b), E.round_(a))
        x, y = values(d, (200,), rng, True, True), values(d, (200,), rng, True, True)
        y = np.where(rng.random(200) < 0.3, x, y)
        y.real = np.where(rng.random(200) < 0.3, x.real, y.real)
        cases.append(flat(Map(outs, (d, d)), [x, y]))
    check_all(cases, (0,))


def test_threads_of_big_maps_do_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "BIG", 1000)
    rng, cases = np.random.default_rng(12), []
    for d, n in ((float32, 1000), (float32, 2047), (float32, 2048), (float32, 2049), (float32, 4099), (bfloat16, 5003), (uint8, 8191), (float64, 1025)):
        for how in (0, 4):
            x = E.input(0, d)
            cases.append(flat(Map((E.maximum(x, E.cast(E.coord(0), d)),), (d,)), [values(d, (n,), rng)], how=how))
            cases.append(flat(Map((E.cast(x, bool_),), (d,)), [values(d, (n,), rng)], how=how))
    assert all("live" in c.kernel.source for c in cases)
    two = flat(Map((E.input(0, float32) + E.input(1, float32),), (float32, float32)), [values(float32, (3000,), rng)] * 2)
    assert "live" not in two.kernel.source
    check_all([*cases, two], (0, 7))


def test_threads_of_big_maps_do_more_where_nothing_lies_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "BIG", 1000)
    rng, cases = np.random.default_rng(14), []
    for d in (float32, bfloat16, uint8, float64):
        x, y = E.input(0, d), E.input(1, d)
        for shape in ((40, 51), (2051,), (2, 33, 45), (16, 64)):
            a, b = (values(d, shape, rng) for _ in range(2))
            row = Operand(values(d, shape[-1:], rng)).over(shape)
            cases.append(Case(Map((E.maximum(x, y),), (d, d)), shape, [Operand(np.zeros(shape, d.np))], [Operand(a), row]))
            cases.append(Case(Map((x,), (d,)), shape, [Operand(np.zeros(shape, d.np))], [Operand(a, 1)]))
            o = Operand(a, 3)  # in place, backwards
            cases.append(Case(Map((E.minimum(x, y),), (d, d)), shape, [o], [o, Operand(b, 3)]))
    at = Operand(rng.integers(0, 500, (30, 41)), 1)
    table = Operand(values(float32, (500,), rng))
    program = Map((E.gather(0, E.input(1, int64), float32) + E.cast(E.coord(0) * 3 + E.coord(1), float32), E.input(1, int64) + 1), (float32, int64))
    outs = [Operand(np.zeros((30, 41), np.float32)), Operand(np.zeros((30, 41), np.int64), 2)]
    cases.append(Case(program, (30, 41), outs, [table, at], strides={2: (0, 0)}))
    mixed = [(bfloat16, float32), (uint8, float32), (float16, float64), (float32, bfloat16)]
    cases += [flat(Map((E.cast(E.input(0, d), to),), (d,)), [values(d, (5003,), rng, False)]) for d, to in mixed]
    rows = [Case(Map((E.input(0, float32) + E.input(1, float32),), (float32,) * 2), (20, 96), [Operand(np.zeros((20, 96), np.float32))],
                 [Operand(values(float32, (20, 96), rng)), Operand(values(float32, (96,), rng)).over((20, 96))])]
    assert sum("for (int r = 0; r <" in c.kernel.source for c in cases) > 35 and "live" in rows[0].kernel.source
    check_all([*cases, *rows], (0, 7))


def test_what_is_the_same_for_each_row_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "BIG", 1000)
    rng, cases = np.random.default_rng(15), []
    for d, kind in ((float32, float32), (bfloat16, float32), (float16, float16), (float64, float64)):
        x, w, b, one = (E.cast(E.input(k, t), float64 if d is float64 else float32) for k, t in enumerate((d, kind, d, kind)))
        program = Map((E.cast(E.maximum(x, w) + b * one, d),), (d, kind, d, kind))
        for shape in ((64 * 4, 16), (64 * 4 + 1, 16), (64 * 4 + 3, 40), (700, 24), (1030, 8)):
            operands = [values(d, shape, rng, False), values(kind, shape[-1:], rng, False), values(d, shape[-1:], rng, False), values(kind, (), rng, False)]
            ins = [Operand(a).over(shape) for a in operands]
            cases.append(Case(program, shape, [Operand(np.zeros(shape, operands[0].dtype))], ins, rtol=1e-2 if d.itemsize == 2 else 1e-6, atol=1e-6))
    reads = [len(re.findall(r"r\d+ = \*\(const", c.kernel.source)) for c in cases]
    assert max(reads) == 4 + 3 and min(reads) >= 2 + 3  # of each of a thread's rows, and what is the same for them
    ins = [Operand(values(float64, s, rng, False)).over((63, 16)) for s in ((63, 16), (16,), (16,), ())]
    few = Case(program, (63, 16), [Operand(np.zeros((63, 16)))], ins, rtol=1e-6, atol=1e-6)  # by blocks, row after row
    check_all([*cases, few], (0, 7))


def test_one_text_serves_every_size() -> None:
    program = Map((E.input(0, float32) + 1.0,), (float32,))
    found = {render(program, (n,), ((1,), (1,))).key for n in (5, 1000, 123456)}
    assert len(found) == 1
    big = {render(program, (n,), ((1,), (1,))).key for n in (1 << 20, 5_000_001)}
    assert len(big) == 1 and big != found
    wide = render(program, (1 << 31,), ((1,), (1,)))
    assert wide.key not in found and "long long i" in wide.source


def test_nothing_to_do() -> None:
    kernel = render(Map((E.input(0, int32) + 1,), (int32,)), (0, 5), ((5, 1), (5, 1)))
    assert kernel.launches == () and kernel.entry == "" and kernel.workspace == 0


def test_pack_refuses_another_number_of_arguments() -> None:
    kernel = render(Map((E.input(0, uint16) + 1,), (uint16,)), (5,), ((1,), (1,)))
    with pytest.raises(TypeError, match="takes 2 arguments, got 3"):
        kernel.pack(1, 2, 3)


def test_across_memory_by_tiles() -> None:
    """Inputs that lie across the output go through shared memory: no thread's neighbours are far apart, on either side."""
    rng, cases = np.random.default_rng(10), []
    for d in (float32, float64, bfloat16, uint8, complex64):
        x, y = E.input(0, d), E.input(1, d)
        shapes = [(32, 32), (70, 40), (16, 100), (20, 3, 65)] if d is float32 else [(40, 50), (70, 130)]
        for shape in shapes:
            turned = Operand(values(d, shape, rng, False), 2)
            cases.append(Case(Map((x,), (d,)), shape, [Operand(np.zeros(shape, d.np))], [turned]))
            straight = Operand(values(d, shape, rng, False))
            cases.append(Case(Map((x,), (d,)), shape, [Operand(np.zeros(shape, d.np), 2)], [straight]))
            more = [turned, Operand(values(d, shape[-1:], rng, False)).over(shape)]
            cases.append(Case(Map((x + y, x), (d, d)), shape, [Operand(np.zeros(shape, d.np)), Operand(np.zeros(shape, d.np), 1)], more))
    # coordinates, a gather, several turned ones, axes in another order
    x, y, i = E.input(0, float32), E.input(1, float32), E.coord(-1) * 2 + E.coord(-2)
    program = Map((x + y * E.cast(i, float32) + E.gather(2, E.coord(0), float32),), (float32,) * 3)
    shape = (40, 21)
    ins = [Operand(values(float32, shape, rng, False), 2), Operand(values(float32, shape, rng, False), 2), Operand(values(float32, (40,), rng, False))]
    cases.append(Case(program, shape, [Operand(np.zeros(shape, np.float32))], ins, strides={3: ()}))
    a = Operand(values(float32, (4, 20, 3, 50), rng, False))
    a.view = a.view.transpose(0, 3, 2, 1)
    cases.append(Case(Map((x,), (float32,)), (4, 50, 3, 20), [Operand(np.zeros((4, 50, 3, 20), np.float32))], [a]))
    assert [(c.domain, c.strides, c.program.out_types) for c in cases if "__shared__" not in c.kernel.source] == []
    check_all(cases)
    small = render(Map((E.input(0, float32),), (float32,)), (8, 1000), ((1000, 1), (1, 8)))
    assert "__shared__" not in small.source


@pytest.mark.parametrize("d,count", [(float32, 4), (bfloat16, 8), (float32, 2), (bfloat16, 2), (float64, 4)], ids=str)
def test_outputs_side_by_side_are_one_write_where_they_are_aligned(d, count):
    """`joined` outputs: written together if their first lies so, one by one elsewhere, and one by one where they are more than 16 bytes."""
    rng, n = np.random.default_rng(5), 1000
    x = E.input(0, d)
    program = Map(tuple([x + E.const(k, d) for k in range(count)]), (d,), joined=((0, count),))
    for shift in (0, 1):
        room = np.zeros(n * count + shift, d.np)
        outs = [Operand(np.zeros(n, d.np)) for _ in range(count)]
        for k, o in enumerate(outs):
            o.memory, o.view = room, room[shift + k::count][:n]
        c = Case(program, (n,), outs, [Operand(values(d, (n,), rng, False))])
        assert ("else {" in c.kernel.source) == (count * d.itemsize <= 16)
        check_all([c])
