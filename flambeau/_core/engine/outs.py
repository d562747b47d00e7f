"""Calls with `out=` of operations that have no plan for them: the result of the usual call, copied.

What is checked follows from layouts, types and devices, but for what shares memory or requires grad.  So a call like one that went through all
checks only looks at those, makes its result as it is made without `out=`, and copies it by `copy_`; unless the operation's body has a `writes`, which is
called with `out` and the arguments, and says whether it has written the result there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import _grad
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .fronts import Signature
    from .operation import Operation

    Values = tuple[Any, ...]


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors among values and in the sequences among them."""
    found: list[Tensor] = []
    for x in values:
        if isinstance(x, Tensor):
            found.append(x)
        elif type(x) in (tuple, list):
            found += [y for y in x if isinstance(y, Tensor)]
    return found


def layouts(out: Any) -> Any:
    """The part of a key that says where a result is written to."""
    return out.meta if isinstance(out, Tensor) else tuple([o.meta for o in out])


def plan(operation: Operation, s: Signature, values: Values, out: Any, made: Any, copy: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any] | None:
    """What further calls on the same layouts with the same constants do, ``run(out, values)``, which gives None where such a call is to go through all
    checks; None where there is no such thing.  out, made: what this call was given, and gave."""
    names = s.names()
    if (s.rest is not None and values[len(names)]) or (s.more is not None and values[-1]):
        return None
    several = not isinstance(out, Tensor)
    outs = tuple(out) if several else (out,)
    if not all(o is m for o, m in zip(outs, made if several else (made,), strict=True)):
        return None
    if not all(x.meta.plain and x.meta.device.type != "meta" for x in (*outs, *tensors_of(values))):
        return None
    args, kwargs = s.as_written(values)
    places = [names.index(n) for n in s.positional[:len(args)]]
    named = [(n, names.index(n)) for n in kwargs]
    at = [i for i, x in enumerate(values) if isinstance(x, Tensor)]
    metas, kind, direct = [o.meta for o in outs], type(made), operation.direct
    writes: Callable[..., bool] | None = getattr(operation.body, "writes", None)

    def run_one(out: Tensor, values: Values) -> Any:
        memory, records = out.store.ptr, _grad.get()
        for i in at:
            x = values[i]
            if x.store.ptr == memory or (records and x.node is not None):
                return None
        if records and out.node is not None:
            return None
        result = direct(*[values[i] for i in places], **{n: values[i] for n, i in named})
        if result.meta.shape != shape:  # it follows from values
            return None
        copy(out, result)
        return out

    def run(out: Any, values: Values) -> Any:
        given, to = tensors_of(values), tuple(out) if several else (out,)
        if _grad.get() and any(x.node is not None for x in (*given, *to)):
            return None
        memory = [o.store.ptr for o in to]
        if any(x.store.ptr in memory for x in given):
            return None
        if writes is not None and writes(out, *[values[i] for i in places], **{n: values[i] for n, i in named}):
            return out
        result = direct(*[values[i] for i in places], **{n: values[i] for n, i in named})
        found = result if several else (result,)
        if any(r.meta.shape != m.shape for r, m in zip(found, metas, strict=True)):
            return None
        for o, r in zip(to, found, strict=True):
            copy(o, r)
        return out if not several else kind(*to) if hasattr(kind, "_fields") else to
    shape = metas[0].shape
    return run if several or len(at) != len(tensors_of(values)) else run_one
