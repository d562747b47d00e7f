"""Entry points of PyTorch that its own front ends call and some code calls by name: backward steps, forms with more results."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..engine.fields import has
from ..tensor import Tensor
from .casts import in_float32, to_dtype
from .table import find, op


@op(method=False, out=True)
@in_float32
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax from its output: y (g - sum(g y))."""
    product: Any = grad_output * output
    return to_dtype(product - output * product.sum(dim, True), input_dtype)


@op(method=False)
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of dropout: g where `mask`, times `scale`."""
    made: Tensor = grad_output * to_dtype(mask, grad_output.meta.dtype) * scale
    return made


@op(method=False, out=True)
def _add_relu(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:  # noqa: A002
    """max(input + alpha * other, 0)."""
    made: Any = input + alpha * other
    return made.relu()  # type: ignore[no-any-return]


@op(method=False, out=True)
def _chunk_cat(tensors: Any, dim: int, num_chunks: int) -> Tensor:
    """Each tensor, filled with zeros along `dim` to a multiple of num_chunks, as (..., num_chunks, rest), side by side."""
    from .concat import cat
    if num_chunks < 1:
        raise RuntimeError(f"_chunk_cat expects positive num_chunks, got num_chunks: {num_chunks}")
    parts: list[Any] = []
    for t in tensors:
        if not t.meta.numel:
            raise RuntimeError(f"_chunk_cat expects non-empty tensor, got one of shape {list(t.meta.shape)}")
        axis = dim % len(t.meta.shape)
        size = t.meta.shape[axis]
        fill = -size % num_chunks
        if fill:
            shape = list(t.meta.shape)
            shape[axis] = fill
            t = cat([t, t.new_zeros(shape)], axis)
        parts.append(t.reshape(*t.meta.shape[:axis], num_chunks, -1))
    return cat(parts, -1)


@op(method=False)
def _unsafe_masked_index(input: Any, mask: Any, indices: Any, fill: Any) -> Tensor:  # noqa: A002
    """input[indices] where `mask`, else fill; indices where it is false may be out of range."""
    made: Tensor = input[_kept(input, mask, indices)].masked_fill(~mask, fill)
    return made


@op(method=False)
def _unsafe_masked_index_put_accumulate(input: Any, mask: Any, indices: Any, values: Any) -> Tensor:  # noqa: A002
    """`input` with values added at `indices` where `mask`."""
    made: Tensor = input.index_put(_kept(input, mask, indices), values.masked_fill(~mask, 0), accumulate=True)
    return made


def _kept(x: Tensor, mask: Any, indices: Any) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else (i * mask).clamp(-x.meta.shape[a], x.meta.shape[a] - 1) for a, i in enumerate(indices))


@op(method=False, out=True)
def _native_batch_norm_legit(input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any, running_mean: Any = None,  # noqa: A002
                             running_var: Any = None, **named: Any) -> Any:
    """`native_batch_norm` of (running_mean, running_var, training, momentum, eps), or without running statistics."""
    from .normalization import native_batch_norm
    if len(rest) + len(named) > 3:
        running_mean, running_var, *rest = rest  # type: ignore[assignment]
    return native_batch_norm(input, weight, bias, running_mean, running_var, *rest, **named)


@op(method=False)
def _batch_norm_with_update(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,  # noqa: A002
                            momentum: float, eps: float) -> Any:
    """`native_batch_norm` in training, with an empty fourth result."""
    from .creation import empty
    from .normalization import native_batch_norm
    made = native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*made, empty((0,), dtype=dtypes.uint8, device=input.meta.device))


_START = {"amax": -float("inf"), "amin": float("inf"), "sum": 0.0, "prod": 1.0, "mean": 0.0}
_HOW = {"max": "amax", "min": "amin", "amax": "amax", "amin": "amin", "sum": "sum", "prod": "prod", "mean": "sum"}


@op(method=False, aliases=("_segment_reduce",))
def segment_reduce(data: Any, reduce: str, *, lengths: Any = None, indices: Tensor | None = None, offsets: Any = None, axis: int = 0,
                   unsafe: bool = False, initial: Any = None) -> Tensor:
    """"sum", "prod", "mean", "amax" or "amin" (also "max" and "min") over consecutive pieces of `data` along axis, whose `lengths` (..., pieces), or
    whose bounds `offsets` (..., pieces + 1), are given for each place along the axes before it.  `initial` is what a reduction
    starts from and what an empty piece gives.
    """
    if reduce not in _HOW:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise NotImplementedError("segment_reduce(): indices is not supported; give lengths or offsets")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if lengths is None:
        lengths = offsets.diff()
    if len(lengths.meta.shape) != axis + 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}.")
    if not unsafe:
        if bool((lengths < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        if bool((lengths.sum(-1) != data.meta.shape[axis]).any()):
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.")
    from .creation import full
    from .ranges import arange
    pieces, tail = lengths.meta.numel, tuple(data.meta.shape[axis + 1:])
    flat = data.reshape(-1, *tail) if data.meta.numel else data.reshape(data.meta.numel, *tail) if not tail else data.flatten(0, axis)
    each = lengths.reshape(-1)
    where = arange(pieces, device=data.meta.device).repeat_interleave(each)
    if where.meta.numel != flat.meta.shape[0]:  # the pieces leave some of the rows out
        size = data.meta.shape[axis]
        rows = arange(pieces // max(lengths.meta.shape[-1], 1), device=data.meta.device).reshape(*lengths.meta.shape[:-1], 1) * size
        begin = (offsets.narrow(-1, 0, lengths.meta.shape[-1]) if offsets is not None else lengths.cumsum(-1) - lengths) + rows
        shift: Any = (begin.reshape(-1) - (each.cumsum(0) - each)).repeat_interleave(each)
        flat = flat[arange(where.meta.numel, device=data.meta.device) + shift]
    start = _START[_HOW[reduce]] if initial is None else initial
    base = full((pieces, *tail), start, dtype=data.meta.dtype, device=data.meta.device)
    made = base.scatter_reduce(0, where.reshape(-1, *(1,) * len(tail)).expand(flat.meta.shape), flat, _HOW[reduce])
    counts = lengths.reshape(-1, *(1,) * len(tail))
    if reduce == "mean":
        empty_piece = counts == 0
        made = made / counts.clamp(min=1)
        made = made.masked_fill(empty_piece, float("nan")) if initial is None else made
    result: Tensor = made.reshape(*lengths.meta.shape, *tail)
    return result


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """`nn.functional.embedding` with the table first: rows of weight (num, dim) at `indices`; a padding_idx below 0 is none."""
    from .indexing.embedding import embedding as lookup
    made: Tensor = lookup(indices, weight, None if padding_idx < 0 else padding_idx, None, 2.0, scale_grad_by_freq, sparse)
    return made


def batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,  # noqa: A002
               training: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Tensor:
    """`nn.functional.batch_norm` with the weights first; which library does it is the backend's choice, whatever `cudnn_enabled` says."""
    from .normalization import batch_norm as normalized
    made: Tensor = normalized(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return made


def instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,  # noqa: A002
                  use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Tensor:
    """`nn.functional.instance_norm` with the weights first, as `batch_norm` here."""
    from .row_norms import instance_norm as normalized
    made: Tensor = normalized(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    return made


def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool,  # noqa: A002
                output_padding: Any, groups: int) -> Tensor:
    """A convolution of a batch (N, C, ...), or a transposed one, over as many axes as the kernel has: `conv2d` and its like.

    stride, padding, dilation, output_padding: lists of a number an axis, or of one for all.  Raises TypeError for numbers alone, RuntimeError for lists
    and inputs of other lengths.
    """
    axes = len(weight.meta.shape) - 2
    for place, (name, value) in enumerate((("stride", stride), ("padding", padding), ("dilation", dilation), ("output_padding", output_padding)), 4):
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"convolution(): argument '{name}' (position {place + (place == 7)}) must be tuple of ints, not {type(value).__name__}")
        if len(value) not in (1, axes):
            raise RuntimeError(f"expected {name} to be a single integer value or a list of {axes} values to match the convolution dimensions, but got "
                               f"{name}={list(value)}")
    if len(input.meta.shape) != axes + 2:
        raise RuntimeError(f"Expected {axes + 2}-dimensional input for {axes + 2}-dimensional weight {list(weight.meta.shape)}, but got "
                           f"{len(input.meta.shape)}-dimensional input of size {list(input.meta.shape)} instead")
    done: Any = find("torch", f"conv_transpose{axes}d" if transposed else f"conv{axes}d")
    made: Tensor = done(input, weight, bias, stride, padding, output_padding, groups, dilation) if transposed else \
        done(input, weight, bias, stride, padding, dilation, groups)
    return made


