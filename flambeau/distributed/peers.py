"""What each rank knows of the others: who is there, who has ended, who died, and where everybody waits.

The side channel goes to the job's hub (`hub.py`), off the path of the collectives.  A thread reads it; it tells nobody anything but what is asked:
number and name of the collective the rank is in, the source lines, since when.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any

from .stores import DistError

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
PATIENCE = 5.0  # seconds until a rank that waits says so, and between its reports
_GRACE = 0.3  # seconds for a collective that a rank left in good order
_ENDED = 2.0


class DistBackendError(DistError):
    """Communication failed: a rank died, ranks called different collectives, or the time was up."""


def user_line(frame: Any) -> str:
    """The first line outside of Flambeau, from a frame up: "script.py:12 in train"."""
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, "<")):
        frame = frame.f_back
    if frame is None:
        return "?"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


class Doing:
    """A collective that a rank is in."""

    __slots__ = ("number", "what", "line", "since", "group")

    def __init__(self, number: int, what: str, line: str, group: str) -> None:
        self.number, self.what, self.line, self.group = number, what, line, group
        self.since = time.time()


class Peers:
    """The side channel of one rank.

    address: the hub's host and port.  secret: the job's.
    """

    def __init__(self, address: tuple[str, int], secret: str, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.doing: dict[int, Doing] = {}  # by thread
        self.last = Doing(0, "none", "?", "")
        self.gone: dict[int, tuple[float, str]] = {}
        self.ended: dict[int, float] = {}
        self.all_ended = threading.Event()
        self.how = ""
        self._main = threading.main_thread().ident
        self._lock = threading.Lock()
        self._made = socket.create_connection(address, 30)
        self._made.settimeout(None)
        self._made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._say({"kind": "watch", "rank": rank, "pid": os.getpid(), "host": socket.gethostname(), "secret": secret})
        self._lost = False
        threading.Thread(target=self._read, daemon=True, name="peers").start()

    # ------------------------------------------------------------------------------------------------ what is told
    def _say(self, what: dict[str, Any]) -> None:
        try:
            with self._lock:
                self._made.sendall((json.dumps(what) + "\n").encode())
        except OSError:
            pass

    def goodbye(self) -> None:
        """This rank's program is over; `how` says what went wrong, where something did."""
        self._say({"say": "bye", "how": self.how})

    def close(self) -> None:
        """Ends the channel."""
        try:
            self._made.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def ask_where(self) -> None:
        """Has the state of all ranks told on stderr, by the first of those that wait."""
        self._say({"say": "where"})

    def _state(self, number: int) -> dict[str, Any]:
        now = min(self.doing.values(), key=lambda d: d.since, default=None)
        d = now or self.last
        frame = sys._current_frames().get(self._main or 0)
        return {"say": "state", "id": number, "waits": now is not None, "number": d.number, "what": d.what, "line": d.line, "group": d.group,
                "since": d.since, "at": user_line(frame)}

    # ------------------------------------------------------------------------------------------------ what is heard
    def _read(self) -> None:
        try:
            for line in self._made.makefile("rb"):
                said = json.loads(line)
                if "ask" in said:
                    self._say(self._state(said["ask"]))
                elif "gone" in said:
                    self.gone[said["gone"]] = time.monotonic(), said["how"]
                elif "ended" in said and "states" not in said:
                    self.ended[said["ended"]] = time.monotonic()
                elif "all" in said:
                    self.all_ended.set()
                elif "states" in said:
                    text = report(self.rank, self.size, said)
                    if text:
                        sys.stderr.write(text + "\n")
                        sys.stderr.flush()
        except (OSError, ValueError):
            pass
        self._lost = True

    def look(self, ranks: Any, what: str, line: str) -> None:
        """Raises DistBackendError when one of `ranks` died, or ended while this rank waits for it."""
        now = time.monotonic()
        for r, (when, how) in list(self.gone.items()):
            if r in ranks and now - when > _GRACE:
                raise DistBackendError(f"rank {r} is gone: {how}. Rank {self.rank} was waiting for it in {what} at {line}")
        for r, when in list(self.ended.items()):
            if r in ranks and now - when > _ENDED:
                raise DistBackendError(f"rank {r} has ended its program; rank {self.rank} still waits for it in {what} at {line}")


def report(rank: int, size: int, said: dict[str, Any]) -> str:
    """One text about who waits for whom; empty where another rank is to tell it."""
    states = {int(r): s for r, s in said["states"].items()}
    waiting = {r: s for r, s in states.items() if s["waits"]}
    if not waiting or rank != min(waiting):
        return ""
    now = time.time()
    top = waiting[rank]
    lines = [f"flambeau.distributed: rank {rank} has waited {now - top['since']:.1f} s in {top['what']} (number {top['number']}"
             f"{' of group ' + top['group'] if top['group'] else ''}) at {top['line']}"]
    for r in range(size):
        s = states.get(r)
        if r == rank:
            continue
        if s is None:
            if r in said["ended"]:
                lines.append(f"  rank {r} has ended its program")
            elif r not in said["came"]:
                lines.append(f"  rank {r} never came")
            else:
                lines.append(f"  rank {r} (process {said['pids'].get(str(r))}) does not answer: it is gone, or in code that holds the interpreter's lock")
        elif s["waits"]:
            lines.append(f"  rank {r} has waited {now - s['since']:.1f} s in {s['what']} (number {s['number']}) at {s['line']}")
        else:
            lines.append(f"  rank {r} has not come: it is at {s['at']}; its last was {s['what']} (number {s['number']}) at {s['line']}")
    return "\n".join(lines)
