"""`Tracer` and `symbolic_trace`: a module's or function's graph, by one call on proxies."""

from __future__ import annotations

import collections
import inspect
import math
import threading
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from .._core.engine import interpreters
from .._core.errors import warn
from .._core.tensor import Tensor
from ..nn import hooks as module_hooks
from ..nn.containers import Sequential
from ..nn.module import Module
from ..nn.parameter import Parameter
from . import names
from ._compatibility import compatibility
from .assertions import _assert, _assert_is_none
from .graph import Graph
from .graph_module import GraphModule
from .patching import Patcher, wrap
from .proxy import ParameterProxy, Proxy, Recorder, TracerBase

_tracing = 0


def is_fx_tracing() -> bool:
    """Whether a module or function is being traced."""
    return _tracing > 0


class PHBase:
    """What stands in `concrete_args` for an argument that is to be traced."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class Tracer(TracerBase):
    """Traces a module or function.

    autowrap_modules: modules whose functions become nodes when they are given a traced value.  autowrap_functions: more such functions.
    param_shapes_constant: shapes of parameters are numbers while it traces.  Subclasses say which modules are nodes (`is_leaf_module`) and
    what becomes of a call (`call_module`, `create_arg`, `getattr`, `create_proxy`).
    """

    def __init__(self, autowrap_modules: tuple[ModuleType, ...] = (math,), autowrap_functions: tuple[Callable[..., Any], ...] = (),
                 param_shapes_constant: bool = False) -> None:
        self._autowrap_search: list[ModuleType] = list(autowrap_modules)
        self._autowrap_ids = {id(f) for m in autowrap_modules for n, f in vars(m).items() if not n.startswith("_") and callable(f)}
        self._autowrap_ids |= {id(f) for f in autowrap_functions}
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""
        self.module_stack: collections.OrderedDict[str, Any] = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.tensor_attrs: dict[int, tuple[Any, str]] = {}
        self.root: Any = None

    # -------------------------------------------------------------------------------------------------------- what is a node
    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one node: of all of torch.nn's but Sequential, whose parts are."""
        space = m.__module__
        return space.startswith((f"{names.PACKAGE}.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of a module within the root.  Raises NameError where it is not in it."""
        if self.submodule_paths is not None:
            path = self.submodule_paths.get(mod)
        else:
            path = next((n for n, m in self.root.named_modules() if m is mod), None)
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module: a node for a leaf, else what `forward(*args, **kwargs)` gives, whose calls are traced in turn."""
        path = self.path_of_module(m)
        times = self.num_calls.get(path, 0)
        self.num_calls[path] = times + 1
        key = path if not times else f"{path}@{times}"
        self.module_stack[key] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack.popitem()

    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None) -> Any:
        """A node, which knows the modules in whose calls it was made (`meta["nn_module_stack"]`)."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if self.module_stack:
            node.meta["nn_module_stack"] = self.module_stack.copy()
        return node

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a module's attribute is while it traces: a proxy for one of the root's parameters."""
        if isinstance(attr_val, Parameter):
            return self._proxy_for(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._proxy_for(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _proxy_for(self, value: Any, named: Any, cache: dict[str, Any]) -> Any:
        for name, tensor in named:
            if tensor is not value:
                continue
            if name not in cache:
                def made(node: Any, name: str = name) -> Proxy:
                    return ParameterProxy(self, node, name, value)
                more: dict[str, Any] = {"proxy_factory_fn": made} if self.param_shapes_constant else {}
                cache[name] = self.create_proxy("get_attr", name, (), {}, **more)
            return cache[name]
        return value

    def create_arg(self, a: Any) -> Any:
        """An argument as a node keeps it: a tensor becomes an attribute of the root, under a name of its own where it has none."""
        if isinstance(a, Parameter):
            path = next((n for n, p in self.root.named_parameters() if p is a), None)
            if path is None:
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Tensor):
            path = next((n for n, b in self.root.named_buffers() if b is a), None) or self._attribute_of(a, "_tensor_constant")
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def _attribute_of(self, a: Any, base: str) -> str:
        known = self.tensor_attrs.get(id(a))
        if known is None:
            i = 0
            while hasattr(self.root, f"{base}{i}"):
                i += 1
            known = self.tensor_attrs[id(a)] = a, f"{base}{i}"
            setattr(self.root, known[1], a)
        return known[1]

    # --------------------------------------------------------------------------------------------------------------- tracing
    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or function.

        concrete_args: values for arguments that are not to be traced, by name.  Raises TraceError where what the program does next
        depends on a traced value.
        """
        global _tracing
        if isinstance(root, Module):
            self.root = root
            fn: Any = getattr(type(root), self.traced_func_name)
            self.root_module_name = type(root).__name__
            self.submodule_paths = {m: n for n, m in root.named_modules()}
        else:
            self.root, fn = Module(), root
            self.submodule_paths = None
        self.graph = Graph(tracer_cls=type(self))
        self.num_calls, self.module_stack = {}, collections.OrderedDict()
        self.tensor_attrs = {id(v): (v, n) for n, v in _tensors_of(self.root)}
        if not isinstance(fn, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        space = fn.__globals__
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        cache: dict[str, Any] = {}
        plain = Module.__getattr__

        def attribute(mod: Module, attr: str) -> Any:
            return self.getattr(attr, plain(mod, attr), cache)

        me = threading.get_ident()

        def call(mod: Module, forward: Callable[..., Any], given: Any, kwargs: Any) -> Any:
            if threading.get_ident() != me:
                return forward(*given, **kwargs)
            patcher.functions_in(getattr(getattr(mod, "forward", mod), "__globals__", {}), self._autowrap_ids)
            return self.call_module(mod, forward, given, kwargs)

        recorder = Recorder()
        with Patcher() as patcher:
            patcher.put(Module, "__getattr__", attribute)
            patcher.wrapped()
            for module_space in (space, *[vars(m) for m in self._autowrap_search]):
                patcher.functions_in(module_space, self._autowrap_ids)
            interpreters.push(recorder)
            _tracing += 1
            taken = module_hooks.take_calls(call)
            try:
                result = self.create_arg(fn(*args))
                self.create_node("output", "output", (result,), {}, type_expr=_annotation(fn, "return"))
            finally:
                module_hooks.take_calls(taken)
                _tracing -= 1
                interpreters.pop(recorder)
        self.submodule_paths = None
        return self.graph

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """The function to call, and the arguments to call it with: a proxy for each that is not given."""
        analysed = inspect.unwrap(root_fn)
        code = analysed.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        wanted = list(code.co_varnames[:count])
        parameters = inspect.signature(analysed).parameters
        args: list[Any] = []
        if is_module:
            if not wanted:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            wanted.pop(0)
            args.append(self.root)
        if isinstance(concrete_args, tuple):
            if len(concrete_args) != len(wanted):
                raise RuntimeError(f"Tracing expected {len(wanted)} arguments but got {len(concrete_args)} concrete arguments")
            concrete_args = dict(zip(wanted, concrete_args, strict=True))
        given = concrete_args or {}
        args += [self._concrete(n, given[n], parameters[n]) if n in given and given[n] is not PH else self._input(n, analysed, parameters[n]) for n in wanted]
        rest = [(flag, stars) for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")) if code.co_flags & flag]
        for at, (_, stars) in enumerate(rest, count):
            name = code.co_varnames[at]
            args.append(self.create_proxy("placeholder", f"{stars}{name}", (), {}, type_expr=_annotation(analysed, name)))
        if not rest and not code.co_kwonlyargcount:
            return root_fn, args
        # the same code, to which all these are plain arguments: *args and **kwargs are one proxy each
        plain = FunctionType(code.replace(co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS), co_argcount=count + len(rest),
                                          co_kwonlyargcount=0, co_posonlyargcount=0), analysed.__globals__, analysed.__name__, None, analysed.__closure__)
        return plain, args

    def _input(self, name: str, fn: Any, parameter: inspect.Parameter) -> Any:
        return self.create_proxy("placeholder", name, _default(parameter), {}, type_expr=_annotation(fn, name))

    def _concrete(self, name: str, value: Any, parameter: inspect.Parameter) -> Any:
        """The value of an argument that is not traced; the graph checks that it comes."""
        out = self.create_proxy("placeholder", f"{name}_1", _default(parameter), {})
        if isinstance(value, (bool, int, float, complex, str)):
            _assert(out == value, f"{name} has been specialized to have value {value} but got another value")
        elif value is None:
            self.create_proxy("call_function", _assert_is_none, (out, f"{name} has been specialized to have value None but got another value"), {})
        else:
            warn(f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the user to make sure that "
                 "your inputs match the inputs you specialized the function with.")
        return value


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return () if parameter.default is parameter.empty else (parameter.default,)


def _annotation(fn: Any, name: str) -> Any:
    """What a function is annotated with; None for what cannot be found (and of this package's own functions, whose annotations are their own)."""
    found = fn.__annotations__.get(name)
    if (fn.__module__ or "").partition(".")[0] == names.PACKAGE:
        return None
    if isinstance(found, str):
        try:
            found = eval(found, fn.__globals__)  # as typing.get_type_hints does, one by one
        except Exception:
            return None
    return found


def _tensors_of(root: Module) -> list[tuple[str, Tensor]]:
    """The tensors that are plain attributes of modules, by their paths."""
    return [(f"{path}.{n}" if path else n, v) for path, m in root.named_modules() for n, v in vars(m).items() if isinstance(v, Tensor)]


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """The module or function as a `GraphModule`, by one call on proxies.

    concrete_args: values for arguments that are not to be traced, by name.  Raises TraceError where what the program does next depends on
    a traced value.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, Module) else root.__name__)


__all__ = ["PH", "Tracer", "compatibility", "is_fx_tracing", "symbolic_trace", "wrap"]
