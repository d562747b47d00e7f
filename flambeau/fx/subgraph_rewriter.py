"""`replace_pattern`: one piece of a graph in the place of another, wherever it is found."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..nn.module import Module
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _copy_attr, _get_attr, _has_attr
from .node import Node, map_arg

if TYPE_CHECKING:
    from collections.abc import Callable


class Match(NamedTuple):
    """Where a pattern was found: its last node, and for each node of the pattern the graph's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A `Match`, and the nodes that stand in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node] = field(default_factory=list)


@dataclass
class InternalMatch:
    """A match as filters are shown it: the pattern's results and inputs in the graph, and all its nodes."""

    anchors: list[Node]
    nodes_map: dict[Node, Any]
    placeholder_nodes: list[Any]
    returning_nodes: list[Node]


class _Search:
    """Looks for a pattern that ends at a node."""

    def __init__(self, pattern: Graph, owner: Any, module: Any, ignore_literals: bool) -> None:
        self.owner, self.module, self.ignore_literals = owner, module, ignore_literals
        self.inputs = [n for n in pattern.nodes if n.op == "placeholder"]
        found = pattern.output_node().args[0]
        self.results: list[Node] = list(found) if isinstance(found, (tuple, list)) else [found]
        self.known: dict[Node, Any] = {}

    def at(self, anchors: tuple[Node, ...]) -> dict[Node, Any] | None:
        """The graph's nodes for the pattern's, where it ends at these; None where it does not."""
        self.known = {}
        if not all(self._same(p, n) for p, n in zip(self.results, anchors, strict=True)):
            return None
        inner = {n for p, n in self.known.items() if p.op != "placeholder" and isinstance(n, Node)}
        for p, n in self.known.items():  # nobody outside may use what will be gone
            if p.op not in ("placeholder", "get_attr") and p not in self.results and any(user not in inner for user in n.users):
                return None
        return dict(self.known)

    def _same(self, p: Any, n: Any) -> bool:
        if isinstance(p, Node):
            return self._same_node(p, n)
        if isinstance(n, Node):
            return False
        if isinstance(p, (tuple, list)):
            return isinstance(n, (tuple, list)) and len(p) == len(n) and all(map(self._same, p, n))
        if isinstance(p, dict):
            return isinstance(n, dict) and list(p) == list(n) and all(self._same(p[k], n[k]) for k in p)
        if isinstance(p, slice):
            return isinstance(n, slice) and all(self._same(getattr(p, k), getattr(n, k)) for k in ("start", "stop", "step"))
        return self.ignore_literals or (type(p) is type(n) and bool(p == n))

    def _same_node(self, p: Node, n: Any) -> bool:
        if p in self.known:
            return self.known[p] is n
        if p.op == "placeholder":  # anything, a constant too
            self.known[p] = n
            return True
        if not isinstance(n, Node) or n.op != p.op or any(n is x for x in self.known.values()):
            return False
        if p.op == "get_attr":
            if type(_get_attr(self.owner, p.target)) is not type(_get_attr(self.module, n.target)):
                return False
        elif p.target != n.target:
            return False
        self.known[p] = n
        ours, theirs = _arguments(p), _arguments(n)
        if list(ours) == list(theirs) and all(self._same(ours[k], theirs[k]) for k in ours):
            return True
        self.known.pop(p, None)
        return False


def _arguments(n: Node) -> dict[Any, Any]:
    return {**dict(enumerate(n.args)), **n.kwargs}


