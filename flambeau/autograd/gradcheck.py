"""`gradcheck` and `gradgradcheck`: analytic gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import hooks
from .._core.autograd.functions import grad
from .._core.tensor import Tensor
from .duals import Level
from .forward_ad import dual, parts


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
                # inputs that require grad, as the function may register hooks on them
                t = tensor(moved, dtype=x.meta.dtype, device=x.meta.device, requires_grad=True)
                here = tuple(t if i == which else v.detach().requires_grad_(v.node is not None) if isinstance(v, Tensor) else v
                             for i, v in enumerate(inputs))
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


def _forward(func: Any, inputs: tuple[Any, ...], which: int, outs: int, batched: bool) -> list[Any]:
    """The matrices of `_numerical` from tangents: one forward pass a row."""
    from .._core.ops.creation import tensor
    x = inputs[which]
    complex_in = x.meta.dtype.is_complex
    units = []
    for at in np.ndindex(tuple(x.meta.shape)):
        for step in ((1.0, 1j) if complex_in else (1.0,)):
            seed = np.zeros(tuple(x.meta.shape), np.complex128 if complex_in else np.float64)
            seed[at] = step
            units.append(seed)

    def along(tangent: Any) -> list[Any]:
        level = Level()
        try:
            here = [v.detach() if isinstance(v, Tensor) else v for v in inputs]
            here[which] = dual(here[which], tangent, level)
            found = [parts(o, level) for o in _differentiable(func(*here))]
        finally:
            level.end()
        return [value.new_zeros(value.shape) if moved is None else moved for value, moved in found]

    def given(seed: Any) -> Any:
        return tensor(seed, dtype=x.meta.dtype, device=x.meta.device)
    if batched and len(units) > 1:
        found = [[_array(column[i]) for column in hooks.vmap(along)(given(np.stack(units)))] for i in range(len(units))]
    else:
        found = [[_array(v) for v in along(given(seed))] for seed in units]
    return [np.array([row[k].reshape(-1) for row in found]).reshape(len(units), -1) for k in range(outs)]


def gradcheck(func: Any, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, **ignored: Any) -> bool:
    """Whether the gradients of `func(*inputs)` agree with central differences of step `eps` for every floating point input that
    requires grad (float64 is needed for the default tolerances).  Raises GradcheckError (or returns False).

    check_backward_ad: those of backward passes.  check_forward_ad: those of forward-mode differentiation; check_batched_forward_grad: with all
    tangents as one batch too, by `vmap`.  Raises AssertionError where nothing is asked for.
    """
    if not check_forward_ad and not check_backward_ad:
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    inputs = _tuple(inputs)
    if not any(isinstance(x, Tensor) and x.node is not None for x in inputs):
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    outputs = _differentiable(func(*inputs))
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor) or x.node is None:
            continue
        numerical = _numerical(func, inputs, i, eps, len(outputs))
        ways: list[tuple[str, list[Any]]] = []
        if check_forward_ad:
            ways.append(("computed with forward mode ", _forward(func, inputs, i, len(outputs), False)))
        if check_batched_forward_grad:
            ways.append(("computed with forward mode and vmap ", _forward(func, inputs, i, len(outputs), True)))
        if check_backward_ad:
            ways.append(("", [_analytic(o, x) if o.node is not None else np.zeros_like(n) for o, n in zip(outputs, numerical, strict=True)]))
        for way, analytic in ways:
            for k, (found, want) in enumerate(zip(analytic, numerical, strict=True)):
                if not np.allclose(found, want, rtol, atol, equal_nan=True):
                    if not raise_exception:
                        return False
                    raise GradcheckError(f"Jacobian {way}mismatch for output {k} with respect to input {i},\nnumerical:{want}\nanalytical:{found}\n")
    return True


def gradgradcheck(func: Any, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
                  check_rev_over_rev: bool = True, fast_mode: bool = False, **ignored: Any) -> bool:
    """`gradcheck` of the gradients of `func`, with fixed random output gradients that are differentiated too.

    check_rev_over_rev: by backward passes through the backward pass.  check_fwd_over_rev: by tangents through it.
    """
    if not check_fwd_over_rev and not check_rev_over_rev:
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
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
    return gradcheck(gradients, (*inputs, *given), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev)
