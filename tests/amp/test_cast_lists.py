"""The classes of autocast, operation by operation: each name of PyTorch's lists (its page "Automatic Mixed Precision package", CUDA and CPU
op-specific behaviour) is called, on its device, and its result's type looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.engine import fields
from flambeau.nn import functional as F

_MATMULS = """_addmm_activation addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d conv_transpose2d
 conv_transpose3d linear matmul mm mv prelu einsum scaled_dot_product_attention gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell
 recurrent_layer""".split()
_LOSSES = """binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss kl_div l1_loss
 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
 triplet_margin_loss ctc_loss""".split()
_CELLS = {"gru_cell", "lstm_cell"}  # on the CPU their products alone are in the lower type, beside a state that is not
LOWER = {"cuda": frozenset(_MATMULS), "cpu": frozenset(_MATMULS) - {"addmv", "addr", "mv"} - _CELLS | {"tensordot"}}
FULL = {
    "cuda": frozenset(_LOSSES + """pow acos asin cosh cdist cosine_similarity cumprod cumsum dist erfinv exp expm1 group_norm layer_norm
 log log10 log_softmax log1p log2 logsumexp norm normalize pdist prod reciprocal rms_norm rsqrt sinh softmax softmin softplus sum renorm
 tan vector_norm matrix_norm""".split()),
    "cpu": frozenset(_LOSSES + """avg_pool3d binary_cross_entropy grid_sample polar prod quantile nanquantile stft cdist trace
 view_as_complex cholesky cholesky_inverse cholesky_solve inverse lu_solve orgqr ormqr pinverse max_pool3d max_unpool2d max_unpool3d
 adaptive_avg_pool3d""".split()),
}
WIDEST = {"cuda": frozenset("addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot vdot".split()),
          "cpu": frozenset(("stack", "cat", "index_copy"))}

LOW = {"cpu": torch.bfloat16, "cuda": torch.float16}
Call = Callable[[Callable[..., Any]], Any]  # gets a function that makes positive numbers of the type asked about

CALLS: dict[str, Call] = {
    # products
    "addbmm": lambda t: torch.addbmm(t(3, 3), t(2, 3, 3), t(2, 3, 3)), "_addmm_activation": lambda t: torch._addmm_activation(t(3), t(3, 3), t(3, 3)),
    "addmm": lambda t: torch.addmm(t(3, 3), t(3, 3), t(3, 3)),
    "addmv": lambda t: torch.addmv(t(3), t(3, 3), t(3)), "addr": lambda t: torch.addr(t(3, 3), t(3), t(3)),
    "baddbmm": lambda t: torch.baddbmm(t(2, 3, 3), t(2, 3, 3), t(2, 3, 3)), "bmm": lambda t: torch.bmm(t(2, 3, 3), t(2, 3, 3)),
    "chain_matmul": lambda t: torch.chain_matmul(t(3, 3), t(3, 3), t(3, 3)), "multi_dot": lambda t: torch.linalg.multi_dot([t(3, 3), t(3, 3), t(3, 3)]),
    "conv1d": lambda t: F.conv1d(t(1, 2, 5), t(2, 2, 3)), "conv2d": lambda t: F.conv2d(t(1, 2, 5, 5), t(2, 2, 3, 3)),
    "conv3d": lambda t: F.conv3d(t(1, 2, 5, 5, 5), t(2, 2, 3, 3, 3)),
    "conv_transpose1d": lambda t: F.conv_transpose1d(t(1, 2, 5), t(2, 2, 3)), "conv_transpose2d": lambda t: F.conv_transpose2d(t(1, 2, 5, 5), t(2, 2, 3, 3)),
    "conv_transpose3d": lambda t: F.conv_transpose3d(t(1, 2, 5, 5, 5), t(2, 2, 3, 3, 3)),
    "linear": lambda t: F.linear(t(2, 3), t(4, 3), t(4)), "matmul": lambda t: t(3, 3) @ t(3, 3), "mm": lambda t: torch.mm(t(3, 3), t(3, 3)),
    "mv": lambda t: torch.mv(t(3, 3), t(3)), "prelu": lambda t: F.prelu(t(2, 3), t(3)), "einsum": lambda t: torch.einsum("ij,jk->ik", t(3, 3), t(3, 3)),
    "scaled_dot_product_attention": lambda t: F.scaled_dot_product_attention(t(1, 2, 4, 8), t(1, 2, 4, 8), t(1, 2, 4, 8)),
    "gru_cell": lambda t: _cell(torch.nn.GRUCell, t)(t(2, 3), t(2, 4)), "lstm_cell": lambda t: _cell(torch.nn.LSTMCell, t)(t(2, 3), (t(2, 4), t(2, 4)))[0],
    "recurrent_layer": lambda t: _cell(torch.nn.LSTM, t)(t(2, 1, 3))[0],
    "rnn_tanh_cell": lambda t: _cell(torch.nn.RNNCell, t)(t(2, 3), t(2, 4)),
    "rnn_relu_cell": lambda t: _cell(torch.nn.RNNCell, t, nonlinearity="relu")(t(2, 3), t(2, 4)),
    # losses
    "binary_cross_entropy_with_logits": lambda t: F.binary_cross_entropy_with_logits(t(3), t(3)),
    "cosine_embedding_loss": lambda t: F.cosine_embedding_loss(t(2, 3), t(2, 3), t(2)), "cross_entropy": lambda t: F.cross_entropy(t(2, 3), _labels(t, 2)),
    "hinge_embedding_loss": lambda t: F.hinge_embedding_loss(t(3), t(3)), "huber_loss": lambda t: F.huber_loss(t(3), t(3)),
    "kl_div": lambda t: F.kl_div(t(2, 3), t(2, 3), reduction="sum"), "l1_loss": lambda t: F.l1_loss(t(3), t(3)),
    "margin_ranking_loss": lambda t: F.margin_ranking_loss(t(3), t(3), t(3)), "mse_loss": lambda t: F.mse_loss(t(3), t(3)),
    "multilabel_margin_loss": lambda t: F.multilabel_margin_loss(t(2, 3), _labels(t, 2, 3)),
    "multi_margin_loss": lambda t: F.multi_margin_loss(t(2, 3), _labels(t, 2)), "nll_loss": lambda t: F.nll_loss(t(2, 3), _labels(t, 2)),
    "poisson_nll_loss": lambda t: F.poisson_nll_loss(t(3), t(3)), "smooth_l1_loss": lambda t: F.smooth_l1_loss(t(3), t(3)),
    "soft_margin_loss": lambda t: F.soft_margin_loss(t(3), t(3)), "triplet_margin_loss": lambda t: F.triplet_margin_loss(t(2, 3), t(2, 3), t(2, 3)),
    "ctc_loss": lambda t: F.ctc_loss(t(4, 1, 3).log(), _labels(t, 1, 2) + 1, (4,), (2,)),
    "binary_cross_entropy": lambda t: F.binary_cross_entropy(t(3) / 3, t(3) / 3),
    # what needs float32's range or digits
    **{name: (lambda t, name=name: getattr(torch, name)(t(3))) for name in
       "asin acos cosh erfinv exp expm1 log log10 log1p log2 norm reciprocal rsqrt sinh sum tan prod".split()},
    "asin": lambda t: torch.asin(t(3) / 2), "acos": lambda t: torch.acos(t(3) / 2), "erfinv": lambda t: torch.erfinv(t(3) / 3),
    "pow": lambda t: torch.pow(t(3), 2), "cdist": lambda t: torch.cdist(t(2, 3), t(2, 3)), "pdist": lambda t: F.pdist(t(4, 3)),
    "cosine_similarity": lambda t: F.cosine_similarity(t(2, 3), t(2, 3)), "cumprod": lambda t: t(3).cumprod(0), "cumsum": lambda t: t(3).cumsum(0),
    "dist": lambda t: torch.dist(t(3), t(3)), "group_norm": lambda t: F.group_norm(t(2, 4, 3), 2), "layer_norm": lambda t: F.layer_norm(t(2, 3), (3,)),
    "rms_norm": lambda t: F.rms_norm(t(2, 3), (3,)), "logsumexp": lambda t: torch.logsumexp(t(2, 3), 0),
    "log_softmax": lambda t: t(2, 3).log_softmax(1), "softmax": lambda t: t(2, 3).softmax(1), "softmin": lambda t: F.softmin(t(2, 3), 1),
    "softplus": lambda t: F.softplus(t(3)), "normalize": lambda t: F.normalize(t(2, 3)), "renorm": lambda t: torch.renorm(t(2, 3), 2, 0, 1.0),
    "vector_norm": lambda t: torch.linalg.vector_norm(t(3)), "matrix_norm": lambda t: torch.linalg.matrix_norm(t(3, 3)),
    "avg_pool3d": lambda t: F.avg_pool3d(t(1, 1, 4, 4, 4), 2), "max_pool3d": lambda t: F.max_pool3d(t(1, 1, 4, 4, 4), 2),
    "adaptive_avg_pool3d": lambda t: F.adaptive_avg_pool3d(t(1, 1, 4, 4, 4), 2), "grid_sample": lambda t: F.grid_sample(
        t(1, 1, 4, 4), t.wide(1, 2, 2, 2), align_corners=False), "max_unpool2d": lambda t: F.max_unpool2d(t(1, 1, 1, 1), _labels(t, 1, 1, 1, 1), 2),
    "max_unpool3d": lambda t: F.max_unpool3d(t(1, 1, 1, 1, 1), _labels(t, 1, 1, 1, 1, 1), 2), "quantile": lambda t: torch.quantile(t(3), 0.5),
    "nanquantile": lambda t: torch.nanquantile(t(3), 0.5), "trace": lambda t: torch.trace(t(3, 3)), "polar": lambda t: torch.polar(t(3), t(3)),
    "stft": lambda t: torch.stft(t(16), 8, return_complex=True, window=t(8)), "view_as_complex": lambda t: torch.view_as_complex(t(3, 2)),
    "cholesky": lambda t: torch.cholesky(_spd(t)), "cholesky_inverse": lambda t: torch.cholesky_inverse(_spd(t)),
    "cholesky_solve": lambda t: torch.cholesky_solve(t(3, 1), _spd(t)), "inverse": lambda t: torch.inverse(_spd(t)),
    "pinverse": lambda t: torch.pinverse(_spd(t)), "orgqr": lambda t: torch.orgqr(t(3, 3), t(3)), "ormqr": lambda t: torch.ormqr(t(3, 3), t(3), t(3, 3)),
    "lu_solve": lambda t: torch.lu_solve(t(3, 1), _spd(t), _labels(t, 3).int() + 1),
    # the widest type of the operands
    "addcdiv": lambda t: torch.addcdiv(t(3), t.wide(3), t(3)), "addcmul": lambda t: torch.addcmul(t(3), t.wide(3), t(3)),
    "atan2": lambda t: torch.atan2(t(3), t.wide(3)), "bilinear": lambda t: F.bilinear(t(2, 3), t.wide(2, 3), t(1, 3, 3)),
    "cross": lambda t: torch.cross(t(2, 3), t.wide(2, 3), dim=1), "dot": lambda t: torch.dot(t(3), t.wide(3)), "vdot": lambda t: torch.vdot(t(3), t.wide(3)),
    "index_put": lambda t: torch.index_put(t(3), (_labels(t, 1),), t.wide(1)), "scatter_add": lambda t: torch.scatter_add(t(3), 0, _labels(t, 3), t.wide(3)),
    "tensordot": lambda t: torch.tensordot(t(3, 3), t.wide(3, 3) if t.device == "cuda" else t(3, 3), 1), "stack": lambda t: torch.stack((t(3), t.wide(3))),
    "cat": lambda t: torch.cat((t(3), t.wide(3))), "index_copy": lambda t: torch.index_copy(t(3), 0, _labels(t, 1), t.wide(1)),
}


class Maker:
    """Makes numbers in [1, 2) of one type on one device; `wide` makes them in float32."""

    def __init__(self, device: str, dtype: Any) -> None:
        self.device, self.dtype = device, dtype

    def __call__(self, *shape: int) -> Any:
        return (torch.rand(*shape, device=self.device) + 1).to(self.dtype)

    def wide(self, *shape: int) -> Any:
        return torch.rand(*shape, device=self.device) + 1


def _labels(t: Any, *shape: int) -> Any:
    return torch.zeros(*shape, dtype=torch.int64, device=t.device)


def _cell(made: Any, t: Any, **options: Any) -> Any:
    return made(3, 4, **options).to(t.device, t.dtype)


def _spd(t: Any) -> Any:
    return (torch.eye(3, device=t.device) * 2).to(t.dtype)


def _all(device: str) -> list[str]:
    return sorted(LOWER[device] | FULL[device] | WIDEST[device])


def test_no_other_operation_has_a_class() -> None:
    assert set(fields.of("autocast")) <= set(_all("cpu")) | set(_all("cuda"))


def test_every_listed_name_is_called() -> None:
    assert set(_all("cpu")) | set(_all("cuda")) <= set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_result_types(name: str, where: str) -> None:
    def run(dtype: Any, enabled: bool = True) -> Any:
        with torch.autocast(where, enabled=enabled):
            return CALLS[name](Maker(where, dtype)).dtype
    low = LOW[where]

    def ask() -> None:
        if name in LOWER[where]:
            assert run(torch.float32) is low and run(torch.float32, False) is torch.float32
        elif name in FULL[where]:
            assert run(low) in (torch.float32, torch.complex64)
        elif name in WIDEST[where]:
            assert run(low) is torch.float32
        elif name == "binary_cross_entropy":
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                run(torch.float32)
        else:
            assert run(torch.float32) in (torch.float32, torch.complex64)  # unlisted: as it comes
    if where == "cuda":
        with torch.simulate(gpus=1):
            ask()
    else:
        ask()
