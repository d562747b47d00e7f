"""Numbers that are others at each call: what they were in the run, and how they are worked out again.

A tensor's element that Python took (`item`), an argument that counts, a counter that the step moves on.  While Python only hands such a number on, keeps
it or reckons with it, the text that it follows from is kept instead of the number.  Whatever else looks at it makes it a condition (`How.settle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..tensor import Tensor
    from .guards import Guards

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
          "gt": ">", "ge": ">="}
_RECKONED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_LONG = 400  # characters of a text, after which the number is a condition
BITS = 63  # of a whole number from elsewhere: guards hold it below
_SAFE = 900  # bits of a whole number that surely becomes a float


class Item:
    """A tensor's element that Python took.  copy: of the tensor, as it was then; read: the step that looked, which stays where the value is a condition."""

    __slots__ = ("copy", "read", "fixed", "number")

    def __init__(self, copy: Tensor, read: Any, number: int) -> None:
        self.copy: Any = copy
        self.read, self.number, self.fixed = read, number, False


class How:
    """How a number is worked out: `text`, Python over names that a replay binds.  value: what it was in the run; bits: how long it may be, if it is whole.

    early: whether it is known before the replay, so that a condition may have it in its text.  begins: the early numbers that it follows from, items: the
    late ones.
    """

    __slots__ = ("value", "text", "early", "begins", "items", "bits", "guards")

    def __init__(self, guards: Guards, value: Any, text: str, early: bool, begins: Iterable[How] = (), items: Iterable[Item] = (), bits: int = BITS) -> None:
        self.guards, self.value, self.text, self.early, self.bits = guards, value, text, early, bits
        self.begins, self.items = tuple(begins), tuple(items)

    def settle(self) -> Any:
        """Makes the value a condition, and gives it."""
        for item in self.items:
            item.fixed = True
        for how in (self,) if self.early else self.begins:
            self.guards.line(("value", how.text), f"repr({how.text}) == {repr(how.value)!r}")
        return self.value


class Whole(int):
    """An int with its `how`."""

    how: How


class Real(float):
    """A float with its `how`."""

    how: How


LATER = {Whole, Real}


def _looking(base: type, name: str) -> Callable[..., Any]:
    inner = getattr(base, name)

    def look(self: Any, *args: Any) -> Any:
        self.how.settle()
        return inner(self, *args)
    return look


# whoever looks at one unseen by the run makes it a condition
_LOOKS = ("__bool__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __repr__ __str__ __format__ __index__ __int__ __float__ __trunc__ __floor__ __ceil__ "
          "__round__ __abs__ __neg__ __pos__ __invert__").split()
_LOOKS += [f"__{side}{op}__" for op in (*_RECKONED, "divmod", "and", "or", "xor", "lshift", "rshift") for side in ("", "r")]
for _class, _base in ((Whole, int), (Real, float)):
    for _name in _LOOKS:
        if hasattr(_base, _name):
            setattr(_class, _name, _looking(_base, _name))


def number(how: How) -> Any:
    """The number that was worked out like this."""
    made: Any = (Whole if type(how.value) is int else Real)(how.value)
    made.how = how
    return made


def plain(x: Any) -> Any:
    """The same without a `how`; of what cannot change, its parts too."""
    t = type(x)
    if t is Whole or t is Real:
        return x.how.value
    if t is slice:
        return slice(plain(x.start), plain(x.stop), plain(x.step)) if {type(x.start), type(x.stop), type(x.step)} & LATER else x
    if isinstance(x, tuple) and x:
        parts = [plain(part) for part in x]
        if any(a is not b for a, b in zip(parts, x, strict=True)):
            return t(*parts) if hasattr(x, "_fields") else tuple.__new__(t, parts)
    return x


def settled(x: Any) -> Any:
    """`plain`, with what is in it a condition."""
    if type(x) in LATER:
        return x.how.settle()
    if isinstance(x, tuple):
        for part in x:
            settled(part)
    elif type(x) is slice:
        for part in (x.start, x.stop, x.step):
            settled(part)
    return plain(x)


def cleanse(x: Any) -> None:
    """Leaves plain numbers in a list or dict."""
    for key, part in list(x.items() if isinstance(x, dict) else enumerate(x)):
        if (found := plain(part)) is not part:
            x[key] = found


def how_of(x: Any, guards: Guards) -> How | None:
    """How an operand is worked out; None for what is no number."""
    if type(x) in LATER:
        found: How = x.how
        return found
    if type(x) in (int, float, bool):
        text = f"({x!r})" if x - x == 0 else guards.name(x)
        return How(guards, x, text, True, bits=int(x).bit_length() if type(x) is not float else 0)
    return None


def reckoned(name: str, f: Callable[..., Any], a: Any, b: Any, guards: Guards) -> tuple[How | None, bool]:
    """How `f` of two operands is worked out, the operator of a name (None where nobody can tell), and whether that may raise."""
    x, y = how_of(a, guards), how_of(b, guards)
    if x is None or y is None or name not in _RECKONED or len(x.text) + len(y.text) > _LONG:
        return None, False
    value = f(x.value, y.value)
    if type(value) not in (int, float):
        return None, False
    whole = type(x.value) is not float, type(y.value) is not float
    bits = x.bits + y.bits if name == "mul" else max(x.bits, y.bits) + 1
    fits = max([h.bits for h, w in zip((x, y), whole, strict=True) if w], default=0) < _SAFE
    if name in ("add", "sub", "mul"):
        raises = whole[0] != whole[1] and not fits
    elif name == "pow":
        raises = True
    else:
        raises = type(b) in LATER or (not fits and whole != (True, True)) or (name == "truediv" and not fits)
    text, begins, items = f"({x.text} {_SIGNS[name]} {y.text})", {*x.begins, *y.begins}, {*x.items, *y.items}
    return How(guards, value, text, x.early and y.early and not raises, begins, items, bits), raises


def compared(name: str, a: Any, b: Any, guards: Guards) -> str | None:
    """The text of a comparison that is known before the replay; None where it is not."""
    x, y = how_of(a, guards), how_of(b, guards)
    if x is None or y is None or name not in _SIGNS or not (x.early and y.early):
        return None
    return f"({x.text} {_SIGNS[name]} {y.text})"


def applied(f: Callable[..., Any], args: Sequence[Any], guards: Guards, raises: bool) -> How | None:
    """How a function of numbers that gives one of the same class for all of theirs is worked out; None where nobody can tell."""
    found = [how_of(a, guards) for a in args]
    hows = [h for h in found if h is not None]
    if len(hows) < len(args) or sum(len(h.text) for h in hows) > _LONG:
        return None
    value = f(*[h.value for h in hows])
    if type(value) not in (int, float):
        return None
    text = f"{guards.name(f)}({', '.join(h.text for h in hows)})"
    begins, items = {b for h in hows for b in h.begins}, {i for h in hows for i in h.items}
    return How(guards, value, text, not raises and all(h.early for h in hows), begins, items, _SAFE if raises else max(h.bits for h in hows))
