"""Trees of containers, by PyTorch's names."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest

from flambeau.utils import _pytree as P

Pair = namedtuple("Pair", "a b")  # noqa: PYI024


class Box:
    def __init__(self, inside, label):
        self.inside, self.label = inside, label


TREES = [3, (1, 2), [1, [2, (3,)]], {"b": 1, "a": [2]}, OrderedDict(z=1, y=(2, 3)), Pair(1, {"x": 2}), deque([1, 2], maxlen=4), (), {}, None]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_flat_and_back(tree) -> None:
    leaves, spec = P.tree_flatten(tree)
    back = P.tree_unflatten(leaves, spec)
    assert back == tree and type(back) is type(tree) and leaves == P.tree_leaves(tree) and spec == P.tree_structure(tree)
    assert spec.num_leaves == len(leaves) and hash(spec) == hash(P.tree_structure(tree))
    doubled = P.tree_map(lambda a, b: (a, b), tree, tree)
    assert P.tree_leaves(doubled) == [v for leaf in leaves for v in (leaf, leaf)]
    assert [P.key_get(tree, path) for path, _ in P.tree_leaves_with_path(tree)] == leaves


def test_a_default_dictionary_keeps_its_factory() -> None:
    tree = defaultdict(list, a=1)
    back = P.tree_map(lambda v: v + 1, tree)
    assert back == {"a": 2} and back.default_factory is list


def test_classes_of_ones_own() -> None:
    assert P.tree_leaves([Box(1, "x")])[0].inside == 1  # a leaf
    P.register_pytree_node(Box, lambda b: ([b.inside], b.label), lambda kids, label: Box(*kids, label))
    try:
        made = P.tree_map(lambda v: v * 2, {"k": Box((1, 2), "x")})["k"]
        assert made.inside == (2, 4) and made.label == "x"
        with pytest.raises(ValueError, match="already registered"):
            P.register_pytree_node(Box, None, None)
        with pytest.raises(ValueError, match="flatten_with_keys_fn"):
            P.tree_leaves_with_path(Box(1, ""))
        assert P._get_node_type(Box(1, "")) is Box and Box in P.SUPPORTED_NODES
    finally:
        P._deregister_pytree_node(Box)
    assert Box not in P.SUPPORTED_NODES


def test_data_classes_and_constants() -> None:
    @dataclass
    class Point:
        x: int
        y: int

    class Fixed:
        pass
    P.register_dataclass(Point)
    P.register_constant(Fixed)
    try:
        assert P.tree_map(lambda v: -v, Point(1, 2)) == Point(-1, -2) and P.keystr(P.tree_leaves_with_path(Point(1, 2))[1][0]) == ".y"
        fixed = Fixed()
        assert P.tree_leaves([fixed, 1]) == [1] and P.tree_map(lambda v: 0, [fixed, 1]) == [fixed, 0]
    finally:
        P._deregister_pytree_node(Point)
        P._deregister_pytree_node(Fixed)


def test_shapes_that_do_not_fit() -> None:
    spec = P.tree_structure({"a": 1, "b": (2, 3)})
    with pytest.raises(ValueError, match="3 leaves, 1 came"):
        spec.unflatten([1])
    with pytest.raises(ValueError, match="Type mismatch"):
        P.tree_map(lambda a, b: a, (1, 2), [1, 2])
    with pytest.raises(ValueError, match="keys mismatch"):
        P.tree_map(lambda a, b: a, {"a": 1}, {"b": 1})
    with pytest.raises(TypeError, match="TreeSpec"):
        P.tree_unflatten([1], "spec")
    assert P.tree_map(lambda a, b: a + b, {"a": 1, "b": 2}, {"b": 20, "a": 10}) == {"a": 11, "b": 22}


def test_chosen_leaves() -> None:
    tree = [1, "x", (2.0, None)]
    assert P.tree_map_only(int, lambda v: v + 1, tree) == [2, "x", (2.0, None)]
    assert P.tree_map_only((int, float), lambda v: v + 1, tree) == [2, "x", (3.0, None)]
    assert P.tree_map_only(lambda v: v is None, lambda v: 0, tree) == [1, "x", (2.0, 0)]
    assert P.tree_leaves(tree, is_leaf=lambda v: isinstance(v, tuple)) == [1, "x", (2.0, None)]
    assert P.tree_all_only(int, lambda v: v == 1, tree) and P.tree_any_only(float, lambda v: v == 2, tree) and P.LeafSpec() == P.tree_structure(1)
    assert P._broadcast_to_and_flatten((1, 2), P.tree_structure((0, [0, 0]))) == [1, 2, 2]
    assert P._broadcast_to_and_flatten([1], P.tree_structure((0,))) is None
