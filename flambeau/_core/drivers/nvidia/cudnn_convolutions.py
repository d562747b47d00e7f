"""Convolutions by cuDNN's graphs: each a graph of one operation, or of two with its bias, on an engine that the library proposes.

A plan is made ready once for each convolution; to run it costs the host some microseconds, where the library's older calls by descriptor
looked for an engine again each time (on an H200 a ResNet-50's step of 160 convolutions took 40 ms by those, of which the GPU worked 14).
Where algorithms may be tried (`backends.cudnn.benchmark`), the first that are proposed are timed, and the disk keeps the fastest for the same GPU and
version of the library.  Engines that would have to be compiled are left out: they take the host about a second, and others serve.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

from ...kernels import cache
from ...layout import channels_last_strides, contiguous_strides, is_channels_last, is_contiguous, numel, same_places
from . import cudnn
from . import cudnn_graph as graphs

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Iterable, Iterator

    from ...dtypes import dtype
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Convolution
    from .driver import NvidiaDriver
    from .launches import Launches
    from .streams import Stream

    Sizes = tuple[int, ...]
    Operand = tuple[Sizes, Sizes]  # sizes and strides

_MOST = 1 << 31
_TRIED_ROOM = 1 << 30  # bytes of workspace that algorithms may use while they are tried
_TIMES, _ROUNDS = 3, 2  # how often an algorithm is run to be timed; the shorter round counts


def packed(operands: tuple[Operand, ...]) -> bool:
    """Whether all lie row by row, or all channels last."""
    return all(is_contiguous(*o) for o in operands) or all(is_channels_last(*o) for o in operands)


def _dense(sizes: Sizes, last: bool) -> Sizes:
    """Strides of elements side by side, channels before the axes or after them."""
    return (channels_last_strides if last else contiguous_strides)(sizes)


class Shape:
    """One convolution as the library is asked for it.  None of this needs a GPU.

    kind: "forward" (y of x and w), "images" (gradient of x, of w and that of y) or "weights" (gradient of w, of x and that of y).
    x, w, y: sizes (batch or outputs, channels, axes) and strides; numbers: padding, stride and dilation.  Raises Unsupported.
    """

    def __init__(self, kind: str, d: dtype, x: Operand, w: Operand, y: Operand, numbers: tuple[Sizes, Sizes, Sizes], bias: bool) -> None:
        if d.name not in graphs.TYPES or d.kind != "f":
            raise cudnn.Unsupported(d.name)
        if d.name == "float64":  # plans are made ready, and wrote zeros on an H200: its scale, which is 1, was surely read as a double
            raise cudnn.Unsupported("doubles")
        if any(max(*o[0], *o[1], math.prod(o[0])) >= _MOST for o in (x, w, y)):
            raise cudnn.Unsupported("2**31 elements or more")
        formats = [last for last in (False, True) if all(same_places(*o, _dense(o[0], last)) for o in (x, w, y))]
        if not formats:
            raise cudnn.Unsupported("strides")
        last, flat = formats[0], len(x[0]) == 3  # one axis is two, the first of length 1
        self.kind, self.d, self.bias, self.text = kind, d, bias, f"{kind} of a convolution of {d} images {x[0]} with weights {w[0]}"
        self.sizes: dict[str, Sizes] = {name: (*s[:2], 1, s[2]) if flat else s for name, (s, _) in (("x", x), ("w", w), ("y", y))}
        self.strides = {name: _dense(s, last and not flat) for name, s in self.sizes.items()}
        self.padding, self.stride, self.dilation = [(fill, *v) if flat else v for v, fill in zip(numbers, (0, 1, 1), strict=True)]

    def key(self) -> tuple[Any, ...]:
        return (self.kind, self.d.name, self.bias, tuple((s, self.strides[n]) for n, s in self.sizes.items()), self.padding, self.stride, self.dilation)

    def graph(self, lib: Any, aligned: int = graphs.ALIGNED) -> graphs.Graph:
        """Operands: the result, the first and the second, and the bias where there is one."""
        g = graphs.Graph(lib, aligned)
        made = {name: self._operand(g, name) for name in {"forward": "yxw", "images": "xwy", "weights": "wxy"}[self.kind]}
        whole = made["y"]
        if self.bias:
            made["y"] = g.tensor(self.sizes["y"], self.strides["y"], "float32")
        g.convolution(self.kind, made["x"], made["w"], made["y"], self.padding, self.stride, self.dilation)
        if self.bias:
            sizes = (1, self.sizes["y"][1], *(1,) * len(self.stride))
            g.pointwise("add", made["y"], g.operand(sizes, _dense(sizes, self.strides["y"][1] == 1), self.d.name), to=whole)
        return g

    def _operand(self, g: graphs.Graph, name: str) -> graphs.Tensor:
        return g.operand(self.sizes[name], self.strides[name], self.d.name)


class _Way:
    """One graph's plans for addresses of one alignment: the one in use, and those behind it, made ready when it is refused."""

    def __init__(self, plans: Iterable[graphs.Plan]) -> None:
        self.behind = iter(plans)
        self.now: tuple[graphs.Plan, Callable[..., None]] | None = None
        self.turn()

    def turn(self, refused: graphs.Plan | None = None) -> None:
        """Puts the next in the place of what was refused, unless that has been done."""
        if self.now is None or self.now[0] is refused:
            plan = next(self.behind, None)
            self.now = None if plan is None else (plan, plan.runner())


