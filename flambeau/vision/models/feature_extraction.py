"""A model that gives what its layers give: `create_feature_extractor`, with torchvision's names of nodes."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..._core.errors import warn
from ...fx import Graph, GraphModule, Tracer
from ...fx.graph_module import _copy_attr

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...fx import Node
    from ...nn.module import Module

_NUMBERED = re.compile(r"(.+)_\d+$")


class LeafModuleAwareTracer(Tracer):
    """A tracer for which modules of the classes `leaf_modules` are one node each."""

    def __init__(self, *args: Any, leaf_modules: list[type] | None = None, **kwargs: Any) -> None:
        self.leaf_modules = tuple(leaf_modules or ())
        super().__init__(*args, **kwargs)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return isinstance(m, self.leaf_modules) or super().is_leaf_module(m, module_qualified_name)


class NodePathTracer(LeafModuleAwareTracer):
    """A tracer that names each node by the modules in whose call it is made: `layer1.0.conv1`, `layer1.0.add`, `layer1.0.relu_1`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.node_to_qualname: OrderedDict[Node, str] = OrderedDict()
        self._inside: list[str] = [""]

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._inside.append(self.path_of_module(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self._inside.pop()

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
        made = super().create_proxy(kind, target, args, kwargs, *rest, **more)
        path = self._inside[-1]
        if kind != "call_module":
            numbered = _NUMBERED.match(made.node.name)
            name = numbered[1] if numbered else made.node.name
            path = f"{path}.{name}" if path else name
        taken = set(self.node_to_qualname.values())
        times, name = 0, path
        while name in taken:
            times += 1
            name = f"{path}_{times}"
        self.node_to_qualname[made.node] = name
        return made


class DualGraphModule(GraphModule):
    """Two graphs of one model: one for training, one for evaluation; `train()` and `eval()` choose."""

    def __init__(self, root: Any, train_graph: Graph, eval_graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__(root, train_graph, class_name)
        for node in eval_graph.nodes:
            if node.op in ("call_module", "get_attr"):
                _copy_attr(root, self, node.target)
        self.train_graph, self.eval_graph = train_graph, eval_graph
        self.train(root.training)

    def train(self, mode: bool = True) -> Any:
        if "eval_graph" in vars(self) and mode != (self.graph is self.train_graph):
            self.graph = self.train_graph if mode else self.eval_graph
        return super().train(mode)


def _traced(model: Module, training: bool, options: dict[str, Any] | None) -> tuple[NodePathTracer, Graph]:
    from .. import ops
    tracer = NodePathTracer(**{"autowrap_modules": (math, ops), "leaf_modules": [], **(options or {})})
    return tracer, tracer.trace(model.train(training))


def _both(model: Module, options: dict[str, Any] | None) -> tuple[Any, Any]:
    """The traces of a model in training and in evaluation; the model stays as it is."""
    training = {m: m.training for m in model.modules()}
    try:
        return _traced(model, True, options), _traced(model, False, options)
    finally:
        for m, was in training.items():
            m.training = was


def _told_of_differences(train: list[str], evaluation: list[str]) -> None:
    if train != evaluation:
        warn(f"The nodes obtained by tracing the model in eval mode differ from those in train mode: {sorted(set(train) ^ set(evaluation))}. To choose "
             "nodes for each, give train_return_nodes and eval_return_nodes")


def get_graph_node_names(model: Module, tracer_kwargs: dict[str, Any] | None = None, suppress_diff_warning: bool = False,
                         concrete_args: dict[str, Any] | None = None) -> tuple[list[str], list[str]]:
    """The names of a model's nodes in training and in evaluation, in the order in which they run; for `create_feature_extractor`."""
    train, evaluation = [list(tracer.node_to_qualname.values()) for tracer, _ in _both(model, tracer_kwargs)]
    if not suppress_diff_warning:
        _told_of_differences(train, evaluation)
    return train, evaluation


def _wanted(given: Any) -> dict[str, str]:
    return dict(given) if isinstance(given, dict) else {n: n for n in given}


def _cut(tracer: NodePathTracer, graph: Graph, wanted: dict[str, str]) -> Graph:
    """The graph that returns the named nodes, by their new names.  Raises ValueError for a name that none has."""
    found: dict[str, Node] = {}
    for node, name in reversed(tracer.node_to_qualname.items()):
        if node.op == "output":
            continue
        for query in wanted:  # a module's name means the last node in it
            if query not in found and name.split(".")[:query.count(".") + 1] == query.split("."):
                found[query] = node
    for query in wanted:
        if query not in found:
            raise ValueError(f"node: '{query}' is not present in model. Hint: use `get_graph_node_names` to make sure the `return_nodes` you specified "
                             "are present. It may even be that you need to specify `train_return_nodes` and `eval_return_nodes` separately.")
    graph.erase_node(graph.output_node())
    graph.output({new: found[query] for query, new in wanted.items()})
    graph.owning_module = tracer.root
    graph.eliminate_dead_code()
    return graph


def create_feature_extractor(model: Module, return_nodes: Any = None, train_return_nodes: Any = None, eval_return_nodes: Any = None,
                             tracer_kwargs: dict[str, Any] | None = None, suppress_diff_warning: bool = False,
                             concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module that gives, as a dictionary, what nodes of `model` give, and computes no more than that needs. It shares the model's tensors.

    return_nodes: names of nodes (`get_graph_node_names`), or a dictionary from them to keys of the result. A module's name means the last node
    in it.  train_return_nodes, eval_return_nodes: the same for training and evaluation apart.  tracer_kwargs: `autowrap_modules`,
    `autowrap_functions`, `leaf_modules`.  Raises ValueError for names that no node has, and where neither or both kinds are given.
    """
    if return_nodes is None and (train_return_nodes is None or eval_return_nodes is None):
        raise ValueError("Either `return_nodes` or `train_return_nodes` and `eval_return_nodes` together, should be specified")
    if return_nodes is not None and (train_return_nodes is not None or eval_return_nodes is not None):
        raise ValueError("If `train_return_nodes` and `eval_return_nodes` are specified, then `return_nodes` should not be specified")
    (first, train_graph), (second, eval_graph) = _both(model, tracer_kwargs)
    if return_nodes is not None and not suppress_diff_warning:
        _told_of_differences(list(first.node_to_qualname.values()), list(second.node_to_qualname.values()))
    train = _cut(first, train_graph, _wanted(return_nodes if return_nodes is not None else train_return_nodes))
    evaluation = _cut(second, eval_graph, _wanted(return_nodes if return_nodes is not None else eval_return_nodes))
    return DualGraphModule(model, train, evaluation, type(model).__name__)


__all__ = ["create_feature_extractor", "get_graph_node_names"]
