"""Learning: an operation that gives no plan gets one by being watched.

A call that has been made a few times with the same layouts and constants is captured on copies of its operands (`runtime.capture`),
written down as a script (`scripts`) and from then on replayed (`replays`); with it, when an operand requires grad, its backward pass. A
replay is compared, bit by bit, with what was captured before it is used, on memory filled with something else. What depends on more
than layouts and constants (random numbers, values that Python looks at as a whole, another's memory) is never replayed, nor are large operands,
for which the Python between launches does not matter.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..runtime import caches, capture, cpu_memory
from ..runtime import device as devices
from ..tensor import Tensor
from ..tensor import meta as make_meta
from . import fronts, interpreters, replays
from .scripts import BLOCK, EARLIER, OPERAND, Fresh, Many, Place, Places, Result, Same, Script, copied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .operation import Operation

    Values = tuple[Any, ...]

AFTER = 3  # calls of the same layouts and constants that go the ordinary way first
_MOST_BYTES = 1 << 16  # of an operand that is learned from
_MOST_STEPS = 400
_HOPELESS = 12  # calls that could not be learned, of an operation of which none could, until it is left alone
_UNFIT = 16  # replays left because a value was another one, beyond those that were carried out
_NEVER = -(1 << 30)  # calls, of what is not learned
on = True
refused: dict[str, str] = {}  # the last reason for which a call was not learned, by operation; for those who look into it
around: list[Callable[[], Any]] = []  # context managers in which a call is repeated as if no region of its program were open


class Known:
    """What nodes of one kind of call share: `grad_name`, and what their backward passes need.  Called, it stands for a BACKWARD whose saved
    values are gone."""

    __slots__ = ("grad_name", "call", "script", "graph", "table", "backs", "reads", "outs", "renewed", "needs", "fresh")

    def __init__(self, call: Call, grad_name: str, script: Script, graph: Any, needs: tuple[bool, ...]) -> None:
        self.call, self.grad_name, self.script, self.graph, self.needs = call, grad_name, script, graph, needs
        self.backs: dict[Any, Any] = {}
        self.reads: tuple[int, ...] = ()
        self.outs: tuple[int, ...] = ()
        self.renewed = caches.renewed

    def __call__(self, node: tape.Node, g: Any) -> Any:
        return tape.freed(node, g)


tape.described.add(Known)


class Call:
    """One kind of call: an operation with layouts and constants.

    values: the arguments of one such call without its operands.  passed: the places among them of what may hold tensors.  pattern: of
    each of those, see `replays.unpack`.
    """

    __slots__ = ("operation", "values", "passed", "pattern", "device", "taped", "unfit")

    def __init__(self, operation: Operation, values: Values, passed: Sequence[int]) -> None:
        self.operation, self.passed = operation, tuple(passed)
        self.pattern = tuple([_pattern(values[i]) for i in passed])
        kept = [list(v) if type(v) is list else v for v in values]  # the program may change its list
        for i, places in zip(self.passed, self.pattern, strict=True):
            kept[i] = None if places is None else type(kept[i])(None if k in places else x for k, x in enumerate(kept[i])) if places else kept[i]
        self.values = tuple(kept)
        self.taped: dict[int, Any] = {}
        self.device = devices.CPU
        self.unfit = 0

    def operands(self, given: Sequence[Any]) -> list[Tensor]:
        """The tensors among what a replay is called with."""
        found: list[Tensor] = []
        for v, places in zip(given, self.pattern, strict=True):
            found += [v] if places is None else [v[k] for k in places]
        return found

    def filled(self, given: Sequence[Any]) -> Values:
        """The arguments of a call, from what a replay is called with."""
        values = list(self.values)
        for i, v in zip(self.passed, given, strict=True):
            values[i] = v
        return tuple(values)

    def with_operands(self, operands: Sequence[Tensor]) -> Values:
        """The arguments of a call with other tensors."""
        values, rest = list(self.values), iter(operands)
        for i, places in zip(self.passed, self.pattern, strict=True):
            if places is None:
                values[i] = next(rest)
            elif places:
                values[i] = type(values[i])(next(rest) if k in places else x for k, x in enumerate(values[i]))
        return tuple(values)

    def given(self, operands: Sequence[Tensor]) -> list[Any]:
        """What a replay of this call is called with."""
        values = self.with_operands(operands)
        return [values[i] for i in self.passed]

    def carry_out(self, operands: Sequence[Tensor]) -> Any:
        """The call by the operation's body."""
        return self.operation.as_they_are(self.with_operands(operands))

    def rest(self, *given: Any) -> Any:
        """A call that the replay leaves to the body, for one argument or another."""
        self.unfit += 1
        values = self.filled(given)
        if self.unfit > _UNFIT:
            self.operation.unlearn(values)
        return self.operation.as_they_are(values)

    # ----------------------------------------------------------------------------------------------------------- calls
    def learn(self, operands: Sequence[Tensor]) -> Callable[..., Any]:
        """The replay of calls that are not recorded. Raises Unrepeatable where there is none."""
        def work(copies: list[Tensor]) -> Any:
            return self.carry_out(copies)
        fresh, copies = Fresh(), [copied(t) for t in operands]
        with _unrecorded():
            captured, made = _captured(work, copies, 0)
        places = Places(copies, fresh, foreign=captured.foreign)
        script = _script(places, captured, made, copies)
        if not script.results() and not script.written and (self.operation.name.endswith("_") or not _same(script.result)):
            raise capture.Unrepeatable("it gives no new tensor")
        taped = self.taped if any(t.meta.dtype.kind in "fc" for t in operands) else None
        if any(t.node is not None for t in _tensors(made, copies)):
            raise capture.Unrepeatable("a result that is a leaf")
        again, others = [copied(t) for t in operands], [copied(t) for t in operands]
        with _unrecorded():
            # the call made once more: whatever else went into it would differ
            captured, made = _captured(work, others, 1)
            fakes = [s.made for s in captured.steps if isinstance(s, capture.Draw)]
            tried = replays.forward(script, self.pattern, self.device, self.rest, self.plain, None, None, poison=fakes or True)(*self.given(again))
        _compare(made, tried)
        for a, b in zip(others, again, strict=True):
            _compare(a, b)
        return replays.forward(script, self.pattern, self.device, self.rest, self.plain, taped, self.first, apart=self.operation.planned)

    def first(self, kind: int, *given: Any) -> Any:
        """A recorded call of a kind of which there has been none."""
        operands = self.operands(given)
        run = self.rest
        renewed = caches.renewed
        if on and not caches.observed() and not tape.anomaly.on:
            found = _attempt(self.operation.name + " (recorded)", lambda: self.learn_recorded(operands, kind))
            run = self.plain if found is None else found
        elif tape.anomaly.on:
            return self.plain(*given)
        if renewed == caches.renewed:
            self.taped[kind] = run
        return run(*given)

    def plain(self, *given: Any) -> Any:
        """A call by the body."""
        return self.operation.as_they_are(self.filled(given))

    def learn_recorded(self, operands: Sequence[Tensor], kind: int) -> Callable[..., Any]:
        """The replay of calls in which these operands require grad (bits). Raises Unrepeatable where there is none."""
        needs = tuple([bool(kind >> i & 1) for i in range(len(operands))])
        fresh, copies = Fresh(), [copied(t) for t in operands]
        leaves = [tape.leaf() if n else None for n in needs]
        for t, node in zip(copies, leaves, strict=True):
            t.node = node
        token = _grad.set(True)
        try:
            captured, made = _captured(self.carry_out, copies, 0)
        finally:
            _grad.reset(token)
        places = Places(copies, fresh, foreign=captured.foreign)
        script = _script(places, captured, made, copies)
        if script.written:
            raise capture.Unrepeatable("a recorded call that writes its operands")
        tensors = _tensors(made, copies)
        nodes = [t.node is not None for t in tensors]
        if any(t.node is not None and not t.node[tape.SEQ] for t in tensors):
            raise capture.Unrepeatable("a result that is a leaf")
        if not any(nodes):
            run: Callable[..., Any] = replays.forward(script, self.pattern, self.device, self.plain, self.plain, None, None)
            return run
        shared = [r.place.number for r in script.results() if r.place.of == BLOCK]
        if len(set(shared)) < len(shared):
            raise capture.Unrepeatable("recorded results that share memory")
        for b in places.blocks:  # what the call gave back must not be given out while its graph is in use
            if cpu_memory.claim(b.base, b.size):
                b.held = cpu_memory.Claimed(b.base, b.size)
        with_node = [t for t, n in zip(tensors, nodes, strict=True) if n]
        root = with_node[0].node
        name = tape.name_of(root[3][0] if root[2] is tape.to_output and root[3] and root[3][0] is not None else root)
        info = Known(self, name, script, (with_node, copies, leaves, places), needs)
        key = tuple([make_meta(t.meta.shape, None, t.meta.dtype, t.meta.device) for t in with_node])
        gs = [_filled(m, t) for m, t in zip(key, with_node, strict=True)]
        pass_, wanted = _learn_backward(info, gs)
        held = {id(t.store) for t in _kept([t.node for t in with_node])}
        reads = {x.number for s in pass_.steps for x in s.args if isinstance(x, Place) and x.of == OPERAND}
        blocks = {x.number for s in pass_.steps for x in s.args if isinstance(x, Place) and x.of == EARLIER}
        info.reads = tuple([i for i, t in enumerate(copies) if i in reads or id(t.store) in held])
        info.outs = tuple([i for i, (r, t) in enumerate(zip(script.results(), tensors, strict=True)) if r.place.of == BLOCK and (
            r.place.number in blocks or id(t.store) in held)])
        back = _one(info) if len(with_node) == 1 and len(tensors) == 1 else _several(info)
        # the same on other memory, compared
        again = [copied(t) for t in copies]
        for t, n in zip(again, needs, strict=True):
            t.node = tape.leaf() if n else None
        tried = replays.recorded(script, self.pattern, self.device, self.plain, info, back, nodes, info.outs,
                                  poison=[s.made for s in captured.steps if isinstance(s, capture.Draw)] or True)(*self.given(again))
        _compare(made, tried)
        node = next(t.node for t in _tensors(tried, again) if t.node is not None)
        node = node[3][0] if node[2] is tape.to_output else node
        with _unrecorded():
            run = replays.backward(pass_, script, len(again), len(gs), self.device, _slow, info.reads, len(info.outs), poison=True)
            _compare(tuple(wanted), run(node, *gs))
        info.backs[key if len(gs) > 1 else key[0]] = _backward_of(info, pass_, len(gs))
        return replays.recorded(script, self.pattern, self.device, self.plain, info, back, nodes, info.outs)


