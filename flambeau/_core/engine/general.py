"""Plans for all shapes of one kind: what a family works out for one example holds wherever sizes take the same turns.

A kind of call is its key without the sizes: ranks, types, which sizes are 0 or 1, which are equal, how strides follow from sizes.  When several new
shapes of a kind have come, the family is asked once more, with unknown numbers for the sizes (`unknowns`), and its plan is written as a function of
them: conditions first, then layouts, the launch's words and the tape's node.  A call with a new shape costs that function and nothing else; one that
comes again is planned as any other, and so is one that no function answers.
"""

from __future__ import annotations

import dis
import struct
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial, wraps
from itertools import zip_longest
from operator import itemgetter
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import dtypes, layout
from ..autograd.mode import _grad
from ..kernels import kinds as by_machine
from ..kernels import native
from ..kernels.expr import Expr
from ..kernels.native import Words, entry_of
from ..kernels.programs import Map, Reduce, Rows, Scan
from ..kernels.specs import Spec
from ..runtime import caches
from ..runtime.device import CPU, device
from ..tensor import Meta, Sketch, Storage, Tensor, described, meta, new, storage
from ..unknowns import Address, Trace, Unknown
from ..unknowns import NoTrace as NoTrace
from .plans import CODE, Plan, View, Written, recorder, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

WAIT = 2  # new shapes of a kind that are planned each before it is traced
WAIT_DENSE = 6  # the same, where nothing is planned for them (`dense`): tracing takes as long as a hundred of those calls
WAIT_BODY = 2  # the same, of calls that bodies carry out
TIMES = 16  # calls of one shape that its kind carries out, each in 2 to 5 us: planning takes 50 to 200, and many come a few times (once a layer) and never more
MOST = 6  # functions of a kind: each is tried in turn
FAILURES = 3  # traces that gave nothing
SMALL, SIZES = 5, 2  # a constant from here on is taken for a size; what is one
_MOST_SIZES = 24
_LIMIT = 1 << 62


# ------------------------------------------------------------------------------------------------------------- kinds
class Kind:
    """One kind of call.  functions: each gives the result for sizes and operands, or NotImplemented.  native: of the same calls, in machine code, which
    leaves those to the functions that are recorded, or large.  recorded: of calls that are recorded, which machine code goes on to.  failures: traces that
    gave nothing, of calls that nobody records and of those that are recorded.  reason: why the last one did."""

    __slots__ = ("functions", "native", "recorded", "seen", "failures", "reason")

    def __init__(self) -> None:
        self.functions: list[Callable[..., Any]] = []
        self.native: list[Callable[..., Any]] = []
        self.recorded: list[Callable[..., Any]] = []
        self.seen, self.failures = 0, [0, 0]
        self.reason: Exception | None = None

    def add(self, function: Callable[..., Any], since: int, native: Callable[..., Any] | None = None, recorded: Callable[..., Any] | None = None) -> None:
        """One function more, unless what it binds may have become stale since that epoch, with others of the same calls."""
        if caches.epoch == since:
            self.functions.append(function)
            if native is not None:
                self.native.append(native)
            if recorded is not None:
                self.recorded.append(recorded)

    def due(self, wait: int, recorded: bool = False) -> bool:
        """Whether the next example is to be traced."""
        self.seen += 1
        there = len(self.recorded) if recorded else max(len(self.functions), len(self.native))
        return self.seen > wait and there < MOST and self.failures[recorded] < FAILURES

    def answer(self, sizes: tuple[int, ...], *given: Any) -> Any:
        """What the first function that holds for these sizes gives; NotImplemented where there is none."""
        for function in self.functions:
            result = function(sizes, *given)
            if result is not NotImplemented:
                return result
        return NotImplemented


def answer(kinds: dict[Any, Kind], kind: KindAndSizes, given: Sequence[Any]) -> Any:
    """The result of a call by a function of its kind in Python; NotImplemented where there is none for its sizes."""
    found = kinds.get(kind[0])
    return NotImplemented if found is None else found.answer(kind[1], *given)


