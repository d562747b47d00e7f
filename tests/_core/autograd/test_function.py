"""User-written functions: contexts, saved tensors, dirty and non-differentiable results, several forms, errors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import flambeau as fb
from flambeau._core.autograd.function import once_differentiable
from flambeau.autograd import Function, gradcheck, gradgradcheck


def leaf(*values):
    return fb.tensor(values, dtype=fb.float64, requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


class Exp(Function):
    """Saves its own output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0] * g


class Split(Function):
    """The form with setup_context, several inputs and outputs, and an argument that is no tensor."""

    @staticmethod
    def forward(x, y, k):
        return x * y, x + k * y, k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, g, h, nothing):
        x, y = ctx.saved_tensors
        return g * y + h, g * x + ctx.k * h, None


@pytest.mark.parametrize("function", [Cube.apply, Exp.apply, lambda x: Split.apply(x, x.flip(0), 3.0)[:2]])
def test_first_and_second_derivatives(function):
    x = leaf(0.5, -1.5, 2.0)
    assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))


def test_arguments_and_results_that_are_no_tensors_pass_through():
    x, y = leaf(1.0), leaf(2.0)
    a, b, k = Split.apply(x, y, 3)
    assert k == 3 and a.requires_grad and b.requires_grad and a.grad_fn.name() == "SplitBackward"
    (a + b).sum().backward()
    assert x.grad.item() == 3 and y.grad.item() == 4


def test_what_backward_is_told():
    seen = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, a, b, c):
            seen.append(ctx.needs_input_grad)
            assert not fb.is_grad_enabled()
            return a + b, a * 2

        @staticmethod
        def backward(ctx, g, h):
            seen.append((g is None, h is None, None if h is None else h.tolist(), fb.is_grad_enabled()))
            return g, g, None
    a, b = leaf(1.0), fb.ones(1, dtype=fb.float64)
    out, _ = Watch.apply(a, b, 3)
    out.backward()
    assert seen == [(True, False, False), (False, False, [0.0], False)] and a.grad.item() == 1
    seen.clear()
    fb.autograd.grad(Watch.apply(a, b, 3)[0], a, create_graph=True)
    assert seen[1][3] is True  # recorded, so that it can be differentiated


def test_gradients_are_not_made_up_when_not_wanted():
    class Raw(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, g, h):
            assert h is None
            return g
    x = leaf(1.0)
    Raw.apply(x)[0].backward()
    assert x.grad.item() == 1


def test_results_without_gradient():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            values, at = x.sort()
            rounded = values.round()
            ctx.mark_non_differentiable(at, rounded)
            ctx.save_for_backward(at)
            return values, at, rounded

        @staticmethod
        def backward(ctx, g, nothing, none):
            (at,) = ctx.saved_tensors
            return fb.zeros_like(g).scatter(0, at, g)
    x = leaf(3.0, 1.0, 2.0)
    values, at, rounded = Sort.apply(x)
    assert values.requires_grad and not at.requires_grad and not rounded.requires_grad
    (values * fb.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100, 1, 10]


