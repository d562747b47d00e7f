"""Flambeau: PyTorch-shaped tensors that live on a CPU, on NVIDIA GPUs or on simulated GPUs.

``import flambeau as torch`` is the promise: names, signatures, defaults, promotion, aliasing and errors are PyTorch's.
"""

from __future__ import annotations

import math
import os as _os
import sys
from typing import TYPE_CHECKING, Any  # noqa: F401 (a name of PyTorch's namespace too)

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError("flambeau: this is a free-threaded Python that runs without the global lock, upon which Flambeau's memory and plans rely; start it "
                      "with -X gil=1 or PYTHON_GIL=1, or use the ordinary build of Python")

from ._core import dtypes as _dtypes
from ._core import hooks as _hooks
from ._core import ops
from ._core.autograd.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ._core.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from ._core.layout import Size
from ._core.ops import table as _table
from ._core.runtime.device import device
from ._core.tensor import Tensor
from .interop import protocols as _protocols

_protocols.install(Tensor)
_protocols.name_methods(Tensor)
__path__.append(__path__[0] + "/_faces")  # its modules are found as if they lay here
__version__ = "0.1.0"
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None

for _kind in (Tensor, dtype, device, Size, finfo, iinfo):
    if "__annotations__" in vars(_kind):  # read in the module that wrote them: `typing.get_type_hints` asks the one that is named
        _kind.__annotations__ = {name: eval(said, vars(sys.modules[_kind.__module__])) for name, said in _kind.__annotations__.items()}
    _kind.__module__ = __name__  # where a program finds them: what their `repr` and pickles say

globals().update(_dtypes.BY_NAME)
globals().update(_dtypes.ALIASES)
globals().update(_table.namespace("torch"))
del globals()["trace"]  # the package of this name answers for it: of a tensor, the sum of its diagonal

# loaded at their first use: most programs need few of them
_MODULES = frozenset("""autograd nn optim cuda utils linalg fft special random backends amp io data distributions simulated cli trace
 testing multiprocessing hub version types func sparse profiler accelerator return_types cpu distributed compiler jit signal masked overrides _C vision
 quasirandom _higher_order_ops _ops _classes _tensor_str _jit_internal _utils _prims_common _subclasses fx
 serialization storage errors xpu mps _dynamo _inductor __config__ torch_version library futures mtia functorch _functorch _guards _logging""".split())
_LEFT_OUT = frozenset("onnx quantization ao export package nested monitor".split())
_LAZY: dict[str, str] = {}


def _lazy(module: str, names: str) -> None:
    _LAZY.update(dict.fromkeys(names.split(), module))


_lazy("io", "save load")
_lazy("_core.ops.storages", "StorageBase UntypedStorage from_file")
_lazy("_core.ops.conditions", """_check _check_with _check_index _check_value _check_type _check_not_implemented _check_is_size _check_tensor_all
 _check_tensor_all_with _test_check_tensor _assert_async _debug_has_internal_overlap""")
_lazy("_core.ops.typed_storages", """TypedStorage FloatStorage DoubleStorage HalfStorage BFloat16Storage LongStorage IntStorage ShortStorage
 CharStorage ByteStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage""")
