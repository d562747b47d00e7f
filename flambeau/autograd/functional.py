"""Derivatives of functions of tensors: Jacobians, Hessians, and their products with vectors (torch.autograd.functional)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.autograd.functions import grad
from .._core.autograd.mode import enable_grad
from .._core.tensor import Tensor
from .duals import Level, apart
from .forward_ad import dual, parts

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _construct_standard_basis_for(tensors: Any, tensor_numels: Any) -> Any:
    """For each tensor the columns, of its type and device, that belong to its elements in an identity matrix over the elements of all."""
    from .._core import ops
    total, begins, found = sum(tensor_numels), 0, []
    for t, n in zip(tensors, tensor_numels, strict=True):
        found.append(ops.eye(total, dtype=t.dtype, device=t.device)[:, begins:begins + n])
        begins += n
    return tuple(found)


def _listed(x: Any, what: str, function: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether several were given, and all of them.  Raises TypeError for what is no tensor."""
    several = isinstance(x, (tuple, list))
    xs = tuple(x) if several else (x,)
    for i, t in enumerate(xs):
        if not isinstance(t, Tensor):
            raise TypeError(f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but "
                            + (f"the value at index {i} has type {type(t)}." if several else f"the given {what} has type {type(t)}."))
    return several, xs


def _fresh(xs: tuple[Tensor, ...], connected: bool) -> tuple[Tensor, ...]:
    """The inputs to differentiate at: apart from the user's history, or (`connected`) as views that keep it."""
    out: list[Any] = []
    for t in xs:
        x: Any = t
        out.append(x.view_as(x) if connected and x.requires_grad else apart(x).requires_grad_())
    return tuple(out)


def _like(v: Any, xs: tuple[Any, ...], function: str, what: str, several: bool) -> tuple[Any, ...]:
    """The vector `v`, checked against tensors of the same shapes; ones for a single number when it is None."""
    if v is None:
        if len(xs) != 1 or xs[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} contains a single Tensor with a single element.")
        return tuple(x.new_ones(x.shape) for x in xs)
    _, vs = _listed(v, "v", function)
    if len(vs) != len(xs):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(xs)} but got {len(vs)}." if several else
                           f"The given v should contain a single Tensor. Got a tuple of {len(vs)}.")
    for i, (a, b) in enumerate(zip(vs, xs, strict=True)):
        if tuple(a.meta.shape) != tuple(b.meta.shape):
            raise RuntimeError(f"{f'Entry {i} in ' if several else ''}v has invalid size: should be {b.size()} but got {a.size()}.")
    return vs


class _Strict:
    """What strict mode refuses: a derivative that is known to be zero, or constant where a graph of it was asked for."""

    def __init__(self, on: bool, create: bool = False) -> None:
        self.on, self.create = on, create

    def outputs(self, ys: Any) -> None:
        """Raises RuntimeError for an output without a gradient."""
        for i, y in enumerate(ys):
            if self.on and not y.requires_grad:
                raise RuntimeError(f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
                                   "differentiable manner from the input when running in strict mode.")

    def jacobian(self, slopes: Any) -> None:
        """Raises RuntimeError for a first derivative, of those on the way to a second one, that is constant."""
        for i, g in enumerate(slopes):
            if self.on and not g.requires_grad:
                raise RuntimeError("While computing the hessian, found that the jacobian of the user-provided function with respect to "
                                   f"input {i} is independent of the input. This is not allowed in strict mode.")

    def slope(self, g: Any, what: str, made: str, place: str) -> None:
        """Raises RuntimeError where `g`, the derivative of `what` in `place`, is absent, or is constant and `made`'s graph was asked for."""
        if self.on and g is None:
            raise RuntimeError(f"{what} is independent of {place}. This is not allowed in strict mode.")
        if self.on and self.create and not g.requires_grad:
            raise RuntimeError(f"The {made} of the user-provided function is independent of {place}. This is not allowed in strict mode when "
                               "create_graph=True.")


_LENIENT = _Strict(False)
_OUTPUT = "The output of the user-provided function"
_OUTPUTS = "outputs of the user-provided function"
_JACOBIAN = "The jacobian of the user-provided function"


