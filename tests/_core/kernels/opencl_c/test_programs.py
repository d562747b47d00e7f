"""Loop programs in OpenCL C, carried out by a device, give what the NumPy interpreter gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from flambeau._core.dtypes import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.kernels.opencl_c import render
from flambeau._core.kernels.programs import Map, Program, Reduce, Rows, Scan
from tests._core.kernels.cuda_c.cases import Operand, same, values
from tests._core.kernels.opencl_c import device
from tests._core.kernels.row_programs import cross_entropy, layer_norm, layer_norm_backward

REAL = (bool_, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, bfloat16, float32, float64)
FLOATS = (float16, bfloat16, float32, float64)
LIMIT = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-12, "complex64": 2e-4, "complex128": 1e-10}


@pytest.fixture(scope="module")
def cl() -> device.Device:
    if why := device.missing():
        pytest.skip(why)
    return device.Device()


def check(cl: device.Device, program: Program, domain: tuple[int, ...], outs: Sequence[Operand], ins: Sequence[Operand], numbers: Sequence[Any] = (),
          limit: float | None = None, strides: dict[int, tuple[int, ...]] | None = None) -> None:
    """The device's results are the interpreter's."""
    operands = [*outs, *ins]
    steps = tuple((strides or {}).get(k, o.strides) for k, o in enumerate(operands))
    args = [*(o.address for o in operands), *numbers]
    before = [np.array(o.memory) for o in outs]
    cl.launch(render(program, domain, steps), list({id(o.memory): o.memory for o in operands}.values()), args)
    got = [np.array(o.memory) for o in outs]
    for o, b in zip(outs, before):
        o.memory[...] = b
    with np.errstate(all="ignore"):
        interpret.prepare(program, domain, steps).entry(*args)
    for o, g, d in zip(outs, got, program.out_types):
        tolerance = LIMIT.get(d.name, 0.0) if limit is None else limit
        same(g, o.memory, d, tolerance, tolerance, f"{program.text()}\nover {domain} by {steps}")


def room(program: Program, shape: tuple[int, ...], how: int = 0) -> list[Operand]:
    return [Operand(np.zeros(shape, d.np), how) for d in program.out_types]


# ------------------------------------------------------------------------------------------------------------------- maps
@pytest.mark.parametrize("d", REAL, ids=str)
def test_primitives(cl: device.Device, d: dtype) -> None:
    rng, x, y = np.random.default_rng(1), E.input(0, d), E.input(1, d)
    ops = ["add", "sub", "mul", "maximum", "minimum", "floordiv", "rem", "fmod", "truncdiv", "lt", "le", "eq", "ne"]
    ops += ["copysign", "div"] if d.kind == "f" else ["and", "or", "xor", "shl", "shr"] if d.kind != "b" else ["and", "or", "xor"]
    made = [E.compare(op, x, y) if op in E.COMPARE else E.binary(op, x, y) for op in ops]
    made += [E.unary(op, x) for op in (("neg", "abs", "floor", "ceil", "round", "trunc") if d.kind == "f" else ("neg", "abs", "not"))]
    made += [E.where(x < y, x, y)] + ([E.binary("pow", x, y)] if d.kind in "ui" else [])
    program = Map(tuple(made), (d, d))
    a, b = (values(d, (300,), rng) for _ in range(2))
    if d.kind in "ui":
        a[:4], b[:4] = [0, 7, 1, 3], [0, 0, 2, 5]
        a = np.where((b == np.array(-1).astype(d.np)) & (a == np.iinfo(d.np).min), np.array(3, d.np), a) if d.kind == "i" else a
        b = np.where(rng.random(300) < 0.5, (b % 5).astype(d.np), np.abs(b // 2 + 1) % (8 * d.itemsize)).astype(d.np)
    elif d.kind == "f":  # which zero is the greater is not defined
        a = np.where(interpret.load(a, d) == 0, np.array(1).astype(d.np), a)
    check(cl, program, (300,), room(program, (300,)), [Operand(a), Operand(b)])


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_functions(cl: device.Device, d: dtype) -> None:
    x = E.input(0, d)
    near = E.fmod(x, E.const(1.0, d))  # what all of them have a value for
    ops = "exp exp2 expm1 log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc".split()
    positive = "sqrt rsqrt log log2 log10 lgamma".split()
    made = [E.unary(op, near) for op in ops] + [E.unary(op, abs(near) + 0.25) for op in positive] + [E.unary("exp", x), E.unary("sqrt", x)]
    made += [E.binary("pow", abs(near) + 0.5, near), E.binary("atan2", near, x), E.binary("hypot", near, near + 1)]
    program = Map(tuple(made), (d,))
    check(cl, program, (500,), room(program, (500,)), [Operand(values(d, (500,), np.random.default_rng(2)))], limit=max(LIMIT[d.name], 1e-10))


@pytest.mark.parametrize("d", REAL, ids=str)
def test_casts(cl: device.Device, d: dtype) -> None:
    program = Map(tuple(E.cast(E.input(0, d), t) for t in REAL), (d,))
    a = values(d, (400,), np.random.default_rng(3))
    if d.kind == "f":
        odd = np.array([6e4, -6e4, 3.7, -3.7, 254.5] if d is float16 else [1e9, -1e9, 3.7, 2.0 ** 63, -2.0 ** 63, 2.0 ** 40], np.float32)
        a[:len(odd)] = interpret.narrow_bfloat16(odd) if d is bfloat16 else odd.astype(d.np)
    check(cl, program, (400,), room(program, (400,)), [Operand(a)], limit=0.0)


def test_layouts(cl: device.Device) -> None:
    """Gaps, turned and backward axes, an odd start, broadcasts, tiles through local memory, nothing at all and a single element."""
    rng, d = np.random.default_rng(4), float32
    program = Map((E.input(0, d) * E.scalar(0, d) + E.input(1, d), E.cast(E.input(0, d) > E.input(1, d), int32)), (d, d), (d,))
    for shape in ((), (1,), (0,), (7,), (3, 0, 2), (40, 70), (5, 33, 65), (2, 3, 4, 5)):
        for how in range(5):
            ins = [Operand(values(d, shape, rng), how), Operand(values(d, shape, rng))]
            check(cl, program, shape, room(program, shape, (2 * how) % 5), ins, [1.5], limit=1e-6)
        if shape:
            ins = [Operand(values(d, shape[-1:], rng)).over(shape), Operand(values(d, (*shape[:-1], 1), rng)).over(shape)]
            check(cl, program, shape, room(program, shape), ins, [-0.5], limit=1e-6)


def test_large_map(cl: device.Device) -> None:
    program = Map((E.cast(E.input(0, uint8), float32) * 0.5,), (uint8,))
    check(cl, program, (1 << 20, 2), room(program, (1 << 20, 2)), [Operand(values(uint8, (1 << 20, 2), np.random.default_rng(5)))])


def test_coordinates_and_gathers(cl: device.Device) -> None:
    d, rng = float32, np.random.default_rng(6)
    at = E.coord(0) * E.scalar(0, int64) + E.input(1, int64)
    program = Map((E.gather(0, at, d) + E.cast(E.coord(-1), d), E.coord(0) - E.coord(1)), (d, int64), (int64,))
    table, index = Operand(values(d, (9, 31), rng)), Operand(rng.integers(0, 31, (9, 20)))
    check(cl, program, (9, 20), room(program, (9, 20)), [table, index], [31], strides={2: (0, 0)})


@pytest.mark.parametrize("d", [float32, int16, bool_, bfloat16, complex64], ids=str)
def test_targets(cl: device.Device, d: dtype) -> None:
    """Values that come to offsets of their own, some to the same."""
    rng, offset = np.random.default_rng(7), E.input(1, int64)
    for mode in ("set", "add", "mul", "max", "min") if not d.is_complex else ("set", "add", "mul"):
        program = Map((E.input(0, d),), (d, int64), targets=((mode, offset),))
        out = Operand(values(d, (50,), rng, False, True))
        ins = [Operand(values(d, (8, 30), rng, False, True)), Operand(rng.integers(0, 50, (8, 30)))]
        check(cl, program, (8, 30), [out], ins, limit=LIMIT.get(d.name, 0.0) * 40, strides={0: (0, 0)})


def test_complex_numbers(cl: device.Device) -> None:
    rng = np.random.default_rng(8)
    for d in (complex64, complex128):
        x, y = E.input(0, d), E.input(1, d)
        program = Map((x * y + x, x / y, E.exp(x), abs(x), E.real(x), E.conj(y), E.sqrt(x)), (d, d))
        ins = [Operand(values(d, (6, 11), rng, False), how) for how in (1, 2)]
        check(cl, program, (6, 11), room(program, (6, 11)), ins, limit=1e-4)


# ------------------------------------------------------------------------------------------------------------- reductions
SHAPES = [((5,), 0), ((40, 70), 1), ((0, 3), 1), ((3, 0), 1), ((2, 3, 4, 5), 2), ((3, 5000), 1), ((300_000,), 0)]


def of_one(how: str, d: dtype) -> Reduce:
    x = E.input(0, d)
    position = how.startswith("arg")
    return Reduce((x,), (how,), (E.acc(0, d), E.acc(1, int64)) if position else (E.acc(0, d),), (d,))


@pytest.mark.parametrize("how", ["sum", "prod", "max", "min", "and", "or", "argmax", "argmin"])
def test_reductions(cl: device.Device, how: str) -> None:
    rng = np.random.default_rng(9)
    for d in (float32, int32, bool_) if how not in ("and", "or") else (int32, bool_):
        if d is bool_ and how.startswith("arg"):
            continue
        program = of_one(how, d)
        for shape, kept in SHAPES:
            for turned in (False, True) if len(shape) == 2 else (False,):
                content = values(d, shape, rng, how in ("max", "min", "argmax", "argmin"), True)
                x = Operand(np.clip(content, 0.9, 1.1).astype(d.np) if how == "prod" and d.kind == "f" else content, 2 * turned)
                check(cl, program, shape, room(program, shape[:kept]), [x], limit=1e-3 if d.kind == "f" and how in ("sum", "prod") else 0.0)


def test_several_accumulators_at_once(cl: device.Device) -> None:
    d, rng = bfloat16, np.random.default_rng(10)
    x = E.cast(E.input(0, d), float32)
    program = Reduce((x, x * x, E.input(0, d)), ("sum", "sum", "argmax"),
                     (E.cast(E.acc(1, float32) - E.acc(0, float32) * E.scalar(0, float32), d), E.acc(3, int64), E.acc(2, d)), (d,), (float32,))
    for shape in ((6, 90), (2, 9000)):
        check(cl, program, shape, room(program, shape[:1]), [Operand(values(d, shape, rng, False))], [0.25], limit=0.05)


@pytest.mark.parametrize("d", [complex64, complex128], ids=str)
def test_complex_reductions(cl: device.Device, d: dtype) -> None:
    rng, x = np.random.default_rng(11), E.input(0, d)
    program = Reduce((x, x), ("sum", "prod"), (E.acc(0, d), E.acc(1, d)), (d,))
    for shape in ((3, 20), (2, 4)):
        check(cl, program, shape, room(program, shape[:1]), [Operand(values(d, shape, rng, False), 2)], limit=1e-3)


# ------------------------------------------------------------------------------------------------------------------- rows
def per_row(program: Rows, shape: tuple[int, ...]) -> tuple[list[Operand], dict[int, tuple[int, ...]]]:
    short = {s[1] for s in program.stages if s[0] == "row"}
    outs = [Operand(np.zeros(shape[:-1] if k in short else shape, d.np)) for k, d in enumerate(program.out_types)]
    return outs, {k: (*outs[k].strides, 0) for k in short}


@pytest.mark.parametrize("d", FLOATS, ids=str)
def test_softmax(cl: device.Device, d: dtype) -> None:
    rng, t = np.random.default_rng(12), float64 if d is float64 else float32
    x = E.cast(E.input(0, d), t)
    e = E.exp(x - E.acc(0, t))
    program = Rows((("reduce", "max", x), ("reduce", "sum", e), ("map", 0, E.cast(e / E.acc(1, t), d))), (d,))
    for shape in ((1,), (5, 3), (100, 10), (3, 300), (2, 0), (2, 9000)) if d is float32 else ((33, 17), (3, 300)):
        for turned in (0, 2):
            check(cl, program, shape, room(program, shape, turned), [Operand(values(d, shape, rng, False), turned)])


def test_layer_norm_there_and_back(cl: device.Device) -> None:
    rng, d = np.random.default_rng(13), float32
    for shape in ((4, 50), (2, 3, 700)):
        x, g = (Operand(values(d, shape, rng, False)) for _ in range(2))
        w, b = (Operand(values(d, shape[-1:], rng, False)).over(shape) for _ in range(2))
        mean, rstd = (Operand(values(d, (*shape[:-1], 1), rng, False)).over(shape) for _ in range(2))
        for program, ins in ((layer_norm(d), [x, w, b]), (layer_norm_backward(d), [g, x, mean, rstd, w])):
            outs, strides = per_row(program, shape)
            check(cl, program, shape, outs, ins, [float(shape[-1])], 2e-3, strides)


def test_cross_entropy(cl: device.Device) -> None:
    rng = np.random.default_rng(14)
    program = cross_entropy(float32)
    for shape in ((5, 3), (6, 1000)):
        a = Operand(values(float32, shape, rng, False))
        outs, strides = per_row(program, shape)
        check(cl, program, shape, outs, [a, Operand(rng.integers(0, shape[1], (shape[0], 1))).over(shape), a], [shape[1]], 1e-5, strides)


# ------------------------------------------------------------------------------------------------------------------ scans
@pytest.mark.parametrize("how", ["sum", "prod", "max", "min", "logsumexp"])
def test_scans(cl: device.Device, how: str) -> None:
    rng = np.random.default_rng(15)
    for d in (float32, uint8 if how in ("max", "min") else int32) if how != "logsumexp" else (float32, float64):
        wide = float32 if d is float16 else d
        x = E.cast(E.input(0, d), wide) if how in ("sum", "prod", "logsumexp") else E.input(0, d)
        posts = (E.cast(E.acc(0, x.dtype), d), *((E.acc(1, int64),) if how in ("max", "min") else ()))
        for reverse in (False, True):
            program = Scan(x, how, posts, (d,), (), reverse)
            for shape in ((1,), (40, 70), (2, 2049), (3, 0)):
                for turned in (0, 2) if shape == (40, 70) else (0,):
                    content = values(d, shape, rng, how in ("max", "min"), True)
                    a = np.clip(content, 0.9, 1.1).astype(d.np) if how == "prod" and d.kind == "f" else content
                    limit = {"float32": 2e-4, "float64": 1e-12}.get(d.name, 0.0) if how not in ("max", "min") else 0.0
                    check(cl, program, shape, room(program, shape, turned), [Operand(a, turned)], limit=limit)


def test_complex_scans(cl: device.Device) -> None:
    rng, d = np.random.default_rng(16), complex64
    for how in ("sum", "prod", "max"):
        x = E.input(0, d)
        program = Scan(x, how, (E.acc(0, d), *((E.acc(1, int64),) if how == "max" else ())), (d,))
        check(cl, program, (3, 40), room(program, (3, 40)), [Operand(values(d, (3, 40), rng, False, True))], limit=1e-3)
