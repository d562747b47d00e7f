"""Layers few models use: fractional pooling, adaptive softmax, normalization across channel maps."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from .._core import ops
from . import functional as F
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module
from .sizes import ntuple

_F: Any = F
_ops: Any = ops


class _FractionalMaxPoolNd(Module):
    dims: int
    _random_samples: Any

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
                 _random_samples: Any = None) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio, and not both")
        self.kernel_size = ntuple(kernel_size, self.dims)
        self.output_size = None if output_size is None else ntuple(output_size, self.dims)
        self.output_ratio = None if output_ratio is None else ntuple(output_ratio, self.dims)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Any) -> Any:  # noqa: A002 (PyTorch's name)
        pool = _F.fractional_max_pool2d if self.dims == 2 else _F.fractional_max_pool3d
        return pool(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima over windows at random, increasing places of (N, C, H, W) or (C, H, W). B. Graham, 2014."""

    dims = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The same of (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3


class CrossMapLRN2d(Module):
    """x (k + alpha / size times the sum of squares over neighbouring channels) ** -beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Any:  # noqa: A002
        return _F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


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


__all__ = ["AdaptiveLogSoftmaxWithLoss", "CrossMapLRN2d", "FractionalMaxPool2d", "FractionalMaxPool3d"]
