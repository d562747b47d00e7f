"""The calls whose kernels `kernel_report.py` looks at, at the sizes at which they should be as fast as memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Line(NamedTuple):
    """setup: makes the operands on the device and gives the call; nbytes: of memory that it cannot do without; elements: what an
    instruction count is divided by."""

    name: str
    setup: Callable[[Any, Callable[..., None]], Callable[[], Any]]
    nbytes: int
    elements: int


_N = 1 << 26  # elements: 256 MiB of float32, five times what caches hold
_ROWS, _WIDE, _WORDS = 8192, 4096, 50304


def lines() -> list[Line]:
    """`setup(t, fill)`: t is the library, fill(tensor, array) writes values that a kernel's addresses depend on."""
    found: list[Line] = []

    def unary(name: str, call: Callable[[Any, Any], Any], kind: str, each: int, n: int = _N) -> None:
        def setup(t: Any, fill: Any) -> Callable[[], Any]:
            x = t.empty(n, device="cuda", dtype=getattr(t, kind))
            return lambda: call(t, x)
        found.append(Line(f"{name} {kind}", setup, each * n, n))

    def back(name: str, call: Callable[[Any, Any], Any], kind: str, shape: tuple[int, ...], each: int) -> None:
        n = _size(shape)

        def setup(t: Any, fill: Any) -> Callable[[], Any]:
            x = t.empty(*shape, device="cuda", dtype=getattr(t, kind), requires_grad=True)
            out, g = call(t, x), t.empty(*shape, device="cuda", dtype=getattr(t, kind))
            return lambda: out.backward(g, retain_graph=True, inputs=[x]) if x.grad is None else t.autograd.grad(out, x, g, retain_graph=True)
        found.append(Line(f"{name} backward {kind}", setup, each * n, n))

    def add(t: Any, fill: Any) -> Callable[[], Any]:
        x, y = (t.empty(_N, device="cuda") for _ in range(2))
        return lambda: x + y
    found.append(Line("add float32", add, 12 * _N, _N))
    unary("to bfloat16", lambda t, x: x.to(t.bfloat16), "float32", 6)
    unary("to float32", lambda t, x: x.to(t.float32), "bfloat16", 6)
    unary("exp", lambda t, x: x.exp(), "bfloat16", 4)
    unary("tanh", lambda t, x: x.tanh(), "bfloat16", 4)
    unary("gelu", lambda t, x: t.nn.functional.gelu(x), "float32", 8)
    unary("gelu", lambda t, x: t.nn.functional.gelu(x), "bfloat16", 4)
    unary("gelu tanh", lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), "bfloat16", 4)
    back("gelu", lambda t, x: t.nn.functional.gelu(x), "bfloat16", (_N,), 6)
    unary("dropout", lambda t, x: t.nn.functional.dropout(x, 0.1, True), "bfloat16", 4)
    found.append(Line("randn float32", lambda t, fill: lambda: t.randn(_N, device="cuda"), 4 * _N, _N))

    def rows(name: str, call: Callable[[Any, Any], Any], kind: str, each: int, shape: tuple[int, int] = (_ROWS, _WIDE), out: int = 0) -> None:
        def setup(t: Any, fill: Any) -> Callable[[], Any]:
            x = t.empty(*shape, device="cuda", dtype=getattr(t, kind))
            return lambda: call(t, x)
        found.append(Line(f"{name} {kind} {shape[0]} x {shape[1]}", setup, each * _size(shape) + out, _size(shape)))

    for kind, size in (("float32", 4), ("bfloat16", 2)):
        rows("softmax", lambda t, x: x.softmax(1), kind, 2 * size)

        def layer_norm(t: Any, fill: Any, kind: str = kind) -> Callable[[], Any]:
            x = t.empty(_ROWS, _WIDE, device="cuda", dtype=getattr(t, kind))
            norm = t.nn.LayerNorm(_WIDE, device="cuda", dtype=getattr(t, kind))
            return lambda: t.nn.functional.layer_norm(x, (_WIDE,), norm.weight.detach(), norm.bias.detach())
        found.append(Line(f"layer_norm {kind} {_ROWS} x {_WIDE}", layer_norm, 2 * size * _ROWS * _WIDE, _ROWS * _WIDE))

    rows("softmax", lambda t, x: x.softmax(1), "float32", 8, (2048, _WORDS))

    def cross_entropy(t: Any, fill: Any, grad: bool = False) -> Callable[[], Any]:
        x, at = t.empty(_ROWS, _WORDS, device="cuda", requires_grad=grad), t.empty(_ROWS, device="cuda", dtype=t.int64)
        fill(at, 7)
        loss = t.nn.functional.cross_entropy
        if not grad:
            return lambda: loss(x, at)
        out = loss(x, at)
        return lambda: t.autograd.grad(out, x, retain_graph=True)
    found.append(Line(f"cross_entropy float32 {_ROWS} x {_WORDS}", cross_entropy, 4 * _ROWS * _WORDS, _ROWS * _WORDS))
    found.append(Line(f"cross_entropy backward float32 {_ROWS} x {_WORDS}", lambda t, fill: cross_entropy(t, fill, True), 8 * _ROWS * _WORDS, _ROWS * _WORDS))

    rows("turned copy", lambda t, x: x.t().contiguous(), "float32", 8, (8192, 8192))
    rows("turned copy", lambda t, x: x.t().contiguous(), "bfloat16", 4, (8192, 8192))
    for axis in (0, 1):
        rows(f"sum over axis {axis}", lambda t, x, axis=axis: x.sum(axis), "float32", 4, (8192, 8192))  # type: ignore[misc]
        rows(f"cumsum over axis {axis}", lambda t, x, axis=axis: x.cumsum(axis), "float32", 8, (8192, 8192))  # type: ignore[misc]
    rows("sum", lambda t, x: x.sum(), "bfloat16", 2, (8192, 8192))

    def table(t: Any, fill: Any, hot: bool = False) -> Callable[[], Any]:
        weight = t.empty(_WORDS, 768, device="cuda", requires_grad=True)
        at = t.empty(_ROWS, device="cuda", dtype=t.int64)
        fill(at, 16 if hot else _WORDS)
        out, g = t.nn.functional.embedding(at, weight), t.empty(_ROWS, 768, device="cuda")
        return lambda: t.autograd.grad(out, weight, g, retain_graph=True)
    moved = 4 * 768 * (_ROWS + _WORDS) + 4 * 768 * _ROWS
    found.append(Line("embedding backward 50304 x 768", table, moved, _ROWS * 768))
    found.append(Line("embedding backward, 16 hot rows", lambda t, fill: table(t, fill, True), 4 * 768 * (_ROWS + _WORDS), _ROWS * 768))
    for bins in (10, 1 << 20):
        def added(t: Any, fill: Any, bins: int = bins) -> Callable[[], Any]:
            out, at, x = t.empty(bins, device="cuda"), t.empty(_SCATTERED, device="cuda", dtype=t.int64), t.empty(_SCATTERED, device="cuda")
            fill(at, bins)
            return lambda: out.scatter_add_(0, at, x)
        found.append(Line(f"scatter_add of {_SCATTERED} into {bins}", added, 12 * _SCATTERED + 8 * min(bins, _SCATTERED), _SCATTERED))
    def batch_norm(t: Any, fill: Any, back: bool = False) -> Callable[[], Any]:
        x = t.empty(*_IMAGES, device="cuda", dtype=t.bfloat16, memory_format=t.channels_last, requires_grad=back)
        layer = t.nn.BatchNorm2d(_IMAGES[1]).to("cuda", t.bfloat16)
        if not back:
            return lambda: layer(x)
        y, g = layer(x), t.empty(*_IMAGES, device="cuda", dtype=t.bfloat16, memory_format=t.channels_last)
        return lambda: t.autograd.grad(y, (x, layer.weight, layer.bias), g, retain_graph=True)
    found.append(Line("batch_norm bfloat16, channels last", batch_norm, 6 * _size(_IMAGES), _size(_IMAGES)))
    found.append(Line("batch_norm backward bfloat16, channels last", lambda t, fill: batch_norm(t, fill, True), 10 * _size(_IMAGES), _size(_IMAGES)))
    for last in (False, True):
        for kind in ("forward", "images", "weights"):
            def one(t: Any, fill: Any, last: bool = last, kind: str = kind) -> Callable[[], Any]:
                how = t.channels_last if last else t.contiguous_format
                x, w = t.empty(*_PLANES, device="cuda", dtype=t.bfloat16, memory_format=how), t.empty(96, 1, 7, 7, device="cuda", dtype=t.bfloat16)
                wanted = {"forward": (), "images": (x,), "weights": (w,)}[kind]
                for v in wanted:
                    v.requires_grad_()
                if not wanted:
                    return lambda: t.nn.functional.conv2d(x, w, padding=3, groups=96)
                out, g = t.nn.functional.conv2d(x, w, padding=3, groups=96), t.empty(*_PLANES, device="cuda", dtype=t.bfloat16, memory_format=how)
                return lambda: t.autograd.grad(out, wanted, g, retain_graph=True)
            found.append(Line(f"depthwise 7 x 7 {kind} bfloat16, channels {'last' if last else 'first'}", one, 4 * _size(_PLANES), _size(_PLANES)))
    return found


_IMAGES = (64, 256, 56, 56)
_PLANES = (4, 96, 56, 56)
_SCATTERED = 1 << 18


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for k in shape:
        n *= k
    return n
