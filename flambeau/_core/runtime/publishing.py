"""What a program with FLAMBEAU_SMI=1 tells `flambeau smi`: once a second, in a file of its own, what it holds of each GPU and for which lines."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import tempfile
import threading
from typing import Any

from . import gpus, memory_history

VARIABLE = "FLAMBEAU_SMI"
_EVERY = 1.0  # seconds
_LINES = 8
_publisher: int | None = None  # the process that publishes


def folder() -> str:
    """Where the files lie, one a process; only their owner reads them."""
    return os.path.join(tempfile.gettempdir(), f"flambeau-smi-{os.getuid() if hasattr(os, 'getuid') else 'user'}")


def start() -> None:
    """Begins to publish in a thread of its own, once a process, at the first use of a GPU."""
    global _publisher
    if _publisher == os.getpid():
        return
    _publisher = os.getpid()
    gpus.record_memory(lambda index: memory_history.History(index, False, "state", None, (), depth=1))
    path, stop = os.path.join(folder(), f"{os.getpid()}.json"), threading.Event()
    thread = threading.Thread(target=_publish, args=(path, stop), name="flambeau-smi", daemon=True)

    def end() -> None:
        stop.set()
        thread.join(_EVERY)
    atexit.register(end)
    thread.start()


def _publish(path: str, stop: threading.Event) -> None:
    try:
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        while True:
            with open(path + ".new", "w", encoding="utf-8") as f:
                json.dump(facts(), f)
            os.replace(path + ".new", path)
            if stop.wait(_EVERY):
                break
    except OSError as error:
        print(f"flambeau: {VARIABLE}: {error}", file=sys.stderr)
    with contextlib.suppress(OSError):
        os.unlink(path)


if os.environ.get(VARIABLE, "").strip() not in ("", "0"):
    gpus.at_start.append(start)


def facts() -> dict[str, Any]:
    """What this process holds of each GPU."""
    system = gpus._system
    found = []
    for g in system.gpus if system is not None and system.started else ():
        rates = g.driver.utilization(g.physical) if g.driver.simulated else None
        found.append({"device": str(g.device), "name": g.properties.name, "simulated": g.driver.simulated, "uuid": g.properties.uuid,
                      "total": g.properties.total_memory, "allocated": g.pool.current("allocated_bytes"),
                      "reserved": g.pool.current("reserved_bytes"), "utilization": rates and rates[0],
                      "lines": memory_history.by_line(g.pool)[:_LINES]})
    return {"pid": os.getpid(), "command": " ".join(sys.argv) or "python", "gpus": found}


def others() -> list[dict[str, Any]]:
    """What the programs that publish have told last; files of programs that are gone are taken away."""
    found = []
    try:
        names = sorted(os.listdir(folder()))
    except OSError:
        return []
    for name in names:
        pid, _, ending = name.partition(".")
        path = os.path.join(folder(), name)
        if ending != "json" or not pid.isdigit():
            continue
        try:
            os.kill(int(pid), 0)
            with open(path, encoding="utf-8") as f:
                found.append(json.load(f))
        except ProcessLookupError:
            with contextlib.suppress(OSError):
                os.unlink(path)
        except (OSError, ValueError):
            continue
    return found
