"""Elements as unsigned keys of their width, ordered as the elements are: NaN is the greatest value, -0.0 equals 0.0.

What tells the types of a width apart is numbers of the parameter block (`numbers`), so that one machine code serves them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..code import Code

if TYPE_CHECKING:
    from .....dtypes import dtype
    from ...emit import Module
    from ..code import Value

WORDS = 5  # of the parameter block, at its beginning
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def numbers(d: dtype, descending: bool = False) -> tuple[int, ...]:
    """The words that say how a type's bits become keys: which bits a negative number turns over, the bit that is turned over anyway, the
    bits of the other zero, those of infinity, and what turns the order round."""
    ones = (1 << 8 * d.itemsize) - 1
    top = (ones >> 1) + 1
    flip = ones if descending else 0
    if d.kind == "f":
        return top - 1, top, top, _INFINITY[d.name], flip
    return 0, top if d.kind == "i" else 0, 0, ones, flip


class Keys:
    """The words of the parameter block, read once in a function, for keys of `bits` bits."""

    def __init__(self, c: Code, block: Value, bits: int) -> None:
        self.c, self.bits, self.kind = c, bits, f"i{bits}"
        self.turned, self.top, self.zero, self.infinity, self.flip = (c.number(block, k, self.kind) for k in range(WORDS))
        self.wide: dict[str, Value] = {}

    def _word(self, name: str, lanes: int) -> Value:
        word: Value = getattr(self, name)
        if lanes == 1:
            return word
        if name not in self.wide:
            raise KeyError(f"{name} is spread by `spread`, ahead of loops")
        return self.wide[name]

    def spread(self, lanes: int) -> None:
        """The words for vectors: to be asked for ahead of the loop."""
        for name in ("turned", "top", "zero", "infinity", "flip"):
            self.wide[name] = getattr(self, name).spread(lanes)

    def of(self, bits: Value) -> Value:
        """The keys of elements' bits, of one or of a vector."""
        turned, top, zero, infinity, flip = (self._word(n, bits.lanes) for n in ("turned", "top", "zero", "infinity", "flip"))
        c = self.c
        b = c.pick(bits.equals(zero), c.constant(bits.type, 0), bits)
        key = b ^ (b.arithmetic_shift(self.bits - 1) & turned) ^ top
        return c.pick((b & turned).above(infinity), c.constant(bits.type, -1), key) ^ flip

    def several(self, key: Value) -> Value:
        """Whether elements of other bits have this key: those of zero and NaN.  Of an integer it may be said too, of two keys."""
        plain = key ^ self._word("flip", key.lanes)
        return plain.equals(-1) | plain.equals(self._word("top", key.lanes))

    def back(self, key: Value) -> Value:
        """The bits of the element of a key that only one has."""
        flip, top, turned = (self._word(n, key.lanes) for n in ("flip", "top", "turned"))
        b = key ^ flip ^ top
        return b ^ (b.arithmetic_shift(self.bits - 1) & turned)

    @property
    def nan(self) -> Value:
        """NaN's key; of integers, that of the greatest."""
        return self.flip ^ -1


def write(module: Module, bits: int) -> None:
    """Adds @keys(source, step, n, to, block): the keys of n elements, `step` bytes apart, side by side."""
    c = Code(module, "internal void", "keys", "ptr", "i64", "i64", "ptr", "ptr")
    source, step, n, to, block = c.given
    k, lanes, size = Keys(c, block, bits), 512 // bits, bits // 8
    t = f"<{lanes} x i{bits}>"
    near = step.equals(size)
    whole = c.pick(near, n & -lanes, 0)
    k.spread(lanes)
    with c.span(0, whole, step=lanes) as v:
        (to + v.i * size).store(k.of((source + v.i * size).load(t)))
    if module.masks:
        rest = c.pick(near, n - whole, 0)
        with c.when(c.ints(0) < rest):
            mask = _first(c, rest, lanes)
            (to + whole * size).masked_store(k.of((source + whole * size).masked_load(t, mask)), mask)
        whole = whole + rest
    with c.span(whole, n) as v:
        (to + v.i * size).store(k.of((source + v.i * step).load(k.kind)))
    c.back()
    c.finish()


def _first(c: Code, n: Value, lanes: int) -> Value:
    """The mask of the first n lanes."""
    from ..code import Value as V
    return V(c, f"<{lanes} x i1>", c.first_lanes(n.name, lanes))
