"""Parameters, buffers and submodules by their paths (torch.nn.utils._named_member_accessor)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..._core.tensor import Tensor
from ..module import Module

MISSING: Any = object()  # what stands in the place of a tensor that is not there


def _store(module: Any, name: str) -> Any:
    """The dictionary that holds a tensor of a module, or would.  Raises TypeError, KeyError for what has no tensors or no such name."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if not name:
        raise KeyError('tensor name can\'t be empty string ""')
    return module._parameters if name in module._parameters else module._buffers if name in module._buffers else module.__dict__


def swap_tensor(module: Any, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Puts a tensor, None or MISSING (which takes it away) in the place of a module's, whatever class it has, and gives what was there (MISSING
    where there was nothing, which `allow_missing` permits).  Raises AttributeError otherwise, TypeError for anything else than tensors or None."""
    store = _store(module, name)
    if not isinstance(tensor, Tensor) and tensor is not None and tensor is not MISSING:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if name not in store and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    before = store.get(name, MISSING)
    if before is not None and before is not MISSING and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is MISSING:
        store.pop(name, None)
    else:
        store[name] = tensor
    return before


def set_tensor(module: Any, name: str, tensor: Any) -> None:
    """Puts a tensor in the place of a module's."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_submodule(module: Any, name: str, submodule: Any) -> Any:
    """Puts a module in the place of a child, and gives the child.  Raises KeyError where there is none of the name."""
    if not isinstance(submodule, Module):
        raise TypeError(f"{submodule} is not an instance of torch.nn.Module")
    if name not in module._modules:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    before, module._modules[name] = module._modules[name], submodule
    return before


class NamedMemberAccessor:
    """The members of a module, by dotted names."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def _home(self, name: str) -> tuple[Any, str]:
        path, _, last = name.rpartition(".")
        return self.get_submodule(path), last

    def get_submodule(self, name: str) -> Any:
        """The submodule; the module itself for ""."""
        try:
            return self.module.get_submodule(name)
        except AttributeError as error:
            raise AttributeError(f"{type(self.module).__name__} has no attribute `{name}`") from error

    def swap_submodule(self, path: str, value: Any) -> Any:
        """Another module in a submodule's place; gives the one that was there."""
        home, last = self._home(path)
        return swap_submodule(home, last, value)

    def get_tensor(self, name: str) -> Any:
        """The tensor.  Raises AttributeError where there is none."""
        home, last = self._home(name)
        store = _store(home, last)
        if last not in store:
            raise AttributeError(f"{type(home).__name__} has no attribute `{last}`")
        return store[last]

    def set_tensor(self, name: str, value: Any) -> None:
        """Puts a tensor there."""
        home, last = self._home(name)
        set_tensor(home, last, value)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Puts a tensor there and gives the one that was."""
        home, last = self._home(name)
        return swap_tensor(home, last, value, allow_missing)

    def del_tensor(self, name: str) -> None:
        """Takes a tensor away."""
        home, last = self._home(name)
        if last not in _store(home, last):
            raise AttributeError(f"{type(home).__name__} has no attribute `{last}`")
        delattr(home, last)

    def get_tensors(self, names: Iterable[str]) -> list[Any]:
        """`get_tensor` of each."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Any]) -> None:
        """`set_tensor` of each."""
        for name, value in zip(names, values, strict=True):
            self.set_tensor(name, value)

    def swap_tensors(self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False) -> list[Any]:
        """`swap_tensor` of each."""
        return [self.swap_tensor(name, value, allow_missing) for name, value in zip(names, values, strict=True)]

    def set_tensors_dict(self, named_tensors: dict[str, Any]) -> None:
        """`set_tensor` of each item."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def swap_tensors_dict(self, named_tensors: dict[str, Any], allow_missing: bool = False) -> tuple[dict[str, Any], list[str]]:
        """`swap_tensor` of each item; the tensors that were there, and the names that were missing.  All are put back where one fails."""
        before: dict[str, Any] = {}
        missing = []
        try:
            for name, value in named_tensors.items():
                before[name] = self.swap_tensor(name, value, allow_missing)
                if before[name] is MISSING:
                    missing.append(name)
        except (AttributeError, TypeError, KeyError):
            for name, value in before.items():
                self.swap_tensor(name, value, allow_missing=True)
            raise
        return before, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The names of tensors that are missing in `keys`, and those there that no tensor has."""
        valid = {name for name, _ in self.named_tensors(remove_duplicate=False)}
        given = set(keys)
        return sorted(valid - given), sorted(given - valid)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """The module's."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """The module's."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Parameters, then buffers."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """The module's."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