def _slopes(ys: Any, xs: tuple[Any, ...], vs: Any, create: bool, strict: _Strict = _LENIENT, what: str = _OUTPUT, made: str = "jacobian",
            place: str = "input ") -> tuple[Any, ...]:
    """Gradients, zeros where there is no dependence (an error if `strict` minds)."""
    roots = [(y, v) for y, v in zip(ys, vs, strict=True) if y.requires_grad]
    if not roots:
        found: tuple[Any, ...] = (None,) * len(xs)
    else:
        found = grad([y for y, _ in roots], xs, [v for _, v in roots], retain_graph=True, create_graph=create, allow_unused=True)
    out = []
    for i, (g, x) in enumerate(zip(found, xs, strict=True)):
        strict.slope(g, what, made, f"{place}{i}")
        out.append(x.new_zeros(x.shape) if g is None else g)
    return tuple(out)


def _give(xs: tuple[Any, ...], several: bool, create: bool) -> Any:
    if not create:
        xs = tuple(apart(x) for x in xs)
    return xs if several else xs[0]


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The outputs of `func`, and the vector `v` times its Jacobian: of the inputs' shapes.

    strict: raise RuntimeError where an output does not depend on an input, instead of giving zeros.
    """
    with enable_grad():
        several, xs = _listed(inputs, "inputs", "vjp")
        xs = _fresh(xs, create_graph)
        many, ys = _listed(func(*xs), _OUTPUTS, "vjp")
        minds = _Strict(strict, create_graph)
        minds.outputs(ys)
        vs = _like(v, ys, "vjp", "the user-provided function returns", many)
        found = _slopes(ys, xs, vs, create_graph, minds)
    return _give(ys, many, create_graph), _give(found, several, create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The outputs of `func`, and its Jacobian times the vector `v`: of the outputs' shapes.

    By differentiating the backward pass, which is linear in the gradient it starts from.
    """
    with enable_grad():
        several, xs = _listed(inputs, "inputs", "jvp")
        xs = _fresh(xs, create_graph)
        vs = _like(v, xs, "jvp", "the input to the user-provided function", several)
        many, ys = _listed(func(*xs), _OUTPUTS, "jvp")
        found = forward(ys, xs, vs, create_graph, strict)
    return _give(ys, many, create_graph), _give(found, many, create_graph)


def forward(ys: Any, xs: tuple[Any, ...], vs: tuple[Any, ...], create: bool, strict: bool = False) -> tuple[Any, ...]:
    """The Jacobian of outputs already computed times `vs`."""
    minds = _Strict(strict, create)
    minds.outputs(ys)
    us = tuple(y.new_zeros(y.shape).requires_grad_() for y in ys)
    backs = _slopes(ys, xs, us, True, _Strict(strict))
    for i, g in enumerate(backs):
        if strict and not g.requires_grad:
            raise RuntimeError(f"{_OUTPUT} is independent of input {i}. This is not allowed in strict mode.")
    return _slopes(backs, us, vs, create, minds, "The gradient with respect to the inputs")


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The derivative of every element of the outputs in every element of the inputs: shapes output + input.

    A tuple over outputs of tuples over inputs, each level present where there are several.  vectorize: accepted; rows are
    computed one by one.  strategy: "reverse-mode" (a backward pass an output element) or "forward-mode" (a forward pass an
    input element, with tangents; needs vectorize).
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than inputs, '
                             '"forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".')
    if strategy == "forward-mode":
        where = "torch.autograd.functional.jacobian: "
        if create_graph:
            raise NotImplementedError(f'{where}`create_graph=True` and `strategy="forward-mode"` are not supported together (yet). Please either set '
                                      '`create_graph=False` or `strategy="reverse-mode"`.')
        if strict:
            raise RuntimeError(f'{where}`strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either set '
                               '`strict=False` or `strategy="reverse-mode"`.')
        if not vectorize:
            raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for `vectorize=True`.")
    if vectorize and strict:
        raise RuntimeError("torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together")
    with enable_grad():
        several, xs = _listed(inputs, "inputs", "jacobian")
        xs = _fresh(xs, create_graph)
        if strategy == "forward-mode":
            many, rows = by_columns(func, tuple(apart(x) for x in xs))
        else:
            many, ys = _listed(func(*xs), _OUTPUTS, "jacobian")
            _Strict(strict).outputs(ys)
            rows = by_rows(ys, xs, create_graph, strict)
    found = tuple(_give(row, several, create_graph) for row in rows)
    return found if many else found[0]


