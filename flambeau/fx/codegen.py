"""The Python code of a graph: what `Graph.python_code` writes, and what of it runs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core.tensor import Tensor
from . import names
from .node import Node, map_arg

if TYPE_CHECKING:
    from .graph import Graph

# how Python writes calls of functions of `operator`, for as many arguments as there are places
_BINARY = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "lshift": "<<", "rshift": ">>",
           "and_": "&", "or_": "|", "xor": "^", "matmul": "@", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
magic_methods: dict[str, str] = {n: f"{{}} {sign} {{}}" for n, sign in _BINARY.items()} | {
    "getitem": "{}[{}]", "pos": "+{}", "neg": "-{}", "invert": "~{}"}
_IN_PLACE = "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor matmul".split()
inplace_methods: dict[str, str] = {"i" + n.rstrip("_"): f"{{}} {_BINARY[n]}= {{}}" for n in _IN_PLACE} | {"setitem": "{}[{}] = {}"}


@dataclass
class PythonCode:
    """src: the text of a function `forward`.  globals: the names it uses, and what they are.  lines: for each line of the body, which
    node it stands for, by its place in the graph (None where it is not asked for)."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None


def dotted(base: str, target: str) -> str:
    """`base.target`, with `getattr` for what is no name."""
    for name in target.split("."):
        base = f"{base}.{name}" if name.isidentifier() else f'getattr({base}, "{name}")'
    return base


class CodeGen:
    """Writes the code of a graph. A subclass may write another head (`gen_fn_def`) or result (`generate_output`), and say how
    arguments become the graph's inputs (`process_inputs`) and its result what is returned (`process_outputs`)."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line `def forward(...):` for these inputs."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, descs: Any = None) -> str:
        """The line that returns the result."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the graph's inputs for these arguments."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What is returned for the graph's result."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """More names that the code uses, and what they are."""
        return []

    def write(self, graph: Graph, root_module: str, namespace: names.Namespace, verbose: bool = False) -> PythonCode:
        """The code of a graph, whose module is called `root_module` in it.  verbose: with comments that tell where nodes come from."""
        return _Writer(self, graph, root_module, namespace, verbose).code()


