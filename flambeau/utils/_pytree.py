"""Nested containers, flat and back, by the names programs use (torch.utils._pytree)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..func import trees


class TreeSpec:
    """The shape of a tree: what its leaves go back into."""

    __slots__ = ("_tree", "num_leaves")

    def __init__(self, tree: Any, num_leaves: int) -> None:
        self._tree, self.num_leaves = tree, num_leaves

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves.  Raises ValueError for another number of them."""
        values = list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(f"tree_unflatten: the tree has {self.num_leaves} leaves, {len(values)} came")
        return trees.rebuild(self._tree, iter(values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and repr(self._tree) == repr(other._tree)

    def __hash__(self) -> int:
        return hash(repr(self._tree))

    def __repr__(self) -> str:
        return f"TreeSpec({self._tree!r})"


class _Leaf:
    def __repr__(self) -> str:
        return "*"


_LEAF = _Leaf()


def tree_leaves(tree: Any) -> list[Any]:
    """The values in nested tuples, lists and dicts."""
    return trees.leaves(tree)


def tree_structure(tree: Any) -> TreeSpec:
    """The shape alone."""
    return tree_flatten(tree)[1]


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The values and the shape."""
    values = trees.leaves(tree)
    return values, TreeSpec(trees.rebuild(tree, iter([_LEAF] * len(values))), len(values))


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of this shape with these values."""
    return treespec.unflatten(leaves)


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """The tree of func(value, *values of the others)."""
    return trees.mapped(func, tree, *rests)


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with func(value) in place of the values of a type (or of one of several)."""
    return trees.mapped(lambda v: func(v) if isinstance(v, kind) else v, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether pred holds of every value."""
    return all(map(pred, trees.leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether pred holds of some value."""
    return any(map(pred, trees.leaves(tree)))


__all__ = ["TreeSpec", "tree_all", "tree_any", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_structure", "tree_unflatten"]
