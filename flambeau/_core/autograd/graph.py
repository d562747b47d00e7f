"""What `grad_fn` shows of the tape: a node's name, its inputs, what it saved; hooks on that, and on several gradients at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tensor import Tensor
from . import node_hooks, saved_names, tape
from .saved import SavedTensor, allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .handles import RemovableHandle

__all__ = ["GradFn", "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
           "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


class GradFn:
    """A recorded operation, as seen from outside."""

    __slots__ = ("node",)

    def __init__(self, node: tape.Node) -> None:
        self.node = node

    def name(self) -> str:
        return tape.name_of(self.node)

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The operations (or leaves) this one's inputs came from."""
        if self.node[tape.BACKWARD] is tape.to_output:
            return GradFn(self.node[tape.EDGES][0]).next_functions
        edges = self.node[tape.EDGES]
        edges = edges[:getattr(self.node[tape.BACKWARD], "inputs", len(edges))]  # a layer's may have one more, past an activation
        return tuple((None if e is None else GradFn(e), 0) for e in edges)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What it keeps for its gradient, operands first.  Raises RuntimeError where that is freed."""
        return tuple([t for t, _ in self._saved()])

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whatever a program wants to remember of the operation."""
        node = self._step()
        node[tape.EXTRA] = node[tape.EXTRA] or {}
        found: dict[Any, Any] = node[tape.EXTRA].setdefault("metadata", {})
        return found

    def register_hook(self, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
        """Calls `hook(grad_inputs, grad_outputs)` after its step in a backward pass; gradients that the hook returns (if not None) replace
        those of its inputs.  Gives a handle with `remove()`."""
        return node_hooks.add(self._step(), hook)

    def register_prehook(self, hook: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Calls `hook(grad_outputs)` before its step in a backward pass; gradients that the hook returns (if not None) replace them."""
        return node_hooks.add_before(self._step(), hook)

    def _sequence_nr(self) -> int:
        """A number that is larger for what was recorded later."""
        return -int(self.node[tape.SEQ])

    def _step(self) -> tape.Node:
        """The node whose backward function runs: that of all outputs, where there are several."""
        found: tape.Node = self.node[tape.EDGES][0] if self.node[tape.BACKWARD] is tape.to_output else self.node
        return found

    def _saved(self) -> list[tuple[Tensor, Any]]:
        """The tensors it keeps, each with its version, or None where that is not known."""
        saved = self._step()[tape.SAVED]
        if saved is None:
            if tape.is_freed(self._step()):
                tape.freed(self.node, None)
            return []
        return _tensors(unpacked(saved))

    def __getattr__(self, name: str) -> Any:
        """`_saved_x`: what it keeps by PyTorch's name of it.  Raises AttributeError for what it does not keep."""
        if name.startswith("_saved_"):
            node = self._step()
            if tape.is_freed(node):
                tape.freed(node, None)
            found = saved_names.find(node, unpacked(node[tape.SAVED]), name[7:])
            if found is not saved_names.NOTHING:
                return found
        if name.startswith("_raw_saved_"):
            value = self.__getattr__(name[4:])
            return tuple([SavedTensor.of(self._step(), name[11:]) for _ in value]) if type(value) is tuple else SavedTensor.of(self._step(), name[11:])
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self.node))}>"


Node = GradFn


class GradientEdge(NamedTuple):
    """Where a gradient arrives: a node and which of its outputs is meant."""

    node: GradFn
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor arrives.  Raises RuntimeError for one that requires none."""
    if tensor.node is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(GradFn(tensor.node), tensor.output_nr)


def _tensors(x: Any) -> list[tuple[Tensor, Any]]:
    if isinstance(x, Tensor):
        return [(x, None)]
    if type(x) is tuple or type(x) is list:
        return [pair for y in x for pair in _tensors(y)]
    return []


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Tells autograd that a tensor's values changed by other means than operations of this package."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
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
    own = threading.local()  # the gradients of the pass that this thread runs
    wanted = [i for i, t in enumerate(tensors) if t.requires_grad]

    def end() -> None:
        found, own.found = own.found, None
        if mode == "all" and found is not None and any(found[i] is None for i in wanted):
            fn(found)

    def hook(i: int) -> Callable[[Tensor], None]:
        def call(g: Tensor) -> None:
            found = getattr(own, "found", None)
            if found is None:
                found = own.found = [None] * len(tensors)
                tape.at_end(end)
                if mode == "any":
                    fn(g)
            found[i] = g
            if mode == "all" and all(found[k] is not None for k in wanted):
                fn(list(found))
        return call
    return _Handle([tensors[i].register_hook(hook(i)) for i in wanted])
