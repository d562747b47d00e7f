"""Do the tests notice a changed operator or constant?  `make mutants`.

    python tools/mutants.py [--count 60] [--seconds 1800] [--seed N] [--only flambeau/_core/layout.py,...]

Modules are drawn that have a mirrored test file (flambeau/_core/layout.py: tests/_core/test_layout.py), in each one operator or constant at
random, and that test file alone is run on a copy of the checkout with it changed.  A mutant is killed if the tests fail or run over their time.
The seed is printed; those that live are listed with their line.  tools/mutants.toml names those that change nothing that a test could see (speed, the
size of a cache), by module and changed line, with a reason each: they do not count.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KNOWN = Path(__file__).with_suffix(".toml")
OTHER: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "+"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.And: ("and", "or"),
    ast.Or: ("or", "and"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")}
LEAST_SECONDS = 30.0  # that a mutant has, beyond three times what the tests take


@dataclass(frozen=True)
class Mutant:
    """A text in place of another: bytes `start` to `end` of a file."""

    start: int
    end: int
    text: str

    def of(self, source: bytes) -> bytes:
        return source[:self.start] + self.text.encode() + source[self.end:]


def mutants(source: str) -> list[Mutant]:
    """All changes of one operator or one constant; annotations, decorators and what only type checkers read stay."""
    raw = source.encode()
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def begin(node: ast.expr) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def finish(node: ast.expr) -> int:
        return starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def between(left: ast.expr, right: ast.expr, op: ast.AST) -> Iterator[Mutant]:
        if type(op) in OTHER:
            old, new = OTHER[type(op)]
            at = raw.find(old.encode(), finish(left), begin(right))
            if at >= 0 and b"#" not in raw[finish(left):begin(right)]:
                yield Mutant(at, at + len(old), new)
    out: list[Mutant] = []
    for node in _run(ast.parse(source)):
        if isinstance(node, ast.BinOp):
            out += between(node.left, node.right, node.op)
        elif isinstance(node, ast.Compare):
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                out += between(left, right, op)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                out += between(left, right, node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            out.append(Mutant(begin(node), begin(node.operand), ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            new = repr(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)
            out.append(Mutant(begin(node), finish(node), new))
    return [m for m in out if _parses(m.of(raw))]


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs: no annotations, no strings that are joined, nothing under `if TYPE_CHECKING`."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.dump(tree.test) or isinstance(tree, ast.JoinedStr):
        return
    yield tree
    for name, value in ast.iter_fields(tree):
        if name not in ("annotation", "returns", "decorator_list", "type_params"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _run(child)


def modules(root: Path) -> dict[str, str]:
    """Modules and their mirrored test files."""
    out = {}
    for path in sorted((root / "flambeau").rglob("*.py")):
        inside = path.relative_to(root / "flambeau")
        test = Path("tests") / inside.parent / f"test_{inside.name}"
        if (root / test).is_file():
            out[f"flambeau/{inside.as_posix()}"] = test.as_posix()
    return out


def changed(source: bytes, m: Mutant) -> tuple[int, str]:
    """Number and text of the changed line."""
    line = source[:m.start].count(b"\n")
    return line + 1, m.of(source).splitlines()[line].decode().strip()


def passes(tree: Path, test: str, limit: float) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test], cwd=tree, env=environment, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    p = argparse.ArgumentParser(prog="mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=60)
    p.add_argument("--seconds", type=float, default=1800)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--only", default="", help="modules, with commas")
    p.add_argument("--slow", type=float, default=60, help="test files that take longer than so many seconds are left out")
    a = p.parse_args()
    seed = random.SystemRandom().randrange(10 ** 6) if a.seed is None else a.seed
    rng, until = random.Random(seed), time.monotonic() + a.seconds
    tree = ROOT / "build" / "mutants"
    shutil.rmtree(tree, ignore_errors=True)
    for name in subprocess.run(["git", "ls-files", "flambeau", "tests", "tools", "*.toml", "*.py"], cwd=ROOT, check=True, capture_output=True,
                               text=True).stdout.split():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    known = tomllib.loads(KNOWN.read_text())["unseen"]
    chosen = {m: t for m, t in modules(tree).items() if not a.only or m in a.only.split(",")}
    took: dict[str, float | None] = {}  # by test file; None: fails or is slow
    killed = unseen = 0
    lived: list[str] = []
    print(f"mutants: seed {seed}, {len(chosen)} modules")
    while killed + len(lived) < a.count and time.monotonic() < until and chosen:
        module = rng.choice(list(chosen))
        test, path = chosen[module], tree / module
        source = path.read_bytes()
        found = mutants(source.decode())
        if test not in took:
            start = time.monotonic()
            good = passes(tree, test, a.slow)
            took[test] = time.monotonic() - start if good else None
        seconds = took[test]
        if seconds is None or not found:
            del chosen[module]
            continue
        m = rng.choice(found)
        line, text = changed(source, m)
        if text in known.get(module, {}):
            unseen += 1
            continue
        path.write_bytes(m.of(source))
        alive = passes(tree, test, 3 * seconds + LEAST_SECONDS)
        path.write_bytes(source)
        if alive:
            lived.append(f"{module}:{line}: {text}")
            print("  lives:", lived[-1], flush=True)
        else:
            killed += 1
    total = killed + len(lived)
    print(f"mutants: {killed} of {total} killed ({100 * killed / max(total, 1):.0f} %); {unseen} that change what no test can see")
    return 0


if __name__ == "__main__":
    sys.exit(main())
