"""Calls in the order that PyTorch has deprecated and old scripts still use: numbers before the tensors they scale.

`p.add_(-lr, grad)`, `avg.addcmul_(1 - beta, g, g)`, `torch.addmm(beta, m, alpha, a, b)`.  Right calls do not come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine.operation import old_orders
from ..errors import warn
from ..tensor import Tensor

if TYPE_CHECKING:
    pass

# how many tensors there are, and what the numbers are called in their order
_FORMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "add": (2, ("alpha",)), "sub": (2, ("alpha",)), "addcmul": (3, ("value",)), "addcdiv": (3, ("value",)),
    **dict.fromkeys(("addmm", "addmv", "addr", "baddbmm", "addbmm"), (3, ("beta", "alpha")))}


OLD_ORDER = frozenset(_FORMS)


def reordered(name: str, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The tensors, and the numbers as keywords; None where the call has no such form."""
    form = _FORMS.get(name.rstrip("_"))
    if form is None:
        return None
    tensors = tuple([a for a in args if isinstance(a, Tensor)])
    numbers = [a for a in args if isinstance(a, (int, float, complex))]
    if len(tensors) != form[0] or not 0 < len(numbers) <= len(form[1]) or len(tensors) + len(numbers) != len(args):
        return None
    named = dict(zip(form[1], numbers, strict=False))
    warn(f"This overload of {name} is deprecated, with its numbers before its tensors: {name}({', '.join('tensor' for _ in tensors)}, "
         f"{', '.join(f'{k}={v}' for k, v in named.items())}) says the same")
    return tensors, named


old_orders.append(reordered)
