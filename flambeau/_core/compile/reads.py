"""A run of a function that learns what it depends on: each read of something that may be another one later becomes a guard.

Allowed is what is known: what is done to numbers, texts and containers of them, operations on tensors, functions whose text can be looked through, and
what says itself what it reads (`__reads__`).  Anything else is done all the same, but from then on nothing is learned: the run is `off`.
What the function made itself needs no guards; everything that is not known to be made by it is taken for older.
"""

from __future__ import annotations

import builtins
import gc
import math
import operator
import sys
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MemberDescriptorType, MethodType, ModuleType, NoneType
from typing import TYPE_CHECKING, Any

from ..autograd import functions, mode
from ..dtypes import dtype
from ..engine import interpreters
from ..layout import Size
from ..ops import attributes, foreach, linear_activation, queries
from ..runtime.device import device
from ..tensor import Meta, Storage, Tensor
from . import instrument
from .guards import ABSENT, Guards, modes
from .lenient import Lenient
from .owners import Living
from .versions import Marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OBJECT: Any = object  # whose methods are compared by identity
ATOMS = {int, float, bool, str, bytes, complex, NoneType, dtype, device, type(...), type(NotImplemented)}
_PACKED = {tuple, Size, range, slice, frozenset}  # which do not change, but for what is in them
_CONTAINERS = {list, dict, set}
_NUMBERS = {int, float, bool, complex}
_PACKAGE = __name__.partition(".")[0]
_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "is_sparse", "is_meta", "itemsize", "nbytes", "requires_grad", "is_leaf", "layout", "T",
               "H", "mT", "mH", "real", "imag", "data", "meta"}
# functions on tensors that are no operations: they read layouts, or pass over the tape
_LEAVES: set[Any] = {attributes.size, attributes.stride, attributes.numel, attributes.dim, attributes.is_contiguous, attributes._len, attributes._iter,
                     attributes._new_tensor_type, queries.broadcast_shapes,
                     functions.grad, functions.backward, linear_activation.linear_with_activation, linear_activation.serves,
                     foreach.norms, foreach.scale}
_PASSES = {"backward"}  # operations that pass over the tape, too
_CONTEXTS = (mode.no_grad, mode.enable_grad, mode.set_grad_enabled, mode.inference_mode)
_OVER_ITEMS = {zip, enumerate, reversed, iter, tuple, list, set, frozenset, sorted, sum, min, max, any, all, dict}
_ON_ATOMS: set[Any] = {len, abs, round, divmod, pow, ord, chr, hash, repr, int, float, bool, str, complex, range, slice, *[
    f for f in vars(math).values() if isinstance(f, BuiltinFunctionType)]}
_FREE: set[Any] = {mode.is_grad_enabled, interpreters.watched, super}
_MUTATING = {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "add", "discard", "popitem"}


class Seen:
    """A tensor that lived before, as it was when the run met it."""

    __slots__ = ("tensor", "meta", "store", "ptr", "node", "grad", "asked")

    def __init__(self, t: Tensor) -> None:
        self.tensor, self.meta, self.store, self.ptr, self.node = t, t.meta, t.store, t.ptr, t.node
        self.grad: Tensor | None = None if t.node is None else t.node[1]
        self.asked = False  # whether its gradient was looked at


