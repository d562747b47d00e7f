"""What a compiled function is called with: its tensors, the containers in which they are, and all else; and the conditions for another call of the kind."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from typing import TYPE_CHECKING, Any

from ..autograd import tape
from ..tensor import NO_FREE, Tensor
from .effects import BOUND
from .knowing import ATOMS, NOTES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_MOST = 64  # parts of a container that are compared at each call
_DEEP = 4  # containers within one another


class Given:
    """tensors: those among the arguments, and in what holds them: tuples, lists, dicts, dataclasses.  containers: these, which are others at each call.

    values: what is neither, in order; free: which of these, by place, are numbers that may be others at each call.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.count, self.names = len(args), tuple(kwargs)
        self.given = (*args, *kwargs.values())
        self.tensors: list[Tensor] = []
        self.containers: list[Any] = []
        self.values: list[Any] = []
        self.lines: list[str] = []  # which take the containers apart, and see that they are of the same kind
        self.names_of: list[str] = []  # what each value is called in the lines
        self.constants: list[Any] = []  # that the lines compare with, as @0@, @1@, ...
        self.shape: list[Any] = []
        self._places: list[int] = []  # of the values in `shape`
        for i, x in enumerate(self.given):
            self._take(x, f"x{i}")

    def _take(self, x: Any, name: str) -> None:
        if type(x) is Tensor:
            self.lines.append(f"t{len(self.tensors)} = {name}")
            self.tensors.append(x)
            self.shape.append((x.meta, _history(x), x.store.version < 0))
        elif holds(x):
            self._apart(x, name)
        else:
            self.names_of.append(name)
            self.values.append(x)
            self._places.append(len(self.shape))
            self.shape.append((type(x), x) if type(x) in ATOMS else type(x))

    def _apart(self, x: Any, name: str) -> None:
        t = type(x)
        self.containers.append(x)
        self.lines.append(f"if type({name}) is not {self._constant(t)}: return MISS")
        if isinstance(x, (tuple, list)):
            self.shape.append((t, len(x)))
            self.lines.append(f"if len({name}) != {len(x)}: return MISS")
            inner = [f"{name}_{i}" for i in range(len(x))]
            self.lines.append("".join(f"{k}, " for k in inner) + f"= {name}")
            parts = list(x)
        else:
            if not isinstance(x, dict):
                self.lines.append(f"{name}_d = {name}.__dict__")
                name, x = f"{name}_d", x.__dict__
            keys = tuple(x)
            self.shape.append((t, keys))
            self.lines.append(f"if tuple({name}) != {self._constant(keys)}: return MISS")
            inner = [f"{name}_{i}" for i in range(len(x))]
            self.lines.append("".join(f"{k}, " for k in inner) + f"= {name}.values()")
            parts = list(x.values())
        for part, k in zip(parts, inner, strict=True):
            self._take(part, k)

    def _constant(self, x: Any) -> str:
        self.constants.append(x)
        return f"@{len(self.constants) - 1}@"

    @property
    def fit(self) -> bool:
        """Whether its tensors, and what holds them, may be others at each call."""
        return len({id(x) for x in self.containers}) == len(self.containers) and apart(self.tensors) and all(
            t.meta.plain and t.meta.device.type in ("cpu", "cuda") and t.__dict__.keys() <= NOTES and (
                t.base is None or t.base.node is None if t.node is None else t.node[tape.SEQ] or t.node[tape.EXTRA] is None) for t in self.tensors)

    def key(self, free: Collection[int] = ()) -> Any:
        """Calls of one kind.  free: the places of values that are numbers, others at each call."""
        shape = list(self.shape)
        for place in free:
            if place < len(self.values) and countable(self.values[place]):
                shape[self._places[place]] = type(self.values[place])
        return (self.count, self.names, *shape)

    def unpacked(self, g: Any) -> list[str]:
        """Lines that name what a call is given."""
        lines = [f"if len(args) != {self.count} or len(kwargs) != {len(self.names)}: return MISS"]
        if self.count:
            lines.append("".join(f"x{i}, " for i in range(self.count)) + "= args")
        lines += [f"x{self.count + i} = kwargs[{name!r}]" for i, name in enumerate(self.names)]
        for line in self.lines:
            parts = line.split("@")
            lines.append("".join(g.name(self.constants[int(p)]) if i % 2 else p for i, p in enumerate(parts)))
        return lines

    def numbered(self, effects: Any, free: Collection[int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with numbers that are others at each call in the place of the free ones."""
        made = list(self.given)
        for place in free:
            if place < len(self.values) and countable(self.values[place]) and (i := self.names_of[place][1:]).isdigit():  # in no container
                made[int(i)] = effects.begin(("argument", place), self.names_of[place], self.values[place])
        return tuple(made[:self.count]), dict(zip(self.names, made[self.count:], strict=True))

    def tests(self, g: Any, free: Collection[int] = ()) -> list[str]:
        """Conditions, when all is named."""
        found = []
        for k, t in enumerate(self.tensors):
            x = f"t{k}"
            found.append(f"type({x}) is Tensor and {x}.meta is {g.name(t.meta)} and {_HISTORY[_history(t)].format(x=x)} and {x}.store not in taken "
                         f"and {x}.store.free is not NO_FREE and {x}.store.version {'<' if t.store.version < 0 else '>='} 0 "
                         f"and (not {x}.__dict__ or {x}.__dict__.keys() <= NOTES)")
        for place, (x, name) in enumerate(zip(self.values, self.names_of, strict=True)):
            if place in free and countable(x):
                found.append(f"type({name}) is {'int' if type(x) is int else 'float'}" + (f" and {-BOUND} < {name} < {BOUND}" if type(x) is int else ""))
            elif type(x) in ATOMS and x == x:
                found.append(f"{name} is {g.name(x)} or (type({name}) is {g.name(type(x))} and repr({name}) == {repr(x)!r})")
            else:
                found.append(f"{name} is {g.name(x)}")
        n = len(self.tensors)
        found += [f"t{i}.store is not t{j}.store" for j in range(n) for i in range(j)]
        return found


def countable(x: Any) -> bool:
    """Whether it is a number that may be another one at each call."""
    return (type(x) is int and -BOUND < x < BOUND) or type(x) is float


def holds(x: Any, deep: int = _DEEP) -> bool:
    """Whether it is a container of tensors that is taken apart: of few parts, with no tensor in it that collects gradients, as a list of parameters has,
    which is the same at each call."""
    t = type(x)
    if t in (tuple, list) or (isinstance(x, tuple) and hasattr(x, "_fields")):
        parts = list(x)
    elif t is dict or t is OrderedDict:
        parts = list(x.values())
        if not all(type(k) in (str, int) for k in x):
            return False
    elif ("__dataclass_fields__" in t.__dict__ or isinstance(x, UserDict)) and type(getattr(x, "__dict__", None)) is dict and not isinstance(x, (type, dict)):
        parts = list(x.__dict__.values())
    else:
        return False
    if not deep or len(parts) > _MOST:
        return False
    return any(type(p) is Tensor or holds(p, deep - 1) for p in parts) and not any(isinstance(p, Tensor) and p.node is not None and not p.node[tape.SEQ]
                                                                                  for p in parts)


def _history(t: Tensor) -> int:
    """Whether an argument has none (0), is a leaf that requires grad (1), or was computed from some (2)."""
    return 0 if t.node is None else 2 if t.node[tape.SEQ] else 1


_HISTORY = ("{x}.node is None and ({x}.base is None or {x}.base.node is None)",
            f"{{x}}.node is not None and {{x}}.node[{tape.SEQ}] == 0 and {{x}}.node[{tape.EXTRA}] is None",
            f"{{x}}.node is not None and {{x}}.node[{tape.SEQ}] != 0")


def apart(tensors: Sequence[Tensor]) -> bool:
    """Whether no two may share memory."""
    return len({id(t.store) for t in tensors}) == len(tensors) and all(t.store.free is not NO_FREE for t in tensors)
