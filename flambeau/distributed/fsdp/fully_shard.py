"""`fully_shard`: a module whose parameters, gradients and optimizer state lie in pieces on the processes of a mesh.

J. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023), on parameters that are DTensors each.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..._core.autograd import tape
from ..._core.autograd.saved import active, saved_tensors_hooks
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from ...autograd import is_grad_enabled
from ...nn.containers import ModuleDict, ModuleList
from ...nn.distributed import cast, of_tensors
from ...nn.module import Module
from ...utils import checkpoint
from .. import world
from ..device_mesh import DeviceMesh, init_device_mesh
from .group import Group, packed, unpacked
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_running: list[State] = []  # the modules whose forward is under way


class State:
    """What `fully_shard` adds to a module."""

    def __init__(self, group: Group | None, policy: MixedPrecisionPolicy, reshard: bool | int | None) -> None:
        self.group, self.policy, self.reshard = group, policy, reshard
        self.begun: Any = None  # on a GPU: when the last pass of the outermost module began
        self.ahead: list[Any] = []
        self.back: list[Any] = []

    def reshards(self) -> bool:
        """Whether it is dropped after its forward: all but the outermost, unless told."""
        return bool(self.reshard) if self.reshard is not None else len(_running) > 1 or not is_grad_enabled()

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """A forward pass of the module."""
        _running.append(self)
        if len(_running) == 1 and self.group is not None and self.group.mesh.device_type == "cuda":
            self._not_too_far_ahead()
        # hooks that are there already are a module's around this one, a checkpoint's, which keeps nothing, or the program's, which are to see everything
        hooks: Any = saved_tensors_hooks(packed, unpacked) if active() is None and is_grad_enabled() else contextlib.nullcontext()
        try:
            if self.group is not None:
                self.group.use()
            for m in self.ahead:
                if m._fsdp.group is not None:
                    m._fsdp.group.begin()
            with hooks:
                yield
        finally:
            if self.group is not None and self.reshards():
                self.group.drop()
            _running.pop()

    def _not_too_far_ahead(self) -> None:
        """Waits for the beginning of the pass before: what is gathered is not free before the streams are through, and a host that does not wait would
        have the memory of many passes taken at once."""
        from ... import cuda
        if self.begun is not None:
            self.begun.synchronize()
        self.begun = cuda.Event()
        self.begun.record()

    def cast(self, value: Any, d: Any) -> Any:
        """Floating tensors in a structure in another type."""
        return of_tensors(value, lambda t: cast(t, d))

    def run(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A method of the module, on whole parameters."""
        if self.policy.cast_forward_inputs and self.policy.param_dtype is not None:
            args, kwargs = self.cast(args, self.policy.param_dtype), self.cast(kwargs, self.policy.param_dtype)
        with self.forward():
            found = call(*args, **kwargs)
        return found if self.policy.output_dtype is None else self.cast(found, self.policy.output_dtype)


def _around() -> Callable[[], None]:
    """Before a checkpointed part of the module that runs now is made again: its parameters are to be whole, as they were."""
    group = _running[-1].group if _running else None

    def again() -> None:
        if group is not None:
            group.use()
            if tape.running_pass() is not None:
                tape.at_end(group.drop)
    return again


checkpoint.surroundings.append(_around)


