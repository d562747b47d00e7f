"""Groups of processes, and how a collective is carried out: agreed upon, begun, waited for.

Before anything is moved all ranks of the group compare what they are about to do (24 bytes, by a minimum over a number, its complement and when they were
ready); where they differ, each learns the others' calls and lines and raises.  Waiting asks MPI again and again, ever more seldom, so that Python stays
interruptible, a rank that died is noticed, and a rank that waits for long says for whom.
"""

from __future__ import annotations

import datetime
import os
import queue
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.drivers.collectives import meetings
from .._core.drivers.collectives.alone import Alone
from .._core.drivers.collectives.nccl.library import NCCLError
from .._core.runtime import gpus
from .peers import DistBackendError, Doing, Peers, Watch, user_line

if TYPE_CHECKING:
    from .._core.drivers.collectives.interface import Communicator, Request
    from .gpu_queues import GpuQueue

    Start = Callable[[Communicator], Request]

DEFAULT_TIMEOUT = datetime.timedelta(minutes=30)
_EAGER = 0.02  # seconds since something moved in which a collective is asked for its end without a pause
_MOVES = 5e-6  # seconds of processor time that a question takes at least when something moves
_LOOK = 0.02  # seconds between two looks at what became of the other ranks
_ROOM = 512  # bytes that tell a rank's call when calls differ


class Job:
    """One collective under way: what it is, how it begins, what to do when it is done, or failed in the background.

    shared: all ranks of the group take part, and agree before it begins.  clock: what tells its moments, if anything does.
    """

    __slots__ = ("what", "line", "start", "after", "failed", "shared", "clock", "error", "done", "request")

    def __init__(self, what: str, line: str, start: Start, after: Callable[[], None] | None = None,
                 failed: Callable[[BaseException], None] | None = None, shared: bool = True, clock: meetings.Clock | None = None) -> None:
        self.what, self.line, self.start, self.after, self.failed, self.shared = what, line, start, after, failed, shared
        self.clock = clock
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.request: Request | None = None

    def finish(self, lane: Lane, timeout: float | None) -> None:
        """Waits until it is done; raises what went wrong."""
        lane.wait(self, timeout)

    def at_hand(self) -> bool:
        """Whether nothing but `finish` is left to do, and that at once."""
        return False

    def let_go(self, lane: Lane) -> None:
        """Nobody will wait for it: the worker carries it out all the same."""


class Message(Job):
    """A job between two ranks' hosts.  out: this one sends.  peer: the other's number in the group, None for whoever sends.  word: the sender's clock,
    which `told` carries."""

    __slots__ = ("out", "peer", "tag", "nbytes", "word", "told")

    def __init__(self, what: str, line: str, start: Start, out: bool, peer: int | None, tag: int, nbytes: int) -> None:
        super().__init__(what, line, start, shared=False)
        self.out, self.peer, self.tag, self.nbytes = out, peer, tag, nbytes
        self.word = np.zeros(1, np.int64)
        self.told: Request | None = None

    def finish(self, lane: Lane, timeout: float | None) -> None:
        lane.complete(self, timeout)

    def at_hand(self) -> bool:
        return self.request is not None and self.request.test()

    def let_go(self, lane: Lane) -> None:
        if not self.done.is_set():
            lane.adopt(self)


class Exchange:
    """Messages between the two ranks of a group that belong together, in any order on either.  parts: whether each is sent, and its bytes."""

    __slots__ = ("peer", "parts")

    def __init__(self, peer: int, parts: Sequence[tuple[bool, int]]) -> None:
        self.peer, self.parts = peer, tuple(parts)

    def __call__(self, comm: Any, addresses: tuple[int, ...]) -> Request:
        """Queues them on a stream of NCCL's."""
        made: Request = comm.together([("ncclSend" if out else "ncclRecv", at, nbytes, self.peer)
                                       for (out, nbytes), at in zip(self.parts, addresses, strict=True)])
        return made

    @property
    def nbytes(self) -> int:
        """Of those one way or of those the other way, the larger."""
        return max(sum(n for out, n in self.parts if out is way) for way in (True, False))


