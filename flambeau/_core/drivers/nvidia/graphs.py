"""Graphs of NVIDIA GPUs: work of a stream that the driver captured, queued again as one item.

Streams are captured in the driver's "relaxed" way, in which kernels may be compiled, loaded, and given memory meanwhile: what would make the host wait
for captured work is refused above, before the driver hears of it (`interface.permit`), since a call that the driver refuses ends the capture.

A launch whose numbers are others at each replay has its parameter written anew into the graph's own copy of it before the graph is queued.
Replays that are under way keep theirs, so nothing waits, and kernels are the same in a graph and outside.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

from ...errors import AcceleratorError
from ...kernels.kernel import Kernel
from ..interface import NOT_PERMITTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.programs import PreparedLaunch
    from .driver import NvidiaDriver
    from .streams import Stream

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_PARAMS, _POINTERS = 72, 40  # bytes of CUDA_KERNEL_NODE_PARAMS_v2, and where in it the address of the parameters' addresses is


class Graph:
    """What was captured: `items`, the launches in the host's order.  open: it is being captured, on `streams`: the first, and those that waited for
    an event of one of them.  rooms: workspaces of libraries, the graph's own.  kept: what copies in it read and write."""

    __slots__ = ("driver", "device", "open", "streams", "items", "rooms", "kept", "code", "handle", "exe", "_last", "_notes", "_written", "__weakref__")

    def __init__(self, driver: NvidiaDriver, stream: Stream) -> None:
        self.driver, self.device, self.open, self.streams = driver, stream.device, True, [stream]
        self.items: list[tuple[PreparedLaunch, tuple[Any, ...], Any]] = []  # with the graph's last node of each
        self.rooms: dict[Any, tuple[int, int]] = {}
        self.kept: list[Any] = []
        self.code = 0
        self.handle: Any = None
        self.exe: Any = None
        self._last = driver.event_create()  # when the replay queued last will have done with `rooms`
        self._notes: list[Callable[[Any], None]] = []  # of launches that may complain
        self._written: dict[int, Callable[[tuple[Any, ...]], None]] = {}

    def begin(self) -> None:
        d, cu, stream = self.driver._use(self.device), self.driver._cu, self.streams[0]
        code, = cu.cuStreamBeginCapture(stream.handle, cu.CUstreamCaptureMode(_RELAXED))
        self.driver._check(d, code, "capturing a stream")
        stream.graph = self

    def join(self, stream: Stream) -> None:
        """Work of another stream is captured too from now on."""
        if stream.graph is not self:
            stream.graph = self
            self.streams.append(stream)

    def launched(self, stream: Stream, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        """A launch was captured just now."""
        if stream.graph is self:
            status, nodes, count = ctypes.c_int(0), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t(0)
            code = self._call(b"cuStreamGetCaptureInfo", stream.raw, ctypes.addressof(status), None, None, ctypes.addressof(nodes), ctypes.addressof(count))
            self.driver._check(self.driver._devices[self.device], code, f"capturing '{prepared.name}'")
            self.items.append((prepared, args, nodes[0] if count.value else 0))

    def _call(self, name: bytes, *args: int | None) -> int:
        """A function of the driver's as CUDA 12.0 had it, whose later forms the bindings' versions call differently."""
        code: int = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(args))(self.driver._programs().address(name))(*args)
        return code

    def end(self) -> None:
        """Nothing is captured any more."""
        if not self.open:
            return
        self.open = False
        first = self.streams[0]
        for stream in self.streams:
            stream.graph = None
        self.streams.clear()
        code, self.handle = self.driver._cu.cuStreamEndCapture(first.handle)
        self.code = int(code)
        if self.handle is not None and int(self.handle):
            weakref.finalize(self, _destroyed, self.driver, self.device, self.driver._cu.cuGraphDestroy, self.handle).atexit = False

    def finish(self) -> None:
        """Makes what was captured ready to be queued.  Raises AcceleratorError where the driver gave the capture up."""
        d, cu = self.driver._use(self.device), self.driver._cu
        self.driver._check(d, self.code, "ending the capture of a stream")
        code, self.exe = cu.cuGraphInstantiate(self.handle, 0)
        self.driver._check(d, code, "making a graph ready")
        self._notes = [prepared.note for prepared, _, _ in self.items if prepared.note is not None]
        weakref.finalize(self, _destroyed, self.driver, self.device, cu.cuGraphExecDestroy, self.exe).atexit = False

    def queue(self, stream: Stream, changed: dict[int, tuple[Any, ...]]) -> None:
        d = self.driver._use(self.device)
        for i, args in changed.items():
            write = self._written.get(i) or self._writer(i)
            write(args)
        for note in self._notes:
            note(stream)
        code, = self.driver._cu.cuGraphLaunch(self.exe, stream.handle)
        self.driver._check(d, code, "launching a graph")
        if self.rooms:
            self.driver.event_record(self._last, stream)

    def _writer(self, i: int) -> Callable[[tuple[Any, ...]], None]:
        """What gives a launch in the graph other arguments from the next replay on."""
        prepared, _, node = self.items[i]
        kernel = prepared.keep
        if type(kernel) is not Kernel:
            raise AcceleratorError(f"{NOT_PERMITTED}: '{prepared.name}' takes numbers that are others at each replay, and a library carries it out")
        name, check, d, exe = prepared.name, self.driver._check, self.driver._devices[self.device], int(self.exe)
        put = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(self.driver._programs().address(b"cuGraphExecKernelNodeSetParams"))
        size = 8 * kernel.words
        data = ctypes.create_string_buffer(size)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(data))
        steps: list[tuple[int, Any, Any]] = []
        for _ in kernel.launches:  # its functions follow one another on the stream
            params = ctypes.create_string_buffer(_PARAMS)
            check(d, self._call(b"cuGraphKernelNodeGetParams", node, ctypes.addressof(params)), f"looking at '{name}' in a graph")
            ctypes.c_void_p.from_buffer(params, _POINTERS).value = ctypes.addressof(pointers)
            steps.append((node, params, pointers))
            if len(steps) < len(kernel.launches):
                before, count = ctypes.c_void_p(0), ctypes.c_size_t(1)
                check(d, self._call(b"cuGraphNodeGetDependencies", node, ctypes.addressof(before), ctypes.addressof(count)), f"looking for '{name}' in a graph")
                node = before.value

        def write(args: tuple[Any, ...]) -> None:
            ctypes.memmove(data, kernel.pack(*args), size)
            for at, params, _ in steps:
                code = put(exe, at, ctypes.addressof(params))
                if code:
                    check(d, code, f"changing '{name}' in a graph")
        self._written[i] = write
        return write

    def __del__(self) -> None:
        if self.rooms and self._last.handle is not None and not self.driver._gone:
            self.driver._cu.cuEventSynchronize(self._last.handle)
        for address, _ in self.rooms.values():
            self.driver.free(self.device, address)


def _destroyed(driver: NvidiaDriver, device: int, destroy: Callable[[Any], Any], handle: Any) -> None:
    """What nobody can queue any more; replays that are under way end first."""
    if not driver._gone and not driver._devices[device].state.first:
        destroy(handle)
