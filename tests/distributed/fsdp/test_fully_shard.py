"""fully_shard and FullyShardedDataParallel: the same numbers as one process on all the data, memory, state, mixed precision."""

from __future__ import annotations

import pytest

from ..ranks import checked, needs_mpi

pytestmark = needs_mpi

BEGIN = """
import os, copy, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, FSDPModule, MixedPrecisionPolicy, FullyShardedDataParallel as FSDP, StateDictType, FullStateDictConfig
from torch.distributed.tensor import DTensor, Shard, Replicate, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
device = os.environ.get("DEVICE", "cpu")
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6, bias=False)
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(5, 6), nn.ModuleList(Block() for _ in range(3)), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(1))
    def forward(self, x):
        x = self.first(x) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.last(x)

def net():
    torch.manual_seed(3)
    return Net().double().to(device)

made = torch.Generator().manual_seed(5)
X, Y = torch.randn(4 * n, 5, generator=made, dtype=torch.float64).to(device), torch.randn(4 * n, 3, generator=made, dtype=torch.float64).to(device)
x, y = X[4 * rank:4 * rank + 4], Y[4 * rank:4 * rank + 4]

def sharded(model=None, **options):
    model = model or net()
    for b in model.blocks:
        fully_shard(b, **options)
    return fully_shard(model, **options)

def train(model, a, b, steps=20, clip=None, make=lambda p: torch.optim.AdamW(p, 0.02), zero=True):
    opt = make(model.parameters())
    for _ in range(steps):
        opt.zero_grad(set_to_none=zero)
        ((model(a) - b) ** 2).mean().backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
    return opt

def state(model):
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach().cpu() for k, v in model.state_dict().items()}

def near(a, b, what, limit=1e-9):
    for k in b:
        assert (a[k] - b[k]).abs().max().item() < limit, (what, k, (a[k] - b[k]).abs().max())
"""

SAME = BEGIN + """
one = net(); train(one, X, Y, 4); few = state(one)
one = net(); train(one, X, Y); alone = state(one)
for what, options in {"kept after forward": {"reshard_after_forward": False}, "dropped": {"reshard_after_forward": True}, "as it is": {}}.items():
    model = sharded(**options)
    assert isinstance(model, FSDPModule) and isinstance(model, Net) and isinstance(model.blocks[0], Block)
    assert all(isinstance(p, DTensor) and isinstance(p, nn.Parameter) and p.placements == (Shard(0),) for p in model.parameters())
    assert sum(p.to_local().numel() for p in model.parameters()) <= sum(p.numel() for p in one.parameters()) // n + 40
    opt = train(model, x, y, 4 if options else 20)
    near(state(model), few if options else alone, what)
    assert all(isinstance(p, DTensor) and isinstance(p.grad, DTensor) and p.grad.shape == p.shape for p in model.parameters())
    assert all(isinstance(v["exp_avg"], DTensor) for v in opt.state.values())

one = net(); train(one, X, Y, 3, clip=0.1); clipped = state(one)
model = sharded(); train(model, x, y, 3, clip=0.1, zero=False)
near(state(model), clipped, "clipped")

# gradients that add up without being reduced; what saved tensors hold is gathered anew
model, one = sharded(), net()
model.set_requires_gradient_sync(False)
((model(x[:2]) - y[:2]) ** 2).mean().backward()
assert all(p.grad is None for p in model.parameters())
model.set_requires_gradient_sync(True)
((model(x[2:]) - y[2:]) ** 2).mean().backward()
for r in range(n):
    for k in (0, 2):
        s = slice(4 * r + k, 4 * r + k + 2)
        (((one(X[s]) - Y[s]) ** 2).mean() / n).backward()
near({k: p.grad.full_tensor().cpu() for k, p in model.named_parameters()}, {k: p.grad.cpu() for k, p in one.named_parameters()}, "added up")

# while it runs the parameters are whole, after it they are not; eval, a checkpointed block, a frozen one

seen = []
model = sharded()
model.blocks[1].register_forward_hook(lambda m, i, o: seen.append((tuple(m.up.weight.shape), type(m.up.weight).__name__)))
model(x)
assert seen == [((12, 6), "Tensor")], seen
assert isinstance(model.blocks[1].up.weight, DTensor) and not isinstance(model.last.weight, DTensor)
model.reshard()
assert isinstance(model.last.weight, DTensor)
with torch.no_grad():
    assert (model(X) - net()(X)).abs().max().item() < 1e-12
assert isinstance(model.last.weight, DTensor)
model.unshard()
assert tuple(model.last.weight.shape) == (3, 6) and not isinstance(model.last.weight, DTensor)
handle = model.blocks[0].unshard(async_op=True); handle.wait(); model.blocks[0].reshard(); model.reshard()

# the memory of whole parameters is given back between forward and backward, though operations saved them, and after it
import weakref
from flambeau.distributed.fsdp import group as groups
model, stores = sharded(), []
for b in model.blocks:
    b.register_forward_hook(lambda m, i, o: stores.append(weakref.ref(m.up.weight.store)))
loss = model(x).sum()
assert len(stores) == 3 and not any(ref() for ref in stores), stores
assert {id(g) for g, _ in groups._owners.values()} == {id(model._fsdp.group)}
loss.backward()
assert not groups._owners

from torch.utils.checkpoint import checkpoint
class Again(Net):
    def forward(self, x):
        x = self.first(x) * self.scale
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.last(x)
torch.manual_seed(3); again = sharded(Again().double().to(device))
for p in again.blocks[0].parameters():
    p.requires_grad_(False)
one = net()
for p in one.blocks[0].parameters():
    p.requires_grad_(False)
train(one, X, Y, 3); train(again, x, y, 3)
near(state(again), state(one), "checkpointed")

# checkpointed blocks that are sharded around the checkpoint, as trainers of large models do
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl
for impl in (CheckpointImpl.NO_REENTRANT, CheckpointImpl.REENTRANT):
    inside, one = net(), net()
    for k, block in enumerate(inside.blocks):
        inside.blocks[k] = fully_shard(checkpoint_wrapper(block, checkpoint_impl=impl), reshard_after_forward=True)
    inside = fully_shard(inside)
    train(one, X, Y, 4)
    train(inside, x, y, 4)
    for p, q in zip(inside.parameters(), one.parameters()):
        assert (p.full_tensor() - q).abs().max().item() < 1e-12, impl
    assert all(b._fsdp.group.wholes is None for b in inside.blocks)

# from the meta device, state loaded in place and assigned
with torch.device("meta"):
    empty = Net().double()
sharded(empty).to_empty(device=device)
whole = {k: v.to(device) for k, v in alone.items()}
empty.load_state_dict({k: distribute_tensor(whole[k], p.device_mesh, p.placements) for k, p in empty.named_parameters()})
near(state(empty), alone, "loaded")
train(empty, x, y, 1)

# lower precision: types in use and of gradients
low, lower = net().float(), dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for b in low.blocks:
    fully_shard(b, mp_policy=MixedPrecisionPolicy(**lower))
fully_shard(low, mp_policy=MixedPrecisionPolicy(**lower, output_dtype=torch.float32))
out = low(x.float())
assert out.dtype == torch.float32
out.sum().backward()
assert all(p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in low.parameters())
low.unshard()
assert all(p.dtype == torch.bfloat16 for p in low.parameters(recurse=False))
low.reshard()
train(low, x.float(), y.float(), 5)
one = net(); train(one, X, Y, 5)
near(state(low), {k: v.float() for k, v in state(one).items()}, "bf16", 0.1)

# the older face
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
old = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=0 if device == "cuda" else None)
opt = train(old, x, y, 4)
near({k: v.cpu() for k, v in old.state_dict().items()}, few, "FSDP")
with FSDP.state_dict_type(old, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
    assert bool(old.state_dict()) == (rank == 0)
with FSDP.state_dict_type(old, StateDictType.SHARDED_STATE_DICT):
    assert all(isinstance(v, DTensor) for v in old.state_dict().values())
kept = FSDP.optim_state_dict(old, opt)
if rank == 0:
    assert tuple(kept["state"]["blocks.1.up.weight"]["exp_avg"].shape) == (12, 6)
with FSDP.summon_full_params(old):
    assert tuple(old.module.first.weight.shape) == (6, 5)
    with torch.no_grad():
        old.module.first.weight.zero_()
assert old.state_dict()["first.weight"].abs().max() == 0
assert float(old.clip_grad_norm_(1.0)) >= 0
for bad in (lambda: fully_shard(nn.ModuleList([nn.Linear(2, 2)])), lambda: fully_shard(model)):
    try:
        bad()
    except ValueError:
        continue
    raise AssertionError("not refused")
print("same", rank)
"""

