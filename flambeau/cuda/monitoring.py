"""What a GPU is doing (torch.cuda.utilization and its like): from NVIDIA's management library on real ones, from the virtual clock on simulated ones."""

from __future__ import annotations

import importlib
import os
from typing import Any

from .._core.runtime import gpus, sync_debug


def nvml() -> Any:
    """NVIDIA's management library, begun.  Raises ModuleNotFoundError where its Python package is not installed."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("pynvml does not seem to be installed or it can't be imported: pip install nvidia-ml-py") from None
    pynvml.nvmlInit()
    return pynvml


def handle(library: Any, properties: Any) -> Any:
    """What the library calls a GPU: it counts them without CUDA_VISIBLE_DEVICES, so it is asked for one by its place in the machine."""
    where = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return library.nvmlDeviceGetHandleByPciBusId(where)


def _ask(device: Any, what: str, ask: Any) -> Any:
    """`ask(library, handle)` for a real GPU.  Raises RuntimeError for a simulated one, which has no such figure."""
    g = gpus.gpu(device)
    if g.driver.simulated:
        raise RuntimeError(f"{what}: {g.device} is simulated ({g.properties.name}) and has none; utilization and memory_usage are told of simulated GPUs")
    library = nvml()
    return ask(library, handle(library, g.properties))


def utilization(device: Any = None) -> int:
    """The percent of time in which kernels ran: over the library's last sample on a real GPU, over the last second of the virtual clock on a
    simulated one."""
    g = gpus.gpu(device)
    if g.driver.simulated:
        return g.driver.utilization(g.physical)[0]
    return int(_ask(device, "utilization", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu))


def memory_usage(device: Any = None) -> int:
    """The percent of time in which memory was read or written, as `utilization`; on a simulated GPU the time of kernels and copies."""
    g = gpus.gpu(device)
    if g.driver.simulated:
        return g.driver.utilization(g.physical)[1]
    return int(_ask(device, "memory_usage", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).memory))


def temperature(device: Any = None) -> int:
    """Degrees Celsius of a real GPU.  Raises RuntimeError for a simulated one."""
    return int(_ask(device, "temperature", lambda n, h: n.nvmlDeviceGetTemperature(h, 0)))


def power_draw(device: Any = None) -> int:
    """Milliwatts that a real GPU draws.  Raises RuntimeError for a simulated one."""
    return int(_ask(device, "power_draw", lambda n, h: n.nvmlDeviceGetPowerUsage(h)))


def clock_rate(device: Any = None) -> int:
    """The speed of a real GPU's multiprocessors in MHz.  Raises RuntimeError for a simulated one."""
    return int(_ask(device, "clock_rate", lambda n, h: n.nvmlDeviceGetClockInfo(h, 1)))


def list_gpu_processes(device: Any = None) -> str:
    """The processes on a GPU and the memory that each holds, as text.  A simulated GPU belongs to this process alone."""
    g = gpus.gpu(device)
    if g.driver.simulated:
        held = [(os.getpid(), g.pool.current("reserved_bytes"))]
    else:
        try:
            library = nvml()
        except ModuleNotFoundError:
            return "pynvml module not found, please install nvidia-ml-py"
        held = [(p.pid, p.usedGpuMemory or 0) for p in library.nvmlDeviceGetComputeRunningProcesses(handle(library, g.properties))]
    lines = [f"GPU:{g.index}" + (" (simulated)" if g.driver.simulated else "")]
    lines += [f"process {pid:>10d} uses {nbytes / (1 << 20):>12.3f} MB GPU memory" for pid, nbytes in held] or ["no processes are running"]
    return "\n".join(lines)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Has every copy for which the host waits (those of `item`, `nonzero` and the like among them) warn or raise.

    debug_mode: "default" or 0: neither.  "warn" or 1: a UserWarning at the program's line.  "error" or 2: RuntimeError.
    Raises RuntimeError for another word or number.
    """
    modes = sync_debug.MODES
    if isinstance(debug_mode, str) and debug_mode in modes:
        debug_mode = modes.index(debug_mode)
    if not isinstance(debug_mode, int) or isinstance(debug_mode, bool) or not 0 <= debug_mode < len(modes):
        raise RuntimeError(f"invalid value of debug_mode: {debug_mode!r}; expected one of `default`, `warn`, `error`, or 0, 1, 2")
    sync_debug.set_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """0, 1 or 2: see `set_sync_debug_mode`."""
    return sync_debug.mode()
