"""Counting, checking and copying on the CPU: generated kernels, the C library, or NumPy where nothing is generated."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import bfloat16, float32, float64, int64
from ...kernels import expr as E
from ...kernels import routines, target
from ...kernels.interpret import load, memory, narrow_bfloat16, store, widen_bfloat16
from ...kernels.programs import PreparedLaunch, Reduce
from ...layout import contiguous_strides, numel

if TYPE_CHECKING:
    from ...kernels.specs import Blocks, Check, Chosen, Histogram, NonzeroCount, NonzeroFirst, NonzeroWrite, Occurrences, Sizes, Spread


def histogram(spec: Histogram) -> PreparedLaunch:
    """With the roundings of the elements' own type."""
    d, shape, strides, bins, own = spec
    nbytes = numel(shape) * d.itemsize
    if routines.generated():
        from ...kernels.llvm.handwritten.ordering import histogram as tables
        made, workspace = tables.histogram(d, shape, strides, bins, own)
        return PreparedLaunch("histc", made, outputs=2, workspace=workspace, nbytes=nbytes)

    def rounded(v: Any) -> Any:  # the numbers of the type itself decide, also where NumPy has no such type
        return widen_bfloat16(narrow_bfloat16(np.asarray(v, np.float32))) if d is bfloat16 else v

    def entry(out: int, told: int, source: int, low: float, high: float) -> None:
        x = load(memory(source, shape, strides, d), d).reshape(-1)
        told_of, least, greatest = memory(told, (), (), int64), x.dtype.type(low), x.dtype.type(high)
        if own and x.size:
            least, greatest = x.min(), x.max()
        told_of[...] = not (np.isfinite(least) and np.isfinite(greatest))
        if own and least == greatest:
            least, greatest = least - 1, greatest + 1
        x = x[(x >= least) & (x <= greatest)]
        at = np.minimum(rounded(rounded(rounded(x - least) * bins) / rounded(greatest - least)).astype(np.int64), bins - 1)
        store(memory(out, (bins,), (1,), d), np.bincount(at, minlength=bins), d)
    return PreparedLaunch("histc", entry, outputs=2, nbytes=nbytes)


def occurrences(spec: Occurrences) -> PreparedLaunch | None:
    """None for weights that are neither float32 nor float64."""
    n, bins, d, weights = spec
    d = d or int64
    if weights not in (None, float32, float64):
        return None
    nbytes = n * (d.itemsize + (weights.itemsize if weights else 0)) + 8 * bins
    if routines.generated():
        from ...kernels.llvm.handwritten.ordering.histogram import occurrences
        return PreparedLaunch("bincount", occurrences(n, bins, d, weights), nbytes=nbytes)

    def entry(counts: int, source: int, *given: int) -> None:
        each = memory(given[0], (n,), (1,), weights) if weights else 1
        np.add.at(memory(counts, (bins,), (1,), float64 if weights else int64), memory(source, (n,), (1,), d), each)
    return PreparedLaunch("bincount", entry, nbytes=nbytes)


def spread(spec: Spread) -> PreparedLaunch:
    n = spec.n
    if routines.generated():
        from ...kernels.llvm.handwritten.ordering import histogram as tables
        return PreparedLaunch("spread", tables.spread(n), nbytes=24 * n)

    def entry(out: int, places: int, values: int) -> None:
        memory(out, (n,), (1,), int64)[memory(places, (n,), (1,), int64)] = memory(values, (n,), (1,), int64)
    return PreparedLaunch("spread", entry, nbytes=24 * n)


def nonzero_count(spec: NonzeroCount) -> PreparedLaunch | None:
    """None for elements of 16 bytes, and where nothing is generated."""
    if not _compacted(spec):
        return None
    from ...kernels.llvm.handwritten.ordering import nonzero
    return PreparedLaunch("nonzero", nonzero.count(*spec), nbytes=numel(spec.shape) * spec.dtype.itemsize)


