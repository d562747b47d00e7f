"""Recurrent layers and cells: `RNN`, `LSTM`, `GRU`, `RNNCell`, `LSTMCell`, `GRUCell`."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .._core.errors import warn
from .._core.ops import autocast
from . import init
from .functional.recurrent_stacks import CELLS, stacked
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """What `RNN`, `LSTM` and `GRU` share.

    Input is (L, N, input_size), (N, L, input_size) with `batch_first`, (L, input_size) unbatched, or a
    `PackedSequence`. Output holds every step's state of the last layer, both directions side by side; the second result
    is the last state of every layer and direction, (layers * directions, N, hidden). Weights start uniform on
    [-1/√hidden, 1/√hidden].
    """

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element "
                             "being zeroed")
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if dropout > 0 and num_layers == 1:

            warn(f"dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
                 f"expects num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        directions = 2 if bidirectional else 1
        width = proj_size if proj_size > 0 else hidden_size
        gates = _GATES[mode] * hidden_size
        self._weight_names: list[list[str]] = []
        for level in range(num_layers):
            for direction in range(directions):
                suffix = f"_l{level}" + ("_reverse" if direction else "")
                size = input_size if level == 0 else width * directions
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, size), "weight_hh": (gates, width)}
                if bias:
                    shapes.update(bias_ih=(gates,), bias_hh=(gates,))
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(ops.empty(shape, device=device, dtype=dtype)))
                self._weight_names.append([name + suffix for name in shapes])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._weight_names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [w for weights in self.all_weights for w in weights]

    def flatten_parameters(self) -> None:
        """Nothing: the kernels here take the weights as they are."""

    def _weights(self, index: int) -> list[Any]:
        """w_ih, w_hh, b_ih, b_hh (and w_hr) of a layer and direction."""
        weights = [getattr(self, name) for name in self._weight_names[index]]
        return weights if self.bias else [*weights[:2], None, None, *weights[2:]]

    def _check(self, x: Any, states: tuple[Any, ...], batch: int) -> None:
        if x.dtype != self.weight_ih_l0.dtype and x.device.type not in (autocast.current.get() or ()):
            raise ValueError(f"RNN input dtype ({x.dtype}) does not match weight dtype ({self.weight_ih_l0.dtype}). "
                             f"Convert input: input.to({self.weight_ih_l0.dtype}), or convert model: "
                             f"model.to({x.dtype})")
        if x.size(-1) != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                               f"{x.size(-1)}")
        rows = self.num_layers * (2 if self.bidirectional else 1)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)
        for state, width, number in zip(states, widths, ("[0]", "[1]")):
            expected = (rows, batch, width)
            if tuple(state.shape) != expected:
                which = f"hidden{number}" if len(states) == 2 else "hidden"
                raise RuntimeError(f"Expected {which} size {expected}, got {list(state.shape)}")

    def _states(self, hx: Any, x: Any, batch: int, batched: bool) -> tuple[Any, ...]:
        """The first states, with the batch dimension."""
        count = 2 if self.mode == "LSTM" else 1
        rows = self.num_layers * (2 if self.bidirectional else 1)
        if hx is None:
            widths = (self.proj_size or self.hidden_size, self.hidden_size)
            return tuple(ops.zeros((rows, batch, widths[i]), dtype=x.dtype, device=x.device) for i in range(count))
        states = tuple(hx) if count == 2 else (hx,)
        for state in states:
            if state.dim() != (3 if batched else 2):
                kind = f"{'batched 3-D' if batched else 'unbatched 2-D'}"
                text = " and ".join(f"{s.dim()}-D" for s in states)
                raise RuntimeError(f"For {kind} input, hx should also be {3 if batched else 2}-D but got {text} tensor")
        return states if batched else tuple(s.unsqueeze(1) for s in states)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        states = self._states(hx, x, x.size(1), batched)
        self._check(x, states, x.size(1))
        if x.shape[0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        out, last = self._run(x, None, states)
        if not batched:
            out, last = out.squeeze(1), tuple(s.squeeze(1) for s in last)
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, last if len(last) == 2 else last[0]

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> tuple[Any, Any]:
        x = packed.data
        sizes = [int(s) for s in packed.batch_sizes.tolist()]
        states = self._states(hx, x, sizes[0], True)
        if hx is not None and packed.sorted_indices is not None:
            states = tuple(s.index_select(1, packed.sorted_indices) for s in states)
        self._check(x, states, sizes[0])
        out, last = self._run(x, sizes, states)
        if packed.unsorted_indices is not None:
            last = tuple(s.index_select(1, packed.unsorted_indices) for s in last)
        made = PackedSequence(out, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return made, last if len(last) == 2 else last[0]

    def _run(self, x: Any, sizes: list[int] | None, states: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        directions = 2 if self.bidirectional else 1
        weights = [self._weights(i) for i in range(self.num_layers * directions)]
        return stacked(self.mode, x, sizes, states, weights, directions, self.dropout if self.training else 0.0)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text


def _no_projection(proj_size: int) -> None:
    if proj_size:
        raise ValueError(f"proj_size argument is only supported for LSTM, not RNN or GRU: got {proj_size}")


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu; see `RNNBase` for the shapes."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 device: Any = None, dtype: Any = None, *, proj_size: int = 0) -> None:
        _no_projection(proj_size)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + nonlinearity.upper(), input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; the state is the pair (h, c). `proj_size` projects h after each step.

    Input (L, N, input_size) to output (L, N, directions * out), h (layers * directions, N, out) and c (layers * directions, N, hidden_size), with
    `out = proj_size or hidden_size`; see `RNNBase` for other forms.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         proj_size, device, dtype)


class GRU(RNNBase):
    """Gated recurrent units.

    Input (L, N, input_size) to output (L, N, directions * hidden_size) and state (layers * directions, N, hidden_size); see `RNNBase` for other forms.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
                 dtype: Any = None, *, proj_size: int = 0) -> None:
        _no_projection(proj_size)
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         device=device, dtype=dtype)


class RNNCellBase(Module):
    """One step of a recurrent layer: input (N, input_size) or (input_size), state (N, hidden_size) or (hidden_size)."""

    mode: str

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(ops.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(ops.empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(ops.empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, input: Any, hx: Any, count: int) -> Any:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(-1)} expected {self.input_size}")
        states = None if hx is None else tuple(hx) if count == 2 else (hx,)
        for i, state in enumerate(states or ()):
            if state.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected hidden to be 1D or 2D, got {state.dim()}D instead")
            if state.size(-1) != self.hidden_size:
                raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {state.size(-1)}, expected "
                                   f"{self.hidden_size}")
            if state.dim() == input.dim() == 2 and state.size(0) != input.size(0):
                raise RuntimeError(f"Input batch size {input.size(0)} doesn't match hidden{i} batch size "
                                   f"{state.size(0)}")
        if states is None:
            zero = ops.zeros((*input.shape[:-1], self.hidden_size), dtype=input.dtype, device=input.device)
            states = (zero,) * count
        return CELLS[self.mode](input, states, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    """One step of `RNN`."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        self.__dict__["mode"] = "RNN_" + self.nonlinearity.upper()
        return self._step(input, hx, 1)[0]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: input (N, input_size) to the pair (h, c), each (N, hidden_size); all without N for one example."""

    mode = "LSTM"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        return self._step(input, hx, 2)  # type: ignore[no-any-return]


class GRUCell(RNNCellBase):
    """One step of `GRU`: input (N, input_size) to the state (N, hidden_size); both without N for one example."""

    mode = "GRU"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._step(input, hx, 1)[0]
