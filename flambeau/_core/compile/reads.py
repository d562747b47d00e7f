"""A run of a function that learns what it depends on: each read of something that may be another one later becomes a guard.

Allowed is what is known: what is done to numbers, texts and containers of them, operations on tensors, functions whose text can be looked through, and
what says itself what it reads (`__reads__`).  Anything else is done all the same, but from then on nothing is learned: the run is `off`.
What the function made itself needs no guards; everything that is not known to be made by it is taken for older.
"""
from __future__ import annotations

import builtins
import operator
import sys
from collections import defaultdict, namedtuple
from contextvars import ContextVar
from importlib.util import resolve_name
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MemberDescriptorType, MethodType, MethodWrapperType, ModuleType
from typing import TYPE_CHECKING, Any

from ..tensor import Meta, Tensor
from . import instrument
from .calls import CONTEXTS, GENERATED, Calls
from .guards import ABSENT
from .knowing import ATOMS, CONTAINERS, DICTS, NUMBERS, OBJECT, PACKAGE, PACKED, hashed, of_package, static
from .later_numbers import LATER, cleanse, compared, number, plain, reckoned, settled

if TYPE_CHECKING:
    from collections.abc import Callable

_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "is_sparse", "is_meta", "itemsize", "nbytes", "requires_grad", "is_leaf", "layout", "T",
               "H", "mT", "mH", "real", "imag", "data", "meta"}
_PART: Any = type(namedtuple("_", "part").part)  # type: ignore[attr-defined]
_LOAD: Any = ModuleType.__getattribute__
_FEW = 64  # keywords
_TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}  # what Python asks of the second operand


class _Entered:
    """An object whose class says in Python what a ``with`` block does at its ends."""

    def __init__(self, run: Run, x: Any, enter: Any, leave: Any) -> None:
        self.run, self.of, self.enter, self.leave = run, x, enter, leave

    def __enter__(self) -> Any:
        return self.run.callee(self.enter)(self.of)

    def __exit__(self, *error: Any) -> Any:
        return self.run.callee(self.leave)(self.of, *error)


