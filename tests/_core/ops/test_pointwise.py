"""Every pointwise row of the op table: values against the expression interpreter, gradients against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as fb
from flambeau._core import dtypes
from flambeau._core.kernels import interpret
from flambeau._core.ops.table import REQUIRED, TABLE
from flambeau._core.runtime import caches
from flambeau.autograd import gradcheck, gradgradcheck

ROWS = {name: row for name, row in TABLE.items() if row.pointwise is not None}
# where a formula is smooth, by operation; the default interval suits the others
DOMAIN = {"log": (0.2, 3), "log2": (0.2, 3), "log10": (0.2, 3), "sqrt": (0.2, 3), "rsqrt": (0.2, 3), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8),
          "atanh": (-0.8, 0.8), "acosh": (1.3, 3), "erfinv": (-0.8, 0.8), "logit": (0.2, 0.8), "log1p": (-0.5, 3), "xlogy": (0.2, 3),
          "xlog1py": (0.2, 3), "lgamma": (0.6, 4), "digamma": (0.6, 4), "reciprocal": (0.3, 2), "hypot": (0.3, 2),
          "threshold": (0.3, 2), "entr": (0.2, 3), "ndtri": (0.1, 0.9), **dict.fromkeys((
              "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"), (0.3, 4)),
          **dict.fromkeys(("shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
                           "shifted_chebyshev_polynomial_w"), (0.2, 0.8))}
NUMBERS = {"threshold": (0.7, 0.25)}
EXTREME = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 0.5, 2.5, -2.5, 1e-3, 87.0, -87.0]
NO_SECOND = {"nextafter", "heaviside", "zeta"}  # zeta: none in its first operand


def _numbers(row):
    return NUMBERS.get(row.name, ())


def _call(row, *args):
    return row.function(*args, *_numbers(row))


def _oracle(row, arrays, types):
    """The formula itself, evaluated by NumPy in the operation's own types."""
    operands = tuple(fb.tensor(a, dtype=d) for a, d in zip(arrays, types, strict=True))
    made = row.pointwise
    numbers, consts = _bound(row, operands)
    program, convert = made.program(operands, numbers, consts, made.common(operands), None)
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    outs = [np.zeros(shape, d.np) for d in program.out_types]
    held = [np.ascontiguousarray(np.broadcast_to(interpret.narrow_bfloat16(t.float().numpy()) if t.dtype is fb.bfloat16
                                                 else t.numpy(), shape)) for t in operands]
    strides = [tuple(s // o.itemsize for s in o.strides) for o in (*outs, *held)]
    interpret.run(program, shape, tuple(strides), *[o.ctypes.data for o in outs], *[h.ctypes.data for h in held],
                  *[c(v) for c, v in zip(convert, numbers, strict=True)])
    out = outs[0]
    return interpret.load(out, program.out_types[0]) if program.out_types[0] is fb.bfloat16 else out


def _bound(row, operands):
    """The numbers and constants a default call passes."""
    captured = {}
    original = type(row.pointwise).planned

    def record(self, operands, numbers=(), consts=()):
        captured["it"] = (numbers, consts)
        return original(self, operands, numbers, consts)
    caches.forget()  # what is kept is not worked out again
    type(row.pointwise).planned = record
    try:
        _call(row, *operands)
    finally:
        type(row.pointwise).planned = original
    return captured.get("it", ((), ()))


def _arity(row):
    return row.pointwise.arity


@pytest.mark.parametrize("name", sorted(ROWS))
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.int64, fb.uint8, fb.bool, fb.float16, fb.bfloat16, fb.int32], ids=str)
def test_values_match_the_interpreter(name, dtype):
    row = ROWS[name]
    rng = np.random.default_rng(7)
    if dtype.is_floating_point:
        base = np.array(EXTREME + list(rng.normal(size=50) * 3))
    elif dtype is fb.bool:
        base = rng.integers(0, 2, 65)
    else:
        base = rng.integers(0 if dtype is fb.uint8 else -9, 10, 65)
        base[base == 0] = 9 if name in ("fmod", "remainder") else 0  # the CPU refuses such divisors
    arrays = [base, *[rng.permutation(base) for _ in range(_arity(row) - 1)]]
    types = [dtype] * len(arrays)
    try:
        got = _call(row, *[fb.tensor(a, dtype=d) for a, d in zip(arrays, types, strict=True)])
    except RuntimeError as error:
        refused = "no longer supported" if name == "addcdiv" and not dtype.is_floating_point else "implemented"  # as PyTorch refuses integers there
        assert refused in str(error) or "bool" in str(error), error
        return
    want = _oracle(row, arrays, types)
    got = got.float().numpy() if got.dtype is fb.bfloat16 else got.numpy()
    assert got.dtype == want.dtype
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    # the interpreter's libm and the kernels' polynomials may differ by some ulp
    rtol = {np.dtype("float16"): 2e-3, np.dtype("float32"): 1e-2 if dtype is fb.bfloat16 else 2e-5, np.dtype("float64"): 1e-10}[got.dtype]
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * 1e-2, equal_nan=True)


REAL = sorted(n for n, r in ROWS.items() if "f" in r.pointwise.accept and n not in NO_SECOND)


@pytest.mark.parametrize("name", REAL)
def test_gradients_match_finite_differences(name):
    row = ROWS[name]
    low, high = DOMAIN.get(name, (-2.2, 2.3))
    rng = np.random.default_rng(3)
    xs = tuple(fb.tensor(rng.uniform(low, high, shape), dtype=fb.float64, requires_grad=True)
               for shape in [(2, 3), (3,), (2, 1)][:_arity(row)])
    f = lambda *a: _call(row, *a)  # noqa: E731
    if not f(*xs).is_floating_point():  # a comparison, a question
        assert not f(*xs).requires_grad
        return
    assert gradcheck(f, xs, check_forward_ad=True)
    assert gradgradcheck(f, xs, atol=1e-4)


