"""The few names of PyTorch's compiled core that Python programs use."""

from __future__ import annotations

import enum
import importlib
import weakref
from typing import Any

from flambeau._core.autograd import graph, saved
from flambeau._core.autograd.mode import is_grad_enabled, is_inference_mode_enabled
from flambeau._core.errors import LinAlgError
from flambeau._core.runtime.device import device
from flambeau._core.tensor import Tensor as TensorBase
from flambeau.autograd import pushing
from flambeau.interop import stand_ins
from flambeau.interop.covering import disabled_torch_function_impl as _disabled_torch_function_impl
from flambeau.interop.overriding import DisableTorchFunctionSubclass
from flambeau.nn import functional as F
from flambeau.nn.conversion import parse_to

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "TensorBase", "_disabled_torch_function_impl", "device",
           "is_grad_enabled", "is_inference_mode_enabled"]

DisableTorchFunction = DisableTorchFunctionSubclass
_LinAlgError = LinAlgError
_TensorMeta = type(TensorBase)
# what only PyTorch's own compiler and files' C++ readers are: names for `isinstance` and annotations
globals().update(stand_ins.names(__name__, """Graph Value Node Block Use Gradient ScriptModule ScriptFunction ScriptClass ScriptClassFunction ScriptDict
 ScriptDictIterator ScriptDictKeyIterator ScriptList ScriptListIterator ScriptMethod ScriptObject ScriptObjectProperty CompilationUnit ConcreteModuleType
 ConcreteModuleTypeBuilder ModuleDict ParameterDict BufferDict DeepCopyMemoTable TracingState StaticModule GraphExecutorState ExecutionPlan Code CallStack
 IODescriptor FileCheck ErrorReport AliasDb Argument ArgumentSpec CompleteArgumentSpec FunctionSchema BenchmarkConfig BenchmarkExecutionStats Capsule
 OperatorInfo PyTorchFileReader PyTorchFileWriter DeserializationStorageContext SerializationStorageContext LoggerBase LockingLogger NoopLogger
 Type TensorType NumberType IntType FloatType ComplexType BoolType StringType NoneType AnyType ListType DictType TupleType OptionalType UnionType
 ClassType EnumType InterfaceType PyObjectType FutureType AwaitType RRefType DeviceObjType StreamObjType SymIntType SymBoolType InferredType
 DispatchKey DispatchKeySet ExcludeDispatchKeyGuard""", "Flambeau has no compiler of graphs, no dispatcher of kernels, and reads files in Python"))
stand_ins.module(f"{__name__}._autograd", {"SavedTensor": saved.SavedTensor, "_saved_tensors_hooks_is_enabled": lambda: saved.disabled() is None,
                                           "_saved_tensors_hooks_get_disabled_error_message": saved.disabled}, "Questions about the tape.")
_current_graph_task_id, _will_engine_execute_node = graph.current_pass, graph.will_run
stand_ins.module(f"{__name__}._functions", {"AccumulateGrad": graph.kind("AccumulateGrad"), "DelayedError": graph.DelayedError,
                                      "UndefinedGrad": graph.UndefinedGrad}, "Nodes of the graph.")


# what an operation of PyTorch's core is marked with; those here have no marks
Tag = enum.Enum("Tag", """core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace inplace_view
 maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order nondeterministic_bitwise nondeterministic_seeded out
 out_variant pointwise pt2_compliant_tag reduction view_copy""", module="flambeau", start=0)

# LAPACK and Fourier transforms are always there; of MKL and OpenMP nothing is used
has_lapack = has_spectral = True
has_mkl = has_openmp = False


def compiled_with_cxx11_abi() -> bool:
    """True, as of every PyTorch since 2.7: the ABI for extensions in C++, of which there is no library here."""
    return True


def _slow_conv3d(input: Any, weight: Any, kernel_size: Any, bias: Any = None, stride: Any = 1, padding: Any = 0) -> Any:  # noqa: A002
    """`conv3d` by the name of PyTorch's way of last resort; the kernel's size is the weight's."""
    return F.conv3d(input, weight, bias, stride, padding)


stand_ins.module(f"{__name__}._nn", {"_parse_to": parse_to, "slow_conv3d": _slow_conv3d}, "Helpers of modules, and a layer by an inner name.")
_set_fwd_grad_enabled, _is_fwd_grad_enabled = pushing.enabled.set, pushing.enabled.get
stand_ins.module(f"{__name__}._dynamo", {}, "A compiler's switches.")
stand_ins.module(f"{__name__}._dynamo.eval_frame", {"_set_lru_cache": lambda on: None}, "A compiler's switches: accepted.")
stand_ins.module(f"{__name__}._distributed_rpc", {
    "_is_current_rpc_agent_set": lambda: False, **stand_ins.names(f"{__name__}._distributed_rpc", "PyRRef RpcAgent WorkerInfo",
                                                          "there is no agent of calls between processes")}, "Calls between processes: there is no agent.")


def _of_vmap(name: str) -> Any:
    """A function of `flambeau.func.mapping`, which is loaded when it is called."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module("flambeau.func.mapping"), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def _batched(t: Any) -> bool:
    """Whether it stands for one example under vmap."""
    return type(t).__module__ == "flambeau.func.batching"


stand_ins.module(f"{__name__}._functorch", {
    "is_batchedtensor": _batched, "is_legacy_batchedtensor": lambda t: False, "is_gradtrackingtensor": lambda t: False,
    "is_functorch_wrapped_tensor": _batched, "get_unwrapped": lambda t: t.value if _batched(t) else t,
    "maybe_get_bdim": lambda t: 0 if _batched(t) else -1, "maybe_get_level": lambda t: t.level.number if _batched(t) else -1,
    **{name: _of_vmap(name) for name in "_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting".split()}},
    "Questions about vmap's tensors, and its levels by number.")
_has_xpu = _has_mps = False  # devices that are not here


class _DisableFuncTorch:
    """Asked for around reads of random states and the like, which no transform here looks at: there is nothing to disable."""


def _are_functorch_transforms_active() -> bool:
    """Whether a vmap or a forward-mode derivative is running."""
    from flambeau._core.engine import interpreters
    return any(type(looking).__module__.startswith("flambeau.func") for looking in interpreters._stack)


def _is_torch_function_mode_enabled() -> bool:
    """Whether a TorchFunctionMode is on."""
    from flambeau import overrides
    from flambeau._core.engine import interpreters
    return any(type(looking) is overrides._Seen for looking in interpreters._stack)


def _is_alias_of(a: TensorBase, b: TensorBase) -> bool:
    """Whether two tensors have one storage."""
    return a.store is b.store


def _get_default_device() -> str:
    """The name of the device that factories use."""
    from flambeau._core.runtime.defaults import get_default_device
    return str(get_default_device())


def _get_accelerator() -> Any:
    """The kind of accelerator there is, else the CPU."""
    from flambeau._core.runtime import gpus
    return device("cuda" if gpus.count() else "cpu")


def _get_tracing_state() -> None:
    """No tracer records Python here."""


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged."""


def _jit_set_profiling_mode(on: bool) -> bool:
    """Switches of a compiler that is not here: accepted."""
    return False


_jit_set_profiling_executor = _jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_mode
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _debug_set_autodiff_subgraph_inlining = _jit_set_profiling_mode


class _WeakTensorRef:
    """A reference that does not keep a tensor alive."""

    def __init__(self, tensor: TensorBase) -> None:
        self._ref = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is gone."""
        return self._ref() is None
