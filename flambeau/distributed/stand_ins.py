"""Names of `torch.distributed` that lie elsewhere here (`OTHER`), and those whose work is not here (`MODULES`): rpc and its like.

Libraries import the latter to ask ``isinstance``, or to annotate; nothing is one of them here, and a call says so.
"""

from __future__ import annotations

import datetime
import sys
from typing import Any

from ..interop import stand_ins
from . import world

WHY = "this kind of work over several processes is not here; DistributedDataParallel, fully_shard, DTensor and the collectives are"

# what is found on torch.distributed itself
OWN = "ProcessGroupNCCL ProcessGroupGloo"

# PyTorch's private and old names of modules, and which module they are here
OTHER = {
    "_tensor": "tensor", "_tensor.api": "tensor", "_tensor.placement_types": "tensor.placement_types", "_tensor.device_mesh": "device_mesh",
    "tensor._api": "tensor", "tensor._dtensor_spec": "tensor.spec", "tensor.device_mesh": "device_mesh", "tensor._utils": "tensor.layouts",
    "tensor.parallel.api": "tensor.parallel",
    "fsdp._fully_shard": "fsdp", "_composable.fsdp": "fsdp", "_composable.fsdp.fully_shard": "fsdp.fully_shard",
    "checkpoint.state_dict_loader": "checkpoint", "checkpoint.state_dict_saver": "checkpoint",
    "checkpoint.filesystem": "checkpoint", "checkpoint.metadata": "checkpoint", "checkpoint.default_planner": "checkpoint",
    "checkpoint.utils": "checkpoint", "checkpoint.api": "checkpoint",
}

MODULES = {
    "_local_tensor": "LocalTensor LocalTensorMode maybe_run_for_local_tensor()",
    "tensor.experimental._attention": """set_rotate_method() context_parallel() _context_parallel_shard() context_parallel_unshard()
 _enable_context_parallel_dispatcher() _ContextParallel _HeadTailLoadBalancer _PTRRLoadBalancer""",
    "checkpoint": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint.quantized_hf_storage": "QuantizedHuggingFaceStorageReader",
    "checkpoint._consolidate_hf_safetensors": "consolidate_safetensors_files() consolidate_safetensors_files_on_every_rank()",
    "checkpoint.planner": "LoadPlan SavePlan LoadPlanner SavePlanner ReadItem WriteItem",
    "checkpoint.storage": "StorageReader StorageWriter WriteResult",
    "_shard.sharded_tensor": "ShardedTensor Shard",
    "fsdp._flat_param": "FlatParameter FlatParamHandle HandleShardingStrategy",
    "fsdp._runtime_utils": "_post_backward_final_callback() _root_pre_forward() _lazy_init()",
    "fsdp._common_utils": "clean_tensor_name() _FSDPState",
    "checkpoint.optimizer": "load_sharded_optimizer_state_dict()",
    "algorithms.join": "Join Joinable JoinHook",
    "algorithms.ddp_comm_hooks": "DDPCommHookType register_ddp_comm_hook()",
    "algorithms.ddp_comm_hooks.post_localSGD_hook": "PostLocalSGDState post_localSGD_hook()",
    "algorithms.ddp_comm_hooks.powerSGD_hook": "batched_powerSGD_hook()",
    "algorithms.model_averaging": "",
    "algorithms.model_averaging.averagers": "ModelAverager PeriodicModelAverager",
    "algorithms.model_averaging.hierarchical_model_averager": "HierarchicalModelAverager",
    "autograd": "context backward() get_gradients()",
    "_composable": "checkpoint()",
    "_functional_collectives": "AsyncCollectiveTensor",
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
    for below, where in OTHER.items():
        stand_ins.other(f"{package}.{below}", f"{package}.{where}")
    own.update(default_pg_timeout=datetime.timedelta(minutes=30))
    vars(sys.modules[f"{package}.rpc.api"])["_require_initialized"] = _require_initialized
    # what is no more than a name, a constant or an answer is as in PyTorch
    stand_ins.module(f"{package}.constants", {"default_pg_timeout": own["default_pg_timeout"]}, "Constants of process groups.")
    stand_ins.module(f"{package}.distributed_c10d", {"_get_global_rank": own["get_global_rank"], "_set_pg_timeout": world._set_pg_timeout,
                                                     **{k: v for k, v in own.items() if not k.startswith("__")}},
                     "torch.distributed by its other name.")
    sys.modules[f"{package}.rpc"].__dict__["is_available"] = lambda: False
