"""Calls whose shapes never come twice (a token more each step, a smaller last batch, random crops), beside PyTorch.

    python -m benchmarks.new_shapes [--only WORD] [--steady] [--count 120]

Each line is one class of calls.  Every call has a shape that no call of its class had before; both libraries are given the same shapes in turn, one
thread, and the least of the medians of four blocks of calls is printed, in microseconds a call, with the share of PyTorch's speed.
--steady: one shape instead, after it is warm.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _lines(T: Any) -> dict[str, tuple[Callable[[int], Any], Callable[..., Any]]]:
    """By name: operands of a size, and the call on them."""
    F = T.nn.functional

    def rows(*shape: int, grad: bool = False) -> Callable[[int], Any]:
        return lambda n: (T.ones(*[n if s < 0 else s for s in shape]).requires_grad_(grad), n)

    def both(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            made = f(*given)
            made.sum().backward() if made.dim() else made.backward()
        return run

    w, b, v = T.ones(16, 16), T.ones(16), T.ones(16, requires_grad=True)
    wg = T.ones(16, 16, requires_grad=True)
    table = T.ones(50, 16)
    forward: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
        "x + x": ((-1, 16), lambda x, n: x + x),
        "exp": ((-1, 16), lambda x, n: x.exp()),
        "x + b": ((-1, 16), lambda x, n: x + b),
        "x * column": ((-1, 16), lambda x, n: x * x[:, :1]),
        "x.T + x.T": ((-1, 16), lambda x, n: x.T + x.T),
        "sum": ((-1, 16), lambda x, n: x.sum()),
        "sum(0)": ((-1, 16), lambda x, n: x.sum(0)),
        "sum(-1)": ((-1, 16), lambda x, n: x.sum(-1)),
        "mean(1, keepdim)": ((4, -1, 16), lambda x, n: x.mean(1, keepdim=True)),
        "var(-1)": ((-1, 16), lambda x, n: x.var(-1)),
        "amax(0)": ((-1, 16), lambda x, n: x.amax(0)),
        "max(-1)": ((4, -1), lambda x, n: x.max(-1)),
        "argmax(-1)": ((4, -1), lambda x, n: x.argmax(-1)),
        "cumsum(-1)": ((4, -1), lambda x, n: x.cumsum(-1)),
        "softmax(-1)": ((4, -1), lambda x, n: x.softmax(-1)),
        "log_softmax(-1)": ((-1, 16), lambda x, n: x.log_softmax(-1)),
        "layer_norm": ((-1, 16), lambda x, n: F.layer_norm(x, (16,), b, b)),
        "rms_norm": ((-1, 16), lambda x, n: F.rms_norm(x, (16,), b)),
        "linear": ((-1, 16), lambda x, n: F.linear(x, w, b)),
        "linear 3d": ((2, -1, 16), lambda x, n: F.linear(x, w, b)),
        "x @ w": ((-1, 16), lambda x, n: x @ w),
        "x @ x.T": ((-1, 16), lambda x, n: x @ x.T),
        "bmm": ((2, -1, 16), lambda x, n: T.bmm(x, x.transpose(1, 2))),
        "addmm": ((-1, 16), lambda x, n: T.addmm(b, x, w)),
        "cat": ((-1, 16), lambda x, n: T.cat((x, x))),
        "cat(1)": ((-1, 16), lambda x, n: T.cat((x, x), 1)),
        "stack": ((-1, 16), lambda x, n: T.stack((x, x))),
        "view": ((-1, 16), lambda x, n: x.view(-1)),
        "reshape": ((-1, 16), lambda x, n: x.reshape(n, 4, 4)),
        "transpose": ((-1, 16), lambda x, n: x.transpose(0, 1)),
        "permute": ((2, -1, 16), lambda x, n: x.permute(2, 0, 1)),
        "x[:-1]": ((-1, 16), lambda x, n: x[:-1]),
        "x[-1]": ((-1, 16), lambda x, n: x[-1]),
        "x[:, None]": ((-1, 16), lambda x, n: x[:, None]),
        "x[n-1, 2:5]": ((-1, 16), lambda x, n: x[n - 1, 2:5]),
        "expand": ((-1, 1), lambda x, n: x.expand(n, 16)),
        "unsqueeze": ((-1, 16), lambda x, n: x.unsqueeze(0)),
        "squeeze": ((-1, 1, 16), lambda x, n: x.squeeze(1)),
        "flatten": ((-1, 4, 4), lambda x, n: x.flatten(1)),
        "chunk": ((-1, 16), lambda x, n: x.chunk(2)),
        "split": ((-1, 16), lambda x, n: x.split(n - 1)),
        "narrow": ((-1, 16), lambda x, n: x.narrow(0, 1, n - 2)),
        "T.contiguous": ((-1, 16), lambda x, n: x.T.contiguous()),
        "zeros(n, 5)": ((1,), lambda x, n: T.zeros(n, 5)),
        "arange(n)": ((1,), lambda x, n: T.arange(n)),
        "rand(n)": ((1,), lambda x, n: T.rand(n)),
        "full((n,))": ((1,), lambda x, n: T.full((n,), 2.0)),
        "masked_fill": ((-1, 16), lambda x, n: x.masked_fill(x > 0, 2.0)),
        "tril": ((-1, 16), lambda x, n: x.tril()),
        "interpolate": ((1, 2, -1, 8), lambda x, n: F.interpolate(x, scale_factor=2)),
        "conv2d": ((1, 2, -1, 8), lambda x, n: F.conv2d(x, T.ones(4, 2, 3, 3), padding=1)),
        "max_pool2d": ((1, 2, -1, 8), lambda x, n: F.max_pool2d(x, 2)),
        "sort": ((-1,), lambda x, n: x.sort()),
        "topk": ((-1,), lambda x, n: x.topk(3)),
        "copy_": ((-1, 16), lambda x, n: T.empty_like(x).copy_(x)),
        "x[0] = 1": ((-1, 16), lambda x, n: x.__setitem__(0, 1.0)),
        "dropout": ((-1, 16), lambda x, n: F.dropout(x, 0.5)),
        "attention": ((1, 2, -1, 16), lambda x, n: F.scaled_dot_product_attention(x, x, x)),
    }
    found: dict[str, tuple[Callable[[int], Any], Callable[..., Any]]] = {}
    for name, (shape, f) in forward.items():
        found[name] = rows(*shape), f
    found["embedding"] = lambda n: (T.ones(n, dtype=T.int64), n), lambda i, n: F.embedding(i, table)
    found["index_select"] = lambda n: (T.ones(n, dtype=T.int64), n), lambda i, n: T.index_select(table, 0, i)
    found["gather"] = lambda n: (T.ones(n, 4), T.ones(n, 1, dtype=T.int64)), lambda x, i: x.gather(1, i)
    found["x[i]"] = lambda n: (T.ones(n, dtype=T.int64), n), lambda i, n: table[i]
    found["x[mask]"] = lambda n: (T.ones(n, 4), T.ones(n, dtype=T.bool)), lambda x, m: x[m]
    found["cross_entropy"] = lambda n: (T.ones(n, 10), T.ones(n, dtype=T.int64)), lambda x, t: F.cross_entropy(x, t)
    found["mse_loss"] = rows(-1, 16), lambda x, n: F.mse_loss(x, x)
    graded = {"x * x": ((-1, 16), lambda x, n: x * x), "gelu": ((-1, 16), lambda x, n: F.gelu(x)), "x + v": ((-1, 16), lambda x, n: x + v),
              "sum(-1)": ((-1, 16), lambda x, n: x.sum(-1)), "softmax": ((4, -1), lambda x, n: x.softmax(-1)),
              "layer_norm": ((-1, 16), lambda x, n: F.layer_norm(x, (16,), v, v)), "linear": ((-1, 16), lambda x, n: F.linear(x, wg, v)),
              "x @ w": ((-1, 16), lambda x, n: x @ wg), "bmm": ((2, -1, 16), lambda x, n: T.bmm(x, x.transpose(1, 2))),
              "cat": ((-1, 16), lambda x, n: T.cat((x, x))), "view": ((-1, 16), lambda x, n: x.view(-1)), "x[1:]": ((-1, 16), lambda x, n: x[1:]),
              "transpose": ((-1, 16), lambda x, n: x.transpose(0, 1)), "mean": ((-1, 16), lambda x, n: x.mean())}
    for name, (shape, f) in graded.items():
        found[f"grad: {name}"] = rows(*shape, grad=True), both(f)
    table_g = T.ones(50, 16, requires_grad=True)
    found["grad: embedding"] = lambda n: (T.ones(n, dtype=T.int64), n), both(lambda i, n: F.embedding(i, table_g))
    found["grad: cross_entropy"] = lambda n: (T.ones(n, 10, requires_grad=True), T.ones(n, dtype=T.int64)), both(lambda x, t: F.cross_entropy(x, t))
    return found


def _block(prepare: Callable[[int], Any], call: Callable[..., Any], sizes: list[int]) -> float:
    """The median microseconds of calls on these sizes."""
    spent = []
    for n in sizes:
        given = prepare(n)
        begin = time.perf_counter()
        call(*given)
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--steady", action="store_true")
    asked = parser.parse_args()
    import torch

    import flambeau
    torch.set_num_threads(1)
    flambeau.set_num_threads(1)
    ours, theirs = _lines(flambeau), _lines(torch)
    shares = []
    for name in ours:
        if not any(word in name for word in asked.only.split("|")):
            continue
        sizes = list(range(40, 40 + 5 * asked.count))
        if asked.steady:
            sizes = [48] * len(sizes)
        best = [1e9, 1e9]
        for k in range(5):
            block = sizes[k * asked.count:(k + 1) * asked.count]
            for side, (prepare, call) in enumerate((ours[name], theirs[name])):
                took = _block(prepare, call, block)
                if k:  # the first writes code and reads it
                    best[side] = min(best[side], took)
        shares.append(best[1] / best[0])
        print(f"{name:22s} {best[0]:9.1f} {best[1]:8.1f}  {shares[-1]:.2f}", flush=True)
    if shares:
        print(f"geometric mean {statistics.geometric_mean(shares):.2f}, below 0.3: {sum(s < 0.3 for s in shares)} of {len(shares)}")


if __name__ == "__main__":
    main()
