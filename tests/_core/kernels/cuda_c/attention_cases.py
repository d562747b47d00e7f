"""Attention on the CPU harness: operands, and what NumPy makes of them in doubles."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau._core.dtypes import bool_, dtype, float16, float32
from flambeau._core.kernels.cuda_c import Kernel
from flambeau._core.kernels.cuda_c.handwritten.attention import Attention
from tests._core.kernels.cuda_c import host

SEED, OFFSET = 0x1234567890ABCDEF, (1 << 33) + 5


def stored(x: np.ndarray, d: dtype) -> np.ndarray:
    """Numbers as they lie in memory."""
    if d is float32:
        return x.astype(np.float32)
    if d is float16:
        return x.astype(np.float16).view(np.uint16)
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


def numbers(x: np.ndarray, d: dtype) -> np.ndarray:
    """What `stored` made, as doubles."""
    if d is float32:
        return x.astype(np.float64)
    if d is float16:
        return x.view(np.float16).astype(np.float64)
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def philox(counter: np.ndarray, seed: int) -> np.ndarray:
    """The first word of Philox4x32-10 for each counter."""
    low = np.uint64(0xFFFFFFFF)
    c = [counter & low, counter >> np.uint64(32), np.zeros_like(counter), np.zeros_like(counter)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]), b & low, a >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


class Case:
    """One attention: its operands, its kernels, and what they ought to give.

    order: how operands lie: "bhld" or "blhd" (a view of (batch, length, heads, depth)); off: elements before the first.
    """

    def __init__(self, d: dtype, sizes: tuple[int, ...], mask: dtype | None = None, causal: bool = False, p: float = 0.0, scale: float = 0.3,
                 order: str = "bhld", off: int = 0, shared: int = 99 << 10, unseen: bool = False, size: float = 1.0) -> None:
        self.d, self.sizes, self.p = d, sizes, p
        batch, heads, group, length, source, depth, value_depth = sizes
        rng = np.random.default_rng(length * 1000 + source)
        key_heads = heads // group
        self.arrays: dict[str, np.ndarray] = {}
        self.starts: dict[str, int] = {}
        self.shapes = {"q": (batch, heads, length, depth), "k": (batch, key_heads, source, depth), "v": (batch, key_heads, source, value_depth),
                       "o": (batch, heads, length, value_depth), "g": (batch, heads, length, value_depth), "dq": (batch, heads, length, depth),
                       "dk": (batch, key_heads, source, depth), "dv": (batch, key_heads, source, value_depth)}
        steps: dict[str, tuple[int, ...]] = {}
        for name, (b, h, n, e) in self.shapes.items():
            steps[name] = (h * n * e, n * e, e) if order == "bhld" else (n * h * e, e, h * e)
            self.arrays[name] = stored(rng.standard_normal(b * h * n * e + off) * size, d)
            self.starts[name] = self.arrays[name].ctypes.data + off * d.itemsize
        self.off, self.steps = off, steps
        self.arrays["lse"] = np.zeros(batch * heads * length, np.float32)
        self.starts["lse"] = self.arrays["lse"].ctypes.data
        hidden = np.zeros((1, 1, length, source))
        if mask is bool_:
            seen = rng.random((batch, 1, length, source)) < 0.7
            if unseen:
                seen[:, :, ::3] = False
            self.arrays["mask"], steps["mask"] = seen.astype(np.uint8).ravel(), (length * source, 0, source)
            hidden = np.where(seen, 0.0, -np.inf)
        elif mask is not None:
            added = stored(rng.standard_normal((heads, length, source)).ravel(), mask)
            self.arrays["mask"], steps["mask"] = added, (0, length * source, source)
            hidden = numbers(added, mask).reshape(1, heads, length, source)
        if mask is not None:
            self.starts["mask"] = self.arrays["mask"].ctypes.data
        if causal:
            hidden = np.where(np.arange(source) <= np.arange(length)[:, None], hidden, -np.inf)
        self.plan = Attention(d, mask, causal, p > 0.0, sizes, scale, steps, shared)
        self.draws = [SEED, OFFSET, p] if p else []
        self._expect(hidden, scale)

    def view(self, name: str) -> np.ndarray:
        """An operand as doubles."""
        b, h, n, e = self.shapes[name]
        flat = numbers(self.arrays[name], self.d)[self.off:]
        return np.lib.stride_tricks.as_strided(flat, (b, h, n, e), [8 * s for s in (*self.steps[name], 1)])

    def _expect(self, hidden: np.ndarray, scale: float) -> None:
        batch, heads, group, length, source = self.sizes[:5]
        q, g = self.view("q"), self.view("g")
        k, v = (np.repeat(self.view(n), group, 1) for n in "kv")
        scores = q @ k.swapaxes(-1, -2) * scale + hidden
        top = scores.max(-1, keepdims=True)
        # a score's own rounding is that of its size, and its exponential shows it
        self.magnitude = max(1.0, np.abs(scores, where=np.isfinite(scores), out=np.zeros_like(scores)).max() / 16)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        total = weights.sum(-1, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        keep = np.ones((batch, heads, length, source))
        if self.p:
            counters = np.arange(keep.size, dtype=np.uint64) + np.uint64(OFFSET)
            uniform = (philox(counters, SEED) >> np.uint64(8)).astype(np.float32) * np.float32(2.0 ** -24)
            factor = np.float32(1) / (np.float32(1) - np.float32(self.p))
            keep = np.where(uniform >= np.float32(self.p), factor, np.float32(0)).astype(np.float64).reshape(keep.shape)
        with np.errstate(divide="ignore"):
            lse = np.where(total > 0, top + np.log(total), np.inf)[..., 0]
        out = (weights * keep) @ v
        slopes = (g @ v.swapaxes(-1, -2)) * keep
        slopes = weights * (slopes - (g * out).sum(-1, keepdims=True)) * scale
        parts = (batch, heads // group, group)
        self.right = {"o": out, "lse": lse, "dq": slopes @ k, "dk": (slopes.swapaxes(-1, -2) @ q).reshape(*parts, source, -1).sum(2),
                      "dv": ((weights * keep).swapaxes(-1, -2) @ g).reshape(*parts, source, -1).sum(2)}

    def kernels(self, back: bool = True) -> list[Kernel]:
        return [self.plan.forward(), *([self.plan.backward()] if back else [])]

    def launch(self, batch: host.Batch, kernel: Kernel, names: str, order: int) -> None:
        every = [*names.split(), *(["mask"] if "mask" in self.arrays else [])]
        batch.launch(kernel, [self.arrays[n] for n in every], [*(self.starts[n] for n in every), *self.draws], order)

    def check(self, batch: host.Batch, kernels: list[Kernel], orders: tuple[int, ...] = (0,)) -> None:
        """Runs the kernels in each order of threads: right results, the same to the bit."""
        before: dict[str, bytes] = {}
        made = ["o", "lse", *(["dq", "dk", "dv"] if len(kernels) > 1 else [])]
        for order in orders:
            for n in made:
                self.arrays[n].view(np.uint8)[...] = 0xFF  # NaN
            self.launch(batch, kernels[0], "o lse q k v", order)
            if len(kernels) > 1:
                self.launch(batch, kernels[1], "dq dk dv g o lse q k v", order)
            for n in made:
                same = self.arrays[n].tobytes()
                assert before.setdefault(n, same) == same, f"{n} depends on the order of threads"
        self.compare(made)

    def compare(self, made: list[str]) -> None:
        limit: Any = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[self.d.name] * self.magnitude
        for n in made:
            right = self.right[n]
            mine = self.arrays[n].reshape(right.shape).astype(np.float64) if n == "lse" else self.view(n)
            if n == "lse":
                assert (np.isinf(mine) == np.isinf(right)).all() and not np.isnan(mine).any(), n
                mine, right = mine[np.isfinite(right)], right[np.isfinite(right)]
            scale = np.abs(right).max(initial=1e-9)
            worst = np.abs(mine - right).max(initial=0.0) / scale
            assert worst <= (limit if n != "lse" else max(limit, 1e-5) / 4), f"{n} is off by {worst:.2e} of {scale:.2e}"
