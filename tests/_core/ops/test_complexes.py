"""Complex numbers against NumPy: parts as views, functions, comparisons, gradients by Wirtinger's rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
ELEMENTS = st.complex_numbers(max_magnitude=50, allow_nan=False).map(lambda z: complex(round(z.real, 3), round(z.imag, 3)))


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.complex128, hnp.array_shapes(max_dims=2, max_side=5), elements=ELEMENTS), hnp.arrays(np.complex128, (1,), elements=ELEMENTS))
def test_arithmetic_is_numpys(a, b):
    x, y = fb.tensor(a), fb.tensor(b)
    for got, want in ((x + y, a + b), (x - y, a - b), (x * y, a * b), (x * 2j, a * 2j), (1j - x, 1j - a), (x * x.real, a * a.real), (-x, -a),
            (x.conj_physical(), a.conj())):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-9)
    ok = np.broadcast_to(np.abs(b) > 0.1, a.shape)
    np.testing.assert_allclose((x / y).numpy()[ok], (a / np.where(np.abs(b) > 0.1, b, 1))[ok], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal((x == y).numpy(), a == b)
    np.testing.assert_array_equal((x != y).numpy(), a != b)
    np.testing.assert_allclose(x.abs().numpy(), np.abs(a), rtol=1e-12)
    np.testing.assert_allclose(x.angle().numpy(), np.angle(a), rtol=1e-12)


FUNCTIONS = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
             "tanh": np.tanh, "asin": np.arcsin,
             "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "square": np.square,
             "reciprocal": np.reciprocal,
             "log10": np.log10, "log2": np.log2, "expm1": np.expm1, "log1p": np.log1p, "rsqrt": lambda z: 1 / np.sqrt(z), "sgn": lambda z: z / np.abs(z),
             "sigmoid": lambda z: 1 / (1 + np.exp(-z)), "exp2": lambda z: np.exp(z * np.log(2))}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("d", [fb.complex64, fb.complex128], ids=str)
def test_functions_are_numpys(name, d):
    got = getattr(fb, name)(fb.tensor(Z, dtype=d))
    assert got.dtype is d
    np.testing.assert_allclose(got.numpy(), FUNCTIONS[name](Z), rtol=2e-5 if d is fb.complex64 else 1e-10)


def test_parts_are_views():
    z = fb.tensor(Z)
    assert z.real.dtype is fb.float64 and z.real.stride() == (8, 2) and z.real.data_ptr() == z.data_ptr() and z.imag.data_ptr() == z.data_ptr() + 8
    z.imag.zero_()
    z.real = 2.0
    z[0].imag = fb.ones(4, dtype=fb.float64)
    assert z[0].tolist() == [2 + 1j] * 4 and z[1].tolist() == [2 + 0j] * 4 and z._version == 3
    pairs = fb.view_as_real(z)
    assert pairs.shape == (3, 4, 2) and pairs._base is z and fb.view_as_complex(pairs).tolist() == z.tolist()
    pairs[2, 3, 1] = 7
    assert z[2, 3].item() == 2 + 7j
    x = fb.ones(2)
    assert fb.real(x) is x and x.conj() is x
    for wrong, message in ((lambda: fb.imag(x), "non-complex"), (lambda: fb.view_as_real(x), "complex tensors"), (lambda: fb.view_as_complex(fb.ones(3)),
            "size 2"),
                           (lambda: fb.view_as_complex(fb.ones(2, 3).t()), "stride 1|size 2"), (lambda: fb.view_as_complex(fb.ones(2, dtype=fb.int64)),
                           "half, float and double")):
        with pytest.raises(RuntimeError, match=message):
            wrong()


def test_made_of_reals():
    a, b = fb.tensor(Z.real), fb.tensor(Z.imag)
    np.testing.assert_array_equal(fb.complex(a, b).numpy(), Z)
    np.testing.assert_allclose(fb.polar(fb.tensor(np.abs(Z)), fb.tensor(np.angle(Z))).numpy(), Z)
    assert fb.complex(a.float(), b.float()).dtype is fb.complex64
    with pytest.raises(RuntimeError):
        fb.complex(a, b.float())
    with pytest.raises(RuntimeError):
        fb.complex(a.long(), b.long())


def test_sums_products_and_matrices():
    z = fb.tensor(Z)
    np.testing.assert_allclose(z.sum(0).numpy(), Z.sum(0))
    np.testing.assert_allclose(z.mean().item(), Z.mean())
    np.testing.assert_allclose(z.prod(1).numpy(), Z.prod(1))
    np.testing.assert_allclose((z @ z.mT.conj()).numpy(), Z @ Z.T.conj())
    assert z.mH.shape == (4, 3) and z.is_complex() and fb.is_complex(z) and z.adjoint().equal(z.mH)


@pytest.mark.parametrize("call", [lambda z: z < z, lambda z: z.max(), lambda z: z.sort(), lambda z: z.floor(), lambda z: z.clamp(0), lambda z: z % 2,
                                  lambda z: z // 2])
def test_what_needs_an_order_is_refused(call):
    with pytest.raises((RuntimeError, NotImplementedError)):
        call(fb.tensor(Z))


def test_odd_values():
    nan, inf = float("nan"), float("inf")
    z = fb.tensor([complex(nan, 0), complex(0, inf), complex(1, nan), 1 + 1j])
    assert z.isnan().tolist() == [True, False, True, False] and z.isinf().tolist() == [False, True, False, False]
    assert z.isfinite().tolist() == [False, False, False, True]
    assert fb.tensor([0j]).angle().item() == 0 and fb.tensor([-1.0]).angle().item() == pytest.approx(np.pi) and fb.tensor([0j]).sgn().item() == 0
    assert not (z == z)[0].item() and bool(fb.tensor(1j)) and fb.tensor(complex(2, 0)).item() == 2
    with pytest.raises(RuntimeError, match="without overflow"):
        float(fb.tensor(1j))


FORMS = {"mul": lambda z: z * z.conj(), "div": lambda z: z / (z * z + 3), "abs": lambda z: z.abs() ** 2, "angle": lambda z: z.angle(),
         "exp": lambda z: z.exp(), "log": lambda z: z.log(),
         "pow": lambda z: z ** 2.5, "parts": lambda z: fb.complex(z.imag, z.real ** 2), "polar": lambda z: fb.polar(z.abs(), z.angle() * 2),
         "as_real": lambda z: fb.view_as_real(z) ** 2,
         "sqrt": lambda z: z.sqrt(), "matmul": lambda z: z @ z.mH, "sum": lambda z: (z * z).sum(0), "prod": lambda z: z.prod(1), "sgn": lambda z: z.sgn(),
         "cumsum": lambda z: (z * z).cumsum(1),
         "where": lambda z: fb.where(z.real > 0, z * z, z.conj()), "index": lambda z: (z * z)[:, fb.tensor([0, 0])], "tanh": lambda z: z.tanh(),
         "imag": lambda z: (z * z).imag}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    z = fb.tensor(Z[:2, :3], requires_grad=True)
    assert gradcheck(FORMS[name], (z,)) and gradgradcheck(FORMS[name], (z,), atol=1e-4)


def test_on_every_device(device):
    z = fb.tensor(Z).to(device)
    for got, want in ((z * z, Z * Z), (z.abs(), np.abs(Z)), (z.real, Z.real), (z.conj().resolve_conj(), Z.conj()), (z.sum(1), Z.sum(1)),
            (fb.view_as_real(z)[..., 1], Z.imag)):
        assert str(got.device) == device
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-12)


HALVES = np.array([1 + 2j, -3.5 + 0.25j, 0j, 100 - 7j])


def test_complex32_is_a_type_of_its_own(device):
    x = fb.tensor(HALVES, dtype=fb.chalf, device=device)
    assert x.dtype is fb.complex32 and x.element_size() == 4 and x.real.dtype is fb.float16 and x.storage_offset() == 0
    assert x.tolist() == HALVES.tolist() and x[1].item() == HALVES[1]
    assert fb.view_as_real(x).tolist() == [[z.real, z.imag] for z in HALVES.tolist()] and fb.view_as_complex(fb.view_as_real(x)).dtype is fb.chalf
    assert repr(x.cpu()) == "tensor([  1.0000+2.0000j,  -3.5000+0.2500j,   0.0000+0.0000j, 100.0000-7.0000j],\n       dtype=torch.complex32)"
    with pytest.raises(TypeError, match="ComplexHalf"):
        x.cpu().numpy()


def test_complex32_is_computed_in_complex64_and_rounded(device):
    a = RNG.normal(size=(5, 7)) + 1j * RNG.normal(size=(5, 7))
    x = fb.tensor(a, dtype=fb.complex32, device=device)
    wide = x.to(fb.complex64)
    for f in (lambda t: t + t, lambda t: t * t, lambda t: t / (t + 1), lambda t: t.exp(), lambda t: t.conj().resolve_conj(),
              lambda t: t.sum(0), lambda t: t.mean(), lambda t: t.cumsum(1), lambda t: t.abs(),
              lambda t: t.angle(), lambda t: t * 2j, lambda t: t.t().contiguous(), lambda t: t[1:, ::2], lambda t: t == t.flip(0)):
        got, want = f(x), f(wide)
        assert got.dtype is {fb.complex64: fb.complex32, fb.float32: fb.float16, fb.bool: fb.bool}[want.dtype]
        np.testing.assert_allclose(got.to(want.dtype).cpu().numpy(), want.cpu().numpy(), rtol=2e-3, atol=2e-3)
    assert (fb.ones(2, dtype=fb.half, device=device) * 1j).dtype is fb.complex32 and fb.complex(x.real, x.imag).tolist() == x.tolist()
    assert fb.zeros(3, dtype=fb.chalf, device=device).tolist() == [0j] * 3 and x.new_full((2,), 1 - 1j).tolist() == [1 - 1j] * 2


def test_complex32_has_gradients():
    x = fb.tensor([1 + 2j, 0.5 - 1j], dtype=fb.complex32, requires_grad=True)
    (x * x).real.sum().backward()
    assert x.grad.dtype is fb.complex32 and x.grad.tolist() == [2 - 4j, 1 + 2j]


def test_a_real_numbers_angle_has_a_gradient_of_zeros_whatever_arrives():
    x = fb.tensor([1.5, -2.5, 0.0], requires_grad=True)
    x.angle().backward(fb.full((3,), float("nan")))
    assert x.grad.tolist() == [0, 0, 0]
