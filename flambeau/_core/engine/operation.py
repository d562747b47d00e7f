"""An operation: what the engine knows of it, and the public function that users call.

The function's code is written at its first call (`fronts`); until then, and whenever an interpreter wants to see calls of the operation
(`interpreters`), it runs a general code that takes any arguments.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .. import dtypes, hooks
from ..autograd import tape
from ..kernels.cache import preparing
from ..runtime import caches
from ..runtime import device as devices
from ..tensor import Lazy, Meta, Tensor
from ..unknowns import index
from . import data, dense, fields, fronts, general, interpreters
from .beginnings import all_begin, begins
from .fronts import (
    BUFFER,
    CONSTANT,
    DATA,
    DEVICE,
    DTYPE,
    FACTOR,
    MISSING,
    NUMBER,
    OLD,
    OPTIONAL,
    PLACE,
    REST,
    SCALAR,
    SEQUENCES,
    SIZES,
    TENSOR,
    VALUE,
    Signature,
)
from .learning import Learner
from .plans import Compose, Plan, Relaid, Turned, Unbound, View, Written, roles, under

if TYPE_CHECKING:
    from types import CodeType

    Answer = Callable[["Operation", tuple[Any, ...], dict[str, Any]], Any]
    Values = tuple[Any, ...]


def _general(*args: Any, **kwargs: Any) -> Any:
    return enter(args, kwargs)  # type: ignore[name-defined]  # noqa: F821 (a name of each function's own globals)


_GENERAL: CodeType = _general.__code__
PLANS = frozenset((Plan, Compose, View, Relaid, Written, data.Taken))
GIVEN = frozenset((View, Turned, Compose, Plan))  # plans that the body of an operation that is not planned may give
TRACED = frozenset((View, Plan))  # those of them that are traced
LATER = frozenset((Plan, View, Written))  # plans that are bound at their second call
DENSE = frozenset((Plan, Written))  # plans that may hold for operands of any shape
NUMBERS = frozenset((float, int))  # types of numbers that launches take as they come
_SINGLE = frozenset((int, bool, float, complex, str, type(None), dtypes.dtype, devices.device, type(Ellipsis)))  # constants that hold no other
KNOWN: set[type] = {float, int, bool, complex, type(None), str, slice, type(Ellipsis), Tensor}  # classes that answer for nothing
# what the keys of factories' plans are made with
_FACTORIES = {"SEQUENCES": SEQUENCES, "DEFAULT": dtypes._default, "DType": dtypes.dtype, "settled": dtypes.settled,
              "THREAD": devices._thread, "CHOSEN": devices.chosen, "resolve": devices.resolve}
# what using a number or a list as a tensor ends in, and what NumPy says where it has no room
TRIPS: tuple[type[Exception], ...] = (AttributeError, IndexError, TypeError, MemoryError, ValueError)
# who may answer for operands that are no plain tensors, in order; each gives NotImplemented where it has no answer
answers: list[Answer] = []
# by the class of metas: who answers for operands of a layout of their own, where nobody else might; gives NotImplemented where it has no answer
layouts: dict[type, Callable[..., Any]] = {}
# by the class of metas: whether nobody answers for tensors that have them at this moment
silent: dict[type, Callable[[], bool]] = {}
# gives the arguments and keywords of a call in a deprecated order
old_orders: list[Callable[[str, tuple[Any, ...]], Any]] = []
# puts the error of a wrong argument into words: raises it, or gives the answer of an argument's class
explain: list[Callable[[Operation, Exception, tuple[Any, ...], dict[str, Any]], Any]] = []

# makes the operation of another's calls with `out=`
with_out: list[Callable[[Operation], Operation]] = []


def known(x: Any) -> bool:
    """Whether an argument that may be a tensor is a plain one, or surely none that answers for operations."""
    if isinstance(x, Tensor):
        return x.meta.plain
    if not hasattr(type(x), "__torch_function__"):
        return True
    return False


def _silent(values: Any, lists: bool = True) -> bool:
    """Whether it is known at a glance that nobody answers for arguments, which may be lists of such."""
    for x in values:
        if x.__class__ in _SINGLE:
            continue
        if isinstance(x, Tensor):
            m = x.meta
            if not m.plain and (m.__class__ not in silent or not silent[m.__class__]() or "_tangents" in x.__dict__):
                return False
        elif not lists or (x.__class__ is not tuple and x.__class__ is not list) or not _silent(x, False):
            return False
    return True


def _only_layout(values: Values) -> type | None:
    """The class of metas for which somebody answers (`layouts`), where all operands that are not plain are of it; None elsewhere."""
    found: type | None = None
    for x in values:
        if isinstance(x, Tensor):
            if not x.meta.plain:
                if found not in (None, kind := x.meta.__class__) or kind not in layouts or "_tangents" in x.__dict__:
                    return None
                found = kind
        elif x.__class__ not in KNOWN:
            return None
    return found


def any_lazy(x: Any, depth: int = 0) -> bool:
    """Whether a conjugate or negative view is among arguments, also in their lists (but not in those that hold themselves, without an end)."""
    if isinstance(x, Tensor):
        return x.meta.__class__ is Lazy
    if x.__class__ is dict:
        return any_lazy(tuple(x.values()))
    return isinstance(x, (tuple, list)) and depth < 64 and any(any_lazy(v, depth + 1) for v in x)


def odd_layout(x: Any, depth: int = 0) -> type | None:
    """The class of the first meta among arguments, also in their lists, for which somebody answers (`layouts`); None where there is none."""
    if isinstance(x, Tensor):
        return x.meta.__class__ if x.meta.__class__ in layouts else None
    if x.__class__ is dict:
        x = tuple(x.values())
    if not isinstance(x, (tuple, list)) or depth >= 64:
        return None
    return next((found for v in x if (found := odd_layout(v, depth + 1)) is not None), None)


def all_plain(tensors: Any) -> bool:
    """Whether a list's tensors are all plain."""
    if type(tensors) in (list, tuple):
        for t in tensors:
            if not (known(t) if type(t) not in (list, tuple) else all_plain(t)):
                return False
        return True
    return known(tensors)


