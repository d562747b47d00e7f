"""Onlookers see every call of an operation, and nothing is left behind when they go."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import relu
from flambeau._core.engine import interpreters


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
    with interpreters.watch(outermost(seen)):
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


def test_a_function_kept_in_a_list_is_seen_and_stays_the_same_object() -> None:
    kept, called = [torch.relu, F.celu, torch.Tensor.exp], [torch.relu, torch.Tensor.exp]
    x = torch.ones(2)
    for f in called:
        f(x)
    seen: list[str] = []
    first = interpreters.watch(lambda name, function, args, kwargs: function(*args, **kwargs))
    second = interpreters.watch(outermost(seen))
    try:
        for f in kept:
            f(x)
        first.close()
        kept[0](x)
    finally:
        second.close()
        second.close()
    assert seen == ["relu", "celu", "exp", "relu"]
    for f in kept:
        f(x)
    assert len(seen) == 4 and torch.relu is relu is kept[0] and F.celu is kept[1]
    assert all(f.__operation__.own for f in kept)


def test_a_name_loaded_meanwhile_is_seen_and_then_no_more() -> None:
    vars(F).pop("softsign", None)
    seen: list[str] = []
    x = torch.ones(1)
    with interpreters.watch(outermost(seen)):
        inside = F.softsign
        inside(x)
    assert seen == ["softsign"] and F.softsign is inside
    assert float(inside(x)[0]) == 0.5 and len(seen) == 1


def test_an_interpreter_sees_what_it_wants_to() -> None:
    class Sines(interpreters.Interpreter):
        def __init__(self) -> None:
            self.seen: list[tuple[str, Any, Any]] = []

        def sees(self, operation: Any) -> bool:
            return bool(operation.name == "sin")

        def call(self, operation: Any, function: Any, args: Any, kwargs: Any) -> Any:
            self.seen.append((operation.name, args, kwargs))
            return function(*args, **kwargs)
    x, sines = torch.ones(2), Sines()
    torch.sin(x), torch.cos(x)
    interpreters.push(sines)
    try:
        torch.sin(x), torch.cos(x), torch.sin(input=x)
        assert torch.cos.__operation__.own and not torch.sin.__operation__.own
    finally:
        interpreters.pop(sines)
    assert [s[0] for s in sines.seen] == ["sin", "sin"] and sines.seen[0][1][0] is x and sines.seen[1][2] == {"input": x}


def test_a_hook_may_change_the_result_and_hooks_nest() -> None:
    order: list[str] = []

    def named(tag: str) -> Any:
        def hook(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            order.append(tag)
            return function(*args, **kwargs)
        return hook
    with interpreters.watch(named("inner")), interpreters.watch(named("outer")):
        x = torch.ones(2)
    assert order[:2] == ["outer", "inner"]
    assert np.array_equal(x.numpy(), [1, 1])


def test_errors_pass_through_and_threads_are_seen() -> None:
    seen: list[str] = []
    with interpreters.watch(outermost(seen)):
        with pytest.raises(RuntimeError):
            torch.ones(2) @ torch.ones(3)
        t = threading.Thread(target=lambda: torch.zeros(3))
        t.start()
        t.join()
    assert seen[0] == "ones" and seen[-1] == "zeros"


def test_leaving_costs_nothing_and_the_next_call_puts_its_own_code_back() -> None:
    x = torch.ones(2)
    functions = [torch.exp, torch.sin, torch.Tensor.cos]
    for f in functions:
        f(x)
    operations = [f.__operation__ for f in functions]
    assert all(o.own for o in operations)
    seen: list[str] = []
    for _ in range(3):
        with interpreters.watch(lambda name, f, args, kwargs: (seen.append(name), f(*args, **kwargs))[1]):
            assert not any(o.own for o in operations)
            torch.exp(x)
        assert not any(o.own for o in operations)  # nothing was done by leaving
        torch.exp(x)
        assert [o.own for o in operations] == [True, False, False]
    assert seen == ["exp"] * 3
    torch.sin(x), x.cos()
    assert all(o.own for o in operations) and seen == ["exp"] * 3


def test_threads_call_while_modes_come_and_go() -> None:
    x = torch.ones(4)
    ends, wrong = threading.Event(), []

    def work() -> None:
        while not ends.is_set():
            if (x + x).sum().item() != 8.0:
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    seen = 0
    try:
        for _ in range(50):
            found: list[str] = []
            with interpreters.watch(lambda name, f, args, kwargs, found=found: (found.append(name), f(*args, **kwargs))[1]):
                torch.add(x, x)
            seen += "add" in found
    finally:
        ends.set()
        for t in threads:
            t.join()
    assert not wrong and seen == 50
