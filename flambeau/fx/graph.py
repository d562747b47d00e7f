"""`Graph`: nodes in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._core.errors import warn
from .._core.tensor import Tensor
from ..nn.module import Module
from .codegen import CodeGen, PythonCode, inplace_methods, magic_methods
from .names import Namespace as _Namespace
from .names import snake_case
from .node import OPS, Node, map_aggregate, map_arg


class _node_list:
    """The nodes of a graph, in order: to walk, to count, to reverse."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_prev" if self.direction == "_next" else "_next")


class _Before:
    """Where new nodes go until a ``with`` block ends."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.before


class Graph:
    """A program of nodes: inputs, calls, one output.  `GraphModule` makes a module of it.

    owning_module: the module whose parts its nodes name.  tracer_cls: the class of the tracer that made it.
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: dict[str, Any] | None = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._owners = 0
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> Any:
        """The module whose parts the nodes name, or None."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """The nodes, in order.  Adding and erasing while one walks is allowed."""
        return _node_list(self)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes with this op, and this target where it is given."""
        if op == "call_function" and target is None:
            raise AssertionError("find_nodes: op call_function needs a target")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        """The node that returns the result."""
        return next(n for n in reversed(self.nodes) if n.op == "output")

    # ------------------------------------------------------------------------------------------------------- making nodes
    def _target_to_str(self, target: Any) -> str:
        if callable(target):
            name = target.__name__
        else:
            name = target
            if name.startswith("__") and name.endswith("__"):
                name = name[2:-2]
        return snake_case(name)

    def create_node(self, op: str, target: Any, args: Any = None, kwargs: Any = None, name: str | None = None, type_expr: Any = None) -> Node:
        """A new node, where nodes are being added: at the end, unless `inserting_before` or `inserting_after` says another place."""
        if op not in OPS[:-1]:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        name = self._graph_namespace.create_name(name if name is not None else self._target_to_str(target))
        node = Node(self, name, op, target, args, kwargs, type_expr)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input; `default_value`, where it is given, is what it is when nothing comes."""
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """An attribute of the module, by its dotted path. Warns when the module has none."""
        owner = self.owning_module
        if owner is not None and not _has(owner, qualified_name):
            warn("Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call GraphModule.add_submodule to add "
                 "the necessary submodule, GraphModule.add_parameter to add the necessary Parameter, or nn.Module.register_buffer to add the "
                 "necessary buffer")
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a module within the owning module, by its dotted path.  Raises AttributeError where there is none."""
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function: Any, args: Any = None, kwargs: Any = None, type_expr: Any = None, name: str | None = None) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the graph returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of a node of another graph; `arg_transform` gives this graph's node for one of that."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies another graph's nodes here; `val_map` says which nodes stand for those already, and learns the others.

        Returns what that graph returns, as a value here, or None where it has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        val_map: dict[Node, Node] = {}
        result = made.graph_copy(self, val_map, return_output_node=True)
        made._codegen = self._codegen
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Node) and result[1].op == "output":
            value, old = result
            new = made.output(value, old.type)
            new.meta = dict(old.meta)
            val_map[old] = new
        if memo is not None:
            memo[id(self)] = made
            memo.update({id(a): b for a, b in val_map.items()})
        return made

    def inserting_before(self, n: Node | None = None) -> Any:
        """Has new nodes go before `n`: within a ``with`` block, or from now on."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _Before(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Has new nodes go right after `n`, the last made first: within a ``with`` block, or from now on."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _Before(self, n.append)

    def erase_node(self, to_erase: Node) -> None:
        """Takes a node out.  Raises RuntimeError while others use it."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warn(f"erase_node({to_erase}) on an already erased node")
            return
        to_erase._use((), {})
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1

    # ------------------------------------------------------------------------------------------------------------- telling
    def set_codegen(self, codegen: CodeGen) -> None:
        """Has another object write the code."""
        self._codegen = codegen

    @contextmanager
    def _renamed(self, namespace: _Namespace) -> Iterator[None]:
        """The nodes shown by names of `namespace`, in which the code's other names are too."""
        before = {n: n._repr_fn for n in self.nodes}

        def shown(n: Node) -> str:
            return namespace.create_name(n.name, n)
        for n in before:
            n._repr_fn = shown
        try:
            yield
        finally:
            for n, old in before.items():
                n._repr_fn = old

    def python_code(self, root_module: str, *, verbose: bool = False, **ignored: Any) -> PythonCode:
        """The Python code of the graph, whose module is called `root_module` in it, and the names it uses."""
        namespace = _Namespace()
        with self._renamed(namespace):
            return self._codegen.write(self, root_module, namespace, verbose)

    def process_inputs(self, *args: Any) -> Any:
        """The values of the inputs for these arguments."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What is returned for the graph's result."""
        return self._codegen.process_outputs(out)

    def on_generate_code(self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]) -> Any:
        """Has a function change the lines of the code: `make_transformer` gets the one there is, and gives the new one. Undone at the end
        of a ``with`` block."""
        codegen = self._codegen
        before = codegen._body_transformer
        codegen._body_transformer = make_transformer(before)

        @contextmanager
        def undone() -> Iterator[None]:
            try:
                yield
            finally:
                codegen._body_transformer = before
        return undone()

    def __str__(self) -> str:
        result = [""]
        lines = [n.format_node(None, result) for n in self.nodes]
        return "\n    ".join([f"graph(){result[0]}:", *filter(None, lines)])

    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        head = ["opcode", "name", "target", "args", "kwargs"]
        rows = [[str(getattr(n, k)) for k in ("op", "name", "target", "args", "kwargs")] for n in self.nodes]
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(5)]
        for row in [head, ["-" * w for w in widths], *rows]:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    # ------------------------------------------------------------------------------------------------------------ checking
    def lint(self) -> None:
        """Checks that each node uses only nodes before it in this graph, that names are given once and that the owning module has what nodes
        name.  Raises RuntimeError where not."""
        seen_names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph")
            for arg in node._input_nodes:
                if arg.graph is not self:
                    raise RuntimeError(f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you are "
                                       "copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values")
                if arg not in seen:
                    raise RuntimeError(f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check that Nodes in the graph "
                                       f"are topologically ordered\n{self}")
            seen.add(node)
            if node.name in seen_names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen_names.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                if node.op in ("get_attr", "call_module"):
                    self._lint_target(node)

    def _lint_target(self, node: Node) -> None:
        at: Any = self.owning_module
        path = node.target.split(".")
        for i, name in enumerate(path):
            if not hasattr(at, name):
                raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {name} of {'.'.join(path[:i])}")
            at = getattr(at, name)
        if node.op == "call_module" and not isinstance(at, Module):
            raise RuntimeError(f"Node {node} target {node.target} {node.target} of {'.'.join(path[:-1])} does not reference an nn.Module")
        if node.op == "get_attr" and not isinstance(at, (Module, Tensor)):
            warn(f"Node {node} target {node.target} {node.target} of {'.'.join(path[:-1])} does not reference an nn.Module, nn.Parameter, or buffer, "
                 "which is what 'get_attr' Nodes typically target")

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Takes out nodes that nobody uses and that do no more than give a value; returns whether there were any.

        A method that writes to its tensor (`add_`) counts as giving a value: what is written is lost where nobody uses its result.
        """
        self.lint()
        impure = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node) and node.op not in ("placeholder", "output"):
                self.erase_node(node)
                changed = True
        return changed

    # ------------------------------------------------------------------------------------------------------------- keeping
    def __getstate__(self) -> dict[str, Any]:
        place = {n: i for i, n in enumerate(self.nodes)}

        def refer(a: Any) -> Any:
            return map_aggregate(a, lambda x: _Place(place[x]) if isinstance(x, Node) else x)
        return {"codegen": self._codegen, "tracer": self._tracer_cls,
                "nodes": [(n.op, n.target, refer(n.args), refer(n.kwargs), n.name, n.type) for n in self.nodes]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Graph.__init__(self, tracer_cls=state["tracer"])
        self._codegen = state["codegen"]
        made: list[Node] = []

        def find(a: Any) -> Any:
            return map_aggregate(a, lambda x: made[x.index] if isinstance(x, _Place) else x)
        for op, target, args, kwargs, name, kind in state["nodes"]:
            made.append(self.create_node(op, target, find(args), dict(find(kwargs)), name, kind))


class _Place:
    """A node in a graph's pickle: the how-manieth it is."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _get(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


def _has(owner: Any, path: str) -> bool:
    parent, _, name = path.rpartition(".")
    return hasattr(_get(owner, parent) if parent else owner, name)


__all__ = ["CodeGen", "Graph", "PythonCode", "inplace_methods", "magic_methods"]
