"""Recorded calls of bodies, traced with unknown sizes: the call in machine code, and the nodes that it leaves behind as a text of how to make them.

A body is watched as in `traced`, on operands that require grad as an example's do.  It records nodes, which keep operands, what it allocated, and numbers.
Of each node a line is written that makes the like of it for another call: operands in the place of the example's, tensors that the machine code
gives beside the results, and sizes in the place of unknown numbers.  Before a function is used, what it gives for the example, and the graph behind that, are
held against the body's, object by object.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..kernels.specs import Spec
from ..runtime import capture
from ..tensor import Meta, Storage, Tensor, alias
from ..unknowns import NoTrace
from . import general
from .plans import CALLS
from .scripts import copied
from .traced import Watched, flat, with_operands
from .trials import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..kernels.calls import Made
    from .operation import Operation
    from .traced import Values

_FIRST = 0x7E57 << 32  # the version of the first operand of an example: no other number that a node keeps is so large
_KEPT = frozenset(("name", "outputs"))  # what may be in the EXTRA of a node


def traced(operation: Operation, values: Values, passed: Sequence[int], operands: list[Tensor], least: Any,
           sizes: tuple[int, ...]) -> tuple[Callable[..., Any], bool]:
    """The function of a kind of recorded call, by an example, and whether it holds for some number of it only."""
    needs = [t.node is not None for t in operands]

    def prepare(these: Sequence[Tensor]) -> None:
        for i, (t, need) in enumerate(zip(these, needs, strict=True)):
            t.store.version = _FIRST + i
            t.node = tape.new(_end, ()) if need else None
    found = Watched(operation, values, passed, operands, least, sizes, prepare)
    streams, tried = found.streams()
    ours, theirs = ([copied(t) for t in operands] for _ in range(2))
    for each in (ours, theirs):
        prepare(each)
    expected = capture.redrawn(streams, lambda: operation.as_they_are(with_operands(values, iter(theirs))))
    given = _Function(found, needs, tried).function()(sizes, *flat(with_operands(values, iter(ours)), passed))
    if given is NotImplemented:
        raise NoTrace("it does not hold for its example")
    _Alike(theirs, ours).hold(expected, given)
    return _Function(found, needs).function(), found.example.trace.stuck > 0


def _end(node: tape.Node, g: Any) -> Any:
    """Stands for the history of an example's operand."""
    raise NoTrace("the history of an example")


