"""The transfer ledger: which source line moved how many bytes, by which path, and what that says.

One ledger of the process is always kept once a GPU is used: a few counters a line, through the observers of dispatch.
`transfers` keeps another for a block or a function, watches launches too, and prints its table at the end.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

from .. import forks
from . import dispatch, provenance

if TYPE_CHECKING:
    from collections.abc import Callable

    from .device import device

VARIABLE = "FLAMBEAU_LEDGER"
_MOST_STORAGES = 4096
_MOST_PIECES = 4096  # of one storage
_NO_LINE = "(a thread of flambeau)"


def _line(site: tuple[str, int] | None) -> str:
    return _NO_LINE if site is None else f"{site[0]}:{site[1]}"


class Row:
    """What one line moved in one direction by one path: `line` ("file:line"), `direction`, `path`, `source`, `target`,
    `count`, `nbytes`, `blocking` (how many kept the host waiting), `seconds` (host time in those calls)."""

    __slots__ = ("line", "direction", "path", "source", "target", "count", "nbytes", "blocking", "_records", "_seconds")

    def __init__(self, line: str, way: dispatch.Way) -> None:
        self.line, self.direction, self.path = line, way.direction, way.path
        self.source, self.target = str(way.source), str(way.target)
        self.count = self.nbytes = self.blocking = 0
        self._seconds = 0.0
        self._records: list[dispatch.Copy] = []  # on their way: their time is not known yet

    def wait_for(self, record: dispatch.Copy) -> None:
        """Adds its seconds when they are known."""
        if self._records:
            self._settle()
        self._records.append(record)

    def _settle(self) -> None:
        waiting = []
        for r in self._records:
            if r.seconds is None:
                waiting.append(r)
            else:
                self._seconds += r.seconds
        self._records = waiting

    @property
    def seconds(self) -> float:
        self._settle()
        return self._seconds

    def data(self) -> dict[str, Any]:
        """The row as plain values."""
        return {"line": self.line, "direction": self.direction, "path": self.path, "source": self.source, "target": self.target,
                "count": self.count, "nbytes": self.nbytes, "blocking": self.blocking, "seconds": self.seconds}


class Travel:
    """One storage's copies: which version went where from which lines, and where its bytes came from."""

    __slots__ = ("ref", "end", "version", "sent", "origin")

    def __init__(self, ref: weakref.ref[Any], forget: Callable[[Any], None]) -> None:
        storage = ref()
        self.ref = ref
        self.end = None if storage is None else weakref.ref(storage, forget)
        self.version = 0  # of what is in `sent`
        self.sent: dict[tuple[Any, Any, int], int] = {}  # target device, place in the storage, bytes: how often
        self.origin: tuple[Any, str, int] | None = None  # (device, line, own version when it arrived)


