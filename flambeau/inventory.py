"""What `flambeau info` tells: the devices, the library that serves each kind of work, versions and caches.

Nothing here starts a GPU or compiles a kernel, and a part that cannot be told is told as such: a report that fails on
a broken machine is of no use on it.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import flambeau

PACKAGES = ("numpy", "llvmlite", "scipy-openblas64", "rich", "scipy", "onednn-cpu-gomp", "cuda-bindings",
            "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-cusolver",
            "nvidia-nccl-cu13")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_CORETYPE", "PYTORCH_CUDA_ALLOC_CONF",
             "PYTORCH_ALLOC_CONF")  # beside all of our own


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def size(nbytes: int) -> str:
    """A number of bytes for people: '512 B', '1.5 MiB', '141.0 GiB'."""
    amount, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{nbytes} B" if unit == "B" else f"{amount:.1f} {unit}"


def cpu() -> dict[str, Any]:
    """The CPU: its name, the CPUs this process may use, our threads and the memory of the machine."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"device": "cpu", "name": name, "cpus": usable, "threads": flambeau.get_num_threads(), "memory": memory}


def gpus() -> list[dict[str, Any]]:
    """The GPUs a program would see, real or simulated. Asking starts none of them."""
    from flambeau import cuda

    found = []
    for index in range(cuda.device_count()):
        properties = cuda.get_device_properties(index)
        found.append(
            {
                "device": f"cuda:{index}",
                "name": properties.name,
                "kind": "simulated" if getattr(properties, "simulated", False) else "real",
                "memory": properties.total_memory,
                "capability": f"compute capability {properties.major}.{properties.minor}",
            }
        )
    return found


def why_no_gpu() -> str:
    """Why `cuda.is_available()` is False, with what this machine shows of NVIDIA hardware; empty when it is True."""
    from flambeau._core.runtime import gpus as system

    reason = system.why_none()
    return f"{reason} ({hardware()})" if reason else ""


def hardware(root: str = "/") -> str:
    """What of an NVIDIA GPU the operating system shows: its device files, its kernel driver, its library."""
    import glob
    from ctypes.util import find_library

    cards = sorted(p for p in glob.glob(os.path.join(root, "dev/nvidia[0-9]*")))
    version = ""
    try:
        with open(os.path.join(root, "proc/driver/nvidia/version"), encoding="utf-8", errors="replace") as lines:
            version = next((word for word in lines.readline().split() if word[:1].isdigit() and "." in word), "of unknown version")
    except OSError:
        pass
    library = find_library("cuda") is not None
    if not (cards or version or library):
        return "no NVIDIA device, driver or libcuda on this machine"
    return ", ".join((
        f"{len(cards)} NVIDIA device files" if cards else "no /dev/nvidia* files: was the container started with GPUs?",
        f"kernel driver {version}" if version else "no NVIDIA kernel driver loaded",
        "libcuda found" if library else "libcuda.so.1 not found: the driver's user part is missing"))


def nvidia() -> dict[str, str]:
    """The NVIDIA driver, and what serves each kind of work on its GPUs: the library, or what to install, or the way it goes
    without. Empty where there is no driver; no GPU is begun."""
    from flambeau._core.drivers.nvidia import cudnn, cudnn_attention, probe
    from flambeau._core.drivers.nvidia import libraries as libraries_there
    from flambeau._core.drivers.nvidia.libraries import KNOWN as known

    found = probe.look()
    if not found.version:
        return {}
    served = {"driver": f"speaks CUDA {probe.text(found.version)}, {found.count} GPUs" + (f"; not usable: {found.why}" if found.why else "")}
    served["kernels"] = f"generated CUDA C, compiled by {_nvidia_library('nvrtc')}"
    served["matrix products"] = _nvidia_library("cublasLt")
    dnn = cudnn.version()
    named = "" if dnn is None else f"cuDNN {dnn // 10000}.{dnn // 100 % 100}.{dnn % 100}"
    said = named and f"{named}, {libraries_there.find('cudnn')}"
    served["convolutions"] = said or _nvidia_library("cudnn")
    why = cudnn_attention.why_not(dnn) + (f": pip install 'flambeau[{known['cudnn'].extra}]'" if dnn is None else "")
    served["attention"] = f"kernels of our own ({why})" if why else (
        f"{named}'s graphs for large ones of 16-bit floats; kernels of our own for float32, masks, dropout and what is small")
    served["attention"] += "; products by cuBLASLt and generated softmax for float64 and depths over 256"
    served["sort, topk, unique"] = "kernels of our own"
    for name in ("cufft", "cusolver", "cublas", "nccl"):
        served[known[name].work] = _nvidia_library(name)
    return served


