"""Parametrized tensors: what is computed, what is kept, how it is undone; the ready-made parametrizations."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, a):
        return a.triu()


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def test_a_tensor_becomes_computed() -> None:
    m = nn.Linear(3, 3)
    before = m.weight.detach().clone()
    assert parametrize.register_parametrization(m, "weight", Symmetric()) is m
    assert torch.equal(m.weight, m.weight.T) and parametrize.is_parametrized(m) and parametrize.is_parametrized(m, "weight")
    assert not parametrize.is_parametrized(m, "bias") and type(m).__name__ == "ParametrizedLinear" and isinstance(m, nn.Linear)
    assert parametrize.type_before_parametrizations(m) is nn.Linear
    assert set(dict(m.named_parameters())) == {"bias", "parametrizations.weight.original"}
    assert list(m.state_dict()) == ["bias", "parametrizations.weight.original"]
    np.testing.assert_array_equal(m.weight.detach().triu().numpy(), before.triu().numpy())
    m(torch.randn(2, 3)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None
    value = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    m.weight = value
    assert torch.equal(m.weight, value) and float(m.parametrizations.weight.original[1, 0]) == 0


def test_several_in_a_row_and_back() -> None:
    m = nn.Linear(2, 2)
    original = m.weight
    parametrize.register_parametrization(m, "weight", Symmetric())
    parametrize.register_parametrization(m, "weight", Double())
    assert len(m.parametrizations.weight) == 2
    value = m.weight.detach().clone()
    with pytest.raises(RuntimeError, match="right_inverse"):
        m.weight = value
    parametrize.remove_parametrizations(m, "weight")
    assert type(m) is nn.Linear and isinstance(m.weight, nn.Parameter) and m.weight is original and torch.equal(m.weight, value)
    assert not hasattr(m, "parametrizations")
    parametrize.register_parametrization(m, "weight", Double())
    kept = m.parametrizations.weight.original.detach().clone()
    parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    assert torch.equal(m.weight, kept)


def test_mistakes() -> None:
    m = nn.Linear(2, 3)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(m, "nothing", Double())

    class Shape(nn.Module):
        def forward(self, x):
            return x[:1]
    with pytest.raises(ValueError, match="shape"):
        parametrize.register_parametrization(m, "weight", Shape())
    assert isinstance(m.weight, nn.Parameter) and not parametrize.is_parametrized(m)
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(m, "weight")


def test_computed_once_in_a_cached_block() -> None:
    calls = []

    class Counted(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x
    m = nn.Linear(2, 2)
    parametrize.register_parametrization(m, "weight", Counted())
    calls.clear()
    with parametrize.cached():
        assert m.weight is m.weight
    assert len(calls) == 1
    assert m.weight is not None and len(calls) == 2


def test_copies_and_states() -> None:
    m = parametrizations.weight_norm(nn.Linear(3, 2))
    other = copy.deepcopy(m)
    assert torch.equal(other.weight, m.weight)
    with torch.no_grad():
        other.parametrizations.weight.original0.mul_(2)
    np.testing.assert_allclose(other.weight.detach().numpy(), 2 * m.weight.detach().numpy(), rtol=1e-6)
    m.load_state_dict(other.state_dict())
    np.testing.assert_allclose(other.weight.detach().numpy(), m.weight.detach().numpy())


def test_weight_norm() -> None:
    for make, dim in ((lambda: nn.Linear(4, 3), 0), (lambda: nn.Conv1d(2, 3, 2), 0), (lambda: nn.Linear(4, 3), 1), (lambda: nn.Linear(4, 3), None)):
        m = make()
        before = m.weight.detach().clone()
        parametrizations.weight_norm(m, dim=dim)
        np.testing.assert_allclose(m.weight.detach().numpy(), before.numpy(), rtol=1e-5, atol=1e-6)
        assert m.parametrizations.weight.original1.shape == before.shape
        with torch.no_grad():
            m.parametrizations.weight.original1.mul_(3)
        np.testing.assert_allclose(m.weight.detach().numpy(), before.numpy(), rtol=1e-5, atol=1e-6)
        parametrize.remove_parametrizations(m, "weight")
        assert isinstance(m.weight, nn.Parameter)


def test_spectral_norm() -> None:
    torch.manual_seed(0)
    m = parametrizations.spectral_norm(nn.Linear(5, 4))
    for _ in range(30):
        m.weight  # noqa: B018 (training improves the estimate)
    assert float(torch.linalg.svdvals(m.weight.detach())[0]) == pytest.approx(1.0, rel=1e-4)
    m.eval()
    assert torch.equal(m.weight, m.weight)
    m(torch.randn(2, 5)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None
    with pytest.raises(ValueError, match="n_power_iterations"):
        parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("trivialized", [True, False])
def test_orthogonal(orthogonal_map: str, shape, trivialized: bool) -> None:
    torch.manual_seed(1)
    m = nn.Linear(*shape)
    parametrizations.orthogonal(m, "weight", orthogonal_map, use_trivialization=trivialized)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        w = m.weight.detach()
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram.numpy(), np.eye(gram.shape[0]), atol=2e-5)
        optimizer.zero_grad()
        (m(torch.ones(2, shape[0])) ** 3).sum().backward()
        optimizer.step()
    q = torch.linalg.qr(torch.randn(max(shape), max(shape)))[0][:shape[1], :shape[0]]
    if not trivialized and orthogonal_map != "householder":
        with pytest.raises(NotImplementedError, match="use_trivialization"):
            m.weight = q
        return
    m.weight = q
    np.testing.assert_allclose(m.weight.detach().numpy(), q.numpy(), atol=2e-5)


def test_orthogonal_mistakes() -> None:
    with pytest.raises(ValueError, match="orthogonal_map"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="magic")
    with pytest.raises(ValueError, match="matrix or batch"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")


def test_parametrizations_give_tensors():
    class Two(nn.Module):
        def forward(self, x):
            return x, x

    class Sequence(nn.Module):
        def forward(self, x, y):
            return x

        def right_inverse(self, z):
            return None, z
    net = nn.Linear(3, 4)
    with pytest.raises(ValueError, match="element 0 of the sequence with type NoneType"):
        parametrize.register_parametrization(net, "weight", Sequence())
    parametrize.register_parametrization(net, "weight", nn.Identity())
    with pytest.raises(ValueError, match="must return a tensor. Got tuple"):
        parametrize.register_parametrization(net, "weight", Two())


def test_right_inverses_keep_the_type():
    class ToBool(nn.Module):
        def forward(self, x):
            return x.float()

        def right_inverse(self, w):
            return w.bool()

    class Pair(nn.Identity):
        def right_inverse(self, x):
            return x, x
    net = nn.Linear(3, 4)
    with pytest.raises(ValueError, match="outputs one tensor, it may not change the dtype"):
        parametrize.register_parametrization(net, "weight", ToBool())
    assert not parametrize.is_parametrized(net)
    parametrize.register_parametrization(net, "weight", nn.Identity())
    with pytest.raises(ValueError, match="right_inverse must return a tensor"):
        parametrize.register_parametrization(net, "weight", Pair())
    with pytest.raises(ValueError, match="must have the same dtype"):
        parametrize.register_parametrization(net, "weight", ToBool())
    assert len(net.parametrizations.weight) == 1


@pytest.mark.parametrize("after", [False, True], ids=["the first", "one more"])
def test_a_parametrization_keeps_shape_and_type(after):
    class Of(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, x):
            return self.f(x)
    flag, was, now = "`unsafe` flag", "unparametrized ", "parametrized "
    if after:
        flag, was, now = f"the {flag}", "module.weight.", "parametrization(module.weight)."
    begins = "Registering a parametrization may not change the {} of the tensor, unless " + flag + " is enabled.\n"
    for f, told in ((lambda x: x.double(), begins.format("dtype") + f"{was}dtype: torch.float32\n{now}dtype: torch.float64"),
                    (lambda x: x.reshape(-1), begins.format("shape") + f"{was}shape: torch.Size([3, 2])\n{now}shape: torch.Size([6])"),
                    (lambda x: 1, "A parametrization must return a tensor. Got int.")):
        net = nn.Linear(2, 3)
        if after:
            parametrize.register_parametrization(net, "weight", nn.Identity())
        with pytest.raises(ValueError) as caught:
            parametrize.register_parametrization(net, "weight", Of(f))
        assert str(caught.value) == told


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley"])
def test_a_parametrization_may_say_that_it_has_no_right_inverse(orthogonal_map):
    net = parametrizations.orthogonal(nn.Linear(3, 3), "weight", orthogonal_map, use_trivialization=False)
    q = net.weight
    assert torch.allclose(q @ q.T, torch.eye(3), atol=1e-5)
    with pytest.raises(NotImplementedError, match="matrix exponential or the Cayley"):
        net.weight = torch.eye(3)
    parametrize.register_parametrization(net, "bias", nn.Identity())
    again = parametrizations.orthogonal(net, "weight", orthogonal_map, use_trivialization=False)
    assert again.weight.shape == (3, 3)
