"""Planned calls for all sizes that take the same turns, as builtins in machine code (`llvm/sized.py`): a trace's lines become instructions, and the words
of a call are filled in by what these give."""

from __future__ import annotations

import ast
import struct
from typing import TYPE_CHECKING, Any

from ..unknowns import NoTrace, Trace, Unknown
from .native import Words

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK = (1 << 64) - 1
# what instructions do.  The first give whole numbers, up to WHOLE, then floating-point ones, up to FLOATING; the others are conditions
OPERATIONS = ("ADD", "SUBTRACT", "MULTIPLY", "QUOTIENT", "REST", "SHIFT", "AND", "TRUNCATED", "WHOLE", "FLOAT", "FLOAT_ADD", "FLOAT_SUBTRACT", "FLOAT_MULTIPLY",
              "FLOAT_DIVIDE", "FLOATING", "EQUAL", "LESS", "AT_MOST", "FLOAT_EQUAL", "FLOAT_LESS", "FLOAT_AT_MOST")
FILLED = ("REGISTER", "WORD", "META", "FREE", "GROW")  # with what a word is filled in: a number, where another word lies, a meta, its size class's parts
_NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
_BINARY: dict[Any, str] = {ast.Add: "ADD", ast.Sub: "SUBTRACT", ast.Mult: "MULTIPLY", ast.FloorDiv: "QUOTIENT", ast.Mod: "REST", ast.RShift: "SHIFT",
                           ast.BitAnd: "AND"}
_FLOATING: dict[Any, str] = {ast.Add: "FLOAT_ADD", ast.Sub: "FLOAT_SUBTRACT", ast.Mult: "FLOAT_MULTIPLY", ast.Div: "FLOAT_DIVIDE"}
_COMPARED = {ast.Eq: "EQUAL", ast.Lt: "LESS", ast.LtE: "AT_MOST"}


class Head:
    """Stands among the words of a call for the address of a launch's header that is made with the call."""

    __slots__ = ("words",)

    def __init__(self, words: Words) -> None:
        self.words = words


class Part:
    """Stands among the words of a call for something that follows from a meta of unknown sizes: itself ("META"), or its size class's free list ("FREE")
    and what gives an address where that is empty ("GROW")."""

    __slots__ = ("what", "meta")

    def __init__(self, what: str, meta: Any) -> None:
        self.what, self.meta = what, meta


Register = tuple[str, int]  # "size", "constant" or "made", and its number among those
Number = tuple[Register, bool]  # where it is, and whether it is a floating-point one


