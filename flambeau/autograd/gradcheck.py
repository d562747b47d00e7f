"""`gradcheck` and `gradgradcheck`: analytic gradients against finite differences."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .._core import hooks
from .._core.autograd.functions import grad
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from .forward_ad import dual_level, make_dual, unpack_dual


class GradcheckError(RuntimeError):
    """The analytic and the numerical gradient differ."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _array(t: Tensor) -> Any:
    return np.array(unasked(t.detach().cpu)().tolist(), np.complex128 if t.meta.dtype.is_complex else np.float64).reshape(tuple(t.meta.shape))


def _held(x: Any) -> Any:
    """What of `x` is differentiated: a sparse tensor's values, any other itself; None for what is no tensor or needs no gradient."""
    held = getattr(x, "_value", x) if isinstance(x, Tensor) and not x.meta.plain else x
    return held if isinstance(held, Tensor) and held.node is not None else None


def _numerical(f: Any, inputs: tuple[Any, ...], which: int, eps: float, outputs: list[Tensor], places: list[int]) -> list[Any]:
    """Central differences: for each of the outputs at `places` the matrix (input elements, output elements); complex inputs give a second row an
    element, for steps along the imaginary axis.  The input is moved where it lies, as the function may hold it by another name.

    Raises AssertionError where an output's shape or type depends on values.
    """
    x: Any = _held(inputs[which]).data
    base = _array(x)
    rows: list[list[Any]] = [[] for _ in places]
    steps = (eps, 1j * eps) if x.meta.dtype.is_complex else (eps,)

    def at_once() -> list[Any]:
        made = _tuple(f(*inputs))
        for k, was in zip(places, outputs, strict=True):
            now = made[k].meta
            for what, got, want in (("shape", tuple(now.shape), tuple(was.meta.shape)), ("dtype", now.dtype, was.meta.dtype)):
                if got != want:
                    raise AssertionError(f"Expected `func` to return outputs with the same {what} when inputs are perturbed, but got {what}s {want} and {got}.")
        return [_array(made[k]) for k in places]
    for at in np.ndindex(base.shape):
        was = base[at].item()
        for h in steps:
            try:
                x[at] = was + h
                above = at_once()
                x[at] = was - h
                below = at_once()
            finally:
                x[at] = was
            for k, (p, q) in enumerate(zip(above, below, strict=True)):
                rows[k].append(((p - q) / (2 * eps)).reshape(-1))
    return [np.array(r).reshape(base.size * len(steps), max(o.meta.numel, 0)) for r, o in zip(rows, outputs, strict=True)]


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in _tuple(outputs) if isinstance(o, Tensor) and o.meta.dtype.kind in "fc"]


def _checked(inputs: tuple[Any, ...]) -> None:
    """Raises ValueError where no input requires grad, RuntimeError for one whose elements share memory; warns of types too short."""
    held = [_held(x) for x in inputs]
    if all(x is None for x in held):
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    for i, x in enumerate(held):
        if x is None:
            continue
        if x.meta.dtype.name not in ("float64", "complex128"):
            warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely fail if all the "
                          "inputs are not of double precision floating point or complex.", stacklevel=3)
        if any(step == 0 and size > 1 for size, step in zip(x.meta.shape, x.meta.strides, strict=True)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to "
                               "compute the numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck.")


def _follows_its_gradient(outputs: list[Tensor], inputs: list[Tensor], nondet_tol: float) -> None:
    """Raises GradcheckError where two backward passes differ, or one with gradients of zero does not give zeros."""
    def once(fill: float) -> list[Any]:
        return list(grad(outputs, inputs, [o.new_full(o.shape, fill) for o in outputs], retain_graph=True, allow_unused=True))
    for p, q in zip(once(1.0), once(1.0), strict=True):
        if p is not None and not np.all(np.abs(_array(p) - _array(q)) <= nondet_tol):
            raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values, "
                                 f"although analytical gradient matches numerical gradient. The tolerance for nondeterminism was {nondet_tol}.")
    if any(p is not None and np.any(_array(p) != 0) for p in once(0.0)):
        raise GradcheckError("backward not multiplied by grad_output")


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


