"""One step and one layer of the recurrent networks: plain (tanh or relu), LSTM and GRU.

A step is one matrix product and one fused formula of the gates; the input's part of the gates is one product for the
whole sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ops
from ...kernels import expr as E
from ...ops.elementwise import Pointwise
from .late import F

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + E.exp(-x))


def _lstm(xi: Any, xf: Any, xg: Any, xo: Any, hi: Any, hf: Any, hg: Any, ho: Any, c: Any) -> tuple[Any, Any]:
    # Hochreiter & Schmidhuber (1997), with forget gates
    cell = _sigmoid(xf + hf) * c + _sigmoid(xi + hi) * E.tanh(xg + hg)
    return _sigmoid(xo + ho) * E.tanh(cell), cell


def _gru(xr: Any, xz: Any, xn: Any, hr: Any, hz: Any, hn: Any, h: Any) -> Any:
    # Cho et al. (2014), with the reset gate after the product
    z = _sigmoid(xz + hz)
    n = E.tanh(xn + _sigmoid(xr + hr) * hn)
    return n + z * (h - n)


_lstm_gates = Pointwise("lstm", _lstm, 9)
_gru_gates = Pointwise("gru", _gru, 7)
_tanh_gate = Pointwise("rnn_tanh", lambda x, h: E.tanh(x + h), 2)
_relu_gate = Pointwise("rnn_relu", lambda x, h: E.where(x + h > 0.0, x + h, 0.0 * (x + h)), 2)


def lstm_step(gates: Any, state: tuple[Any, Any], w_hh: Any, b_hh: Any, w_hr: Any = None) -> tuple[Any, Any]:
    """(h, c) after a step. `gates` is the input's part of the gates, (N, 4 H)."""
    h, c = state
    h, c = _lstm_gates((*gates.chunk(4, -1), *F.linear(h, w_hh, b_hh).chunk(4, -1), c))
    return (h if w_hr is None else F.linear(h, w_hr)), c


def gru_step(gates: Any, state: tuple[Any], w_hh: Any, b_hh: Any) -> tuple[Any]:
    """(h,) after a step. `gates` is the input's part of the gates, (N, 3 H)."""
    (h,) = state
    return (_gru_gates((*gates.chunk(3, -1), *F.linear(h, w_hh, b_hh).chunk(3, -1), h)),)


def tanh_step(gates: Any, state: tuple[Any], w_hh: Any, b_hh: Any) -> tuple[Any]:
    """(h,) after a step: tanh(gates + W h + b)."""
    return (_tanh_gate((gates, F.linear(state[0], w_hh, b_hh))),)


def relu_step(gates: Any, state: tuple[Any], w_hh: Any, b_hh: Any) -> tuple[Any]:
    """(h,) after a step: relu(gates + W h + b)."""
    return (_relu_gate((gates, F.linear(state[0], w_hh, b_hh))),)


STEPS: dict[str, Any] = {"LSTM": lstm_step, "GRU": gru_step, "RNN_TANH": tanh_step, "RNN_RELU": relu_step}


def _padded_layer(step: Step, gates: Any, state: tuple[Any, ...], reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    length = gates.shape[0]
    outputs: list[Any] = [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        state = step(gates[t], state)
        outputs[t] = state[0]
    return ops.stack(outputs), state


def _packed_layer(step: Step, gates: Any, sizes: list[int], state: tuple[Any, ...],
                  reverse: bool) -> tuple[Any, tuple[Any, ...]]:
    """A layer over sequences packed step by step: step t holds the sizes[t] sequences that are still running."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    outputs: list[Any] = [None] * len(sizes)
    if reverse:
        # Backwards, sequences join as their last step comes up.
        first = state
        state = tuple(s[:sizes[-1]] for s in first)
        for t in reversed(range(len(sizes))):
            running = state[0].shape[0]
            if sizes[t] > running:
                state = tuple(ops.cat([s, f[running:sizes[t]]]) for s, f in zip(state, first))
            state = step(gates[starts[t]:starts[t + 1]], state)
            outputs[t] = state[0]
        return ops.cat(outputs), state
    done: list[tuple[Any, ...]] = []
    for t, size in enumerate(sizes):
        if size < state[0].shape[0]:
            done.append(tuple(s[size:] for s in state))
            state = tuple(s[:size] for s in state)
        state = step(gates[starts[t]:starts[t + 1]], state)
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
    w_ih, w_hh, b_ih, b_hh, *projection = weights
    one = STEPS[kind]
    gates = F.linear(x, w_ih, b_ih)

    def step(g: Any, s: tuple[Any, ...]) -> tuple[Any, ...]:
        return one(g, s, w_hh, b_hh, *projection)  # type: ignore[no-any-return]

    if sizes is None:
        return _padded_layer(step, gates, state, reverse)
    return _packed_layer(step, gates, sizes, state, reverse)
