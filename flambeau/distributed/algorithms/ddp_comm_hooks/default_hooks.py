"""Communication hooks of `DistributedDataParallel.register_comm_hook`: the plain mean, and the mean of gradients that travel in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...._core.dtypes import bfloat16, float16
from ... import collectives, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...._core.dtypes import dtype
    from ...._core.tensor import Tensor
    from ....futures import Future
    from ...reducer import GradBucket


def _mean(group: Any, flat: Tensor) -> Any:
    g = world.of(group)
    flat.div_(g.size())
    work = collectives.all_reduce(flat, group=g, async_op=True)
    assert work is not None
    return work.get_future().then(lambda f: f.value()[0])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """The mean over all processes."""
    found: Future[Any] = _mean(process_group, bucket.buffer())
    return found


def narrowed(process_group: Any, bucket: GradBucket, d: dtype) -> Future[Any]:
    """The mean, of gradients rounded to another type."""
    flat = bucket.buffer()
    small = _mean(process_group, flat.to(d))

    def widen(f: Future[Any]) -> Any:
        flat.copy_(f.value())
        return flat
    found: Future[Any] = small.then(widen)
    return found


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """The mean, of gradients rounded to float16."""
    return narrowed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """The mean, of gradients rounded to bfloat16."""
    return narrowed(process_group, bucket, bfloat16)


def _wrapped(hook: Callable[[Any, GradBucket], Future[Any]], d: dtype) -> Callable[[Any, GradBucket], Future[Any]]:
    def wrapper(state: Any, bucket: GradBucket) -> Future[Any]:
        bucket.set_buffer(bucket.buffer().to(d))
        return hook(state, bucket)
    return wrapper


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Future[Any]]) -> Callable[[Any, GradBucket], Future[Any]]:
    """Another hook, of gradients rounded to float16."""
    return _wrapped(hook, float16)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Future[Any]]) -> Callable[[Any, GradBucket], Future[Any]]:
    """Another hook, of gradients rounded to bfloat16."""
    return _wrapped(hook, bfloat16)
