"""Tangents through what an operation put on the tape.

The operation was carried out on shadows of its operands (`Shadows`), recorded. Where what it recorded is one formula, pointwise or of rows, the
formula of its gradient is differentiated once more, by the gradient given: what comes out takes the tangents of the operands to that of the
result, in one kernel. Else the tape does the same with tensors: the backward pass is linear in the gradient that it starts from, and its own
backward pass takes tangents to tangents.
"""

from __future__ import annotations

from typing import Any

from .._core import hooks
from .._core import ops as _ops
from .._core.autograd import functions, tape
from .._core.autograd.mode import _grad
from .._core.engine.plans import under
from .._core.ops import elementwise, rowwise
from .._core.runtime.capture import now
from .._core.tensor import Tensor, alias
from .duals import Level, attach, tangents

ops: Any = _ops


def _through(node: tape.Node, g: Any) -> Any:
    """Backward of the node between an operand and its shadow."""
    return (g,)


_through.grad_name = "ForwardADBackward0"  # type: ignore[attr-defined]


class Shadows:
    """Operands as a call at one level sees them: on the same memory, without that level's tangents, each behind a node of its own."""

    __slots__ = ("level", "made", "starts", "after")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.made: dict[int, tuple[Tensor, Tensor, tape.Node]] = {}
        self.starts: list[tuple[Tensor, Any]] = []  # handles of the nodes, and the tangents that arrive there
        self.after = tape.next_seq()  # nodes of the call have smaller numbers

    def of(self, t: Tensor) -> Tensor:
        found = self.made.get(id(t))
        if found is not None:
            return found[1]
        s = alias(t, under(t.meta), t.ptr)
        s.node = node = tape.new(_through, (t.node,))
        self.made[id(t)] = t, s, node
        for level, tangent in tangents(t).items():
            if level is self.level:
                handle = alias(s, s.meta, s.ptr)
                handle.node = node
                self.starts.append((handle, tangent))
            else:
                attach(s, level, self.of(tangent))
        return s


def settle(t: Tensor, shadows: Shadows, recording: bool) -> None:
    """Leaves a result the history that it has for those outside."""
    if t.node is not None and not (recording and _reaches(t.node, shadows)):
        t.node = None


def _reaches(node: tape.Node, shadows: Shadows) -> bool:
    """Whether a history goes on before the call."""
    starts = {id(n): n for _, _, n in shadows.made.values()}
    stack, seen = [node], set()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if id(n) in starts:
            if n[tape.EDGES][0] is not None:
                return True
        elif n[tape.SEQ] >= shadows.after:
            return True
        else:
            stack += [e for e in n[tape.EDGES] if e is not None]
    return False


def nothing(node: tape.Node, g: Any) -> Any:
    return ()


def pushed(outs: list[Tensor], shadows: Shadows, recording: bool) -> list[Any]:
    """The tangents of what is on the tape behind the shadows; None where one is 0."""
    made: list[Any] = [None] * len(outs)
    at = [i for i, y in enumerate(outs) if y.node is not None]
    if not at:
        return made
    now.hold(1)
    token = _grad.set(recording)
    try:
        found = _by_formula([outs[i] for i in at], shadows)
        if found is NotImplemented:
            ends = [_bare(outs[i]) for i in at]
            found = _of_one_number(ends[0], shadows, recording) if len(ends) == 1 and ends[0].meta.numel == 1 else _transposed(ends, shadows, recording)
    finally:
        _grad.reset(token)
        now.hold(-1)
    own = {id(v.store) for _, v in shadows.starts}
    for i, v in zip(at, found, strict=True):
        if v is not None and v.meta.dtype is not outs[i].meta.dtype:
            made[i] = (ops.real(v) if not outs[i].meta.dtype.is_complex else v).to(outs[i].meta.dtype)
        else:  # one that is an operand's is not shared: it may be written to
            made[i] = v.clone() if v is not None and id(v.store) in own else v
    return made


def _transposed(outs: list[Tensor], shadows: Shadows, recording: bool) -> list[Any]:
    """The backward pass of the backward pass: by the gradient that it starts from."""
    us: list[Any] = [ops.zeros_like(y) for y in outs]
    for u in us:  # no leaf, at which a history would seem to begin outside
        u.node = tape.new(nothing, ())
    handles = [h for h, _ in shadows.starts]
    with_grad = _grad.set(True)
    try:
        backs = functions.grad(outs, handles, us, retain_graph=True, create_graph=True, allow_unused=True)
    finally:
        _grad.reset(with_grad)
    kept = [(b, v) for b, (_, v) in zip(backs, shadows.starts, strict=True) if b is not None and b.node is not None]
    if not kept:
        return [None] * len(outs)
    return list(functions.grad([b for b, _ in kept], us, [_like(v, b) for b, v in kept], create_graph=recording, allow_unused=True))


def _of_one_number(out: Tensor, shadows: Shadows, recording: bool) -> list[Any]:
    """The tangent of a single number, by its gradient: no second derivative is needed."""
    moves = []
    for unit in (1.0, 1j) if out.meta.dtype.is_complex else (1.0,):
        u = ops.full(tuple(out.meta.shape), unit, dtype=out.meta.dtype, device=out.meta.device)
        slopes = functions.grad([out], [h for h, _ in shadows.starts], [u], retain_graph=True, create_graph=recording, allow_unused=True)
        terms = [ops.sum(ops.real(ops.conj_physical(g) * _like(v, g))) for g, (_, v) in zip(slopes, shadows.starts, strict=True) if g is not None]
        if not terms:
            return [None]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        moves.append(total.reshape(tuple(out.meta.shape)))
    made = ops.complex(*moves) if len(moves) > 1 else moves[0]
    return [made.to(out.meta.dtype)]


