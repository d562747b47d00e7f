"""Nested tuples, lists, dicts, and what programs register in `torch.utils._pytree`, flat and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..utils._pytree import SUPPORTED_NODES

if TYPE_CHECKING:
    from collections.abc import Callable


def _kids(tree: Any) -> list[Any] | None:
    if isinstance(tree, (tuple, list)):
        return list(tree)
    if isinstance(tree, dict):
        return list(tree.values())
    node = SUPPORTED_NODES.get(type(tree))
    return None if node is None else list(node.flatten_fn(tree)[0])


def _rebuilt(tree: Any, kids: list[Any]) -> Any:
    if not isinstance(tree, (tuple, list, dict)):
        node = SUPPORTED_NODES[type(tree)]
        return node.unflatten_fn(kids, node.flatten_fn(tree)[1])
    if isinstance(tree, dict):
        made = dict(zip(tree, kids, strict=True))
        return made if type(tree) is dict else type(tree)(made)
    if hasattr(tree, "_fields"):
        return type(tree)(*kids)
    return type(tree)(kids)


def leaves(tree: Any) -> list[Any]:
    """The values, from left to right."""
    kids = _kids(tree)
    return [tree] if kids is None else [leaf for k in kids for leaf in leaves(k)]


def structure(tree: Any) -> Any:
    """What trees of one shape have in common, as a text: ``(*, [*, *])``."""
    kids = _kids(tree)
    if kids is None:
        return "*"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {structure(k)}" for key, k in tree.items()) + "}"
    inner = ", ".join(structure(k) for k in kids)
    return f"[{inner}]" if isinstance(tree, list) else f"({inner})"


def rebuild(tree: Any, values: Any) -> Any:
    """The tree with the next of `values` (an iterator) in the place of each leaf."""
    kids = _kids(tree)
    return next(values) if kids is None else _rebuilt(tree, [rebuild(k, values) for k in kids])


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of ``function(leaf, *leaves of the others)``, for trees of one shape."""
    rest = [leaves(o) for o in others]
    return rebuild(tree, iter([function(*each) for each in zip(leaves(tree), *rest, strict=True)]))


def spread(prefix: Any, tree: Any, what: str) -> list[Any]:
    """For each leaf of `tree` the value of `prefix` above it, where the one is a leaf or a tree of the other's shape."""
    below = _kids(prefix)
    if below is None:
        return [prefix] * len(leaves(tree))
    kids = _kids(tree)
    if kids is None or len(kids) != len(below) or isinstance(tree, dict) != isinstance(prefix, dict):
        raise ValueError(f"{what} is not compatible with the structure of the inputs: {prefix!r}")
    if isinstance(tree, dict):
        return [v for key, k in tree.items() for v in spread(prefix[key], k, what)]
    return [v for p, k in zip(below, kids, strict=True) for v in spread(p, k, what)]