class _Convolutions:
    """cuDNN's convolutions on the devices of one driver; the fastest of those that were tried are kept."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, self.able = driver, graphs.ready()
        self.tried: dict[Any, graphs.Plan] = {}

    def name(self, library: cudnn.Library, device: int, key: Any) -> str:
        """Under which the disk keeps what was fastest for a convolution."""
        about = self.driver.properties(device)
        return cache.key("cudnn convolution plan", str(library.lib.cudnnGetVersion()), about.name,
                         f"{about.major}.{about.minor} {about.multi_processor_count}", repr(key))

    def seconds(self, stream: Stream, run: Callable[[], None]) -> float:
        """How long a run takes of the GPU's time."""
        driver, best = self.driver, math.inf
        begin, end = (driver.event_create(timing=True) for _ in range(2))
        run()
        for _ in range(_ROUNDS):
            driver.event_record(begin, stream)
            for _ in range(_TIMES):
                run()
            driver.event_record(end, stream)
            driver.event_synchronize(end)
            best = min(best, driver.event_elapsed(begin, end) / 1e3)
        return best


class _Launch:
    """One convolution's entry: takes its operands and a workspace, and has the plan in use carried out."""

    def __init__(self, library: cudnn.Library, kept: _Convolutions, device: int, shape: Shape, room: int | None,
                 how: tuple[int, bool, bool]) -> None:
        tries, deterministic, tf32 = how
        self.library, self.kept, self.device, self.shape = library, kept, device, shape
        self.most = 1 << 62 if room is None else room
        self.without = [*([graphs.VARYING] if deterministic else []),
                        *([graphs.TENSOR_CORES, graphs.ROUNDED] if shape.d.name == "float32" and not tf32 else [])]
        self.key = (device, *shape.key(), *self.without)
        self.lib, self.asked = graphs.declared(library.lib), library.handle(device)
        self.lock = threading.Lock()
        graph = shape.graph(self.lib)
        first, behind = self._known(graph) if tries else None, self._proposed(graph)
        self.trying = list(itertools.islice(behind, tries)) if first is None else []
        self.exact = _Way(itertools.chain([] if first is None else [first], self.trying, behind))
        self.loose: _Way | None = None  # for addresses that are no multiples of 16
        if len(self.trying) < 2:
            self.trying = []

    def _known(self, graph: graphs.Graph) -> graphs.Plan | None:
        """What was fastest of those tried, by this process or another."""
        found = self.kept.tried.get(self.key) or graphs.kept(graph, self.kept.name(self.library, self.device, self.key[1:]), handle=self.asked)
        return found if found is not None and found.workspace <= self.most else None

    def _proposed(self, graph: graphs.Graph) -> Iterator[graphs.Plan]:
        return graphs.plans(graph, self.most, self.asked, without=self.without)

    def workspace(self) -> int:
        """Bytes that the first call needs: for each that is tried, those that need little, and for the one that is proposed first."""
        first = [] if self.exact.now is None else [self.exact.now[0].workspace]
        return max([*first, *[p.workspace for p in self.trying if p.workspace <= _TRIED_ROOM]], default=0)

    def _try(self, stream: Stream, args: tuple[Any, ...], handle: ctypes.c_void_p, space: int) -> None:
        """Puts the fastest first, and keeps it."""
        found: list[tuple[float, graphs.Plan]] = []
        for plan in self.trying:
            if plan.workspace <= space:
                run = plan.runner()
                seconds = self.kept.seconds(stream, lambda run=run: run(*args, handle.value))  # type: ignore[misc]
                if not plan.failed[0]:
                    found.append((seconds, plan))
                plan.failed[0] = 0
        self.trying = []
        if found:
            found.sort(key=lambda pair: pair[0])
            self.exact = _Way(itertools.chain([p for _, p in found], self._proposed(self.shape.graph(self.lib))))
            best = self.kept.tried[self.key] = found[0][1]
            graphs.keep(self.kept.name(self.library, self.device, self.key[1:]), best)

    def slowly(self, prepared: PreparedLaunch, stream: Stream, args: tuple[Any, ...], handle: ctypes.c_void_p, aligned: bool,
               refused: graphs.Plan | None) -> None:
        """Tries what is to be tried; passes over what is refused; asks for other room where the next plan needs it."""
        with self.lock:
            space = prepared.workspace
            if aligned and self.trying and stream.graph is None:  # what is captured cannot be timed
                self._try(stream, args, handle, space)
            if not aligned and self.loose is None:
                self.loose = _Way(self._proposed(self.shape.graph(self.lib, self.shape.d.itemsize)))
            way: Any = self.exact if aligned else self.loose
            if refused is not None:
                way.turn(refused)
            while way.now is not None and (not prepared.settling or way.now[0].workspace <= space):
                plan, run = way.now
                here = args if plan.workspace <= space else (*args[:-1], cudnn.room(self.kept.driver, stream, "convolutions", plan.workspace))
                if self.done(stream, plan, run, here, handle):
                    if prepared.settling:  # from now on callers may keep what they know of its workspace
                        prepared.workspace, prepared.settling = plan.workspace, False
                    return
                way.turn(plan)
            if way.now is not None:
                prepared.workspace = way.now[0].workspace
            raise cudnn.Unsupported(f"cuDNN has no algorithm for {self.shape.text}" + ("" if way.now is None else f" within {space} bytes"))

    def done(self, stream: Stream, plan: graphs.Plan, run: Callable[..., None], args: tuple[Any, ...], handle: ctypes.c_void_p) -> bool:
        """Queues a plan; False where it is refused."""
        run(*args, handle.value)
        code, plan.failed[0] = plan.failed[0], 0
        if code and not graphs.may_go_otherwise(code):
            self.library.fault(self.device, stream, code, self.shape.text)
        return not code


