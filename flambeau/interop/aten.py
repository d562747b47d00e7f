"""`torch.ops.aten`: operations by the names of PyTorch's core, which are those of its functions and methods.

`aten.add` is the function, `aten.add.Tensor` one of its overloads.  There is one function for all overloads here: each takes the
arguments of its own and works out the same.  A name that no operation has is an AttributeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core.ops import table
from .._core.ops.aten_compat import convolution
from .._core.tensor import Tensor
from . import foreach, stand_ins

# PyTorch's kernels of attention, which policies of checkpointing name
_KERNELS = frozenset("attention_math efficient_attention flash_attention cudnn_attention fused_attention_overrideable".split())
_CHOSEN = "which kernel attention uses is chosen here; call scaled_dot_product_attention"
_FOREACH = ["Tensor", "Scalar", "List", "ScalarList"]


def _to_copy(self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False,
             memory_format: Any = None) -> Any:
    return self.to(device, dtype, non_blocking=non_blocking, copy=True, memory_format=memory_format)


def _slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    if not -self.dim() <= dim < self.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-self.dim()}, {self.dim() - 1}], but got {dim})")
    return self[(slice(None),) * (dim % self.dim()) + (slice(start, end, step),)]


def _index(self: Any, indices: Any) -> Any:
    return self[tuple(slice(None) if i is None else i for i in indices)]


def _sparse_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * self + alpha * (mat1 @ mat2)


_OWN: dict[str, Callable[..., Any]] = {
    "_to_copy": _to_copy, "_sparse_addmm": _sparse_addmm, "convolution": convolution,
    "_convolution": lambda *args: convolution(*args[:9]),  # what follows are switches of PyTorch's libraries
    "slice": _slice, "index": _index, "alias": lambda self: self.view(self.shape),
    "_unsafe_view": lambda self, size: self.reshape(size),
    "_pin_memory": lambda self, device=None: self.pin_memory(), "_local_scalar_dense": lambda self: self.item(), "lift_fresh": lambda self: self}


class Overload:
    """One overload of an operation: calling it calls the operation."""

    def __init__(self, packet: Packet, overload: str) -> None:
        self._packet, self._overloadname = packet, overload
        self.__name__ = f"{packet.__name__}.{overload}"

    overloadpacket = property(lambda self: self._packet)

    @property
    def namespace(self) -> str:
        """The namespace of its operation."""
        return self._packet.namespace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._packet(*args, **kwargs)

    def name(self) -> str:
        """Its name as PyTorch's core writes it."""
        return f"{self.namespace}::{self._packet.__name__}" + ("" if self._overloadname == "default" else f".{self._overloadname}")

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._packet.__name__}', overload='{self._overloadname}')>"


class Packet:
    """An operation, whose attributes are its overloads."""

    def __init__(self, name: str, function: Callable[..., Any], namespace: str = "aten") -> None:
        self.__name__, self._function, self.namespace = name, function, namespace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def overloads(self) -> list[str]:
        """The names of overloads that libraries ask for: of operations on lists those of lists, else `default`."""
        return list(_FOREACH) if self.__name__.startswith("_foreach_") else ["default"]

    def __getattr__(self, name: str) -> Overload:
        if name.startswith("_"):
            raise AttributeError(f"The underlying op of '{self.namespace}.{self.__name__}' has no overload name '{name}'")
        found = self.__dict__[name] = Overload(self, name)
        return found

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"


class Other:
    """`torch.ops.<name>` of operations that are functions of a module here."""

    def __init__(self, name: str, where: str, functions: dict[str, str]) -> None:
        self._name, self._where, self._functions = name, where, functions

    def __getattr__(self, name: str) -> Packet:
        if name.startswith("__") or name not in self._functions:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")
        import importlib
        function = getattr(importlib.import_module(self._where), self._functions[name])
        found = self.__dict__[name] = Packet(name, function, self._name)
        return found

    def __repr__(self) -> str:
        return f"<torch.ops.{self._name}>"


class Namespace:
    """`torch.ops.aten`."""

    def __getattr__(self, name: str) -> Packet:
        if name.startswith("_scaled_dot_product_") and name.removeprefix("_scaled_dot_product_") in _KERNELS:
            found = self.__dict__[name] = Packet(name, stand_ins.function("flambeau.ops.aten", name, _CHOSEN))
            return found
        function = _OWN.get(name) or foreach.find(name) or table.find("torch", name) or _method(name) or table.find("nn.functional", name)
        if function is None or name.startswith("__"):
            raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
        found = self.__dict__[name] = Packet(name, function)
        return found

    def __repr__(self) -> str:
        return "<torch.ops.aten>"


def _method(name: str) -> Callable[..., Any] | None:
    found = getattr(Tensor, name, None)
    return found if callable(found) and not name.startswith("__") else None


aten = Namespace()
_COLLECTIVES = {"all_reduce": "all_reduce", "broadcast": "broadcast", "all_gather_into_tensor": "all_gather_rows", "wait_tensor": "wait_tensor",
                "reduce_scatter_tensor": "reduce_scatter_rows", "all_to_all_single": "all_to_all_single"}
OTHERS = {"_c10d_functional": Other("_c10d_functional", "flambeau.distributed._functional_collectives", _COLLECTIVES),
          "torch_attn": Other("torch_attn", "flambeau.nn.attention.varlen", {"_varlen_attn": "varlen_attn"})}
