"""cuDNN's graphs of operations, entered through ctypes: descriptors, a graph, and the plan that carries it out.

A descriptor is made, given its attributes, and finished.  Tensors and operations are descriptors; a graph is a list of operations,
for which the library proposes engines, best first; a plan is an engine made ready.  Names and numbers are those of NVIDIA's
cudnn_graph.h, and only what has been there since cuDNN 9.0 is used.  None of this needs a GPU but to run: a `device` described in
JSON serves in place of a handle.

To make a plan ready the library compiles its kernel, which takes about half a second; a plan's text holds what was compiled, and is
kept beside our own kernels on disk (`kernels.cache`).
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from ...kernels import cache
from . import libraries, native_launch
from .cudnn import NO_KERNEL, REFUSED, Unsupported, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Sizes = Sequence[int]

_KINDS = {"pointwise": 0, "convolution": 1, "engine": 2, "configuration": 3, "heuristics": 4, "plan": 5, "forward operation": 10,
          "weights operation": 11, "images operation": 12, "pointwise operation": 13, "graph": 15, "tensor": 17, "matmul": 18,
          "matmul operation": 19, "reduction": 21, "reduction operation": 22, "reshape operation": 31, "device": 38}
# what attributes are made of: its number, and how C holds it
_HANDLE, _TYPE, _FLAG, _INT, _FLOAT, _CONVOLUTION, _HEURISTIC, _NOTE, _MODE, _DESCRIPTOR, _REDUCTION, _BEHAVIOUR, _TEXT = (
    (0, ctypes.c_void_p), (1, ctypes.c_int), (2, ctypes.c_bool), (3, ctypes.c_int64), (4, ctypes.c_float), (7, ctypes.c_int), (8, ctypes.c_int),
    (11, ctypes.c_int), (14, ctypes.c_int), (15, ctypes.c_void_p), (18, ctypes.c_int), (19, ctypes.c_int), (24, ctypes.c_char))
_ATTRIBUTES: dict[str, tuple[int, tuple[int, Any]]] = {
    "pointwise.mode": (0, _MODE), "pointwise.type": (1, _TYPE), "pointwise.axis": (9, _INT),
    "convolution.type": (100, _TYPE), "convolution.mode": (101, _CONVOLUTION), "convolution.dilation": (102, _INT), "convolution.stride": (103, _INT),
    "convolution.after": (104, _INT), "convolution.before": (105, _INT), "convolution.axes": (106, _INT),
    "heuristics.mode": (200, _HEURISTIC), "heuristics.graph": (201, _DESCRIPTOR), "heuristics.results": (202, _DESCRIPTOR),
    "heuristics.device": (204, _DESCRIPTOR), "configuration.engine": (300, _DESCRIPTOR),
    "plan.handle": (400, _HANDLE), "plan.configuration": (401, _DESCRIPTOR), "plan.workspace": (402, _INT), "plan.json": (405, _TEXT),
    "plan.device": (407, _DESCRIPTOR), "engine.number": (1301, _INT), "engine.notes": (1303, _NOTE), "engine.behaviour": (1305, _BEHAVIOUR),
    **{f"{kind} operation.{name}": (first + k, type_of) for kind, first in (("forward", 700), ("images", 706), ("weights", 712))
       for k, (name, type_of) in enumerate((("alpha", _FLOAT), ("beta", _FLOAT), *((n, _DESCRIPTOR) for n in ("how", "w", "x", "y"))))},
    "pointwise operation.how": (750, _DESCRIPTOR), "pointwise operation.x": (751, _DESCRIPTOR), "pointwise operation.b": (752, _DESCRIPTOR),
    "pointwise operation.y": (753, _DESCRIPTOR), "pointwise operation.t": (758, _DESCRIPTOR),
    "graph.handle": (800, _HANDLE), "graph.operations": (801, _DESCRIPTOR),
    "tensor.alignment": (900, _INT), "tensor.type": (901, _TYPE), "tensor.sizes": (902, _INT), "tensor.strides": (903, _INT), "tensor.id": (906, _INT),
    "tensor.virtual": (907, _FLAG), "tensor.by_value": (908, _FLAG),
    "matmul.type": (1500, _TYPE), "matmul operation.a": (1520, _DESCRIPTOR), "matmul operation.b": (1521, _DESCRIPTOR),
    "matmul operation.c": (1522, _DESCRIPTOR), "matmul operation.how": (1523, _DESCRIPTOR),
    "reduction.operator": (1600, _REDUCTION), "reduction.type": (1601, _TYPE), "reduction operation.x": (1610, _DESCRIPTOR),
    "reduction operation.y": (1611, _DESCRIPTOR), "reduction operation.how": (1612, _DESCRIPTOR),
    "reshape operation.x": (2200, _DESCRIPTOR), "reshape operation.y": (2201, _DESCRIPTOR),
    "device.json": (2702, _TEXT)}
TYPES = {"float32": 0, "float64": 1, "float16": 2, "int32": 4, "bfloat16": 9, "bool": 11}
_MODES = {"add": 0, "mul": 1, "div": 6, "sub": 9, "exp": 13, "log": 15, "identity": 21, "ge": 303, "index": 501, "select": 601}
_REDUCTIONS = {"add": 0, "max": 3}
_BEST, _ANY = 3, 2  # heuristics: what is thought fastest, and what works for most
_FEW_ENGINES, _MOST_ENGINES = 4, 64  # to name all takes the library some milliseconds, and the first nearly always serve
_CROSS_CORRELATION = 1
# what the library says of an engine: it uses tensor cores, rounds what it reads, adds in an order that varies; it is compiled when a plan is made
TENSOR_CORES, ROUNDED, VARYING = 0, 1, 4
_COMPILED = 0
_MOST_NOTES = 16
_TEXT_SIZES = (1 << 18, 1 << 20, 1 << 23)
ALIGNED = 16  # bytes that each address is a multiple of, unless a graph says otherwise


def declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of what its calls take."""
    p, i, n = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    lib.cudnnBackendCreateDescriptor.argtypes = (i, p)
    lib.cudnnBackendSetAttribute.argtypes = (p, i, i, n, p)
    lib.cudnnBackendGetAttribute.argtypes = (p, i, i, n, p, p)
    lib.cudnnBackendFinalize.argtypes = lib.cudnnBackendDestroyDescriptor.argtypes = (p,)
    lib.cudnnBackendExecute.argtypes = (p, p, p)
    return lib


