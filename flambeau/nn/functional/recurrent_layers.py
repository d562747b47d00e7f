"""A recurrent layer over a whole sequence as one step of the tape.

The input's part of the gates is one product for all steps.  A step is then one product of the state and one launch of the gates' formula, which
reads and writes slices of buffers of the whole sequence.  The backward pass goes through the steps by the derived formula; the gradients of the
weights and of the input are again one product each, over all steps at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..._core import ops
from ..._core.autograd import tape
from ..._core.autograd.mode import _grad, no_recording
from ..._core.kernels import expr as E
from ..._core.kernels.programs import Map
from ..._core.ops import autocast, routines
from ..._core.ops.copies import contiguous, copy_into
from ..._core.ops.elementwise import Pointwise, launcher
from ..._core.runtime import caches, dispatch
from ..._core.tensor import Tensor, alias, meta, new
from .lazy_functional import F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core.tensor import Meta

LEAST_STEPS = 8  # for which the weights of the state are laid out anew, so that each step reads their rows


class Kind(NamedTuple):
    """A kind of layer.

    op: the formula of a step, from the gates (the input's part and the state's part added where `added`, one after the other otherwise) and
    what it reads of the state before, to the state after, h first.  gates: how many.  reads: what it reads of the state before: "", "h" or "c".
    mode: its name among PyTorch's modes.
    """

    name: str
    op: Pointwise
    gates: int
    added: bool
    reads: str
    mode: str


class _Steps(NamedTuple):
    """The launches of a step forward: gates from the state, and the formula, after whose operands come the biases of `rows`."""

    product: Callable[..., Any]
    formula: Callable[..., Any]
    rows: list[int]


class _Back(NamedTuple):
    """The launches of a step back.  reads: the formula's operands that its gradient reads; out: whether it reads the result too.  rows: as of
    `_Steps`."""

    formula: Callable[..., Any]
    product: Callable[..., Any]
    reads: tuple[int, ...]
    out: bool
    rows: list[int]


def layer(kind: Kind, x: Any, state: tuple[Any, ...], weights: Sequence[Any], reverse: bool, composed: Callable[..., Any]) -> Any:
    """(outputs, last h, last c, if there is one) over x (T, N, I) from a state of (N, H) each; None for operands that need the steps one by one.

    weights: w_ih, w_hh, b_ih, b_hh, the last two None or not.  composed: the same by operations, which second derivatives go through:
    ``composed(mode, x, None, state, weights, reverse)`` gives the outputs and the last state.
    """
    kept = (x, *state, *[w for w in weights if w is not None])
    m = x.meta
    d = m.dtype
    if autocast.lower(m.device.type) or tape.anomaly.on or d.kind != "f" or len(weights) != 4 or (weights[2] is None) != (weights[3] is None) or any(
            not isinstance(t, Tensor) or not t.meta.plain or t.meta.dtype is not d or t.meta.device is not m.device for t in kept) or not m.numel:
        return None
    recorded = _grad.get() and any(t.node is not None for t in kept)
    with no_recording():
        made = _run(kind, _apart(x), _apart(state), _apart(weights), reverse, recorded)
    if made is None:
        return None
    outs, buffers = made
    if recorded:
        given = (x, *state, *weights)
        # outputs are kept as aliases: they and their node must not hold each other
        saved = (kind, reverse, composed, given, [0 if t is None else t.store.version for t in given], tape.keep_outputs(outs[0]), buffers)
        tape.record_many(outs, _back, given, saved, kind.name.capitalize() + "Backward0")
    return outs


def _reads(run: Any, kind: Kind, x: Any, state: Any, weights: Any, reverse: bool, composed: Any) -> None:
    """Tells a run of `compile` that a layer depends on its tensors, and on the modes that all operations follow."""
    for t in (x, *state, *weights):
        if t is not None:
            run.tensor(t)


layer.__reads__ = _reads  # type: ignore[attr-defined]


def _apart(given: Any) -> Any:
    """The same tensors outside autograd."""
    return tuple([_apart(v) for v in given]) if isinstance(given, (tuple, list)) else None if given is None else alias(given, given.meta, given.ptr)


def _view(t: Tensor, shape: tuple[int, ...], first: int = 0) -> Tensor:
    """The elements of a contiguous tensor from `first` on in another shape, outside autograd."""
    m = t.meta
    return alias(t, meta(shape, None, m.dtype, m.device), t.ptr + first * m.dtype.itemsize)


def _parts(parts: int, n: int, h: int, like: Meta) -> list[Meta]:
    """How the gates of a step lie."""
    return [meta((n, h), (parts * h, 1), like.dtype, like.device)] * parts


def _launch(formula: Callable[..., Any], outs: Sequence[Meta], ins: Sequence[Meta], name: str) -> Callable[..., Any]:
    d = outs[0].dtype  # a half type computes in float32 and is rounded once, at the end
    made = formula(*[E.cast(E.input(i, m.dtype), d.opmath) for i, m in enumerate(ins)])
    program = Map(tuple([E.cast(e, d) for e in (made if isinstance(made, tuple) else (made,))]), tuple([m.dtype for m in ins]), ())
    return launcher(program, tuple(outs[0].shape), [*outs, *ins], outs[0].device, name)


def _product(like: Meta, sizes: tuple[int, int, int], b: tuple[int, int], added: bool) -> Callable[..., Any] | None:
    """(m, k) @ (k, n), the first contiguous; None where the device has none."""
    m, n, k = sizes
    made = dispatch.product(like.device, like.dtype, m, n, k, (k, 1, 0), (*b, 0), (n, 1, 0), beta=float(added))
    if made is None or made.aligned:
        return None
    bound = routines.bind(like.device, made)
    return bound[0] if bound[1] is None else lambda *addresses: routines.call(bound, addresses)


def _biased(kind: Kind, places: Sequence[int], formula: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """A formula whose last operands are the biases of the state's part of the gates where that is apart, and which biases.

    places: which operands of the step's formula are the last ones before.
    """
    rows = [] if kind.added else [i - kind.gates for i in places if kind.gates <= i < 2 * kind.gates]

    def added(*given: Any) -> Any:
        values, biases = list(given[:len(given) - len(rows)]), given[len(given) - len(rows):]
        for row, bias in zip(rows, biases, strict=True):
            values[len(values) - len(places) + places.index(row + kind.gates)] += bias
        return formula(*values)
    return (added if rows else formula), rows


@caches.kept
def _steps(kind: Kind, one: Meta, turned: bool, biased: bool) -> _Steps | None:
    """The launches of a step forward for states of meta `one` (n, h).  turned: the weights lie transposed."""
    g, like, (n, h) = kind.gates, one, one.shape
    product = _product(like, (n, g * h, h), (g * h, 1) if turned else (1, h), kind.added)
    if product is None:
        return None
    parts = _parts(g, n, h, like)
    formula, rows = _biased(kind, range(kind.op.arity), kind.op.formula) if biased else (kind.op.formula, [])
    ins = parts * (1 if kind.added else 2) + [one] * bool(kind.reads) + [meta((n, h), (0, 1), like.dtype, like.device)] * len(rows)
    return _Steps(product, _launch(formula, [one] * (2 if kind.reads == "c" else 1), ins, kind.name), rows)


def _run(kind: Kind, x: Tensor, state: Sequence[Tensor], weights: Sequence[Any], reverse: bool, recorded: bool) -> tuple[list[Tensor], tuple[Any, ...]] | None:
    """The results, and what the gradient reads: the gates, the state's part of them where it is apart, the cells."""
    w_ih, w_hh, b_ih, b_hh = weights
    g, (t, n, _), h = kind.gates, x.meta.shape, state[0].meta.shape[1]
    turned = t >= LEAST_STEPS
    like = x.meta
    found = _steps(kind, meta((n, h), None, like.dtype, like.device), turned, b_hh is not None)
    if found is None:
        return None
    product, formula, rows = found
    total = b_ih + b_hh if kind.added and b_ih is not None and b_hh is not None else b_ih
    gates = contiguous(F.linear(x, w_ih, total))
    weight = contiguous(w_hh.t() if turned else w_hh)
    before = [contiguous(s) for s in state]
    size = like.dtype.itemsize
    one, whole = n * h * size, g * n * h * size
    steps = range(t - 1, -1, -1) if reverse else range(t)
    out = new(meta((t, n, h), None, like.dtype, like.device))
    cells = new(meta((t if recorded else 2, n, h), None, like.dtype, like.device)) if kind.reads == "c" else None
    apart = None if kind.added else new(meta((t if recorded else 1, n, g * h), None, like.dtype, like.device))
    offsets = [i * h * size for i in range(g)]
    bias = None if b_hh is None else contiguous(b_hh)
    biases = [] if bias is None else [bias.ptr + offsets[i] for i in rows]
    old, cell = before[0].ptr, before[-1].ptr
    for count, i in enumerate(steps):
        at = gates.ptr + i * whole
        ins = [at + o for o in offsets]
        if apart is None:
            product(at, old, weight.ptr)
        else:
            beside = apart.ptr + (i * whole if recorded else 0)
            product(beside, old, weight.ptr)
            ins += [beside + o for o in offsets]
        made = out.ptr + i * one
        if cells is not None:
            after = cells.ptr + (i if recorded else count & 1) * one
            formula(made, after, *ins, cell)
            cell = after
        elif kind.reads:
            formula(made, *ins, old, *biases)
        else:
            formula(made, *ins)
        old = made
    last = steps[-1]
    results = [out, _view(out, (n, h), last * n * h).clone()]
    if cells is not None:
        results.append(_view(cells, (n, h), (last if recorded else (t - 1) & 1) * n * h).clone())
    return results, (gates, apart, cells) if recorded else ()


