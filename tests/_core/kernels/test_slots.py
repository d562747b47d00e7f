"""Attributes and finalizers in machine code, beside the same in Python."""

import os

import pytest

from flambeau._core.kernels import slots
from flambeau._core.kernels.slots import CONSTANT, EQUAL, GRADIENT, LEAF, LENGTH, OBJECT, PRESENT, Slots

pytestmark = pytest.mark.skipif(os.environ.get("FLAMBEAU_KERNELS", "llvm") != "llvm", reason="kernels by the interpreter: there is no machine code")


class Inner:
    __slots__ = ("value",)


class Deeper(Inner):
    __slots__ = ()


class Outer:
    __slots__ = ("inner", "node", "__dict__")
    named = None


class Owner:
    __slots__ = ("taker", "given")


class Heap:
    def __init__(self):
        self.got = []

    def append(self, x):
        self.got.append(x)


NOBODY = Heap()
CODE = Slots(Owner, "taker", "given", NOBODY)
PATH = ((Outer, "inner"), (Inner, "value"))
NODE = ((Outer, "node"),)


def outer(value=None, inner=Inner, node=None):
    made = Outer()
    made.inner = inner()
    made.inner.value = value
    made.node = node
    return made


def asked(x):
    """What a getter asks instead: tells that it did."""
    return "asked", x


@pytest.mark.parametrize("inner", [Inner, Deeper])
def test_paths_give_the_object_itself(inner):
    value = object()
    assert CODE.getter(OBJECT, PATH, asked)(outer(value, inner)) is value


@pytest.mark.parametrize(("kind", "value", "constant", "expected"), [
    (PRESENT, None, None, False), (PRESENT, 0, None, True), (EQUAL, "cu" + "da", "cuda", True), (EQUAL, "cpu", "cuda", False), (LENGTH, (), None, 0),
    (LENGTH, (1, 2, 3), None, 3), (CONSTANT, None, "this", "this")])
def test_kinds(kind, value, constant, expected):
    assert CODE.getter(kind, () if kind == CONSTANT else PATH, asked, constant)(outer(value)) == expected


def test_where_nothing_is_present_a_slot_beside_the_path_may_have_the_function_asked():
    get = CODE.getter(PRESENT, NODE, asked, beside=(Outer, "inner"))
    there, nothing, other, empty = outer(node=[0]), outer(), outer(), Outer()
    nothing.inner = None
    empty.node = None
    assert get(there) is True and get(nothing) is False
    assert get(other) == ("asked", other) and get(empty) == ("asked", empty)


def test_leaves_and_their_gradients():
    leaf, gradient = CODE.getter(LEAF, NODE, asked), CODE.getter(GRADIENT, NODE, asked, "named")
    assert leaf(outer()) is True and leaf(outer(node=[0, None])) is True and leaf(outer(node=[5, None])) is False
    g = object()
    assert gradient(outer(node=[0, g])) is g and gradient(outer(node=[0, None])) is None and gradient(outer()) is None
    kept = outer()
    kept.named = g
    assert gradient(kept) is g
    computed = outer(node=[5, g])
    assert gradient(computed) == ("asked", computed)
    odd = outer(node=[])
    assert gradient(odd) == ("asked", odd) and leaf(odd) == ("asked", odd)


def test_what_is_not_as_it_should_be_is_asked_for_in_python():
    get = CODE.getter(OBJECT, PATH, asked)
    empty, other = Outer(), Outer()
    other.inner = 5
    half = outer()
    del half.inner.value
    for x in (empty, other, half, 5, None, "x", Inner(), Outer):
        assert get(x) == ("asked", x)


def test_errors_of_the_function_asked_come_through():
    def refuse(x):
        raise AttributeError("nothing here")
    with pytest.raises(AttributeError, match="nothing here"):
        CODE.getter(OBJECT, PATH, refuse)(Outer())
    with pytest.raises(TypeError):
        CODE.getter(LENGTH, PATH, refuse)(outer(5))


def test_references_are_counted():
    import sys
    value, get = object(), CODE.getter(OBJECT, PATH, asked)
    x = outer(value)
    before = sys.getrefcount(value)
    held = [get(x) for _ in range(100)]
    assert sys.getrefcount(value) == before + 100
    del held
    assert sys.getrefcount(value) == before


def test_finalizers_append_to_lists_and_to_whatever_appends():
    class Finalized(Owner):
        __slots__ = ()
        __del__ = CODE.finalizer()

    def free(taker, given):
        made = Finalized()
        made.taker, made.given = taker, given
    taken, heap = [], Heap()
    for i in range(3):
        free(taken, 1000 + i)
        free(heap, 2000 + i)
    assert taken == [1000, 1001, 1002] and heap.got == [2000, 2001, 2002]
    free(NOBODY, 3000)
    assert NOBODY.got == []
    Finalized()  # with empty slots there is nothing to give back
    half = Finalized()
    half.taker = taken
    del half
    assert len(taken) == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_while_something_is_given_back_does_not_stop_the_program():
    class Refuses:
        def append(self, x):
            raise ValueError("full")

    class Finalized(Owner):
        __slots__ = ()
        __del__ = CODE.finalizer()
    made = Finalized()
    made.taker, made.given = Refuses(), 1
    del made


def test_slots_of_other_kinds_are_not_read():
    class Changed:
        __slots__ = ("a",)
    place = slots.place(Changed, "a")
    assert place is not None
    Changed.b = Changed.a  # another name than the slot's
    assert slots.place(Changed, "b") is None
    assert slots.place(Outer, "named") is None and slots.place(Outer, "__dict__") is None
