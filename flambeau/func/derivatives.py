"""Functions made of functions: gradients, Jacobians, Hessians, products with vectors.

Each takes derivatives of a function of tensors (in tuples, lists and dicts as one likes) by the tape.  The results have a
history only where something they depend on from outside requires a gradient, so that these nest in each other and in
ordinary backward passes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .._core import ops as _ops
from .._core.autograd import tape
from .._core.autograd.mode import enable_grad
from .._core.tensor import Tensor
from ..autograd import functional
from .batching import levels, own
from .trees import leaves, mapped, rebuild

if TYPE_CHECKING:
    from collections.abc import Callable

ops: Any = _ops


def _numbers(argnums: Any, count: int) -> tuple[int, ...]:
    wanted = argnums if isinstance(argnums, tuple) else (argnums,)
    for n in wanted:
        if not isinstance(n, int) or isinstance(n, bool):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(n)}")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    return tuple(n % count for n in wanted)


def _connected(t: Any) -> Any:
    """A tensor to differentiate in: a view that keeps the history of one that has any, else a new leaf."""
    if not isinstance(t, Tensor):
        return t
    x: Any = own(t) if levels.get() else t
    if x.meta.dtype.kind not in "fc":
        raise RuntimeError(f"only floating point and complex tensors can be differentiated in, got {x.meta.dtype}")
    return x.view_as(x) if x.node is not None else x.detach().requires_grad_()


def _reaches(roots: list[Any], own: set[int], stop: set[int]) -> bool:
    """Whether the history of `roots` goes to a leaf that is none of `own` (nodes), looking no further than `stop`."""
    stack = [t.node for t in roots if isinstance(t, Tensor) and t.node is not None]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen or id(node) in own:
            continue
        seen.add(id(node))
        if node[tape.SEQ] == 0 or id(node) in stop:
            return True
        stack.extend(e for e in node[tape.EDGES] if e is not None)
    return False


class _At:
    """A function called at given arguments, ready to be differentiated in some of them."""

    def __init__(self, func: Callable[..., Any], argnums: Any, args: tuple[Any, ...], kwargs: dict[str, Any], has_aux: bool, name: str) -> None:
        wanted = _numbers(argnums, len(args))
        self.inputs = tuple(mapped(_connected, args[i]) for i in wanted)
        self.single = not isinstance(argnums, tuple)
        full = list(args)
        for i, x in zip(wanted, self.inputs, strict=True):
            full[i] = x
        self.xs = tuple(x for x in leaves(self.inputs) if isinstance(x, Tensor))
        with enable_grad():
            made = func(*full, **kwargs)
        self.aux: Any = None
        if has_aux:
            if not isinstance(made, tuple) or len(made) != 2:
                raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
            made, self.aux = made
        self.output = made
        # a history from outside: the arguments', or that of tensors the function closes over
        fresh = {id(x.node) for x in self.xs if x.node[tape.SEQ] == 0}
        self.outer = any(x.node[tape.SEQ] for x in self.xs) or _reaches(leaves(self.output), fresh, set())

    def settle(self, value: Any) -> Any:
        """A result, without history unless there is one from outside."""
        return value if self.outer else mapped(lambda t: t.detach() if isinstance(t, Tensor) else t, value)

    def slopes(self, ys: tuple[Any, ...], vs: tuple[Any, ...]) -> tuple[Any, ...]:
        with enable_grad():
            return functional._slopes(ys, self.xs, vs, self.outer)

    def arranged(self, found: Any) -> Any:
        """Values for the differentiated tensors, in the arguments' structure."""
        made = rebuild(self.inputs, iter(found))
        return made[0] if self.single else made


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of a scalar `func` in its arguments `argnums`, and its value (with `aux`)."""
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        at = _At(func, argnums, args, kwargs, has_aux, "grad_and_value(f)(*args)")
        y = at.output
        if not isinstance(y, Tensor):
            raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(y)}")
        if y.meta.shape:
            raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor with {len(y.meta.shape)} dims.")
        any_y: Any = y
        found = at.arranged(at.slopes((y,), (any_y.new_ones(()),)))
        value = (at.settle(y), at.settle(at.aux)) if has_aux else at.settle(y)
        return at.settle(found), value
    return call


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of a scalar `func` in its arguments `argnums` (an int, or a tuple of them).

    has_aux: `func` returns (value, anything); the new function (gradient, anything).  Raises RuntimeError unless the value
    is a tensor without dimensions.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found
    return call


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(output, function from cotangents to the vectors times the Jacobian[, aux]) at `primals`."""
    at = _At(func, tuple(range(len(primals))), primals, {}, has_aux, "vjp(f, *primals)")
    ys = tuple(leaves(at.output))

    def back(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = cotangents[0] if len(cotangents) == 1 and not (isinstance(at.output, tuple) and len(at.output) == 1) else cotangents
        vs = tuple(leaves(given))
        if len(vs) != len(ys):
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function: {len(ys)} "
                               f"tensors, got {len(vs)}")
        later = at.outer or any(isinstance(v, Tensor) and v.node is not None for v in vs)
        with enable_grad():
            found = functional._slopes(ys, at.xs, vs, later)
        found = found if later else tuple(g.detach() for g in found)
        return at.arranged(found)
    result = at.settle(at.output)
    return (result, back, at.settle(at.aux)) if has_aux else (result, back)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(output, the Jacobian times `tangents`[, aux]) at the tuple `primals`; by differentiating the backward pass."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples")
    if len(leaves(primals)) != len(leaves(tangents)):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same python structure")
    at = _At(func, tuple(range(len(primals))), primals, {}, has_aux, "jvp(f, primals, tangents)")
    vs = tuple(leaves(tangents))
    later = at.outer or any(v.node is not None for v in vs)
    with enable_grad():
        found = functional.forward(tuple(leaves(at.output)), at.xs, vs, later, strict)
    made = rebuild(at.output, iter(found if later else [t.detach() for t in found]))
    result = at.settle(at.output)
    return (result, made, at.settle(at.aux)) if has_aux else (result, made)


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """(output, function from tangents to the Jacobian times them) at `primals`."""
    at = _At(func, tuple(range(len(primals))), primals, {}, False, "linearize(f, *primals)")

    def push(*tangents: Any) -> Any:
        with enable_grad():
            found = functional.forward(tuple(leaves(at.output)), at.xs, tuple(leaves(tangents)), at.outer)
        return at.settle(rebuild(at.output, iter(found)))
    return at.settle(at.output), push


