"""What a compiled function is called with, taken apart."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.compile import compiled
from flambeau._core.compile.given import Given, apart, countable, holds

X, Y = torch.ones(3), torch.arange(4.0)
Pair = namedtuple("Pair", "a b")


@dataclass
class Batch:
    words: torch.Tensor
    length: int = 3


@pytest.mark.parametrize("given, found", [
    ([X, Y], True), ((X, 1), True), (Pair(X, Y), True), ({"x": X, 1: Y}, True), (OrderedDict(x=X), True), (UserDict(x=X), True), (Batch(X), True),
    ({"deep": [(X,)]}, True),
    ([1, 2], False), ({}, False), ("text", False), (X, False), (Batch, False), ({(1, 2): X}, False), ([[[[[[X]]]]]], False), ([X] * 65, False),
    ([torch.nn.Parameter(X.clone())], False), ({"x": X, "w": torch.ones(2, requires_grad=True)}, False),
], ids=lambda x: type(x).__name__)
def test_what_is_a_container_of_tensors(given: Any, found: bool) -> None:
    assert holds(given) is found


def test_tensors_and_values_stand_in_order() -> None:
    batch = {"x": X, "n": 2, "pair": (Y, "name")}
    given = Given((batch, 5), {"scale": 0.5})
    assert [t is x for t, x in zip(given.tensors, (X, Y), strict=True)] == [True, True]
    assert given.values == [2, "name", 5, 0.5] and given.containers == [batch, batch["pair"]]
    assert given.fit


def test_calls_of_one_kind_have_one_key() -> None:
    def key(*args: Any, free: Any = (), **kwargs: Any) -> Any:
        return Given(args, kwargs).key(free)
    assert key({"x": X, "n": 2}) == key({"x": torch.zeros(3), "n": 2})
    others = [({"x": Y, "n": 2},), ({"x": X, "n": 3},), ({"x": X, "n": 2.0},), ({"x": X, "n": True},), ({"n": 2, "x": X},), ({"x": X},),
              (OrderedDict(x=X, n=2),), ({"x": X.double(), "n": 2},), ({"x": X, "n": 2}, None), ({"x": X.clone().requires_grad_() * 1, "n": 2},)]
    keys = [key(*args) for args in others]
    assert key({"x": X, "n": 2}) not in keys and all(a != b for i, a in enumerate(keys) for b in keys[:i])
    assert key(X, 2) != key(X, 3) and key(X, 2, free=(0,)) == key(X, 3, free=(0,)) != key(X, 3.0, free=(0,))
    assert key(X, n=2) != key(X, 2)


def test_memory_that_two_share_or_that_is_anothers_is_told() -> None:
    assert apart([X, Y]) and not apart([X, X.view(3, 1)])
    assert not apart([torch.from_numpy(np.ones(3))])
    shared = [X]
    assert not Given((shared, shared), {}).fit and not Given((X, X), {}).fit


def test_numbers_that_may_be_others() -> None:
    assert all(countable(x) for x in (3, -3, 0.5, float("nan")))
    assert not any(countable(x) for x in (True, 2**70, None, "3", np.float64(1.0)))


def of_batch(batch: Any) -> Any:
    return batch["a"] * 2 + batch["b"]


def test_batches_of_other_makes_are_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "pays", lambda *times: True)  # however fast Python is here
    f = torch.compile(of_batch)
    for k in range(40):
        for batch in ({"a": X * k, "b": X}, {"b": X, "a": X * k}, OrderedDict(a=X * k, b=X), {"a": X * k, "b": X, "c": k}, {"a": X * k, "b": 1.5}):
            assert f(batch).equal(of_batch(batch))
    assert f.__compiled__.records
    with pytest.raises(KeyError):
        f({"a": X})


@pytest.mark.usefixtures("always_kept")
def test_tensors_of_inference_mode_are_a_kind_of_their_own() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        x.add_(1)
        return y
    compiled = torch.compile(f)
    for _ in range(6):
        compiled(torch.ones(3))
    with torch.inference_mode():
        x = torch.ones(3)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        compiled(x)
    assert compiled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
