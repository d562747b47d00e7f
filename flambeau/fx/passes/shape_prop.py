"""`ShapeProp`: shapes and types of all values of a graph, by one run (torch.fx.passes.shape_prop)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..._core.ops.memory_format import channels_last, channels_last_3d, contiguous_format
from ..._core.tensor import Tensor
from ..interpreter import Interpreter
from ..node import map_aggregate

if TYPE_CHECKING:
    from ..node import Node


class TensorMetadata(NamedTuple):
    """What is kept of a tensor: `shape`, `dtype`, `requires_grad`, `stride`, `memory_format` (None for none of the known ones)."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """What is kept of a tensor."""
    formats = {contiguous_format: True, channels_last: result.dim() == 4, channels_last_3d: result.dim() == 5}
    found = next((f for f, fits in formats.items() if fits and result.is_contiguous(memory_format=f)), None) if include_contiguity else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), found, False, {})


class ShapeProp(Interpreter):
    """Runs a `GraphModule` once; each node's `meta["tensor_meta"]` then tells its tensors' shapes and types, `meta["type"]` its value's type.

    On the meta device (a module and arguments of `torch.device("meta")`) nothing is computed for it.
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        if fake_mode is not None:
            raise NotImplementedError("ShapeProp: fake_mode: run it on the meta device, which computes nothing")
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        """A node's value; what it is goes into its `meta`."""
        result = super().run_node(n)
        seen = False

        def tell(x: Any) -> Any:
            nonlocal seen
            if not isinstance(x, Tensor):
                return x
            seen = True
            return _extract_tensor_metadata(x)
        told = map_aggregate(result, tell)
        if seen:
            n.meta["tensor_meta"] = told
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the module with these arguments, and gives its result."""
        return super().run(*args)


__all__ = ["ShapeProp", "TensorMetadata"]
