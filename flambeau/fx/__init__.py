"""Programs as graphs (torch.fx): a module or function is traced by one call on proxies, its graph is read, changed and printed as Python
code, and that code is a module again.

`symbolic_trace` gives a `GraphModule`; `Interpreter` carries its graph out node by node; `replace_pattern` puts one piece for another. What a
traced program does may not depend on traced values: `if x.sum() > 0` raises `proxy.TraceError`.
"""

from __future__ import annotations

from ._symbolic_trace import PH, Tracer, symbolic_trace, wrap
from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern

__all__ = ["PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect", "map_arg",
           "replace_pattern", "symbolic_trace", "wrap"]
