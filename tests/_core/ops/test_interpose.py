"""Onlookers see every call of an operation, and nothing is left behind when they go."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import relu
from flambeau._core.ops import interpose, table


def outermost(seen: list[str]) -> Any:
    """A hook that notes the calls the program makes, not those operations make of each other."""
    depth = [0]

    def hook(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not depth[0]:
            seen.append(name)
        depth[0] += 1
        try:
            return function(*args, **kwargs)
        finally:
            depth[0] -= 1
    return hook


def test_functions_methods_operators_and_in_place_forms_are_seen_by_one_name() -> None:
    seen: list[str] = []
    with interpose.wrap(outermost(seen)):
        x = torch.ones(2, 2)
        y = x + 1
        y = 2 * y
        y = relu(y)
        y = torch.relu(y)
        y = F.relu(y)
        y = y.relu()
        y += 1
        y = torch.subtract(y, 1)
        y = y @ x
        y = 1 / y
        y = y[0]
        y[1] = 5
        assert y.sum().item() == pytest.approx(5 + 1 / 8)
        torch.linalg.norm(y)
    assert seen == ["ones", "add", "mul", "relu", "relu", "relu", "relu", "add_", "sub", "matmul", "div", "index", "index_put_",
                    "sum", "item", "norm"]


def everything() -> dict[Any, int]:
    places: dict[Any, int] = {(row.name, k): id(f) for row in table.TABLE.values() for k, f in enumerate((row.function, row.inplace))}
    places.update({("Tensor", n): id(v) for n, v in torch.Tensor.__dict__.items()})
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "flambeau":
            places.update({(name, n): id(v) for n, v in vars(module).items() if isinstance(v, types.FunctionType)})
    return places


def test_everything_is_put_back() -> None:
    F.celu(torch.ones(1))
    before = everything()
    first = interpose.wrap(lambda name, function, args, kwargs: function(*args, **kwargs))
    second = interpose.wrap(outermost([]))
    assert torch.relu is relu and everything() != before  # this module's own name is one of the places
    first.close()
    assert everything() != before  # somebody still looks on
    second.close()
    second.close()
    assert {k: v for k, v in everything().items() if k in before} == before


def test_a_name_loaded_meanwhile_is_put_back_too() -> None:
    vars(F).pop("softsign", None)
    with interpose.wrap(outermost([])):
        inside = F.softsign
    assert F.softsign is not inside and F.softsign is inside.__wrapped__
    assert float(inside(torch.ones(1))[0]) == 0.5  # one that was kept still works


def test_a_hook_may_change_the_result_and_hooks_nest() -> None:
    order: list[str] = []

    def named(tag: str) -> Any:
        def hook(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            order.append(tag)
            return function(*args, **kwargs)
        return hook
    with interpose.wrap(named("inner")), interpose.wrap(named("outer")):
        x = torch.ones(2)
    assert order[:2] == ["outer", "inner"]
    assert np.array_equal(x.numpy(), [1, 1])


def test_errors_pass_through_and_threads_are_seen() -> None:
    seen: list[str] = []
    with interpose.wrap(outermost(seen)):
        with pytest.raises(RuntimeError):
            torch.ones(2) @ torch.ones(3)
        t = threading.Thread(target=lambda: torch.zeros(3))
        t.start()
        t.join()
    assert seen[0] == "ones" and seen[-1] == "zeros"


def test_readable_names() -> None:
    for name, plain in (("__add__", "add"), ("__radd__", "add"), ("__iadd__", "add_"), ("__rtruediv__", "div"), ("__eq__", "eq"),
                        ("__rpow__", "pow"), ("__imod__", "remainder_"), ("__invert__", "bitwise_not"), ("relu", "relu"),
                        ("__getitem__", "index"), ("__rand__", "bitwise_and"), ("__repr__", "print"), ("__bool__", "bool")):
        assert interpose.readable(name) == plain
