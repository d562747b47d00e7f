"""Gradients that travel as products of two narrow matrices: a hook of `DistributedDataParallel.register_comm_hook`.

T. Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization" (2019), algorithm 1 and 2: one step of a power iteration
a gradient, P = M Q summed over the processes and made orthonormal, Q = Mᵀ P; what P Qᵀ does not have is added to the next gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import ops
from ...._core.runtime.asking import unasked
from ...._core.runtime.generators import Generator
from ... import collectives, world
from .default_hooks import allreduce_hook

if TYPE_CHECKING:
    from ...._core.tensor import Tensor
    from ....futures import Future
    from ...reducer import GradBucket


class PowerSGDState:
    """What the hook keeps from step to step.

    matrix_approximation_rank: columns of the narrow matrices.  start_powerSGD_iter: steps before it that reduce plainly.  min_compression_rate: matrices
    that would not shrink by this travel whole.  use_error_feedback: what was lost is added to the next gradient.  warm_start: Q is that of the step
    before.  random_seed: of the first Q, the same on all processes: PyTorch's numbers.
    """

    def __init__(self, process_group: Any = None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1_000, min_compression_rate: float = 2,
                 use_error_feedback: bool = True, warm_start: bool = True, orthogonalization_epsilon: float = 0, random_seed: int = 0,
                 compression_stats_logging_frequency: int = 10_000, batch_tensors_with_same_shape: bool = False) -> None:
        if start_powerSGD_iter <= 1 and (use_error_feedback or warm_start):
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only be applied "
                             "after the first two iterations in DDP.")
        self.process_group, self.matrix_approximation_rank, self.start_powerSGD_iter = process_group, matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate, self.use_error_feedback, self.warm_start = min_compression_rate, use_error_feedback, warm_start
        self.orthogonalization_epsilon, self.random_seed = orthogonalization_epsilon, random_seed
        self.rng = np.random.RandomState(random_seed)
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}
        self.begun: set[int] = set()  # buckets that have a Q of the step before
        self.q_memory: dict[tuple[int, int], Tensor] = {}

    def rank_of(self, n: int, m: int) -> int:
        """Columns for a matrix of n by m; 0 where it travels whole."""
        rank = min(n, m, self.matrix_approximation_rank)
        return rank if (n + m) * rank * self.min_compression_rate < n * m else 0


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """The mean over all processes, of which matrices travel as products."""
    flat = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.iter += bucket.is_last()
        return allreduce_hook(state.process_group, bucket)
    g, index = world.of(state.process_group), bucket.index()
    if state.use_error_feedback and index in state.error_dict:
        flat.add_(state.error_dict[index])
    before = flat.clone() if state.use_error_feedback else None
    made = None
    if not state.warm_start or index not in state.begun:
        state.begun.add(index)
        made = Generator().manual_seed(int(state.rng.randint(1_000_000_000)))
    plain: list[Tensor] = []
    for k, grad in enumerate(bucket.gradients()):
        matrix = grad.view(grad.shape[0] if grad.dim() else 1, -1)
        rank = state.rank_of(*matrix.shape)
        if not rank:
            plain.append(grad)
            continue
        if made is None:
            q = state.q_memory[index, k]
        else:
            q = unasked(ops.randn(matrix.shape[1], rank, generator=made, dtype=matrix.dtype).to)(matrix.device)
        p = matrix @ q
        collectives.all_reduce(p, group=g)
        p = p.qr()[0]
        q = matrix.t() @ p
        collectives.all_reduce(q, group=g)
        q.div_(g.size())
        state.q_memory[index, k] = q
        matrix.copy_(p @ q.t())
    if plain:
        row = ops.cat([t.reshape(-1) for t in plain]).div_(g.size())
        collectives.all_reduce(row, group=g)
        for t, part in zip(plain, row.split([t.numel() for t in plain])):
            t.copy_(part.view(t.shape))
    if before is not None:
        state.error_dict[index] = before - flat
        at = 0
        for grad in bucket.gradients():  # what travelled whole lost nothing
            if any(grad is t for t in plain):
                state.error_dict[index][at:at + grad.numel()].zero_()
            at += grad.numel()
    state.iter += bucket.is_last()
    from ....futures import Future as Made
    done: Any = Made()
    done.set_result(flat)
    return done  # type: ignore[no-any-return]
