"""Collectives by NCCL: the fake libnccl on the fake libcuda, two ranks with a GPU each, every fault planted there."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from flambeau.distributed import gpu_queues
from tests._core.drivers.nvidia.running import on_fake

from .ranks import checked, needs_mpi, run
from .test_collectives import EVERY

pytestmark = [needs_mpi, on_fake]

FAKE = """
import os
from tests._core.drivers.nvidia import cases
cases.start(os.environ["FAKE_ORDER"], 3)
import torch
torch.cuda.set_device(int(os.environ["RANK"]))
"""


@pytest.mark.parametrize("order", ["lazy", "random"])
def test_every_collective(tmp_path, order: str) -> None:
    """Every type and operation: by NCCL, or, what it does not combine, by the host."""
    assert checked(tmp_path, FAKE + EVERY, DEVICE="cuda", FEW="1", FAKE_ORDER=order, FAKE_NCCL_HOME=str(tmp_path)).count("every collective") == 2


@pytest.mark.parametrize("order", ["eager", "lazy", "random"])
def test_orders_messages_groups_and_training(tmp_path, order: str) -> None:
    assert checked(tmp_path, FAKE + """
import torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
rank, n = dist.get_rank(), dist.get_world_size()
# many at once, waited for in another order; later work sees the results, and the host had not waited
works = [(dist.all_reduce(t, async_op=True), t) for t in [torch.full((1000,), float(rank + k), device="cuda") for k in range(4)]]
for k in (3, 0, 2, 1):
    work, t = works[k]
    assert work.wait() and work.result()[0] is t
    assert (t * 2).cpu().eq(2.0 * (1 + 2 * k)).all(), k
assert works[0][0].is_success() and works[0][0].exception() is None
x = torch.arange(12.0, device="cuda").view(3, 4) + rank
dist.all_reduce(x.t()[1:])  # not contiguous
assert x.cpu().tolist() == [[4.0 * r + rank, *[2 * (4.0 * r + c) + 1 for c in (1, 2, 3)]] for r in range(3)]
# on the host beside
h = torch.ones(3)
dist.all_reduce(h)
assert h.tolist() == [2.0] * 3
# messages
t, got = torch.full((500,), float(rank), device="cuda"), torch.empty(500, device="cuda")
for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, t, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]):
    w.wait()
assert got.cpu().eq(1 - rank).all()
if rank == 0:
    dist.send(torch.arange(20.0, device="cuda")[::2], 1)
else:
    wide = torch.zeros(20, device="cuda")
    assert dist.recv(wide[::2], 0) == 0
    assert wide.cpu().tolist() == [k * (k % 2 == 0) * 1.0 for k in range(20)]
try:
    dist.recv(got)
    raise AssertionError
except ValueError as error:
    assert "a rank that is named" in str(error)
# groups: of one, and in other orders
for ranks in ([rank], [0, 1]):
    g = dist.new_group([0]) if len(ranks) == 1 else dist.new_group(ranks)
    if g is dist.GroupMember.NON_GROUP_MEMBER:
        continue
    t = torch.full((3,), rank + 1.0, device="cuda")
    dist.all_reduce(t, group=g)
    assert t.cpu().tolist() == [float(sum(r + 1 for r in dist.get_process_group_ranks(g)))] * 3
# the gradients of two ranks
torch.manual_seed(0)
model = torch.nn.Linear(4, 2).cuda()
data = torch.arange(32.0).view(8, 4) / 32
whole = torch.nn.Linear(4, 2)
whole.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
both = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
for m, d in ((both, data[rank * 4:rank * 4 + 4].cuda()), (whole, data)):
    opt = torch.optim.SGD(m.parameters(), lr=0.5)
    for _ in range(3):
        opt.zero_grad()
        m(d).square().mean().backward()
        opt.step()
assert torch.allclose(model.weight.detach().cpu(), whole.weight.detach(), atol=1e-6)
dist.barrier()
dist.destroy_process_group()
dist.init_process_group("nccl")  # again
t = torch.ones(2, device="cuda")
dist.all_reduce(t)
assert t.cpu().tolist() == [2.0, 2.0]
print("all of it", rank)
""", FAKE_ORDER=order, FAKE_NCCL_HOME=str(tmp_path)).count("all of it") == 2


FAILS = FAKE + """
import datetime, time, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(0 if "SAME" in os.environ else rank)
dist.init_process_group("nccl")
g = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=3))  # of its collectives, not of meeting
x = torch.ones(100, device="cuda")
begun = time.monotonic()
try:
    dist.all_reduce(x, group=g)
    torch.cuda.synchronize()
    begun = time.monotonic()
    {second}
    {waits}
    print("NOTHING was raised")
except dist.DistBackendError as error:
    print("ERROR", round(time.monotonic() - begun, 2), str(error).replace(chr(10), " "), flush=True)
    try:
        dist.all_reduce(x, group=g)
    except dist.DistBackendError as error:
        print("AGAIN", flush=True)
