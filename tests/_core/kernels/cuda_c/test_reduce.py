"""Reductions in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, bool_, complex64, complex128, dtype, float16, float32, float64, int8, int32, int64, uint8, uint64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.programs import Reduce
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, check_all, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
LIMIT = {"float16": 1e-2, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-13}


def of_one(how: str, d: dtype) -> Reduce:
    """The plain reduction of one operand; sums of small types as operations take them."""
    x = E.input(0, d)
    if how.startswith("arg"):
        return Reduce((x,), (how,), (E.acc(0, d), E.acc(1, int64)), (d,))
    wide = float32 if d in (float16, bfloat16) else int64 if d.kind in "ui" and d.itemsize < 8 else d
    x = E.cast(x, wide) if how in ("sum", "prod") else x
    return Reduce((x,), (how,), (E.cast(E.acc(0, x.dtype), d),), (d,))


def case(program: Reduce, a: np.ndarray, reduced: int, how: int = 0, numbers=(), rtol: float = 0.0, more=(), turn: tuple[int, ...] | None = None) -> Case:
    ins = [Operand(a, how), *more]
    for o in ins:
        if turn is not None:
            o.view = o.view.transpose(turn)
    domain = ins[0].view.shape
    kept = domain[:len(domain) - reduced]
    return Case(program, domain, [Operand(np.zeros(kept, d.np)) for d in program.out_types], ins, numbers, rtol, rtol)


def test_every_combination_and_type() -> None:
    rng, cases = np.random.default_rng(1), []
    for d in (float32, float64, float16, bfloat16, bool_, int8, uint8, int32, int64, uint64):
        for how in ("sum", "prod", "max", "min", "argmax", "argmin", *(("and", "or") if d.kind in "biu" else ())):
            for shape, reduced in (((3, 70), 1), ((1500,), 1), ((70, 40), 1)):
                turn = (1, 0) if shape == (70, 40) else None  # neighbours in memory are different outputs
                # sums of infinities, and products that overflow on the way, depend on the order
                a = values(d, shape, rng, how not in ("sum", "prod"), how == "prod")
                if how == "prod" and d.kind == "f":
                    a = np.abs(values(float32, shape, rng, False) * 0.01 + 1)
                    a = a.astype(d.np) if d is not bfloat16 else values(d, shape, rng, False) & 0x80FF | 0x3F80
                    a = np.where(rng.random(shape) < 0.98, np.ones((), d.np) if d is not bfloat16 else np.uint16(0x3F80), a).astype(d.np)
                cases.append(case(of_one(how, d), a, reduced, turn=turn, rtol=LIMIT[d.name] if d.kind == "f" and how in ("sum", "prod") else 0.0))
    check_all(cases)


SHAPES = [((), 0), ((1,), 1), ((5,), 1), ((33,), 1), ((1025,), 1), ((9000,), 1), ((5, 3), 1), ((5, 16), 1), ((5, 17), 1), ((40, 600), 1), ((3, 4, 50), 2),
          ((3, 4, 50), 1), ((2, 3, 4, 5), 2), ((7, 1), 1), ((1, 7), 1), ((6,), 0), ((4, 5), 0), ((2, 5000), 1)]


@pytest.mark.parametrize("d", [float32, bfloat16, int8], ids=str)
def test_shapes_and_layouts(d: dtype) -> None:
    rng, cases = np.random.default_rng(2), []
    for shape, reduced in SHAPES:
        for how in (0, 1, 2, 3, 4):
            a = values(d, shape, rng, False)
            cases.append(case(of_one("sum", d), a, reduced, how, rtol=LIMIT.get(d.name, 0.0)))
            cases.append(case(of_one("argmin", d), a, reduced, how))
    check_all(cases, (0, 7))


def test_axes_in_any_order() -> None:
    rng, cases = np.random.default_rng(3), []
    for turn in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2), (2, 0, 1)):
        for shape in ((4, 33, 40), (64, 5, 70)):
            for reduced in (1, 2):
                a = values(float32, shape, rng, False)
                cases.append(case(of_one("sum", float32), a, reduced, turn=turn, rtol=1e-5))
                cases.append(case(of_one("argmax", float32), np.round(a), reduced, turn=turn))
    check_all(cases, (0, 7))


def test_few_outputs_side_by_side() -> None:
    """A warp reads neighbours, also where there are fewer outputs than its threads."""
    rng, cases = np.random.default_rng(7), []
    for n, length in ((2, 700), (3, 9001), (5, 300), (8, 20000), (17, 40), (31, 5000)):
        for d in (float32, bfloat16):
            a = values(d, (length, n), rng, False)
            cases.append(case(of_one("sum", d), a, 1, turn=(1, 0), rtol=3e-2 if d is bfloat16 else 1e-3))
            cases.append(case(of_one("argmin", d), a, 1, turn=(1, 0)))
    assert all(c.kernel.launches[0][2][0] < 33 and "threadIdx.y * " in c.kernel.source for c in cases)
    check_all(cases, (0, 7))


def test_long_ones_in_two_launches() -> None:
    rng = np.random.default_rng(4)
    x, y = E.input(0, float32), E.input(1, float32)
    moments = Reduce((x, x * x, x), ("sum", "sum", "argmax"), (E.acc(0, float32) / E.scalar(0, float32), E.acc(1, float32), E.acc(3, int64)), (float32,),
                     (float32,))
    cases = [case(moments, values(float32, (20000,), rng, False), 1, numbers=[20000.0], rtol=1e-5),
             case(moments, values(float32, (9001, 40), rng, False), 1, numbers=[9001.0], rtol=1e-4, turn=(1, 0)),
             case(moments, values(float32, (3, 9001), rng, False), 1, how=4, numbers=[9001.0], rtol=1e-4),
             case(Reduce((x * y,), ("sum",), (E.acc(0, float32),), (float32, float32)), values(float32, (10007,), rng, False), 1, rtol=1e-4,
                  more=[Operand(values(float32, (10007,), rng, False), 1)])]
    cases.append(case(moments, values(float32, (400000,), rng, False), 1, numbers=[400000.0], rtol=1e-4))  # a block joins so many
    assert all(len(c.kernel.launches) == 2 and c.kernel.workspace for c in cases) and cases[-1].kernel.launches[1][2] == (256, 1, 1)
    check_all(cases)


def test_nothing_to_reduce() -> None:
    cases = []
    for d in (float32, int32, bool_):
        for how in ("sum", "prod", "max", "min", "argmax", *(("and", "or") if d.kind in "bi" else ())):
            cases.append(case(of_one(how, d), np.zeros((3, 0), d.np), 1))
    check_all(cases, (0,))
    assert render(of_one("sum", float32), (0, 3), ((1,), (3, 1))).launches == ()


def test_coordinates_gathers_and_complex_sums() -> None:
    rng = np.random.default_rng(5)
    x = E.input(0, float32)
    weighed = Reduce((x * E.cast(E.coord(-1) + E.coord(0) * 2, float32), E.gather(0, E.coord(1), float32)), ("sum", "max"),
                     (E.acc(0, float32), E.acc(1, float32)), (float32,))
    z = E.input(0, complex64)
    cases = [case(weighed, values(float32, (5, 40), rng, False), 1, rtol=1e-4), case(weighed, values(float32, (5, 6, 7), rng, False), 2, rtol=1e-4),
             case(Reduce((z,), ("sum",), (E.acc(0, complex64) * E.scalar(0, complex64),), (complex64,), (complex64,)),
                  values(complex64, (4, 70), rng, False), 1, numbers=[2 - 1j], rtol=1e-4)]
    check_all(cases)


def test_vectors_along_the_last_of_several_axes() -> None:
    """Statistics of channels: neighbours of an image, then images."""
    rng, cases = np.random.default_rng(8), []
    x, where = E.input(0, float32), E.cast(E.coord(-1) + E.coord(1) * 3 + E.coord(0), float32)
    weighed = Reduce((x * where, E.input(1, float32) * x), ("sum", "max"), (E.acc(0, float32), E.acc(1, float32)), (float32, float32))
    for shape in ((5, 3, 32, 32), (40, 2, 16, 16), (3, 4, 7, 9), (33, 2, 5, 4)):
        for d in (float32, bfloat16, uint8):
            for how in (0, 4):
                a = values(d, shape, rng, False)
                turn = (1, 0, 2, 3)
                cases.append(case(of_one("sum", d), a, 3, how, turn=turn, rtol=3e-2 if d is bfloat16 else 1e-3 if d is float32 else 0.0))
                cases.append(case(of_one("argmax", d), a, 3, how, turn=turn))
        a, b = (np.round(values(float32, shape, rng, False)) for _ in range(2))
        cases.append(case(weighed, a, 3, more=[Operand(b)], turn=(1, 0, 2, 3)))
    assert sum("Vec<" in c.kernel.source for c in cases) >= 20
    check_all(cases, (0, 7))


def test_columns_are_cut_to_fill_a_gpu() -> None:
    for length, count in ((8192, 1024), (4096, 4096), (32768, 768), (1 << 20, 8)):
        ((_, grid, block, _), *_) = render(of_one("sum", float32), (count, length), ((1,), (1, count))).launches
        assert 512 <= grid[0] * grid[1] <= 1056 and block[0] * block[1] == 256, (grid, block)


def test_complex_products_and_extremes() -> None:
    rng, cases = np.random.default_rng(6), []
    for d in (complex64, complex128):
        z = E.input(0, d)
        for how in ("prod", "max", "min", "argmax", "argmin"):
            posts = (E.acc(0, d), E.acc(1, int64)) if how.startswith("arg") else (E.acc(0, d) * 2.0, E.imag(E.acc(0, d)))
            program = Reduce((z,), (how,), posts, (d,))
            for shape, reduced, turn in (((3, 70), 1, None), ((9001,), 1, None), ((70, 40), 1, (1, 0)), ((2, 3, 5), 2, None), ((4, 9), 1, None)):
                a = values(d, shape, rng, how.startswith("arg"), True)
                if how == "prod":
                    a = (np.exp(1j * np.round(rng.standard_normal(shape))) * np.where(rng.random(shape) < 0.02, 1.5, 1)).astype(d.np)
                cases.append(case(program, a, reduced, turn=turn, rtol=(1e-4 if d is complex64 else 1e-12) if how == "prod" else 0.0))
    z = E.input(0, complex64)
    both = Reduce((E.real(z), z, z), ("sum", "prod", "sum"), (E.acc(1, complex64), E.acc(2, complex64) * E.acc(0, float32)), (complex64,))
    cases.append(case(both, np.exp(1j * rng.standard_normal((5, 300))).astype("c8"), 1, rtol=1e-3))
    check_all(cases)


def test_special_values() -> None:
    """NaN wins, the first of equals is the extreme, signed zeros are equal, infinities are ordinary."""
    a = np.array([[0.0, -0.0, 0.0], [np.nan, np.inf, np.nan], [1, np.inf, np.inf], [-np.inf, -np.inf, 3], [2, 2, np.nan]], np.float32)
    wide = np.repeat(a, 30, 1)
    cases = [case(of_one(how, float32), x, 1) for how in ("max", "min", "argmax", "argmin") for x in (a, wide)]
    check_all(cases)
