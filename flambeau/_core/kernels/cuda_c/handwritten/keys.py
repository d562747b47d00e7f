"""Elements as unsigned integers in the same order, in CUDA C: what the kernels that sort, select and search compare.

NaN is the greatest value and -0.0 equals 0.0, as in `drivers/cpu/row_order.py: keys` on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....dtypes import dtype
    from .templates import Written

_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000, "float64": 0x7FF0000000000000}

_FLOAT = """
__device__ __forceinline__ Key key_of(Key x) {
  const Key size = (Key)(x & $magnitude);
  Key k = x & $top ? (Key)~x : (Key)(x | $top);
  if (size == 0) k = $top;
  if (size > $infinity) k = $all;
  return $turn;
}"""
_INTEGER = """
__device__ __forceinline__ Key key_of(Key x) {
  const Key k = (Key)(x ^ $top);
  return $turn;
}"""


def add(w: Written, d: dtype, descending: bool = False) -> None:
    """Adds the type ``Key``, the size of an element, and ``key_of``, which takes an element's bits; `$all` is the greatest key.

    Raises NotImplementedError for complex types.
    """
    if d.kind == "c":
        raise NotImplementedError(f"keys of {d}")
    bits = 8 * d.itemsize
    suffix = "ULL" if bits == 64 else "U"

    def number(v: int) -> str:
        return f"(Key){v:#x}{suffix}"
    top = 1 << (bits - 1)
    w.constants(all=number((1 << bits) - 1), top=number(0 if d.kind in "bu" else top), magnitude=number(top - 1),
                infinity=number(_INFINITY.get(d.name, 0)), turn="(Key)~k" if descending else "k", nan=number(0 if descending else (1 << bits) - 1))
    w.add(f"typedef {_UNSIGNED[d.itemsize]} Key;")
    w.add(_FLOAT if d.kind == "f" else _INTEGER)


def bits(d: dtype) -> int:
    """How many of a key's bits differ between elements."""
    return 1 if d.kind == "b" else 8 * d.itemsize