def _forward(func: Any, inputs: tuple[Any, ...], which: int, places: list[int], batched: bool) -> list[Any]:
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
        with dual_level():
            here = [v.detach() if isinstance(v, Tensor) else v for v in inputs]
            for i, v in enumerate(inputs):
                if i == which or not batched and _held(v) is not None:
                    here[i] = make_dual(here[i], tangent if i == which else v.detach().new_zeros(v.shape))
            made = _tuple(func(*here))
            found = [unpack_dual(made[k]) for k in places]
        return [value.new_zeros(value.shape) if moved is None else moved for value, moved in found]

    def given(seed: Any) -> Any:
        return tensor(seed, dtype=x.meta.dtype, device=x.meta.device)
    if batched and len(units) > 1:
        found = [[_array(column[i]) for column in hooks.vmap(along)(given(np.stack(units)))] for i in range(len(units))]
    else:
        found = [[_array(v) for v in along(given(seed))] for seed in units]
    if not units:
        outs = _tuple(func(*inputs))
        return [np.zeros((0, outs[k].meta.numel)) for k in places]
    return [np.array([row[k].reshape(-1) for row in found]).reshape(len(units), -1) for k in range(len(places))]


def gradcheck(func: Any, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, **ignored: Any) -> bool:
    """Whether the gradients of `func(*inputs)` agree with central differences of step `eps` for every floating point input that
    requires grad (float64 is needed for the default tolerances; of a sparse input its values are moved).  Raises GradcheckError (or returns False).
    Backward passes must give the same twice (within `nondet_tol`), and zeros for gradients of zero.

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
    _checked(inputs)
    try:
        _check(func, inputs, eps, rtol, atol, nondet_tol, check_forward_ad, check_batched_forward_grad, check_backward_ad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Any, inputs: tuple[Any, ...], eps: float, rtol: float, atol: float, nondet_tol: float, forward: bool, batched: bool, backward: bool) -> None:
    """`gradcheck` of inputs that were checked.  Raises GradcheckError."""
    made = _tuple(func(*inputs))
    places = [k for k, o in enumerate(made) if isinstance(o, Tensor) and o.node is not None]
    constant = not places
    if constant:
        places = [k for k, o in enumerate(made) if isinstance(o, Tensor)]
    outputs = [made[k] for k in places]
    differentiated = [(i, _held(x)) for i, x in enumerate(inputs) if _held(x) is not None]
    for i, x in differentiated:
        numerical = _numerical(func, inputs, i, eps, outputs, places)
        if constant:
            if any(np.any(want != 0) for want in numerical):
                raise GradcheckError("Numerical gradient for function expected to be zero")
            continue
        ways: list[tuple[str, Any]] = []
        if backward:
            ways.append(("", lambda x=x: [_analytic(o, x) for o in outputs]))
        if forward:
            ways.append(("computed with forward mode ", lambda i=i: _forward(func, inputs, i, places, False)))
        if batched:
            ways.append(("computed with forward mode and vmap ", lambda i=i: _forward(func, inputs, i, places, True)))
        for way, analytic in ways:
            for k, (found, want) in enumerate(zip(analytic(), numerical, strict=True)):
                _compare(found, want, rtol, atol, f"Jacobian {way}mismatch for output {k} with respect to input {i}",
                         outputs[k].meta.dtype.is_complex, "outputs" if not way else "inputs")
    if backward and not constant:
        _follows_its_gradient(outputs, [x for _, x in differentiated], nondet_tol)


def _compare(found: Any, want: Any, rtol: float, atol: float, text: str, is_complex: bool, of: str) -> None:
    """Raises GradcheckError where the matrices differ, and says in which part of complex numbers."""
    if np.allclose(found, want, rtol, atol, equal_nan=True):
        return
    if is_complex:
        part = "real" if np.allclose(found.imag, want.imag, rtol, atol, equal_nan=True) else "imaginary"
        text = f"While considering the {part} part of complex {of} only, {text}"
    raise GradcheckError(f"{text},\nnumerical:{want}\nanalytical:{found}\n")


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
    where = [i for i, x in enumerate(inputs) if _held(x) is not None]

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
    return gradcheck(gradients, (*inputs, *given), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev)
