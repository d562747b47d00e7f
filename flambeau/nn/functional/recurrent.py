"""One step and one layer of the recurrent networks: plain (tanh or relu), LSTM and GRU.

A step is one matrix product and one fused formula of the gates; the input's part of the gates is one product for the
whole sequence.  `recurrent_layers` makes a padded sequence's steps one step of the tape; packed sequences, projections,
autocast on the CPU and second derivatives go through the steps here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.autograd import tape
from ..._core.autograd.mode import _grad
from ..._core.kernels import expr as E
from ..._core.ops import autocast
from ..._core.ops.elementwise import Pointwise, saved_tensor
from ..._core.tensor import Tensor, alias, meta, new
from .lazy_functional import F
from .recurrent_layers import Kind
from .recurrent_layers import layer as whole_layer

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + E.exp(-x))


def _lstm(i: Any, f: Any, g: Any, o: Any, c: Any) -> tuple[Any, Any]:
    # Hochreiter & Schmidhuber (1997), with forget gates
    cell = _sigmoid(f) * c + _sigmoid(i) * E.tanh(g)
    return _sigmoid(o) * E.tanh(cell), cell


def _gru(xr: Any, xz: Any, xn: Any, hr: Any, hz: Any, hn: Any, h: Any) -> Any:
    # Cho et al. (2014), with the reset gate after the product
    z = _sigmoid(xz + hz)
    n = E.tanh(xn + _sigmoid(xr + hr) * hn)
    return n + z * (h - n)


def _relu(x: Any) -> Any:
    return E.where(x <= 0.0, E.const(0, x.dtype), x)


_lstm_gates = Pointwise("lstm", lambda xi, xf, xg, xo, hi, hf, hg, ho, c: _lstm(xi + hi, xf + hf, xg + hg, xo + ho, c), 9)
_gru_gates = Pointwise("gru", _gru, 7)
_tanh_gate = Pointwise("rnn_tanh", lambda x, h: E.tanh(x + h), 2)
_relu_gate = Pointwise("rnn_relu", lambda x, h: _relu(x + h), 2)


def _windows(t: Tensor, parts: int) -> list[Tensor]:
    """The parts of the last axis, outside autograd."""
    m = t.meta
    n = m.shape[-1] // parts
    part = meta((*m.shape[:-1], n), m.strides, m.dtype, m.device)
    step = n * m.strides[-1] * m.dtype.itemsize
    return [alias(t, part, t.ptr + i * step) for i in range(parts)]


def _gated(op: Pointwise, parts: int, alike: bool, x: Any, h: Any, *states: Any) -> Any:
    """`op` on the parts of two tensors of gates and on states, as one step of the tape.

    alike: the gradient of each part of `x` is that of the same part of `h`.
    """
    kept = (x, h, *states)
    d = x.dtype
    if autocast.lower(x.device.type) or d.opmath is not d or any(
            type(t) is not Tensor or not t.meta.plain or t.meta.dtype is not d or t.meta.device is not x.meta.device for t in kept):
        return op((*x.chunk(parts, -1), *h.chunk(parts, -1), *states))
    outs = op((*_windows(x, parts), *_windows(h, parts), *[alias(s, s.meta, s.ptr) for s in states]))
    if not _grad.get():
        return outs
    saved = (op, parts, alike, kept, [t.store.version for t in kept])
    if isinstance(outs, tuple):
        tape.record_many(outs, _gated_back, kept, saved, op.grad_name)
        return outs
    return tape.record(outs, _gated_back_one, kept, saved, op.grad_name)


def _gated_back_one(node: Any, g: Tensor) -> Any:
    return _gated_back(node, [g])


def _gated_back(node: Any, gs: list[Tensor | None]) -> Any:
    op, parts, alike, kept, versions = node[tape.SAVED]
    for x, v in zip(kept, versions, strict=True):
        saved_tensor(x, v, node)
    x, h, *states = kept
    arrived = [g for g in gs if g is not None]
    needs = (True,) * parts + (not alike,) * parts + (True,) * len(states)
    t = op.tape(needs, tuple([g is not None for g in gs]), (), (False,) * len(needs))
    heads = [x] if alike else [x, h]  # tensors of gates whose gradients are computed
    places = [g for g, needed in zip(t.grads, needs, strict=True) if needed]
    if tape.recording(*arrived, *kept) or not all(isinstance(g, int) for g in places):
        operands = (*x.chunk(parts, -1), *h.chunk(parts, -1), *states)
        made = t.op((*arrived, *[operands[i] for i in t.saved]))
        made = made if isinstance(made, tuple) else (made,)
        like = (*[o for o, needed in zip(operands, needs, strict=True) if needed],)
        found = [ops.zeros_like(o) if g is None else arrived[0] if g == "same" else made[g] for g, o in zip(places, like, strict=True)]
        joined = [ops.cat(found[i * parts:(i + 1) * parts], -1) for i in range(len(heads))]
        rest = found[len(heads) * parts:]
    else:
        operands = (*_windows(x, parts), *_windows(h, parts), *states)
        joined = [new(meta(g.meta.shape, None, g.meta.dtype, g.meta.device)) for g in heads]
        rest = [new(meta(s.meta.shape, None, s.meta.dtype, s.meta.device)) for s in states]
        found = [w for j in joined for w in _windows(j, parts)] + rest
        outs: list[Any] = [None] * len(places)
        for place, w in zip(places, found, strict=True):
            outs[place] = w
        t.op.write(tuple(outs), (*arrived, *[operands[i] for i in t.saved]))
    return (joined[0], joined[-1], *rest)


def lstm_step(gates: Any, state: tuple[Any, Any], w_hh: Any, b_hh: Any, w_hr: Any = None) -> tuple[Any, Any]:
    """(h, c) after a step. `gates` is the input's part of the gates, (N, 4 H)."""
    h, c = state
    h, c = _gated(_lstm_gates, 4, True, gates, F.linear(h, w_hh, b_hh), c)
    return (h if w_hr is None else F.linear(h, w_hr)), c