def _nvidia_library(name: str) -> str:
    """A library with its version and path; or what does its work without it, and what to install."""
    from flambeau._core.drivers.nvidia import libraries

    known = libraries.KNOWN[name]
    path = libraries.find(name)
    if not os.path.isabs(path):
        try:
            libraries.load(name)
        except OSError:
            return f"{known.without or 'nothing'} ({known.name} is not installed: pip install 'flambeau[{known.extra}]')"
        return f"{known.name}, {path} of the system"
    version = _version(known.package) or _version(known.package + "-cu12")
    return f"{known.name} {version}, {path}" if version else f"{known.name}, {path}"


def libraries() -> dict[str, str]:
    """Which library serves what."""
    served = {"pointwise, reductions, rows, random": _kernels()}
    served["float matmul, linear algebra"] = _openblas()
    served["16-bit matmul"] = _onednn()
    served["integer matmul"] = "generated kernels"
    return served


def _onednn() -> str:
    from flambeau._core.drivers.cpu import onednn

    found = onednn.library()
    if found is not None:
        return f"oneDNN {found.version} where this CPU has such instructions, else widened for OpenBLAS"
    return f"widened to float32 for OpenBLAS (oneDNN: {onednn.why()})"


def _kernels() -> str:
    if os.environ.get("FLAMBEAU_KERNELS") == "interpret":
        return "the NumPy interpreter (FLAMBEAU_KERNELS=interpret): slow"
    return f"generated by llvmlite {_version('llvmlite')}"


def _openblas() -> str:
    from flambeau._core.drivers.cpu import blas

    try:
        configuration = blas.configuration()
    except ImportError:
        return "none (scipy-openblas64 is not installed)"
    return f"{configuration.split(' NO_')[0]} ({configuration.split()[-2] if ' ' in configuration else 'unknown'} code)"


def kernel_cache() -> dict[str, Any]:
    """The folder of compiled kernels, how many it holds and their bytes, and whether those of usual programs were made ahead."""
    from flambeau._core.kernels import cache
    from flambeau.warm import behind

    count, nbytes = cache.held()
    return {"folder": cache.folder(), "kernels": count, "bytes": nbytes, "limit": cache.MAX_BYTES, "unused": cache.why_not(), "ahead": behind.state()}


def collect() -> dict[str, Any]:
    """Everything, as plain values; a part that failed is the text of its error."""

    def attempt(part: Callable[[], Any]) -> Any:
        try:
            return part()
        except Exception as error:
            return f"cannot be told: {type(error).__name__}: {error}"

    return {
        "flambeau": flambeau.__version__,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "cpu": attempt(cpu),
        "gpus": attempt(gpus),
        "why no gpu": attempt(why_no_gpu),
        "libraries": attempt(libraries),
        "nvidia": attempt(nvidia),
        "packages": {package: _version(package) for package in PACKAGES},
        "kernel cache": attempt(kernel_cache),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name in VARIABLES or name.startswith("FLAMBEAU_")},
    }


def show(as_json: bool = False) -> None:
    """Prints what `collect` tells, as tables or as JSON."""
    facts = collect()
    if as_json:
        import json

        print(json.dumps(facts, indent=2))
        return
    rows: list[tuple[str, str]] = []

    def row(name: str, value: str) -> None:
        rows.append((name, value))

    row("flambeau", f"{facts['flambeau']} (Python {facts['python']}, {facts['system']})")
    it = facts["cpu"]
    row("cpu", it if isinstance(it, str) else
        f"{it['name']}: {it['threads']} threads on {it['cpus']} CPUs, {size(it['memory'])}")  # fmt: skip
    found = facts["gpus"]
    if isinstance(found, str):
        row("cuda", found)
    for gpu in found if isinstance(found, list) else ():
        row(gpu["device"], f"{gpu['name']} ({gpu['kind']}), {gpu['capability']}, {size(gpu['memory'])}")
    if found == []:
        row("cuda", f"no GPU: {facts['why no gpu']}. For simulated ones: flambeau.simulate(gpus=1), or FLAMBEAU_SIM_GPUS=1 in the environment")
    served = facts["libraries"]
    for work, library in served.items() if isinstance(served, dict) else (("libraries", served),):
        row(work, library)
    served = facts["nvidia"]
    for work, library in served.items() if isinstance(served, dict) else (("all", served),):
        row(f"nvidia: {work}", library)
    row("packages", ", ".join(f"{name} {version or '(not installed)'}" for name, version in facts["packages"].items()))
    it = facts["kernel cache"]
    row("kernel cache", it if isinstance(it, str) else
        f"{it['folder']}: {it['kernels']} kernels, {size(it['bytes'])} of at most {size(it['limit'])}"
        + (f"; not used: {it['unused']}" if it["unused"] else f"; those of usual programs: {it['ahead']}"))  # fmt: skip
    row("environment", ", ".join(f"{name}={value}" for name, value in facts["environment"].items()) or "nothing set")
    if not sys.stdout.isatty():  # for a file or another program: a line each, as long as it is
        width = max(len(name) for name, _ in rows)
        print("\n".join(f"{name:{width}}  {value}" for name, value in rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    Console(highlight=False, markup=False, soft_wrap=False).print(table)  # no markup: "[cuda]" is to be read