@pytest.mark.parametrize("name", sorted(n for n, r in ROWS.items() if r.inplace is not None and r.method))
def test_inplace_and_out_forms_agree_with_the_function(name):
    row = ROWS[name]
    rng = np.random.default_rng(1)
    d = fb.float32 if "f" in row.pointwise.accept else fb.int32
    values = [rng.uniform(0.3, 0.8, (3, 4)) if d is fb.float32 else rng.integers(1, 5, (3, 4)) for _ in range(_arity(row))]
    xs = [fb.tensor(v, dtype=d) for v in values]
    want = _call(row, *xs)
    target = xs[0].clone()
    if dtypes.can_cast(want.dtype, d):
        version = target._version
        back = row.inplace(target, *xs[1:], *_numbers(row))
        assert back is target and target._version > version
        np.testing.assert_array_equal(target.numpy(), want.to(d).numpy())
    if row.out:
        out = fb.empty(0, dtype=want.dtype)
        assert row.function(*xs, *_numbers(row), out=out) is out
        np.testing.assert_array_equal(out.numpy(), want.numpy())


def test_required_parameters_are_named():
    with pytest.raises(TypeError, match="threshold"):
        fb.nn.functional.threshold(fb.zeros(2))
    assert REQUIRED is not None


def test_a_made_up_operation_in_one_formula_has_every_form():
    from flambeau._core.kernels import expr as E
    from flambeau._core.ops import table
    from flambeau._core.tensor import Tensor
    table.pointwise("softbump", "input other", lambda x, y: E.exp(-(x * x)) * y)
    try:
        table.attach(Tensor)
        function = table.namespace("torch")["softbump"]
        x = fb.tensor([[0.5], [-1.0]], dtype=fb.float64, requires_grad=True)
        y = fb.tensor([1.0, 2.0, 3.0], dtype=fb.float64, requires_grad=True)
        want = np.exp(-x.detach().numpy() ** 2) * y.detach().numpy()
        np.testing.assert_allclose(function(x, y).detach().numpy(), want)
        np.testing.assert_allclose(x.softbump(y).detach().numpy(), want)
        out = fb.empty(0, dtype=fb.float64)
        np.testing.assert_allclose(function(x.detach(), y.detach(), out=out).numpy(), want)
        z = fb.ones(2, 3, dtype=fb.float64)
        z.softbump_(y.detach())
        np.testing.assert_allclose(z.numpy(), np.exp(-1.0) * np.broadcast_to(y.detach().numpy(), (2, 3)))
        assert gradcheck(function, (x, y), check_forward_ad=True) and gradgradcheck(function, (x, y))
        program, _ = TABLE["softbump"].pointwise.program((x, y), (), (), fb.float64, None)
        outs = np.zeros((2, 3))
        interpret.run(program, (2, 3), ((3, 1), (1, 0), (0, 1)), outs.ctypes.data, x.detach().numpy().ctypes.data,
                      y.detach().numpy().ctypes.data)
        np.testing.assert_allclose(outs, want)
    finally:
        TABLE.pop("softbump", None)
        for name in ("softbump", "softbump_"):
            if name in Tensor.__dict__:
                delattr(Tensor, name)


@pytest.mark.parametrize("d", [fb.float16, fb.bfloat16, fb.float32, fb.float64], ids=str)
def test_infinities_become_the_limits_of_their_own_type(d, device):
    x = fb.tensor([math.nan, math.inf, -math.inf, 1.0], dtype=d, device=device)
    want = [0.0, fb.finfo(d).max, -fb.finfo(d).max, 1.0]
    for _ in range(4):
        assert x.nan_to_num().tolist() == x.clone().nan_to_num_().tolist() == fb.nan_to_num(x, out=fb.empty_like(x)).tolist() == want
        assert x.nan_to_num(1.0, 2.0, -3.0).tolist() == [1, 2, -3, 1] and x.nan_to_num().dtype is d
    y = x.clone().requires_grad_()
    y.nan_to_num().sum().backward()
    assert y.grad.tolist() == [0, 0, 0, 1] and fb.tensor([1, 2], device=device).nan_to_num().tolist() == [1, 2]
    z = fb.tensor([complex(math.nan, math.inf)], device=device).nan_to_num()
    assert z.tolist() == [complex(0, fb.finfo(fb.float32).max)]


def test_where_a_gradient_chooses_it_lies_as_what_it_chooses_by(device):
    """As PyTorch's: a gradient that arrives row by row, from a mean or a view, does not turn the images of a network over."""
    x = fb.randn(2, 3, 4, 5, device=device).contiguous(memory_format=fb.channels_last).requires_grad_()
    g, f = fb.rand(2, 3, 4, 5, device=device), fb.nn.functional
    for call in (f.relu, f.leaky_relu, lambda x: f.threshold(x, 0.1, 0.0), lambda x: x.clamp(0, 1), lambda x: x.clamp_min(0), fb.erf,
                 lambda x: fb.where(x > 0, x, 0.0), lambda x: fb.maximum(x, x.detach() * 0.5)):
        gx, = fb.autograd.grad(call(x), x, g)
        assert gx.stride() == x.stride()
        y = x.detach().contiguous().requires_grad_()
        assert fb.equal(gx, fb.autograd.grad(call(y), y, g)[0])
    for call in (f.gelu, fb.tanh, lambda x: x * x):
        assert fb.autograd.grad(call(x), x, g)[0].is_contiguous()
