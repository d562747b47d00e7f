"""Lines of what trainings spend their time on besides products: rows and losses in 16 bits, random numbers, sums into places, running sums, attention with
a mask, and a step of a ResNet-50."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpu_lines import Line, Sizes, Work, _fastest, _filled, _ways


def rows(s: Sizes) -> Iterator[Line]:
    """Rows in 16 bits, and the loss over words."""
    n, m, k = s.many, s.rows, s.side
    batch, length, *_, words = s.gpt
    tokens = batch * length

    def softmax(t: Any) -> Work:
        a = _filled(t, m, k, dtype="bfloat16")
        return lambda: a.softmax(-1)

    def norm(t: Any) -> Work:
        a, w, b = (_filled(t, *shape, dtype="bfloat16") for shape in ((m, k), (k,), (k,)))
        return lambda: t.nn.functional.layer_norm(a, (k,), w, b)

    def gelu(t: Any) -> Work:
        a = _filled(t, n, dtype="bfloat16")
        return lambda: t.nn.functional.gelu(a)
    yield Line(f"softmax bf16 {m}x{k}", softmax, None, 4 * m * k, against="memory", part=0.9, compiled=True)
    yield Line(f"layer_norm bf16 {m}x{k}", norm, None, 4 * m * k, against="memory", part=0.9, compiled=True)
    yield Line(f"GELU bf16, {n}", gelu, None, 4 * n, against="memory", part=0.9)
    for name, dtype, size in (("float32", "float32", 4), ("bf16", "bfloat16", 2)):
        def loss(t: Any, dtype: str = dtype) -> Work:
            logits, at = _filled(t, tokens, words, dtype=dtype).requires_grad_(), t.randint(0, words, (tokens,), device="cuda")

            def step() -> None:
                t.nn.functional.cross_entropy(logits, at).backward()
                logits.grad = None
            return step
        # the logits are read for the loss, read again for the gradient, which is written
        yield Line(f"cross_entropy {name} {tokens}x{words}, with gradient", loss, None, 3 * size * tokens * words, against="memory", part=0.7, compiled=True)


def numbers(s: Sizes) -> Iterator[Line]:
    n = s.many

    def dropout(t: Any) -> Work:
        a = _filled(t, n, dtype="bfloat16")
        return lambda: t.nn.functional.dropout(a, 0.1, True)

    def normal(t: Any) -> Work:
        return lambda: t.randn(n, device="cuda")
    yield Line(f"dropout bf16, {n}", dropout, 1.0, 4 * n, against="memory")
    yield Line(f"randn of {n}", normal, 1.0, 4 * n, against="memory")


def places(s: Sizes) -> Iterator[Line]:
    """Sums into places, few and many, and running sums."""
    n, m, k = s.many // 16, s.rows, s.side
    batch, length, _, width, _, words = s.gpt
    tokens = batch * length
    for bins in (10, 1000, 10 ** 6):
        def added(t: Any, bins: int = bins) -> Work:
            out, at, x = t.zeros(bins, device="cuda"), t.randint(0, bins, (n,), device="cuda"), _filled(t, n)
            return lambda: out.scatter_add_(0, at, x)
        yield Line(f"scatter_add of {n} into {bins}", added, None, 12 * n + 8 * min(n, bins), against="memory")
    for hot in (False, True):
        def table(t: Any, hot: bool = hot) -> Work:
            weight, at = _filled(t, words, width).requires_grad_(), t.randint(0, min(16, words) if hot else words, (tokens,), device="cuda")
            g = _filled(t, tokens, width)

            def step() -> None:
                t.nn.functional.embedding(at, weight).backward(g)
                weight.grad = None
            return step
        # the rows are gathered and the result written; the gradient read, the table's written and its rows added to
        yield Line(f"embedding {words}x{width} of {tokens}, with gradient{', 16 hot rows' if hot else ''}", table, None,
                   4 * width * (3 * tokens + words), against="memory")
    for axis in (0, 1):
        def running(t: Any, axis: int = axis) -> Work:
            a = _filled(t, m, k)
            return lambda: a.cumsum(axis)
        yield Line(f"cumsum over axis {axis}, {m}x{k}", running, None, 8 * m * k, against="memory")


def masked_attention(s: Sizes) -> Iterator[Line]:
    b, h, length, depth = s.heads
    for masked in (False, True):
        def attention(t: Any, masked: bool = masked) -> Work:
            q, k, v = (_filled(t, b, h, length, depth, dtype="bfloat16") for _ in range(3))
            mask = (t.arange(length, device="cuda") < length - 3).expand(b, 1, length, length) if masked else None
            return _fastest(t, _ways(t, lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)))
        yield Line(f"attention bf16, {b}x{h}x{length}x{depth}, {'a mask' if masked else 'no mask'}", attention, 0.95,
                   flops=4.0 * b * h * length ** 2 * depth, against="bfloat16 products")


def resnet(s: Sizes) -> Iterator[Line]:
    batch, side, width, *depths = s.resnet

    def step_of(t: Any) -> Work:
        net = _resnet(t, width, depths)
        return _trained(t, net, _filled(t, batch, 3, side, side, dtype="bfloat16").to(memory_format=t.channels_last))
    # 4.1e9 multiplications and additions an image of 224 x 224, and twice as many for the gradients
    yield Line(f"a step of a ResNet-50, bf16, {batch} images of {side}x{side}", step_of, 0.9, flops=3 * 8.2e9 * batch * (side / 224) ** 2 * (width / 64) ** 2,
               against="bfloat16 products", compiled=True)


def _resnet(t: Any, width: int, depths: list[int]) -> Any:
    """He et al., "Deep Residual Learning for Image Recognition", table 1; the stride in the 3x3 convolution."""
    nn = t.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int, inner: int, stride: int) -> None:
            super().__init__()
            out = 4 * inner
            self.way = nn.Sequential(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
                                     nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
                                     nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out))
            self.short = nn.Identity() if channels == out and stride == 1 else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                                                                             nn.BatchNorm2d(out))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.way(x) + self.short(x))
    t.manual_seed(0)
    layers, channels = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], width
    for stage, depth in enumerate(depths):
        for k in range(depth):
            layers.append(Block(channels, width << stage, 2 if stage and not k else 1))
            channels = 4 * (width << stage)
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
    return net.to("cuda", t.bfloat16).to(memory_format=t.channels_last)


def _trained(t: Any, net: Any, x: Any) -> Work:
    """A step of a classifier of these images."""
    y = t.zeros(x.shape[0], dtype=t.int64, device="cuda")
    steps = t.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)

    def step() -> None:
        steps.zero_grad()
        t.nn.functional.cross_entropy(net(x).float(), y).backward()
        steps.step()
    return step


def convnext(s: Sizes) -> Iterator[Line]:
    """Liu et al., "A ConvNet for the 2020s", ConvNeXt-T without its drops: convolutions of one channel a group, and channels that are last in between."""
    batch, side, width, *depths = s.convnext

    def step_of(t: Any) -> Work:
        nn, f = t.nn, t.nn.functional

        class Block(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, n: int) -> None:
                super().__init__()
                self.own, self.norm = nn.Conv2d(n, n, 7, padding=3, groups=n), nn.LayerNorm(n, eps=1e-6)
                self.up, self.down, self.scale = nn.Linear(n, 4 * n), nn.Linear(4 * n, n), nn.Parameter(t.ones(n))

            def forward(self, x: Any) -> Any:
                y = self.norm(self.own(x).permute(0, 2, 3, 1))
                return x + (self.down(f.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)
        t.manual_seed(0)
        layers, before = [], 3
        for k, depth in enumerate(depths):
            layers += [nn.Conv2d(before, width << k, 2 if k else 4, 2 if k else 4), *[Block(width << k) for _ in range(depth)]]
            before = width << k
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)).to("cuda", t.bfloat16)
        return _trained(t, net, _filled(t, batch, 3, side, side, dtype="bfloat16"))
    # 4.5e9 multiplications and additions an image of 224 x 224, and twice as many for the gradients
    yield Line(f"a step of a ConvNeXt-T, bf16, {batch} images of {side}x{side}", step_of, 0.9, flops=3 * 9e9 * batch * (side / 224) ** 2 * (width / 96) ** 2,
               against="bfloat16 products")


def training(s: Sizes) -> list[Line]:
    return [*rows(s), *places(s), *numbers(s), *resnet(s), *convnext(s), *masked_attention(s)]
