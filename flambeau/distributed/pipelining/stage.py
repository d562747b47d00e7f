"""One part of a model, on one process: its passes forward and back, on tensors that others have made."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.tensor import Tensor
from ...autograd import backward
from ...nn.distributed import DistributedDataParallel
from .. import world
from ..fsdp.fully_shard import FSDPModule

if TYPE_CHECKING:
    from ...nn.module import Module


class PipelineStage:
    """A stage.

    submodule: its part of the model.  stage_index, num_stages: which part it is; the group's processes have the stages in turn, so that process r of n has
    the stages r, n + r, 2n + r ...  device: where it lies.  group: the default one without.
    input_args, output_args, output_grads, input_grads: accepted; shapes are told with the first microbatch.
    Raises ValueError for a stage that is not this process's.
    """

    def __init__(self, submodule: Module, stage_index: int, num_stages: int, device: Any, input_args: Any = None, output_args: Any = None,
                 output_grads: Any = None, input_grads: Any = None, group: Any = None, dw_builder: Any = None, get_mesh: Any = None) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.group = world.of(group)
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if num_stages % self.group_size or stage_index % self.group_size != self.group_rank:
            raise ValueError(f"PipelineStage: the processes of the group have the stages in turn; this is process {self.group_rank} of "
                             f"{self.group_size}, and stage {stage_index} of {num_stages}")
        self.submod, self.stage_index, self.num_stages, self.device = submodule, stage_index, num_stages, device
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    def forward_one_chunk(self, index: int, args: Any, kwargs: Any) -> Any:
        """The forward pass of a microbatch; gives the stage's output.  args: the batch's, or what the stage before gave."""
        inputs = list(args) if self.is_first else [t.detach().requires_grad_(t.is_floating_point()) for t in args]
        found = self.submod(*inputs, **kwargs)
        self._kept[index] = [] if self.is_first else inputs, list(found) if isinstance(found, tuple | list) else [found]
        return found

    def given(self, index: int) -> list[Tensor]:
        """What the next stage gets of a microbatch."""
        return [t.detach().contiguous() for t in self._kept[index][1]]

    def backward_one_chunk(self, index: int, loss: Any = None, grads: list[Tensor] | None = None, last: bool = True) -> list[Tensor]:
        """The backward pass of a microbatch; gives the gradients of what the stage before gave.

        loss: the last stage's.  grads: of the other stages' floating outputs.  last: none follows, so that gradients are reduced among copies and pieces.
        """
        inputs, outputs = self._kept.pop(index)
        with self._synchronized(last):
            if self.is_last:
                loss.backward()
            else:
                pairs = [(t, g) for t, g in zip([t for t in outputs if t.is_floating_point()], grads or ()) if t.requires_grad]
                if pairs:
                    backward([t for t, _ in pairs], [g for _, g in pairs])
        return [ops.zeros_like(t) if t.grad is None else t.grad.contiguous() for t in inputs if t.is_floating_point()]

    @contextlib.contextmanager
    def _synchronized(self, last: bool) -> Any:
        """Of a module that other processes share: reduces gradients in the last pass alone."""
        if isinstance(self.submod, DistributedDataParallel) and not last:
            with self.submod.no_sync():
                yield
            return
        shared: Any = self.submod if isinstance(self.submod, FSDPModule) else None
        if shared is not None:
            shared.set_requires_gradient_sync(last)
        yield

    def forget(self) -> None:
        """Drops what is kept of microbatches."""
        self._kept.clear()


_PipelineStageBase = PipelineStage
__all__ = ["PipelineStage"]
