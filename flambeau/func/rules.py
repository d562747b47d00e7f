"""Rules of `vmap`: what an operation on an example is for the whole batch.  The batch lies along the first axis.

Which rule an operation has its field "batch" says, where it is declared; there is one rule for each kind.  A rule is called with
(level, operation, args, kwargs) and gives the result, or NotImplemented where it does not fit.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from .._core import ops as _ops
from .._core.engine import fields
from .._core.ops import table
from .._core.ops.queries import result_type
from .._core.tensor import Tensor
from ..nn import functional as F
from .batching import Batched, DataDependent, Level, members, replaced, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[Level, Any, tuple[Any, ...], dict[str, Any]], Any]

ops: Any = _ops


# parameters that number an axis
_AXES = frozenset("dim dims dim0 dim1 dim2 axis axis0 axis1 start_dim end_dim source destination dimension".split())
_RULES: dict[str, Rule] = {}  # by the kind
_names: dict[int, str] = {}  # by the identity of functions
_kept: list[Any] = []  # those functions, so that the identities stay theirs


def kind(name: str, *more: Any) -> Callable[[Any], Any]:
    """Registers the rule of operations whose field "batch" is this.  more: what it is called with before the level."""
    def register(made: Any) -> Any:
        _RULES[name] = functools.partial(made, *more) if more else made
        return made
    return register


def learn() -> None:
    """Finds the names of operations and methods; once, before the first call."""
    if not _names:
        _learn()
        from . import rules_nn  # noqa: F401 (registers its rules)


def _learn() -> None:
    for key, row in table.TABLE.items():
        for f in (row.function, row.inplace):
            if f is not None:
                _names.setdefault(id(f), key if f is not row.inplace else row.name + "_")
    for name, value in Tensor.__dict__.items():
        if isinstance(value, property):
            _names[id(value)] = name
        elif callable(value):
            _names.setdefault(id(value), name)
    for name, value in vars(F).items():
        if callable(value) and id(value) not in _names and not hasattr(value, "__twin__"):
            _names[id(value)] = f"nn.functional.{name}" if name in table.TABLE else name
    _kept.extend(f for row in table.TABLE.values() for f in (row.function, row.inplace))


def name_of(func: Any) -> str:
    """An operation's name in the table, a method's or an attribute's."""
    func = getattr(func, "__twin__", func)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, property):
        return _names.get(id(owner), "") + (".set" if func.__name__ == "__set__" else "")
    known = _names.get(id(func)) or _names.get(id(getattr(func, "__wrapped__", None)))
    if known:
        return known
    operation = getattr(func, "__operation__", None)  # one that was declared later
    return operation.name if operation is not None else str(getattr(func, "__name__", ""))


def find(name: str) -> Rule | None:
    """The rule of an operation."""
    return _RULES.get(field(name))


_BATCH = fields.of("batch")


def field(name: str) -> str:
    """The field of an operation; empty where it has none."""
    found: str = _BATCH.get(name.removeprefix("torch."), "")
    return found or ("pointwise" if name.endswith("_") and _BATCH.get(name[:-1]) == "pointwise" else "")


@functools.cache
def _signature(func: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):
        return None


def bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by parameter; None where the call does not tell."""
    signature = _signature(func)
    if signature is None:
        return None
    try:
        found = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    return dict(found)


@kind("composite")
def _composite(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return inspect.unwrap(func)(*args, **kwargs)


# ------------------------------------------------------------------------------------------------------- element by element
def _both(a: Any, b: Any) -> Any:
    return ops.empty((0,) * max(a.ndim, b.ndim), dtype=result_type(a, b))


@kind("pointwise")
def _pointwise(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = name_of(func)
    inplace = writes(name)
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if kwargs.get("out") is not None:
        return NotImplemented
    rank = max(t.ndim for t in tensors)
    if inplace or kwargs.get("inplace"):
        if not level.has(args[0]):
            raise RuntimeError(f"vmap: {name}: in-place arithmetic is not possible on a tensor that all examples share, with one that each has its own "
                               "of: use the out-of-place form, or new_zeros, which gives each example its own")
        if rank > args[0].ndim:
            return NotImplemented
    operands = tensors[1:] if name == "where" else tensors
    wide = None
    if not inplace and len(operands) > 1 and len({t.dtype for t in operands}) > 1 and not all(t.ndim for t in operands):
        wide = functools.reduce(_both, [ops.empty((0,) * t.ndim, dtype=t.dtype) for t in operands]).dtype

    def whole(x: Any) -> Any:
        made = level.whole(x, rank)
        return made.to(wide) if wide is not None and made is not x and any(x is o for o in operands) else made
    made = level.run(func, *[whole(x) for x in args], **{k: whole(v) for k, v in kwargs.items()})
    return args[0] if inplace or kwargs.get("inplace") else level.wrap(made)


@kind("same")
def _same(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not level.has(args[0]):
        return NotImplemented
    given = replaced((args[1:], kwargs), level.whole)
    made = level.run(func, args[0].value, *given[0], **given[1])
    if made is args[0].value:
        return args[0]
    return level.wrap(made)


@kind("trailing")
def _trailing(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not level.has(args[0]) or any(True for _ in members((args[1:], kwargs))):
        return NotImplemented
    if any(isinstance(d, (tuple, list)) for d in (*args[1:], *kwargs.values())):
        return NotImplemented
    if (args[1:] or kwargs) and any(k in _AXES and type(d) is int and d >= 0 for k, d in (bound(func, args, kwargs) or {}).items()):
        return NotImplemented  # an axis counted from the front
    return level.wrap(level.run(func, args[0].value, *args[1:], **kwargs))


@kind("asks")
def _ask(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What is asked of an example: of a view of the first."""
    first = args[0].value
    given = replaced((args[1:], kwargs), lambda x: x.value[0])
    name = name_of(func)
    if name in ("size", "dim", "numel", "__len__", "is_same_size") and not first.shape[0]:
        first = first.new_empty((1, *first.shape[1:]))
    return level.run(func, first[0] if first.shape[0] else first, *given[0], **given[1])


