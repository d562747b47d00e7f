"""Functions made of functions: gradients, Jacobians, Hessians, products with vectors.

Each takes derivatives of a function of tensors (in tuples, lists and dicts as one likes) by the tape.  The results have a
history only where something they depend on from outside requires a gradient, so that these nest in each other and in
ordinary backward passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._core import ops as _ops
from .._core.autograd import tape
from .._core.autograd.mode import enable_grad, is_grad_enabled
from .._core.tensor import Tensor
from ..autograd import functional
from ..autograd.duals import Level, apart, recorded, tangents
from ..autograd.forward_ad import dual, parts
from .batching import Batched, batched, levels, own
from .trees import leaves, mapped, rebuild, structure

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
    return x.view_as(x) if x.node is not None else _apart(x).requires_grad_()


def _apart(t: Any) -> Any:
    """A tensor without its history, with its tangents."""
    return batched(_apart(t.value), t.level) if isinstance(t, Batched) else apart(t)


def _moves(t: Any) -> list[Any]:
    """The tangents of a tensor, or of a batch of them."""
    while isinstance(t, Batched):
        t = t.value
    return list(tangents(t).values()) if isinstance(t, Tensor) else []


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
        ends = leaves(self.output)
        self.outer = any(x.node[tape.SEQ] for x in self.xs) or _reaches([*ends, *[v for y in ends for v in _moves(y)]], fresh, set())
        self.outer = (self.outer or any(recorded(v) for x in self.xs for v in _moves(x))) and is_grad_enabled()  # which the call inside does not change

    def settle(self, value: Any) -> Any:
        """A result, without history unless there is one from outside."""
        return value if self.outer else mapped(lambda t: _apart(t) if isinstance(t, Tensor) else t, value)

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
        later = at.outer or any(isinstance(v, Tensor) and (v.node is not None or any(map(recorded, _moves(v)))) for v in vs)
        with enable_grad():
            found = functional._slopes(ys, at.xs, vs, later)
        found = found if later else tuple(map(_apart, found))
        return at.arranged(found)
    result = at.settle(at.output)
    return (result, back, at.settle(at.aux)) if has_aux else (result, back)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(output, the Jacobian times `tangents`[, aux]) at the tuple `primals`, by forward-mode differentiation: no graph is kept.

    strict: raise RuntimeError where an output does not depend on the primals, instead of giving zeros.
    """
    _of_one_structure(primals, tangents)
    made, moved, aux = _along(func, primals, leaves(tangents), strict, has_aux)
    moved = rebuild(made, iter(moved))
    return (made, moved, aux) if has_aux else (made, moved)


_JVP = "jvp(f, primals, tangents)"


def _of_one_structure(primals: Any, moves: Any) -> None:
    for what, given in (("primals", primals), ("tangents", moves)):
        if not isinstance(given, tuple):
            raise RuntimeError(f"{_JVP}: Expected {what} to be a tuple. E.g. it should be valid to call f(*primals).")
    if structure(primals) != structure(moves):
        raise RuntimeError(f"{_JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 "
                           f"tensors, tangents also must be. Got primals with structure {structure(primals)} and tangents with structure {structure(moves)}")
    for what, given in (("primals", primals), ("tangents", moves)):
        if not leaves(given):
            raise RuntimeError(f"{_JVP}: Expected {what} to contain at least one Tensor.")
        for t in leaves(given):
            if not isinstance(t, Tensor):
                raise RuntimeError(f"{_JVP}: Expected {what} to only contain Tensors, got {type(t)}")


