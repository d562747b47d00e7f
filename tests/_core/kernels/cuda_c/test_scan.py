"""Scans in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import bool_, complex64, complex128, dtype, float16, float32, float64, int32, int64, uint8
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import GPU, render
from flambeau._core.kernels.programs import Scan
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, check_all, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
LIMIT = {"float16": 2e-3, "float32": 2e-4, "float64": 1e-12}


def of_one(how: str, d: dtype, reverse: bool = False) -> Scan:
    wide = float32 if d is float16 else d
    x = E.cast(E.input(0, d), wide) if how in ("sum", "prod", "logsumexp") else E.input(0, d)
    posts = (E.cast(E.acc(0, x.dtype), d), *((E.acc(1, int64),) if how in ("max", "min") else ()))
    return Scan(x, how, posts, (d,), (), reverse)


def case(program: Scan, a: np.ndarray, how: int = 0, limit: float = 0.0, turn: tuple[int, ...] | None = None) -> Case:
    x = Operand(a, how)
    outs = [Operand(np.zeros(a.shape, d.np), how) for d in program.out_types]
    if turn is not None:
        for o in (x, *outs):
            o.view = o.view.transpose(turn)
    return Case(program, x.view.shape, outs, [x], (), limit, limit)


SHAPES = [(1,), (5,), (33,), (129,), (1000,), (5, 3), (40, 70), (3, 4, 50), (2, 2049), (7, 1), (1500, 20)]


@pytest.mark.parametrize("how", ["sum", "prod", "max", "min", "logsumexp"])
def test_scans(how: str) -> None:
    rng, cases = np.random.default_rng(1), []
    for d in (float32, float64, float16, int32, uint8, bool_):
        if how == "logsumexp" and d.kind != "f" or how in ("sum", "prod") and d is bool_:
            continue
        for shape in SHAPES:
            a = values(d, shape, rng, how in ("max", "min"), True)
            if how == "prod" and d.kind == "f":
                a = np.where(rng.random(shape) < 0.95, np.ones((), d.np), a).astype(d.np)
            for reverse in (False, True):
                limit = LIMIT.get(d.name, 0.0) if how not in ("max", "min") else 0.0
                cases.append(case(of_one(how, d, reverse), a, int(rng.integers(0, 5)), limit))
    check_all(cases, (0, 7))


def test_complex_numbers() -> None:
    rng, cases = np.random.default_rng(4), []
    for d in (complex64, complex128):
        for how in ("sum", "prod", "max", "min"):
            x = E.input(0, d)
            for shape in SHAPES[1::2]:
                a = values(d, shape, rng, how in ("max", "min") and d is complex64, True)
                if how == "prod":
                    a = (np.exp(1j * a.real) + (a.imag > 2) * 0.1).astype(d.np)
                for reverse in (False, True):
                    posts = (E.acc(0, d), E.real(E.acc(0, d)), *((E.acc(1, int64),) if how in ("max", "min") else ()))
                    limit = 0.0 if how in ("max", "min") else 1e-3 if d is complex64 else 1e-11
                    cases.append(case(Scan(x * 2.0 if how == "sum" else x, how, posts, (d,), (), reverse), a, int(rng.integers(0, 5)), limit))
    big = np.round(values(complex64, (3, 33000), rng, False) * 3)
    cases.append(case(Scan(E.input(0, complex64), "sum", (E.acc(0, complex64),), (complex64,)), big, 0, 1e-5))
    check_all(cases, (0, 7))


def test_across_memory() -> None:
    rng, cases = np.random.default_rng(2), []
    for shape in ((20, 50), (3, 100, 40), (60, 5000)):
        turn = (1, 0) if len(shape) == 2 else (0, 2, 1)
        for how in ("sum", "max"):
            cases.append(case(of_one(how, float32), np.round(values(float32, shape, rng, False) * 3), 0, 0.0, turn))
    check_all(cases, (0, 7))


def test_long_rows_in_pieces() -> None:
    rng, cases = np.random.default_rng(3), []
    for n in (70000, 65537):
        for how in ("sum", "max", "logsumexp"):
            a = values(float32, (n,), rng, False)
            a = np.round(a * 3) if how == "sum" else a  # whole numbers add up exactly in any order
            cases.append(case(of_one(how, float32, how != "sum"), a, 0, 1e-4 if how == "logsumexp" else 0.0))
    assert all(len(c.kernel.launches) == 2 and c.kernel.workspace for c in cases)
    check_all(cases, (0, 7))


def test_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What long rows do, by fewer elements; ties, NaN and the signs of positions among them."""
    monkeypatch.setattr(GPU, "launch", 0.0)
    rng, cases = np.random.default_rng(6), []
    layouts = [(False, 9001, 0), (True, 9001, 0), (True, 12288, 4)]
    for d in (float32, float64, float16, int32, bool_):
        for how in ("sum", "prod", "max", "min", "logsumexp"):
            if how == "logsumexp" and d.kind != "f" or how in ("sum", "prod") and d is bool_:
                continue
            for reverse, n, at in layouts if d is float32 else [layouts[len(cases) % 3]]:
                a = values(d, (2, n), rng, how in ("max", "min"), True)
                if how == "prod" and d.kind == "f":
                    a = np.where(rng.random(a.shape) < 0.999, np.ones((), d.np), a).astype(d.np)
                if how in ("max", "min"):
                    a[0] = np.round(np.nan_to_num(a[0])) if d.kind == "f" else a[0]
                cases.append(case(of_one(how, d, reverse), a, at, LIMIT.get(d.name, 0.0) if how not in ("max", "min") else 0.0))
    z = E.input(0, complex64)
    for how in ("prod", "max", "min"):
        a = np.exp(1j * rng.standard_normal((2, 9000)))
        a = a if how == "prod" else np.round(a * 2)
        posts = (E.acc(0, complex64), *((E.acc(1, int64),) if how in ("max", "min") else ()))
        cases.append(case(Scan(z, how, posts, (complex64,), (), how == "min"), a.astype("c8"), 0, 1e-3 if how == "prod" else 0.0))
    assert all(len(c.kernel.launches) == 2 for c in cases), [c.domain for c in cases if len(c.kernel.launches) < 2]
    check_all(cases, (0, 7))


