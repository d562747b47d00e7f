"""The agent of a host: starts the ranks of a script, carries their output, ends them together, and starts them again where that was asked for.

What it tells a rank is what torchrun tells it: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT and the TORCHELASTIC names.
The first agent serves the job's store.  A rank that fails ends the others: they get two seconds to say how they fared, then a SIGTERM, then a SIGKILL.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from .._core import forks
from .._core.drivers.collectives.parent import ending
from .peers import DIED
from .stores import DistError, TCPStore

if TYPE_CHECKING:
    from collections.abc import Sequence

_TELL = 2.0  # seconds in which the other ranks of a failed one may tell what they saw
_END = 2.0  # seconds between SIGTERM and SIGKILL
_LAST = 40  # lines of a failed rank that are shown again


class Ranks:
    """The processes of one start on this host."""

    def __init__(self, command: Sequence[str], environments: Sequence[dict[str, str]], first: int, prefix: bool) -> None:
        self.first, self.prefix = first, prefix
        self.lines: list[list[str]] = [[] for _ in environments]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.threads: list[threading.Thread] = []
        for i, env in enumerate(environments):
            piped = subprocess.PIPE if prefix else None
            made = subprocess.Popen(command, env=env, stdout=piped, stderr=piped, stdin=None if i == 0 else subprocess.DEVNULL, start_new_session=True)
            self.processes.append(made)
            for pipe, to in ((made.stdout, sys.stdout), (made.stderr, sys.stderr)):
                if pipe is not None:
                    t = threading.Thread(target=self._carry, args=(i, pipe, to), daemon=True)
                    t.start()
                    self.threads.append(t)

    def _carry(self, i: int, pipe: Any, to: Any) -> None:
        """Lines of a rank with its number before them."""
        for raw in pipe:
            line = raw.decode(errors="replace").rstrip("\n")
            if to is sys.stderr:
                self.lines[i] = [*self.lines[i][1 - _LAST:], line]
            with _writing, contextlib.suppress(OSError, ValueError):
                to.write(f"[rank {self.first + i}] {line}\n")
                to.flush()

    def failed(self) -> list[int]:
        """Which of them ended with another status than 0."""
        return [i for i, p in enumerate(self.processes) if p.poll() not in (None, 0)]

    def running(self) -> bool:
        """Whether any of them still runs."""
        return any(p.poll() is None for p in self.processes)

    def signal(self, number: int) -> None:
        """Sends a signal to each that runs, and to what it started."""
        for p in self.processes:
            if p.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(p.pid, number)

    def end(self, tell: float) -> None:
        """Ends all that still run."""
        self._until(tell)
        self.signal(signal.SIGTERM)
        self._until(_END)
        for p in self.processes:  # also what a dead rank left behind
            with contextlib.suppress(OSError):
                os.killpg(p.pid, signal.SIGKILL)
        for p in self.processes:
            p.wait()
        for t in self.threads:
            t.join(1.0)

    def _until(self, limit: float) -> None:
        end = time.monotonic() + limit
        while self.running() and time.monotonic() < end:
            time.sleep(0.02)


_writing = forks.lock()


def free_port(host: str) -> int:
    """A port of an interface that nobody listens at now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])


def run(command: Sequence[str], *, nproc: int, nnodes: int = 1, node_rank: int = 0, endpoint: str | None = None, max_restarts: int = 0,
        run_id: str | None = None, prefix: bool = True, environment: dict[str, str] | None = None) -> int:
    """Runs `command` as `nproc` ranks on this host; the exit status of the first that failed, else 0.

    nnodes, node_rank: how many hosts take part, and which this is.  endpoint: "host:port" of the first host, where its agent serves the store; a
    free port of this machine by default.  max_restarts: how often all ranks are started again after a failure (RuntimeError of several hosts:
    each agent starts its own ranks again as the others' fail with them).  Raises ValueError for contradictions.
    """
    if nproc < 1 or nnodes < 1 or not 0 <= node_rank < nnodes:
        raise ValueError(f"flambeau run: {nproc} processes on host {node_rank} of {nnodes} cannot be")
    if nnodes > 1 and endpoint is None:
        raise ValueError("flambeau run: several hosts need --rdzv-endpoint HOST:PORT of the first")
    host, _, port_text = (endpoint or "127.0.0.1:0").rpartition(":")
    if not host or not port_text.isdigit():
        host, port_text = endpoint or "127.0.0.1", "29400"
    store: TCPStore | None = None
    if node_rank == 0:
        store = TCPStore(host, int(port_text), is_master=True, wait_for_workers=False)
    port = store.port if store is not None else int(port_text)
    world = nproc * nnodes
    first = node_rank * nproc
    base = {**os.environ, **(environment or {})}
    if world > 1:
        base.setdefault("OMP_NUM_THREADS", "1")
    base.update(MASTER_ADDR=host, MASTER_PORT=str(port), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(nproc), GROUP_RANK=str(node_rank),
                GROUP_WORLD_SIZE=str(nnodes), ROLE_NAME="default", ROLE_WORLD_SIZE=str(world), TORCHELASTIC_RUN_ID=run_id or secrets.token_hex(4),
                TORCHELASTIC_MAX_RESTARTS=str(max_restarts), TORCHELASTIC_USE_AGENT_STORE="True", FLAMBEAU_AGENT=str(os.getpid()))
    stop = _Stop()
    try:
        for attempt in range(max_restarts + 1):
            environments = [{**base, "RANK": str(first + i), "LOCAL_RANK": str(i), "ROLE_RANK": str(first + i), "TORCHELASTIC_RESTART_COUNT": str(attempt)}
                            for i in range(nproc)]
            ranks = Ranks(command, environments, first, prefix)
            status = _watch(ranks, stop, _Obituary(store, host, port, attempt) if world > 1 else None)
            _clean(ranks)
            if status == 0 or stop.number:
                return 128 + stop.number if stop.number else 0
            if attempt < max_restarts:
                print(f"flambeau run: starting all ranks again ({attempt + 1} of {max_restarts})", file=sys.stderr, flush=True)
        return status
    finally:
        stop.close()
        if store is not None and store._server is not None:
            store._server.close()


