"""Modules that keep only their inputs for the backward pass and run again in it, or keep what they save in the host's memory."""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

from ...._core.autograd.saved import save_on_cpu
from ....nn.module import Module
from ....utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_INNER = "_checkpoint_wrapped_module"
_PREFIX = _INNER + "."


class CheckpointImpl(Enum):
    """Which form of `torch.utils.checkpoint` is used."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around a module, whose parameters have the names that they had."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_plain)
        self.register_load_state_dict_pre_hook(_prefixed)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_INNER), name)

    def __getitem__(self, key: Any) -> Any:
        inner: Any = self._checkpoint_wrapped_module
        return inner[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """The parameters, by their names without this wrapper."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), p


def _plain(module: Module, state: Any, prefix: str, *args: Any) -> None:
    for key in [k for k in state if k.startswith(prefix + _PREFIX)]:
        state[prefix + key[len(prefix + _PREFIX):]] = state.pop(key)


def _prefixed(module: Module, state: Any, prefix: str, *args: Any) -> None:
    for key in [k for k in state if k.startswith(prefix) and not k.startswith(prefix + _PREFIX)]:
        state[prefix + _PREFIX + key[len(prefix):]] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """See `checkpoint_wrapper`."""

    def __init__(self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Any = None, **options: Any) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        self.checkpoint_fn: Callable[..., Any] = partial(checkpoint_fn, **options) if checkpoint_fn is not None else partial(
            checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT, **options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inner = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            names = list(kwargs)  # that form takes no keywords
            return self.checkpoint_fn(lambda *given: inner(*given[:len(args)], **dict(zip(names, given[len(args):]))), *args, *kwargs.values())
        return self.checkpoint_fn(inner, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """See `offload_wrapper`."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Any = None,
                       **checkpoint_fn_kwargs: Any) -> Module:
    """The module, run again in the backward pass instead of keeping what it would save.  checkpoint_fn: another function than
    `torch.utils.checkpoint.checkpoint`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """The module, which keeps what it saves in the host's memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(model: Module, checkpoint_wrapper_fn: Any = checkpoint_wrapper, check_fn: Any = lambda _: True,
                                   auto_wrap_policy: Any = None) -> None:
    """Wraps submodules, in place: those for which `check_fn` gives True, or that a policy chooses."""
    from ...fsdp.wrap import units
    chosen = set(units(model, auto_wrap_policy)) if auto_wrap_policy is not None else {m for m in model.modules() if m is not model and check_fn(m)}

    def walk(m: Module) -> None:
        for name, child in list(m.named_children()):
            walk(child)
            if child in chosen:
                setattr(m, name, checkpoint_wrapper_fn(child))
    walk(model)
