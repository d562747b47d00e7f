"""IR text to machine code of this CPU, by way of the disk cache.

`functions(parts, names, write)` is the whole of it: `parts` say what is wanted, `write` gives its IR text if nobody has
compiled it before.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from ... import forks
from .. import cache, lasting
from . import elf

if TYPE_CHECKING:
    from collections.abc import Callable

_lock = forks.lock(free=True)  # nobody may be inside LLVM, which has locks of its own, at a fork: the child would wait for them for ever
_keep: list[Any] = []  # code is never unloaded, at the interpreter's end neither: workers may still be in it
_known: dict[tuple[str, ...], dict[str, int]] = {}  # addresses by what was asked for
_fingerprint: str | None = None
_target: Any = None
_orc: Any = None
compiled = 0  # how many modules this process has compiled, for tests and reports


def functions(parts: tuple[str, ...], names: tuple[str, ...], write: Callable[[], str]) -> dict[str, int]:
    """Addresses of the functions `names` of a module.

    parts: everything the IR text depends on, besides this package's own code and the CPU.
    write: gives the IR text; only called when this process has no such module, nor the cache.
    """
    asked = fingerprint(), *parts
    with _lock, cache.preparing():
        found = _known.get(asked)
        if found is not None and found.keys() >= set(names):
            return found
        name = cache.key(*asked)
        data = cache.get(name, lambda: to_object(write()))
        found = _known[asked] = load(data, names, name)
        return found


def fingerprint() -> str:
    """What every compiled module depends on: this package's code, the CPU, the compiler, the Python (for entries)."""
    global _fingerprint
    if _fingerprint is None:
        _fingerprint = _source() + "\n" + surroundings()
    return _fingerprint


def surroundings() -> str:
    """What every compiled module depends on besides this package: the CPU, the compiler, the Python."""
    return "\n".join((cpu_description(), _llvmlite_version(), sys.version, sys.platform))


def _source() -> str:
    import hashlib
    h = hashlib.blake2b(digest_size=16)
    here = os.path.dirname(__file__)
    for folder in (os.path.dirname(here), here, *_handwritten(here)):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as f:
                    h.update(name.encode() + b"\0" + f.read())
    return h.hexdigest()


def _handwritten(here: str) -> list[str]:
    top = os.path.join(here, "handwritten")
    return [top, *sorted(e.path for e in os.scandir(top) if e.is_dir() and e.name[0] != "_")]


def cpu_description() -> str:
    """A text that differs between CPUs that need different code; FLAMBEAU_CPU names another (LLVM's names)."""
    chosen = os.environ.get("FLAMBEAU_CPU", "")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            first = f.read(8192).split("\n\n")[0]
    except OSError:
        import llvmlite.binding as llvm
        return "\n".join((chosen, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()))
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "\n".join((chosen, *(line for line in first.splitlines() if line.startswith(wanted))))


def _llvmlite_version() -> str:
    # its version file is read rather than imported: importing LLVM costs more than loading a hundred kernels
    import importlib.util
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.origin:
        raise ImportError("the CPU's kernels are compiled by llvmlite, which is not installed: pip install llvmlite "
                          "(or set FLAMBEAU_KERNELS=interpret to run them, slowly, by NumPy)")
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "_version.py"), encoding="utf-8") as f:
            return f.read()
    except OSError:
        import llvmlite
        return str(llvmlite.__version__)


def _machine() -> Any:
    """LLVM's target machine for this CPU."""
    global _target
    if _target is None:
        import llvmlite.binding as llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        chosen = os.environ.get("FLAMBEAU_CPU", "")
        # optimisation level 0 aborts on AVX-512 masks
        _target = llvm.Target.from_default_triple().create_target_machine(
            cpu=chosen or llvm.get_host_cpu_name(), features="" if chosen else llvm.get_host_cpu_features().flatten(),
            opt=3, reloc="pic", codemodel="small", jit=True)
    return _target


def is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


_MASKED = frozenset(("x86-64-v4", "skylake-avx512", "icelake-server", "sapphirerapids", "znver4", "znver5"))


_masks: dict[str, bool] = {}


def has_masks() -> bool:
    """Whether the CPU compiled for has masked loads and stores of every element size (AVX-512 BW and VL).

    Plans ask this before anything is compiled, so LLVM is only loaded where the system does not say.
    """
    chosen = os.environ.get("FLAMBEAU_CPU", "")
    found = _masks.get(chosen)
    if found is None:
        found = _masks[chosen] = chosen in _MASKED if chosen else is_x86() and {"avx512bw", "avx512vl"} <= _features()
    return found


_PAIRED = frozenset(("cooperlake", "sapphirerapids", "graniterapids", "znver4", "znver5"))


def has_pairs() -> bool:
    """Whether the CPU compiled for sums products of pairs of bfloat16 numbers (AVX-512 BF16)."""
    chosen = os.environ.get("FLAMBEAU_CPU", "")
    found = _pairs.get(chosen)
    if found is None:
        found = _pairs[chosen] = chosen in _PAIRED if chosen else has_masks() and bool({"avx512_bf16", "avx512bf16"} & _features())
    return found


_pairs: dict[str, bool] = {}


def _features() -> set[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("flags"):
                    return set(line.split())
    except OSError:
        pass
    import llvmlite.binding as llvm
    return {name for name, on in llvm.get_host_cpu_features().items() if on}


# The attributes of every function: LLVM by default avoids 512-bit registers even where the CPU has them.
_TAIL = """
attributes #0 = { nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
!0 = !{i32 1}
"""


def to_object(ir: str) -> bytes:
    """An object file of IR text whose functions have the attributes #0.  No optimiser passes: it is vectorised."""
    return bytes(_machine().emit_object(_parse(ir)))


def _parse(ir: str) -> Any:
    global compiled
    import llvmlite.binding as llvm
    machine = _machine()
    compiled += 1
    head = f'target triple = "{llvm.get_default_triple()}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + ir + _TAIL, llvm.create_context())
    module.verify()
    return module


def load(data: bytes, names: tuple[str, ...], label: str) -> dict[str, int]:
    """Makes an object file's code callable: addresses of its functions `names`.  label: tells modules apart."""
    if sys.platform == "linux":
        try:
            found, memory = elf.load(data, address_of)
        except elf.Unsupported:
            pass
        else:
            _keep.append(lasting.keep(memory))
            return {n: found[n] for n in names}
    return _load_by_orc(data, names, label)


def address_of(name: str) -> int:
    """The address of a function of this process, of the Python library or of the C libraries."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise RuntimeError(f"a kernel calls {name}, which is in none of the C libraries of this process")


_opened: list[Any] = []


def _libraries() -> list[Any]:
    if not _opened:
        _opened.extend((ctypes.pythonapi, ctypes.CDLL(None)))
        for extra in ("libm.so.6", "libgcc_s.so.1"):
            try:
                _opened.append(ctypes.CDLL(extra))
            except OSError:
                pass
    return _opened


def _load_by_orc(data: bytes, names: tuple[str, ...], label: str) -> dict[str, int]:
    global _orc
    import llvmlite.binding as llvm
    if _orc is None:
        _machine()
        _orc = lasting.keep(llvm.create_lljit_compiler(llvm.Target.from_default_triple().create_target_machine(jit=True)))
    builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
    for s in names:
        builder.export_symbol(s)
    linked = builder.link(_orc, f"{label}.{len(_keep)}")
    _keep.append(lasting.keep(linked))
    return {s: linked[s] for s in names}
