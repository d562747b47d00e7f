"""A world of one process."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import distributed as dist
from flambeau import nn


@pytest.fixture
def world():
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()


def test_before_a_group_there_is_no_rank() -> None:
    assert dist.is_available() and not dist.is_initialized()
    for f in (dist.get_rank, dist.get_world_size, dist.barrier):
        with pytest.raises(ValueError, match="has not been initialized"):
            f()
    with pytest.raises(ValueError, match="has not been initialized"):
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2))


def test_a_world_that_nobody_describes_is_refused() -> None:
    with pytest.raises(ValueError, match="MASTER_ADDR expected, but not set"):
        dist.init_process_group("nccl", world_size=4, rank=0)
    for wrong, told in (({"backend": "carrier pigeon"}, "Invalid backend"), ({"world_size": 2, "rank": 2}, "rank 2 is not in a world of 2"),
                        ({"init_method": "tcp://127.0.0.1:1"}, "needs rank and world_size"), ({"init_method": "http://x"}, "must begin with env"),
                        ({"init_method": "env://", "store": dist.HashStore()}, "both init_method and store"),
                        ({"store": dist.HashStore()}, "world_size must be")):
        with pytest.raises(ValueError, match=told):
            dist.init_process_group(**wrong)
    assert not dist.is_initialized()


def test_rank_and_collectives(world, device: str) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "gloo")
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group("gloo")
    t = torch.arange(3.0, device=device)
    for f, to in ((dist.all_reduce, ()), (dist.broadcast, (0,)), (dist.reduce, (0,))):
        assert f(t, *to) is None and t.tolist() == [0.0, 1.0, 2.0]
    assert dist.all_reduce(t, op=dist.ReduceOp.MAX, async_op=True).wait()
    out = [torch.empty(3, device=device)]
    dist.all_gather(out, t)
    assert out[0].tolist() == [0.0, 1.0, 2.0]
    flat = torch.empty(3, device=device)
    dist.all_gather_into_tensor(flat, t)
    dist.reduce_scatter_tensor(flat, t + 1)
    assert flat.tolist() == [1.0, 2.0, 3.0]
    objects = [None]
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}]
    with pytest.raises(ValueError, match="Global rank 1 is not part of group"):
        dist.send(t, 1)
    with pytest.raises(TypeError, match="tensor"):
        dist.all_reduce([1.0])


def test_ddp_trains_as_its_module(world, device: str) -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 2).to(device)
    wrapped = nn.parallel.DistributedDataParallel(net)
    x = torch.randn(4, 3, device=device)
    with wrapped.no_sync():
        wrapped(x).sum().backward()
    assert torch.allclose(net.weight.grad, x.sum(0).expand(2, 3))
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(RuntimeError, match="not needed"):
        nn.parallel.DistributedDataParallel(nn.ReLU())


def test_alone_gradients_are_rounded_and_hooks_are_called(world) -> None:
    """As PyTorch's reducer works in a world of one too."""
    from flambeau.nn.distributed import _MixedPrecision
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(3))
    grads = {}
    for how in ("plain", "rounded", "hook"):
        torch.manual_seed(4)
        net = nn.Linear(6, 3)
        wrapped = nn.parallel.DistributedDataParallel(net, mixed_precision=_MixedPrecision(reduce_dtype=torch.bfloat16) if how == "rounded" else None)
        if how == "hook":
            def hook(state, bucket):
                state.append(bucket.index())
                future = torch.futures.Future()
                future.set_result(bucket.buffer() * 2)
                return future
            wrapped.register_comm_hook(seen := [], hook)
            with pytest.raises(RuntimeError, match="only be called once"):
                wrapped.register_comm_hook([], hook)
        for _ in range(2):
            net.zero_grad()
            wrapped(x).square().mean().backward()
        grads[how] = [p.grad.clone() for p in net.parameters()]
    assert seen == [0, 0]
    for plain, rounded, hooked in zip(*grads.values(), strict=True):
        assert rounded.dtype is torch.float32 and torch.equal(rounded, plain.bfloat16().float()) and not torch.equal(rounded, plain)
        assert torch.equal(hooked, plain * 2)
