"""Work bound by arithmetic: matmul, convolution, attention, and the demo's training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from line import Line, Work

ROOT = Path(__file__).resolve().parent.parent


def _amd_with_avx512() -> bool:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return False
    return "AuthenticAMD" in text and "avx512f" in text


def _has_onednn() -> bool:
    from importlib import metadata

    try:
        return bool(metadata.version("onednn-cpu-gomp"))
    except metadata.PackageNotFoundError:
        return False


MATMUL = 1.8 if _amd_with_avx512() else 1.0  # torch's own matmul runs AVX2 code on AMD
CONV = 1.0 if _has_onednn() else 0.9


def matmul(*shape: int) -> Callable[[Any], Work]:
    def setup(lib: Any) -> Work:
        a, b = lib.rand(*shape), lib.rand(*shape)
        return lambda: lib.matmul(a, b)

    return setup


def conv(n: int, channels_in: int, channels_out: int, side: int) -> Callable[[Any], Work]:
    def setup(lib: Any) -> Work:
        x = lib.rand(n, channels_in, side, side, requires_grad=channels_in > 1)  # images need no gradient
        w = lib.rand(channels_out, channels_in, 3, 3, requires_grad=True)
        b = lib.rand(channels_out, requires_grad=True)
        wanted = (x, w, b) if channels_in > 1 else (w, b)
        gradient = lib.rand(n, channels_out, side, side)
        return lambda: lib.autograd.grad(lib.nn.functional.conv2d(x, w, b, padding=1), wanted, gradient)

    return setup


def attention(t: int) -> Callable[[Any], Work]:
    def setup(lib: Any) -> Work:
        q, k, v = (lib.randn(4, 12, t, 64, requires_grad=True) for _ in range(3))
        gradient = lib.randn(4, 12, t, 64)
        attend = lib.nn.functional.scaled_dot_product_attention
        return lambda: lib.autograd.grad(attend(q, k, v), (q, k, v), gradient)

    return setup


def demo_epoch(lib: Any) -> Work:
    """The demo's own source, with the library under test in the place of its one import."""
    source = (ROOT / "flambeau" / "demo" / "learn.py").read_text()
    space: dict[str, Any] = {"__name__": "learn", "torch": lib}
    exec(compile(source.replace("import flambeau as torch\n", "\n"), "learn.py", "exec"), space)
    # run by path: on torch's side the package flambeau is not to be imported
    digits: dict[str, Any] = {"__name__": "digits", "__file__": str(ROOT / "flambeau" / "demo" / "digits.py")}
    exec(compile(Path(digits["__file__"]).read_text(), "digits.py", "exec"), digits)
    data = digits["load"]()
    learner = space["Learner"](lib.from_numpy(data.train_images), lib.from_numpy(data.train_labels), epochs=100_000)
    return lambda: learner.epoch()


LINES = [
    Line("matmul 256", MATMUL, matmul(256, 256)),
    Line("matmul 1024", MATMUL, matmul(1024, 1024)),
    Line("matmul 2048", MATMUL, matmul(2048, 2048)),
    Line("matmul, 64 batched 128x128", MATMUL, matmul(64, 128, 128)),
    Line("conv2d 3x3 forward + backward, N=8, 64x56x56", CONV, conv(8, 64, 64, 56)),
    Line("conv2d 3x3 forward + backward, N=8, 128x28x28", CONV, conv(8, 128, 128, 28)),
    Line("conv2d 3x3 forward + backward, N=64, 28x28, 1 channel in", 1.2, conv(64, 1, 32, 28)),
    Line("conv2d 3x3 forward + backward, N=64, 14x14, 32 channels in", 1.2, conv(64, 32, 64, 14)),
    Line("attention forward + backward, B4 H12 D64, T 256", 1.5, attention(256)),
    Line("attention forward + backward, B4 H12 D64, T 1024", 1.5, attention(1024)),
    Line("the demo's training epoch", 1.0, demo_epoch),
]
