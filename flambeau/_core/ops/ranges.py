"""Ranges of numbers, with even or geometric steps, and the identity matrix, made on their device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes, hooks
from .. import layout as layout_of
from ..dtypes import dtype as dtype_class
from ..engine.fields import has
from ..errors import warn
from ..kernels import expr as E
from ..kernels.programs import Map
from ..runtime.device import device as device_class
from ..tensor import Tensor, alias, meta
from ..unknowns import Unknown, index
from . import checks, launch
from .creation import _finish, _make, _options, counts, tensor
from .table import op


def _number(name: str, key: str, place: int, x: Any) -> Any:
    """A number, also as a tensor of one element.  Raises TypeError for anything else, which Python would compare with numbers or read as one."""
    x = x.item() if isinstance(x, (Tensor, np.generic)) else x
    if not isinstance(x, (int, float, complex, Unknown)) and (isinstance(x, (str, bytes)) or not (hasattr(x, "__index__") or hasattr(x, "__float__"))):
        raise TypeError(f"{name}(): argument '{key}' (position {place}) must be Number, not {type(x).__name__}")
    return x


def _whole(x: Any) -> bool:
    return isinstance(x, (int, Unknown))


def _held(d: dtype_class, *numbers: Any) -> Any:
    """Numbers as elements of type d, integers below 0 counted back from the end for an unsigned one.  Raises RuntimeError for one that it does
    not hold."""
    return tuple(dtypes.number(x, d, True) % (1 << 8 * d.itemsize) if d.kind == "u" else dtypes.number(x, d, True) for x in numbers)


def _laid_out(out: Tensor, vector: Tensor) -> Tensor:
    """`out` with the elements of a vector: in the shape that it has where that has as many, whatever its layout."""
    from .copies import copy_into, resize
    if out.meta.numel != vector.meta.numel:
        resize(out, tuple(vector.meta.shape))
    checks.may_write(out)
    copy_into(out, vector.reshape(tuple(out.meta.shape)))
    return out


def ramp(count: int, d: dtype_class, dev: device_class, formula: Any, out: Tensor | None, numbers: tuple[Any, ...] = (),
         compute: dtype_class | None = None) -> Tensor:
    """A vector whose element i is `formula(i, *numbers)`."""
    if out is not None and out.meta.dtype is d and not (out.meta.contiguous and out.meta.shape == (count,)):
        return _laid_out(out, ramp(count, d, out.meta.device, formula, None, numbers, compute))
    t = _make((count,), None, d, dev, out, False)
    compute = compute or d
    scalars = tuple(E.scalar(i, compute) for i in range(len(numbers)))
    e = E.cast(formula(E.coord(-1), *scalars), d)
    if count:
        convert: Any = float if compute.kind == "f" else int
        numbers = tuple([v if isinstance(v, Unknown) else convert(v) for v in numbers])
        launch.run(Map((e,), (), (compute,) * len(numbers)), (count,), [t], [], numbers=numbers, name="range")
    return t


def _limits(name: str, start: Any, end: Any, step: Any) -> tuple[Any, Any, Any]:
    """Where a range begins and ends, and its step, as numbers.  Raises RuntimeError where the step never leads there, TypeError for what is no number."""
    if end is None:
        start, end = 0, _number(name, "end", 1, start)
    start, end, step = _number(name, "start", 1, start), _number(name, "end", 2, end), _number(name, "step", 3, step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not all(_whole(v) or math.isfinite(v) for v in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return start, end, step


@op(method=False)
def arange(start: Any = 0, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
           device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """start, start + step, ... below end (above, for a negative step).  Integers unless a bound or the step is a float."""
    start, end, step = _limits("arange", start, end, step)
    if dtype is None:
        dtype = out.meta.dtype if out is not None else (dtypes.int64 if all(map(_whole, (start, end, step)))
                                                     else dtypes.get_default_dtype())
    if dtype is dtypes.int64:
        start, end, step = _held(dtype, start, end, step)
        if step == 0:
            raise RuntimeError("step must be nonzero")
    whole = all(map(_whole, (start, end, step)))
    count = (end - start + step - (1 if step > 0 else -1)) // step if whole else math.ceil((end - start) / step)
    d, dev = _options(dtype, device)
    counts("arange", d, True)
    if d.kind in "buic" or whole and d.kind != "f":
        wide = dtypes.int64 if whole or d.kind in "bui" else dtypes.float64
    else:
        wide = dtypes.float64
    if d.kind in "bui" and not whole:
        start, step = _held(dtypes.int64, start, step)
    if out is not None and out.meta.numel not in (0, count):
        warn(f"The number of elements in the out tensor of shape {list(out.meta.shape)} is {out.meta.numel} which does not match the computed number of "
             f"elements {count}. Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of shape ({count},).")
    return _finish(ramp(layout_of.whole(count), d, dev, lambda i, a, s: a + E.cast(i, a.dtype) * s, out, (start, step), wide), requires_grad, pin_memory)


@op(method=False, name="range")
def range_(start: Any = 0, end: Any = None, step: Any = 1, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
           device: Any = None, requires_grad: bool = False) -> Tensor:
    """Like `arange`, with `end` included (deprecated, and warned of)."""
    warn("torch.range is deprecated: Python's range does not include its end, this does. Use torch.arange.")
    start, end, step = _limits("range", start, end, step)
    d, dev = _options(dtype or (out.meta.dtype if out is not None else None), device)
    if d.kind in "bui":
        _held(dtypes.int64, start, end, step)
    count = int(math.floor((end - start) / step)) + 1
    counts("range", d, True)
    return _finish(ramp(count, d, dev, lambda i, a, s: a + E.cast(i, a.dtype) * s, out, (start, step), dtypes.float64),
                   requires_grad)


def _spaced(a: E.Expr, s: E.Expr, b: E.Expr, half: E.Expr, i: E.Expr, last: E.Expr) -> E.Expr:
    """Counted from the nearer end, so that both ends are exact."""
    return E.where(i < half, a + i * s, b - (last - i) * s)


def _rounded(x: float, d: dtype_class) -> float:
    """A number as type d has it."""
    value: float = tensor(x, dtype=d).item()
    return value


def _steps(name: str, steps: Any) -> int:
    """A whole number of steps.  Raises TypeError for anything else."""
    if not hasattr(steps, "__index__"):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    return index(steps)  # type: ignore[no-any-return]


def _complex_if_needed(name: str, d: Any, start: Any, end: Any) -> Any:
    """The type of numbers between two: a complex one where one of them is complex.  Raises RuntimeError for a real type that was asked for."""
    if not isinstance(start, complex) and not isinstance(end, complex):
        return d
    found = dtypes.default_complex()
    if d is not None and not dtypes.settled(d).is_complex:
        raise RuntimeError(f"torch.{name}(): inferred dtype {dtypes.title(found)} can't be safely cast to passed dtype {dtypes.title(dtypes.settled(d))}")
    return d or found


@op(method=False, out_type="any")
def linspace(start: Any, end: Any, steps: int, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """`steps` evenly spaced numbers from start to end, both included."""
    steps = _steps("linspace", steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = _number("linspace", "start", 1, start), _number("linspace", "end", 2, end)
    dtype = _complex_if_needed("linspace", dtype, start, end)
    d, dev = _options(dtype or (out.meta.dtype if out is not None else None), device)
    counts("linspace", d)
    if d.is_complex:
        re = linspace(complex(start).real, complex(end).real, steps, dtype=d.to_real(), device=dev)
        im = linspace(complex(start).imag, complex(end).imag, steps, dtype=d.to_real(), device=dev)
        made: Tensor = hooks.complex_(re, im)
        return _finish(made if out is None else _laid_out(out, made), requires_grad, pin_memory)
    if d.kind == "b":
        start, end = int(start), int(end)
    elif steps:  # of one step the end is not read
        start, end = _held(d, start, end if steps > 1 else start)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    if d.kind == "f" and d.itemsize == 2:
        start, end = _rounded(start, d), _rounded(end, d)
        step = _rounded(_rounded(end - start, d) / (steps - 1), d) if steps > 1 else 0.0

        def near(i: E.Expr, a: E.Expr, b: E.Expr, s: E.Expr, half: E.Expr, last: E.Expr) -> E.Expr:
            i = E.cast(i, a.dtype)
            return E.where(i < half, a + E.cast(E.cast(i * s, d), a.dtype), b - E.cast(E.cast((last - i) * s, d), a.dtype))
        return _finish(ramp(steps, d, dev, near, out, (start, end, step, steps // 2 or steps, steps - 1), dtypes.float32), requires_grad, pin_memory)
    return _finish(ramp(steps, d, dev, lambda i, a, b, s, half, last: _spaced(a, s, b, half, E.cast(i, a.dtype), last), out,
                        (start, end, step, (steps + 1) // 2, steps - 1), dtypes.float64), requires_grad, pin_memory)


@op(method=False, out_type="any")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False) -> Tensor:
    """base to the power of `linspace(start, end, steps)`."""
    steps = _steps("logspace", steps)
    start, end = _number("logspace", "start", 1, start), _number("logspace", "end", 2, end)
    dtype = _complex_if_needed("logspace", dtype or (out.meta.dtype if out is not None else None), start, end)
    d, dev = _options(dtype, out.meta.device if out is not None and device is None else device)
    counts("logspace", d)
    if d.kind == "b":
        start, end = int(start), int(end)
    elif steps:
        start, end = _held(d, start, end if steps > 1 else start)
    if d.kind == "f" and d.itemsize == 2 and steps > 1:
        start, end = _rounded(start, d), _rounded(end, d)
    exponents = linspace(start, end, steps, dtype=dtypes.complex128 if d.is_complex else dtypes.float64, device=dev)
    result = (base ** exponents).to(d)
    return _finish(result if out is None else _laid_out(out, result), requires_grad)


@op(method=False)
def eye(n: int, m: int | None = None, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """The n by m identity matrix (m is n by default)."""
    m = n if m is None else m
    for name, v in (("n", n), ("m", m)):
        if v < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {v}")
    d, dev = _options(dtype or (out.meta.dtype if out is not None else None), device)
    t = _make((n, m), 0, d, dev, out, False)
    if n * m:
        one = alias(t, meta((min(n, m),), (sum(t.meta.strides),), d, dev), t.ptr)
        launch.fill(one, 1)
    return _finish(t, requires_grad)

has("linspace logspace", sparse="composite")
