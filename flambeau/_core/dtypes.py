"""Element types and how they combine.

One row of `_ROWS` is one type.  Promotion follows PyTorch's lattice
(https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc): a result takes the highest *kind*
among dimensioned tensors, zero-dim tensors and Python numbers, in that order of precedence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .unknowns import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable


class dtype:
    """One element type.  Instances are the module's constants; two are equal only when they are the same object.

    Attributes: `name` ("float32"), `itemsize` in bytes, `kind` ("b", "u", "i", "f" or "c"), `np` (the NumPy type that
    stores it: bfloat16 is stored as uint16, complex32 as uint32), `opmath` (the type arithmetic is done in), `rank` (size order in a kind).
    """

    __slots__ = ("name", "itemsize", "kind", "np", "rank", "opmath", "is_floating_point", "is_complex", "is_signed",
                 "_order")
    name: str
    itemsize: int
    kind: str
    np: np.dtype[Any]
    rank: int
    opmath: dtype
    is_floating_point: bool
    is_complex: bool
    is_signed: bool

    def __init__(self, name: str, itemsize: int, kind: str, numpy_name: str, rank: int, order: int) -> None:
        self.name = name
        self.itemsize = itemsize
        self.kind = kind
        self.np = np.dtype(numpy_name)
        self.rank = rank
        self.opmath = self
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_signed = kind in "ifc"
        self._order = order

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _by_name, (self.name,)

    def to_complex(self) -> dtype:
        """The complex type whose parts have this type (a complex type gives itself)."""
        return self if self.is_complex else _TO_COMPLEX.get(self, complex64)

    def to_real(self) -> dtype:
        """The type of the real part (a real type gives itself)."""
        return _TO_REAL.get(self, self)


def _by_name(name: str) -> dtype:
    return BY_NAME[name]


# name, bytes, kind, NumPy storage, rank in its kind
_ROWS = (
    ("bool", 1, "b", "bool", 0),
    ("uint8", 1, "u", "uint8", 0), ("uint16", 2, "u", "uint16", 1),
    ("uint32", 4, "u", "uint32", 2), ("uint64", 8, "u", "uint64", 3),
    ("int8", 1, "i", "int8", 0), ("int16", 2, "i", "int16", 1), ("int32", 4, "i", "int32", 2), ("int64", 8, "i", "int64", 3),
    ("float16", 2, "f", "float16", 0), ("bfloat16", 2, "f", "uint16", 0),
    ("float32", 4, "f", "float32", 1), ("float64", 8, "f", "float64", 2),
    ("complex32", 4, "c", "uint32", 0), ("complex64", 8, "c", "complex64", 1), ("complex128", 16, "c", "complex128", 2),
)
BY_NAME: dict[str, dtype] = {row[0]: dtype(*row, order) for order, row in enumerate(_ROWS)}
ALL: tuple[dtype, ...] = tuple(BY_NAME.values())  # those that operations compute with
(bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
 float16, bfloat16, float32, float64, complex32, complex64, complex128) = ALL
float16.opmath = bfloat16.opmath = float32
# Types of 8 bits that numbers are kept and carried in, and of which only `abs` and `isnan` are computed: `kernels/small_floats.py` converts them.
# Name, bits of the exponent, of the mantissa, the exponent's bias, the largest code that is a number.
_SMALL = (("float8_e4m3fn", 4, 3, 7, 0x7E), ("float8_e5m2", 5, 2, 15, 0x7B), ("float8_e4m3fnuz", 4, 3, 8, 0x7F), ("float8_e5m2fnuz", 5, 2, 16, 0x7F),
          ("float8_e8m0fnu", 8, 0, 127, 0xFE))
for _order, (_name, *_) in enumerate(_SMALL, len(_ROWS)):
    BY_NAME[_name] = dtype(_name, 1, "8", "uint8", 0, _order)
    BY_NAME[_name].is_floating_point = True
    BY_NAME[_name].is_signed = _name != "float8_e8m0fnu"
SMALL: dict[dtype, tuple[int, int, int, int]] = {BY_NAME[row[0]]: row[1:] for row in _SMALL}
for _small in SMALL:
    _small.opmath = float32
complex32.opmath = complex64
BITS = frozenset((bfloat16, complex32, *SMALL))  # stored as bits, since NumPy has no such type; as values they are of their `opmath`
_TO_COMPLEX = {float16: complex32, float64: complex128}
_TO_REAL = {complex32: float16, complex64: float32, complex128: float64}
NUMPY_TO_DTYPE: dict[np.dtype[Any], dtype] = {d.np: d for d in ALL if d not in BITS}
ALIASES = {"half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64,
           "chalf": complex32, "cfloat": complex64, "cdouble": complex128}

_KIND_LEVEL = {"b": 0, "u": 1, "i": 1, "f": 2, "8": 2, "c": 3}


def from_numpy(np_dtype: Any) -> dtype:
    """The type that stores a NumPy type.  Raises TypeError for one that has no counterpart (str, object, ...)."""
    try:
        return NUMPY_TO_DTYPE[np.dtype(np_dtype).newbyteorder("=")]
    except KeyError:
        if getattr(np_dtype, "name", None) == "bfloat16":
            return bfloat16
        raise TypeError(
            f"can't convert np.ndarray of type {np_dtype}. The only supported types are: float64, float32, float16, "
            "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.") from None


_pairs: dict[tuple[dtype, dtype], dtype] = {}


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type that both types convert to, as PyTorch has it (float16 with bfloat16 gives float32)."""
    if type1 is type2 and type1.__class__ is dtype:
        return type1
    found = _pairs.get((type1, type2))
    if found is None:
        found = _pairs[type1, type2] = _promote(settled(type1), settled(type2))
    return found


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if a in SMALL or b in SMALL:
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {title(a)} and {title(b)}")
    level_a, level_b = _KIND_LEVEL[a.kind], _KIND_LEVEL[b.kind]
    if level_a < level_b:
        a, b, level_a, level_b = b, a, level_b, level_a
    if level_a == 3:
        real = promote_types(a.to_real(), b.to_real() if b.is_complex or b.is_floating_point else a.to_real())
        return real.to_complex()
    if level_a != level_b:
        return a
    if level_a == 2:
        return (a if a.rank > b.rank else b) if a.rank != b.rank else float32
    if a.kind == b.kind:
        return a if a.rank > b.rank else b
    unsigned, signed = (a, b) if a.kind == "u" else (b, a)
    if unsigned.rank < signed.rank:
        return signed
    if unsigned is not uint8:
        raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
                           f"{a.name} and {b.name}")
    return int16


