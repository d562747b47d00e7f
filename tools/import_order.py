"""Checks that every module of the package imports only from its own layer and the layers below it.

    python tools/import_order.py [PACKAGE_FOLDER]

Imports inside functions count as much as those at the top: a lazy import saves time, not a dependency. Only what
stands under `if TYPE_CHECKING:` is left out, since it never runs. A module that no layer names is an offence too, so
that each new one is given its place here. Exit status: 0 if the order holds, 1 if not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "flambeau"

# From the ground up. A name is the module or package directly below `flambeau`; a dotted name is a part of one that
# has a place of its own (the longest name that fits decides).
LAYERS: tuple[tuple[str, ...], ...] = (
    ("dtypes", "layout", "errors"),
    ("kernels",),
    ("drivers",),
    ("runtime",),
    ("tensor", "autograd", "ops", "interop", "profiler"),
    ("compile",),
    ("nn", "optim", "data", "utils", "amp", "io", "distributed", "cuda", "random", "simulated", "linalg", "fft",
     "special", "backends", "distributions", "testing", "types", "accelerator", "cpu", "compiler", "jit", "hub", "sparse",
     "func", "library", "futures",
     "multiprocessing", "return_types", "signal", "masked", "left_out", "overrides", "_C", "vision", "serialization", "storage", "xpu", "mps",
     "torch_version", "_dynamo", "_inductor"),
    ("trace", "inventory", "cli", "demo", "version", "__config__", "script", "__main__"),
    ("__init__",),  # the public surface: names everything, and nothing below may lean on it
)

# What may break the order all the same: (importer, imported, reason). Keep it empty if you can.
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("demo", "__init__", "the demo is a user's script: it says `import flambeau as torch`"),
    ("cli", "__init__", "the command line shows the package as a user sees it"),
    ("version", "__init__", "it repeats the package's version"),
    ("__config__", "__init__", "it tells the package's version"),
    ("script", "__init__", "it puts the package in the place of another"),
    ("inventory", "__init__", "the report is on the package as a user sees it"),
    ("__main__", "__init__", "it is the command line by another name"),
)


def place(module: str) -> tuple[int, str] | None:
    """The layer of a dotted module name below the package ('ops.table') and the table's name for it."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        for height, layer in enumerate(LAYERS):
            if name in layer:
                return height, name
    return None


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that can run: all but the bodies of `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            for other in child.orelse:
                yield other
                yield from _nodes(other)
            continue
        yield child
        yield from _nodes(child)


def _exists(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _imported(node: ast.AST, package: list[str], root: Path) -> Iterator[str]:
    """The package's own modules that one statement imports, named from below the package; '__init__' for itself."""

    def own(name: str) -> Iterator[str]:
        if name == PACKAGE:
            yield "__init__"
        elif name.startswith(PACKAGE + "."):
            yield name.removeprefix(PACKAGE + ".")

    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from own(alias.name)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            parent = package[: len(package) - node.level + 1]
            base = ".".join([*parent, node.module] if node.module else parent)
        else:
            base = node.module or ""
        if base != PACKAGE:
            yield from own(base)
            return
        for alias in node.names:  # `from flambeau import nn` reaches nn; any other name is read off the package itself
            yield alias.name if _exists(root, alias.name) else "__init__"
    elif isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        name = first.value if isinstance(first, ast.Constant) else None
        if called in ("import_module", "__import__") and isinstance(name, str):
            yield from own(name)


def offences(root: Path) -> list[str]:
    """One line for each import under the package folder `root` that goes up, and for each module with no place."""
    found = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root).with_suffix("")
        parts = list(relative.parts)
        package = [PACKAGE, *parts[:-1]]
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        here = place(".".join(parts))
        shown = f"{root.name}/{path.relative_to(root)}"
        if here is None:
            found.append(f"{shown}: {'.'.join(parts)} has no layer: give it one in tools/import_order.py")
            continue
        for node in _nodes(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
            for module in _imported(node, package, root):
                there = place(module)
                line = f"{shown}:{getattr(node, 'lineno', 0)}"
                if there is None:
                    found.append(f"{line}: imports {module}, which has no layer")
                elif there[0] > here[0] and not any((here[1], there[1]) == rule[:2] for rule in ALLOWED):
                    found.append(f"{line}: {here[1]} imports {module}, which lies above it ({here[0]} < {there[0]})")
    return found


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / PACKAGE
    found = offences(root)
    for line in found:
        print(line)
    print(f"import order: {len(found)} offences" if found else "import order: the layers hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
