"""PyTorch's own samples of its operators through `compile`: what a replay gives is what the function gives, with other values of the same layouts too."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import flambeau as fb
from flambeau._core.compile import compiled

from .test_forward_ad_parity import OWN, mine, resolve, translated

MOST = 3  # samples of an operator
_CALLS = 6
UNWRITTEN = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}  # what they give has no values
CASES = [op for op in op_db if op.name not in UNWRITTEN and op.formatted_name not in UNWRITTEN]


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could be kept is, however long it takes."""
    monkeypatch.setattr(compiled, "pays", lambda *times: True)
    monkeypatch.setattr(compiled, "_TIMED", 1)
    monkeypatch.setattr(compiled, "AFTER", 1)


def bits(x: Any) -> Any:
    """All that is seen of what an operation gives."""
    if isinstance(x, fb.Tensor):
        if x.layout != fb.strided:
            return str(x)
        y = x.detach().resolve_conj().resolve_neg()
        y = y.float() if y.dtype == fb.bfloat16 else y
        return x.shape, x.stride(), str(x.dtype), x.requires_grad, y.numpy().tobytes()
    if isinstance(x, (tuple, list)):
        return [type(x).__name__, *map(bits, x)]
    return repr(x)


def given(sample: Any, grad: bool) -> tuple[Any, Any]:
    def made(t: torch.Tensor) -> Any:
        m = mine(t)
        return m.requires_grad_() if grad and t.requires_grad and m.is_floating_point() else m
    return translated((sample.input, *sample.args), made), translated(sample.kwargs, made)


def told(f: Any, args: Any, kwargs: Any) -> Any:
    """What a call gives, leaves in its arguments, and raises; with gradients where some are asked for."""
    fb.manual_seed(3)
    try:
        y = f(*args, **kwargs)
        found = [bits(y)]
        sums = [t.sum() for t in flat(y) if t.requires_grad and t.is_floating_point() and t.layout == fb.strided]
        if sums:
            fb.autograd.backward(sums)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return type(error).__name__, str(error)
    leaves = flat((args, kwargs))
    return *found, [bits(t) for t in leaves], [bits(t.grad) for t in leaves], fb.get_rng_state().sum().item()


def flat(x: Any) -> list[Any]:
    found: list[Any] = []

    def add(y: Any) -> None:
        if isinstance(y, fb.Tensor):
            found.append(y)
        elif isinstance(y, (tuple, list)):
            for part in y:
                add(part)
        elif isinstance(y, dict):
            for part in y.values():
                add(part)
    add(x)
    return found


def replays(op: Any, dtype: Any, grad: bool, most: int | None) -> int:
    """How many samples were replayed; raises where one differs from Python's call."""
    ours, done = OWN.get(op.name) or resolve(op.name), 0
    if ours is None:
        return 0
    if not isinstance(ours, type(resolve)):  # a property, or a builtin
        def ours(*args: Any, f: Any = ours, **kwargs: Any) -> Any:
            return f(*args, **kwargs)
    samples = []
    for seed in (0, 1):  # the same layouts, other values
        torch.manual_seed(seed)
        np.random.seed(seed)
        samples.append(list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), most)))
    for one, other in zip(*samples, strict=False):
        f = fb.compile(ours)
        for k in range(_CALLS):
            sample = other if k % 2 else one
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    pair = [given(sample, grad) for _ in range(2)]
                except (TypeError, AttributeError):
                    break
                wanted = told(ours, *pair[0])
                if not k:  # the first call of a layout writes where later ones allocate: both are made once more
                    continue
                found = told(f, *pair[1])
            if found != wanted:
                raise AssertionError(f"{op.formatted_name}: call {k} of {str(sample)[:500]}: {str(found)[:300]} where Python's gives {str(wanted)[:300]}")
        state = f.__dict__.get("__compiled__")
        done += bool(state is not None and state.records)
    return done


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.formatted_name)
def test_samples(op: Any) -> None:
    dtype = next((t for t in (torch.float32, torch.int64, torch.complex64, torch.bool) if t in op.supported_dtypes("cpu")), None)
    if dtype is None:
        pytest.skip("no type of ours")
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    try:
        replays(op, dtype, grad, MOST)
    except (TypeError, AttributeError) as error:
        pytest.skip(str(error)[:80])