class _All:
    """Requests under way at once, as one."""

    __slots__ = ("_left", "source")

    def __init__(self, requests: Sequence[Request]) -> None:
        self._left = list(requests)
        self.source: int | None = None

    def test(self) -> bool:
        self._left = [r for r in self._left if not r.test()]
        return not self._left


class Lane:
    """One communicator of a group with everything that goes through it in one order: what the host asks for, or what is queued on a GPU's stream.

    The two do not wait for one another, as two backends of PyTorch's do not: each rank's host may be ahead of its streams by another measure.
    """

    def __init__(self, group: ProcessGroup, comm: Communicator, watch: Watch, host: bool) -> None:
        self._group, self.comm, self._host, self._process = group, comm, host, os.getpid()
        self._peers = group._peers
        self._number = 0
        self._checking = split(comm, range(comm.size), 1, watch) if comm.size > 1 else None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._left = 0  # jobs in the worker's hands
        self._lock = threading.Lock()
        self._own = np.zeros(3, np.int64)
        self._hashes: dict[str, int] = {}
        self._left_alone: list[Message] = []  # messages that nobody waits for: their memory is MPI's until they are gone

    def _of_a_rank(self) -> None:
        """Raises DistBackendError in a process that a rank has forked: it shares that rank's connections, and must leave them alone."""
        if os.getpid() != self._process and self.comm.size > 1:
            g = self._group
            raise DistBackendError(f"this process was forked from rank {g._ranks[self.comm.rank]} (process {self._process}) after init_process_group and is no "
                                   "rank itself; begin processes that communicate by torch.multiprocessing.spawn, and have each call init_process_group")

    # ------------------------------------------------------------------------------------------------ carrying out
    def run(self, what: str, start: Start, after: Callable[[], None] | None = None, background: bool = False, line: str = "",
            clock: meetings.Clock | None = None) -> Job:
        """Carries out a collective; in the background, in the order of the calls, by the group's own thread.

        what: the call in words that must be equal on all ranks.  start: begins it.  after: what is done in the end.  line: the user's, where it is not
        on the stack.  clock: what tells its moments, where it is not the host that asked.  Raises DistBackendError.
        """
        self._of_a_rank()
        if self._host and self._checking is not None:
            clock = _host_clock()
        job = Job(what, line or user_line(sys._getframe(1)), start, after, clock=clock)
        if background:
            self.submit(job)
        elif self._left:
            self.submit(job)
            self.wait(job)
        else:
            self._carry_out(job)
            if type(job.clock) is meetings.HostClock:
                job.clock.waited(job.what, job.clock.ready)
        return job

    def exchange(self, what: str, line: str, e: Exchange, addresses: tuple[int, ...], clock: meetings.Clock | None) -> None:
        """Carries out messages that are queued on a simulated GPU's stream.  What is received begins when its sender is ready, too."""
        checking, job = self._checking, Job(what, line, lambda comm: e(comm, addresses), shared=False, clock=clock)
        assert checking is not None
        own = np.array([0 if clock is None else meetings.word(clock, self.comm.rank)], np.int64)
        came = np.zeros(len(e.parts), np.int64)

        def communicate() -> None:
            requests: list[Request] = []
            for k, ((out, nbytes), at) in enumerate(zip(e.parts, addresses, strict=True)):
                requests.append((self.comm.send if out else self.comm.receive)(at, nbytes, e.peer, 0))
                requests.append(checking.send(own.ctypes.data, 8, e.peer, 0) if out else checking.receive(came[k:].ctypes.data, 8, e.peer, 0))
            self.until(job, _All(requests))
        self._seen(job, communicate)
        if clock is not None:
            seconds, virtual, last = meetings.read(int(came.max()))
            if last >= 0 and virtual == clock.virtual:
                clock.settle(seconds, self._group._ranks[last])

    def begin(self, what: str, start: Start, out: bool, peer: int | None, tag: int, nbytes: int) -> Message:
        """Begins a message between two ranks, which nobody else takes part in; `complete` ends it.  The sender's clock travels beside it."""
        self._of_a_rank()
        if self._left_alone:
            self._let_go()
        job = Message(what, user_line(sys._getframe(1)), start, out, peer, tag, nbytes)
        job.clock = _host_clock()
        job.request = start(self.comm)
        if self._checking is not None:
            at = job.word.ctypes.data
            if out:
                assert peer is not None
                job.word[0] = 0 if job.clock is None else meetings.word(job.clock, self.comm.rank)
                job.told = self._checking.send(at, 8, peer, tag)
            elif peer is not None:
                job.told = self._checking.receive(at, 8, peer, tag)
        return job

    def complete(self, job: Message, timeout: float | None = None) -> None:
        """Waits for a message."""
        request = job.request
        if request is not None and not job.done.is_set():
            clock = job.clock if type(job.clock) is meetings.HostClock else None
            since = 0.0 if clock is None else clock.now()

            def arrives() -> None:
                self.until(job, request, timeout)
                self._word_of(job, request, timeout)
            self._seen(job, arrives)
            job.done.set()
            if clock is not None:
                clock.waited(job.what, since)
            if job.after is not None:
                job.after()

    def adopt(self, job: Message) -> None:
        """Keeps a message's memory, for which nobody will wait any more."""
        self._left_alone.append(job)

    def _let_go(self) -> None:
        for job in self._left_alone[:]:
            if (job.request is None or job.request.test()) and (job.told is None or job.told.test()):
                self._left_alone.remove(job)

    def _word_of(self, job: Message, request: Request, timeout: Any) -> None:
        """Receives the sender's word, which is at hand where the message is, and tells this rank's clock when that can have arrived."""
        if self._checking is None:
            return
        if job.told is None:
            job.peer = getattr(request, "source", None)
            job.told = self._checking.receive(job.word.ctypes.data, 8, job.peer, job.tag)
        self.until(job, job.told, timeout)
        seconds, virtual, last = meetings.read(int(job.word[0]))
        if job.out or last < 0 or not isinstance(job.clock, meetings.HostClock) or virtual != job.clock.virtual:
            return
        sender = self._group._ranks[last]
        if virtual and machine_of(sender) != machine_of(self._group._ranks[self.comm.rank]):
            seconds += job.clock.driver.network_seconds(job.nbytes)
        job.clock.settle(seconds, sender)

    def wait(self, job: Job, timeout: float | None = None) -> None:
        """Waits for a job of the worker; raises what it raised."""
        end = None if timeout is None else time.monotonic() + timeout
        clock = job.clock if type(job.clock) is meetings.HostClock else None
        since = 0.0 if clock is None else clock.now()
        while not job.done.wait(0.1):
            if end is not None and time.monotonic() > end:
                raise DistBackendError(f"{job.what}: not done after {timeout:.1f} s, begun at {job.line}")
        if job.error is not None:
            raise job.error
        if clock is not None:
            clock.waited(job.what, since)

    def submit(self, job: Job) -> None:
        """Gives a job to the group's own thread, which takes them in order."""
        with self._lock:
            self._left += 1
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, daemon=True, name=f"collectives {self._group.group_name}")
                self._worker.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._carry_out(job)
            except BaseException as error:
                job.error = error
                if job.failed is not None:
                    job.failed(error)
            finally:
                with self._lock:
                    self._left -= 1
                job.done.set()

    def settle(self) -> None:
        """Waits until the group's own thread has nothing left to do."""
        while self._left:
            time.sleep(1e-4)

    def _carry_out(self, job: Job) -> None:
        def communicate() -> None:
            if _checks and self._checking is not None and job.shared:
                self._agree(job)
            job.request = job.start(self.comm)
            self.until(job, job.request)
        self._number += job.shared
        self._seen(job, communicate)
        if job.after is not None:
            job.after()
        job.done.set()

    def _seen(self, job: Job, carry_out: Callable[[], None]) -> None:
        """Carries a job out while others can ask what this rank is in.  Raises what ended it, with the call and its line."""
        doing, peers, thread = Doing(self._number, job.what, job.line, self._group.group_name), self._peers, threading.get_ident()
        if peers is not None:
            peers.doing[thread] = doing
        try:
            carry_out()
        except Exception as error:
            failed()
            raise as_told(job, error) from None
        finally:
            if peers is not None:
                peers.doing.pop(thread, None)
                peers.last = doing

    def until(self, job: Job, request: Request, timeout: float | None = None) -> None:
        """Waits until a request of a job is done.  Raises DistBackendError when a rank is gone, or the time is up."""
        for _ in range(64):
            if request.test():
                return
        watch = self._group.watch(job.what, job.line, self._group._ranks, timeout)
        pause, rounds, looked = 0.0, 0, watch.begun
        moved = looked  # when MPI last carried something: a call carries one piece of a large message and no more
        used = time.thread_time()
        while not request.test():
            rounds += 1
            now = time.monotonic()
            if time.thread_time() - used > _MOVES:
                moved, rounds, pause = now, 0, 0.0
            if now - looked > _LOOK:  # by time, not by rounds: on a busy machine each costs others' turns
                looked = now
                _go_on()
                watch.look()
            if now - moved < _EAGER:
                if rounds < 200:
                    os.sched_yield()
                else:
                    time.sleep(0.0)
            else:
                pause = min(max(pause * 1.1, 2e-5), 1e-3)
                time.sleep(pause)
            used = time.thread_time()

    def _agree(self, job: Job) -> None:
        """Raises DistBackendError on every rank when ranks are about to do different things."""
        h = self._hashes.get(job.what)
        if h is None:
            h = self._hashes[job.what] = zlib.crc32(job.what.encode())
        word = h ^ (self._number << 32)
        own, d = self._own, _int64()
        own[0], own[1], own[2] = word, ~word, 0 if job.clock is None else -meetings.word(job.clock, self.comm.rank)
        assert self._checking is not None
        self.until(job, self._checking.all_reduce(own.ctypes.data, 3, d, "min"))
        if own[0] == word and own[1] == ~word:
            self._meet(job, -int(own[2]))
            return
        told = np.zeros(_ROOM, np.uint8)
        text = f"{job.what}, number {self._number}, at {job.line}".encode()[:_ROOM]
        told[:len(text)] = np.frombuffer(text, np.uint8)
        all_ = np.zeros((self._group.size(), _ROOM), np.uint8)
        self.until(job, self._checking.all_gather(told.ctypes.data, _ROOM, all_.ctypes.data))
        calls = "\n".join(f"  rank {r}: {row.tobytes().rstrip(bytes(1)).decode(errors='replace')}" for r, row in zip(self._group._ranks, all_))
        raise DistBackendError(f"the ranks called different collectives:\n{calls}")

    def _meet(self, job: Job, said: int) -> None:
        """Tells a job's clock what the ranks' words say: who came last, and when."""
        seconds, virtual, last = meetings.read(said)
        if job.clock is not None and said and virtual == job.clock.virtual:
            job.clock.settle(seconds, self._group._ranks[last] if last >= 0 else -1)


