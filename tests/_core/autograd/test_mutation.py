"""Writing to what operations keep for their gradients: copied before the first write, once, and only then."""

from __future__ import annotations

import pytest

import flambeau as fb

allow = fb.autograd.graph.allow_mutation_on_saved_tensors


def test_written_blocks_end_and_are_not_nested():
    allow = fb.autograd.graph.allow_mutation_on_saved_tensors
    a = fb.rand(2, 3, requires_grad=True)
    with allow():
        b = a.clone()
        out = (b ** 2).sum()
        b.sin_()
        out.backward()
        assert fb.allclose(a.grad, 2 * a)
        with pytest.raises(RuntimeError, match="cannot be nested"), allow():
            pass
        late = (a ** 2).sum()
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        late.backward()
    with allow(), pytest.raises(AssertionError, match="outside"):
        late.backward()


def test_copies_are_made_once_before_a_write_and_go_with_the_nodes():
    with allow() as kept:
        a = fb.rand(2, 3, requires_grad=True).clone()
        b, c = a ** 2, a ** 2
        assert (len(kept.tid_to_weakhandle), len(kept.cloned)) == (1, 0)
        a.sin_()
        d = a ** 2
        assert len(kept.cloned) == 1
        a *= 2
        assert len(kept.cloned) == 2
        del b, c
        assert len(kept.cloned) == 1
        d.sum().backward()
        assert not len(kept.cloned) and not len(kept.tid_to_weakhandle)


@pytest.mark.parametrize("write", [
    lambda t: t.mul_(3), lambda t: t[:1].zero_(), lambda t: t.__setitem__(0, 5.0), lambda t: fb.sin(fb.ones(3), out=t),
    lambda t: fb.nn.functional.relu(t, inplace=True), lambda t: fb._foreach_mul_([t], 2.0), lambda t: t.copy_(fb.ones(3)),
], ids=["method", "view", "item", "out", "flag", "foreach", "copy"])
def test_writes_of_all_kinds_are_seen(write):
    x = fb.ones(3, requires_grad=True)
    with allow() as kept:
        w = fb.full((3,), -2.0)
        y = (x * w).sum()
        write(w)
        assert len(kept.cloned) == 1
        y.backward()
    assert x.grad.tolist() == [-2, -2, -2]


def test_gradients_of_gradients_after_a_write():
    with allow():
        a = fb.rand(3, requires_grad=True)
        b = a.clone()
        y = (b ** 3).sum()
        b.zero_()
        (g,) = fb.autograd.grad(y, a, create_graph=True)
        (h,) = fb.autograd.grad(g.sum(), a)
    assert fb.allclose(h, 6 * a)
