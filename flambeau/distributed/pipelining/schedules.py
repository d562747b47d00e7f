"""In which order a stage's forward and backward passes of microbatches go.

GPipe (Y. Huang et al., 2019): all forward, then all backward.  1F1B (A. Harlap et al., PipeDream, 2018): as many forward as stages follow, then one backward
after each forward, so that few microbatches are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.tensor import Tensor
from ...autograd import is_grad_enabled, no_grad

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stage import PipelineStage


def _cut(value: Any, n: int) -> list[Any]:
    if not isinstance(value, Tensor):
        return [value] * n
    if value.shape[0] < n:
        raise ValueError(f"a batch of {value.shape[0]} cannot be cut into {n} microbatches")
    return list(value.tensor_split(n))


class _Schedule:
    """What both share.

    stage: this process's.  n_microbatches: into how many a batch is cut, along the first axis.  loss_fn: of the last stage's output and the target; without
    it there is no backward pass.  scale_grads: gradients are divided by the number of microbatches, as the mean over the batch's.
    """

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable[..., Any] | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches must be positive, got {n_microbatches}")
        if args_chunk_spec is not None or kwargs_chunk_spec is not None or output_merge_spec is not None:
            raise NotImplementedError("pipelining: batches are cut and joined along their first axis; chunk and merge specs are not there")
        self._stage, self._n_microbatches, self._loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads

    def _ahead(self) -> int:
        """How many forward passes go before the first backward pass."""
        raise NotImplementedError

    def step(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """A batch through all stages and back; the first stage gives it, the last its target, and gets the outputs, joined."""
        return self._run(args, kwargs, target, losses, self._loss_fn is not None and is_grad_enabled())

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """A batch through all stages, without gradients."""
        with no_grad():
            return self._run(args, kwargs, target, losses, False)

    def _run(self, args: Any, kwargs: Any, target: Any, losses: list[Any] | None, back: bool) -> Any:
        stage, n = self._stage, self._n_microbatches
        inputs = list(zip(*[_cut(a, n) for a in args])) if args else [()] * n
        named = [dict(zip(kwargs, parts)) for parts in zip(*[_cut(v, n) for v in kwargs.values()])] if kwargs else [{}] * n
        targets = _cut(target, n)
        outputs: list[Any] = []
        found: dict[int, Any] = {}
        if losses is not None:
            losses.clear()
        done = 0

        def one_back() -> None:
            nonlocal done
            stage.backward_one_chunk(done, found.pop(done, None))
            done += 1
        for k in range(n):
            out = stage.forward_one_chunk(k, inputs[k] if stage.is_first else (), named[k])
            outputs.append(out.detach() if isinstance(out, Tensor) else out)
            if stage.is_last and self._loss_fn is not None:
                found[k] = self._loss_fn(out, targets[k])
                if losses is not None:
                    losses.append(found[k].detach())
            if back and k + 1 > self._ahead():
                one_back()
        while back and done < n:
            one_back()
        stage.settle()
        if back and self.scale_grads and n > 1:
            with no_grad():
                for p in stage.submod.parameters():
                    if p.grad is not None:
                        p.grad.div_(n)
        return ops.cat(outputs) if stage.is_last and all(isinstance(o, Tensor) for o in outputs) else outputs if stage.is_last else None


class ScheduleGPipe(_Schedule):
    """All forward passes, then all backward passes."""

    def _ahead(self) -> int:
        return self._n_microbatches


class Schedule1F1B(_Schedule):
    """A backward pass after each forward pass, as soon as the stages after this one are filled."""

    def _ahead(self) -> int:
        return min(self._n_microbatches, self._stage.num_stages - self._stage.stage_index - 1)


__all__ = ["Schedule1F1B", "ScheduleGPipe"]
