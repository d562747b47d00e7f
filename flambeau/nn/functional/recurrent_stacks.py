"""Recurrent networks as functions of their parameters: `torch.lstm`, `gru`, `rnn_tanh`, `rnn_relu`, and one step of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.engine.fields import has
from ..._core.engine.operation import Operation
from ..._core.ops import autocast
from ..._core.tensor import Tensor
from .lazy_functional import F
from .recurrent import STEPS, layer

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGE = __name__.partition(".")[0]  # where programs find these functions


def stacked(mode: str, x: Any, sizes: list[int] | None, states: Sequence[Any], weights: Sequence[Any], directions: int,
            dropout: float) -> tuple[Any, tuple[Any, ...]]:
    """The outputs of layers one above the other, and the last state of each.

    x: (T, N, I), or packed (sum of sizes, I).  states: (layers * directions, N, H) each.  weights: w_ih, w_hh, b_ih, b_hh (and w_hr) for each layer and
    direction.  dropout: between layers.
    """
    ends: list[tuple[Any, ...]] = []
    for first in range(0, len(weights), directions):
        outs = []
        for direction in range(directions):
            i = first + direction
            out, end = layer(mode, x, sizes, tuple(s[i] for s in states), weights[i], direction == 1)
            outs.append(out)
            ends.append(end)
        x = outs[0] if directions == 1 else ops.cat(outs, -1)
        if dropout > 0 and first + directions < len(weights):
            x = F.dropout(x, dropout, True)
    return x, tuple(ops.stack(list(s)) for s in zip(*ends))


def _by_layers(name: str, params: Sequence[Any], has_biases: bool, count: int, projected: bool) -> list[list[Any]]:
    """Parameters in a row as those of each layer and direction."""
    each = len(params) // count if count else 0
    plain = 4 if has_biases else 2
    if each not in ((plain, plain + 1) if projected else (plain,)) or each * count != len(params):
        raise RuntimeError(f"{name}(): expected {plain} parameters for each of {count} layers and directions, got {len(params)} in all")
    rows = [list(params[i * each:(i + 1) * each]) for i in range(count)]
    return rows if has_biases else [[*row[:2], None, None, *row[2:]] for row in rows]


def _network(mode: str) -> Any:
    name, several = mode.lower(), mode == "LSTM"

    def whole(input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,  # noqa: A002
              batch_first: bool) -> Any:
        return run(input.transpose(0, 1) if batch_first else input, None, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

    def packed(data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool) -> Any:
        return run(data, batch_sizes.tolist(), hx, params, has_biases, num_layers, dropout, train, bidirectional, False)

    def run(x: Any, sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
            turned: bool) -> Any:
        states = tuple(hx) if several else (hx,)
        if len(states) != (2 if several else 1):
            raise RuntimeError(f"{name} expects two hidden states")
        directions = 2 if bidirectional else 1
        weights = _by_layers(name, params, has_biases, num_layers * directions, several)
        out, last = stacked(mode, x, sizes, states, weights, directions, dropout if train else 0.0)
        return (out.transpose(0, 1) if turned else out, *last)

    def network(*args: Any, **kwargs: Any) -> Any:
        of_steps = "batch_sizes" in kwargs or len(args) > 2 and isinstance(args[1], Tensor) and (several or isinstance(args[2], Tensor))
        return (packed if of_steps else whole)(*args, **kwargs)
    network.__name__ = network.__qualname__ = name
    network.__module__ = _PACKAGE
    state = "(h, c)" if several else "h"
    network.__doc__ = f"""The network of `nn.{mode.split("_")[0]}` by its parameters, layer after layer, both directions of one side by side.

    ``{name}(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)``, or of packed steps
    ``{name}(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)``.  hx: {state}, each (layers * directions, N, hidden).
    Gives the outputs and the last {state}.  Raises RuntimeError for another number of parameters."""
    return network


def _cell(mode: str) -> Any:
    def step(input: Any, states: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:  # noqa: A002
        return STEPS[mode](F.linear(input, w_ih, b_ih), states, w_hh, b_hh)
    return step


def _in_parts(x: Tensor) -> bool:
    """Whether autocast lowers the products of a step of `x` alone: on the CPU."""
    return x.meta.device.type == "cpu" and autocast.lower("cpu") is not None


_in_parts.__reads__ = lambda run, x: run.tensor(x)  # type: ignore[attr-defined]


def _either(mode: str) -> Any:
    composed = _cell(mode)
    whole = Operation(f"{mode.lower()}_cell", composed).function  # one step as autocast's lists name it: on GPUs all of it in one type

    def step(input: Any, states: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:  # noqa: A002
        return (composed if _in_parts(input) else whole)(input, states, w_ih, w_hh, b_ih, b_hh)
    return step


CELLS = {mode: _either(mode) for mode in STEPS}


def _step(mode: str) -> Any:
    several = mode == "LSTM"

    def cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:  # noqa: A002
        made = CELLS[mode](input, tuple(hx) if several else (hx,), w_ih, w_hh, b_ih, b_hh)
        return made if several else made[0]
    cell.__name__ = cell.__qualname__ = f"{mode.lower()}_cell"
    cell.__module__ = _PACKAGE
    state = "(h, c)" if several else "h"
    cell.__doc__ = f"One step of `{mode.lower()}`: {state} after it, of an input (N, I) and the {state} before, (N, hidden)."
    return cell


lstm, gru, rnn_tanh, rnn_relu = map(_network, ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"))
lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell = map(_step, ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"))
has("gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell", autocast="cuda lower")
has("recurrent_layer", autocast="lower")
