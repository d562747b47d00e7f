"""Wrapped modules: the same gradients, names of state as before, forward passes run again."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1))


@pytest.mark.parametrize("wrap", [checkpoint_wrapper, lambda m: checkpoint_wrapper(m, CheckpointImpl.REENTRANT), offload_wrapper])
def test_gradients_and_names_are_those_of_the_module(wrap, device: str) -> None:
    plain, wrapped, calls = net().to(device), net().to(device), []
    wrapped[1][0].register_forward_hook(lambda *a: calls.append(1))
    wrapped[1] = wrap(wrapped[1])
    x = torch.ones(2, 3, device=device, requires_grad=True)
    plain(x).sum().backward()
    wrapped(x).sum().backward()
    assert len(calls) == (1 if wrap is offload_wrapper else 2)
    for (name, p), q in zip(plain.named_parameters(), wrapped.parameters()):
        assert torch.allclose(p.grad, q.grad), name
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    wrapped.load_state_dict({k: v * 0 for k, v in plain.state_dict().items()})
    assert wrapped[1][0].weight.abs().max() == 0 and dict(wrapped[1].named_parameters()).keys() == dict(plain[1].named_parameters()).keys()


def test_submodules_are_chosen() -> None:
    model = net()
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Linear))
    assert [isinstance(m, CheckpointWrapper) for m in model] == [True, False, True] and isinstance(model[1][0], CheckpointWrapper)
    model(torch.ones(2, 3)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
