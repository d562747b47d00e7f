"""`Node`: one step of a graph."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.tensor import Tensor
from . import names
from .immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from .graph import Graph

Target = Any  # a function, or the name of a method, a module, an attribute, an input
Argument = Any  # a node, a constant, or a tuple, list, dictionary or slice of such
BASE_ARGUMENT_TYPES = (str, int, float, bool, complex, type(None), Tensor, type(Ellipsis))
OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")

_side_effectful_functions: set[Any] = {operator.setitem}


def has_side_effect(fn: Any) -> Any:
    """Has nodes that call a function stay when dead code is taken out; also a decorator."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Any:
    """`fn` of each value in tuples, lists, dictionaries and slices; lists and dictionaries come back unchangeable."""
    kind = a.__class__
    if isinstance(a, tuple):
        parts = [map_aggregate(x, fn) for x in a]
        return kind(*parts) if hasattr(a, "_fields") else kind(parts) if kind is not tuple else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Any]) -> Any:
    """`fn` of each node in an argument, in the place of it."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class ArgsKwargsPair(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Node:
    """One step of a graph: `op` says what is done, `target` with what, `args` and `kwargs` are nodes and constants.

    op: "placeholder" (an input), "get_attr" (an attribute of the module), "call_function", "call_module", "call_method" or "output".
    users: the nodes that use this one, as keys of a dictionary.  meta: a dictionary for passes to keep what they know.
    Nodes are made by a `Graph`'s methods.
    """

    def __init__(self, graph: Graph, name: str, op: str, target: Target, args: Any, kwargs: Any, return_type: Any | None = None) -> None:
        if op not in OPS:
            raise AssertionError(f"a node's op is one of {', '.join(OPS)}, not {op!r}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is expected")
        elif not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected")
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._erased = False
        self._prev = self._next = self
        self._repr_fn: Callable[[Node], str] | None = None
        self._args: Any = ()
        self._kwargs: Any = {}
        self._use(args, kwargs)

    # ------------------------------------------------------------------------------------------------------------ the order
    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Moves `x` before this node.  Raises AssertionError for a node of another graph."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Moves `x` after this node."""
        if self is not x:
            self._next.prepend(x)

    def __lt__(self, other: Node) -> bool:
        """Whether this node is before another of its graph."""
        node = self._next
        while node.op != "root":
            if node is other:
                return True
            node = node._next
        return False

    def __gt__(self, other: Node) -> bool:
        return other < self

    # -------------------------------------------------------------------------------------------------------- the arguments
    def _use(self, args: Any, kwargs: Any) -> None:
        """Takes new arguments, and has the nodes in them know."""
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = {}
        if not isinstance(kwargs, dict):
            raise TypeError(f"Node.kwargs must be a dict, not {type(kwargs).__name__}")

        def take(x: Any) -> Any:
            if isinstance(x, Node):
                self._input_nodes[x] = None
                x.users[self] = None
            return x
        self._args = map_aggregate(tuple(args), take)
        self._kwargs = map_aggregate(kwargs, take)

    @property
    def args(self) -> Any:
        """The positional arguments; assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, a: Any) -> None:
        self._use(a, self._kwargs)

    @property
    def kwargs(self) -> Any:
        """The arguments by name; assign a new dictionary to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: Any) -> None:
        self._use(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes this one uses, once each."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` in the place of a positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` before the positional argument `idx`.  Raises AssertionError where there is no such place."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Puts `arg` in the place of the argument `key`."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Uses `new_input` wherever this node uses `old_input`."""
        def swap(n: Node) -> Node:
            return new_input if n is old_input else n
        self._use(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Has the users of this node use another, those for which `delete_user_cb` is true; returns the users there were."""
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError("Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta keys")
            replace_with.meta.update(self.meta)
        chosen = [user for user in list(self.users) if delete_user_cb(user)]
        hooks = getattr(getattr(self.graph, "owning_module", None), "_replace_hooks", ())
        for user in chosen:
            for hook in hooks:
                hook(old=self, new=replace_with.name, user=user)
            user.replace_input_with(self, replace_with)
        return chosen

    # --------------------------------------------------------------------------------------------------------------- telling
    @property
    def stack_trace(self) -> str | None:
        """The lines of the program that made this node, where its tracer records them."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does more than give a value, so that it stays though nobody uses that."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effectful_functions
        if self.op == "call_module":
            root = self.graph.owning_module
            if root is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return bool(getattr(root.get_submodule(self.target), "_is_impure", False))
        return False

    def normalized_arguments(self, root: Any, arg_types: Any = None, kwarg_types: Any = None, normalize_to_only_use_kwargs: bool = False) -> Any:
        """(args, kwargs) of a call as its function's signature has them, defaults filled in; None for what has no signature."""
        function = self.target if self.op == "call_function" else root.get_submodule(self.target).forward if self.op == "call_module" else None
        if function is None:
            return None
        try:
            bound = inspect.signature(function).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return None
        bound.apply_defaults()
        if normalize_to_only_use_kwargs:
            return ArgsKwargsPair((), dict(bound.arguments))
        return ArgsKwargsPair(self.args, {k: v for k, v in bound.arguments.items() if k not in list(bound.signature.parameters)[:len(self.args)]})

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.graph._graph_namespace.forget(self)
            self.name = self.graph._graph_namespace.create_name(candidate, self)

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn is not None else self.name

    def _pretty_print_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        module = getattr(target, "__module__", None)
        if module == "_operator":
            return f"operator.{target.__name__}"
        if module == "builtins":
            return f"builtins.{target.__name__}"
        return names.qualified_name(target)

    def format_node(self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None, *,
                    include_tensor_metadata: bool = False) -> str | None:
        """A line on this node: `%add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})`.

        placeholder_names, maybe_return_typename: lists that take inputs' names and the result's type, instead of the line.
        """
        if self.op == "placeholder":
            arg = str(self.target) + (f": {names.type_name(self.type)}" if self.type else "")
            if placeholder_names is not None:
                placeholder_names.append(arg)
                return None
            default = "(default=" + str(self.args[0]) + ")" if self.args else ""
            return f"%{self.name} : {self._typed()}[num_users={len(self.users)}] = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {self._typed()}[num_users={len(self.users)}] = {self.op}[target={self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {names.type_name(self.type)}"
            return f"return {self.args[0]}"
        return (f"%{self.name} : {self._typed()}[num_users={len(self.users)}] = {self.op}[target={self._pretty_print_target(self.target)}]"
                f"(args = {_with_percent(self.args)}, kwargs = {_with_percent(self.kwargs)})")

    def _typed(self) -> str:
        return f"{names.type_name(self.type)} " if self.type is not None else ""


def _with_percent(arg: Any) -> str:
    """An argument's text, nodes with a percent sign."""
    if isinstance(arg, tuple):
        inner = ", ".join(map(_with_percent, arg))
        return f"({inner},)" if len(arg) == 1 else f"({inner})"
    if isinstance(arg, list):
        return f"[{', '.join(map(_with_percent, arg))}]"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_with_percent(v)}" for k, v in arg.items()) + "}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]
