"""Row programs in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, complex64, dtype, float16, float32, float64, int32, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import GPU, order, render
from flambeau._core.kernels.loops import rows as loops
from flambeau._core.kernels.programs import Rows
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, check_all, values
from tests._core.kernels.row_programs import cross_entropy, layer_norm, layer_norm_backward

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
LIMIT = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-13}


def softmax(d: dtype) -> Rows:
    x = E.cast(E.input(0, d), float32) if d.itemsize < 4 else E.input(0, d)
    e = E.exp(x - E.acc(0, x.dtype))
    return Rows((("reduce", "max", x), ("reduce", "sum", e), ("map", 0, E.cast(e / E.acc(1, x.dtype), d))), (d,))


def room(program: Rows, shape: tuple[int, ...], how: int = 0) -> tuple[list[Operand], dict[int, tuple[int, ...]]]:
    """Outputs, and the strides of those that have a number a row."""
    short = {s[1] for s in program.stages if s[0] == "row"}
    outs = [Operand(np.zeros(shape[:-1] if k in short else shape, d.np), 0 if k in short else how) for k, d in enumerate(program.out_types)]
    return outs, {k: (*outs[k].strides, 0) for k in short}


def per_row(a: np.ndarray, shape: tuple[int, ...]) -> Operand:
    o = Operand(a[..., None])
    o.over(shape)
    return o


def case(program: Rows, shape: tuple[int, ...], ins: list[Operand], numbers=(), limit: float = 0.0, how: int = 0) -> Case:
    outs, strides = room(program, shape, how)
    return Case(program, shape, outs, ins, numbers, limit, limit, strides)


SHAPES = [(1,), (7,), (1000,), (5, 3), (100, 10), (33, 16), (3, 300), (3, 4, 50), (1, 1), (9, 1), (3, 512), (2, 513), (2, 2048), (1, 4100)]


@pytest.mark.parametrize("d", [float32, float64, float16, bfloat16], ids=str)
def test_softmax(d: dtype) -> None:
    rng, cases = np.random.default_rng(1), []
    for shape in SHAPES:
        for how in (0, 1, 4):
            cases.append(case(softmax(d), shape, [Operand(values(d, shape, rng, False), how)], (), LIMIT[d.name], how))
    check_all(cases, (0, 7))


def test_layer_norm_there_and_back() -> None:
    rng, cases = np.random.default_rng(2), []
    for shape in SHAPES:
        x, g = (values(float32, shape, rng, False) for _ in range(2))
        w, b = (Operand(values(float32, shape[-1:], rng, False)).over(shape) for _ in range(2))
        mean, rstd = (per_row(values(float32, shape[:-1], rng, False), shape) for _ in range(2))
        cases.append(case(layer_norm(float32), shape, [Operand(x), w, b], [float(shape[-1])], 1e-3))
        cases.append(case(layer_norm_backward(float32), shape, [Operand(g), Operand(x), mean, rstd, w], [float(shape[-1])], 2e-3))
    check_all(cases)


def test_cross_entropy() -> None:
    rng, cases = np.random.default_rng(3), []
    for shape in ((5, 3), (40, 10), (6, 1000), (33, 17), (1, 5)):
        a = values(float32, shape, rng, False)
        cases.append(case(cross_entropy(float32), shape, [Operand(a), per_row(rng.integers(0, shape[1], shape[0]), shape), Operand(a)], [shape[1]], 1e-5))
    check_all(cases)


def test_rows_across_memory() -> None:
    """A softmax over channels: neighbours in memory belong to different rows."""
    rng, cases = np.random.default_rng(4), []
    for shape in ((2, 64, 50), (3, 5, 7), (1, 2, 33), (2, 200, 40)):
        a, out = Operand(values(float32, shape, rng, False)), Operand(np.zeros(shape, np.float32))
        for o in (a, out):
            o.view = o.view.transpose(0, 2, 1)
        cases.append(Case(softmax(float32), a.view.shape, [out], [a], (), 1e-5, 1e-7))
    check_all(cases)


def test_rows_too_long_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPU, "launch", 1e9)
    rng, cases = np.random.default_rng(5), []
    for n in (16500, 20001):
        cases.append(case(softmax(float32), (2, n), [Operand(values(float32, (2, n), rng, False))], (), 1e-5))
        w, b = (Operand(values(float32, (n,), rng, False)).over((1, n)) for _ in range(2))
        cases.append(case(layer_norm(float32), (1, n), [Operand(values(float32, (1, n), rng, False)), w, b], [float(n)], 1e-3))
    check_all(cases, (0, 7))


def test_long_rows_of_any_length_are_read_by_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of 50257 classes: a row in four begins where a vector does."""
    monkeypatch.setattr(GPU, "launch", 1e9)
    monkeypatch.setattr(GPU, "shared", 0)
    rng, cases = np.random.default_rng(15), []
    for d, n in ((float32, 17001), (bfloat16, 20003), (float64, 9001)):
        for how in (0, 4):
            cases.append(case(softmax(d), (5, n), [Operand(values(d, (5, n), rng, False), how)], (), LIMIT[d.name], how))
    a = values(float32, (4, 16403), rng, False)
    cases.append(case(cross_entropy(float32), (4, 16403), [Operand(a), per_row(rng.integers(0, 16403, 4), a.shape), Operand(a)], [16403], 1e-5))
    w, b = (Operand(values(float32, (16403,), rng, False)).over(a.shape) for _ in range(2))  # these begin elsewhere than most rows
    cases.append(case(layer_norm(float32), a.shape, [Operand(a), w, b], [16403.0], 1e-3))
    assert all("head" in c.kernel.source and len(c.kernel.launches) == 1 for c in cases)
    check_all(cases, (0, 7))