def _along(func: Callable[..., Any], primals: Any, moves: Any, strict: bool = False, has_aux: bool = False) -> tuple[Any, list[Any], Any]:
    """(the output, its tangents in a list, aux) of a function along tangents of its arguments."""
    level = Level()
    try:
        made = func(*rebuild(primals, iter([dual(p, v, level) for p, v in zip(leaves(primals), moves, strict=True)])))
        aux: Any = None
        if has_aux:
            if not isinstance(made, tuple) or len(made) != 2:
                raise RuntimeError(f"{_JVP}: output of function f should be a tuple: (output, aux) if has_aux is True")
            made, aux = made
            if not all(isinstance(t, Tensor) for t in leaves(aux)):
                other = next(t for t in leaves(aux) if not isinstance(t, Tensor))
                raise RuntimeError(f"Expected tensors, got unsupported type {type(other)}")
            aux = mapped(lambda t: parts(t, level)[0], aux)
        outs: list[Any] = []
        moved: list[Any] = []
        for y in leaves(made):
            if not isinstance(y, Tensor):
                raise RuntimeError(f"{_JVP}: expected f(*primals) to return only tensors, got unsupported type {type(y)}")
            value, v = parts(y, level)
            if v is None and strict:
                raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with "
                                   "strict=True.")
            outs.append(value)
            moved.append(ops.zeros_like(value) if v is None else v)
    finally:
        level.end()
    return rebuild(made, iter(outs)), moved, aux


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """(output, function from tangents to the Jacobian times them) at `primals`; the function runs once.

    Raises RuntimeError for tangents of another structure, shape or type than the primals.
    """
    at = _At(func, tuple(range(len(primals))), primals, {}, False, "linearize(f, *primals)")

    def push(*tangents: Any) -> Any:
        if structure(tangents) != structure(primals):
            raise RuntimeError(f"Expected the tangents {structure(tangents)} to have the same argspec as the primals {structure(primals)}")
        for i, (v, x) in enumerate(zip(leaves(tangents), leaves(primals), strict=True)):
            for what in ("shape", "dtype"):
                if getattr(v, what) != getattr(x, what):
                    raise RuntimeError(f"tangent:{i} with {what} {getattr(v, what)} in flattened pytree doesn't match the {what} {getattr(x, what)} of "
                                       "the corresponding primal.")
        with enable_grad():
            found = functional.forward(tuple(leaves(at.output)), at.xs, tuple(leaves(tangents)), at.outer)
        return at.settle(rebuild(at.output, iter(found)))
    return at.settle(at.output), push


def _jacobian(func: Callable[..., Any], argnums: Any, has_aux: bool, name: str, chunk: int | None = None) -> Callable[..., Any]:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        at = _At(func, argnums, args, kwargs, has_aux, name)
        ys = tuple(leaves(at.output))
        rows = _at_once(func, at, argnums, args, kwargs, has_aux, name, chunk)
        if rows is None:
            with enable_grad():
                rows = functional.by_rows(ys, at.xs, at.outer)
        made = rebuild(at.output, iter([at.arranged(row) for row in rows]))
        return (at.settle(made), at.settle(at.aux)) if has_aux else at.settle(made)
    return call


_MOST = 1 << 25  # elements of one tensor, beyond which a Jacobian is computed in parts


def _units(tensors: Any, count: int) -> list[Any]:
    """For each tensor its part of the unit vectors of all their elements together, stacked."""
    counts = [t.numel() for t in tensors]
    made = []
    for t, start in zip(tensors, (sum(counts[:i]) for i in range(len(counts))), strict=True):
        unit = ops.eye(count, dtype=t.meta.dtype, device=t.meta.device)[:, start:start + t.numel()]
        made.append(unit.reshape(count, *t.shape))
    return made