"""
CALL, SYNC = "dist.all_reduce(x, group=g)", "torch.cuda.synchronize()"


def failing(tmp_path, second: str, waits: str, **env: str) -> dict[int, tuple[float, str]]:
    """What each rank was told, and after how many seconds."""
    done = run(tmp_path, FAILS.format(second=second, waits=waits), 2, timeout=300, FAKE_NCCL_HOME=str(tmp_path), FAKE_ORDER="lazy", **env)
    assert "NOTHING" not in done.stdout, done.stdout + done.stderr
    found = {}
    for line in done.stdout.splitlines():
        if " ERROR " in line:
            who, _, told = line.partition(" ERROR ")
            seconds, _, text = told.partition(" ")
            found[int(who.removeprefix("[rank ").removesuffix("]"))] = float(seconds), text
    assert found, done.stdout + done.stderr
    if "SAME" not in env and "init" not in env.get("FAKE_NCCL", ""):  # the group is of no use any more, and says so at once
        assert done.stdout.count("AGAIN") == len(found), done.stdout
    return found


def test_two_ranks_on_one_gpu_are_refused_in_nccls_words(tmp_path) -> None:
    found = failing(tmp_path, CALL, SYNC, SAME="1")
    assert len(found) == 2
    for _, text in found.values():
        assert "making an NCCL communicator of 2 ranks at script.py:" in text and "invalid usage: Duplicate GPU detected : rank" in text, text


@pytest.mark.parametrize("waits", [SYNC, "x[0].item()", "torch.cuda.current_stream().synchronize()", "e = torch.cuda.Event(); e.record(); e.synchronize()"])
def test_a_hang_is_aborted_when_the_time_is_up(tmp_path, waits: str) -> None:
    """Told where the host waits, however it waits; every rank goes on."""
    found = failing(tmp_path, CALL, waits, FAKE_NCCL="hang:1:2")
    assert len(found) == 2
    for seconds, text in found.values():
        assert text.startswith("all_reduce(torch.float32, 100 elements, SUM) at script.py:") and "the timeout is 3.0 s" in text, text
        assert 2.5 < seconds < 30


def test_an_asynchronous_error_is_told_with_the_users_line(tmp_path) -> None:
    found = failing(tmp_path, CALL, SYNC, FAKE_NCCL="async:1:2")
    line = 1 + FAILS[:FAILS.index("{second}")].count("\n")
    assert f"all_reduce(torch.float32, 100 elements, SUM) at script.py:{line} in <module>: NCCL says" in found[1][1], found
    assert "remote process exited or there was a network error: the connection of a peer was closed" in found[1][1]
    assert "rank 1 is gone" in found[0][1] and f"script.py:{line}" in found[0][1]


def test_a_call_that_nccl_refuses(tmp_path) -> None:
    found = failing(tmp_path, CALL, SYNC, FAKE_NCCL="refuse:0:2")
    assert "NCCL says: ncclAllReduce: unhandled system error: Call to bind failed" in found[0][1]
    assert "rank 0 is gone" in found[1][1]


def test_a_communicator_that_is_never_complete(tmp_path) -> None:
    found = failing(tmp_path, CALL, SYNC, FAKE_NCCL="init:1:0")
    assert all("making an NCCL communicator" in text and "the timeout is 3.0 s" in text for _, text in found.values())


def test_different_calls_are_told_on_every_rank(tmp_path) -> None:
    found = failing(tmp_path, "dist.all_reduce(x, group=g) if rank else dist.broadcast(x, 0, group=g)", SYNC)
    assert len(found) == 2
    for seconds, text in found.values():
        assert "the ranks called different collectives" in text and "rank 0: broadcast(" in text and "rank 1: all_reduce(" in text, text
        assert seconds < 10


def test_a_rank_that_is_killed(tmp_path) -> None:
    begun = time.monotonic()
    found = failing(tmp_path, "dist.all_reduce(x, group=g) if rank == 0 else os.kill(os.getpid(), 9)", SYNC)
    assert "rank 1 is gone: it died" in found[0][1] and time.monotonic() - begun < 60


def test_what_is_done_is_not_blamed_for_a_later_error() -> None:
    def wrong() -> None:
        raise RuntimeError("the connection is gone")
    queue: Any = SimpleNamespace(error=None, _comm=SimpleNamespace(ready=wrong))
    work = gpu_queues._Watched(queue)
    with pytest.raises(RuntimeError, match="gone"):
        work.test()
    work.event = SimpleNamespace(query=lambda: True)  # type: ignore[assignment]
    assert work.test()
    # it ends, and what is behind it goes wrong, between two looks
    asked: list[bool] = []
    work.event = SimpleNamespace(query=lambda: bool(asked))  # type: ignore[assignment]
    queue._comm = SimpleNamespace(ready=lambda: asked.append(True) or wrong())
    assert work.test()
