"""What NVIDIA hardware is there, found out without using it.

Looking loads the driver's library but does not initialise it: a process that only asked how many GPUs there are may still
fork.  The count comes from NVML, the driver's management library; where that is absent, looking has to initialise the driver.
"""

from __future__ import annotations

import ctypes
import os

_LEAST = 12000  # the oldest CUDA this can speak with, in the driver's own numbering
_NO_DEVICE = 100


class Found:
    """What looking found: `count` GPUs before any rule of visibility with their `uuids` (None: not known without
    initialising), the CUDA `version` of the driver, and `why` there is none to use (empty when there is one)."""

    __slots__ = ("count", "uuids", "version", "why")

    def __init__(self, count: int, uuids: list[str] | None, version: int, why: str) -> None:
        self.count, self.uuids, self.version, self.why = count, uuids, version, why


def look() -> Found:
    """Never raises; a few milliseconds at most where there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError:
        return Found(0, None, 0, "there is no NVIDIA driver here: libcuda.so.1 cannot be loaded")
    version = ctypes.c_int(0)
    try:
        cuda.cuDriverGetVersion(ctypes.byref(version))
    except AttributeError:
        return Found(0, None, 0, "libcuda.so.1 is not an NVIDIA driver's: it has no cuDriverGetVersion")
    installed = bindings_version()
    if installed is None:
        return Found(0, None, version.value, "there is an NVIDIA driver, but not what flambeau drives it with: pip install 'flambeau[cuda]'")
    least = max(_LEAST, 1000 * int(installed.split(".")[0]))
    if version.value < least:
        return Found(0, None, version.value, f"the NVIDIA driver is too old: it speaks CUDA {text(version.value)}, and cuda-bindings {installed} "
                                             f"needs CUDA {text(least)} or newer. Update the driver, or install cuda-bindings of its major version")
    uuids = _by_nvml()
    if uuids is None:
        return _by_initialising(cuda, version.value)
    return Found(len(uuids), uuids, version.value, "" if uuids else "the NVIDIA driver is there but sees no GPU")


def bindings_version() -> str | None:
    """The version of cuda-bindings; None where it is not installed."""
    from importlib import metadata  # ten times as dear as all the rest here, and of no use where there is no driver
    try:
        return metadata.version("cuda-bindings")
    except metadata.PackageNotFoundError:
        return None


def text(version: int) -> str:
    """13000 as "13.0"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _by_nvml() -> list[str] | None:
    """The identities of all GPUs without "GPU-"; None where the management library cannot tell."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None
    except (OSError, AttributeError):
        return None
    count, handle, buffer = ctypes.c_uint(0), ctypes.c_void_p(), ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    found = []
    for i in range(count.value):
        if nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) or nvml.nvmlDeviceGetUUID(handle, buffer, len(buffer)):
            return None  # one of them is lost, or not ours to see: the driver itself must say
        found.append(buffer.value.decode().removeprefix("GPU-"))
    return found


def _by_initialising(cuda: ctypes.CDLL, version: int) -> Found:
    code, count = cuda.cuInit(0), ctypes.c_int(0)
    if not code:
        code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code == _NO_DEVICE or not code and not count.value:
        return Found(0, None, version, "the NVIDIA driver is there but sees no GPU")
    if code:
        return Found(0, None, version, f"the NVIDIA driver does not start: cuInit gave {_error_name(cuda, code)}")
    return Found(count.value, None, version, "")


def _error_name(cuda: ctypes.CDLL, code: int) -> str:
    name = ctypes.c_char_p()
    if cuda.cuGetErrorName(code, ctypes.byref(name)) or not name.value:
        return f"error {code}"
    return f"{name.value.decode()} ({code})"
