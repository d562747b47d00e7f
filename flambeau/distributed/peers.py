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
from typing import TYPE_CHECKING, Any

from .hub import keep_alive
from .stores import DistError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .stores import Store

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
PATIENCE = 5.0  # seconds until a rank that waits says so, and between its reports
_GRACE = 0.3  # seconds for a collective that a rank left in good order
_ENDED = 2.0
DIED = "flambeau/died"  # where an agent says in the job's store which ranks ended, and how: a line each
WELL = "with status 0"  # how a rank ends there that did not fail


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

    address: the hub's host and port.  secret: the job's.  store: where an agent, if there is one, says how ranks ended.
    """

    def __init__(self, address: tuple[str, int], secret: str, rank: int, size: int, store: Store | None = None) -> None:
        self.rank, self.size, self.store = rank, size, store
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
        keep_alive(self._made)
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
                    first = self.gone.get(said["gone"])  # told of again where its parent has seen more
                    self.gone[said["gone"]] = first[0] if first else time.monotonic(), said["how"]
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

    def look(self, ranks: Iterable[int], what: str, line: str) -> None:
        """Raises DistBackendError when one of `ranks` died, or ended while this rank waits for it, or when nobody can tell any more."""
        now = time.monotonic()
        for r, (when, how) in list(self.gone.items()):
            if r in ranks and now - when > _GRACE:
                said = died(self.store).get(r)
                raise DistBackendError(f"rank {r} is gone: {how}{', ' + said if said else ''}. Rank {self.rank} was waiting for it in {what} at {line}"
                                       f"{self._before()}")
        for r, when in list(self.ended.items()):
            if r in ranks and now - when > _ENDED:
                raise DistBackendError(f"rank {r} has ended its program; rank {self.rank} still waits for it in {what} at {line}{self._before()}")
        if self._lost:
            raise DistBackendError(f"the job's hub, a process on rank 0's host, is gone or cannot be reached, so nobody sees whether the other ranks live; "
                                   f"rank {self.rank} was waiting for them in {what} at {line}")

    def _before(self) -> str:
        """The collective before the one that this rank waits in, to which the others had come."""
        last = self.last
        return "" if last.number == 0 else f"; before that it had done {last.what} (number {last.number}) at {last.line}"


class Watch:
    """What a rank does now and then while it waits: it sees who died, says for whom it waits, and gives up when the time is up.

    peers: None in a world of one.  rank: this one.  ranks: for whom.  what, line: in which call, and where that is.  limit: after so many seconds
    `look` raises.
    """

    def __init__(self, peers: Peers | None, rank: int, ranks: Iterable[int], what: str, line: str, limit: float) -> None:
        self.peers, self.rank, self.ranks, self.what, self.line, self.limit = peers, rank, ranks, what, line, limit
        self.begun = time.monotonic()
        self._tell = self.begun + PATIENCE

    def look(self) -> None:
        """Raises DistBackendError where waiting has no sense."""
        now = time.monotonic()
        if self.peers is not None:
            self.peers.look(self.ranks, self.what, self.line)
            if now > self._tell:
                self._tell = now + PATIENCE
                self.peers.ask_where()
        if now - self.begun > self.limit:
            raise DistBackendError(f"{self.what} at {self.line}: rank {self.rank} has waited {now - self.begun:.1f} s; the timeout is {self.limit:.1f} s")

    def over(self, blocking: Callable[[], Any]) -> Any:
        """What a call of MPI gives that waits for others and cannot be asked how it stands: it is made in a thread, and left there when this raises.
        The call must let other Python threads run."""
        found: list[Any] = []
        done = threading.Event()

        def call() -> None:
            try:
                found.extend((blocking(), None))
            except BaseException as error:
                found.extend((None, error))
            done.set()
        assert self.peers is not None
        thread, doings = threading.get_ident(), self.peers.doing
        doing = doings[thread] = Doing(self.peers.last.number + 1, self.what, self.line, "")
        try:
            threading.Thread(target=call, daemon=True, name=self.what).start()
            while not done.wait(0.05):
                self.look()
        finally:
            if doings.get(thread) is doing:
                del doings[thread]
        if found[1] is not None:
            raise found[1]
        return found[0]


def died(store: Store | None) -> dict[int, str]:
    """The ranks that agents have seen end, each with how."""
    try:
        lines = store.get(DIED).decode().splitlines() if store is not None and store.check([DIED]) else []
    except DistError:
        lines = []
    return {int(rank): how for rank, _, how in (line.partition(" ") for line in lines)}


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