def due(kinds: dict[Any, Kind], kind: KindAndSizes, epoch: int, wait: int = WAIT, fresh: dict[Any, Any] | None = None, recorded: bool = False) -> Kind | None:
    """A call's kind, where the call is to be traced: none of its functions had an answer.  wait: after so many.  fresh: the cache that counts calls of such
    kinds (`unseen`).  recorded: it is a body's that is recorded."""
    found = kinds.get(kind[0])
    if found is None:
        caches.keep_since(epoch, kinds, kind[0], found := Kind())
        if fresh is not None:
            caches.keep_since(epoch, fresh, None, None)  # the first entry, beside which machine code may put others
    return found if found.due(wait, recorded) else None


KindAndSizes = tuple[tuple[Any, ...], tuple[int, ...]]


def kind_of(key: tuple[Any, ...], least: int | tuple[int, ...]) -> KindAndSizes | None:
    """The kind of a call with this key, and its sizes; None where there is none: layouts elsewhere than on the CPU or of classes of their own, no sizes, or
    many of them.

    least: from which number on integers are sizes, one for all parts of the key and of tuples in it; or a tuple of numbers, one for each part (0: it has
    none), whose tuples are sizes where they are integers and nothing else.
    """
    return _builtins()[0](key, least)  # type: ignore[no-any-return]


def unseen(key: Any, least: Any, kinds: dict[Any, Kind], fresh: dict[Any, Any], *given: Any) -> Any:
    """A call of a new shape by what its kind has in machine code; NotImplemented where that has no answer, and where `fresh`, which counts them, says that
    there were `TIMES` of them, or None."""
    return _builtins()[1](key, least, kinds, fresh, *given)


@lru_cache(1)
def _builtins() -> tuple[Callable[..., Any], ...]:
    most = {"sizes": _MOST_SIZES, "fresh": caches.MOST, "times": TIMES}
    return by_machine.builtins(Meta, layout.Size, device, CPU, Tensor, Kind, most) or (told, lambda *_: NotImplemented)


def quicken(space: dict[str, Any]) -> None:
    """Has machine code carry out the calls of a function that reads `unseen` in this namespace."""
    native.when_loaded(lambda: space.update(unseen=_builtins()[1]))


def told(key: tuple[Any, ...], least: int | tuple[int, ...]) -> KindAndSizes | None:
    """`kind_of` in Python."""
    seen: dict[int, int] = {}
    try:
        parts = [_part(part, n, least.__class__ is int, seen) for part, n in
                 zip(key, (least,) * len(key) if least.__class__ is int else least, strict=True)]  # type: ignore[arg-type]
    except NoTrace:
        return None
    return (tuple(parts), tuple(seen)) if 0 < len(seen) <= _MOST_SIZES else None


def _part(part: Any, least: int, deep: bool, seen: dict[int, int]) -> Any:
    kind = part.__class__
    if kind is int and -1 << 63 <= part < 1 << 63:
        return (2, seen.setdefault(part, ~len(seen))) if least and part >= least else (3, part)
    if kind is tuple or kind is layout.Size:
        if deep or least and all(x.__class__ is int and -1 << 63 <= x < 1 << 63 for x in part):
            return (5 if deep else 4, *[_part(x, least, deep, seen) for x in part])
        if any(isinstance(x, Meta) or x.__class__ is tuple for x in part):
            raise NoTrace("layouts in a tuple")
    elif isinstance(part, Meta):
        return _layout(part, seen)
    elif kind is device and part is not CPU:
        raise NoTrace("another device")
    return 6, part


def _layout(m: Meta, seen: dict[int, int]) -> tuple[Any, ...]:
    if m.__class__ is not Meta or m.device is not CPU:
        raise NoTrace("a layout of no kind")
    shape = m.shape
    codes = [d if d < 2 else seen.setdefault(d, ~len(seen)) for d in shape]
    if m.contiguous and m.strides == layout.contiguous_strides(shape):
        return 1, m.dtype, *codes
    strides = m.strides
    expected = 1
    steps: list[Any] = []
    for a in sorted(range(len(shape)), key=strides.__getitem__):
        s = strides[a]
        steps += [a, None if s == expected else s if s < 2 else seen.setdefault(s, ~len(seen))]
        expected = s * shape[a]
    return 1, m.dtype, tuple(codes), tuple(steps)


