"""What a trace is made of: stages, the work each gave to devices, and groups of stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .values import Sample

Described = tuple[tuple[int, ...], str, str]  # shape, type, device of a tensor


class Work:
    """One kernel or copy on one device.

    kind: "kernel" or "copy".  lane: where it ran, as (device, stream number); the CPU has stream 0.  start and end: seconds
    on the trace's clock, None where they are not known; `predicted` says whether a model or a clock gave them.  nbytes:
    copied, or read and written by a kernel.  waits: how long a collective waited for another process, as (its rank, start, end).  collective: whether it is
    one.  direction, path, source, target and blocking are a copy's: see `dispatch.Copy`.
    """

    __slots__ = ("kind", "name", "lane", "start", "end", "predicted", "nbytes", "flops", "engine", "direction", "path",
                 "source", "target", "blocking", "collective", "waits")

    def __init__(self, kind: str, name: str, lane: tuple[str, int], nbytes: int = 0, flops: int = 0) -> None:
        self.kind, self.name, self.lane, self.nbytes, self.flops = kind, name, lane, nbytes, flops
        self.start: float | None = None
        self.end: float | None = None
        self.predicted = False
        self.engine = self.direction = self.path = self.source = self.target = ""
        self.blocking = self.collective = False
        self.waits: tuple[int, float, float] | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took; None where that is not known."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def crosses(self) -> bool:
        """Whether it carries bytes from one device to another."""
        return self.kind == "copy" and self.source != self.target


class Stage:
    """One step of the traced program: an operation with what went in, what came out and the work it gave to devices.

    name: the operation.  call: the operation with its plain arguments, for reading.  inputs and outputs: (shape, type,
    device) of tensors.  samples: the first values of the outputs.  line: `file:line` of the program.  groups: what it is
    part of (modules, a backward pass), outermost first.  start and end: seconds on the trace's clock, as the host has
    it.  host: seconds that the call took on this machine, without those for making kernels.  error: what it raised, or "".  result: what it gave to the
    host, where that is a number, or "".  sources: the stages that wrote what it read, in the order of its inputs.  waits: when the host stood still for a
    device, as (device, start, end), device "" where it was for several.
    """

    __slots__ = ("index", "name", "call", "inputs", "outputs", "samples", "works", "line", "thread", "groups", "start", "end",
                 "host", "error", "result", "sources", "waits")

    def __init__(self, name: str, call: str, line: str | None, thread: int, groups: tuple[str, ...], start: float) -> None:
        self.index = 0
        self.name, self.call, self.line, self.thread, self.groups = name, call, line, thread, groups
        self.inputs: list[Described] = []
        self.outputs: list[Described] = []
        self.samples: list[Sample] = []
        self.works: list[Work] = []
        self.start, self.end, self.host = start, start, 0.0
        self.error = self.result = ""
        self.sources: tuple[Stage, ...] = ()
        self.waits: list[tuple[str, float, float]] = []

    @property
    def waited(self) -> float:
        """Seconds for which the host stood still."""
        return sum(end - start for _, start, end in self.waits)

    @property
    def met(self) -> list[tuple[tuple[str, int], int, float, float]]:
        """For whom it waited among other processes: lane, rank, start and end."""
        found = [(("cpu", 0), int(device[5:]), start, end) for device, start, end in self.waits if device.startswith("rank ")]
        return found + [(w.lane, *w.waits) for w in self.works if w.waits is not None]

    @property
    def transfer(self) -> Work | None:
        """Its first copy from one device to another, if it made one."""
        return next((w for w in self.works if w.crosses), None)

    @property
    def device(self) -> str:
        """Where it worked: a device, or "from -> to" for a transfer."""
        moved = self.transfer
        if moved is not None:
            return f"{moved.source} -> {moved.target}"
        if self.outputs:
            return self.outputs[0][2]
        return self.works[0].lane[0] if self.works else self.inputs[0][2] if self.inputs else "cpu"

    @property
    def lane(self) -> tuple[str, int]:
        """The device and stream it is drawn on: a transfer's source."""
        moved = self.transfer
        if moved is not None:
            return moved.lane if moved.source == moved.lane[0] else (moved.source, 0)
        for w in self.works:
            return w.lane
        return self.device, 0

    @property
    def moved(self) -> int:
        """Bytes that went from one device to another."""
        return sum(w.nbytes for w in self.works if w.crosses)

    @property
    def nbytes(self) -> int:
        """Bytes moved: from device to device where there is a transfer, else read and written by its kernels; what a stage
        without either made."""
        return self.moved or sum(w.nbytes for w in self.works) or (0 if self.works else self._made())

    def _made(self) -> int:
        from .._core.dtypes import BY_NAME
        total = 0
        for shape, dtype, _ in self.outputs:
            n = BY_NAME[dtype].itemsize
            for size in shape:
                n *= size
            total += n
        return total

    @property
    def predicted(self) -> bool:
        """Whether its time is a model's prediction: it ran on a simulated GPU."""
        return any(w.predicted for w in self.works)

    @property
    def seconds(self) -> float | None:
        """How long its devices were at it, first start to last end; without work of its own, how long the call took.

        None where only a real GPU knows.
        """
        if not self.works:
            return self.host
        timed = [w for w in self.works if w.start is not None and w.end is not None]
        if self.predicted:
            timed = [w for w in timed if w.predicted]
        elif all(w.lane[0] == "cpu" for w in timed):
            return sum((w.end or 0.0) - (w.start or 0.0) for w in timed) if timed else self.host
        if not timed:
            return None
        return max(w.end or 0.0 for w in timed) - min(w.start or 0.0 for w in timed)

    def __repr__(self) -> str:
        ins = ", ".join(str(shape) for shape, _, _ in self.inputs) or "()"
        outs = ", ".join(str(shape) for shape, _, _ in self.outputs) or "()"
        return f"Stage({self.call} on {self.device}: {ins} -> {outs})"


class Group:
    """Stages that belong together on one thread: a module's forward, a backward pass, an optimizer's step."""

    __slots__ = ("name", "thread", "start", "end", "key")

    def __init__(self, name: str, thread: int, start: float, key: Any = None) -> None:
        self.name, self.thread, self.start, self.end, self.key = name, thread, start, start, key
