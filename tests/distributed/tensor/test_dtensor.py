"""DTensors of every placement, beside the same operations on the whole: values and gradients."""

from __future__ import annotations

import pytest

from ..ranks import checked, needs_mpi

pytestmark = needs_mpi

BEGIN = """
import os, itertools, torch, torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh, DeviceMesh
from torch.distributed.tensor import DTensor, Shard, Replicate, Partial, distribute_tensor, distribute_module
device = os.environ.get("DEVICE", "cpu")
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device, (n,))

def near(a, b, what, limit=1e-10):
    assert tuple(a.shape) == tuple(b.shape), (what, a.shape, b.shape)
    if a.numel():
        assert (a - b).abs().max().item() <= limit, (what, (a - b).abs().max())

def raises(kind, *texts):
    class Block:
        def __enter__(self): pass
        def __exit__(self, found, value, trace):
            assert found is not None and issubclass(found, kind) and all(t in str(value) for t in texts), (kind, texts, found, value)
            return True
    return Block()

def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)
"""

OPERATIONS = BEGIN + """
mine = [numbers(4, 3, seed=20 + k) for k in range(n)]
parts = DTensor.from_local(mine[rank], mesh, [Partial()])
near(torch.msort(parts).full_tensor(), torch.msort(sum(mine)), "what sorts is not linear", 1e-12)
for what, f in (("linear", lambda t: -t), ("difference", lambda t: t - 2 * t), ("quotient", lambda t: t / 3), ("rows", lambda t: t.cumsum(0).flip(1))):
    assert f(parts).placements == (Partial(),), what
    near(f(parts).full_tensor(), f(sum(mine)), what, 1e-12)
assert (1 - parts).placements == (Replicate(),) and (1 / parts).placements == (Replicate(),)

def layouts(x, m):
    one = [Replicate(), *[Shard(d) for d in range(x.ndim) if x.shape[d] > 1]]
    return list(itertools.product(one, repeat=m.ndim))

def compare(what, f, *shapes, limit=1e-10, m=mesh, pick=None):
    xs = [numbers(*s, seed=k + 1) for k, s in enumerate(shapes)]
    plain = [x.clone().requires_grad_() for x in xs]
    want = f(*plain)
    want = [w for w in (want if isinstance(want, (tuple, list)) else [want])]
    weights = [numbers(*w.shape, seed=9 + k) for k, w in enumerate(want)]
    sum((w * k).sum() for w, k in zip(want, weights) if w.dtype.is_floating_point).backward()
    choices = list(itertools.product(*[layouts(x, m) for x in xs]))
    pick = pick or (2 if len(choices) <= 3 else 7)
    for placed in choices[::pick * (n - 1)]:
        parts = [distribute_tensor(x, m, p).requires_grad_() for x, p in zip(xs, placed)]
        got = f(*parts)
        got = [g for g in (got if isinstance(got, (tuple, list)) else [got])]
        tag = (what, placed, [g.placements for g in got])
        for g, w in zip(got, want):
            assert isinstance(g, DTensor) and g.dtype == w.dtype and tuple(g.shape) == tuple(w.shape), tag
            near(g.full_tensor().double(), w.double(), tag, limit)
        total = sum((g * distribute_tensor(k, m, [Replicate()] * m.ndim)).sum() for g, k in zip(got, weights) if g.dtype.is_floating_point)
        total.backward()
        for p, x in zip(parts, plain):
            near(p.grad.full_tensor(), x.grad, (tag, "gradient"), limit)

A, B = (4, 6), (6, 8)
compare("add", lambda a, b: a + b, A, A)
compare("broadcast", lambda a, b: a * b - b / 3, (4, 6), (6,))
compare("columns", lambda a, b: torch.exp(a) * b, (4, 6), (4, 1))
compare("relu", lambda a: F.gelu(torch.relu(a)) + a.sigmoid(), A)
compare("where", lambda a, b: torch.where(a > b, a, b * 2), A, A, pick=3)
compare("sum", lambda a: (a.sum(), a.sum(0, True), a.mean(-1, keepdim=True), a.mean(), a.sum((0, 1))), A)
compare("partial", lambda a: (a.sum(0) * 2).exp() + a.sum(0) / 3 - a.mean(0), A)
compare("extremes", lambda a: (a.amax(0), a.amin(), a.max(), a.max(dim=1).values), A)
compare("norms", lambda a: (a.norm(), torch.linalg.vector_norm(a, 3), a.var(1), a.std()), A)
compare("softmax", lambda a: (a.softmax(-1), a.log_softmax(0)), A)
compare("cumsum", lambda a: (a.cumsum(0), a.sort(1)[0], a.topk(2, -1).values), A)
compare("axes by keyword", lambda a: (a.flip(dims=(0,)), a.flip(0, 1), a.roll(1, dims=0), a.roll((1, 2), (0, 1)), a.median(0).values, a.cumsum(dim=0),
                                     torch.diff(a, dim=0), a.unfold(dimension=0, size=2, step=1)), A)
compare("matmul", lambda a, b: a @ b, A, B)
compare("batches", lambda a, b: a @ b, (2, 4, 6), (2, 6, 4), pick=3)
compare("vectors", lambda a, b: (a @ b, b @ a.t()), (4, 6), (6,))
compare("linear", lambda a, w, b: F.linear(a, w, b), (2, 4, 6), (8, 6), (8,), pick=5)
compare("einsum", lambda a, b: torch.einsum("bi,bj->ij", a, b), (4, 6), (4, 3))
compare("addmm", lambda c, a, b: torch.addmm(c, a, b, alpha=2), (8,), A, B, pick=3)
compare("views", lambda a: (a.view(4, 2, 12), a.reshape(-1), a.transpose(0, 2), a.permute(1, 2, 0), a.flatten(1), a.unsqueeze(1),
                            a[:, 1], a[..., None, 1:]), (4, 6, 4))
compare("more views", lambda a: (a.T, a.t().contiguous().view(-1), a.expand(3, 4, 6), a.repeat(2, 1), a.unflatten(1, (2, 3)), a.squeeze()), A)
compare("lists", lambda a, b: (torch.cat([a, b]), torch.stack([a, b], 1), *a.split(3, 1), *b.chunk(2), *a.unbind(0)), A, A)
compare("layer_norm", lambda a, w, b: F.layer_norm(a, (6,), w, b), (4, 2, 6), (6,), (6,), pick=3)
compare("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 4, 3, 2), (2, 4, 3, 2), (2, 4, 3, 2), pick=17)
compare("wholes", lambda a: (a.cumprod(0).flip(0), torch.linalg.inv(a[:4, :4]) if a.shape[0] == 4 else a, a.roll(1)), A)
compare("uneven", lambda a, b: ((a @ b).softmax(0), a.sum(0), a.t() + 1, a[1]), (5, 3), (3, 7))
compare("convolution", lambda a, w: F.conv1d(a, w), (4, 2, 5), (3, 2, 3), pick=2)

index = torch.tensor([[0, 3, 5], [6, 1, 2]], device=device)
for p in (Replicate(), Shard(0), Shard(1)):
    for q in (Replicate(), Shard(0)):
        table = distribute_tensor(numbers(7, 4), mesh, [p]).requires_grad_()
        whole = numbers(7, 4).requires_grad_()
        got, want = F.embedding(distribute_tensor(index, mesh, [q]), table), F.embedding(index, whole)
        near(got.full_tensor(), want, "embedding")
        (got * got).sum().backward(), (want * want).sum().backward()
        near(table.grad.full_tensor(), whole.grad, "table")

target = torch.tensor([1, 0, 5, -100], device=device)
for p in (Replicate(), Shard(0), Shard(1)):
    for how in ("mean", "sum", "none"):
        x = distribute_tensor(numbers(4, 6), mesh, [p]).requires_grad_()
        whole = numbers(4, 6).requires_grad_()
        got = F.cross_entropy(x, distribute_tensor(target, mesh, [Replicate()]), reduction=how)
        want = F.cross_entropy(whole, target, reduction=how)
        near(got.full_tensor(), want, (p, how))
        got.sum().backward(), want.sum().backward()
        near(x.grad.full_tensor(), whole.grad, (p, how, "gradient"))

# in place, factories, random numbers that do not depend on the cut
for p in (Replicate(), Shard(0), Shard(1)):
    x = distribute_tensor(numbers(5, 4), mesh, [p])
    whole = numbers(5, 4)
    for y in (x, whole):
        y.mul_(2).add_(y, alpha=3).clamp_(min=0)
        y[:2] if y is whole else None
    near(x.full_tensor(), whole, "in place")
    near(torch.zeros_like(x).full_tensor(), whole * 0, "zeros")
    torch.manual_seed(3); a = torch.nn.init.kaiming_uniform_(x).full_tensor()
    torch.manual_seed(3); b = torch.nn.init.kaiming_uniform_(whole)
    near(a, b, "drawn")
    torch.manual_seed(4); a = F.dropout(x, 0.5).full_tensor()
    torch.manual_seed(4); b = F.dropout(whole, 0.5)
    near(a, b, "dropped")
assert float(x.sum()) == x.full_tensor().sum().item() or abs(float(x.sum()) - x.full_tensor().sum().item()) < 1e-9
if n == 4:
    square = init_device_mesh(device, (2, 2), mesh_dim_names=("a", "b"))
    compare("square matmul", lambda a, b: (a @ b).relu(), A, B, m=square, pick=2)
    compare("square", lambda a: (a.softmax(1), a.sum(0), a.view(-1), a.norm()), (4, 8), m=square)
print("operations", rank)
"""

