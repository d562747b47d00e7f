"""What a step does to Python's objects: entries of dicts and attributes that it sets, lists that it appends to, in order.  A replay does the same when its
launches are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .later_numbers import BITS, How, Item, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..tensor import Tensor
    from .guards import Guards

BOUND = 1 << BITS


class Effect:
    """kind: "set" (``target[key] = value``), "append" (``target.append(value)``), "fill" (``target.clear()`` and ``target.update(value)``), or "work" (a
    number that may raise is worked out, as `value`)."""

    __slots__ = ("kind", "target", "key", "value", "steps")

    def __init__(self, kind: str, target: Any, key: Any, value: Any, steps: int) -> None:
        self.kind, self.target, self.key, self.value, self.steps = kind, target, key, value, steps


class Effects:
    """moved: places, (container, key) by identity, of which earlier runs found that the function changes them: a number there is another one at each call.

    found: what was done.  items: the elements that Python took.  numbers: whether there is any `later_numbers.number`.
    """

    def __init__(self, guards: Guards, moved: Iterable[Any] = ()) -> None:
        self.guards, self.moved = guards, set(moved)
        self.found: list[Effect] = []
        self.items: list[Item] = []
        self.numbers = False
        self._there: dict[Any, Any] = {}  # what the run put at a place
        self._before: dict[Any, Any] = {}  # what was at a place that it set, and is known to be there at each call
        self._adopted: list[tuple[Any, tuple[Any, ...]]] = []
        self._longer: dict[int, int] = {}  # how many elements it appended to a list
        self._begins: dict[Any, Any] = {}

    # numbers --------------------------------------------------------------------------------------------------------------
    def item(self, value: Any, copy: Tensor, read: Any, convert: str = "{}") -> Any:
        """A tensor's element that Python took."""
        self.numbers = True
        made = Item(copy, read, len(self.items))
        self.items.append(made)
        return number(How(self.guards, value, convert.format(f"m{made.number}"), False, (), (made,)))

    def begin(self, key: Any, text: str, value: Any) -> Any:
        """A number that is found by a text before the replay."""
        self.numbers = True
        if key not in self._begins:
            name = f"n{len(self._begins)}"
            is_whole = type(value) is int
            line = f"type({name} := {text}) is {'int' if is_whole else 'float'}" + (f" and {-BOUND} < {name} < {BOUND}" if is_whole else "")
            self.guards.line(("begin", key), line)
            how = How(self.guards, value, name, True)
            how.begins = (how,)
            self._begins[key] = number(how)
        return self._begins[key]

    def worked(self, how: How, steps: int) -> Any:
        """A number whose working out may raise, so that it stands among the effects."""
        name = f"h{len(self.found)}"
        self.found.append(Effect("work", None, name, how.text, steps))
        how.text = name
        return number(how)

    # places ---------------------------------------------------------------------------------------------------------------
    def part(self, d: Any, key: Any) -> tuple[bool, Any]:
        """(whether a number or what the run put is known at a place, that)."""
        place = id(d), key
        if place in self._there:
            return True, self._there[place]
        value = d[key]
        self.guards.stale = self.guards.stale or id(d) in self.guards.replaced
        if place in self.moved and type(value) in (int, float) and (type(value) is float or -BOUND < value < BOUND):
            return True, self.begin(place, f"{self.guards.name(d)}[{self.guards.key(key)}]", value)
        return False, value

    def set(self, d: Any, key: Any, value: Any, steps: int) -> None:
        if self.guards.guarded(d, key):
            self._before.setdefault((id(d), key), d[key])
        self.guards.touch(d, key)
        self.moved.add((id(d), key))
        self._there[id(d), key] = value
        # what was there for a while nobody sees
        self.found = [e for e in self.found if not (e.kind == "set" and e.target is d and e.key == key and type(e.key) is type(key))]
        if not ((id(d), key) in self._before and self._before[id(d), key] is value):
            self.found.append(Effect("set", d, key, value, steps))

    def adopt(self, d: Any) -> None:
        """A dict is changed in any way from now on."""
        self.guards.touch(d)
        self.guards.replaced.add(id(d))
        self._adopted.append((d, tuple(d.items())))

    def end(self, steps: int) -> None:
        """What is left in the dicts that it took for its own."""
        for d, before in self._adopted:
            if len(d) != len(before) or any(k is not a or v is not b for (k, v), (a, b) in zip(d.items(), before, strict=True)):
                self.found.append(Effect("fill", d, None, dict(d), steps))

    def append(self, x: list[Any], value: Any, steps: int) -> None:
        self.guards.touch(x)
        self.moved.add((id(x), None))
        self._longer[id(x)] = self._longer.get(id(x), 0) + 1
        self.found.append(Effect("append", x, None, value, steps))

    def length(self, x: list[Any]) -> Any:
        """The length of a list to which the function appends; None of another."""
        if (id(x), None) not in self.moved:
            return None
        more = self._longer.get(id(x), 0)
        begin = self.begin((id(x), len), f"len({self.guards.name(x)})", len(x) - more)
        if not more:
            return begin
        how = begin.how
        return number(How(self.guards, len(x), f"({how.text} + {more})", True, (how,)))


