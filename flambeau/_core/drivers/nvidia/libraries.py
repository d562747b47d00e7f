"""NVIDIA's libraries: where they are, what brings them, and what becomes of their errors.

They come as packages, which lie beside each other in the folder `nvidia`, or from the system.  Those that can be done without are
said once to be missing.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import warn
from . import cuda_errors

if TYPE_CHECKING:
    from .driver import NvidiaDriver
    from .streams import Stream


class Known(NamedTuple):
    """name: NVIDIA's.  files: by what name it is loaded, newest CUDA first.  folders: in the folder of packages.  package: the
    distribution that holds it.  extra: of ours, which brings it.  work: what it does.  without: what does that otherwise."""

    name: str
    files: tuple[str, ...]
    folders: tuple[str, ...]
    package: str
    extra: str
    work: str
    without: str


KNOWN = {
    "nvrtc": Known("NVRTC", ("libnvrtc.so.13", "libnvrtc.so.12"), ("cu13/lib", "cuda_nvrtc/lib"), "nvidia-cuda-nvrtc", "cuda",
                   "compiling kernels", ""),
    "cublasLt": Known("cuBLASLt", ("libcublasLt.so.13", "libcublasLt.so.12"), ("cu13/lib", "cublas/lib"), "nvidia-cublas", "cuda",
                      "matrix products", ""),
    "cublas": Known("cuBLAS", ("libcublas.so.13", "libcublas.so.12"), ("cu13/lib", "cublas/lib"), "nvidia-cublas", "cuda",
                    "triangular equations", "the host on copies"),
    "cudnn": Known("cuDNN", ("libcudnn.so.9",), ("cudnn/lib",), "nvidia-cudnn-cu13", "cuda-dnn", "convolutions",
                   "columns by generated kernels, products by cuBLASLt"),
    "cufft": Known("cuFFT", ("libcufft.so.12", "libcufft.so.11"), ("cu13/lib", "cufft/lib"), "nvidia-cufft", "cuda-fft", "Fourier transforms",
                   "the host on copies"),
    "cusolver": Known("cuSOLVER", ("libcusolver.so.12", "libcusolver.so.11"), ("cu13/lib", "cusolver/lib"), "nvidia-cusolver", "cuda-math",
                      "factorizations of matrices", "the host on copies"),
    "nccl": Known("NCCL", ("libnccl.so.2",), ("nccl/lib",), "nvidia-nccl-cu13", "cuda-dist", "collectives", "the host on copies"),
}
_told: set[str] = set()


def find(name: str) -> str:
    """The path of a library among the installed packages, or its bare name for the system to find."""
    from importlib import util
    known = KNOWN[name]
    spec = util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for part in known.folders:
            for file in known.files:
                path = os.path.join(folder, part, file)
                if os.path.exists(path):
                    return path
    return known.files[0]


def load(name: str) -> ctypes.CDLL:
    """The library.  Raises OSError where there is none."""
    path = find(name)
    if os.path.isabs(path):
        return ctypes.CDLL(path)
    for file in KNOWN[name].files[:-1]:
        try:
            return ctypes.CDLL(file)
        except OSError:
            pass
    return ctypes.CDLL(KNOWN[name].files[-1])


def optional(name: str) -> ctypes.CDLL | None:
    """The library; None where there is none, which is said once."""
    try:
        return load(name)
    except OSError as error:
        if name not in _told:
            _told.add(name)
            known = KNOWN[name]
            warn(f"{known.work} on NVIDIA GPUs: {known.name} cannot be loaded, so {known.without} does them, which is slow. "
                 f"pip install 'flambeau[{known.extra}]' ({error})")
        return None


def check(driver: NvidiaDriver, device: int, stream: Stream | None, code: int, name: str, what: str, texts: dict[int, str]) -> None:
    """Raises what a library's status means: the device's own error where that is the cause."""
    if not code:
        return
    driver._use(device)
    if stream is not None:
        last, = driver._cu.cuStreamQuery(stream.handle)
        if int(last) in cuda_errors.STICKY:
            raise driver._devices[device].state.fail(last, what)
    raise RuntimeError(f"{KNOWN[name].name}, {what}: {texts.get(code, 'error')} (status {code})")


def numbers(kind: Any, values: Any) -> Any:
    """A C array."""
    return (kind * len(values))(*values)
