"""State of models and optimizers by the parameters' plain names, in pieces or whole (torch.distributed.checkpoint.state_dict)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from ...autograd import no_grad
from ...nn.distributed import DistributedDataParallel
from ...nn.parameter import Parameter
from .. import collectives, objects, world
from ..tensor.dtensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from ...nn.module import Module

# what wrappers put into names
_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors instead of DTensors.  cpu_offload: in the host's memory, and of whole ones on process 0 alone.
    ignore_frozen_params: without parameters that require no gradient.  strict: names must match.
    broadcast_from_rank0: only process 0 gives the state, whole.  flatten_optimizer_state_dict: one level of names."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"
    fsdp_modules: Any = field(default=None, repr=False)


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers put into it."""
    for part in _WRAPPERS:
        name = name.replace(part, "")
    return name


def unwrapped(model: Module) -> Module:
    """The module that wrappers of whole models are around."""
    from ..fsdp.fully_sharded_data_parallel import FullyShardedDataParallel
    while isinstance(model, DistributedDataParallel | FullyShardedDataParallel):
        model = model.module
    return model


def _rank() -> int:
    return world.get_rank() if world.is_initialized() else 0


def _shown(value: Any, options: StateDictOptions) -> Any:
    """A value of a state dictionary as the options want it; a collective for DTensors."""
    if isinstance(value, DTensor) and options.full_state_dict:
        value = value.full_tensor()
    if isinstance(value, Tensor):
        value = value.detach()
        if options.cpu_offload:
            value = unasked(value.cpu)() if not isinstance(value, DTensor) else unasked(value.to)("cpu")
    return value


def _hidden(options: StateDictOptions) -> bool:
    """Whether this process is not given what is whole."""
    return options.full_state_dict and options.cpu_offload and _rank() != 0