class Ledger:
    """Rows and findings from the copies and waits it is shown."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self.rows: dict[Any, Row] = {}
        self._rows_of: dict[tuple[Any, dispatch.Way], Row] = {}  # by line and way, which say more than the keys of `rows` and are there already
        self._waits: dict[tuple[tuple[str, int] | None, device, str], int] = {}  # (line, device, reason): times
        self.repeats: dict[tuple[str, str], list[int]] = {}  # (line, target): [times sent again, bytes of these, how many different pieces]
        self.returns: dict[tuple[str, str, str], list[int]] = {}  # (line, line it came by, device): [times, bytes]
        self.small: dict[tuple[str, str], list[float]] = {}  # (line, device): [times, seconds there, seconds here]
        self._travels: dict[int, Travel] = {}
        self._visits: dict[Any, list[Any]] = {}  # device: [line, bytes in, launches, bytes touched, operations]

    # ----------------------------------------------------------------------------------------------------- observing
    def copies(self, record: dispatch.Copy) -> None:
        """Enters a copy that begins."""
        if record.way.crosses:
            with self._lock:
                self._enter(record.way, record.site, record.read, record.written, *record.versions, record.place, 0.0).wait_for(record)

    def _enter(self, way: dispatch.Way, site: tuple[str, int] | None, read: weakref.ref[Any] | None, written: weakref.ref[Any] | None, version: int,
               becomes: int, place: Any, seconds: float) -> Row:
        """Enters a copy.  version, becomes: those of the storages read and written."""
        row = self._rows_of.get((site, way))
        if row is None:
            row = self._row(site, way)
        row.count += 1
        row.nbytes += way.nbytes
        row.blocking += way.blocking
        row._seconds += seconds
        if read is not None:
            self._follow(way, row, read, written, version, becomes, place)
        self._visit(way, row.line)
        return row

    def _row(self, site: tuple[str, int] | None, way: dispatch.Way) -> Row:
        line = _line(site)
        key = (line, way.direction, way.path, way.source, way.target)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(line, way)
        if len(self._rows_of) >= _MOST_STORAGES:
            self._rows_of.clear()
        self._rows_of[site, way] = row
        return row

    def sync(self, wait: dispatch.Wait) -> None:
        """Enters a wait that the program's text does not show."""
        key = provenance.site(), wait.device, wait.reason
        with self._lock:
            self._waits[key] = self._waits.get(key, 0) + 1

    @property
    def waits(self) -> dict[tuple[str, str, str], int]:
        """How often each line made the host wait: (line, device, reason) to times."""
        return {(_line(site), str(dev), reason): times for (site, dev, reason), times in self._waits.copy().items()}

    def launches(self, dev: device, stream: Any, prepared: Any, args: Any) -> None:
        """Enters work on a GPU, for telling whether it was worth the way."""
        visit = self._visits.get(dev)
        if visit is not None and dev.type != "cpu":
            visit[2] += 1
            visit[3] += prepared.nbytes
            visit[4] += prepared.flops

    def _follow(self, way: dispatch.Way, row: Row, source: weakref.ref[Any], target: weakref.ref[Any] | None, version: int, written: int,
                place: Any) -> None:
        """Whether these bytes went this way before."""
        line = row.line
        travel = self._travels.get(id(source)) or self._travel(source)
        if travel.version != version:
            travel.version = version
            travel.sent.clear()
        elif len(travel.sent) >= _MOST_PIECES:
            travel.sent.pop(next(iter(travel.sent)))
        piece = way.target, place, way.nbytes
        times = travel.sent[piece] = travel.sent.get(piece, 0) + 1
        if times > 1:
            again = self.repeats.setdefault((line, row.target), [0, 0, 0])
            again[0] += 1
            again[1] += way.nbytes
            again[2] += times == 2
        came = travel.origin
        if came is not None and came[0] is way.target and version == came[2]:
            found = self.returns.setdefault((line, came[1], row.source), [0, way.nbytes])
            found[0] += 1
        if target is not None:
            arrived = self._travels.get(id(target)) or self._travel(target)
            arrived.origin = (way.source, line, written)
            arrived.sent.clear()

    def _travel(self, storage: weakref.ref[Any]) -> Travel:
        """That of a storage, by the one weak reference that it has without a callback: kept here, so that no other has its place."""
        travel = self._travels.get(id(storage))
        if travel is None:
            if len(self._travels) >= _MOST_STORAGES:
                self._travels.pop(next(iter(self._travels)), None)
            travel = self._travels[id(storage)] = Travel(storage, self._forget(id(storage)))
        return travel

    def _forget(self, i: int) -> Callable[[Any], None]:
        travels = self._travels

        def forget(_: Any) -> None:
            travels.pop(i, None)
        return forget

    def _visit(self, way: dispatch.Way, line: str) -> None:
        """From a copy in to the next copy out is a visit to a GPU; what was computed there is set against the way."""
        if way.direction == "h2d":
            visit = self._visits.get(way.target)
            if visit is None:
                self._visits[way.target] = [line, way.nbytes, 0, 0, 0]
            else:
                visit[1] += way.nbytes
        elif way.direction == "d2h":
            visit = self._visits.pop(way.source, None)
            if visit is None or not visit[2]:
                return
            came, nbytes, launches, touched, operations = visit
            # orders of magnitude: a copy's set-up and a launch's host time on a GPU's side, one core's bandwidth and rate here
            there = 2 * 8e-6 + (nbytes + way.nbytes) / 8e9 + launches * 4e-6
            here = launches * 1e-6 + max(touched / 1e10, operations / 2e10)
            if there > 2 * here:
                found = self.small.setdefault((came, str(way.source)), [0, 0.0, 0.0])
                found[0] += 1
                found[1] += there
                found[2] += here

    # ------------------------------------------------------------------------------------------------------- telling
    def table(self) -> list[dict[str, Any]]:
        """The rows as plain values, the most bytes first."""
        with self._lock:
            rows = list(self.rows.values())
        return sorted((r.data() for r in rows), key=lambda r: (-r["nbytes"], r["line"]))

    def findings(self) -> list[Any]:
        """What the rows say (see `findings.Finding`), most important first."""
        if not self.rows and not self._waits:
            return []
        from .findings import found
        with self._lock:
            return found(self)

    def show(self, title: str = "transfers", console: Any = None) -> None:
        """Prints the table and the findings."""
        from .findings import show
        show(self, title, console)

    def _repr_html_(self, title: str = "transfers") -> str:
        from .findings import as_html
        return as_html(self, title)

    def clear(self) -> None:
        """Forgets everything."""
        self.__init__()  # type: ignore[misc]


