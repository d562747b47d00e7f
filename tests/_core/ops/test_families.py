"""Operations made of a formula of a few lines: a reduction and an operation on rows, new ones, with all that comes with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau as fb
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import formulas as F
from flambeau._core.ops import families, table
from flambeau._core.runtime import dispatch
from flambeau._core.tensor import Tensor
from flambeau.autograd import gradcheck, gradgradcheck


def _spread(x: E.Expr) -> E.Expr:
    c = x - F.mean(x, "c")
    return F.total(c * c * c, "c")


def _bend(x: E.Expr) -> E.Expr:
    c = x - F.mean(x, "c")
    return E.tanh(c / F.safe_sqrt(F.mean(c * c, "c") + 0.1))


@pytest.fixture(scope="module", autouse=True)
def made() -> Iterator[dict[str, Any]]:
    before, own = dict(table.TABLE), set(Tensor.__dict__)
    found = {
        "sumsq": families.reduction("sumsq", lambda x: x * x, "sum", types=families.summed),
        "rms_of": families.reduction("rms_of", lambda x: x * x, "sum", lambda total, n: F.safe_sqrt(total / n), accept="f"),
        "third": families.reduction("third", _spread, accept="f", dtype=False),
        "bend": families.rows("bend", _bend)}
    table.attach(Tensor)
    yield found
    table.TABLE.clear()
    table.TABLE.update(before)
    for name in set(Tensor.__dict__) - own:
        delattr(Tensor, name)


def x64(*shape: int) -> fb.Tensor:
    return fb.tensor(np.random.default_rng(0).standard_normal(shape), requires_grad=True)


def test_forms(made: dict[str, Any]) -> None:
    x = x64(3, 4).detach()
    out = fb.empty(0, dtype=fb.float64)
    assert made["sumsq"](x, 1, out=out) is out and out.tolist() == x.sumsq(1).tolist() == made["sumsq"](input=x, dim=-1).tolist()
    assert made["sumsq"](x, 1, True).shape == (3, 1) and x.sumsq().shape == () and x.sumsq((0, 1), keepdim=True).shape == (1, 1)
    assert made["sumsq"](x, axis=0, keepdims=True).shape == (1, 4)  # NumPy's names
    assert made["bend"](x, 0).shape == x.bend(dim=1).shape == (3, 4)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.bend(2)
    with pytest.raises(TypeError):
        x.third(0, dtype=fb.float32)


def test_types(made: dict[str, Any]) -> None:
    whole = fb.tensor([[1, 2], [3, 4]], dtype=fb.int32)
    assert whole.sumsq().dtype is fb.int64 and whole.sumsq().item() == 30
    assert whole.sumsq(dtype=fb.float64).dtype is fb.float64 and whole.rms_of().dtype is fb.float32
    half = fb.full((4096,), 0.5, dtype=fb.float16)
    assert half.sumsq().item() == 1024.0 and half.sumsq().dtype is fb.float16  # in float32, rounded once
    with pytest.raises(NotImplementedError, match="\"third\" not implemented for 'ComplexFloat'"):
        fb.ones(2, dtype=fb.complex64).third()


@pytest.mark.parametrize("name", ["sumsq", "rms_of", "third", "bend"])
def test_gradients(made: dict[str, Any], name: str) -> None:
    f = made[name]
    for dims, shape in ((1, (3, 4)), (0, (3, 4)), ((0, 2), (2, 3, 4))):
        assert gradcheck(lambda x, dims=dims: f(x, dims), (x64(*shape),))
        assert gradgradcheck(lambda x, dims=dims: f(x, dims), (x64(*shape),), atol=1e-4)
    assert gradcheck(lambda x: f(x, 1), (x64(4, 3).detach().t().requires_grad_(),))


def test_a_simulated_gpu_gives_the_same(made: dict[str, Any]) -> None:
    x = fb.randn(5, 6)
    with fb.simulate(gpus=1):
        for name in ("sumsq", "third", "bend"):
            y = x.clone().requires_grad_()
            z = x.to("cuda").requires_grad_()
            made[name](y, 1).sum().backward()
            made[name](z, 1).sum().backward()
            assert fb.allclose(y.grad, z.grad.cpu(), atol=1e-6) and fb.allclose(made[name](y, 1), made[name](z, 1).cpu(), atol=1e-5)


def test_nothing_and_numbers(made: dict[str, Any]) -> None:
    for shape, dim, result in (((0, 3), 0, (3,)), ((0, 3), 1, (0,)), ((), 0, ()), ((2, 0), (0, 1), ())):
        x = fb.zeros(shape, requires_grad=True)
        y = x.sumsq(dim)
        assert tuple(y.shape) == result and not y.detach().any()
        y.sum().backward()
        assert tuple(x.grad.shape) == shape
    x = fb.tensor(2.0, requires_grad=True)
    x.sumsq().backward()
    assert x.grad.item() == 4.0
    assert fb.zeros(2, 0).bend(1).shape == (2, 0) and fb.tensor(3.0).bend(0).item() == 0.0


def test_saved_values_are_looked_after(made: dict[str, Any]) -> None:
    x = x64(3, 4)
    y = x * 1
    z = y.rms_of(1)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    z = x.sumsq(1).sum()
    z.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        z.backward()
    assert x.sumsq(1).grad_fn.name() == "SumsqBackward0"


def test_who_looks_on_later_sees_the_gradient(made: dict[str, Any]) -> None:
    x, seen = x64(3, 4), []
    y = x.bend(1).sum()
    y.backward(retain_graph=True)  # now its kernel is bound
    with dispatch.observe(lambda dev, stream, prepared, args: seen.append(prepared.name)):
        y.backward(retain_graph=True)
    assert "bend_backward" in seen
    seen.clear()
    y.backward()
    assert not seen


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5), elements=st.floats(-5, 5)), st.data())
def test_like_numpy(a: np.ndarray, data: st.DataObject) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, a.ndim - 1), min_size=1)))
    order = data.draw(st.permutations(range(a.ndim)))
    x = fb.tensor(np.ascontiguousarray(a.transpose(order))).permute(*np.argsort(order).tolist())
    x.requires_grad_()
    keep = data.draw(st.booleans())
    np.testing.assert_allclose(x.sumsq(axes, keep).detach().numpy(), (a * a).sum(axes, keepdims=keep), rtol=1e-12)
    c = a - a.mean(axes, keepdims=True) if a.size else a
    y = x.bend(axes)
    np.testing.assert_allclose(y.detach().numpy(), np.tanh(c / np.sqrt((c * c).mean(axes, keepdims=True) + 0.1)) if a.size else a, rtol=1e-9, atol=1e-12)
    x.sumsq(axes, keep).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * a)