class _Function(general.Source):
    """The text of a recorded call.

    needs: of each operand, whether it requires grad.  tried: streams that it draws from, in the place of the generators' (`Watched.script`).
    """

    def __init__(self, found: Watched, needs: Sequence[bool], tried: dict[int, Any] | None = None) -> None:
        super().__init__(found.example.trace, len(found.example.numbers))
        self.script, self.operands, self.found = found.script(tried), found.example.operands, found
        self.drawn = bool(self.script.streams) and not tried
        if any(t.store.version != _FIRST + i or t.node is not None and t.node[tape.BACKWARD] is not _end for i, t in enumerate(self.operands)):
            raise NoTrace("an operand is written")
        self.steps, written = self.script.launches(found.taken)
        if written:
            raise NoTrace("an operand is written and its version stays")
        self.names = [f"a{i}" for i in range(len(self.script.roles))]
        self.of = [self.names[i] for i in self.script.arguments]
        self.needs = needs
        self.space.update(alias=alias, note_view=inplace.note_view, next_seq=tape.next_seq, anomaly=tape.anomaly, grad_on=_grad.get,
                          redrawing=capture.redrawing)
        self.fresh: list[Made] = []
        self._tensors: dict[int, str] = {id(t): name for t, name in zip(self.operands, self.of, strict=True)}
        self._nodes: dict[int, str] = {id(t.node): f"{name}.node" for t, name in zip(self.operands, self.of, strict=True) if t.node is not None}
        self._histories: list[tuple[str, Any]] = []
        self._shared: dict[int, Any] = {}  # by identity: what the nodes of another call keep too
        _reach(found.made_so, self._shared)

    def function(self) -> Callable[..., Any]:
        made = self.found.made
        several = type(made) in (tuple, list) or hasattr(made, "_fields")
        parts: Any = made if several else [made]
        results = [self._result(x) for x in parts]
        order = self._graph([x.node for x in parts if isinstance(x, Tensor) and x.node is not None])
        for i, n in enumerate(order):
            self._nodes[id(n)] = f"n{i}"
        for i, n in enumerate(order):
            if n[tape.EXTRA] is not None and not n[tape.EXTRA].keys() <= _KEPT:
                raise NoTrace("a node of which more is said")
            edges = "".join([f"{'None' if e is None else self._node(e)}, " for e in n[tape.EDGES]])
            text = tape.text(self.value(n[tape.BACKWARD]), f"({edges})", self.value(n[tape.SAVED]), self.value(n[tape.EXTRA]))
            self.lines.append(f"n{i} = {text}")
        for name, n in self._histories:
            self.lines.append(f"{name}.node = {self._node(n)}")
        body = [f"if not grad_on() or anomaly.on or {'redrawing or ' if self.drawn else ''}{self._other()}: return NotImplemented"]
        if self.fresh or self.steps:
            self.space["run"] = CALLS.sized(self.trace, self.sizes, self.script.roles, self.script.blocks(), self.steps, self.fresh, tuple, False)
            body += [f"made = run(sizes, {', '.join(self.names)})", "if made is NotImplemented: return made",
                     f"{''.join(f'k{i}, ' for i in range(len(self.fresh)))}= made" if self.fresh else ""]
        tell = [f"{''.join(f's{i}, ' for i in range(self.sizes))}= sizes"] if self.needed or not self.fresh else []
        body += [*tell, *self.trace.written(self.needed, not (self.fresh or self.steps)), *self.lines]
        row = "".join(f"{r}, " for r in results)
        gather = type(made)
        body.append(f"return {results[0]}" if not several else f"return [{row}]" if gather is list else f"return ({row})" if gather is tuple else
                    f"return {self.constant(made._make)}(({row}))")
        return self._compiled(["sizes", *self.names], [line for line in body if line])

    def _other(self) -> str:
        """The test for calls whose operands require grad otherwise."""
        return " or ".join([f"{name}.node is {'' if need else 'not '}None" for name, need in zip(self.of, self.needs, strict=True)])

    # the graph -----------------------------------------------------------------------------------------------------------
    def _graph(self, roots: list[Any]) -> list[Any]:
        """The nodes that the body made, the oldest first."""
        found: dict[int, Any] = {}
        left = roots
        while left:
            n = left.pop()
            if n is None or id(n) in found or id(n) in self._nodes:
                continue
            if not n[tape.SEQ]:
                raise NoTrace("a leaf")
            found[id(n)] = n
            left += n[tape.EDGES]
            left += [t.node for t in _reach(n[tape.SAVED], {})]
        return sorted(found.values(), key=lambda n: -n[tape.SEQ])

    def _node(self, n: Any) -> str:
        found = self._nodes.get(id(n))
        if found is None:
            raise NoTrace("a history of somebody else")
        return found

    # values --------------------------------------------------------------------------------------------------------------
    def _result(self, x: Any) -> str:
        if isinstance(x, Tensor):
            return self._tensor(x)
        if x is None or type(x) in (bool, int, float, complex, str):
            return self.constant(x)
        raise NoTrace(f"a result of class {type(x).__name__}")

    def _tensor(self, x: Tensor) -> str:
        """The name of a tensor."""
        found = self._tensors.get(id(x))
        if found is not None:
            return found
        if type(x) is not Tensor or not x.meta.plain or not x.__dict__.keys() <= {"_views", "_made"}:
            raise NoTrace("a tensor of which more is said")
        for t, of in zip(self.operands, self.of, strict=True):
            if x.store is t.store:
                name = self._tensors[id(x)] = f"w{len(self._tensors)}"
                self.lines.append(f"{name} = alias({of}, {self.value(x.meta)}, {of}.ptr + {self.value(x.ptr - t.ptr)})")
                if x.base is not None:
                    if x.base is not t:
                        raise NoTrace("a view of another view")
                    mark = x.__dict__.get("_made")
                    if mark is not None:
                        self.lines.append(f"{name}._made = {self.constant(mark)}")
                    self.lines += [f"if {of}.base is None: note_view({of}, {name})", "else:", f" note_view({of}.base, {name})",
                                   f" if '_made' in {of}.__dict__: {name}._made = {of}._made"]
                break
        else:
            name = self._tensors[id(x)] = f"k{len(self.fresh)}"
            self.fresh.append(self.script.new(x))
        if x.node is not None:
            self._histories.append((name, x.node))
        return name

    def constant(self, x: Any) -> str:
        if x.__class__ is int and _FIRST <= x < _FIRST + len(self.of):
            return f"+{self.of[x - _FIRST]}.store.version"
        return super().constant(x)

    def value(self, x: Any) -> str:
        if id(x) in self._nodes:
            return self._nodes[id(x)]
        if x.__class__ is int:
            return self.constant(x)
        if x.__class__ is FunctionType and "direct" in x.__dict__:  # a launch that was bound while the capture looked on
            return self.value(x.__dict__["direct"])
        return self._tensor(x) if isinstance(x, Tensor) else super().value(x)

    def _find(self, x: Any, met: set[int]) -> bool:
        if isinstance(x, Tensor) or x.__class__ is int and _FIRST <= x < _FIRST + len(self.of) or id(x) in self._nodes:
            return True
        if self._shared.get(id(x)) is x and not isinstance(x, (tuple, str, float)):
            return False
        if x.__class__ is FunctionType and "direct" in x.__dict__:
            return self._find(x.__dict__["direct"], met)
        return _of_a_call(x) or super()._find(x, met)