class Program:
    """The instructions of a trace's lines.

    sizes: how many the call is told, s0, s1, ... in the lines.
    """

    def __init__(self, trace: Trace, sizes: int) -> None:
        self.trace = trace
        self.code: list[tuple[str, Register | int, Register, Register]] = []
        self._sizes = sizes
        self._named: dict[str, Number] = {f"s{i}": (("size", i), False) for i in range(sizes)}
        self._constants: dict[int, Register] = {}
        self._floats: dict[Register, Register] = {}
        self._made = 0
        self.metas: list[list[Any]] = []  # words, in which registers are Register
        self._metas: dict[Any, int] = {}

    def work_out(self, needed: set[str]) -> None:
        """The instructions of the conditions, and of the lines that these and the names need."""
        for text, name in self.trace.kept(needed):
            if name:
                self._named[name] = self._of(ast.parse(text.partition(" = ")[2], mode="eval").body)
            else:
                self._condition(ast.parse(text, mode="eval").body, True)

    def register(self, x: Any) -> Register:
        """Where a number is that is whole, or of which the bits are wanted."""
        return self._named[x.name][0] if x.__class__ is Unknown else self._constant(int(x) & _MASK)

    def meta(self, m: Any) -> int:
        """The number of a meta of unknown sizes."""
        rows = [self.register(x) for x in (*m.shape, *m.strides)]
        key = tuple(rows), m.dtype
        found = self._metas.get(key)
        if found is None:
            found = self._metas[key] = len(self.metas)
            self.metas.append([len(m.shape), self.register(m.numel), self.register(m.nbytes), id(m.contiguous), id(m.dtype), *rows])
        return found

    def packed(self, arguments: int, call: Sequence[Any]) -> bytes:
        """The words of the builtin, of a call's words.  arguments: how many it takes."""
        items: list[Any] = list(call)
        metas: list[Any] = []
        for x in items:  # which grows: headers lie behind the words of the call
            if x.__class__ is Head:
                items += x.words.words
            elif x.__class__ is Part:
                metas.append(x.meta)
        numbers = [x for x in (*items, *[v for m in metas for v in (*m.shape, *m.strides, m.numel, m.nbytes)]) if x.__class__ is Unknown]
        if any(x.value.__class__ is not int for x in items[len(call):] if x.__class__ is Unknown):
            raise NoTrace("a header of floating-point numbers")
        self.work_out({x.name for x in numbers})
        filled: list[Any] = []
        at = len(call)
        for i, x in enumerate(items):
            if x.__class__ is Head:
                filled += [i, FILLED.index("WORD"), at]
                at += len(x.words.words)
            elif x.__class__ is Part:
                filled += [i, FILLED.index(x.what), self.meta(x.meta)]
            elif x.__class__ is Unknown:
                filled += [i, FILLED.index("REGISTER"), self.register(x)]
        code = [w for what, to, a, b in self.code for w in (_NUMBER[what], to, a, b)]
        head = [arguments, self._sizes, len(self._constants), self._sizes + len(self._constants) + self._made, len(self.code), len(self.metas), len(items),
                len(filled) // 3, *self._constants]
        words = [*head, *code, *[w for m in self.metas for w in m], *filled, *[0 if x.__class__ in (Head, Part, Unknown) else x for x in items]]
        begin = {"size": 0, "constant": self._sizes, "made": self._sizes + len(self._constants)}
        placed: list[Any] = [begin[w[0]] + w[1] if w.__class__ is tuple else w for w in words]
        return struct.pack(f"<{len(placed)}Q", *[w & _MASK for w in placed])

    # ------------------------------------------------------------------------------------------------------------- numbers
    def _constant(self, bits: int) -> Register:
        return self._constants.setdefault(bits, ("constant", len(self._constants)))

    def _result(self, what: str, a: Register, b: Register) -> Register:
        made = "made", self._made
        self._made += 1
        self.code.append((what, made, a, b))
        return made

    def _float(self, x: Number) -> Register:
        if x[1]:
            return x[0]
        found = self._floats.get(x[0])
        if found is None:
            found = self._floats[x[0]] = self._result("FLOAT", x[0], x[0])
        return found

    def _of(self, node: ast.expr) -> Number:
        if isinstance(node, ast.Name):
            return self._named[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) or isinstance(node, ast.Constant):
            return self._literal(ast.literal_eval(node))
        if isinstance(node, ast.BinOp):
            return self._binary(type(node.op), self._of(node.left), self._of(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int":
            x = self._of(node.args[0])
            return (self._result("TRUNCATED", x[0], x[0]), False) if x[1] else x
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
            return self._literal(float(ast.literal_eval(node.args[0])))
        raise NoTrace(f"no instruction for {ast.unparse(node)}")

    def _side(self, node: ast.expr) -> Number:
        """A side of a comparison, where a literal may be larger than any number is."""
        try:
            value = ast.literal_eval(node)
        except ValueError:
            return self._of(node)
        if value.__class__ is not int:
            return self._literal(value)
        return self._constant(min(max(value, -1 << 63), (1 << 63) - 1) & _MASK), False  # no number is as large

    def _literal(self, value: Any) -> Number:
        if value.__class__ is float:
            return self._constant(struct.unpack("<Q", struct.pack("<d", value))[0]), True
        if abs(value) >> 61:
            raise NoTrace("a large number")
        return self._constant(int(value) & _MASK), False

    def _binary(self, op: type, a: Number, b: Number) -> Number:
        if op is ast.Div or a[1] or b[1]:
            if op not in _FLOATING:
                raise NoTrace("no instruction for floating-point numbers")
            return self._result(_FLOATING[op], self._float(a), self._float(b)), True
        return self._result(_BINARY[op], a[0], b[0]), False

    def _condition(self, node: ast.expr, holds: bool) -> None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._condition(node.operand, not holds)
            return
        assert isinstance(node, ast.Compare)
        what, a, b = _COMPARED[type(node.ops[0])], self._side(node.left), self._side(node.comparators[0])
        if a[1] or b[1]:
            self.code.append(("FLOAT_" + what, int(holds), self._float(a), self._float(b)))
        else:
            self.code.append((what, int(holds), a[0], b[0]))
