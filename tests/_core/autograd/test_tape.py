"""The tape: accumulation, freed graphs, versions, views written in place, hooks, gradients of gradients."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import flambeau as fb
from flambeau import autograd
from flambeau._core.autograd import tape
from flambeau._core.runtime import dispatch


def leaf(*values, **kw):
    return fb.tensor(values if len(values) > 1 else values[0], dtype=fb.float64, requires_grad=True, **kw)


def ones(*shape):
    return fb.ones(*shape, dtype=fb.float64)


def test_gradients_accumulate_in_the_same_tensor():
    x = leaf([1.0, 2.0])
    (x * x).backward(ones(2))
    first = x.grad
    (x * 3).backward(ones(2))
    assert x.grad is first
    np.testing.assert_array_equal(x.grad.numpy(), [5.0, 7.0])


def test_a_shared_gradient_is_not_shared_by_leaves():
    x, y = leaf([1.0]), leaf([2.0])
    (x + y).backward(ones(1))
    x.grad.mul_(5)
    assert y.grad.tolist() == [1.0]


def test_a_given_gradient_is_not_taken_over():
    x, g = leaf([1.0, 1.0]), ones(2)
    (x + 0.0).backward(g)
    x.grad.zero_()
    assert g.tolist() == [1.0, 1.0]


def test_a_leaf_borrows_the_memory_of_a_view_of_the_gradient():
    x, g, others = fb.ones(2, 3, requires_grad=True), fb.rand(6), set(tape.lent)  # of tests before, whose gradients still live
    before = g.clone()
    x.view(6).backward(g)
    first = x.grad
    assert first.data_ptr() == g.data_ptr() and first._base is None and first.is_contiguous()
    x.view(6).backward(g)  # accumulated elsewhere: what was given stays
    assert fb.equal(g, before) and fb.equal(first.view(6), before) and fb.equal(x.grad.view(6), 2 * before)
    x.grad = first = None
    x.t().backward(g.view(3, 2))  # another layout than the leaf's
    assert x.grad.data_ptr() != g.data_ptr() and fb.equal(x.grad, before.view(3, 2).t())
    x.grad = None
    x.view(6).backward(g)
    assert x.grad.data_ptr() == g.data_ptr() and not tape.lent.keys() - {id(g.store)} - others


def test_leaves_do_not_borrow_the_same_memory():
    x, y, g = fb.ones(2, 3, requires_grad=True), fb.ones(2, 3, requires_grad=True), fb.rand(6)
    (x.view(6) + y.view(6)).backward(g)
    assert len({x.grad.data_ptr(), y.grad.data_ptr()}) == 2
    x.grad = y.grad = None
    x.view(6).backward(g)
    y.view(6).backward(g)
    assert x.grad.data_ptr() == g.data_ptr() != y.grad.data_ptr()


def test_leaves_borrow_parts_of_the_same_memory():
    x, y, g = fb.ones(2, 3, requires_grad=True), fb.ones(2, 3, requires_grad=True), fb.rand(4, 3)
    fb.cat((x, y)).backward(g)
    assert (x.grad.data_ptr(), y.grad.data_ptr()) == (g.data_ptr(), g[2:].data_ptr())


def test_a_gradient_that_the_program_holds_is_copied():
    x, seen = fb.ones(2, 3, requires_grad=True), []
    y = x * 1
    y.register_hook(lambda g: seen.append(g))
    y.view(6).backward(fb.rand(6))
    assert x.grad.data_ptr() != seen[0].data_ptr() and fb.equal(x.grad, seen[0])


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create", [False, True])
def test_a_gradient_lies_as_its_leaf(create):
    """Where the leaf fills its block of memory; else row by row.  It is taken over where it lies so, else copied."""
    last, rows = fb.rand(4, 3, 2, 5).to(memory_format=fb.channels_last), fb.rand(4, 3, 2, 5)
    for leaf in (last, rows, fb.rand(5, 2, 3, 4).permute(3, 2, 1, 0)):
        for g in (last, rows, fb.ones(()).expand(4, 3, 2, 5)):
            x = leaf.detach().requires_grad_()
            (x * 1).backward(g, create_graph=create)
            assert x.grad.stride() == x.stride() and fb.equal(x.grad.detach(), g) and x.grad.data_ptr() != g.data_ptr()
    x = fb.rand(8, 3, 2, 5)[::2].requires_grad_()
    (x * 1).backward(last, create_graph=create)
    assert x.grad.is_contiguous()


def test_a_gradient_that_lies_as_its_leaf_is_taken_over():
    x, seen = fb.rand(4, 3, 2, 5).to(memory_format=fb.channels_last).requires_grad_(), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.data_ptr()))
    y.mul(1).backward(fb.rand(4, 3, 2, 5).to(memory_format=fb.channels_last))
    x.data = x.data.contiguous()  # what counts is how the tensor lies when its gradient comes
    x.grad = None
    (x * 2).backward(fb.rand(4, 3, 2, 5).to(memory_format=fb.channels_last))
    assert len(seen) == 1 and x.grad.is_contiguous()


def test_second_backward_needs_a_retained_graph():
    x = leaf([2.0])
    y = x * x
    y.backward(ones(1), retain_graph=True)
    y.backward(ones(1))
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward(ones(1))


def test_a_graph_that_saves_nothing_may_run_again():
    x = leaf([2.0])
    y = x + 1.0
    y.backward(ones(1))
    y.backward(ones(1))
    assert x.grad.tolist() == [2.0]


def test_changing_a_saved_tensor_in_place_is_an_error():
    x = leaf([2.0])
    y = x * 1.0
    z = y * y
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward(ones(1))


def test_in_place_on_an_output_that_was_saved_works_where_only_the_output_is_needed():
    x = leaf([0.5, -1.0])
    y = (x * 2.0).tanh_()
    y.backward(ones(2))
    np.testing.assert_allclose(x.grad.numpy(), 2 * (1 - np.tanh([1.0, -2.0]) ** 2))


def test_leaves_and_their_views_may_not_be_written():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        x.narrow(0, 0, 1).add_(1.0)
    with autograd.no_grad():
        x.add_(1.0)
    assert x.tolist() == [2.0, 3.0]


def test_writing_through_a_view_reaches_the_base_and_its_other_views():
    base = fb.zeros(2, 2, dtype=fb.float64)
    row, column = base.select(0, 0), base.select(1, 1)
    w = leaf([3.0, 4.0])
    row.copy_(w * 2.0)
    assert base.requires_grad and column.requires_grad
    assert base.tolist() == [[6.0, 8.0], [0.0, 0.0]]
    column.backward(fb.tensor([10.0, 100.0], dtype=fb.float64))
    assert w.grad.tolist() == [0.0, 20.0]


def test_a_view_write_replaces_only_its_part():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 1.0
    y.narrow(0, 1, 1).mul_(5.0)
    y.backward(ones(3))
    assert x.grad.tolist() == [1.0, 5.0, 1.0]


def test_fill_cuts_the_history_of_its_part():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2.0
    y.select(0, 0).zero_()
    y.backward(ones(3))
    assert x.grad.tolist() == [0.0, 2.0, 2.0]


def test_hooks_see_and_replace_gradients():
    x = leaf([1.0])
    y = x * 3.0
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    x.register_hook(lambda g: g + 1)
    y.backward(ones(1), retain_graph=True)
    assert seen == [[1.0]] and x.grad.tolist() == [31.0]
    handle.remove()
    y.backward(ones(1))
    assert x.grad.tolist() == [35.0]


def test_retain_grad_and_post_accumulate_hooks():
    x = leaf([2.0])
    y = x * x
    y.retain_grad()
    done = []
    x.register_post_accumulate_grad_hook(lambda t: done.append(t.grad.tolist()))
    (y * 2.0).backward(ones(1))
    assert y.grad.tolist() == [2.0] and done == [[8.0]]


def test_a_leaf_that_nobody_holds_has_its_hooks():
    seen = []

    def made(data=None):
        x = leaf([2.0, 3.0])
        x.register_post_accumulate_grad_hook(lambda t: seen.append((t.tolist(), t.grad.tolist(), t.requires_grad, t.is_leaf)))
        if data is not None:
            x.data = data
        return x * x

    made().backward(ones(2))
    assert seen == [([2.0, 3.0], [4.0, 6.0], True, True)]
    made(ones(2) * 5).backward(ones(2))
    assert seen[1] == ([5.0, 5.0], [10.0, 10.0], True, True)
    x = leaf([1.0])
    held = weakref.ref(x)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t is held()))
    (x * 2).backward(ones(1))
    node = x.node
    del x
    assert seen[2] is True and held() is None and node is not None  # the hooks hold no tensor


def test_grad_leaves_leaves_alone_and_names_unused_inputs():
    x, z = leaf([2.0]), leaf([1.0])
    y = x * x
    (g,) = autograd.grad(y, x, ones(1), retain_graph=True)
    assert g.tolist() == [4.0] and x.grad is None
    with pytest.raises(RuntimeError, match="not have been used"):
        autograd.grad(y, (x, z), ones(1), retain_graph=True)
    g, none = autograd.grad(y, (x, z), ones(1), retain_graph=True, allow_unused=True)
    assert none is None
    g, zero = autograd.grad(y, (x, z), ones(1), materialize_grads=True)
    assert zero.tolist() == [0.0]


def test_gradient_of_an_interior_tensor():
    x = leaf([3.0])
    y = x * x
    z = y * y
    gy, gx = autograd.grad(z, (y, x), ones(1))
    assert gy.tolist() == [18.0] and gx.tolist() == [108.0]


def test_third_derivative():
    x = leaf([2.0])
    y = x.sin()
    for want in (np.cos(2.0), -np.sin(2.0), -np.cos(2.0)):
        (y,) = autograd.grad(y, x, ones(1), create_graph=True)
        np.testing.assert_allclose(y.detach().numpy(), [want])


def test_inputs_argument_accumulates_in_those_only():
    x, y = leaf([1.0]), leaf([2.0])
    (x * y).backward(ones(1), inputs=[x])
    assert x.grad.tolist() == [2.0] and y.grad is None


def test_backward_without_gradient_needs_a_scalar():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        fb.ones(()).backward()


def test_a_long_chain_runs_and_is_freed_without_recursion():
    x = leaf([1.0])
    y = x
    for _ in range(20000):
        y = y * 1.0
    y.backward(ones(1))
    assert x.grad.tolist() == [1.0]
    y = x
    for _ in range(20000):
        y = y.exp()
    del y
    gc.collect()


def test_modes():
    x = leaf([1.0])
    with fb.no_grad():
        assert not (x * 2).requires_grad
        with fb.enable_grad():
            assert (x * 2).requires_grad
    with fb.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @fb.no_grad()
    def f():
        return x * 2

    @fb.no_grad()
    def steps():
        yield x * 2
    assert not f().requires_grad and not next(steps()).requires_grad
    with fb.inference_mode():
        assert fb.is_inference_mode_enabled() and not (x * 2).requires_grad


def test_grad_mode_belongs_to_its_thread():
    seen = []
    with fb.no_grad():
        t = threading.Thread(target=lambda: seen.append(fb.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_threads_accumulate_into_one_leaf():
    x = leaf([1.0])
    lock = threading.Lock()

    def work():
        for _ in range(50):
            y = x * 2.0
            with lock:
                y.backward(ones(1))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert x.grad.tolist() == [400.0]


class Cube(autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * x * (3.0 * ctx.scale), None


def test_function_and_its_second_derivative():
    x = leaf([2.0])
    y = Cube.apply(x, 2.0)
    (g,) = autograd.grad(y, x, ones(1), create_graph=True)
    assert g.tolist() == [24.0]
    (gg,) = autograd.grad(g, x, ones(1))
    assert gg.tolist() == [24.0]
    assert "Cube" in repr(y.grad_fn)


def test_function_with_a_wrong_number_of_gradients_says_so():
    class Bad(autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g
    with pytest.raises(RuntimeError, match=r"expected 2, got 1"):
        Bad.apply(leaf([1.0]), leaf([1.0])).backward(ones(1))


def test_anomaly_names_the_forward_line():
    with autograd.detect_anomaly():
        x = leaf([0.0])
        y = x.sqrt()
        with pytest.raises(RuntimeError, match=r"nan.*test_tape\.py") as caught:
            (y * 0.0).backward(ones(1))
    assert "y = x.sqrt()" in str(caught.value)


def test_requires_grad_rules():
    with pytest.raises(RuntimeError, match="floating point"):
        fb.tensor([1]).requires_grad_()
    x = leaf([1.0])
    y = x * 2
    with pytest.raises(RuntimeError, match="leaf variables"):
        y.requires_grad_(False)
    assert y.detach().requires_grad is False and y.detach().data_ptr() == y.data_ptr()
    assert x.is_leaf and not y.is_leaf and y.detach().is_leaf


def test_a_gradient_with_a_graph_is_memory_of_its_own() -> None:
    w = fb.randn(3, 2, requires_grad=True)
    x = fb.randn(2, 5, requires_grad=True)
    (w @ x).pow(2).sum().backward(create_graph=True)
    first = w.grad
    assert first.requires_grad and not first._is_view() and first.is_contiguous()
    second = fb.autograd.grad(first.pow(2).sum(), x, retain_graph=True)[0]
    for p in (w, x):
        p.grad.detach_()
        p.grad.zero_()
    assert not w.grad.requires_grad and not w.grad.any() and bool(second.any())
    v = fb.ones(4, requires_grad=True)
    v.view(2, 2).sum().backward(create_graph=True)
    v.grad.detach_().add_(1)
    assert v.grad.tolist() == [2, 2, 2, 2]


def test_gradients_that_nobody_asked_for_are_not_computed():
    x, w, b = (t.requires_grad_() for t in (fb.randn(2, 8, 30, 30), fb.randn(8, 8, 3, 3), fb.randn(8)))
    y = fb.nn.functional.conv2d(x, w, b, padding=1)
    y.sum().backward(retain_graph=True)
    wanted = x.grad, w.grad, b.grad

    def kinds(*inputs):
        seen = []
        with dispatch.observe(launches=lambda device, stream, prepared, args: seen.append(prepared.name)):
            found = fb.autograd.grad(y, inputs, fb.ones_like(y), retain_graph=True)
        return found, [name for name in seen if name.startswith("convolution")]
    for inputs, want, names in (((x,), wanted[:1], ["convolution_float32"]), ((w,), wanted[1:2], ["convolution_weights_float32"]), ((b,), wanted[2:], []),
                                ((x, w), wanted[:2], ["convolution_float32", "convolution_weights_float32"])):
        found, launched = kinds(*inputs)
        assert launched == names
        assert all(fb.equal(f, g) for f, g in zip(found, want, strict=True))
    # what is recorded may be differentiated in any of them
    (gx,) = fb.autograd.grad(y, x, fb.ones_like(y), create_graph=True)
    assert fb.autograd.grad(gx.square().sum(), w)[0].abs().sum() > 0


def test_nodes_are_made_in_one_place() -> None:
    """How a node is laid out stands in `tape` alone: nobody else counts it, or writes its list."""
    package = Path(fb.__file__).parent
    made = [str(file.relative_to(package)) for file in sorted(package.rglob("*.py")) if re.search(r"\[(tape\.)?next_seq\(\)", file.read_text(encoding="utf-8"))]
    assert made == ["_core/autograd/tape.py"]
    numbered = re.compile(r"\b(node|edge|grad_fn)\[[0-5]\]")
    read = {str(file.relative_to(package)) for file in package.rglob("*.py")
            if "kernels" not in file.parts and numbered.search(file.read_text(encoding="utf-8"))}
    assert read == {"_core/autograd/tape.py"}
