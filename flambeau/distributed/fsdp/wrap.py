"""Which submodules become units of their own (torch.distributed.fsdp.wrap)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...nn.containers import ModuleDict, ModuleList
from ...nn.module import Module
from ...nn.rnn import RNNBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class _Policy:
    """Base of policies that are objects: `chosen` gives the submodules and options of their own."""

    def chosen(self, root: Module) -> dict[Module, dict[str, Any]]:
        """The submodules to wrap."""
        raise NotImplementedError


class ModuleWrapPolicy(_Policy):
    """Submodules of these classes."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = frozenset(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return _module_wrap_policy(module, recurse, nonwrapped_numel=-1, module_classes=self._module_classes)

    def chosen(self, root: Module) -> dict[Module, dict[str, Any]]:
        """The submodules to wrap."""
        return {m: {} for m in root.modules() if isinstance(m, tuple(self._module_classes))}


class CustomPolicy(_Policy):
    """Submodules for which a function gives True, or a dictionary of options."""

    def __init__(self, lambda_fn: Callable[[Module], Any]) -> None:
        self._lambda_fn = lambda_fn

    def chosen(self, root: Module) -> dict[Module, dict[str, Any]]:
        """The submodules to wrap."""
        found = {m: self._lambda_fn(m) for m in root.modules()}
        for m, answer in found.items():
            if not isinstance(answer, bool | dict):
                raise ValueError(f"The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned {answer} for {m}")
        return {m: answer if isinstance(answer, dict) else {} for m, answer in found.items() if answer is not False}


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every submodule."""
    return True


def _module_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, module_classes: Any) -> bool:
    return True if recurse else isinstance(module, tuple(module_classes))


def transformer_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Any) -> bool:
    """Submodules of these classes."""
    return _module_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls)


def lambda_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]) -> bool:
    """Submodules for which a function gives True."""
    return True if recurse else lambda_fn(module)


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Any) -> bool:
    return any(p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for p in policies)


def size_based_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8), force_leaf_modules: Any = None,
                                exclude_wrap_modules: Any = None) -> bool:
    """Submodules with at least `min_num_params` elements that are in no unit yet."""
    leaves = tuple(force_leaf_modules or ()) or tuple(size_based_auto_wrap_policy.FORCE_LEAF_MODULES)  # type: ignore[attr-defined]
    excluded = tuple(exclude_wrap_modules or ()) or tuple(size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES)  # type: ignore[attr-defined]
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, leaves) if recurse else large and not isinstance(module, excluded)


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {RNNBase}  # type: ignore[attr-defined]

_wrapping: list[dict[str, Any]] = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A block in which `wrap` wraps."""
    _wrapping.append({"cls": wrapper_cls, "kwargs": wrapper_kwargs})
    try:
        yield
    finally:
        _wrapping.pop()


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module in the block's wrapper; as it is outside of `enable_wrap`."""
    if not _wrapping:
        return module
    made: Module = _wrapping[-1]["cls"](module, **{**_wrapping[-1]["kwargs"], **wrap_overrides})
    return made


def units(root: Module, policy: Any) -> dict[Module, dict[str, Any]]:
    """The submodules of a module, not itself, that a policy of any kind chooses, innermost first."""
    if isinstance(policy, _Policy):
        found = policy.chosen(root)
        found.pop(root, None)
        return dict(reversed(list(found.items())))
    chosen: dict[Module, dict[str, Any]] = {}

    def walk(m: Module) -> int:
        """Elements that are put into units at or below a module."""
        total = sum(p.numel() for p in m.parameters())
        if not policy(module=m, recurse=True, nonwrapped_numel=total):
            return 0
        taken = sum(taken_below(c) for c in m.children())
        return taken

    def taken_below(m: Module) -> int:
        taken = walk(m)
        left = sum(p.numel() for p in m.parameters()) - taken
        if policy(module=m, recurse=False, nonwrapped_numel=left) and next(m.parameters(), None) is not None and not isinstance(m, ModuleList | ModuleDict):
            chosen[m] = {}
            return taken + left
        return taken
    walk(root)
    return chosen
