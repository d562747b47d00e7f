"""Where the elements are that are not 0, found by their own device: the host waits for their count."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import int64
from ...engine import general
from ...kernels.specs import NonzeroCount, NonzeroWrite
from ...tensor import Meta, Tensor, alias, empty, meta, new
from .. import outputs, routines
from ..table import op

_TILE = 2048  # elements whose count a device's routine keeps


def nonzero_counts(t: Tensor) -> Tensor | None:
    """What "nonzero write" needs: how many elements are not 0, and how many before each of its blocks, in t's own memory; None where
    t's device has no routine for it."""
    plan = _counting(t.meta)
    if plan is None:
        return None
    counts = new(plan[0])
    routines.call(plan[1], (counts.ptr, t.ptr))
    return counts


@general.kept
def _counting(m: Meta) -> tuple[Meta, routines.Bound] | None:
    """The layout of a tensor's counts and the launch; None where there is none."""
    bound = routines.find(m.device, NonzeroCount(m.dtype, tuple(m.shape), m.strides)) if m.numel and m.shape else None
    return None if bound is None else (meta((1 + -(-m.numel // _TILE),), None, int64, m.device), bound)


def _count_of(counts: Tensor) -> int:
    """The first of these numbers, for which the host waits."""
    from ..reading import values
    return int(values(alias(counts, meta((), None, int64, counts.meta.device), counts.ptr), "nonzero"))


def nonzero_columns(t: Tensor) -> Tensor | None:
    """The coordinates (ndim, count) of the elements that are not 0, found by t's own device, of which only the count comes to the host;
    None where the host is to find them."""
    counts = nonzero_counts(t)
    if counts is None:
        return None
    n = _count_of(counts)
    return _coordinates(t, counts, n, meta((len(t.meta.shape), n), None, int64, t.meta.device))


def _coordinates(t: Tensor, counts: Tensor, n: int, layout: Meta) -> Tensor:
    """The coordinates of the n elements that are not 0, those along an axis together, in a new tensor."""
    found = new(layout)
    if n:
        routines.call(_placing(t.meta), (found.ptr, t.ptr, counts.ptr), (n, 1, n))
    return found


@general.kept
def _placing(m: Meta) -> routines.Bound:
    return routines.needed(m.device, NonzeroWrite(m.dtype, tuple(m.shape), m.strides))


def _nonzero_host(t: Tensor) -> tuple[Any, ...]:
    """NumPy's nonzero of the values, which come to the host."""
    from ..reading import values
    v = values(t.detach() if t.node is not None else t, "nonzero")
    return tuple(np.nonzero(v)) if t.meta.shape else tuple(np.nonzero(v.reshape(1)))[:0] or ()


@op(batch="reads")
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:  # noqa: A002
    """The positions of the elements that are not 0, (count, ndim) int64, or one vector an axis.  The host waits for the values.

    Raises RuntimeError for `out` beside `as_tuple`."""
    if as_tuple and out is not None:
        raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
    if not input.meta.shape:
        if as_tuple:
            return nonzero(input.unsqueeze(0), as_tuple=True)
        made = empty((int(bool(input.item())), 0), int64, input.meta.device)
    else:
        # PyTorch's layout: each axis's positions lie together
        counts = None if as_tuple else nonzero_counts(input)
        if counts is not None:
            n, axes = _count_of(counts), len(input.meta.shape)
            made = _coordinates(input, counts, n, meta((n, axes), (1, n) if n else None, int64, input.meta.device))
            return made if out is None else outputs.write("nonzero", out, made)
        columns = nonzero_columns(input)
        if columns is None:
            from ..creation import from_host
            columns = from_host(np.ascontiguousarray(np.stack(_nonzero_host(input)), np.int64), int64, input.meta.device)
        axes, n = columns.meta.shape
        if as_tuple:
            return tuple([columns[k] for k in range(axes)])
        made = alias(columns, meta((n, axes), (1, n), int64, input.meta.device), columns.ptr) if n else columns.reshape(0, axes)
    if out is not None:
        return outputs.write("nonzero", out, made)
    return made


@op(batch="reads")
def argwhere(input: Tensor) -> Tensor:  # noqa: A002
    """The positions of the elements that are not 0, one a row."""
    found: Tensor = nonzero(input)
    return found
