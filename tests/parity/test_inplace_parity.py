"""Recorded writes in place: results, histories, gradients and errors, at the first call and when there is a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import flambeau

CALLS: dict[str, Any] = {
    **{f"{n}_": lambda t, o, y, n=n: getattr(o, f"{n}_")(y) for n in ("eq", "ne", "lt", "le", "gt", "ge", "mul", "add", "sub", "div", "atan2", "remainder")},
    "add_ with alpha": lambda t, o, y: o.add_(y, alpha=2),
    "mul_ by whole numbers": lambda t, o, y: o.mul_(t.tensor([[2, 3], [4, 5]])),
    "pow_": lambda t, o, y: o.pow_(2),
    "exp_": lambda t, o, y: o.exp_(),
    "sin_ of a transposed one": lambda t, o, y: o.t().sin_(),
    "mul_ after t_": lambda t, o, y: o.t_().mul_(y),
    "squeeze_": lambda t, o, y: o.unsqueeze_(0).squeeze_(0),
    "squeeze_ of an axis of two": lambda t, o, y: o.squeeze_(0),
    "transpose_": lambda t, o, y: o.transpose_(0, 1),
    "swapaxes_": lambda t, o, y: o.swapaxes_(0, 1),
    "swapdims_": lambda t, o, y: o.swapdims_(0, 1),
    "t_": lambda t, o, y: o.t_(),
    "as_strided_": lambda t, o, y: o.as_strided_((2,), (1,), 1),
}


def _same(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.detach().tolist(), theirs.detach().tolist(), rtol=1e-6)
    assert tuple(ours.shape) == tuple(theirs.shape) and tuple(ours.stride()) == tuple(theirs.stride())


@pytest.mark.parametrize("name", CALLS)
def test_recorded_calls_are_pytorchs_each_time(name: str) -> None:
    for times in range(4):
        found: list[Any] = []
        for t in (flambeau, torch):
            x = t.tensor([[0.5, 1.5], [2.5, 3.5]], requires_grad=True)
            y = t.tensor([[1.5, 1.5], [0.5, 2.0]], requires_grad=times % 2 == 0)
            o = x * 1
            made = CALLS[name](t, o, y)
            assert (made is o) == ("of a transposed one" not in name) and o._version > 0 and o.requires_grad
            (o * o).sum().backward()
            found.append((t, made, o, x.grad, y.grad))
        (_, made, o, x, y), (_, their_made, their_o, their_x, their_y) = found
        _same(made, their_made)
        _same(o, their_o)
        _same(x, their_x)
        assert (y is None) == (their_y is None)
        if y is not None:
            np.testing.assert_allclose(y.tolist(), their_y.tolist(), rtol=1e-6)
        if name[-1] == "_" and name not in ("squeeze_",):
            assert o.grad_fn.name()[:-1] == their_o.grad_fn.name()[:-1].replace("TBackward", "TransposeBackward")


@pytest.mark.parametrize("name", CALLS)
def test_leaves_and_views_of_them_are_refused(name: str) -> None:
    for t in (flambeau, torch):
        y = t.tensor([[1.5, 1.5], [0.5, 2.0]])
        for _ in range(2):
            x = t.tensor([[0.5, 1.5], [2.5, 3.5]], requires_grad=True)
            with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
                CALLS[name](t, x, y)
            with pytest.raises(RuntimeError, match="leaf"):
                CALLS[name](t, x.view(2, 2), y)
            CALLS[name](t, x.detach().clone(), y)
            CALLS[name](t, x * 1, y)  # which leaves a plan


def test_truths_have_no_history() -> None:
    for t in (flambeau, torch):
        y = t.tensor([0.0, 1.0], requires_grad=True)
        for _ in range(3):
            truths = t.tensor([True, True])
            assert truths.logical_xor_(y).tolist() == [True, False] and not truths.requires_grad
