"""Scans in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau.dtypes import bool_, complex64, complex128, dtype, float16, float32, float64, int32, int64, uint8
from flambeau.kernels import expr as E
from flambeau.kernels.cuda_c import render
from flambeau.kernels.programs import Scan
from tests.kernels.cuda_c import host
from tests.kernels.cuda_c.cases import Case, Operand, check_all, values

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


def test_long_rows_in_three_launches() -> None:
    rng, cases = np.random.default_rng(3), []
    for n in (40000, 33001):
        for how in ("sum", "max", "logsumexp"):
            a = values(float32, (n,), rng, False)
            a = np.round(a * 3) if how == "sum" else a  # whole numbers add up exactly in any order
            cases.append(case(of_one(how, float32, how != "sum"), a, 0, 1e-4 if how == "logsumexp" else 0.0))
    assert all(len(c.kernel.launches) == 3 and c.kernel.workspace for c in cases)
    check_all(cases, (0, 7))


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