class Whole(tuple[Any, ...]):
    """A tuple in a key whose integers are no sizes."""

    __slots__ = ()


def made(kinds: dict[Any, Kind], key: tuple[Any, ...], least: int, build: Callable[..., Any], sized: int = 1 << 30) -> Any:
    """``build(*key)``, by a function of the sizes in `key` where its kind has one that holds for them.

    kinds: a cache (`caches.cache`).  key: layouts, and constants that have a hash, on which alone the result depends; integers in it are sizes from
    `least` on.  sized: how many of its parts, the first ones, are looked through for sizes.
    """
    epoch = caches.epoch
    if caches.observed() or (kin := kind_of(key[:sized], least)) is None:
        return build(*key)
    parts, sizes = kin[0] + key[sized:], kin[1]
    try:
        found = kinds.get(parts)
    except TypeError:  # no hash: it is being traced
        return build(*key)
    result = NotImplemented if found is None else found.answer(sizes)
    if result is not NotImplemented:
        return result
    result = build(*key)
    if (kind := due(kinds, (parts, sizes), epoch)) is not None:
        with _tracing(kind, sizes) as example:
            function = Source(example.trace, len(sizes)).maker(build(*example.parts(key[:sized], least), *key[sized:]))
            agree(function(sizes), result)
            kind.add(function, epoch)
    return result


def kept(f: F) -> F:
    """`caches.kept`, of a function that is traced for each kind of its arguments."""
    space: dict[str, Any] = {}
    caches.cache(space, "kinds")

    @wraps(f)
    def find(*args: Any) -> Any:
        return made(space["kinds"], args, SMALL, f)
    return caches.kept(find)  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------------- tracing