class _Default:
    __slots__ = ("dtype", "complex")

    def __init__(self) -> None:
        self.dtype = float32
        self.complex = complex64


_default = _Default()


def get_default_dtype() -> dtype:
    """The floating type that Python floats and integer division take (float32 at first)."""
    return _default.dtype


def set_default_dtype(d: dtype) -> None:
    """Makes `d` the default floating type.  Raises TypeError unless `d` is a floating point type."""
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    if d is _default.dtype:
        return
    _default.dtype = d
    _default.complex = complex64 if d is not float64 else complex128
    for tell in on_default:
        tell(d)


on_default: list[Any] = []  # what is told of another default type: plans made under one do not hold under another


_PYTHONS = {float: float64, int: int64, bool: bool_, complex: complex128}


def _of_python(d: Any) -> Any:
    return _PYTHONS.get(d, d) if isinstance(d, type) else d


def meant(d: Any, of: str = "") -> Any:
    """The type that an argument `dtype` means: Python's number types stand for those that hold their values whole. None stays None.
    Raises TypeError for anything else that is no type; of: whose argument it is."""
    d = _of_python(d)
    if d is not None and not isinstance(d, dtype):
        raise TypeError(f"{of and of + '(): '}argument 'dtype' must be torch.dtype, not {type(d).__name__}")
    return d


def settled(d: Any, of: str = "") -> dtype:
    """The same, where None means the default type."""
    return meant(d, of) or _default.dtype


def default_complex() -> dtype:
    """The complex type of Python complex numbers: complex128 when the default type is float64, else complex64."""
    return _default.complex


def of_scalar(value: Any) -> dtype:
    """The type a Python number has by itself: bool, int64, the default float or the default complex type."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        return int64
    if isinstance(value, (float, np.floating)):
        return _default.dtype
    if isinstance(value, (complex, np.complexfloating)):
        return _default.complex
    raise TypeError(f"expected a number, got {type(value).__name__}")


def result_of(dims: Iterable[dtype], zero_dims: Iterable[dtype], scalars: Iterable[dtype]) -> dtype:
    """The result type of an operation on dimensioned tensors, zero-dim tensors and Python numbers of these types."""
    result: dtype | None = None
    for group, wrapped in ((dims, False), (zero_dims, False), (scalars, True)):
        here: dtype | None = None
        for d in group:
            here = d if here is None else promote_types(here, d)
        if here is None:
            continue
        if result is None:
            result = _default_of_kind(here) if wrapped else here
        elif _KIND_LEVEL[here.kind] > _KIND_LEVEL[result.kind]:
            # a dimensioned float tensor keeps its precision beside a complex number or zero-dim tensor
            result = result.to_complex() if here.is_complex and result.is_floating_point else _default_of_kind(here) if wrapped else here
    if result is None:
        raise ValueError("result_type needs at least one argument")
    return result


def _default_of_kind(d: dtype) -> dtype:
    if d.kind == "f":
        return _default.dtype
    return _default.complex if d.kind == "c" else d


_TITLES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "int16": "Short",
           "int8": "Char", "uint8": "Byte", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "complex32": "ComplexHalf", "complex64": "ComplexFloat",
           "complex128": "ComplexDouble"}


def title(d: dtype) -> str:
    """The name that PyTorch's messages have for a type: Float, Long, ComplexDouble."""
    return _TITLES.get(d.name, d.name.capitalize())


