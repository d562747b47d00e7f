"""`GraphModule`: a module whose `forward` is a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._core.tensor import Tensor
from ..nn.module import Module
from ..nn.parameter import Parameter
from .codegen import PythonCode
from .graph import Graph

_count = itertools.count()


def _compiled(code: PythonCode) -> Any:
    """The function that a graph's code is; errors in it show its lines."""
    file = f"<eval_with_key>.{next(_count)}"
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(keepends=True), file)
    space = dict(code.globals)
    exec(compile(code.src, file, "exec", dont_inherit=True), space)  # a user's own graph, as the program that it was traced from
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(keepends=True), file)
    return next(v for k, v in reversed(space.items()) if callable(v) and getattr(getattr(v, "__code__", None), "co_filename", "") == file)


def _place(root: Any, path: str) -> tuple[Any, str]:
    """The module that holds the last name of a dotted path, modules made on the way where there are none, and that name."""
    *before, name = path.split(".")
    for part in before:
        inner = getattr(root, part, None)
        if inner is None:
            inner = Module()
            setattr(root, part, inner)
        root = inner
    return root, name


def _get_attr(model: Any, attr_name: str) -> Any:
    """What is at a dotted path."""
    for part in attr_name.split("."):
        model = getattr(model, part)
    return model


def _has_attr(model: Any, attr_name: str) -> bool:
    """Whether something is at a dotted path."""
    try:
        _get_attr(model, attr_name)
    except AttributeError:
        return False
    return True