MOVES = BEGIN + """
kinds = [Replicate(), Shard(0), Shard(1), Partial()]
for shape in ((4, 6), (5, 3), (1, 7)):
    for p, q in itertools.product(kinds, kinds[:3]):
        x = numbers(*shape)
        if p == Partial():
            each = [numbers(*shape, seed=5 + r) for r in range(n)]
            x, start = sum(each), DTensor.from_local(each[rank].requires_grad_(), mesh, [p])
        else:
            start = distribute_tensor(x, mesh, [p]).requires_grad_()
        got = start.redistribute(mesh, [q])
        assert got.placements == (q,)
        near(got.full_tensor(), x, (p, q))
        w = numbers(*shape, seed=7)
        (got * distribute_tensor(w, mesh, [q])).sum().backward()
        near(start.grad.full_tensor() if p != Partial() else each[rank].grad, w, (p, q, "gradient"))

# local tensors, with gradients both ways
x = numbers(2, 3, seed=rank).requires_grad_()
d = DTensor.from_local(x, mesh, [Shard(0)])
assert d.shape == (2 * n, 3) and d.to_local() is x
(d.full_tensor() * (torch.arange(2.0 * n, device=device, dtype=torch.float64).unsqueeze(1))).sum().backward()
near(x.grad, torch.arange(2.0 * rank, 2.0 * rank + 2, device=device, dtype=torch.float64).unsqueeze(1).expand(2, 3), "from_local")
r = distribute_tensor(numbers(3), mesh, [Replicate()]).requires_grad_()
(r.to_local(grad_placements=[Partial()]) * (rank + 1)).sum().backward()
near(r.grad.to_local(), torch.full((3,), n * (n + 1) / 2, dtype=torch.float64, device=device), "to_local")

# what it says of itself
d = distribute_tensor(numbers(5, 2), mesh, [Shard(0)])
assert d.size() == (5, 2) and d.dim() == 2 and d.numel() == 10 and d.dtype == torch.float64 and d.device.type == device and len(d) == 5
assert isinstance(d, torch.Tensor) and d.is_leaf and not d.requires_grad and "Shard" in repr(d)
p = torch.nn.Parameter(d)
assert isinstance(p, torch.nn.Parameter) and isinstance(p, DTensor) and p.requires_grad and p.placements == (Shard(0),)
import copy, pickle, io
assert copy.deepcopy(p).placements == (Shard(0),)
again = pickle.loads(pickle.dumps(p))
assert isinstance(again, torch.nn.Parameter) and again.to_local().equal(p.to_local()) and again.device_mesh == mesh
with raises(RuntimeError, "mixed torch.Tensor and DTensor"):
    d + numbers(5, 2)
assert (d + 1 + torch.tensor(2.0, device=device)).placements == (Shard(0),)
with raises(ValueError, "placements"):
    distribute_tensor(numbers(2), mesh, [Shard(0), Shard(0)])
with raises(IndexError, "Shard"):
    distribute_tensor(numbers(2), mesh, [Shard(3)])
with raises(RuntimeError, "Partial"):
    d.redistribute(mesh, [Partial()])
with raises(RuntimeError, "Partial"):
    distribute_tensor(numbers(2), mesh, [Partial()])

from torch.distributed.tensor import zeros, ones, full, randn
assert zeros(5, 2, device_mesh=mesh, placements=[Shard(0)]).full_tensor().abs().sum() == 0
torch.manual_seed(2); a = randn(5, 2, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
torch.manual_seed(2); near(a, torch.randn(5, 2, device=device), "randn", 0)
assert full((3,), 2.0, device_mesh=mesh).full_tensor().tolist() == [2.0] * 3

# optimizers step pieces as they step wholes, and their state is in pieces
for make in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, 0.1)):
    whole = torch.nn.Parameter(numbers(5, 3))
    part = torch.nn.Parameter(distribute_tensor(numbers(5, 3), mesh, [Shard(0)]))
    a, b = make([whole]), make([part])
    for _ in range(5):
        for q, o in ((whole, a), (part, b)):
            o.zero_grad()
            (q * q * q).sum().backward()
            torch.nn.utils.clip_grad_norm_([q], 0.5)
            o.step()
    near(part.full_tensor(), whole, "optimizer", 1e-12)
    states = [v for v in b.state[part].values() if isinstance(v, torch.Tensor) and v.ndim]
    assert states and all(isinstance(v, DTensor) and v.placements == (Shard(0),) for v in states)
    for k, v in b.state_dict()["state"][0].items():
        if isinstance(v, DTensor):
            near(v.full_tensor(), a.state[whole][k], k, 1e-12)
print("moves", rank)
"""


@pytest.mark.parametrize("nproc", [2, 4])
def test_operations_and_gradients_beside_the_whole(tmp_path, nproc: int) -> None:
    assert checked(tmp_path, OPERATIONS, nproc).count("operations") == nproc


def test_moves_between_placements_leaves_and_optimizers(tmp_path) -> None:
    assert checked(tmp_path, MOVES, 2).count("moves") == 2
    assert checked(tmp_path, MOVES, 3, "--sim-gpus", "1", DEVICE="cuda", FLAMBEAU_SIM_QUEUE="lazy").count("moves") == 3
