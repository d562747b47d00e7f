"""CUDA C built with g++ for `host.cc`, and what was built kept by content.  Nothing of the package is imported."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILER = shutil.which("g++")
RUNTIME = ["-std=c++17", "-O2", "-fPIC", "-U_FORTIFY_SOURCE"]
KERNEL = ["-std=c++17", "-nostdinc++", "-fPIC", "-w", "-O1"]
_FUNCTION = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(const (?:__grid_constant__ )?Args \w+\)')
_SHARED = re.compile(r"(extern )?__shared__ ((?:__align__\(\w+\) )?)([^;]+?)\s*(\w+)((?:\[[^\];]*\])*);")


class BuildError(AssertionError):
    """g++ rejects a kernel; the message holds its words."""


@functools.cache
def missing() -> str:
    """Why kernels cannot be carried out here, or nothing."""
    if COMPILER is None:
        return "no g++ here"
    probe = "int main() { return (int)(_Float16)1.5f; }"
    done = subprocess.run([COMPILER, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"], input=probe, capture_output=True, text=True)
    return "" if done.returncode == 0 else "this g++ has no _Float16"


def folder() -> Path:
    """Where what was built is kept."""
    where = Path(tempfile.gettempdir()) / f"flambeau-host-kernels-{os.getuid()}"
    where.mkdir(mode=0o700, exist_ok=True)
    return where


@functools.cache
def _headers() -> str:
    return (HERE / "host.h").read_text() + (HERE / "traffic.h").read_text()


def build(text: str, flags: list[str], ending: str = ".o", parts: tuple[Path, ...] = (), name: str = "") -> Path:
    """The object file or shared library (ending ".so", of `parts` too) of this text."""
    assert COMPILER is not None
    stamp = hashlib.sha256("\0".join([text, *flags, ending, *map(str, parts), _headers()]).encode()).hexdigest()[:24]
    home = folder()
    if name:
        home /= stamp
        home.mkdir(exist_ok=True)
    out = home / (name or stamp + ending)
    if not out.exists():
        aside = out.with_name(f"{out.name}.{os.getpid()}")
        how = ["-c"] if ending == ".o" else ["-shared"] if name else ["-shared", "-Wl,--no-undefined"]
        command = [COMPILER, *flags, *how, f"-I{HERE}", "-x", "c++", "-", "-x", "none", *map(str, parts), "-o", str(aside), *(["-ldl"] if name else [])]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"g++ rejects the kernel:\n{done.stderr[:4000]}")
        aside.replace(out)
    return out


def runtime(ending: str = ".o") -> Path:
    """`host.cc`, to be linked with kernels: an object file, or a library that many share."""
    return build((HERE / "host.cc").read_text(), RUNTIME, ending)


def functions(source: str) -> list[str]:
    """The names of the kernels in a text."""
    return _FUNCTION.findall(source)


def waits(source: str) -> bool:
    """Whether a thread may wait for others."""
    return re.search(r"_sync|__sync|__shared__|mma_|load_matrices|copy_async", source) is not None


def adapted(source: str) -> str:
    """The text with its shared arrays handed out by the harness, and a plain function beside each kernel."""
    site = iter(range(1, 1 << 20))

    def handed(m: re.Match[str]) -> str:
        outer, align, kind, name, extents = m.groups()
        if "," in re.sub(r"<[^>]*>", "", kind):
            raise BuildError(f"one shared array in a declaration, please: {m[0]}")
        if outer:
            return f"{kind}* const {name} = ({kind}*)host_dynamic();"
        bound = align.strip()[len("__align__("):-1] if align else "16"
        k = next(site)
        return (f"static const char host_site{k} = 0; typedef {kind} host_type{k}{extents}; "
                f"host_type{k}& {name} = *(host_type{k}*)host_shared(&host_site{k}, sizeof(host_type{k}), {bound});")
    source = _SHARED.sub(handed, source)
    extra = "".join(f'\nextern "C" __attribute__((no_sanitize("thread"))) void host_{n}(const unsigned long long* w) '
                    f"{{ Args a; memcpy(&a, w, sizeof a); {n}(a); }}" for n in functions(source))
    return source + extra + "\n"
