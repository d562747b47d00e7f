"""Which lines `make bench-ops` has: every public operation of the package that PyTorch has too, and the operators."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ops_calls import FAMILIES, INPLACE, NAMED, SKIPPED, STATEMENTS

SPACES = ("torch", "nn.functional", "linalg", "fft", "special", "Tensor")
FAMILY_OF_SPACE = {"linalg": "linear algebra", "fft": "fft", "special": "special"}
# Public functions that are no operations on tensors: settings, questions about the process, files, tools.
NO_OPERATION = re.compile(
    r"(get|set|are|use|seed|load|save|compile|vmap|typename|manual_seed|initial_seed|clear|autocast)(_.*)?$|"
    r"is_(anomaly|autocast|deterministic|grad_enabled|inference_mode|warn|storage|tensor|vulkan|distributed).*|.*_enabled$|as_subclass$|"
    r"(handle_torch_function|has_torch_function.*|assert_int_or_pair|while_loop|export|parse_.*|trace_model|to_device|_.*)$")


class Line(NamedTuple):
    """text: the work in Python, of the values' names and `call`, the function at `path`."""

    name: str
    family: str
    text: str
    path: str = ""


def parsed() -> dict[str, tuple[str, str | None]]:
    """By name: the family, and the arguments where they are said."""
    found = {}
    for family, text in FAMILIES.items():
        for part in re.split(r"\s\|\s|\n", text):
            name, _, arguments = part.strip().partition(": ")
            if name:
                found[name] = (family, arguments or None)
    return found


def find(lib: Any, path: str) -> Any:
    """The object at a path such as "nn.functional.relu", or None."""
    for part in path.removeprefix("torch.").split("."):
        lib = getattr(lib, part, None)
    return lib


def by_rule(function: Any, method: bool) -> str:
    """Arguments by the names of the parameters that must be given."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "x"
    given: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            given.append("x, y" if not given else "")
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            value = NAMED.get(p.name, f"<{p.name}>")
            given.append(f"{p.name}={value}" if p.kind is p.KEYWORD_ONLY else value)
        elif not given:
            given.append("x" if method or p.name in ("input", "self") else "")
    return ", ".join(g for g in given if g)


def arguments_of(space: str, name: str, function: Any, said: dict[str, tuple[str, str | None]]) -> tuple[str, str]:
    """(family, arguments) of a public name."""
    base = name.rstrip("_")
    inplace = name.endswith("_") and not name.endswith("__")
    for key in (f"{space}.{name}", name):
        if key in said and (space not in FAMILY_OF_SPACE or "." in key or said[key][1] is None):
            family, arguments = said[key]
            return family, arguments if arguments is not None else by_rule(function, space == "Tensor")
    if inplace:
        if name in INPLACE:
            return "in place", INPLACE[name]
        family, arguments = said.get(base, ("", None))
        rest = arguments if arguments is not None else by_rule(function, True)
        return "in place", ", ".join(["o", *rest.split(", ")[1:]])
    family = FAMILY_OF_SPACE.get(space) or said.get(base, ("pointwise", None))[0]
    return family, by_rule(function, space == "Tensor")


def written(space: str, name: str, arguments: str) -> str:
    """The call as text: a function's by `call`, a method's by its name."""
    if arguments.startswith("= "):
        return arguments[2:]
    if space != "Tensor":
        return f"call({arguments})"
    parts = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(parts, ast.Call)
    rest = [ast.unparse(a) for a in parts.args[1:]] + [f"{k.arg}={ast.unparse(k.value)}" for k in parts.keywords]
    return f"{ast.unparse(parts.args[0])}.{name}({', '.join(rest)})"


def public(lib: Any, other: Any) -> Iterator[tuple[str, str, Any]]:
    """(namespace, name, function) of all that may be a line, each function once."""
    seen: set[tuple[int, bool]] = set()
    functions: set[str] = set()
    said = parsed()
    for space in SPACES:
        place, theirs = find(lib, space) if space != "torch" else lib, find(other, space) if space != "torch" else other
        wanted = [n for n in dir(place) if not n.startswith("_") or space == "Tensor" and n in said]
        for name in sorted(wanted, key=lambda n: (getattr(getattr(place, n, None), "__name__", n) != n, n)):
            function = getattr(place, name, None)
            if not callable(function) or isinstance(function, type) or theirs is not None and not hasattr(theirs, name):
                continue
            if NO_OPERATION.match(name) and name not in said and f"{space}.{name}" not in said:
                continue
            if space in ("torch", "nn.functional") and name.endswith("_") and hasattr(lib.Tensor, name):
                continue  # the method is the line
            if space == "Tensor" and name in functions:
                continue  # the function is the line
            functions.update([name] if space == "torch" else [])
            # a function of nn.functional that PyTorch writes in Python costs it more than torch's own of the same name: both are lines
            # (of an operation of ours that both namespaces name, two functions)
            which = getattr(getattr(function, "__operation__", None), "body", function)
            mark = (id(which), space == "nn.functional" and hasattr(getattr(theirs, name, None), "__code__"))
            if mark not in seen:
                seen.add(mark)
                yield space, name, function


def all_lines(lib: Any, other: Any = None) -> tuple[list[Line], dict[str, str]]:
    """The lines, and by name why a public operation is none.  other: PyTorch, whose names count; without it all of ours do."""
    said, skipped = parsed(), {n: why for why, names in SKIPPED.items() for n in names.split()}
    lines: dict[str, Line] = {}
    reasons: dict[str, str] = {}
    for space, name, function in public(lib, other):
        path = f"{space}.{name}" if space != "torch" else f"torch.{name}"
        if name in skipped:
            reasons[path] = skipped[name]
            continue
        family, arguments = arguments_of(space, name, function, said)
        if "<" in arguments:
            reasons[path] = f"no rule for {arguments}"
            continue
        shown = path.removeprefix("torch.")
        lines[shown] = Line(shown, family, written(space, name, arguments), path)
    for text in re.split(r";|\n", STATEMENTS):
        if text.strip():
            lines[text.strip()] = Line(text.strip(), "operators and indexing", text.strip())
    return list(lines.values()), reasons
