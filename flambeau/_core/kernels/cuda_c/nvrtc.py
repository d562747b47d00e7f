"""CUDA C to machine code of a GPU, by NVRTC, through the disk cache of kernels.

It needs the packages cuda-bindings and nvidia-cuda-nvrtc, and neither a driver nor a GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .. import cache

if TYPE_CHECKING:
    from collections.abc import Sequence

# 177: a constant that is never used; the compiler drops those.  minimal: without textures, `new` and launches by kernels, of which nothing is used here;
# what declares them takes longer to read than most kernels
OPTIONS = ("--std=c++17", "--diag-suppress=177", "--minimal")
_version = ""
_nvrtc: Any = None


class CompileError(RuntimeError):
    """NVRTC rejected a kernel; the message holds its log."""


def compile(source: str, arch: str) -> bytes:  # noqa: A001
    """The cubin of `source` for `arch` ("sm_90"), from disk if it was made before.

    Raises ImportError where NVRTC is missing, CompileError where it rejects the text.
    """
    return cache.get(cache.key("cubin", version(), arch, *OPTIONS, source), lambda: build(source, arch)[0])


def version() -> str:
    """NVRTC's version, such as "13.5"."""
    global _version
    if not _version:
        nvrtc = _library()
        _version = "{}.{}".format(*_check(None, *nvrtc.nvrtcVersion()))
    return _version


def build(source: str, arch: str, extra: Sequence[str] = ()) -> tuple[bytes, str]:
    """The cubin, made anew, and the compiler's log."""
    nvrtc = _library()
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise ValueError(f"compile: arch is {arch!r}; it takes a name such as 'sm_90'")
    (program,) = _check(None, *nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
    try:
        options = [o.encode() for o in (*OPTIONS, f"--gpu-architecture={arch}", *extra)]
        error = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        (size,) = _check(None, *nvrtc.nvrtcGetProgramLogSize(program))
        log = bytearray(size)
        _check(None, *nvrtc.nvrtcGetProgramLog(program, log))
        text = bytes(log).rstrip(b"\0").decode(errors="replace")
        _check(text, error)
        (size,) = _check(text, *nvrtc.nvrtcGetCUBINSize(program))
        cubin = bytearray(size)
        _check(text, *nvrtc.nvrtcGetCUBIN(program, cubin))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return bytes(cubin), text


def _check(log: str | None, error: Any, *rest: Any) -> tuple[Any, ...]:
    if error.value:
        raise CompileError(f"NVRTC: {error.name}" + (f"\n{log}" if log else ""))
    return rest


def _library() -> Any:
    global _nvrtc
    if _nvrtc is None:
        try:
            from cuda.bindings import nvrtc
        except ImportError as e:
            raise ImportError("compiling CUDA C needs cuda-bindings and nvidia-cuda-nvrtc: pip install flambeau[cuda]") from e
        _nvrtc = nvrtc
    return _nvrtc
