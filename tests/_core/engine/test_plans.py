"""Planned calls: what a bound plan allocates, launches, records and keeps."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import Tensor
from flambeau._core.autograd import tape
from flambeau._core.engine import fronts
from flambeau._core.engine.fronts import FACTOR, NUMBER, OPTIONAL, SCALAR, TENSOR, Signature
from flambeau._core.engine.operation import Operation
from flambeau._core.engine.plans import Compose, Plan, Saved, View, Written, roles
from flambeau._core.ops.elementwise import saved_tensor
from flambeau._core.tensor import meta


def at(address: int, count: int) -> Any:
    """The floats at an address, as NumPy sees them."""
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32) if count else np.empty(0, np.float32)


def planned(plan: Any, name: str = "planned", **kinds: str) -> Any:
    """The public function of a planned operation whose parameters are of these kinds."""
    optional = [n for n, kind in kinds.items() if kind not in (TENSOR, NUMBER)]
    defaults = [None if kinds[n] == OPTIONAL else 1 for n in optional]
    return Operation(name, plan, planned=True, signature=Signature(tuple(kinds), (), defaults, kinds=kinds)).function


def scaled(**options: Any) -> Any:
    """A plan of `input * by`, and what its launches were called with."""
    calls: list[tuple[Any, ...]] = []

    def plan(input: Any, by: Any) -> Any:
        m = input.meta

        def launch(out: int, a: int, number: float) -> None:
            calls.append((out, a, number))
            at(out, m.numel)[:] = at(a, m.numel) * number
        return Plan([m], launch, numbers=(options.get("convert"),), saved=options.get("saved"), result=options.get("result"))
    return planned(plan, "scaled", input=TENSOR, by=SCALAR), calls


class Info:
    """What the nodes of a call share."""

    grad_name = "ScaledBackward0"

    def __call__(self, node: Any, g: Any) -> Any:
        return tape.freed(node, g)


# ------------------------------------------------------------------------------------------------------ results and numbers
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (700, 900)])
def test_a_plan_allocates_its_result_and_launches_with_addresses_and_numbers(shape: Any) -> None:
    f, calls = scaled()
    x = torch.ones(shape)
    made, again = f(x, 3.0), f(x, 2.5)
    assert made.shape == shape and (made.numpy() == 3).all() and (again.numpy() == 2.5).all()
    assert made.ptr != again.ptr or not x.numel()
    assert [c[0] for c in calls] == [made.ptr, again.ptr] and calls[0][1:] == (x.ptr, 3.0) and made.store.version == 0
    assert type(made) is Tensor and made.store.meta is made.meta is x.meta and made.grad_fn is None


def test_numbers_are_converted_where_the_plan_says_so() -> None:
    f, calls = scaled(convert=lambda n: float(n) + 0.5)
    x = torch.ones(2)
    assert f(x, 3).tolist() == [3.5, 3.5] and f(x, 4).tolist() == [4.5, 4.5] and f(x, True).tolist() == [1.5, 1.5]
    assert [c[2] for c in calls] == [3.5, 4.5, 1.5]


@pytest.mark.parametrize("d", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.bfloat16])
def test_numbers_that_a_type_may_not_hold(d: Any) -> None:
    x = torch.ones(3, dtype=d)
    for n in (0, 1, 5, 127, 2.5, 65504.0, -0.0, True, 128, 300, -1, 1e30, 1 << 40, 1 << 70, float("nan"), float("inf"), np.float64(2.0), 2j):
        try:
            expected = torch.full((3,), n, dtype=d)
        except Exception as error:
            with pytest.raises(type(error)):
                torch.full_like(x, n)
        else:
            assert all(repr(torch.full_like(x, n).tolist()) == repr(expected.tolist()) for _ in range(2)), n


def test_special_numbers_arrive_as_they_are() -> None:
    f, calls = scaled()
    x = torch.ones(1)
    for n in (float("nan"), float("inf"), -0.0, 0.0, 1.0, 0.5):
        f(x, n)
    assert [str(c[2]) for c in calls] == ["nan", "inf", "-0.0", "0.0", "1.0", "0.5"]


def test_memory_of_a_dropped_result_is_used_again_and_none_is_while_it_lives() -> None:
    f, _ = scaled()
    x = torch.ones(16)
    kept = [f(x, float(i)) for i in range(50)]
    assert len({t.ptr for t in kept}) == 50 and [t[0].item() for t in kept] == list(range(50))
    free = {t.ptr for t in kept}
    kept.clear()  # nothing waits for the collector: the next result takes what was given back last
    assert f(x, 1.0).ptr in free


def test_operands_absent_tensors_and_factors_of_one_are_told_apart() -> None:
    seen: list[str] = []

    def plan(input: Any, weight: Any, other: Any, alpha: Any) -> Any:
        def launch(out: int, *rest: Any) -> None:
            seen.append(f"{len(rest)}")
            at(out, 2)[:] = len(rest)
        return Plan([input.meta], launch, numbers=(None,) * ((not isinstance(other, Tensor)) + (alpha != 1)))
    f = planned(plan, input=TENSOR, weight=OPTIONAL, other=fronts.VALUE, alpha=FACTOR)
    x = torch.ones(2)
    for _ in range(2):
        assert f(x, None, x).tolist() == [2, 2] and f(x, x, x).tolist() == [3, 3] and f(x, x, 2.0).tolist() == [3, 3]
        assert f(x, x, x, 1.0).tolist() == [3, 3] and f(x, x, x, 2.0).tolist() == [4, 4] and f(x, None, 5, 0.5).tolist() == [3, 3]
    assert roles((x, None, 2, True)) == "txnn"


def test_several_results_a_workspace_and_a_result_of_another_form() -> None:
    big = meta((300000,), None, torch.float32, torch.ones(1).meta.device)

    def plan(input: Any) -> Any:
        def launch(first: int, second: int, a: int, room: int) -> None:
            assert len({first, second, a, room}) == 4
            at(room, 300000)[:] = 7
            at(first, 2)[:] = at(a, 2) + at(room, 2)
            at(second, 2)[:] = at(a, 2) * 2
        return Plan([input.meta, input.meta], launch, room=big, result=options[0])
    x = torch.tensor([1.0, 2.0])
    options: list[Any] = [None]
    pair = planned(plan, input=TENSOR)(x)
    assert type(pair) is tuple and [t.tolist() for t in pair] == [[8, 9], [2, 4]]
    options[0] = lambda outs: {"first": outs[0], "second": outs[1]}
    named = planned(plan, input=TENSOR)(x)
    assert named["first"].tolist() == [8, 9] and named["second"].tolist() == [2, 4]


def test_an_error_in_a_launch_passes_through_and_leaves_the_plan_usable() -> None:
    fail = [True]

    def plan(input: Any) -> Any:
        def launch(out: int, a: int) -> None:
            if fail[0]:
                raise MemoryError("none left")
            at(out, 1)[:] = 4
        return Plan([input.meta], launch)
    f, x = planned(plan, input=TENSOR), torch.ones(1)
    for _ in range(2):
        with pytest.raises(MemoryError, match="none left"):
            f(x)
    fail[0] = False
    assert f(x).item() == 4


# -------------------------------------------------------------------------------------------------------------- the tape
def back(node: Any, g: Any) -> Any:
    info, kept, versions, results, numbers = node[tape.SAVED]
    for t, v in zip(kept, versions, strict=True):
        saved_tensor(t, v, node)
    for t, v in results:
        saved_tensor(t, v, node)
    return (g * numbers[0],)


def test_a_call_is_recorded_only_where_an_operand_requires_grad_and_grad_is_on() -> None:
    info = Info()
    f, _ = scaled(saved=Saved(back, keep=(0,), info=info, numbers=(1,)))
    x, leaf = torch.ones(2), torch.ones(2, requires_grad=True)
    for _ in range(2):
        assert not f(x, 2.0).requires_grad
        with torch.no_grad():
            assert not f(leaf, 2.0).requires_grad
        made = f(leaf, 3.0)
        assert made.requires_grad and made.grad_fn.name() == "ScaledBackward0"
        assert made.node[tape.SAVED] == (info, (leaf,), (0,), (), (3.0,)) and made.node[tape.EDGES] == (leaf.node, None)
    f(leaf, 3.0).sum().backward()
    assert leaf.grad.tolist() == [3, 3]


def test_saved_values_keep_their_versions() -> None:
    f, _ = scaled(saved=Saved(back, keep=(0,), results=(0,), info=Info(), numbers=(1,)))
    leaf = torch.ones(2, requires_grad=True)
    x = leaf * 2
    made = f(x, 3.0)
    (saved, version), = made.node[tape.SAVED][3]
    assert saved.ptr == made.ptr and saved.node is None and version == 0  # no circle: the node holds the result without itself
    x.detach().add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*is at version 1; expected version 0"):
        made.sum().backward()
    made = f(leaf * 2, 3.0)
    made.detach().mul_(2)
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
        made.sum().backward()
    y = leaf * 2
    y.detach().add_(1)
    f(y, 3.0).sum().backward()  # changed before it was saved
    assert leaf.grad.tolist() == [6, 6]


def test_public_operations_raise_when_what_they_saved_has_changed() -> None:
    leaf = torch.ones(3, requires_grad=True)
    for call in (lambda a: torch.exp(a), lambda a: a * a, lambda a: torch.sigmoid(a), lambda a: a.pow(3)):
        a = leaf * 2
        made = call(a)
        made.detach().add_(1), a.detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            made.sum().backward()


def test_what_is_saved_may_depend_on_who_requires_grad() -> None:
    needs: list[Any] = []

    def saved(which: tuple[bool, ...]) -> Saved:
        needs.append(which)
        return Saved(lambda node, g: tuple([g if n else None for n in which]), info=Info())

    def plan(input: Any, other: Any) -> Any:
        def launch(out: int, a: int, b: int) -> None:
            at(out, 2)[:] = at(a, 2) + at(b, 2)
        return Plan([input.meta], launch, saved=saved)
    f = planned(plan, input=TENSOR, other=TENSOR)
    x, a, b = torch.ones(2), torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    f(x, x), f(x, x)  # a plan is bound at its second call
    for _ in range(2):
        f(a, x).sum().backward(), f(x, b).sum().backward(), f(a, b).sum().backward(), f(x, x)
    assert needs == [(True, False), (False, True), (True, True)]
    assert a.grad.tolist() == [4, 4] == b.grad.tolist()


def test_several_results_have_one_node_and_integers_have_none() -> None:
    places = meta((2,), None, torch.int64, torch.ones(1).meta.device)
    given: list[Any] = []

    def backward(node: Any, gs: Any) -> Any:
        given.append([None if g is None else g.tolist() for g in gs])
        return (sum(g for g in gs if g is not None),)

    def plan(input: Any) -> Any:
        def launch(one: int, two: int, index: int, a: int) -> None:
            at(one, 2)[:], at(two, 2)[:] = at(a, 2) + 1, at(a, 2) + 2
            ctypes.memset(index, 0, 16)
        return Plan([input.meta, input.meta, places], launch, saved=Saved(backward, keep=(0,), results=(1,), info=Info()))
    f, leaf = planned(plan, input=TENSOR), torch.zeros(2, requires_grad=True)
    one, two, index = f(leaf)
    assert one.requires_grad and two.requires_grad and not index.requires_grad and index.tolist() == [0, 0]
    assert one.node[tape.EDGES][0] is two.node[tape.EDGES][0]
    (two * 3).sum().backward()
    assert given == [[None, [3, 3], None]] and leaf.grad.tolist() == [3, 3]
    assert not any(t.requires_grad for t in f(torch.zeros(2)))


def test_a_plan_of_integers_records_nothing() -> None:
    def plan(input: Any) -> Any:
        m = meta((2,), None, torch.int64, input.meta.device)
        return Plan([m], lambda out, a: ctypes.memset(out, 0, 16), saved=Saved(back, info=Info()))
    made = planned(plan, input=TENSOR)(torch.ones(2, requires_grad=True))
    assert made.tolist() == [0, 0] and not made.requires_grad


def test_no_circle_is_left_that_only_the_collector_frees() -> None:
    f, _ = scaled(saved=Saved(back, keep=(0,), results=(0,), info=Info(), numbers=(1,)))
    leaf = torch.ones(2, requires_grad=True)
    f(leaf, 2.0)
    gc.collect()
    gc.disable()
    try:
        made = f(leaf, 2.0)
        store = weakref.ref(made.store)
        del made
        assert store() is None
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------------- views, in place, compose
def test_a_view_shares_memory_and_versions_and_hands_gradients_on() -> None:
    def second(input: Any) -> Any:
        m = input.meta
        part = meta(tuple(m.shape[1:]), m.strides[1:], m.dtype, m.device)

        def backward(node: Any, g: Any) -> Any:
            full = torch.zeros(m.shape)
            full[node[tape.SAVED]] = g
            return (full,)
        backward.grad_name = "SecondBackward0"  # type: ignore[attr-defined]
        return View(part, m.strides[0] * m.dtype.itemsize, backward, 1)
    f = planned(second, "second", input=TENSOR)
    for x in (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).t()):
        for _ in range(2):
            v = f(x)
            assert v.tolist() == x[1].tolist() and v.store is x.store and not v.requires_grad
        v.add_(10)
        assert x[1].tolist() == v.tolist() and x._version == v._version == 1
    leaf = torch.ones(2, 3, requires_grad=True)
    made = f(leaf)
    assert made.grad_fn.name() == "SecondBackward0"
    made.sum().backward()
    assert leaf.grad.tolist() == [[0, 0, 0], [1, 1, 1]]
    with torch.no_grad():
        assert f(leaf).requires_grad  # as its base, recorded or not


def test_a_view_that_records_nothing() -> None:
    f = planned(lambda input: View(input.meta, 0, None), input=TENSOR)
    leaf = torch.ones(2, requires_grad=True)
    assert f(leaf).ptr == leaf.ptr and not f(leaf).requires_grad


def written() -> tuple[Any, list[Any]]:
    """An operation that adds in place, and those of its calls that took the general way."""
    general: list[Any] = []

    def plan(input: Any, other: Any, by: Any) -> Any:
        n = input.meta.numel

        def launch(out: int, a: int, b: int, number: float) -> None:
            at(out, n)[:] = at(a, n) + at(b, n) * number

        def carry(a: Any, b: Any, number: Any) -> Any:
            general.append((a, b, number))
            return a
        return Written(launch, (None,), carry)
    return planned(plan, "written_", input=TENSOR, other=TENSOR, by=SCALAR), general


def test_writing_over_an_operand_counts_its_version() -> None:
    f, general = written()
    x, y = torch.ones(2), torch.ones(2)
    assert f(x, y, 2.0) is x and f(x, x, 1.0) is x and x.tolist() == [6, 6] and x._version == 2 and y._version == 0 and not general


def test_what_must_be_recorded_or_shares_memory_takes_the_general_way() -> None:
    f, general = written()
    x, leaf = torch.ones(4), torch.ones(2, requires_grad=True)
    y = torch.ones(2)
    f(y, y.clone(), 1.0)
    assert not general
    for a, b in ((x[:2], x[1:3]), (y, leaf), (leaf * 1, y), ((leaf * 1)[:], y)):
        count = len(general)
        assert f(a, b, 2.0) is a and len(general) == count + 1 and general[-1][0] is a and general[-1][1] is b
    count = len(general)
    with torch.no_grad():
        f(y, leaf, 1.0), f(leaf, y, 1.0)
    assert len(general) == count and leaf.tolist() == [4, 4]


def test_public_in_place_forms_are_right_where_operands_overlap() -> None:
    x = torch.arange(4.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a single memory location"):
            x[1:].add_(x[:-1])
    assert x[:].add_(x).tolist() == x[:2].tolist() + x[2:].tolist() == [0, 2, 4, 6]
    base = torch.ones(3, requires_grad=True) * 2
    view = base[:2]
    view.mul_(3)
    assert base.tolist() == [6, 6, 2] and base.requires_grad and view.requires_grad


def test_a_composed_plan_is_called_with_operands_and_numbers() -> None:
    f = planned(lambda input, other, by: Compose(lambda a, b, n: a + b * n), input=TENSOR, other=NUMBER, by=SCALAR)
    leaf = torch.ones(2, requires_grad=True)
    assert f(leaf, 2, 3).tolist() == [7, 7] and f(leaf, leaf, 0.5).tolist() == [1.5, 1.5]
    f(leaf, leaf, 0.5).sum().backward()
    assert leaf.grad.tolist() == [1.5, 1.5]


def test_results_are_plain_tensors_also_for_subclasses_without_answers() -> None:
    f, _ = scaled()
    p = torch.nn.Parameter(torch.ones(2))
    assert type(f(p, 2.0)) is Tensor and f(p, 2.0).tolist() == [2, 2] == f(torch.ones(2), 2.0).tolist()


def test_a_plan_is_used_by_several_threads_at_once() -> None:
    f, _ = scaled(saved=Saved(back, keep=(0,), info=Info(), numbers=(1,)))
    errors: list[Any] = []

    def run(n: float) -> None:
        try:
            leaf = torch.full((8,), n, requires_grad=True)
            for _ in range(100):
                made = f(leaf, n)
                assert made.tolist() == [n * n] * 8
            made.sum().backward()
            assert leaf.grad.tolist() == [n] * 8
        except BaseException as e:
            errors.append(e)
    threads = [threading.Thread(target=run, args=(float(i),)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_recorded_writes_of_another_type_are_planned() -> None:
    for times in range(4):
        x, y = torch.tensor([0.0, 2.0], requires_grad=True), torch.tensor([1.0, 1.0], requires_grad=times % 2 == 0)
        o = x * 1
        assert o.logical_xor_(y) is o and o.tolist() == [1, 0] and o.grad_fn.name() == "LogicalXorBackward0"
        (o * o).sum().backward()
        assert x.grad.tolist() == [0, 0] and (y.grad is None or y.grad.tolist() == [0, 0])
    for _ in range(4):
        x, o = torch.tensor([0.0, 2.0], requires_grad=True), torch.tensor([1.5, 2.5], requires_grad=True) * 1
        with entered("inplace") as seen:  # the way of calls without a plan, which the truths of another operand with a gradient take
            o.lt_(x)
    assert not seen and o.tolist() == [0, 0] and o.grad_fn.name() == "LtBackward0"


def test_recorded_layouts_in_place_are_planned() -> None:
    for _ in range(4):
        x = torch.tensor([[1.0, 2.0]], requires_grad=True)
        o = x * 1
        with entered("general") as seen:
            assert o.unsqueeze_(0).squeeze_(1).t_() is o
        assert not seen and o.shape == (2, 1) and o._version == 3 and o.grad_fn.name() == "TransposeBackward0"
        assert [o.grad_fn.next_functions[0][0].name(), o.is_leaf] == ["SqueezeBackward0", False]
        (o * torch.tensor([[3.0], [4.0]])).sum().backward()
        assert x.grad.tolist() == [[3, 4]]


@contextlib.contextmanager
def entered(name: str) -> Iterator[list[str]]:
    """The functions of this name that are entered meanwhile."""
    found: list[str] = []

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == name:
            found.append(name)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
