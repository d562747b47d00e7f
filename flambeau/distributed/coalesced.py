"""Several collectives at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .collectives import ReduceOp, Work, all_gather, all_reduce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._core.tensor import Tensor


class _CoalescingManager:
    """The works that a block began."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None) -> None:
        """Adds a work that was begun with `async_op`."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Waits for all."""
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_CoalescingManager]:
    """A ``with`` block of collectives that may go together; here each goes as it comes."""
    manager = _CoalescingManager()
    yield manager
    if not async_ops:
        manager.wait()


def all_reduce_coalesced(tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """`all_reduce` of each of the tensors, whose shapes and types may differ.  With `async_op` a future of them; None outside of the group."""
    return _whole([all_reduce(t, op, group, async_op=True) for t in tensors], tensors, async_op)


def all_gather_coalesced(output_tensor_lists: Sequence[list[Tensor]], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False) -> Any:
    """`output_tensor_lists[i][k]` becomes the k-th input tensor of the group's process i.  With `async_op` a future of the lists; None outside of the group.

    Raises ValueError where a list has not as many tensors as there are inputs.
    """
    for each in output_tensor_lists:
        if len(each) != len(input_tensor_list):
            raise ValueError(f"all_gather_coalesced: each of output_tensor_lists must hold a tensor for each of the {len(input_tensor_list)} inputs, "
                             f"got {len(each)}")
    works = [all_gather([each[k] for each in output_tensor_lists], t, group, async_op=True) for k, t in enumerate(input_tensor_list)]
    return _whole(works, output_tensor_lists, async_op)


def _whole(works: Sequence[Work | None], result: Any, async_op: bool) -> Any:
    """A future of works, all begun or none; waits for them unless `async_op`."""
    begun = [work for work in works if work is not None]
    if async_op and begun:
        from .work_futures import of_works
        return of_works(begun, result)
    for work in begun:
        work.wait()
    return None
