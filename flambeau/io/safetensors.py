"""The safetensors layout: a length, a JSON header, raw bytes. Nothing in it can run code.

    8 bytes   n, the header's length, little-endian
    n bytes   JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}
    the rest  the tensors' bytes, row-major, little-endian, back to back; offsets count from here

Every number of a header is checked against the others and against the file before it is used.
Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import math
import os
from typing import IO, TYPE_CHECKING, Any

from .. import dtypes, ops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..tensor import Tensor

# The longest header taken: that of the reference reader.
MOST_HEADER = 100_000_000

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
          "bool": "BOOL", "complex64": "C64", "complex128": "C128"}


def _dtype_of(name: str) -> Any:
    for own, theirs in _NAMES.items():
        if theirs == name:
            return getattr(dtypes, "bool_" if own == "bool" else own, None)
    return None


def _code_of(dtype: Any) -> str:
    name = str(dtype).split(".")[-1]
    if name not in _NAMES:
        raise TypeError(f"save: tensors of type {dtype} have no place in the format; it holds {', '.join(_NAMES)}")
    return _NAMES[name]


class Entry:
    """Where one tensor lies: its type, shape and the place of its bytes."""

    __slots__ = ("name", "dtype", "shape", "begin", "end")

    def __init__(self, name: str, dtype: Any, shape: tuple[int, ...], begin: int, end: int) -> None:
        self.name, self.dtype, self.shape, self.begin, self.end = name, dtype, shape, begin, end


# -- writing
# -------------------------------------------------------------------------------------------------------------


def _bytes_of(tensor: Tensor) -> Any:
    """The tensor's elements in row order, as bytes on the host."""
    flat: Any = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(dtypes.uint8).numpy())


