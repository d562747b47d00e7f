"""Calls on dense operands of shapes that are new, held against NumPy and against the same calls once they are planned."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.engine import dense
from flambeau._core.engine.plans import Unbound

CALLS = {
    "add": lambda x, y: x + y, "mul by a number": lambda x, y: x * 2.5, "compare": lambda x, y: x > y, "relu": lambda x, y: torch.relu(x),
    "where": lambda x, y: torch.where(x > 0, x, y), "clone": lambda x, y: x.clone(), "double": lambda x, y: x.double(), "int": lambda x, y: x.long(),
    "zeros_like": lambda x, y: torch.zeros_like(x), "full_like": lambda x, y: torch.full_like(x, 3.5), "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "add scaled": lambda x, y: torch.add(x, y, alpha=3), "in place": lambda x, y: x.clone().mul_(y), "in place with a number": lambda x, y: x.clone().add_(1.5),
    "operator in place": lambda x, y: x.clone().__iadd__(y), "frexp": lambda x, y: torch.frexp(x)[0],
}


def _operands(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    r = np.random.default_rng(seed)
    return torch.tensor(r.standard_normal((n, 7)).astype(np.float32)), torch.tensor(r.standard_normal((n, 7)).astype(np.float32))


@pytest.mark.parametrize("name", CALLS)
def test_new_shapes_give_what_planned_calls_give(name: str) -> None:
    call = CALLS[name]
    for n in (*range(2, 40), 3000, 40000):
        x, y = _operands(n, n)
        first = call(x, y).numpy().copy()
        for _ in range(3):
            again = call(x, y)
            assert again.shape == (n, 7) and again.numpy().tobytes() == first.tobytes() and again.numpy().dtype == first.dtype


def test_against_numpy() -> None:
    for n in range(2, 30):
        x, y = _operands(n, n)
        a, b = x.numpy(), y.numpy()
        assert np.array_equal((x + y).numpy(), a + b) and np.array_equal((x > y).numpy(), a > b) and np.array_equal((x * y).numpy(), a * b)
        z = x.clone()
        version = z._version
        z += y
        assert np.array_equal(z.numpy(), a + b) and z._version == version + 1


def test_gradients_of_new_shapes() -> None:
    for n in range(2, 30):
        x, y = _operands(n, n)
        x.requires_grad_()
        z = x * y + x.exp().double().float() + x.clone()
        assert z.grad_fn is not None and (x * y).grad_fn.name() == "MulBackward0" and x.double().grad_fn.name() == "ToCopyBackward0"
        z.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), (y + x.detach().exp() + 1).numpy(), rtol=1e-6, atol=1e-6)
        with torch.no_grad():
            assert not (x * y).requires_grad
        second = torch.autograd.grad((x * x * y).sum(), x, create_graph=True)[0]
        np.testing.assert_allclose(torch.autograd.grad(second.sum(), x)[0].numpy(), 2 * y.numpy(), rtol=1e-6)


def test_a_saved_operand_that_is_written_is_found() -> None:
    for n in range(2, 12):
        x, y = _operands(n)
        x.requires_grad_()
        z = x * y
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_writes_that_are_recorded_or_share_memory() -> None:
    for n in range(3, 20):
        x, y = _operands(n, n)
        with pytest.raises(RuntimeError, match="leaf"):
            x.clone().requires_grad_().add_(y)
        leaf = x.clone().requires_grad_()
        z = leaf * 1
        z.mul_(y)
        z.sum().backward()
        assert np.array_equal(leaf.grad.numpy(), y.numpy())
        base = torch.arange(7. * n)
        a, b = base[1:7 * n - 1], base[:7 * n - 2]
        expected = a.numpy() + b.numpy()
        with pytest.raises(RuntimeError, match="share|overlap|memory"):
            a.add_(b)
        assert np.array_equal((a + b).numpy(), expected)


def test_other_layouts_are_planned_as_they_are() -> None:
    for n in range(2, 20):
        x, y = _operands(n, n)
        t = torch.tensor(np.ascontiguousarray(y.numpy().T)).t()
        assert np.array_equal((x + t).numpy(), x.numpy() + t.numpy()) and np.array_equal((x + y[0]).numpy(), x.numpy() + y.numpy()[0])
        assert np.array_equal((x + y[:1]).numpy(), x.numpy() + y.numpy()[:1]) and (x[:0] + y[:0]).shape == (0, 7)
        assert np.array_equal((x[:1, :1] + y[:1, :1]).numpy(), x.numpy()[:1, :1] + y.numpy()[:1, :1])


def test_types_and_divisions() -> None:
    for n in range(2, 12):
        x = torch.arange(n)
        assert (x + x.float()).dtype is torch.float32 and (x + x).dtype is torch.int64 and (x / 2).dtype is torch.float32
        with pytest.raises(RuntimeError, match="ZeroDivision"):
            torch.div(x, torch.zeros(n, dtype=torch.int64), rounding_mode="floor")
        with pytest.raises(RuntimeError):
            torch.zeros(n) + torch.zeros(n + 1)


def test_shapes_that_come_from_elsewhere() -> None:
    for n in range(2, 20):
        x = torch.ones(n)
        assert x.new_zeros(7).shape == (7,) and x.new_full((7,), 2.0).tolist() == [2] * 7 and x.new_ones(n).shape == (n,) and torch.ones(n).shape == (n,)
        assert torch.zeros_like(x).shape == (n,) and x.to(torch.float64).shape == (n,) and x.expand(3, n).clone().shape == (3, n)


def test_kinds() -> None:
    x, y = _operands(5)
    assert dense.kind_of((x.meta, y.meta, 3)) == ((torch.float32, torch.float32, 3), (5, 7), 35)
    assert dense.kind_of((x.meta, y[:4].meta)) is None and dense.kind_of((x.t().meta,)) is None and dense.kind_of((3, "word")) is None
    assert dense.kind_of((x[:1, :1].meta,)) is None and dense.kind_of((torch.ones(0).meta,)) is None
    assert dense.kind_of((x.meta, (3, 4)), 1) == ((torch.float32, None), (3, 4), 12)
    assert all(dense.kind_of((shape,), 0) is None for shape in ((), (1,), (0, 3), (-1, 2), None))


def test_factories_of_new_sizes() -> None:
    x = torch.ones(3)
    for n in range(2, 30):
        for _ in range(3):
            assert torch.zeros(n).tolist() == [0] * n and torch.ones(n, 2).tolist() == [[1, 1]] * n and torch.empty(n, 3).stride() == (3, 1)
            assert torch.ones((2, n), dtype=torch.int64).dtype is torch.int64 and torch.zeros(n, requires_grad=True).requires_grad
            assert x.new_zeros(n).tolist() == [0] * n and x.double().new_ones((n,)).dtype is torch.float64
            assert x.expand(n, 3).clone().tolist() == [[1] * 3] * n and x.repeat(n).shape == (3 * n,)
        with pytest.raises(TypeError):
            torch.zeros(float(n))
        with pytest.raises(RuntimeError):
            torch.zeros(n, -1)
    assert torch.zeros(torch.tensor(4)).shape == (4,) and torch.zeros(0).shape == (0,) and torch.zeros(()).shape == () and torch.zeros([5]).shape == (5,)


def test_a_plan_is_bound_when_it_is_called_again() -> None:
    plans = torch.relu.__operation__.started().env["plans"]
    x = torch.randn(3, 5).t()
    torch.relu(x)
    (kept,) = [run for key, run in plans.items() if key[0] is x.meta]
    assert type(kept) is Unbound
    torch.relu(x)
    (bound,) = [run for key, run in plans.items() if key[0] is x.meta]
    assert type(bound) is not Unbound and bound is kept.run and np.array_equal(kept(x, *[None] * 0).numpy(), torch.relu(x).numpy())


def test_channels_innermost_are_so_after_a_shape_in_which_both_orders_are_one() -> None:
    last = torch.channels_last
    calls = (lambda t: t.clone(memory_format=last), lambda t: t.contiguous(memory_format=last), lambda t: t.to(torch.float64, memory_format=last),
             lambda t: torch.zeros_like(t, memory_format=last), lambda t: torch.full_like(t, 2.0, memory_format=last),
             lambda t: torch.empty(t.shape, memory_format=last))
    for call in calls:
        for ambiguous in ((2, 6, 1, 1), (2, 1, 4, 4)):
            for _ in range(3):
                call(torch.ones(ambiguous))
        for n, c, h, w in ((2, 6, 3, 3), (3, 4, 2, 5), (1, 3, 4, 4), (2, 6, 3, 3)):
            assert call(torch.ones(n, c, h, w)).stride() == (c * h * w, 1, w * c, c)
