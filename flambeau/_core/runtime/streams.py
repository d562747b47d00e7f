"""Streams and events of GPUs (torch.cuda.Stream, torch.cuda.Event)."""

from __future__ import annotations

from typing import Any

from . import gpus
from .device import device
from .gpus import Gpu


class Stream:
    """A queue of work on one GPU: its work runs in order, beside that of other streams and beside the host.

    device: the GPU (the current one by default).  priority: lower numbers are more urgent.
    As a ``with`` block it is the current stream of its GPU, and its GPU is current.
    """

    __slots__ = ("_gpu", "_handle", "stream_id", "priority", "__weakref__")
    _gpu: Gpu
    _handle: Any
    stream_id: int
    priority: int

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if kwargs:
            raise TypeError(f"Stream() got an unexpected keyword argument '{next(iter(kwargs))}'")
        g = gpus.gpu(device)
        return cls._of(g, *g.stream(priority), priority)

    @classmethod
    def _of(cls, g: Gpu, handle: Any, number: int, priority: int) -> Stream:
        s = object.__new__(cls)
        s._gpu, s._handle, s.stream_id, s.priority = g, handle, number, priority
        return s

    @property
    def device(self) -> device:
        return self._gpu.device

    @property
    def device_index(self) -> int:
        return self._gpu.index

    @property
    def cuda_stream(self) -> int:
        """The driver's handle of the stream; on a simulated GPU a number that stands for it, 0 for the default stream."""
        handle = self._handle
        raw = getattr(handle, "raw", None)  # a real one, which other libraries can use
        return raw if raw is not None else 0 if handle is self._gpu.default_handle else id(handle)

    def query(self) -> bool:
        """Whether everything queued so far is done."""
        return self._gpu.driver.stream_query(self._handle)

    def synchronize(self) -> None:
        """Waits until everything queued so far is done.  Raises AcceleratorError when something of it failed."""
        self._gpu.driver.stream_synchronize(self._handle)

    def wait_event(self, event: Event) -> None:
        """Work queued on this stream from now on waits for the event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Work queued on this stream from now on waits for what is queued on `stream` now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event (a new one by default) here, and gives it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        gpus._thread.before.append((gpus._thread.index, gpus._thread.streams.get(self._gpu)))
        gpus.set_current(self._gpu.index)
        gpus.set_stream(self)
        return self

    def __exit__(self, *exc: object) -> None:
        index, stream = gpus._thread.before.pop()  # this thread's own: others may be inside the same stream
        gpus._thread.index = index
        if stream is None:
            gpus.unset_stream(self._gpu)
        else:
            gpus.set_stream(stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._handle is other._handle

    def __hash__(self) -> int:
        return hash(id(self._handle))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made: work queued here goes to it.

    stream_ptr: the number of the stream, as `Stream.cuda_stream` gives it (a `cudaStream_t`); 0 is CUDA's default stream.  device: the GPU it was made on.
    Who made it keeps it alive.  On a simulated GPU it is the number of a stream made here.  Raises TypeError for another type, RuntimeError for the
    number of no stream.
    """

    __slots__ = ()

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> ExternalStream:
        if kwargs:
            raise TypeError(f"ExternalStream() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if not isinstance(stream_ptr, int) or isinstance(stream_ptr, bool):
            raise TypeError(f"ExternalStream: stream_ptr must be an int, got {type(stream_ptr).__name__}")
        g = gpus.gpu(device)
        made = cls._of(g, g.driver.stream_external(g.physical, stream_ptr), stream_ptr, 0)
        assert isinstance(made, ExternalStream)
        return made


class Event:
    """A mark in a stream's work: done when everything queued before it is.

    enable_timing: `elapsed_time` may be asked.  blocking: a thread that waits sleeps, and leaves its processor to others, where it would else look
    again and again; it hears of the end some microseconds later, on a virtual machine some hundred.
    Raises RuntimeError for interprocess=True, which this version does not offer.
    """

    __slots__ = ("enable_timing", "blocking", "_gpu", "_handle", "__weakref__")

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        if interprocess:
            raise RuntimeError("Event: interprocess=True is not supported; events are seen by one process")
        self.enable_timing, self.blocking = enable_timing, blocking
        self._gpu: Gpu | None = None  # made when first recorded, on that stream's GPU
        self._handle: Any = None

    @property
    def device(self) -> device | None:
        return None if self._gpu is None else self._gpu.device

    @property
    def cuda_event(self) -> int:
        return 0 if self._handle is None else id(self._handle)

    def record(self, stream: Stream | None = None) -> None:
        """Marks the work queued on `stream` (the current one by default) so far."""
        s = gpus.current_stream() if stream is None else stream
        if self._gpu is None:
            self._gpu, self._handle = s._gpu, s._gpu.driver.event_create(self.enable_timing, self.blocking)
        elif self._gpu is not s._gpu:
            raise RuntimeError(f"Event: made on {self._gpu.device}, it cannot be recorded on a stream of {s.device}")
        s._gpu.driver.event_record(self._handle, s._handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Work queued on `stream` (the current one by default) from now on waits for this event; the host does not."""
        s = gpus.current_stream() if stream is None else stream
        if self._gpu is not None:
            s._gpu.driver.stream_wait_event(s._handle, self._handle)

    def query(self) -> bool:
        """Whether it is done (True when it was never recorded)."""
        return self._gpu is None or self._gpu.driver.event_query(self._handle)

    def synchronize(self) -> None:
        """Waits until it is done.  Raises AcceleratorError when work on its GPU failed."""
        if self._gpu is not None:
            self._gpu.driver.event_synchronize(self._handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`; on a simulated GPU, those its model predicts.

        Raises ValueError unless both were made with enable_timing=True and recorded, RuntimeError unless both are done.
        """
        if not self.enable_timing or not end_event.enable_timing:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._gpu is None or end_event._gpu is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not self.query() or not end_event.query():
            raise RuntimeError("Both events must be completed before calculating elapsed time: synchronize the "
                               "later one")
        return self._gpu.driver.event_elapsed(self._handle, end_event._handle)

    def __repr__(self) -> str:
        return "<torch.cuda.Event uninitialized>" if self._gpu is None else f"<torch.cuda.Event {self.cuda_event:#x}>"
