"""Parameters and buffers whose shape is not known yet."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as torch
from flambeau.nn.parameter import UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin, is_lazy


@pytest.mark.parametrize("kind,then", [(UninitializedParameter, torch.nn.Parameter), (UninitializedBuffer, torch.Tensor)])
def test_a_shape_comes_later(kind, then) -> None:
    x = kind(dtype=torch.float64)
    assert isinstance(x, UninitializedTensorMixin) and is_lazy(x) and x.cls_to_become is then
    for ask in (lambda: x.shape, lambda: x.share_memory_()):
        with pytest.raises(RuntimeError, match="uninitialized parameter or buffer"):
            ask()
    assert x.requires_grad is (kind is UninitializedParameter)
    assert repr(x) == f"<{kind.__name__}>"
    x.materialize((2, 3))
    assert type(x) is then and x.shape == (2, 3) and x.dtype is torch.float64 and not is_lazy(x)


def test_a_copy_has_no_shape_either() -> None:
    x = UninitializedParameter(requires_grad=False)
    assert is_lazy(copy.deepcopy(x)) and not copy.deepcopy(x).requires_grad


def test_a_module_accepts_being_compiled() -> None:
    net = torch.nn.Linear(2, 1)
    before = net(torch.ones(1, 2))
    net.compile(mode="reduce-overhead")
    assert torch.equal(net(torch.ones(1, 2)), before)


@pytest.mark.parametrize("kind", [UninitializedParameter, UninitializedBuffer])
def test_there_is_nothing_to_compute_with_yet(kind) -> None:
    x = kind()
    for ask in (lambda: x + 1, lambda: 1 + x, lambda: torch.empty_like(x), lambda: torch.cat([x]), lambda: x.clone(), lambda: x.numel(), lambda: x[0]):
        with pytest.raises(ValueError, match="uninitialized parameter"):
            ask()
    assert x.dtype is torch.float32 and x.grad is None and x.is_leaf and not x.is_complex() and x.is_floating_point() and x.size() == (0,)
    assert is_lazy(pickle.loads(pickle.dumps(x))) and is_lazy(copy.deepcopy(x))
    x.materialize((2,))
    assert (x.detach().fill_(1) + 1).tolist() == [2, 2] and x.meta.plain