class Example:
    """The unknown numbers of a trace, by the example's."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.trace = Trace()
        self.numbers = {value: self.trace.given(f"s{place}", value, 2) for place, value in enumerate(sizes)}
        self.metas: dict[Meta, Any] = {}

    def meta(self, m: Meta) -> Meta:
        """The layout as the kind knows it."""
        found = self.metas.get(m)
        if found is None:
            shape: tuple[Any, ...] = tuple([d if d < 2 else self.numbers[d] for d in m.shape])
            if m.contiguous and (min(m.shape, default=2) > 1 or m.strides == layout.contiguous_strides(m.shape)):
                found = meta(shape, None, m.dtype, m.device)
            else:
                strides: list[Any] = [0] * len(shape)
                expected, step = 1, 1
                for a in sorted(range(len(shape)), key=m.strides.__getitem__):
                    s = m.strides[a]
                    strides[a] = step if s == expected else s if s < 2 else self.numbers[s]
                    expected, step = s * m.shape[a], strides[a] * shape[a]
                found = meta(shape, tuple(strides), m.dtype, m.device)
            self.metas[m] = found
        return found

    def tensor(self, t: Tensor, number: int) -> Tensor:
        """A tensor of which nothing but the layout is known."""
        made = object.__new__(Tensor)
        made.meta, made.ptr, made.node, made.base = self.meta(t.meta), Address(number), None, None  # type: ignore[assignment]
        return made

    def parts(self, key: Any, least: int) -> tuple[Any, ...]:
        """Arguments of a function whose kind is told by `kind_of`."""
        return tuple([self.meta(x) if isinstance(x, Meta) else self.numbers[x] if x.__class__ is int and x >= least else
                      x.__class__(self.parts(x, least)) if x.__class__ is tuple or x.__class__ is layout.Size else x for x in key])

    def put(self, kind: Kind, made: Any, plan: Any, letters: str, since: int) -> None:
        """Puts the function of a plan that was traced to a kind's (`Kind.add`).  Raises NoTrace where it is not, for the example, the plan that was made
        without."""
        count = len(self.numbers)
        agree(Source(self.trace, count).maker(made)(tuple(self.numbers)), plan)
        run = Source(self.trace, count).call(made, letters)
        kind.add(run, since, self._native(made, letters), self._recorded(made, letters) if type(made) is Plan else run if type(made) is View else None)

    def _native(self, made: Any, letters: str) -> Callable[..., Any] | None:
        """The same in machine code; None where there is none."""
        try:
            if type(made) not in (Plan, View, Written) or type(made) is Plan and Source(self.trace, 0).unknown(made.result):
                return None
            found: Callable[..., Any] = made.sized(letters, self.trace, len(self.numbers))
            return found
        except NoTrace:
            return None

    def _recorded(self, made: Plan, letters: str) -> Callable[..., Any] | None:
        """The same of recorded calls; None where there is none that is quicker than the function."""
        try:
            return Source(self.trace, len(self.numbers)).recorded(made, letters)
        except NoTrace:
            return None

    def all(self, v: Any, number: int) -> Any:
        """An argument of an operation that learns, with all its sizes unknown (`kind_of`)."""
        if isinstance(v, Tensor):
            return self.tensor(v, number)
        kind = v.__class__
        if kind is int:
            return v if v < SMALL else self.numbers[v]
        if kind is tuple or kind is list:
            return kind([self.all(x, number) for x in v])
        if kind is slice:
            return slice(self.all(v.start, number), self.all(v.stop, number), self.all(v.step, number))
        if kind is layout.Size or kind is dict and v:
            raise NoTrace("sizes of another kind")
        return v

    def constant(self, v: Any, least: int) -> Any:
        """An argument with unknown numbers in the place of those that are sizes in its kind (`kind_of`)."""
        if v.__class__ is int:
            return v if v < least else self.numbers[v]
        if v.__class__ is tuple or v.__class__ is list or v.__class__ is layout.Size:
            if all(x.__class__ is int for x in v):
                made = [x if x < least else self.numbers[x] for x in v]
                return made if v.__class__ is list else tuple(made) if v.__class__ is tuple else layout.Size(made)
            if least == SIZES and len(v) == 1 and v.__class__ is tuple:  # sizes as one sequence
                return (self.constant(v[0], least),)
        return v


def trace(kind: Kind, sizes: tuple[int, ...], values: Sequence[Any], least: Sequence[int] | None, body: Callable[[list[Any]], Any],
          plan: Any, letters: str, since: int) -> None:
    """Has a kind's plan written, by an example.  values: the call's arguments; least: for each, from where on its integers are sizes (0: they are
    none); None for an operation that learns (`kind_of`).  body: gives the plan of such arguments, `plan` for these.  letters: the roles of what the
    plan's call is given.  since: the epoch in which the plan was begun."""
    with _tracing(kind, sizes) as example:
        stood = [example.all(v, i) for i, v in enumerate(values)] if least is None else [
            example.tensor(v, i) if isinstance(v, Tensor) else example.constant(v, n) if n else v
            for i, (v, n) in enumerate(zip_longest(values, least, fillvalue=0))]  # **kwargs have none
        example.put(kind, body(stood), plan, letters, since)


@contextmanager
def _tracing(kind: Kind, sizes: tuple[int, ...]) -> Iterator[Example]:
    """A block that traces: what goes wrong there is told by nobody, as the call was planned without it."""
    try:
        yield Example(sizes)
    except Exception as error:
        kind.failures[0] += 1
        error.__traceback__ = error.__context__ = error.__cause__ = None  # whose frames hold the example's operands
        kind.reason = error


# ------------------------------------------------------------------------------------------------------------- writing
# kinds of objects that are never written: those that hold plans hold them by what they depend on
SHARED: tuple[type, ...] = (int, float, complex, str, bytes, bool, type(None), type, dtypes.dtype, device, Expr, Map, Reduce, Rows, Scan, ModuleType,
                             frozenset, type(Ellipsis), type(lru_cache(1)(len)))
_PROGRAMS = frozenset((Map, Reduce, Rows, Scan))
_NOTHING = type("nothing", (), {})()
_FILLED = frozenset((dict, list, set))