class _Process(Ledger):
    """The ledger of the whole process: copies are entered from the journal of dispatch, when somebody asks or much has come together."""

    def __init__(self) -> None:
        super().__init__()
        self._journal = dispatch.keep_journal(self._full)

    def settle(self) -> None:
        """Enters what the journal has."""
        with self._lock:
            self._empty()

    def _full(self) -> None:
        # held: somebody is at it, this thread itself where a finalizer of the program's copies
        if not self._lock._is_owned() and self._lock.acquire(blocking=False):
            try:
                self._empty()
            finally:
                self._lock.release()

    def _empty(self) -> None:
        journal = self._journal
        while journal:
            self._enter(*journal.popleft())
        for i in list(self._travels):  # the keys alone: no allocation between them at which a collection could forget one
            travel = self._travels.get(i)
            if travel is not None and travel.end is None:  # gone before it was entered
                self._travels.pop(i, None)

    def table(self) -> list[dict[str, Any]]:
        self.settle()
        return super().table()

    def findings(self) -> list[Any]:
        self.settle()
        return super().findings()


process: _Process | None = None  # the one that is always kept
_watching: Any = None


def start() -> None:
    """Begins the process's ledger; called when the first GPU is made ready."""
    global process, _watching
    if process is not None:
        return
    process = _Process()
    _watching = dispatch.observe(waits=process.sync)
    if os.environ.get(VARIABLE, "").strip() not in ("", "0"):
        import atexit
        atexit.register(_at_exit)


def _at_exit() -> None:
    if process is not None and process.table():
        from rich.console import Console
        process.show(f"transfers of {os.path.basename(sys.argv[0]) or 'this process'}", Console(stderr=True))


class transfers:
    """A ledger of a ``with`` block or a decorated function: its table is printed at the end.

    show: whether to print.  `rows` (list of dicts) and `findings` can be read inside and after.  `transfers.so_far()` is
    the ledger that is kept of the whole process; FLAMBEAU_LEDGER=1 prints that one when the process ends.
    """

    def __init__(self, show: bool = True, title: str = "transfers") -> None:
        self._show, self._title = show, title
        self.ledger = Ledger()
        self._observer: Any = None

    def __enter__(self) -> transfers:
        self._observer = dispatch.observe(self.ledger.launches, self.ledger.copies, self.ledger.sync)
        return self

    def __exit__(self, *exc: object) -> None:
        self._observer.close()
        if self._show and exc[0] is None:
            self.ledger.show(self._title)

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with transfers(self._show, self._title if self._title != "transfers" else f"transfers of {function.__name__}"):
                return function(*args, **kwargs)
        return call

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table as plain values, the most bytes first."""
        return self.ledger.table()

    @property
    def findings(self) -> list[Any]:
        """What the rows say, most important first."""
        return self.ledger.findings()

    def print(self, console: Any = None) -> None:
        """Prints the table and the findings."""
        self.ledger.show(self._title, console)

    def _repr_html_(self) -> str:
        return self.ledger._repr_html_(self._title)

    @staticmethod
    def so_far() -> Ledger:
        """The ledger of the whole process; an empty one while no GPU was used."""
        if process is None:
            return Ledger()
        process.settle()
        return process
