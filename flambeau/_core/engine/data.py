"""Tensors made of data that are no tensors: what such data are in the keys of plans, and the plans.

What numbers in lists and NumPy's arrays are but their values (sizes, the class of the first number, an array's type and strides) is read by machine code, and
so are the values, so that `torch.tensor([[1.0, 2.0]])` is looked up and carried out as `x + y` is. Lists that are uneven, or whose numbers are of several
classes, are found when they are read: then, as for all else, `general` makes the tensor.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import no_room
from ..kernels import host_values, native
from ..kernels.calls import NEW, Block, Made
from ..kernels.llvm import sequence
from ..runtime import caches
from ..tensor import Meta, Tensor
from .plans import CALLS, Compose

if TYPE_CHECKING:
    from collections.abc import Callable


def layout(data: Any) -> Any:
    """What stands for data in a key: a tensor's meta. Raises TypeError for all else, of which machine code knows more."""
    if isinstance(data, Tensor):
        return data.meta
    raise TypeError(f"a {type(data).__name__} is in no key")


def size(buffer: Any) -> Any:
    """What stands for a buffer in a key. Raises TypeError: machine code knows those that may be written."""
    raise TypeError(f"a {type(buffer).__name__} is in no key")


@lru_cache(1)
def _native() -> dict[str, Callable[[Any], Any]]:
    arrays = id(np.ndarray) if host_values.known_arrays() else 0
    return {"data_layout": CALLS.shares("flambeau_layout", (id(layout), arrays), layout, alone=True) or layout,
            "buffer_size": CALLS.shares("flambeau_size", (id(size),), size, alone=True) or size}


def quicken(space: dict[str, Any]) -> None:
    """Puts `layout` and `size` into a front's namespace, as `data_layout` and `buffer_size`; as machine code, as soon as there is any."""
    space.update(data_layout=layout, buffer_size=size)
    _waiting.append(space)
    native.when_loaded(_loaded)


def _loaded() -> None:
    """There is machine code: a launch, or a plan of data, has needed it."""
    while _waiting:
        with contextlib.suppress(IndexError):  # another thread took the last
            _waiting.pop().update(_native())


_waiting: list[dict[str, Any]] = []  # namespaces that have Python's `layout` and `size`


def with_room(plan: Taken | Compose, operation: str) -> None:
    """Has the operation's error raised where NumPy, by which such plans read data, has no room: the one place that does so, as errors of a plan's call
    are no longer the engine's."""
    python = plan.general if isinstance(plan, Taken) else plan.run

    def told(*given: Any) -> Any:
        try:
            return python(*given)
        except (MemoryError, ValueError) as error:
            full = no_room(operation, error)
            if full is None:
                raise
            raise full from None
    if isinstance(plan, Taken):
        plan.general = told
    else:
        plan.run = told


class Taken:
    """A plan that makes a tensor of data.

    meta: of the tensor.  general: makes the tensor in Python, from what the plan is called with.  at: the place of the data in that.  what: how the tensor is
    made: NEW, the data are numbers in lists, which are written into memory of its own; ON_ARRAY or ON_BUFFER, on their own memory, so many bytes (`offset`)
    behind its begin.  result: what the tensor, in a tuple, is handed to in the end.  keep: what must live as long as the plan does.
    """

    __slots__ = ("meta", "general", "at", "what", "offset", "result", "keep")

    def __init__(self, m: Meta, general: Callable[..., Tensor], at: int, what: int, offset: int = 0, result: Any = None, keep: Any = None) -> None:
        self.meta, self.general, self.at, self.what, self.offset, self.result, self.keep = m, general, at, what, offset, result, keep

    def bind(self, roles: str) -> Callable[..., Any]:
        """The call as a function of `roles`' arguments."""
        m, blocks, steps = self.meta, [], []
        if caches.observed():  # who looks on is told of the bytes that are written, and of memory that becomes a tensor's
            return self.general
        if self.what == NEW:
            how = host_values.written(m.shape, m.strides, m.dtype)
            if how is None or m.sizes is None:
                return self.general
            blocks, steps = [Block(m.sizes.free, m.sizes.grow, m)], [sequence.fill_step(len(roles), self.at, *how)]
        made = Made(self.what, m, 0 if self.what == NEW else self.at, self.offset, None)
        general = self.general

        def otherwise(*given: Any) -> Tensor:
            return general(*given)
        otherwise.keep = self.keep  # type: ignore[attr-defined]
        call = CALLS.builtin("x" * len(roles), blocks, steps, [made], self.result, otherwise, False)
        if call is not otherwise:
            _loaded()
        return call