class Source:
    """A function of sizes that is being written."""

    def __init__(self, trace: Trace, sizes: int) -> None:
        self.trace, self.sizes = trace, sizes
        self.space: dict[str, Any] = {"described": described, "entry_of": entry_of, "new": new, "storage": storage, "_grad": _grad, "recorder": recorder,
                                      "again": _again, "remade": _remade, "view_of": view_of, "Size": layout.Size, "fresh_tuple": tuple.__new__,
                                      "partial": partial, "CPU": CPU, "__name__": __name__}
        self.lines: list[str] = []
        self.late: list[str] | None = None
        self.needed: set[str] = set()
        self._done: dict[int, tuple[str, Any]] = {}  # by identity: the text, and the object, so that it lives
        self._open: set[int] = set()

    # values ----------------------------------------------------------------------------------------------------------
    def constant(self, x: Any) -> str:
        if x is None or x.__class__ in (int, bool, str):
            return repr(x)
        name = f"c{len(self.space)}"
        self.space[name] = x
        return name

    def unknown(self, x: Any) -> bool:
        """Whether anything in an object is unknown.  What may be filled by a call counts as such: each has its own."""
        return self._find(x, set())

    def _find(self, x: Any, met: set[int]) -> bool:
        kind = x.__class__
        if kind is Unknown or kind is Sketch or kind is Words:
            return True
        if kind is Address or isinstance(x, (Tensor, Storage)):
            raise NoTrace("a plan that holds an operand")
        if kind is device and x is not CPU or kind is Meta and x.device is not CPU:
            raise NoTrace("another device")
        if isinstance(x, SHARED) and not isinstance(x, Spec) or kind is Meta or id(x) in met or id(x) in _known_by_name():
            return False
        if kind in _FILLED:
            return True
        met.add(id(x))
        return any(self._find(v, met) for v in parts_of(x))

    def value(self, x: Any) -> str:
        """The text of an object in which unknown numbers are the call's."""
        kind = x.__class__
        if kind is Unknown:
            self.needed.add(x.name)
            return str(x.name)
        if not self.unknown(x):
            return self.constant(x)
        found = self._done.get(id(x))
        if found is not None:
            return found[0]
        if id(x) in self._open:
            raise NoTrace("a circle")
        self._open.add(id(x))
        text = self._written(x)
        self._open.discard(id(x))
        name = f"v{len(self._done)}"
        self.lines.append(f"{name} = {text}")
        self._done[id(x)] = name, x
        return name

    def _written(self, x: Any) -> str:
        kind = x.__class__
        if kind is Sketch:
            numel, nbytes = self.value(x.numel), self.value(x.nbytes)
            self.lines.append(f"if {numel} > {_LIMIT} or {nbytes} > {_LIMIT}: return NotImplemented")
            shape, strides = self._row(x.shape), self._row(x.strides)
            return f"described({shape}, {strides}, {numel}, {x.contiguous}, {nbytes}, {self.constant(x.dtype)}, CPU)"
        if kind is Words:
            pack = self.constant(struct.Struct(f"<{len(x.words)}Q").pack)
            words = [str(w & (1 << 64) - 1) if w.__class__ is int else self.value(w) if w.low >= 0 else f"{self.value(w)} & {(1 << 64) - 1}" for w in x.words]
            return f"entry_of({pack}({', '.join(words)}), {self.constant(x.keep)})"
        if kind is layout.Size:
            return f"fresh_tuple(Size, {self._row(x)})"
        if kind is tuple:
            return self._row(x)
        if isinstance(x, tuple):  # a spec
            return f"fresh_tuple({self.constant(kind)}, {self._row(x)})"
        if kind is slice:
            return f"slice({self.value(x.start)}, {self.value(x.stop)}, {self.value(x.step)})"
        if kind is list:
            return f"[{', '.join(map(self.value, x))}]"
        if kind is dict:
            return "{" + ", ".join(f"{self.constant(k)}: {self.value(v)}" for k, v in x.items()) + "}"
        if kind is FunctionType:
            if x.__kwdefaults__ and self.unknown(x.__kwdefaults__):
                raise NoTrace("defaults")
            cells = [] if x.__closure__ is None else [self.value(_held(c)) for c in x.__closure__]
            return f"again({self.constant(x)}, {self.value(x.__defaults__)}, ({''.join(c + ', ' for c in cells)}))"
        if kind is partial:
            return f"partial({', '.join([self.value(x.func), *map(self.value, x.args), *[f'{k}={self.value(v)}' for k, v in x.keywords.items()]])})"
        if kind is MethodType:
            return f"{self.constant(x.__func__)}.__get__({self.value(x.__self__)})"
        names, empty = _names(x), getattr(kind, "__caches__", {})
        values = [*[self.value(getattr(x, n)) for n in names], *[f"{self.constant(first)}()" for first in empty.values()]]
        return f"remade({self.constant(kind)}, {self.constant((*names, *empty))}, ({''.join(v + ', ' for v in values)}))"

    def _row(self, x: Sequence[Any]) -> str:
        return f"({''.join([self.value(v) + ', ' for v in x])})"

    # calls -----------------------------------------------------------------------------------------------------------
    def call(self, made: Any, letters: str) -> Callable[..., Any]:
        """The function of the sizes and of what a plan's call is given."""
        names = [f"a{i}" for i in range(len(letters))]
        if type(made) is Plan:
            body = self._planned(made, letters, names)
        elif type(made) is View:
            first = self.value(made.meta), self.value(made.offset), self.value(made.backward), self.value(made.saved)
            body = [*self.lines, f"return view_of({', '.join((names[0], *first))}, {made.name!r})"]
        else:
            if not hasattr(made, "bind"):
                raise NoTrace("no plan")
            once = "once" if hasattr(made, "once") else "bind"
            text = self.value(made)
            body = [*self.lines, f"return {text}.{once}({letters!r})({', '.join(names)})"]
        return self._function(["sizes", *names], body)

    def recorded(self, plan: Plan, letters: str) -> Callable[..., Any]:
        """The function of a plan's recorded calls, which machine code carries out but for the tape.  Raises NoTrace where there is none."""
        names = [f"a{i}" for i in range(len(letters))]
        self.space["run"] = plan.sized(letters, self.trace, self.sizes, True)
        count = len(plan.outs)
        results = "".join(f"r{i}, " for i in range(count))
        body = [f"made = run(sizes, {', '.join(names)})", "if made is NotImplemented: return made", f"r0 = {'made' if count == 1 else 'made[0]'}",
                *[f"r{i} = made[{i}]" for i in range(1, count)]]
        if plan.taped:
            recorded, self.lines = self._taped(plan, letters, names), []
            sizes = ", ".join(f"s{i}" for i in range(self.sizes))
            if self.needed:
                recorded[1:1] = [f" {line}" for line in (f"{sizes}, = sizes", *self.trace.written(self.needed, False))]
            body += recorded
        if plan.result is not None and self.unknown(plan.result):
            raise NoTrace("what makes the result is unknown")
        body.append(self._returned(plan, results))
        return self._compiled(["sizes", *names], body)

    def _taped(self, plan: Plan, letters: str, names: Sequence[str]) -> list[str]:
        """The lines that put a plan's call on the tape, where it must be."""
        tensors = [n for n, role in zip(names, letters, strict=True) if role == "t"]
        if not tensors:
            return []
        edges = "".join(f"{n}.node, " if role == "t" else "None, " for n, role in zip(names, letters, strict=True))
        results = "".join(f"r{i}, " for i in range(len(plan.outs)))
        known = not self.unknown(plan.saved)
        saved = self.value(plan.saved)
        made = f"recorder({saved}, ({results}), {letters!r}, edges)"
        if known:
            self.space["puts"] = {}
            kind = " + ".join(f"({1 << k} if {n}.node is not None else 0)" for k, n in enumerate(tensors))
            made = f"puts.get(kind := {kind}) or puts.setdefault(kind, recorder({saved}, {len(plan.outs)} * (0,), {letters!r}, edges))"
        return [f"if ({' or '.join(f'{n}.node is not None' for n in tensors)}) and _grad.get():",
                *[" " + line for line in self.lines],
                f" edges = ({edges})",
                f" ({made})({'r0' if len(plan.outs) == 1 else f'({results})'}, edges, {', '.join(names)})"]

    def _returned(self, plan: Plan, results: str) -> str:
        if plan.result is not None:
            return f"return {self.value(plan.result)}(({results}))"
        return "return r0" if len(plan.outs) == 1 else f"return ({results})"

    def maker(self, made: Any) -> Callable[..., Any]:
        """The function of the sizes that gives the object."""
        text = self.value(made)
        return self._function(["sizes"], [*self.lines, f"return {text}"])

    def _function(self, names: Sequence[str], body: Sequence[str]) -> Callable[..., Any]:
        sizes = ", ".join(f"s{i}" for i in range(self.sizes))
        return self._compiled(names, [f"{sizes}, = sizes", *self.trace.written(self.needed), *body])

    def _compiled(self, names: Sequence[str], body: Sequence[str]) -> Callable[..., Any]:
        exec(compile("\n".join([f"def made({', '.join(names)}):", *[" " + line for line in body]]), CODE, "exec"), self.space)
        found: Callable[..., Any] = self.space["made"]
        return found

    def _planned(self, plan: Plan, letters: str, names: Sequence[str]) -> list[str]:
        outs = [self.value(m) for m in plan.outs]
        room = None if plan.room is None else self.value(plan.room)
        launch = None if plan.launch is None else self.value(plan.launch)
        converters = [None if c is None else self.value(c) for c in plan.numbers]
        fixed = [self.value(x) for x in plan.fixed]
        body = [*self.lines]
        self.lines = []
        body += [f"r{i} = new({m})" for i, m in enumerate(outs)]
        results = "".join(f"r{i}, " for i in range(len(outs)))
        if launch is not None:
            args = [f"r{i}.ptr" for i in range(len(outs))]
            args += [f"{n}.ptr" for n, role in zip(names, letters, strict=True) if role == "t" and plan.reads]
            if room is not None:
                body.append(f"scratch = storage({room})")
                args.append("scratch.ptr")
            numbers = [n for n, role in zip(names, letters, strict=True) if role == "n"]  # the last ones may be in the plan
            args += [n if c is None else f"{c}({n})" for n, c in zip(numbers, converters, strict=False)]
            body.append(f"{launch}({', '.join(args + fixed)})")
        if plan.taped:
            body += self._taped(plan, letters, names)
            self.lines = []
        returned = self._returned(plan, results)
        return [*body, *self.lines, returned]