def nonzero_write(spec: NonzeroWrite) -> PreparedLaunch | None:
    """Where `nonzero_count` has one."""
    if not _compacted(spec):
        return None
    from ...kernels.llvm.handwritten.ordering import nonzero
    return PreparedLaunch("nonzero", nonzero.write(*spec), nbytes=numel(spec.shape) * spec.dtype.itemsize)


def chosen(spec: Chosen) -> PreparedLaunch | None:
    """None where nothing is generated."""
    if not routines.generated() or not 0 < spec.n < 1 << 31:
        return None
    from ...kernels.llvm.handwritten.ordering import nonzero
    return PreparedLaunch("index", nonzero.chosen(*spec), nbytes=spec.n * (1 + 2 * spec.nbytes))


def _compacted(spec: NonzeroCount | NonzeroWrite) -> bool:
    return routines.generated() and spec.dtype.itemsize <= 8 and 0 < numel(spec.shape) < 1 << 31


def edges(name: str, low: Any, high: Any, apart: float) -> tuple[Any, Any]:
    """The outer edges of a histogram, `apart` further out each where they coincide.  Raises RuntimeError where there are none."""
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"torch.{name}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"torch.{name}: max must be larger than min, got [{low}, {high}]")
    return (low - apart, high + apart) if low == high else (low, high)


_PLACE, _LOW, _HIGH, _SPARED = E.input(0, int64), E.scalar(0, int64), E.scalar(1, int64), E.scalar(2, int64)
_OUTSIDE = (_PLACE < _LOW) | (_PLACE >= _HIGH)


def _counting(wrong: E.Expr, numbers: int) -> Reduce:
    return Reduce((E.where(wrong, E.const(1, int64), E.const(0, int64)),), ("sum",), (E.acc(0, int64),), (int64,), (int64,) * numbers)


_BEYOND, _BEYOND_SPARED = _counting(_OUTSIDE, 2), _counting(_OUTSIDE & (_PLACE != _SPARED), 3)


def check(spec: Check) -> PreparedLaunch:
    """Raises at once; on a queue, when its turn comes."""
    shape, strides, low, high, spared = spec.shape, spec.strides, spec.low, spec.high, spec.spared
    counting = target.prepare(_BEYOND if spared is None else _BEYOND_SPARED, shape, ((), strides))
    numbers = (low, high) if spared is None else (low, high, spared)
    count, workspace = counting.entry, counting.workspace
    new, at = ctypes.c_longlong, ctypes.addressof

    def entry(source: int) -> None:
        found = new()
        if workspace:
            room = ctypes.create_string_buffer(workspace)
            count(at(found), source, at(room), *numbers)
        else:
            count(at(found), source, *numbers)
        if found.value:
            complain(source)

    def complain(source: int) -> None:
        v = memory(source, shape, strides, int64)
        if spared is None:
            least, greatest = int(v.min()), int(v.max())
            raise spec.error(spec.text.format(least if least < low else greatest, high=high))
        bad = v[(v != spared) & ((v < low) | (v >= high))]
        if bad.size:
            raise spec.error(spec.text.format(int(bad[0]), high=high))
    made = PreparedLaunch(spec.name, entry, outputs=0, nbytes=numel(shape) * 8, keep=counting)
    made.condition = counting, numbers
    return made


def blocks(spec: Blocks) -> PreparedLaunch | None:
    """By the C library's copies, one after the other."""
    entry = routines.blocks(spec.times, spec.sizes, spec.steps)
    return None if entry is None else PreparedLaunch("cat", entry, nbytes=2 * spec.times * sum(spec.sizes))


def nonzero_first(spec: NonzeroFirst) -> PreparedLaunch:
    """In the order of the elements."""
    d, shape, strides, size = spec.dtype, spec.shape, spec.strides, spec.size
    to: Sizes = (size, len(shape))

    def entry(out: int, source: int) -> None:
        found = np.argwhere(load(memory(source, shape, strides, d), d))[:size]
        target = memory(out, to, contiguous_strides(to), int64)
        target[:len(found)] = found
        target[len(found):] = spec.fill
    return PreparedLaunch("nonzero_static", entry, nbytes=numel(shape) * d.itemsize + numel(to) * 8)