def _go_on() -> None:
    """This rank stands still, and others may wait for what it has queued on simulated GPUs, which some orders run only for who waits here: it is run."""
    driver: Any = gpus._system.driver if gpus._system is not None else None
    if driver is not None and driver.simulated:
        from . import world
        for g in world.state.groups:
            for q in list(g.gpus.values()):
                driver.go_on(q.stream._handle)


def _host_clock() -> meetings.HostClock | None:
    """That of simulated GPUs, where there are any by now, else the real one, if anybody looks at it."""
    driver: Any = gpus._system.driver if gpus._system is not None else None
    if driver is not None and driver.simulated:
        return meetings.HostClock(driver)
    return meetings.HostClock(None) if meetings.watched() else None


def as_told(job: Job, error: Exception) -> Exception:
    """What a person is told of an error that communication ended with: where its own library raised it, the call and its line too."""
    library = "MPI" if type(error).__module__.startswith("mpi4py") else "NCCL" if isinstance(error, NCCLError) else ""
    return DistBackendError(f"{job.what} at {job.line}: {library} says: {error}") if library else error


class ProcessGroup:
    """Some of the processes.  `init_process_group` and `new_group` make them.

    `host` carries what the host asks for, `device` what is queued on a GPU's stream.
    """

    def __init__(self, comm: Communicator, ranks: Sequence[int], backend: str, timeout: datetime.timedelta, name: str, peers: Peers | None,
                 rank: int) -> None:
        self._comm, self._ranks, self._backend, self._timeout, self.group_name = comm, list(ranks), backend, timeout, name
        self.group_desc = name
        self._peers, self._rank = peers, rank
        self.machines = len({machine_of(r) for r in ranks})
        self.bound_device_id: Any = None
        self.gpus: dict[Any, GpuQueue] = {}
        self.pairs: dict[int, ProcessGroup] = {}  # with one other rank, for messages
        watch = self.watch(f"making group {name}".rstrip(), user_line(sys._getframe(1)), self._ranks)
        self.host = Lane(self, comm, watch, True)
        other = split(comm, range(comm.size), 2, watch)
        assert other is not None
        self.device = Lane(self, other, watch, False)

    def rank(self) -> int:
        """This process's number in the group; -1 outside."""
        return self._rank

    def size(self) -> int:
        """How many processes the group has."""
        return len(self._ranks)

    def name(self) -> str:
        """The backend's name."""
        return self._backend

    def get_group_store(self) -> Any:
        """The store that the default group was made with."""
        from . import world
        return world.state.store

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name or 'default'}: rank {self._rank} of {len(self._ranks)}, {self._backend}>"

    def part(self, ranks: Sequence[int], tag: int) -> Communicator | None:
        """A communicator of some ranks (by their numbers in this group), which they alone ask for."""
        if len(ranks) == 1:
            return Alone()
        return split(self._comm, ranks, tag, self.watch("making a group", user_line(sys._getframe(1)), [self._ranks[r] for r in ranks]))

    def watch(self, what: str, line: str, ranks: Sequence[int], limit: float | None = None) -> Watch:
        """What looks on while this process waits for some ranks (global numbers) for at most `limit` seconds, by default the group's."""
        return Watch(self._peers, self._ranks[self._rank], ranks, what, line, self._timeout.total_seconds() if limit is None else limit)