def agree(a: Any, b: Any, also: Callable[[Any, Any], bool] = lambda a, b: a is b) -> None:
    """Raises NoTrace unless two objects are made alike of the same.  also: says of two whether they are, or raises; False where it does not know."""
    kind = a.__class__
    if a is b or also(a, b):
        return
    if kind is not b.__class__:
        raise NoTrace(f"a {kind.__name__} where there should be a {b.__class__.__name__}")
    if kind in _PROGRAMS:
        a, b = (a.text(), a.inputs, a.scalars, a.out_types), (b.text(), b.inputs, b.scalars, b.out_types)
    if isinstance(a, SHARED) or kind is CellType or kind in _PROGRAMS:
        if a != b and (a == a or b == b):
            raise NoTrace(f"{a} where there should be {b}")
    elif kind is Meta:
        if (a.shape, a.strides, a.dtype, a.device, a.numel, a.contiguous, a.nbytes) != (b.shape, b.strides, b.dtype, b.device, b.numel, b.contiguous, b.nbytes):
            raise NoTrace(f"{a} where there should be {b}")
    elif kind is BuiltinFunctionType:
        agree(a.__self__, b.__self__, also)
    elif kind is FunctionType and a.__code__ is not b.__code__:
        raise NoTrace("another function")
    else:
        mine, other = parts_of(a), parts_of(b)
        if len(mine) != len(other):
            raise NoTrace("more parts, or less")
        for x, y in zip(mine, other, strict=True):
            agree(x, y, also)


