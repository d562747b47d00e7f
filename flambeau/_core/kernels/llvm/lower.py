"""Expressions as vector IR: one value for each node, for any number of lanes.

`lower` walks expressions of real types and asks its caller for the leaves.  Transcendental functions come from
`functions.emit`.  float16 and bfloat16 are computed in float32 and rounded after every operation, bfloat16 only where that may change the value.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...dtypes import bfloat16, bool_, float16, float32
from ..expr import COMPARE, walk
from ..loops.walk import FUNCTIONS
from .casts import cast, cut
from .emit import base, constant, splat, ty, vec
from .integers import integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...dtypes import dtype
    from ..expr import Expr
    from .emit import Emitter

    Leaf = Callable[[Expr, list[str]], str]

LEAVES = frozenset(("input", "scalar", "coord", "acc", "gather"))
_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
# of numbers that bfloat16 holds these give such numbers: whole numbers beside one have no more digits than it has
_SIGNS = frozenset(("neg", "abs", "copysign"))
_HELD = _SIGNS | frozenset(("floor", "ceil", "round", "trunc", "maximum", "minimum"))
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_INTRINSIC = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "roundeven",
                    "trunc": "trunc", "copysign": "copysign"}


def lower(em: Emitter, roots: tuple[Expr, ...], lanes: int, leaf: Leaf,
          known: dict[Expr, str] | None = None) -> list[str]:
    """The values of `roots`.

    leaf(node, args): the value of an input, scalar, coord, acc or gather node (args: the gather's offset, in a list).
    known: values made before, in a block that dominates this one; nodes lowered here are added to it.
    """
    known = {} if known is None else known
    _all(em, list(walk(roots, known)), roots, lanes, leaf, known)
    return [known[r] for r in roots]


def _all(em: Emitter, nodes: list[Expr], roots: Iterable[Expr], lanes: int, leaf: Leaf, known: dict[Expr, str]) -> None:
    """Makes the values of `nodes`, arguments first; what only one side of a choice needs, and is costly, where some lane takes that side."""
    sides = _sides(nodes, roots)
    apart = {e for side in sides.values() for e in side}
    for e in nodes:
        if e in apart:
            continue
        if _is_sign(e):
            known[e] = _sign(em, e.args[0].op, [known[a.args[0]] for a in e.args[0].args], lanes)
            continue
        args = [known[a] if (e, k) not in sides else _side(em, e, k, sides[e, k], lanes, leaf, known) for k, a in enumerate(e.args)]
        known[e] = leaf(e, args) if e.op in LEAVES else _node(em, e, args, lanes)


def _side(em: Emitter, e: Expr, k: int, nodes: list[Expr], lanes: int, leaf: Leaf, known: dict[Expr, str]) -> str:
    """The value of side `k` of a choice, or 0 where no lane takes it."""
    taken, t = known[e.args[0]], ty(e.dtype, lanes)
    if k == 2:
        taken = em.op(f"xor {vec('i1', lanes)} {taken}, {constant(True, bool_, lanes)}")
    some = taken if lanes == 1 else em.call(f"llvm.vector.reduce.or.v{lanes}i1", "i1", (vec("i1", lanes), taken))
    before, yes, on = em.current, em.label("taken"), em.label("chosen")
    em.branch(some, yes, on)
    em.start(yes)
    inside = dict(known)
    _all(em, nodes, (e.args[k],), lanes, leaf, inside)
    last = em.current
    em.jump(on)
    em.start(on)
    return em.phi(t, (inside[e.args[k]], last), (constant(0, e.dtype, lanes), before))


_COSTS = {**dict.fromkeys(FUNCTIONS, 25), **dict.fromkeys(("div", "sqrt", "rsqrt", "gather"), 8), "const": 0}
_WORTH = 24  # of a side: a test costs as much as a few operations


def _sides(nodes: list[Expr], roots: Iterable[Expr]) -> dict[tuple[Expr, int], list[Expr]]:
    """The costly sides of choices among `nodes`: by the choice and the number of its argument what nothing else needs, arguments first.  Sides
    within sides are left to these."""
    if sum(_COSTS.get(e.op, 1) for e in nodes) < _WORTH or not any(e.op == "where" for e in nodes):
        return {}
    users: dict[Expr, list[tuple[Expr | None, int]]] = {e: [] for e in nodes}
    for e in nodes:
        for k, a in enumerate(e.args):
            if a in users:
                users[a].append((e, k))
    for e in roots:
        if e in users:
            users[e].append((None, 0))
    found: dict[tuple[Expr, int], list[Expr]] = {}
    inside: set[Expr] = set()
    for at in range(len(nodes) - 1, -1, -1):
        e = nodes[at]
        if e.op != "where" or e in inside:
            continue
        for k in (1, 2):
            first = e.args[k]
            if any(u is not e or place != k for u, place in users.get(first, [(None, 0)])):
                continue
            side, own = [first], {first}
            for n in reversed(nodes[:at]):
                # a leaf of its own is read once for all
                if n.args and n not in own and all(u in own for u, _ in users[n]):
                    own.add(n)
                    side.append(n)
            if first.args and sum(_COSTS.get(n.op, 1) for n in side) >= _WORTH:
                found[e, k] = side[1:][::-1] + side[:1]
                inside |= own
    return found


def _node(em: Emitter, e: Expr, args: list[str], lanes: int) -> str:
    if e.op == "const":
        return constant(e.value, e.dtype, lanes)
    source = e.args[-1].dtype
    if e.op == "cast":
        if e.dtype is bfloat16 and source is float32 and _held(e.args[0]):
            return cut(em, args[0], lanes)
        return cast(em, args[0], source, e.dtype, lanes)
    if e.op == "where":
        t = ty(e.dtype, lanes)
        return em.op(f"select {vec('i1', lanes)} {args[0]}, {t} {args[1]}, {t} {args[2]}")
    if e.op == "bitcast":
        if base(source) == base(e.dtype):
            return args[0]
        if source is bool_ or e.dtype is bool_:
            return cast(em, args[0], source, e.dtype, lanes)
        return em.op(f"bitcast {ty(source, lanes)} {args[0]} to {ty(e.dtype, lanes)}")
    if e.dtype.is_complex or source.is_complex:
        raise ValueError(f"{e.op} of {source}: complex values must be rewritten by complexes.lower first")
    return apply(em, e.op, source, lanes, args)


def _is_sign(e: Expr) -> bool:
    """Whether a node does nothing to bfloat16 numbers but to their signs."""
    return e.op == "cast" and e.dtype is bfloat16 and e.args[0].op in _SIGNS and all(
        a.op == "cast" and a.args[0].dtype is bfloat16 for a in e.args[0].args)


def _sign(em: Emitter, op: str, args: list[str], lanes: int) -> str:
    """neg, abs and copysign of bfloat16 numbers, by their bits."""
    t = ty(bfloat16, lanes)
    sign, rest = (splat(n, "i16", lanes) for n in ("-32768", "32767"))
    if op == "neg":
        return em.op(f"xor {t} {args[0]}, {sign}")
    size = em.op(f"and {t} {args[0]}, {rest}")
    return size if op == "abs" else em.op(f"or {t} {size}, {em.op(f'and {t} {args[1]}, {sign}')}")


def _held(e: Expr) -> bool:
    """Whether bfloat16 holds every value of a float32 expression as it is."""
    pending, seen = [e], set()
    while pending:
        n = pending.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.op == "cast":
            source = n.args[0].dtype
            if source is not bfloat16 and not (source.kind in "bui" and source.itemsize == 1):
                return False
        elif n.op == "const":
            if not _is_short(float(n.value.real)):
                return False
        elif n.op == "where" or n.op in _HELD:
            pending += n.args[1:] if n.op == "where" else n.args
        else:
            return False
    return True


def _is_short(x: float) -> bool:
    """Whether bfloat16 holds what float32 makes of a number."""
    try:
        return not struct.unpack("<I", struct.pack("<f", x))[0] & 0xFFFF
    except OverflowError:  # infinity
        return True


def apply(em: Emitter, op: str, d: dtype, lanes: int, args: list[str]) -> str:
    """One primitive of operands of type `d` (comparisons give i1)."""
    if d is bfloat16 and op in _SIGNS:
        return _sign(em, op, args, lanes)
    if d is float16 or d is bfloat16:
        wide = [cast(em, a, d, float32, lanes) for a in args]
        result = apply(em, op, float32, lanes, wide)
        if d is bfloat16 and op in _HELD:
            return cut(em, result, lanes)
        return result if op in COMPARE else cast(em, result, float32, d, lanes)
    return _floating(em, op, d, lanes, args) if d.kind == "f" else integer(em, op, d, lanes, args)


def combine(em: Emitter, how: str, d: dtype, lanes: int, a: str, b: str) -> str:
    """Two partial results as one: sum, prod, max, min (NaN wins), and, or."""
    op = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}.get(how, how)
    return apply(em, op, d, lanes, [a, b])


def _floating(em: Emitter, op: str, d: dtype, lanes: int, args: list[str]) -> str:
    t, mask, a = ty(d, lanes), vec("i1", lanes), args[0]
    b = args[1] if len(args) > 1 else ""
    if op in _FLOAT_BINARY:
        return em.op(f"{_FLOAT_BINARY[op]} {t} {a}, {b}")
    if op in _FLOAT_COMPARE:
        return em.op(f"fcmp {_FLOAT_COMPARE[op]} {t} {a}, {b}")
    if op in _FLOAT_INTRINSIC:
        return em.intrinsic(_FLOAT_INTRINSIC[op], d, lanes, *args)
    if op == "neg":
        return em.op(f"fneg {t} {a}")
    if op == "rsqrt":
        return em.op(f"fdiv {t} {constant(1.0, d, lanes)}, {em.intrinsic('sqrt', d, lanes, a)}")
    if op in ("maximum", "minimum"):
        # the comparison keeps b when either is NaN; then a NaN in a wins
        keep = em.op(f"fcmp {'ogt' if op == 'maximum' else 'olt'} {t} {a}, {b}")
        best = em.op(f"select {mask} {keep}, {t} {a}, {t} {b}")
        return em.op(f"select {mask} {em.op(f'fcmp uno {t} {a}, {a}')}, {t} {a}, {t} {best}")
    if op in ("floordiv", "rem"):
        return _floor_division(em, op, d, lanes, a, b)
    if op == "truncdiv":
        return em.intrinsic("trunc", d, lanes, em.op(f"fdiv {t} {a}, {b}"))
    if op in ("and", "or"):
        zero = constant(0.0, d, lanes)
        bits = [em.op(f"fcmp une {t} {x}, {zero}") for x in (a, b)]
        return cast(em, em.op(f"{op} {mask} {bits[0]}, {bits[1]}"), bool_, d, lanes)
    return _function(em, op, d, lanes, args)


def _floor_division(em: Emitter, op: str, d: dtype, lanes: int, a: str, b: str) -> str:
    """Python's: the remainder has the divisor's sign, and quotient * divisor + remainder gives a back."""
    t, mask = ty(d, lanes), vec("i1", lanes)
    zero, one = constant(0.0, d, lanes), constant(1.0, d, lanes)
    r = _function(em, "fmod", d, lanes, [a, b])
    some = em.op(f"fcmp une {t} {r}, {zero}")
    opposite = em.op(f"xor {mask} {em.op(f'fcmp olt {t} {r}, {zero}')}, {em.op(f'fcmp olt {t} {b}, {zero}')}")
    fix = em.op(f"and {mask} {some}, {opposite}")
    if op == "rem":
        return em.op(f"select {mask} {fix}, {t} {em.op(f'fadd {t} {r}, {b}')}, {t} {r}")
    q = em.op(f"fdiv {t} {em.op(f'fsub {t} {a}, {r}')}, {b}")
    q = em.op(f"select {mask} {fix}, {t} {em.op(f'fsub {t} {q}, {one}')}, {t} {q}")
    whole = em.intrinsic("floor", d, lanes, q)
    far = em.op(f"fcmp ogt {t} {em.op(f'fsub {t} {q}, {whole}')}, {constant(0.5, d, lanes)}")
    whole = em.op(f"select {mask} {far}, {t} {em.op(f'fadd {t} {whole}, {one}')}, {t} {whole}")
    exact = em.op(f"fdiv {t} {a}, {b}")
    signed_zero = em.intrinsic("copysign", d, lanes, zero, exact)
    got = em.op(f"select {mask} {em.op(f'fcmp oeq {t} {q}, {zero}')}, {t} {signed_zero}, {t} {whole}")
    return em.op(f"select {mask} {em.op(f'fcmp oeq {t} {b}, {zero}')}, {t} {exact}, {t} {got}")


def _function(em: Emitter, op: str, d: dtype, lanes: int, args: list[str]) -> str:
    from .functions import emit
    return emit(op, d, lanes, em, args)
