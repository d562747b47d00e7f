"""Contractions of several axes: tensordot, einsum, Kronecker products and chains of matrices, built from the products of `matmul`."""

from __future__ import annotations

from typing import Any

from .. import layout
from ..engine.fields import has
from ..tensor import Tensor
from .checks import of_kinds, one_type, same_device
from .matmul import _bmm, _check_types, _mm, mm
from .table import op


@op(out=True, tangent="product", batch="product and sum")
def inner(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The sum of products over the last axes."""
    if not input.meta.shape or not other.meta.shape:
        return input * other
    if input.meta.shape[-1] != other.meta.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {list(input.meta.shape)} and "
                           f"{list(other.meta.shape)}")
    return tensordot(input, other, ([-1], [-1]))


# ------------------------------------------------------------------------------------------------------------ tensordot
@op(method=False, out=True, autocast="cpu lower, cuda widest", tangent="product", renames=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums of products over pairs of axes: the last `dims` of a with the first of b, or the two lists given."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(len(a.meta.shape), len(b.meta.shape)):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        left, right = list(range(len(a.meta.shape) - dims, len(a.meta.shape))), list(range(dims))
    else:
        left, right = [[d] if isinstance(d, int) else list(d) for d in dims]
    if len(left) != len(right):
        raise RuntimeError("both dimension lists should have same length")
    if a.meta.dtype is not b.meta.dtype:
        raise RuntimeError(f"both inputs should have same dtype; they have {a.meta.dtype} and {b.meta.dtype}")
    left = [layout.wrap_dim(d, len(a.meta.shape)) for d in left]
    right = [layout.wrap_dim(d, len(b.meta.shape)) for d in right]
    for x, y in zip(left, right, strict=True):
        if a.meta.shape[x] != b.meta.shape[y] and 1 in (a.meta.shape[x], b.meta.shape[y]):
            # one element stands for all: the other's are summed first
            if a.meta.shape[x] == 1:
                b = b.sum(y, True, dtype=a.meta.dtype)
            else:
                a = a.sum(x, True, dtype=b.meta.dtype)
        elif a.meta.shape[x] != b.meta.shape[y]:
            raise RuntimeError(f"contracted dimensions need to match, but first has size {a.meta.shape[x]} in dim {x} and second has size "
                               f"{b.meta.shape[y]} in dim {y}")
    keep_a = [i for i in range(len(a.meta.shape)) if i not in left]
    keep_b = [i for i in range(len(b.meta.shape)) if i not in right]
    k = layout.numel([a.meta.shape[d] for d in left])
    shape = [a.meta.shape[i] for i in keep_a] + [b.meta.shape[i] for i in keep_b]
    x = a.permute(keep_a + left).reshape(layout.numel([a.meta.shape[i] for i in keep_a]), k)  # type: ignore[assignment]
    y = b.permute(right + keep_b).reshape(k, layout.numel([b.meta.shape[i] for i in keep_b]))  # type: ignore[assignment]
    _check_types("tensordot", x, y)
    return _mm(x, y).reshape(shape)  # type: ignore[arg-type]


@op(out=True, tangent="product", out_type="castable")
def kron(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The Kronecker product."""
    n = max(len(input.meta.shape), len(other.meta.shape))
    a = (1,) * (n - len(input.meta.shape)) + tuple(input.meta.shape)
    b = (1,) * (n - len(other.meta.shape)) + tuple(other.meta.shape)
    left = [d for pair in zip(a, (1,) * n, strict=True) for d in pair]
    right = [d for pair in zip((1,) * n, b, strict=True) for d in pair]
    return (input.reshape(left) * other.reshape(right)).reshape([x * y for x, y in zip(a, b, strict=True)])


@op(method=False, out=True, spaces=("linalg",), autocast="lower", tangent="product")
def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices in the cheapest order (the first and last may be vectors).

    The order is found by the dynamic programme of T. H. Cormen et al., "Introduction to Algorithms", 15.2.
    """
    ts = list(tensors)
    if len(ts) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(ts)))
    first, last = len(ts[0].meta.shape) == 1, len(ts[-1].meta.shape) == 1
    if first:
        ts[0] = ts[0].unsqueeze(0)
    if last:
        ts[-1] = ts[-1].unsqueeze(1)
    for t in ts:
        if len(t.meta.shape) != 2:
            raise RuntimeError(f"multi_dot(): the tensors must be matrices, but got one of {len(t.meta.shape)} dimensions")
    n = len(ts)
    p = [t.meta.shape[0] for t in ts] + [ts[-1].meta.shape[1]]
    cost = [[0.0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i][j], cut[i][j] = min((cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1], k) for k in range(i, j))

    def product(i: int, j: int) -> Tensor:
        return ts[i] if i == j else mm(product(i, cut[i][j]), product(cut[i][j] + 1, j))
    out = product(0, n - 1)
    if first:
        out = out.squeeze(0)
    return out.squeeze(-1) if last else out


@op(method=False, autocast="lower", tangent="product", renames=False)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices in the cheapest order."""
    return multi_dot(matrices) if len(matrices) > 1 else matrices[0]


# ---------------------------------------------------------------------------------------------------------------- einsum
@op(method=False, autocast="lower", tangent="product", renames=False, batch="einsum")
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products by Einstein's convention: "ij,jk->ik", with ... for further axes; or operands each followed by a list
    of axis numbers."""
    if not isinstance(equation, str):
        equation, operands = _from_lists((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    for i, x in enumerate(operands):
        if not isinstance(x, Tensor):
            raise TypeError(f"einsum(): argument 'operands' must be tensors, but operand {i} is {type(x).__name__}")
    same_device("einsum", *operands)
    terms, target, sizes = _parse(equation.replace(" ", ""), operands)
    out, names = _diagonals(operands[0], terms[0])
    rest = list(zip(operands[1:], terms[1:], strict=True))
    later = [set(target).union(*[set(t) for _, t in rest[i:]]) for i in range(len(rest) + 1)]
    out, names = _sum_out(out, names, later[0])
    for i, (x, term) in enumerate(rest):
        y, other = _diagonals(x, term)
        y, other = _sum_out(y, other, later[i + 1] | set(names))
        out, names = _contract(out, names, y, other, later[i + 1], sizes)
    out, names = _sum_out(out, names, set(target))
    return out.permute([names.index(c) for c in target]) if names != target else out


def _from_lists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The sublist form as an equation."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    tensors, terms = [], []
    i = 0
    while i + 1 < len(args) and isinstance(args[i], Tensor):
        tensors.append(args[i])
        terms.append("".join("..." if a is Ellipsis else letters[a] for a in args[i + 1]))
        i += 2
    target = "->" + "".join("..." if a is Ellipsis else letters[a] for a in args[i]) if i < len(args) else ""
    return ",".join(terms) + target, tuple(tensors)


def _parse(equation: str, operands: tuple[Any, ...]) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """Axis names of each operand and of the result; ellipsis axes are named by their place from the right."""
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        how = "more" if len(operands) > len(parts) else "fewer"
        raise RuntimeError(f"einsum(): {how} operands were provided than specified in the equation")
    terms, sizes, most = [], {}, 0  # type: ignore[var-annotated]
    for part, t in zip(parts, operands, strict=True):
        named = part.replace("...", "")
        for c in named:
            if not c.isalpha():
                raise RuntimeError(f"einsum(): invalid subscript given at index {equation.index(c)} in the equation string, subscripts must "
                                   "be in [a-zA-Z]")
        extra = len(t.meta.shape) - len(named)
        if extra < 0 or (extra and "..." not in part):
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(named)}) {'is more than' if extra < 0 else 'does not match'} "
                               f"the number of dimensions ({len(t.meta.shape)}) for operand {len(terms)}")
        dots = [f".{i}" for i in range(extra - 1, -1, -1)]
        most = max(most, extra)
        at = part.find("...")
        term = [*part[:at], *dots, *part[at + 3:]] if at >= 0 else list(part)
        own: dict[str, int] = {}
        for c, d in zip(term, t.meta.shape, strict=True):
            if own.setdefault(c, d) != d:
                raise RuntimeError(f"einsum(): subscript {c} is repeated for operand {len(terms)} but the sizes don't match, {d} != {own[c]}")
            if sizes.get(c, 1) == 1:
                sizes[c] = d
            elif d not in (1, sizes[c]):
                raise RuntimeError(f"einsum(): operands do not broadcast with remapped shapes [original->remapped]: subscript {c} has size "
                                   f"{d}, which does not match {sizes[c]}")
        terms.append(term)
    dots = [f".{i}" for i in range(most - 1, -1, -1)]
    if arrow:
        at = right.find("...")
        target = [*right[:at], *dots, *right[at + 3:]] if at >= 0 else list(right)
        for c in target:
            if c not in sizes:
                raise RuntimeError(f"einsum(): output subscript {c} does not appear in the equation for any input operand")
            if target.count(c) > 1:
                raise RuntimeError(f"einsum(): output subscript {c} appears more than once in the output")
    else:
        flat = [c for term in terms for c in term if not c.startswith(".")]
        target = dots + sorted(c for c in set(flat) if flat.count(c) == 1)
    return terms, target, sizes


def _diagonals(t: Tensor, term: list[str]) -> tuple[Tensor, list[str]]:
    """An axis named twice becomes the diagonal."""
    names = list(term)
    for c in list(dict.fromkeys(names)):
        while names.count(c) > 1:
            i = names.index(c)
            j = names.index(c, i + 1)
            t = t.diagonal(0, i, j)
            names = [x for k, x in enumerate(names) if k not in (i, j)] + [c]
    return t, names


def _sum_out(t: Tensor, names: list[str], keep: set[str]) -> tuple[Tensor, list[str]]:
    gone = [i for i, c in enumerate(names) if c not in keep]
    return (t.sum(gone), [c for c in names if c in keep]) if gone else (t, names)


def _contract(a: Tensor, an: list[str], b: Tensor, bn: list[str], keep: set[str], sizes: dict[str, int]) -> tuple[Tensor, list[str]]:
    """Two operands into one, by a batched product over the axes both have."""
    both = [c for c in an if c in bn]
    # an axis of size 1 on one side only is broadcast, not summed as a product
    lone = [c for c in both if c not in keep and (a.meta.shape[an.index(c)] != b.meta.shape[bn.index(c)])]
    for c in lone:
        if a.meta.shape[an.index(c)] == 1:
            b, bn = b.sum(bn.index(c)), [x for x in bn if x != c]
            a, an = a.squeeze(an.index(c)), [x for x in an if x != c]
        else:
            a, an = a.sum(an.index(c)), [x for x in an if x != c]
            b, bn = b.squeeze(bn.index(c)), [x for x in bn if x != c]
    for c in [c for c in both if c in an and c in bn and c not in keep and a.meta.shape[an.index(c)] == 1]:  # nothing to sum
        a, an = a.squeeze(an.index(c)), [x for x in an if x != c]
        b, bn = b.squeeze(bn.index(c)), [x for x in bn if x != c]
    both = [c for c in an if c in bn]
    batch, inner = [c for c in both if c in keep], [c for c in both if c not in keep]
    left, right = [c for c in an if c not in both], [c for c in bn if c not in both]
    if not inner:  # nothing is summed: a product of any types
        x = a.permute([an.index(c) for c in (*batch, *left)])
        y = b.permute([bn.index(c) for c in (*batch, *right)])
        shape = [*y.meta.shape[:len(batch)], *[1] * len(left), *y.meta.shape[len(batch):]]
        return x.reshape([*x.meta.shape, *[1] * len(right)]) * y.reshape(shape), batch + left + right
    shape = [max(a.meta.shape[an.index(c)], b.meta.shape[bn.index(c)]) if 0 not in (a.meta.shape[an.index(c)], b.meta.shape[bn.index(c)]) else 0
             for c in batch]

    def arranged(t: Tensor, names: list[str], first: list[str], second: list[str]) -> Tensor:
        x = t.permute([names.index(c) for c in (*batch, *first, *second)])
        f, s = [t.meta.shape[names.index(c)] for c in first], [t.meta.shape[names.index(c)] for c in second]
        return x.expand((*shape, *f, *s)).reshape(layout.numel(shape), layout.numel(f), layout.numel(s))
    x, y = arranged(a, an, left, inner), arranged(b, bn, inner, right)
    if x.meta.numel and y.meta.numel:
        of_kinds("bmm", x, "uifc")
    one_type("einsum", x, y)
    made = _bmm(x, y)
    return made.reshape([*shape, *[a.meta.shape[an.index(c)] for c in left], *[b.meta.shape[bn.index(c)] for c in right]]), batch + left + right


@op(method=False, spaces=("nn.functional",), autocast="cuda widest")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T W_k x2 + b_k for each output k: input1 (..., in1), input2 (..., in2), weight (out, in1, in2), bias (out,)."""
    given = {"input1": input1, "input2": input2, "weight": weight, **({} if bias is None else {"bias": bias})}
    if any(t.meta.dtype is not input1.meta.dtype for t in given.values()):
        raise RuntimeError(f"All tensors must have the same dtype, got {', '.join(f'{label}: {t.meta.dtype.name}' for label, t in given.items())}")
    lead, others = tuple(input1.meta.shape[:-1]), tuple(input2.meta.shape[:-1])
    if lead != others:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: expected {list(lead)}, got {list(others)}")
    k, i, j = weight.meta.shape
    if input1.meta.shape[-1] != i or input2.meta.shape[-1] != j:
        raise RuntimeError(f"bilinear(): the last dimensions of input1 and input2 must be {i} and {j}, as those of weight, got "
                           f"{input1.meta.shape[-1]} and {input2.meta.shape[-1]}")
    n = layout.numel(lead)
    left = input1.reshape(n, i).matmul(weight.permute(1, 0, 2).reshape(i, k * j)).reshape(n, k, j)
    out: Tensor = (left * input2.reshape(n, 1, j)).sum(-1, dtype=left.meta.dtype).reshape(*lead, k)
    return out if bias is None else out + bias


has("chain_matmul einsum inner multi_dot tensordot", own_view=True)
has("multi_dot", batch="composite", sparse="composite")
has("bilinear kron", batch="composite")
has("einsum", sparse="composite")
