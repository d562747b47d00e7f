"""`flambeau smi`: the GPUs of this machine, what they do, and which programs and lines hold their memory.

Real GPUs are asked by NVIDIA's management library.  A simulated GPU lives within one program; a program (with GPUs of either kind) that runs
with FLAMBEAU_SMI=1 tells once a second what it holds, and for which lines.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ._core.runtime import publishing
from .inventory import size


def real() -> tuple[list[dict[str, Any]], str]:
    """The real GPUs, and why there are none, or "".  No GPU is started."""
    from .cuda import monitoring
    try:
        library = monitoring.nvml()
    except ModuleNotFoundError as error:
        return [], f"real GPUs are not shown: {error}"
    except Exception as error:  # the library's own: no driver, no GPU
        return [], f"no real GPU: {error}"
    found = []
    for i in range(library.nvmlDeviceGetCount()):
        h = library.nvmlDeviceGetHandleByIndex(i)
        memory = library.nvmlDeviceGetMemoryInfo(h)

        def ask(name: str, *args: Any, handle: Any = h) -> Any:
            try:
                return getattr(library, name)(handle, *args)
            except library.NVMLError:  # not every card tells everything
                return None
        rates, power = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetPowerUsage")
        held = ask("nvmlDeviceGetComputeRunningProcesses") or []
        found.append({"device": f"GPU {i}", "name": _text(library.nvmlDeviceGetName(h)), "simulated": False, "uuid": _text(library.nvmlDeviceGetUUID(h)),
                      "total": memory.total, "used": memory.used, "utilization": rates and rates.gpu, "temperature": ask("nvmlDeviceGetTemperature", 0),
                      "watts": power and power / 1e3, "processes": [{"pid": p.pid, "bytes": p.usedGpuMemory, "command": _command(p.pid)} for p in held]})
    return found, "" if found else "no real GPU"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def facts() -> dict[str, Any]:
    """`gpus` (the real ones), `why` there are none, and `programs`, those that tell what they hold."""
    gpus, why = real()
    return {"gpus": gpus, "why": why, "programs": publishing.others()}


def text(told: dict[str, Any]) -> str:
    """What `facts` gives, for reading."""
    lines = [time.strftime("%Y-%m-%d %H:%M:%S")]
    for g in told["gpus"]:
        heat = "" if g["temperature"] is None else f", {g['temperature']} C"
        power = "" if g["watts"] is None else f", {g['watts']:.0f} W"
        lines.append(f"{g['device']}  {g['name']}: {size(g['used'])} of {size(g['total'])}{_busy(g['utilization'])}{heat}{power}")
        for p in g["processes"]:
            held = "memory not told" if p["bytes"] is None else size(p["bytes"])
            lines.append(f"  process {p['pid']}: {held}  {p['command']}")
    if told["why"]:
        lines.append(told["why"])
    for program in told["programs"]:
        lines.append(f"process {program['pid']}: {program['command']}")
        for g in program["gpus"]:
            kind = ", simulated" if g["simulated"] else ""
            lines.append(f"  {g['device']}  {g['name']}{kind}: tensors {size(g['allocated'])}, reserved {size(g['reserved'])} of "
                         f"{size(g['total'])}{_busy(g['utilization'])}")
            lines += [f"    {size(n)} in {count} block{'s' * (count != 1)}: {line or 'lines from before it was watched'}" for line, n, count in g["lines"]]
        if not program["gpus"]:
            lines.append("  no GPU is in use")
    if not told["programs"]:
        lines.append("No program tells what it holds. Start one with FLAMBEAU_SMI=1 to see its GPUs (simulated ones too) and its lines here.")
    return "\n".join(lines)


def _busy(percent: int | None) -> str:
    return "" if percent is None else f", {percent}% busy"


def show(as_json: bool = False, watch: float | None = None) -> None:
    """Prints it once, or again every `watch` seconds until the program is interrupted."""
    while True:
        told = facts()
        said = json.dumps(told) if as_json else text(told)
        if watch is not None and not as_json and os.isatty(1):
            said = "\x1b[H\x1b[2J" + said  # the screen's top, cleared
        print(said, flush=True)
        if watch is None:
            return
        time.sleep(watch)