SQUARE = BEGIN + """
from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel
one = net(); train(one, X, Y, 6); alone = state(one)
mesh = init_device_mesh(device, (2, 2), mesh_dim_names=("dp", "tp"))
model = sharded(mesh=mesh)
assert all(p.placements == (Replicate(), Shard(0)) for p in model.parameters())
train(model, x, y, 6)
near(state(model), alone, "copies of shards")
# tensor-parallel within, sharded across
def two():
    model = net()
    for b in model.blocks:
        parallelize_module(b, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(b, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])
model = two()
half = slice(8 * mesh.get_local_rank("dp"), 8 * mesh.get_local_rank("dp") + 8)
assert model.blocks[0].up.weight.device_mesh == mesh and model.blocks[0].up.weight.placements[1] == Shard(0)
opt = train(model, X[half], Y[half], 6)
near(state(model), alone, "two axes")
# a checkpoint of it, read by four that shard in one axis, and by one alone
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
m, o = get_state_dict(model, opt)
dcp.save({"model": m, "optim": o, "step": 20}, checkpoint_id="kept")
other = sharded()
other_opt = torch.optim.AdamW(other.parameters(), 0.5)
m, o = get_state_dict(other, other_opt)
told = {"model": m, "optim": o, "step": 0}
dcp.load(told, checkpoint_id="kept")
set_state_dict(other, other_opt, model_state_dict=told["model"], optim_state_dict=told["optim"])
assert told["step"] == 20 and other_opt.param_groups[0]["lr"] == 0.02
near(state(other), alone, "resharded")
for model_, opt_, a, b in ((model, opt, X[half], Y[half]), (other, other_opt, x, y)):
    for _ in range(3):
        opt_.zero_grad(); ((model_(a) - b) ** 2).mean().backward(); opt_.step()
near(state(other), state(model), "goes on alike")
print("square", rank)
"""


@pytest.mark.parametrize(("nproc", "device"), [(2, "cpu"), (3, "cuda")])
def test_the_same_numbers_as_one_process(tmp_path, nproc: int, device: str) -> None:
    options = ("--sim-gpus", "1") if device == "cuda" else ()
    assert checked(tmp_path, SAME, nproc, *options, DEVICE=device, FLAMBEAU_SIM_QUEUE="lazy").count("same") == nproc


def test_meshes_of_two_axes_and_resharding(tmp_path) -> None:
    assert checked(tmp_path, SQUARE, 4).count("square") == 4
