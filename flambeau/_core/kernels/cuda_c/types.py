"""Element types as C types: what is stored, and what is computed with.

float16 and bfloat16 are stored as 16 bits and computed in float, rounded after every operation.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from ..c_forms import half

if TYPE_CHECKING:
    from ...dtypes import dtype

_INTEGER = {"int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
            "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long"}
_OTHER = {"bool": "bool", "float32": "float", "float64": "double"}


def stored(d: dtype) -> str:
    """The C type of an element in memory."""
    if d.kind == "b":
        return "unsigned char"  # any byte but 0 is true
    return "unsigned short" if half(d) else value(d)


def value(d: dtype) -> str:
    """The C type of a value in a register."""
    if half(d):
        return "float"
    name = _INTEGER.get(d.name) or _OTHER.get(d.name)
    if name is None:
        raise NotImplementedError(f"{d} in CUDA C")
    return name


def wide_unsigned(d: dtype) -> str:
    """An unsigned type that arithmetic of the integer type `d` wraps in, at least as wide as int."""
    return "unsigned long long" if d.itemsize == 8 else "unsigned int"


def literal(v: Any, d: dtype) -> str:
    """The number `v` of type `d`, exactly."""
    if d.kind == "b":
        return "true" if v else "false"
    if d.kind in "ui":
        n = int(v)
        if d.name == "int64":
            return "(-9223372036854775807LL - 1)" if n == -(1 << 63) else f"{n}LL"
        if d.name == "uint64":
            return f"{n}ULL"
        if d.name == "uint32":
            return f"{n}U"
        return f"({value(d)})({n}{'' if abs(n) < 1 << 31 else 'LL'})"
    x = float(v)
    if d.name == "float64":
        return _real(x, f"__longlong_as_double(0x{struct.pack('>d', x).hex()}LL)", "")
    if d.name == "bfloat16":
        x = _bfloat16(x)
    elif d.name == "float16":
        x = _float16(x)
    bits = _float32_bits(x)
    return _real(struct.unpack("<f", struct.pack("<I", bits))[0], f"__int_as_float(0x{bits:08x})", "f")


def _real(x: float, bits: str, suffix: str) -> str:
    if not math.isfinite(x):
        return bits
    text = repr(x) if x == int(x) and abs(x) < 1e15 else x.hex()
    return f"({text}{suffix})" if math.copysign(1.0, x) < 0 else text + suffix


def _float32_bits(x: float) -> int:
    if math.isfinite(x):
        try:
            return int(struct.unpack("<I", struct.pack("<f", x))[0])
        except OverflowError:
            x = math.copysign(math.inf, x)
    if math.isnan(x):
        return 0x7FC00000
    return 0x7F800000 if x > 0 else 0xFF800000


def _bfloat16(x: float) -> float:
    if math.isnan(x):
        return x
    bits = _float32_bits(x)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _float16(x: float) -> float:
    if not math.isfinite(x):
        return x
    try:
        return float(struct.unpack("<e", struct.pack("<e", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)
