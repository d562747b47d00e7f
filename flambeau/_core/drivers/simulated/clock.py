"""What work costs on a simulated GPU, in seconds, and when each engine of it is free.

The roofline: a kernel takes the longer of moving its bytes and doing its arithmetic, each at the rate that the model reaches (`reached`: by pattern of
access, and for products by shape), and never less than a kernel's fixed time.  Kernels of all streams share one compute engine: those that fill it queue behind
each other, while small ones, which take their fixed time but little of the engine, overlap.  Two copy engines, one a
direction, work beside it.  How near predictions are to published measurements: docs/predictions.md.
"""

from __future__ import annotations

from bisect import bisect_right
from math import prod
from typing import TYPE_CHECKING, Any

from ...kernels.expr import walk
from ...kernels.programs import Map
from ...kernels.specs import Attention, AttentionGradient, Convolution, Product
from .reached import product_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...kernels.programs import PreparedLaunch
    from .models import Model, Network

HOP = 1e-6  # from one GPU to the next in a ring, before the first byte is there
HOST = 25e9  # bytes a second that several threads of a server copy within host memory
_LIBRARY = ("matmul", "mm", "bmm", "addmm", "linear", "conv", "attention", "gemm", "dot")
_HALF = ("float16", "bfloat16", "f16", "bf16", "half")
_DOUBLE = ("float64", "complex128", "f64", "double")
_MOST_INTERVALS = 512


# ------------------------------------------------------------------------------------------------------------- prices
def pattern(prepared: PreparedLaunch) -> str:
    """How a launch goes through memory: one of `reached.PATTERNS`."""
    program = prepared.program
    if program is None:
        return "map"
    if not isinstance(program, Map):
        return program.kind
    if any(t is not None for t in program.targets):
        return "scatter"
    if any(e.op == "gather" for e in walk(program.roots())):
        return "gather"
    # neighbours of one operand that are far from one another in another
    axes = {next((a for a in reversed(range(len(st))) if st[a] in (1, -1) and prepared.domain[a] > 1), None) for st in prepared.strides if any(st)}
    return "turned" if len(axes - {None}) > 1 else "map"


def kind_of(model: Model, prepared: PreparedLaunch) -> tuple[str, bool]:
    """(the type whose rate a launch's arithmetic has, of `reached.TYPES`; whether it is that of products).  Library products of halves and doubles run on the
    tensor cores where the model has them for that type; float32 ones do not unless they are asked to, as PyTorch leaves TF32 off by default."""
    program = prepared.program
    if program is not None:
        types = program.inputs or program.out_types
        return ("double" if any(d.name in _DOUBLE for d in types) else "float32"), False  # pointwise arithmetic on halves is done in float32
    spec = prepared.spec
    words = prepared.name.lower().replace(".", "_").split("_") + [d.name for d in (getattr(spec, "dtype", None),) if d is not None]
    product = any(w.startswith(_LIBRARY) for w in words)
    if any(w in _DOUBLE for w in words):
        return "double", product
    if product and any(w in _HALF for w in words):
        brain = "bfloat16" in words or "bf16" in words
        if not brain or model.capability >= (8, 0):  # tensor cores know bfloat16 from Ampere on
            return "half", True
    if model.capability >= (8, 0) and (type(spec) is Product and spec.tf32 or type(spec) is Convolution and spec.how[2]):
        return "tf32", True
    return "float32", product