# ------------------------------------------------------------------------------------------------------------------ the gradient
def _back(node: Any, gs: list[Tensor | None]) -> Any:
    kind, reverse, composed, given, versions, outs, buffers = node[tape.SAVED]
    for t, version in zip(given, versions, strict=True):
        if t is not None and t.store.version != version:
            tape.changed(t, version, node)
    out = tape.kept_outputs(node, outs)[0]
    made = None if _grad.get() or any(g is not None and not g.meta.plain for g in gs) else _run_back(kind, reverse, given, out, buffers, gs)
    return _again(node, kind, reverse, composed, given, gs) if made is None else made


def _again(node: Any, kind: Kind, reverse: bool, composed: Callable[..., Any], given: Sequence[Any], gs: list[Tensor | None]) -> Any:
    """The gradients by the steps as operations, made again and recorded."""
    create = _grad.get()
    token = _grad.set(True)
    try:
        inputs = [None if t is None else alias(t, t.meta, t.ptr) for t in given]
        for t, edge in zip(inputs, node[tape.EDGES], strict=True):
            if t is not None and edge is not None:
                t.node = tape.new(_through, (edge,), None, {})
        states = 2 if kind.reads == "c" else 1
        out, last = composed(kind.mode, inputs[0], None, tuple(inputs[1:1 + states]), inputs[1 + states:], reverse)
        made = (out, *last)
        ends = [None if t is None else t.node for t in inputs]
        found = tape.Capture([n for n in ends if n is not None])
        pairs = [(t.node, g) for t, g in zip(made, gs, strict=True) if g is not None]
        tape.backward([n for n, _ in pairs], [g for _, g in pairs], create, create, capture=found)
    finally:
        _grad.reset(token)
    return tuple([None if n is None else found.got.get(id(n)) for n in ends])


