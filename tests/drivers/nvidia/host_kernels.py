"""The fake libraries, built by g++, and generated kernels as shared objects that the fake libcuda runs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GXX = shutil.which("g++")
_FUNCTION = re.compile(r'extern "C" __global__ void [^{;]*?(\w+)\(const Args a\) \{')
_LIBRARIES = (("libcuda.so.1", "fake_cuda.cc", ()), ("libnvidia-ml.so.1", "fake_cuda.cc", ("-DFAKE_NVML",)),
              ("libcublasLt.so.13", "fake_blaslt.cc", ()), ("libcudnn.so.9", "fake_cudnn.cc", ()), ("libcufft.so.12", "fake_cufft.cc", ()),
              ("libcusolver.so.12", "fake_cusolver.cc", ()), ("libcublas.so.13", "fake_cusolver.cc", ("-DFAKE_CUBLAS",)))


def folder() -> Path:
    """Where what was built is kept."""
    made = Path(tempfile.gettempdir()) / f"flambeau-fake-cuda-{os.getuid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    return made


def _build(to: Path, source: str, *options: str) -> None:
    """Compiles C++ and puts the result in its place at once, since several processes may do the same."""
    assert GXX is not None
    part = to.with_name(f"{to.name}.{os.getpid()}")
    done = subprocess.run([GXX, "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-x", "c++", "-", "-x", "none", "-o", str(part), *options],
                          input=source, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ rejected this:\n{done.stderr[:4000]}\n{source[:8000]}")
    os.replace(part, to)


def libraries() -> dict[str, Path]:
    """The fake libraries by name."""
    found = {}
    for name, file, options in _LIBRARIES:
        source = (HERE / file).read_text()
        home = folder() / hashlib.sha256((source + name).encode()).hexdigest()[:16]
        home.mkdir(exist_ok=True)
        if not (home / name).exists():
            _build(home / name, source, f"-Wl,-soname,{name}", *options, "-ldl")
        found[name] = home / name
    return found


def compile(source: str, arch: str) -> bytes:  # noqa: A001
    """What the fake libcuda loads in place of a cubin."""
    header = HERE / "host_kernels.h"
    key = hashlib.sha256((header.read_text() + source).encode()).hexdigest()[:24]
    path = folder() / f"{key}.so"
    if not path.exists():
        names = _FUNCTION.findall(source)
        assert names, source
        fibers = "true" if re.search(r"__sync|__shfl", source) else "false"
        runs = "".join(f"""
static void body_{n}(const void *p) {{ {n}(*(const Args *)p); }}
extern "C" {{ extern const int bytes_{n}; const int bytes_{n} = sizeof(Args);
int run_{n}(const void *p, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned) {{
  return host_run(body_{n}, p, Place{{gx, gy, gz}}, Place{{bx, by, bz}}, {fibers}); }} }}""" for n in names)
        text = source.replace('extern "C" __global__', "__global__")
        _build(path, f'#include "{header}"\n#line 1 "kernel.cu"\n{text}\n{runs}\n', "-nostdinc++", "-ffp-contract=off")
    return b"FAKECUDA:" + str(path).encode() + b"\0"
