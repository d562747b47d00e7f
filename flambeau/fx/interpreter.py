"""`Interpreter`: carries a graph out node by node.  `Transformer`: makes another graph of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..nn.module import Module
from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_aggregate, map_arg
from .proxy import Proxy


class Interpreter:
    """Carries a graph out. Subclasses say what each kind of node does.

    module: what the nodes' paths are found in.  garbage_collect_values: values are let go when no later node uses them.  graph: the graph,
    where it is not the module's.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes):
            for n in node.all_input_nodes:
                if n not in seen:
                    seen.add(n)
                    self.user_to_last_uses.setdefault(node, []).append(n)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The graph's result for these arguments.  initial_env: values of nodes that are known already."""
        self.env = dict(initial_env or {})
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    message = f"While executing {node.format_node()}"
                    if error.args and isinstance(error.args[0], str) and not isinstance(error, KeyError):
                        error.args = (f"{error.args[0]}\n\n{message}", *error.args[1:])
                    else:
                        error.add_note(message)
                raise
            if self.garbage_collect_values:
                for old in self.user_to_last_uses.get(node, ()):
                    del self.env[old]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` of a list's arguments, which is emptied, so that they can be let go."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        yield

    def run_node(self, n: Node) -> Any:
        """A node's value: what the method of its op's name gives for its target and arguments."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument, or its default.  Raises RuntimeError where there is neither."""
        if target.startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!")

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The module's attribute at a dotted path."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a function gives."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a method of the first argument gives."""
        first, *rest = args
        return getattr(first, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a module within the module gives."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What is at a dotted path of the module.  Raises RuntimeError where nothing is."""
        found: Any = self.module
        path = target.split(".")
        for i, name in enumerate(path):
            if not hasattr(found, name):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(path[:i + 1])}")
            found = getattr(found, name)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments, with values for nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Arguments of a node with the nodes' values.  Raises RuntimeError for a node that was not carried out."""
        def value(x: Node) -> Any:
            if x not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {x}! Run Graph.lint() to diagnose such issues")
            return self.env[x]
        found = map_arg(args, value)
        return list(found) if isinstance(found, list) else dict(found) if isinstance(found, dict) else found


class _Retracer(Tracer):
    """Makes a new graph from an old one's calls; each module is a node."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """An interpreter whose values are proxies, so that its run makes a new graph. Subclasses say what each node becomes."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _Retracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Proxy:
        """A proxy for an input."""
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...), self.tracer)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Proxy:
        """A proxy for an attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)  # type: ignore[no-any-return]

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A proxy for what a module gives."""
        return self.tracer.call_module(self.fetch_attr(target), self.fetch_attr(target).forward, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A proxy for what a function gives."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        result = self.run(enable_io_processing=False)
        if result is not None:
            def node_of(a: Any) -> Any:
                return a.node if isinstance(a, Proxy) else a
            self.new_graph.output(map_aggregate(result, node_of), next((n.type for n in self.graph.nodes if n.op == "output"), None))
        return GraphModule(self.module, self.new_graph)


__all__ = ["Interpreter", "Transformer"]
