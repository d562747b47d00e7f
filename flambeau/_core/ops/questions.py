"""Names of PyTorch's top namespace that only ask or rename: function forms of Tensor methods, and switches remembered."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor


def is_conj(input: Any) -> bool:  # noqa: A002 (PyTorch's name)
    """False: conjugation is done when it is asked for."""
    _tensor("is_conj", input)
    return False


def is_neg(input: Any) -> bool:  # noqa: A002
    """False: negation is done when it is asked for."""
    _tensor("is_neg", input)
    return False


def is_signed(input: Any) -> bool:  # noqa: A002
    """Whether the type has negative numbers."""
    _tensor("is_signed", input)
    return input.meta.dtype.kind not in "bu"


def is_inference(input: Any) -> bool:  # noqa: A002
    """Whether it was made in inference mode."""
    return bool(input.is_inference())


def is_distributed(input: Any) -> bool:  # noqa: A002
    """False: a tensor lies on one device."""
    return False


def get_device(input: Any) -> int:  # noqa: A002
    """The index of the GPU; -1 for the CPU."""
    found: int = input.get_device()
    return found


def _tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")


def _late(space: str, name: str) -> Any:
    from . import table
    return table.namespace(space)[name]


def frobenius_norm(input: Any, dim: Any = (), keepdim: bool = False) -> Tensor:  # noqa: A002
    """The square root of the sum of squares over `dim` (all by default)."""
    made: Tensor = _late("torch", "norm")(input, 2, dim or None, keepdim)
    return made


def nuclear_norm(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A002
    """The sum of singular values over two axes."""
    made: Tensor = _late("linalg", "matrix_norm")(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    return made


def resize_as_(input: Any, the_template: Any, *, memory_format: Any = None) -> Tensor:  # noqa: A002
    """`input.resize_as_(the_template)`."""
    made: Tensor = input.resize_as_(the_template)
    return made


def as_strided_(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:  # noqa: A002
    """`input.as_strided_(...)`."""
    made: Tensor = input.as_strided_(size, stride, storage_offset)
    return made


def detach_(input: Any) -> Tensor:  # noqa: A002
    """`input.detach_()`."""
    made: Tensor = input.detach_()
    return made


def slice_copy(input: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:  # noqa: A002
    """input[..., start:end:step, ...] along `dim`, copied."""
    at: list[Any] = [slice(None)] * input.dim()
    at[dim] = slice(start, end, step)
    made: Tensor = input[tuple(at)].clone()
    return made


def view_as_real_copy(input: Any) -> Tensor:  # noqa: A002
    """`view_as_real`, copied."""
    made: Tensor = _late("torch", "view_as_real")(input).clone()
    return made


def view_as_complex_copy(input: Any) -> Tensor:  # noqa: A002
    """`view_as_complex`, copied."""
    made: Tensor = _late("torch", "view_as_complex")(input).clone()
    return made


_kept = {"debug": 0, "warn": False}


def get_deterministic_debug_mode() -> int:
    """0: what `set_deterministic_debug_mode` was told."""
    return int(_kept["debug"])


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Remembered; every operation here is deterministic already."""
    modes: dict[Any, int] = {"default": 0, "warn": 1, "error": 2, 0: 0, 1: 1, 2: 2}
    if debug_mode not in modes:
        raise RuntimeError(f"invalid value of debug_mode, expected `default`, `warn`, or `error`, or 0, 1, 2, but got {debug_mode}")
    _kept["debug"] = modes[debug_mode]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False: operations that are not deterministic do not only warn."""
    return False


def set_warn_always(b: bool, /) -> None:
    """Remembered."""
    _kept["warn"] = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether warnings are shown each time, as `set_warn_always` was told."""
    return bool(_kept["warn"])


def is_anomaly_enabled() -> bool:
    """Whether `autograd.set_detect_anomaly` is on."""
    from ..autograd import tape
    return tape.anomaly.lines


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are always kept."""
    return False
