"""Which callees a run knows, and which end its learning."""

from __future__ import annotations

import math
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.compile.reads import Run

TABLE = {"a": 1.0}


def inner(x: Any, by: float = 2.0) -> Any:
    return x * by


class Called:
    def __call__(self, x: Any) -> Any:
        return inner(x, by=3.0)


CALLED = Called()
HALF = partial(inner, by=0.5)


@pytest.mark.parametrize("f", [
    lambda x: inner(x),
    lambda x: CALLED(x),
    lambda x: x.mul(math.sqrt(4.0)) + max(1, 2) + len([1, 2]),
    lambda x: x * TABLE.get("a", 2.0) + TABLE.get("b", 0.5),
    lambda x: sum(t * 2 for t in (x, x)),
    lambda x: x * isinstance(x, torch.Tensor),
    lambda x: x * getattr(TABLE, "nothing", 4.0),
    lambda x: max(x.shape[0], len(x)) + x,
    lambda x: partial(inner, x, by=4.0)() + HALF(x),
], ids=range(9))
def test_what_is_known(f: Any) -> None:
    x = torch.ones(3)
    run = Run([x])
    with run:
        made = run.callee(f)(x)
    assert run.why is None
    assert torch.equal(made, f(x))


@pytest.mark.parametrize(("f", "why"), [
    (lambda x: itemgetter(0)([x]), "itemgetter"),
    (lambda x: print(end="") or x, "print"),
    (lambda x: TABLE.popitem() and TABLE.update(a=1.0) or x, "dict.popitem"),
    (lambda x: x * id([1]) * 0, "id of"),
    (lambda x: max(x.sum(), x[0], x[1]) * min([x[0], x[1]]), "max on objects"),
    (lambda x: x.requires_grad_() if False else torch.set_num_threads(torch.get_num_threads()) or x, "threads"),
], ids=range(6))
def test_what_ends_it(f: Any, why: str) -> None:
    x = torch.ones(3)
    run = Run([x])
    with run:
        made = run.callee(f)(x)
    assert why in str(run.why)
    assert torch.equal(made, f(x))
