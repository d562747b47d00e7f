"""A layer and its activation as one operation.  The products themselves are run by tests/_core/drivers/nvidia/cases_activations.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core.autograd import tape
from flambeau._core.ops.linear_activation import linear_with_activation, serves
from flambeau.autograd import gradcheck, gradgradcheck

F = fb.nn.functional


@pytest.fixture
def switch() -> Iterator[Any]:
    """The switch, as it was afterwards."""
    matmul = fb.backends.cuda.matmul
    before = matmul.fused_activations
    yield matmul
    matmul.fused_activations = before


def on_a_gpu(device: str) -> bool:
    return device != "cpu" and not fb.cuda.get_device_properties(0).simulated


def gelu(x: np.ndarray, tanh: bool) -> np.ndarray:
    inner = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)) if tanh else np.vectorize(math.erf)(x / np.sqrt(2))
    return 0.5 * x * (1 + inner)


@pytest.mark.parametrize("base", [(4,), (1, 4), (3, 4), (3, 1), (1,), ()])
@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, -2)])
def test_addmm_activation(device: str, base: tuple[int, ...], beta: float, alpha: float) -> None:
    rng = np.random.default_rng(0)
    c, a, b = (rng.standard_normal(s) for s in (base, (3, 5), (5, 4)))
    x, y, z = (fb.tensor(v, device=device) for v in (c, a, b))
    whole = beta * c + alpha * (a @ b)
    np.testing.assert_allclose(fb._addmm_activation(x, y, z, beta=beta, alpha=alpha).cpu().numpy(), np.maximum(whole, 0), atol=1e-12)
    got = fb._addmm_activation(x, y, z, beta=beta, alpha=alpha, use_gelu=True)
    np.testing.assert_allclose(got.cpu().numpy(), gelu(whole, device != "cpu"), atol=1e-12)  # PyTorch's form on each
    out = fb.empty(3, 4, dtype=fb.float64, device=device)
    assert fb._addmm_activation(x, y, z, beta=beta, alpha=alpha, out=out) is out
    np.testing.assert_allclose(out.cpu().numpy(), np.maximum(whole, 0), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(64, 150), width=st.integers(130, 200), out=st.integers(64, 150), d=st.sampled_from([fb.float32, fb.float64]), transposed=st.booleans(),
       seed=st.integers(0, 99), followed=st.booleans())
def test_it_is_the_two_operations_to_the_bit(rows: int, width: int, out: int, d: Any, transposed: bool, seed: int, followed: bool) -> None:
    rng = np.random.default_rng(seed)
    x = fb.tensor(rng.standard_normal((width, rows)).T.copy() if not transposed else rng.standard_normal((width, rows)), dtype=d)
    x = x.t() if transposed else x
    w, b, g = (fb.tensor(rng.standard_normal(s), dtype=d) for s in ((out, width), (out,), (rows, out)))
    made, plain = ([t.detach().clone(memory_format=fb.preserve_format).requires_grad_() for t in (x, w, b)] for _ in range(2))
    found, wanted = linear_with_activation(*made, "relu", followed), F.relu(F.linear(*plain))
    assert found is not None and linear_with_activation(made[0][:5], *made[1:], "relu") is None  # few rows are two operations
    assert fb.equal(found, wanted) and found.stride() == wanted.stride()
    found.backward(g)
    wanted.backward(g)
    for one, other in zip(made, plain, strict=True):
        assert fb.equal(one.grad, other.grad)


@pytest.mark.parametrize("use_gelu", [False, True])
def test_gradients_beside_differences(device: str, use_gelu: bool) -> None:
    rng = np.random.default_rng(1)
    inputs = tuple(fb.tensor(rng.standard_normal(s), device=device, requires_grad=True) for s in ((4,), (3, 5), (5, 4)))
    for more in ({}, {"beta": 0.5, "alpha": 2}):
        f = lambda *x: fb._addmm_activation(*x, use_gelu=use_gelu, **more)  # noqa: B023
        assert gradcheck(f, inputs) and gradgradcheck(f, inputs)


def test_regions_that_do_not_lower_here() -> None:
    """Inside a region that is off, or of another device's, a layer and its activation are one launch as outside."""
    x, w, b = fb.randn(128, 128), fb.randn(128, 128), fb.randn(128)
    wanted = linear_with_activation(x, w, b, "relu", level=2)
    assert wanted is not None
    for region in (fb.autocast("cpu", enabled=False), fb.autocast("cuda", fb.float16)):
        with region:
            made = linear_with_activation(x, w, b, "relu", level=2)
        assert made is not None and made.dtype is fb.float32 and fb.equal(made, wanted)


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.int64])
def test_types_and_empty_operands(device: str, dtype: Any) -> None:
    base, a, b = (fb.tensor(np.random.default_rng(i).integers(-3, 4, s), dtype=dtype, device=device) for i, s in enumerate(((4,), (3, 5), (5, 4))))
    assert fb.equal(fb._addmm_activation(base, a, b), fb.relu(fb.addmm(base, a, b)))
    for m, k, n in ((0, 5, 4), (3, 0, 4), (3, 5, 0)):
        made = fb._addmm_activation(*[fb.ones(*s, dtype=dtype, device=device) for s in ((n,), (m, k), (k, n))])
        assert made.shape == (m, n) and made.dtype is dtype and made.tolist() == [[1 + k] * n] * m
    if dtype.is_floating_point and not on_a_gpu(device):
        assert fb._addmm_activation(fb.full_like(base, math.nan), a, b).isnan().all()


