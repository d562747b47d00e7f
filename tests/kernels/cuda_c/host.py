"""Generated CUDA C carried out on the CPU: built with g++, run by `host.cc`, its memory accesses checked.

Many kernels are built at once (`Batch`), since starting the compiler is what costs; what was built is kept by content.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from flambeau.kernels.cuda_c import Kernel

HERE = Path(__file__).resolve().parent
COMPILER = shutil.which("g++")
ORDERS = (0, 1, 7)  # ascending, descending, random


class LaunchError(AssertionError):
    """A kernel did what no kernel may; the message says what."""


@functools.cache
def missing() -> str:
    """Why kernels cannot be carried out here, or nothing."""
    if COMPILER is None:
        return "no g++ here"
    probe = "int main() { return (int)(_Float16)1.5f; }"
    done = subprocess.run([COMPILER, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"], input=probe, capture_output=True, text=True)
    return "" if done.returncode == 0 else "this g++ has no _Float16"


def _folder() -> Path:
    where = Path(tempfile.gettempdir()) / f"flambeau-host-kernels-{os.getuid()}"
    where.mkdir(mode=0o700, exist_ok=True)
    return where


def _flags() -> list[str]:
    try:
        fma = " fma " in Path("/proc/cpuinfo").read_text()
    except OSError:
        fma = False
    # as on the device, products and additions are fused wherever the text allows it
    return ["-std=c++17", "-fPIC", "-w", "-ffp-contract=fast", *(["-mfma"] if fma else [])]


def _adapted(source: str) -> str:
    """The text with its shared arrays handed out by the harness, and a plain function beside each kernel."""
    site = iter(range(1, 1 << 20))
    source = re.sub(
        r"__shared__ (.+?) (\w+)\[([^\]]+)\];",
        lambda m: f"{m[1]}* const {m[2]} = ({m[1]}*)host_shared({next(site)}, sizeof({m[1]}) * ({m[3]}));", source)
    names = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(const Args a\)', source)
    extra = "".join(f'\nextern "C" __attribute__((no_sanitize("thread"))) void host_{n}(const unsigned long long* w) '
                    f"{{ Args a; memcpy(&a, w, sizeof a); {n}(a); }}" for n in names)
    return source + extra + "\n"


def _build(text: str, flags: list[str], parts: list[Path]) -> Path:
    """The object file of this text, or the library if there are parts to link it with."""
    assert COMPILER is not None
    stamp = hashlib.sha256("\0".join([text, *flags, *map(str, parts), (HERE / "host.h").read_text()]).encode()).hexdigest()[:24]
    ending = ".so" if parts else ".o"
    out = _folder() / (stamp + ending)
    if not out.exists():
        aside = out.with_suffix(f".{os.getpid()}{ending}")
        how = ["-shared", "-Wl,--no-undefined"] if parts else ["-c"]
        done = subprocess.run([COMPILER, *flags, *how, f"-I{HERE}", "-x", "c++", "-", "-x", "none", *map(str, parts), "-o", str(aside)],
                              input=text, capture_output=True, text=True)
        if done.returncode:
            raise LaunchError(f"g++ rejects the kernel:\n{done.stderr[:4000]}")
        aside.replace(out)
    return out


class Batch:
    """Kernels built together."""

    def __init__(self, kernels: list[Kernel], checked: bool = True) -> None:
        self.checked = checked
        sources = {k.key: k.source for k in kernels if k.source}
        text = '#include "host.h"\n' + "".join(f"namespace k{key} {{\n#line 1\n{_adapted(source)}}}\n" for key, source in sources.items())
        runtime = _build((HERE / "host.cc").read_text(), ["-std=c++17", "-O2", "-fPIC", "-U_FORTIFY_SOURCE"], [])
        made = _build(text, [*_flags(), "-O1", *(["-fsanitize=thread"] if checked else [])], [runtime]) if not checked else self._checked(text, runtime)
        self.library = ctypes.CDLL(str(made))
        self.library.host_launch.restype = ctypes.c_char_p

    @staticmethod
    def _checked(text: str, runtime: Path) -> Path:
        # linked apart: with the flag the linker would bring the sanitizer's own run-time library
        part = _build(text, [*_flags(), "-O1", "-fsanitize=thread"], [])
        return _build("", _flags(), [part, runtime])

    def launch(self, kernel: Kernel, memory: list[np.ndarray], args: list[Any], order: int = 0) -> None:
        """Carries out the kernel; `memory` holds every byte it may touch.  Raises LaunchError for what it may not do."""
        memory = list(memory)
        if kernel.workspace:
            work = np.full(kernel.workspace + 256, 0xFF, np.uint8)  # NaN bytes
            start = -work.ctypes.data % 256
            work = work[start:start + kernel.workspace]
            memory.append(work)
            at = kernel.arguments.index("P", 0) + kernel.arguments.count("P") - 1
            args = [*args[:at], work.ctypes.data, *args[at:]]
        words = np.frombuffer(kernel.pack(*args), np.uint64)
        spans = np.array([[m.ctypes.data, m.nbytes] for m in memory if m.nbytes] or [[0, 0]], np.uint64)
        for name, grid, block, shared in kernel.launches:
            assert shared == 0, "the harness knows static shared memory only"
            error = self.library.host_launch(getattr(self.library, "host_" + name), words.ctypes.data_as(ctypes.c_void_p), (ctypes.c_uint * 3)(*grid),
                                             (ctypes.c_uint * 3)(*block), spans.ctypes.data_as(ctypes.c_void_p), len(spans), order, int(self.checked))
            if error:
                raise LaunchError(f"{name}: {error.decode()}")
