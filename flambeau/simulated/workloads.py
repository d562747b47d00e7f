"""Ten programs whose time is measured on a GPU and predicted by its model: none is among what the model's figures are measured with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Work = Callable[[], Any]


class Sizes(NamedTuple):
    """elements of one large tensor; rows of a batch; width of a layer; tokens and words of a language model; images, so many pixels high and wide."""

    elements: int = 1 << 25
    rows: int = 4096
    width: int = 1024
    tokens: int = 4096
    words: int = 32768
    images: int = 64
    pixels: int = 64


SMALL = Sizes(1 << 14, 32, 64, 64, 256, 1, 4)


def workloads(t: Any, s: Sizes) -> dict[str, Callable[[], Work]]:
    """By name, what makes a program's tensors and gives its step.  t: the library."""
    f = t.nn.functional

    def short() -> Work:
        a, b = t.ones(16, 16, device="cuda"), t.ones(16, 16, device="cuda")

        def work() -> None:
            for _ in range(50):
                a + b
        return work

    def activation() -> Work:
        x = t.zeros(s.elements, device="cuda", dtype=t.bfloat16)
        return lambda: f.gelu(x)

    def normalized() -> Work:
        x, norm = t.zeros(s.rows, s.width, device="cuda"), t.nn.LayerNorm(s.width, device="cuda")
        return lambda: norm(x)

    def batch() -> Work:
        host = t.zeros(s.rows, s.width).pin_memory()
        w = t.zeros(s.width, s.width, device="cuda")
        return lambda: (host.to("cuda", non_blocking=True) @ w).relu()

    def layers() -> Work:
        net = t.nn.Sequential(t.nn.Linear(s.width, 4 * s.width), t.nn.ReLU(), t.nn.Linear(4 * s.width, s.width)).to("cuda", t.bfloat16)
        x = t.zeros(s.rows, s.width, device="cuda", dtype=t.bfloat16)
        steps = t.optim.SGD(net.parameters(), 0.01)

        def work() -> None:
            steps.zero_grad()
            net(x).float().mean().backward()
            steps.step()
        return work

    def words() -> Work:
        table = t.zeros(s.words, s.width, device="cuda", requires_grad=True)
        at = t.arange(s.tokens, device="cuda") % s.words

        def work() -> None:
            table.grad = None
            f.embedding(at, table).sum().backward()
        return work

    def losses() -> Work:
        x = t.zeros(s.tokens, s.words, device="cuda", requires_grad=True)
        y = t.arange(s.tokens, device="cuda") % s.words

        def work() -> None:
            x.grad = None
            f.cross_entropy(x, y).backward()
        return work

    def images() -> Work:
        net = t.nn.Sequential(t.nn.Conv2d(3, 64, 3, padding=1), t.nn.ReLU(), t.nn.Conv2d(64, 64, 3, padding=1), t.nn.ReLU()).to("cuda")
        x = t.zeros(s.images, 3, s.pixels, s.pixels, device="cuda")

        def work() -> None:
            net.zero_grad()
            net(x).mean().backward()
        return work

    def updates() -> Work:
        weights = [t.zeros(s.width, s.width, device="cuda", requires_grad=True) for _ in range(24)]
        for w in weights:
            w.grad = t.zeros_like(w)
        step: Work = t.optim.AdamW(weights, 1e-3, foreach=True).step
        return step

    def encoder() -> Work:
        layer = t.nn.TransformerEncoderLayer(s.width, 8, 4 * s.width, dropout=0.0, batch_first=True).to("cuda", t.bfloat16)
        x = t.zeros(4, s.tokens // 4, s.width, device="cuda", dtype=t.bfloat16)

        def work() -> None:
            layer.zero_grad()
            layer(x).float().mean().backward()
        return work

    return {"50 times a + b of 16 x 16": short, f"GELU of {s.elements} bfloat16": activation, f"LayerNorm, {s.rows} x {s.width}": normalized,
            f"a pinned batch of {s.rows} x {s.width} up, and a product": batch, f"a step of two layers of {s.width}, bfloat16": layers,
            f"embedding of {s.tokens} words, forward and back": words, f"cross-entropy, {s.tokens} x {s.words}, forward and back": losses,
            f"two convolutions of {s.images} images, forward and back": images, f"AdamW of 24 matrices of {s.width}": updates,
            f"an encoder layer of {s.width}, {s.tokens} tokens, bfloat16, forward and back": encoder}
