"""Nested containers, flat and back, by the names programs use (torch.utils._pytree).

Tuples, lists, dictionaries, named tuples, ordered and default dictionaries and deques are trees; `register_pytree_node` makes a
class of one's own one.  Anything else is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Context = Any
PyTree = Any
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Iterable[Any], Any], Any]


class NodeDef(NamedTuple):
    """How a type is taken apart and put together."""

    type: Any
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: Any


@dataclass(frozen=True)
class SequenceKey:
    """The place of a value in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """The key of a value in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """The attribute that a value is."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


KeyPath = tuple[Any, ...]
SUPPORTED_NODES: dict[Any, NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: dict[Any, str] = {}


@dataclass(frozen=True)
class TreeSpec:
    """The shape of a tree: the type at its top, what that type keeps beside its children, and their shapes."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]
    num_nodes: int = field(init=False)
    num_leaves: int = field(init=False)
    num_children: int = field(init=False)

    def __post_init__(self) -> None:
        own = object.__setattr__
        own(self, "num_nodes", 1 + sum(s.num_nodes for s in self.children_specs))
        own(self, "num_leaves", 1 if self.type is None else sum(s.num_leaves for s in self.children_specs))
        own(self, "num_children", len(self.children_specs))

    def is_leaf(self) -> bool:
        """Whether the tree is one value."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The shapes of the parts."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The shape of one part."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves.  Raises ValueError for another number of them."""
        values = list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(f"tree_unflatten: the tree has {self.num_leaves} leaves, {len(values)} came")
        return self._filled(iter(values))

    def _filled(self, values: Any) -> Any:
        if self.type is None:
            return next(values)
        return SUPPORTED_NODES[self.type].unflatten_fn([s._filled(values) for s in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` where this shape has leaves.  Raises ValueError for a tree of another shape."""
        if self.type is None:
            return [tree]
        kind = _get_node_type(tree)
        if kind is not self.type and not (_is_dict(kind) and _is_dict(self.type)):
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        if _is_dict(kind):
            keys = _dict_keys(self)
            if set(keys) != set(tree):
                raise ValueError(f"Node keys mismatch; expected {sorted(map(repr, keys))}, but got {sorted(map(repr, tree))}.")
            kids = [tree[k] for k in keys]
        else:
            kids, context = SUPPORTED_NODES[kind].flatten_fn(tree)
            if len(kids) != self.num_children or (kind is not deque and context != self.context):
                raise ValueError(f"Node arity or context mismatch; expected {self.num_children} children, but got {len(kids)}.")
        return [leaf for s, k in zip(self.children_specs, kids) for leaf in s.flatten_up_to(k)]

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(map(hash, self.children_specs))))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inner = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context!r}, [{inner}])"


class LeafSpec(TreeSpec):
    """The shape of one value."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    __hash__ = TreeSpec.__hash__


_LEAF = LeafSpec()


def register_pytree_node(cls: Any, flatten_fn: FlattenFunc, unflatten_fn: UnflattenFunc, *, serialized_type_name: str | None = None,
                         to_dumpable_context: Any = None, from_dumpable_context: Any = None, flatten_with_keys_fn: Any = None) -> None:
    """Makes the instances of a class trees: ``flatten_fn(x)`` gives the children and what else is kept, ``unflatten_fn(children, kept)`` makes
    another.  Raises ValueError for a class that is one already."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    if serialized_type_name is not None:
        SUPPORTED_SERIALIZED_TYPES[cls] = serialized_type_name


def _register_pytree_node(cls: Any, flatten_fn: FlattenFunc, unflatten_fn: UnflattenFunc, **options: Any) -> None:
    """`register_pytree_node` by its older name, for a class that may be one already."""
    SUPPORTED_NODES.pop(cls, None)
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


_private_register_pytree_node = _register_pytree_node


def _deregister_pytree_node(cls: Any) -> None:
    """Makes the instances of a class leaves again."""
    SUPPORTED_NODES.pop(cls, None)
    SUPPORTED_SERIALIZED_TYPES.pop(cls, None)


def register_dataclass(cls: Any, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
                       serialized_type_name: str | None = None) -> None:
    """Makes the instances of a data class trees, by their fields."""
    import dataclasses
    names = field_names if field_names is not None else [f.name for f in dataclasses.fields(cls) if f.init and f.name not in (drop_field_names or ())]
    register_pytree_node(cls, lambda x: ([getattr(x, n) for n in names], tuple(names)), lambda kids, kept: cls(**dict(zip(kept, kids))),
                         serialized_type_name=serialized_type_name,
                         flatten_with_keys_fn=lambda x: ([(GetAttrKey(n), getattr(x, n)) for n in names], tuple(names)))


def register_constant(cls: Any) -> None:
    """Makes the instances of a class trees without leaves."""
    register_pytree_node(cls, lambda x: ([], x), lambda kids, kept: kept, flatten_with_keys_fn=lambda x: ([], x))


def _is_dict(kind: Any) -> bool:
    return kind in (dict, OrderedDict, defaultdict)


def _dict_keys(spec: TreeSpec) -> list[Any]:
    return list(spec.context[1] if spec.type is defaultdict else spec.context)


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = _dict_flatten(d)
    return [(MappingKey(k), v) for k, v in zip(context, values)], context


def _sequence_keys(flatten: FlattenFunc) -> Callable[[Any], Any]:
    def with_keys(x: Any) -> Any:
        values, context = flatten(x)
        return [(SequenceKey(i), v) for i, v in enumerate(values)], context
    return with_keys


def _list_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), None


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


_tuple_flatten = _list_flatten


def _namedtuple_flatten_with_keys(d: Any) -> Any:
    return [(GetAttrKey(n), v) for n, v in zip(d._fields, d)], type(d)


def _defaultdict_flatten_with_keys(d: Any) -> Any:
    return _dict_flatten_with_keys(d)[0], [d.default_factory, list(d)]


# PyTorch's kind of every class made by `namedtuple`
class _Named:
    pass


_list_flatten_with_keys = _tuple_flatten_with_keys = _sequence_keys(_list_flatten)
register_pytree_node(tuple, _tuple_flatten, _tuple_unflatten, flatten_with_keys_fn=_tuple_flatten_with_keys)
register_pytree_node(list, _list_flatten, _list_unflatten, flatten_with_keys_fn=_list_flatten_with_keys)
register_pytree_node(dict, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys)
register_pytree_node(OrderedDict, _dict_flatten, lambda v, c: OrderedDict(zip(c, v)), flatten_with_keys_fn=_dict_flatten_with_keys)
register_pytree_node(defaultdict, lambda d: (list(d.values()), [d.default_factory, list(d)]), lambda v, c: defaultdict(c[0], zip(c[1], v)),
                     flatten_with_keys_fn=_defaultdict_flatten_with_keys)
register_pytree_node(deque, lambda d: (list(d), d.maxlen), lambda v, c: deque(v, maxlen=c), flatten_with_keys_fn=_sequence_keys(lambda d: (list(d), d.maxlen)))
register_pytree_node(_Named, _namedtuple_flatten, _namedtuple_unflatten, flatten_with_keys_fn=_namedtuple_flatten_with_keys)


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class was made by `namedtuple`."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple(obj: Any) -> bool:
    """Whether an object's class was."""
    return is_namedtuple_class(type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """`is_namedtuple`, by its other name."""
    return is_namedtuple(obj)


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is one of CPython's structs of named values, such as `time.struct_time`."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    return isinstance(cls, type) and cls.__bases__ == (tuple,) and all(isinstance(getattr(cls, name, None), int) for name in counts)


def is_structseq(obj: Any) -> bool:
    """Whether an object's class is."""
    return is_structseq_class(type(obj))


is_structseq_instance = is_structseq


def _get_node_type(tree: Any) -> Any:
    """The key of `SUPPORTED_NODES` for a tree; its class where it is a leaf."""
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_class(kind):
        return _Named
    return kind


def _is_leaf(tree: Any, is_leaf: Any = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


tree_is_leaf = _is_leaf


def tree_iter(tree: Any, is_leaf: Any = None) -> Iterable[Any]:
    """The values one after another."""
    if _is_leaf(tree, is_leaf):
        yield tree
        return
    for kid in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(kid, is_leaf)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """The values in a tree, from left to right."""
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Any = None) -> TreeSpec:
    """The shape alone."""
    return tree_flatten(tree, is_leaf)[1]


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """The values and the shape."""
    if _is_leaf(tree, is_leaf):
        return [tree], _LEAF
    kind = _get_node_type(tree)
    kids, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    values: list[Any] = []
    specs = []
    for kid in kids:
        below, spec = tree_flatten(kid, is_leaf)
        values += below
        specs.append(spec)
    return values, TreeSpec(kind, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of this shape with these values."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """The tree of func(value, *values of the others)."""
    values, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*each) for each in zip(values, *others)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Calls the function on the values, and gives the tree as it came."""
    values, spec = tree_flatten(tree, is_leaf)
    for each in zip(values, *[spec.flatten_up_to(r) for r in rests]):
        func(*each)
    return tree


def _of(kind: Any) -> Callable[[Any], bool]:
    return kind if callable(kind) and not isinstance(kind, type) else lambda v: isinstance(v, kind)


def map_only(kind: Any, /) -> Callable[[Any], Any]:
    """A decorator: the function for values of a type (or one of several, or those a predicate holds for), others as they are."""
    holds = _of(kind)
    return lambda func: lambda v: func(v) if holds(v) else v


def tree_map_only(kind: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """The tree with func(value) in place of the values of a type (or of one of several)."""
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """Calls the function on the values of a type, and gives the tree as it came."""
    return tree_map_(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds of every value."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds of some value."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kind: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds of every value of a type."""
    return all(pred(v) for v in tree_iter(tree, is_leaf) if isinstance(v, kind))


def tree_any_only(kind: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds of some value of a type."""
    return any(pred(v) for v in tree_iter(tree, is_leaf) if isinstance(v, kind))


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The values, each with the keys that lead to it, and the shape."""
    return list(_with_paths((), tree, is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Any = None) -> list[tuple[KeyPath, Any]]:
    """The values, each with the keys that lead to it."""
    return list(_with_paths((), tree, is_leaf))


def _with_paths(path: KeyPath, tree: Any, is_leaf: Any) -> Iterable[tuple[KeyPath, Any]]:
    if _is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_get_node_type(tree)]
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {node.type}. Please pass a flatten_with_keys_fn argument to "
                         "register_pytree_node.")
    for key, kid in node.flatten_with_keys_fn(tree)[0]:
        yield from _with_paths((*path, key), kid, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """The tree of func(path, value, *values of the others)."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(path, value, *rest) for (path, value), *rest in zip(pairs, *others)])


def keystr(kp: KeyPath) -> str:
    """A path as it is written in Python."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """The value that a path leads to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Any = None) -> list[Any] | None:
    """For each leaf of a shape the value of `tree` above it; None where the shapes do not fit."""
    if _is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) is not treespec.type:
        return None
    kids, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(kids) != treespec.num_children or context != treespec.context:
        return None
    made: list[Any] = []
    for kid, spec in zip(kids, treespec.children_specs):
        found = _broadcast_to_and_flatten(kid, spec, is_leaf)
        if found is None:
            return None
        made += found
    return made


__all__ = ["Context", "GetAttrKey", "KeyPath", "LeafSpec", "MappingKey", "NodeDef", "PyTree", "SUPPORTED_NODES", "SequenceKey", "TreeSpec", "is_namedtuple",
           "is_namedtuple_class", "key_get", "keystr", "map_only", "register_constant", "register_dataclass", "register_pytree_node", "tree_all",
           "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves",
           "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_", "tree_map_with_path", "tree_structure", "tree_unflatten"]
