"""Accumulators: what a reduction starts from, how an element joins it, how two partial results become one.

An accumulator of "argmax"/"argmin" is two values: the best element and its position.  A position nothing was taken at
is `NOWHERE`; as every element then equals the starting value (or there is none), `finish` makes it 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops.accumulators import NOWHERE, flat_types, start_of
from .emit import constant, splat, ty, vec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from .emit import Emitter


class Partials:
    """The accumulators of a list of reductions, as one flat list of values."""

    def __init__(self, em: Emitter, elems: Sequence[Expr], combine: Sequence[str]) -> None:
        self.em, self.parts = em, [(how, e.dtype) for how, e in zip(combine, elems, strict=True)]
        self.dtypes = flat_types([e.dtype for e in elems], combine)

    def types(self, lanes: int) -> list[str]:
        return [ty(d, lanes) for d in self.dtypes]

    def start(self, lanes: int) -> list[str]:
        values = []
        for how, d in self.parts:
            values.append(constant(start_of(how, d), d, lanes))
            if how.startswith("arg"):
                values.append(splat(str(NOWHERE), "i64", lanes))
        return values

    def masked(self, elems: Sequence[str], lanes: int, mask: str | None) -> list[str]:
        """Elements with the starting value in the lanes outside `mask`."""
        if mask is None:
            return list(elems)
        out = []
        for (how, d), v in zip(self.parts, elems, strict=True):
            t, start = ty(d, lanes), constant(start_of(how, d), d, lanes)
            out.append(self.em.op(f"select {vec('i1', lanes)} {mask}, {t} {v}, {t} {start}"))
        return out

    def take(self, accs: Sequence[str], elems: Sequence[str], place: str, lanes: int) -> list[str]:
        """The accumulators after elements at a place that comes after all that they hold."""
        from .lower import combine
        out: list[str] = []
        for (how, d), v in zip(self.parts, elems, strict=True):
            a = accs[len(out)]
            if not how.startswith("arg"):
                out.append(combine(self.em, how, d, lanes, a, v))
                continue
            better = self._better(how, d, lanes, v, a)
            out += self._choose(better, d, lanes, (v, place), (a, accs[len(out) + 1]))
        return out

    def join(self, a: Sequence[str], b: Sequence[str], lanes: int) -> list[str]:
        """Two partial results as one; of equal elements the earlier place counts."""
        from .lower import combine
        em, mask = self.em, vec("i1", lanes)
        out: list[str] = []
        for how, d in self.parts:
            k = len(out)
            if not how.startswith("arg"):
                out.append(combine(em, how, d, lanes, a[k], b[k]))
                continue
            better = self._better(how, d, lanes, b[k], a[k])
            worse = self._better(how, d, lanes, a[k], b[k])
            earlier = em.op(f"icmp slt {vec('i64', lanes)} {b[k + 1]}, {a[k + 1]}")
            earlier = em.op(f"select {mask} {worse}, {mask} {splat('false', 'i1', lanes)}, {mask} {earlier}")
            wins = em.op(f"or {mask} {better}, {earlier}")
            out += self._choose(wins, d, lanes, (b[k], b[k + 1]), (a[k], a[k + 1]))
        return out

    def _better(self, how: str, d: dtype, lanes: int, new: str, old: str) -> str:
        """Whether `new` is strictly better, NaN being the best there is."""
        from .casts import cast
        from .lower import apply
        em, op = self.em, "gt" if how == "argmax" else "lt"
        if d.kind != "f":
            return apply(em, op, d, lanes, [new, old])
        from ...dtypes import float32, float64
        if d is not float64:
            new, old, d = cast(em, new, d, float32, lanes), cast(em, old, d, float32, lanes), float32
        t = ty(d, lanes)
        wins = em.op(f"fcmp u{op} {t} {new}, {old}")
        return em.op(f"and {vec('i1', lanes)} {wins}, {em.op(f'fcmp ord {t} {old}, {old}')}")

    def _choose(self, yes: str, d: dtype, lanes: int, a: tuple[str, str], b: tuple[str, str]) -> list[str]:
        t, mask, place = ty(d, lanes), vec("i1", lanes), vec("i64", lanes)
        return [self.em.op(f"select {mask} {yes}, {t} {a[0]}, {t} {b[0]}"),
                self.em.op(f"select {mask} {yes}, {place} {a[1]}, {place} {b[1]}")]

    def tree(self, parts: Sequence[Sequence[str]], lanes: int) -> list[str]:
        """Several partial results as one, pairwise."""
        parts = list(parts)
        while len(parts) > 1:
            parts = [self.join(parts[k], parts[k + 1], lanes) if k + 1 < len(parts) else parts[k]
                     for k in range(0, len(parts), 2)]
        return list(parts[0])

    def across(self, values: Sequence[str], lanes: int) -> list[str]:
        """The lanes as one: halves joined until one is left."""
        em = self.em
        while lanes > 1:
            half = lanes // 2
            low: list[str] = []
            high: list[str] = []
            for v, d in zip(values, self.dtypes, strict=True):
                t = ty(d, lanes)
                for out, first in ((low, 0), (high, half)):
                    if half == 1:
                        out.append(em.op(f"extractelement {t} {v}, i64 {first}"))
                    else:
                        picks = ", ".join(f"i32 {first + k}" for k in range(half))
                        out.append(em.op(f"shufflevector {t} {v}, {t} poison, <{half} x i32> <{picks}>"))
            values, lanes = self.join(low, high, half), half
        return list(values)

    def finish(self, values: Sequence[str], lanes: int) -> list[str]:
        """The accumulators as a program's posts see them."""
        out: list[str] = []
        for how, _ in self.parts:
            out.append(values[len(out)])
            if how.startswith("arg"):
                t, v = vec("i64", lanes), values[len(out)]
                nowhere = self.em.op(f"icmp eq {t} {v}, {splat(str(NOWHERE), 'i64', lanes)}")
                out.append(self.em.op(f"select {vec('i1', lanes)} {nowhere}, {t} {splat('0', 'i64', lanes)}, {t} {v}"))
        return out
