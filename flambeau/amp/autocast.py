"""`autocast`: a region in which operations choose the type they compute in (torch.amp.autocast_mode)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .._core import dtypes
from .._core.dtypes import dtype as _dtype
from .._core.errors import warn
from .._core.ops import autocast as _lists

_KINDS = ("cuda", "cpu")
# kinds that PyTorch knows and that have no devices here: nothing is ever inside a region for them
_ELSEWHERE = frozenset("mps xpu hpu mtia xla ipu maia privateuseone".split())
_defaults = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16}
_cache = [True]


def _kind(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    name = device_type.split(":")[0]
    if name not in _KINDS:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}': expected 'cuda' or 'cpu'")
    return name


class autocast:
    """A ``with`` block, or decorator, in which matrix products and convolutions on `device_type` compute in `dtype`
    (float16 on cuda, bfloat16 on cpu) and what needs the range computes in float32; everything else follows its inputs.

    enabled=False: a region inside another in which nothing is chosen.  cache_enabled: a weight is cast once a region.
    Raises RuntimeError for another device type; warns and does nothing for a type that is not float16 or bfloat16.
    """

    def __init__(self, device_type: str, dtype: _dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        self.device = _kind(device_type)
        self.fast_dtype = _defaults[self.device] if dtype is None else dtype
        if enabled and self.fast_dtype not in (dtypes.float16, dtypes.bfloat16):
            warn(f"In {self.device.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                 "Autocast supports dtypes torch.float16 and torch.bfloat16.")
            enabled = False
        self._enabled = enabled
        self._keeps = _cache[0] if cache_enabled is None else cache_enabled
        self._tokens: list[tuple[Any, Any, bool]] = []

    def __enter__(self) -> autocast:
        state = dict(_lists.current.get() or {})
        if self._enabled:
            state[self.device] = self.fast_dtype
        else:
            state.pop(self.device, None)
        casts = _lists.kept.get()
        if not self._keeps:
            casts = None
        elif casts is None:
            casts = {}
        counts = bool(state)  # else nothing is cast in here, of which nobody need see anything
        self._tokens.append((_lists.current.set(state), _lists.kept.set(casts), counts))
        _lists.opened(counts)
        return self

    def __exit__(self, *exc: object) -> None:
        here, casts, counts = self._tokens.pop()
        _lists.current.reset(here)
        _lists.kept.reset(casts)
        _lists.opened(-counts)

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with type(self)._again(self):
                return function(*args, **kwargs)
        return call

    @staticmethod
    def _again(one: autocast) -> autocast:
        return autocast(one.device, one.fast_dtype, one._enabled, one._keeps)


def _reads(run: Any, device_type: Any, dtype: Any = None, enabled: Any = True, cache_enabled: Any = None) -> str | None:
    """Tells a run of `compile` what a region follows besides its arguments."""
    if not all(map(run.atoms, (device_type, dtype, enabled, cache_enabled))):
        return "autocast is given an object"
    run.guards.keys(_defaults)
    run.guards.elements(_cache)
    return None


autocast.__reads__ = _reads  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------------------- the same regions again
def regions() -> list[autocast]:
    """The regions that this place is in, one a kind of device, those in which nothing is chosen too."""
    state = _lists.current.get() or {}
    keeps = _lists.kept.get() is not None or _cache[0]
    return [autocast(kind, state.get(kind, _defaults[kind]), kind in state, keeps) for kind in _KINDS]


@contextmanager
def inside(found: list[autocast]) -> Iterator[None]:
    """A block in the regions that `regions` found elsewhere, and in no other. Casts of weights are kept for the block only."""
    token = _lists.kept.set(None)
    try:
        with ExitStack() as stack:
            for region in found:
                stack.enter_context(autocast._again(region))
            yield
    finally:
        _lists.kept.reset(token)


# ------------------------------------------------------------------------------------------------------------ questions
def is_autocast_available(device_type: str) -> bool:
    """Whether there are regions for this kind of device."""
    return device_type in _KINDS


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether this is inside a region for the kind of device: never for kinds that are not here."""
    if device_type in _ELSEWHERE:
        return False
    return _kind(device_type) in (_lists.current.get() or {})