def _of_a_call(x: Any) -> bool:
    """Whether an object may belong to one call, and so must be made anew for each."""
    kind = x.__class__
    return general.is_ours(kind) and not isinstance(x, (Meta, Spec, tuple, tape.Described, type, FunctionType, MethodType, BuiltinFunctionType, Storage))


def _reach(x: Any, met: dict[int, Any]) -> list[Tensor]:
    """The tensors within what a call gave, or a node keeps, and in what they were made of; all objects on the way are put into `met`, by identity."""
    if id(x) in met or isinstance(x, general.SHARED) or x.__class__ in (Meta, Storage) or x.__class__ is FunctionType and "direct" in x.__dict__:
        return []
    met[id(x)] = x
    if isinstance(x, Tensor):
        return [x, *_reach(x.node, met)]
    if isinstance(x, (tuple, list)) or x.__class__ is dict or x.__class__ is FunctionType and x.__closure__ or x.__class__ is MethodType or _of_a_call(x):
        return [t for part in general.parts_of(x) for t in _reach(part, met)]
    return []


class _Alike:
    """Two calls of the same, held against one another.

    theirs, ours: their operands.
    """

    def __init__(self, theirs: Sequence[Tensor], ours: Sequence[Tensor]) -> None:
        self.pairs = {id(a): b for a, b in zip(theirs, ours, strict=True)}
        self.nodes = {id(a.node): b.node for a, b in zip(theirs, ours, strict=True) if a.node is not None}
        self.stores = {id(a.store) for a in theirs}
        self.keep: list[Any] = []

    def hold(self, a: Any, b: Any) -> None:
        """Raises NoTrace, or Unrepeatable, unless the one is made as the other."""
        general.agree(a, b, self._same)

    def _same(self, a: Any, b: Any) -> bool:
        if isinstance(a, Tensor):
            known = self.pairs.get(id(a))
            if known is None:
                if type(a) is not type(b) or id(a.store) in self.stores and (
                        (a.base is None) != (b.base is None) or a.__dict__.get("_made") != b.__dict__.get("_made")):
                    raise NoTrace("another tensor")
                compare(a, b)
                if a.store.version != b.store.version:
                    raise NoTrace("another version")
                self.pairs[id(a)] = b
                self.keep.append(a)
                self._history(a.node, b.node)
            elif known is not b:
                raise NoTrace("another tensor")
            return True
        if id(a) in self.nodes:
            self._history(a, b)
            return True
        return False

    def _history(self, a: Any, b: Any) -> None:
        if a is None or b is None:
            if a is not b:
                raise NoTrace("a history where there is none")
            return
        known = self.nodes.get(id(a))
        if known is not None:
            if known is not b:
                raise NoTrace("another history")
            return
        self.nodes[id(a)] = b
        self.keep.append(a)
        if len(a[tape.EDGES]) != len(b[tape.EDGES]):
            raise NoTrace("more edges, or less")
        for x, y in zip(a[tape.EDGES], b[tape.EDGES], strict=True):
            self._history(x, y)
        for part in (tape.BACKWARD, tape.SAVED, tape.EXTRA):
            self.hold(a[part], b[part])
