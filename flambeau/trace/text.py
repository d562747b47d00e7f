"""How a trace writes numbers: bytes, times, values, shapes, places."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .stages import Described, Stage
    from .values import Sample

_GLYPHS = {"->": "→", "us": "\N{NO-BREAK SPACE}µs", "...": "…", "x": " ×"}
_PLAIN = re.compile(r"->|(?<=\d) us\b|\.\.\.|(?<=[)r]) x(?=\d)")
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128",
         "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool"}


def size(nbytes: int) -> str:
    """Bytes for people: 36 B, 1.5 KiB, 3.2 GiB."""
    if nbytes < 1024:
        return f"{nbytes} B"
    amount = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1024 or unit == "TiB":
            break
    return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"


def seconds(value: float | None, predicted: bool = False) -> str:
    """A time for people; "~" stands before a prediction."""
    if value is None:
        return "not timed"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 0.9995 or unit == "us":
            break
    amount = value * factor
    number = f"{amount:.0f}" if amount >= 99.95 else f"{amount:.3g}"
    return ("~" if predicted else "") + f"{number} {unit}"


def glyphs(value: str) -> str:
    """The same text with arrows, micro and ellipsis signs, for where Unicode can be shown."""
    return _PLAIN.sub(lambda m: _GLYPHS[m.group(0).strip()], value)


def shape(dims: tuple[int, ...]) -> str:
    """A shape as Python writes it; a zero-dim tensor is a scalar."""
    return "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")" if dims else "scalar"


def shapes(those: list[Described]) -> str:
    """Several shapes; repeated ones are counted."""
    found: list[list[Any]] = []
    for dims, _, _ in those:
        if found and found[-1][0] == dims:
            found[-1][1] += 1
        else:
            found.append([dims, 1])
    return ", ".join(shape(dims) + (f" x{n}" if n > 1 else "") for dims, n in found)


def number(value: Any, digits: int = 4) -> str:
    """One value, in so many significant digits; whole numbers in full."""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, complex):
        sign = "-" if math.copysign(1, value.imag) < 0 else "+"
        return f"{number(value.real, digits)}{sign}{number(abs(value.imag), digits)}i"
    if isinstance(value, float):
        if value != value or value in (math.inf, -math.inf):
            return str(value)
        return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.{digits}g}"
    return str(value)


def matrix(sample: Sample, most: int = 5, width: int = 40) -> list[str] | None:
    """The lines of a small matrix or vector, columns in line; None for what does not fit into `most` rows and columns
    and `width` characters."""
    dims = sample.shape
    if not sample.whole or not 1 <= len(dims) <= 2 or not all(1 <= d <= most for d in dims) or sample.values is None:
        return None
    rows = [[number(v, 3) for v in row] for row in (sample.nested() if len(dims) == 2 else [sample.nested()])]
    column = max(len(v) for row in rows for v in row)
    if (column + 2) * len(rows[0]) + 2 > width:
        return None
    lines = ["[" + ", ".join(v.rjust(column) for v in row) + "]" for row in rows]
    return lines if len(dims) == 1 else [("[" if i == 0 else " ") + line + ("]" if i == len(lines) - 1 else ",")
                                         for i, line in enumerate(lines)]


def values(sample: Sample, most: int = 4) -> str:
    """The first values on one line."""
    found = sample.values
    if found is None:
        return "lost: its work failed"
    if not sample.shape:
        return number(found[0])
    if not found:
        return "empty"
    return ", ".join(number(v) for v in found[:most]) + (", ..." if math.prod(sample.shape) > most else "")


def types(stage: Stage, short: bool = False) -> str:
    """The type of the outputs, and that of the first input where they differ."""
    outs = list(dict.fromkeys(d for _, d, _ in stage.outputs or stage.inputs[:1]))
    ins = list(dict.fromkeys(d for _, d, _ in stage.inputs[:1]))
    text = ", ".join(SHORT.get(d, d) if short else d for d in outs)
    if ins and outs and ins != outs:
        return f"{SHORT.get(ins[0], ins[0]) if short else ins[0]} -> {text}"
    return text


def place(line: str | None) -> str:
    """`file:line` relative to the current folder, or the file's name where it lies elsewhere."""
    if not line:
        return ""
    path, _, number_ = line.rpartition(":")
    try:
        near = os.path.relpath(path)
    except (ValueError, OSError):  # another drive, or a current folder that is gone
        near = ".."
    shown = os.path.basename(path) if near.startswith("..") else near
    return f"{encodable(shown)}:{number_}"


def encodable(value: str) -> str:
    """The same text without what UTF-8 cannot hold: a file's name may have bytes that are no text, which Python keeps as lone surrogates."""
    return value.encode("utf-8", "replace").decode("utf-8")


def sentence(devices: dict[str, str], used: set[str], predicted: bool, measured: bool) -> str:
    """Which times are predictions and which are measured."""
    gpus = sorted({name.removesuffix(", simulated") for key, name in devices.items() if key in used and name.endswith(", simulated")})
    parts = []
    if predicted:
        parts.append(f"Times with ~ are predicted for {' and '.join(gpus) or 'the simulated GPU'}: no such GPU was used")
    if measured:
        parts.append("the others are measured on this machine's CPU" if predicted else "Times are measured on this machine's CPU")
    return "; ".join(parts) + "." if parts else ""