def _at_once(func: Any, at: _At, argnums: Any, args: Any, kwargs: Any, has_aux: bool, name: str, chunk: int | None) -> Any:
    """The rows of a Jacobian as one batch, by `vmap`: for each output those in each input.  None where there is one
    only, or where the function has no form for a batch (it asks for values, or draws random numbers)."""
    from .mapping import vmap
    ys = tuple(leaves(at.output))
    counts = [t.numel() for t in ys]
    count = sum(counts)
    if count < 2 or not all(isinstance(y, Tensor) and y.meta.dtype.kind in "fc" for y in ys):
        return None
    if chunk is None:
        chunk = max(1, _MOST // max(1, *[t.numel() for t in (*at.xs, *ys)]))

    def one(*vectors: Any) -> Any:
        each = _At(func, argnums, args, kwargs, has_aux, name)
        with enable_grad():
            return each.slopes(tuple(leaves(each.output)), vectors)
    try:
        found = vmap(one, chunk_size=min(chunk, count))(*_units(ys, count))
    except Exception:
        return None  # one by one: an error of the function's own comes up there too
    blocks = [[p.reshape(*m.shape, *t.shape) for p, m in zip(whole.split(counts), ys, strict=True)] for t, whole in zip(at.xs, found, strict=True)]
    return [tuple(row) for row in zip(*blocks, strict=True)]


def jacrev(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, chunk_size: int | None = None,
           _preallocate_and_copy: bool = False) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func` in its arguments `argnums`: shapes output + argument.

    All rows are computed as one batch, by `vmap`; chunk_size: at most so many at a time.  A function that has no form for a
    batch is differentiated once for each element of the outputs.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    return _jacobian(func, argnums, has_aux, "jacrev(f)(*args)", chunk_size)


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable[..., Any]:
    """The same as `jacrev` by forward-mode differentiation, with one pass for each element of the arguments, all of them as one batch."""
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        wanted = _numbers(argnums, len(args))
        inputs = tuple(args[i] for i in wanted)
        xs = leaves(inputs)
        for x in xs:
            if isinstance(x, Tensor) and x.meta.dtype.kind not in "fc":
                raise RuntimeError(f"only floating point and complex tensors can be differentiated in, got {x.meta.dtype}")
        count = sum(x.numel() for x in xs)
        seen: list[Any] = []

        def of_inputs(*given: Any) -> Any:
            full = list(args)
            for i, x in zip(wanted, given, strict=True):
                full[i] = x
            return func(*full, **kwargs)

        def push(*vectors: Any) -> Any:
            seen[:] = made, moved, aux = _along(of_inputs, inputs, vectors, has_aux=has_aux)
            return (*moved, *leaves(aux)) if has_aux else tuple(moved)
        units = _units(xs, count) if count else [ops.zeros((1, *x.shape), dtype=x.meta.dtype, device=x.meta.device) for x in xs]
        found = _pushed(push, units, count, max([1, *[x.numel() for x in xs]]), randomness)
        made, moved, aux = seen
        columns = []
        for whole in found[:len(moved)]:  # of one output: the elements of all inputs first
            shape = tuple(whole.shape[1:])
            blocks = whole[:count].split([x.numel() for x in xs])
            columns.append([b.reshape(*x.shape, *shape).movedim(tuple(range(x.ndim)), tuple(range(-x.ndim, 0))) if x.ndim else b.reshape(shape)
                            for b, x in zip(blocks, xs, strict=True)])
        single = not isinstance(argnums, tuple)
        arranged = [rebuild(inputs, iter(row)) for row in columns]
        result = rebuild(made, iter([row[0] for row in arranged] if single else arranged))
        return (result, rebuild(aux, iter([a[0] for a in found[len(moved):]]))) if has_aux else result
    return call


def _pushed(push: Callable[..., Any], units: list[Any], count: int, size: int, randomness: str) -> Any:
    """What a function makes of each of a batch of vectors: by `vmap` where it can, else one by one."""
    from .mapping import vmap
    if count > 1:
        try:
            return vmap(push, chunk_size=min(count, max(1, _MOST // size)), randomness=randomness)(*units)
        except Exception:  # one by one: an error of the function's own comes up there too
            pass
    return [ops.stack(list(column)) for column in zip(*[push(*[u[i] for u in units]) for i in range(max(count, 1))], strict=True)]


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The function that gives the second derivatives of `func`: ``jacfwd(jacrev(func))``."""
    return jacfwd(jacrev(func, argnums), argnums)
