"""The safetensors layout: a length, a JSON header, raw bytes. Nothing in it can run code.

    8 bytes   n, the header's length, little-endian
    n bytes   JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}
    the rest  the tensors' bytes, row-major, little-endian, back to back; offsets count from here

Every number of a header is checked against the others and against the file before it is used.  Where the format's own package
(safetensors) is installed, it reads and checks the headers of files; the bytes go from the file straight into tensors.
Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
from typing import IO, TYPE_CHECKING, Any

from .._core import dtypes
from .._core.errors import FileFormatError
from .._core.layout import contiguous_strides, extent
from .._core.ops.storages import UntypedStorage, host_bytes, tensor_on
from .._core.runtime.asking import unasked
from .._core.runtime.device import device as Device
from .._core.tensor import Tensor, meta, new, wrap
from .archive import fill
from .rebuild import brief

if TYPE_CHECKING:

    from .map_location import Placer

# The longest header taken: that of the reference reader.
MOST_HEADER = 100_000_000

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
          "bool": "BOOL", "complex64": "C64"}


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
    flat: Any = unasked(tensor.detach().cpu)().contiguous().reshape(-1)
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
        raise FileFormatError(f"save: the description of what is saved takes {len(text)} bytes; at most {MOST_HEADER} "
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
    """JSON from a stranger. Raises FileFormatError for anything that is not, or is nested too deep."""
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, object_pairs_hook=_no_doubles)  # of bytes it would guess
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"load: {where} is corrupt: {what} cannot be read ({error})") from None


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _entry(name: str, row: Any, where: str) -> Entry:
    bad = f"load: {where} is corrupt: tensor {name!r}"
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(f"{bad} must have dtype, shape and data_offsets, got {brief(row)}")
    dtype = _dtype_of(row["dtype"]) if isinstance(row["dtype"], str) else None
    if dtype is None:
        raise FileFormatError(f"{bad} has the type {brief(row['dtype'])}; known are {', '.join(_NAMES.values())}")
    shape, offsets = row["shape"], row["data_offsets"]
    if not isinstance(shape, list) or not all(map(_whole, shape)) or len(shape) > 64:
        raise FileFormatError(f"{bad} has the shape {brief(shape)}, which is no list of at most 64 sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)) or offsets[0] > offsets[1]:
        raise FileFormatError(f"{bad} has the offsets {brief(offsets)}, which are no [begin, end]")
    size = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != size:
        raise FileFormatError(f"{bad} of type {row['dtype']} and shape {brief(shape)} takes {brief(size)} bytes, but its offsets "
                              f"{brief(offsets)} hold {brief(offsets[1] - offsets[0])}")
    return Entry(name, dtype, tuple(shape), offsets[0], offsets[1])


def read_header(stream: IO[bytes], available: int | None, where: str) -> tuple[list[Entry], dict[str, str]]:
    """The entries, in the order of their bytes, and the metadata.

    available: how many bytes the stream has from here, None if unknown. Raises FileFormatError for whatever does not fit.
    """
    start = stream.read(8)
    if len(start) < 8:
        raise FileFormatError(f"load: {where} is empty or cut off: it has {len(start)} bytes and must begin with 8 that "
                           "give its header's length")
    length = int.from_bytes(start, "little")
    if length > MOST_HEADER or (available is not None and length > available - 8):
        raise FileFormatError(f"load: {where} is no safetensors file, or it is cut off: it announces a header of "
                           f"{length} bytes"
                           + ("" if available is None else f" and has {available - 8} left"))
    text = stream.read(length)
    if len(text) < length:
        raise FileFormatError(f"load: {where} is cut off: {len(text)} of its header's {length} bytes are there")
    header = parse_json(text, "its header", where)
    if not isinstance(header, dict):
        raise FileFormatError(f"load: {where} is corrupt: its header must be a JSON object, got {type(header).__name__}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileFormatError(f"load: {where} is corrupt: __metadata__ must map strings to strings")
    entries = sorted((_entry(name, row, where) for name, row in header.items()), key=lambda e: (e.begin, e.end))
    place = 0
    for e in entries:
        if e.begin != place:
            raise FileFormatError(f"load: {where} is corrupt: the bytes of tensor {e.name!r} begin at {brief(e.begin)}, but "
                               f"those before it end at {place}")
        place = e.end
    if available is not None and place > available - 8 - length:
        raise FileFormatError(f"load: {where} is cut off: its tensors take {place} bytes and {available - 8 - length} "
                           "are there")
    if available is not None and place < available - 8 - length:
        raise FileFormatError(f"load: {where} is corrupt: bytes follow the last tensor")
    return entries, metadata


def looks_like(start: bytes) -> bool:
    """Whether a file that begins with these bytes means to be one of safetensors."""
    return len(start) > 8 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= MOST_HEADER


def _one(stream: IO[bytes], e: Entry, where: str) -> Tensor:
    """The next tensor of a stream, on the CPU."""
    made = UntypedStorage(e.end - e.begin, device="cpu")
    if e.end > e.begin:
        fill(stream, memoryview(host_bytes(made._storage, "load")), lambda: FileFormatError(f"load: {where} is cut off in tensor {e.name!r:.80}"))
    return tensor_on(made._storage, meta(e.shape, None, e.dtype, Device("cpu")), made.data_ptr())


def read(stream: IO[bytes], available: int | None, where: str) -> dict[str, Tensor]:
    """The tensors of a stream, on the CPU, in the order of their bytes."""
    entries, _ = read_header(stream, available, where)
    return {e.name: _one(stream, e, where) for e in entries}


def placed(t: Tensor, place: Placer) -> Tensor:
    """A tensor that fills its storage, on the storage that `place` gives for it."""
    s = place(UntypedStorage(t), "cpu")._storage
    return t if s is t.store else tensor_on(s, meta(t.meta.shape, t.meta.strides, t.meta.dtype, s.meta.device), s.ptr)


_PIECE, _PIECES = 4096, 64  # bytes of a piece from which it is read alone, and of how many smaller ones each is


class safe_open:
    """A safetensors file opened without reading its tensors: ``with safe_open(path) as f: f.get_tensor(name)``.

    filename: a path.  framework: "pt" or "torch".  device: where the tensors go.
    The header is read and checked at once, and a tensor's bytes when it is asked for, from the file that was opened.
    Raises FileFormatError for a file that is corrupt or has become shorter, FileNotFoundError for none.
    """

    def __init__(self, filename: str | os.PathLike[str], framework: str = "pt", device: Any = "cpu", *, backend: str = "mmap") -> None:
        if framework not in ("pt", "torch", "pytorch", "flambeau"):
            raise ValueError(f"safe_open: framework must be 'pt', got {framework!r:.50}")
        self._device = Device(device)

        def both() -> tuple[Any, Any]:
            return _headers(filename), open(filename, "rb")
        found, self._stream = _unreplaced(filename, both)
        self._metadata: dict[str, str]
        self._start: int
        entries: list[Entry]
        entries, self._metadata, self._start = found
        self._entries = {e.name: e for e in entries}

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.close()

    def keys(self) -> list[str]:
        """The tensors' names, sorted."""
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """The tensors' names in the order of their bytes."""
        return list(self._entries)

    def metadata(self) -> dict[str, str] | None:
        return self._metadata or None

    def _entry(self, name: str) -> Entry:
        found = self._entries.get(name)
        if found is None:
            raise FileFormatError(f"safe_open: the file has no tensor {name!r:.80}")
        if self._stream.closed:
            raise FileFormatError("safe_open: the file is closed")
        return found

    def _read(self, e: Entry, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
        """Elements of a tensor, from element `offset` on, side by side on the device: what is one piece in the file is one read."""
        item = e.dtype.itemsize
        axis, run = len(shape), 1
        while axis and (shape[axis - 1] == 1 or strides[axis - 1] == run):
            axis -= 1
            run *= shape[axis]
        low, high = extent(shape, strides)
        if run * item < _PIECE and math.prod(shape[:axis]) > _PIECES:  # many small ones: all that lies between them is read too
            span = self._read(e, (high - low + 1,), (1,), offset)
            return span.as_strided(shape, strides).clone()
        made = UntypedStorage(math.prod(shape) * item, device="cpu")
        space = memoryview(host_bytes(made._storage, "load")) if high >= low else memoryview(b"")
        for at in itertools.product(*map(range, shape[:axis])) if high >= low else ():
            begin = self._start + e.begin + (offset + sum(i * s for i, s in zip(at, strides))) * item
            self._fill(e, space[:run * item], begin)
            space = space[run * item:]
        return unasked(tensor_on(made._storage, meta(shape, None, e.dtype, Device("cpu")), made.data_ptr()).to)(self._device)

    def _fill(self, e: Entry, space: memoryview, begin: int) -> None:
        while space:
            done = os.preadv(self._stream.fileno(), [space], begin)
            if not done:
                raise FileFormatError(f"safe_open: the file became shorter; tensor {e.name!r:.80} is not whole")
            space, begin = space[done:], begin + done

    def get_tensor(self, name: str) -> Tensor:
        """One tensor, on the device."""
        e = self._entry(name)
        return self._read(e, e.shape, contiguous_strides(e.shape), 0)

    def get_tensors(self) -> dict[str, Tensor]:
        return {name: self.get_tensor(name) for name in self._entries}

    def get_slice(self, name: str) -> TensorSlice:
        """One tensor that is read when it is indexed, only as far as it is indexed."""
        return TensorSlice(self, self._entry(name))


class TensorSlice:
    """A tensor in a file: ``part[:, 2:4]`` reads those elements."""

    def __init__(self, source: safe_open, entry: Entry) -> None:
        self._source, self._entry = source, entry

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """The element type as the format names it: "F32"."""
        return _code_of(self._entry.dtype)

    def __getitem__(self, at: Any) -> Tensor:
        source, e = self._source, self._source._entry(self._entry.name)
        whole = new(meta(e.shape, None, e.dtype, Device("meta")))
        part = whole[at]
        if part.store is not whole.store:  # positions in a tensor or a list
            whole = source.get_tensor(e.name)
            return whole[at]
        return source._read(e, tuple(part.meta.shape), part.meta.strides, (part.ptr - whole.ptr) // e.dtype.itemsize)


def _package() -> Any:
    """The format's own package, or None where it is not installed or too old to tell the tensors' order."""
    try:
        import safetensors  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return safetensors if hasattr(safetensors.safe_open, "offset_keys") else None


def _unreplaced(filename: Any, read: Any) -> Any:
    """What `read` gives, which opens the file more than once: again, if another was put in its place meanwhile."""
    def identity() -> tuple[int, int, int]:
        told = os.stat(filename)
        return told.st_ino, told.st_mtime_ns, told.st_size
    for _ in range(100):
        before = identity()
        try:
            found = read()
        except FileFormatError:
            if identity() == before:
                raise
            continue
        if identity() == before:
            return found
    return read()


def _headers(filename: Any) -> tuple[list[Entry], dict[str, str], int]:
    """(entries in the order of their bytes, metadata, where the tensors begin) of a file."""
    where = os.fsdecode(filename)
    with open(filename, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        package = _package()
        if package is None:
            entries, metadata = read_header(stream, size, where)
            return entries, metadata, stream.tell()
        start = 8 + int.from_bytes(stream.read(8), "little")
    try:
        with package.safe_open(where, framework="numpy") as checked:
            found, place = [], 0
            for name in checked.offset_keys():
                part = checked.get_slice(name)
                d, shape = _dtype_of(part.get_dtype()), tuple(part.get_shape())
                if d is None:
                    raise FileFormatError(f"load: {where}: tensor {name!r:.80} has the type {part.get_dtype()}; known are {', '.join(_NAMES.values())}")
                end = place + math.prod(shape) * d.itemsize
                found.append(Entry(name, d, shape, place, end))
                place = end
            metadata = checked.metadata() or {}
    except package.SafetensorError as error:
        raise FileFormatError(f"load: {where} is corrupt or cut off ({str(error):.200})") from None
    if start + place != size or any(len(e.shape) > 64 for e in found):
        raise FileFormatError(f"load: {where} is corrupt: its tensors take {place} bytes and {size - start} are there")
    return found, metadata, start


def _mapped(filename: Any) -> dict[str, Tensor]:
    """The tensors where they lie in the file."""
    from .._core.drivers.files import mapped

    def both() -> tuple[Any, Any]:
        return _headers(filename), mapped(filename)
    (entries, _, start), data = _unreplaced(filename, both)
    found = {}
    for e in entries:
        piece = data[start + e.begin:start + e.end]
        if len(piece) != e.end - e.begin:
            raise FileFormatError(f"load_file: the file became shorter; tensor {e.name!r:.80} is not whole")
        m = meta(e.shape, None, e.dtype, Device("cpu"))
        address = int(piece.__array_interface__["data"][0])
        if not len(piece) or address % e.dtype.itemsize:
            made = UntypedStorage(len(piece), device="cpu")
            if len(piece):
                host_bytes(made._storage, "load")[:] = piece
            found[e.name] = tensor_on(made._storage, m, made.data_ptr())
        else:
            found[e.name] = wrap(address, m, piece)
    return found


def load_file(filename: str | os.PathLike[str], device: Any = "cpu", *, backend: str = "pread") -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name, on `device`.  Raises FileFormatError for a file that is corrupt.

    backend "pread": they are read at once, and the file is no longer needed.  "mmap": tensors on the CPU lie in the file, mapped; their bytes
    come as they are used, and writes stay in this process.  The file must then stay as it is while they are in use: what another program
    writes into it may show, and where it is made shorter (not where another file takes its place, as `save_file` does), using what is cut
    off ends the process.
    """
    if backend == "mmap":
        return {name: unasked(t.to)(Device(device)) for name, t in _mapped(filename).items()}
    if backend != "pread":
        raise ValueError(f"load_file: backend must be 'mmap' or 'pread', got {backend!r:.50}")
    def whole() -> dict[str, Tensor]:
        entries, _, start = _headers(filename)
        with open(filename, "rb") as stream:
            stream.seek(start)
            return {e.name: unasked(_one(stream, e, os.fsdecode(filename)).to)(device) for e in entries}
    read_: dict[str, Tensor] = _unreplaced(filename, whole)
    return read_


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file that is in memory."""
    return read(io.BytesIO(data), len(data), "the data")


def _check(tensors: Any, name: str) -> None:
    if not isinstance(tensors, dict):
        raise ValueError(f"{name}: expected a dict of names and tensors, got {type(tensors).__name__}")
    for key, value in tensors.items():
        if not isinstance(key, str) or key == "__metadata__":
            raise TypeError(f"{name}: names must be strings other than '__metadata__', got {key!r:.80}")
        if not isinstance(value, Tensor):
            raise ValueError(f"{name}: {key!r:.80} must be a tensor, got {type(value).__name__}")


def save_file(tensors: dict[str, Tensor], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Writes tensors to a safetensors file; the file that was there stays whole until the new one is."""
    from .files import replacing

    _check(tensors, "save_file")
    with replacing(filename) as stream:
        write(stream, tensors, metadata or {})


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file with these tensors."""
    _check(tensors, "save")
    stream = io.BytesIO()
    write(stream, tensors, metadata or {})
    return stream.getvalue()