def gru_step(gates: Any, state: tuple[Any], w_hh: Any, b_hh: Any) -> tuple[Any]:
    """(h,) after a step. `gates` is the input's part of the gates, (N, 3 H)."""
    (h,) = state
    return (_gated(_gru_gates, 3, False, gates, F.linear(h, w_hh, b_hh), h),)


def tanh_step(gates: Any, state: tuple[Any], w_hh: Any, b_hh: Any) -> tuple[Any]:
    """(h,) after a step: tanh(gates + W h + b)."""
    return (_tanh_gate((gates, F.linear(state[0], w_hh, b_hh))),)


def relu_step(gates: Any, state: tuple[Any], w_hh: Any, b_hh: Any) -> tuple[Any]:
    """(h,) after a step: relu(gates + W h + b)."""
    return (_relu_gate((gates, F.linear(state[0], w_hh, b_hh))),)


STEPS: dict[str, Any] = {"LSTM": lstm_step, "GRU": gru_step, "RNN_TANH": tanh_step, "RNN_RELU": relu_step}
_WHOLE = {
    "LSTM": Kind("lstm_layer", Pointwise("lstm_layer", _lstm, 5), 4, True, "c", "LSTM"),
    "GRU": Kind("gru_layer", _gru_gates, 3, False, "h", "GRU"),
    "RNN_TANH": Kind("rnn_tanh_layer", Pointwise("rnn_tanh_layer", E.tanh, 1), 1, True, "", "RNN_TANH"),
    "RNN_RELU": Kind("rnn_relu_layer", Pointwise("rnn_relu_layer", _relu, 1), 1, True, "", "RNN_RELU"),
}


