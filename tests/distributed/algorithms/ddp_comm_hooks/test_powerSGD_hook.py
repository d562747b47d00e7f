"""PowerSGD: gradients of low rank come through whole, what is lost comes later, training goes down."""

from __future__ import annotations

import pytest

from flambeau.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from ...ranks import checked, needs_mpi


@needs_mpi
def test_gradients_as_products(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
def made(**options):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 10)).double())
    state = power.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, **options)
    model.register_comm_hook(state, power.powerSGD_hook)
    return model, state
X = torch.randn(6 * n, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
x = X[6 * rank:6 * rank + 6]
# a gradient of rank one, and a bias that travels whole
model, state = made()
for k in range(4):
    model.zero_grad()
    model(x).sum().backward()
    want = X.sum(0) / n
    assert (model.module[0].weight.grad - want).abs().max().item() < 1e-9, k
    assert (model.module[0].bias.grad - 6).abs().max().item() < 1e-12
assert state.iter == 4 and state.q_memory
# the first Q of all matrices of a bucket, vectors as one column: normal numbers of one generator, seeded by NumPy's
import numpy as np
model, state = made(min_compression_rate=0.5, random_seed=4)
out = torch.randn(6 * n, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
for k in range(3):
    model.zero_grad()
    (model(x) * out[6 * rank:6 * rank + 6]).sum().backward()
first = torch.Generator().manual_seed(int(np.random.RandomState(4).randint(1_000_000_000)))
torch.randn(1, 1, dtype=torch.float64, generator=first)  # the bias's
q = torch.randn(12, 2, dtype=torch.float64, generator=first).numpy()
whole = (out.t() @ X).numpy() / n
p = np.linalg.qr(whole @ q)[0]
np.testing.assert_allclose(model.module[0].weight.grad.numpy(), p @ (p.T @ whole), rtol=1e-9)
np.testing.assert_allclose(model.module[0].bias.grad.numpy(), out.sum(0).numpy() / n, rtol=1e-9)
# with what was lost added later, the sum of what came is near the sum of what was meant
model, state = made()
lin, came = model.module[0], 0
y = torch.randn(6 * n, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
def full():
    w, b = lin.weight.detach().requires_grad_(), lin.bias.detach()
    ((X @ w.t() + b - y) ** 2).mean().backward()
    return w.grad
want = full()
for _ in range(40):
    model.zero_grad()
    ((model(x) - y[6 * rank:6 * rank + 6]) ** 2).mean().backward()
    came = came + lin.weight.grad
assert (came / 40 - want).norm() < 0.2 * want.norm(), (came / 40 - want).norm() / want.norm()
grads = [torch.empty_like(lin.weight) for _ in range(n)]
dist.all_gather(grads, lin.weight.grad)
assert all(g.equal(grads[0]) for g in grads)
# training goes down
opt = torch.optim.SGD(model.parameters(), 0.5)
first = None
for _ in range(40):
    opt.zero_grad()
    loss = ((model(x) - y[6 * rank:6 * rank + 6]) ** 2).mean()
    first = float(loss) if first is None else first
    loss.backward()
    opt.step()
assert float(loss) < 0.8 * first, (first, float(loss))
print("narrow", rank)
""", 2)
    assert out.count("narrow") == 2


def test_too_early_a_start_is_refused() -> None:
    with pytest.raises(ValueError, match="start_powerSGD_iter"):
        PowerSGDState(None, start_powerSGD_iter=1)
    assert PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2).rank_of(3, 4) == 0
