"""The older constructors: `torch.sparse.FloatTensor(indices, values, size)` and its like."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.ops.legacy import _NAMES
from .._core.ops.sparse import Coo

_ops: Any = ops


class sparse_type(type):
    """The type of `sparse.FloatTensor`: a constructor, and a class whose instances are COO tensors of one dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Coo) and instance.meta.dtype is cls.dtype

    def __call__(cls, *args: Any) -> Any:
        if args and isinstance(args[0], ops.Tensor):  # type: ignore[attr-defined]
            indices, values, *size = args
            return _ops.sparse_coo_tensor(indices, values, *size, dtype=cls.dtype)
        shape = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args or (0,)
        return _ops.sparse_coo_tensor(tuple(shape), dtype=cls.dtype)

    def __repr__(cls) -> str:
        return f"<class 'torch.sparse.{cls.__name__}'>"


TYPES = {name: sparse_type(name, (), {"dtype": d, "__module__": "torch.sparse"}) for name, d in _NAMES.items()}
