"""Fields of operations: what those who look on, or carry a call out in another way, must know of one besides its formula.

They are given where an operation is declared, as arguments of `ops.table.op` and its like, or by `has` beside a declaration that has no
place for them. Whoever needs a field asks by the operation's name.
"""

from __future__ import annotations

from typing import Any

_AUTOCAST = frozenset(("lower", "full", "widest"))
_KNOWN: dict[str, frozenset[Any]] = {
    # the type it computes in under autocast: the lower one, float32, or the widest of its operands'; for one device type as "cuda lower"
    "autocast": _AUTOCAST | {f"{kind} {c}" for kind in ("cpu", "cuda") for c in _AUTOCAST} | {"cpu full, cuda widest", "cpu lower, cuda widest"},
    # what it is for a batch of examples: element by element; the same call; a question whose answer all examples have; along the last axes,
    # whatever comes before; along axes, where those taken when none are named are all, the flattened ones or a number; a draw of random
    # numbers (each: that of a batch is one for each example); it reads values; its body is made of such operations and looks at no tensor's memory,
    # so that it is given the examples (composite); or a kind with a rule of its own in `func/rules.py` or
    # `func/rules_nn.py`: of attributes, of layouts, of several tensors, of products, of layers, of losses
    "batch": frozenset(("pointwise", "same", "asks", "attribute", "trailing", "along all", "along flat", "along 0", "along 1", "along -1",
                        "draws", "draws each", "reads",
                        "shape", "ndim", "nbytes", "part", "text", "iterator", "copy",
                        "transposed", "matrix turned", "strided", "squeeze", "unsqueeze", "axes", "order", "sizes", "pad",
                        "extreme", "picked", "broadcast", "joined", "indices", "item", "item set",
                        "product", "product and sum", "einsum", "solved",
                        "layer", "lookup", "row norm", "group norm", "batch norm", "attention", "batches of images",
                        *(f"{kind} {n}d" for kind in ("convolution", "images") for n in (1, 2, 3)),
                        "similarity", "loss", "class loss", "one hot", "composite")),
    # whether a draw that takes no example is made for each example
    "draws_alone": frozenset((True,)),
    # its tangent: the operation itself of the tangents of all tensors, or of the first's; the sum over its tensors of itself with the tangent in
    # that one's place, to which a third argument may be added; a view that replaces its tensor; or there is none
    "tangent": frozenset(("linear", "first", "product", "product and bias", "view", "none")),
    # of which operands of an operation element by element parts of a sum give parts of the result: of both, where it has two; of one, the others
    # being whole; of the first; or of its only one
    "sums": frozenset(("two", "one", "first", "itself")),
    # its sparse form: itself of the values; or its body is made of operations that have such forms (composite)
    "sparse": frozenset(("values", "composite")),
    # the type of its `out`, where it need not be the result's: what the result can be cast to ("joined": other errors), any, uint8 for truths;
    # and of formulas those that take no other than their own
    "out_type": frozenset(("castable", "joined", "any", "bytes too", "same", "truth")),
    # what PyTorch says besides of an `out` of another type, of the operation's and the result's names and both types
    "out_said": frozenset(("{name} only supports {made} tensor for result, got: {found}", "expected scalar type {made} but got {found} for {result}",
                           "{name}() out tensor must be same dtype as the input tensor", "input tensor and {result} tensor should have the same dtype",
                           "torch.{name}() expects {result} to have dtype {made} but got {found}",
                           "the operation's result requires dtype {made}", "{name} is not yet implemented for complex tensors.")),
    # what its result shows: the memory of its first tensor ("copied": there is `x_copy` too, in memory of its own), or so where the layout allows
    "views": frozenset(("input", "copied", "maybe")),
    # whether its result may be a view of memory of its own, so that `detach_` refuses it: PyTorch's composites end so
    "own_view": frozenset((True,)),
    # whether nothing has filled what it gives
    "unfilled": frozenset((True,)),
    # whether its form in place writes while it reads: what is read must share no memory with what is written
    "reads_apart": frozenset((True,)),
    # whether its form in place is no write that autograd is asked about, so that a leaf may take it: the result is a truth
    "on_leaves": frozenset((True,)),
    # of a formula, what its gradient's layout follows: the saved operands' ("saved"), which PyTorch's kernel of that gradient names first; else that of
    # the gradient that arrives
    "gradient_lies": frozenset(("saved",)),
    # what it does with its first operand's memory: its result is a view of it, where it is no copy; the operand itself gets another layout of it; or
    # it does not look at it
    "memory": frozenset(("view", "relaid", "none")),
    # whether a call of it is the program's word for a copy between devices; or it copies nothing, and calls the program's hooks, which may say so
    "moves": frozenset((True, "hooks")),
    # whether it writes while it reads, so that `out` must not share memory with an operand ("but itself": but may be one)
    "out_apart": frozenset((True, "but itself")),
}
_given: dict[str, dict[str, Any]] = {name: {} for name in _KNOWN}


def has(names: str, **fields: Any) -> None:
    """The operations of these names have these fields. Raises TypeError for a field that there is not, ValueError for a value that none has."""
    for field, value in fields.items():
        known = _KNOWN.get(field)
        if known is None:
            raise TypeError(f"{names}: operations have no field {field!r}; there are {', '.join(_KNOWN)}")
        if value not in known:
            raise ValueError(f"{names}: {field} must be one of {', '.join(map(repr, sorted(map(str, known))))}, got {value!r}")
        for name in names.split():
            _given[field][name] = value


def of(field: str) -> dict[str, Any]:
    """One field, by the operations' names."""
    return _given[field]
