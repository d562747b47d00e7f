"""`ZeroRedundancyOptimizer`: each process keeps the optimizer's state of some parameters, steps those, and sends them to the others.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020), stage 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from ...autograd import enable_grad, no_grad
from ...optim.optimizer import Optimizer
from .. import collectives, objects, world

if TYPE_CHECKING:
    from collections.abc import Callable


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state lies in parts on the processes of a group; gradients must be the same on all, as after DistributedDataParallel.

    params: as for any optimizer.  optimizer_class: the optimizer of each part, made with the other keywords.  process_group: the default one without.
    parameters_as_bucket_view: accepted.  overlap_with_ddp is not there: NotImplementedError.
    """

    def __init__(self, params: Any, optimizer_class: Any, process_group: Any = None, parameters_as_bucket_view: bool = False,
                 overlap_with_ddp: bool = False, **defaults: Any) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not there; leave it out")
        self.process_group = world.of(process_group)
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self._optim_class, self._options = optimizer_class, defaults
        self.optim: Any = None
        self._whole: dict[str, Any] | None = None
        super().__init__(params, defaults)
        self._divide()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, which is dealt out anew with the others."""
        super().add_param_group(param_group)
        if self.optim is not None:
            self._divide()

    def _divide(self) -> None:
        """Deals parameters out, the largest first, each to the process that has least; and makes the optimizer of this process's."""
        before = {} if self.optim is None else dict(self.optim.state)
        self._owner: dict[int, int] = {}
        loads = [0] * self.world_size
        for group in self.param_groups:
            for p in sorted(group["params"], key=lambda p: -p.numel()):
                r = loads.index(min(loads))
                self._owner[id(p)] = r
                loads[r] += p.numel()
        own = [{**{k: v for k, v in g.items() if k != "params"}, "params": [p for p in g["params"] if self._owner[id(p)] == self.rank]}
               for g in self.param_groups]
        if not any(g["params"] for g in own):  # an optimizer wants one
            own = [{**own[0], "params": [ops.zeros(1, requires_grad=True)]}, *own[1:]]
        self.optim = self._optim_class(own, **self._options)
        for p, state in before.items():
            if self._owner.get(id(p)) == self.rank:
                self.optim.state[p] = state
        for group, part in zip(self.param_groups, self.optim.param_groups):
            for k, v in part.items():
                if k != "params":
                    group.setdefault(k, v)

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Steps this process's parameters; then all have all."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group, part in zip(self.param_groups, self.optim.param_groups):
            part.update({k: v for k, v in group.items() if k != "params"})
        self.optim.step(**kwargs)
        for group, part in zip(self.param_groups, self.optim.param_groups):
            group.update({k: v for k, v in part.items() if k != "params"})
        self._share()
        return loss

    def _share(self) -> None:
        works = []
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if self.world_size > 1:
                        works.append(collectives.broadcast(p.detach(), group=self.process_group, group_src=self._owner[id(p)], async_op=True))
            for work in works:
                if work is not None:
                    work.wait()

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings the whole state to process `to`, where `state_dict` gives it; all call it."""
        numbers = self._numbers()
        mine = {numbers[id(p)]: {k: unasked(v.detach().cpu)() if isinstance(v, Tensor) else v for k, v in values.items()}
                for p, values in self.optim.state.items() if id(p) in numbers}
        found: list[Any] = [None] * self.world_size
        root = world.member(self.process_group, to, "to")
        objects.gather_object(mine, found if self.rank == root else None, group=self.process_group, group_dst=root)
        self._whole = None
        if self.rank == root:
            self._whole = {}
            for part in found:
                self._whole.update(part)

    def _numbers(self) -> dict[int, int]:
        return {id(p): k for k, p in enumerate(p for g in self.param_groups for p in g["params"])}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, on the process that `consolidate_state_dict` brought it to.  Raises RuntimeError on others."""
        if self._whole is None:
            raise RuntimeError("Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to=...)` on all ranks beforehand "
                               "if you meant to save the global state.")
        numbers = self._numbers()
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        return {"state": {k: self._saved(v) for k, v in sorted(self._whole.items())}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a whole state; each process keeps its part."""
        super().load_state_dict(state_dict)
        for p, values in list(self.state.items()):
            if self._owner.get(id(p)) == self.rank:
                self.optim.state[p] = values
        self.state.clear()
        for group, part in zip(self.param_groups, self.optim.param_groups):
            part.update({k: v for k, v in group.items() if k != "params"})
