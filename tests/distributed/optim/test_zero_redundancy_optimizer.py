"""ZeroRedundancyOptimizer: the same numbers as its optimizer, state in parts, state brought together and loaded."""

from __future__ import annotations

from ..ranks import checked, needs_mpi

pytestmark = needs_mpi


def test_the_same_numbers_as_its_optimizer(tmp_path) -> None:
    out = checked(tmp_path, """
import copy, torch, torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer as Zero
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
start = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).double()
x = torch.randn(8, 4, dtype=torch.float64)
mine = x.chunk(n)[rank]
def train(model, opt, data, steps):
    for _ in range(steps):
        opt.zero_grad()
        (model(data) ** 2).mean().backward()
        opt.step()
def same(a, b):
    return all((p - q).abs().max().item() < 1e-10 for p, q in zip(a.parameters(), b.parameters()))
alone, parts = copy.deepcopy(start), nn.parallel.DistributedDataParallel(copy.deepcopy(start))
one, opt = torch.optim.AdamW(alone.parameters(), 0.05), Zero(parts.parameters(), torch.optim.AdamW, lr=0.05)
train(alone, one, x, 10), train(parts, opt, mine, 10)
assert same(alone, parts)
held = [None] * n
dist.all_gather_object(held, len(opt.optim.state))
assert sum(held) == 4 and max(held) < 4, held
opt.consolidate_state_dict(to=0)
told = [opt.state_dict() if rank == 0 else None]
try:
    assert rank == 0 or opt.state_dict()
except RuntimeError as error:
    assert "consolidate" in str(error)
dist.broadcast_object_list(told)
again = Zero(parts.parameters(), torch.optim.AdamW, lr=0.5)
again.load_state_dict(told[0])
train(alone, one, x, 5), train(parts, again, mine, 5)
assert again.param_groups[0]["lr"] == 0.05 and same(alone, parts)
print("zero", rank)
""", 2)
    assert out.count("zero") == 2