def product_sizes(spec: Any) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) of a product, or of that which a convolution is."""
    if type(spec) is Product:
        return spec.batch, spec.m, spec.n, spec.k
    if type(spec) is not Convolution:
        return None
    (images, inputs, *size), (_, _, *taps), (_, outputs, *places) = spec.x[0], spec.w[0], spec.y[0]
    g = spec.groups
    if spec.kind == "weights":
        return g, outputs // g, inputs // g * prod(taps), images * prod(places)
    if spec.kind == "images":
        return g, images * prod(size), inputs // g, outputs // g * prod(taps)
    return g, images * prod(places), outputs // g, inputs // g * prod(taps)


def _prices(model: Model, prepared: PreparedLaunch) -> tuple[float, float]:
    """Seconds that a launch has the compute engine for itself, and those before."""
    reached = model.reached
    moving = prepared.nbytes / (reached.moving[pattern(prepared)] * 1e9)
    if not prepared.flops:
        return moving, 0.0
    kind, product = kind_of(model, prepared)
    if not product:
        rate = {"double": model.float64, "float32": model.float32}[kind]
        return max(moving, prepared.flops / (rate * 1e12)), 0.0
    rate, start = reached.products[kind]
    spec = prepared.spec
    if type(spec) in (Attention, AttentionGradient):
        rated = {"half": model.half, "double": model.double_products, "float32": model.float32}[kind]
        return max(moving, prepared.flops / (reached.attention * rated * 1e12)), start
    sizes = product_sizes(spec)
    if sizes is None:
        return max(moving, prepared.flops / (rate * 1e12)), 0.0
    return max(moving, product_seconds(rate * 1e12, model.processors, *sizes)), start


def kernel_busy(model: Model, prepared: PreparedLaunch) -> float:
    """How long one launch keeps the compute engine from others."""
    return _prices(model, prepared)[0]


def kernel_seconds(model: Model, prepared: PreparedLaunch) -> float:
    """The predicted time of one launch, from its start to its end."""
    return max(sum(_prices(model, prepared)), model.reached.kernel)


def copy_seconds(model: Model, path: str, nbytes: int, pinned: bool, peer: Model | None = None) -> float:
    """The predicted time of a copy; path: "h2d", "d2h", "d2d", "peer" (direct) or "host" (between GPUs by the host)."""
    here = model.reached
    if path == "d2d":
        return max(here.kernel, 2 * nbytes / (here.moving["copy"] * 1e9))
    if path == "h2d":
        return here.setup + nbytes / ((here.up if pinned else here.pageable_up) * 1e9)
    if path == "d2h":
        return here.setup + nbytes / ((here.down if pinned else here.pageable_down) * 1e9)
    there = (peer or model).reached
    if path == "peer":
        link = min(here.peer, there.peer) or min(here.up, here.down, there.up, there.down)
        return here.setup + nbytes / (link * 1e9)
    return here.setup + there.setup + nbytes / (here.down * 1e9) + nbytes / (there.up * 1e9)


def collective_seconds(model: Model, kind: str, nbytes: int, size: int, machines: int, network: Network) -> float:
    """The predicted time of a collective of `size` GPUs of one model in rings, from when the last of them is there.

    nbytes: of the whole, as of `specs.Collective`.  Sums of all go around twice, in parts of 1 / size; what every rank gives or gets a part of, once;
    a broadcast or a sum for one goes through all ranks as a stream.  machines: on how many the GPUs lie.  Where those are several, there are as many
    rings as a machine has of the GPUs, each of which leaves and enters it by another port: so the network's rate counts as often, and what the links
    within a machine carry is the limit where it is less.  What goes from each rank to each, or to one and from one, goes straight, by each GPU's port.
    """
    if size < 2:
        return model.reached.kernel
    rate = (model.reached.peer or model.reached.up) * 1e9
    hop = HOP
    if machines > 1:
        here = max(size // machines, 1)
        if kind in ("all_to_all", "gather", "scatter"):
            each = nbytes / size
            return max((here - 1) * each / rate, (size - here) * each / network.rate) + network.hop
        rate = min(rate, here * network.rate)
        hop = (machines * network.hop + (size - machines) * HOP) / size
    around = size - 1
    steps, moved = {"all_reduce": (2 * around, 2 * around / size * nbytes), "broadcast": (around, nbytes), "reduce": (around, nbytes)}.get(
        kind, (around, around / size * nbytes))
    return max(model.reached.kernel, steps * hop + moved / rate)


def message_seconds(model: Model, nbytes: int, network: Network | None) -> float:
    """The predicted time of a message between two GPUs of one model, from when the sender is there.  network: between their machines, if there are two."""
    if network is None:
        return max(model.reached.kernel, HOP + nbytes / ((model.reached.peer or model.reached.up) * 1e9))
    return network.hop + nbytes / min((model.reached.peer or model.reached.up) * 1e9, network.rate)


# ------------------------------------------------------------------------------------------------------------- engines
class Engine:
    """One thing that does one piece of work at a time: the intervals in which it is taken, in order.

    Work takes the first gap it fits into, so that work queued early which waits for something does not hold up work
    queued later which is ready.
    """

    __slots__ = ("name", "_starts", "_ends", "_floor")

    def __init__(self, name: str) -> None:
        self.name = name
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._floor = 0.0  # what was before is forgotten: nothing starts earlier

    def gap(self, ready: float, busy: float) -> float:
        """The earliest moment from `ready` on at which it is free for `busy` seconds."""
        ends = self._ends
        if not ends or ready >= ends[-1]:
            return ready
        start = max(ready, self._floor)
        for i in range(bisect_right(ends, start), len(ends)):
            if start + busy <= self._starts[i]:
                return start
            start = ends[i]
        return start

    def take(self, start: float, busy: float) -> None:
        """Takes it for `busy` seconds from a `start` that `gap` gave."""
        starts, ends = self._starts, self._ends
        end = start + busy
        i = len(ends) if not ends or start >= ends[-1] else bisect_right(starts, start)
        if i and ends[i - 1] == start:
            ends[i - 1] = end
        else:
            starts.insert(i, start)
            ends.insert(i, end)
            if len(ends) > _MOST_INTERVALS:
                half = _MOST_INTERVALS // 2
                self._floor = ends[half - 1]
                del starts[:half], ends[:half]

    def taken(self, since: float, until: float) -> list[tuple[float, float]]:
        """The intervals between two moments in which it is taken."""
        return [(max(a, since), min(b, until)) for a, b in zip(self._starts, self._ends, strict=True) if b > since and a < until]


def schedule(engines: Sequence[Engine], ready: float, busy: float) -> float:
    """Takes all of `engines` together for `busy` seconds, as early as can be; gives the start."""
    if not busy:
        return ready
    start = ready
    while True:
        for engine in engines:
            free = engine.gap(start, busy)
            if free != start:
                start = free
                break
        else:
            break
    for engine in engines:
        engine.take(start, busy)
    return start
