"""DistributedDataParallel: the same numbers as one process on all the data, in every mode; what is told when it is used wrongly."""

from __future__ import annotations

import pytest

from .ranks import checked, needs_mpi, run

pytestmark = needs_mpi

BEGIN = """
import os, sys, torch, torch.distributed as dist
import sys; from torch import nn
import sys; from torch.nn.parallel import DistributedDataParallel as DDP
device = os.environ.get("DEVICE", "cpu")
dist.init_process_group("nccl" if device == "cuda" else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.shared, self.never = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(3, 3)
        self.out = nn.Linear(8, 3)
    def forward(self, x, which=0):
        y = torch.tanh(self.a(x) if which == 0 else self.b(x))
        return self.out(self.shared(torch.tanh(self.shared(y))))

def net(kind):
    torch.manual_seed(3)
    if kind == "branches":
        return Branches().double().to(device)
    middle = [nn.BatchNorm1d(20)] if kind == "norm" else []
    return nn.Sequential(nn.Linear(6, 20), *middle, nn.ReLU(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)).double().to(device)

made = torch.Generator().manual_seed(5)
X, Y = torch.randn(12 * n, 6, generator=made, dtype=torch.float64), torch.randn(12 * n, 3, generator=made, dtype=torch.float64)
mine = slice(12 * rank, 12 * rank + 12)
x, y = X[mine].to(device), Y[mine].to(device)
X, Y = X.to(device), Y.to(device)

def train(model, steps=20, batches=lambda i: [(X, Y)], lr=0.05, zero=True):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for i in range(steps):
        opt.zero_grad(set_to_none=zero)
        for a, b in batches(i):
            ((model(a) - b) ** 2).mean().backward()
        opt.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()

def near(a, b, what, limit=1e-12):
    assert (a - b).abs().max().item() < limit, (what, (a - b).abs().max())
"""

SAME = BEGIN + """
alone = train(net("plain"))
for what, options in {"as it is": {}, "many small buckets": {"bucket_cap_mb": 0.0005}, "one bucket": {"bucket_cap_mb": 100},
                      "views": {"gradient_as_bucket_view": True}}.items():
    for zero in (True, False):
        inner = net("plain")
        if rank:
            with torch.no_grad():
                [p.fill_(7) for p in inner.parameters()]  # rank 0's are given to all
        model = DDP(inner, device_ids=[0] if device == "cuda" else None, **options)
        assert all(k.startswith("module.") for k in model.state_dict())
        near(train(model, batches=lambda i: [(x, y)], zero=zero), alone, what)

# accumulation under no_sync: the mean of what was added up
halves = lambda a, b: [(a[:6], b[:6]), (a[6:], b[6:])]
model = DDP(net("plain"))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for i in range(20):
    opt.zero_grad()
    (a, b), (c, d) = halves(x, y)
    with model.no_sync():
        (((model(a) - b) ** 2).mean() / 2).backward()
    (((model(c) - d) ** 2).mean() / 2).backward()
    opt.step()
near(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu(), alone, "no_sync")

# without zero_grad gradients add up as in one process
one, model = net("plain"), DDP(net("plain"))
for _ in range(3):
    ((one(X) - Y) ** 2).mean().backward()
    ((model(x) - y) ** 2).mean().backward()
for p, q in zip(one.parameters(), model.parameters()):
    near(p.grad.cpu(), q.grad.cpu(), "added up")

# a gradient that somebody keeps does not change when the next comes
model = DDP(net("plain"))
((model(x) - y) ** 2).mean().backward()
kept = [p.grad for p in model.parameters()]
before = [g.clone() for g in kept]
model.zero_grad()
((model(x * 2) - y) ** 2).mean().backward()
assert all(torch.equal(a, b) for a, b in zip(kept, before))

# hooks and clipping see the mean
model, seen = DDP(net("plain")), []
first = next(model.parameters())
first.register_post_accumulate_grad_hook(lambda p: seen.append(1))
((model(x) - y) ** 2).mean().backward()
assert seen == [1]
total = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
one = net("plain")
((one(X) - Y) ** 2).mean().backward()
near(total.cpu(), nn.utils.clip_grad_norm_(one.parameters(), 0.1).cpu(), "norm")
print("same", rank)
"""

