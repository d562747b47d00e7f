"""Large tensors, bound by memory: pointwise, reductions, rows, copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from line import Line, Work

N = 1 << 24
SQUARE = (4096, 4096)


def add(lib: Any) -> Work:
    a, b = lib.rand(N), lib.rand(N)
    return lambda: a + b


def add_out(lib: Any) -> Work:
    a, b, out = lib.rand(N), lib.rand(N), lib.empty(N)
    return lambda: lib.add(a, b, out=out)


def chain_op_by_op(lib: Any) -> Work:
    h, bias, residual = lib.rand(*SQUARE), lib.rand(SQUARE[1]), lib.rand(*SQUARE)

    def work() -> Any:
        x = h + bias
        return 0.5 * x * (1 + lib.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) + residual

    return work


def chain_as_one_formula(lib: Any) -> Work:
    h, bias, residual = lib.rand(*SQUARE), lib.rand(SQUARE[1]), lib.rand(*SQUARE)

    @lib.pointwise  # type: ignore[untyped-decorator]
    def chain(h: Any, bias: Any, residual: Any) -> Any:
        x = h + bias
        return 0.5 * x * (1 + lib.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) + residual

    return lambda: chain(h, bias, residual)


def row_op(apply: Callable[[Any, Any], Any], backward: bool) -> Callable[[Any], Work]:
    def setup(lib: Any) -> Work:
        x = lib.rand(*SQUARE, requires_grad=backward)
        if not backward:
            return lambda: apply(lib, x)
        y, gradient = apply(lib, x), lib.rand(*SQUARE)
        return lambda: lib.autograd.grad(y, x, gradient, retain_graph=True)

    return setup


def softmax(lib: Any, x: Any) -> Any:
    return lib.softmax(x, -1)


def layer_norm(lib: Any, x: Any) -> Any:
    return lib.nn.functional.layer_norm(x, (SQUARE[1],))


def on_square(work: Callable[[Any], Any]) -> Callable[[Any], Work]:
    def setup(lib: Any) -> Work:
        x = lib.rand(*SQUARE)
        return lambda: work(x)

    return setup


LINES = [
    Line("a + b, 16M", 3.0, add),
    Line("a + b, 16M, against torch's out= form", 1.0, add_out, ours=add),
    Line("bias + tanh-GELU + residual, 16M, one @pointwise formula against op by op", 20.0, chain_op_by_op,
         ours=chain_as_one_formula),
    Line("softmax, 4096x4096, forward", 1.5, row_op(softmax, backward=False)),
    Line("softmax, 4096x4096, backward", 1.5, row_op(softmax, backward=True)),
    Line("layer_norm, 4096x4096, forward", 1.5, row_op(layer_norm, backward=False)),
    Line("layer_norm, 4096x4096, backward", 1.5, row_op(layer_norm, backward=True)),
    Line("sum over all, 4096x4096", 1.0, on_square(lambda x: x.sum())),
    Line("sum over axis 0, 4096x4096", 1.0, on_square(lambda x: x.sum(0))),
    Line("sum over axis 1, 4096x4096", 1.0, on_square(lambda x: x.sum(1))),
    Line("transposed copy, 4096x4096", 1.0, on_square(lambda x: x.t().contiguous())),
]  # fmt: skip