class _Writer:
    """One writing of one graph."""

    def __init__(self, codegen: CodeGen, graph: Graph, root: str, namespace: names.Namespace, verbose: bool) -> None:
        self.codegen, self.graph, self.root, self.namespace, self.verbose = codegen, graph, root, namespace, verbose
        self.globals: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.body: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.returns = ""
        self.dropped = self._last_uses()

    def _last_uses(self) -> dict[Node, list[Node]]:
        """For each node, those that nobody needs after it."""
        last: dict[Node, Node] = {}
        dropped: dict[Node, list[Node]] = {}
        for node in reversed(self.graph.nodes):
            def used(n: Node, user: Node = node) -> None:
                if n not in last:
                    last[n] = user
                    dropped.setdefault(user, []).append(n)
            map_arg(node.args, used)
            map_arg(node.kwargs, used)
        return dropped

    # --------------------------------------------------------------------------------------------------------------- names
    def name_of(self, hint: str, obj: Any) -> str:
        """The name by which the code knows an object; told to its globals."""
        if hint.startswith("torch."):
            return hint  # by way of `torch`
        name = names.CUSTOM_BUILTINS.get(hint) is obj and hint or hint.replace(".", "_")
        if self.globals.get(name, self) is obj:
            return name
        name = self.namespace.create_name(name, obj)
        self.globals[name] = obj
        return name

    def type_text(self, t: Any) -> str:
        """An annotation as text."""
        if t is None or t is type(None) or t == ():
            return "()" if t == () else self.name_of("NoneType", type(None))
        if isinstance(t, str):
            return t
        origin, parts = getattr(t, "__origin__", None), getattr(t, "__args__", None)
        if origin is not None and parts:
            base = self.name_of(names.qualified_name(origin) if isinstance(origin, type) else f"typing_{t._name}", origin)
            return f"{base}[{', '.join(self.type_text(p) for p in parts)}]"
        if not isinstance(t, type):
            return self.name_of(str(t).replace("[", "_").replace("]", ""), t)
        return self.name_of(names.type_name(t), t)

    def text(self, arg: Any) -> str:
        """An argument as text."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            kind = self.name_of(names.qualified_name(type(arg)), type(arg))
            return f"{kind}({', '.join(f'{n}={self.text(v)}' for n, v in zip(arg._fields, arg, strict=True))})"
        if isinstance(arg, tuple):
            inner = ", ".join(self.text(x) for x in arg)
            return f"({inner},)" if len(arg) == 1 else f"({inner})"
        if isinstance(arg, list):
            return f"[{', '.join(self.text(x) for x in arg)}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({self.text(arg.start)}, {self.text(arg.stop)}, {self.text(arg.step)})"
        if isinstance(arg, enum.Enum):
            return f"{self.name_of(names.qualified_name(type(arg)), type(arg))}.{arg.name}"
        if isinstance(arg, type) or (callable(arg) and hasattr(arg, "__name__") and not isinstance(arg, Tensor)):
            return self.name_of(names.type_name(arg) if isinstance(arg, type) else names.qualified_name(arg), arg)
        return names.shown(arg) or repr(arg)

    def call(self, args: Any, kwargs: Any) -> str:
        return ", ".join([*[self.text(a) for a in args], *[f"{k} = {self.text(v)}" for k, v in kwargs.items()]])

    # --------------------------------------------------------------------------------------------------------------- lines
    def statement(self, node: Node) -> str:
        """The statement a node stands for, without the names that end with it."""
        left = f"{node!r}" + ("" if node.type is None else f" : {self.type_text(node.type)}")
        args, kwargs, target = node.args, node.kwargs, node.target
        if node.op == "get_attr":
            return f"{left} = {dotted(self.root, target)}"
        if node.op == "call_module":
            return f"{left} = {dotted(self.root, target)}({self.call(args, kwargs)})"
        if node.op == "call_method":
            return f"{left} = {dotted(self.text(args[0]), target)}({self.call(args[1:], kwargs)})"
        module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
        if module == "_operator" and not kwargs:
            form = magic_methods.get(name)
            if form is not None and form.count("{}") == len(args):
                return f"{left} = {form.format(*[self.text(a) for a in args])}"
            form = inplace_methods.get(name)
            if form is not None and form.count("{}") == len(args):
                return f"{form.format(*[self.text(a) for a in args])};  {left} = {self.text(args[0])}"
        if target is getattr and len(args) == 2 and not kwargs and isinstance(args[1], str) and args[1].isidentifier():
            return f"{left} = {dotted(self.text(args[0]), args[1])}"
        called = self.name_of(names.qualified_name(target), target)
        if node.meta.get("is_wrapped"):
            self.wrapped[called] = None
        return f"{left} = {called}({self.call(args, kwargs)})"

    def _drop(self, node: Node) -> str:
        """The names that are of no use after a node."""
        gone = [*self.dropped.get(node, ()), *([] if node.users else [node])]
        return f";  {' = '.join([repr(n) for n in gone] + ['None'])}" if gone else ""

    def _enter(self, node: Node) -> None:
        """Adds a node's line."""
        if self.verbose and node.stack_trace:
            last = node.stack_trace.strip().splitlines()
            self.body.append(f"\n# {' '.join(line.strip() for line in last[-2:])}\n")
        if node.op == "placeholder":
            kind = "" if node.type is None else f" : {self.type_text(node.type)}"
            default = f" = {self.text(node.args[0])}" if node.args else ""
            self.inputs.append(f"{node.target}{kind}{default}")
            raw = node.target.replace("*", "")
            if raw != repr(node):
                self.body.append(f"{node!r} = {raw}\n")
        elif node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_text(node.type)}"
            result = self.codegen.generate_output(_Text(self.text(node.args[0])))
            self.body.append(result + "\n" if not result.endswith("\n") else result)
        else:
            self.body.append(f"{self.statement(node)}{self._drop(node)}\n")

    def code(self) -> PythonCode:
        self.globals["torch"] = names.torch_module()
        for name, value in (*names.CUSTOM_BUILTINS.items(), *self.codegen.additional_globals()):
            self.globals[name] = value
        lines: dict[int, int | None] = {}
        for index, node in enumerate(self.graph.nodes):
            self._enter(node)
            lines[len("".join(self.body).split("\n")) - 1] = index
        if not self.body:
            self.body.append("pass\n")
        if self.codegen._body_transformer is not None:
            self.body = self.codegen._body_transformer(self.body)
        wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        head = self.codegen.gen_fn_def(self.inputs, self.returns)
        text = "\n".join("    " + line for line in "".join(self.body).split("\n"))
        return PythonCode(f"\n{wraps}\n\n{head}\n{text}", self.globals, lines)


class _Text(str):
    """Text that is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


__all__ = ["CodeGen", "PythonCode", "inplace_methods", "magic_methods"]
