"""The public functions of operations: their code, written from a signature when they are first called.

A function made here takes exactly its operation's parameters. It looks whether the operands are plain tensors and calls the
operation's body; or, for a planned operation, it looks its plan up by the operands' metas and the other arguments, and calls that.
Everything unusual leaves by a method of the operation: `out=` by `into`, NumPy's names of parameters by `renamed`, operands of another
layout or class by `ask`, a call without a plan by `miss`, errors by `tripped`.
"""

from __future__ import annotations

import inspect
import linecache
import math
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from numbers import Number
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..kernels import keys, native
from ..layout import Size
from ..runtime import capture
from ..runtime import device as devices
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

# What a parameter is. An operand is a tensor (TENSOR), one or None (OPTIONAL), or one or a number (NUMBER; VALUE: where a plan holds for
# one value of it). SCALAR: a number that is passed to the launch; FACTOR: the same, where 1 has a plan of its own. TENSORS: several
# tensors. OPEN: perhaps a tensor, of which no plan knows. CONSTANT: anything else; a plan holds for one value of it. WORD: the same, looked
# up by what it equals (1 is True). OLD: what is left over in a call in a deprecated order.
# What a factory is told: SIZES, integers one by one or as one sequence (of *args); DTYPE and DEVICE, where None means the default one
# of the moment; PLACE, a device, where None means the operand's. A plan holds for the type or device that is meant.
TENSOR, OPTIONAL, NUMBER, VALUE, SCALAR, FACTOR = "tensor", "optional", "number", "value", "scalar", "factor"
TENSORS, OPEN, CONSTANT, WORD, OLD = "tensors", "open", "constant", "word", "old"
ANY = "any"  # what must be given and is not said to be anything: a tensor of ours perhaps, whose class may answer
REST = "rest"  # what stands in *args and is no sizes
SIZES, DTYPE, DEVICE, PLACE = "sizes", "dtype", "device", "place"
DATA, BUFFER = "data", "buffer"  # of which a plan holds for one layout, or size (`data`): numbers in lists, an array, a tensor; a buffer
PASSED = frozenset((TENSOR, OPTIONAL, NUMBER, VALUE, SCALAR, FACTOR, DATA, BUFFER))  # the kinds that a plan's call is given
SEQUENCES = frozenset((tuple, list, Size))  # what sizes come in as one argument
WORDS = frozenset((bool, str))
# classes of constants that equal only themselves
PLAIN_CONSTANTS: set[type] = {str, type(None), dtypes.dtype, devices.device, type(Ellipsis), type}
_USUAL = frozenset(("input", "self", "other", "target"))  # tensors or numbers, even where the signature leaves their type open


# NumPy's names of parameters, and PyTorch's of the same; and those that PyTorch has for one of several kinds of argument
OTHER_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other", "input": "self",
               "indices": "indices_or_sections", "sections": "indices_or_sections", "tensor_indices_or_sections": "indices_or_sections"}


_LISTED = frozenset(("size", "shape", "dims", "repeats"))  # names of *args that PyTorch has for one sequence


class _Missing:
    """Stands for what a call did not name, or not yet: NumPy's name of it may follow."""

    def __repr__(self) -> str:
        return "<required>"


MISSING = _Missing()


