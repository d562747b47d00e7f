"""How tensors print: PyTorch's format, with its options."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..autograd import tape
from ..tensor import Tensor, alias, meta

_DEFAULTS: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_options = dict(_DEFAULTS)


def set_printoptions(precision: int | None = None, threshold: int | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Sets how tensors print.  profile: "default", "short" or "full" sets several at once."""
    if profile is not None:
        _options.update(_DEFAULTS)
        _options.update({"default": {}, "short": {"precision": 2, "edgeitems": 2}, "full": {"threshold": math.inf}}[profile])  # type: ignore[call-overload]
    for name, value in (("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems), ("linewidth", linewidth)):
        if value is not None:
            _options[name] = value
    _options["sci_mode"] = sci_mode


class _Formatter:
    """One width and one style for all the numbers shown."""

    def __init__(self, values: Any, d: dtypes.dtype) -> None:
        import numpy as np
        self.floating = d.kind in "f8"
        self.sci = self.ints = False
        self.width = 1
        flat = values.reshape(-1)
        if not self.floating:
            self.width = max([1, *(len(f"{v}") for v in flat.tolist())])
            return
        flat = flat.astype(np.float64)
        finite = flat[np.isfinite(flat) & (flat != 0)]
        if finite.size == 0:  # infinities and NaN never widen a column
            self.ints = True
            return
        size = np.abs(finite)
        low, high = float(size.min()), float(size.max())
        self.ints = bool((np.ceil(finite) == finite).all())
        precision = _options["precision"]
        if self.ints:
            self.sci = high / low > 1000.0 or high > 1.0e8
            texts = [f"{v:.{precision}e}" if self.sci else f"{v:.0f}" for v in finite.tolist()]
            self.width = max(1, *(len(t) + (0 if self.sci else 1) for t in texts))
            self.sci = self.sci if _options["sci_mode"] is None else _options["sci_mode"]
        else:
            self.sci = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
            self.sci = self.sci if _options["sci_mode"] is None else _options["sci_mode"]
            self.width = max(1, *(len(f"{v:.{precision}e}" if self.sci else f"{v:.{precision}f}") for v in finite.tolist()))
        if _options["sci_mode"] is not None and self.ints:
            self.width = max(1, *(len(f"{v:.{precision}e}" if self.sci else f"{v:.0f}.") for v in finite.tolist()))

    def one(self, v: Any) -> str:
        if self.floating:
            if self.sci:
                text = f"{{:{self.width}.{_options['precision']}e}}".format(v)
            elif self.ints:
                text = f"{v:.0f}" + ("." if math.isfinite(v) else "")
            else:
                text = f"{{:.{_options['precision']}f}}".format(v)
        else:
            text = f"{v}"
        return text.rjust(self.width)


def _complex_text(v: complex, re: _Formatter, im: _Formatter) -> str:
    real, imag = re.one(v.real), im.one(v.imag).lstrip()
    return f"{real}{imag}j" if imag[0] in "+-" else f"{real}+{imag}j"


def _rows(array: Any, indent: int, show: Any, width: int, cut: tuple[bool, ...]) -> str:
    """cut: for each axis, whether the array holds only the first and last items along it."""
    edge = _options["edgeitems"]
    if array.ndim == 0:
        return str(show(array.item()))
    if array.ndim == 1:
        per_line = max(1, int(math.floor((_options["linewidth"] - indent) / (width + 2))))
        if cut[0]:
            cells = [*map(show, array[:edge].tolist()), " ..." if edge else "...", *map(show, array[edge:].tolist())]
        else:
            cells = list(map(show, array.tolist()))
        lines = [", ".join(cells[i:i + per_line]) for i in range(0, len(cells), per_line)]
        return "[" + ("," + "\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [_rows(array[i], indent + 1, show, width, cut[1:]) for i in range(array.shape[0])]
    if cut[0]:
        parts[edge:edge] = ["..."]
    text: str = "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"
    return text


def _corners(t: Tensor, cut: tuple[bool, ...]) -> Any:
    """The corner values that a summary prints, which alone decide the format: nothing else is read, moved or copied."""
    from .reading import values
    edge = _options["edgeitems"]
    shape: list[int] = []
    strides: list[int] = []
    for n, step, is_cut in zip(t.meta.shape, t.meta.strides, cut, strict=True):
        # the first and the last items are two blocks of so many, the second one so far behind the first
        shape += (2, edge) if is_cut else (n,)
        strides += ((n - edge) * step, step) if is_cut else (step,)
    found = values(alias(t, meta(shape, tuple(strides), t.meta.dtype, t.meta.device), t.ptr), "print")
    shown: Any = found.reshape([2 * edge if is_cut else n for n, is_cut in zip(t.meta.shape, cut, strict=True)])
    return shown


def body(t: Tensor, indent: int) -> str:
    """The values between `tensor(` and the suffixes."""
    summarize = t.meta.numel > _options["threshold"]
    cut = tuple([summarize and n > 2 * _options["edgeitems"] for n in t.meta.shape])
    array = _corners(t, cut)
    d = t.meta.dtype
    if d.is_complex:
        re, im = _Formatter(array.real, d.to_real()), _Formatter(array.imag, d.to_real())
        return _rows(array, indent, lambda v: _complex_text(v, re, im), re.width + im.width + 1, cut)
    f = _Formatter(array, d)
    return _rows(array, indent, f.one, f.width, cut)


def show(t: Tensor) -> str:
    """The text of `repr(t)`."""
    cls = type(t).__name__
    prefix = "Parameter containing:\ntensor(" if cls == "Parameter" else "tensor(" if cls == "Tensor" else f"{cls}("
    indent = 7 if cls == "Parameter" else len(prefix)
    suffixes = []
    m = t.meta
    if m.device.type != "cpu":
        suffixes.append(f"device='{m.device}'")
        if m.device.type == "meta" and m.numel:
            suffixes.append(f"size={tuple(m.shape)}")
    default = m.dtype in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_, dtypes.default_complex())
    if m.numel == 0:
        if len(m.shape) != 1:
            suffixes.append(f"size={tuple(m.shape)}")
        if m.dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={m.dtype}")
        text = "[]"
    else:
        bare = m.device.type == "meta"
        if not default or bare and m.dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={m.dtype}")
        text = "..." if bare else body(t, indent)
    if t.node is not None:
        suffixes.append("requires_grad=True" if t.node[tape.SEQ] == 0 else f"grad_fn=<{tape.name_of(t.node)}>")
    elif t.requires_grad:  # a view made while nothing was recorded
        suffixes.append("requires_grad=True")
    out = prefix + text
    last = len(out) - out.rfind("\n") + 1
    for s in suffixes:
        if last + len(s) + 2 > _options["linewidth"]:
            out += ",\n" + " " * indent + s
            last = indent + len(s)
        else:
            out += ", " + s
            last += len(s) + 2
    return out + ")"
