"""Complex programs, split into real ones, give what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import complex64, complex128, float32, float64, int64
from flambeau._core.kernels import complexes, interpret
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.programs import Map, Reduce, Rows, Scan

TYPES = [complex64, complex128]


def numbers(d, n, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(n) * 2 + 1j * rng.standard_normal(n) * 2
    z[:8] = [0, 1, -1, 1j, -1j, 3, -3, 2 - 2j]
    return z.astype(d.np)


def launch(program, domain, arrays, numbers_=()):
    strides = tuple(tuple(s // a.itemsize for s in a.strides) for a in arrays)
    prepare(program, domain, strides).entry(*(a.ctypes.data for a in arrays), *numbers_)


def close(got, want, d):
    rtol, atol = (2e-5, 2e-6) if d is complex64 else (1e-13, 1e-14)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


FUNCTIONS = {"neg": np.negative, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
             "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda z: 1 / np.sqrt(z), "sin": np.sin,
             "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin,
             "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh}


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(name, d) -> None:
    z = numbers(d, 101)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](z)
    fine = np.isfinite(want)  # what a pole gives is each library's own
    out = np.zeros_like(z)
    launch(Map((E.unary(name, E.input(0, d)),), (d,)), (101,), [out, z])
    assert fine.sum() > 95
    close(out[fine], want[fine], d)


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "cos", "sinh", "cosh", "tan", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_zeros_infinities_and_nan(name, d) -> None:
    # NumPy has the values that C99's annex G asks for
    edges = [0.0, -0.0, 1.0, -2.0, float("inf"), -float("inf"), float("nan")]
    z = np.array([complex(x, y) for x in edges for y in edges] * 3, d.np)
    out = np.zeros_like(z)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](z)
    launch(Map((E.unary(name, E.input(0, d)),), (d,)), (len(z),), [out, z])
    close(out.real, want.real, d)
    close(out.imag, want.imag, d)


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", ["asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_inverse_functions_of_large_numbers(name, d) -> None:
    sizes = 10.0 ** np.linspace(2, 36 if d is complex64 else 300, 60)
    z = np.array([s * complex(np.cos(t), np.sin(t)) for s in sizes for t in np.linspace(-3, 3, 13)], d.np)
    out = np.zeros_like(z)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](z.astype(np.complex128))
    launch(Map((E.unary(name, E.input(0, d)),), (d,)), (len(z),), [out, z])
    close(out.real, want.real, d)
    close(out.imag, want.imag, d)


def test_powers_at_infinity_and_of_nought() -> None:
    inf, nan = float("inf"), float("nan")
    a = np.array([inf, inf, -inf, inf, 0, 0, 0, 0, inf, 2], complex)
    b = np.array([0.5, 2, -1, -2, -1, 0, 0.5, 2, 0, 0], complex)
    out = np.zeros_like(a)
    launch(Map((E.binary("pow", E.input(0, complex128), E.input(1, complex128)),), (complex128, complex128)), (len(a),), [out, a, b])
    np.testing.assert_array_equal(out.real, [inf, inf, 0, 0, inf, 1, 0, 0, 1, 1])
    np.testing.assert_array_equal(out.imag, [nan, nan, 0, 0, nan, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_arithmetic(name, d) -> None:
    a, b = numbers(d, 77, 1), numbers(d, 77, 2)[::-1].copy()
    want = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}[name]
    keep = b != 0
    out = np.zeros_like(a)
    launch(Map((E.binary(name, E.input(0, d), E.input(1, d)),), (d, d)), (77,), [out, a, b])
    close(out[keep], want(a[keep], b[keep]), d)


def test_quotients_do_not_overflow_on_the_way() -> None:
    a = np.array([1e30 + 1e30j, 1e-30 + 1e-30j], np.complex64)
    b = np.array([2e30 - 1e30j, 3e-30 + 1e-30j], np.complex64)
    out = np.zeros_like(a)
    launch(Map((E.input(0, complex64) / E.input(1, complex64),), (complex64,) * 2), (2,), [out, a, b])
    close(out, a.astype(complex) / b.astype(complex), complex64)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_parts_comparisons_and_casts(d) -> None:
    z, r = numbers(d, 60, 3), d.to_real()
    e = E.input(0, d)
    outs = (E.real(e), E.imag(e), E.abs_(e), E.conj(e), E.compare("eq", e, E.const(3.0, d)), E.compare("ne", e, e),
            E.cast(e, r), E.cast(e, complex128 if d is complex64 else complex64), E.cast(E.cast(e, r), d), E.to_bool(e))
    want = (z.real, z.imag, np.abs(z), z.conj(), z == 3, z != z, z.real, z, z.real + 0j, z != 0)
    got = [np.zeros(60, x.dtype.np) for x in outs]
    launch(Map(outs, (d,)), (60,), [*got, z])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_strides_and_permutations() -> None:
    a = numbers(complex64, 6 * 8 * 10, 4).reshape(6, 8, 10)
    out = np.zeros((10, 6, 8), np.complex64).transpose(1, 2, 0)
    program = Map((E.input(0, complex64) * E.input(1, float32),), (complex64, float32))
    scale = np.arange(8, dtype=np.float32)[None, :, None]
    b = np.broadcast_to(scale, a.shape)
    launch(program, a.shape, [out, a, b])
    np.testing.assert_allclose(out, a * b, rtol=1e-6)
    view = a[::2, ::-1, 1::3]
    out = np.zeros(view.shape, np.complex64)
    launch(Map((E.input(0, complex64),), (complex64,)), view.shape, [out, view])
    np.testing.assert_array_equal(out, view)


def test_complex_number_at_launch() -> None:
    z = numbers(complex64, 40)
    out = np.zeros_like(z)
    formula = E.input(0, complex64) * E.scalar(1, complex64) + E.scalar(0, float32)
    p = Map((formula,), (complex64,), (float32, complex64))
    launch(p, (40,), [out, z], (2.0, 1 + 2j))
    np.testing.assert_allclose(out, z * np.complex64(1 + 2j) + 2, rtol=1e-5)
    launch(p, (40,), [out, z], (2.0, 3))
    np.testing.assert_allclose(out, z * 3 + 2, rtol=1e-5)


def test_gather_and_scatter() -> None:
    z, index = numbers(complex128, 50), np.random.default_rng(5).integers(0, 50, 30)
    out = np.zeros(30, complex)
    p = prepare(Map((E.gather(0, E.input(1, int64), complex128),), (complex128, int64)), (30,), ((1,), (0,), (1,)))
    p.entry(out.ctypes.data, z.ctypes.data, index.ctypes.data)
    np.testing.assert_array_equal(out, z[index])
    total, want = np.zeros(50, complex), np.zeros(50, complex)
    p = prepare(Map((E.input(0, complex128),), (complex128, int64), (), (("add", E.input(1, int64)),)), (30,),
                ((0,), (1,), (1,)))
    p.entry(total.ctypes.data, out.ctypes.data, index.ctypes.data)
    np.add.at(want, index, out)
    np.testing.assert_allclose(total, want)


def test_split_programs_are_what_the_interpreter_computes() -> None:
    z, w = numbers(complex128, 24, 6).reshape(4, 6), np.zeros(4, complex)
    e = E.input(0, complex128)
    program = Reduce((e * e,), ("sum",), (E.acc(0, complex128) / 6.0,), (complex128,))
    split = complexes.split(program)
    strides = ((1,), (6, 1))
    where = [(w, z)[k].ctypes.data + at for k, at in split.places]
    interpret.prepare(split.program, (4, 6), split.strides(strides)).entry(*where)
    np.testing.assert_allclose(w, (z * z).sum(1) / 6)
    out = np.zeros((4, 6), complex)
    rows = Rows((("reduce", "sum", e), ("map", 0, e - E.acc(0, complex128))), (complex128,))
    split = complexes.split(rows)
    where = [(out, z)[k].ctypes.data + at for k, at in split.places]
    interpret.prepare(split.program, (4, 6), split.strides(((6, 1), (6, 1)))).entry(*where)
    np.testing.assert_allclose(out, z - z.sum(1, keepdims=True))


def test_what_has_no_real_form_says_so() -> None:
    e = E.input(0, complex64)
    a = E.acc(0, complex64)
    for program in (Scan(e, "sum", (a,), (complex64,)), Reduce((e,), ("prod",), (a,), (complex64,)),
                    Rows((("reduce", "max", e),), (complex64,)), Map((E.unary("erf", e),), (complex64,)),
                    Map((e,), (complex64,), (), (("mul", E.const(0, int64)),))):
        with pytest.raises(NotImplementedError):
            complexes.split(program)
    assert not complexes.is_complex(Map((E.input(0, float64),), (float64,)))


def test_what_has_no_real_form_is_left_to_numpy() -> None:
    z, out = numbers(complex128, 12, 7), np.zeros(12, complex)
    e = E.input(0, complex128)
    launch(Scan(e, "sum", (E.acc(0, complex128),), (complex128,)), (12,), [out, z])
    np.testing.assert_allclose(out, np.cumsum(z))


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_log1p_next_to_minus_one_and_to_nought(d) -> None:
    """Both what is added to 1 and what is left of it keep their digits."""
    rng = np.random.default_rng(3)
    turned = np.exp(1j * rng.uniform(0, 2 * np.pi, 40))
    z = np.concatenate([-1 + turned * 10.0 ** rng.uniform(-3, -1, 40), turned * 10.0 ** rng.uniform(-6, 0.5, 40)]).astype(d.np)
    got = np.empty_like(z)
    launch(Map((E.log1p(E.input(0, d)),), (d,)), (len(z),), [got, z])
    wide = z.astype(np.clongdouble)
    close(got, np.log1p(wide).astype(d.np), d)
