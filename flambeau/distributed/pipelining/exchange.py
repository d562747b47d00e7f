"""The messages of one process of a pipeline, begun in the order that its timetable gives them (`timetable.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import dtypes, ops
from .. import messages
from .timetable import Message, Pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._core.tensor import Tensor
    from ..collectives import Work
    from ..groups import ProcessGroup

_TYPES = [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int64, dtypes.int32, dtypes.bool_, dtypes.uint8]
_ROOM = 64  # numbers that tell the shapes of what a stage gives

Shapes = list[tuple[tuple[int, ...], Any]]


class Exchange:
    """What goes between this process and the others while a batch goes through.

    table: the messages of all.  Sends do not wait for their receivers; what is received is asked for as soon as the messages before it are begun.
    The first message that each stage gives is preceded by one that tells its shapes; gradients have the shapes of what they are of.
    """

    def __init__(self, group: ProcessGroup, device: Any, table: Sequence[Message]) -> None:
        self.group, self.device = group, device
        own = group.rank()
        self._queues: dict[int, list[Message]] = {}
        for m in table:
            if own in (m.sender, m.receiver):
                self._queues.setdefault(m.receiver if m.sender == own else m.sender, []).append(m)
        for queue in self._queues.values():
            queue.reverse()  # the next is the last
        self._peers = {m.made: peer for peer, queue in self._queues.items() for m in queue}
        self._shapes: dict[int, Shapes] = {}  # what a stage gives
        self._coming: dict[Pass, list[tuple[Tensor, Work | None]]] = {}
        self._sent: list[Work] = []

    def send(self, made: Pass, tensors: list[Tensor]) -> None:
        """Begins to send what a pass gave."""
        peer = self._peers[made]
        self._reach(peer, made)
        if not made.backward and made.stage not in self._shapes:
            self._shapes[made.stage] = [(tuple(t.shape), t.dtype) for t in tensors]
            row = [len(tensors)]
            for t in tensors:
                row += [_TYPES.index(t.dtype), t.ndim, *t.shape]
            if len(row) > _ROOM:
                raise ValueError(f"PipelineStage: a stage gives too many tensors to tell of ({len(tensors)})")
            self._begin(ops.tensor([*row, *[0] * (_ROOM - len(row))], device=self.device), peer)
        for t in tensors:
            self._begin(t, peer)

    def receive(self, made: Pass) -> list[Tensor]:
        """What a pass of another process gave."""
        self._reach(self._peers[made], made)
        found = []
        for t, work in self._coming.pop(made):
            if work is not None:
                work.wait()
            found.append(t)
        return found

    def finish(self) -> None:
        """Waits until all that was sent is gone."""
        for work in self._sent:
            work.wait()
        self._sent.clear()

    def _reach(self, peer: int, made: Pass) -> None:
        """Asks for all that comes from a process before a message between the two, and for that, unless it is sent."""
        queue = self._queues[peer]
        while made not in self._coming:
            m = queue.pop()
            if m.sender != peer:
                assert m.made == made, "messages are sent in the order of the timetable"
                return
            self._ask(m.made, peer)

    def _ask(self, made: Pass, peer: int) -> None:
        if made.backward:
            wanted = [s for s in self._shapes[made.stage - 1] if s[1].is_floating_point]
        else:
            if made.stage not in self._shapes:
                row = ops.zeros(_ROOM, dtype=dtypes.int64, device=self.device)
                messages.recv(row, group=self.group, group_src=peer)
                self._shapes[made.stage] = _read(row.tolist())
            wanted = self._shapes[made.stage]
        rooms = [ops.empty(shape, dtype=d, device=self.device) for shape, d in wanted]
        self._coming[made] = [(t, messages.irecv(t, group=self.group, group_src=peer)) for t in rooms]

    def _begin(self, t: Tensor, peer: int) -> None:
        work = messages.isend(t, group=self.group, group_dst=peer)
        if work is not None:
            self._sent.append(work)


def _read(row: list[int]) -> Shapes:
    found: Shapes = []
    at = 1
    for _ in range(row[0]):
        n = row[at + 1]
        found.append((tuple(row[at + 2:at + 2 + n]), _TYPES[row[at]]))
        at += 2 + n
    return found
