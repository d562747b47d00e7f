"""Making arrays, and their types: the standard's creation and data type functions."""

from __future__ import annotations

import math
from typing import Any

from ..._core import dtypes, ops
from ..._core.dtypes import dtype as _dtype
from ..._core.tensor import Tensor
from .promotion import promote

NAMES = """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like astype
 can_cast finfo iinfo isdtype result_type""".split()


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if hasattr(shape, "__index__") else tuple(shape)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from start (0 when stop is None) up to stop, in steps; empty when stop lies the other way."""
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = dtypes.int64 if all(isinstance(v, int) for v in (start, stop, step)) else dtypes.get_default_dtype()
    if (step > 0 and stop <= start) or (step < 0 and stop >= start):
        return empty((0,), dtype=dtype, device=device)
    return ops.arange(start, stop, step, dtype=dtype, device=device)  # type: ignore[no-any-return]


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array from numbers, nested sequences, buffers or arrays; copy=False raises ValueError where one is needed."""
    if copy is False and not hasattr(obj, "__array_interface__") and not isinstance(obj, Tensor):
        raise ValueError(f"asarray: copy=False, but a {type(obj).__name__} cannot be shared")
    return ops.asarray(obj, dtype=dtype, device=device, copy=copy)  # type: ignore[no-any-return]


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of undefined values."""
    return ops.empty(_shape(shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of undefined values, as x otherwise."""
    return ops.empty_like(x, dtype=dtype, device=device)  # type: ignore[no-any-return]


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    made: Tensor = ops.zeros((n_rows, n_cols), dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        ops.diagonal(made, k).fill_(1)
    return made


def from_dlpack(x: object, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array on the memory of another library's."""
    return ops.from_dlpack(x, device=device, copy=copy)  # type: ignore[no-any-return]


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one value."""
    return ops.full(_shape(shape), fill_value, dtype=dtype, device=device)  # type: ignore[no-any-return]


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one value, as x otherwise."""
    return ops.full_like(x, fill_value, dtype=dtype, device=device)  # type: ignore[no-any-return]


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Tensor:
    """`num` evenly spaced numbers from start to stop, without stop where endpoint is False."""
    if dtype is None and (isinstance(start, complex) or isinstance(stop, complex)):
        dtype = dtypes.default_complex()
    if not endpoint:
        return ops.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]  # type: ignore[no-any-return]
    return ops.linspace(start, stop, num, dtype=dtype, device=device)  # type: ignore[no-any-return]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate matrices from vectors."""
    return list(ops.meshgrid(*arrays, indexing=indexing)) if len(arrays) > 1 else list(arrays)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return ops.ones(_shape(shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones, as x otherwise."""
    return ops.ones_like(x, dtype=dtype, device=device)  # type: ignore[no-any-return]


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of the last two axes."""
    return ops.tril(x, k)  # type: ignore[no-any-return]


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of the last two axes."""
    return ops.triu(x, k)  # type: ignore[no-any-return]


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return ops.zeros(_shape(shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros, as x otherwise."""
    return ops.zeros_like(x, dtype=dtype, device=device)  # type: ignore[no-any-return]


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x in another type; x itself when nothing changes and copy is False."""
    return x.to(device=x.meta.device if device is None else device, dtype=dtype, copy=copy)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion leads from one type (or an array's) to another."""
    d = from_.meta.dtype if isinstance(from_, Tensor) else from_
    try:
        return promote(d, to) is to
    except RuntimeError:
        return False


class finfo:  # noqa: N801 (the standard's name)
    """Limits of a floating type (or of an array's); of a complex one, those of its parts."""

    def __init__(self, type: Any, /) -> None:  # noqa: A002
        d = type.meta.dtype if isinstance(type, Tensor) else type
        found = dtypes.finfo(d.to_real())
        self.bits: int = found.bits
        self.eps, self.max, self.min = float(found.eps), float(found.max), float(found.min)
        self.smallest_normal, self.dtype = float(found.tiny), d.to_real()


class iinfo:  # noqa: N801
    """Limits of an integer type (or of an array's)."""

    def __init__(self, type: Any, /) -> None:  # noqa: A002
        d = type.meta.dtype if isinstance(type, Tensor) else type
        found = dtypes.iinfo(d)
        self.bits: int = found.bits
        self.max, self.min, self.dtype = int(found.max), int(found.min), d


KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f", "complex floating": "c",
         "numeric": "iufc"}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of a kind: a type, a name such as "real floating", or a tuple of these.  Raises ValueError for another name."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype: kind {kind!r} is unknown: {', '.join(map(repr, KINDS))}")
        return dtype.kind in KINDS[kind]
    return dtype is kind


def result_type(*arrays_and_dtypes: Any) -> _dtype:
    """The type that operands of these types are promoted to.  Raises TypeError for none, or for Python numbers alone."""
    found = [x.meta.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes]
    types = [d for d in found if isinstance(d, _dtype)]
    if not types:
        raise TypeError("result_type: at least one array or dtype is needed")
    common = types[0]
    for d in types[1:]:
        common = promote(common, d)
    for x in found:
        if isinstance(x, _dtype):
            continue
        kind = dtypes.of_scalar(x).kind
        if kind == "c" and not common.is_complex:
            common = common.to_complex() if common.kind == "f" else dtypes.default_complex()
        elif kind == "f" and common.kind in "bui":
            common = dtypes.get_default_dtype()
        elif kind == "i" and common.kind == "b":
            common = dtypes.int64
    return common


pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
