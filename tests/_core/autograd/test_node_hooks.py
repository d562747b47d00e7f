"""Hooks on nodes of the graph, and what nodes tell of themselves."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.autograd import graph


def leaf(*values: float) -> fb.Tensor:
    return fb.tensor(values, requires_grad=True)


def test_hooks_see_a_step_s_gradients_and_may_replace_them() -> None:
    for _ in range(5):  # also where the forward call is learned
        x, seen = leaf(1.0, 2.0), []
        y = x * 3
        handle = y.grad_fn.register_hook(lambda gi, go, seen=seen: seen.append((gi, go)))
        y.sum().backward(retain_graph=True)
        given, arrived = seen[0]
        assert given[0].tolist() == [3, 3] and given[1] is None and arrived[0].tolist() == [1, 1] and x.grad.tolist() == [3, 3]
        handle.remove()
        y.grad_fn.register_hook(lambda gi, go: (gi[0] * 2, *gi[1:]))
        y.grad_fn.register_prehook(lambda go: (go[0] * 10,))
        y.sum().backward()
        assert len(seen) == 1 and x.grad.tolist() == [63, 63]


def test_hooks_of_leaves_and_of_operations_with_several_results() -> None:
    x, seen = leaf(1.0, 2.0, 3.0), []
    accumulate = x.expand_as(x).grad_fn.next_functions[0][0]
    assert accumulate.name() == "AccumulateGrad"
    accumulate.register_prehook(lambda go: (go[0] * 2,))
    accumulate.register_hook(lambda gi, go: seen.append((gi, go[0].tolist(), x.grad.tolist())))
    (x * x).sum().backward()
    assert seen == [((), [4, 8, 12], [4, 8, 12])]
    x, seen = leaf(1.0, 2.0, 3.0, 4.0), []
    a, b = x.split(2)
    a.grad_fn.register_hook(lambda gi, go: seen.append(len(go)))
    (a * b).sum().backward()
    assert x.grad.tolist() == [3, 4, 1, 2] and len(seen) == 1


def test_wrong_hooks() -> None:
    y = leaf(1.0) * 2
    y.grad_fn.register_hook(lambda gi, go: ())
    with pytest.raises(RuntimeError, match="incorrect number"):
        y.backward()
    y = leaf(1.0) * 2
    with y.grad_fn.register_prehook(lambda go: ()):
        with pytest.raises(RuntimeError, match="incorrect number"):
            y.backward(retain_graph=True)
    y.backward()


def test_a_hooked_node_may_run_again_where_it_saves_nothing() -> None:
    x = leaf(1.0)
    y = x + 1
    y.grad_fn.register_hook(lambda gi, go: None)
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2]


def test_what_nodes_keep_by_pytorch_s_names() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    node = (x * w).grad_fn
    assert node._saved_self.tolist() == [1, 2] and node._saved_other.tolist() == [3, 4] and node._saved_self.requires_grad
    assert x.sin().grad_fn._saved_self.tolist() == [1, 2] and x.pow(3).grad_fn._saved_exponent == 3
    y = x.exp()
    assert fb.equal(y.grad_fn._saved_result, y) and y.grad_fn._saved_result.grad_fn == y.grad_fn
    m = leaf(1.0, 2.0, 3.0, 4.0).reshape(2, 2)
    assert fb.equal((m @ m).grad_fn._saved_mat2, m) and len((m @ m).grad_fn.saved_tensors) == 2
    assert fb.lerp(x, w, 0.5).grad_fn.name() == "LerpBackward0"
    with pytest.raises(AttributeError, match="'AddBackward0' object has no attribute '_saved_self'"):
        (x + w).grad_fn._saved_self  # noqa: B018
    node = y.grad_fn
    y.sum().backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        node._saved_result  # noqa: B018
    z = x * 1
    s = z.sin()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        s.grad_fn._saved_self  # noqa: B018


def test_places_where_gradients_arrive() -> None:
    x = leaf(1.0)
    y = x * 2
    edge = graph.get_gradient_edge(y)
    assert edge.node == y.grad_fn and edge.output_nr == 0 and graph.get_gradient_edge(x).node.name() == "AccumulateGrad"
    y.grad_fn.metadata["mine"] = 1
    assert y.grad_fn.metadata == {"mine": 1} and (y * 2).grad_fn._sequence_nr() > y.grad_fn._sequence_nr() >= 0
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(fb.ones(1))


def test_saved_tensors_that_may_be_written_to() -> None:
    x = leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors():
        y = x * 2
        z = y.sin()
        y.add_(1)
        z.sum().backward()
    assert fb.allclose(x.grad, 2 * fb.cos(2 * x.detach()))


def test_hooks_of_a_leaf_s_node_stand_behind_its_tensor_s():
    log = []

    def of_tensor(g):
        log.append("tensor")
        return g * 3

    def before(gs):
        log.append("before")
        return tuple(g * 2 for g in gs)

    def after(made, gs):
        log.append(("after", made, gs[0].item()))
    a = fb.tensor(1.0, requires_grad=True)
    b = a.clone()
    leaf = b.grad_fn.next_functions[0][0]
    leaf.register_prehook(before)
    leaf.register_hook(after)
    a.register_hook(of_tensor)
    b.backward(retain_graph=True)
    assert log == ["tensor", "before", ("after", (), 6.0)] and a.grad.item() == 6
    log.clear()
    assert fb.autograd.grad(b, a, retain_graph=True)[0].item() == 3 and log == ["tensor"]  # the leaf's node does not run
    log.clear()
    b.grad_fn.register_prehook(lambda gs: log.append("node"))
    b.backward(inputs=[b])
    assert log == ["node"] and b.grad.item() == 1 and a.grad.item() == 6