def _jacobian(func: Callable[..., Any], argnums: Any, has_aux: bool, columns: bool, name: str, chunk: int | None = None,
              randomness: str = "error") -> Callable[..., Any]:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        at = _At(func, argnums, args, kwargs, has_aux, name)
        ys = tuple(leaves(at.output))
        rows = _at_once(func, at, argnums, args, kwargs, has_aux, columns, name, chunk, randomness)
        if rows is None:
            with enable_grad():
                rows = functional.by_columns(ys, at.xs, at.outer) if columns else functional.by_rows(ys, at.xs, at.outer)
        made = rebuild(at.output, iter([at.arranged(row) for row in rows]))
        return (at.settle(made), at.settle(at.aux)) if has_aux else at.settle(made)
    return call


_MOST = 1 << 25  # elements of one tensor, beyond which a Jacobian is computed in parts


def _at_once(func: Any, at: _At, argnums: Any, args: Any, kwargs: Any, has_aux: bool, columns: bool, name: str, chunk: int | None,
             randomness: str) -> Any:
    """The rows (or columns) of a Jacobian as one batch, by `vmap`: for each output those in each input.  None where there is one
    only, or where the function has no form for a batch (it asks for values, or draws random numbers)."""
    from .mapping import vmap
    ys = tuple(leaves(at.output))
    mine, others = (at.xs, ys) if columns else (ys, at.xs)
    counts = [t.numel() for t in mine]
    count = sum(counts)
    if count < 2 or not all(isinstance(y, Tensor) and y.meta.dtype.kind in "fc" for y in ys):
        return None
    if chunk is None:
        chunk = max(1, _MOST // max(1, *[t.numel() for t in (*at.xs, *ys)]))

    def one(*vectors: Any) -> Any:
        each = _At(func, argnums, args, kwargs, has_aux, name)
        outs = tuple(leaves(each.output))
        with enable_grad():
            return functional.forward(outs, each.xs, vectors, each.outer) if columns else each.slopes(outs, vectors)
    basis = []
    for t, start in zip(mine, (sum(counts[:i]) for i in range(len(counts))), strict=True):
        unit = ops.eye(count, dtype=t.meta.dtype, device=t.meta.device)[:, start:start + t.numel()]
        basis.append(unit.reshape(count, *t.shape))
    try:
        found = vmap(one, chunk_size=min(chunk, count), randomness=randomness)(*basis)
    except Exception:
        return None  # one by one: an error of the function's own comes up there too
    blocks = []
    for t, whole in zip(others, found, strict=True):
        parts = whole.split(counts)
        shaped = [p.reshape(*m.shape, *t.shape) for p, m in zip(parts, mine, strict=True)]
        blocks.append([p.movedim(tuple(range(m.ndim)), tuple(range(-m.ndim, 0))) if columns and m.ndim else p for p, m in zip(shaped, mine, strict=True)])
    return [tuple(row) for row in (blocks if columns else zip(*blocks, strict=True))]


def jacrev(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, chunk_size: int | None = None,
           _preallocate_and_copy: bool = False) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func` in its arguments `argnums`: shapes output + argument.

    All rows are computed as one batch, by `vmap`; chunk_size: at most so many at a time.  A function that has no form for a
    batch is differentiated once for each element of the outputs.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian(func, argnums, has_aux, False, "jacrev(f)(*args)", chunk_size)


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable[..., Any]:
    """The same as `jacrev`, with one pass for each element of the arguments, all of them as one batch."""
    return _jacobian(func, argnums, has_aux, True, "jacfwd(f)(*args)", None, randomness)


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The function that gives the second derivatives of `func`: ``jacfwd(jacrev(func))``."""
    return jacfwd(jacrev(func, argnums), argnums)
