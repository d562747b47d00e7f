"""Flambeau: PyTorch-shaped tensors that live on a CPU, on NVIDIA GPUs or on simulated GPUs.

``import flambeau as torch`` is the promise: names, signatures, defaults, promotion, aliasing and errors are PyTorch's.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from . import dtypes as _dtypes
from .autograd.mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from .layout import Size
from .ops import table as _table
from .runtime.device import device
from .tensor import Tensor

__version__ = "0.1.0"
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None

globals().update(_dtypes.BY_NAME)
globals().update(_dtypes.ALIASES)
globals().update(_table.namespace("torch"))
del globals()["trace"]  # the package of this name answers for it: of a tensor, the sum of its diagonal

# loaded at their first use: most programs need few of them
_MODULES = frozenset("""autograd nn optim cuda utils linalg fft special random backends amp io data distributions simulated cli trace
 testing multiprocessing hub version types func sparse profiler accelerator return_types cpu distributed compiler jit signal masked overrides _C vision
 serialization storage xpu mps _dynamo _inductor __config__ torch_version library futures""".split())
_LEFT_OUT = frozenset("onnx fx quantization ao export package".split())
_LAZY: dict[str, str] = {}


def _lazy(module: str, names: str) -> None:
    _LAZY.update(dict.fromkeys(names.split(), module))


_lazy("io", "save load")
_lazy("ops.storages", """UntypedStorage TypedStorage FloatStorage DoubleStorage HalfStorage BFloat16Storage LongStorage IntStorage ShortStorage
 CharStorage ByteStorage BoolStorage ComplexFloatStorage ComplexDoubleStorage""")
_lazy("runtime.provenance", "provenance")
_lazy("simulated", "simulate")
_lazy("trace", "trace_model Progress")
_lazy("runtime.ledger", "transfers")
_lazy("runtime.guard", "transfer_guard")
_lazy("errors", "AcceleratorError OutOfMemoryError TransferError")
_lazy("accelerator", "get_device_module")
_lazy("nn.functional", """alpha_dropout batch_norm bilinear binary_cross_entropy_with_logits channel_shuffle cosine_embedding_loss ctc_loss
 embedding feature_alpha_dropout feature_dropout hinge_embedding_loss instance_norm kl_div margin_ranking_loss pixel_shuffle pixel_unshuffle
 poisson_nll_loss prelu rrelu rrelu_ triplet_margin_loss""")
_lazy("ops.questions", """is_conj is_neg is_signed is_inference get_device is_distributed frobenius_norm nuclear_norm resize_as_ as_strided_ detach_
 slice_copy view_as_real_copy view_as_complex_copy get_deterministic_debug_mode set_deterministic_debug_mode
 is_deterministic_algorithms_warn_only_enabled set_warn_always is_warn_always_enabled is_anomaly_enabled set_flush_denormal""")
_lazy("amp", """GradScaler autocast is_autocast_enabled is_autocast_available get_autocast_dtype set_autocast_dtype set_autocast_enabled
 get_autocast_gpu_dtype get_autocast_cpu_dtype set_autocast_gpu_dtype set_autocast_cpu_dtype is_autocast_cpu_enabled
 is_autocast_cache_enabled set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting autocast_decrement_nesting""")
_lazy("ops.user", "pointwise")
_lazy("ops.memory_format", """memory_format contiguous_format channels_last channels_last_3d preserve_format strided layout
 sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc""")
_lazy("ops.legacy", """FloatTensor DoubleTensor HalfTensor BFloat16Tensor ByteTensor CharTensor ShortTensor IntTensor LongTensor
 BoolTensor set_default_tensor_type tensor_type""")
_lazy("runtime.defaults", "set_default_device get_default_device")
_lazy("nn.functional", "cosine_similarity pairwise_distance pdist")
_lazy("func", "vmap")
_lazy("interop.dlpack", "to_dlpack")
_lazy("runtime.streams", "Stream Event")
_lazy("random", "Generator manual_seed seed initial_seed get_rng_state set_rng_state default_generator")
_lazy("ops.printing", "set_printoptions")
_lazy("ops.queries", """is_tensor is_floating_point is_complex is_storage numel result_type is_nonzero are_deterministic_algorithms_enabled
 use_deterministic_algorithms get_num_threads set_num_threads set_num_interop_threads get_num_interop_threads compile
 set_float32_matmul_precision get_float32_matmul_precision is_same_size broadcast_shapes typename
 is_anomaly_check_nan_enabled""")


def __getattr__(name: str) -> Any:
    import importlib
    if name in _LAZY:
        value = globals()[name] = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
        return value
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    if name == "long":
        return _dtypes.int64
    if name in _LEFT_OUT:
        from .left_out import module
        found = globals()[name] = sys.modules[f"{__name__}.{name}"] = module(name)
        return found
    raise AttributeError(f"module 'flambeau' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})


__all__ = [name for name in (*globals(), *_LAZY, *_MODULES) if not name.startswith("_")]