def _padded_layer(step: Step, gates: Any, state: tuple[Any, ...], reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    length = gates.shape[0]
    outputs: list[Any] = [None] * length
    each = gates.unbind(0)  # their gradients are joined once
    for t in reversed(range(length)) if reverse else range(length):
        state = step(each[t], state)
        outputs[t] = state[0]
    return ops.stack(outputs), state


def _packed_layer(step: Step, gates: Any, sizes: list[int], state: tuple[Any, ...],
                  reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    """A layer over sequences packed step by step: step t holds the sizes[t] sequences that are still running."""
    outputs: list[Any] = [None] * len(sizes)
    each = gates.split(sizes)
    if reverse:
        # Backwards, sequences join as their last step comes up.
        first = state
        state = tuple(s[:sizes[-1]] for s in first)
        for t in reversed(range(len(sizes))):
            running = state[0].shape[0]
            if sizes[t] > running:
                state = tuple(ops.cat([s, f[running:sizes[t]]]) for s, f in zip(state, first))
            state = step(each[t], state)
            outputs[t] = state[0]
        return ops.cat(outputs), state
    done: list[tuple[Any, ...]] = []
    for t, size in enumerate(sizes):
        if size < state[0].shape[0]:
            done.append(tuple(s[size:] for s in state))
            state = tuple(s[:size] for s in state)
        state = step(each[t], state)
        outputs[t] = state[0]
    # The shortest sequences ended first and are last in the batch.
    parts = [state, *reversed(done)]
    return ops.cat(outputs), tuple(ops.cat(list(s)) for s in zip(*parts))


def layer(kind: str, x: Any, sizes: list[int] | None, state: tuple[Any, ...], weights: Any,
          reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    """One direction of one layer over x: (T, N, I), or packed (sum of sizes, I).

    `state` is (h,) or (h, c) of (N, H); `weights` is w_ih, w_hh, b_ih, b_hh (biases may be None) and, for an LSTM with
    projections, w_hr. Returns the outputs and the last state.
    """
    if _in_region(kind, x, sizes, weights):
        return _lowered(kind, x, sizes, state, weights, reverse)  # type: ignore[no-any-return]
    return _layer(kind, x, sizes, state, weights, reverse)


def _in_region(kind: str, x: Tensor, sizes: list[int] | None, weights: Any) -> bool:
    """Whether autocast lowers a layer of `x` as a whole: on GPUs each, on the CPU LSTMs over padded sequences, without projections, as in PyTorch.  Of
    others on the CPU it lowers the products alone."""
    device = x.meta.device.type
    if device == "cpu" and (kind != "LSTM" or sizes is not None or len(weights) != 4):
        return False
    return autocast.lower(device) is not None


_in_region.__reads__ = lambda run, kind, x, sizes, weights: run.tensor(x)  # type: ignore[attr-defined]


def _lowered(*given: Any) -> Any:
    """A layer in autocast's region: all of it in one type."""
    return autocast.under("recurrent_layer", _layer, given, {})


def _reads(run: Any, kind: str, x: Any, sizes: Any, state: Any, weights: Any, reverse: bool) -> str | None:
    """Tells a run of `compile` what a layer in a region depends on: its tensors, and the modes that all operations follow."""
    if sizes is not None:
        return "a packed sequence under autocast"
    for t in (x, *state, *weights):
        if t is not None:
            run.tensor(t)
    return None


_lowered.__reads__ = _reads  # type: ignore[attr-defined]


def _layer(kind: str, x: Any, sizes: list[int] | None, state: tuple[Any, ...], weights: Any, reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    if sizes is None:
        made = whole_layer(_WHOLE[kind], x, state, weights, reverse, _by_steps)
        if made is not None:
            return made[0], tuple(made[1:])
    return _by_steps(kind, x, sizes, state, weights, reverse)


def _by_steps(kind: str, x: Any, sizes: list[int] | None, state: tuple[Any, ...], weights: Any, reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    """The same, each step of its own."""
    w_ih, w_hh, b_ih, b_hh, *projection = weights
    one = STEPS[kind]
    gates = F.linear(x, w_ih, b_ih)

    def step(g: Any, s: tuple[Any, ...]) -> tuple[Any, ...]:
        return one(g, s, w_hh, b_hh, *projection)  # type: ignore[no-any-return]

    if sizes is None:
        return _padded_layer(step, gates, state, reverse)
    return _packed_layer(step, gates, sizes, state, reverse)