@kind("attribute")
def _attribute(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getattr(args[0].value, name_of(func))


@kind("shape")
def _shape(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    shape = args[0].value.shape
    return type(shape)(shape[1:])


@kind("ndim")
def _ndim(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    return args[0].value.ndim - 1


@kind("nbytes")
def _nbytes(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    return args[0].value.nbytes // (level.size or 1)


@kind("part")
def _part(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    found = getattr(args[0].value, name_of(func))
    return level.wrap(found) if isinstance(found, Tensor) else found


@kind("transposed")
def _transposed(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    value = args[0].value
    return level.wrap(value.permute(0, *range(value.ndim - 1, 0, -1)))


@kind("matrix turned")
def _adjoint(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    return level.wrap(args[0].value.mH) if args[0].ndim == 2 else NotImplemented


@kind("strided")
def _strided(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    """A view of each example's memory, by an offset that is the first one's."""
    given = bound(func, args, kwargs)
    if given is None or given.get("out") is not None:
        return NotImplemented
    value, offset = given["input"].value, given.get("storage_offset")
    if not isinstance(value, Tensor) or isinstance(value, Batched):
        return NotImplemented
    return level.wrap(func(value, (level.size, *given["size"]), (value.stride(0), *given["stride"]), value.storage_offset() if offset is None else offset))


@kind("text")
def _shown(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    return f"Batched(level={level.number}, {args[0].value!r})"


@kind("iterator")
def _iterated(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    return iter(args[0].unbind(0))


@kind("copy")
def _copied(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    return level.wrap(args[0].value.detach().clone())


# -------------------------------------------------------------------------------------------------------------- along axes
def _wrapped(d: Any, rank: int) -> Any:
    if isinstance(d, (tuple, list)):
        return tuple(_wrapped(x, rank) for x in d)
    if type(d) is not int:
        return d
    if not -max(rank, 1) <= d < max(rank, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, {max(rank, 1) - 1}], but got {d})")
    return d % max(rank, 1) + 1


def _along(default: Any) -> Rule:
    """The rule of an operation along axes; default: those of an example taken when none are named ("all", "flat" or a number)."""
    def apply(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = bound(func, args, kwargs)
        if given is None or given.get("out") is not None or any(k.startswith("given") or k == "kwargs" for k in given):
            return NotImplemented
        first = next(iter(given))
        if not level.has(given[first]):
            return NotImplemented
        value = given.pop(first).value
        rank = value.ndim - 1
        if type(given.get("dim")) is bool:  # of `var` and its kin the first place may be that of `unbiased`
            given["unbiased"] = given.pop("dim")
        if "other" in given and given["other"] is not None or any(True for _ in members(given)):
            return NotImplemented
        axes = [k for k in given if k in _AXES and given[k] is not None and given[k] != ()]
        if not axes:
            # the parameter by which such an operation takes its axis
            parameter = next((k for k in ("dim", "dims", "axis") if k in (_signature(func) or inspect.Signature()).parameters), None)
            if parameter is None:
                return NotImplemented
            given.pop(parameter, None)
            if default == "all":
                if not rank:
                    value, rank = value.unsqueeze(1), 1
                given[parameter] = tuple(range(1, rank + 1))
            elif default == "flat":
                value = value.reshape(level.size, -1)
                if given.pop("keepdim", False):
                    return NotImplemented
                given[parameter] = 1
            else:
                if not rank:
                    return NotImplemented
                given[parameter] = _wrapped(default, rank)
            return level.wrap(level.run(func, value, **given))
        if not rank:
            return NotImplemented
        return level.wrap(level.run(func, value, **{k: _wrapped(v, rank) if k in _AXES else v for k, v in given.items()}))
    return apply


_RULES.update({"along all": _along("all"), "along flat": _along("flat"), **{f"along {n}": _along(n) for n in (0, 1, -1)}})


@kind("extreme")
def _extreme(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) > 1 or kwargs:
        if any(isinstance(a, Tensor) for a in (*args[1:], *kwargs.values())):
            return _pointwise(level, func, args, kwargs)
        return _along(-1)(level, func, args, kwargs)
    value, name = args[0].value.flatten(1) if args[0].ndim else args[0].value.unsqueeze(1), name_of(func)
    return level.wrap(getattr(value, "a" + name)(1) if name in ("max", "min") else level.run(func, value, 1)[0])


@kind("picked")
def _selected(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("out") is not None or level.has(given["index"]) or not given["input"].ndim:
        return NotImplemented
    return level.wrap(level.run(func, given["input"].value, _wrapped(given["dim"], given["input"].ndim), given["index"]))


@kind("broadcast")
def _broadcast(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    tensors = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    rank = max(t.ndim for t in tensors)
    made = level.run(func, *[level.whole(t, rank) if level.has(t) else t.expand(level.size, *(1,) * (rank - t.ndim), *t.shape) for t in tensors])
    return level.wrap(tuple(made))


@kind("squeeze")
def _squeeze(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    value, dims = given["input"].value, given.get("dim")
    rank = value.ndim - 1
    wanted = range(1, rank + 1) if dims is None else _wrapped(dims if isinstance(dims, (tuple, list)) else (dims,), rank)
    return level.wrap(value.squeeze(tuple(d for d in wanted if d < value.ndim and value.shape[d] == 1)))


@kind("unsqueeze")
def _unsqueeze(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    return level.wrap(given["input"].value.unsqueeze(_wrapped(given["dim"], given["input"].ndim + 1)))


@kind("axes")
def _moved(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or any(True for _ in members(list(given.values())[1:])):
        return NotImplemented
    first = next(iter(given))
    value = given.pop(first).value
    rank, name = value.ndim - 1, name_of(func)
    if not rank:
        return level.wrap(value.unsqueeze(1)) if name == "flatten" else NotImplemented
    if name == "flatten":
        given = {"start_dim": 0, "end_dim": -1} | given
    if name.endswith("diagonal"):
        dims = ("dim1", "dim2")
        given = dict(zip(dims, (0, 1) if name == "diagonal" else (-2, -1), strict=True)) | given
    return level.wrap(level.run(func, value, **{k: _wrapped(v, rank) if k in _AXES else v for k, v in given.items()}))


def _sizes(args: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else tuple(args)


@kind("order")
def _permute(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    name = name_of(func)
    if not level.has(args[0]) or name == "roll" and (len(args) < 3 and "dims" not in kwargs):
        return NotImplemented
    value = args[0].value
    if name == "roll":
        dims = kwargs.get("dims", args[2] if len(args) > 2 else None)
        return level.wrap(value.roll(args[1] if len(args) > 1 else kwargs["shifts"], _wrapped(dims, value.ndim - 1)))
    dims = _wrapped(_sizes(args[1:] or (kwargs["dims"],)), value.ndim - 1)
    return level.wrap(value.permute(0, *dims) if name == "permute" else value.flip(dims))


@kind("sizes")
def _reshaped(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    name = name_of(func)
    if not level.has(args[0]):
        return getattr(args[0], name[:-3])(*args[1].shape) if name.endswith("_as") else NotImplemented
    value = args[0].value
    if name.endswith("_as"):
        return getattr(args[0], name[:-3])(tuple(args[1].shape))
    if name == "unflatten":
        dim = args[1] if len(args) > 1 else kwargs.pop("dim")
        return level.wrap(value.unflatten(_wrapped(dim, value.ndim - 1), *args[2:], **kwargs))
    if name == "new_full":
        size = args[1] if len(args) > 1 else kwargs.pop("size")
        if isinstance((args[2:] or (kwargs.get("fill_value"),))[0], Batched):
            return NotImplemented
        return level.wrap(level.run(func, value, (level.size, *_sizes((size,))), *args[2:], **kwargs))
    given = args[1:] or tuple(kwargs.pop(k) for k in ("size", "shape", "dims", "repeats") if k in kwargs)
    if name == "view" and len(given) == 1 and not isinstance(given[0], (int, tuple, list)) or "dtype" in kwargs and name == "view":
        return NotImplemented if value.ndim == 1 else level.wrap(level.run(func, value, *given, **kwargs))
    size = _sizes(given)
    if name in ("expand", "broadcast_to"):
        missing = len(size) - (value.ndim - 1)
        value = level.whole(args[0], len(size)) if missing > 0 else value
        return level.wrap(value.expand(level.size, *size))
    if name in ("repeat", "tile"):
        if name == "tile" and len(size) < value.ndim - 1:
            size = (1,) * (value.ndim - 1 - len(size)) + size
        return level.wrap(level.whole(args[0], len(size)).repeat(1, *size))
    if not level.size and -1 in size:
        rest = functools.reduce(lambda a, b: a * b, (s for s in size if s != -1), 1)
        size = tuple(s if s != -1 else functools.reduce(lambda a, b: a * b, value.shape[1:], 1) // (rest or 1) for s in size)
    return level.wrap(level.run(func, value, (level.size, *size), **kwargs))


# ------------------------------------------------------------------------------------------------------------- several tensors
@kind("joined")
def _joined(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("out") is not None:
        return NotImplemented
    tensors, name = list(given["tensors"]), name_of(func)
    rank = max(t.ndim for t in tensors)
    dim = given.get("dim", given.get("axis") or 0)
    parts = [level.spread(t) for t in tensors if not (name == "cat" and t.ndim == 1 and t.shape[0] == 0 and rank > 1)]
    return level.wrap(level.run(func, parts, _wrapped(dim, rank + (name == "stack"))))


@kind("indices")
def _gathered(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    values = list(given.values())
    rank = values[0].ndim
    if given.get("dim") is None or not rank or name_of(func).endswith("_") and not level.has(values[0]):
        return NotImplemented
    made = {k: level.spread(v) if isinstance(v, Tensor) and (v.ndim or level.has(v)) else v for k, v in given.items()}
    if isinstance(made.get("src"), Tensor) and made["src"].ndim == 1 or isinstance(made.get("value"), Tensor):
        return NotImplemented
    made["dim"] = _wrapped(given["dim"], rank)
    first = next(iter(made))
    found = level.run(func, made.pop(first), **made)
    return values[0] if name_of(func).endswith("_") else level.wrap(found)


@kind("item")
def _item(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    x, index = args
    parts = index if isinstance(index, tuple) else (index,)
    inside = [level.has(p) for p in parts]
    if any(isinstance(p, Batched) and p.dtype.name in ("bool", "uint8") for p in parts):
        raise DataDependent("vmap: an index of booleans picks another number of elements from each example; use torch.where, or masked_fill")
    if not any(inside) and not any(True for p in parts if not isinstance(p, Tensor) for _ in members(p)):
        return level.wrap(x.value[(slice(None), *parts)]) if _together(parts) else NotImplemented
    # tensors of indices, the examples' own among them, at the front
    count = next((i for i, p in enumerate(parts) if not isinstance(p, (Tensor, int)) or isinstance(p, bool)), len(parts))
    lead, rest = parts[:count], parts[count:]
    if not count or any(inside[count:]) or not _plain(rest) or any(isinstance(p, Tensor) and p.dtype.name in ("bool", "uint8") for p in lead):
        return NotImplemented
    rank = max(p.ndim if isinstance(p, Tensor) else 0 for p in lead)
    where = [level.whole(p, rank) if isinstance(p, Tensor) else p for p in lead]
    if level.has(x):
        rows = ops.arange(level.size, device=x.value.device).reshape(-1, *(1,) * rank)
        return level.wrap(x.value[(rows, *where, *rest)])
    return level.wrap(x[(*where, *rest)])


def _plain(parts: Any) -> bool:
    return all(p is None or isinstance(p, slice) or p is Ellipsis for p in parts)


def _together(parts: tuple[Any, ...]) -> bool:
    """Whether indices by tensors and lists lie side by side, so that an axis before them stays where it is."""
    several = [not (p is None or isinstance(p, slice) or p is Ellipsis or (isinstance(p, int) and not isinstance(p, bool))) for p in parts]
    if not any(several):
        return True
    # integers count among them where there is any
    places = [i for i, p in enumerate(parts) if several[i] or (isinstance(p, int) and not isinstance(p, bool))]
    return places == list(range(places[0], places[-1] + 1))


@kind("item set")
def _put(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    x, index, value = args
    if not level.has(x):
        raise RuntimeError("vmap: a tensor that all examples share cannot be written to with values or indices that each has its own of: make it "
                           "from an example, by new_zeros or zeros_like, which gives each example its own")
    parts = index if isinstance(index, tuple) else (index,)
    if any(True for _ in members(parts)) or not _together(parts):
        return NotImplemented
    whole = (slice(None), *parts)
    x.value[whole] = level.whole(value, x.value[whole].ndim - 1) if level.has(value) else value
    return None


# --------------------------------------------------------------------------------------------------------------------- products
@kind("product")
def _matmul(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("out") is not None or any(not isinstance(v, Tensor) for v in given.values()):
        return NotImplemented
    a, b = list(given.values())[:2]
    if name_of(func) == "__rmatmul__":
        a, b = b, a
    return level.wrap(_product(level, a, b))


def _product(level: Level, a: Any, b: Any) -> Any:
    if not a.ndim or not b.ndim:
        raise RuntimeError("both arguments to matmul need to be at least 1D, but they are "
                           f"{a.ndim}D and {b.ndim}D")
    if level.has(a) and not level.has(b) and b.ndim <= 2:
        return a.value @ b if a.ndim > 1 or b.ndim == 2 else a.value.mv(b)  # the batch is more rows
    row, column = a.ndim == 1, b.ndim == 1
    # matrices, with as many axes before them on both sides
    x, y = level.whole(a), level.whole(b)
    x, y = (x.unsqueeze(-2) if row else x), (y.unsqueeze(-1) if column else y)
    rank = max(a.ndim + row, b.ndim + column)
    x, y = (t if not level.has(o) or t.ndim == rank + 1 else t[(slice(None), *(None,) * (rank + 1 - t.ndim))] for t, o in ((x, a), (y, b)))
    made = x @ y
    if column:
        made = made.squeeze(-1)
    return made.squeeze(-1 if column else -2) if row else made


@kind("product and sum")
def _combined(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("out") is not None:
        return NotImplemented
    name, values = name_of(func), list(given.values())
    if name == "outer":
        return values[0].unsqueeze(-1) * values[1].unsqueeze(0)
    if name == "inner":
        return values[0] @ values[1].transpose(-2, -1) if values[0].ndim and values[1].ndim > 1 else NotImplemented
    if name == "addr":
        made = values[1].unsqueeze(-1) * values[2].unsqueeze(0)
    else:
        made = values[1] @ values[2]
    beta, alpha = given.get("beta", 1), given.get("alpha", 1)
    return (values[0] if beta == 1 else values[0] * beta) + (made if alpha == 1 else made * alpha)


@kind("einsum")
def _einsum(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    if not isinstance(args[0], str):
        return NotImplemented
    text, operands = args[0].replace(" ", ""), list(args[1:])
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = list(operands[0])
    free = next((c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in text), None)
    if free is None:
        return NotImplemented
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not arrow:
        letters = [c for c in left if c.isalpha()]
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    terms = [free + t if level.has(o) else t for t, o in zip(terms, operands, strict=True)]
    return level.wrap(ops.einsum(",".join(terms) + "->" + free + right, *[level.whole(o) for o in operands]))


@kind("solved")
def _solved(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) < 2 or not all(isinstance(a, Tensor) and a.ndim == 2 for a in args[:2]) or any(isinstance(a, Tensor) for a in args[2:]):
        return NotImplemented
    return level.wrap(level.run(func, level.spread(args[0]), level.spread(args[1]), *args[2:], **kwargs))
