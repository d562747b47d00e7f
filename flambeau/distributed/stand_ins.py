"""Names of `torch.distributed` whose work is not here yet: sharded and tensor-parallel training, meshes, distributed checkpoints, rpc.

Libraries import them to ask ``isinstance(x, DTensor)`` or to annotate; nothing is one of them here, and a call says so.
"""

from __future__ import annotations

import datetime
import sys
from typing import Any

from ..interop import stand_ins
from . import placements

WHY = "this kind of work over several processes is not here; DistributedDataParallel and the collectives are"

# what is found on torch.distributed itself
OWN = "ProcessGroupNCCL ProcessGroupGloo"

MODULES = {
    "device_mesh": "DeviceMesh init_device_mesh()",
    "tensor.placement_types": "_MaskPartial DTensorSpec TensorMeta",
    "tensor": """DTensor DeviceMesh init_device_mesh() distribute_tensor() distribute_module()
 empty() full() ones() zeros() rand() randn()""",
    "tensor._utils": "compute_local_shape_and_global_offset() compute_global_tensor_info()",
    "tensor._api": "DTensor distribute_tensor() distribute_module()",
    "tensor._dtensor_spec": "DTensorSpec TensorMeta",
    "tensor.device_mesh": "DeviceMesh init_device_mesh()",
    "tensor.parallel": """ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput PrepareModuleInputOutput ParallelStyle
 parallelize_module() loss_parallel()""",
    "tensor.parallel.style": "ParallelStyle ColwiseParallel RowwiseParallel SequenceParallel",
    "tensor.experimental": "context_parallel() implicit_replication() local_map() register_sharding()",
    "tensor.experimental._attention": "set_rotate_method() context_parallel() _context_parallel_shard() context_parallel_unshard()",
    "_tensor": "DTensor DeviceMesh distribute_tensor() distribute_module()",
    "_tensor.placement_types": "DTensorSpec",
    "algorithms.join": "Join Joinable JoinHook",
    "algorithms.ddp_comm_hooks": "DDPCommHookType register_ddp_comm_hook()",
    "algorithms.ddp_comm_hooks.post_localSGD_hook": "PostLocalSGDState post_localSGD_hook()",
    "algorithms.ddp_comm_hooks.powerSGD_hook": "PowerSGDState powerSGD_hook() batched_powerSGD_hook()",
    "algorithms.model_averaging": "",
    "algorithms.model_averaging.averagers": "ModelAverager PeriodicModelAverager",
    "algorithms.model_averaging.hierarchical_model_averager": "HierarchicalModelAverager",
    "algorithms._checkpoint.checkpoint_wrapper": """CheckpointImpl[REENTRANT,NO_REENTRANT] CheckpointWrapper OffloadWrapper checkpoint_wrapper()
 offload_wrapper() apply_activation_checkpointing()""",
    "fsdp": """FullyShardedDataParallel FSDPModule UnshardHandle CPUOffload CPUOffloadPolicy OffloadPolicy MixedPrecision MixedPrecisionPolicy
 StateDictConfig FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig OptimStateDictConfig FullOptimStateDictConfig
 LocalOptimStateDictConfig ShardedOptimStateDictConfig StateDictSettings
 BackwardPrefetch[BACKWARD_PRE,BACKWARD_POST]
 ShardingStrategy[FULL_SHARD,SHARD_GRAD_OP,NO_SHARD,HYBRID_SHARD,_HYBRID_SHARD_ZERO2]
 StateDictType[FULL_STATE_DICT,LOCAL_STATE_DICT,SHARDED_STATE_DICT] OptimStateKeyType[PARAM_NAME,PARAM_ID]
 fully_shard() register_fsdp_forward_method()""",
    "fsdp.api": """CPUOffload MixedPrecision StateDictConfig FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig OptimStateDictConfig
 FullOptimStateDictConfig ShardedOptimStateDictConfig BackwardPrefetch ShardingStrategy StateDictType""",
    "fsdp.fully_sharded_data_parallel": """FullyShardedDataParallel CPUOffload MixedPrecision StateDictConfig FullStateDictConfig LocalStateDictConfig
 ShardedStateDictConfig OptimStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig BackwardPrefetch ShardingStrategy
 StateDictType OptimStateKeyType""",
    "fsdp._fully_shard": "FSDPModule fully_shard()",
    "fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "fsdp.wrap": """ModuleWrapPolicy CustomPolicy _Policy always_wrap_policy() enable_wrap() wrap() size_based_auto_wrap_policy()
 transformer_auto_wrap_policy() lambda_auto_wrap_policy() _module_wrap_policy() _or_policy()""",
    "_composable.fsdp": "FSDPModule CPUOffloadPolicy OffloadPolicy MixedPrecisionPolicy UnshardHandle fully_shard() register_fsdp_forward_method()",
    "_composable": "checkpoint() replicate() fully_shard()",
    "_functional_collectives": """AsyncCollectiveTensor all_gather_tensor() all_gather_tensor_autograd() all_reduce() all_to_all_single()
 all_to_all_single_autograd() broadcast() permute_tensor() reduce_scatter_tensor() reduce_scatter_tensor_autograd() wait_tensor()""",
    "checkpoint": """CheckpointException FileSystemReader FileSystemWriter LoadPlan LoadPlanner Metadata SavePlan SavePlanner StorageReader StorageWriter
 DefaultLoadPlanner DefaultSavePlanner load() save() async_save() load_state_dict() save_state_dict()""",
    "checkpoint.state_dict": """StateDictOptions get_model_state_dict() get_optimizer_state_dict() get_state_dict() set_model_state_dict()
 set_optimizer_state_dict() set_state_dict()""",
    "checkpoint.stateful": "Stateful",
    "checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner _EmptyStateDictLoadPlanner",
    "checkpoint.format_utils": "_EmptyStateDictLoadPlanner dcp_to_torch_save() torch_save_to_dcp()",
    "checkpoint.optimizer": "load_sharded_optimizer_state_dict()",
    "checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint.filesystem": "FileSystemReader FileSystemWriter",
    "checkpoint.metadata": "Metadata",
    "checkpoint.state_dict_loader": "_load_state_dict() load() load_state_dict()",
    "checkpoint.state_dict_saver": "save() async_save()",
    "optim": "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
    "pipelining": "ScheduleGPipe Schedule1F1B PipelineStage SplitPoint[BEGINNING,END] Pipe pipeline() pipe_split()",
    "launcher.api": "LaunchConfig elastic_launch() launch_agent()",
    "launcher": "LaunchConfig elastic_launch() launch_agent()",
    "elastic.multiprocessing": "Std[NONE,OUT,ERR,ALL] start_processes()",
    "elastic.multiprocessing.errors": "ChildFailedError ProcessFailure ErrorHandler",
    "run": "config_from_args()",
    "rpc": """RRef PyRRef WorkerInfo RpcBackendOptions TensorPipeRpcBackendOptions BackendType[TENSORPIPE] init_rpc() rpc_sync() rpc_async() remote()
 shutdown() get_worker_info()""",
    "rpc.api": "_all_gather() _wait_all()",
    "utils": "_sync_module_states() _sync_params_and_buffers()",
}


def _require_initialized(func: Any) -> Any:
    """A decorator: the function needs an agent of calls between processes, and there is none."""
    def call(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return call


def install(package: str, own: dict[str, Any]) -> None:
    """Puts the names into `own`, the dictionary of ``torch.distributed``, and its modules beside it."""
    for name, value in stand_ins.names(package, OWN, WHY).items():
        own.setdefault(name, value)
    stand_ins.modules(package, MODULES, WHY)
    for below in ("tensor", "tensor.placement_types", "_tensor", "_tensor.placement_types"):
        vars(sys.modules[f"{package}.{below}"]).update({k: v for k, v in vars(placements).items() if isinstance(v, type)})
    mesh = sys.modules[f"{package}.device_mesh"]
    own.update(DeviceMesh=mesh.DeviceMesh, init_device_mesh=mesh.init_device_mesh, default_pg_timeout=datetime.timedelta(minutes=30))
    vars(sys.modules[f"{package}.rpc.api"])["_require_initialized"] = _require_initialized
    # what is no more than a name, a constant or an answer is as in PyTorch
    stand_ins.module(f"{package}.constants", {"default_pg_timeout": own["default_pg_timeout"]}, "Constants of process groups.")
    stand_ins.module(f"{package}.distributed_c10d", {k: v for k, v in own.items() if not k.startswith("__")}, "torch.distributed by its other name.")
    sys.modules[f"{package}.rpc"].__dict__["is_available"] = lambda: False