def _unit(t: Any, i: int) -> Any:
    one = t.new_zeros((t.numel(),))
    one[i] = 1
    return one.reshape(t.shape)


def by_rows(ys: Any, xs: tuple[Any, ...], create: bool, strict: bool = False) -> list[tuple[Any, ...]]:
    """The Jacobian of each output in each input, one backward pass an output element."""
    rows = []
    for k, y in enumerate(ys):
        minds, what = _Strict(strict, create), f"Output {k} of the user-provided function"
        each = [_slopes((y,), xs, (_unit(y.detach(), i),), create, minds, what) for i in range(y.numel())]
        rows.append(tuple(_stacked([e[j] for e in each], y, x) for j, x in enumerate(xs)))
    return rows


def _stacked(parts: list[Any], y: Any, x: Any) -> Any:
    from .._core import ops
    stack: Any = ops.stack
    if not parts:
        return x.new_zeros((*y.shape, *x.shape))
    return stack(parts).reshape((*y.shape, *x.shape))


def by_columns(func: Callable[..., Any], xs: tuple[Any, ...]) -> tuple[bool, list[tuple[Any, ...]]]:
    """Whether `func` gives several outputs, and the same, one forward pass an input element."""
    each: list[list[list[Any]]] = []  # by input, by its element, by output
    many, ys = _listed(func(*xs), _OUTPUTS, "jacobian")
    for x in xs:
        each.append([])
        for i in range(x.numel()):
            level = Level()
            try:
                _, made = _listed(func(*[dual(x, _unit(x, i), level) if z is x else z for z in xs]), _OUTPUTS, "jacobian")
                moves = [parts(y, level)[1] for y in made]
            finally:
                level.end()
            each[-1].append([y.new_zeros(y.shape) if v is None else v for v, y in zip(moves, ys, strict=True)])
    rows = []
    for k, y in enumerate(ys):
        row: list[Any] = []
        for x, elements in zip(xs, each, strict=True):
            made = _stacked([e[k] for e in elements], x, y)
            row.append(made.permute((*range(x.dim(), x.dim() + y.dim()), *range(x.dim()))))
        rows.append(tuple(row))
    return many, rows


def _scalar(func: Callable[..., Any], name: str, strict: bool) -> Callable[..., Any]:
    def call(*xs: Any) -> Any:
        many, ys = _listed(func(*xs), _OUTPUTS, name)
        _Strict(strict).outputs(ys)
        if many:
            raise RuntimeError(f"The function given to {name} should return a single Tensor")
        if ys[0].meta.numel != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
        return ys[0].squeeze()
    return call


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of a function with one output element: a tensor of shape input + input, or a tuple of tuples."""
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    several, xs = _listed(inputs, "inputs", "hessian")
    if strict and vectorize:
        raise RuntimeError("torch.autograd.functional.hessian: `strict=True` and `vectorize=True` are not supported together")
    scalar = _scalar(func, "hessian", strict)

    def first(*at: Any) -> Any:
        found = jacobian(scalar, at, create_graph=True)
        _Strict(strict).jacobian(found)
        return found
    forward = outer_jacobian_strategy == "forward-mode"
    found = jacobian(first, xs, create_graph=create_graph, strict=strict, vectorize=vectorize and forward,
                     strategy=outer_jacobian_strategy)
    return found if several else found[0][0]


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The value of a function with one output element, and its Hessian times the vector `v`."""
    return _second(func, inputs, v, create_graph, strict, "hvp")


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The value of a function with one output element, and the vector `v` times its Hessian (the same, by its symmetry)."""
    return _second(func, inputs, v, create_graph, strict, "vhp")


def _second(func: Callable[..., Any], inputs: Any, v: Any, create: bool, strict: bool, name: str) -> Any:
    with enable_grad():
        several, xs = _listed(inputs, "inputs", name)
        xs = _fresh(xs, create)
        vs = _like(v, xs, name, "the input to the user-provided function", several)
        y = _scalar(func, name, strict)(*xs)
        slopes = _slopes((y,), xs, (y.new_ones(()),), True, _Strict(strict))
        _Strict(strict).jacobian(slopes)
        found = _slopes(slopes, xs, vs, create, _Strict(strict, create), _JACOBIAN, "hessian")
    return _give((y,), False, create), _give(found, several, create)
