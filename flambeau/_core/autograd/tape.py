"""The tape: one node per recorded operation, and the backward pass over them.

A node is a plain list (a list is the cheapest thing Python builds)::

    [SEQ, GRAD, BACKWARD, EDGES, SAVED, EXTRA]

SEQ       negative and falling: a node made later comes first off the heap; 0 for a leaf
GRAD      a leaf's accumulated gradient (`.grad`); None elsewhere
BACKWARD  ``f(node, gradient) -> tuple`` of gradients, one an edge, None where there is none
EDGES     the nodes of the operation's inputs, None for inputs that need no gradient
SAVED     what BACKWARD needs; dropped after use unless the graph is retained.  Of a leaf: a weak reference to its tensor, or None
EXTRA     None, or a dict: "name", "hooks" (of the tensor), "pre" and "post" (of a leaf's node), "retain" (a weak reference), "line", "meta", "stream"

An operation with several outputs has one node, and per output a small node whose BACKWARD is `to_output`.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from .. import hooks, layout
from ..dtypes import title
from ..runtime import versions
from ..tensor import Tensor, alias
from .mode import _grad

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..tensor import Meta

SEQ, GRAD, BACKWARD, EDGES, SAVED, EXTRA = range(6)
Node = list[Any]
next_seq = count(-1, -1).__next__


def leaf(t: Tensor | None = None) -> Node:
    """The node of a tensor whose gradient is accumulated in `.grad`, laid out as `t` is then."""
    return [0, None, None, (), None if t is None else weakref.ref(t), None]


def new(backward: Callable[[Node, Any], Any], edges: tuple[Node | None, ...], saved: Any = None, extra: dict[str, Any] | None = None) -> Node:
    """A new node.  Every node but a leaf's is made here, or by code that the engine writes with `text`."""
    return [next_seq(), None, backward, edges, saved, extra]


def text(backward: str, edges: str, saved: str, extra: str = "None") -> str:
    """A call of `new` for code that the engine writes, as the list itself, since the call would cost more; among its names must be `next_seq`."""
    return f"[next_seq(), None, {backward}, {edges}, {saved}, {extra}]"


def output(parent: Node, i: int, extra: dict[str, Any] | None = None) -> Node:
    """The node of output `i` of a node with several."""
    return new(to_output, (parent,), i, extra)


def freed(node: Node, g: Any) -> Any:
    raise RuntimeError("Trying to backward through the graph a second time (or directly access saved tensors after they have "
                       "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                       "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time "
                       "or if you need to access saved tensors after calling backward.")


def changed(t: Tensor, saved: int, node: Node) -> None:
    """Raises PyTorch's error for a saved tensor that an in-place operation has since changed."""
    kind = f"torch.{'cuda.' if t.meta.device.type == 'cuda' else ''}{title(t.meta.dtype)}Tensor"
    where = node[EXTRA].get("line") if node[EXTRA] else None
    raise RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: [{kind} "
        f"{list(t.meta.shape)}]{f', which is output 0 of {name_of(t.node)},' if t.node is not None else ''} is at version {t.store.version}; "
        f"expected version {saved} instead."
        + (f" It was saved by the operation at {where}." if where else
           " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
           "torch.autograd.set_detect_anomaly(True)."))


