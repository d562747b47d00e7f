"""Maps compiled by LLVM give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import (
    ALL,
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
    uint32,
    uint64,
)
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.kernels import target as renderers
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.programs import Map

REAL = [d for d in ALL if not d.is_complex]
INTEGERS = [d for d in REAL if d.kind in "ui"]
FLOATS = [d for d in REAL if d.kind == "f"]
RNG = np.random.default_rng(7)


def values(d: dtype, n: int, rng: np.random.Generator) -> np.ndarray:
    """n stored elements, special values among them."""
    if d is bool_:
        return rng.integers(0, 2, n).astype(bool)
    if d.kind in "ui":
        info = np.iinfo(d.np)
        mixed = rng.integers(info.min, info.max, n, dtype=d.np, endpoint=True)
        small = rng.integers(-5 if d.is_signed else 0, 6, n).astype(d.np)
        out = np.where(rng.random(n) < 0.5, mixed, small)
        special = np.array([0, 1, info.min, info.max, info.max - 1], d.np)
    elif d.is_complex:
        return (values(d.to_real(), n, rng) + 1j * values(d.to_real(), n, rng)).astype(d.np)
    else:
        out = rng.standard_normal(n) * np.exp(rng.uniform(-3, 3, n))
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5])
        with np.errstate(all="ignore"):
            out, special = out.astype(np.float32), special.astype(np.float32)
            if d is bfloat16:
                out, special = interpret.narrow_bfloat16(out), interpret.narrow_bfloat16(special)
            else:
                out, special = out.astype(d.np), special.astype(d.np)
    where = rng.random(n) < 0.2
    out[where] = rng.choice(special, n)[where]
    return out


def elements(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def run(prepare_, program, domain, outs, ins, scalars=()):
    strides = tuple(elements(a) for a in (*outs, *ins))
    p = prepare_(program, domain, strides)
    p.entry(*(a.__array_interface__["data"][0] for a in (*outs, *ins)), *scalars)


def same(got: np.ndarray, want: np.ndarray, d: dtype, rtol: float = 0.0) -> None:
    if d is bfloat16:
        got, want = interpret.widen_bfloat16(got), interpret.widen_bfloat16(want)
    if d.kind in "fc":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=0)
        if d.kind == "f":
            zero = want == 0
            assert (np.signbit(got[zero]) == np.signbit(want[zero])).all()
    else:
        np.testing.assert_array_equal(got, want)


def both(program: Map, domain: tuple[int, ...], ins: list[np.ndarray], scalars=(), outs=None,
         rtol: float = 0.0) -> None:
    outs = outs or [np.zeros(domain, d.np) for d in program.out_types]
    again = [np.array(o) if o.flags.c_contiguous else _copy(o) for o in outs]
    run(prepare, program, domain, outs, ins, scalars)
    with np.errstate(all="ignore"):
        run(interpret.prepare, program, domain, again, ins, scalars)
    for got, want, d in zip(outs, again, program.out_types, strict=True):
        same(got, want, d, rtol)


def _copy(o: np.ndarray) -> np.ndarray:
    out = np.empty_like(o)
    out[...] = o
    return out


SIZES = [1, 3, 15, 16, 17, 33, 100, 257]


@pytest.mark.parametrize("source", REAL, ids=str)
def test_casts(source: dtype) -> None:
    for target in REAL:
        x = values(source, 257, np.random.default_rng(1))
        if source.kind == "f" and target.kind in "ui":
            # out of range has a test of its own
            info, v = np.iinfo(target.np), interpret.load(x, source).astype(np.float64)
            x = x[np.isfinite(v) & (v > max(info.min, -2**31) - 1) & (v < min(info.max, 2**31 - 1))]
        n = len(x)
        both(Map((E.cast(E.input(0, source), target),), (source,)), (n,), [x])


@pytest.mark.parametrize("source", [float32, float64], ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_float_to_integer_out_of_range(source: dtype, target: dtype) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e19, -1e19, 1e30, 2.0**31, -2.0**31, 300.7, -300.7], source.np)
    through = 32 if target.itemsize < 4 or target is int32 else 64
    want = []
    for v in x.astype(np.float64):
        if np.isfinite(v) and -2.0 ** (through - 1) <= v < 2.0 ** (through - 1):
            i = int(v)
        elif target is uint64 and 2.0**63 <= v < 2.0**64:
            i = int(v)
        else:
            i = -(1 << through - 1)
        i &= (1 << 8 * target.itemsize) - 1
        want.append(i - (1 << 8 * target.itemsize) if target.kind == "i" and i >> 8 * target.itemsize - 1 else i)
    for n in (1, len(x)):
        out = np.zeros(n, target.np)
        run(prepare, Map((E.cast(E.input(0, source), target),), (source,)), (n,), [out], [x[:n].copy()])
        assert out.tolist() == want[:n]


def test_bfloat16_rounds_to_nearest_even_and_keeps_denormals_and_nan() -> None:
    bits = np.concatenate([np.arange(0, 1 << 32, 65537 * 11, dtype=np.uint64).astype(np.uint32),
                           np.array([0x7F800001, 0x7FFFFFFF, 0xFFC00000, 1, 0x8000, 0x18000, 0x7F7FFFFF], np.uint32)])
    x = bits.view(np.float32)
    both(Map((E.cast(E.input(0, float32), bfloat16),), (float32,)), x.shape, [x])


def test_what_bfloat16_holds_is_not_rounded_again() -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    y = np.random.default_rng(3).permutation(x)
    a, b = (E.input(k, bfloat16) for k in (0, 1))
    wide = [E.cast(e, float32) for e in (a, b)]
    for one, other in ((a, b), wide):
        made = (-one, abs(one), E.copysign(one, other), E.floor(one), E.ceil(one), E.round_(one), E.trunc(one), E.maximum(one, other),
                E.minimum(-one, other), E.where(E.compare("gt", one, other), one, abs(other)))
        for e in made:
            both(Map((E.cast(e, bfloat16),), (bfloat16, bfloat16)), x.shape, [x, y])
    # numbers that it does not hold, an infinity for it, and one that holds
    for number in (0.1, 1e300, -3.0, np.inf, np.nan, 1 + 2 ** -8):
        clamped = E.where(E.compare("gt", wide[0], wide[1]), wide[0], E.const(number, float32))
        both(Map((E.cast(clamped, bfloat16), E.cast(-E.maximum(clamped, wide[1]), bfloat16)), (bfloat16, bfloat16)), x.shape, [x, y])
    small = np.arange(256, dtype=np.uint8)
    for d in (uint8, int8, bool_):
        values_ = small if d is uint8 else small.view(np.int8) if d is int8 else small > 9
        both(Map((E.cast(E.input(0, d), bfloat16), E.cast(-E.cast(E.input(0, d), float32), bfloat16)), (d,)), small.shape, [values_])


@pytest.mark.parametrize("d", REAL, ids=str)
@pytest.mark.parametrize("op", sorted(E.COMPARE))
def test_comparisons(d: dtype, op: str) -> None:
    a, b = values(d, 257, np.random.default_rng(2)), values(d, 257, np.random.default_rng(3))
    both(Map((E.compare(op, E.input(0, d), E.input(1, d)),), (d, d)), (257,), [a, b])


EXACT_BINARY = ["add", "sub", "mul", "maximum", "minimum"]


@pytest.mark.parametrize("d", [d for d in REAL if d is not bool_], ids=str)
@pytest.mark.parametrize("op", EXACT_BINARY)
def test_arithmetic(d: dtype, op: str) -> None:
    for n in SIZES:
        a, b = values(d, n, np.random.default_rng(n)), values(d, n, np.random.default_rng(n + 1))
        if op in ("maximum", "minimum") and d.kind == "f":
            b = np.where(interpret.load(b, d) == 0, np.array(1).astype(d.np), b)  # which zero wins is not defined
        both(Map((E.binary(op, E.input(0, d), E.input(1, d)),), (d, d)), (n,), [a, b])


@pytest.mark.parametrize("d", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ["floordiv", "truncdiv", "rem", "fmod", "and", "or", "xor"])
def test_integer_arithmetic(d: dtype, op: str) -> None:
    a, b = values(d, 999, np.random.default_rng(4)), values(d, 999, np.random.default_rng(5))
    low = np.iinfo(d.np).min
    a[:3], b[:3] = [low, low, 7], [np.array(-1).astype(d.np), 0, 0]
    if op == "truncdiv" and d.is_signed:
        a[a == low] = low + 1  # NumPy's own quotient of the lowest number overflows
    both(Map((E.binary(op, E.input(0, d), E.input(1, d)),), (d, d)), (999,), [a, b])
    both(Map((E.binary(op, E.input(0, d), E.input(1, d)),), (d, d)), (3,), [a[:3].copy(), b[:3].copy()])


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_integer_power_wraps(d: dtype) -> None:
    a, b = values(d, 333, np.random.default_rng(6)), values(d, 333, np.random.default_rng(7))
    a[:20], b[:20] = np.tile([0, 1, 2, 3], 5).astype(d.np), np.repeat([0, 1, 2, 7, 64], 4).astype(d.np)
    both(Map((E.binary("pow", E.input(0, d), E.input(1, d)),), (d, d)), (333,), [a, b])


@pytest.mark.parametrize("d", INTEGERS, ids=str)
def test_shifts(d: dtype) -> None:
    bits = 8 * d.itemsize
    a = values(d, 300, np.random.default_rng(8))
    counts = np.random.default_rng(9).integers(0, bits + 4, 300).astype(d.np)
    left, right = np.zeros(300, d.np), np.zeros(300, d.np)
    x, y = E.input(0, d), E.input(1, d)
    run(prepare, Map((x << y, x >> y), (d, d)), (300,), [left, right], [a, counts])
    for v, c, got_left, got_right in zip(a.tolist(), counts.tolist(), left.tolist(), right.tolist(), strict=True):
        want = 0 if c >= bits else v << c & (1 << bits) - 1
        assert got_left == (want - (1 << bits) if d.is_signed and want >> bits - 1 else want)
        assert got_right == v >> c


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["floordiv", "rem", "fmod", "truncdiv", "div", "copysign"])
def test_float_division(d: dtype, op: str) -> None:
    a, b = values(d, 999, np.random.default_rng(10)), values(d, 999, np.random.default_rng(11))
    program = Map((E.binary(op, E.input(0, d), E.input(1, d)),), (d, d))
    if d in (float16, bfloat16):
        # float16 arithmetic is done in float32 and rounded once; so is the oracle's here
        w = E.binary(op, E.cast(E.input(0, d), float32), E.cast(E.input(1, d), float32))
        program = Map((E.cast(w, d),), (d, d))
    both(program, (999,), [a, b])


@pytest.mark.parametrize("d", [d for d in REAL if d is not bool_], ids=str)
@pytest.mark.parametrize("op", ["neg", "abs", "floor", "ceil", "round", "trunc"])
def test_exact_unary(d: dtype, op: str) -> None:
    both(Map((E.unary(op, E.input(0, d)),), (d,)), (257,), [values(d, 257, np.random.default_rng(12))])


@pytest.mark.parametrize("op", ["add", "mul", "sub", "and", "or", "xor", "maximum", "minimum"])
def test_bool_arithmetic(op: str) -> None:
    a, b = values(bool_, 100, np.random.default_rng(13)), values(bool_, 100, np.random.default_rng(14))
    both(Map((E.binary(op, E.input(0, bool_), E.input(1, bool_)), ~E.input(0, bool_)), (bool_, bool_)), (100,), [a, b])


def test_bool_memory_with_any_nonzero_byte_is_true() -> None:
    raw = np.array([0, 1, 2, 255, 128] * 13, np.uint8)
    out = np.zeros(65, bool)
    run(prepare, Map((E.input(0, bool_),), (bool_,)), (65,), [out], [raw.view(bool)])
    assert out.view(np.uint8).tolist() == (raw != 0).astype(np.uint8).tolist()


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "sin", "erf", "sqrt", "rsqrt", "log1p", "expm1"])
@pytest.mark.parametrize("d", [float32, float64], ids=str)
def test_functions(op: str, d: dtype) -> None:
    both(Map((E.unary(op, E.input(0, d)),), (d,)), (513,), [values(d, 513, np.random.default_rng(15))],
         rtol=1e-6 if d is float32 else 1e-14)


# shapes and strides --------------------------------------------------------------------------------------------------
@st.composite
def layouts_(draw):
    """A domain and views of it: permuted, stepped and broadcast arrays."""
    rank = draw(st.integers(0, 5))
    domain = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 17, 40]), min_size=rank, max_size=rank)))
    while np.prod(domain, dtype=int) > 40000:
        domain = domain[1:]
    views = [(draw(st.permutations(range(len(domain)))), [draw(st.sampled_from([1, 1, 2, 3])) for _ in domain],
              [draw(st.booleans()) and draw(st.booleans()) for _ in domain]) for _ in range(3)]
    return domain, views


def view(domain, how, d, rng, out=False):
    order, steps, broadcast = how
    inner = [domain[k] for k in order]
    steps = [steps[k] for k in order]
    wide = [1 if broadcast[k] and not out else n * s for k, n, s in zip(order, inner, steps, strict=True)]
    a = values(d, int(np.prod(wide, dtype=int)), rng).reshape(wide)
    a = a[(*(slice(None, None, s) for s in steps), ...)]
    a = np.broadcast_to(a, inner) if not out else a
    back = np.argsort(order) if len(order) else ()
    return a.transpose(back) if len(order) else a.reshape(())


@settings(max_examples=120, deadline=None)
@given(layouts_(), st.sampled_from([float32, int64, uint8, bfloat16, bool_, int16, float64]), st.integers(0, 99))
def test_any_strides(layout, d, seed) -> None:
    domain, hows = layout
    rng = np.random.default_rng(seed)
    a, b = (view(domain, h, d, rng) for h in hows[1:])
    out = view(domain, hows[0], d, rng, out=True)
    x, y = E.input(0, d), E.input(1, d)
    both(Map((E.where(E.compare("lt", x, y), x, y),), (d, d)), domain, [a, b], outs=[out])


@settings(max_examples=60, deadline=None)
@given(layouts_(), st.integers(0, 99))
def test_coordinates(layout, seed) -> None:
    domain, hows = layout
    rng = np.random.default_rng(seed)
    a = view(domain, hows[1], int32, rng)
    value = E.cast(E.input(0, int32), int64)
    for axis in range(-len(domain), len(domain), 2):
        value = value * 3 + E.coord(axis)
    both(Map((value,), (int32,)), domain, [a])


def test_outputs_may_be_permuted() -> None:
    a = RNG.standard_normal((6, 7, 8)).astype(np.float32)
    out = np.zeros((8, 6, 7), np.float32).transpose(1, 2, 0)
    both(Map((E.input(0, float32) + 1.0,), (float32,)), a.shape, [a], outs=[out])


@pytest.mark.parametrize("d", [float32, float64, int8, int16, bfloat16, int64, bool_], ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (300, 170), (17, 16), (3, 500), (130, 5), (2, 65, 33)])
def test_transposed_copies(d: dtype, shape: tuple[int, ...]) -> None:
    a = values(d, int(np.prod(shape)), np.random.default_rng(16)).reshape(shape)
    t = a.swapaxes(-1, -2)
    both(Map((E.input(0, d),), (d,)), t.shape, [t])
    b = np.ascontiguousarray(t)
    both(Map((E.where(E.cast(E.input(0, d), bool_), E.input(0, d), E.input(1, d)),), (d, d)), t.shape, [t, b])


@pytest.mark.parametrize("d", [float32, float64, int8, bfloat16, bool_], ids=str)
@pytest.mark.parametrize("length", [2, 3, 4, 5, 7, 8, 15, 16])
def test_channels_beside_and_behind_one_another(d: dtype, length: int) -> None:
    """Images of so many channels from planes to pixels and back, and pixels from wider ones."""
    rng = np.random.default_rng(21)
    planes = values(d, 2 * length * 9 * 23, rng).reshape(2, length, 9, 23)
    pixels = planes.transpose(0, 2, 3, 1)
    copy = Map((E.input(0, d),), (d,))
    both(copy, pixels.shape, [pixels])
    both(copy, planes.shape, [np.ascontiguousarray(pixels).transpose(0, 3, 1, 2)])
    both(copy, (414, length), [values(d, 414 * 17, rng).reshape(414, 17)[:, :length]])
    row = values(d, length, rng)
    both(Map((E.where(E.cast(E.input(0, d), bool_), E.input(0, d), E.input(1, d)),), (d, d)), pixels.shape, [pixels, np.broadcast_to(row, pixels.shape)])


@pytest.mark.parametrize("d", [float32, float64, uint8, bool_], ids=str)
@pytest.mark.parametrize("step", [5, 2, -1, -2, -7])
def test_elements_that_lie_apart_are_read_and_written(d: dtype, step: int) -> None:
    for n in (1, 15, 33, 70):
        a = values(d, 3 * n * abs(step), np.random.default_rng(22)).reshape(3, -1)[:, ::step]
        out = np.zeros((3, n * abs(step)), d.np)[:, ::step]
        both(Map((E.input(0, d),), (d,)), (3, n), [a])
        both(Map((E.input(0, d),), (d,)), (3, n), [np.ascontiguousarray(a)], outs=[out])


@pytest.mark.parametrize("d", [complex64, complex128], ids=str)
def test_complex_numbers_that_are_moved_keep_every_bit(d: dtype) -> None:
    rng = np.random.default_rng(23)
    a, b = values(d, 40 * 33, rng).reshape(40, 33), values(d, 33 * 40, rng).reshape(33, 40)
    wanted = rng.integers(0, 2, (40, 33)).astype(bool)
    x, y, c = E.input(0, d), E.input(1, d), E.input(2, bool_)
    for first in (a, a[:, ::-1], a[::-1, ::-1]):
        out = np.zeros((40, 33), d.np)
        run(prepare, Map((E.where(c, x, y),), (d, d, bool_)), (40, 33), [out], [first, b.T, wanted])
        assert out.tobytes() == np.where(wanted, first, b.T).tobytes()
    at = rng.integers(0, 40, 50)
    out = np.zeros((50, 33), d.np)
    program = Map((E.gather(0, E.input(1, int64) * 33 + E.coord(1), d),), (d, int64))
    run(prepare, program, (50, 33), [out], [np.lib.stride_tricks.as_strided(a, (50, 33), (0, 0)), np.broadcast_to(at[:, None], (50, 33))])
    assert out.tobytes() == a[at].tobytes()


@pytest.mark.parametrize("d", [float32, int64, bfloat16, bool_], ids=str)
@pytest.mark.parametrize("n", [1, 5, 16, 33, 77])
def test_rows_whose_elements_lie_evenly_apart_are_gathered(d: dtype, n: int) -> None:
    """Row at[i] of a table that lies column by column, every second column of it, and one from its end."""
    rng = np.random.default_rng(24)
    table, at = values(d, 90 * 2 * n, rng).reshape(2 * n, 90), rng.integers(0, 45, 20)
    offset = E.input(1, int64) * E.scalar(0, int64) + E.coord(1) * E.scalar(1, int64) + E.scalar(2, int64)
    program = Map((E.gather(0, offset, d),), (d, int64), (int64,) * 3)
    whole = np.lib.stride_tricks.as_strided(table, (20, n), (0, 0))
    for row, column, first in ((1, 90, 0), (2, 180, 1), (1, -90, 90 * (n - 1)), (1, 0, 3)):
        out = np.zeros((20, n), d.np)
        run(prepare, program, (20, n), [out], [whole, np.broadcast_to(at[:, None], (20, n))], (row, column, first))
        want = table.ravel()[at[:, None] * row + np.arange(n) * column + first]
        assert out.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("d", [float32, bfloat16, int64, bool_], ids=str)
@pytest.mark.parametrize("n", [15, 16, 33, 100, 4096, 4097])
def test_what_rows_have_in_common_is_worked_out_once(d: dtype, n: int) -> None:
    """Positions that count from the end, the same for each row: read, and written to in order."""
    rng = np.random.default_rng(25)
    rows = 40 if n < 4000 else 9
    table, at = values(d, rows * n, rng).reshape(rows, n), rng.integers(-n, n, n)
    place = E.where(E.input(1, int64) < 0, E.input(1, int64) + E.scalar(0, int64), E.input(1, int64))
    offset = E.coord(0) * E.scalar(0, int64) + place * E.scalar(1, int64)
    common = np.broadcast_to(at, (rows, n))
    for taken in (common, np.broadcast_to(np.arange(rows)[:, None] % n - 1, (rows, n))):
        out = np.zeros((rows, n), d.np)
        run(prepare, Map((E.gather(0, offset, d),), (d, int64), (int64,) * 2), (rows, n), [out], [table, taken], (n, 1))
        assert out.tobytes() == np.take_along_axis(table, taken % n, 1).tobytes()
    out, want = table.copy(), table.copy()
    source = values(d, rows * n, rng).reshape(rows, n)
    run(prepare, Map((E.input(0, d),), (d, int64), (int64,) * 2, (("set", offset),)), (rows, n), [out], [source, common], (n, 1))
    for k in range(n):
        want[:, at[k] % n] = source[:, k]
    assert out.tobytes() == want.tobytes()


def test_a_formula_of_a_row_that_is_written_is_read_again() -> None:
    """The positions are the very memory that is written: each row moves on what the row before has left."""
    for n in (16, 50):
        at = np.arange(n)
        moved = E.where(E.input(0, int64) + 1 >= E.scalar(0, int64), E.input(0, int64) + 1 - E.scalar(0, int64), E.input(0, int64) + 1)
        program = Map((moved,), (int64,), (int64,), (("set", E.coord(1) * 1 + 0),))
        out = at.copy()
        run(prepare, program, (30, n), [out], [np.broadcast_to(out, (30, n))], (n,))
        assert (out == (at + 30) % n).all()


# numbers, offsets ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", REAL, ids=str)
def test_numbers_at_launch(d: dtype) -> None:
    a = values(d, 50, np.random.default_rng(17))
    number = True if d is bool_ else 3 if d.kind in "ui" else 2.5
    out = np.zeros(50, d.np)
    p = Map((E.where(E.compare("eq", E.input(0, d), E.input(0, d)), E.scalar(0, d), E.input(0, d)),), (d,), (d,))
    run(prepare, p, (50,), [out], [a], [number])
    got = interpret.load(out, d)
    nan = interpret.load(a, d) != interpret.load(a, d)
    assert (got[~nan] == number).all() and (got[nan] != got[nan]).all()


def test_negative_and_wide_integers_at_launch() -> None:
    for d, v in ((int64, -(1 << 63)), (uint64, (1 << 64) - 1), (int8, -7), (uint32, (1 << 32) - 1)):
        out = np.zeros(20, d.np)
        run(prepare, Map((E.scalar(0, d),), (), (d,)), (20,), [out], [], [v])
        assert (out == v).all()


@pytest.mark.parametrize("d", [float32, int64, uint8, bfloat16, bool_], ids=str)
def test_gather(d: dtype) -> None:
    table = values(d, 500, np.random.default_rng(18))
    index = np.random.default_rng(19).integers(0, 500, (7, 37))
    both(Map((E.gather(0, E.input(1, int64), d),), (d, int64)), (7, 37),
         [np.lib.stride_tricks.as_strided(table, (7, 37), (0, 0)), index])


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("d", [float32, int32, float64, uint8], ids=str)
def test_targets_apply_in_order(mode: str, d: dtype) -> None:
    source = RNG.integers(1, 4, (9, 31)).astype(d.np)
    index = RNG.integers(0, 40, (9, 31))
    start = RNG.integers(1, 4, 40).astype(d.np)
    got, want = start.copy(), start.copy()
    program = Map((E.input(0, d),), (d, int64), (), ((mode, E.input(1, int64)),))
    p = prepare(program, (9, 31), ((0, 0), elements(source), elements(index)))
    p.entry(*(a.ctypes.data for a in (got, source, index)))
    step = {"set": lambda o, v: v, "add": lambda o, v: o + v, "mul": lambda o, v: o * v, "max": max, "min": min}[mode]
    with np.errstate(all="ignore"):
        for k, v in zip(index.ravel(), source.ravel(), strict=True):
            want[k] = step(want[k], v)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("width", [1, 5, 16, 64, 77])
@pytest.mark.parametrize("d", [float32, bfloat16, int64, bool_], ids=str)
def test_whole_rows_are_gathered_and_scattered(width: int, d: dtype) -> None:
    table, rows = values(d, 9 * width, np.random.default_rng(21)).reshape(9, width), RNG.integers(0, 9, 30)
    offset = E.input(1, int64) * width + E.coord(-1)
    strides = ((width, 1), (0, 0), (1, 0))
    out = np.zeros((30, width), d.np)
    p = prepare(Map((E.gather(0, offset, d),), (d, int64)), (30, width), strides)
    p.entry(out.ctypes.data, table.ctypes.data, rows.ctypes.data)
    same(out, table[rows], d)
    got = np.zeros((9, width), d.np)
    p = prepare(Map((E.input(0, d),), (d, int64), (), (("set", offset),)), (30, width), ((0, 0), (width, 1), (1, 0)))
    p.entry(got.ctypes.data, out.ctypes.data, rows.ctypes.data)
    want = np.zeros_like(got)
    for k, row in enumerate(rows):
        want[row] = out[k]
    same(got, want, d)
    if d is int64:
        program = Map((E.input(0, d),), (d, int64), (), (("add", offset),))
        p = prepare(program, (30, width), ((0, 0), (width, 1), (1, 0)))
        p.entry(got.ctypes.data, out.ctypes.data, rows.ctypes.data)
        np.add.at(want, rows, out)
        np.testing.assert_array_equal(got, want)


def test_big_transposed_copies_go_past_the_caches() -> None:
    a = np.arange(4099 * 1040, dtype=np.float32).reshape(4099, 1040)
    wide = np.zeros((1040, 4112), np.float32)
    for first in (0, 1):  # aligned rows, and rows that are not
        start = -(wide.ctypes.data // 4) % 16 + first
        out = wide.ravel()[start:start + 1039 * 4112 + 4099]
        view = np.lib.stride_tricks.as_strided(out, (1040, 4099), (4112 * 4, 4))
        run(prepare, Map((E.input(0, float32),), (float32,)), (1040, 4099), [view], [a.T])
        np.testing.assert_array_equal(view, a.T)


@pytest.mark.parametrize(("shape", "wide"), [((70, 65600), 65600), ((70, 65601), 65616), ((3, 1400, 1100), 1104)])
def test_big_rows_go_past_the_caches(shape, wide) -> None:
    a, b = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.arange(shape[-1], dtype=np.float32)
    room = np.zeros((*shape[:-1], wide + 32), np.float32)
    for first in (0, 1):
        start = -(room.ctypes.data // 4) % 16 + first
        strides = [4 * wide]
        for n in shape[-2:0:-1]:
            strides.insert(0, strides[0] * n)
        out = np.lib.stride_tricks.as_strided(room.ravel()[start:], shape, (*strides, 4))
        run(prepare, Map((E.input(0, float32) + E.input(1, float32),), (float32,) * 2), shape, [out],
            [a, np.broadcast_to(b, shape)])
        np.testing.assert_array_equal(out, a + b)


def test_several_outputs_of_several_types() -> None:
    x = values(float32, 1000, np.random.default_rng(20))
    e = E.input(0, float32)
    both(Map((e * 2.0, E.cast(e, bfloat16), E.compare("gt", e, E.const(0.0, float32))), (float32,)), (1000,), [x])


def test_nothing_for_an_empty_domain() -> None:
    p = prepare(Map((E.input(0, float32),), (float32,)), (3, 0, 2), ((0, 2, 1), (0, 2, 1)))
    p.entry(0, 0)
    assert p.nbytes == 0


def test_in_place() -> None:
    a = np.arange(5000, dtype=np.float32)
    run(prepare, Map((E.input(0, float32) + 1.0,), (float32,)), (5000,), [a], [a])
    np.testing.assert_array_equal(a, np.arange(1, 5001, dtype=np.float32))


@pytest.mark.parametrize("offset", [0, 1])
def test_big_outputs_aligned_or_not(offset: int) -> None:
    n = (5 << 20) + 13
    a, out = np.arange(n + 1, dtype=np.float32), np.zeros(n + 20, np.float32)
    first = -(out.ctypes.data // 4) % 16 + offset
    run(prepare, Map((E.input(0, float32) * 2.0,), (float32,)), (n,), [out[first:first + n]], [a[:n]])
    np.testing.assert_array_equal(out[first:first + n], a[:n] * 2)
    assert (out[:first] == 0).all() and (out[first + n:] == 0).all()


def test_one_kernel_serves_all_shapes() -> None:
    from flambeau._core.kernels.llvm import _codes
    program = Map((E.input(0, float32) - E.input(1, float32) * 3.25,), (float32, float32))
    for shape in ((5,), (70,), (3, 8), (2, 3, 4), (1, 1)):
        a, b = (RNG.standard_normal(shape).astype(np.float32) for _ in range(2))
        both(program, shape, [a, b])
    assert sum(key[0][1] is program.outs for key in _codes) == 1


@pytest.mark.parametrize("d", [float32, float64, int8, bfloat16, bool_], ids=str)
@pytest.mark.parametrize("step", [2, 3, 4, -1, 5, -2])
def test_steps_of_the_innermost_axis(d: dtype, step: int) -> None:
    # the input ends with its last element, so that nothing beyond it may be read
    program = Map((E.input(0, d), E.input(0, d)), (d,))
    for n in (1, 15, 16, 17, 33, 64, 130):
        whole = values(d, (n - 1) * abs(step) + 1, RNG)
        both(program, (n,), [whole[::step]])
        both(program, (3, n), [np.stack([whole] * 3)[:, ::step]])


@pytest.mark.parametrize("d", [float32, float64, int16, bool_], ids=str)
@pytest.mark.parametrize("times", [2, 4])
def test_short_innermost_axes(d: dtype, times: int) -> None:
    x, y = E.input(0, d), E.input(1, d)
    program = Map((x, E.where(E.to_bool(x), y, x)), (d, d))
    for rows, n in ((1, 16), (1, 33), (5, 50), (2, 130), (3, 4), (7, 6), (2, 9), (4, 3)):
        pixels, others = values(d, rows * n, RNG).reshape(rows, n, 1), values(d, times * rows * n, RNG)
        repeated = np.broadcast_to(pixels, (rows, n, times))
        both(program, (rows, n, times), [repeated, np.moveaxis(others.reshape(times, rows, n), 0, 2)])
        both(program, (rows, n, times), [repeated, others.reshape(rows, n, times)])
        both(program, (rows, n, times), [repeated, np.broadcast_to(others[:times], (rows, n, times))])


@pytest.mark.parametrize("d", [complex64, complex128], ids=str)
def test_complex_numbers_side_by_side(d: dtype) -> None:
    x, y = E.input(0, d), E.input(1, d)
    for n in (1, 16, 33, 100):
        a, b = values(d, n, RNG), values(d, n, RNG)
        both(Map((E.conj(x), x + y), (d, d)), (n,), [a, b])
        both(Map((E.conj(x), x + y), (d, d)), (n,), [a[::-1], np.broadcast_to(b[:1], (n,))])


def test_places_that_nobody_sorts_have_one_kernel_for_all_units():
    """How far apart places lie tells a device how to sort them; here nothing is sorted, and the rows' length is no part of a kernel."""
    made = [Map((E.input(0, float32),), (float32, int64), (), (("add", E.input(1, int64)),), (), unit) for unit in (1, 3, 7)]
    assert len({program.key for program in made}) == 3
    assert len({renderers.prepare(program, (4,), ((0,), (1,), (1,))).program.key for program in made}) == 1
