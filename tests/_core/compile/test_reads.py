"""What a run of a function knows afterwards, and what ends its knowing."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._core.compile.reads import Run

LIST = [1.0, 2.0]


def run_of(f: Any, *args: Any) -> tuple[Run, Any]:
    run = Run([a for a in args if isinstance(a, torch.Tensor)])
    with run:
        made = run.callee(f)(*args)
    return run, made


class Point:
    def __init__(self, x: float) -> None:
        self.x = x

    @property
    def twice(self) -> float:
        return self.x * 2

    @classmethod
    def unit(cls) -> Point:
        return cls(1.0)

    def __getitem__(self, i: int) -> float:
        return self.x + i

    def __iter__(self) -> Any:
        return iter([self.x, self.twice])

    def __len__(self) -> int:
        return 2


POINT = Point(3.0)


def _knows(x: Any) -> Any:
    p = Point(2.0)
    p.x += 1
    made = [p.x, *POINT]
    made.append(POINT[1])
    made.extend(v for v in LIST if v > 1)
    d = {"a": made}
    d["b"] = [len(POINT), len(made), sum(LIST), max(1, 2), str(1) + f"{made[0]:.1f}"]
    for k, v in zip(d, [1, 2], strict=True):
        if isinstance(x, torch.Tensor) and hasattr(POINT, "x") and not hasattr(POINT, "y") and k in d and "q" not in d:
            x = x * v + getattr(POINT, "z", 4.0)
    return x, d, POINT.unit().x, x.shape[0] if x.dim() == 1 else None


def test_what_is_known() -> None:
    run, made = run_of(_knows, torch.ones(3))
    assert run.why is None
    wanted = _knows(torch.ones(3))
    assert torch.equal(made[0], wanted[0])
    assert made[1:] == wanted[1:]
    assert len(run.guards) > 10
    assert len(run.recording.launches()) == 4


class Odd:
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def __bool__(self) -> bool:
        return False

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        return 5


ODD: Any = Odd()
STEPS = iter([1, 2, 3, 4])
BITS: Any = {1, 2}


@pytest.mark.parametrize(("f", "why"), [
    (lambda x: ODD.name if False else ODD.__class__, "loads __class__ of a Odd"),
    (lambda x: 1 if ODD else 2, "tests a Odd"),
    (lambda x: {ODD: 1}, "hashes"),
    (lambda x: ODD + 1, "add on a Odd"),
    (lambda x: [s + 1 for s in STEPS], "iterates over a list_iterator"),
    (lambda x: [b + 1 for b in BITS], "looks through|iterates over a set"),
    (lambda x: LIST.append(LIST.pop()), "list.(append|pop)"),
    (lambda x: setattr(POINT, "other", 4.0), "changes a Point"),
    (lambda x: x.expand(3).contiguous().tolist(), "values"),
    (lambda x: 1 if x.expand(4).numpy()[0] > 0 else 2, "values|NumPy"),
    (lambda x: x.grad, "gradient of an argument"),
    (lambda x: torch.manual_seed(0), "calls"),
    (lambda x: torch.tensor([1.0]).add_(x).numpy(), "NumPy"),
    (lambda x: x._version, "looks at _version"),
    (lambda x: sorted([ODD, ODD], key=id), "sorted"),
])
def test_what_ends_it(f: Any, why: str) -> None:
    global STEPS
    STEPS = iter([1, 2])
    run, made = run_of(f, torch.ones(1))
    assert run.why is not None
    assert __import__("re").search(why, run.why), run.why
    STEPS = iter([1, 2])
    wanted = f(torch.ones(1))
    assert type(made) is type(wanted)


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        LIST.sort()  # which ends the learning
        self.mean = self.mean + x
        self.weight = torch.nn.Parameter(x)
        return self.mean


def test_when_nothing_is_learned_any_more_attributes_are_set_as_their_class_sets_them() -> None:
    held = Holder()
    run, made = run_of(held, torch.ones(2))
    assert "list.sort" in str(run.why)
    assert made.tolist() == [1.0, 1.0]
    assert held.state_dict().keys() == {"mean", "weight"}
    assert held.state_dict()["mean"].tolist() == [1.0, 1.0]
    assert "mean" not in held.__dict__
    assert [name for name, _ in held.named_parameters()] == ["weight"]
