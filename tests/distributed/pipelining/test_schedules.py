"""Stages on several processes: the same numbers as the whole model on one."""

from __future__ import annotations

import pytest

from ..ranks import checked, needs_mpi

pytestmark = needs_mpi


@pytest.mark.parametrize(("nproc", "device"), [(2, "cuda"), (3, "cpu")])
def test_the_same_numbers_as_one_process(tmp_path, nproc: int, device: str) -> None:
    options = ("--sim-gpus", "1") if device == "cuda" else ()
    out = checked(tmp_path, """
import os, copy, torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, Schedule1F1B
device = os.environ["DEVICE"]
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
whole = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 7), nn.Linear(7, 3)).double().to(device)
per = 6 // n
x, y = torch.randn(12, 4, dtype=torch.float64).to(device), torch.randn(12, 3, dtype=torch.float64).to(device)
loss_fn = lambda out, goal: ((out - goal) ** 2).mean()
for kind in (ScheduleGPipe, Schedule1F1B):
    model = copy.deepcopy(whole)
    part = copy.deepcopy(whole)[per * rank:per * rank + per]
    one, opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.optim.SGD(part.parameters(), 0.1, momentum=0.9)
    schedule = kind(PipelineStage(part, rank, n, torch.device(device)), n_microbatches=4, loss_fn=loss_fn)
    for _ in range(8):
        one.zero_grad(), opt.zero_grad()
        want = model(x)
        loss_fn(want, y).backward()
        losses = []
        if rank == 0:
            got = schedule.step(x)
        else:
            got = schedule.step(target=y, losses=losses) if rank == n - 1 else schedule.step()
        if rank == n - 1:
            assert (got - want).abs().max().item() < 1e-10 and abs(sum(map(float, losses)) / 4 - float(loss_fn(want, y))) < 1e-10
        one.step(), opt.step()
    for p, q in zip(part.parameters(), model[per * rank:per * rank + per].parameters()):
        assert (p - q).abs().max().item() < 1e-10
try:
    PipelineStage(part, (rank + 1) % n, n, torch.device(device))
except ValueError:
    print("piped", rank)
""", nproc, *options, DEVICE=device)
    assert out.count("piped") == nproc


@pytest.mark.parametrize(("nproc", "per", "micro", "device"), [(2, 2, 4, "cuda"), (2, 3, 3, "cpu"), (3, 2, 6, "cpu")])
def test_several_stages_a_process(tmp_path, nproc: int, per: int, micro: int, device: str) -> None:
    options = ("--sim-gpus", "1", "--queue", "lazy") if device == "cuda" else ()
    out = checked(tmp_path, """
import os, copy, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class, PipelineScheduleMulti, Schedule1F1B
device, per, micro = os.environ["DEVICE"], int(os.environ["PER"]), int(os.environ["MICRO"])
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
sizes = [4] + [5 + k for k in range(per * n - 1)] + [3]
whole = nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in zip(sizes, sizes[1:])]).double().to(device)
x, y = torch.randn(12, 4, dtype=torch.float64).to(device), torch.randn(12, 3, dtype=torch.float64).to(device)
loss_fn = lambda out, goal, weight=1.0: (((out - goal) ** 2) * weight).mean()
for kind in ("Interleaved1F1B", "loopedbfs"):
    assert issubclass(get_schedule_class(kind), PipelineScheduleMulti)
    model = copy.deepcopy(whole)
    parts = {s: copy.deepcopy(whole)[s] for s in range(rank, per * n, n)}
    one = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    opt = torch.optim.SGD([p for part in parts.values() for p in part.parameters()], 0.1, momentum=0.9)
    schedule = get_schedule_class(kind)([PipelineStage(part, s, per * n, torch.device(device)) for s, part in parts.items()], micro, loss_fn)
    for step in range(5):
        one.zero_grad(), opt.zero_grad()
        want = model(x)
        loss_fn(want, y, 2.0).backward()
        losses = []
        given = dict(target=y, losses=losses, loss_kwargs={"weight": 2.0}) if rank == n - 1 else {}
        got = schedule.step(*([x] if rank == 0 else []), return_outputs=step != 1, **given)
        if rank == n - 1:
            assert got is None if step == 1 else (got - want).abs().max().item() < 1e-10
            assert len(losses) == micro and abs(sum(map(float, losses)) / micro - float(loss_fn(want, y, 2.0))) < 1e-10
            assert not losses[0].requires_grad
        else:
            assert got is None
        one.step(), opt.step()
    for s, part in parts.items():
        for p, q in zip(part.parameters(), model[s].parameters()):
            assert (p - q).abs().max().item() < 1e-10
    got = schedule.eval(*([x] if rank == 0 else []), target=y if rank == n - 1 else None)
    if rank == n - 1:
        assert (got - model(x)).abs().max().item() < 1e-10 and not got.requires_grad
try:
    get_schedule_class("Interleaved1F1B")([PipelineStage(whole[rank], rank, n, torch.device(device))], 3 * n + 1, loss_fn)
    raise AssertionError(n)
except ValueError as error:
    assert "multiple of the number of rounds" in str(error), error
try:
    get_schedule_class("2F2B")
    raise AssertionError
except ValueError as error:
    assert "Unknown schedule name: 2F2B" in str(error)
assert get_schedule_class("1f1b") is Schedule1F1B
print("piped", rank)
""", nproc, *options, DEVICE=device, PER=str(per), MICRO=str(micro))
    assert out.count("piped") == nproc


def test_stages_that_are_sharded_reduce_once_a_batch(tmp_path) -> None:
    out = checked(tmp_path, """
import copy, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from flambeau.distributed import collectives
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
rank, stage, copy_of = dist.get_rank(), mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
torch.manual_seed(0)
whole = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).double()
x, y = torch.randn(16, 4, dtype=torch.float64), torch.randn(16, 3, dtype=torch.float64)
loss_fn = lambda out, goal: ((out - goal) ** 2).mean()
part = fully_shard(copy.deepcopy(whole)[stage], mesh=mesh["dp"])
schedule = Schedule1F1B(PipelineStage(part, stage, 2, torch.device("cpu"), group=mesh.get_group("pp")), 4, loss_fn)
mine = slice(8 * copy_of, 8 * copy_of + 8)
reduced, before = [], collectives.reduce_scatter_tensor
collectives.reduce_scatter_tensor = lambda *a, **k: (reduced.append(1), before(*a, **k))[1]
schedule.step(*([x[mine]] if stage == 0 else []), **({"target": y[mine]} if stage == 1 else {}))
loss_fn(whole(x), y).backward()
for p, q in zip(part.parameters(), whole[stage].parameters()):
    assert (p.grad.full_tensor() - q.grad).abs().max().item() < 1e-12, rank
assert len(reduced) == 1, reduced
print("sharded", rank)
""", 4)
    assert out.count("sharded") == 4