def _backward_of(info: Known, script: Script, gradients: int) -> Callable[..., Any]:
    return replays.backward(script, info.script, len(info.needs), gradients, info.call.device, _slow, info.reads, len(info.outs))


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
    info: Known = node[4][0]
    run: Any = None
    given = [g for g in gs if g is not None]
    if on and all(g.meta.plain for g in given) and not tape.anomaly.on:
        def find() -> Callable[..., Any]:
            made, _ = _learn_backward(info, [None if g is None else copied(g) for g in gs])
            reads = {x.number for s in made.steps for x in s.args if isinstance(x, Place) and x.of == OPERAND}
            if not reads <= set(info.reads):
                raise capture.Unrepeatable("a pass that reads more than the first did")
            return _backward_of(info, made, len(given))
        run = _attempt(info.call.operation.name + " (backward)", find)
    info.backs[key] = _slow if run is None else run
    return _slow(node, *gs) if run is None else run(node, *given)


def _learn_backward(info: Known, gs: Sequence[Tensor | None]) -> tuple[Script, list[Tensor | None]]:
    """The script of a backward pass through the graph that was kept, and the gradients."""
    outs, copies, leaves, places = info.graph
    roots = [t.node for t, g in zip(outs, gs, strict=True) if g is not None]
    given = [g for g in gs if g is not None]
    fresh = Fresh()
    wanted = [n for n in leaves if n is not None]
    found = tape.Capture(wanted)

    def work(_: Any) -> Any:
        tape.backward(roots, given, True, False, capture=found)
        return [None if n is None else found.got.get(id(n)) for n in leaves]
    captured, made = _captured(work, [], 0)
    here = Places(copies, fresh, given, places, [*places.foreign, *captured.foreign])
    steps = here.steps(captured.steps)
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
    return Script(steps, here.blocks, Many(tuple, parts), owners=[owner for *_, owner in captured.foreign]), made


