"""Gradients of several processes, averaged bucket by bucket while the backward pass still runs.

A bucket is one flat tensor; each parameter's `.grad` is a view of its part.  The tape hands a leaf's finished gradient to a `Slot`, which writes it there,
divided by the number of processes; a bucket that is full is reduced as soon as all before it have been, so that every rank reduces in one order.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .._core import ops
from .._core.autograd import tape
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from ..autograd import no_grad
from . import collectives
from .collectives import ReduceOp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIRST = 1 << 20  # bytes of the first bucket, which is to start early


class Slot(tape.Sink):
    """Where one parameter's gradient goes."""

    __slots__ = ("reducer", "bucket", "begin", "end", "parameter", "name", "view", "came", "used")

    def __init__(self, reducer: Reducer, bucket: Bucket, parameter: Tensor, name: str, begin: int) -> None:
        super().__init__()
        self.reducer, self.bucket, self.parameter, self.name = reducer, bucket, parameter, name
        self.begin, self.end = begin, begin + parameter.numel()
        self.came = self.used = False
        self.view: Tensor = parameter

    def reached(self) -> None:
        self.reducer.begin(self)

    def take(self, leaf: Any, g: Any) -> bool:
        return self.reducer.arrived(self, leaf, g)


class Bucket:
    """Parameters whose gradients lie together."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.slots: list[Slot] = []
        self.left = 0
        self.flat: Tensor
        self.future: Any = None

    def make(self) -> None:
        """Memory for the gradients."""
        first = self.slots[0].parameter
        self.flat = ops.zeros(self.slots[-1].end, dtype=first.dtype, device=first.device)
        for s in self.slots:
            s.view = self.flat[s.begin:s.end].view(s.parameter.shape)

    def held(self) -> bool:
        """Whether anybody else holds one of the gradients, who must not see it change."""
        return any(sys.getrefcount(s.view) > 2 for s in self.slots)


class GradBucket:
    """A bucket as a communication hook sees it."""

    def __init__(self, bucket: Bucket, last: bool) -> None:
        self._bucket, self._last = bucket, last

    def index(self) -> int:
        """Its number, in the order of reduction."""
        return self._bucket.index

    def buffer(self) -> Tensor:
        """All gradients, flat."""
        return self._bucket.flat

    def set_buffer(self, buffer: Tensor) -> None:
        """Puts other values in their place."""
        with no_grad():
            self._bucket.flat.copy_(buffer.reshape(-1))

    def gradients(self) -> list[Tensor]:
        """The gradients, one by one."""
        return [s.view for s in self._bucket.slots]

    def parameters(self) -> list[Tensor]:
        """Whose they are."""
        return [s.parameter for s in self._bucket.slots]

    def is_last(self) -> bool:
        """Whether it is the last of the pass."""
        return self._last


class Reducer:
    """The buckets of a module's parameters.

    parameters: names and leaves, in the module's order; they are filled backwards.  cap: bytes of a bucket.  unused: whether parameters that the loss does
    not depend on are expected.  static: whether these are the same in all passes, so that the ranks tell one another of them only once.
    """

    def __init__(self, parameters: Sequence[tuple[str, Tensor]], group: Any, cap: int, unused: bool, static: bool = False) -> None:
        self.group, self.world, self.unused, self.static = group, group.size(), unused or static, static
        self._known: dict[int, bool] | None = None
        self.buckets: list[Bucket] = []
        self.hook: Callable[[GradBucket], Any] | None = None
        self.armed = self.sync = self.busy = False
        self.missing: list[str] = []
        self.next = 0
        open_: dict[Any, tuple[Bucket, int]] = {}
        limit = min(FIRST, cap)
        for name, p in reversed(list(parameters)):
            key = p.dtype, p.device
            if key not in open_:
                open_[key] = Bucket(len(self.buckets)), 0
                self.buckets.append(open_[key][0])
            bucket, at = open_[key]
            bucket.slots.append(Slot(self, bucket, p, name, at))
            at += p.numel()
            open_[key] = bucket, at
            if at * p.element_size() >= limit:
                del open_[key]
                limit = cap
        for bucket in self.buckets:
            bucket.make()
            for s in bucket.slots:
                node = s.parameter.node
                extra = node[tape.EXTRA] = node[tape.EXTRA] or {}
                extra["sink"] = s
                tape.Sink.alive += 1

    def close(self) -> None:
        """Leaves the parameters as they were."""
        for bucket in self.buckets:
            for s in bucket.slots:
                node = s.parameter.node
                if node is not None and node[tape.EXTRA] and node[tape.EXTRA].pop("sink", None) is not None:
                    tape.Sink.alive -= 1
        self.buckets.clear()

    def arm(self, sync: bool) -> None:
        """A forward pass whose gradients are reduced (`sync`), or only added up.  Raises RuntimeError after a pass in which parameters got none."""
        if self.missing and not self.unused:
            names, self.missing = self.missing, []
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters "
                "that were not used in producing loss. You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` "
                "to `torch.nn.parallel.DistributedDataParallel`, and by making sure all `forward` function outputs participate in calculating loss. "
                f"Parameters that received no gradient: {', '.join(names)}")
        self.armed, self.sync = True, sync

    # ------------------------------------------------------------------------------------------------ a backward pass
    def begin(self, slot: Slot) -> None:
        """A pass reaches a parameter."""
        if self.armed and self.sync and not self.busy:
            self.busy, self.next = True, 0
            for bucket in self.buckets:
                bucket.left, bucket.future = len(bucket.slots), None
                for s in bucket.slots:
                    s.came = s.used = False
            tape.at_end(self.finish)
        slot.used = True

    def arrived(self, slot: Slot, leaf: Any, g: Any) -> bool:
        if not isinstance(g, Tensor) or g.is_sparse or g.dtype != slot.parameter.dtype:
            return False
        if self.busy and slot.came:
            raise RuntimeError(f"Expected to mark a variable ready only once: parameter {slot.name} got its gradient twice in one iteration, as when it is "
                               "used in several reentrant backward passes. Wrap a part of the graph that is used once, or call the backward passes "
                               "under no_sync()")
        with no_grad():
            self._write(slot, leaf, g)
        if self.busy:
            slot.came = True
            slot.bucket.left -= 1
            self._reduce_ready()
        return True

    def _write(self, slot: Slot, leaf: Any, g: Tensor) -> None:
        old = leaf[tape.GRAD]
        if old is None and slot.view.numel() and sys.getrefcount(slot.view) > 2:
            self._renew(slot)
        view, scale = slot.view, 1.0 / self.world if self.busy and self.hook is None else 1.0
        if old is None:
            if scale == 1.0:
                view.copy_(g)
            else:
                ops.mul(g, scale, out=view)
        else:
            if old is not view:
                view.copy_(old)
            view.add_(g)
            if scale != 1.0:
                view.mul_(scale)
        leaf[tape.GRAD] = view

    def _renew(self, slot: Slot) -> None:
        """Somebody keeps a gradient of before: the bucket gets other memory."""
        bucket = slot.bucket
        before = [(s, s.view) for s in bucket.slots]
        bucket.make()
        for s, view in before:
            leaf = s.parameter.node
            if leaf[tape.GRAD] is view:
                s.view.copy_(view)
                leaf[tape.GRAD] = s.view

    def _reduce_ready(self) -> None:
        while self.next < len(self.buckets) and not self.buckets[self.next].left:
            self._reduce(self.buckets[self.next])
            self.next += 1

    def _reduce(self, bucket: Bucket) -> None:
        if self.hook is not None:
            bucket.future = self.hook(GradBucket(bucket, bucket is self.buckets[-1]))
        else:
            bucket.future = collectives.all_reduce(bucket.flat, ReduceOp.SUM, self.group, async_op=True)

    def finish(self) -> None:
        """The pass is over: what is left is reduced, and waited for."""
        self.busy = self.armed = False
        absent = [s for bucket in self.buckets for s in bucket.slots if not s.came]
        with no_grad():
            for s in absent:  # zero here, whatever it is on other ranks
                leaf = s.parameter.node
                if leaf[tape.GRAD] is not None and leaf[tape.GRAD] is not s.view:
                    s.view.copy_(leaf[tape.GRAD])
                elif leaf[tape.GRAD] is None:
                    s.view.zero_()
                if leaf[tape.GRAD] is not None and self.hook is None:
                    s.view.mul_(1.0 / self.world)
            for bucket in self.buckets[self.next:]:
                self._reduce(bucket)
            self.next = len(self.buckets)
            used = self._used(absent) if self.unused else {}
            for bucket in self.buckets:
                done = bucket.future.wait()
                if self.hook is not None:
                    result = done[0] if isinstance(done, list | tuple) else done
                    if isinstance(result, Tensor) and result.data_ptr() != bucket.flat.data_ptr():
                        bucket.flat.copy_(result.reshape(-1))
                bucket.future = None
        for s in absent:
            if used.get(id(s)):
                s.parameter.node[tape.GRAD] = s.view
        self.missing = [s.name for s in absent]

    def _used(self, absent: Sequence[Slot]) -> dict[int, bool]:
        """Which parameters any rank used; a collective of all ranks, of a static graph in the first pass only."""
        if self._known is not None:
            return self._known
        slots = [s for bucket in self.buckets for s in bucket.slots]
        where = slots[0].parameter.device
        told = unasked(ops.tensor([0 if s in absent else 1 for s in slots]).to)(where)
        collectives.all_reduce(told, ReduceOp.MAX, self.group)
        found = {id(s): bool(k) for s, k in zip(slots, told.tolist())}
        if self.static:
            self._known = found
        return found

    def shadow(self) -> None:
        """Takes part in the others' reductions with nothing to give: this rank has no input left."""
        for bucket in self.buckets:
            with no_grad():
                bucket.flat.zero_()
            self._reduce(bucket)
        if self.unused:
            self._used([s for bucket in self.buckets for s in bucket.slots])
        for bucket in self.buckets:
            bucket.future.wait()
            bucket.future = None