def test_pieces_of_rows_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPU, "launch", 0.0)
    rng, cases = np.random.default_rng(7), []
    for shape in ((900, 8), (2, 300, 33), (5000, 2), (640, 130)):
        turn = (1, 0) if len(shape) == 2 else (0, 2, 1)
        for how in ("sum", "max", "min", "prod"):
            a = np.round(values(float32, shape, rng, how != "prod" and how != "sum") * 3) if how != "prod" else np.ones(shape, np.float32)
            cases.append(case(of_one(how, float32, how != "max"), a.astype(np.float32), 0, 0.0, turn))
    assert all(len(c.kernel.launches) == 3 for c in cases)
    check_all(cases, (0, 7))


def test_many_rows_side_by_side_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has a strip of them: rows that fill no strip, elements that fill no tile, positions, and a type of each size."""
    size = render(of_one("sum", float32), (8192, 8192), ((1, 8192), (1, 8192)))
    assert [(grid, block) for _, grid, block, _ in size.launches] == [((256, 1, 1), (512, 1, 1))] and not size.workspace
    monkeypatch.setattr(GPU, "launch", 0.0)
    monkeypatch.setattr(GPU, "cores", 1)
    rng, cases = np.random.default_rng(9), []
    for shape in ((900, 40), (2, 300, 33), (128, 64), (129, 50), (101, 95)):
        turn = (1, 0) if len(shape) == 2 else (0, 2, 1)
        for d in (float32, float64, float16, int32) if shape == (900, 40) else (float32,):
            for how in ("sum", "max", "min", "prod"):
                a = values(d, shape, rng, how not in ("sum", "prod"), True)
                a = np.round(np.clip(a, -2, 2)) if how == "sum" else np.ones(shape, d.np) if how == "prod" else np.round(a) if d.kind == "f" else a
                cases.append(case(of_one(how, d, how != "max"), a.astype(d.np), 0, 0.0, turn))
        cases.append(case(of_one("logsumexp", float32), values(float32, shape, rng, False), 0, 1e-4, turn))
    z = values(complex64, (300, 40), rng, False)
    for how, limit in (("sum", 1e-4), ("max", 0.0)):
        posts = (E.acc(0, complex64), *((E.acc(1, int64),) if how == "max" else ()))
        cases.append(case(Scan(E.input(0, complex64), how, posts, (complex64,)), np.round(z * 3), 0, limit, (1, 0)))
    assert all(len(c.kernel.launches) == 1 and "first" in c.kernel.source and not c.kernel.workspace for c in cases)
    check_all(cases, (0, 7))


def test_short_rows_by_few_lanes() -> None:
    rng, cases = np.random.default_rng(8), []
    for shape in ((70, 1), (300, 3), (67, 20), (40, 24), (9, 64), (13, 65), (7, 96), (5, 300), (3, 512), (2, 640)):
        for how, d in (("sum", float32), ("max", float16), ("sum", int64), ("min", float32)):
            a = values(d, shape, rng, False, True)
            cases.append(case(of_one(how, d, how == "max"), np.round(a) if d.kind == "f" else a, int(rng.integers(0, 5))))
            x = Operand(np.round(a) if d.kind == "f" else a)  # in place
            wide = float32 if d is float16 else d
            cases.append(Case(Scan(E.cast(E.input(0, d), wide), "sum", (E.cast(E.acc(0, wide), d),), (d,)), shape, [x], [x]))
    check_all(cases, (0, 7))


def test_vectors_are_read_where_rows_allow_it() -> None:
    for shape, d, v in (((100, 4096), float32, 4), ((100, 50257), float32, 0), ((1, 50257), float32, 4), ((1000, 96), float16, 8), ((3, 4096), int64, 2)):
        source = render(of_one("sum", d), shape, ((shape[1], 1),) * 2).source
        assert (f", {v}> r" in source) if v else "Vec<" not in source, (shape, d)


def test_nan_stays_and_ties_go_to_the_later() -> None:
    a = np.array([[1, 1, 0, 2, np.nan, 5, np.nan, 7], [-np.inf, -np.inf, 1, 1, 0, 1, np.inf, np.inf]], np.float32)
    check_all([case(of_one(how, float32, reverse), np.repeat(a, n, 1)) for how in ("max", "min") for reverse in (False, True) for n in (1, 50)])


def test_posts_use_numbers_and_coordinates() -> None:
    x = E.input(0, float32)
    program = Scan(x * E.cast(E.coord(-1) + E.coord(0), float32), "sum", (E.acc(0, float32) * E.scalar(0, float32), x + E.acc(0, float32)), (float32,),
                   (float32,))
    a = np.round(values(float32, (3, 200), np.random.default_rng(4), False) * 3)
    c = Case(program, a.shape, [Operand(np.zeros(a.shape, np.float32)) for _ in range(2)], [Operand(a)], [2.0])
    check_all([c])


def test_nothing_to_scan() -> None:
    assert render(of_one("sum", float32), (3, 0), ((1, 1), (1, 1))).launches == ()