class UnshardHandle:
    """What `FSDPModule.unshard(async_op=True)` gives."""

    def __init__(self, group: Group | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Waits until the parameters are whole."""
        if self._group is not None:
            self._group.use()
            self._group = None


class FSDPModule(Module):
    """What a module is too after `fully_shard`."""

    _fsdp: State

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A new module of the class that was sharded."""
        plain = cls.__mro__[2]
        return plain(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fsdp.run(super().__call__, args, kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.reshard()
        return super()._apply(fn, recurse)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The parameters' pieces, as DTensors."""
        _each(self, lambda g: g.drop())
        return super().state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Takes DTensors that lie as the parameters do, or with ``assign=True`` in their place."""
        _each(self, lambda g: g.drop())
        return super().load_state_dict(*args, **kwargs)

    def reshard(self) -> None:
        """Drops the whole parameters."""
        if self._fsdp.group is not None:
            self._fsdp.group.drop()

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the parameters; with `async_op` they are whole after `wait` of what it gives."""
        group = self._fsdp.group
        if group is None:
            return UnshardHandle(None) if async_op else None
        if async_op:
            group.begin()
            return UnshardHandle(group)
        group.use()
        return None

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes reduce gradients; those of passes that do not are kept whole, and reduced with the next that does."""
        self._set("sync", requires_gradient_sync, recurse)

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Of a mesh of two axes: whether gradients are reduced among the copies too."""
        self._set("all_reduce", requires_all_reduce, recurse)

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether parameters are dropped after the forward pass."""
        for m in _sharded(self) if recurse else [self]:
            m._fsdp.reshard = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether parameters are dropped after the backward pass."""
        self._set("reshard_after_backward", reshard_after_backward, recurse)

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What sums of gradients are divided by, instead of the number of processes."""
        self._set("factor", float(factor), False)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted: every backward pass leaves all in order."""

    def set_modules_to_forward_prefetch(self, modules: Sequence[Any]) -> None:
        """Sharded modules that are gathered while this one's forward runs."""
        self._fsdp.ahead = _checked(modules, "set_modules_to_forward_prefetch")

    def set_modules_to_backward_prefetch(self, modules: Sequence[Any]) -> None:
        """Accepted: in the backward pass parameters are gathered when the first operation asks for them."""
        self._fsdp.back = _checked(modules, "set_modules_to_backward_prefetch")

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Accepted: parameters are gathered in the backward pass where an operation needs them, and only there."""

    def set_post_optim_event(self, event: Any) -> None:
        """Accepted: gathering begins on the current stream, behind the optimizer."""

    def _set(self, name: str, value: Any, recurse: bool) -> None:
        for m in _sharded(self) if recurse else [self]:
            if m._fsdp.group is not None:
                setattr(m._fsdp.group, name, value)


def _checked(modules: Sequence[Any], name: str) -> list[Any]:
    for m in modules:
        if not isinstance(m, FSDPModule):
            raise ValueError(f"{name}: expects FSDPModules (fully_shard was called on them), got {type(m).__name__}")
    return list(modules)


def _sharded(module: Module) -> list[Any]:
    return [m for m in module.modules() if isinstance(m, FSDPModule)]


def _each(module: Module, do: Callable[[Group], Any]) -> None:
    for m in _sharded(module):
        if m._fsdp.group is not None:
            do(m._fsdp.group)


_classes: dict[type, type] = {}


def _default_mesh(module: Module) -> DeviceMesh:
    from ... import cuda
    kind = "cuda" if world.is_initialized() and world.get_backend() == "nccl" or (not world.is_initialized() and cuda.is_available()) else next(
        (p.device.type for p in module.parameters() if p.device.type != "meta"), "cpu")
    if not world.is_initialized():
        world.init_process_group()
    return init_device_mesh(kind, (world.get_world_size(),))


def _unmanaged(module: Module, ignored: set[int]) -> list[tuple[Tensor, list[tuple[Module, str]]]]:
    """The parameters that no sharded module below has, each with its places."""
    found: dict[int, tuple[Tensor, list[tuple[Module, str]]]] = {}
    taken: set[int] = set()

    def walk(m: Module, top: bool) -> None:
        if id(m) in taken or (not top and isinstance(m, FSDPModule)):
            return
        taken.add(id(m))
        for name, p in m._parameters.items():
            if p is not None and id(p) not in ignored:
                found.setdefault(id(p), (p, []))[1].append((m, name))
        for child in m.children():
            walk(child, False)
    walk(module, True)
    return list(found.values())


def fully_shard(module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None, shard_placement_fn: Any = None,
                mp_policy: MixedPrecisionPolicy | None = None, offload_policy: OffloadPolicy | None = None, ignored_params: Any = None) -> Any:
    """Cuts the parameters of a module, but for those of modules below that are sharded already, over a mesh; returns the module.

    The module's class becomes one that is an `FSDPModule` too; its parameters become DTensors, Shard(0) unless ``shard_placement_fn(parameter)`` gives
    another shard.  They are whole while its forward runs, and in the backward pass where they are needed; gradients are averaged over the processes.
    mesh: of one axis, or of two, copies and shards; all processes without.  reshard_after_forward: drop the whole parameters after the forward pass; None:
    all modules but the outermost.

    Raises ValueError for a list or container without a forward, a mesh of more axes, or a module that is sharded already.
    """
    modules = list(module) if isinstance(module, list | tuple) else [module]
    for m in modules:
        if isinstance(m, ModuleList | ModuleDict):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {m}")
        if isinstance(m, FSDPModule):
            raise ValueError(f"fully_shard: {type(m).__name__} is sharded already")
    mesh = mesh or _default_mesh(modules[0])
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")
    policy = mp_policy or MixedPrecisionPolicy()
    ignored = {id(p) for p in ignored_params or ()}
    named: list[Any] = []
    for m in modules:
        for p, places in _unmanaged(m, ignored):
            known = next((k for q, k in named if q is p), None)
            if known is None:
                named.append((p, places))
            else:
                known.extend(x for x in places if x not in known)
    for m in modules:
        for b in m.buffers():
            if b.device.type != mesh.device_type and b.device.type != "meta":
                b.data = unasked(b.data.to)(mesh.device_type)
    group = Group(named, mesh, policy, shard_placement_fn, isinstance(offload_policy, CPUOffloadPolicy)) if named else None
    for m in modules:
        kind = type(m)
        if kind not in _classes:
            _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__, "__qualname__": f"FSDP{kind.__qualname__}"})
        m.__class__ = _classes[kind]
        object.__setattr__(m, "_fsdp", State(group, policy, reshard_after_forward))
    return module


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Has another method than `forward` run on whole parameters.  Raises ValueError where there is none of the name."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    own = getattr(module, method_name)
    object.__setattr__(module, method_name, lambda *args, **kwargs: module._fsdp.run(own, args, kwargs))


__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
