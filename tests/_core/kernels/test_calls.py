"""Planned calls in machine code: what they allocate, launch and make, and what they leave to the function beside them."""

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core import dtypes
from flambeau._core.engine.plans import CALLS
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.calls import APART, DETACHED, MOST, NEW, OBJECT, SAME, VIEW, Block, Made
from flambeau._core.kernels.llvm import prepare, sequence
from flambeau._core.kernels.programs import Map
from flambeau._core.tensor import meta

pytestmark = pytest.mark.skipif(os.environ.get("FLAMBEAU_KERNELS", "llvm") != "llvm", reason="kernels by the interpreter: there is no machine code")

F = dtypes.float32
M = meta((4,), None, F, torch.device("cpu"))
HALF = meta((2,), None, F, torch.device("cpu"))


def asked(*args: Any) -> Any:
    """What stands beside the machine code: tells that it was called."""
    return "asked", *args


def scaled(number: Any = F) -> Any:
    """A launch on four elements: out = a * number."""
    return prepare(Map((E.input(0, F) * E.cast(E.scalar(0, number), F),), (F,), (number,)), (4,), ((1,), (1,))).entry


def block(m: Any = M, kept: bool = True) -> Block:
    return Block(m.sizes.free, m.sizes.grow, m if kept else None)


def times(role: str = "f", watch: bool = False, number: Any = F) -> Any:
    """The call ``x * n``."""
    step = sequence.launch_step(scaled(number), [(2, 0), (0, 0), (1, 0)])
    return CALLS.builtin("t" + role, [block()], [step], [Made(NEW, M, 0)], None, asked, watch)


def view(offset: int = 4, mark: Any = None, m: Any = HALF) -> Any:
    return CALLS.builtin("t", (), (), [Made(VIEW, m, 0, offset, mark)], None, asked, False)


# ------------------------------------------------------------------------------------------------------------ new tensors
def test_a_call_allocates_launches_and_makes_its_result():
    x = torch.arange(4.0)
    made = times()(x, 2.5)
    assert made.tolist() == [0, 2.5, 5, 7.5] and type(made) is torch.Tensor
    assert made.meta is made.store.meta is M and made.ptr == made.store.ptr and made.store.version == 0 and made.node is None and made.base is None
    assert made.store.free is M.sizes.free and made.__dict__ == {}


@pytest.mark.parametrize("number, result", [(3, 3.0), (2**70, None), (2**1100, None), (True, "asked"), ("2", "asked"), (None, "asked"), (-1.0, -1.0),
                                            (-1, -1.0)])
def test_numbers_that_a_launch_takes_as_floats(number, result):
    made = times()(torch.ones(4), number)
    if result == "asked" or number == 2**1100:
        assert made[0] == "asked" and made[2] is number
    else:
        assert made[0].item() == (result or float(number))


@pytest.mark.parametrize("number, known", [(3, True), (-1, True), (True, True), (2**62, True), (2**63, False), (1.0, False), (np.int64(3), False)])
def test_numbers_that_a_launch_takes_as_integers(number, known):
    made = times("i", number=dtypes.int64)(torch.ones(4), number)
    assert made[0].item() == float(number) if known else made[0] == "asked"


def test_what_is_not_looked_at_may_be_anything():
    step = sequence.launch_step(scaled(), [(3, 0), (1, 0), (-1, 2.0)])
    run = CALLS.builtin("xtx", [block()], [step], [Made(NEW, M, 0)], None, asked, False)
    assert run(None, torch.ones(4), object()).tolist() == [2, 2, 2, 2]


def test_other_arguments_are_left_to_the_function_beside_it():
    run, x = times(), torch.ones(4)
    assert run() == ("asked",) and run(x) == ("asked", x) and run(x, 1.0, 2) == ("asked", x, 1.0, 2)
    for other in (None, 3, [x], np.ones(4, np.float32)):
        assert run(other, 1.0)[1] is other

    def fails(*args: Any) -> Any:
        raise KeyError("what it raises is raised")
    with pytest.raises(KeyError, match="is raised"):
        CALLS.builtin("t", (), (), [Made(SAME, None)], None, fails, False)(5)


def test_classes_below_the_tensors_are_tensors():
    assert times()(torch.nn.Parameter(torch.ones(4)), 2.0).tolist() == [2] * 4


