"""Operands of several types where PyTorch asks for one: parameters of layers and norms, targets of losses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau

Call = Callable[..., Any]
# each takes the library, then the types of its operands
CALLS: dict[str, tuple[int, Call]] = {
    "linear": (3, lambda t, a, b, c: t.nn.functional.linear(t.ones(2, 3, dtype=a), t.ones(4, 3, dtype=b), t.ones(4, dtype=c))),
    "linear of a vector": (3, lambda t, a, b, c: t.nn.functional.linear(t.ones(3, dtype=a), t.ones(4, 3, dtype=b), t.ones(4, dtype=c))),
    "linear of turned rows": (1, lambda t, a: t.nn.functional.linear(t.ones(2, 3, 4, dtype=a).transpose(0, 1), t.ones(5, 4, dtype=a), t.ones(5, dtype=a))),
    "group_norm": (3, lambda t, a, b, c: t.nn.functional.group_norm(t.ones(2, 4, 3, dtype=a), 2, t.ones(4, dtype=b), t.ones(4, dtype=c))),
    "layer_norm": (3, lambda t, a, b, c: t.nn.functional.layer_norm(t.ones(2, 3, dtype=a), (3,), t.ones(3, dtype=b), t.ones(3, dtype=c))),
    "instance_norm": (3, lambda t, a, b, c: t.nn.functional.instance_norm(t.ones(2, 3, 4, dtype=a), None, None, t.ones(3, dtype=b), t.ones(3, dtype=c))),
    "batch_norm": (3, lambda t, a, b, c: t.nn.functional.batch_norm(t.ones(4, 3, dtype=a), t.zeros(3, dtype=b), t.ones(3, dtype=b), t.ones(3, dtype=c),
                                                                    t.ones(3, dtype=c), True)),
    "batch_norm by statistics": (3, lambda t, a, b, c: t.nn.functional.batch_norm(t.ones(4, 3, dtype=a), t.zeros(3, dtype=b), t.ones(3, dtype=b),
                                                                                  t.ones(3, dtype=c), t.ones(3, dtype=c))),
    "bilinear": (3, lambda t, a, b, c: t.nn.functional.bilinear(t.ones(2, 3, dtype=a), t.ones(2, 3, dtype=a), t.ones(2, 3, 3, dtype=b), t.ones(2, dtype=c))),
    "binary_cross_entropy": (3, lambda t, a, b, c: t.nn.functional.binary_cross_entropy(t.full((3,), 0.5, dtype=a), t.ones(3, dtype=b), t.ones(3, dtype=c))),
    "binary_cross_entropy_with_logits": (3, lambda t, a, b, c: t.nn.functional.binary_cross_entropy_with_logits(
        t.full((3,), 0.5, dtype=a), t.ones(3, dtype=b), t.ones(3, dtype=c))),
}
MORE = {("instance_norm", d, "float32", "float32") for d in ("float16", "bfloat16")}  # taken here as `group_norm` takes them in PyTorch
TYPES = ("float32", "float64", "float16", "bfloat16", "int32")


def _tried(lib: Any, call: Call, types: tuple[str, ...]) -> str:
    try:
        return str(call(lib, *[getattr(lib, d) for d in types]).dtype)
    except (RuntimeError, NotImplementedError):
        return "refused"


@pytest.mark.parametrize("name", CALLS)
def test_they_are_taken_or_refused_as_in_pytorch(name: str) -> None:
    count, call = CALLS[name]
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for first in TYPES[:4]:
            for second in TYPES:
                for third in TYPES:
                    types = (first, second, third)[:count]
                    theirs, ours = _tried(torch, call, types), _tried(flambeau, call, types)
                    if theirs != ours and (name, *types) not in MORE:
                        wrong.append((types, theirs, ours))
    assert not wrong, wrong


@pytest.mark.parametrize("join", ["stack", "cat", "hstack", "vstack", "dstack", "column_stack"])
@pytest.mark.parametrize("types", [("complex64", "float32"), ("float64", "float32"), ("float32", "float16"), ("int64", "float32"), ("float32", "complex64")])
def test_gradients_have_the_types_of_what_was_joined(join: str, types: tuple[str, str]) -> None:
    for _ in range(4):  # the first call, and those that know it
        found = []
        for lib in (torch, flambeau):
            a, b = lib.ones(2, dtype=getattr(lib, types[0])), lib.full((2,), 2.0, dtype=getattr(lib, types[1])).requires_grad_()
            made = getattr(lib, join)([a, b])
            g, = lib.autograd.grad(made, b, lib.full_like(made, 1 + 2j if made.is_complex() else 3))
            found.append((str(made.dtype), str(g.dtype), g.tolist()))
        assert found[0] == found[1]
