"""Modules cut by a plan: the same numbers as the module on one process, with and without sequence parallelism, losses of logits in pieces."""

from __future__ import annotations

import pytest

from ...ranks import checked, needs_mpi

pytestmark = needs_mpi

CUT = """
import os, copy, torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import (parallelize_module, ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput,
                                               PrepareModuleOutput, loss_parallel)
device = os.environ.get("DEVICE", "cpu")
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device, (n,))

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
    def forward(self, x):
        q, k, v = (f(x).view(x.shape[0], x.shape[1], -1, 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o(y.reshape(x.shape[0], x.shape[1], -1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.n1, self.n2, self.n3 = nn.Embedding(12, 8), nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention, self.up, self.down, self.out = Attention(), nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 12)
    def forward(self, ids):
        x = self.table(ids)
        x = x + self.attention(self.n1(x))
        x = x + self.down(F.gelu(self.up(self.n2(x))))
        return self.out(self.n3(x))

def net():
    torch.manual_seed(rank)   # process 0's are used
    return Net().double().to(device)

ids = torch.arange(24, device=device).view(3, 8) * 5 % 12
goal = (ids * 7 + 1) % 12
inner = {"attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel()}
plans = {
    "tensor": {"table": RowwiseParallel(input_layouts=Replicate()), **inner, "attention.o": RowwiseParallel(), "up": ColwiseParallel(),
               "down": RowwiseParallel(), "out": ColwiseParallel(output_layouts=Replicate())},
    "columns of a table": {
        "table": ColwiseParallel(output_layouts=Replicate()), "up": ColwiseParallel(), "down": RowwiseParallel()},
    "sequence": {"table": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "n1": SequenceParallel(), "n2": SequenceParallel(),
                 "n3": SequenceParallel(), "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)), **inner,
                 "attention.o": RowwiseParallel(output_layouts=Shard(1)), "up": ColwiseParallel(input_layouts=Shard(1)),
                 "down": RowwiseParallel(output_layouts=Shard(1)), "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())},
    "loss": {"up": ColwiseParallel(), "down": RowwiseParallel(), "out": ColwiseParallel(use_local_output=False)},
}

def train(model, steps, how):
    opt = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    for _ in range(steps):
        opt.zero_grad()
        logits = model(ids).flatten(0, 1)
        if how == "loss":
            with loss_parallel():
                assert isinstance(logits, DTensor) and logits.placements == (Shard(1),)
                loss = F.cross_entropy(logits, goal.flatten())
                loss.backward()
        else:
            loss = F.cross_entropy(logits, goal.flatten())
            loss.backward()
        opt.step()
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach() for k, v in model.state_dict().items()}, float(loss)

start = net()
with torch.no_grad():
    for p in start.parameters():
        dist.broadcast(p, 0)
want, want_loss = train(copy.deepcopy(start), 4, "plain")
for what, plan in plans.items():
    model = parallelize_module(copy.deepcopy(start), mesh, plan)
    if what == "tensor":
        assert model.up.weight.placements == (Shard(0),) and model.down.weight.placements == (Shard(1),) and model.down.bias.placements == (Replicate(),)
        assert isinstance(model.up.weight, nn.Parameter)
    got, loss = train(model, 4, what)
    assert abs(loss - want_loss) < 1e-9, (what, loss, want_loss)
    for k in want:
        assert (got[k] - want[k]).abs().max().item() < 1e-9, (what, k, (got[k] - want[k]).abs().max())
for wrong, kind in ((lambda: parallelize_module(nn.ReLU(), mesh, ColwiseParallel()), NotImplementedError),
                    (lambda: parallelize_module(start, mesh, 3), TypeError),
                    (lambda: PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=None), AssertionError)):
    try:
        wrong()
    except kind:
        continue
    raise AssertionError(kind)
print("cut", rank)
"""


@pytest.mark.parametrize(("nproc", "device"), [(2, "cpu"), (4, "cuda")])
def test_the_same_numbers_as_one_process(tmp_path, nproc: int, device: str) -> None:
    options = ("--sim-gpus", "1") if device == "cuda" else ()
    assert checked(tmp_path, CUT, nproc, *options, DEVICE=device).count("cut") == nproc