def _assign_attr(from_obj: Any, to_module: Any, target: str) -> None:
    """Puts something at a dotted path; a tensor that is no parameter becomes a buffer."""
    owner, name = _place(to_module, target)
    if isinstance(from_obj, Tensor) and not isinstance(from_obj, Parameter):
        if name in owner._buffers:
            owner._buffers[name] = from_obj
        else:
            vars(owner).pop(name, None)
            owner.register_buffer(name, from_obj)
    else:
        setattr(owner, name, from_obj)


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Puts what is at a dotted path of one module at the same path of another."""
    owner, name = _place(to_module, target)
    found = _get_attr(from_module, target)
    if found is not getattr(owner, name, None):
        _assign_attr(found, to_module, target)


class GraphModule(Module):
    """A module whose `forward` does what a graph says; its code is made anew when `graph` is assigned, and by `recompile()`.

    root: the module whose parts the graph names, which are taken over (not copied), or a dictionary of them by their paths.
    class_name: what it is called when it is shown.  Raises RuntimeError where the graph names what a dictionary has not.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # each has a class of its own, as its `forward` belongs to its class
        base = next(c for c in cls.__mro__ if c.__qualname__ != "GraphModule.__new__.<locals>.GraphModuleImpl")

        class GraphModuleImpl(base):  # type: ignore[valid-type, misc]
            pass
        made: GraphModule = super().__new__(GraphModuleImpl)
        return made

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        wanted = [n for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for node in wanted:
                if _has_attr(root, node.target):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            for node in wanted:
                if node.target not in root:
                    raise RuntimeError(f"Node {node} referenced target {node.target} but that target was not provided in ``root``!")
            for target in sorted({n.target for n in wanted}, key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {type(root)} passed for root!")
        self._replace_hooks: list[Callable[..., Any]] = []
        self._create_node_hooks: list[Callable[..., Any]] = []
        self._erase_node_hooks: list[Callable[..., Any]] = []
        self.meta: dict[str, Any] = dict(getattr(root, "meta", None) or {}) if isinstance(root, Module) and "meta" in vars(root) else {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph; assigning another compiles its code."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python code of the graph, as it was when it was last compiled."""
        if "_code" not in vars(self):
            raise RuntimeError("GraphModule.code: the graph has not been compiled yet; call recompile()")
        return str(self._code)

    def recompile(self) -> PythonCode:
        """Makes the code anew; to be called after the graph was changed."""
        code = self._graph.python_code(root_module="self")
        self._code = code.src
        type(self).forward = _compiled(code)  # type: ignore[method-assign]
        return code

    # --------------------------------------------------------------------------------------------------------- its modules
    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a dotted path, with modules on the way where there are none; False where something else is in the way."""
        at: Any = self
        *before, name = target.split(".")
        for part in before:
            inner = getattr(at, part, None)
            if inner is None:
                inner = Module()
                setattr(at, part, inner)
            if not isinstance(inner, Module):
                return False
            at = inner
        at.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes the module at a dotted path away; False where there is none."""
        parent, _, name = target.rpartition(".")
        try:
            owner = self.get_submodule(parent)
        except AttributeError:
            return False
        if not isinstance(getattr(owner, name, None), Module):
            return False
        delattr(owner, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Takes away the modules that the graph names neither themselves nor in part."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            path = node.target.split(".")
            used.update(".".join(path[:i]) for i in range(1, len(path) + 1))
            if node.op == "call_module":
                used.update(f"{node.target}.{n}" for n, _ in self.get_submodule(node.target).named_modules() if n)
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    @contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        """Within the block, `f(old, new, user)` is told of each use that is replaced."""
        self._replace_hooks.append(f)
        try:
            yield
        finally:
            self._replace_hooks.remove(f)

    # ------------------------------------------------------------------------------------------------------------- keeping
    def _parts(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code", "_compiled_call_impl")}

    def __reduce__(self) -> Any:
        return _restored, (self._parts(), self._graph, type(self).__name__)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = _restored(copy.deepcopy(self._parts(), memo), copy.deepcopy(self._graph, memo), type(self).__name__, type(self).__mro__[1])
        memo[id(self)] = made
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)
        made.meta = dict(self.meta)
        return made

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Writes the code as a package that can be imported: `module.py`, and the tensors and modules beside it."""
        from ..serialization import save
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save(self.state_dict(), folder / "state_dict.pt")
        lines = ["import flambeau as torch", "from flambeau.nn import *", "", f"class {module_name}(torch.nn.Module):", "    def __init__(self):",
                 "        super().__init__()"]
        for name, module in self.named_children():
            save(module, folder / f"{name}.pt")
            lines.append(f"        self.{name} = torch.load(r'{folder / f'{name}.pt'}', weights_only=False)")
        for kind, table in (("Parameter", self._parameters), ("Buffer", self._buffers)):
            for name, t in table.items():
                if t is not None:
                    lines.append(f"        self.{name} = torch.nn.{kind}(torch.empty({list(t.shape)}, dtype={t.dtype}))")
        lines.append(f"        self.load_state_dict(torch.load(r'{folder / 'state_dict.pt'}'))")
        lines += ["    " + line for line in self.code.split("\n")]
        names = [f"from {v.__module__} import {v.__name__} as {k}" for k, v in self._graph.python_code("self").globals.items()
                 if k not in ("torch", "inf", "nan", "NoneType", "device") and hasattr(v, "__module__") and hasattr(v, "__name__")]
        head = [lines[0], "from math import inf, nan", "device = torch.device", "NoneType = type(None)"]
        (folder / "module.py").write_text("\n".join([*head, *names, *lines[1:]]) + "\n", encoding="utf-8")
        (folder / "__init__.py").write_text("from .module import *\n", encoding="utf-8")

    # ------------------------------------------------------------------------------------------------------------- telling
    def print_readable(self, print_output: bool = True, include_stride: bool = False, include_device: bool = False, colored: bool = False,
                       **ignored: Any) -> str:
        """The code as a class, modules within it that are graphs too; printed, and returned."""
        code = self._graph.python_code(root_module="self", verbose=True).src.lstrip("\n")
        text = f"class {type(self).__name__}(torch.nn.Module):\n" + "\n".join("    " + line if line.strip() else "" for line in code.split("\n"))
        for child in self.children():
            if isinstance(child, GraphModule):
                inner = child.print_readable(print_output=False)
                text += "\n" + "\n".join("    " + line if line.strip() else "" for line in inner.split("\n"))
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return "\n".join([super().__str__(), self._code, "# To see more debug info, please use `graph_module.print_readable()`"])

    def _get_name(self) -> str:
        return type(self).__name__


def _restored(parts: dict[str, Any], graph: Graph, class_name: str, kind: type[GraphModule] = GraphModule) -> GraphModule:
    """A module of these parts and this graph."""
    made: GraphModule = kind.__new__(kind)
    type(made).__name__ = class_name
    made.__dict__.update(parts)
    made.graph = graph
    return made


__all__ = ["GraphModule"]
