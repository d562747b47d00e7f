"""How one module is cut, and what becomes of its inputs and outputs (torch.distributed.tensor.parallel)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...._core.tensor import Tensor
from ....nn.linear import Linear
from ....nn.module import Module
from ....nn.parameter import Parameter
from ....nn.sparse import Embedding
from ..dtensor import DTensor, distribute_tensor
from ..modules import distribute_module
from ..placement_types import Placement, Replicate, Shard

if TYPE_CHECKING:
    from ...device_mesh import DeviceMesh


class ParallelStyle:
    """Base of styles: `_apply` cuts a module over a mesh of one axis."""

    src_data_rank: int | None = 0

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        raise NotImplementedError

    def _cut(self, module: Module, mesh: DeviceMesh, placements: dict[str, Placement]) -> None:
        """Distributes a module's own parameters; those not named are replicated."""
        for name, p in list(module._parameters.items()):
            if p is not None:
                cut = distribute_tensor(p, mesh, [placements.get(name, Replicate())], src_data_rank=self.src_data_rank)
                module._parameters[name] = Parameter(cut, p.requires_grad)


def entered(x: Any, mesh: DeviceMesh, layout: Any, wanted: Any) -> Any:
    """A tensor that lies by `layout`, as a DTensor that lies as wanted."""
    if not isinstance(x, DTensor):
        x = DTensor.from_local(x, mesh, [layout], run_check=False)
    return x if wanted is None or x.placements == (wanted,) else x.redistribute(mesh, [wanted])


def left(x: Any, mesh: DeviceMesh, wanted: Any, local: bool) -> Any:
    """A DTensor that lies as wanted, or its piece."""
    if x.placements != (wanted,):
        x = x.redistribute(mesh, [wanted])
    return x.to_local() if local else x


class _Cut(ParallelStyle):
    """What ColwiseParallel and RowwiseParallel share: parameters by the kind of module, one input and one output."""

    linear: dict[str, Placement]
    embedding: dict[str, Placement]
    _input_default: Placement
    _output_default: Placement

    def __init__(self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True) -> None:
        super().__init__()
        self.input_layouts = (input_layouts or self._input_default,)
        self.output_layouts = (output_layouts or self._output_default,)
        self.use_local_output = use_local_output

    def _desired(self, module: Module) -> Placement:
        return Replicate()

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if not isinstance(module, Linear | Embedding):
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!")
        plan = self.linear if isinstance(module, Linear) else self.embedding
        wanted = self._desired(module)

        def prepare(inputs: Any, mesh: DeviceMesh) -> Any:
            return entered(inputs[0], mesh, self.input_layouts[0], wanted)
        return distribute_module(module, device_mesh, lambda name, m, mesh: self._cut(m, mesh, plan), lambda m, i, mesh: prepare(i, mesh),
                                 lambda m, out, mesh: left(out, mesh, self._out(out), self.use_local_output))

    def _out(self, out: Any) -> Any:
        p: Any = self.output_layouts[0]
        return Shard(p.dim + out.ndim) if p.is_shard() and p.dim < 0 else p

    def __repr__(self) -> str:
        return f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts}, use_local_output={self.use_local_output})"


class ColwiseParallel(_Cut):
    """A Linear whose outputs, or an Embedding whose columns, are in pieces.

    input_layouts: how the input lies (Replicate()); it is used replicated.  output_layouts: how the output shall lie (Shard(-1)).
    use_local_output: the output is a plain tensor, the piece.
    """

    linear = {"weight": Shard(0), "bias": Shard(0)}
    embedding = {"weight": Shard(1)}
    _input_default, _output_default = Replicate(), Shard(-1)


