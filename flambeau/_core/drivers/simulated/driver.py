"""The driver of simulated GPUs: the CPU's kernels on separate memory, in streams, with predicted times."""

from __future__ import annotations

import random
import sys
import threading
from bisect import bisect_right
from ctypes import memmove
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import AcceleratorError, launched_at, site
from ...kernels.specs import Collective, Product
from ..cpu import backend
from ..interface import Driver, Properties, permit
from ..pages import map_pages, unmap_pages
from . import clock, halves
from .arena import Arena
from .graphs import Graph, Replay
from .models import Model, model
from .models import network as network_of
from .moments import Behind, Mark, Meet, Moment, Placed, drain
from .queues import MODES, Launch, Move, Queue, Wait, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Spec

_PAGE = 4096
_SOMEWHERE = ("", 0)  # the line of what no program's line asked for
_MOST_COSTS = 4096


class _Event:
    """A place in a queue; `queue` None: never recorded.  `moment` is that on the virtual clock.  graph: it was recorded in a capture, behind `seen`."""

    __slots__ = ("queue", "ticket", "moment", "graph", "seen")

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.seen: dict[Queue, int] = {}
        self.queue: Queue | None = None
        self.ticket = 0
        self.moment = Moment()
        self.moment.time = 0.0


class _Device:
    __slots__ = ("index", "model", "memory", "queues", "error", "dead", "peers", "compute", "incoming", "outgoing", "link")

    def __init__(self, index: int, what: Model, capacity: int) -> None:
        self.index, self.model, self.memory = index, what, Arena(capacity)
        self.queues: list[Queue] = []
        self.error: tuple[str, tuple[str, int] | None, BaseException] | None = None
        self.dead = False  # memory that is not its own was touched: nothing works any more, as on hardware
        self.peers = {index}
        self.compute = (clock.Engine("compute"),)
        self.incoming, self.outgoing = (clock.Engine("copy in"),), (clock.Engine("copy out"),)
        self.link = (clock.Engine("link"),)  # between GPUs of several processes


