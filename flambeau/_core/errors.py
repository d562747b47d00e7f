"""Exceptions of devices, and their texts; warnings at the line of the user's that they are about.

RuntimeError
  AcceleratorError      a GPU failed: a queued launch raised, or touched memory that is not its own
  OutOfMemoryError      a GPU has no room for a request
  LinAlgError           a matrix has no such factorization, or an iteration did not converge
  FileFormatError       a file is corrupt, cut off, of another format, or asks for what is not allowed
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType, FrameType


# takes frames that the program's author need not see out of an error's traceback: `flambeau run` puts it here
shorten: list[Callable[[BaseException], Any]] = []


def text_of(error: BaseException) -> str:
    """An error with its traceback as text, which another process shows."""
    import traceback
    for each in shorten:
        each(error)
    return "".join(traceback.format_exception(error))


class AcceleratorError(RuntimeError):
    """A GPU's work failed.  Raised at the next synchronisation, since the work ran after its call had returned."""


class OutOfMemoryError(RuntimeError):
    """A GPU has no room.  In bytes: `requested`, `total`, `free`, `allocated` (by tensors), `reserved` (by the
    allocator), `largest` (the biggest block that is reserved but unused)."""

    requested = total = free = allocated = reserved = largest = 0


class LinAlgError(RuntimeError):
    """A matrix is singular, not positive-definite, ..., or an iteration did not converge."""


class FileFormatError(RuntimeError):
    """A file that is read is corrupt, cut off, of another format, or asks for what is not allowed.  Nothing of it was run."""


_NO_ROOM = ("array is too big", "Maximum allowed dimension", "Maximum allowed size")  # how NumPy's ValueErrors begin for sizes that no memory has


def no_room(operation: str, error: Exception) -> RuntimeError | None:
    """What NumPy says where it has no room, as an operation's error; None for all else."""
    if isinstance(error, MemoryError) or (isinstance(error, ValueError) and str(error).startswith(_NO_ROOM)):
        return RuntimeError(f"{operation}: out of CPU memory: {error}")
    return None


def size(nbytes: int) -> str:
    """A number of bytes as people read it: '1.50 GiB'."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.2f} {unit}"
    return f"{nbytes} bytes"


class TransferError(RuntimeError):
    """A copy between devices where a `transfer_guard` forbids it; nothing was copied."""


HOW_TO_SIMULATE = 'flambeau.simulate(gpus=4, model="H200") or the environment variable FLAMBEAU_SIM_GPUS=4'


for _kind in (AcceleratorError, OutOfMemoryError, LinAlgError, FileFormatError, TransferError):
    _kind.__module__ = "flambeau.errors"  # where a program finds them: what a traceback shows


def no_gpu(reason: str) -> RuntimeError:
    """For a use of a GPU where there is none."""
    return RuntimeError(f"no CUDA GPU is available: {reason}. The devices here are: cpu. To work on simulated GPUs: "
                        f"{HOW_TO_SIMULATE}")


def no_such_gpu(index: int, count: int, what: str) -> RuntimeError:
    """For an index past the GPUs there are."""
    there = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
    return RuntimeError(f"invalid device ordinal: cuda:{index} is not there; the devices here are cpu and {there} "
                        f"({what}). More can be simulated: {HOW_TO_SIMULATE}")


def forked() -> RuntimeError:
    """For a use of a GPU in a child of a process that had used one."""
    return RuntimeError(
        "Cannot re-initialize CUDA in forked subprocess: the parent had already used a GPU, and a GPU's state does not "
        "survive a fork. Start the process with multiprocessing's 'spawn' or 'forkserver' method, or fork before the "
        "first use of a GPU")


def out_of_memory(requested: int, *, name: str, index: int, total: int, free: int, allocated: int, reserved: int,
                  largest: int) -> OutOfMemoryError:
    """The error of a request that found no room after everything unused was given back."""
    error = OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {size(requested)}. GPU {index} ({name}) has {size(total)} in all, of "
        f"which {size(free)} is free. Tensors hold {size(allocated)}; the allocator reserves {size(reserved)}, and its "
        f"largest unused block is {size(largest)}. Unused blocks, other streams' blocks and garbage were given back "
        f"first: keep fewer tensors, use smaller batches, or look at flambeau.cuda.memory_summary({index})")
    error.requested, error.total, error.free = requested, total, free
    error.allocated, error.reserved, error.largest = allocated, reserved, largest
    return error


_PACKAGE = __name__.partition(".")[0]
# those who may be told of a warning first: while the first is anything, the second is, and who gives True sees to it that it comes where it belongs
noting: list[tuple[dict[Any, Any], Callable[[str, type[Warning]], bool]]] = []


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line that called this package, however many of its own calls lie between; or tells one who notes what a call does (`noting`)."""
    for some, note in noting:
        if some and note(message, category):
            return
    if _ignored(category):
        return
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        ours = _modules.get(name := frame.f_globals.get("__name__", ""))
        if not (_module_is_ours(name) if ours is None else ours) and not frame.f_code.co_filename.startswith("<operation"):
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)