class Descriptor:
    """One of the library's descriptors, finished.  values: its attributes by name; None leaves one unset.  Raises Unsupported."""

    def __init__(self, lib: ctypes.CDLL, kind: str, finish: bool = True, **values: Any) -> None:
        self.lib, self.kind, self.values, self.raw = lib, kind, values, ctypes.c_void_p()
        check(lib.cudnnBackendCreateDescriptor(_KINDS[kind], ctypes.byref(self.raw)), f"making a {kind}")
        for name, value in values.items():
            if value is not None:
                self._set(name, value if isinstance(value, (tuple, list, bytes)) else (value,))
        if finish:
            check(lib.cudnnBackendFinalize(self.raw), f"making a {kind}")

    def _set(self, name: str, values: Sequence[Any]) -> None:
        number, (kind, c) = _ATTRIBUTES[f"{self.kind}.{name}"]
        held = (c * len(values))(*[v.raw if isinstance(v, Descriptor) else v for v in values])
        check(self.lib.cudnnBackendSetAttribute(self.raw, number, kind, len(values), held), f"making a {self.kind} ({name})")

    def read(self, name: str, count: int = 1, into: Any = None) -> Any:
        """An attribute's values, at most `count`."""
        number, (kind, c) = _ATTRIBUTES[f"{self.kind}.{name}"]
        found, got = (c * count)() if into is None else into, ctypes.c_int64(0)
        check(self.lib.cudnnBackendGetAttribute(self.raw, number, kind, count, ctypes.byref(got), found), f"asking a {self.kind} ({name})")
        return found[:got.value]

    def __del__(self) -> None:
        destroy = getattr(self.lib, "cudnnBackendDestroyDescriptor", None)
        if destroy is not None and self.raw:
            destroy(self.raw)


class Tensor(Descriptor):
    """A tensor of a graph.  value: of a number that the host passes."""

    def __init__(self, lib: ctypes.CDLL, which: int, sizes: Sizes, strides: Sizes, kind: str, virtual: bool, value: float | None = None,
                 aligned: int = ALIGNED) -> None:
        self.which, self.sizes, self.strides, self.type, self.virtual = which, tuple(sizes), tuple(strides), kind, virtual
        self.value = None if value is None else ctypes.c_float(value)
        super().__init__(lib, "tensor", id=which, type=TYPES[kind], sizes=self.sizes, strides=self.strides, alignment=aligned, virtual=virtual,
                         by_value=value is not None)


def dense(sizes: Sizes) -> tuple[int, ...]:
    """Strides of elements side by side."""
    return tuple(math.prod(sizes[k + 1:]) for k in range(len(sizes)))


