"""Collectives that give new tensors, and module replication without a wrapper."""

from __future__ import annotations

from .ranks import checked, needs_mpi

pytestmark = needs_mpi


def test_values_gradients_and_groups(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (1, 3), mesh_dim_names=("a", "b"))
rank, n = dist.get_rank(), dist.get_world_size()
x = torch.arange(6.0).view(2, 3) + 10 * rank
kept = x.clone()
total = sum(torch.arange(6.0).view(2, 3) + 10 * r for r in range(n))
for group in (None, dist.group.WORLD, [0, 1, 2], mesh["b"], (mesh, 1), dist.group.WORLD.group_name):
    assert torch.equal(funcol.wait_tensor(funcol.all_reduce(x, "sum", group)), total)
assert torch.equal(funcol.all_reduce(x, "AVG", mesh["b"]), total / n) and torch.equal(x, kept)
every = [torch.arange(6.0).view(2, 3) + 10 * r for r in range(n)]
assert torch.equal(funcol.all_gather_tensor(x, 0, mesh["b"]), torch.cat(every)) and torch.equal(funcol.all_gather_tensor(x, 1, None), torch.cat(every, 1))
assert torch.equal(funcol.reduce_scatter_tensor(x, "max", 1, None), every[-1][:, rank:rank + 1])
assert torch.equal(funcol.broadcast(x, 1, None), every[1])
assert torch.equal(funcol.permute_tensor(x, [1, 2, 0], None), every[(rank - 1) % n])
assert torch.equal(torch.ops._c10d_functional.all_gather_into_tensor(x, n, dist.group.WORLD.group_name), torch.cat(every))
assert repr(torch.ops._c10d_functional.reduce_scatter_tensor.default) == "<OpOverload(op='_c10d_functional.reduce_scatter_tensor', overload='default')>"
w = x.double().requires_grad_()
g = torch.arange(6.0, dtype=torch.float64).view(2, 3)
(funcol.all_gather_tensor_autograd(w, 1, None) * torch.cat([g + r for r in range(n)], 1)).sum().backward()
assert torch.equal(w.grad, n * (g + rank))
w = x.double().requires_grad_()
(funcol.reduce_scatter_tensor_autograd(w, "sum", 1, None) * (rank + 1.0)).sum().backward()
assert torch.equal(w.grad, torch.tensor([[1.0, 2.0, 3.0]] * 2, dtype=torch.float64))
for wrong, kind in ((lambda: funcol.all_reduce(x, "mean", None), ValueError), (lambda: funcol.all_reduce(x, "sum", mesh), ValueError),
                    (lambda: funcol.all_reduce(x, "sum", [0, 2]), ValueError), (lambda: funcol.all_reduce(x, "sum", "nobody"), RuntimeError),
                    (lambda: funcol.reduce_scatter_tensor(x, "sum", 0, None), AssertionError)):
    try:
        wrong()
    except kind:
        continue
    raise AssertionError(kind)
print("gave", rank)
""", 3)
    assert out.count("gave") == 3


def test_a_module_is_replicated_in_place(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
rank = dist.get_rank()
def net(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.BatchNorm1d(3)).double()
alone, model = net(0), net(rank)
assert replicate(model, device_mesh=mesh, bucket_cap_mb=100) is model and list(model.state_dict())[0] == "0.weight"
made = torch.Generator().manual_seed(1)
x = torch.randn(8, 4, generator=made, dtype=torch.float64)
model[3].eval(), alone[3].eval()
alone(x).square().mean().backward()
model(x[4 * rank:4 * rank + 4]).square().mean().backward()
for p, q in zip(model.parameters(), alone.parameters()):
    assert (p.grad - q.grad).abs().max().item() < 1e-14
with torch.device("meta"):
    late = nn.Linear(4, 3)
replicate(late)
late.to_empty(device="cpu")
with torch.no_grad():
    late.weight.fill_(rank + 1.0), late.bias.fill_(rank + 1.0)
assert torch.equal(late(torch.ones(1, 4)), torch.full((1, 3), 5.0))
model.zero_grad()
model.set_requires_gradient_sync(False)
model(x[4 * rank:4 * rank + 4]).square().mean().backward()
apart = torch.stack([torch.empty(5, 4, dtype=torch.float64)] * 2)
dist.all_gather_into_tensor(apart, model[0].weight.grad.contiguous())
assert not torch.equal(apart[0], apart[1])
model.set_requires_gradient_sync(True)
model(x[4 * rank:4 * rank + 4]).square().mean().backward()
for p, q in zip(model.parameters(), alone.parameters()):
    assert (p.grad - 2 * q.grad).abs().max().item() < 1e-14
part = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).double()
replicate(part, ignored_modules=[part[1]])
part(torch.full((1, 2), rank + 1.0, dtype=torch.float64)).sum().backward()
told = [None, None]; dist.all_gather_object(told, [p.grad.tolist() for p in part.parameters()])
assert told[0][:2] == told[1][:2] and told[0][2] != told[1][2]
for wrong in (lambda: replicate(model), lambda: replicate(nn.Linear(2, 2), mixed_precision=object())):
    try:
        wrong()
    except (RuntimeError, NotImplementedError):
        continue
    raise AssertionError
print("copied", rank)
""")
    assert out.count("copied") == 2
