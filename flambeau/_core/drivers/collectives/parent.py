"""The parent of a rank that a launcher of MPI started by `flambeau run`.

Hydra ends all processes by SIGKILL some milliseconds after one of them ended badly: none of them could say what it knows.  So the process that the
launcher knows is not the rank but its parent.  When the rank ends badly, the parent tells the job's hub (`distributed/hub.py`) how, which nobody else
can see, and ends only when the others have had time to tell of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

# what launchers of MPI set for each rank: Hydra's and Slurm's PMI, Open MPI and PMIx
_LAUNCHED = ("PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_NAME = "FLAMBEAU_PARENT"  # the rank's end of the pipe to its parent, and the rank's process, since children of the rank have the environment too
_TELL = 2.0  # seconds in which the other ranks may tell what they saw
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def launched_by_mpi() -> bool:
    """Whether an MPI launcher started this process and it is not told otherwise by RANK."""
    return "RANK" not in os.environ and any(name in os.environ for name in _LAUNCHED)


def begin() -> None:
    """Where an MPI launcher started this process: goes on in a child; this process ends as the child does, and never returns from here.  Not at a
    terminal, which one group of processes may read, and not where the system would leave the child behind."""
    if not launched_by_mpi() or sys.platform != "linux" or os.isatty(0):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    own = os.getpid()
    child = os.fork()
    if not child:
        os.close(read)
        os.setpgid(0, 0)  # a signal to the launcher's group comes once, from the parent
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: whom the launcher kills has no orphan
        if os.getppid() != own:
            os._exit(1)
        os.environ[_NAME] = f"{write} {os.getpid()}"
        return
    os.close(write)
    told: list[int] = []

    def pass_on(number: int, frame: Any) -> None:
        told.append(number)
        with contextlib.suppress(OSError):
            os.kill(child, number)
    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status and not told:
        _tell(read, status)
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank's is enough
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(own, -status)
    os._exit(status if status >= 0 else 128 - status)


def ending(status: int) -> str:
    """How a process ended, by its status as `subprocess` gives it."""
    return f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def found(host: str, port: int, secret: str, rank: int) -> None:
    """The rank tells its parent, if it has one, where the job's hub is."""
    write, _, process = os.environ.pop(_NAME, "").partition(" ")
    if process == str(os.getpid()):
        with contextlib.suppress(OSError):
            os.write(int(write), json.dumps([host, port, secret, rank]).encode())
            os.close(int(write))


def _tell(read: int, status: int) -> None:
    """Says how the rank ended, and waits until the others have ended too, or had their time."""
    said = os.read(read, 1000)  # the rank is gone: what it wrote, or nothing
    if not said:
        return
    host, port, secret, rank = json.loads(said)
    until = time.monotonic() + _TELL
    with contextlib.suppress(OSError), socket.create_connection((host, port), _TELL) as made:
        told: dict[str, Any] = {"kind": "parent", "rank": rank, "secret": secret, "how": ending(status)}
        made.sendall((json.dumps(told) + "\n").encode())
        made.settimeout(max(until - time.monotonic(), 0.01))
        made.recv(1)  # the hub closes the connection when all have ended


__all__ = ["begin", "ending", "found", "launched_by_mpi"]