class Run(Calls):
    """A ``with`` block in which a function is called by `callee`; its arguments are those of `Knowing`."""

    # loads ---------------------------------------------------------------------------------------------------------------
    def loaded(self, x: Any) -> Any:
        """A name's value: no number is told from others once nothing is learned any more."""
        if self.off and self.effects.numbers:
            if type(x) is dict and len(x) <= _FEW:  # keywords
                cleanse(x)
            return plain(x)
        return x

    def global_(self, name: str) -> Any:
        """The value of a global that the text binds."""
        return self._of_globals(sys._getframe(1).f_globals, name)

    def _of_globals(self, space: dict[str, Any], name: str) -> Any:
        if name in space:
            return space[name] if self.off else self._part(space, name)
        if not self.off:
            self.taint(f"it loads {name}, which it binds, and which is no global yet")
        if name in (builtin := vars(builtins)):
            return builtin[name]
        raise NameError(f"name {name!r} is not defined", name=name)

    def moved_global(self, name: str) -> Any:
        """The value of a global that is added to."""
        space = sys._getframe(1).f_globals
        if not self.off and name in space:
            self.effects.moved.add((id(space), name))
            return self._part(space, name)
        return self._of_globals(space, name)

    def store_global(self, name: str, value: Any) -> None:
        """``global name; name = value``."""
        self.store("item", value, sys._getframe(1).f_globals, name)

    def attribute(self, o: Any, name: str) -> Any:
        """``o.name``."""
        if type(o) in LATER:
            o = settled(o)
        if self.off:
            return getattr(o, name)
        t = type(o)
        if isinstance(o, Tensor):
            return self._of_tensor(o, name)
        if isinstance(o, tuple) and type(static(t, name)) is _PART and static(t, "__getattribute__") is static(tuple, "__getattribute__"):
            self.guards.attribute(t, name, static(t, name))  # of a tuple whose parts have names
            return getattr(o, name)
        if t in ATOMS or t in PACKED or t in CONTAINERS or t in DICTS or t is Meta or t is ContextVar:
            return getattr(o, name)
        if isinstance(o, ModuleType) and static(t, "__getattribute__") is _LOAD and (t is ModuleType or static(t, name) is ABSENT):
            if t is not ModuleType:
                self.guards.shape(o, None)
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
        found = self.special(t, name)
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

    def special(self, x: Any, *names: str) -> Any:
        """What a tensor's class has under the first of these names; a program may put something else there, under any of them."""
        t = type(x)
        for name in names if isinstance(x, Tensor) else ():
            if (found := static(t, name)) is not ABSENT:
                self.guards.attribute(t, name, found)
                if name[:2] == "__" and not getattr(found, "__module__", "").startswith(PACKAGE):
                    self.taint(f"{name} of a {t.__name__} is a program's own")
        return static(t, names[0])

    def _of_super(self, o: Any, name: str) -> Any:
        found = getattr(o, name)
        on = o.__self__
        if not isinstance(on, type) and type(found) in (MethodType, MethodWrapperType) and found.__self__ is on:
            order = type(on).__mro__
            for c in order[order.index(o.__thisclass__) + 1:]:
                if name in vars(c):
                    if c is OBJECT and name == "__init__":  # which is not changed
                        return found
                    if type(found) is MethodType and vars(c)[name] is found.__func__:
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
        space = o.__dict__ if static(t, "__dict__") is not ABSENT else None
        if not self.is_fresh(o):
            g.shape(o, space)
        if name in ("__dict__", "__class__"):
            return self._new(o.__dict__) if name == "__dict__" and self.is_own(o) else getattr(o, name)
        of_class = static(t, name)
        kind = type(of_class)
        if of_class is ABSENT:
            g.lacks(t, name)
        elif kind in (property, FunctionType, MemberDescriptorType) or kind is staticmethod or not hasattr(kind, "__get__"):
            g.attribute(t, name, getattr(t, name))
        elif kind is classmethod and type(of_class.__func__) is FunctionType and name.isidentifier():
            g.line(("method", id(t), name), f"{g.name(t)}.{name}.__func__ is {g.name(of_class.__func__)}")
        elif static(kind, "__get__") is static(property, "__get__"):
            g.found(t, name, of_class)
            kind = property
        elif type(read := static(kind, "__get__")) is FunctionType and space is not None:  # of a class of the program's
            g.found(t, name, of_class)
            g.attribute(kind, "__get__", read)
            if name in space and not (hasattr(kind, "__set__") or hasattr(kind, "__delete__")):
                return space[name] if self.is_fresh(o) else self._part(space, name)
            if not self.is_fresh(o):
                g.part(space, name, ABSENT) if name not in space else None
            return self.callee(read)(of_class, o, t)
        else:
            self.taint(f"it loads {name}, a {kind.__name__}")
            return getattr(o, name)
        if kind is property:
            if of_class.fget is None:
                return getattr(o, name)
            return self.callee(of_class.fget)(o)
        if kind is MemberDescriptorType:  # such a place is not changed by the run
            found = getattr(o, name)
            if not self.is_fresh(o):
                g.attribute(o, name, found)
            return found
        if space is not None and name in space:
            return space[name] if self.is_fresh(o) else self._part(space, name)
        if space is not None and not self.is_fresh(o):
            g.part(space, name, ABSENT)
        if of_class is not ABSENT:
            return getattr(o, name)
        other = static(t, "__getattr__")
        if type(other) is FunctionType:
            g.attribute(t, "__getattr__", other)
            return self.callee(other)(o, name)
        if other is not ABSENT:
            self.taint(f"it loads {name} of a {t.__name__}")
        return getattr(o, name)

    def _part(self, d: Any, key: Any) -> Any:
        """What a dict that lived before has under a key."""
        known, found = self.effects.part(d, key)
        if not known:
            self.guards.part(d, key, found)
        return found

    def item(self, o: Any, key: Any) -> Any:
        """``o[key]``."""
        key = settled(key)
        if self.off:
            return o[key]
        if isinstance(o, Tensor):
            return self.leaf(self.special(o, "__getitem__"), o, key)
        t = type(o)
        if t in ATOMS or t in PACKED or isinstance(o, tuple):
            if not self.atoms(key):
                self.taint("its index is an object")
        elif t is list:
            if type(key) is int and not self.is_fresh(o) and -len(o) <= key < len(o):
                self._unchanged(o)
                self.guards.element(o, key)
            else:
                self.whole(o)
                self.atoms(key)
                if type(key) is slice:
                    return self.fresh(o[key])
        elif t is defaultdict and hashed(key) and key not in o and (self.is_own(o) or self.adopt(o)):
            self.guards.attribute(o, "default_factory", o.default_factory)
            if o.default_factory is not None:
                o[key] = self.callee(o.default_factory)()
        elif isinstance(o, dict) and static(t, "__getitem__") is static(dict, "__getitem__") and (key in o if hashed(key) else False):
            return o[key] if self.is_fresh(o) else self._part(o, key)
        else:
            found = static(t, "__getitem__")
            if type(found) is FunctionType:
                if not self.is_fresh(o):
                    self.guards.shape(o, o.__dict__ if static(t, "__dict__") is not ABSENT else None)
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
            return self._new(iter(self.leaf(self.special(o, "__iter__"), o)))
        if type(own := static(t, "__iter__")) is FunctionType and self.is_fresh(o):
            self.guards.attribute(t, "__iter__", own)
            return self.iterable(self.callee(own)(o), parts)
        if t in ATOMS or t in PACKED or isinstance(o, tuple):
            pass
        elif self.is_fresh(o) or (t is GeneratorType and o.gi_frame is not None and o.gi_frame.f_locals.get(instrument.NAME) is self):
            pass
        elif t is list or isinstance(o, dict):
            self.whole(o)
        else:
            found = static(t, "__iter__")
            if type(found) is FunctionType:
                self.guards.shape(o, o.__dict__ if static(t, "__dict__") is not ABSENT else None)
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
            return f(plain(a), plain(b))
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            self._operator(name, a, b)
            return self.leaf(f, a, b)
        if type(a) in LATER or type(b) in LATER:
            return self._reckoned(name, f, a, b)
        if type(a) is list or type(b) is list:
            if name == "iadd" and type(a) is list and not self.is_handed(a) and not self.is_fresh(a) and not isinstance(b, Tensor):
                self._extended(a, b)
                return a
            if name[0] == "i" and not self.is_own(a):
                self.taint("it changes a list")
            for x in (a, b):
                self.whole(x)
            return self._new(f(a, b))
        if not (self.atoms(a) and self.atoms(b)):
            if not (isinstance(a, tuple) and isinstance(b, tuple) and name == "add"):
                self.taint(f"it calls {name} on a {type(a).__name__} and a {type(b).__name__}")
        return f(plain(a), plain(b))

    def _reckoned(self, name: str, f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """What is reckoned with a number that is another one at each call."""
        plainly = name[1:] if name[0] == "i" and name != "invert" else name
        how, raises = reckoned(plainly, f, a, b, self.guards)
        if how is None:
            return f(settled(a), settled(b)) if self.atoms(a) and self.atoms(b) else self._unknown(name, f, plain(a), plain(b))
        return self.effects.worked(how, self.done()) if raises else number(how)

    def _unknown(self, name: str, f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        self.taint(f"it calls {name} on a {type(a).__name__} and a {type(b).__name__}")
        return f(a, b)

    def _operator(self, name: str, a: Any, b: Any) -> None:
        name = name.rstrip("_")
        plain = name[1:] if name[0] == "i" and name != "invert" else name
        self.special(a, f"__{name}__", f"__{plain}__")
        self.special(b, f"__r{plain}__")

    def unary(self, name: str, a: Any) -> Any:
        """``-a`` and its like."""
        f = getattr(operator, name)
        if self.off:
            return f(plain(a))
        if isinstance(a, Tensor):
            self.special(a, f"__{name.rstrip('_')}__")
            return self.leaf(f, a)
        if type(a) in LATER and name == "neg":
            return self._reckoned("mul", operator.mul, a, -1)
        a = settled(a)
        if type(a) not in NUMBERS:
            self.taint(f"it calls {name} on a {type(a).__name__}")
        return f(a)

    def compare(self, name: str, a: Any, b: Any) -> Any:
        """``a < b``, ``a in b`` and their like."""
        if name in ("Is", "IsNot"):
            return (settled(a) is settled(b)) is (name == "Is")
        if name in ("in", "not in"):
            if not self.off:
                self._looked_for(a, b)
            a, b = plain(a), plain(b)
            return (a in b) if name == "in" else (a not in b)
        f = getattr(operator, name)
        if self.off:
            return f(plain(a), plain(b))
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            for x in (a, b):
                self.special(x, f"__{name}__", f"__{_TURNED[name]}__")
            return self.leaf(f, a, b)
        if (type(a) in LATER or type(b) in LATER) and (text := compared(name, a, b, self.guards)) is not None:
            made = f(plain(a), plain(b))
            self.guards.line(("compared", text), f"{text} is {made}")
            return made
        if type(a) in LATER or type(b) in LATER:
            made = self.looked(name, a, b) if type(a) in LATER and not a.how.early else self.looked(_TURNED[name], b, a)
            if made is not None:
                return made
        if not (self.atoms(a) and self.atoms(b)):
            self.taint(f"it compares a {type(a).__name__} and a {type(b).__name__}")
        return f(plain(a), plain(b))

    def chain(self, a: Any, *rest: Any) -> Any:
        """``a < b < c``.  rest: the name of each comparison, and what gives its second operand."""
        for k in range(0, len(rest), 2):
            name, b = rest[k], rest[k + 1]()
            found = self.compare(name, a, b)
            if k + 2 == len(rest) or not self.tested(found):
                break
            a = b
        return found

    def imported(self, module: str, package: str, name: str | None, found: Any) -> None:
        """What an import gave.  module: its name, relative to a package; name: of the attribute (None: the module itself)."""
        if self.off:
            return
        place = resolve_name(module, package)
        m = sys.modules.get(place)
        if name is None and m is found:
            self.guards.part(sys.modules, place, m)
        elif type(m) is ModuleType and m.__dict__.get(str(name), ABSENT) is found:
            self.guards.part(sys.modules, place, m)
            self.guards.part(m.__dict__, name, found)
        else:
            self.taint(f"it imports {name} from {place}")

    def _looked_for(self, a: Any, b: Any) -> None:
        if isinstance(b, dict) and static(type(b), "__contains__") is static(dict, "__contains__") and hashed(a):
            if not self.is_fresh(b) and (a in b) is not ((id(b), a) in self.guards.touched):  # what it set was there before
                self.guards.part(b, a, b.get(a, ABSENT))
        elif self.is_fresh(b) and type(b) is set and hashed(a):
            pass
        elif not (self.atoms(a) and self.atoms(b)):
            self.taint(f"it looks for a {type(a).__name__} in a {type(b).__name__}")

    def tested(self, x: Any) -> Any:
        """What is taken for true or false."""
        if type(x) in LATER:
            if not self.off and x.how.early:
                self.guards.line(("compared", x.how.text), f"bool({x.how.text}) is {plain(x) != 0}")
                return plain(x)
            made = None if self.off else self.looked("ne", x, 0)
            return settled(x) if made is None else made
        if self.off or type(x) in ATOMS or type(x) in PACKED or isinstance(x, (tuple, Tensor, type, FunctionType, MethodType, ModuleType)):
            if isinstance(x, Tensor) and not self.off:
                self.special(x, "__bool__")
                self._argument(x)
            return x
        if type(x) is list or (isinstance(x, dict) and type(x).__module__ in ("builtins", "collections")):
            if not self.is_fresh(x):
                self._unchanged(x)
                self.guards.empty(x)
        elif static(type(x), "__bool__") is ABSENT and static(type(x), "__len__") is ABSENT:
            for name in ("__bool__", "__len__"):
                self.guards.lacks(type(x), name)
        elif not self.is_fresh(x) or type(x) is not set:
            self.taint(f"it tests a {type(x).__name__}")
        return x

    def formatted(self, x: Any) -> Any:
        """What becomes text."""
        if not self.off and not self.atoms(x):
            self.taint("it formats an object")
        return plain(x)

    def context(self, x: Any) -> Any:
        """What a ``with`` block enters."""
        t = type(x)
        if self.off or t in CONTEXTS or of_package(t, "__reads__") or (t is GENERATED and self.is_fresh(x)):
            return x
        enter, leave = static(t, "__enter__"), static(t, "__exit__")
        if t is GENERATED or type(enter) is not FunctionType or type(leave) is not FunctionType:
            self.taint(f"it enters a {t.__name__}")
            return x
        self.guards.shape(x, None)
        self.guards.attribute(t, "__enter__", enter)
        self.guards.attribute(t, "__exit__", leave)
        return _Entered(self, x, enter, leave)

    # stores --------------------------------------------------------------------------------------------------------------
    def store(self, kind: str, value: Any, o: Any, key: Any) -> None:
        """``o.key = value`` or ``o[key] = value``."""
        found = static(type(o), "__setattr__")
        key = settled(key)
        if self.off:
            value = plain(value)
        if kind == "item":
            if not self.off:
                self._stored(kind, value, o, key)
            o[key] = value if self.is_own(o) else plain(value)
        elif self.off:
            setattr(o, key, value)
            return
        elif isinstance(o, Tensor) or found is static(object, "__setattr__"):
            self.plainly(o, key, value)
            return
        elif type(found) is FunctionType:
            self.guards.shape(o, o.__dict__ if static(type(o), "__dict__") is not ABSENT and not self.is_fresh(o) else None)
            self.guards.attribute(type(o), "__setattr__", found)
            self.callee(found)(o, key, value)
            return
        else:
            self.taint(f"it sets {key} of a {type(o).__name__}")
            setattr(o, key, value)
        self._check()

    def plainly(self, o: Any, key: str, value: Any) -> None:
        """What `object` does to set an attribute; of tensors, what they do."""
        if not self.off:
            self._stored("attribute", value, o, key)
        value = value if self.is_own(o) else plain(value)
        setattr(o, key, value) if isinstance(o, Tensor) else object.__setattr__(o, key, value)
        self._check()

    def _stored(self, kind: str, value: Any, o: Any, key: Any) -> None:
        if isinstance(o, Tensor):
            if kind == "item":
                self.special(o, "__setitem__")
                for x in (o, key, value):
                    self._argument(x)
            elif key == "requires_grad" and not self.is_old(o) and type(value) is bool:
                pass
            elif key == "grad" and (value is None or (isinstance(value, Tensor) and not self.is_old(value))):
                self.gradient(o)
                if value is None:
                    self.cleared.setdefault(id(o), len(self.recording.steps))
            else:
                self.taint(f"it sets {key} of a tensor")
        elif self.is_handed(o):
            self.taint(f"it changes a {type(o).__name__} that it is given")
        elif not self.is_fresh(o):
            space = self._space(kind, o, key)
            if kind == "item" and space is not None and key not in space and self.adopt(o):
                return
            if space is None or key not in space:
                self.taint(f"it changes a {type(o).__name__}")
                return
            if kind == "attribute":
                of_class = static(type(o), key)
                self.guards.shape(o, space)
                self.guards.lacks(type(o), key) if of_class is ABSENT else self.guards.attribute(type(o), key, getattr(type(o), key))
            if space[key] is value and (id(space), key) not in self.guards.touched:
                self.guards.part(space, key, value)  # it is that already
            else:
                if (id(space), key) not in self.guards.touched:
                    self.guards.line(("there", id(space), key), f"{self.guards.key(key)} in {self.guards.name(space)}")
                self.effects.set(space, key, value, self.done())
        elif kind == "attribute" and hasattr(type(static(type(o), key)), "__set__") and type(static(type(o), key)) is not MemberDescriptorType:
            self.taint(f"it sets {key} of a {type(o).__name__}")
        elif kind == "item" and (type(o) not in (list, dict, *DICTS) or not (hashed(key) or type(key) is slice)):
            self.taint(f"it sets an item of a {type(o).__name__}")

    def _space(self, kind: str, o: Any, key: Any) -> Any:
        """The dict in which an object that lived before keeps what is set; None where that is not known."""
        if kind == "item":
            return o if (type(o) is dict or type(o) in DICTS) and hashed(key) else None
        if isinstance(o, (type, ModuleType, FunctionType, MethodType)) or static(type(o), "__getattribute__") is not static(object, "__getattribute__"):
            return None  # what is set there is read in other ways
        space = getattr(o, "__dict__", None)
        of_class = static(type(o), key)
        return space if type(space) is dict and (of_class is ABSENT or not hasattr(type(of_class), "__set__")) else None

    def place(self, kind: str, o: Any, key: Any) -> tuple[Any, ...]:
        """Where something is added to, and what is there."""
        key = settled(key)
        if not self.off and not isinstance(o, Tensor) and not self.is_fresh(o) and (space := self._space(kind, o, key)) is not None:
            self.effects.moved.add((id(space), key))
        return kind, o, key, self.attribute(o, key) if kind == "attribute" else self.item(o, key)

    def augment(self, where: tuple[Any, ...], name: str, value: Any) -> None:
        """``o.key += value`` or ``o[key] += value``."""
        kind, o, key, before = where
        self.store(kind, self.binary(name, before, value), o, key)
