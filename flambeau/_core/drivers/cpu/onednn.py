"""16-bit matrix products by oneDNN, where a copy of it is installed.

It is optional: the package `onednn-cpu-gomp` carries it, or FLAMBEAU_ONEDNN names a library file.  Calls go through
oneDNN's C API (version 3); nothing is loaded until a product asks for it.  It has threads of its own (OpenMP); they are
told to sleep, not spin, between calls, since ours would lose their CPUs to them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import TYPE_CHECKING, Any

from ... import collector, forks

if TYPE_CHECKING:
    from collections.abc import Callable

_CPU, _IN_ORDER = 1, 1
_TYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
_SRC, _DST, _WEIGHTS = 1, 17, 33
_Dims = ctypes.c_int64 * 12

_lock = forks.lock()
_state: _Library | str | None = None  # a string says why there is none


class _Arg(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


class _Library:
    """A loaded library with its engine."""

    def __init__(self, path: str) -> None:
        self.path = path
        lib = self.lib = ctypes.CDLL(path)
        p = ctypes.c_void_p
        lib.dnnl_engine_create.argtypes = [p, ctypes.c_int, ctypes.c_size_t]
        lib.dnnl_stream_create.argtypes = [p, p, ctypes.c_uint]
        lib.dnnl_memory_desc_create_with_strides.argtypes = [p, ctypes.c_int, p, ctypes.c_int, p]
        lib.dnnl_matmul_primitive_desc_create.argtypes = [p, p, p, p, p, p, p]
        lib.dnnl_primitive_create.argtypes = [p, p]
        lib.dnnl_memory_create.argtypes = [p, p, p, p]
        lib.dnnl_memory_set_data_handle.argtypes = [p, p]
        lib.dnnl_primitive_execute.argtypes = [p, p, ctypes.c_int, p]
        lib.dnnl_stream_wait.argtypes = [p]
        version = ctypes.cast(_version_of(lib), ctypes.POINTER(ctypes.c_int * 3)).contents
        self.version = ".".join(map(str, version))
        if version[0] != 3:
            raise OSError(f"oneDNN {self.version}: version 3 is needed")
        self.engine, self.stream = p(), p()
        _check("engine", lib.dnnl_engine_create(ctypes.byref(self.engine), _CPU, 0))
        _check("stream", lib.dnnl_stream_create(ctypes.byref(self.stream), self.engine, _IN_ORDER))


def _version_of(lib: Any) -> Any:
    lib.dnnl_version.restype = ctypes.c_void_p
    return lib.dnnl_version()


def _check(what: str, status: int) -> None:
    if status:
        raise OSError(f"oneDNN could not make its {what}: status {status}")


def _paths() -> list[str]:
    named = os.environ.get("FLAMBEAU_ONEDNN")
    if named is not None:
        return [named] if named else []
    names = {"darwin": "libdnnl.dylib", "win32": "dnnl.dll"}
    name = names.get(sys.platform, "libdnnl.so.3")
    here = [os.path.join(sys.prefix, "lib", name)]
    with contextlib.suppress(Exception):
        from importlib import metadata
        files = metadata.distribution("onednn-cpu-gomp").files or ()
        here += [str(f.locate()) for f in files if f.name == name]
    return [p for p in here if os.path.exists(p)]


def library() -> _Library | None:
    """The library, or None when there is none that can be used; `why` says the reason."""
    global _state
    if _state is None:
        with _lock:
            if _state is None:
                found: _Library | str = "not installed (pip install onednn-cpu-gomp)"
                for path in _paths():
                    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read by its OpenMP when that is loaded
                    try:
                        found = _Library(path)
                        break
                    except (OSError, AttributeError) as error:
                        found = f"{path} cannot be used: {error}"
                _state = found
    return None if isinstance(_state, str) else _state


def why() -> str | None:
    """Why there is no oneDNN here; None when there is."""
    library()
    return _state if isinstance(_state, str) else None


def matmul(dtype: str, batch: int, m: int, n: int, k: int, a: tuple[int, int, int], b: tuple[int, int, int],
           c: tuple[int, int, int]) -> Callable[[int, int, int], None] | None:
    """An entry ``f(c, a, b)`` for c = a b on `batch` matrices of a 16-bit type, accumulated in float32.

    a, b, c: strides (matrix, row, column) in elements.  None where this library or this CPU has no such product.
    """
    found = library()
    if found is None or dtype not in _TYPES or 0 in (batch, m, n, k):
        return None
    lib, kind = found.lib, _TYPES[dtype]
    descriptors = []
    for shape, strides in (((batch, m, k), a), ((batch, k, n), b), ((batch, m, n), c)):
        if shape[0] == 1:
            strides = (shape[1] * shape[2], *strides[1:])  # an axis of one has no step; the library wants a usual one
        d = ctypes.c_void_p()
        if lib.dnnl_memory_desc_create_with_strides(ctypes.byref(d), 3, _Dims(*shape), kind, _Dims(*strides)):
            return None
        descriptors.append(d)
    description, primitive = ctypes.c_void_p(), ctypes.c_void_p()
    src, weights, dst = descriptors
    if lib.dnnl_matmul_primitive_desc_create(ctypes.byref(description), found.engine, src, weights, None, dst, None):
        return None
    if lib.dnnl_primitive_create(ctypes.byref(primitive), description):
        return None
    lib.dnnl_primitive_desc_destroy(description)
    memories = []
    for d in descriptors:
        memory = ctypes.c_void_p()
        if lib.dnnl_memory_create(ctypes.byref(memory), d, found.engine, None):
            return None
        memories.append(memory)
        lib.dnnl_memory_desc_destroy(d)
    arguments = (_Arg * 3)(*[_Arg(i, mem.value) for i, mem in zip((_SRC, _WEIGHTS, _DST), memories, strict=True)])
    in_use = forks.lock()
    ours, theirs, target = memories

    def entry(out: int, x: int, y: int) -> None:
        with collector.held(), in_use:  # the memory objects are this entry's own, also where a finalizer would compute
            lib.dnnl_memory_set_data_handle(ours, x)
            lib.dnnl_memory_set_data_handle(theirs, y)
            lib.dnnl_memory_set_data_handle(target, out)
            status = lib.dnnl_primitive_execute(primitive, found.stream, 3, arguments) or lib.dnnl_stream_wait(found.stream)
        if status:
            raise RuntimeError(f"oneDNN: the {dtype} product ({batch}x{m}x{k} by {k}x{n}) failed with status {status}")
    return entry
