"""Types of what an editor completes, asserted: mypy and pyright must agree with every line.  Never run."""

from __future__ import annotations

from typing import Any, assert_type

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, device, dtype, nn, optim
from flambeau.func import grad, vmap
from flambeau.utils.data import DataLoader, Dataset, TensorDataset, random_split

x = torch.randn(4, 3)
n = torch.tensor([1, 2, 3])

# tensors of tensors
for made in (x + x, x - 1, 2 * x, x / x, x // 2, x % 2, x ** 2, x @ x.mT, -x, abs(x), x == x, x != 1, x < x, x & x, ~x, x[0], x[None, ..., 1:], x[x > 0], x[n]):
    assert_type(made, Tensor)
assert_type(x.abs().sqrt().log1p(), Tensor)
assert_type(x.add(x, alpha=2).mul_(3), Tensor)
assert_type(x.clamp(0, 1), Tensor)
assert_type(x.sum(0), Tensor)
assert_type(x.mean((0, 1), keepdim=True), Tensor)
assert_type(x.argmax(dim=-1), Tensor)
assert_type(x.cumsum(0), Tensor)
assert_type(x.softmax(-1), Tensor)
assert_type(x.view(-1), Tensor)
assert_type(x.reshape(3, 4).transpose(0, 1).permute(1, 0), Tensor)
assert_type(x.reshape(shape=(3, 4)).view(size=[12]).flip(dims=(0,)), Tensor)
assert_type(torch.zeros(size=(2, 3), dtype=torch.float64).new_ones(size=(2,)), Tensor)
assert_type(x.unsqueeze(0).squeeze(0).flatten(), Tensor)
assert_type(x.expand(2, 4, 3).repeat(1, 1, 1), Tensor)
assert_type(x.gather(0, n[None]), Tensor)
assert_type(x.index_select(0, n), Tensor)
assert_type(x.masked_fill(x > 0, 0.0), Tensor)
assert_type(x.detach().clone().contiguous(), Tensor)
assert_type(x.to("cpu"), Tensor)
assert_type(x.to(torch.float64), Tensor)
assert_type(x.to(n), Tensor)
assert_type(x.to(device="cpu", dtype=torch.int64, non_blocking=True), Tensor)
assert_type(x.long().float().double().half(), Tensor)
assert_type(x.cuda().cpu(), Tensor)
assert_type(x.requires_grad_(), Tensor)
assert_type(x.zero_().fill_(1).uniform_(0, 1).normal_(), Tensor)
assert_type(x.chunk(2), tuple[Tensor, ...])
assert_type(x.split(2, dim=0), tuple[Tensor, ...])
assert_type(x.unbind(), tuple[Tensor, ...])

# what they say of themselves
assert_type(x.shape, torch.Size)
assert_type(x.size(), torch.Size)
assert_type(x.size(-1), int)
assert_type(x.dim(), int)
assert_type(x.numel(), int)
assert_type(len(x), int)
assert_type(x.dtype, dtype)
assert_type(x.device, device)
assert_type(x.is_cuda, bool)
assert_type(x.requires_grad, bool)
assert_type(x.is_contiguous(), bool)
assert_type(x.grad, Tensor | None)
assert_type(x.data, Tensor)
assert_type(x.T, Tensor)
assert_type(bool(x.any()), bool)
assert_type(float(x.sum()), float)
assert_type(int(n[0]), int)
assert_type(x.item(), Any)
assert_type(torch.float32.itemsize, int)

# functions
assert_type(torch.zeros(2, 3), Tensor)
assert_type(torch.ones((2, 3), dtype=torch.int64, device="cpu"), Tensor)
assert_type(torch.empty(2, requires_grad=True), Tensor)
assert_type(torch.full((2,), 1.0), Tensor)
assert_type(torch.eye(3), Tensor)
assert_type(torch.arange(0, 10, 2), Tensor)
assert_type(torch.rand_like(x), Tensor)
assert_type(torch.randint(0, 10, (2,)), Tensor)
assert_type(torch.exp(x), Tensor)
assert_type(torch.where(x > 0, x, 0), Tensor)
assert_type(torch.stack([x, x]), Tensor)
assert_type(torch.cat((x, x), dim=1), Tensor)
assert_type(torch.einsum("ij,kj->ik", x, x), Tensor)
assert_type(torch.matmul(x, x.T), Tensor)
assert_type(torch.linalg.norm(x), Tensor)
assert_type(torch.linalg.inv(x), Tensor)
assert_type(torch.fft.rfft(x), Tensor)
assert_type(torch.special.erf(x), Tensor)
assert_type(torch.allclose(x, x), bool)
assert_type(torch.is_tensor(x), bool)
assert_type(torch.cuda.is_available(), bool)
assert_type(torch.cuda.device_count(), int)
assert_type(F.relu(x), Tensor)
assert_type(F.softmax(x, dim=-1), Tensor)
assert_type(F.layer_norm(x, (3,)), Tensor)

# modules
layer = nn.Linear(3, 2)
assert_type(layer, nn.Linear)
assert_type(layer.in_features, int)
assert_type(layer.train(), nn.Linear)
assert_type(layer.eval(), nn.Linear)
assert_type(layer.to("cpu"), nn.Linear)
assert_type(layer.cuda(), nn.Linear)
assert_type(layer.float(), nn.Linear)
assert_type(layer.requires_grad_(False), nn.Linear)
assert_type(layer.training, bool)
for p in layer.parameters():
    assert_type(p, nn.Parameter)
for name, p in layer.named_parameters():
    assert_type(name, str)
    assert_type(p, nn.Parameter)
for child in nn.Sequential(layer).children():
    assert_type(child, nn.Module)
optimizer = optim.Adam(layer.parameters(), lr=1e-3)
assert_type(optimizer, optim.Adam)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    pass


class Numbers(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(2), index


numbers = Numbers()
assert_type(numbers[0], tuple[Tensor, int])
loader = DataLoader(numbers, batch_size=2, shuffle=True)
assert_type(len(loader), int)
pairs = TensorDataset(x, x)
first, second = random_split(pairs, [2, 2])
assert_type(len(first), int)


@torch.no_grad()
def loss(w: Tensor) -> Tensor:
    return w.sum()


each = vmap(grad(loss))
