"""A layer and the activation after it as one launch, where a GPU's library or the CPU's products have it; and the activation's gradient
with the product that the next layer's gradient is.

The tape still holds the two operations that the launch stands for, with what they save; so hooks, gradients of gradients and names
are those of the two.  Where the next layer reads the result, its node gets a fourth edge, to the node before the activation: in a plain
backward pass it sends the gradient there, past the activation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd import tape
from ..autograd.mode import _grad
from ..engine import general
from ..runtime import backend_flags, dispatch, provenance
from ..tensor import Meta, Tensor, alias, meta, new
from . import autocast, elementwise
from .table import TABLE, op

if TYPE_CHECKING:
    from ..kernels.programs import PreparedLaunch

# the switch "matmul.activations": never; those whose result is that of the two operations within its type's rounding; all
NEVER, EXACT, ALL = 0, 1, 2
# what an activation is to the table: its constants
_KINDS: dict[str, tuple[tuple[str, str], ...]] = {"relu": (), "gelu": (("approximate", "tanh"),)}
_refused: set[Any] = set()


def serves(kind: str, on_cpu: bool) -> bool:
    """Whether `linear_with_activation` may do "relu" or "gelu" (its tanh form) unasked.

    cuBLASLt's max(x, 0) is 0 for NaN, so ReLU is only done there where that is allowed; the CPU's products have no GELU.
    """
    level = backend_flags.values["matmul.activations"]
    return level != NEVER and (kind == "relu" if on_cpu else level == ALL or kind == "gelu")


def linear_with_activation(input: Tensor, weight: Tensor, bias: Tensor, kind: str, followed: bool = False, level: int | None = None) -> Tensor | None:  # noqa: A002
    """activation(input @ weight.T + bias) as one launch; None where that is not to be had, and nothing was done then.

    kind: "relu" or "gelu".  followed: the result goes to another layer.  level: instead of the switch's.
    """
    if tape.anomaly.on or provenance.enabled():
        return None
    if autocast.lower(input.meta.device.type) is not None:
        asked = (input.meta, weight.meta, bias.meta, kind)
        if asked in _refused:
            return None
        made: Tensor | None = autocast.under("linear", linear_with_activation, (input, weight, bias, kind, followed, level), {})
        if made is None:
            _refused.add(asked)
        return made
    recorded = (input.node is not None or weight.node is not None or bias.node is not None) and _grad.get()
    plan = _plan(input.meta, weight.meta, bias.meta, kind, recorded, followed, level)
    if not plan or (input.ptr | weight.ptr | bias.ptr) & plan[3]:
        return None
    om, beside_meta, product, _, info, reads_result = plan
    r = new(om)
    if beside_meta is None:
        product(r.ptr, input.ptr, weight.ptr, bias.ptr)
        beside = None
    else:
        beside = new(beside_meta)
        product(r.ptr, input.ptr, weight.ptr, bias.ptr, beside.ptr)
    if recorded:
        from .matmul import recorded_layer
        before = recorded_layer(input, weight, bias)
        kept: tuple[Any, ...] = ()
        results: tuple[Any, ...] = ()
        if kind == "gelu" and beside is not None:
            beside.node = before
            kept = (beside,)
        else:
            results = ((alias(r, om, r.ptr), 0),)
            if reads_result:
                beside = results[0][0]
        r.node = tape.node(back, (before,), (info, kept, (0,) * len(kept), results, (), kind, beside))
    return r


@general.kept
def _plan(xm: Meta, wm: Meta, bm: Meta, kind: str, recorded: bool, followed: bool, level: int | None) -> tuple[Any, ...]:
    """(the result's layout, that of what else is written for the gradient, the launch, bits that addresses may not have, how it is
    recorded, whether the gradient reads the result); () where there is none."""
    d = xm.dtype
    if not (xm.plain and wm.plain and bm.plain) or len(xm.shape) < 2 or len(wm.shape) != 2 or xm.shape[-1] != wm.shape[1]:
        return ()
    n, k = wm.shape
    if not (d is wm.dtype is bm.dtype and d.kind == "f" and xm.device is wm.device is bm.device) or tuple(bm.shape) != (n,) or bm.strides != (1,):
        return ()
    if not xm.numel or not n or not k or len(xm.shape) > 2 and not xm.contiguous:
        return ()
    rows = xm.numel // k
    steps = (k, 1) if len(xm.shape) > 2 else xm.strides
    om = meta((*xm.shape[:-1], n), None, d, xm.device)
    info = _operation(kind)._info((True,), (om,), _KINDS[kind]) if recorded else None
    made = _product(xm, rows, n, k, steps, (wm.strides[1], wm.strides[0]), "bias " + kind, bool(recorded))
    if made is not None and made.beside and kind == "relu" and not followed:
        made = None  # nobody reads the signs
    if made is None and recorded and kind == "relu":
        recorded = False
        made = _product(xm, rows, n, k, steps, (wm.strides[1], wm.strides[0]), "bias " + kind, False)
    if made is None or (backend_flags.values["matmul.activations"] if level is None else level) < (EXACT if made.exact else ALL):
        return ()
    beside = None if not made.beside else om if kind == "gelu" else meta((made.beside,), None, dtypes.uint8, xm.device)
    return om, beside, dispatch.bind(xm.device, made), made.aligned, info, recorded and not made.beside


def _product(m: Meta, rows: int, columns: int, k: int, a: tuple[int, ...], b: tuple[int, ...], epilogue: str, recorded: bool = False) -> PreparedLaunch | None:
    """A product (rows, k) (k, columns) of matrices with these steps from row to row and column to column."""
    return dispatch.product(m.device, m.dtype, rows, columns, k, (a[0], a[1], 0), (b[0], b[1], 0), (columns, 1, 0), epilogue=epilogue, recorded=recorded)


def _operation(kind: str) -> Any:
    return TABLE[kind].pointwise


def back(node: tape.Node, g: Tensor) -> Any:
    """The gradient of an activation that was done with its layer: what the operation's own is."""
    saved = node[tape.SAVED]
    node[tape.SAVED] = saved[:5]
    try:
        return elementwise._backward(node, g)
    finally:
        node[tape.SAVED] = saved