def prepare(launches: Launches, device: int, spec: Convolution) -> PreparedLaunch | None:
    """None where the library is absent, or has no algorithm for it; for operands that are not packed in one order; and for a transposed one with a
    longer border."""
    x, w, y = spec.x, spec.w, spec.y
    even = all((i + 2 * p - d * (k - 1) - 1) // s + 1 == o
               for i, p, d, k, s, o in zip(x[0][2:], spec.padding, spec.dilation, w[0][2:], spec.stride, y[0][2:], strict=True))
    served = spec.library and even and all(numel(o[0]) for o in (x, w, y)) and packed((x, w, y))
    library = cudnn.library(launches) if served else None
    if library is None:
        return None
    kept: _Convolutions = launches.library("cudnn convolutions", _Convolutions)
    if not kept.able:
        return None
    try:
        made = _Launch(library, kept, device, Shape(spec.kind, spec.dtype, x, w, y, (spec.padding, spec.stride, spec.dilation), spec.bias),
                       spec.room, spec.how)
    except cudnn.Unsupported:
        return None
    if made.exact.now is None:
        return None
    driver, handles = launches.driver, library.handles
    current, state = driver._current, driver._devices[device].state

    def call(stream: Stream, args: tuple[Any, ...]) -> None:
        if current.device != device or state.first or driver._gone:
            driver._use(device)
        handle = handles.get(stream) or library.handle(stream)
        places = 0
        for address in args[:-1]:
            places |= address
        aligned = not places % graphs.ALIGNED
        way = (None if made.trying else made.exact) if aligned else made.loose
        now = None if way is None else way.now
        ready = now is not None and now[0].workspace <= prepared.workspace
        if now is not None and ready and made.done(stream, *now, args, handle):
            prepared.settling = False
        else:
            made.slowly(prepared, stream, args, handle, aligned, now[0] if now is not None and ready else None)
    flops = 2 * math.prod(y[0]) * math.prod(w[0][1:])
    nbytes = sum(math.prod(o[0]) for o in (x, w, y)) * spec.dtype.itemsize
    prepared = launches.call(f"convolution_{spec.kind}_{spec.dtype.name}", device, call, workspace=made.workspace(), nbytes=nbytes, flops=flops)
    prepared.settling = True  # how much workspace it needs shows when it is first run
    return prepared
