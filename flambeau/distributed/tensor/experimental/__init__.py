"""What PyTorch calls experimental: plain tensors among DTensors, and functions of pieces."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from ....interop import stand_ins
from ..dtensor import DTensor
from ..propagation import implicit

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors among the operands of DTensors count as replicated ones."""
    before, implicit[0] = implicit[0], True
    try:
        yield
    finally:
        implicit[0] = before


def local_map(func: Any = None, out_placements: Any = None, in_placements: Any = None, in_grad_placements: Any = None, device_mesh: Any = None, *,
              redistribute_inputs: bool = False) -> Any:
    """`func` of the pieces of DTensors; its results are pieces that lie by `out_placements`.

    in_placements: how each argument must lie (None: a plain one); another lie is moved with `redistribute_inputs`, else ValueError.
    """
    if func is None:
        return functools.partial(local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements,
                                 device_mesh=device_mesh, redistribute_inputs=redistribute_inputs)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        mesh, pieces = device_mesh, []
        for k, a in enumerate(args):
            if isinstance(a, DTensor):
                mesh = mesh or a.device_mesh
                wanted = None if in_placements is None else in_placements[k]
                if wanted is not None and tuple(wanted) != a.placements:
                    if not redistribute_inputs:
                        raise ValueError(f"arg {k} is expected to be on placements {tuple(wanted)}, and it is on {a.placements}: set redistribute_inputs=True")
                    a = a.redistribute(mesh, wanted)
                a = a.to_local(grad_placements=None if in_grad_placements is None else in_grad_placements[k])
            pieces.append(a)
        found = func(*pieces, **kwargs)
        several = isinstance(found, tuple)
        placed = list(out_placements) if several else [out_placements]
        made = [x if p is None or mesh is None else DTensor.from_local(x, mesh, p) for x, p in zip(found if several else (found,), placed)]
        return tuple(made) if several else made[0]
    return call


globals().update(stand_ins.names(__name__, "context_parallel() register_sharding()", "this is not here; cut tensors by their placements"))
