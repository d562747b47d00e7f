"""Numbers before the tensors they scale: the deprecated order that old scripts use."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import flambeau as fb

X, Y, Z, M, B = fb.ones(3), fb.full((3,), 2.0), fb.full((3,), 3.0), fb.ones(3, 3), fb.ones(2, 3, 3)
CALLS = {
    "add": (lambda: (X.add(2, Y), fb.add(X, 2, Y), X.clone().add_(2, Y)), lambda: fb.add(X, Y, alpha=2)),
    "sub": (lambda: (X.sub(2, Y), fb.sub(X, 2, Y), X.clone().sub_(2, Y)), lambda: fb.sub(X, Y, alpha=2)),
    "addcmul": (lambda: (X.addcmul(2, Y, Z), fb.addcmul(X, 2, Y, Z), X.clone().addcmul_(2, Y, Z)), lambda: fb.addcmul(X, Y, Z, value=2)),
    "addcdiv": (lambda: (X.addcdiv(2, Y, Z), fb.addcdiv(X, 2, Y, Z), X.clone().addcdiv_(2, Y, Z)), lambda: fb.addcdiv(X, Y, Z, value=2)),
    "addmm": (lambda: (M.addmm(2, M, M), fb.addmm(2, M, M, M), M.clone().addmm_(2, M, M)), lambda: fb.addmm(M, M, M, beta=2)),
    "addmm twice": (lambda: (M.addmm(2, 3, M, M), fb.addmm(2, M, 3, M, M)), lambda: fb.addmm(M, M, M, beta=2, alpha=3)),
    "addmv": (lambda: (X.addmv(2, M, Y), fb.addmv(2, X, M, Y)), lambda: fb.addmv(X, M, Y, beta=2)),
    "addr": (lambda: (M.addr(2, Y, Z), fb.addr(2, M, Y, Z)), lambda: fb.addr(M, Y, Z, beta=2)),
    "baddbmm": (lambda: (B.baddbmm(2, B, B), fb.baddbmm(2, B, 3, B, B)), lambda: fb.baddbmm(B, B, B, beta=2)),
    "addbmm": (lambda: (M.addbmm(2, B, B), fb.addbmm(2, M, B, B)), lambda: fb.addbmm(M, B, B, beta=2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_old_order_gives_the_same_and_warns(name) -> None:
    old, new = CALLS[name]
    with pytest.warns(UserWarning, match="deprecated"):
        got = old()
    for i, t in enumerate(got):
        wanted = fb.baddbmm(B, B, B, beta=2, alpha=3) if name == "baddbmm" and i else new()
        np.testing.assert_array_equal(t.numpy(), wanted.numpy())


@pytest.mark.parametrize("call", [
    lambda: X.add(Y, Z), lambda: X.add(1, 2), lambda: fb.add(X, 2, Y, Z), lambda: X.addcmul(1, 2, Y, Z), lambda: fb.addmm(M, M, M, 2, 3, 4),
    lambda: X.mul(2, Y)])
def test_what_is_no_such_call_is_still_an_error(call) -> None:
    with pytest.raises(TypeError):
        call()


def test_signatures_do_not_show_it() -> None:
    assert list(inspect.signature(fb.add).parameters) == ["input", "other", "alpha", "out"]
    assert list(inspect.signature(fb.addmm).parameters) == ["input", "mat1", "mat2", "beta", "alpha", "out"]


def test_steps_of_old_optimizers() -> None:
    p, g = fb.ones(3), fb.full((3,), 0.5)
    average, square = fb.zeros(3), fb.zeros(3)
    with pytest.warns(UserWarning, match="deprecated"):
        average.mul_(0.9).add_(1 - 0.9, g)
        square.mul_(0.999).addcmul_(1 - 0.999, g, g)
        p.addcdiv_(-0.1, average, square.sqrt().add_(1e-8))
    np.testing.assert_allclose(p.numpy(), 1 - 0.1 * 0.05 / (np.sqrt(0.001 * 0.25) + 1e-8), rtol=1e-4)
    assert fb.randint_like(p, high=5).shape == (3,) and int(fb.randint(high=5, size=(9,)).max()) < 5
    assert fb.arange(3).type(fb.Tensor).dtype is fb.float32


def test_an_optimizer_around_another_that_never_called_init() -> None:
    class Around(fb.optim.Optimizer):
        def __init__(self, inner) -> None:
            self.optimizer, self.param_groups = inner, inner.param_groups

        def step(self, closure=None):
            return self.optimizer.step(closure)

    w = fb.ones(2, requires_grad=True)
    around = Around(fb.optim.SGD([w], lr=0.5))
    w.sum().backward()
    around.step()
    assert w.tolist() == [0.5, 0.5]