MODES = BEGIN + """
import sys; from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
# parameters that some ranks use, and one that nobody uses
one = net("branches")
model = DDP(net("branches"), find_unused_parameters=True, bucket_cap_mb=0.001)
for step in range(4):
    which = (rank + step) % 2
    one.zero_grad(), model.zero_grad()
    sum(((one(X[12 * r:12 * r + 12], (r + step) % 2) - Y[12 * r:12 * r + 12]) ** 2).mean() / n for r in range(n)).backward()
    ((model(x, which) - y) ** 2).mean().backward()
    for (name, p), q in zip(one.named_parameters(), model.parameters()):
        if p.grad is None:
            assert q.grad is None, name
        else:
            near(p.grad.cpu(), q.grad.cpu(), name)
# a graph that is the same in all passes, with parameters that only some ranks use, and one that nobody uses
for model in (DDP(net("branches"), static_graph=True, bucket_cap_mb=0.001), DDP(net("branches"), bucket_cap_mb=0.001)):
    model._set_static_graph()
    one = net("branches")
    for step in range(3):
        one.zero_grad(), model.zero_grad()
        sum(((one(X[12 * r:12 * r + 12], r % 2) - Y[12 * r:12 * r + 12]) ** 2).mean() / n for r in range(n)).backward()
        ((model(x, rank % 2) - y) ** 2).mean().backward()
        for (name, p), q in zip(one.named_parameters(), model.parameters()):
            if p.grad is None:
                assert q.grad is None, name
            else:
                near(p.grad.cpu(), q.grad.cpu(), name)
# hooks of communication
alone = train(net("plain"))
for name, limit in (("allreduce_hook", 1e-12), ("fp16_compress_hook", 2e-3), ("bf16_compress_hook", 2e-2)):
    model = DDP(net("plain"), bucket_cap_mb=0.001)
    model.register_comm_hook(None, getattr(hooks, name))
    near(train(model, batches=lambda i: [(x, y)]), alone, name, limit)
seen = []
def mine_own(state, bucket):
    seen.append((bucket.index(), bucket.is_last(), len(bucket.gradients())))
    work = dist.all_reduce(bucket.buffer().div_(n), async_op=True)
    return work.get_future().then(lambda f: f.value()[0])
model = DDP(net("plain"), bucket_cap_mb=0.001)
model.register_comm_hook("state", mine_own)
near(train(model, 1, lambda i: [(x, y)]), train(net("plain"), 1), "own hook")
assert [s[0] for s in seen] == list(range(len(seen))) and seen[-1][1] and sum(s[2] for s in seen) == 6
# buffers are rank 0's before every forward pass
model = DDP(net("norm"))
for _ in range(2):
    model(x)
means = [torch.empty_like(model.module[1].running_mean) for _ in range(n)]
model.eval()
with torch.no_grad():
    model(x)
dist.all_gather(means, model.module[1].running_mean)
assert all(torch.equal(m, means[0]) for m in means)
# uneven inputs
model = DDP(net("plain"))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
with model.join():
    for k in range(3 + 2 * rank):
        opt.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        opt.step()
whole = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
parts = [torch.empty_like(whole) for _ in range(n)]
dist.all_gather(parts, whole)
assert all(torch.equal(p, parts[0]) for p in parts)
# a generator of indices that every rank cuts alike
data = torch.utils.data.TensorDataset(torch.arange(10))
sampler = torch.utils.data.distributed.DistributedSampler(data, seed=4)
shares = [None] * n
dist.all_gather_object(shares, list(sampler))
assert len({len(s) for s in shares}) == 1 and set().union(*shares) == set(range(10))
print("modes", rank)
"""


@pytest.mark.parametrize("nproc", [2, 3])
def test_the_same_numbers_as_one_process(tmp_path, nproc: int) -> None:
    assert checked(tmp_path, SAME, nproc).count("same") == nproc


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_the_same_numbers_on_simulated_gpus(tmp_path, queue: str) -> None:
    assert checked(tmp_path, SAME, 2, "--sim-gpus", "1", DEVICE="cuda", FLAMBEAU_SIM_QUEUE=queue).count("same") == 2


def test_unused_parameters_hooks_buffers_and_uneven_inputs(tmp_path) -> None:
    assert checked(tmp_path, MODES, 2).count("modes") == 2
    assert checked(tmp_path, MODES, 2, "--sim-gpus", "1", DEVICE="cuda").count("modes") == 2


def test_batch_norm_over_all_ranks(tmp_path) -> None:
    out = checked(tmp_path, BEGIN + """
alone = net("norm")
before = train(alone, 10)
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net("norm")))
near(train(model, 10, lambda i: [(x, y)]), before, "parameters", 1e-10)
for name, b in alone.named_buffers():
    near(b.double().cpu(), dict(model.module.named_buffers())[name].double().cpu(), name, 1e-10)
model.eval(), alone.eval()
near(model(X).detach().cpu(), alone(X).detach().cpu(), "eval", 1e-9)
images = nn.SyncBatchNorm(3, affine=False, momentum=None)
a = torch.randn(2 + rank, 3, 4, 5).requires_grad_()   # batches of different sizes
every = [None] * n
dist.all_gather_object(every, a.detach().tolist())
whole = torch.cat([torch.tensor(e) for e in every]).requires_grad_()
weights = torch.arange(float(whole.numel())).view(whole.shape).sin()
at = sum(2 + r for r in range(rank))
got, want = images(a), nn.BatchNorm2d(3, affine=False)(whole)
near(got.detach(), want[at:at + 2 + rank].detach(), "images", 1e-5)
(got * weights[at:at + 2 + rank]).sum().backward()
(want * weights).sum().backward()
near(a.grad, whole.grad[at:at + 2 + rank], "gradient", 1e-5)
print("normed", rank)
""")
    assert out.count("normed") == 2


