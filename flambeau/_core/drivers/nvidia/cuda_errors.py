"""Results of the driver's calls as exceptions, and faults that end a device.

After some faults (an illegal address, a failed launch, a lost device) every later call on the device's context fails with the
same code until the process ends.  The first one is what matters: it is kept, and every later error repeats it.
"""

from __future__ import annotations

from typing import Any

from ...errors import AcceleratorError

OUT_OF_MEMORY, NOT_READY, PEER_ENABLED, INVALID_CONTEXT, CONTEXT_DESTROYED, INVALID_HANDLE = 2, 600, 704, 201, 709, 400
ELSEWHERE = (INVALID_CONTEXT, CONTEXT_DESTROYED, INVALID_HANDLE)  # another context is current in this thread, or none
LOST = frozenset((46, 101, 709, 999))
# what the CUDA driver API's page of CUresult says leaves the context in a state in which it must be destroyed
STICKY = frozenset((214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721)) | LOST
HELP = {
    700: "a kernel touched memory that is not the device's own",
    702: "a kernel ran longer than the display driver allows",
    719: "a kernel failed while it ran",
    220: "the link between GPUs failed",
    214: "the device's memory has an error that could not be corrected",
    46: "the device is lost, or another process has it to itself",
    999: "the device is lost, or the driver has failed",
    209: "the kernel was compiled for another architecture",
    222: "the driver is older than the compiler of the kernels",
    35: "the driver is older than what was installed with flambeau",
}


class State:
    """Whether a device still works; `first` is what ended it."""

    __slots__ = ("device", "first")

    def __init__(self, device: int) -> None:
        self.device = device
        self.first = ""

    @property
    def dead(self) -> bool:
        return bool(self.first)

    def fail(self, code: Any, what: str) -> AcceleratorError:
        """The error for a result; `what` was being done.  Kept where the device is done for."""
        n = int(code)
        if self.first:
            return AcceleratorError(f"CUDA error on GPU {self.device}: it is unusable until the process ends, since: {self.first}")
        said = f"{describe(n)}, reported by {what}"
        if n in STICKY:
            self.first = said
            return AcceleratorError(f"CUDA error on GPU {self.device}: {said}. It may come from any work queued before: with CUDA_LAUNCH_BLOCKING=1 "
                                    "the error comes at the line that launched it. The device is unusable until the process ends")
        return AcceleratorError(f"CUDA error on GPU {self.device}: {said}")


def describe(code: int) -> str:
    """The driver's name and words for a code, and ours where they help."""
    from cuda.bindings import driver as cu
    try:
        result = cu.CUresult(code)
        name, words = cu.cuGetErrorName(result)[1], cu.cuGetErrorString(result)[1]
    except ValueError:
        name = words = None
    told = f"{name.decode() if name else 'error'} ({code})"
    known = HELP.get(code) or (words.decode() if words else "")
    return f"{told}: {known}" if known else told