def _names(x: Any) -> tuple[str, ...]:
    """The attributes that an object consists of.  Its class says in `__caches__` which others keep what follows from these, and what gives their first
    values."""
    kind = type(x)
    others = ("__weakref__", "__dict__", *getattr(kind, "__caches__", ()))
    found = [n for c in kind.__mro__ for n in c.__dict__.get("__slots__", ()) if n not in others and hasattr(x, n)]
    return tuple(dict.fromkeys([*found, *getattr(x, "__dict__", ())]))


@lru_cache(4096)
def _remembers(code: CodeType) -> bool:
    """Whether a function assigns variables of those around it."""
    return any(i.opname == "STORE_DEREF" and i.argval in code.co_freevars for i in dis.get_instructions(code))


_named: tuple[int, dict[int, Any]] = 0, {}


def _known_by_name() -> dict[int, Any]:
    """What the package's modules name, by identity: all plans share it."""
    global _named
    if _named[0] != len(sys.modules):
        spaces = [vars(m) for name, m in list(sys.modules.items()) if name.startswith(_PACKAGE) and isinstance(m, ModuleType)]
        _named = len(sys.modules), {id(x): x for space in spaces for x in list(space.values())}
    return _named[1]


def _held(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _NOTHING


def parts_of(x: Any) -> list[Any]:
    """What an object consists of."""
    kind = x.__class__
    if isinstance(x, (tuple, list, set)):
        return list(x)
    if kind is dict:
        return [*x.keys(), *x.values()]
    if kind is FunctionType:
        if x.__code__.co_filename == CODE and x.__closure__:  # it holds lists of memory's, and its own of nodes
            raise NoTrace("a call that is bound")
        if _remembers(x.__code__):
            raise NoTrace("a function that remembers")
        return [x.__defaults__, x.__kwdefaults__, *map(_held, x.__closure__ or ())]
    if kind is partial:
        return [x.func, *x.args, *x.keywords.values()]
    if kind is MethodType:
        return [x.__self__]
    if kind is BuiltinFunctionType:
        return [] if isinstance(x.__self__, ModuleType) else [x.__self__]
    if kind is slice or kind is range:
        return [x.start, x.stop, x.step]
    if kind is itemgetter:
        return list(x.__reduce__()[1])
    if kind in _EMPTY:
        return []
    if kind.__module__.startswith(_ONE_OF_A_KIND):
        raise NoTrace(f"a {kind.__name__}")
    if is_ours(kind):
        return [getattr(x, n) for n in _names(x)]
    if kind is type(_NOTHING) or kind.__name__ in _LARGE:
        return []
    raise NoTrace(f"a {kind.__name__}")


def is_ours(kind: type) -> bool:
    """Whether objects of a class are the package's, and consist of their attributes."""
    return kind.__module__.startswith(_PACKAGE) and kind.__name__ not in _LARGE


_PACKAGE = __name__.partition(".")[0] + "."
_EMPTY = frozenset((ContextVar, type(str.join), type(object.__init__)))
_ONE_OF_A_KIND = tuple([f"{_PACKAGE}_core.{part}" for part in ("runtime", "drivers", "autograd")])  # memory, queues, threads: never made again
# what holds plans of its own, by what they depend on
_LARGE = frozenset(("Operation", "_Formula", "Inner", "Pointwise", "Rowwise", "Formula", "Tape", "Learner", "_Grad"))


def _again(f: FunctionType, defaults: Any, held: tuple[Any, ...]) -> Any:
    """A function with other values in its cells."""
    made = FunctionType(f.__code__, f.__globals__, f.__name__, defaults, tuple([CellType() if v is _NOTHING else CellType(v) for v in held]))
    made.__kwdefaults__ = f.__kwdefaults__
    if f.__dict__:
        made.__dict__.update(f.__dict__)
    return made


def _remade(kind: type, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """An object of these attributes."""
    made: Any = object.__new__(kind)
    for n, v in zip(names, values, strict=True):
        setattr(made, n, v)
    return made
