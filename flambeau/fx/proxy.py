"""`Proxy`: stands for a value while a program is traced, and writes down what is done with it."""

from __future__ import annotations

import dis
import inspect
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from .._core import dtypes
from .._core.engine import interpreters
from .._core.runtime.device import device
from .._core.tensor import Tensor
from . import names
from .codegen import magic_methods
from .graph import Graph
from .immutable_collections import immutable_dict, immutable_list
from .node import BASE_ARGUMENT_TYPES, Node

if TYPE_CHECKING:
    from .._core.engine.operation import Operation

_CONSTANTS = (*BASE_ARGUMENT_TYPES, dtypes.dtype, device, range)


class TraceError(ValueError):
    """A program does with a traced value what only a number could answer."""


class TracerBase:
    """What turns calls into nodes of `graph`; see `Tracer`, which traces a whole module."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    # -------------------------------------------------------------------------------------------------------------- making
    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None) -> Node:
        """Adds a node whose arguments are nodes and constants already."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """What stands for a node's value."""
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None,
                     proxy_factory_fn: Callable[[Node], Proxy] | None = None) -> Any:
        """Adds a node whose arguments may be proxies, and gives what stands for it."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, tuple(args_), dict(kwargs_), name, type_expr)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = _users_lines()
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """An argument as a node keeps it.  Raises NotImplementedError for what no node can keep."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(x) for x in a]
            if not hasattr(a, "_fields"):
                return tuple(parts)
            if _has_node(parts):
                return self.create_node("call_function", type(a), tuple(parts), {})
            return type(a)(*parts)
        if isinstance(a, list):
            return immutable_list([self.create_arg(x) for x in a])
        if isinstance(a, dict):
            return immutable_dict({self._create_key(k): self.create_arg(v) for k, v in a.items()})
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if is_dataclass(a) and not isinstance(a, type):
            kwargs = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), kwargs)
        if isinstance(a, (*_CONSTANTS, Node)) or names.shown(a) is not None or type(a).__name__ == "Enum" or hasattr(type(a), "__members__"):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _create_key(self, k: Any) -> Any:
        key = self.create_arg(k)
        if isinstance(key, Node) or _has_node([key]):
            raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {k}")
        return key

    # ------------------------------------------------------------------------------------------ what only numbers can answer
    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a traced value.  Raises TraceError; a tracer that knows it may say it."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The parts of a traced value.  Raises TraceError, as it is not known how many they are."""
        raise TraceError("Proxy object cannot be iterated: how many parts a traced value has is not known. It was used in a loop, or as *args or "
                         "**kwargs of a call; index it, unpack it into names, or make the function that needs it a leaf with torch.fx.wrap")

    def keys(self, obj: Any) -> Any:
        """What `**` of a traced value asks for."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds to a graph that there is already; what proxies use that are made by hand."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.module_stack: dict[str, Any] = {}


def _has_node(parts: Any) -> bool:
    return any(isinstance(p, Node) or (isinstance(p, (tuple, list)) and _has_node(p)) or (isinstance(p, dict) and _has_node(list(p.values())))
               for p in parts)


def _users_lines() -> str:
    """The stack of the program that is traced, without this package's lines."""
    return "".join(traceback.StackSummary.from_list(
        [f for f in traceback.extract_stack() if f"/{names.PACKAGE}/" not in f.filename]).format())


class Proxy:
    """Stands for the value of a node.  Operators, attributes, methods and functions of this package applied to it become nodes, and give
    proxies; what only a number can answer (`if`, `for`, `int`, `len`) raises."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k == "meta":  # what tells a tensor from what stands for one: an operation asks `__torch_function__` then
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> Any:
        return self.__dict__

    def __setstate__(self, state: Any) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: Any) -> Any:
        import copy
        made = Proxy.__new__(type(self))
        made.__dict__ = {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()}
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame: Any = sys._getframe(1)
        step = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
        if step is not None and step.opname == "UNPACK_SEQUENCE":
            return iter([operator.getitem(self, i) for i in range(step.argval)])
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
                           "torch.fx.wrap('len') at module scope")

    def keys(self) -> Any:
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return record(orig_method, args, kwargs or {})


class Attribute(Proxy):
    """An attribute of a traced value; called at once it becomes the call of a method, and no node of its own."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, whose shape is known while it is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


# ----------------------------------------------------------------------------------------------------------------- operators
def _operator(name: str) -> Callable[..., Any]:
    target = getattr(operator, name)

    def call(self: Any, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, *args), {})
    return call


def _reflected(name: str) -> Callable[..., Any]:
    target = getattr(operator, name)

    def call(self: Any, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})
    return call


_REFLECTED = "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor matmul".split()
reflectable_magic_methods = {n: magic_methods[n] for n in _REFLECTED}
for _name in (*magic_methods, "abs"):
    setattr(Proxy, f"__{_name.rstrip('_')}__", _operator(_name))
for _name in _REFLECTED:
    setattr(Proxy, f"__r{_name.rstrip('_')}__", _reflected(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


# ------------------------------------------------------------------------------------------------------------ functions' calls
def first_proxy(args: Any) -> Proxy | None:
    """A proxy among arguments, or within their tuples, lists, dictionaries and slices."""
    for a in args:
        if isinstance(a, Proxy):
            return a
        inner: Any = ()
        if isinstance(a, (tuple, list)):
            inner = a
        elif isinstance(a, dict):
            inner = a.values()
        elif isinstance(a, slice):
            inner = (a.start, a.stop, a.step)
        found = first_proxy(inner) if inner else None
        if found is not None:
            return found
    return None


# operators with a traced value on their right side, and the tensor's method each is
_ON_TENSORS = {"__add__": "add", "__mul__": "mul", "__sub__": "sub", "__truediv__": "div", "__matmul__": "matmul", "__eq__": "eq", "__ne__": "ne",
               "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__and__": "bitwise_and", "__or__": "bitwise_or",
               "__xor__": "bitwise_xor", "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_", "__pow__": "pow",
               "__mod__": "remainder", "__floordiv__": "floor_divide"}


def record(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function of this package on proxies, as a node."""
    found = first_proxy((*args, *kwargs.values()))
    if found is None:
        raise RuntimeError(f"Found multiple different tracers in {function}'s arguments, or none")
    create = found.tracer.create_proxy
    name = getattr(function, "__name__", "")
    method = _ON_TENSORS.get(name) or names.called_as(function) or (name if getattr(Tensor, name, None) is function and name[:2] == "__" else None)
    if method is not None and args:
        return create("call_method", method, args, kwargs)
    if names.filled(function):
        args, kwargs = _all_arguments(function, args, kwargs)
    return create("call_function", function, args, kwargs, name=found.tracer.graph._target_to_str(name))


def _all_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, those that have a default all by name.  As they are where they do not fit: the call will say so."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    bound.apply_defaults()
    by_name = names.defaults(function)
    written = [v for n, v in bound.arguments.items() if signature.parameters[n].default is inspect.Parameter.empty]
    return tuple(written), {n: bound.arguments[n] for n in by_name}


class Recorder(interpreters.Interpreter):
    """While it is on the stack, calls of operations that are given a proxy become nodes, before anything looks at their arguments."""

    __slots__ = ()

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if first_proxy((*args, *kwargs.values())) is None:
            return function(*args, **kwargs)
        return record(operation.function, args, kwargs)


__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase", "reflectable_magic_methods"]
