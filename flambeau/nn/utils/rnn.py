"""Sequences of different lengths: padding them to one tensor and packing them without padding."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from typing import Any

from ..._core import dtypes, ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor


class PackedSequence(namedtuple("PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):  # noqa: PYI024
    """Sequences laid out step by step, longest first: step t holds batch_sizes[t] elements.

    `sorted_indices` says which sequence of the caller's each one is, `unsorted_indices` the other way round; both are
    None if the caller's order is already by length.
    """

    __slots__ = ()

    def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None,
                unsorted_indices: Any = None) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            # the old form: one argument, a pair
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(f"batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                             f"created manually. They should be instantiated by functions like pack_sequence and "
                             f"pack_padded_sequences in nn.utils.rnn. It is on {batch_sizes.device}")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences moved or cast; `batch_sizes` stays on the CPU."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        where = {k: v for k, v in kwargs.items() if k in ("device", "non_blocking")}
        where["device"] = data.device
        moved = [None if i is None else i.to(**where) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences on a GPU."""
        device = args[0] if args else kwargs.get("device")
        if device is None:
            device = "cuda"
        return self.to(device=device if not isinstance(device, int) else f"cuda:{device}")

    def cpu(self) -> PackedSequence:
        """The sequences on the CPU."""
        return self.to(device="cpu")

    def pin_memory(self) -> PackedSequence:
        """The sequences in pinned memory."""
        pinned = [None if i is None else i.pin_memory() for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *pinned)

    def double(self) -> PackedSequence:
        """The sequences as float64."""
        return self.to(dtype=dtypes.float64)

    def float(self) -> PackedSequence:
        """The sequences as float32."""
        return self.to(dtype=dtypes.float32)

    def half(self) -> PackedSequence:
        """The sequences as float16."""
        return self.to(dtype=dtypes.float16)

    def long(self) -> PackedSequence:
        """The sequences as int64."""
        return self.to(dtype=dtypes.int64)

    def int(self) -> PackedSequence:
        """The sequences as int32."""
        return self.to(dtype=dtypes.int32)

    def short(self) -> PackedSequence:
        """The sequences as int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> PackedSequence:
        """The sequences as int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> PackedSequence:
        """The sequences as uint8."""
        return self.to(dtype=dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the sequences are on a GPU."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the sequences are in pinned memory."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes `permutation`; None of None."""
    if permutation is None:
        return None
    places = ops.arange(0, permutation.numel(), device=permutation.device)
    return ops.empty_like(permutation).scatter_(0, permutation, places)


def pack_padded_sequence(input: Any, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs a padded batch (L, N, *), or (N, L, *) with `batch_first`, of sequences with these lengths.

    The lengths must fall if `enforce_sorted`, else the sequences are sorted. Raises RuntimeError for lengths below 1,
    out of order or of the wrong number.
    """
    if not isinstance(lengths, Tensor):
        lengths = ops.tensor(list(lengths), dtype=dtypes.int64, device="cpu")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = lengths.sort(descending=True)
        sorted_indices = unasked(sorted_indices.to)(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if not input.numel():
        raise RuntimeError(f"Cannot pack empty tensors: input is {tuple(input.shape)}")
    counts = [int(n) for n in lengths.tolist()]
    steps = input.transpose(0, 1) if batch_first else input
    if len(counts) != steps.shape[1]:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size="
                           f"{steps.shape[1]})")
    if not counts or min(counts) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is "
                           "<= 0")
    if any(a < b for a, b in zip(counts, counts[1:])):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
                           "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
                           "requirement if you do not need ONNX exportability.")
    if counts[0] > steps.shape[0]:
        raise RuntimeError(f"Expected the longest of `lengths` ({counts[0]}) to be at most the padded length "
                           f"({steps.shape[0]})")
    sizes = [sum(n > t for n in counts) for t in range(counts[0])]
    # Steps with the same number of sequences are one block.
    blocks = []
    start = 0
    for t in range(1, len(sizes) + 1):
        if t == len(sizes) or sizes[t] != sizes[start]:
            block = steps[start:t, :sizes[start]]
            blocks.append(block.reshape((t - start) * sizes[start], *steps.shape[2:]))
            start = t
    return PackedSequence(ops.cat(blocks), ops.tensor(sizes, dtype=dtypes.int64, device="cpu"), sorted_indices, None)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Any, Any]:
    """Undoes `pack_padded_sequence`: the padded batch and the lengths, padded to `total_length` if that is given."""
    sizes = [int(s) for s in sequence.batch_sizes.tolist()]
    longest = len(sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(f"Expected total_length to be at least the length of the longest sequence in input, but got "
                         f"total_length={total_length} and max sequence length being {longest}")
    data = sequence.data
    # Row t, n of the batch is the packed row where[t, n]; one row of padding follows the data.
    steps = longest if total_length is None else total_length
    rows = []
    start = 0
    total = int(data.shape[0])
    for t in range(steps):
        size = sizes[t] if t < longest else 0
        rows.append([*range(start, start + size), *([total] * (sizes[0] - size))])
        start += size
    fill = ops.full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    where = ops.tensor(rows, dtype=dtypes.int64, device=data.device).reshape(-1)
    padded = ops.cat([data, fill]).index_select(0, where).reshape(steps, sizes[0], *data.shape[1:])
    lengths = ops.tensor([sum(s > n for s in sizes) for n in range(sizes[0])], dtype=dtypes.int64, device="cpu")
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[unasked(sequence.unsorted_indices.cpu)()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Any:
    """Stacks sequences (L_i, *) into (max L, N, *), or (N, max L, *) with `batch_first`, padding on the given side."""
    if isinstance(sequences, Tensor):
        rows: Any = sequences
        sequences = rows.unbind(0)
    elif not hasattr(sequences, "__iter__"):
        raise RuntimeError("pad_sequence: Expected iterable for input sequences, but got arg of type: "
                           f"{type(sequences)}")
    sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise ValueError(f'padding_side should be "right" or "left", got {padding_side!r}')
    longest = max(s.shape[0] for s in sequences)
    padded = []
    for s in sequences:
        missing = longest - s.shape[0]
        if missing:
            fill = ops.full((missing, *s.shape[1:]), padding_value, dtype=s.dtype, device=s.device)
            s = ops.cat([fill, s] if padding_side == "left" else [s, fill])
        padded.append(s)
    return ops.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Undoes `pad_sequence`: the sequences, each of its length."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[i, :int(n)] for i, n in enumerate(lengths.tolist())]


def pack_sequence(sequences: Iterable[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences (L_i, *)."""
    sequences = list(sequences)
    lengths = ops.tensor([s.shape[0] for s in sequences], dtype=dtypes.int64, device="cpu")
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Undoes `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
