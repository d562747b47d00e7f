"""How the axes of a row formula lie in tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import layout
from ..tensor import Meta, meta

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..dtypes import dtype
    from ..runtime.device import device

    # for each axis of a tensor the axes of the formula it is made of, outermost first: (name, which of those by this name)
    Spread = tuple[tuple[tuple[str, int], ...], ...]
    Sizes = dict[str, tuple[int, ...]]


class Places:
    """How the formula's axes lie in tensors: their sizes, and the spreads of operands, results and saved values."""

    __slots__ = ("sizes", "leaves", "outs", "saves")

    def __init__(self, sizes: Sizes, leaves: tuple[Spread, ...], outs: tuple[Spread, ...], saves: tuple[Spread, ...] = ()) -> None:
        self.sizes, self.leaves, self.outs, self.saves = sizes, leaves, outs, saves

    def shape(self, spread: Spread, among: frozenset[str] | None = None) -> tuple[int, ...]:
        """The shape of a tensor; along axes that are not `among` these it has size 1."""
        return tuple(layout.numel([self.sizes[a][j] for a, j in slots if among is None or a in among]) for slots in spread)

    def seen(self, strides: Mapping[str, tuple[int, ...]], spread: Spread, d: dtype, dev: device) -> Meta | None:
        """The meta of `spread` with these strides along the formula's axes, 0 along others; None where they make no tensor of it."""
        steps = []
        for slots in spread:
            own = [(self.sizes[a][j], strides[a][j] if a in strides else 0) for a, j in slots]
            if any(far != n * near for (_, far), (n, near) in zip(own, own[1:], strict=False)):
                return None
            steps.append(own[-1][1] if own else 1)
        return meta(self.shape(spread), tuple(steps), d, dev)

    def strides(self, m: Meta, spread: Spread) -> dict[str, tuple[int, ...]]:
        """A tensor's strides along the formula's axes."""
        found: dict[str, list[int]] = {}
        for step, slots in zip(m.strides, spread, strict=True):
            for a, j in reversed(slots):
                found.setdefault(a, [0] * len(self.sizes[a]))[j] = step
                step *= self.sizes[a][j]
        return {a: tuple(s) for a, s in found.items()}

    def dense(self, letters: frozenset[str]) -> Spread:
        """A tensor of these axes, one after the other."""
        return tuple(((a, j),) for a in self.sizes if a in letters for j in range(len(self.sizes[a])))


def along(shape: Sequence[int], axes: tuple[int, ...], keepdim: bool = False) -> tuple[Sizes, Spread, Spread]:
    """For a tensor folded along `axes` ("c", the others are "r"): the sizes, its spread, and that of a value a row."""
    whole: list[Any] = []
    short: list[Any] = []
    kept = inner = 0
    for i in range(len(shape)):
        if i in axes:
            whole.append((("c", inner),))
            inner += 1
            if keepdim:
                short.append(())
        else:
            whole.append((("r", kept),))
            short.append((("r", kept),))
            kept += 1
    return {"r": tuple(n for i, n in enumerate(shape) if i not in axes), "c": tuple(n for i, n in enumerate(shape) if i in axes)}, tuple(whole), tuple(short)


def asked(dim: Any, m: Meta) -> Any:
    """A `dim` argument as plans are found by: an axis or None as they come, several as axes from the first."""
    return dim if dim.__class__ is int or dim is None else layout.wrap_dims(dim, len(m.shape))


def elements(metas: Sequence[Any], dim: Any) -> Places:
    """An operation "rc -> rc" along the axis or axes `dim`."""
    sizes, whole, _ = along(metas[0].shape, layout.wrap_dims(dim, len(metas[0].shape)))
    return Places(sizes, (whole,), (whole,))


def row_values(metas: Sequence[Any], dim: Any, keepdim: bool) -> Places:
    """A reduction "rc -> r" over `dim`."""
    sizes, whole, short = along(metas[0].shape, layout.wrap_dims(dim, len(metas[0].shape)), keepdim)
    return Places(sizes, (whole,), (short,))


def row_pairs(metas: Sequence[Any], dim: Any, keepdim: bool) -> Places:
    """A reduction "rc -> r, r" over `dim`: two results of one shape."""
    found = row_values(metas, dim, keepdim)
    return Places(found.sizes, found.leaves, found.outs * 2)
