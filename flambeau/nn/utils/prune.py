"""Pruning (torch.nn.utils.prune): parameters times masks of zeros and ones.

A pruned parameter `name` of a module becomes the parameter `name_orig`, the buffer `name_mask` and their product, the attribute
`name`, which a hook computes before each call.  `remove` makes the product the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..._core import ops as _ops

ops: Any = _ops

__all__ = ["BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
           "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
           "random_structured", "random_unstructured", "remove"]


class BasePruningMethod:
    """A way to prune, and the hook that multiplies by the mask.  Subclasses define ``compute_mask(t, default_mask)`` and
    `PRUNING_TYPE`: "unstructured", "structured" (with `dim`) or "global"."""

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask for importances `t`, zero where `default_mask` is already."""
        raise NotImplementedError(f"{type(self).__name__} defines no compute_mask")

    def apply_mask(self, module: Any) -> Any:
        """The product of the original parameter and its mask."""
        name = self._tensor_name
        mask = getattr(module, name + "_mask")
        original = getattr(module, name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Any:
        """Prunes the parameter `name` of a module, further if it is pruned already; gives the hook."""
        old = _method_of(module, name)
        method = cls(*args, **kwargs)
        method._tensor_name = name
        if old is not None:
            both = PruningContainer(old[1])
            both.add_pruning_method(method)
            method = both
        original = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        default = ops.ones_like(original) if old is None else getattr(module, name + "_mask").detach().clone()
        mask = method.compute_mask(importance_scores.detach(), default)
        # only now, so that a method that fails leaves the module as it was
        if old is None:
            del module._parameters[name]
            module.register_parameter(name + "_orig", original)
        else:
            del module._forward_pre_hooks[old[0]]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A tensor times the mask this way gives it."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        return t * self.compute_mask(scores, ops.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Any) -> None:
        """Makes the pruned tensor the parameter again; the pruned elements are lost."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = pruned.data
        del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several ways, one after the other: each prunes what those before left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1 and isinstance(args[0], Iterable) and not isinstance(args[0], BasePruningMethod):
            args = tuple(args[0])
        for method in args:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Adds one for the same parameter.  Raises TypeError for what is no method, ValueError for another parameter's."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer. "
                             f"Found '{method._tensor_name}'")
        old = method._pruning_methods if isinstance(method, PruningContainer) else (method,)
        self._pruning_methods = (*self._pruning_methods, *old)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, i: Any) -> Any:
        return self._pruning_methods[i]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of the last method, on what the mask so far leaves."""
        method, mask = self._pruning_methods[-1], default_mask.to(dtype=t.dtype)
        kind = method.PRUNING_TYPE
        if kind == "unstructured":
            left: Any = mask == 1
        elif kind == "structured":
            axes = [d for d in range(t.dim()) if d != method.dim % t.dim()]
            keep = (mask.sum(axes) != 0) if axes else mask != 0
            left = (slice(None),) * (method.dim % t.dim()) + (keep,)
        elif kind == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
        made = mask.detach().clone()
        made[left] = method.compute_mask(t[left], mask[left]).to(made.dtype)
        return made


class Identity(BasePruningMethod):
    """Prunes nothing: a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask as it is."""
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        """Adds the mask to the parameter `name`."""
        return super().apply(module, name)


class _Amount(BasePruningMethod):
    """What the ways that prune a share have between them: `amount` is a share of 1 or a number of units."""

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _units(self, size: int) -> int:
        _validate_pruning_amount(self.amount, size)
        return _compute_nparams_toprune(self.amount, size)


# by PyTorch's names, which pruning methods of users call
def _validate_pruning_amount_init(amount: Any) -> None:
    """Raises TypeError unless `amount` is a number, ValueError unless it is a share of 1 (float) or not below 0 (int)."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if isinstance(amount, int) and amount < 0 or isinstance(amount, float) and not 0.0 <= amount <= 1.0:
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """Raises ValueError when more elements (int) are to go than there are."""
    if isinstance(amount, int) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many of `tensor_size` elements a share (float) or a number (int) is."""
    return amount if isinstance(amount, int) else round(amount * tensor_size)


class RandomUnstructured(_Amount):
    """Elements drawn at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without as many elements as `amount` says."""
        mask, units = default_mask.clone(), self._units(t.nelement())
        if units:
            mask.view(-1)[ops.rand_like(t).view(-1).topk(units).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        """Prunes the parameter `name`."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Amount):
    """The elements of least magnitude (or importance)."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without as many elements as `amount` says."""
        mask, units = default_mask.clone(), self._units(t.nelement())
        if units:
            mask.view(-1)[t.abs().reshape(-1).topk(units, largest=False).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:  # type: ignore[override]
        """Prunes the parameter `name`."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Channels(_Amount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without as many channels along `dim` as `amount` says."""
        if t.dim() <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                             f"{tuple(t.shape)} with {t.dim()} dims")
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        size = t.shape[self.dim]
        units = self._units(size)
        if not units:
            return default_mask
        keep = ops.zeros(size, dtype=t.dtype, device=t.device)
        if size > units:
            keep[self._scores(t).topk(size - units).indices] = 1
        shape = [1] * t.dim()
        shape[self.dim] = size
        return default_mask.to(dtype=t.dtype) * keep.view(shape)


class RandomStructured(_Channels):
    """Whole channels along `dim`, drawn at random."""

    def _scores(self, t: Any) -> Any:
        return ops.rand(t.shape[self.dim], device=t.device)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> Any:  # type: ignore[override]
        """Prunes the parameter `name`."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Channels):
    """The channels along `dim` with the smallest `n`-norms."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Any) -> Any:
        return t.norm(p=self.n, dim=[d for d in range(t.dim()) if d != self.dim % t.dim()])

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:  # type: ignore[override]
        """Prunes the parameter `name`."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """What a mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Both masks."""
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        """Prunes the parameter `name`."""
        return super().apply(module, name, mask=mask)


def _method_of(module: Any, name: str) -> tuple[int, Any] | None:
    """The key and the hook that prune a parameter of a module; None where it is not pruned."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def identity(module: Any, name: str) -> Any:
    """Gives the parameter `name` a mask of ones; the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes elements drawn at random: a share (float) or a number (int) of those left; gives the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prunes the elements of least magnitude, or importance; gives the module."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes whole channels along `dim`, drawn at random; gives the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:
    """Prunes the channels along `dim` with the smallest `n`-norms; gives the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prunes what a mask of the parameter's shape says; gives the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prunes several parameters as if they were one: `parameters` are (module, name) pairs, `importance_scores` a dict by pair."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    flat = ops.cat([scores.get(pair, getattr(*pair)).detach().reshape(-1) for pair in pairs])
    masks = ops.cat([getattr(m, name + "_mask", ops.ones_like(getattr(m, name))).reshape(-1) for m, name in pairs])
    method: Any = PruningContainer()
    method._tensor_name = "temp"
    one = pruning_method(**kwargs)
    one._tensor_name = "temp"
    method.add_pruning_method(one)
    if one.PRUNING_TYPE != "unstructured":
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type {one.PRUNING_TYPE}')
    final = method.compute_mask(flat, masks)
    start = 0
    for m, name in pairs:
        parameter = getattr(m, name)
        count = parameter.numel()
        custom_from_mask(m, name, mask=final[start:start + count].view_as(parameter))
        start += count


def remove(module: Any, name: str) -> Any:
    """Makes the pruned tensor the parameter for good.  Raises ValueError for a parameter that is not pruned."""
    found = _method_of(module, name)
    if found is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    found[1].remove(module)
    del module._forward_pre_hooks[found[0]]
    return module


def is_pruned(module: Any) -> bool:
    """Whether a module, or one inside it, has a pruned parameter."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