def _graph_of(given: Any) -> tuple[Graph, Any]:
    """The graph of a function, module or graph, and the module whose parts it names."""
    if isinstance(given, GraphModule):
        return given.graph, given
    if isinstance(given, Graph):
        return given, given.owning_module
    made = symbolic_trace(given)
    return made.graph, made


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Puts what `replacement` does in the place of what `pattern` does, wherever `gm` does that; returns where.

    pattern, replacement: functions, modules or graphs of as many arguments. Matches do not overlap, and nothing within one may be used
    outside it but its results.  Raises RuntimeError where the numbers of arguments or results differ.
    """
    return [Match(m.anchor, m.nodes_map) for m in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(gm: GraphModule, pattern: Any, replacement: Any = None, match_filters: list[Callable[..., bool]] | None = None,
                                 ignore_literals: bool = False, replacement_callback: Callable[..., Any] | None = None) -> list[ReplacedPatterns]:
    """`replace_pattern` of those matches for which each filter, called with the match, the graph and the pattern's graph, is true.

    ignore_literals: constants need not be equal.  replacement_callback: gives the graph that stands for a match, in the place of `replacement`.
    """
    graph = gm.graph
    pattern_graph, owner = _graph_of(pattern)
    search = _Search(pattern_graph, owner, gm, ignore_literals)
    found: list[tuple[tuple[Node, ...], dict[Node, Any]]] = []
    taken: set[Node] = set()
    for anchors in _candidates(graph, search):
        nodes = search.at(anchors)
        inner = [n for p, n in (nodes or {}).items() if p.op not in ("placeholder", "get_attr") and isinstance(n, Node)]
        if nodes is None or not taken.isdisjoint(inner):
            continue
        shown = InternalMatch(list(anchors), nodes, [nodes.get(p) for p in search.inputs], list(anchors))
        if all(f(shown, graph, pattern_graph) for f in match_filters or ()):
            taken.update(inner)
            found.append((anchors, nodes))
    done = []
    now: dict[Node, Any] = {}  # what a node that is gone was replaced by
    for anchors, nodes in found:
        shown = InternalMatch(list(anchors), nodes, [nodes.get(p) for p in search.inputs], list(anchors))
        new, home = _graph_of(replacement_callback(shown, graph, pattern_graph) if replacement_callback is not None else replacement)
        done.append(_replace(gm, search, anchors, nodes, new, home, now))
    gm.recompile()
    return done


def _candidates(graph: Graph, search: _Search) -> Any:
    """Nodes, or for a pattern of several results tuples of such, at which it may end."""
    import itertools
    last = list(search.results)
    return itertools.product(*[[n for n in graph.nodes if n.op == p.op and (p.op != "call_function" or n.target == p.target)] for p in last])


def _replace(gm: GraphModule, search: _Search, anchors: tuple[Node, ...], nodes: dict[Node, Any], new: Graph, home: Any,
             now: dict[Node, Any]) -> ReplacedPatterns:
    graph = gm.graph
    inputs = [n for n in new.nodes if n.op == "placeholder"]
    if len(inputs) != len(search.inputs):
        raise RuntimeError(f"replace_pattern: the pattern has {len(search.inputs)} arguments, the replacement {len(inputs)}: they must be as many")
    values: dict[Node, Any] = {}
    for ours, p in zip(inputs, search.inputs, strict=True):
        value = nodes.get(p)
        values[ours] = now.get(value, value) if isinstance(value, Node) else value
    matched = [n for p, n in nodes.items() if p.op not in ("placeholder", "get_attr")]
    place = {n: i for i, n in enumerate(graph.nodes)}
    first = min(anchors, key=place.__getitem__) if len(anchors) > 1 else anchors[0]
    made: list[Node] = []
    result: Any = None
    with graph.inserting_before(first):
        for node in new.nodes:
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: values[n])
            elif node.op != "placeholder":
                if node.op in ("get_attr", "call_module") and isinstance(home, Module) and not _has_attr(gm, node.target):
                    _copy_attr(home, gm, node.target)
                values[node] = graph.node_copy(node, lambda n: values[n])
                made.append(values[node])
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(results) != len(anchors):
        raise RuntimeError(f"replace_pattern: the pattern has {len(anchors)} results, the replacement {len(results)}: they must be as many")
    for old, node in zip(anchors, results, strict=True):
        if isinstance(node, Node):
            old.replace_all_uses_with(node)
        now[old] = node
    for n in sorted(matched, key=place.__getitem__, reverse=True):
        if not n.users:
            graph.erase_node(n)
    return ReplacedPatterns(anchors[0], copy.copy(nodes), made)


__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]
