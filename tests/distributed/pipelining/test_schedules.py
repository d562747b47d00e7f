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
