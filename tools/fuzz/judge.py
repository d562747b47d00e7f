"""Whose a difference is: questions about one line of a program that PyTorch itself answers.

A difference gets a word behind its kind where the answer shows that PyTorch's result is none that another library could give:

    inherited   on Flambeau's operands PyTorch gives Flambeau's result: the operands differ in rounding, or in the sign of a not-a-number
    nearer      PyTorch gives Flambeau's result when it works in wide types: it rounds, wraps or underflows in between
    lacking     PyTorch refuses, and gives Flambeau's result on contiguous operands or in wide types: a kernel of its own is missing
    shared      PyTorch reads what it has just written: on copies that share no memory its result is another
    unwritten   both refuse, and only PyTorch had begun to write
    nan         mode, unique: without the not-a-numbers among the values both agree; PyTorch sorts by an order that these break
    integer     PyTorch says that integers require grad
    lost        PyTorch says that a view requires grad and has no node for it, so that its gradient goes nowhere

What no question explains keeps its plain kind.  The words are kinds of `known/programs.toml`'s families.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

Values = list[Any]

_WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex32": "complex128", "complex64": "complex128",
         "uint8": "int64", "int8": "int64", "int16": "int64", "int32": "int64"}
_NUMBER = 12345.0  # stands for a not-a-number; the instrument's values are small


def word(instrument: Any, program: tuple[list[Any], list[str]], kind: str, n: int, text: str) -> str:
    """The word for a difference of this kind at line n, or "" """
    line = program[1][n]
    try:
        return next((w for w, holds in _questions(kind, line, text) if holds(_Line(instrument, program, n), text)), "")
    except Exception:  # a question that PyTorch refuses is not answered
        return ""


def _questions(kind: str, line: str, text: str) -> list[tuple[str, Callable[[_Line, str], bool]]]:
    if "requires_grad" in kind:
        return [("integer", _of_integers), ("lost", _lost)]
    if kind.endswith("-raising"):
        return [("unwritten", _unwritten)]
    if kind == "flambeau-error":
        return [("shared", _reads_its_own)] if "single memory location" in text else []
    if "backward(" in line or "autograd." in line:
        return []
    if kind == "torch-error":
        return [("lacking", _lacking)] if re.search("not implemented for|view size is not compatible", text) else []
    if kind.startswith(("value", "float", "P")):
        return [("inherited", _inherited), ("nearer", _nearer), ("shared", _differs_by_order), ("nan", _by_nans)]
    return []


class _Line:
    """One line, with the values of both libraries before it."""

    def __init__(self, instrument: Any, program: tuple[list[Any], list[str]], n: int) -> None:
        self.instrument = instrument
        self.line: str = program[1][n]
        inputs, lines = program
        self.torch, self.flambeau = instrument.LIBS
        self.theirs, self.ours = ([instrument.mk(T, i) for i in inputs] for T in instrument.LIBS)
        for line in lines[:n]:
            given = [self.outcome(T, v, line)[0] for T, v in self.both()]
            if not line.startswith("!"):
                failed = any(isinstance(g, Exception) for g in given)
                for (T, v), g in zip(self.both(), given, strict=True):
                    g = g[0] if isinstance(g, (tuple, list)) and g and all(map(instrument.isT, g)) else g
                    v.append(g if instrument.isT(g) and not failed else T.zeros(2, 2))

    def both(self) -> tuple[tuple[Any, Values], tuple[Any, Values]]:
        return (self.torch, self.theirs), (self.flambeau, self.ours)

    def outcome(self, library: Any, values: Values, line: str | None = None) -> tuple[Any, Values]:
        """What the line gives, or the exception that it raises; and the values after it."""
        line = line or self.line
        env = {"T": library, "v": values, "apart": lambda x: x.clone() if self.instrument.isT(x) else x}
        try:
            if line.startswith("!"):
                exec(line[1:], env)
                return None, values
            return eval(line, env), values
        except RecursionError:
            raise
        except Exception as error:
            return error, values

    def alike(self, theirs: Any, ours: Any) -> bool:
        """Whether values of PyTorch's agree with Flambeau's, of whichever type PyTorch's are."""
        if isinstance(theirs, Exception) or isinstance(ours, Exception):
            return False
        if isinstance(theirs, (tuple, list)) and isinstance(ours, (tuple, list)):
            return len(theirs) == len(ours) and all(map(self.alike, theirs, ours))
        if self.instrument.isT(theirs) and self.instrument.isT(ours):
            wanted = getattr(self.torch, self.instrument.dn(ours.dtype))
            if theirs.dtype.is_floating_point != wanted.is_floating_point or theirs.dtype.is_complex != wanted.is_complex:
                return False
            theirs = theirs.to(wanted)
        a, b = (self.instrument.summ(x) for x in (theirs, ours))
        if a[0] == "T":
            a, b = a[:6] + (False, False), b[:6] + (False, False)
        return self.instrument.compare(a, b) is None

    def agree(self, values: Values, line: str | None = None) -> bool:
        """Whether PyTorch on these values does what Flambeau does on its own."""
        ours, after = self.outcome(self.flambeau, [x.clone() if x.node is None else x for x in self.ours] if self._plain() else self.ours)
        theirs, their_after = self.outcome(self.torch, values, line)
        return self.alike(theirs, ours) if self._plain() else self.alike(theirs, ours) and self.alike(their_after, after)

    def _plain(self) -> bool:
        """Whether the line gives a result and writes to nothing."""
        return not (self.line.startswith("!") or re.search(r"\w_\(", self.line))

    def carried(self, kinds: dict[str, str] | None = None, contiguous: bool = False) -> Values:
        """Flambeau's values as PyTorch's: the same bytes in the same storages, or copies of other types."""
        t, kept = self.torch, {}
        made = []
        for x in self.ours:
            x = x.detach()
            if x.is_conj() or x.is_neg() or kinds or contiguous:
                x = x.resolve_conj().resolve_neg()
                d = self.instrument.dn(x.dtype)
                raw = t.frombuffer(bytearray(bytes(_bytes(self, x.contiguous()))), dtype=getattr(t, d)) if x.numel() else t.empty(0, dtype=getattr(t, d))
                raw = raw.reshape(tuple(x.shape))
                made.append(raw.to(getattr(t, (kinds or {}).get(d, d))) if kinds else raw)
                continue
            d, store = getattr(t, self.instrument.dn(x.dtype)), x.untyped_storage()
            if store.data_ptr() not in kept:
                size = store.nbytes()
                flat = x.as_strided((size // x.element_size(),), (1,), 0).contiguous() if size else x
                kept[store.data_ptr()] = t.frombuffer(bytearray(bytes(_bytes(self, flat))), dtype=t.uint8) if size else t.empty(0, dtype=t.uint8)
            of = kept[store.data_ptr()].untyped_storage()
            made.append(t.empty(0, dtype=d).set_(of, x.storage_offset(), tuple(x.shape), tuple(x.stride())))
        return made


def _bytes(line: _Line, x: Any) -> Any:
    return x.reshape(-1).view(line.flambeau.uint8).numpy().tobytes()


# ------------------------------------------------------------------------------------------------------------------ the questions
def _inherited(line: _Line, _: str) -> bool:
    return line.agree(line.carried())


def _nearer(line: _Line, _: str) -> bool:
    return line.agree(line.carried(_WIDE))


def _lacking(line: _Line, _: str) -> bool:
    return any(line.agree(values) for values in (line.carried(contiguous=True), line.carried(_WIDE), line.carried({**_WIDE, "bool": "int64"})))


def _unwritten(line: _Line, _: str) -> bool:
    before = [line.instrument.summ(x.clone()) for x in line.ours]
    line.outcome(line.flambeau, line.ours)
    return all(line.instrument.compare(a, line.instrument.summ(x.clone())) is None for a, x in zip(before, line.ours, strict=True))


def _separate(line: str) -> str:
    """The line with what it reads copied first."""
    tree = ast.parse(line.removeprefix("!"))
    node: Any = tree.body[0]

    def copied(x: ast.expr) -> ast.expr:
        return ast.Call(ast.Name("apart", ast.Load()), [x], [])
    if isinstance(node, ast.Assign):
        node.value = copied(node.value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        node.value.args = [copied(x) for x in node.value.args]
    return ("!" if line.startswith("!") else "") + ast.unparse(ast.fix_missing_locations(tree))


def _target(line: str) -> str:
    node: Any = ast.parse(line.removeprefix("!")).body[0]
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def _differs_by_order(line: _Line, _: str) -> bool:
    return not line._plain() and line.agree(line.carried(), _separate(line.line))


def _reads_its_own(line: _Line, _: str) -> bool:
    """Whether what PyTorch wrote, read where it was written, is other than on values that share no memory."""
    seen = []
    for values, text in ((line.carried(), line.line), (line.carried(contiguous=True), _separate(line.line))):
        given, after = line.outcome(line.torch, values, text)
        target = _target(line.line)
        seen.append(line.instrument.summ(eval(target, {"T": line.torch, "v": after}) if target else given))
    return line.instrument.compare(*seen) is not None


def _by_nans(line: _Line, _: str) -> bool:
    if not re.search(r"\b(mode|unique)\(", line.line):
        return False
    for values in (line.theirs, line.ours):
        values[:] = [x.detach().nan_to_num(_NUMBER, float("inf"), float("-inf")) if x.is_floating_point() else x for x in values]
    return line.alike(line.outcome(line.torch, line.theirs)[0], line.outcome(line.flambeau, line.ours)[0])


def _said(line: _Line, text: str) -> Any:
    """PyTorch's tensor that a difference is about, after the line."""
    given, after = line.outcome(line.torch, line.theirs)
    at = re.match(r"v\[(\d+)\]", text)
    return after[int(at[1])] if at else given


def _of_integers(line: _Line, text: str) -> bool:
    t = _said(line, text)
    return bool(t.requires_grad and not t.is_floating_point() and not t.is_complex())


def _lost(line: _Line, text: str) -> bool:
    t = _said(line, text)
    return bool(t.requires_grad and t._is_view() and t.grad_fn is None)
