"""Small trainings of the usual kinds, for the kernels that they need.

A kernel belongs to a formula, element types and a way of walking memory, not to sizes.  So each program runs at a few shapes that are walked in
different ways: whole vectors and rests, one row, one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

STEPS = 2  # the first accumulates no gradient and has no momentum


def _train(model: nn.Module, batches: Iterable[tuple[Any, ...]], loss: Callable[..., Any], optimizer: Any = None) -> None:
    """Steps over all batches; a pass without gradients, and one in eval mode, as a validation has it."""
    parameters = list(model.parameters())
    optimizer = (optimizer or (lambda p: torch.optim.AdamW(p, 1e-3)))(parameters)
    for *inputs, target in batches:
        for _ in range(STEPS):
            optimizer.zero_grad()
            lost = loss(model(*inputs), target)
            lost.backward()
            optimizer.step()
            lost.item()
        model.eval()
        with torch.no_grad():
            shown = model(*inputs)
            loss(shown, target).item()
            if shown.is_floating_point() and shown.ndim == 2 and not target.is_floating_point():
                (shown.argmax(1) == target).sum().item()
                (shown.argmax(1) == target).float().mean().item()
        model.train()


def _labels(*shape: int, classes: int = 10) -> Any:
    return torch.randint(0, classes, shape)


def tensors() -> None:
    """What is written by hand."""
    for shape in ((3, 4), (33, 65), (5,), (2, 3, 4)):
        a, b = torch.rand(shape), torch.randn(shape)
        whole, mask = torch.randint(0, 9, shape), b > 0
        for x in (a + b, a - b, a * b, a / b, a + 1, 2 * a, 1 - a, 1 / (a + 1), a ** 2, a ** 0.5, -a, a.abs(), a.exp(), (a + 1).log(), a.sqrt(),
                  b.sin(), b.cos(), b.tanh(), b.sigmoid(), b.relu(), b.clamp(-1, 1), b.clamp(min=0), torch.where(mask, a, b),
                  torch.where(mask, a, torch.zeros(())), b.round(), torch.maximum(a, b), torch.minimum(a, b), a.sum(), a.mean(), a.std(), a.var(),
                  a.max(), a.min(), a.norm(), a.prod(), a.argmax(), a.cumsum(0), a.sum(0), a.mean(0), a.sum(-1), a.mean(-1), a.max(-1).values,
                  a.std(0), a.std(-1), a.argmax(-1), a.sum(-1, keepdim=True), a.softmax(-1), a.log_softmax(-1), a.logsumexp(-1), a.sort().values,
                  a.sort(descending=True).indices, a.topk(2).values, a[mask], a > b, a == b, a <= 0.5, mask & (a > 0.5), mask | (a > 0.5), ~mask,
                  mask.sum(), mask.float(), mask.any(), mask.all(), whole + 1, whole * 2, whole // 2, whole % 3, whole.sum(), whole.float(),
                  whole == 3, whole.max(), a.to(torch.float64), a.long(), a.half(), a.bfloat16(), torch.cat([a, b]), torch.stack([a, b]), a.flip(0),
                  a.roll(1, 0), torch.isnan(a), torch.isfinite(a).all(), a.median(), a.mT.contiguous() if a.ndim > 1 else a.clone(),
                  F.one_hot(whole, 9), torch.cdist(a, b) if a.ndim == 2 else a, a.unsqueeze(0).repeat(2, *[1] * a.ndim), torch.full(shape, 3.5)):
            repr(x)
        c = a.clone()
        c[0] = 1.0
        c[mask] = 0.0
        c += b
        c *= 2
        c.add_(b, alpha=-0.1).mul_(0.5).zero_()
        whole.unique()
        whole.flatten().bincount()
        a.allclose(b)
        torch.equal(a, b)
        a.tolist()
    order = torch.randperm(32)
    rows = torch.randn(33, 8)
    repr(rows[order])
    repr(rows[:, 2])
    repr(rows[1:9, ::2] + 1)
    for a, b in ((rows, torch.randn(8, 5)), (rows, torch.randn(8)), (torch.randn(3, 4, 8), torch.randn(3, 8, 5)), (torch.randn(1, 8), torch.randn(8, 1))):
        repr(a @ b)
    for x in (torch.arange(10), torch.arange(0, 1, 0.1), torch.linspace(0, 1, 11), torch.eye(3), torch.zeros(3, 3).tril(), torch.ones(3, 3).triu(1),
              torch.einsum("ij,kj->ik", rows, rows), torch.outer(rows[0], rows[1]), rows.T @ rows, torch.tensor([1, 2, 3]), torch.tensor([[1.0, 2.0]])):
        repr(x)
    w = torch.randn(8, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    for _ in range(STEPS):
        lost = ((rows @ w + bias - rows[:, 0]) ** 2).mean()
        lost.backward()
        with torch.no_grad():
            for p, g in ((w, w.grad), (bias, bias.grad)):
                assert g is not None
                p -= 0.1 * g
                g.zero_()
    x = torch.linspace(-3, 3, 200, requires_grad=True)
    y = x ** 3 - 2 * x + x.sin()
    y.sum().backward()
    torch.autograd.grad(torch.autograd.grad((x ** 3).sum(), x, create_graph=True)[0].sum(), x)


def mlp() -> None:
    """Layers of every activation; classes, numbers, one sample."""
    for act in (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Softplus):
        _train(nn.Sequential(nn.Linear(13, 32), act(), nn.Linear(32, 17), act(), nn.Linear(17, 10)),
               [(torch.randn(n, 13), _labels(n)) for n in ((32, 5, 1) if act is nn.ReLU else (32,))], F.cross_entropy)
    _train(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10), nn.LogSoftmax(dim=1)),
           [(torch.randn(n, 1, 8, 8), _labels(n)) for n in (64, 7)], F.nll_loss)
    losses: tuple[Callable[..., Any], ...] = F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss
    for loss in losses:
        _train(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1)), [(torch.randn(n, 3), torch.randn(n, 1)) for n in (33, 1)], loss)
    pairs: tuple[tuple[nn.Module, Callable[..., Any]], ...] = (nn.Identity(), F.binary_cross_entropy_with_logits), (nn.Sigmoid(), F.binary_cross_entropy)
    for head, loss in pairs:
        _train(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1), head), [(torch.randn(20, 5), _labels(20, 1, classes=2).float())], loss)
    _train(nn.Sequential(nn.Linear(5, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)), [(torch.randn(20, 5), _labels(20, classes=4))],
           lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1))
    _train(nn.Sequential(nn.Linear(5, 4), nn.LogSoftmax(-1)), [(torch.randn(20, 5), torch.rand(20, 4).softmax(-1))],
           lambda y, t: F.kl_div(y, t, reduction="batchmean"))


def optimizers() -> None:
    """Each of them, with what stands beside it in a loop."""
    o = torch.optim
    for make in (lambda p: o.SGD(p, 0.1), lambda p: o.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4), lambda p: o.SGD(p, 0.1, momentum=0.9, nesterov=True),
                 lambda p: o.Adam(p, 1e-3), lambda p: o.Adam(p, 1e-3, weight_decay=1e-2), lambda p: o.AdamW(p, 1e-3), lambda p: o.RMSprop(p, 1e-3),
                 lambda p: o.Adagrad(p, 1e-2), lambda p: o.NAdam(p, 1e-3), lambda p: o.Adamax(p, 1e-3)):
        model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
        optimizer = make(list(model.parameters()))
        schedule = o.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        for _ in range(STEPS + 1):
            optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(model(torch.randn(9, 6)), _labels(9, classes=3)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


class _Block(nn.Module):
    """A residual block."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norm_a, self.norm_b = nn.BatchNorm2d(made), nn.BatchNorm2d(made)
        self.short = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made)) if stride != 1 or given != made else nn.Identity()

    def forward(self, x: Any) -> Any:
        return F.relu(self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))) + self.short(x))