class RowwiseParallel(_Cut):
    """A Linear whose inputs, or an Embedding whose rows, are in pieces: the output is a sum over the processes.

    input_layouts: how the input lies (Shard(-1)).  output_layouts: how the output shall lie (Replicate()).
    """

    linear = {"weight": Shard(1)}
    embedding = {"weight": Shard(0)}
    _input_default, _output_default = Shard(-1), Replicate()

    def _desired(self, module: Module) -> Any:
        return None if isinstance(module, Linear) else Replicate()

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        made = super()._apply(module, device_mesh)
        if isinstance(module, Linear):  # whatever way the input came, it is used cut along its last axis
            module.register_forward_pre_hook(lambda m, inputs: (entered(inputs[0], device_mesh, None, Shard(inputs[0].ndim - 1)),))
        return made


class SequenceParallel(ParallelStyle):
    """A module that works on each position by itself (LayerNorm, Dropout, RMSNorm), on inputs in pieces along `sequence_dim`; its parameters are
    replicated."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        wanted = self.sequence_sharding[0]

        def prepare(m: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            x = inputs[0]
            if not isinstance(x, Tensor):
                raise ValueError(f"expecting input of {m} to be a torch.Tensor or DTensor, but got {x}")
            return entered(x, mesh, wanted, wanted)
        return distribute_module(module, device_mesh, lambda name, m, mesh: self._cut(m, mesh, {}), prepare,
                                 lambda m, out, mesh: out.to_local() if self.use_local_output else out)


def _layouts(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, Placement) else tuple(given or ())


class PrepareModuleInput(ParallelStyle):
    """Makes DTensors of a module's inputs, and moves them.

    input_layouts: how each positional input lies; None for one that is left as it is.  desired_input_layouts: how it shall lie.
    input_kwarg_layouts, desired_input_kwarg_layouts: the same by names.  use_local_output: the module gets the pieces.
    Raises AssertionError where the two do not name as many inputs, ValueError for a call with another number.
    """

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: Any = None,
                 desired_input_kwarg_layouts: Any = None, use_local_output: bool = False) -> None:
        self.input_layouts, self.desired_input_layouts = _layouts(input_layouts), _layouts(desired_input_layouts)
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        if len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _one(self, x: Any, mesh: DeviceMesh, layout: Any, wanted: Any) -> Any:
        if layout is None or not isinstance(x, Tensor):
            return x
        made = entered(x, mesh, layout, wanted)
        return made.to_local() if self.use_local_output else made

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(m: Module, inputs: Any, named: Any) -> Any:
            if self.input_layouts:
                if len(inputs) != len(self.input_layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                inputs = tuple(self._one(x, device_mesh, p, q) for x, p, q in zip(inputs, self.input_layouts, self.desired_input_layouts))
            named = {k: self._one(x, device_mesh, self.input_kwarg_layouts.get(k), self.desired_input_kwarg_layouts.get(k)) for k, x in named.items()}
            return inputs, named
        module.register_forward_pre_hook(prepare, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Makes DTensors of a module's outputs, and moves them; `PrepareModuleInput` says how."""

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _layouts(output_layouts), _layouts(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def leave(m: Module, inputs: Any, outputs: Any) -> Any:
            several = isinstance(outputs, tuple)
            found = outputs if several else (outputs,)
            if len(found) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            made = []
            for x, p, q in zip(found, self.output_layouts, self.desired_output_layouts):
                if p is not None:
                    x = entered(x, device_mesh, p, q)
                    x = x.to_local() if self.use_local_output else x
                made.append(x)
            return tuple(made) if several else made[0]
        module.register_forward_hook(leave)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` of one module."""

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: Any = None,
                 desired_input_kwarg_layouts: Any = None, use_local_input: bool = False, output_layouts: Any, desired_output_layouts: Any,
                 use_local_output: bool = True) -> None:
        self.prepare_module_input = PrepareModuleInput(input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
                                                       input_kwarg_layouts=input_kwarg_layouts, desired_input_kwarg_layouts=desired_input_kwarg_layouts,
                                                       use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
                                                         use_local_output=use_local_output)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        return self.prepare_module_output._apply(self.prepare_module_input._apply(module, device_mesh), device_mesh)
