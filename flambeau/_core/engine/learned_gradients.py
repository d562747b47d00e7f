"""The gradients of learned calls: a call's graph becomes one node, whose backward pass is a script too.

The graph of the call that was learned from is kept. Its backward pass is captured once for each layout of the gradients that come in; what
it reads of the call (operands, results, blocks) are places that a node of any such call has. A pass that is itself recorded, or that
somebody observes, makes the call again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import interrupts
from ..autograd import tape
from ..autograd.mode import _grad, no_grad
from ..runtime import caches, capture, cpu_memory
from ..tensor import Meta, Tensor, alias, new
from ..tensor import meta as make_meta
from . import replays
from .scripts import BLOCK, EARLIER, OPERAND, Fresh, FreshOnGpu, Many, Place, Places, Result, Script, copied, laid, placed
from .trials import agree, attempted, captured, compare, filled, script_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .learning import Call

around: list[Callable[[Callable[[], Any]], Any]] = []  # who carry work out as if no region of the program were open, as that which makes a call again


class Known(tape.Described):
    """What nodes of one kind of call share: `grad_name`, and what their backward passes need.

    needs: which operands require grad.  heads: those that are written and get a new history.  reads, outs: which operands, and which results,
    must be as they were.  names: those of the results' nodes.  olds: the operands of which nodes keep the values.  graph: of the call that
    was learned from; on a GPU it is not kept, since memory would be, but the operands' `metas`.  backs: replays of the backward pass, by the gradients' metas.
    """

    __slots__ = ("call", "script", "graph", "backs", "reads", "outs", "renewed", "needs", "heads", "names", "olds", "metas")

    def __init__(self, call: Call, names: list[str], script: Script, graph: Any, needs: tuple[bool, ...], heads: tuple[int, ...]) -> None:
        self.call, self.grad_name, self.script, self.graph, self.needs, self.heads = call, names[0], script, graph, needs, heads
        self.names = names
        self.olds: tuple[tuple[int, Meta], ...] = ()
        self.backs: dict[Any, Any] = {}
        self.reads: tuple[int, ...] = ()
        self.outs: tuple[int, ...] = ()
        self.metas: tuple[Meta, ...] = ()
        self.renewed = caches.renewed


def learn_recorded(call: Call, operands: Sequence[Tensor], kind: int) -> Callable[..., Any]:
    """The replay of calls in which these operands require grad (bits). Raises Unrepeatable where there is none."""
    needs = tuple([bool(kind >> i & 1) for i in range(len(operands))])
    if call.device.type != "cpu":
        return _learn_dry(call, tuple([t.meta for t in operands]), needs)
    fresh, copies = Fresh(), [copied(t) for t in operands]
    leaves = [tape.leaf() if n else None for n in needs]
    starts = [None if leaf is None else _passing(leaf) for leaf in leaves]  # no leaves, so that they may be written
    for t, node in zip(copies, starts, strict=True):
        t.node = node
    token = _grad.set(True)
    try:
        taken, made = captured(call.carry_out, copies, 0)
    finally:
        _grad.reset(token)
    places = Places(copies, fresh, foreign=taken.foreign)
    script = script_of(places, taken, made, copies)
    heads = tuple([i for i in script.written if copies[i].node is not starts[i]])
    tensors = tensors_of(made, copies)
    nodes = [t.node is not None for t in tensors]
    if any(t.node is not None and not t.node[tape.SEQ] for t in tensors):
        raise capture.Unrepeatable("a result that is a leaf")
    if not any(nodes) and not heads:
        run: Callable[..., Any] = replays.forward(script, call.pattern, call.device, call.plain, call.plain, None, None)
        return run
    shared = [r.place.number for r in script.results() if r.place.of == BLOCK]
    if len(set(shared)) < len(shared) or (script.written and any(r.place.of == OPERAND for r in script.results())):
        raise capture.Unrepeatable("recorded results that share memory")
    for b in places.blocks:  # what the call gave back must not be given out while its graph is in use
        if cpu_memory.claim(b.base, b.size):
            b.held = cpu_memory.Claimed(b.base, b.size)
    with_node = [*[t for t, n in zip(tensors, nodes, strict=True) if n], *[copies[i] for i in heads]]
    # all results are held, also those without a history: their memory must not be given out either
    info = Known(call, [_name(t.node) for t in with_node], script, (with_node, copies, leaves, places, tensors), needs, heads)
    key = tuple([make_meta(t.meta.shape, None, t.meta.dtype, t.meta.device) for t in with_node])
    gs = [filled(m, t) for m, t in zip(key, with_node, strict=True)]
    pass_, wanted = _learn_backward(info, gs)
    held = {id(t.store) for t in _kept(with_node)}
    blocks = _look(info, pass_, held, copies, tensors)
    olds = info.olds
    back = _one(info) if len(with_node) == 1 else _several(info)
    if not info.reads and not info.outs and not blocks and _keeps_nothing(with_node):
        tape.reusable.add(back)  # it keeps no tensor, as PyTorch's does not
        _again.append(back)
    # the same on other memory, compared
    again = [copied(t) for t in operands]
    for t, n in zip(again, needs, strict=True):
        t.node = _passing(tape.leaf()) if n else None
    tried = replays.recorded(script, call.pattern, call.device, call.plain, info, back, nodes, info.outs, heads, olds,
                              poison=capture.draws(taken.steps) or True)(*call.given(again))
    compare(made, tried)
    for i in script.written:
        compare(copies[i], again[i])
    node = next(t.node for t in (*tensors_of(tried, again), *[again[i] for i in heads]) if t.node is not None)
    node = node[tape.EDGES][0] if node[tape.BACKWARD] is tape.to_output else node
    with no_grad():
        compare(tuple(wanted), _backward_of(info, pass_, gs, poison=True)(node, *gs))
    info.backs[key if len(gs) > 1 else key[0]] = _backward_of(info, pass_, gs)
    return replays.recorded(script, call.pattern, call.device, call.plain, info, back, nodes, info.outs, heads, olds)


def _look(info: Known, pass_: Script, held: set[int], copies: Sequence[Tensor], tensors: Sequence[Tensor]) -> set[int]:
    """Puts down what of the call its backward pass reads; the blocks among that."""
    script = info.script
    reads = {x.number for s in pass_.steps for x in s.args if isinstance(x, Place) and x.of == OPERAND}
    blocks = {x.number for s in pass_.steps for x in s.args if isinstance(x, Place) and x.of == EARLIER}
    info.reads = tuple([i for i, t in enumerate(copies) if i in reads or id(t.store) in held])
    info.outs = tuple([i for i, (r, t) in enumerate(zip(script.results(), tensors, strict=True)) if r.place.of == BLOCK and (
        r.place.number in blocks or id(t.store) in held)])
    # what a second derivative makes the call again from: values that may have changed, as the first derivative does not read them
    read = bool(blocks) or any(step.expected is not None for step in script.steps)
    info.olds = tuple([(i, t.meta) for i, t in enumerate(copies) if i in info.heads or (read and i not in info.reads)])
    return blocks


def _keeps_nothing(with_node: Sequence[Tensor]) -> bool:
    return all(n[tape.BACKWARD] in tape.reusable or n[tape.SAVED] is None for n in _graph(with_node))


# ------------------------------------------------------------------------------------------------------------------- on GPUs
class _Trial:
    """A recorded call on a GPU, captured dry: what nodes of it share, its backward pass, which of its results have a history, and whether
    its node keeps no tensor."""

    __slots__ = ("info", "back", "nodes", "free", "key", "copies")

    def __init__(self, call: Call, metas: Sequence[Meta], needs: tuple[bool, ...], key: Sequence[Meta | None] | None = None) -> None:
        dev = call.device
        self.copies = copies = [placed(m) for m in metas]
        leaves = [tape.leaf() if n else None for n in needs]
        starts = [None if leaf is None else _passing(leaf) for leaf in leaves]
        for t, node in zip(copies, starts, strict=True):
            t.node = node
        fresh, token = FreshOnGpu(dev), _grad.set(True)
        try:
            taken, made = captured(call.carry_out, copies, 0, dry=dev)
        finally:
            _grad.reset(token)
        places = Places(copies, fresh, foreign=taken.foreign, dev=dev)
        script = script_of(places, taken, made, copies)
        tensors = tensors_of(made, copies)
        self.nodes = [t.node is not None for t in tensors]
        if not any(self.nodes) or any(t.node is not None and not t.node[tape.SEQ] for t in tensors):
            raise capture.Unrepeatable("a result without history")
        if any(copies[i].node is not starts[i] for i in script.written):
            raise capture.Unrepeatable("a recorded write")
        shared = [r.place.number for r in script.results() if r.place.of == BLOCK]
        if len(set(shared)) < len(shared) or (script.written and any(r.place.of == OPERAND for r in script.results())):
            raise capture.Unrepeatable("recorded results that share memory")
        with_node = [t for t, n in zip(tensors, self.nodes, strict=True) if n]
        self.info = info = Known(call, [_name(t.node) for t in with_node], script, (with_node, copies, leaves, places, tensors), needs, ())
        info.metas = tuple(metas)
        self.key = tuple([make_meta(t.meta.shape, None, t.meta.dtype, dev) for t in with_node]) if key is None else tuple(key)
        # what the call gave back must not be given out to its backward pass
        claimed = [fresh.pool.claim(b.base) for b in places.blocks]
        try:
            self.back, _ = _learn_backward(info, [None if m is None else new(m) for m in self.key])
        finally:
            for give in claimed:
                if give is not None:
                    give()
        blocks = _look(info, self.back, {id(t.store) for t in _kept(with_node)}, copies, tensors)
        if any(m.nbytes > _MOST_OLD for _, m in info.olds):
            raise capture.Unrepeatable("much memory to be kept for a second derivative")
        self.free = not info.reads and not info.outs and not blocks and _keeps_nothing(with_node)
        info.graph = None


_MOST_OLD = 1 << 20  # bytes of an operand on a GPU that are copied at each call, as only a second derivative would read them


def _trials(call: Call, metas: Sequence[Meta], needs: tuple[bool, ...], key: Sequence[Meta | None] | None = None) -> _Trial:
    """A recorded call, captured twice. Raises Unrepeatable unless both did the same."""
    one = _Trial(call, metas, needs, key)
    two = _Trial(call, metas, needs, one.key)  # the operands of the first live still: these lie elsewhere
    agree(one.info.script, two.info.script)
    agree(one.back, two.back)
    if (one.nodes, one.free, one.info.names, one.info.reads, one.info.outs, one.info.olds) != (
            two.nodes, two.free, two.info.names, two.info.reads, two.info.outs, two.info.olds):
        raise capture.Unrepeatable("the same call keeps something else")
    one.copies.clear()
    return one


def _learn_dry(call: Call, metas: Sequence[Meta], needs: tuple[bool, ...]) -> Callable[..., Any]:
    """`learn_recorded` on a GPU."""
    found = _trials(call, metas, needs)
    info = found.info
    back = _one(info) if len(info.names) == 1 else _several(info)
    if found.free:
        tape.reusable.add(back)
        _again.append(back)
    info.backs[found.key if len(info.names) > 1 else found.key[0]] = _backward_of(info, found.back, found.key)
    return replays.recorded(info.script, call.pattern, call.device, call.plain, info, back, found.nodes, info.outs, (), info.olds)


def _known_dry(info: Known, gs: Sequence[Tensor | None]) -> Callable[..., Any]:
    """The replay of a backward pass on a GPU, with gradients of other layouts."""
    found = _trials(info.call, info.metas, info.needs, [None if g is None else g.meta for g in gs])
    agree(found.info.script, info.script)
    if not (set(found.info.reads) <= set(info.reads) and set(found.info.outs) <= set(info.outs)):
        raise capture.Unrepeatable("a pass that reads more than the first did")
    return _backward_of(info, found.back, gs)


def _backward_of(info: Known, script: Script, gs: Sequence[Any], poison: bool = False) -> Callable[..., Any]:
    """The replay of a backward pass with gradients, or their metas, `gs`; it is called with those that are not None."""
    count = sum(g is not None for g in gs)
    slow = _slow if count == len(gs) else _placed([g is not None for g in gs])
    return replays.backward(script, info.script, len(info.needs), count, info.call.device, slow, info.reads, len(info.outs), poison)


def _placed(which: list[bool]) -> Callable[..., Any]:
    """`_slow`, called with the gradients of those results that have one."""
    def slow(node: tape.Node, *given: Any) -> Any:
        left = iter(given)
        return _slow(node, *[next(left) if there else None for there in which])
    return slow


# ------------------------------------------------------------------------------------------------------------ backward passes
def _one(info: Known) -> Callable[[tape.Node, Any], Any]:
    """BACKWARD of calls with one result."""
    backs, on_tape = info.backs, _grad.get

    def back(node: tape.Node, g: Any) -> Any:
        if caches.world or on_tape() or g.__class__ is not Tensor or info.renewed != caches.renewed:
            return _slow(node, g)
        run = backs.get(g.meta)
        return run(node, g) if run is not None else _unknown(node, g.meta, [g])
    back.grad_name = info.grad_name  # type: ignore[attr-defined]
    return back


def _several(info: Known) -> Callable[[tape.Node, Any], Any]:
    """BACKWARD of calls with several results."""
    backs, on_tape = info.backs, _grad.get

    def back(node: tape.Node, gs: Any) -> Any:
        if caches.world or on_tape() or info.renewed != caches.renewed or not all(g is None or g.__class__ is Tensor for g in gs):
            return _slow(node, *gs)
        key = tuple([None if g is None else g.meta for g in gs])
        run = backs.get(key)
        given = [g for g in gs if g is not None]
        if run is None:
            return _unknown(node, key, gs)
        return _slow(node, *gs) if run is _slow else run(node, *given)
    back.grad_name = info.grad_name  # type: ignore[attr-defined]
    return back


def _unknown(node: tape.Node, key: Any, gs: list[Any]) -> Any:
    """A backward pass with gradients of layouts that there have not been."""
    info: Known = node[tape.SAVED][0]
    run: Any = None
    given = [g for g in gs if g is not None]
    wanted = _slow(node, *gs)
    if info.metas:
        if all(g.meta.plain for g in given) and not tape.anomaly.on:
            run = attempted(info.call.operation.name + " (backward)", info.call.device, lambda: _known_dry(info, gs))
    elif all(g.meta.plain for g in given) and not tape.anomaly.on:
        def find() -> Callable[..., Any]:
            made, _ = _learn_backward(info, [None if g is None else copied(g) for g in gs])
            reads = {x.number for s in made.steps for x in s.args if isinstance(x, Place) and x.of == OPERAND}
            if not reads <= set(info.reads):
                raise capture.Unrepeatable("a pass that reads more than the first did")
            with no_grad():
                compare(wanted, _backward_of(info, made, gs, poison=True)(node, *given))
            return _backward_of(info, made, gs)
        run = attempted(info.call.operation.name + " (backward)", info.call.device, find)
    info.backs[key] = _slow if run is None else run
    return wanted


def _learn_backward(info: Known, gs: Sequence[Tensor | None]) -> tuple[Script, list[Tensor | None]]:
    """The script of a backward pass through the graph that was kept, and the gradients."""
    outs, copies, leaves, places, _ = info.graph
    roots = [t.node for t, g in zip(outs, gs, strict=True) if g is not None]
    given = [g for g in gs if g is not None]
    dev = None if info.call.device.type == "cpu" else info.call.device
    fresh = Fresh() if dev is None else FreshOnGpu(dev)
    wanted = [n for n in leaves if n is not None]
    found = tape.Capture(wanted)

    def work(_: Any) -> Any:
        tape.backward(roots, given, True, False, capture=found)
        return [None if n is None else found.got.get(id(n)) for n in leaves]
    taken, made = captured(work, [], 0, dry=dev)
    here = Places(copies, fresh, given, places, [*places.foreign, *taken.foreign], dev)
    steps = here.steps(taken.steps)
    for g in made:
        if g is not None and (not isinstance(g, Tensor) or not g.meta.plain):
            raise capture.Unrepeatable("a gradient of a class of its own")
    parts: list[Any] = []
    for g in made:
        if g is None:
            parts.append(here.tree(None, []))
            continue
        place = here.place(g.ptr)
        if place.of in (OPERAND, EARLIER):
            raise capture.Unrepeatable("a gradient that is an operand")
        if place.of == BLOCK:
            here.blocks[place.number].store = g.store.meta
        parts.append(Result(place, g.meta))
    return Script(steps, here.blocks, Many(tuple, parts), owners=[owner for *_, owner in taken.foreign]), made


def _slow(node: tape.Node, *gs: Any) -> Any:
    """A backward pass by the body: the call is made again and recorded."""
    info, operands, versions, outs, _, olds, draws = node[tape.SAVED]
    for i in info.reads:
        if operands[i].store.version != versions[i]:
            tape.changed(operands[i], versions[i], node)
    for t, version in outs:
        if t.store.version != version:
            t.node = node
            tape.changed(t, version, node)
    create = _grad.get()
    if create:
        info.call.differentiated()
    inputs: list[Tensor] = []
    before = {i: laid(m, s) for (i, m), s in zip(info.olds, olds, strict=True)}
    for i, (t, edge) in enumerate(zip(operands, node[tape.EDGES], strict=True)):
        t = before.get(i, t)
        if i in info.script.written:  # it is written once more
            t = copied(t) if t.meta.device.type == "cpu" else replays.copied_there(t)
        r = alias(t, t.meta, t.ptr)
        r.node = None if edge is None else _passing(edge)
        inputs.append(r)
    ends = [t.node for t in inputs]
    found = tape.Capture([n for n in ends if n is not None])

    def work() -> None:
        given = capture.redrawn(draws, lambda: info.call.carry_out(inputs))
        made = [t for t in tensors_of(given, inputs) if t.node is not None] + [inputs[i] for i in info.heads]
        pairs = [(t.node, g) for t, g in zip(made, gs, strict=True) if g is not None]
        tape.backward([n for n, _ in pairs], [g for _, g in pairs], create, create, capture=found)
    outside: Callable[[], None] = work
    for region in around:
        outside = partial(region, outside)
    interrupts.within(_grad, True, outside)
    return tuple([None if n is None else found.got.get(id(n)) for n in ends])


def _name(node: tape.Node) -> str:
    """What `grad_fn` shows of a result."""
    parent = node[tape.EDGES][0] if node[tape.BACKWARD] is tape.to_output and node[tape.EDGES] else None
    return tape.name_of(node if parent is None or (node[tape.EXTRA] or {}).get("name") else parent)


def _passing(edge: tape.Node) -> tape.Node:
    """A node that hands its gradient on."""
    return tape.new(_through, (edge,), None, {})


def _through(node: tape.Node, g: Any) -> Any:
    return (g,)


_again: list[Any] = []  # backward functions of calls that keep no tensor


def _forget() -> None:
    tape.reusable.difference_update(_again)
    _again.clear()


caches.on_forget(_forget)


def _graph(outs: Sequence[Tensor]) -> list[tape.Node]:
    """The nodes from which tensors were computed, those of their inputs left out."""
    found: dict[int, tape.Node] = {}
    stack = [t.node for t in outs]
    while stack:
        node = stack.pop()
        if node is not None and id(node) not in found and node[tape.SEQ] and node[tape.BACKWARD] is not _through:
            found[id(node)] = node
            stack += node[tape.EDGES]
    return list(found.values())


def _kept(outs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that the nodes of a graph keep."""
    found: list[Tensor] = []
    left: list[Any] = [node[tape.SAVED] for node in _graph(outs)]
    while left:
        x = left.pop()
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            left.extend(x)  # a size has a sum of its own
    return found
