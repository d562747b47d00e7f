"""Calls with `out=`, as an operation of their own: its first operand is `out`, so that they are planned and learned as any other's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fronts import MISSING, OPEN, OPTIONAL, TENSOR, Signature
from .operation import Operation

if TYPE_CHECKING:
    Values = tuple[Any, ...]


class Into(Operation):
    """The calls of an operation with `out=`. All is given by position: `out`, and what the operation's function hands on (`Signature.handed_on`)."""

    __slots__ = ()

    def __init__(self, of: Operation) -> None:
        s = of._signature()
        names = s.handed_on()
        defaults = [s.default(n) for n in names]
        first = next((i for i, found in enumerate(defaults) if found is not MISSING), len(names))
        kinds = {n: OPEN if kind in (TENSOR, OPTIONAL) else kind for n, kind in s.kinds.items()}  # the body says what is wrong with what is no tensor
        flat = Signature(("out", *names), (), defaults[first:], None, {**kinds, "out": OPEN})
        flat.untold = s.untold
        super().__init__(of.name, of.into, signature=flat, shown=of.function.__name__)

    def ask(self, values: Values) -> Any:
        """A call with an operand that is no plain tensor, which the body knows of."""
        return self.body(*values)

    def tripped(self, error: Exception, values: Values) -> Any:
        """The error of a call, which the body has put into words."""
        raise error