def past(node: tape.Node, g: Tensor, w: Tensor) -> Tensor | None:
    """For the node of a layer that reads what an activation gave: the gradient of what the activation was applied to, from the rows
    `g` of the layer's and its weight.  None where the gradient must pass the activation itself: somebody looks at it there, or it is
    to be recorded, or the library cannot."""
    edge = node[tape.EDGES][0]
    if edge is None or edge[tape.BACKWARD] is not back or edge[tape.EXTRA] is not None or _grad.get():
        return None
    _, _, _, results, _, kind, beside = edge[tape.SAVED]
    if beside is None or any(y.store.version != version for y, version in results):
        return None
    x = node[tape.SAVED][-1]
    plan = _gradient(g.meta, w.meta, x, kind)
    if not plan or (g.ptr | w.ptr | beside.ptr) & plan[2]:
        return None
    made = new(plan[0])
    plan[1](made.ptr, g.ptr, w.ptr, beside.ptr)
    return made


@general.kept
def _gradient(g: Meta, w: Meta, x: Meta, kind: str) -> tuple[Any, ...]:
    """(the layout of g w as a gradient of x, the launch, bits that addresses may not have); () where there is none."""
    if not (g.dtype is w.dtype is x.dtype and g.device is w.device):
        return ()
    sizes = (g.shape[0], w.shape[1], w.shape[0])
    made = _product(g, *sizes, g.strides, w.strides, kind + " gradient")
    return () if made is None else (meta(x.shape, None, x.dtype, x.device), dispatch.bind(g.device, made), made.aligned)


@op(method=False, out=True, autocast="lower")
def _addmm_activation(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False) -> Tensor:  # noqa: A002
    """relu(beta input + alpha mat1 @ mat2), or gelu of it: x Φ(x) on the CPU, its tanh form on GPUs, as PyTorch has it.

    Where a GPU's library does it in one launch (a row to add, beta and alpha 1), its max(x, 0) is 0 for NaN.
    """
    from .matmul import addmm
    on_gpu = isinstance(input, Tensor) and input.meta.device.type != "cpu"
    if beta == 1 and alpha == 1 and all(isinstance(t, Tensor) for t in (input, mat1, mat2)) and len(mat1.meta.shape) == len(mat2.meta.shape) == 2:
        made = linear_with_activation(mat1, mat2.t(), input, "gelu" if use_gelu else "relu", level=ALL)
        if made is not None:
            return made
    before = addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    consts = (("approximate", "tanh" if on_gpu else "none"),) if use_gelu else ()
    after: Tensor = _operation("gelu" if use_gelu else "relu")((before,), (), consts)
    return after
