"""The collectives of torch.distributed: tensors of any type, layout and device, combined and exchanged over a group.

A collective is a launch (`runtime/dispatch.py`).  On the CPU it is done when the call returns; with `async_op` the group's own thread carries it out.  On a GPU
it is queued on a stream of the group's own, as NCCL does it: the host goes on, the current stream waits, or with `async_op` whoever calls `Work.wait`.
Tensors that are not contiguous go packed.  A rank outside of the group does nothing and gets None.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from .._core.kernels.programs import PreparedLaunch
from .._core.kernels.specs import Collective
from .._core.runtime import dispatch
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from ..autograd import no_grad
from . import gpu_queues, world
from .groups import Job, ProcessGroup
from .peers import user_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core.drivers.collectives.interface import Communicator, Request
    from .._core.dtypes import dtype
    from .._core.runtime.device import device


class RedOpType(IntEnum):
    """The kinds of `ReduceOp`."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)


class ReduceOp:
    """How tensors of several processes are combined: `ReduceOp.SUM`, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR; PREMUL_SUM multiplies by a factor first."""

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX
    BAND, BOR, BXOR, PREMUL_SUM, UNUSED = RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR, RedOpType.PREMUL_SUM, RedOpType.UNUSED

    def __init__(self, op: int, factor: Any = None) -> None:
        self.op, self.factor = RedOpType(op), factor

    def __eq__(self, other: object) -> bool:
        return self.op == (other.op if isinstance(other, ReduceOp) else other)

    def __hash__(self) -> int:
        return hash(self.op)


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """Sums of the tensors times `factor`."""
    return ReduceOp(RedOpType.PREMUL_SUM, factor)


_NAMES = {RedOpType.SUM: "sum", RedOpType.AVG: "sum", RedOpType.PREMUL_SUM: "sum", RedOpType.PRODUCT: "product", RedOpType.MIN: "min",
          RedOpType.MAX: "max", RedOpType.BAND: "band", RedOpType.BOR: "bor", RedOpType.BXOR: "bxor"}


def _op(op: Any, t: Tensor, name: str) -> tuple[RedOpType, str, Any]:
    """The kind, the engine's name for it and the factor.  Raises as PyTorch for what the type does not have."""
    kind, factor = (op.op, op.factor) if isinstance(op, ReduceOp) else (op, None)
    try:
        kind = RedOpType(kind)
        engine = _NAMES[kind]
    except (ValueError, KeyError):
        raise ValueError(f"{name}: op must be a ReduceOp, got {op!r}") from None
    if t.is_complex() and kind not in (RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.PREMUL_SUM):
        raise ValueError(f"{name} does not support {kind.name} on complex tensors")
    if t.is_floating_point() and engine.startswith("b"):
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with non-integral dtype")
    return kind, engine, factor


# ------------------------------------------------------------------------------------------------ work under way
class Work:
    """A collective that was begun with `async_op=True`."""

    def __init__(self, group: ProcessGroup | None = None, job: Job | None = None, event: Any = None, result: Any = None) -> None:
        self._group, self._job, self._event, self._result = group, job, event, result
        self._after: list[Callable[[], None]] = []

    def __del__(self) -> None:
        job = self.__dict__.get("_job")
        if job is not None and self._group is not None:
            job.let_go(self._group.host)

    def wait(self, timeout: Any = None) -> bool:
        """Waits until it is done: on a GPU the current stream does, the host goes on.  True.  Raises what went wrong."""
        limit = None if timeout is None else timeout.total_seconds()
        if self._event is not None:
            self._event.wait()
            if self._job is not None and self._job.error is not None:
                raise self._job.error
        elif self._job is not None and self._group is not None:
            self._job.finish(self._group.host, limit)
        after, self._after = self._after, []
        for call in after:
            call()
        return True

    def is_completed(self) -> bool:
        """Whether it is done."""
        if self._event is not None:
            return bool(self._event.query())
        if self._job is None or self._job.done.is_set():
            return True
        if self._job.at_hand():
            self.wait()
        return self._job.done.is_set()

    def is_success(self) -> bool:
        """Whether it is done and nothing went wrong."""
        return self.is_completed() and (self._job is None or self._job.error is None)

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return None if self._job is None else self._job.error

    def source_rank(self) -> int:
        """The global rank that a message came from."""
        assert self._job is not None and self._group is not None
        source = getattr(self._job.request, "source", None)
        return -1 if source is None else self._group._ranks[source]

    def result(self) -> Any:
        """The tensors that were written to."""
        return self._result

    def synchronize(self) -> None:
        """`wait`."""
        self.wait()

    def get_future(self) -> Any:
        """A `torch.futures.Future` of the result, complete when this is: whoever waits for it, or for what comes `then`, waits for this first."""
        from .work_futures import of_work
        return of_work(self)


