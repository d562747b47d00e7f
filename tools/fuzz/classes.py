"""Classes of differences: how a difference is named, and how what was found is held against what is known.

A class is (kind, operation, words).  Kind: what differs (`value`, `dtype`, `torch-error`: only PyTorch raises, ...).  Operation: the name a
user writes.  Words: the error's type and text without numbers, types, shapes and names, or how two values differ.  Nothing in it depends on
addresses, line numbers or private names, so that a class keeps its name while the code below it changes.

The known ones lie in a TOML file: `[[class]]` tables with a count, an example and, where one is known, a reason; and `[[family]]` tables, whose
patterns cover classes of many operations that have one reason.
"""

from __future__ import annotations

import ast
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Class = tuple[str, str, str]  # kind, operation, words

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|",
              ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@"}
_WORDS = 70  # characters of an error's text that belong to its class

# names of element types, as Python, PyTorch's messages and C++ write them
_TYPES = (r"(?:torch\.|flambeau\.|at::|c10::)?(?:\bcomplex<\w+>|\b(?:u?int(?:8|16|32|64)(?:_t)?|bfloat16|float(?:16|32|64)|complex(?:32|64|128)|"
          r"BFloat16|Float|Double|Half|Byte|Char|Short|Int|Long|Bool|Complex(?:Half|Float|Double)|"
          r"(?:short|long|long long|unsigned|signed) (?:int|char)|float|double|bool|int|long|complex)\b)")


# ------------------------------------------------------------------------------------------------------- names of classes
def operation(line: str) -> str:
    """The operation that a line of a program stands for: `add`, `copy_`, `operator +`, `index`, `set`."""
    try:
        node = ast.parse(line.removeprefix("!")).body[0]
    except SyntaxError:
        return "?"
    if isinstance(node, ast.Assign):
        return "set"
    value: ast.AST = node.value if isinstance(node, ast.Expr) else node
    while isinstance(value, ast.Subscript) and not _is_variable(value) and not _is_variable(value.value):
        value = value.value  # one of several results
    if isinstance(value, ast.Call):
        called = value.func
        return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else "?"
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.BinOp):
        return "operator " + _OPERATORS.get(type(value.op), "?")
    if isinstance(value, ast.Compare):
        return "operator " + type(value.ops[0]).__name__.lower()
    return "value" if _is_variable(value) else "index"


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "v"