def test_recorded_calls_are_left_to_the_function_beside_it():
    x = torch.ones(4, requires_grad=True)
    assert times(watch=True)(x, 2.0)[0] == "asked" and times()(x, 2.0).tolist() == [2] * 4
    with torch.no_grad():
        assert times(watch=True)(x, 2.0).tolist() == [2] * 4
    assert times(watch=True)(x.detach(), 2.0).tolist() == [2] * 4


def test_several_results_are_given_as_they_should_be():
    x = torch.arange(4.0)
    step = sequence.launch_step(scaled(), [(1, 0), (0, 0), (-1, 1.0)])
    results = [Made(NEW, M, 0), Made(NEW, HALF, 0, 8), Made(SAME, None, 0), Made(OBJECT, word := "word"), Made(DETACHED, HALF, 0, 4)]
    for gather in (tuple, list, lambda parts: {"parts": parts}):
        made: Any = CALLS.builtin("t", [block()], [step], results, gather, asked, False)(x)
        parts = made["parts"] if type(made) is dict else made
        assert type(parts) is (list if gather is list else tuple)
        whole, half, same, object_, detached = parts
        assert whole.tolist() == [0, 1, 2, 3] and half.tolist() == [2, 3] and half.store is whole.store and half.ptr == whole.ptr + 8 and half.base is None
        assert same is x and object_ is word and detached.tolist() == [1, 2] and detached.store is x.store and detached.base is None
    assert CALLS.builtin("t", (), (), [], tuple, asked, False)(x) == ()


def test_memory_of_no_result_goes_back_at_once():
    x, free = torch.arange(4.0), M.sizes.free
    twice = [sequence.launch_step(scaled(), [(2, 0), (0, 0), (-1, 3.0)]), sequence.launch_step(scaled(), [(1, 0), (2, 0), (-1, 2.0)])]
    run = CALLS.builtin("t", [block(), block(kept=False)], twice, [Made(NEW, M, 0)], None, asked, False)
    del free[2:]
    before = list(free)
    made = run(x)
    assert made.tolist() == [0, 6, 12, 18] and sorted([*free, made.ptr]) == sorted(before)
    free.clear()
    assert run(x).tolist() == [0, 6, 12, 18] and free  # the list grew


def test_bytes_that_are_others_ask_the_function_beside_it():
    step = sequence.bytes_step(sequence.SAME, 0, 4, np.float32(1).tobytes())
    run = CALLS.builtin("t", [block(), block(kept=False)], [step], [Made(NEW, M, 0)], None, asked, False)
    x = torch.arange(4.0)
    run(x)
    count = len(M.sizes.free)
    assert type(run(x)) is torch.Tensor
    x[1] = 5
    assert run(x) == ("asked", x) and len(M.sizes.free) == count


def test_a_tensor_on_anothers_memory_has_a_version_of_its_own():
    run = CALLS.builtin("t", (), (), [Made(APART, None)], None, asked, False)
    x = torch.arange(4.0, requires_grad=True)
    for t in (x, x[1:], torch.nn.Parameter(torch.ones(3)), torch.empty(0), torch.empty(2, device="meta")):
        made = run(t)
        assert type(made) is torch.Tensor and made.meta is t.meta and made.ptr == t.ptr and made.base is None and made.node is None
        assert made.store is not t.store and made.store.keep is t.store and made.store.ptr == t.store.ptr and made.store.meta is t.store.meta
        made.add_(1)
        assert made._version == 1 and t._version == 0
    made = run(torch.full((3,), 7.0))
    gc.collect()
    assert made.tolist() == [7, 7, 7] and run(3) == ("asked", 3)


# ----------------------------------------------------------------------------------------------------------------- writes
def adds(operands: int = 1, rise: int = 1) -> Any:
    """The call that writes the last argument, times 2, over the first."""
    step = sequence.launch_step(scaled(), [(0, 0), (operands - 1, 0), (-1, 2.0)])
    return CALLS.builtin("t" * operands, (), [step], [Made(SAME, None)], None, asked, True, [(0, rise)])


def test_a_write_raises_the_version():
    x, y = torch.ones(4), torch.arange(4.0)
    assert adds()(x) is x and x.tolist() == [2] * 4 and x._version == 1
    assert adds(2, 300)(x, y) is x and x.tolist() == [0, 2, 4, 6] and x._version == 301 and y._version == 0
    part = x[:]
    assert adds()(part) is part and x.tolist() == [0, 4, 8, 12] and x._version == 302


def test_writes_to_shared_memory_are_left_to_the_function_beside_it():
    x = torch.arange(4.0)
    for pair in ((x, x), (x, x[:]), (x[:], x), (x, x.detach())):
        assert adds(2)(*pair)[0] == "asked" and x._version == 0


