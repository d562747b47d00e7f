"""In which order the forward and backward passes of microbatches go through a process's stages.

GPipe (Y. Huang et al., 2019): all forward, then all backward.  1F1B (A. Harlap et al., PipeDream, 2018): as many forward as stages follow, then one backward
after each forward, so that few microbatches are kept.  Interleaved 1F1B (D. Narayanan et al., 2021): the same with several stages a process.  Breadth first
(J. Lamy-Poirier, 2022): all microbatches through a stage before the process's next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.tensor import Tensor
from ...autograd import is_grad_enabled, no_grad
from ...interop import stand_ins
from .exchange import Exchange
from .timetable import Pass, timetable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .stage import PipelineStage


def _cut(value: Any, n: int) -> list[Any]:
    if not isinstance(value, Tensor):
        return [value] * n
    if value.shape[0] < n:
        raise ValueError(f"a batch of {value.shape[0]} cannot be cut into {n} microbatches")
    return list(value.tensor_split(n))


def _cut_named(values: dict[str, Any] | None, n: int) -> list[dict[str, Any]]:
    return [dict(zip(values, parts)) for parts in zip(*[_cut(v, n) for v in values.values()])] if values else [{} for _ in range(n)]


class _PipelineSchedule:
    """What all share.

    n_microbatches: into how many a batch is cut, along the first axis.  loss_fn: of the last stage's output and the target; without it there is no backward
    pass.  scale_grads: gradients are divided by the number of microbatches, as the mean over the batch's.
    Raises ValueError for what is not a number of microbatches that the schedule can take.
    """


    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Any] | None, specs: tuple[Any, ...],
                 scale_grads: bool) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches must be positive, got {n_microbatches}")
        if any(s is not None for s in specs):
            raise NotImplementedError("pipelining: batches are cut and joined along their first axis; chunk and merge specs are not there")
        self._stages = {s.stage_index: s for s in stages}
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        first = stages[0]
        self._group, self._size, self._num_stages = first.group, first.group_size, first.num_stages
        self._where = {s: s % self._size for s in range(self._num_stages)}
        if len(self._stages) * self._size != self._num_stages:
            raise ValueError(f"{type(self).__name__}: this process has {self._num_stages // self._size} stages of {self._num_stages}, "
                             f"got those of index {sorted(self._stages)}")
        self._tables: dict[bool, Any] = {}

    def _order(self, rank: int) -> list[Pass]:
        """A process's passes, in order."""
        raise NotImplementedError

    def _planned(self, back: bool) -> tuple[list[Pass], Any]:
        """This process's passes and the messages of all."""
        if back not in self._tables:
            orders = [[p for p in self._order(r) if back or not p.backward] for r in range(self._size)]
            self._tables[back] = orders[self._group.rank()], timetable(orders, self._where)
        found: tuple[list[Pass], Any] = self._tables[back]
        return found

    def step(self, *args: Any, target: Any = None, losses: list[Any] | None = None, return_outputs: bool = True, loss_kwargs: dict[str, Any] | None = None,
             **kwargs: Any) -> Any:
        """A batch through all stages and back; the first stage gives it, the last its target, and gets the outputs, joined, unless `return_outputs` is False.
        losses: a list that gets the microbatches' losses.  loss_kwargs: cut as the batch is, and given to the loss."""
        return self._run(args, kwargs, target, losses, self._loss_fn is not None and is_grad_enabled(), return_outputs, loss_kwargs)

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, return_outputs: bool = True, loss_kwargs: dict[str, Any] | None = None,
             **kwargs: Any) -> Any:
        """A batch through all stages, without gradients."""
        with no_grad():
            return self._run(args, kwargs, target, losses, False, return_outputs, loss_kwargs)

    def _run(self, args: Any, kwargs: Any, target: Any, losses: list[Any] | None, back: bool, return_outputs: bool, loss_kwargs: Any) -> Any:
        n = self._n_microbatches
        batch = _Batch(list(zip(*[_cut(a, n) for a in args])) if args else [()] * n, _cut_named(kwargs, n), _cut(target, n), _cut_named(loss_kwargs, n))
        passes, table = self._planned(back)
        exchange = Exchange(self._group, next(iter(self._stages.values())).device, table)
        near: dict[Pass, list[Tensor]] = {}  # between stages of this process
        left = dict.fromkeys(self._stages, n)

        def given(made: Pass, user: int) -> list[Tensor]:
            return near.pop(made) if self._where[made.stage] == self._where[user] else exchange.receive(made)

        def give(made: Pass, user: int, tensors: list[Tensor]) -> None:
            if self._where[made.stage] == self._where[user]:
                near[made] = tensors
            else:
                exchange.send(made, tensors)
        for p in passes:
            stage, s, k = self._stages[p.stage], p.stage, p.microbatch
            if p.backward:
                left[s] -= 1
                grads = None if stage.is_last else given(Pass(True, s + 1, k), s)
                found = stage.backward_one_chunk(k, batch.losses.get(k), grads, last=left[s] == 0)
                if k in batch.losses and stage.is_last:
                    batch.losses[k] = batch.losses[k].detach()
                if not stage.is_first:
                    give(p, s - 1, found)
                continue
            out = stage.forward_one_chunk(k, batch.inputs[k] if stage.is_first else given(Pass(False, s - 1, k), s), batch.named[k])
            if not stage.is_last:
                give(p, s + 1, stage.given(k))
                continue
            if return_outputs:
                batch.outputs.append(out.detach() if isinstance(out, Tensor) else out)
            if self._loss_fn is not None:
                batch.losses[k] = self._loss_fn(out, batch.targets[k], **batch.loss_kwargs[k])
        exchange.finish()
        self._end(back)
        if losses is not None:
            losses[:] = [batch.losses[k].detach() for k in sorted(batch.losses)]
        if self._num_stages - 1 not in self._stages or not return_outputs:
            return None
        return ops.cat(batch.outputs) if all(isinstance(o, Tensor) for o in batch.outputs) else batch.outputs

    def _end(self, back: bool) -> None:
        n = self._n_microbatches
        for stage in self._stages.values():
            stage.forget()
            if back and self.scale_grads and n > 1:
                with no_grad():
                    for p in stage.submod.parameters():
                        if p.grad is not None:
                            p.grad.div_(n)