def is_autocast_cpu_enabled() -> bool:
    """Whether this is inside an autocast region for the CPU."""
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> _dtype:
    """The type matrix products compute in: the region's, else the default of the kind of device."""
    kind = _kind(device_type)
    return (_lists.current.get() or {}).get(kind, _defaults[kind])


def get_autocast_gpu_dtype() -> _dtype:
    """The type of autocast regions on GPUs."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> _dtype:
    """The type of autocast regions on the CPU."""
    return get_autocast_dtype("cpu")


def set_autocast_dtype(device_type: str, dtype: _dtype) -> None:
    """The default type of the kind of device."""
    _defaults[_kind(device_type)] = dtype


def set_autocast_gpu_dtype(dtype: _dtype) -> None:
    """The type of autocast regions on GPUs from now on."""
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: _dtype) -> None:
    """The type of autocast regions on the CPU from now on."""
    set_autocast_dtype("cpu", dtype)


_open: dict[str, autocast] = {}


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Opens or ends a region without a block."""
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    kind = _kind(device_type)
    state = dict(_lists.current.get() or {})
    if enabled and kind not in state:
        state[kind] = _defaults[kind]
        _lists.opened(1)
    elif not enabled and kind in state:
        del state[kind]
        _lists.opened(-1)
    _lists.current.set(state)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Opens or ends a region for the CPU without a block."""
    set_autocast_enabled("cpu", enabled)


_xla = [dtypes.bfloat16]


def is_autocast_xla_enabled() -> bool:
    """False: there are no XLA devices here."""
    return is_autocast_enabled("xla")


def set_autocast_xla_enabled(enabled: bool) -> None:
    """Nothing to end.  Raises RuntimeError for a region to open: there are no XLA devices here."""
    if enabled:
        set_autocast_enabled("xla", True)


def get_autocast_xla_dtype() -> _dtype:
    """What `set_autocast_xla_dtype` was told, bfloat16 at first; no region has it."""
    return _xla[0]


def set_autocast_xla_dtype(dtype: _dtype) -> None:
    """Remembered."""
    _xla[0] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether regions keep the casts of weights unless told otherwise."""
    return _cache[0]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether regions keep the casts of weights unless told otherwise."""
    _cache[0] = bool(enabled)


def clear_autocast_cache() -> None:
    """Forgets this region's casts of weights."""
    casts = _lists.kept.get()
    if casts is not None:
        casts.clear()


def autocast_increment_nesting() -> int:
    """Regions know their own nesting; kept for scripts."""
    return _lists.regions[0]


def autocast_decrement_nesting() -> int:
    """Regions know their own nesting; kept for scripts."""
    return _lists.regions[0]


# ------------------------------------------------------------------------------------------------------ custom functions
def custom_fwd(fwd: Any = None, *, device_type: str = "cuda", cast_inputs: _dtype | None = None) -> Any:
    """For the forward of an `autograd.Function`: notes the region for `custom_bwd`; with cast_inputs, floating tensors
    come in that type and the body runs outside the region."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    kind = _kind(device_type)

    @functools.wraps(fwd)
    def call(*args: Any, **kwargs: Any) -> Any:
        inside = is_autocast_enabled(kind)
        args[0]._dtype, args[0]._fwd_used_autocast = get_autocast_dtype(kind), inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(*args, **kwargs)
        with autocast(kind, enabled=False):
            return fwd(*[_lists._cast(a, cast_inputs, kind) for a in args],
                       **{k: _lists._cast(v, cast_inputs, kind) for k, v in kwargs.items()})
    return call


def custom_bwd(bwd: Any = None, *, device_type: str = "cuda") -> Any:
    """For the backward of an `autograd.Function`: it runs in the region its forward ran in."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    kind = _kind(device_type)

    @functools.wraps(bwd)
    def call(*args: Any, **kwargs: Any) -> Any:
        with autocast(kind, args[0]._dtype, enabled=args[0]._fwd_used_autocast):
            return bwd(*args, **kwargs)
    return call
