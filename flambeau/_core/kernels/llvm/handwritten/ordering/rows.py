"""Rows of tensors for handwritten kernels: where each begins in each operand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..code import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...emit import Module
    from ..code import Value

    Sizes = tuple[int, ...]


def merged(sizes: Sizes, steps: Sequence[Sizes]) -> tuple[Sizes, list[Sizes]]:
    """The same elements in the same order over as few axes as there can be."""
    kept: list[int] = []
    walks: list[list[int]] = [[] for _ in steps]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        if kept and all(w[-1] == s[axis] * size for w, s in zip(walks, steps, strict=True)):
            kept[-1] *= size
            for w, s in zip(walks, steps, strict=True):
                w[-1] = s[axis]
        else:
            kept.append(size)
            for w, s in zip(walks, steps, strict=True):
                w.append(s[axis])
    return tuple(kept), [tuple(w) for w in walks]


def numbers(sizes: Sizes, steps: Sequence[Sizes]) -> list[int]:
    """The words that @row<operands> reads: how many axes, then from the last axis on its size and each operand's step along it, in bytes."""
    sizes, steps = merged(sizes, steps)
    words = [len(sizes)]
    for axis in reversed(range(len(sizes))):
        words += [sizes[axis], *[s[axis] for s in steps]]
    return words


def write(module: Module, operands: int) -> None:
    """Adds @row<operands>(row, words, to): each operand's bytes from its first row to this one; words: those of `numbers`."""
    c = Code(module, "internal void", f"row{operands}", "i64", "ptr", "ptr")
    row, words, to = c.given
    each = 8 * (1 + operands)
    with c.span(0, words.load("i64"), row, words + 8, *[c.ints(0)] * operands) as axis:
        left, at, *offsets = axis.vars
        size = at.load("i64")
        whole = left.over(size)
        place = left - whole * size
        axis.next = [whole, at + each, *[o + place * (at + 8 * (k + 1)).load("i64") for k, o in enumerate(offsets)]]
    for k, o in enumerate(axis.vars[2:]):
        (to + 8 * k).store(o)
    c.back()
    c.finish()


def offsets(c: Code, row: Value, words: Value, to: Value, operands: int) -> list[Value]:
    """Each operand's bytes from its first row to this one; to: an array of so many words."""
    c.function("void", f"row{operands}", row, words, to)
    return [(to + 8 * k).load("i64") for k in range(operands)]
