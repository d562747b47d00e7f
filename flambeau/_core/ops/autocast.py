"""Which types operations compute in under `autocast`: the lists, and the guard that applies them.

The lists are PyTorch's (its page "Automatic Mixed Precision package", CUDA and CPU op-specific behaviour).  Each operation is told its
class as it enters the op table; while a region is open, an interpreter sees the operations that have one.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..engine.interpreters import Interpreter, pop, push
from ..engine.learned_gradients import around
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype
    from ..engine.operation import Operation

_MATMULS = """_addmm_activation addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d conv_transpose2d
 conv_transpose3d linear matmul mm mv prelu einsum scaled_dot_product_attention gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell""".split()
_LOSSES = """binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss kl_div l1_loss
 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
 triplet_margin_loss ctc_loss""".split()
_CELLS = {"gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"}
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

regions = [0]  # how many are open, over all threads
# of this context: {device type: type to lower to}, and the casts of leaves kept until the outermost region ends
current: ContextVar[dict[str, dtype] | None] = ContextVar("autocast", default=None)
kept: ContextVar[dict[int, tuple[Tensor, int, Tensor]] | None] = ContextVar("autocast_kept", default=None)


def types_of(name: str) -> Any:
    """For each kind of device, which of the lists names an operation: "lower", "full" or "widest"; None where none does."""
    found = {kind: next((word for word, names in (("lower", LOWER), ("full", FULL), ("widest", WIDEST)) if name in names[kind]), None)
             for kind in ("cpu", "cuda")}
    return found if any(found.values()) else None


class _Regions(Interpreter):
    """Open regions: sees the operations that the lists name."""

    __slots__ = ()
    apart = False

    def sees(self, operation: Operation) -> bool:
        return operation.autocast is not None

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(operation.name, function, args, kwargs)


_regions = _Regions()


class _Outside:
    """A block that is in no region."""

    def __enter__(self) -> None:
        self.token = current.set(None)

    def __exit__(self, *exc: object) -> None:
        current.reset(self.token)


around.append(_Outside)


def opened(count: int) -> None:
    """So many regions were opened (or, for a negative number, closed) in some thread."""
    before, regions[0] = regions[0], regions[0] + count
    if not before and regions[0]:
        push(_regions)
    elif before and not regions[0]:
        pop(_regions)


def under(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One call in this context's region, if it is in one."""
    state = current.get()
    if not state:
        return function(*args, **kwargs)
    tensors: list[Tensor] = []
    _collect((args, tuple(kwargs.values())), tensors)
    kind = next((t.meta.device.type for t in tensors if t.meta.device.type != "cpu"), "cpu" if tensors else "")
    lower = state.get(kind)
    target: dtype | None = None
    if lower is None:
        pass
    elif name in LOWER[kind]:
        target = lower
    elif name in FULL[kind]:
        target = dtypes.float32
    elif name in WIDEST[kind]:
        for t in tensors:
            if t.meta.dtype.kind == "f":
                target = t.meta.dtype if target is None else dtypes.promote_types(target, t.meta.dtype)
    elif name == "binary_cross_entropy" and kind == "cuda":
        raise RuntimeError("torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a "
                           "sigmoid layer right before the binary cross entropy layer.\nIn this case, combine the two layers using "
                           "torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.")
    token = current.set(None)  # what an operation is made of runs as it is
    try:
        if target is None:
            return function(*args, **kwargs)
        found = target
        return function(*[_cast(a, found, kind) for a in args], **{k: v if k == "out" else _cast(v, found, kind) for k, v in kwargs.items()})
    finally:
        current.reset(token)


def _collect(x: Any, found: list[Tensor]) -> None:
    if isinstance(x, Tensor):
        found.append(x)
    elif isinstance(x, (tuple, list)):
        for y in x:
            _collect(y, found)


def _cast(x: Any, target: dtype, kind: str) -> Any:
    """Floating tensors of the device in the target type; double ones and all else as they are."""
    if isinstance(x, Tensor):
        d = x.meta.dtype
        if d is target or d.kind != "f" or d is dtypes.float64 or x.meta.device.type != kind:
            return x
        return _kept_cast(x, target)
    if type(x) in (tuple, list):
        return type(x)([_cast(y, target, kind) for y in x])
    return x


def _kept_cast(x: Tensor, target: dtype) -> Tensor:
    """The cast; that of a leaf that requires grad is done once a region, as weights are used many times."""
    from .casts import to_dtype
    casts = kept.get()
    if casts is None or x.node is None or x.node[0] != 0 or target.itemsize >= x.meta.dtype.itemsize:
        return to_dtype(x, target)
    found = casts.get(id(x))
    from ..autograd.mode import _grad
    if found is not None and found[0] is x and found[1] == x.store.version and found[2].meta.dtype is target and (found[2].node is not None) == _grad.get():
        return found[2]
    made = to_dtype(x, target)
    casts[id(x)] = (x, x.store.version, made)
    return made
