"""`gradcheck` and `gradgradcheck`: analytic gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core.autograd.functions import grad
from .._core.tensor import Tensor


class GradcheckError(RuntimeError):
    """The analytic and the numerical gradient differ."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _array(t: Tensor) -> Any:
    return np.array(t.detach().cpu().tolist(), np.complex128 if t.meta.dtype.is_complex else np.float64).reshape(tuple(t.meta.shape))


def _numerical(f: Any, inputs: tuple[Any, ...], which: int, eps: float, outs: int) -> list[Any]:
    """Central differences: for each differentiable output the matrix (input elements, output elements); complex inputs give a
    second matrix for steps along the imaginary axis."""
    from .._core.ops.creation import tensor
    x = inputs[which]
    base = _array(x)
    complex_in = x.meta.dtype.is_complex
    rows: list[list[Any]] = [[] for _ in range(outs)]
    steps = (eps, 1j * eps) if complex_in else (eps,)
    for at in np.ndindex(base.shape):
        for h in steps:
            values = []
            for sign in (1, -1):
                moved = base.copy()
                moved[at] += sign * h
                t = tensor(moved, dtype=x.meta.dtype, device=x.meta.device)
                here = tuple(t if i == which else v.detach() if isinstance(v, Tensor) else v for i, v in enumerate(inputs))
                values.append([_array(o) for o in _differentiable(f(*here))])
            for k in range(outs):
                rows[k].append(((values[0][k] - values[1][k]) / (2 * eps)).reshape(-1))
    return [np.array(r).reshape(base.size * len(steps), -1) for r in rows]


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in _tuple(outputs) if isinstance(o, Tensor) and o.meta.dtype.kind in "fc"]


def _analytic(out: Tensor, x: Tensor) -> Any:
    """The matrix (input elements, output elements) of d out / d x from backward passes, rows as in `_numerical`."""
    from .._core.ops.creation import tensor
    complex_in, complex_out = x.meta.dtype.is_complex, out.meta.dtype.is_complex
    columns = []
    for at in np.ndindex(tuple(out.meta.shape)):
        parts = []
        for unit in ((1.0, 1j) if complex_out else (1.0,)):
            seed = np.zeros(tuple(out.meta.shape), np.complex128 if complex_out else np.float64)
            seed[at] = unit
            (g,) = grad(out, x, tensor(seed, dtype=out.meta.dtype, device=out.meta.device), retain_graph=True, allow_unused=True)
            parts.append(np.zeros(tuple(x.meta.shape)) if g is None else _array(g))
        # the gradient of Re(conj(seed) . out) along a real step is its real part, along an imaginary one its imaginary part
        real_steps = [p.real for p in parts]
        imag_steps = [p.imag for p in parts] if complex_in else None
        value = real_steps[0] + (1j * real_steps[1] if complex_out else 0)
        column = [value.reshape(-1)]
        if imag_steps is not None:
            column.append((imag_steps[0] + (1j * imag_steps[1] if complex_out else 0)).reshape(-1))
        columns.append(np.stack(column, 1).reshape(-1))
    return np.array(columns).T.reshape(x.meta.numel * (2 if complex_in else 1), out.meta.numel)


def gradcheck(func: Any, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, fast_mode: bool = False, **ignored: Any) -> bool:
    """Whether the gradients of `func(*inputs)` agree with central differences of step `eps` for every floating point input that
    requires grad (float64 is needed for the default tolerances).  Raises GradcheckError (or returns False)."""
    inputs = _tuple(inputs)
    if not any(isinstance(x, Tensor) and x.node is not None for x in inputs):
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    outputs = _differentiable(func(*inputs))
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor) or x.node is None:
            continue
        numerical = _numerical(func, inputs, i, eps, len(outputs))
        for k, out in enumerate(outputs):
            analytic = _analytic(out, x) if out.node is not None else np.zeros_like(numerical[k])
            if not np.allclose(analytic, numerical[k], rtol, atol, equal_nan=True):
                if not raise_exception:
                    return False
                raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input {i},\nnumerical:{numerical[k]}\n"
                                     f"analytical:{analytic}\n")
    return True


def gradgradcheck(func: Any, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  raise_exception: bool = True, **ignored: Any) -> bool:
    """`gradcheck` of the gradients of `func`, with fixed random output gradients that are differentiated too."""
    inputs = _tuple(inputs)
    outputs = _differentiable(func(*inputs))
    if grad_outputs is None:
        from .._core.ops.creation import tensor
        rng = np.random.default_rng(0)
        grad_outputs = [tensor(rng.normal(size=tuple(o.meta.shape)), dtype=o.meta.dtype, device=o.meta.device, requires_grad=True) for o in outputs]
    given = _tuple(grad_outputs)
    where = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.node is not None]

    def gradients(*args: Any) -> Any:
        xs, gs = list(args[:len(inputs)]), args[len(inputs):]
        for i in where:
            if xs[i].node is None:
                xs[i] = xs[i].requires_grad_()
        outs = _differentiable(func(*xs))
        kept = [(o, g) for o, g in zip(outs, gs, strict=True) if o.node is not None]
        found = grad([o for o, _ in kept], [xs[i] for i in where], [g for _, g in kept], create_graph=True, allow_unused=True,
                     materialize_grads=True)
        return tuple(found)
    return gradcheck(gradients, (*inputs, *given), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
