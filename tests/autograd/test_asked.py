"""Small questions and switches of `torch.autograd`."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.autograd import Function, Variable, asked


def test_callbacks_run_at_the_end_of_the_pass_and_may_add_others():
    seen = []

    def second():
        seen.append("second")

    class Asking(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            Variable._execution_engine.queue_callback(lambda: (seen.append("first"), Variable._execution_engine.queue_callback(second)))
            seen.append("step")
            return g

    x = torch.ones(2, requires_grad=True)
    Asking.apply(x * 2).sum().backward()
    assert seen == ["step", "first", "second"] and x.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="during backward pass"):
        Variable._execution_engine.queue_callback(second)


def test_shapes_of_batches_of_gradients():
    out, grad = torch.randn(10, 5, requires_grad=True), torch.randn(5, 10)
    assert asked._calculate_shape(out, grad, False) == ((10, 5), (5, 10)) and asked._calculate_shape(out, grad, True) == ((10, 5), (10,))
    x = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="interpret the first dimension"):
        torch.autograd.grad(x * 2, x, torch.ones(2), is_grads_batched=True)
    (g,) = torch.autograd.grad(x * 2, x, torch.ones(3, 2, 2), is_grads_batched=True)
    assert g.shape == (3, 2, 2)


def test_switches_are_remembered():
    assert asked.is_multithreading_enabled() and not torch.autograd.kineto_available()
    with torch.autograd.set_multithreading_enabled(False):
        assert not asked.is_multithreading_enabled()
    assert asked.is_multithreading_enabled()


def test_gradcheck_perturbs_inputs_that_require_grad():
    def hooked(x, y):
        x.register_hook(lambda g: g)
        return x * y

    assert torch.autograd.gradcheck(hooked, (torch.rand(3, dtype=torch.float64, requires_grad=True), torch.rand(3, dtype=torch.float64, requires_grad=True)))


def test_whether_a_checkpoint_may_run():
    seen = []

    class Asking(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            seen.append(torch.autograd._is_checkpoint_valid())
            return g
    x = torch.ones(1, requires_grad=True)
    Asking.apply(x).backward()
    torch.autograd.grad(Asking.apply(x), x)
    Asking.apply(x).backward(inputs=[x])
    assert torch.autograd._is_checkpoint_valid() and seen == [True, False, False]
