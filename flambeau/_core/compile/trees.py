"""What a function is given and gives, with the tensors in it told from all else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Leaf:
    """Tensor `number` of those found."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def taken(x: Any, tensors: list[Any], more: Collection[type] = ()) -> Any:
    """The tree with a `Leaf` for each tensor, or object of these classes too, which is added to `tensors`. Raises TypeError for an object that may hold
    tensors unseen."""
    if isinstance(x, Tensor) or type(x) in more:
        tensors.append(x)
        return Leaf(len(tensors) - 1)
    if type(x) in (tuple, list):
        return type(x)([taken(part, tensors, more) for part in x])
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*[taken(part, tensors, more) for part in x])
    if type(x) is dict:
        return {key: taken(part, tensors, more) for key, part in x.items()}
    if isinstance(x, (tuple, list, dict, set)):
        raise TypeError(f"a {type(x).__name__} is neither a tuple, a list nor a dict, and may hold tensors")
    return x


def put(tree: Any, leaf: Callable[[int], Any]) -> Any:
    """The tree with ``leaf(number)`` in the place of each Leaf."""
    if type(tree) is Leaf:
        return leaf(tree.number)
    if type(tree) in (tuple, list):
        return type(tree)([put(part, leaf) for part in tree])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[put(part, leaf) for part in tree])
    if type(tree) is dict:
        return {key: put(part, leaf) for key, part in tree.items()}
    return tree


def key(tree: Any) -> Any:
    """A key by which trees of equal structure and equal constants are found. Raises TypeError for a constant that has no hash."""
    if type(tree) is Leaf:
        return Leaf
    if isinstance(tree, (tuple, list)):
        return (type(tree), *[key(part) for part in tree])
    if type(tree) is dict:
        return (dict, *[(name, key(part)) for name, part in tree.items()])
    if type(tree) is float:
        return float, tree.hex()  # the zeros are two, and nan is itself
    if type(tree) is complex:
        return complex, tree.real.hex(), tree.imag.hex()
    hash(tree)
    return type(tree), tree