def test_inputs_changed_in_place_are_marked():
    class Double_(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2
    x = leaf(1.0, 2.0)
    y = x * 3
    z = Double_.apply(y)
    assert z is y and y.tolist() == [6, 12] and y._version == 1
    z.sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_an_input_returned_as_it_is_becomes_a_result_of_its_own():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5
    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr()
    y.backward()
    assert x.grad.item() == 5


def test_saved_tensors_are_checked_and_freed():
    x = leaf(2.0)
    y = x * 1
    z = Cube.apply(y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    z = Cube.apply(x)
    z.backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()
    with pytest.raises(TypeError, match="save_for_backward can only save"):
        class Wrong(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(3)
                return x
        Wrong.apply(x)


def test_none_may_be_saved():
    class Maybe(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            assert w is None and x.item() == 1
            return g * 2, None
    x = leaf(1.0)
    Maybe.apply(x, None).backward()
    assert x.grad.item() == 2


def test_a_backward_that_may_run_once_only():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            assert not fb.is_grad_enabled()
            return 2 * ctx.saved_tensors[0] * g
    x = leaf(3.0)
    Once.apply(x).backward()
    assert x.grad.item() == 6
    (g,) = fb.autograd.grad(Once.apply(x) * x, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_wrong_functions_say_what_is_missing():
    class Empty(Function):
        pass
    with pytest.raises(NotImplementedError, match="forward function"):
        Empty.apply(leaf(1.0))

    class Half(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y
    with pytest.raises(NotImplementedError, match="backward or vjp"):
        Half.apply(leaf(1.0), leaf(1.0)).backward()

    class Few(Half):
        @staticmethod
        def backward(ctx, g):
            return g
    with pytest.raises(RuntimeError, match=r"FewBackward returned an incorrect number of gradients \(expected 2, got 1\)"):
        Few.apply(leaf(1.0), leaf(1.0)).backward()

    class More(Half):
        @staticmethod
        def backward(ctx, g):
            return g, g, None, None  # too many, but nothing lost
    x = leaf(1.0)
    More.apply(x, leaf(2.0)).backward()
    assert x.grad.item() == 1


def test_nothing_is_recorded_where_nothing_needs_it():
    x = fb.ones(2, dtype=fb.float64)
    assert not Cube.apply(x).requires_grad
    with fb.no_grad():
        assert not Cube.apply(leaf(1.0)).requires_grad


@pytest.mark.parametrize("function", [Cube, Exp])
def test_a_dropped_graph_frees_what_was_saved(function):
    x = leaf(*range(100))
    y = function.apply(x * 1)
    kept = weakref.ref(y.untyped_storage()._storage)
    del y
    gc.collect()
    assert kept() is None


def test_on_every_device(device):
    x = fb.tensor([1.0, 2.0], dtype=fb.float64).to(device).requires_grad_()
    Cube.apply(x).sum().backward()
    assert str(x.grad.device) == device
    np.testing.assert_array_equal(x.grad.cpu().numpy(), [3, 12])


class Twice(fb.autograd.Function):
    @staticmethod
    def forward(ctx, x, note=None):
        ctx.note = note
        ctx.save_for_backward(x, None)
        return x * 2, x.detach() + 1, "text"

    @staticmethod
    def backward(ctx, g, h, text):
        assert text is None and (ctx.materialized is None or h.tolist() == [0, 0])
        return g * 2, None


def test_the_node_of_a_call_has_what_its_context_has():
    x = fb.ones(2, requires_grad=True)
    y, _, _ = Twice.apply(x, "kept")
    node = y.grad_fn
    assert type(node) is Twice._backward_cls and type(node).__name__ == "TwiceBackward" and isinstance(node, fb.autograd.function.BackwardCFunction)
    assert node.note == "kept" and node.saved_tensors[0] is x and node.saved_tensors[1] is None and node.needs_input_grad == (True, False)
    node.materialized = True
    given = []
    node._raw_saved_tensors[0].register_hooks(lambda t: given.append(t.shape) or t, lambda t: t)
    with pytest.raises(RuntimeError, match="already been set"):
        node._raw_saved_tensors[0].register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="None is forbidden"):
        node._raw_saved_tensors[1].register_hooks(lambda t: t, lambda t: t)
    for wrong in ((lambda t: t,), (1, 1)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            node._raw_saved_tensors[0].register_hooks(*wrong)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and node.note == "kept" and given == [fb.Size([2])]
    for ask in ("saved_tensors", "_raw_saved_tensors"):
        with pytest.raises(RuntimeError, match="already been freed"):
            getattr(node, ask)
    with pytest.raises(AttributeError):
        node.nothing_of_that_name  # noqa: B018


def test_hooks_of_a_call_see_all_its_results():
    x = fb.ones(2, requires_grad=True)
    y, _, _ = Twice.apply(x)
    y.grad_fn.materialized = None
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 5, *gs[1:]) if len(gs) == 3 else None)
    y.sum().backward()
    assert x.grad.tolist() == [10, 10]


def test_results_that_are_not_differentiable_get_zeros():
    class Two(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x + 1, x + 2
            ctx.mark_non_differentiable(a)
            return a, b

        @staticmethod
        def backward(ctx, ga, gb):
            assert ga.tolist() == [0, 0]
            return gb
    x = fb.ones(2, requires_grad=True)
    Two.apply(x)[1].sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_what_a_call_marks_dirty_must_be_its_operands_and_results():
    def function(write):
        class Writes(fb.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                return write(ctx, a, b)

            @staticmethod
            def backward(ctx, *gs):
                return gs[0], gs[0]
        return Writes

    def not_returned(ctx, a, b):
        a.add_(b)
        ctx.mark_dirty(a)
        return a.clone()

    def no_operand(ctx, a, b):
        c = a * 3
        ctx.mark_dirty(c)
        return c

    def several(ctx, a, b):
        a.add_(b)
        ctx.mark_dirty(a)
        return a, a + b
    a, b = (fb.ones(2, requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="were not returned as output"):
        function(not_returned).apply(a.clone(), b)
    with pytest.warns(UserWarning, match="Only input Tensors"):
        function(no_operand).apply(a.clone(), b)
    with pytest.raises(RuntimeError, match="cannot return more than one Tensor"):
        function(several).apply(a.clone().view_as(a), b)


def test_the_older_name_of_saved_tensors():
    class Old(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_variables[0]
    x = fb.ones(2, requires_grad=True)
    with pytest.warns(DeprecationWarning, match="saved_variables"):
        Old.apply(x).sum().backward()
    assert hasattr(Old, "vmap") and x.grad.tolist() == [2, 2]


def test_functions_without_a_rule_for_batches_run_on_them():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    class Ruled(Square):
        @staticmethod
        def vmap(info, in_dims, x):
            return x + info.batch_size, in_dims[0]
    x = fb.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert fb.func.vmap(Square.apply)(x).tolist() == [[1, 4], [9, 16]]
    assert fb.func.vmap(fb.func.grad(lambda t: Square.apply(t).sum()))(x).tolist() == [[2, 4], [6, 8]]
    assert fb.func.vmap(Ruled.apply)(x).tolist() == [[3, 4], [5, 6]]