def keep(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Tensors to save, each with its version."""
    return tuple([None if t is None else (t, t.store.version) for t in tensors])


def kept(node: Node, items: Sequence[Any]) -> list[Any]:
    """The tensors that `keep` saved.  Raises RuntimeError for one that was written to meanwhile."""
    for item in items:
        if item is not None and item[0].store.version != item[1]:
            changed(item[0], item[1], node)
    return [None if item is None else item[0] for item in items]


def keep_outputs(*tensors: Tensor) -> tuple[Any, ...]:
    """Outputs to save: aliases, since an output and its node must not hold each other."""
    return tuple((alias(t, t.meta, t.ptr), t.store.version) for t in tensors)


def kept_outputs(node: Node, items: Sequence[Any]) -> list[Tensor]:
    """The saved outputs, with their history while gradients of gradients are recorded."""
    found = []
    several = node[EXTRA] is not None and "outputs" in node[EXTRA]
    for i, (t, version) in enumerate(items):
        if t.store.version != version:
            changed(t, version, node)
        y = alias(t, t.meta, t.ptr)
        if _grad.get() and t.meta.dtype.kind in "fc8":
            y.node = output(node, i) if several else node
        found.append(y)
    return found


def name_of(node: Node) -> str:
    """The name `grad_fn` shows: AddBackward0, AccumulateGrad, ..."""
    extra = node[EXTRA]
    if extra is not None and "name" in extra:
        return str(extra["name"])
    if node[SEQ] == 0:
        return "AccumulateGrad"
    name = getattr(node[BACKWARD], "grad_name", None)
    if name is None:
        saved = node[SAVED]
        op = saved[0] if type(saved) is tuple and saved else None
        name = getattr(op, "grad_name", None) or getattr(node[BACKWARD], "__name__", "op")
    return str(name)


def node(backward: Callable[[Node, Any], Any], edges: tuple[Node | None, ...], saved: Any = None, name: str | None = None) -> Node:
    """A new node, shown to whoever looks at nodes."""
    if versions.ever:
        versions.may_save(saved)
    made = new(backward, edges, saved, {"name": name} if name else None)
    if anomaly.on:
        anomaly.note(made)
    return made


def spread(outs: Sequence[Tensor], backward: Callable[[Node, Any], Any], edges: tuple[Node | None, ...], saved: Any = None, name: str | None = None) -> None:
    """A new node of several outputs: each of a type that has gradients gets one of its own, which leads to it."""
    if versions.ever:
        versions.may_save(saved)
    extra = {"name": name} if name else {}
    parent = new(backward, edges, saved, {"outputs": len(outs), **extra})
    if anomaly.on:
        anomaly.note(parent)
    for i, t in enumerate(outs):
        if t.meta.dtype.kind in "fc8":
            t.node = output(parent, i, extra.copy() or None)


def record(out: Tensor, backward: Callable[[Node, Any], Any], inputs: Sequence[Tensor | None], saved: Any = None,
           name: str | None = None) -> Tensor:
    """Puts an operation with one output on the tape when grad mode is on and an input requires grad.

    `backward(node, g)` returns gradients for `inputs` in order; it may use any differentiable operation.
    """
    if _grad.get():
        edges = tuple([None if t is None else t.node for t in inputs])
        for e in edges:
            if e is not None:
                out.node = node(backward, edges, saved, name)
                break
    return out


def recording(*inputs: Tensor | None) -> bool:
    """Whether an operation on these inputs is recorded."""
    if _grad.get():
        for t in inputs:
            if t is not None and t.node is not None:
                return True
    return False


def record_many(outs: Sequence[Tensor], backward: Callable[[Node, Any], Any], inputs: Sequence[Tensor | None],
                saved: Any = None, name: str | None = None) -> None:
    """`record` for several outputs: `backward(node, gs)` gets a list with None for outputs that got no gradient.

    Outputs of integer type get no node.
    """
    if recording(*inputs):
        spread(outs, backward, tuple([None if t is None else t.node for t in inputs]), saved, name)


def record_underived(outs: Sequence[Tensor], inputs: Sequence[Tensor | None], name: str) -> None:
    """Outputs that have no derivative though they depend on the inputs: a pass that reaches them raises RuntimeError, and leaves no gradient out."""
    record_many(outs, _underived, inputs, name, "NotImplemented")


def _underived(node: Node, gs: Any) -> Any:
    raise RuntimeError(f"derivative for aten::{node[SAVED]} is not implemented")


def to_output(node: Node, g: Any) -> Any:
    """Backward of one output of a node with several: hands the gradient over with its place."""
    return ((node[SAVED], g),)


described: set[type] = set()  # `Described` and its kinds


class Described:
    """What the nodes of one kind of call share, first in their SAVED: the name that `grad_fn` shows, and no tensors.

    Called, it stands for a BACKWARD whose saved tensors are freed, so that the node keeps its name.
    """

    __slots__ = ("grad_name",)

    def __init_subclass__(cls) -> None:
        described.add(cls)

    def __init__(self, grad_name: str) -> None:
        self.grad_name = grad_name

    def __call__(self, node: Node, g: Any) -> Any:
        return freed(node, g)


described.add(Described)
_freed: dict[str, Described] = {}


def is_freed(node: Node) -> bool:
    """Whether its saved tensors are freed."""
    return node[BACKWARD] is freed or type(node[BACKWARD]) in described


def _freed_as(node: Node) -> Any:
    """What stands for the BACKWARD of a node whose saved tensors are freed, with its name."""
    name = name_of(node)
    found = _freed.get(name)
    if found is None:
        found = _freed[name] = Described(name)
    return found


# backward functions whose SAVED holds no tensors: their nodes may run again without retain_graph
reusable: set[Any] = {to_output}


def keeps_nothing(f: Any) -> Any:
    """Marks a backward function that saves shapes and numbers only."""
    reusable.add(f)
    return f


class _Anomaly:
    """Who looks at each node as it is recorded: `set_detect_anomaly`, which keeps where in the program that was, and watchers.

    on: somebody does.  lines: anomaly detection does.
    """

    __slots__ = ("on", "lines", "check_nan", "watchers")

    def __init__(self) -> None:
        self.on = self.lines = False
        self.check_nan = True
        self.watchers: dict[Callable[[Node], None], int] = {}

    def detect(self, lines: bool, check_nan: bool) -> None:
        self.lines, self.check_nan = lines, check_nan
        self.on = lines or bool(self.watchers)

    def watch(self, watcher: Callable[[Node], None], change: int) -> None:
        """Adds a watcher (change 1), which may be added several times, or takes it back (-1)."""
        count = self.watchers.pop(watcher, 0) + change
        if count:
            self.watchers = {**self.watchers, watcher: count}
        self.on = self.lines or bool(self.watchers)

    def note(self, node: Node) -> None:
        if self.lines:
            self._line(node)
        for watcher in self.watchers:
            watcher(node)

    def _line(self, node: Node) -> None:
        import traceback
        extra = node[EXTRA] = node[EXTRA] or {}
        stack = traceback.extract_stack()
        here = __file__.rsplit("_core", 1)[0]
        user = [f for f in stack if not f.filename.startswith((here, "<operation"))]
        if user:
            extra["line"] = f"{user[-1].filename}:{user[-1].lineno}: {user[-1].line}"


anomaly = _Anomaly()


class Sink:
    """Who takes a leaf's gradient as soon as it is whole, while the pass goes on: a leaf's EXTRA["sink"].

    Passes count the edges into leaves that have one, and so know when the last gradient has come.  `reached` is called for each such leaf at a pass's
    beginning, `take` with its gradient after its hooks; where that gives False, the gradient is accumulated as always.
    """

    __slots__ = ("left",)
    alive = 0  # leaves that have one: passes count edges only then

    def __init__(self) -> None:
        self.left = 0

    def reached(self) -> None:
        raise NotImplementedError

    def take(self, leaf: Node, g: Any) -> bool:
        raise NotImplementedError


def _count_edges(roots: Sequence[Node]) -> None:
    """Counts the edges into each leaf with a sink."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        for e in stack.pop()[3]:
            if e is None:
                continue
            i = id(e)
            if e[0]:
                if i not in seen:
                    seen.add(i)
                    stack.append(e)
            elif e[5] is not None and "sink" in e[5]:
                sink = e[5]["sink"]
                if i not in seen:
                    seen.add(i)
                    sink.left = 0
                    sink.reached()
                sink.left += 1


class Parts:
    """A gradient on its way that is not put together yet: adds what else arrives to itself, and is `joined` when its node is run.

    Only backward functions of nodes whose edge is no leaf, in a pass that is not recorded, may give one.
    """

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        raise NotImplementedError

    def joined(self) -> Tensor:
        raise NotImplementedError


def added(old: Any, g: Any) -> Any:
    """Two gradients of one tensor as one."""
    return g + old if isinstance(g, Parts) else old + g


class Capture:
    """Gradients of chosen nodes gathered in a pass, for `autograd.grad`."""

    __slots__ = ("wanted", "got")

    def __init__(self, wanted: Sequence[Node]) -> None:
        self.wanted = {id(n): n for n in wanted}
        self.got: dict[int, Any] = {}
        for n in wanted:
            if n[SEQ] and n[EXTRA] is None:
                n[EXTRA] = {}  # as a hook's: no gradient goes past it (`ops.linear_activation`)


def backward(roots: Sequence[Node], grads: Sequence[Any], retain: bool, create: bool, capture: Capture | None = None,
             leaves: Sequence[Node] | None = None) -> None:
    """One backward pass.

    roots, grads: where it starts, with what.  retain: keep saved values for another pass.  create: record the pass
    itself, so that gradients can be differentiated.  capture: hand these nodes' gradients over instead of accumulating
    in leaves.  leaves: run only what leads to these nodes, and accumulate in those of them that are leaves.
    """
    this = Pass()
    this.number, this.every, this.captures, this.roots = next_pass(), capture is None and leaves is None, capture, roots
    recorded, outer = _grad.get(), _running.get()
    try:  # in which all is switched: an interrupt leaves nothing so
        _grad.set(create)
        _running.set(this)
        _run(roots, grads, retain, create, capture, None if leaves is None else {id(n) for n in leaves})
        for end in this:
            end()
    except HalfWay as half:
        for leaf, g in half.reached:
            if leaf[5] is None:  # hooks would see the sum of what arrives
                _to_leaf(leaf, g, create, capture, None if leaves is None else {id(n) for n in leaves})
        raise half.error from None
    finally:
        try:
            _grad.set(recorded)
        finally:
            _running.set(outer)


class HalfWay(BaseException):
    """Ends a pass inside a node that stands for many: `error`, and the gradients that had reached leaves by then."""

    def __init__(self, error: Exception, reached: list[tuple[Node, Any]]) -> None:
        self.error, self.reached = error, reached


class Pass(list[Any]):
    """A backward pass that runs: what is called when it is over.

    number: others' are larger that begin later.  every: it accumulates in all leaves.  captures: whose gradients it hands over.  needed: ids of the nodes
    that it runs, where that is not all that can be reached from its roots.
    """

    number = -1
    every = True
    captures: Capture | None = None
    needed: set[int] | None = None
    roots: Sequence[Node] = ()


next_pass = count().__next__
_running: ContextVar[Pass | None] = ContextVar("the backward pass", default=None)


def is_running() -> bool:
    """Whether this thread is inside a backward pass."""
    return _running.get() is not None


def running_pass() -> Pass | None:
    """This thread's backward pass; None outside of one."""
    return _running.get()


def at_end(call: Callable[[], None]) -> None:
    """Has `call` called when the pass that is running has gone through.  Raises RuntimeError where none is."""
    ends = _running.get()
    if ends is None:
        raise RuntimeError("no backward pass is running here")
    ends.append(call)


def needed_for(roots: Sequence[Node], targets: Collection[int]) -> set[int]:
    """Ids of the nodes from which a target can be reached: the rest of the graph is not run."""
    reach: set[int] = set()
    state: dict[int, bool] = {}
    stack: list[tuple[Node, bool]] = [(r, False) for r in roots]
    while stack:
        node, ready = stack.pop()
        i = id(node)
        if ready:
            if i in targets or any(e is not None and id(e) in reach for e in node[3]):
                reach.add(i)
        elif i not in state:
            state[i] = True
            stack.append((node, True))
            stack.extend((e, False) for e in node[3] if e is not None and id(e) not in state)
    return reach


def _run(roots: Sequence[Node], grads: Sequence[Any], retain: bool, create: bool, capture: Capture | None,
         leaves: set[int] | None) -> None:
    heap: list[Node] = []
    pending: dict[int, Any] = {}  # gradients on their way, by node id; nodes stay alive through the graph
    needed = None
    if capture is not None or leaves is not None:
        needed = needed_for(roots, capture.wanted if capture is not None else leaves)  # type: ignore[arg-type]
        _running.get().needed = needed  # type: ignore[union-attr]
    plain = capture is None and leaves is None and not create
    if Sink.alive and plain:
        _count_edges(roots)
    for node, g in zip(roots, grads, strict=True):
        _send(node, g, heap, pending, create, capture, leaves)
    while heap:
        node = heappop(heap)
        i = id(node)
        if needed is not None and i not in needed:
            continue
        g = pending.pop(i)
        if type(g) is not Tensor and isinstance(g, Parts):
            g = g.joined()
        extra = node[5]
        if extra is not None:
            g = _with_extra(extra, g, create, capture)
        if capture is not None and i in capture.wanted and type(g) is not list:
            capture.got[i] = g
        edges = node[3]
        if capture is not None and i in capture.wanted and not (needed is not None and any(
                e is not None and id(e) in needed for e in edges)):
            continue
        asked = node
        if needed is not None and not create:  # a recorded pass keeps all edges, along which its own gradients go
            edges = tuple([e if e is not None and id(e) in needed else None for e in edges])
            asked = [*node[:3], edges, *node[4:]]  # the node may be in another thread's pass
        if anomaly.lines:
            gs = _run_checked(asked, g)
        else:
            gs = node[2](asked, g)
        g = None
        if not retain and node[4] is not None and node[2] not in reusable:
            saved = node[4]
            node[2] = saved[0] if type(saved) is tuple and saved and type(saved[0]) in described else _freed_as(node)
            node[4] = saved = None
        for k, e in enumerate(edges):
            if e is None:
                continue
            ge = gs[k]
            if ge is None:
                continue
            if e[0] and type(ge) is not tuple and capture is None:  # the common edge, written out
                j = id(e)
                old = pending.get(j)
                if old is None:
                    pending[j] = ge
                    heappush(heap, e)
                else:
                    pending[j] = old + ge if type(ge) is Tensor else added(old, ge)
            elif plain and not e[0] and e[5] is None:
                if type(gs) is not list:
                    gs = list(gs)
                gs[k] = None  # so that a leaf can see whether anybody else holds the gradient
                if e[1] is None and getrefcount(ge) <= 2 and type(ge) is Tensor and getrefcount(ge.store) == 2 and ge.node is None and lies_as_leaf(ge, e):
                    e[1] = ge  # the common leaf, written out: see `_to_leaf`
                else:
                    _send(e, ge, heap, pending, create, capture, leaves)
            else:
                if not e[0]:
                    gs = _without(gs, k)
                _send(e, ge, heap, pending, create, capture, leaves)

    for e, g in [x for x in pending.values() if type(x) is tuple and x[0][0] == 0]:
        _to_leaf(e, g, create, capture, leaves)


def _without(gs: Any, k: int) -> list[Any]:
    out = list(gs)
    out[k] = None
    return out


def _send(e: Node, g: Any, heap: list[Node], pending: dict[int, Any], create: bool, capture: Capture | None,
          leaves: set[int] | None) -> None:
    i = id(e)
    if e[0] == 0:
        if e[5] is None:
            _to_leaf(e, g, create, capture, leaves)
        else:  # hooks see the sum of what arrives, once: when the last has come, where that is counted, or at the end of the pass
            old = pending.pop(i, None)
            if old is not None:
                g = old[1] + g
            sink = e[5].get("sink")
            if sink is not None and sink.left:
                sink.left -= 1
                if not sink.left:
                    _to_leaf(e, g, create, capture, leaves)
                    return
            pending[i] = (e, g)
        return
    if type(g) is tuple:  # one output of a node with several
        place, value = g
        slots = pending.get(i)
        if slots is None:
            slots = pending[i] = [None] * e[5]["outputs"]
            heappush(heap, e)
        slots[place] = value if slots[place] is None else slots[place] + value
        return
    old = pending.get(i)
    if old is None:
        pending[i] = g
        heappush(heap, e)
    else:
        pending[i] = added(old, g)


# references to a gradient nobody else holds: in _run, _send, _to_leaf, and getrefcount's own
_HELD = 4


def _to_leaf(e: Node, g: Any, create: bool, capture: Capture | None, leaves: set[int] | None) -> None:
    i = id(e)
    extra = e[5]
    if extra is not None:
        g = run_hooks(extra, g)
    if capture is not None:
        if i in capture.wanted:
            old = capture.got.get(i)
            capture.got[i] = g if old is None else old + g
        return
    if leaves is not None and i not in leaves:
        return
    if extra is not None and "pre" in extra:  # of the node: behind the tensor's
        for before in list(extra["pre"].values()):
            g = before(g)
    arrived = g if extra is not None and "post" in extra else None
    old = e[1]
    if extra is not None and not create and "sink" in extra and extra["sink"].take(e, g):
        pass
    elif old is None:
        # take the gradient over when nobody else holds it or its memory (2: argument and local), or borrow its memory, else copy
        if create:  # it is part of a graph: what is written to `.grad` must not reach that
            g = _as_leaf_lies(g, e)
        elif not (getrefcount(g) <= _HELD and g.node is None and lies_as_leaf(g, e)):
            g = _as_leaf_lies(g.detach(), e)
        elif getrefcount(g.store) != 2:
            found = borrowed(g) if g.base is not None and type(g) is Tensor else None
            g = _as_leaf_lies(g.detach(), e) if found is None else found
        e[1] = g
    elif create or old.node is not None or type(old) is not type(g):  # a sparse one and a dense one make a dense one
        e[1] = old + g
    elif lent and any(ref() is old for ref, *_ in lent.get(id(old.store), ())):
        e[1] = old + g  # its memory is also the program's, or another gradient's
    else:
        old.add_(g)
    if extra is not None:
        if "accumulated" in extra:
            owner = extra["owner"]()
            if owner is None:  # the program holds the leaf no more: the graph does
                owner = extra["memory"].detach()
                owner.node = e
            for hook in list(extra["accumulated"].values()):
                hook(owner)
        if arrived is not None:
            for after in list(extra["post"].values()):
                after(arrived)


def lies_as_leaf(g: Tensor, e: Node) -> bool:
    """Whether a gradient lies in memory as `.grad` of its leaf has to: as a leaf that fills its block, and row by row for another.

    It is PyTorch's rule, so that an optimizer's step finds weights and gradients side by side, whatever their layout.
    """
    m, t = g.meta, None if e[4] is None else e[4]()
    if type(g) is not Tensor or t is not None and not t.meta.plain:  # a sparse one has no strides
        return bool(m.contiguous)
    if t is None or m is t.meta:
        return m.contiguous or t is not None and layout.is_dense(m.shape, m.strides)
    return layout.same_places(m.shape, m.strides, _wanted(m, t.meta))


def _wanted(m: Meta, leaf: Meta) -> tuple[int, ...]:
    """The strides of a gradient of a leaf: where that fills its block its own."""
    if m.shape == leaf.shape and (leaf.contiguous or layout.is_dense(leaf.shape, leaf.strides)):
        return leaf.strides
    return layout.contiguous_strides(m.shape)


def _as_leaf_lies(g: Tensor, e: Node) -> Tensor:
    """A copy of a gradient that lies as `.grad` of its leaf has to.  Recorded."""
    t = None if e[4] is None else e[4]()
    if type(g) is not Tensor or t is None or not t.meta.plain:
        return g.clone()
    strides = _wanted(g.meta, t.meta)
    if g.meta.strides == strides:
        return g.clone()
    return g.new_empty_strided(g.meta.shape, strides).copy_(g)


# by the ids of storages: gradients of leaves that were borrowed from them, weakly, and where they begin and end
lent: dict[int, list[tuple[weakref.ref[Tensor], int, int]]] = {}


def borrowed(g: Tensor) -> Tensor | None:
    """A leaf's gradient on the memory of a fresh view of the gradient that came in, as PyTorch gives it; None where another leaf has that memory."""
    begin, end = g.ptr, g.ptr + g.meta.nbytes
    number, store = id(g.store), g.store
    living = [x for x in lent.get(number, ()) if (t := x[0]()) is not None and t.store is store]
    if any(begin < stop and start < end for _, start, stop in living):
        return None
    made = alias(g, g.meta, begin)

    def given_back(ref: Any) -> None:
        left = [x for x in lent.get(number, ()) if x[0] is not ref]
        if left:
            lent[number] = left
        else:
            lent.pop(number, None)
    lent[number] = [*living, (weakref.ref(made, given_back), begin, end)]
    return made


def _with_extra(extra: dict[str, Any], g: Any, create: bool, capture: Capture | None) -> Any:
    """The gradient after an interior tensor's hooks; kept in its `.grad` where `retain_grad` asked for it."""
    if type(g) is not list:
        g = run_hooks(extra, g)
        keep = extra.get("retain")
        if keep is not None:
            t = keep()
            if t is not None and capture is None:
                kept = t.__dict__.get("_kept_grad")
                t.__dict__["_kept_grad"] = (g if create else g.detach().clone()) if kept is None else kept + g
    return g


def run_hooks(extra: dict[str, Any], g: Any) -> Any:
    """A tensor's hooks in the order they were registered; what one returns replaces the gradient."""
    for hook in list(extra.get("hooks", {}).values()):
        changed_g = hook(g)
        if changed_g is not None:
            if not isinstance(changed_g, Tensor):
                raise TypeError(f"hook should return a Tensor or None, got {type(changed_g).__name__}")
            g = hooks.resolved(changed_g)
    return g


def _run_checked(node: Node, g: Any) -> Any:
    """One step under anomaly detection: errors and NaNs name the forward line."""
    line = (node[EXTRA] or {}).get("line", "unknown (recorded before anomaly detection was on)")
    try:
        gs = node[2](node, g)
    except RuntimeError as error:
        raise RuntimeError(f"{error}\nThe forward operation was recorded at {line}") from error
    except Exception as error:  # another kind keeps its type, which may not be built from a text
        error.add_note(f"The forward operation was recorded at {line}")
        raise
    if anomaly.check_nan:
        for k, ge in enumerate(gs):
            if isinstance(ge, Tensor) and ge.meta.dtype.kind in "fc" and bool((ge != ge).any()):
                raise RuntimeError(f"Function '{name_of(node)}' returned nan values in its {k}th output. "
                                   f"The forward operation was recorded at {line}")
    return gs
