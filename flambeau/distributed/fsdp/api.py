"""Options of `FullyShardedDataParallel` (torch.distributed.fsdp.api)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class ShardingStrategy(Enum):
    """FULL_SHARD: parameters are dropped after forward and backward.  SHARD_GRAD_OP: after backward.  NO_SHARD: every process has all.
    HYBRID_SHARD, _HYBRID_SHARD_ZERO2: the first two within a host, copies among hosts."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """Accepted: parameters are gathered when the backward pass asks for them."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """What `state_dict` gives: wholes, this process's pieces, or DTensors."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """By what an optimizer's state names parameters."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass(frozen=True)
class MixedPrecision:
    """Types of parameters in use, of what gradients are reduced in, and of buffers; `cast_forward_inputs`: floating inputs are cast too."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple[Any, ...] = ()


@dataclass
class CPUOffload:
    """offload_params: pieces lie in the host's memory."""

    offload_params: bool = False


@dataclass
class StateDictConfig:
    """offload_to_cpu: what is given lies in the host's memory."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """rank0_only: the other processes get an empty dictionary."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """No more."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Accepted."""

    _use_dtensor: bool = True


@dataclass
class OptimStateDictConfig:
    """offload_to_cpu: what is given lies in the host's memory."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """rank0_only: the other processes get an empty dictionary."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """No more."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Accepted."""

    _use_dtensor: bool = True


@dataclass
class StateDictSettings:
    """What `FullyShardedDataParallel.set_state_dict_type` set."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=FullStateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(default_factory=FullOptimStateDictConfig)
