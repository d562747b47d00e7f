"""Steps by sparse gradients, such as those of ``nn.Embedding(..., sparse=True)``: only the rows that were used are touched."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops as _ops
from .._core.tensor import Tensor
from ..autograd import no_grad
from .optimizer import FormulaOptimizer, check_options

ops: Any = _ops


def rows(grad: Any) -> tuple[Any, Any]:
    """(the rows a sparse gradient has, each once; its values).  Raises RuntimeError for other sparse layouts than coordinates of rows."""
    if not grad.is_sparse or grad.sparse_dim() != 1:
        raise RuntimeError(f"a step by a sparse gradient needs one of rows (sparse_coo with one sparse dimension), got {grad.layout} "
                           f"with {grad.sparse_dim()} sparse dimensions")
    one = grad.detach().coalesce()
    return one._indices()[0], one._values()


def plain(p: Any, grad: Any, lr: float, maximize: bool) -> None:
    """p -= lr grad."""
    where, values = rows(grad)
    with no_grad():
        p.index_add_(0, where, values, alpha=lr if maximize else -lr)


def adagrad(p: Any, total: Any, grad: Any, rate: float, eps: float, maximize: bool) -> None:
    """total += grad²; p -= rate grad / (√total + eps)."""
    where, values = rows(grad)
    with no_grad():
        values = -values if maximize else values
        total.index_add_(0, where, values * values)
        p.index_add_(0, where, values / (total.index_select(0, where).sqrt() + eps), alpha=-rate)


class SparseAdam(FormulaOptimizer):
    """Adam for sparse gradients: the means m and v, and the parameter, change in the rows of the gradient only.

    Raises ValueError for parameters that are sparse themselves, RuntimeError in `step` for a dense gradient.
    """

    def __init__(self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False) -> None:
        check_options((("learning rate", lr, lr > 0.0), ("epsilon value", eps, eps > 0.0),
                       ("beta parameter at index 0", betas[0], 0.0 <= betas[0] < 1.0), ("beta parameter at index 1", betas[1], 0.0 <= betas[1] < 1.0)))
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [i for group in self.param_groups for i, p in enumerate(group["params"]) if getattr(p, "is_sparse", False)]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any], memo: dict[Any, Any]) -> None:
        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _update_rows(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any], memo: dict[Any, Any]) -> None:
        if not state:
            state.update(step=0.0, exp_avg=ops.zeros_like(p).detach(), exp_avg_sq=ops.zeros_like(p).detach())
        state["step"] = step = float(state["step"]) + 1.0
        where, g = rows(grad)
        beta1, beta2 = (float(b) for b in group["betas"])
        with no_grad():
            g = -g if group["maximize"] else g
            m, v = (state[k].index_select(0, where) for k in ("exp_avg", "exp_avg_sq"))
            dm, dv = (g - m) * (1.0 - beta1), (g * g - v) * (1.0 - beta2)
            state["exp_avg"].index_add_(0, where, dm)
            state["exp_avg_sq"].index_add_(0, where, dv)
            rate = float(group["lr"]) * math.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)
            p.index_add_(0, where, (m + dm) / ((v + dv).sqrt() + float(group["eps"])), alpha=-rate)