class Run:
    """A ``with`` block in which a function is called by `callee`.

    operands: the tensors that it is given, which are others at each call.  why: why nothing is learned any more (None as long as it is).
    """

    ABSENT = ABSENT

    def __init__(self, operands: Iterable[Tensor]) -> None:
        operands = list(operands)
        self._operands = {id(t) for t in operands}
        self._given = [(t, t.node, None if t.node is None else t.node[1]) for t in operands]
        self.guards = Guards(self._operands)
        self.marked = Marked()
        self.recording = Lenient()
        self.why: str | None = None
        self.seen: dict[int, Seen] = {}
        self._fresh: dict[int, Any] = {}  # what it made, kept so that no place is given to others
        self.passes = False  # whether it passed over the tape
        self.accumulates = False  # whether gradients were added to leaves

    @property
    def off(self) -> bool:
        return self.why is not None

    def __enter__(self) -> Run:
        self._collects = gc.isenabled()
        gc.disable()  # what is collected meanwhile would be given out again, and not be known as free
        self._modes = modes()
        self._later: Living | None = None
        self.recording.__enter__()
        self._all = gc.get_objects()
        self._old_objects = set(map(id, self._all))
        self._old = {id(t) for t in self._all if isinstance(t, Tensor)}
        for t, _, _ in self._given:
            self.marked.mark(t.store)
        self.versions = {id(s): s.version for s in self.recording.before}
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self.taint(f"it raises {kind.__name__}")
        elif not self.off:
            self._end()
        self.marked.release()
        self.recording.close()
        if self._collects:
            gc.enable()

    def release(self) -> None:
        """Lets go of what the function made."""
        self._fresh.clear()
        self._all = []

    def _end(self) -> None:
        self._check()
        if modes() != self._modes:
            self.taint("it changes how operations are carried out")
        for s in self.seen.values():
            t = s.tensor
            if t.meta is not s.meta or t.store is not s.store or t.ptr != s.ptr or t.node is not s.node or (t.node is not None and t.node[5] is not None):
                self.taint("it changes a tensor's layout, memory or hooks")
        for t, node, grad in self._given:
            if t.node is not node or (node is not None and (node[1] is not grad or t.store.version != self.versions[id(t.store)])):
                self.taint("it changes an argument that requires grad")
            elif node is not None and (self.accumulates or (self.passes and node[0])):
                self.taint("it passes through an argument's history")

    def taint(self, why: str) -> None:
        """From now on nothing is learned."""
        if self.why is None:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_globals.get("__name__", "").startswith(__package__):
                frame = frame.f_back
            self.why = why if frame is None else f"{why} (at {frame.f_code.co_filename}:{frame.f_lineno})"
            self.marked.release()
            self.recording.close()
            self.release()
            if self._collects:
                gc.enable()

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
            if type(x) in (dict, set) and not all(map(_hashed, x)):
                self.taint("it hashes an object")
            self._fresh[id(x)] = x
        return x

    def is_old(self, t: Tensor) -> bool:
        """Whether a tensor lived before the run."""
        return id(t) in self._old

    def is_old_object(self, x: Any) -> bool:
        """Whether an object that Python's collector knows lived before the run."""
        return id(x) in self._old_objects

    def made_at(self, address: int) -> bool:
        """Whether there is memory that is newer than the run at an address."""
        if self._later is None:
            self._later = Living([s for s in Living() if not self.is_old_object(s)])
        return self._later.find(address) is not None

    def tensor(self, t: Tensor) -> None:
        """A tensor that an operation is given."""
        if id(t) not in self._old or id(t) in self.seen or id(t) in self._operands or self.off:
            return
        if not t.meta.plain or t.meta.device.type != "cpu" or not type(t).__module__.startswith(_PACKAGE):
            self.taint(f"it uses a {type(t).__name__} on {t.meta.device}")
        elif t.node is not None and (t.node[0] != 0 or t.node[5] is not None):
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
            self.seen[id(t)].asked = True
            if t.node is None:
                self.guards.attribute(t, "grad", t.grad)

    def whole(self, x: Any) -> None:
        """All that is in a container is looked at."""
        if self.is_fresh(x) or self.off:
            return
        if type(x) is list:
            self.guards.elements(x)
        elif isinstance(x, dict) and type(x).__iter__ is dict.__iter__:
            self.guards.keys(x)
        elif type(x) not in ATOMS and type(x) not in _PACKED:
            self.taint(f"it looks through a {type(x).__name__}")

    def atoms(self, x: Any, deep: bool = True) -> bool:
        """Whether it is made of numbers, texts and the like only; lists that may change are guarded."""
        if type(x) in ATOMS or isinstance(x, type):
            return True
        if type(x) in _PACKED or (isinstance(x, tuple) and type(x).__eq__ is tuple.__eq__):
            return type(x) in (range, slice) or all(map(self.atoms, x))
        if type(x) is list and deep:
            self.whole(x)
            return all(map(self.atoms, x))
        return False

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
        elif not self.atoms(x) and not type(x).__module__.startswith(_PACKAGE + "._core") and type(x) is not GeneratorType:
            self.taint(f"it gives a {type(x).__name__} to an operation")

    # calls ---------------------------------------------------------------------------------------------------------------
    def callee(self, f: Any) -> Any:
        """What the text calls in the place of `f`."""
        if self.off:
            return f
        t = type(f)
        if t is FunctionType:
            return self._function(f)
        if t is MethodType:
            inner = self.callee(f.__func__)
            return f if inner is f.__func__ else MethodType(inner, f.__self__)
        if t is BuiltinFunctionType:
            return self._builtin(f)
        if isinstance(f, type):
            return self._class(f)
        if t is partial:
            return self._opaque(f, "functools.partial")
        found = _static(t, "__call__")
        if type(found) is FunctionType:
            self.guards.shape(f, None)
            self.guards.attribute(t, "__call__", found)
            inner = self.callee(found)
            return f if inner is found else MethodType(inner, f)
        return self._opaque(f, t.__name__)

    def _opaque(self, f: Any, what: str) -> Any:
        self.taint(f"it calls {what}")
        return f

    def _function(self, f: FunctionType) -> Any:
        if instrument.is_instrumented(f.__code__):
            return f
        if f.__dict__.get("__operation__") is not None or f in _LEAVES or f in _FREE:
            return partial(self.leaf, f)
        if f is attributes.requires_grad_:
            return partial(self._requires, f)
        compiled = f.__dict__.get("__compiled__")
        if compiled is not None:
            return self.callee(compiled.f)
        reads = f.__dict__.get("__reads__")
        if reads is not None and f.__module__.startswith(_PACKAGE):
            return partial(self._told, f, reads)
        if f.__module__ is not None and f.__module__.startswith(_PACKAGE + "._core"):
            return self._opaque(f, f"{f.__module__}.{f.__qualname__}")
        try:
            made = instrument.instrumented(f, self)
        except instrument.Beyond as why:
            return self._opaque(f, f"{f.__qualname__}: {why}")
        self.entered(f)
        return made

    def entered(self, f: FunctionType) -> None:
        """Guards of a function: its code, its defaults, and the names from elsewhere that it loads."""
        g = self.guards
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            if getattr(f, name) is not None:  # where it had no defaults, all was given
                g.attribute(f, name, getattr(f, name))
        if f.__kwdefaults__:
            g.keys(f.__kwdefaults__)
        for cell in f.__closure__ or ():
            if not self.is_fresh(cell):
                g.cell(cell)
        own = f.__globals__
        for name in instrument.global_names(f.__code__):
            if name in own:
                g.part(own, name, own[name])
            else:
                g.part(own, name, ABSENT)
                g.part(vars(builtins), name, vars(builtins).get(name, ABSENT))

    def _told(self, f: Any, reads: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of what says itself what it reads."""
        if not self.off:
            why = reads(args[0], self, *args[1:], **kwargs)
            if why is not None:
                self.taint(why)
        made = f(*args, **kwargs)
        self._check()
        return made

    def _requires(self, f: Any, t: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.off and (self.is_old(t) or not isinstance(t, Tensor)):
            self.taint("it changes whether a tensor requires grad")
        return f(t, *args, **kwargs)

    def leaf(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of an operation."""
        if self.off:
            return f(*args, **kwargs)
        if f not in _FREE:
            for x in (*args, *kwargs.values()):
                self._argument(x)
            if f in (functions.grad, functions.backward) or getattr(f, "__name__", "") in _PASSES:
                self.passes = True
                self.accumulates = self.accumulates or f is not functions.grad
        made = f(*args, **kwargs)
        self._check()
        if type(made) in _CONTAINERS:
            self._fresh[id(made)] = made
        return made

    def _builtin(self, f: Any) -> Any:
        on = f.__self__
        if f in _ON_ATOMS or f in _OVER_ITEMS or f in _FREE:
            return self._ordinary(f)
        if f is id:
            return self._id
        if f is isinstance or f is issubclass or f is callable:
            return partial(self._classed, f)
        if f is getattr or f is hasattr:
            return partial(self._getattr, f)
        if f is setattr:
            return lambda o, name, value: self.store("attribute", value, o, name)
        t = type(on)
        name = f.__name__
        if t in ATOMS or t in _PACKED:
            return partial(self._on_atoms, f)
        if t in _CONTAINERS or (isinstance(on, dict) and getattr(dict, name, None) is not None and _static(t, name) is _static(dict, name)):
            if self.is_fresh(on):
                if name in ("add", "discard") and type(on) is set:
                    return partial(self._hashing, f)
                return f if name in ("append", "items", "keys", "values", "extend", "pop", "clear", "copy") else partial(self._on_atoms, f)
            if name in ("items", "keys", "values", "copy") and isinstance(on, dict):
                self.whole(on)
                return lambda: self._new(f())
            if name == "get" and isinstance(on, dict):
                return partial(self._get, on)
            if name in ("index", "count", "copy") and t is list and self.atoms(on):
                return lambda *args: self._new(f(*args))
            return self._opaque(f, f"{t.__name__}.{name}")
        return self._opaque(f, f.__qualname__)

    def _hashing(self, f: Any, x: Any) -> Any:
        if not self.off and not _hashed(x):
            self.taint("it hashes an object")
        return f(x)

    def _id(self, x: Any) -> int:
        """The identity of what lived before, and will be the same."""
        if not self.off and (not self.is_old(x) or id(x) in self._operands if isinstance(x, Tensor) else self.is_fresh(x) or type(x) in ATOMS):
            self.taint("it asks for the id of an object that it made")
        return id(x)

    def _new(self, x: Any) -> Any:
        """What was made just now."""
        if not self.off and type(x) not in ATOMS and type(x) not in _PACKED and not isinstance(x, Tensor):
            self._fresh[id(x)] = x
        return x

    def _get(self, d: Any, key: Any, default: Any = None) -> Any:
        if not self.off:
            if not _hashed(key):
                self.taint("it hashes an object")
            elif not self.is_fresh(d):
                self.guards.part(d, key, d.get(key, ABSENT))
        return d.get(key, default)

    def _on_atoms(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.off and not all(map(self.atoms, (*args, *kwargs.values()))):
            self.taint(f"it calls {f.__name__} on an object")
        return self._new(f(*args, **kwargs))

    def _ordinary(self, f: Any) -> Any:
        """Builtin functions and classes."""
        if f in _FREE:
            return f
        if f in _ON_ATOMS:
            return partial(self._sized if f is len else self._on_atoms, f)
        return partial(self._over_items, f)

    def _sized(self, f: Any, x: Any) -> Any:
        if self.off or type(x) in ATOMS or type(x) in _PACKED or self.is_fresh(x):
            return f(x)
        if isinstance(x, Tensor):
            return self.leaf(attributes._len, x)
        if type(x) is list or isinstance(x, dict):
            self.whole(x)
            return f(x)
        found = _static(type(x), "__len__")
        if type(found) is FunctionType:
            self.guards.attribute(type(x), "__len__", found)
            return self.callee(found)(x)
        if not isinstance(x, tuple):
            self.taint(f"it asks the length of a {type(x).__name__}")
        return f(x)

    def _over_items(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        if self.off:
            return f(*args, **kwargs)
        if f is iter and len(args) == 1:
            return self._new(iter(self.iterable(args[0])))
        if f in (any, all) and len(args) == 1:
            for x in self.iterable(args[0]):  # as far as it must
                if bool(self.tested(x)) is (f is any):
                    return f is any
            return f is all
        if f in (sum, min, max, sorted, set, frozenset, dict):
            given = [self.iterable(x) if not self.atoms(x, False) else x for x in args]
            if f is not dict and not self.off:
                given = [[*x] if type(x) not in ATOMS else x for x in given]
                if kwargs or not all(all(map(self.atoms, x)) if type(x) is list else self.atoms(x) for x in given):
                    if f is sum and not kwargs and all(isinstance(x, Tensor) or type(x) in _NUMBERS for x in given[0]):
                        total = given[1] if len(given) > 1 else 0
                        for x in given[0]:
                            total = self.binary("add", total, x)
                        return total
                    self.taint(f"it calls {f.__name__} on objects")
            return self._new(f(*given, **kwargs))
        return self._new(f(*[x if type(x) in ATOMS else self.iterable(x) for x in args], **kwargs))

    def _getattr(self, f: Any, o: Any, name: str, *default: Any) -> Any:
        if self.off or type(name) is not str:
            return f(o, name, *default)
        try:
            found = self.attribute(o, name)
        except AttributeError:
            if f is hasattr:
                return False
            if default:
                return default[0]
            raise
        return True if f is hasattr else found

    def _classed(self, f: Any, o: Any, *classes: Any) -> Any:
        """What is asked of an object's class."""
        for c in classes:
            for each in c if isinstance(c, tuple) else (c,):
                if type(each).__module__ != "builtins" and not type(each).__module__.startswith(_PACKAGE):
                    self.taint(f"it asks for instances of {each!r:.60}")
        if not self.off and not isinstance(o, (type, Tensor)) and type(o).__flags__ & 512 and not self.is_fresh(o):  # of a class that may be assigned
            self.guards.shape(o, None)
        return f(o, *classes)

    def _class(self, c: Any) -> Any:
        if c in _ON_ATOMS or c in _OVER_ITEMS or c in _FREE:
            return self._ordinary(c)
        if c is type:
            return lambda *args: self._typed(*args)
        if c in _CONTEXTS or c in (dtype, device, Size) or (issubclass(c, BaseException) and c.__module__ == "builtins"):
            return c
        init = _static(c, "__init__")
        if type(c) is type and c.__new__ is _OBJECT.__new__ and type(init) is FunctionType and not c.__module__.startswith(_PACKAGE):
            self.guards.attribute(c, "__init__", init)
            inner = self.callee(init)
            if not self.off:
                return partial(self._made_of, c, inner)
        return self._opaque(c, c.__qualname__)

    def _typed(self, *args: Any) -> Any:
        if len(args) == 1:
            self._classed(callable, args[0])
        else:
            self.taint("it makes a class")
        return type(*args)

    def _made_of(self, c: Any, init: Any, *args: Any, **kwargs: Any) -> Any:
        made = self._new(object.__new__(c))
        init(made, *args, **kwargs)
        return made

    # loads ---------------------------------------------------------------------------------------------------------------
    def attribute(self, o: Any, name: str) -> Any:
        """``o.name``."""
        if self.off:
            return getattr(o, name)
        t = type(o)
        if isinstance(o, Tensor):
            return self._of_tensor(o, name)
        if t in ATOMS or t in _PACKED or t in _CONTAINERS or t is Meta:
            return getattr(o, name)
        if t is ModuleType:
            found = getattr(o, name)
            if o.__dict__.get(name, ABSENT) is found:
                self.guards.part(o.__dict__, name, found)
            else:
                self.taint(f"it loads {o.__name__}.{name}")
            return found
        if isinstance(o, type) or t in (FunctionType, MethodType, BuiltinFunctionType):
            found = getattr(o, name)
            if getattr(o, name) is found:
                self.guards.attribute(o, name, found)
            elif type(found) is MethodType and found.__self__ is o and name.isidentifier():
                self.guards.line(("method", id(o), name), f"{self.guards.name(o)}.{name}.__func__ is {self.guards.name(found.__func__)}")
            else:
                self.taint(f"it loads {name} of {o!r:.40}")
            return found
        if t is super:
            return self._of_super(o, name)
        return self._of_instance(o, t, name)

    def _of_tensor(self, t: Tensor, name: str) -> Any:
        found = _static(type(t), name)
        if name == "grad":
            self.gradient(t)
        elif type(found) in (property, MemberDescriptorType):
            if name not in _ATTRIBUTES:
                self.taint(f"it looks at {name} of a tensor")
            self.tensor(t)
        elif type(found) is not FunctionType:
            self.taint(f"it looks at {name} of a tensor")
        made = getattr(t, name)
        self._check()
        return made

    def _of_super(self, o: Any, name: str) -> Any:
        found = getattr(o, name)
        on = o.__self__
        if not isinstance(on, type) and type(found) is MethodType and found.__self__ is on:
            order = type(on).__mro__
            for c in order[order.index(o.__thisclass__) + 1:]:
                if name in vars(c):
                    if vars(c)[name] is found.__func__:
                        self.guards.attribute(c, name, found.__func__)
                        return found
                    break
                self.guards.line(("super", id(c), name), f"{name!r} not in {self.guards.name(c)}.__dict__")
        self.taint(f"it loads super().{name}")
        return found

    def _of_instance(self, o: Any, t: Any, name: str) -> Any:
        if t.__getattribute__ is not object.__getattribute__ or isinstance(o, (CellType, GeneratorType)):
            self.taint(f"it loads {name} of a {t.__name__}")
            return getattr(o, name)
        g = self.guards
        space = o.__dict__ if _static(t, "__dict__") is not ABSENT else None
        if not self.is_fresh(o):
            g.shape(o, space)
        if name in ("__dict__", "__class__"):
            return getattr(o, name)
        of_class = _static(t, name)
        kind = type(of_class)
        if of_class is ABSENT:
            g.lacks(t, name)
        elif kind in (property, FunctionType, MemberDescriptorType) or kind is staticmethod or not hasattr(kind, "__get__"):
            g.attribute(t, name, getattr(t, name))
        elif kind is classmethod and type(of_class.__func__) is FunctionType and name.isidentifier():
            g.line(("method", id(t), name), f"{g.name(t)}.{name}.__func__ is {g.name(of_class.__func__)}")
        else:
            self.taint(f"it loads {name}, a {kind.__name__}")
            return getattr(o, name)
        if kind is property:
            if of_class.fget is None:
                return getattr(o, name)
            return self.callee(of_class.fget)(o)
        if kind is MemberDescriptorType:
            found = getattr(o, name)
            if not self.is_fresh(o):
                g.attribute(o, name, found)
            return found
        if space is not None and name in space:
            if not self.is_fresh(o):
                g.part(space, name, space[name])
            return space[name]
        if space is not None and not self.is_fresh(o):
            g.part(space, name, ABSENT)
        if of_class is not ABSENT:
            return getattr(o, name)
        other = _static(t, "__getattr__")
        if type(other) is FunctionType:
            g.attribute(t, "__getattr__", other)
            return self.callee(other)(o, name)
        if other is not ABSENT:
            self.taint(f"it loads {name} of a {t.__name__}")
        return getattr(o, name)

    def item(self, o: Any, key: Any) -> Any:
        """``o[key]``."""
        if self.off:
            return o[key]
        if isinstance(o, Tensor):
            return self.leaf(type(o).__getitem__, o, key)
        t = type(o)
        if t in ATOMS or t in _PACKED or isinstance(o, tuple):
            if not self.atoms(key):
                self.taint("its index is an object")
        elif t is list:
            if type(key) is int and not self.is_fresh(o) and -len(o) <= key < len(o):
                self.guards.element(o, key)
            else:
                self.whole(o)
                self.atoms(key)
                if type(key) is slice:
                    return self.fresh(o[key])
        elif isinstance(o, dict) and _static(t, "__getitem__") is _static(dict, "__getitem__") and (key in o if _hashed(key) else False):
            if not self.is_fresh(o):
                self.guards.part(o, key, o[key])
        else:
            found = _static(t, "__getitem__")
            if type(found) is FunctionType and not self.is_fresh(o):
                self.guards.shape(o, o.__dict__ if _static(t, "__dict__") is not ABSENT else None)
                self.guards.attribute(t, "__getitem__", found)
                return self.callee(found)(o, key)
            self.taint(f"it takes an item of a {t.__name__}")
        return o[key]

    def slice(self, *parts: Any) -> Any:
        """``a:b:c``."""
        return slice(*parts)

    def iterable(self, o: Any, parts: bool = False) -> Any:
        """What is iterated over.  parts: what comes is taken apart."""
        if self.off:
            return o
        t = type(o)
        if isinstance(o, Tensor):
            return self._new(iter(self.leaf(attributes._iter, o)))
        if t in ATOMS or t in _PACKED or isinstance(o, tuple):
            pass
        elif self.is_fresh(o) or (t is GeneratorType and o.gi_frame is not None and o.gi_frame.f_locals.get(instrument.NAME) is self):
            pass
        elif t is list or isinstance(o, dict):
            self.whole(o)
        else:
            found = _static(t, "__iter__")
            if type(found) is FunctionType:
                self.guards.shape(o, o.__dict__ if _static(t, "__dict__") is not ABSENT else None)
                self.guards.attribute(t, "__iter__", found)
                return self.iterable(self.callee(found)(o), parts)
            self.taint(f"it iterates over a {t.__name__}")
        return (self.parts(x) for x in o) if parts and not self.off else o

    def parts(self, o: Any) -> Any:
        """What is taken apart."""
        return self.iterable(o)

    def mapping(self, o: Any) -> Any:
        """What is handed over as keywords."""
        if type(o) is dict:
            self.whole(o)
        else:
            self.taint("its keywords are no dict")
        return o

    # operators -----------------------------------------------------------------------------------------------------------
    def binary(self, name: str, a: Any, b: Any) -> Any:
        """``a + b`` and its like; ``a += b``."""
        f: Callable[[Any, Any], Any] = getattr(operator, name)
        if self.off:
            return f(a, b)
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return self.leaf(f, a, b)
        if type(a) is list or type(b) is list:
            if name[0] == "i" and not self.is_fresh(a):
                self.taint("it changes a list")
            for x in (a, b):
                self.whole(x)
            return self._new(f(a, b))
        if not (self.atoms(a) and self.atoms(b)):
            if not (isinstance(a, tuple) and isinstance(b, tuple) and name == "add"):
                self.taint(f"it calls {name} on a {type(a).__name__} and a {type(b).__name__}")
        return f(a, b)

    def unary(self, name: str, a: Any) -> Any:
        """``-a`` and its like."""
        f = getattr(operator, name)
        if self.off:
            return f(a)
        if isinstance(a, Tensor):
            return self.leaf(f, a)
        if type(a) not in _NUMBERS:
            self.taint(f"it calls {name} on a {type(a).__name__}")
        return f(a)

    def compare(self, name: str, a: Any, b: Any) -> Any:
        """``a < b``, ``a in b`` and their like."""
        if name in ("in", "not in"):
            if not self.off:
                self._looked_for(a, b)
            return (a in b) if name == "in" else (a not in b)
        f = getattr(operator, name)
        if self.off:
            return f(a, b)
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return self.leaf(f, a, b)
        if not (self.atoms(a) and self.atoms(b)):
            self.taint(f"it compares a {type(a).__name__} and a {type(b).__name__}")
        return f(a, b)

    def _looked_for(self, a: Any, b: Any) -> None:
        if isinstance(b, dict) and _static(type(b), "__contains__") is _static(dict, "__contains__") and _hashed(a):
            if not self.is_fresh(b):
                self.guards.part(b, a, b.get(a, ABSENT))
        elif self.is_fresh(b) and type(b) is set and _hashed(a):
            pass
        elif not (self.atoms(a) and self.atoms(b)):
            self.taint(f"it looks for a {type(a).__name__} in a {type(b).__name__}")

    def tested(self, x: Any) -> Any:
        """What is taken for true or false."""
        if self.off or type(x) in ATOMS or type(x) in _PACKED or isinstance(x, (tuple, Tensor, type, FunctionType, MethodType, ModuleType)):
            if isinstance(x, Tensor) and not self.off:
                self.taint("it looks at a tensor's values")
            return x
        if type(x) is list or (isinstance(x, dict) and type(x).__module__ in ("builtins", "collections")):
            if not self.is_fresh(x):
                self.guards.empty(x)
        elif _static(type(x), "__bool__") is ABSENT and _static(type(x), "__len__") is ABSENT:
            for name in ("__bool__", "__len__"):
                self.guards.lacks(type(x), name)
        elif not self.is_fresh(x) or type(x) is not set:
            self.taint(f"it tests a {type(x).__name__}")
        return x

    def formatted(self, x: Any) -> Any:
        """What becomes text."""
        if not self.off and not self.atoms(x):
            self.taint("it formats an object")
        return x

    def context(self, x: Any) -> Any:
        """What a ``with`` block enters."""
        if not self.off and type(x) not in _CONTEXTS:
            self.taint(f"it enters a {type(x).__name__}")
        return x

    # stores --------------------------------------------------------------------------------------------------------------
    def store(self, kind: str, value: Any, o: Any, key: Any) -> None:
        """``o.key = value`` or ``o[key] = value``."""
        if not self.off:
            self._stored(kind, value, o, key)
        if kind == "attribute":
            setattr(o, key, value)
        else:
            o[key] = value
        self._check()

    def _stored(self, kind: str, value: Any, o: Any, key: Any) -> None:
        if isinstance(o, Tensor):
            if kind == "item":
                for x in (o, key, value):
                    self._argument(x)
            elif key == "grad" and (value is None or (isinstance(value, Tensor) and not self.is_old(value))):
                self.gradient(o)
            else:
                self.taint(f"it sets {key} of a tensor")
        elif not self.is_fresh(o):
            space = getattr(o, "__dict__", None)
            if kind == "attribute" and type(o).__setattr__ is _OBJECT.__setattr__ and type(space) is dict and space.get(key, ABSENT) is value and (
                    _static(type(o), key) is ABSENT):
                self.guards.shape(o, space)
                self.guards.part(space, key, value)  # it is that already
            else:
                self.taint(f"it changes a {type(o).__name__}")
        elif kind == "attribute" and (type(o).__setattr__ is not _OBJECT.__setattr__ or type(_static(type(o), key)) is property):
            self.taint(f"it sets {key} of a {type(o).__name__}")
        elif kind == "item" and (type(o) not in (list, dict) or not (_hashed(key) or type(key) is slice)):
            self.taint(f"it sets an item of a {type(o).__name__}")

    def place(self, kind: str, o: Any, key: Any) -> tuple[Any, ...]:
        """Where something is added to, and what is there."""
        return kind, o, key, self.attribute(o, key) if kind == "attribute" else self.item(o, key)

    def augment(self, where: tuple[Any, ...], name: str, value: Any) -> None:
        """``o.key += value`` or ``o[key] += value``."""
        kind, o, key, before = where
        self.store(kind, self.binary(name, before, value), o, key)


def _static(t: Any, name: str) -> Any:
    """What a class has under a name, as it stands there."""
    for c in t.__mro__:
        if name in vars(c):
            return vars(c)[name]
    return ABSENT


def _hashed(x: Any) -> bool:
    """Whether hashing and comparing it runs none of the program's Python."""
    if type(x) is tuple:
        return all(map(_hashed, x))
    return type(x) in ATOMS or isinstance(x, (Tensor, Storage)) or (type(x).__hash__ is _OBJECT.__hash__ and type(x).__eq__ is _OBJECT.__eq__)
