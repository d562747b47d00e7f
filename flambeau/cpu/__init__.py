"""The CPU as a device (torch.cpu): one, always there, with nothing to wait for."""

from __future__ import annotations

import functools
import platform
import types
from collections.abc import Mapping
from typing import Any


def is_available() -> bool:
    """True: the CPU is always there."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is only one."""


def synchronize(device: Any = None) -> None:
    """Work on the CPU is done when its call returns."""


class Stream:
    """Accepted for code written for any device."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """There is nothing to wait for."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


def current_stream(device: Any = None) -> Stream:
    """The one stream there is."""
    return Stream()


class Event:
    """Accepted for code written for any device: it has always happened."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """There is nothing to mark."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """There is nothing to wait for."""


class StreamContext:
    """A ``with`` block in which a stream would be current: it changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def stream(stream: Any) -> Any:
    """A ``with`` block that changes nothing."""
    return Stream() if stream is None else stream


def is_initialized() -> bool:
    """True."""
    return True


# what Linux calls what this CPU can do, where PyTorch calls it otherwise
_FLAGS = {"pni": "sse3", "abm": "lzcnt", "bmi1": "bmi",
          "fma": "fma3", "sha_ni": "sha", "asimd": "neon", "asimdhp": "fp16_arith", "asimddp": "dot", "asimdfhm": "fhm",
          "asimdrdm": "rdm", "svebf16": "sve_bf16", **{f"avx512{x}": f"avx512_{x}" for x in "f cd dq bw vl ifma vbmi".split()}}
_TOLD = {"x86_64": """sse sse2 sse3 ssse3 sse4_1 sse4_2 sse4a avx avx2 avx_vnni avx512_f avx512_cd avx512_dq avx512_bw avx512_vl avx512_ifma avx512_vbmi
 avx512_vbmi2 avx512_bitalg avx512_vpopcntdq avx512_vnni avx512_bf16 avx512_fp16 avx512_vp2intersect avx512_4vnniw avx512_4fmaps avx_vnni_int8
 avx_vnni_int16 avx_ne_convert amx_bf16 amx_tile amx_int8 amx_fp16 fma3 fma4 f16c bmi bmi2 popcnt lzcnt aes sha clflush clflushopt clwb""",
         "aarch64": "neon fp16_arith bf16 i8mm dot sve sve2 sve_bf16 sme sme2 atomics fhm rdm crc32 aes sha1 sha2 pmull"}


@functools.cache
def get_capabilities() -> Mapping[str, Any]:
    """What this CPU can do: "architecture", and for each instruction set that PyTorch names whether it is there, as Linux tells; it cannot be changed."""
    architecture = platform.machine()
    found: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    found = {_FLAGS.get(word, word) for word in value.split()}
                    break
    except OSError:
        pass
    return types.MappingProxyType({"architecture": architecture, **{name: name in found for name in _TOLD.get(architecture, "").split()}})


def __getattr__(name: str) -> Any:
    if name == "amp":
        import importlib
        return importlib.import_module(".amp", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Event", "Stream", "StreamContext", "get_capabilities", "is_initialized",
           "current_device", "current_stream", "device_count", "is_available", "set_device", "stream", "synchronize"]