_C_NAMES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t", "int32": "int", "uint32": "uint32_t", "int64": "int64_t",
            "uint64": "uint64_t", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
            "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}
_MOST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38, "complex32": 65504.0, "complex64": 3.4028234663852886e38}


def number(value: Any, d: dtype, strictly: bool = False) -> Any:
    """A Python number as one that an element of `d` can hold: an int (also for bool), a float or a complex.

    Fractions are cut off for integers, and integers below zero count back from the end for unsigned ones.  Raises RuntimeError for what
    does not fit: a number beyond the limits (a float below zero, for unsigned ones), infinite or not a number for an integer, finite but
    beyond float32, or complex for a real type.
    strictly: also for what is finite and beyond a 16-bit type, which otherwise becomes infinite.
    """
    kind = d.kind
    if kind == "b":
        return int(bool(value))
    if isinstance(value, complex) and kind != "c":
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {_C_NAMES.get(d.name, d.name)} without overflow: {value} is complex")
        value = value.real
    if kind in "ui":
        bits = 8 * d.itemsize
        low, high = (0 if isinstance(value, float) else 1 - (1 << bits), (1 << bits) - 1) if kind == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
        if low <= value <= high:  # false for NaN
            return value if isinstance(value, Unknown) else int(value)
    else:
        made = complex(value) if kind == "c" else float(value)
        if made.__class__ is float and -65504.0 <= made <= 65504.0:  # any type's
            return made
        parts = (made.real, made.imag) if isinstance(made, complex) else (made,)
        most = _MOST.get(d.name) if strictly or d.itemsize > 2 else None
        if most is None or not any(most < abs(x) < float("inf") for x in parts):
            return made
    raise RuntimeError(f"value cannot be converted to type {_C_NAMES.get(d.name, d.name)} without overflow: {value} is outside of what {d} holds")


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether PyTorch's rules let a result of type `from_` be stored in an output of type `to`."""
    if from_.__class__ is not dtype or to.__class__ is not dtype:
        from_, to = settled(from_), settled(to)
    if from_.is_complex and not to.is_complex:
        return False
    if from_.is_floating_point and not (to.is_floating_point or to.is_complex):
        return False
    return not (to is bool_ and from_ is not bool_)


_limits: dict[dtype, dict[str, Any]] = {}  # what was found of each type


class finfo:
    """Limits of a floating type: `bits`, `eps`, `max`, `min`, `tiny`, `smallest_normal`, `resolution`, `dtype`."""

    def __init__(self, type: dtype | None = None) -> None:  # noqa: A002 (PyTorch's name)
        d = _default.dtype if type is None else _of_python(type)
        if not isinstance(d, dtype) or d.kind not in "fc8":
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle {d!r}")
        known = _limits.get(d)
        if known is not None:
            self.__dict__.update(known)
            return
        (self._small if d.kind == "8" else self._usual)(d)
        _limits[d] = dict(self.__dict__)

    def _usual(self, d: dtype) -> None:
        d = d.to_real()
        self.dtype = d.name
        self.bits = d.itemsize * 8
        mantissa, top = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}[d.name]
        self.eps = 2.0 ** -mantissa
        self.max = (2.0 - 2.0 ** -mantissa) * 2.0 ** top
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - top)
        self.resolution = 10.0 ** -{"float16": 3, "bfloat16": 2, "float32": 6, "float64": 15}[d.name]

    def _small(self, d: dtype) -> None:
        """The limits of a type of 8 bits, from the code of its largest number."""
        _, mantissa, bias, most = SMALL[d]
        code, rest = most >> mantissa, most & ((1 << mantissa) - 1)
        self.dtype, self.bits, self.eps = d.name, 8, 2.0 ** -mantissa
        self.max = (1 + rest / (1 << mantissa)) * 2.0 ** (code - bias)
        self.min = -self.max if d.is_signed else 2.0 ** -bias
        self.tiny = self.smallest_normal = 2.0 ** (1 - bias) if d.is_signed else 2.0 ** -bias
        self.resolution = 1.0
        if d.name == "float8_e5m2fnuz":
            self.eps = 0.125  # as PyTorch says, though the next number after 1 is 1.25

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """Limits of an integer type: `bits`, `max`, `min`, `dtype`."""

    def __init__(self, type: dtype) -> None:  # noqa: A002
        type = _of_python(type)  # noqa: A001
        if not isinstance(type, dtype) or type.kind not in "uib":
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle {type!r}")
        if type.kind == "b":
            raise RuntimeError('"iinfo" not implemented for \'Bool\'')
        self.dtype = type.name
        self.bits = type.itemsize * 8
        self.min = -(1 << (self.bits - 1)) if type.is_signed else 0
        self.max = (1 << (self.bits - type.is_signed)) - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
