"""Versions that new tensors begin with, at the first call as at those that were learned; and those of tensors that somebody knows already."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau._core.engine import beginnings

CALLS = {
    "index_add": lambda x, at: x.index_add(0, at, fb.ones(2, 4, device=x.device)),
    "index_copy": lambda x, at: x.index_copy(0, at, fb.ones(2, 4, device=x.device)),
    "index_fill": lambda x, at: x.index_fill(0, at, 2.0), "index_put": lambda x, at: x.index_put((at,), fb.ones(4, device=x.device)),
    "put": lambda x, at: x.put(at, fb.ones(2, device=x.device)), "diagonal_scatter": lambda x, at: fb.diagonal_scatter(x, fb.ones(3, device=x.device)),
    "select_scatter": lambda x, at: fb.select_scatter(x, fb.ones(4, device=x.device), 0, 0),
    "slice_scatter": lambda x, at: fb.slice_scatter(x, fb.ones(2, 4, device=x.device), 0, 0, 2),
    "as_strided_scatter": lambda x, at: fb.as_strided_scatter(x, fb.ones(2, device=x.device), (2,), (1,)),
    "block_diag": lambda x, at: fb.block_diag(x, x), "fill": lambda x, at: fb.fill(x, 2.0)}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_result_begins_at_version_0(name, device):
    at, call = fb.tensor([0, 2]).to(device), CALLS[name]
    for k in range(5):  # the first ones are the body's
        x = fb.arange(12.0).reshape(3, 4).to(device)
        assert call(x, at)._version == 0 and x._version == 0, k
        x.requires_grad_()
        made = call(x, at)
        assert made._version == 0, k
        (made * made).sum().backward()
        assert x.grad is not None
        made.detach().add_(1)
        assert made._version == 1


def test_each_of_several_results_begins_at_version_0(device):
    x, of = fb.tensor([1, 1, 2, 5, 5], device=device), fb.ones(3, device=device, requires_grad=True)
    for k in range(5):
        assert [t._version for t in fb.unique_consecutive(x, return_inverse=True, return_counts=True)] == [0, 0, 0], k
        assert [t._version for t in fb.unique(x, return_counts=True)] == [0, 0], k
        assert fb._sample_dirichlet(of)._version == fb._sample_dirichlet(of.detach())._version == 0, k  # its node holds it


def test_results_that_somebody_holds_keep_their_versions():
    tensors = [fb.ones(3).add_(1), fb.ones(3).add_(1)]
    held = tuple(tensors)
    beginnings.all_begin(held)
    assert [t._version for t in held] == [1, 1]
    del tensors
    others = held
    beginnings.all_begin(held)
    assert [t._version for t in others] == [1, 1]
    del others
    x, y = fb.ones(3), fb.ones(3)
    fb._foreach_add_([x, y], 1)
    assert x._version == y._version == 1


def test_what_somebody_holds_keeps_its_version():
    x, out = fb.ones(3), fb.empty(3, 4)
    at = fb.tensor([0])
    assert x.index_fill_(0, at, 2.0)._version == 1 and x.index_fill_(0, at, 3.0)._version == 2 and fb.ones(3).index_fill_(0, at, 3.0)._version == 1
    fb.index_add(fb.ones(3, 4), 0, at, fb.ones(1, 4), out=out)
    assert out._version == 1
    assert x.contiguous()._version == x.reshape(3, 1)._version == x.to(fb.float32)._version == 2
    values = fb.sparse_coo_tensor(fb.tensor([[0, 1]]), fb.ones(2), (3,)).coalesce()
    values.values().mul_(3)
    assert values.values()._version == 1


def test_a_gradient_that_saves_a_result_sees_writes_to_it():
    """The version that a node saved is that of memory which the node holds: it never begins anew."""
    x = fb.ones(3, requires_grad=True)
    for _ in range(5):
        made = (x * 2).index_fill(0, fb.tensor([0]), 2.0)
        squared = made * made
        made.detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            squared.sum().backward()


def test_who_holds_it_counts():
    def made() -> fb.Tensor:
        return fb.ones(2).add_(1)

    def version(keep) -> int:
        t = made()
        kept = keep(t)
        beginnings.begins(t)
        assert kept is None or np.all(t.numpy() == 2)
        return t._version
    assert version(lambda t: None) == 0
    assert [version(keep) for keep in (lambda t: t, lambda t: t.store, lambda t: t[:1], lambda t: t.detach(), lambda t: [t])] == [1] * 5