def test_what_is_told(tmp_path) -> None:
    out = checked(tmp_path, BEGIN + """
def raises(kind, *texts):
    class Block:
        def __enter__(self): pass
        def __exit__(self, found, value, trace):
            assert found is not None and issubclass(found, kind) and all(t in str(value) for t in texts), (texts, value)
            return True
    return Block()
model = DDP(net("branches"))
((model(x) - y) ** 2).mean().backward()
with raises(RuntimeError, "find_unused_parameters=True", "b.weight", "never.bias"):
    model(x)
with raises(RuntimeError, "differs between ranks", "parameter 0", "(20, 6)", "(21, 6)"):
    DDP(nn.Linear(6, 20 + rank))
with raises(RuntimeError, "is not needed"):
    DDP(nn.ReLU())
with raises(ValueError, "single element"):
    DDP(net("plain"), device_ids=[0, 1])
model = DDP(net("plain"))
with raises(TypeError, "callable"):
    model.register_comm_hook(None, 3)
loss = ((model(x) - y) ** 2).mean()
with raises(AttributeError, "mixed_precision must have param_dtype", "'object'"):
    DDP(net("plain"), mixed_precision=object())
print("told", rank)
""")
    assert out.count("told") == 2


def test_join_that_throws(tmp_path) -> None:
    done = run(tmp_path, BEGIN + """
model = DDP(net("plain"))
try:
    with model.join(throw_on_early_termination=True):
        for _ in range(1 + rank):
            ((model(x) - y) ** 2).mean().backward()
except RuntimeError as error:
    assert "exhausted inputs" in str(error)
    print("thrown", rank)
""")
    assert done.returncode == 0 and done.stdout.count("thrown") == 2, done.stdout + done.stderr


MIXED = BEGIN + """
from torch.nn.parallel.distributed import _MixedPrecision
from torch.distributed.fsdp import MixedPrecision
bf16, f32 = torch.bfloat16, torch.float32
X, Y, x, y = X.float(), Y.float(), x.float(), y.float()

def by_hand(model, reduced, steps):
    # one process with all ranks' data: parameters are cast, gradients come back in float32, are rounded and averaged
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    named = dict(model.named_parameters())
    for _ in range(steps):
        total = {k: 0 for k in named}
        for r in range(n):
            part = slice(12 * r, 12 * r + 12)
            out = torch.func.functional_call(model, {k: p.to(bf16) for k, p in named.items()}, (X[part].to(bf16),))
            grads = torch.autograd.grad(((out.float() - Y[part]) ** 2).mean(), list(named.values()))
            total = {k: total[k] + g.to(reduced) / n for (k, g) in zip(named, grads)}
        for k, p in named.items():
            p.grad = total[k].to(f32)
        opt.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()

for given, reduced in ((_MixedPrecision(bf16), bf16), (_MixedPrecision(bf16, f32), f32), (MixedPrecision(bf16, bf16), bf16)):
    inner = net("plain").float()
    wanted = by_hand(net("plain").float(), reduced, 5)
    model = DDP(inner, mixed_precision=given, bucket_cap_mb=0.0005)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(5):
        opt.zero_grad()
        out = model(x)
        assert out.dtype is bf16
        ((out.float() - y) ** 2).mean().backward()
        assert all(p.dtype is f32 and p.grad.dtype is f32 for p in model.parameters())
        opt.step()
    found = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()
    near(found, wanted, (given, reduced), 1e-6 if reduced is f32 else 2e-3)
    assert (found - train(net("plain").float(), 5, lambda i: [(X, Y)])).abs().max() > 1e-4  # and it is not float32 throughout
norm = DDP(net("norm").float(), mixed_precision=_MixedPrecision(buffer_dtype=torch.float16))
assert norm.module[1].running_mean.dtype is torch.float16 and norm.module[1].num_batches_tracked.dtype is torch.int64
try:
    DDP(net("plain"), mixed_precision=_MixedPrecision(torch.int32))
    raise AssertionError
except TypeError as error:
    assert "mixed_precision.param_dtype must be a floating dtype" in str(error)
try:
    model.register_comm_hook(None, print)
    raise AssertionError
except RuntimeError as error:
    assert "only be called once" in str(error)
print("mixed", rank)
"""


def test_mixed_precision(tmp_path) -> None:
    done = run(tmp_path, MIXED, timeout=300)
    assert done.stdout.count("mixed") == 2, done.stdout + done.stderr
