"""Who looks at the call stack: only what words an error or names a line, and what cannot be known in another way. No result depends on a caller's name."""

from __future__ import annotations

import ast
from pathlib import Path

import flambeau

PACKAGE = Path(flambeau.__file__).parent
# (function, whose): what reads a stack
READS = {("_getframe", "sys"), ("_current_frames", "sys"), ("_getframemodulename", "sys"), ("currentframe", "inspect"), ("stack", "inspect"),
         ("trace", "inspect"), ("getouterframes", "inspect"), ("extract_stack", "traceback"), ("walk_stack", "traceback"), ("format_stack", "traceback"),
         ("print_stack", "traceback")}
LINES = "names the program's line"
WORDS = "words an error or a warning"
ALLOWED = {
    "_core/errors.py": WORDS,
    "_core/ops/device_errors.py": WORDS,
    "_core/compile/knowing.py": "says why nothing is learned of a compiled call, and at which line",
    "_core/compile/reads.py": "`global x` in a text that is carried out is about the globals of that text, which its frame has",
    "script/missing.py": WORDS,
    "script/tracebacks.py": "knows what called the command, which no traceback shows",
    "distributed/peers.py": LINES,
    "distributed/world.py": LINES,
    "distributed/wireup.py": LINES,
    "distributed/groups.py": LINES,
    "distributed/collectives.py": LINES,
    "distributed/messages.py": LINES,
    "_core/autograd/tape.py": "names the forward line under anomaly detection",
    "_core/runtime/dispatch.py": LINES,
    "_core/runtime/memory_history.py": "names the lines that took memory",
    "profiler/ranges.py": LINES,
    "fx/proxy.py": "names the lines of nodes; and `a, b = proxy` asks into how many names, which only the caller's code says",
    "fx/patching.py": "`fx.wrap(name)` is about the globals of the module that calls it, as PyTorch's is",
}


def _reads(tree: ast.AST) -> list[int]:
    """The lines that read a stack, whatever the module is imported as."""
    called = {alias.asname or alias.name: alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (node.attr == "f_back" or (
                isinstance(node.value, ast.Name) and (node.attr, called.get(node.value.id, node.value.id)) in READS)):
            found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and any((alias.name, node.module) in READS for alias in node.names):
            found.append(node.lineno)
    return sorted(found)


def test_the_stack_is_read_to_word_things_only() -> None:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        lines = _reads(ast.parse(file.read_text(encoding="utf-8")))
        if lines:
            found[str(file.relative_to(PACKAGE))] = lines
    others = {f: n for f, n in found.items() if f not in ALLOWED}
    assert not others, f"these read the call stack: {others}; an interpreter of the engine sees calls, and errors.site() names a line"
    assert set(ALLOWED) == set(found), f"no longer needed: {set(ALLOWED) - set(found)}"


def test_the_search_finds_what_it_should() -> None:
    text = "import sys\nimport inspect as i\nfrom traceback import walk_stack\nsys._getframe(1)\ni.stack()\nframe.f_back\nx.stack()\n"
    assert _reads(ast.parse(text)) == [3, 4, 5, 6]
