"""Hooks on a node of the graph: `grad_fn.register_hook` and `register_prehook`.

A node's BACKWARD is wrapped when the first hook is registered, so that a pass over nodes without hooks looks for none.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from . import tape
from .handles import RemovableHandle, among, register

if TYPE_CHECKING:
    from collections.abc import Callable

    Grads = tuple[Any, ...]


class Hooked:
    """A node's BACKWARD with hooks before and after it.  It is found among the backward functions that save nothing where that is."""

    __slots__ = ("backward", "before", "after")

    def __init__(self, backward: Any) -> None:
        self.backward = backward
        self.before: OrderedDict[Any, Callable[[Grads], Any]] = OrderedDict()
        self.after: OrderedDict[Any, Callable[[Grads, Grads], Any]] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backward, name)

    def __eq__(self, other: object) -> bool:
        return self is other or self.backward == other

    def __hash__(self) -> int:
        return hash(self.backward)

    def __call__(self, node: tape.Node, g: Any) -> Any:
        given = tuple(g) if type(g) is list else (g,)
        for before in list(self.before.values()):
            given = _replaced(before(given), given, "pre-hook")
        gs = self.backward(node, list(given) if type(g) is list else given[0])
        if node[tape.BACKWARD] is self.backward:  # hooks on saved tensors put themselves back
            node[tape.BACKWARD] = self
        if not self.after:
            return gs
        count = getattr(self.backward, "inputs", len(node[tape.EDGES]))
        found = tuple([x.joined() if isinstance(x, tape.Parts) else x for x in gs[:count]])
        for after in list(self.after.values()):
            found = _replaced(after(found, given), found, "hook")
        return [*found, *gs[count:]]


def _replaced(new: Any, old: Grads, what: str) -> Grads:
    if new is None:
        return old
    made: Grads = tuple(new) if isinstance(new, (tuple, list)) else (new,)
    if len(made) != len(old):
        raise RuntimeError(f"a node's {what} has returned an incorrect number of values: {len(made)} instead of {len(old)}")
    return made


def _wrapped(node: tape.Node) -> Hooked:
    node[tape.EXTRA] = node[tape.EXTRA] or {}  # as a tensor's hook: no gradient goes past it
    found: Any = node[tape.BACKWARD]
    made: Hooked = found if isinstance(found, Hooked) else Hooked(found)
    node[tape.BACKWARD] = made
    return made


def add(node: tape.Node, hook: Callable[[Grads, Grads], Any]) -> RemovableHandle:
    """Calls `hook(grad_inputs, grad_outputs)` after the node's step; gradients that it returns replace those of its inputs."""
    if node[tape.SEQ]:
        return register(_wrapped(node).after, hook)
    extra = node[tape.EXTRA] = node[tape.EXTRA] or {}
    return register(among(extra, "post"), lambda g: hook((), (g,)))


def add_before(node: tape.Node, hook: Callable[[Grads], Any]) -> RemovableHandle:
    """Calls `hook(grad_outputs)` before the node's step; gradients that it returns replace them."""
    if node[tape.SEQ]:
        return register(_wrapped(node).before, hook)

    def arrived(g: Any) -> Any:  # of one gradient
        return _replaced(hook((g,)), (g,), "pre-hook")[0]
    extra = node[tape.EXTRA] = node[tape.EXTRA] or {}
    return register(among(extra, "pre"), arrived)
