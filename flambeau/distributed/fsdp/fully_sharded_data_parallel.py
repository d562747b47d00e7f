"""`FullyShardedDataParallel`: the older face of `fully_shard`, a module around a module."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..._core.runtime.asking import unasked
from ..._core.runtime.device import device as Device
from ..._core.tensor import Tensor
from ...autograd import no_grad
from ...nn.module import Module
from ...nn.utils.clip_grad import clip_grad_norm_
from .. import collectives, world
from ..checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from ..device_mesh import DeviceMesh, init_device_mesh
from ..tensor.dtensor import DTensor, distribute_tensor
from .api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .fully_shard import FSDPModule, _each, _sharded, fully_shard
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy
from .wrap import units

if TYPE_CHECKING:
    from collections.abc import Iterator

_INNER = "_fsdp_wrapped_module."


class FullyShardedDataParallel(Module):
    """Runs a module whose parameters lie in pieces; `fully_shard` says how.

    module: what is wrapped.  process_group or device_mesh: the processes, all without.  sharding_strategy: see `ShardingStrategy`.
    auto_wrap_policy: submodules that are units of their own.  mixed_precision: a `MixedPrecision`.  device_id: where the module goes.
    sync_module_states: process 0's values are used.  cpu_offload: a `CPUOffload`.  Parameters always are the original ones, in pieces.
    `state_dict` gives wholes, unless `state_dict_type` says otherwise.
    """

    _fsdp_wrapped_module: Module

    def __init__(self, module: Module, process_group: Any = None, sharding_strategy: ShardingStrategy | None = None, cpu_offload: CPUOffload | None = None,
                 auto_wrap_policy: Any = None, backward_prefetch: Any = BackwardPrefetch.BACKWARD_PRE, mixed_precision: MixedPrecision | None = None,
                 ignored_modules: Any = None, param_init_fn: Any = None, device_id: Any = None, sync_module_states: bool = False,
                 forward_prefetch: bool = False, limit_all_gathers: bool = True, use_orig_params: bool = False, ignored_states: Any = None,
                 device_mesh: DeviceMesh | None = None) -> None:
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self.sharding_strategy = strategy
        self._state_settings = StateDictSettings()
        if device_id is not None:
            unasked(module.to)(Device("cuda", device_id) if isinstance(device_id, int) else Device(device_id))
        kind = next((p.device.type for p in module.parameters()), "cpu")
        mesh = device_mesh or _mesh(process_group, strategy, kind)
        self.process_group = mesh.get_group(mesh.ndim - 1)
        if param_init_fn is not None:
            for m in module.modules():
                if any(p.is_meta for p in m._parameters.values() if p is not None):
                    param_init_fn(m)
        if sync_module_states:
            with no_grad():
                for t in (*module.parameters(), *module.buffers()):
                    for g in mesh.get_all_groups():
                        collectives.broadcast(t.detach(), group=g, group_src=0)
        given = mixed_precision or MixedPrecision()
        policy = MixedPrecisionPolicy(given.param_dtype, given.reduce_dtype, None, given.cast_forward_inputs or given.cast_root_forward_inputs)
        ignored = {id(p) for x in (*(ignored_modules or ()), *(ignored_states or ())) for p in (x.parameters() if isinstance(x, Module) else (x,))}
        options: dict[str, Any] = {
            "mesh": mesh, "mp_policy": policy, "ignored_params": [p for p in module.parameters() if id(p) in ignored],
            "offload_policy": CPUOffloadPolicy() if cpu_offload is not None and cpu_offload.offload_params else None,
            "reshard_after_forward": False if strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2) else None}
        if given.buffer_dtype is not None:
            for b in module.buffers():
                if b.is_floating_point():
                    b.data = b.data.to(given.buffer_dtype)
        if auto_wrap_policy is not None:
            for m in units(module, auto_wrap_policy):
                if not isinstance(m, FSDPModule):
                    fully_shard(m, **options)
        self._fsdp_wrapped_module = module if isinstance(module, FSDPModule) else fully_shard(module, **options)

    @property
    def module(self) -> Module:
        """The module that is wrapped."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._fsdp_wrapped_module(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """The parameters, by their names in the module that is wrapped."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_INNER, ""), p

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block in which gradients are added up whole, on each process alone."""
        _each(self, lambda g: setattr(g, "sync", False))
        try:
            yield
        finally:
            _each(self, lambda g: setattr(g, "sync", True))

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales all gradients so that their norm together is at most `max_norm`; gives the norm before, a plain tensor."""
        found = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return found.full_tensor() if isinstance(found, DTensor) else found

    # ------------------------------------------------------------------------------------------------ state
    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[Any]:
        """The units in a module."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)] or _sharded(module)
        return found[:1] if root_only else found

    @staticmethod
    def set_state_dict_type(module: Module, state_dict_type: StateDictType, state_dict_config: Any = None, optim_state_dict_config: Any = None) -> Any:
        """What `state_dict` and `optim_state_dict` give from now on; gives what it was."""
        configs: dict[StateDictType, Any] = {StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
                                             StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
                                             StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig)}
        kind, of_optimizers = configs[state_dict_type]
        made = StateDictSettings(state_dict_type, state_dict_config or kind(), optim_state_dict_config or of_optimizers())
        before = StateDictSettings()
        for m in module.modules():
            if isinstance(m, FullyShardedDataParallel):
                before, m._state_settings = m._state_settings, made
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What `state_dict` gives."""
        return next((m._state_settings for m in module.modules() if isinstance(m, FullyShardedDataParallel)), StateDictSettings())

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module: Module, state_dict_type: StateDictType, state_dict_config: Any = None, optim_state_dict_config: Any = None) -> Iterator[None]:
        """A block of `set_state_dict_type`."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            FullyShardedDataParallel.set_state_dict_type(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's state by the names of what is wrapped: wholes, pieces or DTensors, as `state_dict_type` says."""
        _each(self, lambda g: g.drop())
        settings = self._state_settings
        found: dict[str, Any] = {}
        alone = getattr(settings.state_dict_config, "rank0_only", False) and world.get_rank() != 0
        for name, t in super().state_dict(*args, **kwargs).items():
            if isinstance(t, DTensor):
                t = t.full_tensor() if settings.state_dict_type is StateDictType.FULL_STATE_DICT else \
                    t.to_local() if settings.state_dict_type is StateDictType.LOCAL_STATE_DICT else t
            if not alone:
                found[name.replace(_INNER, "")] = unasked(t.cpu)() if settings.state_dict_config.offload_to_cpu else t
        return found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Takes wholes, the same on all processes, or DTensors."""
        _each(self, lambda g: g.drop())
        names = {n.replace(_INNER, ""): n for n in super().state_dict()}
        now: dict[str, Any] = dict(super().named_parameters())
        given = {}
        for name, t in state_dict.items():
            p = now.get(names.get(name, ""), None)
            if isinstance(p, DTensor) and not isinstance(t, DTensor):
                t = distribute_tensor(t.detach(), p.device_mesh, p.placements, src_data_rank=None)
            given[names.get(name, name)] = t
        return super().load_state_dict(given, strict, assign)

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module: Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False, offload_to_cpu: bool = False,
                           with_grads: bool = False) -> Iterator[None]:
        """A block in which parameters are whole; what is written to them is kept with `writeback`."""
        groups = [m._fsdp.group for m in _sharded(module) if m._fsdp.group is not None]
        with no_grad():
            for g in groups:
                g.use()
        try:
            yield
        finally:
            with no_grad():
                for g in groups:
                    if writeback and not rank0_only:
                        for w, t in zip(g.members, g.wholes or ()):
                            own = w.piece._local_tensor
                            start = g.shards.rank() * w.rows(g.n)
                            unasked(own.copy_)(t.narrow(w.dim, min(start, w.shape[w.dim]), own.shape[w.dim]))
                    g.drop()

    @staticmethod
    def optim_state_dict(model: Module, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """The optimizer's state by the parameters' names: wholes, or DTensors where `state_dict_type` says so."""
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        found = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=full, cpu_offload=full))
        return {} if getattr(settings.optim_state_dict_config, "rank0_only", False) and world.get_rank() != 0 else found

    @staticmethod
    def full_optim_state_dict(model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None) -> dict[str, Any]:
        """The optimizer's state, whole."""
        found = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        return {} if rank0_only and world.get_rank() != 0 else found

    @staticmethod
    def optim_state_dict_to_load(model: Module, optim: Any, optim_state_dict: dict[str, Any], is_named_optimizer: bool = False,
                                 load_directly: bool = False, group: Any = None) -> Any:
        """What the optimizer's `load_state_dict` takes, of what `optim_state_dict` gave."""
        set_optimizer_state_dict(model, optim, optim_state_dict, options=StateDictOptions(full_state_dict=True))
        return optim.state_dict()


def _mesh(group: Any, strategy: ShardingStrategy, kind: str) -> DeviceMesh:
    if isinstance(group, tuple):
        shards, copies = group
        rows = [[r + k for r in shards._ranks] for k in range(0, copies.size() * shards.size(), shards.size())]
        return DeviceMesh(kind, rows, mesh_dim_names=("replicate", "shard"), _groups=[copies, shards])
    if group is not None:
        return DeviceMesh.from_group(group, kind)
    size = world.of(None).size()
    if strategy is ShardingStrategy.NO_SHARD:
        return init_device_mesh(kind, (size, 1), mesh_dim_names=("replicate", "shard"))
    if strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
        import os
        local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        return init_device_mesh(kind, (size // local, local), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(kind, (size,))


__all__ = ["BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel", "LocalOptimStateDictConfig",
           "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
           "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType"]
