"""What `grad_fn` shows of the tape: a node's name, its inputs, what it saved; hooks on that, and on several gradients at once."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tensor import Tensor, alias
from . import node_hooks, saved_names, tape
from .function import Called, FunctionCtx
from .mutation import allow_mutation_on_saved_tensors
from .saved import SavedTensor, disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .handles import RemovableHandle

__all__ = ["GradFn", "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
           "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


class GradFn:
    """A recorded operation, as seen from outside.  Each node is shown as one object while somebody holds it, of a class of its own name."""

    __slots__ = ("node", "__weakref__")

    def __init__(self, node: tape.Node) -> None:
        self.node = node

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The operations (or leaves) this one's inputs came from, each with the number of the output that it is."""
        edges = self.node[tape.EDGES]
        edges = edges[:getattr(self.node[tape.BACKWARD], "inputs", len(edges))]  # a layer's may have one more, past an activation
        saved = self.node[tape.SAVED]
        known = getattr(getattr(saved[0], "op", None), "arity", None) if type(saved) is tuple and saved else None
        if known is not None and not any(edges[known:]):  # a formula's operand for what its result is written over
            edges = edges[:known]
        return tuple((None, 0) if e is None else (shown(e), e[tape.SAVED] if e[tape.BACKWARD] is tape.to_output else 0) for e in edges)

    def __call__(self, *grads: Any) -> Any:
        """The gradients of its inputs, of those of its outputs.  Raises TypeError for another number of them."""
        node = self.node
        several = node[tape.EXTRA] is not None and "outputs" in node[tape.EXTRA]
        count = node[tape.EXTRA]["outputs"] if several else 1
        if len(grads) != count:
            raise TypeError(f"expected {count} arguments, got {len(grads)} instead: {self.name()} takes a gradient for each of its outputs")
        found = node[tape.BACKWARD](node, list(grads) if several else grads[0])
        given = tuple([g.joined() if isinstance(g, tape.Parts) else g for g in found])
        return given[0] if len(given) == 1 else given

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What it keeps for its gradient, operands first.  Raises RuntimeError where that is freed."""
        return tuple([t for t, _ in self._saved()])

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whatever a program wants to remember of the operation."""
        node = self.node
        node[tape.EXTRA] = node[tape.EXTRA] or {}
        found: dict[Any, Any] = node[tape.EXTRA].setdefault("metadata", {})
        return found

    def register_hook(self, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
        """Calls `hook(grad_inputs, grad_outputs)` after its step in a backward pass; gradients that the hook returns (if not None) replace
        those of its inputs.  Gives a handle with `remove()`."""
        return node_hooks.add(self.node, hook)

    def register_prehook(self, hook: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Calls `hook(grad_outputs)` before its step in a backward pass; gradients that the hook returns (if not None) replace them."""
        return node_hooks.add_before(self.node, hook)

    def _sequence_nr(self) -> int:
        """A number that is larger for what was recorded later."""
        return -int(self.node[tape.SEQ])

    def _saved(self) -> list[tuple[Tensor, Any]]:
        """The tensors it keeps, each with its version, or None where that is not known."""
        saved = self.node[tape.SAVED]
        if saved is None:
            if tape.is_freed(self.node):
                tape.freed(self.node, None)
            return []
        return _tensors(unpacked(saved))

    def __getattr__(self, name: str) -> Any:
        """`_saved_x`: what it keeps by PyTorch's name of it; `variable`: the leaf whose gradient it accumulates, while that lives.  Raises AttributeError for
        what it does not keep."""
        if name == "variable" and not self.node[tape.SEQ] and self.node[tape.SAVED] is not None:
            leaf = self.node[tape.SAVED]()
            if leaf is not None:
                return leaf
        if name.startswith("_saved_"):
            node = self.node
            if tape.is_freed(node):
                tape.freed(node, None)
            found = saved_names.find(node, unpacked(node[tape.SAVED]), name[7:])
            if found is not saved_names.NOTHING:
                return found
        if name.startswith("_raw_saved_"):
            value = self.__getattr__(name[4:])
            return tuple([SavedTensor.of(self.node, name[11:]) for _ in value]) if type(value) is tuple else SavedTensor.of(self.node, name[11:])
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self.node))}>"


class BackwardCFunction(GradFn):
    """A recorded call of a user's `Function`: has what its `ctx` has."""

    __slots__ = ()

    @property
    def _ctx(self) -> FunctionCtx | None:
        called = self.node[tape.SAVED][0] if self.node[tape.SAVED] is not None else self.node[tape.BACKWARD]
        return getattr(called, "ctx", None)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `ctx.save_for_backward` was given.  Raises RuntimeError where that is freed."""
        if self.node[tape.SAVED] is None:
            tape.freed(self.node, None)
        found: tuple[Any, ...] = self._ctx.saved_tensors  # type: ignore[union-attr]
        return found

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        return tuple([SavedTensor.of(self.node, i) for i in range(len(self.saved_tensors))])

    def __getattr__(self, name: str) -> Any:
        ctx = self._ctx
        if ctx is None or name.startswith("_kept"):
            raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")
        return getattr(ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "node":
            object.__setattr__(self, name, value)
        else:
            setattr(self._ctx, name, value)


_shown: weakref.WeakValueDictionary[int, GradFn] = weakref.WeakValueDictionary()
_classes: dict[str, type[GradFn]] = {}


def kind(name: str) -> type[GradFn]:
    """The class of the nodes of a name."""
    found = _classes.get(name)
    if found is None:
        found = _classes[name] = type(name, (GradFn,), {"__slots__": ()})
    return found


def shown(node: tape.Node) -> GradFn:
    """A node as seen from outside: of an operation with several outputs, that of all of them, unless they have names of their own."""
    asked = node
    if node[tape.BACKWARD] is tape.to_output:
        node = node[tape.EDGES][0]
        if tape.name_of(asked) in ("to_output", tape.name_of(node)):
            asked = node
    found = _shown.get(id(asked))
    if found is None or found.node is not node:
        saved = node[tape.SAVED]
        called = saved[0] if type(saved) is tuple and saved else node[tape.BACKWARD]
        found = (called.cls._backward_cls if type(called) is Called else kind(tape.name_of(asked)))(node)
        _shown[id(asked)] = found
    return found


class _Kinds(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (GradFn, FunctionCtx))

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, (GradFn, FunctionCtx))


class Node(metaclass=_Kinds):
    """What `grad_fn`s are instances of, and what a Function's `ctx` is; itself the class of nothing."""


def current_pass() -> int:
    """The number of this thread's backward pass; -1 outside of one."""
    this = tape.running_pass()
    return -1 if this is None else this.number


def will_run(node: GradFn) -> bool:
    """Whether this thread's backward pass runs a node.  Raises RuntimeError outside of one, for what is no node, and for a leaf whose gradient
    `autograd.grad` hands over."""
    this = tape.running_pass()
    if not isinstance(node, GradFn):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    if this is None:
        raise RuntimeError("_will_engine_execute_node should only be called during the backward pass")
    if this.captures is not None and id(node.node) in this.captures.wanted and not node.node[tape.SEQ]:
        raise RuntimeError("_will_engine_execute_node was called with a leaf's node as argument, but you are currently running autograd.grad(), which "
                           "hands its gradient over and does not run it: use .backward() or .backward(inputs=) if you must call this")
    if this.needed is None:
        return bool(tape.needed_for(this.roots, {id(node.node)}))
    return id(node.node) in this.needed


class DelayedError(GradFn):
    """Called with tensors, gives them as results of a node whose gradient is a RuntimeError with a message."""

    def __init__(self, message: str, num_inputs: int) -> None:
        self.message = message

    def __call__(self, *tensors: Tensor) -> Any:
        def fail(node: tape.Node, g: Tensor) -> Any:
            raise RuntimeError(self.message)
        made = tuple([tape.record(alias(t, t.meta, t.ptr), fail, (t,), None, "Error") for t in tensors])
        return made[0] if len(made) == 1 else made


class UndefinedGrad(GradFn):
    """Called with tensors, gives them as results of a node that lets no gradient through."""

    def __init__(self) -> None:
        """There is nothing to be told."""

    def __call__(self, *tensors: Tensor) -> Any:
        made = tuple([tape.record(alias(t, t.meta, t.ptr), lambda node, g: (None,), (t,), None, "UndefinedGrad") for t in tensors])
        return made[0] if len(made) == 1 else made



class GradientEdge(NamedTuple):
    """Where a gradient arrives: a node and which of its outputs is meant."""

    node: GradFn
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor arrives.  Raises RuntimeError for one that requires none."""
    if tensor.node is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(shown(tensor.node), tensor.output_nr)


def _tensors(x: Any) -> list[tuple[Tensor, Any]]:
    if isinstance(x, Tensor):
        return [(x, None)]
    if type(x) is tuple or type(x) is list:
        return [pair for y in x for pair in _tensors(y)]
    return []


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Tells autograd that a tensor's values changed by other means than operations of this package."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if t.store.version >= 0:
            t.store.version += 1


class _Handle:
    """Removes what `register_multi_grad_hook` registered."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = tuple(handles)

    def remove(self) -> None:
        for h in self._handles:
            h.remove()

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all") -> _Handle:
    """Calls `fn` once in each backward pass in which any of the tensors gets a gradient: mode "all", with the list of their gradients,
    when the last has come, or, where some get none (None in the list), at the end of the pass; mode "any", with the first that comes.
    Gives a handle with `remove()`.  Raises ValueError for another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    own = threading.local()  # the gradients of the pass that this thread runs, and that pass
    wanted = [i for i, t in enumerate(tensors) if t.requires_grad]

    def end() -> None:
        found, own.found, own.of = own.found, None, None
        if mode == "all" and found is not None and any(found[i] is None for i in wanted):
            fn(found)

    def hook(i: int) -> Callable[[Tensor], None]:
        def call(g: Tensor) -> None:
            found = getattr(own, "found", None)
            if found is None or own.of is not tape.running_pass():  # an error ends a pass early
                found = own.found = [None] * len(tensors)
                own.of = tape.running_pass()
                tape.at_end(end)
                if mode == "any":
                    fn(g)
            found[i] = g
            if mode == "all" and all(found[k] is not None for k in wanted):
                fn(list(found))
        return call
    return _Handle([tensors[i].register_hook(hook(i)) for i in wanted])
