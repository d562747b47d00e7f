"""Which tensors every operation in place may write while gradients are recorded: leaves, views of them, views of several, what was made under no_grad."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau
from tests._core.engine.public_operations import ops_lines, ops_timing, ops_values


def _both(lib: Any, v: Any, leaf: bool) -> Any:
    """A base with v in its first row: a leaf, or something computed."""
    b = lib.stack([v, v])
    if not (v.is_floating_point() or v.is_complex()):
        return b
    b.requires_grad_()
    return b if leaf else b * 1


def _unrecorded(lib: Any, b: Any) -> Any:
    with lib.no_grad():
        return b[0]


def _of_inference(lib: Any, v: Any) -> Any:
    with lib.inference_mode():
        return v.clone()


def _later(lib: Any, v: Any) -> Any:
    b = lib.stack([v, v])
    row = b[0]
    if v.is_floating_point() or v.is_complex():
        b.requires_grad_()
    return row


STATES: dict[str, Callable[[Any, Any], Any]] = {
    "leaf": lambda lib, v: v.clone().requires_grad_() if v.is_floating_point() or v.is_complex() else v.clone(),
    "view of a leaf": lambda lib, v: _both(lib, v, True)[0], "view": lambda lib, v: _both(lib, v, False)[0],
    "one of several views": lambda lib, v: _both(lib, v, False).unbind()[0],
    "view under no_grad": lambda lib, v: _unrecorded(lib, _both(lib, v, False)),
    "view of a leaf under no_grad": lambda lib, v: _unrecorded(lib, _both(lib, v, True)),
    "detached": lambda lib, v: _both(lib, v, False)[0].detach(), "of inference": _of_inference, "view of what became a leaf": _later,
}
OTHERWISE = {  # name: the states, and why
    **dict.fromkeys((f"Tensor.logical_{n}_" for n in ("and", "or", "xor", "not")), (
        {"view of what became a leaf", "one of several views", "view under no_grad", "view of a leaf under no_grad"},
        "PyTorch records none of them, and leaves a gradient that is not that of the new value")),
    "Tensor.share_memory_": (set(STATES), "a view's base would stay behind, which is told"),
    "Tensor.set_": ({"of inference"}, "it writes no memory"),
    **dict.fromkeys(("Tensor.resize_", "Tensor.resize_as_"), ({"view of what became a leaf"}, "such a view requires no grad here")),
}


def _tried(lib: Any, line: Any, state: str) -> str:
    values = ops_values.Values(lib)
    given = {n: values[n] for n in ops_timing.used(line)}
    for n in ops_timing.written(line):
        given[n] = STATES[state](lib, given[n])
    try:
        eval(ops_timing.compiled(line)[0], {"call": ops_lines.find(lib, line.path) if line.path else None, "torch": lib, **given})
    except Exception as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("state", STATES)
def test_every_operation_in_place(state: str) -> None:
    lines = [line for line in ops_lines.all_lines(flambeau, torch)[0] if ops_timing.written(line)]
    tried, wrong = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in lines:
            states, _ = OTHERWISE.get(line.name, ((), ""))
            if state in states or not all(isinstance(ops_values.Values(flambeau)[n], flambeau.Tensor) for n in ops_timing.written(line)):
                continue
            theirs, ours = _tried(torch, line, state), _tried(flambeau, line, state)
            tried += 1
            if theirs != ours:
                wrong.append((line.name, theirs, ours))
    assert tried > 150 and not wrong, wrong
