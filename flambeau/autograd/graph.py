"""What `grad_fn` shows of the tape: a node's name, its inputs, its hooks."""

from __future__ import annotations

from typing import Any

from . import tape


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
        return tuple((None if e is None else GradFn(e), 0) for e in self.node[tape.EDGES])

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        saved = self.node[tape.SAVED]
        if saved is None:
            tape.freed(self.node, None)
        return tuple(x for x in saved if isinstance(x, tape.Tensor)) if isinstance(saved, (tuple, list)) else ()  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self.node))}>"
