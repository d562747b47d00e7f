"""Messages between two processes: send, recv, isend, irecv, batches of them.

On the host MPI carries them.  With NCCL, real or simulated, two ranks that talk have a communicator of their own, made by the first message between
them, so that nobody else needs to take part; messages of a batch between the same two are queued together, in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from . import gpu_queues, world
from .collectives import Work, _hand_back, _packed, _tensor, served
from .groups import Exchange, ProcessGroup
from .peers import user_line


def _ready(g: ProcessGroup, t: Tensor, name: str) -> None:
    """Messages begin from the host: what a GPU's stream still has to do to the tensor is done first."""
    served(g, t.device, name)
    if t.device.type == "cuda":
        from .. import cuda
        cuda.current_stream(t.device).synchronize()


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """Begins to send a tensor to process `dst` (a global rank; group_dst: a rank of the group), which must not be written to until it is gone."""
    t = _tensor("isend", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    to = world.member(g, dst, "dst", group_dst)
    if to == g._rank:
        raise ValueError("Invalid destination rank: destination rank should not be the same as the rank of the current process.")
    if gpu_queues.messages(g, t.device):
        return _by_nccl(g, to, [(True, t)])
    _ready(g, t, "send")
    packed = _packed(t) if _reached(t) else unasked(t.cpu)().contiguous()
    nbytes = packed.nbytes
    job = g.host.begin(f"send({t.dtype}, {t.numel()} elements, to {g._ranks[to]})", lambda comm: comm.send(packed.data_ptr(), nbytes, to, tag),
                       True, to, tag, nbytes)
    return Work(g, job, None, [packed])


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """Begins to receive a tensor from process `src`, or from any."""
    t = _tensor("irecv", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    source = None if src is None and group_src is None else world.member(g, src, "src", group_src)
    if gpu_queues.messages(g, t.device):
        if source is None:
            raise ValueError("recv: NCCL receives from a rank that is named; give src")
        return _by_nccl(g, source, [(False, t)])
    _ready(g, t, "recv")
    packed = _packed(t) if _reached(t) else unasked(t.cpu)().contiguous()
    t.store.version += 1
    nbytes = packed.nbytes
    job = g.host.begin(f"recv({t.dtype}, {t.numel()} elements, from {'any' if source is None else g._ranks[source]})",
                       lambda comm: comm.receive(packed.data_ptr(), nbytes, source, tag), False, source, tag, nbytes)
    if packed.data_ptr() != t.data_ptr():
        job.after = lambda: _hand_back(t, packed)
    return Work(g, job, None, [tensor])


def _by_nccl(g: ProcessGroup, peer: int, some: Sequence[tuple[bool, Tensor]]) -> Work:
    """Queues messages between this rank and `peer`, which belong together.  some: whether it is sent, and the tensor."""
    pair = world.pair(g, peer)
    with_whom = pair.size() - 1 - pair.rank()
    line = user_line(sys._getframe(2))
    dev = some[0][1].device
    queue = gpu_queues.of(pair, dev, line)
    assert queue is not None
    packed = [_packed(t) for _, t in some]
    told = ", ".join(f"{'send' if out else 'recv'}({t.dtype}, {t.numel()} elements, {'to' if out else 'from'} {g._ranks[peer]})" for out, t in some)
    begin = Exchange(with_whom, [(out, p.nbytes) for (out, _), p in zip(some, packed)])
    event, job = queue.launch("messages" if len(some) > 1 else "send" if some[0][0] else "recv", told, line, begin, packed, 0, shared=False)
    work = Work(pair, job, event, [t for _, t in some])
    for (out, t), p in zip(some, packed):
        if not out:
            t.store.version += 1
            if p.data_ptr() != t.data_ptr():
                work._after.append(lambda t=t, p=p: _hand_back(t, p))  # type: ignore[misc]
    return work


def _reached(t: Tensor) -> bool:
    from .._core.runtime import dispatch
    return dispatch.near(t.device)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends a tensor to process `dst`; returns when its memory may be written to."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receives into a tensor from process `src`, or from any; gives the global rank that it came from, -1 outside of the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    if src is not None:
        return src
    return work.source_rank() if group_src is None else world.get_global_rank(group, group_src)


class P2POp:
    """One message of a batch: op is `isend` or `irecv`."""

    def __init__(self, op: Any, tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0, group_peer: int | None = None) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        _tensor("P2POp", "tensor", tensor)
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begins several messages at once; in any order on every rank.  Raises ValueError for a list that is empty or holds anything else."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    found: dict[tuple[str, int], tuple[ProcessGroup, int, list[tuple[bool, Tensor]]]] = {}
    left = []
    for p in p2p_op_list:
        g = world.inside(p.group)
        if g is not None and gpu_queues.messages(g, p.tensor.device):
            peer = world.member(g, p.peer, "peer", p.group_peer)
            found.setdefault((g.group_name, peer), (g, peer, []))[2].append((p.op is isend, p.tensor))
        else:
            left.append(p)
    # in an order that is all ranks': two that meet for the first time wait for one another
    batched = sorted(found.values(), key=lambda f: (f[0].group_name, *sorted((f[0]._rank, f[1]))))
    together = [_by_nccl(*one) for one in batched]
    works = together + [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in left]
    return [w for w in works if w is not None]
