"""Attention by cuDNN's graphs: the fused forward and backward of 16-bit floats.

The graph is written out as products, scale, causal mask and the parts of a softmax, which the library has known as attention since
8.9 and carries out as one kernel, or a few; the newer single operations are not needed for it.  A plan is made for each shape.
The logarithms of the rows' sums go from one pass to the other; they are our own kernels' too (`kernels.cuda_c.attention`), so that
either can follow the other.

Left to our own kernels is what would differ: masks (a row that sees nothing is NaN here, zeros there), dropout (its numbers are the
CPU's), scales that are not positive; what is too small to be worth the library's longer way; and what the library refuses.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

from ...kernels import cache
from . import cudnn
from . import cudnn_graph as graphs

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ...kernels.programs import PreparedLaunch
    from .driver import NvidiaDriver
    from .launches import Call, Launches
    from .streams import Stream

    Sizes = tuple[int, ...]
    Steps = dict[str, Sizes]

OLDEST = 91002  # 9.10.0 and 9.10.1 are known to be wrong, and older ones want their workspace cleared
_ODD_KEYS = 91501  # before that, gradients are wrong where the keys are no multiple of 128
_WRONG_BETWEEN = range(91100, 91300)  # those of depths between 128 and 192
LEAST, LEAST_ROWS = 1 << 31, 64  # operations, and queries, below which the library is not asked: it gains little, and few queries come with ever new keys
MOST_PLANS = 64  # that a process compiles: lengths that do not come again are better served by our own kernels, which are for any length
MOST_ROOM = 1 << 30  # bytes of workspace that a backward pass with a fixed order may take
SHARED_ROOM = 1 << 20  # bytes of workspace that a stream keeps for forward passes, most of which need 256
_PAGE = 256
_GAP = 8  # elements of 16 bytes: what depths and strides are multiples of


class Shape:
    """One attention: sizes are batch, query heads, query heads a key head, queries, keys, depth, depth of values."""

    def __init__(self, d: dtype, causal: bool, sizes: Sizes, scale: float, steps: Steps) -> None:
        batch, heads, group, length, source, depth, value_depth = sizes
        self.kind, self.causal, self.scale, self.steps = d.name, causal, scale, steps
        self.batch, self.heads, self.shared, self.length, self.source = batch, heads, heads // group, length, source
        keys = (batch, self.shared, source)
        across, keys = (batch, heads, length), (batch, self.shared, source)
        self.sizes: dict[str, Sizes] = {"q": (*across, depth), "k": (*keys, depth), "v": (*keys, value_depth), "o": (*across, value_depth)}
        self.sizes |= {"dq": self.sizes["q"], "dk": self.sizes["k"], "dv": self.sizes["v"], "g": self.sizes["o"]}
        self.whole, self.rows = (batch, heads, length, source), (batch, heads, length, 1)

    def key(self) -> tuple[Any, ...]:
        return (self.kind, self.causal, self.scale, tuple(sorted((name, self.sizes[name], self.strides(name)) for name in self.steps)))

    def strides(self, name: str) -> Sizes:
        """In elements; an axis of length 1 gets what its neighbours would have it be."""
        sizes, steps = self.sizes[name], (*self.steps[name][:3], 1)
        return tuple(max(n * s for n, s in zip(sizes, steps, strict=True) if n > 1 or s == 1) if size == 1 else step
                     for size, step in zip(sizes, steps, strict=True))

    def fits(self) -> bool:
        """Whether all operands lie as the library's kernels read them."""
        for name in self.steps.keys() & self.sizes.keys():
            steps, sizes = self.steps[name], self.sizes[name]
            if len(steps) > 3 and steps[3] != 1 or sizes[3] % _GAP or any(n > 1 and (s < 1 or s % _GAP) for n, s in zip(sizes, steps[:3], strict=False)):
                return False
        return True

    def operand(self, graph: graphs.Graph, name: str, turned: bool = False) -> graphs.Tensor:
        sizes, strides = self.sizes[name], self.strides(name)
        if turned:
            sizes, strides = (*sizes[:2], sizes[3], sizes[2]), (*strides[:2], strides[3], strides[2])
        return graph.operand(sizes, strides, self.kind)

    def causally(self, graph: graphs.Graph, scores: graphs.Tensor) -> graphs.Tensor:
        """-inf for keys after the query's place; both count from 0."""
        if not self.causal:
            return scores
        least = graph.number(-math.inf)
        row, column = [graph.pointwise("index", scores, kind="int32", axis=axis) for axis in (2, 3)]
        return graph.pointwise("select", scores, least, graph.pointwise("ge", row, column, kind="bool"))

    def forward(self, lib: Any) -> graphs.Graph:
        """Operands: o, sums, q, k, v."""
        g = graphs.Graph(lib)
        o, sums = self.operand(g, "o"), g.operand(self.rows, graphs.dense(self.rows), "float32")
        q, k, v = self.operand(g, "q"), self.operand(g, "k", turned=True), self.operand(g, "v")
        scores = self.causally(g, g.pointwise("mul", g.matmul(q, k), g.number(self.scale)))
        top = g.reduce("max", scores)
        powers = g.pointwise("exp", g.pointwise("sub", scores, top))
        total = g.reduce("add", powers)
        g.pointwise("add", top, g.pointwise("log", total), to=sums)
        g.matmul(g.pointwise("div", powers, total, kind=self.kind), v, to=o)
        return g

    def backward(self, lib: Any, fixed: bool) -> graphs.Graph:
        """Operands: dq, dk, dv, g, o, sums, q, k, v, then room for `rooms`.  fixed: sums are added up in an order that does not change."""
        g = graphs.Graph(lib)
        dq, dk, dv, slope, o = [self.operand(g, name) for name in ("dq", "dk", "dv", "g", "o")]
        sums = g.operand(self.rows, graphs.dense(self.rows), "float32")
        q, k, v = self.operand(g, "q"), self.operand(g, "k", turned=True), self.operand(g, "v", turned=True)
        delta = g.operand(self.rows, graphs.dense(self.rows), "float32")
        g.pointwise("mul", g.reduce("add", g.pointwise("mul", slope, o)), g.number(1.0), to=delta)
        scale = g.number(self.scale)
        scores = g.pointwise("sub", g.pointwise("mul", g.matmul(q, k), scale), sums)
        weights = g.pointwise("exp", self.causally(g, scores))
        self._by_keys(g, weights, slope, dv)
        slopes = g.pointwise("mul", g.pointwise("sub", g.matmul(slope, v), delta), weights)
        slopes = g.pointwise("mul", slopes, scale)
        self._by_keys(g, slopes, q, dk)
        across = g.turned(k, "float32")
        if fixed:
            g.matmul(slopes, across, to=dq)
        else:
            parts = g.operand(dq.sizes, graphs.dense(dq.sizes), "float32")
            g.pointwise("identity", g.matmul(slopes, across, to=parts), to=dq)
        return g

    def _by_keys(self, g: graphs.Graph, weights: graphs.Tensor, rows: graphs.Tensor, to: graphs.Tensor) -> None:
        """What comes to each key: of all the query heads that share it."""
        turned = g.turned(weights, self.kind)
        if self.shared == self.heads:
            g.matmul(turned, rows, to=to)
        else:
            g.reduce("add", g.matmul(turned, rows, kind=self.kind), to=to)

    def rooms(self, fixed: bool) -> list[int]:
        """Bytes of what a backward pass writes beside its results and the library's own workspace."""
        rows = self.batch * self.heads * self.length
        return [-(-4 * n // _PAGE) * _PAGE for n in ((rows,) if fixed else (rows, rows * self.sizes["q"][3]))]


class _Attention:
    """cuDNN's attention on the devices of one driver; plans are kept."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, self.able, self.made = driver, graphs.ready(), 0
        self._plans: dict[Any, list[graphs.Plan]] = {}
        self._lock = threading.RLock()

    def plan(self, library: cudnn.Library, version: int, device: int, shape: Shape, fixed: bool, back: bool) -> list[graphs.Plan]:
        """The best plan, or nothing; kept, since making one takes the library half a second, unless the disk has it."""
        about = self.driver.properties(device)
        key = (device, back, fixed, *shape.key())
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                found = self._plans[key] = []
                if not self.able:
                    return found
                name = cache.key("cudnn plan", str(version), about.name, f"{about.major}.{about.minor} {about.multi_processor_count}", repr(key[1:]))
                self.driver._use(device)  # the library loads the plan's kernels there
                try:
                    lib = graphs.declared(library.lib)
                    graph = shape.backward(lib, fixed) if back else shape.forward(lib)
                    most = MOST_ROOM if fixed and back else 1 << 62
                    made = graphs.best(graph, name, most, library.handle(device), compiles=self.made < MOST_PLANS)
                except RuntimeError:  # it is refused, or the library does not start
                    made = None
                if made is not None:
                    self.made += made.engine() >= 0
                    found.append(made)
            return found


def why_not(version: int | None, capability: tuple[int, int] | None = None) -> str:
    """Why attention is not this library's at all; empty where it is."""
    if version is None:
        return "cuDNN is not installed"
    if version < OLDEST:
        return f"cuDNN {version // 10000}.{version // 100 % 100}.{version % 100} is older than 9.10.2"
    if capability is not None and capability < (8, 0):
        return "the GPU's compute capability is below 8.0"
    return ""


def _sound(version: int, major: int, sizes: Sizes, fixed: bool) -> bool:
    """Whether gradients are right where the library says that it has them: NVIDIA's notes name what is not."""
    source, depth, value_depth = sizes[4:]
    if version < _ODD_KEYS and source % 128 or fixed and major >= 10:  # there only one engine has an order, and the library proposes others
        return False
    between = 128 < depth <= 192 and 64 < value_depth <= 128 and (depth, value_depth) != (192, 128)
    return not (between and version in _WRONG_BETWEEN)


def prepare(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: Sizes, scale: float, steps: Steps,
            ways: tuple[bool, bool, bool], own: PreparedLaunch | None, back: bool = False) -> PreparedLaunch | None:
    """The launch, which takes what `own` takes, and a workspace; None where the library has none for it.

    own: our own kernel's launch, where there is one: it steps in should the library refuse when it is run.
    ways: whether cuDNN may, whether our own kernels may, and whether sums must be added up in the same order each time.
    """
    may, own_may, fixed = ways
    if not may or mask is not None or drop or d.name not in ("float16", "bfloat16") or not scale > 0 or not math.isfinite(scale) or not min(sizes):
        return None
    shape = Shape(d, causal, sizes, scale, steps)
    flops = int((5 if back else 2) * math.prod(shape.whole) * (sizes[5] + sizes[6]) * (0.5 if causal else 1.0))
    if not shape.fits() or own_may and own is not None and (flops < LEAST or sizes[3] < LEAST_ROWS):
        return None
    version, about = cudnn.version(), launches.driver.properties(device)
    if version is None or why_not(version, (about.major, about.minor)) or back and not _sound(version, about.major, sizes, fixed):
        return None
    library = cudnn.library(launches)
    assert library is not None
    kept: _Attention = launches.library("cudnn attention", _Attention)
    plans = kept.plan(library, version, device, shape, fixed, back)
    if not plans:
        return None
    plan, rooms = plans[0], shape.rooms(fixed) if back else []
    space = plan.workspace + sum(rooms)
    shared = not back and space <= SHARED_ROOM
    run, failed = plan.runner(rooms), plan.failed
    driver, handles = launches.driver, library.handles
    current, state = driver._current, driver._devices[device].state
    spare: list[Call] = []

    def refused(stream: Stream, args: tuple[Any, ...], code: int) -> None:
        if own is None or not graphs.may_go_otherwise(code):
            library.fault(device, stream, code, f"attention of {d}, queries {shape.sizes['q']} and keys {shape.sizes['k']}")
        plans.clear()
        if not spare:
            spare.append(launches.bind(device, own))  # type: ignore[arg-type]
        spare[0](stream, args if back else args[:5])

    def call(stream: Stream, args: tuple[Any, ...]) -> None:
        if current.device != device or state.first or driver._gone:
            driver._use(device)
        if spare:
            refused(stream, args, cudnn.REFUSED[0])
            return
        handle = handles.get(stream) or library.handle(stream)
        if shared:
            run(*args, cudnn.room(driver, stream, "attention", SHARED_ROOM), handle.value)
        else:
            run(*args, handle.value)
        if failed[0]:
            code, failed[0] = failed[0], 0
            refused(stream, args, code)
    call.keep = plan  # type: ignore[attr-defined]  # the builtin knows its address only
    nbytes = sum(math.prod(s) for n, s in shape.sizes.items() if n in steps) * d.itemsize
    workspace = 0 if shared else max(space, _PAGE, 0 if own is None else own.workspace)
    return launches.call("cudnn_attention_backward" if back else "cudnn_attention", device, call, outputs=3 if back else 2, workspace=workspace,
                         nbytes=nbytes, flops=flops)