_lazy("_core.runtime.provenance", "provenance")
_lazy("simulated", "simulate")
_lazy("trace", "trace_model Progress")
_lazy("nn.functional.recurrent_stacks", "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
_lazy("_core.compile.captured", "capture")
_lazy("_core.compile.compiled", "compile")
_lazy("_core.compile.explain", "explain")
_lazy("_core.runtime.ledger", "transfers")
_lazy("_core.runtime.guard", "transfer_guard")
_lazy("_core.errors", "AcceleratorError OutOfMemoryError TransferError")
_lazy("_C", "Tag compiled_with_cxx11_abi has_lapack has_mkl has_openmp has_spectral")
_lazy("jit", "fork wait")
_lazy("jit", "ScriptModule ScriptFunction TracerWarning")
_lazy("futures", "Future")
_lazy("interop.symbolic", """SymInt SymFloat SymBool sym_int sym_float sym_max sym_min sym_not sym_ite sym_sum sym_sqrt
 _assert _shape_as_tensor""")
_lazy("_C", """Graph Value Node Block Use Gradient ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptList
 ScriptListIterator ScriptMethod ScriptObject ScriptObjectProperty CompilationUnit ConcreteModuleType ConcreteModuleTypeBuilder ModuleDict
 ParameterDict BufferDict DeepCopyMemoTable TracingState StaticModule GraphExecutorState ExecutionPlan Code CallStack IODescriptor FileCheck
 ErrorReport AliasDb Argument ArgumentSpec CompleteArgumentSpec FunctionSchema BenchmarkConfig BenchmarkExecutionStats Capsule OperatorInfo
 PyTorchFileReader PyTorchFileWriter DeserializationStorageContext SerializationStorageContext LoggerBase LockingLogger NoopLogger Type
 TensorType NumberType IntType FloatType ComplexType BoolType StringType NoneType AnyType ListType DictType TupleType OptionalType UnionType
 ClassType EnumType InterfaceType PyObjectType FutureType AwaitType RRefType DeviceObjType StreamObjType SymIntType SymBoolType InferredType
 DispatchKey DispatchKeySet ExcludeDispatchKeyGuard DisableTorchFunction DisableTorchFunctionSubclass""")
_lazy("accelerator", "get_device_module")
_lazy("nn.functional", """alpha_dropout bilinear channel_shuffle feature_alpha_dropout feature_dropout native_channel_shuffle
 pixel_shuffle pixel_unshuffle prelu rrelu rrelu_""")
_lazy("nn.functional.grouped", "_grouped_mm")
_lazy("_core.ops.compressed", "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo")
_lazy("nn.functional.by_number", """binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss grid_sampler hinge_embedding_loss kl_div
 margin_ranking_loss poisson_nll_loss triplet_margin_loss
 affine_grid_generator embedding_bag grid_sampler_2d grid_sampler_3d""")
_lazy("_core.ops.queries", """is_conj is_neg is_signed is_inference get_device is_distributed frobenius_norm nuclear_norm resize_as_ as_strided_ detach_
 set_warn_always is_warn_always_enabled set_vital is_anomaly_enabled set_anomaly_enabled set_flush_denormal""")
_lazy("_core.ops.aten_compat", "batch_norm convolution embedding instance_norm native_norm")
_lazy("_core.ops.removed", "eig lstsq matrix_rank solve symeig")
_lazy("_core.ops.indexing.embedding", "embedding_renorm_")
_lazy("nn.functional.dropouts", "alpha_dropout_ feature_alpha_dropout_ feature_dropout_")
_lazy("nn.utils.weight_norms", "norm_except_dim")
_lazy("_core.ops.determinism", """use_deterministic_algorithms are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
 get_deterministic_debug_mode set_deterministic_debug_mode""")
_lazy("amp", """GradScaler autocast is_autocast_enabled is_autocast_available get_autocast_dtype set_autocast_dtype set_autocast_enabled
 get_autocast_gpu_dtype get_autocast_cpu_dtype set_autocast_gpu_dtype set_autocast_cpu_dtype is_autocast_cpu_enabled
 set_autocast_cpu_enabled is_autocast_xla_enabled set_autocast_xla_enabled get_autocast_xla_dtype set_autocast_xla_dtype
 is_autocast_cache_enabled set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting autocast_decrement_nesting""")
_lazy("_core.ops.user", "pointwise")
_lazy("_core.ops.memory_format", """memory_format contiguous_format channels_last channels_last_3d preserve_format strided layout
 sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged""")
_lazy("_core.ops.legacy", """FloatTensor DoubleTensor HalfTensor BFloat16Tensor ByteTensor CharTensor ShortTensor IntTensor LongTensor
 BoolTensor set_default_tensor_type tensor_type""")
_lazy("_core.runtime.defaults", "set_default_device get_default_device")
_lazy("nn.functional", "cosine_similarity pairwise_distance pdist")
_lazy("func", "vmap")
_lazy("fx.assertions", "_assert")
_lazy("_higher_order_ops", "cond while_loop")
_lazy("_classes", "classes")
_lazy("left_out", """qint8 qint32 quint8 quint2x4 quint4x2 per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric""")
_lazy("interop.dlpack", "to_dlpack")
_lazy("_core.runtime.streams", "Stream Event")
_lazy("random", "Generator manual_seed seed initial_seed get_rng_state set_rng_state default_generator thread_safe_generator")
_lazy("_core.ops.printing", "set_printoptions")
_lazy("_core.ops.queries", """is_tensor is_floating_point is_complex is_storage numel result_type is_nonzero
 get_num_threads set_num_threads set_num_interop_threads get_num_interop_threads
 set_float32_matmul_precision get_float32_matmul_precision is_same_size broadcast_shapes typename
 is_anomaly_check_nan_enabled""")


def __getattr__(name: str) -> Any:
    import importlib
    if name in _LAZY:
        value = globals()[name] = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
        return value
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    if name.startswith("_foreach_"):
        found = importlib.import_module(".interop.foreach", __name__).find(name)
        if found is not None:
            globals()[name] = found
            return found
    if name == "Storage":
        return __getattr__("DoubleStorage" if _dtypes.get_default_dtype() is _dtypes.float64 else "FloatStorage")
    if name == "_storage_classes":
        from ._core.ops.typed_storages import CLASSES
        return CLASSES
    if name == "long":
        return _dtypes.int64
    if name in _LEFT_OUT:
        module = importlib.import_module(".left_out", __name__).module
        found = globals()[name] = sys.modules[f"{__name__}.{name}"] = module(name)
        return found
    raise AttributeError(f"module 'flambeau' has no attribute {name!r}")


def _aten(name: str) -> Any:
    if name in ("load_library", "loaded_libraries", "import_module"):
        from . import library
        return getattr(library, name)
    from .interop import aten
    return aten.aten if name == "aten" else aten.OTHERS.get(name)


def _prelu(self: Tensor, weight: Tensor) -> Tensor:
    """`nn.functional.prelu`."""
    from .nn.functional import prelu
    made: Tensor = prelu(self, weight)
    return made


_prelu.__name__ = "prelu"
Tensor.prelu = _prelu


def _many_made() -> None:
    from .warm import behind
    behind.start()


if "FLAMBEAU_SMI" in _os.environ:
    from ._core.runtime import publishing as _publishing  # noqa: F401 (it begins when a GPU is used)

_hooks.provide(vmap=lambda f: __getattr__("vmap")(f), aten=_aten, many_made=_many_made)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})


__all__ = [name for name in (*globals(), *_LAZY, *_MODULES) if not name.startswith("_")]
