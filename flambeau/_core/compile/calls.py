"""What a run does in the place of calls: each callee is known, looked through, or ends the learning."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import math
import operator
from collections import OrderedDict
from contextvars import ContextVar
from functools import partial
from itertools import chain, islice
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, MethodWrapperType
from typing import Any

from ..autograd import functions, mode
from ..dtypes import dtype, finfo, get_default_dtype, iinfo
from ..engine import interpreters
from ..layout import Size
from ..ops import attributes, foreach, linear_activation, queries, reading
from ..runtime.device import device
from ..tensor import Tensor
from . import instrument
from .guards import ABSENT
from .knowing import ATOMS, CONTAINERS, DICTS, NUMBERS, OBJECT, PACKAGE, PACKED, Knowing, hashed, of_package, static
from .later_numbers import LATER, How, applied, number, plain, settled

# functions on tensors that are no operations: they read layouts, or pass over the tape
_LEAVES: set[Any] = {attributes.size, attributes.stride, attributes.numel, attributes.dim, attributes.is_contiguous, attributes._len, attributes._iter,
                     attributes._new_tensor_type, queries.broadcast_shapes,
                     functions.grad, functions.backward, linear_activation.linear_with_activation, linear_activation.serves,
                     foreach.norms, foreach.scale, foreach.unscale}
_TAKING = {reading.methods[name] for name in ("item", "tolist")}  # what takes a tensor's element
_PASSES = {"backward"}  # operations that pass over the tape, too
GENERATED: Any = contextlib._GeneratorContextManager
CONTEXTS = (mode.no_grad, mode.enable_grad, mode.set_grad_enabled, mode.inference_mode)
_OVER_ITEMS = {zip, enumerate, reversed, iter, tuple, list, set, frozenset, sorted, sum, min, max, any, all, dict, islice, chain, map}
_ON_ATOMS: set[Any] = {len, abs, round, divmod, pow, ord, chr, hash, repr, int, float, bool, str, complex, range, slice, operator.index, *[
    f for f in vars(math).values() if isinstance(f, BuiltinFunctionType)]}
_OF_NUMBERS: set[Any] = {f for f in vars(math).values() if isinstance(f, BuiltinFunctionType)}  # a function gives the same class of number for all
_FREE: set[Any] = {mode.is_grad_enabled, get_default_dtype, interpreters.watched, super, mode.DecoratorContextManager.clone}


def _only_keeps(c: type, init: FunctionType) -> bool:
    """Whether a class is a dataclass whose `__init__` is the one that was made for it, and only sets the attributes that it is given."""
    if "__dataclass_fields__" not in c.__dict__ or hasattr(c, "__post_init__") or static(c, "__setattr__") is not OBJECT.__setattr__ or init.__closure__:
        return False
    fields = dataclasses.fields(c)
    if len(fields) != len(c.__dict__["__dataclass_fields__"]) or any(
            not f.init or f.kw_only or f.default_factory is not dataclasses.MISSING or hasattr(static(c, f.name), "__set__") for f in fields):
        return False
    like: Any = dataclasses.make_dataclass("Like", [f.name if f.default is dataclasses.MISSING else (f.name, OBJECT, dataclasses.field(default=None))
                                                    for f in fields])
    return all(getattr(init.__code__, name) == getattr(like.__init__.__code__, name) for name in ("co_code", "co_names", "co_varnames", "co_consts"))


class Calls(Knowing):
    """The calls of a run; loads, operators and stores are `reads.Run`'s."""

    def attribute(self, o: Any, name: str) -> Any:
        raise NotImplementedError

    def iterable(self, o: Any, parts: bool = False) -> Any:
        raise NotImplementedError

    def binary(self, name: str, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def tested(self, x: Any) -> Any:
        raise NotImplementedError

    def plainly(self, o: Any, key: str, value: Any) -> None:
        raise NotImplementedError

    def store(self, kind: str, value: Any, o: Any, key: Any) -> None:
        raise NotImplementedError

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
            return self._of_partial(f)
        if f is OBJECT.__setattr__:
            return self.plainly
        if t is MethodWrapperType and f.__name__ == "__init__" and f.__objclass__ is OBJECT:
            return f
        found = static(t, "__call__")
        if type(found) is FunctionType:
            self.guards.shape(f, None)
            self.guards.attribute(t, "__call__", found)
            inner = self.callee(found)
            return f if inner is found else MethodType(inner, f)
        return self._opaque(f, t.__name__)

    def _of_partial(self, f: partial[Any]) -> Any:
        """What a partial function calls, with what it holds of arguments."""
        if not self.is_fresh(f):
            self.guards.shape(f, f.__dict__)
            for name in ("func", "args", "keywords"):
                self.guards.attribute(f, name, getattr(f, name))
        self.whole(f.keywords)
        return partial(self.callee(f.func), *f.args, **f.keywords)

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
        reads = of_package(f, "__reads__")
        if reads is not None:
            return partial(self._told, f, reads)
        if f.__module__ is not None and f.__module__.startswith(PACKAGE + "._core"):
            return self._opaque(f, f"{f.__module__}.{f.__qualname__}")
        try:
            made = instrument.instrumented(f, self)
        except instrument.Beyond as why:
            return self._opaque(f, f"{f.__qualname__}: {why}")
        cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
        if any(self.is_old_object(cells[name]) for name in instrument.nonlocal_stores(f.__code__)):
            return self._opaque(f, f"{f.__qualname__}: it binds a name of a function around it")
        self.entered(f)
        return made

    def entered(self, f: FunctionType) -> None:
        """Guards of a function: its code, its defaults, and the names from elsewhere that it loads."""
        g = self.guards
        if self.is_old_object(f):  # of another that the run made, what it holds follows from the run
            for name in ("__code__", "__defaults__", "__kwdefaults__"):
                if getattr(f, name) is not None:  # where it had no defaults, all was given
                    g.attribute(f, name, getattr(f, name))
            if f.__kwdefaults__:
                g.keys(f.__kwdefaults__)
        for cell in f.__closure__ or ():
            if self.is_old_object(cell):
                g.cell(cell)
        own, bound = f.__globals__, instrument.global_stores(f.__code__)
        for name in instrument.global_names(f.__code__):
            if name in bound:  # the text itself asks for it
                continue
            if name in own:
                g.part(own, name, own[name])
            else:
                g.part(own, name, ABSENT)
                g.part(vars(builtins), name, vars(builtins).get(name, ABSENT))

    def _told(self, f: Any, reads: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of what says itself what it reads."""
        args, kwargs = tuple(map(settled, args)), {k: settled(v) for k, v in kwargs.items()}
        if not self.off:
            why = reads(self, *args, **kwargs)
            if why is not None:
                self.taint(why)
        made = f(*args, **kwargs)
        self._check()
        return made if self.is_old_object(made) else self._new(made)

    def _requires(self, f: Any, t: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.off and (self.is_old(t) or not isinstance(t, Tensor)):
            self.taint("it changes whether a tensor requires grad")
        return f(t, *args, **kwargs)

    def leaf(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of an operation."""
        before = len(self.recording.steps)
        if not self.off and f not in _FREE:
            for x in (*args, *kwargs.values()):
                self._argument(x)
        if self.effects.numbers:
            args, kwargs = tuple(map(self._handed_on, args)), {k: self._handed_on(v) for k, v in kwargs.items()}
        if self.off:
            return f(*args, **kwargs)
        if f not in _FREE:
            if f in (functions.grad, functions.backward) or getattr(f, "__name__", "") in _PASSES:
                self.passes = True
                self.accumulates = self.accumulates or f is not functions.grad
        made = f(*args, **kwargs)
        self._check()
        if type(made) in CONTAINERS:
            self._fresh[id(made)] = made
        return self.took(args[0], made, before) if f in _TAKING and len(args) == 1 else made

    def _handed_on(self, x: Any) -> Any:
        """What an operation is given: plain numbers."""
        if type(x) is list and any(type(part) in LATER for part in x):
            return [plain(part) for part in x]
        return plain(x)

    def _builtin(self, f: Any) -> Any:
        on = f.__self__
        if f in _ON_ATOMS or f in _OVER_ITEMS or f in _FREE:
            return self._ordinary(f)
        if f is id:
            return self._id
        if f is isinstance or f is issubclass or f is callable:
            return partial(self._classed, f)
        if f is next:
            return self._next
        if f is getattr or f is hasattr:
            return partial(self._getattr, f)
        if f is setattr:
            return lambda o, name, value: self.store("attribute", value, o, name)
        t = type(on)
        name = f.__name__
        if t in ATOMS or t in PACKED or t in LATER:
            return partial(self._on_atoms, f)
        if t is ContextVar and name == "get" and f.__self__ in (mode._grad, mode._inference):
            return f  # `guards.modes` has it
        if t in CONTAINERS or t in DICTS or (isinstance(on, dict) and getattr(dict, name, None) is not None and static(t, name) is static(dict, name)):
            if self.is_fresh(on):
                if name in ("items", "keys", "values", "copy", "get"):
                    return partial(self._hashing, f) if name == "get" else lambda: self._new(f())
                if not self.is_own(on):
                    return self._opaque(f, f"{name} of a {t.__name__} that it is given")
                if name in ("add", "discard", "pop"):
                    return partial(self._hashing, f)
                if name == "update" and t is not set:
                    return partial(self._updated, f)
                if name in ("setdefault", "pop"):
                    return partial(self._hashing, f)
                return f if name in ("append", "extend", "clear") else partial(self._on_atoms, f)
            if name in ("append", "extend") and t is list:
                return partial(self._appended if name == "append" else self._extended, on)
            if name == "get" and isinstance(on, dict):
                return partial(self._get, on)
            if name == "update" and (t is dict or t in DICTS):
                return partial(self._set_by, on)
            if name in ("clear", "pop", "setdefault") and self.adopt(on):
                return self._builtin(f)
            self._unchanged(on)
            if name in ("items", "keys", "values", "copy") and isinstance(on, dict):
                self.whole(on)
                return lambda: self._new(f())
            if name in ("index", "count", "copy") and t is list and self.atoms(on):
                return lambda *args: self._new(f(*args))
            return self._opaque(f, f"{t.__name__}.{name}")
        return self._opaque(f, f.__qualname__)

    def _next(self, it: Any, *default: Any) -> Any:
        """The next of what an iterator gives that the run made."""
        if not self.off and not self.is_fresh(it) and not (type(it) is GeneratorType and it.gi_frame is not None and (
                it.gi_frame.f_locals.get(instrument.NAME) is self)):
            self.taint(f"it takes the next of a {type(it).__name__}")
        return next(it, *default)

    def _hashing(self, f: Any, *args: Any) -> Any:
        if not self.off and args and not hashed(args[0]):
            self.taint("it hashes an object")
        return f(*map(plain, args[:1]), *args[1:])

    def _updated(self, f: Any, *args: Any, **kwargs: Any) -> None:
        """``d.update(...)`` of a dict that the run made."""
        for d in args if not self.off else ():
            if type(d) is not dict and type(d) not in DICTS:
                self.taint(f"it updates a dict by a {type(d).__name__}")
            elif not all(map(hashed, d)):
                self.taint("it hashes an object")
            else:
                self.whole(d)
        f(*args, **kwargs)

    def _set_by(self, on: Any, *args: Any, **kwargs: Any) -> None:
        """``d.update(...)`` of a dict that lived before."""
        for d in (*args, kwargs):
            if self.off or (type(d) is not dict and type(d) not in DICTS):
                self.taint(f"it updates a dict by a {type(d).__name__}")
                on.update(d)
                continue
            self.whole(d)
            for key, value in d.items():
                self.store("item", value, on, key)

    def _appended(self, x: list[Any], value: Any) -> None:
        """``x.append(value)`` of a list that lived before."""
        if not self.off:
            self.effects.append(x, value, self.done())
        x.append(plain(value))

    def _extended(self, x: list[Any], values: Any) -> None:
        """``x.extend(values)`` of a list that lived before."""
        if self.off:
            x.extend(values)
        else:
            for value in [*self.iterable(values)]:
                self._appended(x, value)

    def _id(self, x: Any) -> int:
        """The identity of what lived before, and will be the same."""
        if not self.off and (not self.is_old(x) or id(x) in self._operands if isinstance(x, Tensor) else self.is_fresh(x) or type(x) in ATOMS):
            self.taint("it asks for the id of an object that it made")
        return id(x)

    def _new(self, x: Any) -> Any:
        """What was made just now."""
        if not self.off and type(x) not in ATOMS and type(x) not in PACKED and type(x) not in LATER and not isinstance(x, Tensor):
            self._fresh[id(x)] = x
        return x

    def _get(self, d: Any, key: Any, default: Any = None) -> Any:
        if not self.off:
            key = settled(key)
            if not hashed(key):
                self.taint("it hashes an object")
            elif not self.is_fresh(d):
                if key in d:
                    return self._part(d, key)
                self.guards.part(d, key, ABSENT)
        return d.get(key, default)

    def _part(self, d: Any, key: Any) -> Any:
        raise NotImplementedError

    def _on_atoms(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        if f in (bool, int, float) and len(args) == 1 and isinstance(args[0], Tensor) and not self.off:
            return self._number(f, args[0])
        if f in (float, int, abs, round) and args and type(args[0]) in LATER and not self.off and not kwargs:
            return self._converted(f, args[0], *map(settled, args[1:]))
        if f in _OF_NUMBERS and not self.off and not kwargs and LATER.intersection(map(type, args)) and (how := applied(f, args, self.guards, True)):
            return self.effects.worked(how, self.done())
        if not self.off and not all(map(self.atoms, (*args, *kwargs.values()))):
            self.taint(f"it calls {f.__name__} on an object")
        if type(f.__self__ if type(f) is BuiltinFunctionType else None) in LATER:
            f = getattr(settled(f.__self__), f.__name__)
        return self._new(f(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()}))

    def _converted(self, f: Any, x: Any, *rest: Any) -> Any:
        """A number made of one that is another at each call."""
        how, made = x.how, f(plain(x), *rest)
        raises = type(made) is not type(how.value) or (f is round and type(made) is float)
        if not all(type(r) is int for r in rest):
            return f(settled(x), *rest)
        text = f"{f.__name__}({', '.join([how.text, *map(repr, rest)])})"
        found = How(self.guards, made, text, how.early and not raises, how.begins, how.items, how.bits)
        return self.effects.worked(found, self.done()) if raises else number(found)

    def _number(self, f: Any, t: Tensor) -> Any:
        """A tensor's element as a number."""
        self.special(t, f"__{f.__name__}__")
        self._argument(t)
        before = len(self.recording.steps)
        made = f(t)
        self._check()
        exact = (f is float and t.meta.dtype.kind == "f") or (f is int and t.meta.dtype.kind in "ui")
        return self.took(t, made, before) if exact else made

    def special(self, x: Any, *names: str) -> Any:
        raise NotImplementedError

    def _ordinary(self, f: Any) -> Any:
        """Builtin functions and classes."""
        if f in _FREE:
            return f
        if f in _ON_ATOMS:
            return partial(self._sized if f is len else self._on_atoms, f)
        return partial(self._over_items, f)

    def _sized(self, f: Any, x: Any) -> Any:
        own = static(type(x), "__len__")
        if self.off or type(x) in ATOMS or type(x) in PACKED or (self.is_fresh(x) and type(own) is not FunctionType):
            return f(x)
        if isinstance(x, Tensor):
            return self.leaf(attributes._len, x)
        if type(x) is list and (length := self.effects.length(x)) is not None:
            return length
        if type(x) is list or isinstance(x, dict):
            self.whole(x)
            return f(x)
        if type(own) is FunctionType:
            self.guards.attribute(type(x), "__len__", own)
            return self.callee(own)(x)
        if not isinstance(x, tuple):
            self.taint(f"it asks the length of a {type(x).__name__}")
        return f(x)

    def _over_items(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        if self.off:
            return f(*args, **kwargs)
        if f is map and args:
            args = (self.callee(args[0]), *args[1:])
            return self._new(map(args[0], *map(self.iterable, args[1:])))
        if f is iter and len(args) == 1:
            return self._new(iter(self.iterable(args[0])))
        if f in (any, all) and len(args) == 1:
            for x in self.iterable(args[0]):  # as far as it must
                if bool(self.tested(x)) is (f is any):
                    return f is any
            return f is all
        if f in (sum, min, max, sorted, set, frozenset, dict, OrderedDict):
            if f in (min, max) and len(args) > 1:
                if not kwargs and LATER.intersection(map(type, args)) and len({type(plain(x)) for x in args}) == 1 and (
                        how := applied(f, args, self.guards, False)):
                    return number(how)
                args = (self.fresh([*args]),)  # one is taken of these themselves
            given = [self.iterable(x) if not self.atoms(x, False) else x for x in args]
            if f is not dict and f is not OrderedDict and not self.off:
                given = [[*x] if type(x) not in ATOMS else x for x in given]
                if kwargs or not all(all(map(self.atoms, x)) if type(x) is list else self.atoms(x) for x in given):
                    if f is sum and not kwargs and all(isinstance(x, Tensor) or type(x) in NUMBERS for x in given[0]):
                        total = given[1] if len(given) > 1 else 0
                        for x in given[0]:
                            total = self.binary("add", total, x)
                        return total
                    self.taint(f"it calls {f.__name__} on objects")
            return self._new(f(*given, **kwargs))
        args, kwargs = tuple([settled(x) if type(x) in LATER else x for x in args]), {k: settled(v) for k, v in kwargs.items()}
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
                if type(each).__module__ != "builtins" and not type(each).__module__.startswith(PACKAGE):
                    self.taint(f"it asks for instances of {each!r:.60}")
        if not self.off and not isinstance(o, (type, Tensor)) and type(o).__flags__ & 512 and not self.is_fresh(o):  # of a class that may be assigned
            self.guards.shape(o, None)
        return f(o, *classes)

    def _class(self, c: Any) -> Any:
        if c in _ON_ATOMS or c in _OVER_ITEMS or c in _FREE:
            return self._ordinary(c)
        if c is OrderedDict:
            return partial(self._over_items, c)
        if c is type:
            return lambda *args: self._typed(*args)
        if c in (finfo, iinfo):
            return lambda *args: self._new(c(*map(settled, args)))
        if c in CONTEXTS or c in (dtype, device, Size) or (issubclass(c, BaseException) and c.__module__ == "builtins"):
            return lambda *args, **kwargs: c(*map(settled, args), **kwargs)
        reads = of_package(c, "__reads__")
        if reads is not None:
            return partial(self._told, c, reads)
        new = static(c, "__new__")
        new = new.__func__ if type(new) is staticmethod else new
        if issubclass(c, tuple) and getattr(new, "__globals__", {}).get("__name__") == f"namedtuple_{c.__name__}" and c.__init__ is OBJECT.__init__:
            self.guards.attribute(c, "__new__", new)
            return c
        init = static(c, "__init__")
        if c is partial:
            return lambda *args, **kwargs: self._new(partial(*args, **kwargs))
        if c is GENERATED:
            return self._generated
        if static(type(c), "__call__") is static(type, "__call__") and c.__new__ is OBJECT.__new__ and type(init) is FunctionType and (
                not c.__module__.startswith(PACKAGE + "._core")):
            self.guards.attribute(c, "__init__", init)
            if _only_keeps(c, init):  # of a dataclass: its text is nowhere, and known
                for name in ("__defaults__", "__kwdefaults__"):
                    self.guards.attribute(init, name, getattr(init, name))
                self.guards.lacks(c, "__setattr__")
                return partial(self._made_of, c, init)
            inner = self.callee(init)
            if not self.off:
                return partial(self._made_of, c, inner)
        return self._opaque(c, c.__qualname__)

    def _generated(self, f: Any, args: Any, kwargs: Any) -> Any:
        """What `contextlib.contextmanager` makes of a generator function: Python's own, around a generator that the run looks through."""
        return self._new(GENERATED(self.callee(f), args, kwargs))

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
