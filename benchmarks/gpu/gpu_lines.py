"""What is measured on a GPU: each line gives, for a library's module (torch or flambeau), the work of one repetition.

Every line has a smoke form of the same shape and a thousandth of the work, so that all of it can be tried where no GPU is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import host_cost

Work = Callable[[], Any]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Sizes(NamedTuple):
    """How large the work is."""

    copies: tuple[int, ...] = (KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
    many: int = 1 << 28  # elements of a long vector: many times what a cache holds
    rows: int = 32768  # of a matrix that is read once
    side: int = 8192  # its columns
    products: tuple[int, ...] = (4096, 8192)
    images: tuple[int, int, int] = (64, 128, 56)  # of a convolution: how many, channels, side
    heads: tuple[int, int, int, int] = (8, 16, 2048, 64)
    repeated: int = 500  # small operations
    steps: int = 20
    batch: int = 256  # of the small CNN
    gpt: tuple[int, ...] = (8, 1024, 12, 768, 12, 50304)  # batch, length, layers, width, heads, words
    resnet: tuple[int, ...] = (64, 224, 64, 3, 4, 6, 3)  # images, side, channels, blocks of each stage
    convnext: tuple[int, ...] = (64, 224, 96, 3, 3, 9, 3)


SMOKE = Sizes((KIB, MIB), 1 << 12, 256, 64, (16, 32), (2, 8, 8), (1, 2, 32, 16), 3, 2, 4, (1, 16, 1, 32, 2, 64), (1, 32, 4, 1, 1), (1, 32, 8, 1, 1))


class Line(NamedTuple):
    """target: how many times PyTorch's speed Flambeau's must at least be; None: no aim is set.  nbytes, flops: of one repetition.
    against: which limit the line has: "link up", "link down" or "memory", as measured, for `nbytes`; "bfloat16 products" and others, as its model has
    them, for `flops`; part: how much of it must be reached.  launches: how many it cannot do without; compiled: whether torch.compile is measured too.
    clock: "gpu" (events around the repetitions), "wall" (they and the wait for their end) or "host" (the calls alone)."""

    name: str
    setup: Callable[[Any], Work]
    target: float | None = None
    nbytes: int = 0
    flops: float = 0.0
    against: str = ""
    part: float | None = None
    clock: str = "gpu"
    launches: int = 1
    compiled: bool = False

    def limit(self, bounds: Mapping[str, float]) -> tuple[float, str]:
        """Seconds that no library can do without on a GPU of these bounds (a second), and what takes them; (0, "") where none is known."""
        work = self.flops if self.against.endswith("products") else self.nbytes
        takes = [(work / bounds[self.against], self.against)] if bounds.get(self.against) else []
        if bounds.get("launches"):
            takes.append((self.launches / bounds["launches"], "launches"))
        return max(takes, default=(0.0, ""))


def size(nbytes: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if nbytes >= factor:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"


def copies(s: Sizes) -> Iterator[Line]:
    for pinned in (True, False):
        for up in (True, False):
            for nbytes in s.copies:
                def setup(t: Any, pinned: bool = pinned, up: bool = up, nbytes: int = nbytes) -> Work:
                    host = t.ones(nbytes // 4)
                    if pinned:
                        host = host.pin_memory()
                    gpu = t.ones(nbytes // 4, device="cuda")
                    if up:
                        return lambda: gpu.copy_(host, non_blocking=pinned)
                    return lambda: host.copy_(gpu, non_blocking=pinned)
                large, way = nbytes >= 256 * MIB, "up" if up else "down"
                yield Line(f"{'pinned' if pinned else 'pageable'} {way} {size(nbytes)}", setup, 3.0 if large and not pinned else None, nbytes,
                           against=f"link {way}", part=(0.98 if pinned else 0.8 * 0.98) if large else None, clock="wall")


def _filled(t: Any, *shape: int, dtype: str = "float32") -> Any:
    return t.randn(*shape, device="cuda").to(getattr(t, dtype))


def _ways(t: Any, work: Work) -> list[Work]:
    """An attention by what PyTorch chooses, and by cuDNN, which it does not choose of itself; anything else has one way."""
    if t.__name__ != "torch":
        return [work]
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def by_cudnn() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return work()
    return [work, by_cudnn]


def _fastest(t: Any, ways: list[Work]) -> Work:
    """The one that takes least time."""
    took: list[tuple[float, int]] = []
    for k, way in enumerate(ways if len(ways) > 1 else ()):
        try:
            way()
            t.cuda.synchronize()
            since = time.perf_counter()
            for _ in range(5):
                way()
            t.cuda.synchronize()
            took.append((time.perf_counter() - since, k))
        except RuntimeError:  # one that this machine does not have
            pass
    return ways[min(took)[1] if took else 0]


def memory_bound(s: Sizes) -> Iterator[Line]:
    n, m, k = s.many, s.rows, s.side

    def add(t: Any) -> Work:
        a, b = _filled(t, n), _filled(t, n)
        return lambda: a + b

    def chain(t: Any) -> Work:
        a, b, c = _filled(t, m, k), _filled(t, k), _filled(t, m, k)
        return lambda: t.nn.functional.gelu(a + b, approximate="tanh") + c

    def softmax(t: Any) -> Work:
        a = _filled(t, m, k)
        return lambda: a.softmax(-1)

    def norm(t: Any) -> Work:
        a, w, b = _filled(t, m, k), _filled(t, k), _filled(t, k)
        return lambda: t.nn.functional.layer_norm(a, (k,), w, b)

    def total(t: Any) -> Work:
        a = _filled(t, n)
        return lambda: a.sum()

    def columns(t: Any) -> Work:
        a = _filled(t, m, k)
        return lambda: a.sum(0)
    all_of_it = m * k
    yield Line(f"a + b, {n} float32", add, None, 12 * n, against="memory", part=0.9)
    # three launches read or write this much; PyTorch's three do the same
    yield Line(f"bias, tanh-GELU, residual, {m}x{k}", chain, None, 28 * all_of_it, against="memory", part=0.9, launches=3, compiled=True)
    yield Line(f"softmax {m}x{k}", softmax, None, 8 * all_of_it, against="memory", part=0.9, compiled=True)
    yield Line(f"layer_norm {m}x{k}", norm, None, 8 * all_of_it, against="memory", part=0.9, compiled=True)
    yield Line(f"sum of {n}", total, None, 4 * n, against="memory", part=0.9)
    yield Line(f"sum of columns {m}x{k}", columns, None, 4 * all_of_it, against="memory", part=0.9)


def ordering(s: Sizes) -> Iterator[Line]:
    n, k = s.many // 16, s.side

    def sort(t: Any) -> Work:
        a = _filled(t, n)
        return lambda: a.sort()

    def integers(t: Any) -> Work:
        a = t.randint(0, 1000, (n,), device="cuda")
        return lambda: a.sort(stable=True)

    def rows(t: Any) -> Work:
        a = _filled(t, 4 * k, k // 4)
        return lambda: a.sort(-1)

    def topk(t: Any) -> Work:
        a = _filled(t, 64, 6 * k)
        return lambda: a.topk(min(50, k))

    def median(t: Any) -> Work:
        a = _filled(t, k, k)
        return lambda: a.median(-1)

    def masked(t: Any) -> Work:
        a = _filled(t, n)
        return lambda: a[a > 0]

    def distinct(t: Any) -> Work:
        a = t.randint(0, 1000, (n,), device="cuda")
        return lambda: a.unique(return_inverse=True)

    def found(t: Any) -> Work:
        edges, a = _filled(t, k).sort()[0], _filled(t, n)
        return lambda: t.searchsorted(edges, a)
    yield Line(f"sort of {n} float32", sort, nbytes=16 * n, against="memory")
    yield Line(f"sort of {n} int64 below 1000", integers, nbytes=24 * n, against="memory")
    yield Line(f"sort of rows, {4 * k}x{k // 4}", rows, nbytes=16 * k * k, against="memory")
    yield Line(f"top {min(50, k)} of 64x{6 * k}", topk, nbytes=4 * 64 * 6 * k, against="memory")
    yield Line(f"median of rows {k}x{k}", median, nbytes=4 * k * k, against="memory")
    yield Line(f"a[a > 0] of {n}", masked, nbytes=6 * n, against="memory")
    yield Line(f"unique of {n} int64, with inverse", distinct, nbytes=16 * n, against="memory")
    yield Line(f"searchsorted of {n} among {k}", found, nbytes=12 * n, against="memory")


def products(s: Sizes) -> Iterator[Line]:
    for n in s.products:
        for name, dtype, precision in (("bfloat16", "bfloat16", "highest"), ("float16", "float16", "highest"), ("float32", "float32", "highest"),
                                       ("TF32", "float32", "high")):
            def setup(t: Any, n: int = n, dtype: str = dtype, precision: str = precision) -> Work:
                t.set_float32_matmul_precision(precision)
                a, b = _filled(t, n, n, dtype=dtype), _filled(t, n, n, dtype=dtype)
                return lambda: a @ b
            yield Line(f"matmul {name} {n}", setup, 0.98, flops=2.0 * n ** 3, against=f"{name} products")


def layers(s: Sizes) -> Iterator[Line]:
    count, channels, side = s.images
    b, h, length, depth = s.heads

    def convolution(t: Any) -> Work:
        x, w = _filled(t, count, channels, side, side), _filled(t, channels, channels, 3, 3)
        return lambda: t.nn.functional.conv2d(x, w, padding=1)

    def convolution_trained(t: Any) -> Work:
        x, w = _filled(t, count, channels, side, side).requires_grad_(), _filled(t, channels, channels, 3, 3).requires_grad_()

        def step() -> None:
            t.nn.functional.conv2d(x, w, padding=1).sum().backward()
            x.grad = w.grad = None
        return step

    def attention(t: Any) -> Work:
        q, k, v = (_filled(t, b, h, length, depth, dtype="bfloat16") for _ in range(3))
        return _fastest(t, _ways(t, lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)))

    def attention_trained(t: Any) -> Work:
        q, k, v = (_filled(t, b, h, length, depth, dtype="bfloat16").requires_grad_() for _ in range(3))

        def step() -> None:
            t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
            q.grad = k.grad = v.grad = None
        return _fastest(t, _ways(t, step))
    conv = 2.0 * count * channels ** 2 * 9 * side ** 2
    attend = 2.0 * 2 * b * h * length ** 2 * depth / 2
    yield Line(f"conv2d 3x3, {count}x{channels}x{side}x{side}", convolution, flops=conv, against="TF32 products")
    yield Line("conv2d 3x3, with gradients", convolution_trained, flops=3 * conv, against="TF32 products")
    yield Line(f"attention bf16, {b}x{h}x{length}x{depth} causal", attention, 0.95, flops=attend, against="bfloat16 products")
    yield Line("attention bf16, with gradients", attention_trained, 0.95, flops=3.5 * attend, against="bfloat16 products")


def small(s: Sizes) -> Iterator[Line]:
    def one(t: Any) -> Work:
        a, b = _filled(t, 16, 16), _filled(t, 16, 16)

        def many() -> None:
            for _ in range(s.repeated):
                a + b
        return many

    def taped(t: Any) -> Work:
        a, b = _filled(t, 16, 16).requires_grad_(), _filled(t, 16, 16)

        def many() -> None:
            for _ in range(s.repeated):
                a * b
        return many

    def network(t: Any) -> Work:
        t.manual_seed(0)
        net = t.nn.Sequential(t.nn.Linear(32, 64), t.nn.ReLU(), t.nn.Linear(64, 10)).to("cuda")
        x, y = _filled(t, 64, 32), t.zeros(64, dtype=t.int64, device="cuda")
        steps = t.optim.SGD(net.parameters(), lr=0.01, fused=True)

        def many() -> None:
            for _ in range(s.steps):
                steps.zero_grad()
                t.nn.functional.cross_entropy(net(x), y).backward()
                steps.step()
        return many
    yield Line(f"{s.repeated} times a + b of 16x16", one, clock="wall", launches=s.repeated)
    yield Line(f"{s.repeated} times a * b of 16x16, taped", taped, clock="wall", launches=s.repeated)
    # two layers there and back, the loss there and back, and the step of the optimizer
    yield Line(f"{s.steps} steps of a small network", network, 1.3, clock="wall", launches=9 * s.steps)


def host(s: Sizes) -> Iterator[Line]:
    """What an operation costs the host, by `host_cost`."""
    for name in host_cost.NAMES:
        def setup(t: Any, name: str = name) -> Work:
            return host_cost.lines(t)[name]
        yield Line(f"host's time: {name}", setup, 1.33, clock="host")


def networks(s: Sizes) -> Iterator[Line]:
    def cnn(t: Any) -> Work:
        nn = t.nn
        t.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Flatten(), nn.Linear(32 * 7 * 7, 10)).to("cuda")
        x, y = _filled(t, s.batch, 1, 28, 28), t.zeros(s.batch, dtype=t.int64, device="cuda")
        steps = t.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=True)

        def step() -> None:
            steps.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            steps.step()
        return step

    def gpt(t: Any) -> Work:
        return _gpt(t, *s.gpt)
    batch, length, blocks, width, _, words = s.gpt
    weights = words * width + 12 * blocks * width * width
    yield Line(f"a step of the demo's CNN, {s.batch} images of 28x28", cnn, 1.0, launches=16)
    yield Line(f"a step of a GPT of {weights / 1e6:.0f}M, bf16, {batch}x{length} tokens", gpt, 0.9, flops=6.0 * weights * batch * length,
               against="bfloat16 products", compiled=True)


def _gpt(t: Any, batch: int, length: int, layers: int, width: int, heads: int, words: int) -> Work:
    f = t.nn.functional
    t.manual_seed(0)

    def weight(*shape: int) -> Any:
        return (t.randn(*shape, device="cuda") * 0.02).to(t.bfloat16).requires_grad_()

    def ones(n: int) -> Any:
        return t.ones(n, device="cuda", dtype=t.bfloat16).requires_grad_()

    def zeros(n: int) -> Any:
        return t.zeros(n, device="cuda", dtype=t.bfloat16).requires_grad_()
    embedding, places = weight(words, width), weight(length, width)
    blocks = [{"n1": ones(width), "b1": zeros(width), "qkv": weight(3 * width, width), "qkv_b": zeros(3 * width), "out": weight(width, width),
               "out_b": zeros(width), "n2": ones(width), "b2": zeros(width), "up": weight(4 * width, width), "up_b": zeros(4 * width),
               "down": weight(width, 4 * width), "down_b": zeros(width)} for _ in range(layers)]
    last, last_b = ones(width), zeros(width)
    parameters = [embedding, places, last, last_b, *[p for b in blocks for p in b.values()]]
    steps = t.optim.AdamW(parameters, lr=1e-4, fused=True, capturable=True)
    tokens = t.randint(0, words, (batch, length + 1), device="cuda")
    x0, y0 = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> None:
        x = f.embedding(x0, embedding) + places
        for b in blocks:
            h = f.layer_norm(x, (width,), b["n1"], b["b1"])
            qkv = f.linear(h, b["qkv"], b["qkv_b"]).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            a = f.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
            x = x + f.linear(a.transpose(1, 2).reshape(batch, length, width), b["out"], b["out_b"])
            h = f.layer_norm(x, (width,), b["n2"], b["b2"])
            x = x + f.linear(f.gelu(f.linear(h, b["up"], b["up_b"]), approximate="tanh"), b["down"], b["down_b"])
        logits = f.linear(f.layer_norm(x, (width,), last, last_b), embedding)
        loss = f.cross_entropy(logits.view(-1, words).float(), y0.view(-1))
        steps.zero_grad()
        loss.backward()
        steps.step()
    return step


def blocks(s: Sizes) -> Iterator[Line]:
    """A feed-forward block with each layer and its activation as one product, and as two operations: does the first serve?"""
    batch, length, _, width, _, _ = s.gpt
    # the switch keeps what it was last set to: the last is the usual one
    for kind, how in (("ReLU", "all"), ("ReLU", "none"), ("tanh-GELU", "none"), ("tanh-GELU", "exact")):
        def setup(t: Any, kind: str = kind, how: str = how) -> Work:
            nn = t.nn
            t.manual_seed(0)
            net = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU() if kind == "ReLU" else nn.GELU(approximate="tanh"),
                                nn.Linear(4 * width, width)).to("cuda", t.bfloat16)
            x = _filled(t, batch * length, width, dtype="bfloat16").requires_grad_()
            if t.__name__ != "torch":
                t.backends.cuda.matmul.fused_activations = how

            def step() -> None:
                net(x).sum().backward()
                x.grad = None
                net.zero_grad()
            return step
        yield Line(f"feed-forward with {kind}, bf16, {'two operations' if how == 'none' else 'one product'}", setup,
                   flops=3 * 2 * 8.0 * batch * length * width ** 2, against="bfloat16 products")


def all_lines(s: Sizes | None = None) -> list[Line]:
    """Dearest knowledge first: what is cut off at the end of the time is the least of it."""
    from gpu_lines_training import training
    s = s or Sizes()
    found = [*memory_bound(s), *products(s), *small(s), *networks(s), *layers(s), *training(s), *blocks(s)]
    steps = [line for line in found if line.name.startswith("a step of")]
    graphs = [line._replace(name=f"{line.name}, as a graph", setup=_as_graph(line.setup), compiled=False) for line in steps]
    compiled = [line._replace(name=f"{line.name}, compiled (torch eager)", setup=_compiled(line.setup), compiled=False) for line in steps]
    return [*found, *graphs, *compiled, *copies(s), *host(s), *ordering(s)]


def _compiled(setup: Callable[[Any], Work]) -> Callable[[Any], Work]:
    """The same work, compiled by Flambeau; PyTorch's compiler has a column of its own."""
    def made(t: Any) -> Work:
        work: Work = t.compile(setup(t)) if t.__name__ == "flambeau" else setup(t)
        return work
    return made


def _as_graph(setup: Callable[[Any], Work]) -> Callable[[Any], Work]:
    """The same work, captured once and replayed."""
    def captured(t: Any) -> Work:
        work, stream, graph = setup(t), t.cuda.Stream(), t.cuda.CUDAGraph()
        stream.wait_stream(t.cuda.current_stream())
        with t.cuda.stream(stream):
            for _ in range(3):
                work()
        t.cuda.current_stream().wait_stream(stream)
        with t.cuda.graph(graph):
            work()
        return graph.replay  # type: ignore[no-any-return]
    return captured