class Signature:
    """A function's parameters: `positional`, `rest` (of *args), `keyword` (only by keyword), `more` (of **kwargs), the defaults, and
    the kind of each."""

    __slots__ = ("positional", "rest", "keyword", "more", "defaults", "kwdefaults", "kinds", "untold", "reflected", "_key_parts", "_operand_kinds")

    def __init__(self, positional: Sequence[str], keyword: Sequence[str] = (), defaults: Sequence[Any] = (), kwdefaults: dict[str, Any] | None = None,
                 kinds: dict[str, str] | None = None, rest: str | None = None, more: str | None = None) -> None:
        self.positional, self.keyword, self.rest, self.more = tuple(positional), tuple(keyword), rest, more
        self.defaults, self.kwdefaults = tuple(defaults), dict(kwdefaults or {})
        self.kinds = {n: (kinds or {}).get(n, CONSTANT) for n in (*self.positional, *self.keyword, *((rest,) if rest else ()))}
        self.untold: frozenset[str] = frozenset()  # constants of which the signature does not tell that they are no tensors
        self.reflected = False  # a plan's call is given the operands in the other order
        self._key_parts: tuple[tuple[str, bool, bool], ...] | None = None
        self._operand_kinds: tuple[str, ...] | None = None

    @classmethod
    def of(cls, function: Any, kinds: dict[str, str] | None = None) -> Signature:
        """The signature of a function; `kinds` of parameters about which its annotations do not tell enough."""
        function = inspect.unwrap(function)
        code: Any = function.__code__
        names = code.co_varnames
        at = code.co_argcount + code.co_kwonlyargcount
        rest = names[at] if code.co_flags & CO_VARARGS else None
        more = names[at + (rest is not None)] if code.co_flags & CO_VARKEYWORDS else None
        notes = function.__annotations__
        found = {n: kind_of(n, str(notes.get(n, "Any"))) for n in (*names[:at], *((rest,) if rest else ()))}
        if rest and found[rest] == TENSOR:  # each of several
            found[rest] = TENSORS
        for n in names[:code.co_argcount - len(function.__defaults__ or ())]:  # what must be given may be a tensor, where nothing else is said
            found[n] = ANY if found[n] == CONSTANT and str(notes.get(n, "Any")).strip("'\"") == "Any" else found[n]
        made = cls(names[:code.co_argcount], names[code.co_argcount:at], function.__defaults__ or (),
                   function.__kwdefaults__, found | (kinds or {}), rest, more)
        made.untold = frozenset([n for n in made.names() if made.kinds[n] == CONSTANT and n not in _NO_OPERANDS and not made.loose(n)
                                 and str(notes.get(n, "Any")).strip("'\"") == "Any"])
        return made

    def names(self) -> tuple[str, ...]:
        """All parameters that have a name of their own, in the order in which a front hands on their values."""
        return (*self.positional, *self.keyword)

    def handed_on(self) -> tuple[str, ...]:
        """The parameters that a call with `out=` hands on, which is never one in a deprecated order."""
        return (*self.keyed(), *filter(None, (self.more,)))

    def keyed(self) -> tuple[str, ...]:
        """The parameters that a plan's key is made of."""
        return (*self.names(), self.rest) if self.rest is not None and self.kinds[self.rest] != OLD else self.names()

    def listed(self) -> str | None:
        """The name by which what stands in *args may be given as one sequence too: `x.view(2, 3)`, `x.view(size=(2, 3))`."""
        return self.rest if self.rest in _LISTED else None

    def key_parts(self) -> tuple[tuple[str, bool, bool], ...]:
        """For each of those: its kind (or REST), whether it is loose, whether it is seldom given."""
        if self._key_parts is None:
            seldom = self.seldom()
            self._key_parts = tuple([(REST if n == self.rest and self.kinds[n] != SIZES else self.kinds[n], self.loose(n), n in seldom)
                                     for n in self.keyed()])
        return self._key_parts

    def seldom(self) -> tuple[str, ...]:
        """The constants that are None in most calls, where there are several: one part of a key stands for them all."""
        found = tuple([n for n in self.names() if self.kinds[n] == CONSTANT and n != "device" and self.default(n) is None])
        return found if len(found) > 1 else ()

    def operands(self) -> tuple[int, ...]:
        """The places, among `names()`, of what a plan's call is given."""
        found = [i for i, n in enumerate(self.names()) if self.kinds[n] in PASSED]
        return tuple(found[::-1] if self.reflected else found)

    def with_old(self) -> Signature:
        """This signature, for an operation that is also called in a deprecated order of arguments."""
        return self._like(Signature(self.positional, self.keyword, self.defaults, self.kwdefaults, {**self.kinds, "old": OLD}, "old", self.more))

    def _like(self, made: Signature) -> Signature:
        made.untold, made.reflected = self.untold, self.reflected
        return made

    def with_numpy(self) -> Signature:
        """This signature, where parameters may be named as NumPy does: from the first of them on, nothing must be given as it stands."""
        required = self.positional[:len(self.positional) - len(self.defaults)]
        first = next((i for i, n in enumerate(required) if n in OTHER_NAMES.values()), len(required))
        return self._like(Signature(self.positional, self.keyword, (*[MISSING] * (len(required) - first), *self.defaults), self.kwdefaults, self.kinds,
                                    self.rest, self.more))

    def named_as(self, other: Signature) -> Signature:
        """This signature with another's names of as many positional parameters."""
        if len(other.positional) != len(self.positional):
            return self
        kinds = {theirs: self.kinds[ours] for ours, theirs in zip(self.positional, other.positional, strict=True)}
        return self._like(Signature(other.positional, self.keyword, self.defaults, self.kwdefaults, {**self.kinds, **kinds}, self.rest, self.more))

    def has_default(self, name: str, value: Any) -> bool:
        if name in self.kwdefaults:
            return value is self.kwdefaults[name]
        if name in self.keyword:
            return False
        at = self.positional.index(name) - len(self.positional) + len(self.defaults)
        return at >= 0 and value is self.defaults[at]

    def default(self, name: str) -> Any:
        """A parameter's default; MISSING where it has none."""
        at = self.positional.index(name) - len(self.positional) + len(self.defaults) if name in self.positional else -1
        return self.defaults[at] if at >= 0 else self.kwdefaults.get(name, MISSING)

    def loose(self, name: str) -> bool:
        """Whether a constant may be looked up by what it equals, as it is a truth or a word and no number."""
        return isinstance(self.default(name), (bool, str))

    def whole(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with the values of all parameters, as a front hands them on."""
        count = len(self.positional)
        end = count + len(self.keyword)
        rest = values[end] if self.rest is not None else ()
        more = values[end + (self.rest is not None)] if self.more is not None else {}
        return (*values[:count], *rest), {**dict(zip(self.keyword, values[count:end], strict=True)), **more}

    def as_written(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same without those that have their default."""
        (*args,), kwargs = self.whole(values)
        named: dict[str, Any] = {}
        if self.rest is None or not values[len(self.names())]:
            first = next((i for i, n in enumerate(self.positional) if self.has_default(n, args[i])), len(args))
            named = {n: v for n, v in zip(self.positional[first:], args[first:], strict=True) if not self.has_default(n, v)}
            del args[first:]
        return tuple(args), named | {n: v for n, v in kwargs.items() if n not in self.keyword or not self.has_default(n, v)}


def kind_of(name: str, note: str) -> str:
    """What a parameter is, by its annotation and its name."""
    note = note.strip("'\"")
    if name == "dtype" and note.startswith("str"):
        return WORD  # a type, or the name of something
    if note.startswith("Tensor"):
        return OPTIONAL if "None" in note else NUMBER if "|" in note else TENSOR
    if "Tensor]" in note or (note == "Any" and name in ("tensors", "arrays", "operands")):
        return TENSORS
    return OPEN if note == "Any" and name in _USUAL else CONSTANT


def _plain(name: str, kind: str) -> str | None:
    """The text of the test that an argument is what the body may work on as it is."""
    if kind == TENSOR:
        return f"{name}.meta.plain"
    if kind == OPTIONAL:
        return f"({name} is None or {name}.meta.plain)"
    if kind in (NUMBER, VALUE, OPEN):
        return f"({name}.meta.plain if {name}.__class__ is Tensor else {name}.__class__ in KNOWN or known({name}))"
    if kind == ANY:
        return f"({name}.meta.plain if {name}.__class__ is Tensor else {name}.__class__ in KNOWN or not isinstance({name}, Tensor) or {name}.meta.plain)"
    if kind == TENSORS:
        return f"({name}.meta.plain if {name}.__class__ is Tensor else {name}.__class__ in KNOWN or all_plain({name}))"
    return None


def exact(v: Any) -> Any:
    """A constant's part in the key of a plan. Equal numbers of other types (1, 1.0, True) or signs (0.0, -0.0) are other constants."""
    kind = v.__class__
    if kind is int or kind in PLAIN_CONSTANTS:  # what equals an int comes with its type
        return v
    if kind is tuple or kind is list:
        return tuple([x if x.__class__ is int else exact(x) for x in v])
    if kind is float:
        return _float(v)
    if isinstance(v, (int, float, complex)):
        return (kind, v) if v and v == v else (kind, str(v))  # a nan equals no nan, and 0.0 equals -0.0
    return (kind, v) if isinstance(v, Number) else v


def _float(v: float) -> Any:
    """A float's part in a key: a whole one is told from an int, and a zero from another sign's, by an imaginary part, as complex constants come
    with their type; a nan, which equals no nan, is a text."""
    if -_ALL_WHOLE < v < _ALL_WHOLE and not v.is_integer():
        return v
    return complex(v, math.copysign(1.5, v) if v == 0 else 1) if v == v else (float, "nan")


_ALL_WHOLE = 2.0 ** 51  # where machine code (`llvm/keys.py`) no longer looks
_NO_OPERANDS = frozenset(("dtype", "device", "layout", "memory_format", "generator"))


def constant(v: Any) -> Any:
    """What stands for an argument in the key of a learned plan: a tensor's meta, a constant's value. Raises TypeError for what has none."""
    kind = v.__class__
    if kind is int:  # what equals one of another type comes with its type
        return v
    if kind is float:
        return _float(v)
    if kind in PLAIN_CONSTANTS:
        return v
    if kind is tuple or kind is list or kind in SEQUENCES:
        if len(v) > _MOST:
            _no_constant(v)
        for x in v:  # sizes are nothing but integers
            if x.__class__ is not int:
                v = [x if (k := x.__class__) is int or k in PLAIN_CONSTANTS else constant(x) for x in v]
                break
        return (list, *v) if kind is list else tuple(v)  # x[[0, 1]] is not x[0, 1]
    if kind is complex:
        return (kind, v) if v and v == v else (kind, str(v))
    if kind is slice:
        a, b, c = v.start, v.stop, v.step
        if (a is None or a.__class__ is int) and (b is None or b.__class__ is int) and (c is None or c.__class__ is int):
            return slice, a, b, c
        return slice, constant(a), constant(b), constant(c)
    if kind is bool:
        return bool, v
    return v.meta if isinstance(v, Tensor) else _no_constant(v)


def told(args: Any) -> Any:
    """What stands for *args or **kwargs of a planned call in its key. Raises TypeError for what has no constant, and for a tensor whose class
    may answer."""
    named = args.__class__ is dict
    for x in args.values() if named else args:
        if isinstance(x, Tensor) and not x.meta.plain:
            _no_constant(x)
    return tuple([(k, constant(x)) for k, x in args.items()]) if named else constant(args)


def metas(tensors: Any) -> Any:
    """The metas of several tensors, as `constant` gives them."""
    kind = tensors.__class__
    if (kind is list or kind is tuple) and tensors and tensors[0].__class__ is Tensor:
        try:
            return (list, *[t.meta for t in tensors]) if kind is list else tuple([t.meta for t in tensors])
        except AttributeError:
            pass
    return constant(tensors)


def _no_constant(v: Any) -> Any:
    raise TypeError(f"a {type(v).__name__} is in no key")


def operand_kinds(s: Signature) -> tuple[str, ...]:
    """The parameters in which a call may be given tensors, the rest of *args among them: what a learned plan's call is given."""
    if s._operand_kinds is None:
        names = [n for n in s.names() if n not in _NO_OPERANDS and (s.kinds[n] != CONSTANT or not s.loose(n))]
        s._operand_kinds = (*names, s.rest) if s.rest is not None and s.kinds[s.rest] != OLD else tuple(names)
    return s._operand_kinds


_MOST = 64  # parts of a constant


def _learned_key(name: str, kind: str, loose: bool, default: Any) -> str:
    """The text of an argument's part in the key of a learned plan."""
    if kind == TENSOR:
        return f"{name}.meta"
    if kind == OPTIONAL:
        return f"None if {name} is None else {name}.meta"
    if kind == TENSORS:
        return f"metas({name})"
    if kind in (NUMBER, VALUE, OPEN, ANY):
        return f"{'None if ' + name + ' is None else ' if default is None else ''}{name}.meta if {name}.__class__ is Tensor else constant({name})"
    if name == "device":
        return f"THREAD.default if {name} is None else constant({name})"
    if kind == CONSTANT and loose:
        return f"{name} if {name}.__class__ in WORDS else ({name}.__class__, constant({name}))"
    if kind == CONSTANT and default is None:
        return f"None if {name} is None else constant({name})"
    rest = f"{name} if {name}.__class__ is int else constant({name})"
    return f"told_{name} if {name} is default_{name} else {rest}" if _long(default) else rest


def _long(default: Any) -> bool:
    """Whether a default's part in a key takes long: it is worked out once (`defaults`), for calls that do not name the argument."""
    return type(default) in (float, complex) or (type(default) is tuple and all(type(x) is int for x in default))


def defaults(s: Signature, told: Callable[[Any], Any]) -> dict[str, Any]:
    """The defaults whose parts in a key are worked out once, by the names that the code has for both. told: `constant` or `exact`."""
    found = {n: s.default(n) for n in s.names()}
    return {k: v for n, x in found.items() if _long(x) for k, v in ((f"default_{n}", x), (f"told_{n}", told(x)))}


def _learned_keys(s: Signature) -> str:
    names = s.keyed()
    more = f", None if not {s.more} else constant({s.more})" if s.more else ""  # for which there is no constant
    found = {n: _learned_key(n, s.kinds[n], s.loose(n), s.default(n) if n != s.rest else MISSING) for n in names}
    if s.rest in found and s.kinds[s.rest] == CONSTANT:
        found[s.rest] = f"{s.rest} and constant({s.rest})"
    parts = _together(s, found)
    return ", ".join(["NOW.watched", "DEFAULT.dtype", *parts]) + more


def _together(s: Signature, parts: dict[str, str]) -> list[str]:
    """The parts of a key, one of them for all arguments that are seldom given."""
    seldom = s.seldom()
    rest = [part for n, part in parts.items() if n not in seldom]
    return [*rest, f"None if {' and '.join(f'{n} is None' for n in seldom)} else ({', '.join(parts[n] for n in seldom)})"] if seldom else rest


# what the keys of learned plans are made with
LEARNED_KEYS: dict[str, Any] = {"Tensor": Tensor, "constant": constant, "DEFAULT": dtypes._default, "WORDS": WORDS, "metas": metas, "NOW": capture.now,
                                "THREAD": devices._thread}


def quicken(space: dict[str, Any]) -> None:
    """Has machine code give arguments' parts in the keys of a function, which reads `constant`, `metas` and `exact` in this namespace."""
    native.when_loaded(lambda: space.update((n, part) for n, part in _parts().items() if n in space))


@lru_cache(1)
def _parts() -> dict[str, Callable[[Any], Any]]:
    told = (Tensor, Size, tuple(PLAIN_CONSTANTS))
    return {"constant": keys.part(*told, constant, True, _MOST), "metas": keys.part(*told, metas, True, _MOST), "exact": keys.part(*told, exact, False, _MOST)}


def key_of(s: Signature) -> Any:
    """A function of a call's values that gives the key of its learned plan."""
    names = [*s.names(), *filter(None, (s.rest, s.more))]
    space = {**LEARNED_KEYS, **defaults(s, constant)}
    text = f"def key(values):\n    {''.join(n + ', ' for n in names)} = values\n    return ({_learned_keys(s)})"
    space.setdefault("__name__", __name__)
    exec(compile(text, "<operation>", "exec"), space)  # our own text: only names of parameters enter it
    return space["key"]


def _key(name: str, kind: str, loose: bool, default: Any) -> str:
    """The text of an argument's part in the key of a plan. loose, default: see `Signature.loose`; its default, MISSING for none."""
    if kind == TENSOR:
        return f"{name}.meta"
    if kind == OPTIONAL:
        return f"None if {name} is None else {name}.meta"
    if kind == NUMBER:
        return f"{name}.meta if (k_{name} := {name}.__class__) is Tensor else k_{name} if k_{name} in NUMBERS else {name}.meta"
    if kind == VALUE:
        return f"{name}.meta if (k_{name} := {name}.__class__) is Tensor else (k_{name}, {name}) if k_{name} in NUMBERS else {name}.meta"
    if kind in (DATA, BUFFER):
        return f"{'data_layout' if kind == DATA else 'buffer_size'}({name})"
    if kind == SCALAR:
        return f"{name}.__class__"
    if kind == FACTOR:
        return f"{name}.__class__ if {name} != 1 else 1 if {name}.__class__ is int else ({name}.__class__, 1)"
    if kind == CONSTANT and not loose:
        rest = f"{name} if {name}.__class__ is int else exact({name})"
        if _long(default):
            return f"told_{name} if {name} is default_{name} else {rest}"
        return f"None if {name} is None else {rest}" if default is None else rest
    if kind == SIZES:
        # nothing at all is not the empty tuple: expand() is refused where expand(()) is not
        return f"(k_{name} := tuple({name}[0]) if len({name}) == 1 and {name}[0].__class__ in SEQUENCES else {name} or None)"
    if kind == DTYPE:
        return f"DEFAULT.dtype if {name} is None else {name} if {name}.__class__ is DType else settled({name})"
    if kind in (DEVICE, PLACE):
        return f"{'THREAD.default' if kind == DEVICE else None} if {name} is None else resolve({name})"
    return name


def write(name: str, s: Signature, planned: bool, out: bool, renames: bool, learns: bool = False, own_view: bool = False,
          outs: bool = False) -> CodeType:
    """The code of a function. planned: see above. out: it has `out=`. outs: calls with that are planned too. renames: it takes parameters by NumPy's
    names too, as those listed in *args by theirs. learns: it looks for a learned plan first. own_view: see `fields`."""
    parameters = list(s.positional)
    renames = s.more is None and ((renames and not set(OTHER_NAMES.values()).isdisjoint(s.names())) or s.listed() is not None)
    first = len(parameters) - len(s.defaults)
    parameters[first:] = [f"{n}=None" for n in parameters[first:]]
    only = [f"{n}=None" if n in s.kwdefaults else n for n in s.keyword] + (["out=None"] if out else [])
    if s.rest is not None:
        parameters.append("*" + s.rest)
    elif only:
        parameters.append("*")
    parameters += only
    if s.more is not None:
        parameters.append("**" + s.more)
    elif renames:
        parameters.append("**other_names")
    values = "(" + "".join(f"{n}, " for n in (*s.names(), *filter(None, (s.rest, s.more)))) + ")"
    handed_on = ", ".join(s.handed_on())
    lines = [f"def call({', '.join(parameters)}):"]
    if renames:
        lines.append(f"    if other_names: return renamed({values}, other_names{', out' if out else ''})")
    if s.rest is not None and s.kinds[s.rest] == OLD:
        lines.append(f"    if {s.rest}: return reordered({values}{', out' if out else ''})")
    if out and outs:
        lines += ["    if out is not None:",
                  "        try:",
                  f"            plan = outs[out.meta, ({_plan_key(s)})]",
                  "        except (KeyError, AttributeError, TypeError, ValueError, RuntimeError):",
                  "            plan = None",  # an error of what follows is shown without the KeyError before it
                  f"        return into(out, {handed_on}) if plan is None else plan(out, {_passed(s)})"]
    elif out:
        lines.append(f"    if out is not None: return into(out, {handed_on})")
    then = [] if own_view else [f"    if made.__class__ is Tensor and made.base is not None: known_as(made, {values})"]
    own = f" and made is not {s.names()[0]}" if s.names() else ""  # what it wrote in place is not new
    then += ["    if made.__class__ is not Tensor:", "        if isinstance(made, SEVERAL): all_begin(made)",
             f"    elif made.store.version > 0{own}: begins(made)"]
    lines += _planned(s, values) if planned else _learning(s, values, then) if learns else _direct(s, values, then)
    return _compiled(name, f"<operation {name}>", lines)


def write_sizes(name: str, s: Signature) -> CodeType | None:
    """The code of a planned factory that looks first for a call with nothing but sizes (`quick`, by the operand's meta where there is one, and the
    sizes), has `first` fill that, and leaves all other calls to `whole`, the function that `write` gives: each parameter that can only be named costs a
    call that does not name it. None for other functions."""
    if s.rest is None or s.kinds[s.rest] != SIZES or not s.keyword or s.defaults or len(s.positional) > 1 or any(s.kinds[n] != TENSOR for n in s.positional):
        return None
    operand, told = "".join(f"{n}, " for n in s.positional), DEVICE in s.kinds.values()
    lines = [f"def call({operand}*{s.rest}, **more):",
             f"    if not more{' and not CHOSEN.some' if told else ''}:",
             "        try:",
             f"            sizes = {s.rest}[0] if len({s.rest}) == 1 and {s.rest}[0].__class__ in SEQUENCES else {s.rest}",
             f"            plan = quick[{''.join(f'{n}.meta, ' for n in s.positional)}sizes]",
             "            whole_numbers = sum(sizes).__class__ is int",  # 4.0 is equal to 4, and no size
             "        except KeyError:",
             "            plan = first",
             "        except (AttributeError, TypeError):",
             "            plan = whole",
             "        else:",
             f"            if whole_numbers: return plan({operand})",
             "            plan = whole",
             f"        return plan({operand}*{s.rest})",
             f"    return whole({operand}*{s.rest}, **more)"]
    return _compiled(name, f"<operation {name} of sizes>", lines)


def _compiled(name: str, file: str, lines: Sequence[str]) -> CodeType:
    """The code of the function whose lines these are, of the engine's own text: only names of parameters enter it."""
    text = "\n".join(lines)
    linecache.cache[file] = (len(text), None, [line + "\n" for line in lines], file)
    space: dict[str, Any] = {}
    space.setdefault("__name__", __name__)
    exec(compile(text, file, "exec"), space)
    code: CodeType = space["call"].__code__
    return code.replace(co_name=name, co_qualname=name)


def _required(s: Signature, values: str) -> list[str]:
    """The test that all is given that must be."""
    missing = [f"{n} is MISSING" for n in s.positional if s.has_default(n, MISSING)]
    return [f"    if {' or '.join(missing)}: forgotten({values})"] if missing else []


def _plan_key(s: Signature) -> str:
    """The parts of the key that a plan is looked up by."""
    names = s.keyed()
    keys = {n: _key(n, s.kinds[n], s.loose(n), s.default(n)) for n in names}
    if s.rest is not None and s.kinds[s.rest] not in (SIZES, OLD):
        keys[s.rest] = f"{s.rest}[0] if len({s.rest}) == 1 and {s.rest}[0].__class__ in PLAIN else told({s.rest})"
    parts = _together(s, keys) + ([f"told({s.more}) if {s.more} else ()"] if s.more is not None else [])
    return "".join([f"{part}, " for part in parts])


def _passed(s: Signature) -> str:
    """What the call of a plan is given."""
    names = s.names()
    return ", ".join([names[i] for i in s.operands()])


def _planned(s: Signature, values: str) -> list[str]:
    names, key, operands = s.keyed(), _plan_key(s), _passed(s)
    whole = "".join([f"if sum(k_{n}).__class__ is int: " for n in names if s.kinds[n] == SIZES])
    # `miss` is called outside the handler: an error it raises is shown without the KeyError before it
    return ["    try:",
            f"        plan = plans[key_ := ({key})]",
            "    except KeyError:",
            "        pass",
            "    except (AttributeError, TypeError, ValueError, RuntimeError):",  # the last two: an array as a factor has no truth
            "        key_ = None",
            "    else:",
            # integers only: 4.0 is equal to 4, and no size
            f"        {whole}return plan({operands})",
            *(["        key_ = None"] if whole else []),
            "    if key_ is not None:",
            f"        made = unseen(key_, LEAST, kinds, fresh, {operands})",
            "        if made is not NotImplemented: return made",
            *_required(s, values),
            f"    return miss({values}, key_)"]


def _learning(s: Signature, values: str, then: Sequence[str]) -> list[str]:
    return ["    try:",
            f"        plan = plans[key_ := ({_learned_keys(s)})]",
            "    except KeyError:",
            "        if kinds:",
            f"            made = unseen(key_, LEAST, kinds, fresh, {', '.join(operand_kinds(s))})",
            f"            if made is NotImplemented and key_ not in fresh: made = sized(key_, {values})",
            "            if made is not NotImplemented: return made",
            "    except (AttributeError, TypeError, ValueError, RuntimeError):",
            "        pass",
            "    else:",
            f"        return plan({', '.join(operand_kinds(s))})",
            *_direct(s, values, [*then, f"    note({values})"])]


def _direct(s: Signature, values: str, then: Sequence[str]) -> list[str]:
    """then: the lines after a call of the body."""
    tests = [test for n, kind in s.kinds.items() if (test := _plain(n, kind)) is not None and (n != s.rest or kind == TENSORS)]
    tests += [f"({n}.__class__ is not Tensor or {n}.meta.plain)" for n in s.names() if n in s.untold]
    passed = [*s.positional, *(["*" + s.rest] if s.rest is not None and s.kinds[s.rest] != OLD else []), *[f"{n}={n}" for n in s.keyword],
              *(["**" + s.more] if s.more else [])]
    return [*_required(s, values),
            "    since = caches.epoch",
            "    try:",
            *([f"        if not ({' and '.join(tests)}): return ask({values})"] if tests else []),
            *(["        if dtype is not None and dtype.__class__ is not DType: dtype = meant(dtype)"] if s.kinds.get("dtype") == CONSTANT else []),
            *([f"        if out is not None: fits(out, dtype, device{', layout' if 'layout' in s.keyword else ''})"]
              if {"out", "dtype", "device"}.issubset(s.keyword) else []),
            f"        made = body({', '.join(passed)})",
            "    except TRIPS as error:",
            f"        return tripped(error, {values})",
            f"    if made.__class__ in GIVEN: return given(made, {values}, since)",
            *then,
            "    return made"]
