"""What a run knows: which objects it made, what lived before and was met, and whether anything is learned any more."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections import OrderedDict, defaultdict
from types import GeneratorType, NoneType
from typing import TYPE_CHECKING, Any

from .. import collector
from ..autograd import mode, tape
from ..dtypes import dtype, float64, int64
from ..layout import Size
from ..runtime import capture
from ..runtime.device import device
from ..tensor import NO_FREE, Storage, Tensor, alias
from .ages import Since
from .effects import Effects
from .guards import ABSENT, Guards, modes
from .later_numbers import LATER, cleanse, plain, settled
from .lenient import Lenient
from .owners import Living, instances
from .versions import Marked

if TYPE_CHECKING:
    from collections.abc import Iterable

OBJECT: Any = object  # whose methods are compared by identity
ATOMS = {int, float, bool, str, bytes, complex, NoneType, dtype, device, type(...), type(NotImplemented)}
PACKED = {tuple, Size, range, slice, frozenset}  # which do not change, but for what is in them
CONTAINERS = {list, dict, set}
DICTS = {OrderedDict, defaultdict}  # which are looked through as dicts are
NOTES = {"_views", "_classes", "_used"}  # of a tensor from outside, which nothing that is recorded depends on
NUMBERS = {int, float, bool, complex}
_OPERATIONS: dict[str, Any] = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_WHOLE = 1 << 53  # below which a float64 is every whole number
PACKAGE = __name__.partition(".")[0]


class Seen:
    """A tensor that lived before, as it was when the run met it."""

    __slots__ = ("tensor", "meta", "store", "ptr", "node", "grad", "asked")

    def __init__(self, t: Tensor) -> None:
        self.tensor, self.meta, self.store, self.ptr, self.node = t, t.meta, t.store, t.ptr, t.node
        self.grad: Tensor | None = None if t.node is None else t.node[tape.GRAD]
        self.asked = False  # whether its gradient was looked at


class Knowing:
    """The ``with`` block of a run (`reads.Run`), and what is known in it.

    operands: the tensors that a function is given, which are others at each call.  why: why nothing is learned any more (None as long as it is).
    containers: those in which it is given tensors, others at each call too, whose parts the caller compares.  moved: places of which earlier runs found
    that the function changes them.
    """

    ABSENT = ABSENT

    def __init__(self, operands: Iterable[Tensor], containers: Iterable[Any] = (), moved: Iterable[Any] = ()) -> None:
        operands = list(operands)
        self._operands = {id(t) for t in operands}
        self._given = [(t, t.node, None if t.node is None else t.node[tape.GRAD]) for t in operands]
        given = list(containers)
        self._handed = {id(x) for x in given}
        self.guards = Guards({*self._operands, *self._handed, *[id(x.__dict__) for x in given if hasattr(x, "__dict__")]})
        self.effects = Effects(self.guards, moved)
        self.marked = Marked()
        self.recording = Lenient()
        self.why: str | None = None
        self.seen: dict[int, Seen] = {}
        self._fresh: dict[int, Any] = {id(x): x for x in given}  # what it made, kept so that no place is given to others
        self.cleared: dict[int, int] = {}  # tensors whose gradient was set to None, by identity: how many steps were recorded by then
        self.passes = False  # whether it passed over the tape
        self.accumulates = False  # whether gradients were added to leaves
        self._gradients: dict[int, Seen] = {}  # of leaves, from before: who reads one finds the leaf's at each call
        self._aside = 0  # steps that are recorded for the numbers that Python takes

    @property
    def off(self) -> bool:
        return self.why is not None

    def __enter__(self) -> Knowing:
        self._held = contextlib.ExitStack()
        self._held.enter_context(collector.held())  # what is collected meanwhile would be given out again, and not be known as free
        self._modes = modes()
        self._later: Living | None = None
        self.recording.__enter__()
        self._tensors = instances(Tensor)  # kept, so that no place is given to others
        self._old = set(map(id, self._tensors))
        self._since = Since()
        for t, _, _ in self._given:
            self.marked.mark(t.store)
        self.versions = {id(s): s.version for s in self.recording.before}
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self.taint(f"it raises {kind.__name__}")
        elif not self.off:
            self._end()
        self._since.close()
        self.marked.release()
        self.recording.close()
        self._held.close()

    def _cleanse(self) -> None:
        """Leaves plain numbers in what the function made, for those who look there later."""
        for x in list(self._fresh.values()) if self.effects.numbers else ():
            if type(x) in CONTAINERS - {set} or type(x) in DICTS:
                cleanse(x)
            elif type(getattr(x, "__dict__", None)) is dict:
                cleanse(x.__dict__)

    def release(self) -> None:
        """Lets go of what the function made."""
        self._cleanse()
        self._fresh.clear()
        self._tensors = []
        self._since.release()

    def _end(self) -> None:
        self._check()
        if modes() != self._modes:
            self.taint("it changes how operations are carried out")
        for s in (*self.seen.values(), *self._gradients.values()):
            t = s.tensor
            if t.meta is not s.meta or t.store is not s.store or t.ptr != s.ptr or t.node is not s.node or (
                    t.node is not None and t.node[tape.EXTRA] is not None):
                self.taint("it changes a tensor's layout, memory or hooks")
        for t, node, grad in self._given:
            if t.node is not node or (node is not None and (node[tape.GRAD] is not grad or t.store.version != self.versions[id(t.store)])):
                self.taint("it changes an argument that requires grad")
            elif node is not None and (self.accumulates or (self.passes and node[tape.SEQ])):
                self.taint("it passes through an argument's history")

    def taint(self, why: str) -> None:
        """From now on nothing is learned."""
        if self.why is None:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_globals.get("__name__", "").startswith(__package__):
                frame = frame.f_back
            self.why = why if frame is None else f"{why} (at {frame.f_code.co_filename}:{frame.f_lineno})"
            self._cleanse()
            self.marked.release()
            self.recording.close()
            self.release()
            self._held.close()

    def _check(self) -> None:
        if not self.off and self.recording.refused is not None:
            self.taint(self.recording.refused)

    # what is old and what is new -----------------------------------------------------------------------------------------
    def is_fresh(self, x: Any) -> bool:
        """Whether the run made it: its contents need no guards."""
        return id(x) in self._fresh

    def fresh(self, x: Any) -> Any:
        """A container that was made just now."""
        if not self.off:
            if type(x) in (dict, set) and not all(map(hashed, x)):
                self.taint("it hashes an object")
            self._fresh[id(x)] = x
        elif type(x) in (list, dict):
            cleanse(x)
        return x

    def is_own(self, x: Any) -> bool:
        """Whether the run made it, so that it may be changed unseen."""
        return id(x) in self._fresh and id(x) not in self._handed

    def adopt(self, x: Any) -> bool:
        """Takes a dict that lived before for one of the run's own: what is in it becomes a condition, and what is in it at the end is put there at each
        call.  Gives whether that may be."""
        if self.off or (type(x) is not dict and type(x) not in DICTS) or self.is_handed(x) or self.guards.changes(x) or not all(map(hashed, x)):
            return False
        self.whole(x)
        self.effects.adopt(x)
        self._fresh[id(x)] = x
        return not self.off

    def is_handed(self, x: Any) -> bool:
        """Whether it is a container in which the function is given tensors."""
        return id(x) in self._handed

    def is_old(self, t: Tensor) -> bool:
        """Whether a tensor lived before the run."""
        return id(t) in self._old

    def is_old_object(self, x: Any) -> bool:
        """Whether an object that Python's collector knows lived before the run."""
        return not self._since.made(x)

    def made_at(self, address: int) -> bool:
        """Whether there is memory that is newer than the run at an address."""
        if self._later is None:
            self._later = Living([s for s in Living() if not self.is_old_object(s)])
        return self._later.find(address) is not None

    def tensor(self, t: Tensor) -> None:
        """A tensor that an operation is given."""
        if id(t) not in self._old or id(t) in self.seen or id(t) in self._operands or id(t) in self._gradients or self.off:
            return
        if not t.meta.plain or t.meta.device.type not in ("cpu", "cuda") or not type(t).__module__.startswith(PACKAGE):
            self.taint(f"it uses a {type(t).__name__} on {t.meta.device}")
        elif t.node is not None and (t.node[tape.SEQ] != 0 or t.node[tape.EXTRA] is not None):
            self.taint("it uses a tensor with a history or hooks from before")
        else:
            self.seen[id(t)] = Seen(t)
            self.marked.mark(t.store)
            self.guards.tensor(t)
            if t.base is not None:
                self.tensor(t.base)

    def gradient(self, t: Tensor) -> None:
        """A look at a tensor's gradient."""
        self.tensor(t)
        if id(t) in self._operands:
            self.taint("it looks at the gradient of an argument")
        elif id(t) in self.seen:
            s = self.seen[id(t)]
            s.asked = True
            g = s.grad
            if g is not None and t.node is not None and t.node[tape.GRAD] is g and id(g) not in self.seen and lends(g):
                self._gradients[id(g)] = Seen(g)
                self.marked.mark(g.store)
            if t.node is None:
                self.guards.attribute(t, "grad", t.grad)

    def whole(self, x: Any) -> None:
        """All that is in a container is looked at."""
        if self.is_fresh(x) or self.off:
            return
        self._unchanged(x)
        if type(x) is list:
            self.guards.elements(x)
        elif isinstance(x, dict) and (type(x).__iter__ is dict.__iter__ or type(x) in DICTS):
            self.guards.keys(x)
        elif type(x) not in ATOMS and type(x) not in PACKED:
            self.taint(f"it looks through a {type(x).__name__}")

    def _unchanged(self, x: Any) -> None:
        """A look at a container that lived before: not at what the run put there."""
        if (id(x), None) in self.guards.touched:
            self.taint("it looks through what it has changed")

    def atoms(self, x: Any, deep: bool = True) -> bool:
        """Whether it is made of numbers, texts and the like only; lists that may change are guarded, and numbers that are others at each call become
        conditions."""
        settled(x)
        if type(x) in ATOMS or isinstance(x, type) or type(x) in LATER:
            return True
        if type(x) in PACKED or (isinstance(x, tuple) and type(x).__eq__ is tuple.__eq__):
            return type(x) in (range, slice) or all(map(self.atoms, x))
        if type(x) is list and deep:
            self.whole(x)
            return all(map(self.atoms, x))
        return False

    def done(self) -> int:
        """How much work the function has asked of its devices so far."""
        return len(self.recording.steps) - self._aside

    def took(self, t: Tensor, found: Any, before: int, convert: str = "{}") -> Any:
        """A tensor's element that Python took, when so many steps were recorded, as a number that is another one at each call."""
        steps = self.recording.steps
        if self.off or type(found) not in (int, float) or len(steps) != before + 1 or type(steps[-1]) is not capture.Read:
            return found
        read = steps[-1]
        token = mode._grad.set(False)
        try:
            copy = alias(t, t.meta, t.ptr).clone()
        finally:
            mode._grad.reset(token)
        self._aside += len(steps) - before
        self._check()
        return found if self.off else self.effects.item(found, copy, read, convert)

    def looked(self, name: str, x: Any, y: Any) -> bool | None:
        """What a comparison of a tensor's element with a number gives, which is a condition while a replay goes on.  None for other operands."""
        item = x.how.items[0] if type(x) in LATER and len(x.how.items) == 1 else None
        if item is None or self.off or x.how.text != f"m{item.number}" or type(plain(y)) not in (int, float):
            return None
        like = int64 if type(x.how.value) is int else float64
        number = settled(y)
        if like is int64 and type(number) is not int:
            return None
        if type(number) is int and abs(number) >= (1 << 62 if like is int64 else _WHOLE):
            return None
        steps = self.recording.steps
        before = len(steps)
        token = mode._grad.set(False)
        try:
            found = bool(_OPERATIONS[name](item.copy.to(like), number))
        finally:
            mode._grad.reset(token)
        self._aside += len(steps) - before
        self._check()
        return found

    def _argument(self, x: Any) -> None:
        """What an operation is given."""
        if isinstance(x, Tensor):
            self.tensor(x)
        elif type(x) in (tuple, list) or (isinstance(x, tuple) and hasattr(x, "_fields")):
            if type(x) is list:
                self.whole(x)
            for part in x:
                self._argument(part)
        elif type(x) is slice:
            for part in (x.start, x.stop, x.step):
                self._argument(part)
        elif type(x) is dict:
            self.whole(x)
            for part in x.values():
                self._argument(part)
        elif not self.atoms(x) and not type(x).__module__.startswith(PACKAGE + "._core") and type(x) is not GeneratorType:
            self.taint(f"it gives a {type(x).__name__} to an operation")


def lends(g: Any) -> bool:
    """Whether a leaf's gradient may be read and written at each call wherever it lies then: nobody else has its memory, and nothing was recorded of it."""
    return (type(g) is Tensor and g.meta.plain and g.meta.device.type in ("cpu", "cuda") and g.node is None and g.base is None and g.store.free is not NO_FREE
            and g.store.version >= 0 and g.__dict__.keys() <= NOTES and id(g.store) not in tape.lent)


def static(t: Any, name: str) -> Any:
    """What a class has under a name, as it stands there."""
    for c in t.__mro__:
        if name in vars(c):
            return vars(c)[name]
    return ABSENT


def of_package(x: Any, name: str) -> Any:
    """What one of our own functions or classes has under a name, or None: a program's says nothing to a run."""
    return x.__dict__.get(name) if (x.__module__ or "").partition(".")[0] == PACKAGE else None


def hashed(x: Any) -> bool:
    """Whether hashing and comparing it runs none of the program's Python."""
    if type(x) is tuple:
        return all(map(hashed, x))
    settled(x)
    return type(x) in ATOMS or type(x) in LATER or isinstance(x, (Tensor, Storage)) or (type(x).__hash__ is OBJECT.__hash__ and type(x).__eq__ is OBJECT.__eq__)