class Graph:
    """Operations in the order they are added, all in float32.

    Each gives its result: a tensor that stays within the graph, or `to` where that is given.  aligned: bytes that operands' addresses are
    multiples of.
    """

    def __init__(self, lib: ctypes.CDLL, aligned: int = ALIGNED) -> None:
        self.lib, self.aligned = lib, aligned
        self.operations: list[Descriptor] = []
        self.given: list[Tensor] = []  # what has an address, in the order of a plan's arguments
        self.numbers: list[Tensor] = []
        self._last = 0

    def tensor(self, sizes: Sizes, strides: Sizes | None = None, kind: str = "float32", virtual: bool = True, value: float | None = None) -> Tensor:
        self._last += 1
        return Tensor(self.lib, self._last, sizes, dense(sizes) if strides is None else strides, kind, virtual, value,
                      ALIGNED if virtual else self.aligned)

    def operand(self, sizes: Sizes, strides: Sizes, kind: str) -> Tensor:
        """What is given by its address, to be read or written."""
        made = self.tensor(sizes, strides, kind, virtual=False)
        self.given.append(made)
        return made

    def number(self, value: float) -> Tensor:
        made = self.tensor((1, 1, 1, 1), kind="float32", virtual=False, value=value)
        self.numbers.append(made)
        return made

    def _add(self, kind: str, **values: Any) -> None:
        self.operations.append(Descriptor(self.lib, kind, **values))

    def pointwise(self, mode: str, x: Tensor, b: Tensor | None = None, t: Tensor | None = None, to: Tensor | None = None, kind: str = "float32",
                  axis: int | None = None, strides: Sizes | None = None) -> Tensor:
        """mode(x, b), or with "select" x where t, else b; "index" is an element's place along an axis."""
        y = self.tensor(x.sizes, strides, kind) if to is None else to
        how = Descriptor(self.lib, "pointwise", mode=_MODES[mode], type=TYPES["bool" if mode == "ge" else "float32"], axis=axis)
        self._add("pointwise operation", how=how, x=x, y=y, b=b, t=t)
        return y

    def convolution(self, kind: str, x: Tensor, w: Tensor, y: Tensor, padding: Sizes, stride: Sizes, dilation: Sizes) -> None:
        """Writes y ("forward"), the gradient x of y's ("images"), or the gradient w of y's ("weights"); the channels of x and w tell the groups."""
        how = Descriptor(self.lib, "convolution", type=TYPES["float32"], mode=_CROSS_CORRELATION, dilation=dilation, stride=stride, after=padding,
                         before=padding, axes=len(padding))
        self._add(f"{kind} operation", alpha=1.0, beta=0.0, how=how, w=w, x=x, y=y)

    def matmul(self, a: Tensor, b: Tensor, to: Tensor | None = None, kind: str = "float32") -> Tensor:
        """The products of matrices in the last two axes; b's heads may be fewer than a's."""
        c = self.tensor((*a.sizes[:-1], b.sizes[-1]), None, kind) if to is None else to
        self._add("matmul operation", how=Descriptor(self.lib, "matmul", type=TYPES["float32"]), a=a, b=b, c=c)
        return c

    def reduce(self, how: str, x: Tensor, to: Tensor | None = None) -> Tensor:
        """The sum or maximum of each row; of the heads that `to` has one for, where it has fewer."""
        y = self.tensor((*x.sizes[:-1], 1)) if to is None else to
        self._add("reduction operation", how=Descriptor(self.lib, "reduction", operator=_REDUCTIONS[how], type=TYPES["float32"]), x=x, y=y)
        return y

    def turned(self, x: Tensor, kind: str) -> Tensor:
        """The last two axes in the other order: the same elements, seen so."""
        def swap(v: tuple[int, ...]) -> tuple[int, ...]:
            return (*v[:-2], v[-1], v[-2])
        y = self.tensor(swap(x.sizes), swap(x.strides), kind)
        self._add("reshape operation", x=x, y=y)
        return y


class Plan:
    """A graph on an engine of the library's: `workspace` bytes, and a `runner`.

    configuration: the engine and its choices; or text: a plan of the same graph as `text` gave it.  place: `handle` or `device`.
    """

    def __init__(self, graph: Graph, configuration: Descriptor | None = None, text: bytes | None = None, **place: Any) -> None:
        self.lib, self.keep = graph.lib, (graph, configuration)
        self.made = Descriptor(graph.lib, "plan", configuration=configuration, json=text, **place)
        self.workspace: int = self.made.read("workspace")[0]
        ids = [t.which for t in (*graph.given, *graph.numbers)]
        self._ids = (ctypes.c_int64 * len(ids))(*ids)
        self._codes = ctypes.c_int(0)
        self.failed = memoryview(self._codes).cast("B").cast("i")

    def text(self) -> bytes:
        """The plan and what was compiled for it; empty where the library does not tell."""
        for size in _TEXT_SIZES:
            try:
                return bytes(self.made.read("json", size)).rstrip(b"\0")
            except RuntimeError:  # it is longer
                continue
        return b""

    def engine(self) -> int:
        """The number that the library gives its engine; -1 for a plan of a text."""
        return -1 if self.keep[1] is None else int(_engine(self.keep[1]).read("number")[0])

    def runner(self, rooms: Sequence[int] = ()) -> Callable[..., None]:
        """A builtin that takes the addresses of the graph's operands in their order, of a workspace, and a handle's number, and queues
        the plan on that handle's stream.  A failure's status is put to `failed`; the plan must outlive the builtin.

        rooms: the bytes that the last operands have at the beginning of the workspace instead of an address.
        """
        calls = [ctypes.cast(getattr(self.lib, f"cudnnBackend{name}"), ctypes.c_void_p).value or 0
                 for name in ("CreateDescriptor", "SetAttribute", "Finalize", "Execute", "DestroyDescriptor")]
        graph = self.keep[0]
        fixed = [ctypes.addressof(t.value) for t in graph.numbers if t.value is not None]
        block = [*calls, self.made.raw.value or 0, ctypes.addressof(self._ids), ctypes.addressof(self._codes), sum(rooms),
                 *[sum(rooms[:k]) for k in range(len(rooms))], *fixed]
        return native_launch.graph(block, len(graph.given) - len(rooms), len(rooms), len(fixed))


