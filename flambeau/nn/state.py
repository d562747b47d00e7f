"""`state_dict` and `load_state_dict`: how a module's tensors go into a dictionary and come back."""

from __future__ import annotations

import itertools
from collections import OrderedDict, namedtuple
from typing import TYPE_CHECKING, Any

from .._core.autograd.handles import RemovableHandle
from .._core.errors import warn
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from ..autograd import no_grad
from .hooks import OfModule
from .parameter import Parameter, is_lazy

if TYPE_CHECKING:
    from collections.abc import Callable

EXTRA_STATE_KEY = _EXTRA_STATE_KEY_SUFFIX = "_extra_state"  # the second is PyTorch's name


class _IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):  # noqa: PYI024
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class Stateful:
    """The part of `Module` that saves and loads. It reads the three tables of a module and nothing else."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: dict[int, Any]
    _state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_post_hooks: dict[int, Any]
    _version: int = 1

    # -- saving ------------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """What `state_dict` holds beside tensors; a subclass that has such state overrides this and its setter."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called. Override "
                           "get_extra_state together with set_extra_state to use it.")

    def set_extra_state(self, state: Any) -> None:
        """Takes back what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called. Override "
                           "set_extra_state together with get_extra_state to use it.")

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars or is_lazy(parameter) else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars or is_lazy(buffer) else buffer.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + EXTRA_STATE_KEY] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """An ordered dictionary from dotted names to the module's parameters and persistent buffers.

        The tensors share memory with the module and are detached unless `keep_vars`. The dictionary's `_metadata`
        attribute holds the version of each submodule's layout.
        """
        for name, value in zip(("destination", "prefix", "keep_vars"), args):
            if name == "destination":
                destination = value
            elif name == "prefix":
                prefix = value
            else:
                keep_vars = value
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local)
            if replaced is not None:
                destination = replaced
        return destination

    # -- loading -----------------------------------------------------------------------------------------------------

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any],
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Copies this module's own entries of `state_dict`, not those of its children. Made to be overridden: a module
        whose layout changed mends old dictionaries here, by `local_metadata["version"]`."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own: dict[str, Tensor] = {}
        for name, value in itertools.chain(self._parameters.items(), self._buffers.items()):
            if value is not None and name not in self._non_persistent_buffers_set:
                own[name] = value
        mine: Any
        for name, mine in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            given: Any = state_dict[key]
            if not isinstance(given, Tensor):
                error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                                  f"object from checkpoint but received {type(given)}")
                continue
            if is_lazy(mine):
                if not is_lazy(given):
                    with no_grad():
                        mine.materialize(given.shape)
                else:
                    continue
            # Files of the first PyTorch versions hold numbers as vectors of one element.
            if mine.dim() == 0 and given.dim() == 1 and given.shape[0] == 1:
                given = given.select(0, 0)
            if given.shape != mine.shape:
                error_msgs.append(f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
                                  f"the shape in current model is {mine.shape}.")
                continue
            try:
                if assign:
                    self._assign_from_checkpoint(name, mine, given)
                else:
                    if mine.is_meta and not given.is_meta:
                        warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, which "
                             "is a no-op. (Did you mean to pass `assign=True`?)")
                    with no_grad():
                        unasked(mine.copy_)(given)
            except Exception as error:
                error_msgs.append(f'While copying the parameter named "{key}", whose dimensions in the model are '
                                  f"{mine.size()} and whose dimensions in the checkpoint are {given.size()}, an "
                                  f"exception occurred : {error.args}.")
        extra = prefix + EXTRA_STATE_KEY
        if type(self).set_extra_state is not Stateful.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, *rest = key[len(prefix):].split(".", 1)
                    child = first in self._modules if rest else first in own
                    if not child:
                        unexpected_keys.append(key)

    def _assign_from_checkpoint(self, name: str, mine: Tensor, given: Tensor) -> None:
        """`load_state_dict(assign=True)`: the given tensor itself becomes the parameter or buffer."""
        if isinstance(mine, Parameter):
            value = given if isinstance(given, Parameter) else Parameter(given, requires_grad=mine.requires_grad)
            if isinstance(given, Parameter) and given.requires_grad != mine.requires_grad:
                given.requires_grad_(mine.requires_grad)
            setattr(self, name, value)
        else:
            setattr(self, name, given)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Copies the tensors of `state_dict` into this module's parameters and buffers, wherever those live.

        Args:
            state_dict: a dictionary from dotted names to tensors, as `state_dict()` gives it. It is not changed.
            strict: whether the names must be exactly this module's.
            assign: make the given tensors themselves the parameters, with their dtype and device, and copy nothing.

        Returns a pair `(missing_keys, unexpected_keys)`. Raises RuntimeError with every mismatch of a shape and, if
        `strict`, every missing or unexpected name; TypeError if `state_dict` is no mapping.
        """
        from collections.abc import Mapping

        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied: Any = OrderedDict(state_dict)
        if metadata is not None:
            copied._metadata = metadata

        def load(module: Any, local: Any, prefix: str) -> None:
            info: dict[str, Any] = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
            if assign:
                info["assign_to_params_buffers"] = True
            module._load_from_state_dict(local, prefix, info, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    below = prefix + name + "."
                    load(child, {k: v for k, v in local.items() if k.startswith(below)}, below)
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not "
                                         "expected to return new values; if incompatible_keys need to be modified, it "
                                         "should be done inplace.")

        load(self, copied, "")
        if strict:
            if unexpected:
                errors.insert(0,
                              "Unexpected key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in unexpected)))
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: {}. ".format(", ".join(f'"{k}"' for k in missing)))
        if errors:
            text = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{text}")
        return _IncompatibleKeys(missing, unexpected)

    # -- hooks -------------------------------------------------------------------------------------------------------

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = hook
        return handle

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after `state_dict` has filled the dictionary."""
        def checked(module: Any, destination: Any, prefix: str, local: Any) -> None:
            if hook(module, destination, prefix, local) is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return self._register_state_dict_hook(checked)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, prefix, keep_vars)`` before `state_dict` reads the module."""
        handle = RemovableHandle(self._state_dict_pre_hooks)
        self._state_dict_pre_hooks[handle.id] = hook
        return handle

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any],
                                           with_module: bool = False) -> RemovableHandle:
        handle = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[handle.id] = OfModule(hook, self) if with_module else hook
        return handle

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)`` before the module's own entries are loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, incompatible_keys)`` after loading; it may change the two lists in place."""
        handle = RemovableHandle(self._load_state_dict_post_hooks)
        self._load_state_dict_post_hooks[handle.id] = hook
        return handle




def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes `prefix` ("module." of DistributedDataParallel) off the names of a state dict, in place, and off those of its metadata."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[name[len(prefix):]] = state_dict.pop(name)
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", {})
    for name in list(metadata):
        if name and f"{name}.".startswith(prefix):
            metadata[name[len(prefix):]] = metadata.pop(name)
