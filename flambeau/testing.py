"""Comparing tensors in tests (torch.testing)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._core.runtime.asking import unasked
from ._core.tensor import Tensor

# PyTorch's documented defaults, (rtol, atol) by type
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
               "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
                 equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: str | Callable[[str], str] | None = None) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Tensors, numbers, NumPy arrays, and sequences and mappings of them.  rtol and atol come together; by default they
    follow from the types.  NaN equals NaN only with equal_nan.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or unspecified, but got {rtol=} and {atol=}.")

    def fail(text: str) -> None:
        raise AssertionError(msg(text) if callable(msg) else text if msg is None else msg)

    def compare(a: Any, b: Any, where: str) -> None:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                fail(f"The keys of the mappings do not match:{where}\nMissing keys in the actual mapping: {sorted(b.keys() - a.keys())}\n"
                     f"Missing keys in the expected mapping: {sorted(a.keys() - b.keys())}")
            for k in a:
                compare(a[k], b[k], f"{where}[{k!r}]")
            return
        if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
            if len(a) != len(b):
                fail(f"The length of the sequences mismatch{where}: {len(a)} != {len(b)}")
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                compare(x, y, f"{where}[{i}]")
            return
        if a is None and b is None:
            return
        _pair(a, b, where, fail, rtol, atol, equal_nan, check_device, check_dtype, check_stride)

    compare(actual, expected, "")


def _pair(a: Any, b: Any, where: str, fail: Callable[[str], None], rtol: float | None, atol: float | None, equal_nan: bool,
          check_device: bool, check_dtype: bool, check_stride: bool) -> None:
    at = f" (item {where})" if where else ""
    numbers = not isinstance(a, (Tensor, np.ndarray)) and not isinstance(b, (Tensor, np.ndarray))
    if type(a) is not type(b) and not numbers and isinstance(a, Tensor) != isinstance(b, Tensor):
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}.")
    x, y = (v if isinstance(v, Tensor) else _tensor(v) for v in (a, b))
    if tuple(x.meta.shape) != tuple(y.meta.shape):
        fail(f"The values for attribute 'shape' do not match: {x.shape} != {y.shape}.{at}")
    if check_device and x.meta.device is not y.meta.device:
        fail(f"The values for attribute 'device' do not match: {x.device} != {y.device}.{at}")
    if check_dtype and not numbers and x.meta.dtype is not y.meta.dtype:
        fail(f"The values for attribute 'dtype' do not match: {x.dtype} != {y.dtype}.{at}")
    if check_stride and x.meta.strides != y.meta.strides:
        fail(f"The values for attribute 'stride()' do not match: {x.meta.strides} != {y.meta.strides}.{at}")
    found = [_TOLERANCES.get(t.meta.dtype.name, (0.0, 0.0)) for t in (x, y)]
    r = max(f[0] for f in found) if rtol is None else rtol
    t = max(f[1] for f in found) if atol is None else atol
    p, q = _host(x), _host(y)
    with np.errstate(all="ignore"):
        same = (p == q) | (np.isfinite(p) & np.isfinite(q) & (np.abs(p - q) <= t + r * np.abs(q)))
        if equal_nan:
            same |= np.isnan(p) & np.isnan(q)
    if same.all():
        return
    kind = "Scalars" if numbers else "Tensor-likes"
    with np.errstate(all="ignore"):
        gap = np.abs(p - q)
        ratio = gap / np.abs(q)
    if p.ndim == 0:
        fail(f"{kind} are not {'equal' if r == t == 0 else 'close'}!{at}\n\nExpected {q.item()} but got {p.item()}.\n"
             f"Absolute difference: {gap.item()} (up to {t} allowed)\nRelative difference: {ratio.item()} (up to {r} allowed)")
        return
    bad = int((~same).sum())
    worst, worst_ratio = (np.unravel_index(int(np.argmax(np.where(same, -1, np.nan_to_num(v, nan=math.inf)))), v.shape) for v in (gap, ratio))
    fail(f"{kind} are not {'equal' if r == t == 0 else 'close'}!{at}\n\nMismatched elements: {bad} / {p.size} ({100 * bad / p.size:.1f}%)\n"
         f"Greatest absolute difference: {gap[worst]} at index {tuple(map(int, worst))} (up to {t} allowed)\n"
         f"Greatest relative difference: {ratio[worst_ratio]} at index {tuple(map(int, worst_ratio))} (up to {r} allowed)")


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True,
                    msg: str = "") -> None:
    """The old name of `assert_close`, which compares values alone: type and device may differ, and NaN equals NaN."""
    if rtol is None and atol is None:
        r, t = _TOLERANCES.get(getattr(getattr(actual, "dtype", None), "name", "float32"), (0.0, 0.0))
        p, q = _TOLERANCES.get(getattr(getattr(expected, "dtype", None), "name", "float32"), (0.0, 0.0))
        rtol, atol = max(r, p), max(t, q)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False, check_stride=False, msg=msg or None)


def _tensor(v: Any) -> Tensor:
    from ._core import ops
    o: Any = ops
    made: Tensor = o.from_numpy(np.ascontiguousarray(v)) if isinstance(v, np.ndarray) else o.tensor(v)
    return made


def _host(t: Tensor) -> Any:
    wide = unasked(t.detach().cpu)()
    if wide.meta.dtype.kind == "c":
        return wide.to(wide.meta.dtype if wide.meta.dtype.name == "complex128" else _complex128()).resolve_conj().numpy()
    if wide.meta.dtype.kind == "f":
        return wide.double().numpy()
    return wide.numpy().astype(object if wide.meta.dtype.name == "uint64" else np.int64)


def _complex128() -> Any:
    from ._core.dtypes import complex128
    return complex128


def make_tensor(*shape: Any, dtype: Any, device: Any, low: float | None = None, high: float | None = None, requires_grad: bool = False,
                noncontiguous: bool = False, exclude_zero: bool = False, memory_format: Any = None) -> Tensor:
    """Random values of a shape: floats and complex from [-9, 9), integers likewise (unsigned from 0), bool."""
    from ._core import ops
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    o: Any = ops
    if dtype.kind == "b":
        made = o.randint(0, 2, sizes, device=device).to(dtype)
    elif dtype.kind in "ui":
        lowest, highest = int(low if low is not None else (0 if dtype.kind == "u" else -9)), int(high if high is not None else 10)
        made = o.randint(lowest, highest, sizes, device=device).to(dtype)
    else:
        lo, hi = (-9.0 if low is None else low), (9.0 if high is None else high)
        if dtype.is_complex:
            part = dtype.to_real()
            made = o.complex(o.rand(sizes, dtype=part, device=device) * (hi - lo) + lo, o.rand(sizes, dtype=part, device=device) * (hi - lo) + lo)
        else:
            made = (o.rand(sizes, device=device) * (hi - lo) + lo).to(dtype)
    if exclude_zero:
        made = o.where(made == 0, o.ones_like(made), made)
    if noncontiguous and made.meta.numel > 1:
        made = o.repeat_interleave(made, 2, dim=-1)[..., ::2]
    result: Tensor = made.requires_grad_() if requires_grad else made
    return result


__all__ = ["assert_allclose", "assert_close", "make_tensor"]
