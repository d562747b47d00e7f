"""What scripts usually say, for type checkers: no line may be an error; the comments say what is revealed.  Never run."""

from __future__ import annotations

from typing import reveal_type

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn, optim

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(4, 3, device=device, dtype=torch.float32, requires_grad=True)
reveal_type(x)  # Tensor
reveal_type(torch.zeros(2, 3))  # Tensor
reveal_type(torch.zeros((2, 3), dtype=torch.int64))  # Tensor
reveal_type(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))  # Tensor
reveal_type(torch.arange(10))  # Tensor
reveal_type(torch.linspace(0, 1, 5))  # Tensor
reveal_type(x + 1)  # Tensor
reveal_type(1 - x)  # Tensor
reveal_type(x @ x.T)  # Tensor
reveal_type(x == 0)  # Tensor
reveal_type(-x)  # Tensor
reveal_type(x[0])  # Tensor
reveal_type(x[:, 1:3, None])  # Tensor
reveal_type(x.shape)  # Size
reveal_type(x.shape[0])  # int
reveal_type(x.dtype)  # dtype
reveal_type(x.device)  # device
reveal_type(x.ndim)  # int
reveal_type(x.requires_grad)  # bool
reveal_type(x.is_cuda)  # bool
reveal_type(x.T)  # Tensor
reveal_type(x.grad)  # Tensor | None
reveal_type(x.size())  # Size
reveal_type(x.size(0))  # int
reveal_type(x.dim())  # int
reveal_type(x.numel())  # int
reveal_type(x.view(-1, 3))  # Tensor
reveal_type(x.reshape(2, 6).permute(1, 0).contiguous())  # Tensor
reveal_type(x.sum())  # Tensor
reveal_type(x.mean(dim=0, keepdim=True))  # Tensor
reveal_type(x.float().cpu().to(device))  # Tensor
reveal_type(x.exp().log_().add_(1).clamp(min=0.0, max=1.0))  # Tensor
reveal_type(torch.sin(x))  # Tensor
reveal_type(torch.add(x, 1, alpha=2))  # Tensor
reveal_type(torch.mul(x, x))  # Tensor
reveal_type(torch.where(x > 0, x, 0.0))  # Tensor
reveal_type(torch.cat([x, x], dim=0))  # Tensor
reveal_type(torch.stack((x, x)))  # Tensor
reveal_type(torch.matmul(x, x.t()))  # Tensor
reveal_type(torch.softmax(x, dim=-1))  # Tensor
reveal_type(torch.allclose(x, x))  # bool
reveal_type(torch.equal(x, x))  # bool
reveal_type(torch.is_tensor(x))  # bool
reveal_type(x.detach().clone())  # Tensor
reveal_type(bool(x.any()))  # bool
reveal_type(len(x))  # int
reveal_type(float(x.sum()))  # float
reveal_type(x.chunk(2))  # tuple[Tensor, ...]
reveal_type(x.split(2))  # tuple[Tensor, ...]
reveal_type(torch.no_grad())  # no_grad
values, indices = x.max(dim=1)
values, indices = torch.topk(x, 2)
for row in x:
    reveal_type(row)  # Tensor
x.requires_grad_(False).zero_()
x[0] = 1.0
x[x > 0] = torch.tensor(2.0)
number: float = x.mean().item()
count: int = int((x > 0).sum())


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(width, 2)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.body(x)
        return F.relu(hidden).mean(0) * self.scale + self.head.weight.sum()


net = Net().to(device)
reveal_type(net)  # Net
optimizer = optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
loss: Tensor = F.cross_entropy(net(x), torch.tensor([0, 1, 0, 1]))
optimizer.zero_grad(set_to_none=True)
loss.backward()
nn.utils.clip_grad_norm_(net.parameters(), 1.0)
optimizer.step()
reveal_type(F.softmax(x, dim=-1))  # Tensor
reveal_type(F.relu(x))  # Tensor
with torch.no_grad():
    accuracy = (net(x).argmax(-1) == 0).float().mean().item()
torch.manual_seed(0)
torch.save(net.state_dict(), "net.pt")
net.load_state_dict(torch.load("net.pt", map_location="cpu"))
net.eval()