def machine_of(rank: int) -> int:
    """The number of the machine that a rank (a global one) lies on: so many each as FLAMBEAU_SIM_NODE says, or as the launcher put on this one.

    Raises ValueError for anything but a number.
    """
    text = os.environ.get("FLAMBEAU_SIM_NODE") or os.environ.get("LOCAL_WORLD_SIZE") or ""
    if not text:
        return 0
    if not text.strip().isdigit() or not int(text):
        raise ValueError(f"FLAMBEAU_SIM_NODE, or LOCAL_WORLD_SIZE: expected a number of ranks on a machine, got {text!r}")
    return rank // int(text)


def split(comm: Communicator, ranks: Sequence[int], tag: int, watch: Watch) -> Communicator | None:
    """A communicator of some ranks.  MPI waits for all of them in one call, which is watched.  Raises DistBackendError."""
    if comm.size == 1:
        return comm.split(list(ranks), tag)
    try:
        made: Communicator | None = watch.over(lambda: comm.split(list(ranks), tag))
        return made
    except DistBackendError:
        failed()
        raise


def failed() -> None:
    """Has this process end without waiting for the others, as communication failed."""
    from . import wireup
    if wireup._job is not None:
        wireup._job.failed = True


def _int64() -> Any:
    from .._core.dtypes import int64
    return int64


_checks = os.environ.get("FLAMBEAU_DISTRIBUTED_CHECK", "1") != "0"