class _Batch:
    """A batch in microbatches, and what became of it."""

    def __init__(self, inputs: list[Any], named: list[dict[str, Any]], targets: list[Any], loss_kwargs: list[dict[str, Any]]) -> None:
        self.inputs, self.named, self.targets, self.loss_kwargs = inputs, named, targets, loss_kwargs
        self.outputs: list[Any] = []
        self.losses: dict[int, Any] = {}


class PipelineScheduleSingle(_PipelineSchedule):
    """Schedules of one stage a process."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable[..., Any] | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True) -> None:
        super().__init__([stage], n_microbatches, loss_fn, (args_chunk_spec, kwargs_chunk_spec, output_merge_spec), scale_grads)
        self._stage = stage

    def _ahead(self, rank: int) -> int:
        """How many forward passes go before the first backward pass."""
        raise NotImplementedError

    def _order(self, rank: int) -> list[Pass]:
        forward = [Pass(False, rank, k) for k in range(self._n_microbatches)]
        return _one_by_one(forward, [p._replace(backward=True) for p in forward], self._ahead(rank))


class PipelineScheduleMulti(_PipelineSchedule):
    """Schedules of several stages a process.  backward_requires_autograd, defer_pp_recv: accepted."""


    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Any] | None = None, args_chunk_spec: Any = None,
                 kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True, backward_requires_autograd: bool = True,
                 defer_pp_recv: bool = False) -> None:
        super().__init__(stages, n_microbatches, loss_fn, (args_chunk_spec, kwargs_chunk_spec, output_merge_spec), scale_grads)


def _one_by_one(forward: list[Pass], back: list[Pass], ahead: int) -> list[Pass]:
    """The first `ahead` forward passes, then one forward and one backward pass in turn."""
    found = forward[:ahead]
    for k, p in enumerate(back):
        found += forward[ahead + k:ahead + k + 1] + [p]
    return found


class ScheduleGPipe(PipelineScheduleSingle):
    """All forward passes, then all backward passes."""

    def _ahead(self, rank: int) -> int:
        return self._n_microbatches


class Schedule1F1B(PipelineScheduleSingle):
    """A backward pass after each forward pass, as soon as the stages after this one are filled."""

    def _ahead(self, rank: int) -> int:
        return min(self._n_microbatches, self._num_stages - rank - 1)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B with several stages a process; microbatches go in rounds, as many at a time as there are processes, or more.

    Raises ValueError where the number of microbatches is not a multiple of the number of rounds.
    """

    def _order(self, rank: int) -> list[Pass]:
        n, size = self._n_microbatches, self._size
        rounds = max(1, n // size)
        if n % rounds:
            raise ValueError(f"Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds ({rounds}), but got {n}.")
        per, own = n // rounds, range(rank, self._num_stages, size)
        batches = [range(r * per, r * per + per) for r in range(rounds)]
        forward = [Pass(False, s, k) for some in batches for s in own for k in some]
        back = [Pass(True, s, k) for some in batches for s in reversed(own) for k in some]
        return _one_by_one(forward, back, min(len(forward), (len(own) - 1) * per + 2 * (size - 1 - rank)))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._order(0)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All microbatches through the process's first stage, then through its next, and back the same way."""

    def _order(self, rank: int) -> list[Pass]:
        own, n = range(rank, self._num_stages, self._size), range(self._n_microbatches)
        return [Pass(False, s, k) for s in own for k in n] + [Pass(True, s, k) for s in reversed(own) for k in n]


globals().update(stand_ins.names(__name__, """ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble ScheduleDualPipeV _PipelineScheduleRuntime _Action
 _PipelineContext _wait_batch_p2p() OVERLAP_F_B""", "this schedule is not here; GPipe, 1F1B, interleaved 1F1B and looped BFS are"))
_BY_NAME: dict[str, Any] = {"1F1B": Schedule1F1B, "Interleaved1F1B": ScheduleInterleaved1F1B, "GPipe": ScheduleGPipe, "LoopedBFS": ScheduleLoopedBFS,
                            "PipelineScheduleSingle": PipelineScheduleSingle, "PipelineScheduleMulti": PipelineScheduleMulti,
                            **{name.removeprefix("Schedule"): globals()[name]
                               for name in ("ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV")}}


def get_schedule_class(schedule_name: str) -> Any:
    """The schedule of a name, whatever its case: "1F1B", "GPipe", "Interleaved1F1B" ...  Raises ValueError for a name that is none."""
    found = {name.lower(): kind for name, kind in _BY_NAME.items()}
    if schedule_name.lower() not in found:
        raise ValueError(f"Unknown schedule name: {schedule_name}. The valid options are {list(_BY_NAME)}")
    return found[schedule_name.lower()]


__all__ = ["PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS",
           "get_schedule_class"]