def plain_words(text: str) -> str:
    """An error's text without what depends on the case: numbers, shapes, types, quoted names, addresses."""
    text = text.split("\n")[0]
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "#", text)
    text = re.sub(r"0x[0-9a-fA-F]+", "#", text)
    text = re.sub(_TYPES, "#", text)
    text = re.sub(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", "#", text)
    text = re.sub(r"[\[({][#,\s]*[\])}]", "#", text)
    text = re.sub(r"#(?:[\s,]*#)*", "#", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= _WORDS else text[:_WORDS].rsplit(" ", 1)[0]


def error_words(name: str, text: str) -> str:
    missing = re.match(r"'(\w+)' object has no attribute", text)
    if missing:  # of what: of a hostile argument, or of something of ours
        return f"{name}: {missing[1]} has no attribute #"
    return f"{name}: {plain_words(text)}".rstrip(": ")


def value_words(text: str) -> str:
    """How two values differ: by not-a-number, by infinity, by sign of zero or by amount, and in which kind of type."""
    found = re.search(r"value at \(.*?\): (.*) / (.*) \((\w+)\)$", text) or re.search(r"float (\S+) / (\S+)$", text)
    if found is None:
        return ""
    kind = re.sub(r"\d+", "", found.group(3)) if found.lastindex == 3 else "number"
    return f"{kind}: {_sort(found.group(1))} / {_sort(found.group(2))}"


def dtype_words(pair: str) -> str:
    """Two element types: their kinds where these differ, else the types."""
    kinds = re.sub(r"\d+", "", pair.replace("uint", "int").replace("bfloat", "float"))
    theirs, _, ours = kinds.partition(" / ")
    return pair if theirs == ours else kinds


def _sort(number: str) -> str:
    return "nan" if "nan" in number else "inf" if "inf" in number else "number"


def class_of(kind: str, line: str, text: str) -> Class:
    """The class of one difference: `kind` and `text` as the instrument says them, at this line of the program."""
    op = operation(line)
    if kind in ("flambeau-error", "torch-error"):
        name, _, words = text.partition(": ")
        return kind, op, error_words(name, words)
    if kind == "dtype" or kind == "dtype-after":
        return kind, op, dtype_words(text.partition("dtype ")[2])
    if "value" in kind or kind == "float":
        return kind, op, value_words(text)
    if "requires_grad" in kind or "is_leaf" in kind or kind == "kind":
        return kind, op, " / ".join(part.split(" ")[-1][:12] for part in text.split(" / ")[:2]) if kind != "kind" else text.split(" ")[1]
    return kind, op, ""


# ------------------------------------------------------------------------------------------------------- what is known
@dataclass
class Family:
    """Classes of many operations that have one reason."""

    reason: str
    kind: str
    words: str  # a regular expression that the words begin with
    ops: list[str] = field(default_factory=list)  # none: any
    count: int = 0
    undefined: bool = False  # PyTorch's own answer is a bug, or left to its order of work: nothing could be alike

    def covers(self, c: Class) -> bool:
        return re.fullmatch(self.kind, c[0]) is not None and (not self.ops or c[1] in self.ops) and re.match(self.words, c[2]) is not None


@dataclass
class Entry:
    count: int
    example: str
    reason: str = ""


@dataclass
class Known:
    about: dict[str, Any] = field(default_factory=dict)  # what was run to find them
    families: list[Family] = field(default_factory=list)
    classes: dict[Class, Entry] = field(default_factory=dict)

    def family(self, c: Class) -> Family | None:
        return next((f for f in self.families if f.covers(c)), None)

    def comparable(self, c: Class) -> bool:
        """Whether both could give the same."""
        f = self.family(c)
        return f is None or not f.undefined

    def has(self, c: Class) -> bool:
        return c in self.classes or self.family(c) is not None


def read(path: Path) -> Known:
    """The known classes of a file; none where there is no file."""
    if not path.exists():
        return Known()
    raw = tomllib.loads(path.read_text())
    families = [Family(f["reason"], f["kind"], f["words"], f.get("ops", []), f.get("count", 0), f.get("undefined", False)) for f in raw.get("family", [])]
    classes = {(c["kind"], c["op"], c["words"]): Entry(c["count"], c["example"], c.get("reason", "")) for c in raw.get("class", [])}
    return Known(raw.get("about", {}), families, classes)


def write(path: Path, known: Known, head: str) -> None:
    """Writes the file; the same content gives the same bytes."""
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    lines += ["", "[about]", *(f"{k} = {json.dumps(v)}" for k, v in sorted(known.about.items()))]
    for f in known.families:
        lines += ["", "[[family]]", f"reason = {_text(f.reason)}", f"kind = {_text(f.kind)}", f"words = {_text(f.words)}"]
        lines += [f"ops = {json.dumps(f.ops)}"] if f.ops else []
        lines += ["undefined = true"] if f.undefined else []
        lines += [f"count = {f.count}"]
    for c, e in sorted(known.classes.items()):
        lines += ["", "[[class]]", f"kind = {_text(c[0])}", f"op = {_text(c[1])}", f"words = {_text(c[2])}", f"count = {e.count}"]
        lines += [f"reason = {_text(e.reason)}"] if e.reason else []
        lines += [f"example = {_text(e.example)}"]
    path.write_text("\n".join(lines) + "\n")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a basic string of TOML


# ------------------------------------------------------------------------------------------------------- comparing
@dataclass
class Comparison:
    new: list[Class]  # not known
    risen: list[tuple[Class, int, int]]  # known, but far more often than recorded: expected count, count now


def compare(counts: Counter[Class], known: Known, share: float = 0) -> Comparison:
    """What was found beside what is known.  `share` of the recorded cases ran, and no others; 0: other cases, so that counts mean nothing.

    A known class that shows far more often than it did can hide a new difference.
    """
    new = sorted(c for c in counts if not known.has(c))
    expected = {c: e.count * share for c, e in known.classes.items()} if share else {}
    return Comparison(new, [(c, round(n), counts[c]) for c, n in sorted(expected.items()) if counts[c] > 2 * n + 5])


def renewed(known: Known, counts: Counter[Class], examples: dict[Class, str], about: dict[str, Any]) -> Known:
    """The same families and reasons, with the classes, counts and examples of now."""
    families = [Family(f.reason, f.kind, f.words, f.ops, undefined=f.undefined) for f in known.families]
    out = Known(about, families)
    for c, n in counts.items():
        f = out.family(c)
        if f is not None:
            f.count += n
        else:
            before = known.classes.get(c)
            out.classes[c] = Entry(n, examples.get(c) or (before.example if before else ""), before.reason if before else "")
    return out


def said(c: Class) -> str:
    return " | ".join(part for part in c if part)


def total(found: Iterable[list[Class]]) -> Counter[Class]:
    """In how many programs each class shows: one that shows it twice counts once."""
    return Counter(c for classes in found for c in set(classes))


def chance(now: int, before: int, part: float) -> float:
    """How likely it is that of `now + before` cases at least `now` lie among the new programs, when these are such a part of all programs and
    nothing has changed: the tail of a binomial distribution."""
    n = now + before
    return sum(math.comb(n, k) * part ** k * (1 - part) ** (n - k) for k in range(now, n + 1))
