"""What a step depended on, as one function that tells whether all of it is still so.

Objects are held by identity: a guard says that an object still has the very part that was found there.  The roots (a function, its globals, its
arguments) are guarded too, so that every object on the way is the one it was.
"""

from __future__ import annotations

from keyword import iskeyword
from operator import is_
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd import mode, saved, tape
from ..engine import interpreters
from ..runtime import backend_flags, caches, capture, provenance
from ..runtime import device as devices
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

ABSENT: Any = object()


def modes() -> tuple[Any, ...]:
    """What all operations follow besides their arguments."""
    return (mode._grad.get(), mode._inference.get(), dtypes.get_default_dtype(), devices._thread.default, caches.renewed, backend_flags.turn,
            saved._pairs.get(), provenance._on, interpreters._stack)


def watched() -> bool:
    """Whether somebody looks at launches or operations now, or keeps them from being repeated."""
    return bool(capture.active or caches.world or capture.now.watched or tape.anomaly.on or capture.redrawing)


class Guards:
    """Conditions, each a line of Python over constants.

    others: what is another one at each call, by identity.  crossed: whether one of those was found among what must stay as it is.
    touched: what the run has changed, as (container, key; None for all of it) by identity.  stale: whether such a thing was to be guarded, whose value is
    another one before the call.
    """

    def __init__(self, others: Iterable[int] = ()) -> None:
        self.others, self.crossed = frozenset(others), False
        self.touched: set[tuple[int, Any]] = set()
        self.stale = False
        self.replaced: set[int] = set()  # dicts whose contents are others from some moment on, by identity
        self.constants: list[Any] = []
        self._names: dict[int, str] = {}
        self._lines: dict[Any, str] = {}
        self._spaces: dict[int, Any] = {}

    def name(self, x: Any) -> str:
        """The name that a constant has in the lines."""
        if x is None or x is True or x is False:
            return str(x)
        found = self._names.get(id(x))
        if found is None:
            self.crossed = self.crossed or self._holds(x)
            found = self._names[id(x)] = f"c{len(self.constants)}"
            self.constants.append(x)
        return found

    def inside(self, x: Any) -> str:
        """The name of a container in which a line looks."""
        self.stale = self.stale or (id(x), None) in self.touched
        return self.name(x)

    def _holds(self, x: Any) -> bool:
        """Whether it is one of the others, or has one in what cannot change."""
        return id(x) in self.others or (isinstance(x, (tuple, frozenset)) and any(map(self._holds, x)))

    def stores(self) -> list[Any]:
        """The storages of the tensors that the lines name, or that are in what cannot change."""
        found, left = [], [*self.constants]
        for x in left:
            if isinstance(x, Tensor):
                found.append(x.store)
            elif isinstance(x, (tuple, frozenset)):
                left += x
        return found

    def __len__(self) -> int:
        return len(self._lines)

    def _add(self, key: Any, line: str) -> None:
        self._lines.setdefault(key, line)

    def part(self, d: Any, key: Any, value: Any) -> None:
        """A dict has this value under a key, or none (ABSENT)."""
        place = ("part", id(d), key)
        self.stale = self.stale or (id(d), key) in self.touched or id(d) in self.replaced
        if value is ABSENT:
            self._add(place, f"{self.key(key)} not in {self.name(d)}")
        else:
            self._add(place, f"{self.name(d)}[{self.key(key)}] is {self.name(value)}")

    def changes(self, d: Any) -> bool:
        """Whether the run has changed anything in a container."""
        return (id(d), None) in self.touched

    def guarded(self, d: Any, key: Any) -> bool:
        """Whether what a dict has under a key is a condition."""
        return ("part", id(d), key) in self._lines

    def key(self, key: Any) -> str:
        """The text of a key."""
        return repr(key) if type(key) in (str, int) else self.name(key)

    def touch(self, x: Any, key: Any = None) -> None:
        """The run changes what is in a container, under a key or anywhere: what is found there now is not what a call finds."""
        self.touched |= {(id(x), key), (id(x), None)}
        self.name(x)  # which keeps it

    def keys(self, d: Any) -> None:
        """A dict has these keys and values and no others, in this order."""
        if not d:
            self._add(("keys", id(d)), f"not {self.inside(d)}")
            return
        self._add(("keys", id(d)), f"len({self.inside(d)}) == {len(d)} and all(map(is_, {self.inside(d)}, {self.name(tuple(d))})) "
                                   f"and all(map(is_, {self.inside(d)}.values(), {self.name(tuple(d.values()))}))")

    def elements(self, x: list[Any]) -> None:
        """A list has these elements."""
        self._add(("elements", id(x)), f"len({self.inside(x)}) == {len(x)}" + (f" and all(map(is_, {self.inside(x)}, {self.name(tuple(x))}))" if x else ""))

    def element(self, x: list[Any], i: int) -> None:
        """A list has this element at a place."""
        self._add(("element", id(x), i), f"{self.inside(x)}[{i}] is {self.name(x[i])}")

    def empty(self, x: Any) -> None:
        """Whether a container has anything in it."""
        self._add(("empty", id(x)), f"{'' if x else 'not '}{self.inside(x)}")

    def shape(self, o: Any, space: Any) -> None:
        """The class of an object, and the dict in which its attributes are."""
        key, line = ("class", id(o)), f"{self.name(o)}.__class__ is {self.name(type(o))}"
        if space is not None:
            self._lines[key] = f"{line} and {self.name(o)}.__dict__ is {self.name(space)}"
        else:
            self._add(key, line)

    def attribute(self, o: Any, name: str, value: Any) -> None:
        """An attribute that is found without any Python."""
        c = f"{self.name(o)}.{name}" if name.isidentifier() and not iskeyword(name) else f"getattr({self.name(o)}, {name!r})"
        self._add(("attribute", id(o), name), f"{c} is {self.name(value)}" if value is not ABSENT else f"not hasattr({self.name(o)}, {name!r})")

    def lacks(self, t: Any, name: str) -> None:
        """A class, and those that it is derived from, have nothing under a name: an object's own attribute is found, or none."""
        for c in t.__mro__:
            if c is not object:
                space = self._spaces.setdefault(id(c), vars(c))  # one for each class, as it makes another at each call
                self._add(("lacks", id(c), name), f"{name!r} not in {self.name(space)}")

    def found(self, t: Any, name: str, value: Any) -> None:
        """A class, or the first of those that it is derived from that has anything under a name, has this value there, which would give another."""
        for c in t.__mro__:
            space = self._spaces.setdefault(id(c), vars(c))
            if name in space:
                self._add(("found", id(c), name), f"{self.name(space)}[{name!r}] is {self.name(value)}")
                return
            self._add(("lacks", id(c), name), f"{name!r} not in {self.name(space)}")

    def cell(self, cell: Any) -> None:
        """What a function's closure holds."""
        try:
            self.attribute(cell, "cell_contents", cell.cell_contents)
        except ValueError:
            self.attribute(cell, "cell_contents", ABSENT)

    def tensor(self, t: Tensor) -> None:
        """A tensor's layout, memory, and node."""
        c = self.name(t)
        self._add(("tensor", id(t)), f"{c}.meta is {self.name(t.meta)} and {c}.store is {self.name(t.store)} and {c}.ptr == {t.ptr} and "
                                     f"{c}.store.ptr == {t.store.ptr} and {c}.node is {self.name(t.node)}"
                                     + (f" and {c}.node[{tape.EXTRA}] is None" if t.node is not None else "")
                                     + f" and {c}.base is {self.name(t.base)}")

    def options(self, values: dict[str, Any], d: dict[str, Any], free: tuple[str, ...]) -> bool:
        """A dict has these values, numbers and texts, and `free` ones that may be other numbers. Gives False where they are something else."""
        for k, v in values.items():  # which stand beside what `part` says of them: a free number that the function reads itself is the one it was
            x = f"{self.inside(d)}[{k!r}]"
            if v is None or type(v) is bool:
                self._add(("option", id(d), k), f"{x} is {v}")
            elif k in free and type(v) in (int, float):
                self._add(("option", id(d), k), f"type({x}) in (int, float)")
            elif type(v) in (int, float, str) or (type(v) is tuple and all(type(part) in (int, float) for part in v)):
                self._add(("option", id(d), k), f"type({x}) is {self.name(type(v))} and {x} == {self.name(v)}")
            else:
                return False
        return True

    def line(self, key: Any, line: str) -> None:
        """Any condition."""
        self._add(key, line)

    def lines(self) -> list[str]:
        """All conditions, as expressions over the constants."""
        return list(self._lines.values())


SPACE = {"is_": is_, "modes": modes, "watched": watched}