def _bare(t: Tensor) -> Tensor:
    """A tensor on the same memory with the same history, without tangents."""
    made = alias(t, under(t.meta), t.ptr)
    made.node = t.node
    return made


def _like(v: Any, b: Tensor) -> Any:
    """A tangent in the type of what it belongs to."""
    return v if v.meta.dtype is b.meta.dtype else hooks.fit(v, b.meta)


# -------------------------------------------------------------------------------------------------------------- formulas
def _by_formula(outs: list[Tensor], shadows: Shadows) -> Any:
    """The tangents of one formula's results; NotImplemented where the tape has something else."""
    arriving = {id(h.node): v for h, v in shadows.starts}
    starts = {id(n) for _, _, n in shadows.made.values()}
    node = outs[0].node
    if len(outs) > 1 or node[tape.BACKWARD] is tape.to_output:
        if any(y.node[tape.BACKWARD] is not tape.to_output for y in outs):
            return NotImplemented
        node = node[tape.EDGES][0]
        if any(y.node[tape.EDGES][0] is not node for y in outs):
            return NotImplemented
    edges = node[tape.EDGES]
    if any(e is not None and id(e) not in starts and e[tape.SEQ] < shadows.after for e in edges):
        return NotImplemented
    given = [None if e is None else arriving.get(id(e)) for e in edges]
    if all(v is None for v in given):
        return [None] * len(outs)
    rule = _RULES.get(node[tape.BACKWARD])
    return NotImplemented if rule is None else rule(node, outs, given)


def _pointwise(node: tape.Node, outs: list[Tensor], given: list[Any]) -> Any:
    """The derivative of a pointwise formula along tangents."""
    info, kept, versions, results, numbers = node[tape.SAVED]
    t = info.tape
    parts = [v if v.meta.dtype is m.dtype else hooks.fit(v, m)  # in the type of the operand
             for v, gr, m in zip(given, t.grads, info.metas, strict=False) if v is not None and gr == "same"]
    wanted = {gr: hooks.fit(v, m) if v.meta.dtype is not m.dtype else v
              for v, gr, m in zip(given, t.grads, info.metas, strict=False) if v is not None and isinstance(gr, int)}
    if wanted:
        operands: list[Any] = [None]
        for x, v in zip(kept, versions, strict=True):
            operands.append(elementwise.saved_tensor(x, v, node))
        for y, v in results:
            elementwise.saved_tensor(y, v, node)
            y = alias(y, y.meta, y.ptr)
            y.node = node if _grad.get() else None
            operands.append(y)
        count = sum(isinstance(gr, int) for gr in t.grads)
        needs = (True, *[False] * (len(operands) - 1))
        complexes = (outs[0].meta.dtype.is_complex, *[isinstance(x, Tensor) and x.meta.dtype.is_complex for x in operands[1:]])
        again = t.op.tape(needs, tuple(i in wanted for i in range(count)), info.consts, complexes)
        if 0 in again.saved or again.save_out or again.grads[0] is None:
            return NotImplemented
        arriving = [wanted[i] for i in range(count) if i in wanted]
        made = arriving[0] if again.grads[0] == "same" else again.op((*arriving, *[operands[i] for i in again.saved]), numbers, info.consts)
        parts.append(made)
    total = parts[0] if parts else None
    for v in parts[1:]:
        total = total + v
    return [total]


def _rows(node: tape.Node, outs: list[Tensor], given: list[Any]) -> Any:
    """The derivative of a formula over named axes along tangents."""
    rec, held, versions, numbers = node[tape.SAVED]
    bound, count = rec.bound, len(rec.bound.formula.outs)
    which = [y.node[tape.SAVED] if y.node[tape.BACKWARD] is tape.to_output else 0 for y in outs]
    ups = tuple(i in which for i in range(count))
    back = bound.derived(rec.needs, ups)
    here = [v is not None for v, n in zip(given, rec.needs, strict=False) if n]
    leaves = len(back.formula.leaves)
    again = back.derived((*[True] * len(which), *[False] * (leaves - len(which))), tuple(here))
    arriving = [v for v in given if v is not None]
    operands: list[Any] = [*arriving, *[None] * (len(again.formula.names()) - len(arriving))]
    begin = len(arriving) + len(which)
    for slot, t, version in zip(rec.slots, held, versions, strict=True):
        elementwise.saved_tensor(t, version, node)
        operands[begin + slot] = t
    if any(operands[i] is None for i in again.reads):
        return NotImplemented
    edges = None
    if _grad.get():
        edges = (*[v.node for v in arriving], *[None] * len(which), *node[tape.EDGES])
        if all(e is None for e in edges):
            edges = None
    made = dict(zip(sorted(which), again.run(operands, edges, numbers), strict=False))
    return [made[i] for i in which]


_RULES: dict[Any, Any] = {elementwise._backward: _pointwise, elementwise._backward_linear: _pointwise, rowwise._backward: _rows,
                          rowwise._backward_of_nothing: _rows, rowwise._backward_many: _rows}