def fits(out: Any, dtype: Any, device: Any, layout: Any = None) -> None:
    """Raises RuntimeError where a factory is told another type, device or layout than its `out` has."""
    if not isinstance(out, Tensor):
        return
    if dtype is not None and (d := dtypes.settled(dtype)) is not out.meta.dtype:
        raise RuntimeError(f"dtype {dtypes.title(d)} does not match dtype of out parameter ({dtypes.title(out.meta.dtype)})")
    if device is not None and (dev := devices.resolve(device)) is not out.meta.device:
        raise RuntimeError(f"device {dev} does not match device of out parameter ({out.meta.device}): device type {dev.type} does not match device "
                           f"type of out parameter ({out.meta.device.type})")
    if layout is not None and layout is not out.layout:
        raise RuntimeError(f"layout {layout} does not match layout of out parameter ({out.layout})")


def known_as(made: Tensor, values: Values) -> None:
    """A result that shows memory of no operand is no view, whatever the body made it of: nobody else sees that memory."""
    for v in values:
        for x in v if isinstance(v, (list, tuple)) else (v,):
            if isinstance(x, Tensor) and x.store is made.store:
                return
    made.base = None


class Usual:
    """What a call without a plan asks of a signature, found once.

    positional: how many arguments there are, where all are positional; factors, data: whether there are any; sizes: where they stand in a key (-1: there
    are none); least, least_of_key: for each argument, and each part of a key, from where on its integers are sizes (`general`).  `keyed` says whether
    the key that the front made is the key of a plan.
    """

    __slots__ = ("positional", "factors", "data", "sizes", "least", "least_of_key", "_numbers", "_constants", "_never", "_dtype")

    def __init__(self, s: Signature) -> None:
        kinds = [s.kinds[n] for n in s.names()]
        plainly = s.more is None and (s.rest is None or s.kinds[s.rest] == OLD)
        self.positional = len(s.positional) if plainly and not s.keyword else 0
        self.factors, self.data = FACTOR in kinds, DATA in kinds
        self._numbers = tuple([i for i, kind in enumerate(kinds) if kind in (SCALAR, FACTOR)])
        self._constants = tuple([i for i, kind in enumerate(kinds) if kind not in fronts.PASSED and kind not in (DTYPE, DEVICE, PLACE)])
        # sizes may be equal to others that are none, and a type may be one of Python's
        seldom = s.seldom()  # which come last in a key
        self.sizes = len([n for n in s.names() if n not in seldom]) if s.rest is not None and s.kinds[s.rest] == SIZES else -1
        least = {n: general.SIZES if kind == SIZES else general.SMALL if kind in (CONSTANT, fronts.ANY) and not s.loose(n) and n not in seldom else 0
                 for n, kind in s.kinds.items()}
        self.least = tuple([least[n] for n in (*s.names(), *([s.rest] if s.rest is not None else []))])
        self.least_of_key = (*[least[n] for n in s.keyed() if n not in seldom], *([0] if seldom else []), *([0] if s.more is not None else []))
        self._never, self._dtype = not plainly and self.sizes < 0 or s.more is not None, s.names().index("dtype") if s.kinds.get("dtype") == CONSTANT else -1

    def keyed(self, values: Values) -> bool:
        """Whether the front's key of these arguments is the one that a plan is kept by: no tensor is in it, and no number is a tensor."""
        if self._never or self._dtype >= 0 and values[self._dtype] is not None and values[self._dtype].__class__ is not dtypes.dtype:
            return False
        for i in self._numbers:
            if values[i].__class__ not in NUMBERS:
                return False
        for i in self._constants:
            v = values[i]
            if v.__class__ not in _SINGLE and not _constant(v):
                return False
        if self.sizes >= 0:
            given: tuple[Any, ...] = values[-1]
            sizes: Any = given[0] if len(given) == 1 and type(given[0]) in SEQUENCES else given
            return bool(sizes) and all(x.__class__ is int for x in sizes)
        return True