@op(method=False, spaces=("torch", "nn.functional"))
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:  # noqa: A002
    """A convolution over time, which comes first: input (T, B, C), weight (kernel, C, out), bias (out): (T + 2 pad - kernel + 1, B, out).

    Raises RuntimeError for other shapes.
    """
    if len(input.meta.shape) != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if len(weight.meta.shape) != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if len(bias.meta.shape) != 1:
        raise RuntimeError("Bias must be 1-D")
    if input.meta.shape[2] != weight.meta.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.meta.shape[2] != bias.meta.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")
    over: Any = find("torch", "conv1d")
    made: Any = over(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return made.permute(2, 0, 1).contiguous()  # type: ignore[no-any-return]


def native_norm(input: Any, p: Any = 2, dim: Any = (), keepdim: bool = False, dtype: Any = None) -> Tensor:  # noqa: A002
    """The p-norm of all elements of a sparse tensor.  Raises NotImplementedError for a strided one, RuntimeError for some of its axes alone."""
    from .unsupported import SparseMeta, Unsupported
    if not isinstance(input.meta, SparseMeta):
        raise Unsupported("native_norm is not implemented for tensors of layout torch.strided: norm is")
    axes = {d % max(input.dim(), 1) for d in ((dim,) if isinstance(dim, int) else dim)}
    if axes and len(axes) < input.dim():
        raise RuntimeError("norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input")
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    made: Tensor = input.coalesce().values().norm(p, dtype=dtype)
    return made


has("conv_tbc", batch="composite")
has("""_batch_norm_with_update _chunk_cat _native_batch_norm_legit _softmax_backward_data _unsafe_masked_index
 _unsafe_masked_index_put_accumulate""", batch="composite")