def test_every_reduction() -> None:
    rng, cases = np.random.default_rng(6), []
    for d in (float32, float64, int32, int64):
        for shape in ((6, 40), (2, 700)):
            x = E.input(0, d)
            hows = ("sum", "max", "min", *(("and", "or") if d.kind == "i" else ()))
            accs = tuple(E.acc(k, d) for k in range(len(hows)))
            program = Rows((*(("reduce", how, x) for how in hows), *(("row", k, a) for k, a in enumerate(accs)), ("map", len(hows), x - accs[0])), (d,))
            cases.append(case(program, shape, [Operand(values(d, shape, rng, False))], (), LIMIT.get(d.name, 0.0)))
    check_all(cases)


def test_in_place_and_empty() -> None:
    rng, cases = np.random.default_rng(7), []
    for shape in ((9, 40), (2, 1000)):
        o = Operand(values(float32, shape, rng, False))
        cases.append(Case(softmax(float32), shape, [o], [o], (), 1e-5, 1e-7))
    check_all(cases)
    sums = Rows((("reduce", "sum", E.input(0, float32)), ("row", 0, E.acc(0, float32))), (float32,))
    check_all([case(sums, (4, 0), [Operand(np.zeros((4, 0), np.float32))])], (0,))
    assert render(sums, (0, 4), ((1, 0), (4, 1))).launches == ()


def test_complex_rows() -> None:
    rng = np.random.default_rng(8)
    z = E.input(0, complex64)
    program = Rows((("reduce", "sum", z), ("map", 0, z - E.acc(0, complex64))), (complex64,))
    check_all([case(program, (5, 40), [Operand(values(complex64, (5, 40), rng, False))], (), 1e-4)])


def test_complex_products_along_rows() -> None:
    rng = np.random.default_rng(9)
    z = E.input(0, complex64)
    turned = E.where(E.real(z) > 0.0, z, z * 1j)
    program = Rows((("reduce", "prod", turned), ("reduce", "max", z), ("map", 0, z * E.acc(0, complex64)), ("row", 1, E.acc(1, complex64))), (complex64,))
    cases = [case(program, shape, [Operand(np.exp(1j * rng.standard_normal(shape)).astype("c8"))], (), 1e-4) for shape in ((5, 40), (3, 3000))]
    check_all(cases)


def test_a_value_a_row_that_differs_along_it_is_the_first_elements() -> None:
    rng = np.random.default_rng(10)
    x = E.input(0, float32)
    program = Rows((("reduce", "sum", x), ("row", 0, x * 2.0 + E.acc(0, float32)), ("row", 1, E.coord(-1))), (float32,))
    check_all([case(program, shape, [Operand(np.round(values(float32, shape, rng, False)))]) for shape in ((5, 40), (3, 3000), (300, 1))])


def test_rows_kept_in_shared_memory() -> None:
    rng, cases = np.random.default_rng(11), []
    for d, n in ((float32, 16640), (float32, 25088), (float32, 17001), (bfloat16, 50001), (float16, 20000)):
        cases.append(case(softmax(d), (2, n), [Operand(values(d, (2, n), rng, False))], (), LIMIT.get(d.name, 1e-5), 4 if n == 20000 else 0))
    x, y = (E.cast(E.input(k, float16), float32) for k in range(2))
    two = Rows((("reduce", "sum", x * y), ("map", 0, x + y * E.acc(0, float32))), (float16, float16))
    for shape in ((2, 20000), (1, 16397)):
        cases.append(case(two, shape, [Operand(np.round(values(float16, shape, rng, False))) for _ in range(2)]))
    for c in cases:
        ((_, _, _, shared),) = c.kernel.launches
        assert 32 << 10 < shared <= GPU.shared, (c.domain, shared)
    check_all(cases, (0, 7))
    assert render(softmax(bfloat16), (4, 50257), ((50257, 1),) * 2).launches[0][3]
    assert not render(softmax(float32), (400, 30000), ((30000, 1),) * 2).launches[0][3]  # too long: read again


