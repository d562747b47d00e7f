"""Primitives as they are said in every dialect of C.

{0} and {1} are operands, {t} their type, {u} the unsigned type that its arithmetic wraps in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..dtypes import dtype

LEAVES = frozenset(("input", "scalar", "coord", "acc", "gather"))
_PASSED = LEAVES | {"const", "cast", "maximum", "minimum", "abs", "bitcast"}
WHOLE = _PASSED | {"add", "sub", "div", "sqrt"}  # what ends in no product that a compiler could make one with an addition beside it
ADDS_NOTHING = _PASSED | {"mul", "neg", "where"}  # what has no addition with which one could be made
COMPARE = {"lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}", "eq": "{0} == {1}", "ne": "{0} != {1}"}
BOOL = {"add": "{0} || {1}", "mul": "{0} && {1}", "sub": "{0} != {1}", "maximum": "{0} || {1}", "minimum": "{0} && {1}",
        "and": "{0} && {1}", "or": "{0} || {1}", "xor": "{0} != {1}", "floordiv": "{0} && {1}", "truncdiv": "{0} && {1}",
        "neg": "{0}", "abs": "{0}", "not": "!{0}", "pow": "{0} || !{1}", "shl": "{0}", "shr": "{0} && !{1}", "rem": "false",
        "fmod": "false"}
INTEGER = {"add": "({t})(({u}){0} + ({u}){1})", "sub": "({t})(({u}){0} - ({u}){1})", "mul": "({t})(({u}){0} * ({u}){1})",
           "and": "({t})(({u}){0} & ({u}){1})", "or": "({t})(({u}){0} | ({u}){1})", "xor": "({t})(({u}){0} ^ ({u}){1})",
           "neg": "({t})(({u})0 - ({u}){0})", "not": "({t})~{0}", "abs": "{0} < 0 ? ({t})(({u})0 - ({u}){0}) : {0}",
           "maximum": "{0} > {1} ? {0} : {1}", "minimum": "{0} < {1} ? {0} : {1}"}
FLOAT = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
         "and": "({t})({0} != 0 && {1} != 0)", "or": "({t})({0} != 0 || {1} != 0)"}
# the library's name for doubles; where it differs from ours
FUNCTIONS = {op: op for op in """sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
 atanh erf erfc lgamma floor ceil trunc pow atan2 hypot copysign nextafter fmod""".split()} | {"abs": "fabs", "round": "rint"}


def half(d: dtype) -> bool:
    """Whether the type is stored as 16 bits and computed in float."""
    return d.name in ("float16", "bfloat16")