def _ignored(category: type[Warning]) -> bool:
    """Whether the program's filters drop all warnings of a category, wherever they come from: then nobody need look where that is."""
    global _known
    filters, dropped = _known
    if warnings.filters != filters:
        filters, dropped = _known = list(warnings.filters), {}
    found = dropped.get(category)
    if found is None:
        # up to the first that drops all: one before it may only drop some of them
        about = [(action, message is None and module is None and line == 0) for action, message, of, module, line in filters if issubclass(category, of)]
        some = next((i for i, (action, every) in enumerate(about) if every or action != "ignore"), None)
        found = dropped[category] = not _BY_CONTEXT and some is not None and about[some] == ("ignore", True)
    return found


_known: tuple[list[Any], dict[type[Warning], bool]] = [], {}  # the filters as they were, and what they do with categories
_BY_CONTEXT = bool(getattr(sys.flags, "context_aware_warnings", False))  # whether threads may have filters of their own, in another list


def warn_once(message: str, category: type[Warning] = UserWarning) -> None:
    """`warn`, once in a process; what the user's filters make of it does not matter."""
    if message not in _said:
        _said.add(message)
        warn(message, category)


_said: set[str] = set()


_modules: dict[str, bool] = {}  # by the name of a module that a warning passed through: whether it is this package's
# by the id of a code object: it, and whether it is this package's, or Python's own library's; to hash a code object takes half a microsecond
inside: dict[int, tuple[CodeType, bool]] = {}
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(os.path.join(_LIBRARY, name) for name in ("site-packages", "dist-packages"))


class _Thread(threading.local):
    """site: the line for which a thread of this package works."""

    site: tuple[str, int] | None = None


thread = _Thread()


def site() -> tuple[str, int] | None:
    """The innermost line of the program: file and line.  Lines of this package and of Python's library are passed over; a thread of this package
    has the line for which it works, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        known = inside.get(id(code))
        if known is None:
            if len(inside) > 1 << 14:
                inside.clear()  # code made by exec at every step
            known = inside[id(code)] = code, _ours(frame)
        if not known[1]:
            return code.co_filename, frame.f_lineno
        frame = frame.f_back
    return thread.site


def launched_at(sites: Iterable[tuple[str, int] | None]) -> str:
    """The lines that a failed launch may have come from, for the middle of a message; "" where none is known."""
    lines = list(dict.fromkeys(f"{s[0]}:{s[1]}" for s in sites if s is not None and s[1]))
    if len(lines) > 1:
        return f" (launched at one of {', '.join(lines)}; with CUDA_LAUNCH_BLOCKING=1 the error comes at its own line)"
    return f" (launched at {lines[0]})" if lines else ""


def _ours(frame: FrameType) -> bool:
    """Whether a frame runs this package's code, text that the engine wrote among it, or that of Python's library (`threading`, `copy`, ...)."""
    file = frame.f_code.co_filename
    return _module_is_ours(frame.f_globals.get("__name__", "")) or file.startswith(("<operation", "<frozen ")) or (
        file.startswith(_LIBRARY) and not file.startswith(_PACKAGES))


def _module_is_ours(name: str) -> bool:
    if len(_modules) > 1 << 12:
        _modules.clear()  # names made by exec
    found = _modules[name] = name == _PACKAGE or name.startswith(_PACKAGE + ".")
    return found