@pytest.mark.parametrize("recording", [True, False])
def test_recorded_writes_are_left_to_the_function_beside_it(recording):
    leaf = torch.ones(4, requires_grad=True)
    with torch.set_grad_enabled(recording):
        for t in (leaf, leaf[:], leaf.detach()):
            made = adds()(t)
            assert (type(made) is tuple) == (recording and t.node is not None)
        base = torch.ones(4)
        part = base[:]
        base.mul_(leaf)
        made = adds(2)(part, torch.ones(4))
        assert (type(made) is tuple) == recording


# ----------------------------------------------------------------------------------------------------------------- views
def test_a_view_shows_its_base():
    x = torch.arange(4.0)
    made = view()(x)
    assert made.tolist() == [1, 2] and made.store is x.store and made.ptr == x.ptr + 4 and made.base is x and made.meta is HALF
    further = view(4, m=meta((1,), None, F, torch.device("cpu")))(made)
    assert further.tolist() == [2] and further.base is x and further.ptr == x.ptr + 8
    assert [r() for r in x.__dict__["_views"]] == [made, further]


def test_a_base_knows_its_views_while_operations_are_recorded():
    x = torch.arange(4.0)
    with torch.no_grad():
        view()(x)
    assert x.__dict__ == {}
    views = [view()(x) for _ in range(40)]
    assert [r() for r in x.__dict__["_views"]] == views
    del views[:38]
    for _ in range(100):
        view()(x)
    assert len(x.__dict__["_views"]) < 70  # those that are gone are left out at times
    whole = torch.arange(4)
    view(8, m=meta((2,), None, whole.dtype, whole.device))(whole)
    assert whole.__dict__ == {}  # integers have no history


def test_recorded_writes_reach_views_made_so():
    x, w = torch.arange(4.0), torch.ones(4, requires_grad=True)
    part = view()(x)
    x.mul_(w)
    assert part.grad_fn is not None
    part.sum().backward()
    assert w.grad.tolist() == [0, 1, 2, 0]


def test_what_is_said_of_a_view_is_said_of_its_views():
    x = torch.arange(4.0)
    one = view(mark=("several", 0, "f"))(x)
    assert one.__dict__ == {"_made": ("several", 0, "f")}
    smaller = meta((1,), None, F, torch.device("cpu"))
    assert view(m=smaller)(one).__dict__ == {"_made": ("several", 0, "f")}
    assert view(m=smaller, mark=("several", 1, "g"))(one).__dict__ == {"_made": ("several", 0, "f")}
    assert view(m=smaller)(view()(x)).__dict__ == {}


@pytest.mark.parametrize("recording", [True, False])
def test_views_with_a_history_are_left_to_the_function_beside_it(recording):
    x = torch.ones(4, requires_grad=True)
    with torch.set_grad_enabled(recording):
        for t in (x, x[:], x.detach()[:], x * 2):
            made = view()(t)
            assert (type(made) is tuple) == (t.node is not None or (t.base is not None and t.base.node is not None))


# ---------------------------------------------------------------------------------------------------------------- memory
def test_nothing_is_left_behind():
    x, run, show, pair = torch.ones(4), times(), view(), CALLS.builtin("t", [block()] * 2, (), [Made(NEW, M, 0), Made(NEW, M, 1)], tuple, asked, False)

    def all_of_them() -> None:
        for _ in range(300):
            run(x, 2.0)
            run(x, None)
            pair(x)
            with torch.no_grad():
                show(show(x)) if show(x).numel() > 9 else None
    all_of_them()
    gc.collect()
    things = (M, HALF, M.sizes.free, x, x.store, torch.Tensor, type(x.store), run, None)
    counts, free = [sys.getrefcount(t) for t in things[:-1]], len(M.sizes.free)
    all_of_them()
    gc.collect()
    assert [sys.getrefcount(t) for t in things[:-1]] == counts and len(M.sizes.free) == free


def test_what_a_builtin_needs_lives_as_long_as_it_does():
    def other(*args: Any) -> Any:
        return "other"
    run = CALLS.builtin("t", (), (), [Made(OBJECT, [1, 2])], lambda parts: parts[0], other, False)
    del other
    gc.collect()
    assert run(torch.ones(1)) == [1, 2] and run(3) == "other"


def test_many_arguments_have_no_builtin():
    assert CALLS.builtin("t" * (MOST + 1), (), (), (), tuple, asked, False) is asked
