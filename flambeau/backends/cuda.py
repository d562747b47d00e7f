"""Switches of GPU arithmetic (torch.backends.cuda)."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

_FUSED = ("none", "exact", "all")


class _Matmul:
    """Whether float32 products may use TF32, and 16-bit ones may add their partial sums in 16 bits.

    allow_fp16_accumulation and fp32_precision are remembered.  fused_activations (not of PyTorch): whether a layer and the ReLU or
    tanh GELU after it, in `nn.Sequential` and transformer layers, are one launch of cuBLASLt: "none", "exact" (GELU of 16-bit types;
    the default) or "all" (also GELU of float32, to the library's accuracy, and ReLU, which then gives 0 for NaN).
    """

    def __init__(self) -> None:
        self._reduced = {"float16": True, "bfloat16": True}
        self.allow_fp16_accumulation = False
        self.fp32_precision = "none"

    def _allow(self, name: str, value: bool) -> None:
        from .._core.runtime import dispatch
        self._reduced[name] = bool(value)
        dispatch.set_wide(name, not value)

    @property
    def allow_fp16_reduced_precision_reduction(self) -> bool:
        return self._reduced["float16"]

    @allow_fp16_reduced_precision_reduction.setter
    def allow_fp16_reduced_precision_reduction(self, value: bool) -> None:
        self._allow("float16", value)

    @property
    def allow_bf16_reduced_precision_reduction(self) -> bool:
        return self._reduced["bfloat16"]

    @allow_bf16_reduced_precision_reduction.setter
    def allow_bf16_reduced_precision_reduction(self, value: bool) -> None:
        self._allow("bfloat16", value)

    @property
    def fused_activations(self) -> str:
        from .._core.runtime import backend_flags
        return _FUSED[int(backend_flags.values["matmul.activations"])]

    @fused_activations.setter
    def fused_activations(self, value: str) -> None:
        from .._core.runtime import backend_flags
        if value not in _FUSED:
            raise RuntimeError(f"fused_activations: expected one of {', '.join(map(repr, _FUSED))}, got {value!r}")
        backend_flags.put("matmul.activations", _FUSED.index(value))

    @property
    def allow_tf32(self) -> bool:
        from .._core.ops.queries import get_float32_matmul_precision
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        from .._core.ops.queries import set_float32_matmul_precision
        set_float32_matmul_precision("high" if value else "highest")


class _Plans:
    """The plans of Fourier transforms kept for the current GPU; `cufft_plan_cache[device]` are those of another."""

    _device: Any

    def __init__(self, device: Any = None) -> None:
        object.__setattr__(self, "_device", device)

    def _cache(self) -> Any:
        from .._core.drivers.nvidia import cufft
        from .._core.runtime import gpus
        return cufft.cache(gpus.gpu(self._device).physical)

    def __getitem__(self, device: Any) -> _Plans:
        return _Plans(device)

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._cache().plans)

    @property
    def max_size(self) -> int:
        """How many are kept at most."""
        return int(self._cache().most)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "max_size":
            raise RuntimeError(f"cufft_plan_cache: '{name}' cannot be set; max_size can")
        if type(value) is not int or value < 0:
            raise RuntimeError(f"cufft_plan_cache.max_size: expected a number of plans, at least 0, got {value!r}")
        self._cache().resize(value)

    def clear(self) -> None:
        """Forgets them all."""
        kept = self._cache()
        before = kept.most
        kept.resize(0)
        kept.resize(before)


cufft_plan_cache = _Plans()
matmul = _Matmul()


def _choose(**which: bool) -> None:
    """Which ways of attention are allowed."""
    from .._core.runtime import backend_flags
    for name, allowed in which.items():
        backend_flags.put(f"attention.{name}", bool(allowed))


def _allowed(name: str) -> bool:
    from .._core.runtime import backend_flags
    return bool(backend_flags.values[f"attention.{name}"])


def is_built() -> bool:
    """Whether this package can drive NVIDIA GPUs; whether there is one is `cuda.is_available()`."""
    return True


def flash_sdp_enabled() -> bool:
    """What `enable_flash_sdp` set."""
    return _allowed("flash")


def mem_efficient_sdp_enabled() -> bool:
    """What `enable_mem_efficient_sdp` set."""
    return _allowed("efficient")


def math_sdp_enabled() -> bool:
    """What `enable_math_sdp` set."""
    return _allowed("math")


def cudnn_sdp_enabled() -> bool:
    """What `enable_cudnn_sdp` set."""
    return _allowed("cudnn")


def enable_flash_sdp(enabled: bool) -> None:
    """Whether a GPU's attention may be a kernel of our own, which flash and mem_efficient both name; with both and cudnn off it is a
    softmax between products."""
    _choose(flash=enabled, overrideable=enabled or _allowed("efficient"))


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Whether a GPU's attention may be a kernel of our own: see `enable_flash_sdp`."""
    _choose(efficient=enabled, overrideable=enabled or _allowed("flash"))


def enable_math_sdp(enabled: bool) -> None:
    """Remembered: a softmax between products is always there, for what no kernel serves."""
    _choose(math=enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Whether a GPU's attention of 16-bit floats may be cuDNN's, which comes first where it serves; with flash and mem_efficient off it
    is asked for small ones too."""
    _choose(cudnn=enabled)


@contextlib.contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
               enable_cudnn: bool = True) -> Iterator[None]:
    """Sets the attention switches for a block."""
    before = {name: _allowed(name) for name in ("flash", "math", "efficient", "cudnn", "overrideable")}
    _choose(flash=enable_flash, math=enable_math, efficient=enable_mem_efficient, cudnn=enable_cudnn, overrideable=enable_flash or enable_mem_efficient)
    try:
        yield
    finally:
        _choose(**before)


def preferred_linalg_library(backend: Any = None) -> str:
    """The library of decompositions; there is one a device."""
    return "default"


class _BlasBackend(enum.Enum):
    Default = 0
    Cublas = 1
    Cublaslt = 2
    Ck = 3


def preferred_blas_library(backend: Any = None) -> _BlasBackend:
    """The library of products on GPUs, cuBLASLt, whatever is preferred: "default", "cublaslt" or None.

    Raises RuntimeError for a library that is not used here, and for another name; TypeError for what is no name.
    """
    name = backend.name.lower() if isinstance(backend, _BlasBackend) else backend
    if name is not None and not isinstance(name, str):
        raise TypeError(f"preferred_blas_library(): expected a name or None, got {type(backend).__name__}")
    if name in ("cublas", "hipblas", "hipblaslt", "ck"):
        raise RuntimeError(f"Cannot set preferred backend to {name}: products on GPUs are cuBLASLt's here")
    if name not in (None, "default", "cublaslt"):
        raise RuntimeError("Unknown input value. Choose from: default, cublas, hipblas, cublaslt, hipblaslt, ck.")
    return _BlasBackend.Cublaslt


_math_in_16_bits = [False]


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Remembered: a softmax between products keeps its sums in float32 here."""
    _math_in_16_bits[0] = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` was told."""
    return _math_in_16_bits[0]


class SDPAParams:
    """The operands of an attention, for questions about it."""

    def __init__(self, query: Any, key: Any, value: Any, attn_mask: Any, dropout: float, is_causal: bool, enable_gqa: bool) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def _may_be_fused(params: SDPAParams, switch: str) -> str | None:
    """Why a kernel of our own does not do it; None where it may."""
    if not _allowed(switch):
        return f"{switch} attention is switched off"
    if not all(t.is_cuda for t in (params.query, params.key, params.value)):
        return "the operands are not on a GPU"
    if any(t.dim() != 4 for t in (params.query, params.key, params.value)):
        return "the operands do not have four axes"
    return None if params.query.dtype.is_floating_point and params.query.dtype.itemsize < 8 else f"the type is {params.query.dtype}"


def _answered(why: str | None, debug: bool) -> bool:
    if why is not None and debug:
        from .._core.errors import warn
        warn(f"attention is a softmax between products: {why}")
    return why is None


def is_flash_attention_available() -> bool:
    """Whether there is a GPU, for which a kernel of our own does attention."""
    from .._core.runtime import gpus
    return gpus.count() > 0


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether a kernel of our own may do such an attention by the switches, the device, the axes and the type, without a mask; `debug` warns why not.
    Its launch may still not be there for single sizes."""
    return _answered("there is a mask" if params.attn_mask is not None else _may_be_fused(params, "flash"), debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """`can_use_flash_attention`, of attention with a mask too."""
    return _answered(_may_be_fused(params, "efficient"), debug)


def is_ck_sdpa_available() -> bool:
    """False: composable kernels are AMD's."""
    return False


__all__ = ["SDPAParams", "allow_fp16_bf16_reduction_math_sdp", "can_use_efficient_attention", "can_use_flash_attention",
           "fp16_bf16_reduction_math_sdp_allowed", "is_ck_sdpa_available", "is_flash_attention_available", "preferred_blas_library",
           "cudnn_sdp_enabled", "cufft_plan_cache", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
           "flash_sdp_enabled", "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
           "preferred_linalg_library", "sdp_kernel"]