def _slow(node: tape.Node, *gs: Any) -> Any:
    """A backward pass by the body: the call is made again and recorded."""
    info, operands, versions, outs, _ = node[tape.SAVED]
    for i in info.reads:
        if operands[i].store.version != versions[i]:
            tape.changed(operands[i], versions[i], node)
    for t, version in outs:
        if t.store.version != version:
            t.node = node
            tape.changed(t, version, node)
    create = _grad.get()
    inputs: list[Tensor] = []
    for t, edge in zip(operands, node[tape.EDGES], strict=True):
        r: Tensor = object.__new__(Tensor)
        r.meta, r.store, r.ptr = t.meta, t.store, t.ptr
        r.node = None if edge is None else [tape.next_seq(), None, _through, (edge,), None, {}]
        inputs.append(r)
    ends = [t.node for t in inputs]
    token = _grad.set(True)
    regions = [region() for region in around]
    for region in regions:
        region.__enter__()
    try:
        made = [t for t in _tensors(info.call.carry_out(inputs), inputs) if t.node is not None]
        found = tape.Capture([n for n in ends if n is not None])
        pairs = [(t.node, g) for t, g in zip(made, gs, strict=True) if g is not None]
        tape.backward([n for n, _ in pairs], [g for _, g in pairs], create, create, capture=found)
    finally:
        for region in reversed(regions):
            region.__exit__(None, None, None)
        _grad.reset(token)
    return tuple([None if n is None else found.got.get(id(n)) for n in ends])


