"""PyTorch's names for the order of elements in memory."""

from __future__ import annotations

from ..engine.fronts import PLAIN_CONSTANTS


class _Named:
    """A word of the namespace."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class memory_format(_Named):
    """One of `contiguous_format`, `channels_last`, `channels_last_3d`, `preserve_format`."""

    __slots__ = ()


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
preserve_format = memory_format("preserve_format")


class layout(_Named):
    """How elements are stored: `strided`, `sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")  # of nested tensors, which are left out: nothing has it

PLAIN_CONSTANTS |= {memory_format, layout}
