"""Row programs that the tests of every renderer carry out."""

from __future__ import annotations

from flambeau._core.dtypes import dtype, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.programs import Rows


def layer_norm(d: dtype) -> Rows:
    x, w, b, n = E.input(0, d), E.input(1, d), E.input(2, d), E.scalar(0, d)
    mean = E.acc(0, d) / n
    rstd = E.rsqrt(E.acc(1, d) / n + 1e-5)
    return Rows((("reduce", "sum", x), ("reduce", "sum", (x - mean) * (x - mean)), ("row", 1, mean), ("row", 2, rstd),
                 ("map", 0, (x - mean) * rstd * w + b)), (d, d, d), (d,))


def layer_norm_backward(d: dtype) -> Rows:
    g, x, mean, rstd, w = (E.input(k, d) for k in range(5))
    n = E.scalar(0, d)
    centred = (x - mean) * rstd
    return Rows((("reduce", "sum", g * w), ("reduce", "sum", g * w * centred),
                 ("map", 0, rstd * (g * w - E.acc(0, d) / n - centred * (E.acc(1, d) / n)))), (d,) * 5, (d,))


def cross_entropy(d: dtype) -> Rows:
    """Operands: logits, targets (a number a row), logits again for the gather; loss a row, and the gradient."""
    x, target = E.input(0, d), E.input(1, int64)
    picked = E.gather(2, E.coord(0) * E.scalar(0, int64) + target, d)
    chosen = E.cast(E.compare("eq", E.coord(-1), target), d)
    loss = E.log(E.acc(1, d)) + E.acc(0, d) - picked
    return Rows((("reduce", "max", x), ("reduce", "sum", E.exp(x - E.acc(0, d))), ("row", 1, loss),
                 ("map", 0, E.exp(x - E.acc(0, d)) / E.acc(1, d) - chosen)), (d, int64, d), (int64,))