def get_model_state_dict(model: Module, *, submodules: Any = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """A model's state by plain names: DTensors of what is in pieces, or wholes."""
    options = options or StateDictOptions()
    inner = unwrapped(model)
    state = inner.state_dict()
    frozen = {plain_name(n) for n, p in inner.named_parameters() if not p.requires_grad} if options.ignore_frozen_params else set()
    kept = None
    if submodules is not None:
        kept = tuple(f"{plain_name(n)}." for n, m in inner.named_modules() if m in set(submodules))
    found = {}
    for name, value in state.items():
        name = plain_name(name)
        if name in frozen or (kept is not None and not name.startswith(kept)):
            continue
        shown = _shown(value, options)
        if not _hidden(options):
            found[name] = shown
    return found


def _received(value: Any, like: Any, options: StateDictOptions) -> Any:
    """A whole value as a model's tensor lies; a collective with `broadcast_from_rank0`."""
    if isinstance(value, _There):
        value = None
    if isinstance(like, DTensor):
        if isinstance(value, DTensor):
            return value
        kind = like.device_mesh.device_type
        if options.broadcast_from_rank0:
            whole = value.detach().to(kind) if isinstance(value, Tensor) else ops.empty(tuple(like.shape), dtype=like.dtype, device=kind)
            return distribute_tensor(_sent(whole.to(like.dtype).contiguous()), like.device_mesh, like.placements, src_data_rank=None)
        return distribute_tensor(value.detach(), like.device_mesh, like.placements, src_data_rank=None)
    if options.broadcast_from_rank0 and isinstance(like, Tensor) and like.device.type != "meta":
        return _sent(unasked(value.detach().to)(like.device, like.dtype).contiguous() if isinstance(value, Tensor) else ops.empty_like(like))
    return value


def _sent(t: Tensor) -> Tensor:
    """Process 0's values."""
    t = t.detach().clone()
    if t.device.type == "cpu" and world.get_backend() == "nccl":
        raise RuntimeError("broadcast_from_rank0: the group's backend nccl does not carry tensors of the CPU; move the model to its GPU")
    collectives.broadcast(t, src=0)
    return t


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> Any:
    """Loads a state that `get_model_state_dict` gave, whole or in pieces; parameters of the meta device get memory.  Gives missing and unexpected names."""
    options = options or StateDictOptions()
    inner = unwrapped(model)
    own = inner.state_dict()
    given: dict[str, Any] = {}
    unused = dict(model_state_dict)
    assign = any(isinstance(t, Tensor) and t.is_meta for t in own.values())
    with no_grad():
        for name, like in own.items():
            plain = plain_name(name)
            value = unused.pop(plain, None)
            if value is None and not options.broadcast_from_rank0:
                continue
            value = _received(value, like, options)
            given[name] = Parameter(value, like.requires_grad) if assign and isinstance(value, DTensor) else value
    given.update(unused)
    return inner.load_state_dict(given, strict=options.strict, assign=assign)


# ------------------------------------------------------------------------------------------------------------ optimizers
def _init_optim_state(optim: Any) -> None:
    """Gives an optimizer the state that its first step makes, and leaves the parameters as they are."""
    if optim.state:
        return
    for group in optim.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                raise RuntimeError("state_dict can only be used if the optimizer states are initialized (usually after one step() with gradients) or "
                                   "gradients are None. For the later case, state_dict will fake the gradients as zero to initialize the optimizer states.")
    rates = []
    with no_grad():
        for group in optim.param_groups:
            rates.append({k: group[k] for k in ("lr", "weight_decay") if k in group})
            group.update({k: v * 0 if isinstance(v, Tensor) else 0.0 for k, v in rates[-1].items()})
            for p in group["params"]:
                if p.requires_grad:
                    p.grad = ops.zeros_like(p)
        optim.step()
    for group, before in zip(optim.param_groups, rates):
        group.update(before)
    optim.zero_grad(set_to_none=True)


def _names(model: Module) -> dict[int, str]:
    inner = unwrapped(model)
    inner.state_dict()  # so that parameters are in pieces
    return {id(p): plain_name(n) for n, p in inner.named_parameters()}


def _listed(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]


def get_optimizer_state_dict(model: Module, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """Optimizers' state by plain names of parameters: {"state": {name: ...}, "param_groups": [...]}."""
    options = options or StateDictOptions()
    names = _names(model)
    state: dict[str, Any] = {}
    groups: list[Any] = []
    for optim in _listed(optimizers):
        _init_optim_state(optim)
        made = optim.state_dict()
        numbers: dict[int, str] = {}
        for group, packed in zip(optim.param_groups, made["param_groups"]):
            for p, k in zip(group["params"], packed["params"]):
                if id(p) not in names:
                    raise RuntimeError("get_optimizer_state_dict: the optimizer has a parameter that the model does not have")
                numbers[k] = names[id(p)]
            groups.append({**packed, "params": [numbers[k] for k in packed["params"]]})
        for k, values in made["state"].items():
            state[numbers[k]] = {key: _shown(v, options) for key, v in values.items()}
    if _hidden(options):
        return {}
    return _flattened(state, groups) if options.flatten_optimizer_state_dict else {"state": state, "param_groups": groups}


def _flattened(state: dict[str, Any], groups: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {f"state.{n}.{k}": v for n, values in state.items() for k, v in values.items()}
    for group in groups:
        for name in group["params"]:
            found.update({f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"})
    return found


def _unflattened(flat: dict[str, Any], optim: Any, names: dict[int, str]) -> dict[str, Any]:
    groups, state = [], {}
    for group in optim.param_groups:
        own = [names[id(p)] for p in group["params"]]
        groups.append({**{k: flat.get(f"param_groups.{own[0]}.{k}", v) for k, v in group.items() if k != "params"}, "params": own})
        for n in own:
            values = {key[len(f"state.{n}."):]: v for key, v in flat.items() if key.startswith(f"state.{n}.")}
            state[n] = values
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(model: Module, optimizers: Any, optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> None:
    """Loads a state that `get_optimizer_state_dict` gave, whole or in pieces."""
    options = options or StateDictOptions()
    names = _names(model)
    if options.broadcast_from_rank0:
        optim_state_dict = _skeleton(optim_state_dict)
    for optim in _listed(optimizers):
        if not optim_state_dict:
            continue
        _init_optim_state(optim)
        given = optim_state_dict if "param_groups" in optim_state_dict else _unflattened(optim_state_dict, optim, names)
        now = optim.state_dict()
        by_name = {n: g for g in given["param_groups"] for n in g["params"]}
        state: dict[int, Any] = {}
        groups = []
        for group, packed in zip(optim.param_groups, now["param_groups"]):
            own = [names[id(p)] for p in group["params"]]
            of_names = by_name.get(own[0], {}) if own else {}
            groups.append({**packed, **{k: v for k, v in of_names.items() if k not in ("params", "param_names")}})
            for p, k, n in zip(group["params"], packed["params"], own):
                if n not in given["state"]:
                    if options.strict and k in now["state"]:
                        raise RuntimeError(f"Missing optimizer state for parameter '{n}' in checkpoint. The parameter requires gradients but has no saved "
                                           "optimizer state.")
                    continue
                likes = now["state"].get(k, {})
                with no_grad():
                    state[k] = {key: _received(v, likes[key], options) if isinstance(likes.get(key), DTensor) else
                                _received_plain(v, p, options) for key, v in given["state"][n].items()}
        optim.load_state_dict({"state": state, "param_groups": groups})


class _There:
    """A tensor that process 0 has."""


def _skeleton(state: dict[str, Any]) -> dict[str, Any]:
    """Process 0's state, with its tensors on process 0 only; those of no axes everywhere."""
    def bare(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: bare(v) for k, v in x.items()}
        if isinstance(x, list):
            return [bare(v) for v in x]
        return _There() if isinstance(x, Tensor) and x.ndim else unasked(x.cpu)() if isinstance(x, Tensor) else x
    told = [bare(state) if _rank() == 0 else None]
    objects.broadcast_object_list(told, 0)
    return state if _rank() == 0 else told[0]  # type: ignore[return-value]


def _received_plain(value: Any, p: Tensor, options: StateDictOptions) -> Any:
    if options.broadcast_from_rank0 and (isinstance(value, _There) or (isinstance(value, Tensor) and value.ndim)):
        return _sent(unasked(value.to)(p.device).contiguous() if isinstance(value, Tensor) else ops.empty_like(p))
    return value


def get_state_dict(model: Module, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The model's state and the optimizers'."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model: Module, optimizers: Any, *, model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any],
                   options: StateDictOptions | None = None) -> Any:
    """Loads the model's state and the optimizers'."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found