def _engine(configuration: Descriptor) -> Descriptor:
    made = Descriptor(configuration.lib, "engine", finish=False)
    configuration.read("engine", 1, (ctypes.c_void_p * 1)(made.raw.value))
    return made


def ready() -> bool:
    """Loads what the library looks for among what is loaded: cuBLASLt, without which it ends the process, and NVRTC."""
    for name in ("nvrtc", "cublasLt"):
        try:
            libraries.load(name)
        except OSError:
            if name == "cublasLt":
                return False
    return True


def described(lib: ctypes.CDLL, text: str) -> Descriptor:
    """A device by its properties in JSON, for graphs that are planned where it is not."""
    return Descriptor(lib, "device", json=text.encode())


def plans(graph: Graph, most: int, handle: Any = None, device: Descriptor | None = None, without: Iterable[int] | None = None) -> Iterator[Plan]:
    """What the library proposes for a graph, best first, made ready one by one; only those that need at most `most` bytes of workspace.

    without: notes that no engine may have; given, those that would be compiled first are left out too.  Raises Unsupported where the
    library takes no such graph.
    """
    lib = graph.lib
    operations = Descriptor(lib, "graph", operations=graph.operations, handle=handle)
    for mode in (_BEST, _ANY):
        try:
            asked = Descriptor(lib, "heuristics", graph=operations, mode=mode, device=device)
        except RuntimeError:
            continue
        for configuration in _named(asked):
            try:
                if without is not None and _is_out(configuration, set(without)):
                    continue
                made = Plan(graph, configuration, **({"handle": handle} if device is None else {"device": device}))
            except RuntimeError:  # an engine that this machine has not all for
                continue
            if made.workspace <= most:
                yield made


def _named(asked: Descriptor) -> Iterator[Descriptor]:
    """The configurations that the library's heuristics name, best first; none where they fail."""
    known = 0
    for most in (_FEW_ENGINES, _MOST_ENGINES):
        rooms = [Descriptor(asked.lib, "configuration", finish=False) for _ in range(most)]
        try:
            found = len(asked.read("results", most, (ctypes.c_void_p * most)(*[r.raw.value for r in rooms])))
        except RuntimeError:
            return
        yield from rooms[known:found]
        if found < most:
            return
        known = found


def _is_out(configuration: Descriptor, without: set[int]) -> bool:
    engine = _engine(configuration)
    return not without.isdisjoint(engine.read("notes", _MOST_NOTES)) or _COMPILED in engine.read("behaviour", _MOST_NOTES)


def kept(graph: Graph, name: str, **place: Any) -> Plan | None:
    """The plan that the disk keeps under `name`."""
    text = cache.load(name)
    try:
        return None if text is None else Plan(graph, text=text, **place)
    except RuntimeError:  # another machine's, or damaged
        return None


def keep(name: str, plan: Plan) -> None:
    """Has the disk keep a plan under `name`, where the library tells what it is."""
    if text := plan.text():
        cache.store(name, text)


def best(graph: Graph, name: str, most: int, handle: Any = None, device: Descriptor | None = None, compiles: bool = True) -> Plan | None:
    """The one that the disk keeps under `name`, or else, where it may be compiled, the first of `plans`; None where there is none."""
    made = kept(graph, name, **({"handle": handle} if device is None else {"device": device}))
    if made is not None or not compiles:
        return made
    try:
        made = next(plans(graph, most, handle, device), None)
    except Unsupported:
        return None
    if made is not None:
        keep(name, made)
    return made


def may_go_otherwise(code: int) -> bool:
    """Whether a status says that another plan may do it."""
    return code in REFUSED or code in NO_KERNEL
