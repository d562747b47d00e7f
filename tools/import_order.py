"""Checks that every module of the package imports only from its own layer and the layers below it, and how large circles are.

    python tools/import_order.py [PACKAGE_FOLDER]

Imports inside functions count as much as those at the top: a lazy import saves time, not a dependency. Only what
stands under `if TYPE_CHECKING:` is left out, since it never runs. A module that no layer names is an offence too, so
that each new one is given its place here.

Files that import one another, each reached from each, are a circle: none of them can be read, tested or moved without the
others. The largest may have at most CEILING files. Exit status: 0 if both hold, 1 if not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "flambeau"

# From the ground up. A name is the module or package directly below `flambeau`; a dotted name is a part of one that
# has a place of its own (the longest name that fits decides).
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_core", "_core.forks", "_core.collector"),  # the package itself, which sees to forks before all else; its other parts follow
    ("_core.dtypes", "_core.layout", "_core.errors", "_core.hooks"),
    ("_core.kernels",),
    ("_core.drivers",),
    ("_core.runtime",),
    ("_core.tensor",),
    ("_core.autograd",),
    ("_core.engine",),
    ("_core.ops",),
    ("_core.compile",),
    ("interop", "profiler"),
    ("autograd", "errors"),
    ("nn", "optim", "data", "utils", "amp", "io", "distributed", "cuda", "random", "simulated", "linalg", "fft",
     "special", "backends", "distributions", "testing", "types", "accelerator", "cpu", "compiler", "jit", "hub", "sparse",
     "func", "fx", "library", "futures",
     "multiprocessing", "return_types", "signal", "masked", "overrides", "vision", "serialization", "quasirandom", "storage", "_faces"),
    ("trace", "inventory", "smi", "warm", "cli", "completion", "demo", "version", "_faces.__config__", "script", "suite", "as_torch", "__main__",
     "simulated.calibrate"),
    ("__init__",),  # the public surface: names everything, and nothing below may lean on it
)

# The most files that may import one another in a circle. It only ever falls.
CEILING = 10

# What may break the order all the same: (importer, imported, reason). Keep it empty if you can.
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("demo", "__init__", "the demo is a user's script: it says `import flambeau as torch`"),
    ("simulated.calibrate", "__init__", "what it measures are users' programs, as the demo is"),
    ("warm", "__init__", "its programs are users' scripts, as the demo is"),
    ("cli", "__init__", "the command line shows the package as a user sees it"),
    ("version", "__init__", "it repeats the package's version"),
    ("_faces.__config__", "__init__", "it tells the package's version"),
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


@cache
def statements(path: Path) -> list[ast.AST]:
    """What a file can run that may import: import statements, and calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return [node for node in _nodes(tree) if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call))]


def _exists(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _imported(node: ast.AST, package: list[str], root: Path) -> Iterator[str]:
    """The package's own modules that one statement imports, named from below the package; '__init__' for itself."""

    def own(name: str) -> Iterator[str]:
        if name == PACKAGE:
            yield "__init__"
        elif name.startswith(PACKAGE + "."):
            inner = name.removeprefix(PACKAGE + ".")
            faced = not _exists(root, inner) and _exists(root, f"_faces.{inner}")  # found by the package's `__path__`
            yield f"_faces.{inner}" if faced else inner

    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from own(alias.name)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            parent = package[: len(package) - node.level + 1]
            base = ".".join([*parent, node.module] if node.module else parent)
        else:
            base = node.module or ""
        for alias in node.names:  # `from flambeau import nn` reaches nn; any other name is read off the package itself
            inner = f"{base}.{alias.name}"
            reached = inner.startswith(PACKAGE + ".") and _exists(root, inner.removeprefix(PACKAGE + "."))
            yield from own(inner if reached else base)
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
        for node in statements(path):
            for module in _imported(node, package, root):
                there = place(module)
                line = f"{shown}:{getattr(node, 'lineno', 0)}"
                if there is None:
                    found.append(f"{line}: imports {module}, which has no layer")
                elif there[0] > here[0] and not any((here[1], there[1]) == rule[:2] for rule in ALLOWED):
                    found.append(f"{line}: {here[1]} imports {module}, which lies above it ({here[0]} < {there[0]})")
    return found


def _module(path: Path, root: Path) -> str:
    """The name of a file's module from below the package; '__init__' for the package itself."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _files(node: ast.AST, package: list[str], root: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The modules that one statement imports, as `_imported`, but `from .folder import file` reaches that file alone."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
    for base in _imported(node, package, root):
        inside = [f"{base}.{name}" for name in names if f"{base}.{name}" in modules]
        yield from inside
        if len(inside) < len(names) or not names:
            yield base


def graph(root: Path) -> dict[str, set[str]]:
    """For each module under the package folder `root`, the others that it imports, at the top or inside functions."""
    modules = {_module(path, root): path for path in sorted(root.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = [PACKAGE, *path.relative_to(root).parts[:-1]]
        found[name] = {other for node in statements(path) for other in _files(node, package, root, modules) if other in modules and other != name}
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The circles of more than one module, the largest first: R. Tarjan, "Depth-first search and linear graph algorithms", 1972."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []  # met, and not known yet to which circle it belongs
    found = []
    for start in edges:
        if start in number:
            continue
        path = [(start, iter(sorted(edges[start])))]
        number[start] = lowest[start] = len(number)
        open_.append(start)
        while path:
            name, rest = path[-1]
            for other in rest:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    open_.append(other)
                    path.append((other, iter(sorted(edges[other]))))
                    break
                if other in open_:
                    lowest[name] = min(lowest[name], number[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    at = open_.index(name)
                    if len(open_) - at > 1:
                        found.append(sorted(open_[at:]))
                    del open_[at:]
    return sorted(found, key=lambda circle: (-len(circle), circle))


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / PACKAGE
    found = offences(root)
    for line in found:
        print(line)
    print(f"import order: {len(found)} offences" if found else "import order: the layers hold")
    together = circles(graph(root))
    most = len(together[0]) if together else 0
    print(f"import order: the largest circle has {most} files, at most {CEILING} may be")
    if most > CEILING:
        print("  " + " ".join(together[0]))
    return 1 if found or most > CEILING else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
