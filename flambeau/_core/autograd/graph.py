"""What `grad_fn` shows of the tape: a node's name, its inputs, what it saved; hooks on that, and on several gradients at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from . import tape
from .saved import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["GradFn", "Node", "disable_saved_tensors_hooks", "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


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
        saved = self.node[tape.SAVED]
        if saved is None:
            tape.freed(self.node, None)
        return tuple(x for x in unpacked(saved) if isinstance(x, Tensor)) if isinstance(saved, (tuple, list)) else ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self.node))}>"


Node = GradFn


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