def test_errors() -> None:
    a, b = fb.ones(4, 5), fb.ones(5, 3)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        fb._addmm_activation(fb.ones(3), a, a)
    with pytest.raises(RuntimeError, match="dtype"):
        fb._addmm_activation(fb.ones(3), a.double(), b)
    with pytest.raises(TypeError):
        fb._addmm_activation(3, a, b)
    with pytest.raises(RuntimeError):
        fb._addmm_activation(fb.ones(5, 4, 3), a, b)


def test_autocast() -> None:
    with fb.autocast("cpu"):
        assert fb._addmm_activation(fb.ones(3), fb.ones(4, 5), fb.ones(5, 3)).dtype is fb.bfloat16


def test_none_where_there_is_no_such_launch(device: str) -> None:
    if on_a_gpu(device):
        pytest.skip("a GPU has more")
    for size, kind, dtype in ((8, "gelu", fb.float32), (8, "relu", fb.float32), (128, "gelu", fb.float32), (128, "relu", fb.bfloat16)):
        x, w, b = (fb.ones(*s, dtype=dtype, device=device, requires_grad=True) for s in ((size, size), (size, size), (size,)))
        assert linear_with_activation(x, w, b, kind, True, 2) is None
    x, w, b = (fb.ones(*s, device=device) for s in ((128, 128), (128, 128), (128,)))
    assert linear_with_activation(x, w, b, "relu", level=2).tolist() == [[129.0] * 128] * 128
    for other in ((x, w, b.double()), (x, w[:, :3], b), (x, w, b[:5]), (x[0], w, b), (x, w[0], b), (x, w, b.expand(2, 128))):
        assert linear_with_activation(*other, "relu", level=2) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k, n", [(64, 100, 100), (300, 40, 64), (33, 900, 47), (700, 65, 33)])
def test_products_of_the_cpu(device: str, dtype: Any, m: int, k: int, n: int) -> None:
    """Bit for bit what the two operations give, NaN and infinities too; and so is the gradient, which the next layer's product takes
    past the activation."""
    if on_a_gpu(device):
        pytest.skip("these are the CPU's")
    rng = np.random.default_rng(2)
    x, w, b, v, c = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (n, k), (n,), (40, n), (40,)))
    x[0, 0], x[1, 0], x[2, 0] = math.nan, math.inf, -math.inf
    found = []
    for fused in (True, False):
        p, q, r, s, t = (fb.tensor(a, device=device, requires_grad=True) for a in (x, w, b, v, c))
        y = linear_with_activation(p, q, r, "relu") if fused else F.relu(F.linear(p, q, r))
        assert y is not None and y.grad_fn.name() == "ReluBackward0"
        z = F.linear(y, s, t)
        layer: Any = z.node
        assert len(layer[tape.EDGES]) == (4 if fused else 3)
        z[3:].square().sum().backward()
        found.append([a.detach().cpu().numpy() for a in (y, z, *[a.grad for a in (p, q, r, s, t)])])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (np.signbit(a) == np.signbit(b)).all()


def test_switch(switch: Any) -> None:
    assert switch.fused_activations == "exact"
    for value, expected in (("none", (False, False)), ("all", (True, True)), ("exact", (False, True))):
        switch.fused_activations = value
        assert (serves("relu", False), serves("gelu", False)) == expected and switch.fused_activations == value
        assert serves("relu", True) == (value != "none") and not serves("gelu", True)
    with pytest.raises(RuntimeError, match="expected one of 'none', 'exact', 'all', got 'some'"):
        switch.fused_activations = "some"


def test_a_wanted_gradient_is_passed_by_nobody() -> None:
    """What `autograd.grad` asks for is marked as a hook is, so that a layer's gradient does not go past it."""
    x = fb.ones(2, 3, requires_grad=True)
    y = F.linear(x, fb.ones(4, 3, requires_grad=True), fb.ones(4, requires_grad=True))
    z = F.relu(y)
    node: Any = z.node
    assert node is not None and node[tape.EXTRA] is None
    g, = fb.autograd.grad((z * 2).sum(), z)
    assert node[tape.EXTRA] == {} and g.tolist() == [[2.0] * 4] * 2
    leaf: Any = x.node
    assert leaf[tape.EXTRA] is None


def test_a_layer_shows_three_inputs() -> None:
    x, w, b = fb.ones(2, 3, requires_grad=True), fb.ones(4, 3, requires_grad=True), fb.ones(4, requires_grad=True)
    assert len(F.linear(x, w, b).grad_fn.next_functions) == 3
    assert F.linear(x, w).grad_fn.next_functions[0][0].name() == "AccumulateGrad"
