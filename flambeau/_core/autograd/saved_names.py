"""What a node keeps, by the names that PyTorch's `grad_fn._saved_...` has for it."""

from __future__ import annotations

from typing import Any

from .. import hooks
from ..tensor import Tensor, alias
from . import tape

NOTHING = object()
_OPERANDS = {"input": "self"}  # a table's name of a parameter, and PyTorch's of what is kept of it
# of nodes that are no formulas: the names of the tensors that they keep, in their order
_OF = {"MmBackward0": ("self", "mat2"), "BmmBackward0": ("self", "mat2"), "MvBackward0": ("self", "vec"), "DotBackward0": ("self", "tensor"),
       "ProdBackward0": ("self",), "ProdBackward1": ("self",), "GatherBackward0": ("index",), "EmbeddingBackward0": ("indices",),
       "ConvolutionBackward0": ("input", "weight"), "IndexSelectBackward0": ("index",)}
_RESULTS = frozenset("SoftmaxBackward0 LogSoftmaxBackward0 LogsumexpBackward0 LogcumsumexpBackward0 CumprodBackward0".split())


def find(node: tape.Node, saved: Any, name: str) -> Any:
    """What the node keeps under a name; NOTHING where that is nothing.  Raises RuntimeError for a tensor that was written to since."""
    kept = _formula(saved) if type(saved) is tuple and len(saved) == 5 and hasattr(saved[0], "tape") else _other(node, saved)
    if name not in kept:
        return NOTHING
    value, version = kept[name]
    if not isinstance(value, Tensor):
        return value
    if version is not None and value.store.version != version:
        tape.changed(value, version, node)
    if name == "result":  # kept without its history, which would be a circle
        value = alias(value, value.meta, value.ptr)
        value.node = node
    return value


def _formula(saved: Any) -> dict[str, tuple[Any, Any]]:
    info, kept, versions, results, _ = saved
    names = _operands(info.op)
    found: dict[str, tuple[Any, Any]] = {n: (v, None) for n, v in info.consts}
    for place, x, version in zip(info.tape.saved, kept, versions, strict=True):
        if place < len(names):
            found[names[place]] = (x, version)
    for y, version in results:
        found["result"] = (y, version)
    return found


def _operands(op: Any) -> list[str]:
    """PyTorch's names of a formula's operands."""
    row = hooks.operations().get(op.name)
    if row is None:
        return ["self", "other"][:op.arity]
    names = [n.partition("=")[0].partition(":")[0].strip() for n in row.signature.strip("()").split(", ")]
    names = [n for n in names if not n.startswith("*")][:op.arity]
    return [_OPERANDS.get(n, n) for n in names]


def _other(node: tape.Node, saved: Any) -> dict[str, tuple[Any, Any]]:
    name = tape.name_of(node)
    tensors = list(_pairs(saved))
    if name in _RESULTS and tensors:
        return {"result": tensors[-1]}
    names = _OF.get(name, ())
    if type(saved) is tuple and saved and type(saved[0]) in tape.described and len(saved) > 2:  # a learned call: operands, versions
        tensors = list(zip(saved[1], saved[2], strict=True))
    elif name in ("MmBackward0", "BmmBackward0", "MvBackward0", "DotBackward0") and type(saved) is tuple:
        tensors = [(saved[0], saved[1]), (saved[2], saved[3])]
    return {n: pair for n, pair in zip(names, tensors, strict=False) if pair[0] is not None}


def _pairs(x: Any) -> Any:
    """The tensors in what a node keeps, each with its version where that lies beside it."""
    if isinstance(x, Tensor):
        yield x, None
    elif type(x) is tuple and len(x) == 2 and isinstance(x[0], Tensor) and type(x[1]) is int:
        yield x
    elif type(x) in (tuple, list):
        for y in x:
            yield from _pairs(y)
