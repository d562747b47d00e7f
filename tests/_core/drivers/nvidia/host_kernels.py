"""The fake libraries, built by g++, and generated kernels as shared objects that the fake libcuda runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests._core.kernels.cuda_c import build

HERE = Path(__file__).parent
GXX = build.COMPILER
_LIBRARIES = (("libcuda.so.1", "fake_cuda.cc", ()), ("libnvidia-ml.so.1", "fake_cuda.cc", ("-DFAKE_NVML",)),
              ("libcublasLt.so.13", "fake_blaslt.cc", ()), ("libcudnn.so.9", "fake_cudnn.cc fake_cudnn_graph.cc", ()), ("libcufft.so.12", "fake_cufft.cc", ()),
              ("libcusolver.so.12", "fake_cusolver.cc", ()),
              ("libcublas.so.13", "fake_cusolver.cc", ("-DFAKE_CUBLAS",)),
              ("libnccl.so.2", "fake_nccl.cc", ()))
_FLAGS = ["-std=c++20", "-O1", "-fPIC", "-w"]


def contraction() -> list[str]:
    """Whether products and additions become one, as NVIDIA's compiler has it: where FAKE_CONTRACT is set, and off for the sake of exact answers."""
    return ["-ffp-contract=fast", "-mfma", "-fexpensive-optimizations"] if os.environ.get("FAKE_CONTRACT") else ["-ffp-contract=off"]

_BOUNDS = re.compile(r"__launch_bounds__\((\d+)[^)]*\) (\w+)\(")
folder = build.folder


def libraries() -> dict[str, Path]:
    """The fake libraries by name."""
    return {name: build.build("".join((HERE / part).read_text() for part in file.split()), [*_FLAGS, f"-Wl,-soname,{name}", *options], ".so", (), name)
            for name, file, options in _LIBRARIES}


def compile(source: str, arch: str) -> bytes:  # noqa: A001
    """What the fake libcuda loads in place of a cubin."""
    names = build.functions(source)
    assert names, source
    plain = int(not build.waits(source))
    bounds = {name: threads for threads, name in _BOUNDS.findall(source)}
    runs = "".join(f"""
extern "C" {{ extern const int bytes_{n}; const int bytes_{n} = sizeof(Args);
extern const unsigned threads_{n}; const unsigned threads_{n} = {bounds.get(n, 1024)};
int run_{n}(const void *p, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared) {{
  const unsigned grid[] = {{gx, gy, gz}}, block[] = {{bx, by, bz}};
  return host_tell("{n}", host_launch(host_{n}, (const unsigned long long*)p, grid, block, nullptr, 0, 0, 0, shared, {plain})); }} }}""" for n in names)
    text = f'#include "host.h"\n#line 1 "kernel.cu"\n{build.adapted(source)}\n{runs}\n'
    path = build.build(text, [*build.KERNEL, *contraction()], ".so", (build.runtime(".so"),))
    return b"FAKECUDA:" + arch.encode() + b":" + str(path).encode() + b"\0"