def _packed(t: Tensor) -> Tensor:
    return t.detach() if t.is_contiguous() else t.detach().contiguous()


def _hand_back(to: Tensor, packed: Tensor) -> None:
    with no_grad():
        unasked(to.detach().copy_)(packed)


def _tensor(name: str, what: str, t: Any) -> Tensor:
    if not isinstance(t, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{what}` of type torch.Tensor but got {type(t)} instead.")
    if t.is_sparse:
        raise RuntimeError(f"{name}: {what} is sparse; give a dense tensor")
    return t


def _tensors(name: str, what: str, ts: Any) -> list[Tensor]:
    if not isinstance(ts, list | tuple) or not all(isinstance(t, Tensor) for t in ts):
        raise TypeError(f"Invalid function argument. Expected parameter `{what}` of type List[torch.Tensor] but got {type(ts)} with elements of type "
                        f"{[type(t) for t in ts] if isinstance(ts, list | tuple) else ts!r}.")
    return list(ts)


def _same(name: str, ts: Sequence[Tensor]) -> None:
    """Raises unless tensors have one type and one device."""
    for t in ts[1:]:
        if t.dtype != ts[0].dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: found {ts[0].dtype} and {t.dtype} in {name}")
        if t.device != ts[0].device:
            raise ValueError(f"{name}: tensors must be on one device, found {ts[0].device} and {t.device}")


def served(g: ProcessGroup, dev: device, name: str) -> None:
    """Raises RuntimeError for a device that a group's backend has nothing to do with."""
    if g._backend == "nccl" and dev.type != "cuda":
        raise RuntimeError(f"No backend type associated with device type {dev.type}: {name} of the backend nccl takes tensors of a GPU")


def carry(g: ProcessGroup, name: str, what: str, like: Tensor, start: Callable[[Communicator, tuple[int, ...]], Request], memory: Sequence[Tensor],
          after: Callable[[], None] | None, async_op: bool, result: Any = None, wrote: int = 1,
          combined: tuple[dtype, str] | None = None) -> Work | None:
    """Has a group carry something out between the memories of contiguous tensors, on the device where `like` lies.

    start: begins it, given addresses.  after: what is left to do when the memory is there.  wrote: how many of `memory`, the first ones, are written to.
    combined: the type and the engine's operation of what is added up or the like.
    """
    line = user_line(sys._getframe(2))
    dev = like.device
    served(g, dev, name)
    if g.bound_device_id is not None and dev.type == "cuda" and dev != g.bound_device_id:
        raise ValueError(f"Tensor found on device {dev} but backend constrained to {g.bound_device_id}")
    for t in memory[:wrote]:
        t.store.version += 1
    if dev.type == "cuda":
        return _on_gpu(g, name, what, like, start, memory, after, async_op, result, wrote, line, combined)
    held = list(memory)
    made: list[Job] = []

    def done() -> None:
        held.clear()  # until now the memory was the collective's
        if after is not None:
            after()

    def entry(*given: int) -> None:
        made.append(g.host.run(what, lambda comm: start(comm, given), done, async_op, line))
    nbytes = sum(t.nbytes for t in memory)
    made_of = Collective(name, entry, wrote, nbytes, g.size(), max((t.nbytes for t in memory), default=0), g.machines)
    dispatch.bind(dev, PreparedLaunch(name, entry, outputs=wrote, nbytes=nbytes, keep=made_of))(*[t.data_ptr() for t in memory])
    return Work(g, made[0], None, result) if async_op else None


def _on_gpu(g: ProcessGroup, name: str, what: str, like: Tensor, start: Callable[[Any, tuple[int, ...]], Request], memory: Sequence[Tensor],
            after: Callable[[], None] | None, async_op: bool, result: Any, wrote: int, line: str, combined: tuple[dtype, str] | None) -> Work | None:
    queue = gpu_queues.of(g, like.device, line)
    if queue is None or not queue.serves(combined):
        return _by_host(g, what, like, start, memory, after, async_op, result, wrote, line)
    event, job = queue.launch(name, what, line, start, memory, wrote)
    work = Work(g, job, event, result)
    if after is not None:
        work._after.append(after)
    if async_op:
        return work
    work.wait()
    return None


def _by_host(g: ProcessGroup, what: str, like: Tensor, start: Callable[[Communicator, tuple[int, ...]], Request], memory: Sequence[Tensor],
             after: Callable[[], None] | None, async_op: bool, result: Any, wrote: int, line: str) -> Work | None:
    """Where the host does not reach a GPU's memory: by copies."""
    copies = [unasked(t.cpu)() for t in memory]
    g.host.run(what, lambda comm: start(comm, tuple(c.data_ptr() for c in copies)), None, False, line)
    for t, c in zip(memory[:wrote], copies):
        _hand_back(t, c)
    if after is not None:
        after()
    return Work(g, None, None, result) if async_op else None


# ------------------------------------------------------------------------------------------------ collectives
def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Work | None:
    """Waits until every process of the group is here.  Work of GPUs that was queued before is done then."""
    g = world.inside(group)
    if g is None:
        return None
    if g._backend == "nccl" or device_ids:
        from .. import cuda
        if cuda.is_available():
            cuda.synchronize()
    job = g.host.run("barrier()", lambda comm: comm.barrier(), background=async_op)
    return Work(g, job) if async_op else None


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier`, with a time limit of its own.  Raises DistBackendError that says which ranks did not come."""
    g = world.inside(group)
    if g is None:
        return
    job = g.host.run("monitored_barrier()", lambda comm: comm.barrier(), background=True)
    limit = (g._timeout if timeout is None else timeout).total_seconds()
    if not job.done.wait(limit) and g._peers is not None:
        g._peers.ask_where()
        job.done.wait(1.5)
    g.host.wait(job, 0.0)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combines the tensors of all processes, element by element; each has the result in its tensor.

    tensor: any shape and type, the same on all processes.  op: a `ReduceOp`; AVG divides the sum.  Raises TypeError, ValueError.
    """
    t = _tensor("all_reduce", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    kind, engine, factor = _op(op, t, "all_reduce")
    packed = _packed(t)
    if kind is RedOpType.PREMUL_SUM:
        with no_grad():
            packed.mul_(factor)
    count, d = packed.numel(), packed.dtype
    after = _finish(t, packed, kind, g.size())
    what = f"all_reduce({d}, {count} elements, {kind.name})"
    return carry(g, "all_reduce", what, t, lambda comm, at: comm.all_reduce(at[0], count, d, engine), [packed], after, async_op, [tensor],
                 combined=(d, engine))


def _finish(t: Tensor, packed: Tensor, kind: RedOpType, size: int) -> Callable[[], None] | None:
    """What is left when a reduction is there: the mean, and the way back into a tensor that was packed."""
    own = packed.data_ptr() == t.data_ptr() and packed.is_contiguous() and t.is_contiguous()
    if own and kind is not RedOpType.AVG:
        return None

    def finish() -> None:
        with no_grad():
            if kind is RedOpType.AVG:
                packed.div_(size) if packed.is_floating_point() or packed.is_complex() else packed.floor_divide_(size)
            if not own:
                unasked(t.detach().copy_)(packed)
    return finish


def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """`all_reduce` whose result process `dst` (a global rank; group_dst: a rank of the group) alone has; the others' tensors stay as they are."""
    t = _tensor("reduce", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    root = world.member(g, dst, "dst", group_dst)
    kind, engine, factor = _op(op, t, "reduce")
    packed = _packed(t)
    if kind is RedOpType.PREMUL_SUM:
        packed = packed * factor
    count, d = packed.numel(), packed.dtype
    after = _finish(t, packed, kind, g.size()) if g._rank == root else None
    what = f"reduce({d}, {count} elements, {kind.name}, to {g._ranks[root]})"
    return carry(g, "reduce", what, t, lambda comm, at: comm.reduce(at[0], count, d, engine, root), [packed], after, async_op, [tensor],
                 wrote=int(g._rank == root), combined=(d, engine))


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Every process gets the tensor of process `src` (a global rank; group_src: a rank of the group)."""
    t = _tensor("broadcast", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    root = world.member(g, src, "src", group_src)
    packed = _packed(t)
    after = None if packed.data_ptr() == t.data_ptr() or g._rank == root else lambda: _hand_back(t, packed)
    nbytes = packed.nbytes
    what = f"broadcast({t.dtype}, {t.numel()} elements, from {g._ranks[root]})"
    return carry(g, "broadcast", what, t, lambda comm, at: comm.broadcast(at[0], nbytes, root), [packed], after, async_op, [tensor],
                 wrote=int(g._rank != root))


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensors of all processes one behind the other in `output_tensor`: (size * n, ...), or (size, n, ...) stacked, from (n, ...)."""
    t, out = _tensor("all_gather_into_tensor", "input_tensor", input_tensor), _tensor("all_gather_into_tensor", "output_tensor", output_tensor)
    g = world.inside(group)
    if g is None:
        return None
    _same("all_gather_into_tensor", [out, t])
    if out.numel() != t.numel() * g.size():
        raise ValueError(f"output tensor size must be equal to world_size times input tensor size: got {out.numel()} elements for {g.size()} times {t.numel()}")
    source, target = _packed(t), _packed(out)
    after = None if target.data_ptr() == out.data_ptr() else lambda: _hand_back(out, target)
    nbytes = source.nbytes
    what = f"all_gather({t.dtype}, {t.numel()} elements)"
    return carry(g, "all_gather", what, t, lambda comm, at: comm.all_gather(at[1], nbytes, at[0]), [target, source], after, async_op, output_tensor)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor_list[i]` becomes the tensor of the group's process i; all have one shape and type, except that shapes may differ from process to process
    where the list's say so."""
    outs, t = _tensors("all_gather", "tensor_list", tensor_list), _tensor("all_gather", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    if len(outs) != g.size():
        raise ValueError(f"all_gather: tensor_list must hold one tensor a process, {g.size()} here, got {len(outs)}")
    _same("all_gather", [*outs, t])
    n = t.numel()
    if any(o.numel() != n for o in outs):
        return _uneven_gather(g, outs, t, async_op)
    target = t.detach().new_empty((g.size(), *t.shape))
    source, nbytes = _packed(t), t.numel() * t.element_size()

    def after() -> None:
        for o, part in zip(outs, target):
            _hand_back(o, part.reshape(o.shape))
    what = f"all_gather({t.dtype}, {n} elements)"
    return carry(g, "all_gather", what, t, lambda comm, at: comm.all_gather(at[1], nbytes, at[0]), [target, source], after, async_op, tensor_list)


def _uneven_gather(g: ProcessGroup, outs: list[Tensor], t: Tensor, async_op: bool) -> Work | None:
    """Parts of sizes that differ: each process sends its own to all."""
    if outs[g._rank].numel() != t.numel():
        raise ValueError(f"all_gather: tensor_list[{g._rank}] has {outs[g._rank].numel()} elements, this process's tensor {t.numel()}")
    sizes = [o.numel() * o.element_size() for o in outs]
    target, source = t.detach().new_empty(sum(o.numel() for o in outs)), t.detach().reshape(-1).repeat(g.size())

    def after() -> None:
        for o, part in zip(outs, target.split([o.numel() for o in outs])):
            _hand_back(o, part.reshape(o.shape))
    sent = [t.numel() * t.element_size()] * g.size()
    what = f"all_gather({t.dtype}, {[o.numel() for o in outs]} elements)"
    return carry(g, "all_gather", what, t, lambda comm, at: comm.all_to_all(at[1], sent, at[0], sizes), [target, source], after, async_op, outs)


def gather(tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Process `dst` (0 by default) gets the tensors of all in `gather_list`, which the others leave out."""
    t = _tensor("gather", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    root = world.member(g, 0 if dst is None and group_dst is None else dst, "dst", group_dst)
    target: Tensor | None = None
    outs: list[Tensor] = []
    if g._rank == root:
        if not gather_list:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        outs = _tensors("gather", "gather_list", gather_list)
        if len(outs) != g.size():
            raise ValueError(f"gather: gather_list must hold one tensor a process, {g.size()} here, got {len(outs)}")
        _same("gather", [*outs, t])
        target = t.detach().new_empty((g.size(), *t.shape))
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    source, nbytes = _packed(t), t.numel() * t.element_size()

    def after() -> None:
        for o, part in zip(outs, target if target is not None else ()):
            _hand_back(o, part.reshape(o.shape))
    what = f"gather({t.dtype}, {t.numel()} elements, to {g._ranks[root]})"
    memory = [source] if target is None else [target, source]
    return carry(g, "gather", what, t, lambda comm, at: comm.gather(at[-1], nbytes, at[0], root), memory, after, async_op, gather_list, wrote=len(memory) - 1)


def scatter(tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None, async_op: bool = False,
            group_src: int | None = None) -> Work | None:
    """Each process gets its part of the list that process `src` (0 by default) has; the others leave it out."""
    t = _tensor("scatter", "tensor", tensor)
    g = world.inside(group)
    if g is None:
        return None
    root = world.member(g, 0 if src is None and group_src is None else src, "src", group_src)
    source: Tensor | None = None
    if g._rank == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        parts = _tensors("scatter", "scatter_list", scatter_list)
        if len(parts) != g.size():
            raise ValueError(f"scatter: scatter_list must hold one tensor a process, {g.size()} here, got {len(parts)}")
        _same("scatter", [*parts, t])
        if any(p.numel() != t.numel() for p in parts):
            raise ValueError(f"scatter: all tensors must have {t.numel()} elements, got {[p.numel() for p in parts]}")
        source = _joined(parts)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    packed = _packed(t)
    after = None if packed.data_ptr() == t.data_ptr() else lambda: _hand_back(t, packed)
    nbytes = packed.nbytes
    what = f"scatter({t.dtype}, {t.numel()} elements, from {g._ranks[root]})"
    memory = [packed] if source is None else [packed, source]
    return carry(g, "scatter", what, t, lambda comm, at: comm.scatter(at[-1], at[0], nbytes, root), memory, after, async_op, [tensor])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Tensors one behind the other."""
    from .._core import ops
    found: Tensor = ops.cat([p.detach().reshape(-1) for p in parts])
    return found


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combines the inputs of all processes; each gets its part: `input` has `size` times the elements of `output`."""
    t, out = _tensor("reduce_scatter_tensor", "input", input), _tensor("reduce_scatter_tensor", "output", output)
    g = world.inside(group)
    if g is None:
        return None
    _same("reduce_scatter_tensor", [out, t])
    if t.numel() != out.numel() * g.size():
        raise ValueError(f"input tensor must be the same size as output size times world size: got {t.numel()} elements for {g.size()} times {out.numel()}")
    kind, engine, factor = _op(op, t, "reduce_scatter_tensor")
    source, target = _packed(t), _packed(out)
    if kind is RedOpType.PREMUL_SUM:
        source = source * factor
    count, d = out.numel(), out.dtype
    after = _finish(out, target, kind, g.size())
    what = f"reduce_scatter({d}, {count} elements, {kind.name})"
    return carry(g, "reduce_scatter", what, t, lambda comm, at: comm.reduce_scatter(at[1], at[0], count, d, engine), [target, source], after, async_op, output,
                 combined=(d, engine))


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """`reduce_scatter_tensor` of a list, one tensor for each process."""
    parts = _tensors("reduce_scatter", "input_list", input_list)
    g = world.inside(group)
    if g is None:
        return None
    if len(parts) != g.size():
        raise ValueError(f"reduce_scatter: input_list must hold one tensor a process, {g.size()} here, got {len(parts)}")
    _same("reduce_scatter", [output, *parts])
    return reduce_scatter_tensor(output, _joined(parts), op, group, async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None,
                      async_op: bool = False) -> Work | None:
    """Cuts `input` along its first dimension into a part for each process, evenly or by sizes, and puts what arrives one behind the other into `output`."""
    t, out = _tensor("all_to_all_single", "input", input), _tensor("all_to_all_single", "output", output)
    g = world.inside(group)
    if g is None:
        return None
    _same("all_to_all_single", [out, t])
    sent, received = _split(t, input_split_sizes, g, "input"), _split(out, output_split_sizes, g, "output")
    source, target = _packed(t), _packed(out)
    after = None if target.data_ptr() == out.data_ptr() else lambda: _hand_back(out, target)
    return carry(g, "all_to_all", f"all_to_all({t.dtype})", t, lambda comm, at: comm.all_to_all(at[1], sent, at[0], received), [target, source], after,
                 async_op, output)


def _split(t: Tensor, sizes: Any, g: ProcessGroup, name: str) -> list[int]:
    """Bytes for each process."""
    rows = t.shape[0] if t.dim() else 1
    each = t.nbytes // rows if rows else 0
    if not sizes:
        if rows % g.size():
            raise RuntimeError(f"Tensor's dim 0 does not divide equally across group size: {name} has {rows} rows for {g.size()} processes")
        return [rows // g.size() * each] * g.size()
    if len(sizes) != g.size() or sum(sizes) != rows or any(s < 0 for s in sizes):
        raise RuntimeError(f"Number of tensor splits not equal to group size, or split sizes do not sum up to the tensor's dim 0: {name} has {rows} rows, "
                           f"sizes {list(sizes)}, {g.size()} processes")
    return [int(s) * each for s in sizes]


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False) -> Work | None:
    """`output_tensor_list[i]` becomes what process i has for this one in its `input_tensor_list`."""
    outs, parts = _tensors("all_to_all", "output_tensor_list", output_tensor_list), _tensors("all_to_all", "input_tensor_list", input_tensor_list)
    g = world.inside(group)
    if g is None:
        return None
    if len(outs) != g.size() or len(parts) != g.size():
        raise ValueError(f"all_to_all: the lists must hold one tensor a process, {g.size()} here, got {len(outs)} and {len(parts)}")
    _same("all_to_all", [*outs, *parts])
    source = _joined(parts)
    target = source.new_empty(sum(o.numel() for o in outs))
    sent, received = [p.nbytes for p in parts], [o.nbytes for o in outs]

    def after() -> None:
        for o, part in zip(outs, target.split([o.numel() for o in outs])):
            _hand_back(o, part.reshape(o.shape))
    return carry(g, "all_to_all", f"all_to_all({source.dtype})", source, lambda comm, at: comm.all_to_all(at[1], sent, at[0], received), [target, source],
                 after, async_op, output_tensor_list)
