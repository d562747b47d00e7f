"""Functions of functions, nested in each other and in ordinary passes; ensembles; parameters given from outside."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import func, nn


def t(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


def test_gradients_nest() -> None:
    f = torch.sin
    x = torch.tensor(0.3, dtype=torch.float64)
    assert float(func.grad(f)(x)) == pytest.approx(np.cos(0.3))
    assert float(func.grad(func.grad(f))(x)) == pytest.approx(-np.sin(0.3))
    third = func.grad(func.grad(func.grad(f)))(x)
    assert float(third) == pytest.approx(-np.cos(0.3)) and not third.requires_grad and not x.requires_grad


def test_arguments_to_differentiate_in() -> None:
    def f(a, b, scale=1.0):
        return ((a["w"] * b).sum() * scale), {"seen": b * 2}
    a, b = {"w": t(3)}, t(3, seed=1)
    found, aux = func.grad(f, has_aux=True)(a, b, scale=3.0)
    np.testing.assert_allclose(found["w"].numpy(), 3 * b.numpy())
    np.testing.assert_allclose(aux["seen"].numpy(), 2 * b.numpy())
    both, (value, _) = func.grad_and_value(f, argnums=(0, 1), has_aux=True)(a, b)
    np.testing.assert_allclose(both[1].numpy(), a["w"].numpy())
    assert float(value) == pytest.approx(float((a["w"] * b).sum()))
    with pytest.raises(RuntimeError, match="argnum=2"):
        func.grad(lambda x: x.sum(), argnums=2)(b)
    with pytest.raises(RuntimeError, match="scalar tensor"):
        func.grad(lambda x: x)(b)


def test_within_ordinary_passes() -> None:
    w = torch.tensor(2.0, requires_grad=True)
    x = torch.tensor(3.0)
    slope = func.grad(lambda v: w * v ** 2)(x)
    slope.backward()
    assert float(slope) == 12.0 and float(w.grad) == 6.0
    with torch.no_grad():
        assert float(func.grad(lambda v: v ** 2)(x)) == 6.0
    p = torch.tensor(1.5, requires_grad=True)
    func.grad(lambda v: v ** 3)(p).backward()
    assert float(p.grad) == 9.0


def test_jacobians() -> None:
    a = t(4, 3)

    def f(x):
        return (a @ x).tanh()
    x = t(3, seed=2)
    want = (1 - np.tanh(a.numpy() @ x.numpy()) ** 2)[:, None] * a.numpy()
    np.testing.assert_allclose(func.jacrev(f)(x).numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(func.jacfwd(f)(x).numpy(), want, rtol=1e-12)
    q = a.T @ a
    np.testing.assert_allclose(func.hessian(lambda z: 0.5 * z @ q @ z)(x).numpy(), q.numpy(), rtol=1e-12)
    pair = func.jacrev(lambda u, v: u * v, argnums=(0, 1))(x, x)
    np.testing.assert_allclose(pair[0].numpy(), np.diag(x.numpy()))
    y, push = func.jvp(f, (x,), (x,))
    np.testing.assert_allclose(push.numpy(), want @ x.numpy(), rtol=1e-12)
    out, back = func.vjp(f, x)
    np.testing.assert_allclose(back(torch.ones_like(out))[0].numpy(), want.sum(0), rtol=1e-12)
    np.testing.assert_allclose(func.linearize(f, x)[1](x).numpy(), want @ x.numpy(), rtol=1e-12)


def test_vmap_maps_and_stacks() -> None:
    x, y = t(5, 3), t(3, 5, seed=1)
    np.testing.assert_allclose(torch.vmap(torch.dot, in_dims=(0, 1))(x, y).numpy(), (x.numpy() * y.numpy().T).sum(-1))
    assert func.vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x)[0].shape == (3, 5)
    assert func.vmap(lambda a, s: a * s, in_dims=(0, None))(x, 2.0).shape == (5, 3)
    np.testing.assert_allclose(func.vmap(lambda d: d["a"] + d["b"])({"a": x, "b": x}).numpy(), 2 * x.numpy())
    np.testing.assert_allclose(func.vmap(lambda d: d["a"] + d["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": x[0]}).numpy(), (x + x[0]).numpy())
    np.testing.assert_allclose(func.vmap(func.vmap(lambda a: a * 2))(x).numpy(), 2 * x.numpy())


def test_vmap_of_gradients_gives_one_each() -> None:
    w, xs, ys = t(3), t(6, 3, seed=1), t(6, seed=2)

    def loss(w, x, y):
        return ((w * x).sum() - y) ** 2
    each = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(w, xs, ys)
    want = 2 * (xs @ w - ys)[:, None] * xs
    np.testing.assert_allclose(each.numpy(), want.numpy(), rtol=1e-12)


def test_vmap_says_what_is_wrong() -> None:
    x = t(5, 3)
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        func.vmap(torch.add)(x, x.T)
    with pytest.raises(ValueError, match="dimensionality"):
        func.vmap(lambda a: a, in_dims=2)(x)
    with pytest.raises(ValueError, match="non-Tensor"):
        func.vmap(lambda a, b: a, in_dims=(0, 1))(x, 2.0)
    with pytest.raises(ValueError, match="no inputs"):
        func.vmap(lambda: 1)()
    with pytest.raises(ValueError, match="only return Tensors"):
        func.vmap(lambda a: 3)(x)
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(lambda a: a + torch.rand(3))(x)
    same = func.vmap(lambda a: torch.rand(3), randomness="same")(x)
    assert torch.equal(same[0], same[4])
    different = func.vmap(lambda a: torch.rand(3), randomness="different")(x)
    assert not torch.equal(different[0], different[1])


def test_a_module_with_other_parameters() -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    x = torch.randn(4, 2)
    given = {k: v.detach().clone() for k, v in m.named_parameters()}
    m.eval()
    np.testing.assert_allclose(func.functional_call(m, given, x).detach().numpy(), m(x).detach().numpy())
    zeros = {k: torch.zeros_like(v) for k, v in given.items()}
    before = m(x)
    assert float(func.functional_call(m, zeros, (x,)).abs().sum()) == 0
    assert torch.equal(m(x), before)
    grads = func.grad(lambda p: func.functional_call(m, p, (x,)).sum())(given)
    m(x).sum().backward()
    for k, p in m.named_parameters():
        np.testing.assert_allclose(grads[k].numpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="Unexpected key.*nothing"):
        func.functional_call(m, {**given, "nothing": x}, x, strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        func.functional_call(m, (given, given), x)


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))
    m = Tied()
    x, eye = torch.randn(3, 2), 2 * torch.eye(2)
    assert torch.equal(func.functional_call(m, {"a.weight": eye}, x), 4 * x)
    with pytest.raises(ValueError, match="tied"):
        func.functional_call(m, {"a.weight": eye, "b.weight": torch.eye(2)}, x)


def test_an_ensemble() -> None:
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = func.stack_module_state(models)
    assert params["weight"].shape == (4, 2, 3) and params["weight"].requires_grad and not buffers
    x = torch.randn(5, 3)
    out = func.vmap(lambda p, b: func.functional_call(models[0], (p, b), (x,)))(params, buffers)
    for i, m in enumerate(models):
        np.testing.assert_allclose(out[i].detach().numpy(), m(x).detach().numpy(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="same class"):
        func.stack_module_state([nn.Linear(1, 1), nn.ReLU()])


def test_what_a_call_with_other_parameters_may_name_and_change() -> None:
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.plain, self.nothing = torch.ones(1), None

        def forward(self, x):
            self.count = self.count + 1
            return x * self.plain + self.count + (0 if self.nothing is None else self.nothing)

    m, two = Counting(), torch.full((1,), 2.0)
    given = {"count": two, "plain": torch.zeros(1), "nothing": torch.full((1,), 10.0)}
    assert func.functional_call(m, given, torch.ones(1)).item() == 13
    assert given["count"].item() == 3 and two.item() == 2 and m.count.item() == 0 and m.plain.item() == 1 and m.nothing is None
    assert func.functional_call(m, {"more": two}, torch.ones(1)).item() == 2 and not hasattr(m, "more")
    assert m.count.item() == 1  # which was not given
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'more'.\n\tMissing key\(s\): 'count'."):
        func.functional_call(m, {"more": two}, torch.ones(1), strict=True)
    with pytest.raises(TypeError, match="is not an instance of torch.Tensor"):
        func.functional_call(m, {"count": 3}, torch.ones(1))
    assert m.count.item() == 1
    linear = nn.Linear(1, 1)
    linear.own = linear  # a module within itself
    assert func.functional_call(linear, {"own.weight": two[None], "bias": None}, torch.ones(1), tie_weights=False).item() == 2


def test_the_old_name_of_functional_call_warns() -> None:
    from flambeau.nn.utils import stateless
    with pytest.warns(FutureWarning, match="deprecated"):
        assert stateless.functional_call(nn.Linear(1, 1, bias=False), {"weight": torch.ones(1, 1)}, torch.ones(1)).item() == 1


def test_results_made_under_no_grad_have_no_history():
    """Also where the function closes over a parameter, as the last layer of a model whose first layers are fixed."""
    w, x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), torch.tensor([0.5, -1.0])
    with torch.no_grad():
        made, back = torch.func.vjp(lambda v: torch.tanh(w @ v), x)
        found = [made, *back(torch.ones(2)), torch.func.grad(lambda v: (w @ v).sum())(x)]
        batch = torch.func.vmap(lambda u: torch.func.vjp(lambda v: torch.tanh(w @ v), x)[1](u)[0])(torch.eye(2))
    assert not any(t.requires_grad for t in (*found, batch)) and found[-1].tolist() == [4.0, 6.0]
    made, back = torch.func.vjp(lambda v: torch.tanh(w @ v), x)
    assert made.requires_grad and back(torch.ones(2))[0].requires_grad


def test_batch_norms_without_statistics() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), nn.LayerNorm(4))
    assert func.replace_all_batch_norm_modules_(net) is net and net[1][0].running_mean is None and not list(net.buffers())
    x = t(2, 5, 3).float()
    made = func.vmap(net, randomness="error")(x)
    np.testing.assert_allclose(made.detach().numpy(), np.stack([net(each).detach().numpy() for each in x]), rtol=1e-5, atol=1e-6)