@pytest.mark.parametrize("way", ["again", "pieces"])
def test_a_maximum_is_found_while_exponentials_add_up(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not kept are read once for both: infinities, NaN, a maximum that comes late, and rows of nothing else than -inf."""
    if way == "again":
        monkeypatch.setattr(GPU, "shared", 0)
        monkeypatch.setattr(GPU, "launch", float("inf"))
    rng = np.random.default_rng(9)
    n = 17001 if way == "again" else 60001
    a = rng.standard_normal((8, n)).astype(np.float32)
    a[0] *= 30
    a[1] = np.linspace(-90, 90, n)
    a[2], a[3, ::2], a[3, 7] = -np.inf, -np.inf, 80.0
    a[4, n // 3], a[5, n // 2], a[6, -1] = np.inf, np.nan, 200.0
    a[7, :-1] = -np.inf
    x = E.input(0, float32)
    sum_ = Rows((("reduce", "max", x), ("reduce", "sum", E.where(x > 1.0, x, E.const(0, float32))), ("reduce", "sum", E.exp(x - E.acc(0, float32))),
                 ("row", 0, E.acc(0, float32)), ("row", 1, E.acc(1, float32)), ("row", 2, E.acc(2, float32))), (float32,))
    x = E.input(0, float64)
    wide = Rows((("reduce", "max", x), ("reduce", "sum", E.exp(x - E.acc(0, float64))), ("row", 0, E.log(E.acc(1, float64)) + E.acc(0, float64))), (float64,))
    cases = [case(softmax(float32), a.shape, [Operand(a)], (), 1e-5), case(wide, a.shape, [Operand(a.astype(np.float64))], (), 1e-12)]
    for c in cases:
        kind = loops.ByThreads(c.program, c.domain, c.strides, GPU)
        assert kind.way == way and len([p for p in kind.passes if p[0][0] == "reduce"]) == 1
    check_all([*cases, case(softmax(bfloat16), (3, n), [Operand(values(bfloat16, (3, n), rng, False))], (), 1e-2),
               case(sum_, a.shape, [Operand(a)], (), 2e-4)], (0, 7))


def test_few_long_rows_go_to_many_blocks() -> None:
    rng, cases = np.random.default_rng(12), []
    for shape, how in (((1, 40001), 0), ((2, 33000), 4), ((1, 40000), 1)):
        cases.append(case(softmax(float32), shape, [Operand(values(float32, shape, rng, False), how)], (), 1e-5, how))
    cases.append(case(softmax(bfloat16), (1, 70000), [Operand(values(bfloat16, (1, 70000), rng, False))], (), LIMIT["bfloat16"]))
    x, g, w, b = (Operand(values(float32, (1, 33001), rng, False)) for _ in range(4))
    mean, rstd = (per_row(values(float32, (1,), rng, False), (1, 33001)) for _ in range(2))
    cases.append(case(layer_norm(float32), (1, 33001), [x, w, b], [33001.0], 1e-3))
    cases.append(case(layer_norm_backward(float32), (1, 33001), [g, x, mean, rstd, w], [33001.0], 2e-3))
    assert [len(c.kernel.launches) for c in cases] == [2, 2, 2, 2, 3, 2]
    assert all(c.kernel.workspace and c.kernel.launches[0][1][1] > 8 for c in cases)
    check_all(cases, (0, 7))


def test_pieces_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What long rows do, by fewer threads and elements."""
    monkeypatch.setattr(loops, "THREADS", 64)
    monkeypatch.setattr(GPU, "launch", 0.0)
    rng, cases = np.random.default_rng(13), []
    for d in (float32, float64, float16):
        for shape in ((3, 700), (2, 3, 513), (1, 2049), (1, 520)):
            cases.append(case(softmax(d), shape, [Operand(values(d, shape, rng, False), int(rng.integers(0, 5)))], (), LIMIT[d.name], int(rng.integers(0, 5))))
    for d in (float32, int32, int64):
        x, hows = E.input(0, d), ("sum", "max", "min", *(("and", "or") if d.kind == "i" else ()))
        accs = tuple(E.acc(k, d) for k in range(len(hows)))
        program = Rows((*(("reduce", how, x) for how in hows), *(("row", k, a) for k, a in enumerate(accs)), ("map", len(hows), x - accs[0])), (d,))
        a = values(d, (3, 900), rng, d.kind == "i")
        cases.append(case(program, (3, 900), [Operand(np.round(a) if d.kind == "f" else a)]))
        ends = Rows((*(("reduce", how, x) for how in hows), *(("row", k, a + x) for k, a in enumerate(accs))), (d,))
        cases.append(case(ends, (3, 900), [Operand(np.round(a) if d.kind == "f" else a)]))
    x = E.input(0, float32)
    again = Rows((("reduce", "sum", x), ("map", 0, x - E.acc(0, float32)), ("reduce", "max", x * 2.0), ("row", 2, E.coord(-1) + E.coord(0)),
                  ("map", 1, x * E.acc(0, float32) + E.acc(1, float32))), (float32,))
    cases.append(case(again, (4, 600), [Operand(np.round(values(float32, (4, 600), rng, False)))]))
    a = np.where(rng.random((3, 800)) < 0.01, rng.choice(np.array([np.inf, -np.inf, np.nan], np.float32), (3, 800)), values(float32, (3, 800), rng, False))
    a[1] = -np.inf
    cases.append(case(softmax(float32), a.shape, [Operand(a.astype(np.float32))], (), 1e-5))
    for shape in ((6, 1000), (33, 517)):
        a = values(float32, shape, rng, False)
        cases.append(case(cross_entropy(float32), shape, [Operand(a), per_row(rng.integers(0, shape[1], shape[0]), shape), Operand(a)], [shape[1]], 1e-5))
        z = E.input(0, complex64)
        program = Rows((("reduce", "prod", z), ("reduce", "sum", z), ("map", 0, z * E.acc(0, complex64)), ("row", 1, E.acc(1, complex64))), (complex64,))
        cases.append(case(program, shape, [Operand(np.exp(1j * rng.standard_normal(shape)).astype("c8"))], (), 1e-3))
    for shape in ((2, 300, 5), (1, 400, 33), (500, 1), (300, 8)):  # rows whose elements are not neighbours
        a, out = Operand(values(float32, shape, rng, False)), Operand(np.zeros(shape, np.float32))
        for o in (a, out):
            o.view = o.view.swapaxes(-1, -2)
        cases.append(Case(softmax(float32), a.view.shape, [out], [a], (), 1e-5, 1e-7))
    o = Operand(values(float32, (2, 1000), rng, False))
    cases.append(Case(softmax(float32), (2, 1000), [o], [o], (), 1e-5, 1e-7))
    assert all(len(c.kernel.launches) > 1 for c in cases), [c.domain for c in cases if len(c.kernel.launches) < 2]
    check_all(cases, (0, 1, 7))


def test_as_many_pieces_as_fill_a_gpu() -> None:
    for shape in ((1, 10_000_000), (8, 1_000_000), (3, 10_000_001), (100, 1_000_000)):
        launches = render(softmax(float32), shape, ((shape[1], 1),) * 2).launches
        assert len(launches) == 2 and all(240 < grid[0] * grid[1] < 5000 for _, grid, _, _ in launches), launches
    for shape in ((1, 16384), (100, 32768), (132, 50257), (4096, 4096), (1000, 100000)):
        assert len(render(softmax(float32), shape, ((shape[1], 1),) * 2).launches) == 1


def test_the_order_of_sums_follows_from_what_is_read() -> None:
    """Rows of 16 bits are read by wider vectors than rows of 32, and other elements are a thread's then; a second operand of the type changes nothing."""
    narrow, wide = E.cast(E.input(0, bfloat16), float32), E.input(0, float32)

    def summed(x: E.Expr, inputs: tuple[dtype, ...], shape: tuple[int, int] = (8, 4096)) -> tuple[object, ...] | None:
        strides = (shape[1], 1)
        return order(Rows((("reduce", "sum", x), ("map", 0, x - E.acc(0, float32))), inputs), shape, (strides,) * (len(inputs) + 1))
    more = E.input(0, float32) + E.input(1, float32)
    assert summed(wide, (float32,)) == summed(more, (float32, float32)) is not None
    assert summed(narrow, (bfloat16,), (8, 1 << 14)) == summed(narrow, (bfloat16,), (8, 1 << 14))
    assert summed(wide, (float32,)) != summed(wide, (float32,), (8, 2048))
    assert summed(wide, (float32,), (1, 1 << 22)) is None  # pieces of a row go through the workspace
