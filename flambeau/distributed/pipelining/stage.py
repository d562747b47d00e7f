"""One part of a model, on one process: what it gets from the part before and gives to the one after, and the gradients back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import dtypes, ops
from ..._core.tensor import Tensor
from ...autograd import backward
from .. import messages, world
from ..collectives import Work

if TYPE_CHECKING:
    from ...nn.module import Module

_TYPES = [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int64, dtypes.int32, dtypes.bool_, dtypes.uint8]
_ROOM = 64  # numbers that tell the shapes of what a stage gives


class PipelineStage:
    """A stage.

    submodule: its part of the model.  stage_index, num_stages: which part it is; the group's processes have the stages in order.  device: where it lies.
    group: the default one without.  input_args, output_args: accepted; shapes are told with the first microbatch.
    Raises ValueError for a stage that is not this process's.
    """

    def __init__(self, submodule: Module, stage_index: int, num_stages: int, device: Any, input_args: Any = None, output_args: Any = None,
                 group: Any = None, dw_builder: Any = None) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.group = world.of(group)
        if self.group.size() != num_stages or self.group.rank() != stage_index:
            raise ValueError(f"PipelineStage: each process of the group has the stage of its number; this is process {self.group.rank()} of "
                             f"{self.group.size()}, and stage {stage_index} of {num_stages}")
        self.submod, self.stage_index, self.num_stages, self.device = submodule, stage_index, num_stages, device
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._shapes: list[tuple[tuple[int, ...], Any]] | None = None
        self._told = False
        self._sent: list[Work] = []
        self._kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    # ------------------------------------------------------------------------------------------------ messages
    def _send(self, tensors: list[Tensor], to: int) -> None:
        for t in tensors:
            work = messages.isend(t.detach().contiguous(), group=self.group, group_dst=to)
            if work is not None:
                self._sent.append(work)

    def _tell(self, tensors: list[Tensor]) -> None:
        """The shapes of what goes to the next stage."""
        row = [len(tensors)]
        for t in tensors:
            row += [_TYPES.index(t.dtype), t.ndim, *t.shape]
        if len(row) > _ROOM:
            raise ValueError(f"PipelineStage: a stage gives too many tensors to tell of ({len(tensors)})")
        self._send([ops.tensor([*row, *[0] * (_ROOM - len(row))], device=self.device)], self.stage_index + 1)
        self._told = True

    def _receive(self, t: Tensor, source: int) -> Tensor:
        messages.recv(t, group=self.group, group_src=source)
        return t

    def _inputs(self) -> list[Tensor]:
        source = self.stage_index - 1
        if self._shapes is None:
            row = self._receive(ops.zeros(_ROOM, dtype=dtypes.int64, device=self.device), source).tolist()
            self._shapes, at = [], 1
            for _ in range(row[0]):
                n = row[at + 1]
                self._shapes.append((tuple(row[at + 2:at + 2 + n]), _TYPES[row[at]]))
                at += 2 + n
        found = [self._receive(ops.empty(shape, dtype=d, device=self.device), source) for shape, d in self._shapes]
        return [t.requires_grad_(t.is_floating_point()) for t in found]

    # ------------------------------------------------------------------------------------------------ passes
    def forward_one_chunk(self, index: int, args: Any, kwargs: Any) -> Any:
        """The forward pass of a microbatch; gives the stage's output."""
        inputs = list(args) if self.is_first else self._inputs()
        found = self.submod(*inputs, **kwargs)
        outputs = list(found) if isinstance(found, tuple | list) else [found]
        if not self.is_last:
            if not self._told:
                self._tell(outputs)
            self._send(outputs, self.stage_index + 1)
        self._kept[index] = [] if self.is_first else inputs, outputs
        return found

    def backward_one_chunk(self, index: int, loss: Any = None) -> None:
        """The backward pass of a microbatch."""
        inputs, outputs = self._kept.pop(index)
        if self.is_last:
            loss.backward()
        else:
            moving = [t for t in outputs if t.is_floating_point()]
            grads = [self._receive(ops.empty_like(t.detach()).contiguous(), self.stage_index + 1) for t in moving]
            pairs = [(t, g) for t, g in zip(moving, grads) if t.requires_grad]
            if pairs:
                backward([t for t, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            self._send([ops.zeros_like(t) if t.grad is None else t.grad for t in inputs if t.is_floating_point()], self.stage_index - 1)

    def settle(self) -> None:
        """Waits until what was sent is gone, and forgets shapes."""
        for work in self._sent:
            work.wait()
        self._sent.clear()
        self._kept.clear()
        self._shapes, self._told = None, False