def _through(node: tape.Node, g: Any) -> Any:
    return (g,)


# --------------------------------------------------------------------------------------------------------------- attempts
def _pattern(v: Any) -> replays.Pattern:
    """What of a call's argument is an operand: see `replays.unpack`."""
    if isinstance(v, Tensor):
        return None
    return tuple([k for k, x in enumerate(v) if isinstance(x, Tensor)]) if type(v) in (tuple, list) else ()


class Learner:
    """What an operation has learned: counts calls, learns, and gives up where nothing can be learned."""

    __slots__ = ("operation", "key", "passed", "env", "hopeless", "learned", "device")

    def __init__(self, operation: Operation, signature: Any, env: dict[str, Any]) -> None:
        names = signature.names()
        self.operation, self.env = operation, env
        if operation.planned:
            self.key, self.passed = operation._key, operation.places
        else:
            self.key = fronts.key_of(signature)
            self.passed = tuple([names.index(n) if n in names else len(names) for n in fronts.operand_kinds(signature)])
        self.device = names.index("device") if "device" in names else None
        self.hopeless = 0
        self.learned = False
        caches.cache(env, "seen")

    def note(self, values: Values) -> None:
        """A call that was made without a learned plan."""
        if not on or caches.world or capture.active or tape.anomaly.on or interpreters.now.watched:
            return
        try:
            key = self.key(values)
            if key is None or (self.operation.planned and not all(x is None or isinstance(x, Tensor) for x in [values[i] for i in self.passed])):
                return  # numbers that are not in the key
            seen: dict[Any, int] = self.env["seen"]
            count = seen.get(key, 0) + 1
        except (AttributeError, TypeError, RuntimeError, ValueError):
            self._fail()
            return
        if count < AFTER:
            caches.keep(seen, key, count)
            return
        if key in self.env["plans"]:  # the call changed its operands' layouts, by which it would be found
            caches.keep(seen, key, _NEVER)
            return
        renewed = caches.renewed
        run = attempt(self.operation, values, self.passed) if self._here(values) else None
        if renewed != caches.renewed:
            return
        if run is None:
            caches.keep(seen, key, _NEVER)
            self._fail()
            return
        self.hopeless, self.learned = 0, True
        if self.operation.planned:
            self.operation.replayed.add(run)
        caches.keep(self.env["plans"], key, run)

    def _here(self, values: Values) -> bool:
        """Whether a call's `device` is the CPU, if it has such an argument."""
        given = None if self.device is None else values[self.device]
        try:
            return (devices._thread.default if given is None else devices.resolve(given)).type == "cpu"
        except (RuntimeError, TypeError, ValueError):
            return False

    def forget(self, values: Values) -> None:
        """Calls like this one are no longer replayed."""
        key = self.key(values)
        self.env["plans"].pop(key, None)
        caches.keep(self.env["seen"], key, _NEVER)

    def _fail(self) -> None:
        self.hopeless += 1
        if self.hopeless > _HOPELESS and not self.learned:
            self.operation.give_up()