def _sgd(p: Any) -> Any:
    return torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4)


def images() -> None:
    """Convolutions that classify."""
    _train(nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120),
                         nn.ReLU(), nn.Dropout(), nn.Linear(120, 10)), [(torch.randn(n, 1, 28, 28), _labels(n)) for n in (16, 3)], F.cross_entropy)
    _train(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32),
                         nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
           [(torch.randn(n, 3, 32, 32), _labels(n)) for n in (8, 1)], F.cross_entropy)
    _train(nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(80, 10)), [(torch.randn(6, 4, 20), _labels(6))],
           F.cross_entropy)


def residual() -> None:
    """ResNets, and the depthwise blocks of small networks."""
    _train(nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), _Block(16, 16, 1), _Block(16, 32, 2),
                         nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(32, 10)), [(torch.randn(n, 3, 64, 64), _labels(n)) for n in (4, 1)],
           F.cross_entropy, _sgd)
    _train(nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False),
                         nn.BatchNorm2d(16), nn.Hardswish(), nn.Conv2d(16, 24, 1, bias=False), nn.Conv2d(24, 24, 3, 2, 1, groups=24, bias=False),
                         nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)), [(torch.randn(4, 3, 32, 32), _labels(4))], F.cross_entropy, _sgd)


def pictures() -> None:
    """Networks that make images: autoencoders, a GAN's two sides, a U-Net."""
    _train(nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.GroupNorm(4, 16), nn.SiLU(),
                         nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh()),
           [(torch.randn(4, 1, 16, 16), torch.rand(4, 1, 16, 16))], F.mse_loss, lambda p: torch.optim.Adam(p, 2e-4, betas=(0.5, 0.999)))
    _train(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                         nn.Upsample(scale_factor=2), nn.Conv2d(8, 1, 1), nn.Sigmoid()),
           [(torch.randn(2, 3, 16, 16), torch.rand(2, 1, 16, 16))], F.binary_cross_entropy)
    encode, decode = nn.Linear(64, 8), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], 1e-3)
    for _ in range(STEPS):
        x = torch.rand(12, 64)
        mean, log_var = encode(x).chunk(2, dim=1)
        made = decode(mean + torch.randn_like(mean) * torch.exp(0.5 * log_var))
        lost = F.binary_cross_entropy(made, x, reduction="sum") - 0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
        optimizer.zero_grad()
        lost.backward()
        optimizer.step()