class Operation:
    """One operation.

    name: as users know it.  body: the function that carries it out, or, for a `planned` one, gives the plan of a call with these
    arguments (it looks at its operands' metas only) or, where there is none, the call's result.  out: carries out the form with
    `out=`, called with `out`, the arguments and the keywords; None where there is none; its attribute `plan`, where it has one, is called the same,
    and with how many operands and numbers further calls on these layouts are given behind `out`, and gives what carries them out, or None.
    renames: it takes NumPy's names.  signature: where the body's own is not the operation's.  learns: whether calls for which the body gives no plan may
    be learned (`learning`); such a body may give a plan too (`GIVEN`), which is kept until the call is learned, or for good.
    """

    __slots__ = ("name", "body", "planned", "out", "renames", "signature", "kinds", "function", "direct", "env", "code", "own", "places",
                 "learner", "plain", "replayed", "usual", "_learns", "__weakref__")

    def __init__(self, name: str, body: Callable[..., Any], *, planned: bool = False, out: Callable[..., Any] | None = None, renames: bool = False,
                 signature: Signature | None = None, kinds: dict[str, str] | None = None, shown: str = "",
                 learns: bool = True) -> None:
        self.name, self.body, self.planned, self.out, self.renames, self.kinds = name, body, planned, out, renames, kinds
        self.signature = signature
        self.code: CodeType | None = None
        self.own = False  # whether the function runs its own code
        self.learner: Learner | None = None
        self.plain: CodeType | None = None  # the code that learns nothing, where there is another
        self._learns = learns
        self.replayed: WeakSet[Any] = WeakSet()  # of a planned operation, the plans that were learned
        self.direct: Any = None  # the same function, which no interpreter sees
        self.places: tuple[int, ...] = ()
        self.env: dict[str, Any] = {"__name__": body.__module__, "__builtins__": builtins, "enter": self.enter}
        f: Any = FunctionType(_GENERAL, self.env, shown or name)
        f.__doc__, f.__qualname__, f.__wrapped__, f.__operation__ = body.__doc__, shown or name, body, self
        self.function = f

    def __repr__(self) -> str:
        return f"Operation({self.name})"

    def twin(self, module: str) -> Any:
        """Another function of this operation, which another module exports: those who look on are shown which of the two was called. Its
        `__twin__` is the first."""
        f = self.function
        made: Any = Operation(self.name, self.body, planned=self.planned, out=self.out, renames=self.renames, signature=self.signature, kinds=self.kinds,
                              shown=f.__name__, learns=self._learns).function
        made.__dict__.update({k: v for k, v in vars(f).items() if k != "__operation__"})
        made.__doc__, made.__module__, made.__twin__ = f.__doc__, module, f
        return made

    # ---------------------------------------------------------------------------------------------------- the function's code
    def _start(self) -> None:
        """Writes the function's own code."""
        s = self.signature or Signature.of(self.body, self.kinds)
        s = self.signature = s.with_numpy() if self.renames else s
        self.places, self.usual = s.operands(), Usual(s)
        if self.planned:
            # calls by layouts; by kinds of dense operands; the layouts of calls that were made by a kind; kinds of layouts
            for name in ("plans", "dense", "fresh", "kinds"):
                caches.cache(self.env, name)
            self.learner = Learner(self, s, self.env) if self._learns else None
        self.env.update(body=self.body, ask=self.ask, miss=self.miss, tripped=self.tripped, into=self.first_into, renamed=self.renamed,
                        forgotten=self.forgotten, reordered=self.reordered, known_as=known_as, begins=begins, all_begin=all_begin,
                        SEVERAL=(tuple, list), TRIPS=TRIPS, MISSING=MISSING,
                        KNOWN=KNOWN, NUMBERS=NUMBERS, Tensor=Tensor, known=known, all_plain=all_plain, fits=fits, exact=fronts.exact, told=fronts.told,
                        PLAIN=fronts.PLAIN_CONSTANTS, GIVEN=GIVEN, given=self.given, caches=caches,
                        meant=partial(dtypes.meant, of=self.function.__name__), **_FACTORIES,
                        **fronts.defaults(s, fronts.exact if self.planned else fronts.constant))
        own_view = self.name in fields.of("own_view")
        if plans_out := hasattr(self.out, "plan"):
            caches.cache(self.env, "outs")  # calls with `out=` by its layout and the others
        code = fronts.write(self.function.__name__, s, self.planned, self.out is not None, self.renames, own_view=own_view, outs=plans_out)
        if self._learns and not self.planned and (fronts.operand_kinds(s) or "device" in s.names()):
            caches.cache(self.env, "plans")
            for name in ("kinds", "fresh"):  # of calls for which the body gave a plan; the keys of those that were made by a kind
                caches.cache(self.env, name)
            self.learner = Learner(self, s, self.env)
            self.env["sized"] = self.sized
            self.env.update(note=self.learner.note, **fronts.LEARNED_KEYS)
            self.plain, code = code, fronts.write(self.function.__name__, s, False, self.out is not None, self.renames, True, own_view)
        fronts.quicken(self.env)
        self.env.update(unseen=general.unseen, LEAST=self.usual.least_of_key if self.planned else general.SMALL)
        general.quicken(self.env)
        if not {DATA, BUFFER}.isdisjoint(s.kinds.values()):
            data.quicken(self.env)
        kwdefaults = {**s.kwdefaults, **({"out": None} if self.out is not None else {})}
        direct: Any = FunctionType(code, self.env, self.function.__name__, s.defaults)
        direct.__kwdefaults__ = kwdefaults
        direct.__operation__ = self
        # the defaults first: the general code has no parameters that they could be given to
        self.function.__defaults__, self.function.__kwdefaults__ = s.defaults, kwdefaults
        of_sizes = fronts.write_sizes(self.function.__name__, s) if self.planned else None
        if of_sizes is not None:
            caches.cache(self.env, "quick")
            self.env.update(whole=direct, first=self.first_of_sizes)
        self.direct, self.code = direct, of_sizes or code
        interpreters.unseen(self)

    def started(self) -> Operation:
        """This operation, its code written."""
        if self.code is None:
            with interpreters.lock:
                if self.code is None:
                    self._start()
        return self

    def runs(self, code: CodeType) -> bool:
        """Whether this is the code of the function."""
        return self.code is not None and (code is self.code or code is self.plain or code is self.direct.__code__)

    def open(self) -> None:
        """Calls are shown to interpreters."""
        self.own = False
        self.function.__code__ = _GENERAL

    def close(self) -> None:
        """Calls go straight on."""
        assert self.code is not None
        self.own = True
        self.function.__code__ = self.code

    def give_up(self) -> None:
        """Nothing is learned of this operation any more."""
        with interpreters.lock:
            self.learner = None
            if self.planned:
                return
            self.code = self.direct.__code__ = self.plain
            if self.own:
                self.close()

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call through the general code."""
        return interpreters.through(self, self.started().direct, args, kwargs)

    # ------------------------------------------------------------------------------------------------------- unusual calls
    def _signature(self) -> Signature:
        found = self.signature if self.code is not None else self.started().signature
        assert found is not None
        return found

    def ask(self, values: Values) -> Any:
        """A call with an operand that is no plain tensor."""
        if _silent(values):
            return self.as_they_are(values)
        if any_lazy(values):
            return layouts[Lazy](self, values)
        for x in values:
            if type(x) is Tensor and not x.meta.plain and "_tangents" not in x.__dict__:
                x.meta = under(x.meta)  # taken over from a tensor of another class
        layout = _only_layout(values)
        if layout is not None:
            made = layouts[layout](self, values)
            if made is not NotImplemented:
                return made
        args, kwargs = self._signature().as_written(values)
        for answer in answers:
            made = answer(self, args, kwargs)
            if made is not NotImplemented:
                return made
        if layout is None and (layout := odd_layout(values)) is not None:  # beside tensors of other classes, and in lists
            made = layouts[layout](self, values)
            if made is not NotImplemented:
                return made
        return self.as_they_are(values)

    def as_they_are(self, values: Values) -> Any:
        """A call whose operands are taken as what they are underneath, whoever might answer for them."""
        args, kwargs = self._signature().whole(values)
        try:
            if not self.planned:
                made = self.body(*args, **kwargs)
                if type(made) not in GIVEN:
                    if type(made) is not Tensor:
                        all_begin(made)
                    elif made.store.version > 0 and not (values and made is values[0]):  # what it wrote in place is not new
                        begins(made)
                    return made
                operands = self._operands(values)
                return made.bind(self._letters(operands))(*operands)
            return self.miss(values, asked=True)
        except TRIPS as error:
            return self.tripped(error, values)

    def tripped(self, error: Exception, values: Values) -> Any:
        """An error of a kind that a wrong argument causes: the answer of an argument's class, or the error in words."""
        if any_lazy(values):
            return layouts[Lazy](self, values)
        args, kwargs = self._signature().as_written(values)
        return explain[0](self, error, args, kwargs)

    def given(self, plan: View | Turned | Compose | Plan, values: Values, since: int) -> Any:
        """A call for which a body gave a plan. since: the epoch in which it did."""
        operands, learner = self._operands(values), self.learner
        letters, s = self._letters(operands), self._signature()
        if learner is not None and not any(isinstance(v, Tensor) and s.kinds[n] == CONSTANT for n, v in zip(s.names(), values, strict=False)):
            with contextlib.suppress(AttributeError, TypeError, RuntimeError, ValueError):  # numbers that are in no key
                learner.keep(values, plan, letters, since)
                if type(plan) in TRACED and not caches.observed() and s.more is None:
                    self._trace(learner, plan, values, letters, since)
        return plan.once(letters)(*operands) if isinstance(plan, (Plan, View)) else plan.bind(letters)(*operands)

    def sized(self, key: Any, values: Values) -> Any:
        """A call of a kind of which a plan was traced (`general`); NotImplemented for others."""
        epoch, fresh = caches.epoch, self.env["fresh"]
        if tape.anomaly.on:
            return NotImplemented
        kind = general.kind_of(key, general.SMALL)
        caches.keep_since(epoch, fresh, key, None)  # the next one like it is the body's
        return NotImplemented if kind is None else general.answer(self.env["kinds"], kind, self._operands(values))

    def _trace(self, learner: Learner, plan: Any, values: Values, letters: str, since: int) -> None:
        """Traces the plan that the body gave for these arguments, if it is time to."""
        kind = general.kind_of(learner.key(values), general.SMALL)  # type: ignore[arg-type]  # it has one, since the plan was kept by it
        if kind is None or (due := general.due(self.env["kinds"], kind, since, general.WAIT, self.env["fresh"])) is None:
            return
        s = self._signature()
        general.trace(due, kind[1], values, None, lambda given: self._given_again(s, given, type(plan)), plan, letters, since)

    def _given_again(self, s: Signature, values: Any, kind: type) -> Any:
        """The plan that the body gives for these arguments."""
        args, kwargs = s.whole(tuple(values))
        made = self.body(*args, **kwargs)
        if type(made) is not kind:
            raise general.NoTrace("another kind of plan")
        return made

    def _letters(self, operands: list[Any]) -> str:
        """The roles of what the run of a plan that a body gave is called with: numbers, and tensors in the place of numbers, are in the plan."""
        kinds, names = self._signature().kinds, fronts.operand_kinds(self._signature())
        return "".join(["t" if isinstance(x, Tensor) and kinds[n] != CONSTANT else "x" for n, x in zip(names, operands, strict=True)])

    def _operands(self, values: Values) -> list[Any]:
        """What the run of a plan that a body gave is called with."""
        s = self._signature()
        named = dict(zip((*s.names(), s.rest), values, strict=False))
        return [named[n] for n in fronts.operand_kinds(s)]

    def unlearn(self, values: Values) -> None:
        """Calls like this one are no longer replayed."""
        if self.learner is not None:
            self.learner.forget(values)

    def first_into(self, out: Any, *values: Any) -> Any:
        """The first call with `out=`: from the next on they are an operation of their own, if they may be learned."""
        self.env["into"] = self.into if hasattr(self.out, "plan") or not self._learns else with_out[0](self).started().direct
        return self.into(out, *values)

    def into(self, out: Any, *values: Any) -> Any:
        """A call with `out=`."""
        assert self.out is not None
        s = self._signature()
        if s.rest is not None and s.kinds[s.rest] == OLD:
            values = (*values[:len(s.names())], (), *values[len(s.names()):])
        if not isinstance(out, (Tensor, tuple, list)):  # a container that overrides (a TensorDict), else a mistake, told below
            args, kwargs = s.as_written(values)
            for answer in answers:
                made = answer(self, args, {**kwargs, "out": out})
                if made is not NotImplemented:
                    return made
        named = dict(zip(s.names(), values, strict=False))
        if "device" in s.keyword:
            fits(out, named.get("dtype"), named["device"], named.get("layout"))
        elif named.get("dtype") is not None and isinstance(out, Tensor) and (d := dtypes.settled(named["dtype"])) is not out.meta.dtype:
            raise RuntimeError(f"{self.name}(): Expected out tensor to have dtype {d.name}, which was asked for, but got {out.meta.dtype.name} instead")
        layout = Lazy if any_lazy((out, *values)) else odd_layout((out, *values))
        if layout is not None:
            return layouts[layout](self, values, out)
        args, kwargs = s.as_written(values)
        for x in (out, *values):
            if isinstance(x, Tensor) and not x.meta.plain and "_tangents" in x.__dict__:
                hooks.no_out_of_duals(self.name)
        since = caches.epoch
        made = self.out(out, args, kwargs)
        if hasattr(self.out, "plan") and made is out and all(x.meta.plain for x in (out, *values) if isinstance(x, Tensor)):
            key = self._key(values)
            run = None if key is None else self.out.plan(out, args, kwargs, len(self.places))
            if run is not None:
                caches.keep_since(since, self.env["outs"], (out.meta, key), run)
        return made

    def renamed(self, values: Values, other_names: dict[str, Any], out: Any = None) -> Any:
        """A call with parameters by other names than ours (NumPy's `axis`, `keepdims`, …), or with what else stands in *args as one sequence by its
        name. Raises TypeError for a name that is none."""
        s = self._signature()
        args, kwargs = s.as_written(values)
        sequence = None
        if (listed := s.listed()) in other_names:
            sequence = other_names.pop(listed)
            if values[len(s.names())]:
                raise TypeError(f"{self.function.__name__}() got multiple values for argument '{listed}'")
            if not isinstance(sequence, (*fronts.SEQUENCES,)):
                raise TypeError(f"{self.function.__name__}(): argument '{listed}' must be tuple of ints, not {type(sequence).__name__}")
        for name, value in other_names.items():
            ours = fronts.OTHER_NAMES.get(name, name)
            if ours not in s.names():
                known = ", ".join((*[n for n in (*s.positional, *filter(None, (s.rest,)), *s.keyword) if n[0] != "_"], *["out"][:self.out is not None]))
                raise TypeError(f"{self.function.__name__}() got an unexpected keyword argument '{name}'; its arguments are {known}")
            if ours in kwargs or ours in s.positional[:len(args)]:
                raise TypeError(f"{self.function.__name__}() got multiple values for argument '{ours}'")
            kwargs[ours] = value
        if out is not None:
            kwargs["out"] = out
        if sequence is not None:  # what stands before *args stands there too
            args = (*args, *[kwargs.pop(n, s.default(n)) for n in s.positional[len(args):]], sequence)
        return self.direct(*args, **kwargs)

    def forgotten(self, values: Values) -> None:
        """Raises TypeError for what a call should have given."""
        names = [n for n, v in zip(self._signature().positional, values, strict=False) if v is MISSING]
        raise TypeError(f"{self.function.__name__}() missing {len(names)} required positional arguments: " + ", ".join(f'"{n}"' for n in names))

    def reordered(self, values: Values, out: Any = None) -> Any:
        """A call in a deprecated order of arguments. Raises TypeError where it is none."""
        args, kwargs = self._signature().as_written(values)
        found = old_orders[0](self.name, args)
        if found is None:
            raise TypeError(f"{self.function.__name__}() takes {len(self._signature().positional)} positional arguments but {len(args)} were given")
        if out is not None:
            kwargs["out"] = out
        return self.direct(*found[0], **kwargs, **found[1])

    # --------------------------------------------------------------------------------------------------------------- plans
    def miss(self, values: Values, key: Any = None, asked: bool = False) -> Any:
        """A call without a plan: makes it and carries it out. key: where the front looked for one.  asked: operands that are not plain are taken as
        they are."""
        if not asked:
            for x in values:
                if isinstance(x, Tensor) and not x.meta.plain:
                    return self.ask(values)
        usual = self.usual
        try:
            if key is None or not usual.keyed(values):
                key = self._key(values := self._numbers(values))
            epoch = caches.epoch  # before the cache is read: another thread may change the world
            plans = self.env["plans"]
            run = plans.get(key) if key is not None else None
            if asked and run in self.replayed:
                run = None
            given = [values[i] for i in self.places]
            shape: Any = None
            kin: Any = None
            again = False
            if run is None:
                if key is not None:
                    again = key in self.env["fresh"]
                    shape = dense.kind_of(key, usual.sizes)
                    if not again and not tape.anomaly.on:
                        answer: Any = NotImplemented
                        if not usual.data and not caches.observed():
                            kin = general.kind_of(key, usual.least_of_key)
                        if shape is not None and (call := self.env["dense"].get(shape[0])) is not None:
                            answer = call(*shape[1:], given) if shape[2] <= call.most else NotImplemented
                        elif kin is not None:
                            answer = general.answer(self.env["kinds"], kin, given)
                        if answer is not NotImplemented:
                            caches.keep_since(epoch, self.env["fresh"], key, None)
                            if shape is not None and kin is not None:
                                self._traced_too(kin, values, given, epoch)
                            return answer
                if usual.positional:
                    made = self.body(*values[:usual.positional])
                else:
                    args, kwargs = self._signature().whole(values)
                    made = self.body(*args, **kwargs)
                if type(made) not in PLANS:
                    if type(made) is Tensor and made.base is not None and self.name not in fields.of("own_view"):
                        known_as(made, values)
                    if type(made) is not Tensor:
                        all_begin(made)
                    elif made.store.version > 0 and not (values and made is values[0]):  # what it wrote in place is not new
                        begins(made)
                    if self.learner is not None and not asked:
                        self.learner.note(values)
                    return made
                if usual.data and type(made) in (Compose, data.Taken):
                    data.with_room(made, self.name)
                letters = self._roles(made, given)
                if shape is not None and type(made) in DENSE and shape[0] not in self.env["dense"]:
                    call = dense.of(made, letters, shape[1], shape[2], usual.sizes >= 0)
                    if call is not None:
                        caches.keep_since(epoch, self.env["dense"], shape[0], call)
                        kin = None
                if kin is not None and (due := general.due(self.env["kinds"], kin, epoch, general.WAIT, self.env["fresh"])) is not None:
                    general.trace(due, kin[1], values, usual.least, self._planned_of, made, letters, epoch)
                if type(made) in LATER and not again:
                    if key is not None:
                        caches.keep_since(epoch, plans, key, Unbound(partial(made.bind, letters), (plans, key, epoch)))
                    with preparing():
                        run = made.once(letters)
                else:
                    with preparing():
                        run = made.bind(letters)
                    if key is not None:
                        caches.keep_since(epoch, plans, key, run)
        except TRIPS as error:
            return self.tripped(error, values)
        return run(*given)

    def _traced_too(self, kin: general.KindAndSizes, values: Values, given: list[Any], epoch: int) -> None:
        """Has the kind of a dense call traced, if it came often."""
        due = general.due(self.env["kinds"], kin, epoch, general.WAIT_DENSE, self.env["fresh"])
        if due is None:
            return
        made = self._planned_of(list(values))
        if type(made) in DENSE:
            general.trace(due, kin[1], values, self.usual.least, self._planned_of, made, self._roles(made, given), epoch)
        else:
            due.failures[0] = general.FAILURES

    def _roles(self, plan: Any, given: list[Any]) -> str:
        """The roles of what a plan's call is given."""
        if type(plan) in DENSE and plan.letters:
            return plan.letters  # type: ignore[no-any-return]
        return roles([None if self._is_one(i, x) else x for i, x in zip(self.places, given, strict=True)] if self.usual.factors else given)

    def _planned_of(self, values: list[Any]) -> Any:
        """The plan of a call with these arguments."""
        args, kwargs = self._signature().whole(tuple(values))
        return self.body(*args, **kwargs)

    def first_of_sizes(self, *given: Any) -> Any:
        """A call with nothing but sizes (behind the operand, where there is one) whose plan `quick` has not: it may have been made by a call that
        said more."""
        epoch, fresh = caches.epoch, self.env["fresh"]
        made = self.direct(*given)
        operand = self.places  # none, or the first
        sizes = given[1:] if operand else given
        flat: Any = sizes[0] if len(sizes) == 1 and type(sizes[0]) in SEQUENCES else sizes
        seen = (given[0].meta, tuple(flat)) if operand else tuple(flat)
        if seen not in fresh:  # the first call with them
            if not fresh or len(fresh) >= caches.MOST:
                caches.keep_since(epoch, fresh, seen, None)
            else:  # beside others anybody may put some
                fresh[seen] = None
            return made
        if operand and not given[0].meta.plain or not all(type(x) is int for x in flat):
            return made
        s = self._signature()
        key = self._key((*given[:1 if operand else 0], *[s.kwdefaults[n] for n in s.keyword], sizes))
        run = None if key is None else self.env["plans"].get(key)
        if run is not None and type(run) is not Unbound and flat and type(flat) is not list and not devices.chosen.some:
            caches.keep_since(epoch, self.env["quick"], (given[0].meta, flat) if operand else flat, run)
        return made

    def _numbers(self, values: Values) -> Values:
        """The values with a number in the place of each tensor that stands for one, and a type in that of one of Python's. Raises TypeError
        for a tensor that cannot."""
        s = self._signature()
        if s.kinds.get("dtype") == CONSTANT:
            at = s.names().index("dtype")
            values = (*values[:at], dtypes.meant(values[at], self.function.__name__), *values[at + 1:])
        for i in self.places:
            v, name = values[i], s.names()[i]
            if isinstance(v, (int, float)) or s.kinds[name] not in (SCALAR, FACTOR):
                continue
            shape: Any = getattr(v, "shape", None)
            if shape or (isinstance(v, Tensor) and v.node is not None):
                raise TypeError(f"{self.function.__name__}(): argument '{name}' must be Number, not {type(v).__name__}")
            if isinstance(v, Tensor):
                values = (*values[:i], v.item(), *values[i + 1:])
        return values

    def _is_one(self, place: int, x: Any) -> bool:
        """Whether an argument is a factor of 1, which a plan does without."""
        s = self._signature()
        return s.kinds[s.names()[place]] == FACTOR and not isinstance(x, Tensor) and bool(x == 1)

    def _key(self, values: Values) -> tuple[Any, ...] | None:
        """What the front looks a plan up by; None for a call of which no plan can be kept."""
        s = self._signature()
        parts: list[Any] = []
        given: list[Any] = []
        some = False
        for (kind, loose, seldom), v in zip(s.key_parts(), values, strict=False):
            if kind == REST:
                try:
                    v = v[0] if len(v) == 1 and type(v[0]) in fronts.PLAIN_CONSTANTS else fronts.told(v)
                except TypeError:
                    return None
            elif kind in (TENSOR, OPTIONAL, NUMBER):
                v = under(v.meta) if isinstance(v, Tensor) else type(v) if v is not None else None
            elif kind in (DATA, BUFFER):
                try:
                    v = self.env["data_layout" if kind == DATA else "buffer_size"](v)
                except TypeError:
                    return None
                v = under(v) if isinstance(v, Meta) else v
            elif kind == VALUE:
                v = under(v.meta) if isinstance(v, Tensor) else (type(v), v)
            elif kind == SCALAR or (kind == FACTOR and v != 1):
                v = type(v)
            elif kind == FACTOR:  # True and 1.0 may be refused where 1 is not
                v = 1 if type(v) is int else (type(v), 1)
            elif kind == SIZES:
                v = _sizes(v) if v else None  # nothing at all is not the empty tuple
                if v is None:
                    return None
            elif kind == DTYPE:
                v = dtypes.settled(v, self.name)
            elif kind in (DEVICE, PLACE) and (kind == DEVICE or v is not None):
                v = devices.resolve(v)
            elif not _constant(v):
                return None
            else:
                v = _frozen(v) if kind != CONSTANT or loose else fronts.exact(v)
            if seldom:
                given.append(v)
                some = some or v is not None
            else:
                parts.append(v)
        if given:
            parts.append(tuple(given) if some else None)
        try:
            if s.more is not None:
                parts.append(fronts.told(values[-1]) if values[-1] else ())
            hash(key := tuple(parts))
        except TypeError:
            return None
        return key


def _constant(v: Any) -> bool:
    """Whether a plan may depend on the value: not where it can change, as a tensor's can."""
    if isinstance(v, Tensor):
        return False
    return all(map(_constant, v)) if isinstance(v, (list, tuple)) else True


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Sizes as they stand in a key; None for what no key is made of."""
    try:
        return tuple(map(index, given[0] if len(given) == 1 and type(given[0]) in SEQUENCES else given))
    except TypeError:
        return None


def _frozen(v: Any) -> Any:
    return tuple(map(_frozen, v)) if type(v) is list else v