def write(stream: IO[bytes], tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a file to `stream`. Names must be strings other than "__metadata__"."""
    # Big elements first, so that every tensor begins at a multiple of its element's size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    place = 0
    for name in order:
        t: Any = tensors[name]
        size = t.numel() * t.element_size()
        header[name] = {"dtype": _code_of(t.dtype), "shape": list(t.shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER:
        raise RuntimeError(f"save: the description of what is saved takes {len(text)} bytes; at most {MOST_HEADER} "
                           "are possible")
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)
    for name in order:
        t = tensors[name]
        if t.numel():
            stream.write(_bytes_of(t))


# -- reading
# -------------------------------------------------------------------------------------------------------------


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands in the header twice")
    return made


def parse_json(text: str | bytes, what: str, where: str) -> Any:
    """JSON from a stranger. Raises RuntimeError for anything that is not, or is nested too deep."""
    try:
        return json.loads(text, object_pairs_hook=_no_doubles)
    except (ValueError, RecursionError) as error:
        raise RuntimeError(f"load: {where} is corrupt: {what} cannot be read ({error})") from None


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _entry(name: str, row: Any, where: str) -> Entry:
    bad = f"load: {where} is corrupt: tensor {name!r}"
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise RuntimeError(f"{bad} must have dtype, shape and data_offsets, got {row!r:.200}")
    dtype = _dtype_of(row["dtype"]) if isinstance(row["dtype"], str) else None
    if dtype is None:
        raise RuntimeError(f"{bad} has the type {row['dtype']!r:.50}; known are {', '.join(_NAMES.values())}")
    shape, offsets = row["shape"], row["data_offsets"]
    if not isinstance(shape, list) or not all(map(_whole, shape)) or len(shape) > 64:
        raise RuntimeError(f"{bad} has the shape {shape!r:.200}, which is no list of at most 64 sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)) or offsets[0] > offsets[1]:
        raise RuntimeError(f"{bad} has the offsets {offsets!r:.200}, which are no [begin, end]")
    size = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != size:
        raise RuntimeError(f"{bad} of type {row['dtype']} and shape {shape} takes {size} bytes, but its offsets "
                           f"{offsets} hold {offsets[1] - offsets[0]}")
    return Entry(name, dtype, tuple(shape), offsets[0], offsets[1])


def read_header(stream: IO[bytes], available: int | None, where: str) -> tuple[list[Entry], dict[str, str]]:
    """The entries, in the order of their bytes, and the metadata.

    available: how many bytes the stream has from here, None if unknown. Raises RuntimeError for whatever does not fit.
    """
    start = stream.read(8)
    if len(start) < 8:
        raise RuntimeError(f"load: {where} is empty or cut off: it has {len(start)} bytes and must begin with 8 that "
                           "give its header's length")
    foreign = _foreign(start)
    if foreign:
        raise RuntimeError(f"load: {where} {foreign}")
    length = int.from_bytes(start, "little")
    if length > MOST_HEADER or (available is not None and length > available - 8):
        raise RuntimeError(f"load: {where} is no safetensors file, or it is cut off: it announces a header of "
                           f"{length} bytes"
                           + ("" if available is None else f" and has {available - 8} left"))
    text = stream.read(length)
    if len(text) < length:
        raise RuntimeError(f"load: {where} is cut off: {len(text)} of its header's {length} bytes are there")
    header = parse_json(text, "its header", where)
    if not isinstance(header, dict):
        raise RuntimeError(f"load: {where} is corrupt: its header must be a JSON object, got {type(header).__name__}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise RuntimeError(f"load: {where} is corrupt: __metadata__ must map strings to strings")
    entries = sorted((_entry(name, row, where) for name, row in header.items()), key=lambda e: (e.begin, e.end))
    place = 0
    for e in entries:
        if e.begin != place:
            raise RuntimeError(f"load: {where} is corrupt: the bytes of tensor {e.name!r} begin at {e.begin}, but "
                               f"those before it end at {place}")
        place = e.end
    if available is not None and place > available - 8 - length:
        raise RuntimeError(f"load: {where} is cut off: its tensors take {place} bytes and {available - 8 - length} "
                           "are there")
    return entries, metadata


def _foreign(start: bytes) -> str | None:
    """What a file that is clearly something else is."""
    if start[:2] == b"PK":
        return ("is a zip archive, as torch.save writes them; this version reads safetensors files. In PyTorch, "
                "safetensors.torch.save_file(state_dict, path) writes one")
    if start[:1] == b"\x80" and start[1] <= 5 and start[2:3] in (b"}", b"]", b"(", b"c", b"\x8a", b"\x95"):
        return "is a Python pickle, which could run any code; it is not read. Save it as a safetensors file"
    return None


def read_tensors(stream: IO[bytes], entries: list[Entry], where: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors, on the CPU, in the order of their bytes."""
    for e in entries:
        flat = ops.empty(math.prod(e.shape), dtype=e.dtype, device="cpu")
        if e.end > e.begin:
            space = memoryview(flat.view(dtypes.uint8).numpy())
            filled = 0
            while filled < len(space):
                got = _read_into(stream, space[filled:])
                if not got:
                    raise RuntimeError(f"load: {where} is cut off: {filled} of the {len(space)} bytes of tensor "
                                       f"{e.name!r} are there")
                filled += got
        yield e.name, flat.reshape(e.shape)


def _read_into(stream: IO[bytes], space: memoryview) -> int:
    into = getattr(stream, "readinto", None)
    if into is not None:
        return into(space) or 0
    piece = stream.read(len(space))
    space[:len(piece)] = piece
    return len(piece)


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name, on `device`."""
    where = os.fspath(filename)
    with open(filename, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        entries, _ = read_header(stream, size, where)
        return {name: t.to(device) for name, t in read_tensors(stream, entries, where)}


def save_file(tensors: dict[str, Tensor], filename: str | os.PathLike[str],
              metadata: dict[str, str] | None = None) -> None:
    """Writes tensors to a safetensors file; the file that was there stays whole until the new one is."""
    from .files import replacing

    for name in tensors:
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"save_file: names must be strings other than '__metadata__', got {name!r}")
    with replacing(filename) as stream:
        write(stream, tensors, metadata or {})