class SimulatedDriver(Driver):
    """`models`: one name a GPU.  `memory`: bytes of each, in place of the model's.  `queue`: "eager" (work runs as it
    comes, a thread a stream), "lazy" (work runs when something waits for it) or "random" (bits of work run by `seed`).
    `network`: what joins this machine with others.
    """

    simulated = True

    def __init__(self, models: Sequence[str], memory: int | None = None, queue: str = "eager", seed: int = 0, network: str = "NDR") -> None:
        if queue not in MODES:
            raise ValueError(f"queue: expected one of {', '.join(map(repr, MODES))}, got {queue!r}")
        found = [model(name) for name in models]
        self._network = network_of(network)
        self.queue_mode = queue
        self._eager = queue == "eager"
        self._random = random.Random(seed) if queue == "random" else None
        self.prompt = False  # each piece of work is done before the call that queues it returns, in the program's order
        self._gate = threading.RLock()  # queueing and the virtual clock, both in the host's order
        self._host = 0.0
        self._devices = [_Device(i, m, memory or m.memory_mib << 20) for i, m in enumerate(found)]
        self._pinned: list[tuple[int, int]] = []  # (start, end) of page-locked blocks, sorted
        self._closed = False
        self._costs: dict[tuple[PreparedLaunch, Model], tuple[float, float]] = {}
        self._watchers: tuple[Any, ...] = ()
        self._waiters: tuple[Any, ...] = ()

    # ------------------------------------------------------------------------------------------------------- devices
    def device_count(self) -> int:
        return len(self._devices)

    def properties(self, device: int) -> Properties:
        d = self._devices[device]
        m = d.model
        return Properties(
            name=m.full_name, major=m.capability[0], minor=m.capability[1], total_memory=d.memory.capacity,
            multi_processor_count=m.processors, L2_cache_size=m.l2_mib << 20, uuid=uuid_of(device), warp_size=32,
            max_threads_per_multi_processor=m.threads, regs_per_multiprocessor=65536, shared_memory_per_block=48 << 10,
            shared_memory_per_multiprocessor=m.shared_kib << 10, shared_memory_per_block_optin=(m.shared_kib - 1) << 10,
            is_integrated=False, is_multi_gpu_board=False, simulated=True, pci_bus_id=device + 1, pci_device_id=0,
            pci_domain_id=0)

    def memory_info(self, device: int) -> tuple[int, int]:
        a = self._devices[device].memory
        return a.capacity - a.used, a.capacity

    def can_access_peer(self, device: int, peer: int) -> bool:
        return device != peer and self._devices[device].model.peer and self._devices[peer].model.peer

    def enable_peer(self, device: int, peer: int) -> None:
        if not self.can_access_peer(device, peer):
            names = [f"GPU {i} ({self._devices[i].model.full_name})" for i in (device, peer)]
            raise RuntimeError(f"peer access is not supported between {names[0]} and {names[1]}")
        self._devices[device].peers.add(peer)

    def synchronize(self, device: int) -> None:
        d = self._devices[device]
        for q in list(d.queues):
            if q.graph is not None:
                permit(q.graph)
        for q in list(d.queues):
            until = self._mark(q)
            advance(q, q.submitted)
            self._wait(d, until)
        self._report(d)

    # -------------------------------------------------------------------------------------------------------- memory
    def alloc(self, device: int, nbytes: int) -> int:
        return self._devices[device].memory.alloc(nbytes)

    def free(self, device: int, address: int) -> None:
        self._devices[device].memory.free(address)

    def host_alloc(self, nbytes: int) -> int:
        size = (nbytes + _PAGE - 1) & -_PAGE
        address = map_pages(size)
        if address:
            with self._gate:
                self._pinned.insert(bisect_right(self._pinned, (address, 0)), (address, address + size))
        return address

    def host_free(self, address: int) -> None:
        with self._gate:
            i = bisect_right(self._pinned, (address, 0))
            if i == len(self._pinned) or self._pinned[i][0] != address:
                raise ValueError(f"host_free: {address:#x} is not the start of page-locked memory")
            start, end = self._pinned.pop(i)
        unmap_pages(start, end - start)

    def is_pinned(self, address: int) -> bool:
        with self._gate:
            i = bisect_right(self._pinned, (address, 1 << 64))
            return i > 0 and address < self._pinned[i - 1][1]

    def owns(self, device: int, address: int) -> bool:
        return address in self._devices[device].memory

    def _owner(self, address: int) -> _Device | None:
        """The device an address lies on; None: the host."""
        for d in self._devices:
            if address in d.memory:
                return d
        return None

    # ------------------------------------------------------------------------------------------------------- streams
    def stream_create(self, device: int, priority: int = 0) -> Queue:
        q = Queue(device, priority, self._carry_out)
        self._devices[device].queues.append(q)
        return q

    def stream_external(self, device: int, number: int) -> Queue:
        for k, q in enumerate(self._devices[device].queues):
            if number == (id(q) if k else 0):  # the first is the default stream
                return q
        raise RuntimeError(f"ExternalStream: {number:#x} is no stream of simulated GPU {device}; on simulated GPUs it must be the cuda_stream of a Stream")

    def stream_destroy(self, stream: Queue) -> None:
        advance(stream, stream.submitted)
        stream.close()
        self._devices[stream.device].queues.remove(stream)

    def stream_query(self, stream: Queue) -> bool:
        if stream.graph is not None:
            permit(stream.graph)
        self._perhaps_run()
        return stream.done >= stream.submitted

    def stream_synchronize(self, stream: Queue) -> None:
        if stream.graph is not None:
            permit(stream.graph)
        until = self._mark(stream)
        advance(stream, stream.submitted)
        d = self._devices[stream.device]
        self._wait(d, until)
        self._report(d)

    def prepare(self, device: int, spec: Spec) -> PreparedLaunch | None:
        made = backend.prepare(spec)
        if made is None and type(spec) is Product:
            made = halves.product(spec)
            if made is not None:
                made.spec = spec
        return made

    def serves(self, kind: type[Spec]) -> bool:
        return backend.serves(kind)

    def launch(self, stream: Queue, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        d = self._devices[stream.device]
        what = d.model
        spec = prepared.keep
        if type(spec) is Collective:
            if spec.name in ("send", "recv", "messages"):
                seconds = clock.message_seconds(what, spec.whole, self._network if spec.machines > 1 else None)
            else:
                seconds = clock.collective_seconds(what, spec.name, spec.whole, spec.size, spec.machines, self._network)
            where = site() or _SOMEWHERE
            item = Launch(prepared, args, where) if stream.graph is not None else Meet(prepared, args, where, stream, seconds, d.link, self._drain)
            self._submit(stream, item, seconds, seconds, d.link)
            return
        price = self._costs.get((prepared, what))
        if price is None:
            price = clock.kernel_seconds(what, prepared), clock.kernel_busy(what, prepared)
            if prepared.program is not None:  # library routines are prepared afresh for each call
                if len(self._costs) > _MOST_COSTS:
                    self._costs.clear()
                self._costs[prepared, what] = price
        self._submit(stream, Launch(prepared, args, (site() or _SOMEWHERE) if self._may_fail(d, prepared, args) else None), *price, d.compute)

    def _may_fail(self, d: _Device, prepared: PreparedLaunch, args: tuple[Any, ...]) -> bool:
        """Whether a launch must be looked at when it is carried out, and its line kept: not a loop on the device's own memory."""
        if prepared.program is None:
            return True
        low, high = d.memory.low, d.memory.high
        for a in args[:prepared.outputs + len(prepared.program.inputs)]:
            if not low <= a < high:
                return True
        return False

    def memcpy(self, stream: Queue, dst: int, src: int, nbytes: int, keep: Any = None) -> None:
        path, cost, engines = self._price(stream, dst, src, nbytes)
        self._submit(stream, Move(dst, src, nbytes, keep, f"copy {path}"), cost, cost, engines)

    def copier(self, device: int, direction: str, nbytes: int, wait: bool) -> Callable[..., None]:
        if type(self).memcpy is not SimulatedDriver.memcpy:  # a driver made from this one sees its copies there
            return super().copier(device, direction, nbytes, wait)
        d = self._devices[device]
        engines = d.incoming if direction == "h2d" else d.outgoing
        prices = [clock.copy_seconds(d.model, direction, nbytes, pinned) for pinned in (False, True)]
        name, submit, synchronize, make = f"copy {direction}", self._submit, self.stream_synchronize, object.__new__

        def copy(stream: Queue, dst: int, src: int, pinned: bool, keep: Any = None) -> None:
            cost, move = prices[pinned], make(Move)
            move.dst, move.src, move.nbytes, move.keep, move.name, move.run = dst, src, nbytes, keep, name, partial(memmove, dst, src, nbytes)
            # who waits runs what is queued: to wake the stream's thread would only hold up both
            submit(stream, move, cost, cost, engines, not wait)
            if wait:
                try:
                    synchronize(stream)
                except BaseException:
                    if self._eager:
                        with self._gate:
                            stream.wake()
                    raise
        return copy

    def _price(self, stream: Queue, dst: int, src: int, nbytes: int) -> tuple[str, float, tuple[clock.Engine, ...]]:
        """The path of a copy, its seconds and the engines it takes."""
        to, here = self._owner(dst), self._owner(src)
        own = self._devices[stream.device]
        if to is None or here is None:
            path = "h2d" if to is not None else "d2h" if here is not None else "h2h"
            pinned = path != "h2h" and self.is_pinned(src if here is None else dst)
            engines = (here or own).outgoing if path == "d2h" else (to or own).incoming
            return path, clock.copy_seconds(own.model, "h2d" if path == "h2h" else path, nbytes, pinned), engines
        if to is here:
            return "d2d", clock.copy_seconds(own.model, "d2d", nbytes, True), own.compute
        path = "peer" if here.index in to.peers or to.index in here.peers else "host"
        return path, clock.copy_seconds(here.model, path, nbytes, True, to.model), here.outgoing + to.incoming

    def _submit(self, stream: Queue, item: Any, cost: float, busy: float, engines: tuple[clock.Engine, ...], wake: bool = True) -> None:
        """Queues an item that takes `cost` seconds, for `busy` of which it has `engines` to itself.  wake: the stream's thread may begin."""
        with self._gate:
            if self._closed:
                raise RuntimeError("this simulated GPU is gone: its simulate() block has ended; move its tensors "
                                   "to the CPU inside the block")
            if stream.graph is not None:
                stream.graph.add(stream, item, cost, busy, engines)
                return
            self._host += self._devices[stream.device].model.reached.launch
            start: float | None = None
            if stream.later or type(item) is Meet:
                self._put_off(stream, item, cost, busy, engines)
            else:
                start = stream.ready if stream.ready > self._host else self._host
                start = clock.schedule(engines, start, busy)
                stream.ready = start + cost
            for watcher in self._watchers:
                watcher(stream, item, engines[0].name, start, None if start is None else start + cost)
            stream.items.append(item)
            stream.submitted += 1
            if wake and self._eager:
                stream.wake()
        self._perhaps_run()

    def _put_off(self, stream: Queue, item: Any, cost: float, busy: float, engines: tuple[clock.Engine, ...]) -> None:
        """When an item has its turn is not known yet: watchers are told again when it is."""
        def told(start: float, end: float) -> None:
            for watcher in self._watchers:
                watcher(stream, item, engines[0].name, start, end)
        if type(item) is Meet:
            item.host, item.told = self._host, told
            stream.later.append(item)
        else:
            stream.later.append(Placed(cost, busy, engines, self._host, told))

    def _drain(self) -> None:
        """Works out what is known on all streams, now that ranks have agreed."""
        with self._gate:
            drain(q for d in self._devices for q in d.queues)

    def _mark(self, stream: Queue) -> Moment:
        """When the work queued on a stream so far is done."""
        with self._gate:
            moment = Moment()
            if stream.later:
                stream.later.append(Mark(moment, 0.0))
            else:
                moment.time = stream.ready
            return moment

    def host_moved(self, nbytes: int) -> float:
        seconds = nbytes / clock.HOST
        self.host_spent(seconds)
        return seconds

    def peek(self, stream: Queue, dst: int, src: int, nbytes: int, keep: Any) -> Callable[[], None]:
        """Queues a copy that neither the virtual clock nor a watcher notices; what is given waits for it."""
        with self._gate:
            stream.submit(Move(dst, src, nbytes, keep, "peek"), self._eager)
            ticket = stream.submitted
        return lambda: advance(stream, ticket)

    def go_on(self, stream: Queue) -> None:
        """Runs what is queued on a stream, and what that waits for, beside the host, in whatever order the driver otherwise has."""
        with self._gate:
            if stream.items:
                stream.wake()

    def _perhaps_run(self) -> None:
        """In random order: some of the work that is queued anywhere, as the seed has it.  All of it, where it is to be done promptly."""
        if self.prompt:
            for q in [q for d in self._devices for q in d.queues]:
                advance(q, q.submitted)
        if self._random is None:
            return
        busy = [q for d in self._devices for q in d.queues if q.items]
        while busy and self._random.random() < 0.5:
            q = self._random.choice(busy)
            q.step()
            if not q.items:
                busy.remove(q)

    def _carry_out(self, device: int, item: Any) -> None:
        """Runs one item.  What it raises is kept for the next synchronisation; work after it is dropped until then."""
        d = self._devices[device]
        try:
            if d.error is not None or d.dead:
                return
            if isinstance(item, Launch) and item.site is not None:
                self._check(d, item)
            item.run()
        except BaseException as error:  # an interrupt, too, belongs to whoever waits
            if d.error is None:
                d.error = (item.name, getattr(item, "site", None), error)
        finally:
            if type(item) is Meet:
                item.alone()  # unless the ranks agreed

    def _check(self, d: _Device, item: Launch) -> None:
        """Raises for an operand that is not on the device: on hardware, an illegal memory access."""
        prepared = item.prepared
        known = prepared.outputs if prepared.program is None else prepared.outputs + len(prepared.program.inputs)
        low, high = d.memory.low, d.memory.high
        for k, a in enumerate(item.args):
            if type(a) is not int or low <= a < high:
                continue
            owner = self._owner(a)
            if owner is None:
                if k >= known or self.is_pinned(a):
                    continue
                where = "host memory that is not pinned"
            elif owner.index in d.peers:
                continue
            else:
                where = f"GPU {owner.index}, which it has no peer access to"
            d.dead = True
            raise AcceleratorError(f"an illegal memory access was encountered: argument {k} ({a:#x}) lies in {where}")

    def _report(self, d: _Device) -> None:
        """Raises what went wrong on a device since it was last asked."""
        if d.error is None:
            return
        name, where, error = d.error
        told = launched_at([where])
        if d.dead:
            raise AcceleratorError(f"CUDA error on GPU {d.index} in launch '{name}'{told}: {error}. The device is unusable "
                                   "until the process (or its simulate() block) ends") from error
        d.error = None
        late = "" if self.awaited else ". It ran after its call had returned; work behind it was dropped"
        raise AcceleratorError(f"CUDA error on GPU {d.index}: launch '{name}' failed with {type(error).__name__}: {error}{told}{late}") from error

    # -------------------------------------------------------------------------------------------------------- events
    def event_create(self, timing: bool = False, sleeps: bool = False) -> _Event:
        return _Event()

    def event_record(self, event: _Event, stream: Queue) -> None:
        with self._gate:
            event.graph = stream.graph
            if stream.graph is not None:
                event.queue, event.seen = None, dict(stream.graph.seen[stream])
                return
            self._host += self._devices[stream.device].model.reached.launch
            event.queue, event.ticket = stream, stream.submitted
            # work that only waits takes no time of its own, but the moment is never before the call
            event.moment = Moment()
            if stream.later:
                stream.later.append(Mark(event.moment, self._host))
            else:
                event.moment.time = stream.ready = max(stream.ready, self._host)

    def stream_wait_event(self, stream: Queue, event: _Event) -> None:
        with self._gate:
            source = event.queue
            if event.graph is not None and event.graph.open:
                event.graph.join(stream, event.seen)
                return
            if source is None:
                return
            if stream.graph is not None:
                raise AcceleratorError("CUDA error: dependency created on uncaptured work in another stream")
            if stream.later or event.moment.time is None:
                stream.later.append(Behind(event.moment))
            else:
                stream.ready = max(stream.ready, event.moment.time)
            if source is not stream and source.done < event.ticket:
                stream.submit(Wait(source, event.ticket), self._eager)

    def event_query(self, event: _Event) -> bool:
        if event.graph is not None:
            permit(event.graph)
        self._perhaps_run()
        return event.queue is None or event.queue.done >= event.ticket

    def event_synchronize(self, event: _Event) -> None:
        if event.graph is not None:
            permit(event.graph)
        q = event.queue
        if q is not None:
            advance(q, event.ticket)
            d = self._devices[q.device]
            self._wait(d, event.moment)
            self._report(d)

    def event_elapsed(self, start: _Event, end: _Event) -> float:
        return ((end.moment.time or 0.0) - (start.moment.time or 0.0)) * 1e3

    # -------------------------------------------------------------------------------------------------------- graphs
    def graph_begin(self, stream: Queue) -> Graph:
        with self._gate:
            if stream.graph is not None:
                raise AcceleratorError("CUDA error: the stream is being captured already")
            stream.graph = Graph(stream)
            return stream.graph

    def graph_end(self, graph: Graph) -> None:
        with self._gate:
            graph.end()

    def graph_arguments(self, graph: Graph) -> list[tuple[Any, ...]]:
        if not graph.joined:
            raise AcceleratorError("CUDA error: capturing stream has unjoined work: the captured stream must wait for the other streams of the capture")
        return [item.args if type(item) is Launch else () for item in graph.items]

    def graph_launch(self, stream: Queue, graph: Graph, changed: dict[int, tuple[Any, ...]]) -> None:
        d = self._devices[stream.device]
        self._submit(stream, Replay(graph, changed, lambda item: self._check(d, item)), graph.cost, graph.busy, d.compute)

    def capturing(self, stream: Queue) -> bool:
        return stream.graph is not None

    # --------------------------------------------------------------------------------------------------------- clock
    def host_time(self) -> float:
        """Seconds on the virtual clock, as the host has it: its calls, and what it waited for."""
        return self._host

    def device_time(self, device: int) -> float:
        """Seconds on the virtual clock when the work queued on a device so far will be done, as far as that is known: what is behind a collective that
        other ranks have not come to is not."""
        return max((q.ready for q in self._devices[device].queues), default=0.0)

    def utilization(self, device: int, seconds: float = 1.0) -> tuple[int, int]:
        """(in kernels, in kernels or copies): percents of the last `seconds` of the virtual clock, or of all if it is younger."""
        d = self._devices[device]
        with self._gate:
            until = self._host
            since = max(until - seconds, 0.0)
            kernels = [i for e in d.compute for i in e.taken(since, until)]
            copies = [i for e in (*d.incoming, *d.outgoing) for i in e.taken(since, until)]

        def share(those: list[tuple[float, float]]) -> int:
            total, end = 0.0, since
            for a, b in sorted(those):
                total += max(b - max(a, end), 0.0)
                end = max(end, b)
            return round(100 * total / (until - since)) if until > since else 0
        return share(kernels), share(kernels + copies)

    def host_spent(self, seconds: float) -> None:
        """The host did something else for so long: work queued from now on starts no earlier."""
        with self._gate:
            self._host += seconds

    def network_seconds(self, nbytes: int) -> float:
        """The predicted time of a message from one machine's host to another's."""
        return self._network.hop + nbytes / self._network.rate

    def host_until(self, moment: float) -> None:
        """The host stood still until a moment of the virtual clock, unless that has gone by."""
        with self._gate:
            self._host = max(self._host, moment)

    def _wait(self, d: _Device, moment: Moment) -> None:
        """The host stands still for a device until a moment of the virtual clock, unless that has gone by."""
        since, until = self._host, moment.time
        if until is not None and until > since:
            self._host = until
            for waiter in self._waiters:
                waiter(d.index, since, until)

    def watch(self, watcher: Callable[[Queue, Any, str, float | None, float | None], None],
              waiter: Callable[[int, float, float], None] | None = None) -> Callable[[], None]:
        """Calls `watcher(stream, item, engine, start, end)` for whatever is queued, with its predicted moments on the
        virtual clock, in the thread that queues it, and `waiter(device, start, end)` in a thread that has waited.  What is given ends that.
        Moments that are not known yet are None; when they are, the watcher is called again, in any thread (`moments`)."""
        with self._gate:
            self._watchers += (watcher,)
            self._waiters += (waiter,) if waiter is not None else ()

        def end() -> None:
            with self._gate:
                self._watchers = tuple([w for w in self._watchers if w is not watcher])
                self._waiters = tuple([w for w in self._waiters if w is not waiter])
        return end

    def __del__(self, ending: Any = sys.is_finalizing, unmap: Any = unmap_pages) -> None:
        # at the interpreter's end a stream's thread may still be copying
        if not ending():
            for start, end in getattr(self, "_pinned", ()):
                unmap(start, end - start)

    def close(self) -> None:
        for d in self._devices:
            for q in list(d.queues):
                advance(q, q.submitted)
        with self._gate:
            self._closed = True
        for d in self._devices:
            for q in list(d.queues):
                q.close()


def uuid_of(device: int) -> str:
    """The identity of a simulated GPU, without the "GPU-" in front: the same in every process."""
    return f"{0x5f1a3bea + device:08x}-51a0-4f6e-9d2c-{device:012x}"