def attempt(operation: Operation, values: Values, passed: Sequence[int]) -> Callable[..., Any] | None:
    """The replay of calls like this one, or None."""
    call = Call(operation, values, passed)
    operands = call.operands([values[i] for i in passed])
    if any(t.meta.device.type != "cpu" or t.meta.nbytes > _MOST_BYTES or not t.meta.plain for t in operands):
        return None
    try:
        for t in operands:
            _ptr(t)
    except AttributeError:  # an asynchronous copy is still filling it
        return None
    found = _attempt(operation.name, lambda: call.learn(operands))
    return found


_ptr: Any = Tensor.__dict__["ptr"].__get__


def _attempt(name: str, work: Callable[[], Callable[..., Any]]) -> Callable[..., Any] | None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = work()
        except (capture.Unrepeatable, Exception) as error:
            refused[name] = f"{type(error).__name__}: {error}"
            return None
    if said:
        refused[name] = "it warns"
        return None
    return found


class _unrecorded:
    def __enter__(self) -> None:
        self.token = _grad.set(False)

    def __exit__(self, *exc: object) -> None:
        _grad.reset(self.token)


def _captured(work: Callable[[list[Tensor]], Any], copies: list[Tensor], streams: int) -> tuple[capture.Capture, Any]:
    with capture.Capture(streams) as captured:
        made = work(copies)
    if len(captured.steps) > _MOST_STEPS:
        raise capture.Unrepeatable("many launches")
    return captured, made


def _script(places: Places, captured: capture.Capture, made: Any, copies: Sequence[Tensor]) -> Script:
    steps = places.steps(captured.steps)
    tree = places.tree(made, copies)
    written = tuple([(i, t.store.version) for i, t in enumerate(copies) if t.store.version])
    known = {i for i, _ in written}
    for s in steps:
        for x in s.args[:s.outputs]:
            if isinstance(x, Place) and x.of == OPERAND and x.number not in known:
                raise capture.Unrepeatable("an operand is written and its version stays")
    return Script(steps, places.blocks, tree, written, [owner for *_, owner in captured.foreign])


def _same(x: Any) -> bool:
    """Whether a result is or holds operands and nothing else."""
    return isinstance(x, Same) or (isinstance(x, Many) and all(map(_same, x.parts)))


def _tensors(made: Any, operands: Sequence[Tensor]) -> list[Tensor]:
    """The tensors among results that are no operands, in order."""
    if isinstance(made, Tensor):
        return [] if any(made is t for t in operands) else [made]
    return [t for part in made for t in _tensors(part, operands)] if isinstance(made, (tuple, list)) and not isinstance(made, layout.Size) else []


def _kept(roots: list[tape.Node]) -> list[Tensor]:
    """The tensors that the nodes of a graph keep."""
    found: list[Tensor] = []
    seen: set[int] = set()

    def look(x: Any) -> None:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            for y in x:
                look(y)
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            look(node[tape.SAVED])
            stack += [e for e in node[tape.EDGES] if e is not None]
    return found


def _filled(m: Any, like: Tensor) -> Tensor:
    """A tensor of a layout with the values of another."""
    from ..kernels.interpret import memory
    from ..tensor import new
    t = new(m)
    memory(t.ptr, tuple(m.shape), m.strides, m.dtype)[...] = memory(like.ptr, tuple(m.shape), like.meta.strides, m.dtype)
    return t


def _compare(a: Any, b: Any) -> None:
    """Raises Unrepeatable where two calls' results differ in anything."""
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.meta is not b.meta or _bytes(a) != _bytes(b):
            raise capture.Unrepeatable("the replay's result is another one")
    elif isinstance(a, (tuple, list)):
        if type(a) is not type(b) or len(a) != len(b):
            raise capture.Unrepeatable("the replay's results are others")
        for x, y in zip(a, b, strict=True):
            _compare(x, y)


def _bytes(t: Tensor) -> bytes:
    from ..kernels.interpret import memory
    m = t.meta
    if m.contiguous:
        return ctypes.string_at(t.ptr, m.nbytes)
    return bytes(memory(t.ptr, tuple(m.shape), m.strides, m.dtype).tobytes())