def _through(node: Any, g: Any) -> Any:
    return (g,)


@caches.kept
def _back_steps(kind: Kind, one: Meta, arriving: Meta, biased: bool) -> _Back | None:
    """The launches of a step back for states of meta `one` (n, h).  arriving: the meta of the gradient that comes from outside.

    The formula takes the gradient of the step's result that comes from outside, that from the step after, the cell's, and what it reads; it gives
    those of the gates, of their parts from the state where these are apart, and of what the step reads of the state before.
    """
    like, (n, h) = one, one.shape
    g, count = kind.gates, kind.gates * (1 if kind.added else 2)
    celled = kind.reads == "c"
    product = _product(like, (n, h, g * h), (h, 1), kind.reads == "h")
    t = kind.op.tape((True,) * kind.op.arity, (True,) * (2 if celled else 1), (), (False,) * kind.op.arity)
    if product is None or t.op is None or not all(isinstance(p, int) for p in t.grads):
        return None
    derived = t.op.formula

    def formula(outside: Any, inside: Any, *rest: Any) -> Any:
        made = derived(outside + inside, *rest)
        made = made if isinstance(made, tuple) else (made,)
        return tuple([made[p] for p in t.grads])
    parts = _parts(g, n, h, like)
    operands = parts * (1 if kind.added else 2) + [one] * bool(kind.reads)
    ins = [arriving, *[one] * (2 if celled else 1), *[operands[i] for i in t.saved], *[one] * t.save_out]
    # the result comes after what is read: no operand of the step's formula
    whole, rows = _biased(kind, (*t.saved, *[-1] * t.save_out), formula) if biased else (formula, [])
    ins += [meta((n, h), (0, 1), like.dtype, like.device)] * len(rows)
    launch = _launch(whole, parts * (count // g) + [one] * bool(kind.reads), ins, kind.name + "_backward")
    return _Back(launch, product, t.saved, t.save_out, rows)


def _run_back(kind: Kind, reverse: bool, given: Sequence[Any], out: Tensor, buffers: tuple[Any, ...], gs: list[Tensor | None]) -> Any:
    """The gradients of x, the state and the weights."""
    states = 2 if kind.reads == "c" else 1
    x, *state, w_ih, w_hh, _, b_hh = _apart(given)
    gates, apart, cells = buffers
    like, g = gates.meta, kind.gates
    t, n, h = out.meta.shape
    size = like.dtype.itemsize
    outside = gs[0]
    if outside is None:
        outside = ops.zeros((), dtype=like.dtype, device=like.device).expand(t, n, h)
    strides = outside.meta.strides
    arriving = meta((n, h), strides[1:], like.dtype, like.device)
    found = _back_steps(kind, meta((n, h), None, like.dtype, like.device), arriving, b_hh is not None)
    if found is None:
        return None
    formula, product, reads, with_result, biases = found
    first = [contiguous(s) for s in state]
    weight = contiguous(w_hh)
    made = new(meta((t, n, g * h), None, like.dtype, like.device))
    beside = made if apart is None else new(made.meta)
    one, whole = n * h * size, g * n * h * size
    # a step reads the one and writes the other
    slot = meta((n, h), None, like.dtype, like.device)
    pairs = [[new(slot), new(slot)] for _ in range(states)]
    for pair, arrived in zip(pairs, gs[1:], strict=True):
        copy_into(pair[0], ops.zeros((), dtype=like.dtype, device=like.device) if arrived is None else arrived)
    steps = range(t) if reverse else range(t - 1, -1, -1)
    offsets = [i * h * size for i in range(g)]
    far = strides[0] * size
    bias = None if b_hh is None else contiguous(b_hh)
    rows = [] if bias is None else [bias.ptr + offsets[i] for i in biases]
    for count, i in enumerate(steps):
        source, target = count & 1, 1 - (count & 1)
        now, then = pairs[0][source].ptr, pairs[0][target].ptr
        ended = count == t - 1
        old = first[0].ptr if ended else out.ptr + (i + (1 if reverse else -1)) * one
        at = i * whole
        places = [made.ptr + at + o for o in offsets]
        if apart is not None:
            places += [beside.ptr + at + o for o in offsets]
        saved = [gates.ptr + at + o for o in offsets]
        if apart is not None:
            saved += [apart.ptr + at + o for o in offsets]
        incoming = [now]
        if cells is not None:
            saved.append(first[1].ptr if ended else cells.ptr + (i + (1 if reverse else -1)) * one)
            incoming.append(pairs[1][source].ptr)
            places.append(pairs[1][target].ptr)
        elif kind.reads:
            saved.append(old)
            places.append(then)
        formula(*places, outside.ptr + i * far, *incoming, *[saved[k] for k in reads], *([out.ptr + i * one] if with_result else []), *rows)
        product(then, (made if apart is None else beside).ptr + at, weight.ptr)
    needs = [v is not None and v.node is not None for v in given]
    shape = (t * n, g * h)
    d_in, d_state = _view(made, shape), _view(beside, shape)
    ends = [p[t & 1] for p in pairs]
    rows_of_x = _view(contiguous(x), (t * n, x.meta.shape[2]))
    d_x = _view(ops.mm(d_in, w_ih), tuple(x.meta.shape)) if needs[0] else None
    d_w_ih = ops.mm(d_in.t(), rows_of_x) if needs[1 + states] else None
    d_w_hh = None
    if needs[2 + states]:
        ahead = 0 if reverse else 1  # the first of the steps that read a state which another step has made
        last = t - 1 if reverse else 0
        d_w_hh = ops.mm(_view(beside, (n, g * h), last * n * g * h).t(), first[0])
        if t > 1:
            d_w_hh = ops.addmm(d_w_hh, _view(beside, ((t - 1) * n, g * h), ahead * n * g * h).t(), _view(out, ((t - 1) * n, h), (1 - ahead) * n * h))
    d_b_ih = d_in.sum(0) if needs[3 + states] else None
    d_b_hh = None
    if needs[4 + states]:
        d_b_hh = d_b_ih.clone() if apart is None and d_b_ih is not None else d_state.sum(0)
    return (d_x, *ends, d_w_ih, d_w_hh, d_b_ih, d_b_hh)
