"""A softmax over many classes in clusters by their frequency."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from .._core import ops
from . import functional as F
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module

_F: Any = F
_ops: Any = ops

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes in clusters by frequency: the head holds the frequent ones and one place for each cluster of
    rare ones.  É. Grave et al., "Efficient softmax approximation for GPUs", 2017.

    cutoffs: where clusters end, increasing, below n_classes; classes are numbered from the most frequent.
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if ends != sorted(set(ends)) or min(ends) <= 0 or max(ends) > n_classes - 1 or any(int(c) != c for c in ends):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is "
                             "between 1 and n_classes-1")
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*ends, n_classes]
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        options = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, hidden, bias=False, **options), Linear(hidden, size, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Draws new values."""
        self.head.reset_parameters()
        for first, second in self.tail:  # type: ignore[misc, attr-defined, unused-ignore]
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> Any:
        """The log-probability of each target (N,) and their negative mean."""
        alone = target_.dim() == 0
        if alone:
            if input_.dim() != 1:
                raise RuntimeError("0D target tensor should be used with 1D input tensor")
        elif target_.dim() != 1 or input_.dim() != 2:
            raise RuntimeError("1D target tensor should be used with 2D input tensor; 0D or 1D target tensors are supported, multi-target is not")
        elif input_.shape[0] != target_.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        x, y = (input_.unsqueeze(0), target_.unsqueeze(0)) if alone else (input_, target_)
        if y.numel() and not (int(y.min()) >= 0 and int(y.max()) < self.n_classes):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range [{int(y.min())}, {int(y.max())}] "
                               "were found. ")
        head = _F.log_softmax(self.head(x), dim=1)
        place = y
        extra = _ops.zeros_like(head[:, 0])
        for i in range(self.n_clusters):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            rows = ((y >= low) & (y < high)).nonzero().squeeze(1)
            if not rows.numel():
                continue
            inside = _F.log_softmax(self.tail[i](x.index_select(0, rows)), dim=1)
            found = inside.gather(1, (y.index_select(0, rows) - low).unsqueeze(1)).squeeze(1)
            extra = extra.index_add(0, rows, found)
            place = place.index_fill(0, rows, self.shortlist_size + i)
        out = extra + head.gather(1, place.unsqueeze(1)).squeeze(1)
        return _ASMoutput(out.squeeze(0) if alone else out, (-out).mean())

    def log_prob(self, input: Any) -> Any:  # noqa: A002
        """The log-probabilities of all classes: (N, n_classes)."""
        head = _F.log_softmax(self.head(input), dim=1)
        parts = [head[:, :self.shortlist_size]]
        for i in range(self.n_clusters):
            parts.append(_F.log_softmax(self.tail[i](input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return _ops.cat(parts, 1)

    def predict(self, input: Any) -> Any:  # noqa: A002
        """The likeliest class of each row."""
        return self.log_prob(input).argmax(dim=1)


__all__ = ["AdaptiveLogSoftmaxWithLoss"]