class _Stop:
    """Remembers that the agent was told to stop; a second time ends it at once."""

    def __init__(self) -> None:
        self.number = self.times = 0
        self.before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._told)

    def _told(self, number: int, frame: Any) -> None:
        self.number = number
        self.times += 1

    def close(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


class _Obituary:
    """Where the ranks read how others ended (`peers.died`): the agent alone sees signals, and ranks that end before they connect."""

    def __init__(self, store: TCPStore | None, host: str, port: int, attempt: int) -> None:
        self.store, self.at, self.key = store, (host, port), f"run{attempt}/default_pg/{DIED}"
        self.told: set[int] = set()

    def say(self, ranks: Ranks) -> None:
        """Tells of all ranks of this host that ended and were not told of yet."""
        ended = [i for i, p in enumerate(ranks.processes) if p.poll() is not None and i not in self.told]
        if not ended:
            return
        self.told.update(ended)
        lines = [f"{ranks.first + i} {ending(ranks.processes[i].returncode)}\n" for i in ended]
        with contextlib.suppress(DistError, OSError):
            if self.store is None:
                self.store = TCPStore(*self.at, timeout=datetime.timedelta(seconds=2), wait_for_workers=False)
            self.store.append(self.key, "".join(lines))


def _watch(ranks: Ranks, stop: _Stop, obituary: _Obituary | None) -> int:
    """Until all have ended; when one fails or the agent is told to stop, the others are ended too."""
    first: int | None = None
    while ranks.running() and first is None and not stop.number:
        time.sleep(0.02)
        first = next(iter(ranks.failed()), None)
        if obituary is not None:
            obituary.say(ranks)
    if stop.number:
        ranks.signal(stop.number)
        begun, times = time.monotonic(), stop.times
        while ranks.running() and time.monotonic() - begun < 1.5 and stop.times == times:
            time.sleep(0.02)
        ranks.signal(signal.SIGKILL)
        ranks.end(0.0)
        return 128 + stop.number
    if first is None:
        first = next(iter(ranks.failed()), None)
    if first is None:
        ranks.end(0.0)
        return 0
    if obituary is not None:
        obituary.say(ranks)
    ranks.end(_TELL)
    status = ranks.processes[first].returncode
    shown = "\n".join(f"    {line}" for line in ranks.lines[first]) if len(ranks.processes) > 1 else ""
    said = f"; it had said:\n{shown}" if shown else ""
    print(f"flambeau run: rank {ranks.first + first} failed first, {ending(status)}{_why(status)}{said}", file=sys.stderr, flush=True)
    return 128 - status if status < 0 else status


def _why(status: int) -> str:
    """What a signal is likely to mean here."""
    if status != -signal.SIGBUS:
        return ""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return ""
    return (f"; MPI's shared memory lies in /dev/shm, which has {room.f_frsize * room.f_blocks >> 10} KiB here: too small or full, that is how a process ends "
            "(docker run --shm-size makes it larger)")


def _clean(ranks: Ranks) -> None:
    """Shared memory that killed ranks have left: MPICH's, and UCX's, which has a name of no rank, so one that was made just now may be another's."""
    try:
        left = os.listdir("/dev/shm")
    except OSError:
        return
    for name in left:
        if name.startswith(("mpich_shm_", "ucx_shm_posix_")):
            path = os.path.join("/dev/shm", name)
            with contextlib.suppress(OSError):
                found = os.stat(path)
                young = name.startswith("ucx") and time.time() - found.st_mtime < 1.0
                if found.st_uid == os.getuid() and not young and not _in_use(path):
                    os.unlink(path)


def _in_use(path: str) -> bool:
    """Whether any process of ours has a file mapped."""
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                    if path in maps.read():
                        return True
            except OSError:
                continue
    return False


def die_with_agent() -> None:
    """Has the kernel kill this process when the agent that started it dies (Linux)."""
    if os.environ.get("FLAMBEAU_AGENT") == str(os.getppid()):
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


__all__ = ["Ranks", "die_with_agent", "ending", "free_port", "run"]
