"""Whole models: a training step, or sentences made into vectors."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from line import Line, Work


def character_gpt(layers: int = 4, heads: int = 4, width: int = 128, context: int = 64, batch: int = 12, letters: int = 65) -> Any:
    """A step of a small GPT on characters: forward, cross-entropy, backward, clipping, AdamW."""

    def setup(lib: Any) -> Work:
        nn, F = lib.nn, lib.nn.functional

        class Block(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                b, t, c = x.shape
                q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, dim=2))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
                return x + self.down(F.gelu(self.up(self.ln2(x))))

        class Gpt(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.tokens, self.places = nn.Embedding(letters, width), nn.Embedding(context, width)
                self.blocks = nn.ModuleList([Block() for _ in range(layers)])
                self.ln = nn.LayerNorm(width)
                self.head = nn.Linear(width, letters, bias=False)
                self.head.weight = self.tokens.weight

            def forward(self, ids: Any) -> Any:
                x = self.tokens(ids) + self.places(lib.arange(ids.shape[1]))
                for block in self.blocks:
                    x = block(x)
                return self.head(self.ln(x))

        lib.manual_seed(0)
        net = Gpt()
        optimizer = lib.optim.AdamW(net.parameters(), lr=1e-3)
        ids, wanted = lib.randint(0, letters, (batch, context)), lib.randint(0, letters, (batch, context))

        def step() -> Any:
            loss = F.cross_entropy(net(ids).view(-1, letters), wanted.view(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss

        return step

    return setup


def minilm(batch: int, length: int = 32) -> Any:
    """all-MiniLM-L6-v2's shape with random weights: sentences of 32 tokens, the last quarter of the last one padding."""

    def setup(lib: Any) -> Work:
        path = Path(__file__).resolve().parent.parent / "tests" / "models" / "bert.py"
        lib.manual_seed(0)
        model = runpy.run_path(str(path))["build"](lib).eval()
        ids, mask = lib.randint(1, 30522, (batch, length)), lib.ones(batch, length, dtype=lib.int64)
        mask[-1, length * 3 // 4:] = 0

        def embed() -> Any:
            with lib.inference_mode():
                return model(ids, mask)

        return embed

    return setup


def rows_of_few_features(rows: int = 4096, features: int = 64, hidden: int = 256) -> Any:
    """A training step of a small network on many rows: its activations weigh as much as its products."""
    def setup(lib: Any) -> Work:
        nn = lib.nn
        lib.manual_seed(0)
        net = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        steps = lib.optim.SGD(net.parameters(), lr=0.01)
        x, y = lib.randn(rows, features), lib.zeros(rows, dtype=lib.int64)

        def step() -> None:
            steps.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            steps.step()

        return step

    return setup


def pinn(points: int = 1024, hidden: int = 64) -> Any:
    """A step of a network whose own derivatives are in its loss: the heat equation, by a gradient of a gradient."""
    def setup(lib: Any) -> Work:
        nn, grad = lib.nn, lib.autograd.grad
        lib.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        optimizer = lib.optim.Adam(net.parameters(), lr=1e-3)
        places = lib.rand(points, 2)

        def step() -> Any:
            optimizer.zero_grad()
            x = places.detach().requires_grad_()
            u = net(x)
            (du,) = grad(u.sum(), x, create_graph=True)
            (ddu,) = grad(du[:, 1].sum(), x, create_graph=True)
            loss = ((du[:, 0] - ddu[:, 1]) ** 2).mean() + (u ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return setup


def captured(setup: Any) -> Any:
    """The same step, captured and replayed."""
    return lambda lib: lib.capture(setup(lib))


def compiled(setup: Any) -> Any:
    """The same step, compiled."""
    return lambda lib: lib.compile(setup(lib))


LINES = [
    Line("a training step of an MLP (64-256-256-10, 4096 rows)", 1.0, rows_of_few_features()),
    Line("a training step of a character GPT (4 layers of 128, 12 x 64 letters)", 1.0, character_gpt()),
    Line("the same GPT's step: torch eager, ours captured", 2.8, character_gpt(), ours=captured(character_gpt())),
    Line("the same GPT's step: torch eager, ours compiled", 2.8, character_gpt(), ours=compiled(character_gpt())),
    Line("the same GPT's step: both compiled (torch needs a C++ compiler)", 2.8, compiled(character_gpt())),
    Line("a PINN's step (2-64-64-1, 1024 points, a gradient of a gradient)", 1.0, pinn()),
    Line("the same PINN's step: torch eager, ours captured", 3.0, pinn(), ours=captured(pinn())),
    Line("the same PINN's step: torch eager, ours compiled", 3.0, pinn(), ours=compiled(pinn())),
    Line("MiniLM, 1 sentence of 32 tokens", 1.0, minilm(1)),
    Line("MiniLM, 32 sentences of 32 tokens", 1.0, minilm(32)),
]