class _Attention(nn.Module):
    """Causal attention as it is written by hand, and by the function."""

    def __init__(self, width: int, heads: int, context: int, fused: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.fused = nn.Linear(width, 3 * width), nn.Linear(width, width), heads, fused
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x: Any) -> Any:
        n, t, c = x.size()
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            score = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
            score = F.softmax(score.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
            y = self.drop(score) @ v
        return self.out(y.transpose(1, 2).contiguous().view(n, t, c))


class _Language(nn.Module):
    """A small GPT; norm: LayerNorm or RMSNorm."""

    def __init__(self, words: int, width: int, context: int, fused: bool, norm: Any) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.norm_a, self.norm_b, self.norm_c = norm(width), norm(width), norm(width)
        self.attention = _Attention(width, 4, context, fused)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU() if fused else nn.ReLU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, at: Any) -> Any:
        x = self.words(at) + self.places(torch.arange(at.shape[1]))
        x = x + self.attention(self.norm_a(x))
        return self.head(self.norm_c(x + self.mlp(self.norm_b(x))))


def language() -> None:
    """GPTs: training, and sampling."""
    for fused, norm in ((True, nn.LayerNorm), (False, nn.LayerNorm), (True, nn.RMSNorm)):
        model = _Language(65, 64, 32, fused, norm)
        _train(model, [(_labels(n, t, classes=65), _labels(n, t, classes=65)) for n, t in ((4, 32), (3, 17))],
               lambda y, t: F.cross_entropy(y.view(-1, y.size(-1)), t.view(-1)))
        text = torch.zeros((1, 1), dtype=torch.long)
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                score = model(text)[:, -1, :] / 0.8
                least = torch.topk(score, 10).values[:, [-1]]
                score[score < least] = -float("inf")
                text = torch.cat((text, torch.multinomial(F.softmax(score, dim=-1), 1)), dim=1)
            model(text)[:, -1].argmax(-1, keepdim=True)


def transformers() -> None:
    """The layers of `nn`."""
    for activation, first in (("relu", False), ("gelu", True)):
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation=activation, norm_first=first)
        _train(nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(320, 10)),
               [(torch.randn(n, 10, 32), _labels(n)) for n in (4, 1)], F.cross_entropy)
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    model(torch.randn(2, 9, 32), torch.randn(2, 7, 32), tgt_mask=mask).sum().backward()
    attention = nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(3, 6, 32)
    made, weights = attention(x, x, x, key_padding_mask=torch.arange(6).expand(3, 6) > 4)
    (made.sum() + weights.sum()).backward()


def recurrent() -> None:
    """RNN, LSTM and GRU over embeddings."""
    class Reader(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.words, self.cells, self.out = nn.Embedding(50, 16), kind(16, 24, 2, batch_first=True), nn.Linear(24, 10)

        def forward(self, at: Any) -> Any:
            return self.out(self.cells(self.words(at))[0][:, -1])
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        _train(Reader(kind), [(_labels(n, 9, classes=50), _labels(n)) for n in (6, 1)], F.cross_entropy, lambda p: torch.optim.Adam(p, 1e-3))


def narrow() -> None:
    """Training in bfloat16: by autocast, and whole."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            lost = F.cross_entropy(model(torch.randn(12, 16)), _labels(12))
        lost.backward()
        optimizer.step()
    _train(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)).bfloat16(), [(torch.randn(12, 16).bfloat16(), _labels(12))], F.cross_entropy)


GROUPS: dict[str, Callable[[], None]] = {f.__name__: f for f in (
    tensors, residual, pictures, images, language, transformers, mlp, recurrent, optimizers, narrow)}
