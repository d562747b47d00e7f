"""Checks in under a minute what the working tree's changes touch: `make quick`.

    python tools/quick.py [--base REVISION] [--seconds N] [--jobs N] [--list]

The changes are those since the branch left `main` (or REVISION), and the files that git does not know. They touch, the
closest first:

1. the test files among them;
2. of each changed module, its own tests: `flambeau/nn/module.py` has tests/nn/test_module.py, tests/nn/test_module_*.py and
   tests/nn/module/, or tests/test_nn.py or tests/nn/test_nn.py where there is none of these, or else the test files of the
   folder that name its public functions most often;
3. the tests that import it, themselves or through a module of helpers under tests/;
4. the own tests of the modules that import it.

Only those are collected. Where nothing is touched, or more than MOST files by the first three, SMOKE runs instead (after
the changed test files). Tests marked `slow` are left out; when the time is over the tests stop, and the end says so.
Beside them run ruff on the changed files and the check of the import order. Exit status: 0 if nothing failed.

What this leaves out (mypy, stubs, names, parity, the rest of the suite) is for `make check` and `make test`.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from import_order import statements  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "flambeau"
FACES = f"{PACKAGE}/_faces/"  # the package's `__path__` has it: flambeau/_faces/mps.py is flambeau.mps
UNTIL = "FLAMBEAU_QUICK_UNTIL"  # tells the processes of the tests when to stop, in seconds since the epoch

INTERRUPTED, NOTHING_LEFT = 2, 5  # of pytest's exit statuses: stopped early; only slow tests in these files

MOST = 40  # test files; beyond that, a fixed few say more in a minute

FEW = 3  # test files for a module that has none of its own

# Each part of the house, by tests that take seconds.
SMOKE = (
    "test_tensor.py", "test_dtypes.py", "test_torch_version.py", "ops/test_binary.py", "ops/test_views.py", "ops/test_matmul.py",
    "ops/test_reductions.py", "indexing/test_items.py", "ops/test_transfer.py", "autograd/test_tape.py", "kernels/test_llvm_rows.py",
    "nn/test_module.py", "optim/test_optimizer.py", "interop/test_numpy.py", "func/test_vmap.py",
)

# What is no Python module, and the tests that read it: a folder stands for all under it.
READ_BY = {
    "README.md": ["tests/test_docs_examples.py"],
    "CONTRIBUTING.md": ["tests/test_docs_examples.py", "tests/tools/test_habits.py"],
    "docs/guide": ["tests/test_docs_examples.py"],
    "docs/names.md": ["tests/tools/test_names.py"],
    "docs/conformance.md": ["tests/tools/test_conformance.py"],
    "tests/conformance": ["tests/tools/test_conformance.py"],
    ".ci": ["tests/tools/test_habits.py"],
    ".github": ["tests/tools/test_habits.py"],
    ".pre-commit-config.yaml": ["tests/tools/test_habits.py"],
    "Makefile": ["tests/tools/test_habits.py", "tests/test_docs_examples.py"],
}


# ------------------------------------------------------------------------------------------------------- what changed
def git(*arguments: str, root: Path = ROOT) -> list[str]:
    """The lines a git command says; none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed(base: str | None, root: Path = ROOT) -> list[str]:
    """The paths below `root` that differ from where the branch left main (or from `base`), and those git does not know."""
    for main in [base] if base else ["origin/main", "main", "origin/master", "master"]:
        start = git("merge-base", "HEAD", main, root=root)
        if start:
            break
    else:
        if base:
            raise SystemExit(f"quick: git knows no revision {base}")
        start = ["HEAD"]
    return sorted({*git("diff", "--name-only", "--no-renames", start[0], root=root), *git("ls-files", "--others", "--exclude-standard", root=root)})


# --------------------------------------------------------------------------------------------------- what that touches
def name(path: str) -> str:
    """The dotted name of a module's file; a package's for its __init__. What lies in FACES is found as if it lay above."""
    return path.replace(FACES, f"{PACKAGE}/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_module(dotted: str, root: Path) -> bool:
    there = dotted.replace(".", "/")
    places = {there, there.replace(f"{PACKAGE}/", FACES, 1)}
    return any((root / f"{p}.py").is_file() or (root / p / "__init__.py").is_file() for p in places)


def imported(path: Path, root: Path) -> set[str]:
    """The dotted names of the modules that a file imports: `from a import b` is a.b where that is a file, a where it is not."""
    package = path.relative_to(root).parts[:-1]
    found: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = list(package[:len(package) - node.level + 1]) if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            for alias in node.names:
                inside = f"{base}.{alias.name}"
                found.add(inside if is_module(inside, root) else base)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            found.add(node.args[0].value)  # import_module("flambeau.nn"), spec_from_file_location("import_order", ...)
    return found


def importers(modules: set[str], files: Iterable[Path], root: Path) -> list[Path]:
    """The files among `files` that import one of `modules`. Only those whose text has the name at all are parsed."""
    if not modules:
        return []
    leaf = re.compile(r"\b(" + "|".join(sorted({re.escape(m.rpartition(".")[2]) for m in modules})) + r")\b")
    return [f for f in files if leaf.search(f.read_text(encoding="utf-8")) and imported(f, root) & modules]


def is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def own_tests(path: str, root: Path) -> list[Path]:
    """The tests that mirror a module of the package, a tool or a benchmark."""
    where = Path(path.replace(FACES, f"{PACKAGE}/").removeprefix(f"{PACKAGE}/"))
    folder = root / "tests" / where.parent
    stem = where.stem.strip("_") if where.stem != "__init__" else where.parent.name
    exact = [*folder.glob(f"test_{stem}.py"), *sorted(folder.glob(f"test_{stem}_*.py"))]
    below = sorted((folder / stem).rglob("test_*.py")) if where.stem != "__init__" else []
    up = [root / "tests" / where.parent.parent / f"test_{where.parent.name}.py", folder / f"test_{where.parent.name}.py"]
    return exact + below or [f for f in up if f.is_file()] or naming(root / path, folder)


def naming(module: Path, folder: Path) -> list[Path]:
    """The test files of `folder` that name the module's public functions and classes most often, a few."""
    if not module.is_file() or not module.stem.isidentifier() or module.stem == "__init__":
        return []
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = [re.escape(n.name) for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_")]
    if not names:
        return []
    use = re.compile(rf"""[."'](?:{'|'.join(names)})\b""")
    counts = {f: len(use.findall(f.read_text(encoding="utf-8"))) for f in sorted(folder.glob("test_*.py"))}
    return sorted((f for f, n in counts.items() if n), key=lambda f: -counts[f])[:FEW]


def closest(paths: list[str], root: Path = ROOT) -> list[list[str]]:
    """Test files that `paths` touch, each once, in four lists: changed, own, importing, and own of what imports."""
    tests = [f for f in sorted((root / "tests").rglob("*.py")) if "parity" not in f.relative_to(root).parts]
    package = sorted((root / PACKAGE).rglob("*.py"))
    modules = [p for p in paths if p.endswith(".py") and not p.startswith("tests/")]
    helpers = {name(p) for p in paths if p.startswith("tests/") and p.endswith(".py") and not is_test(p)}
    names = {name(p) for p in modules}
    names |= {n.removeprefix("tools.") for n in names if n.startswith("tools.")}  # tests load a tool by its file's name

    first = [root / p for p in paths if is_test(p) and (root / p).is_file() and "parity" not in Path(p).parts]
    own = [f for p in modules for f in own_tests(p, root)]
    for path in paths:
        own += [root / t for key, read in READ_BY.items() if path == key or path.startswith(f"{key}/") for t in read]
        if path.startswith("tests/") and Path(path).name == "conftest.py":
            own += [f for f in tests if f.is_relative_to((root / path).parent)]
        elif path.startswith(f"{PACKAGE}/") and not path.endswith((".py", ".pyi")):  # data, read by the modules beside it
            own += sorted((root / "tests" / Path(path).parent.relative_to(PACKAGE)).glob("test_*.py"))
    third: list[Path] = []
    seen: set[str] = set()
    reached = names | helpers
    while reached - seen:  # a helper under tests/ passes on what it imports
        seen |= reached
        found = importers(reached, tests, root)
        third += found
        reached = {name(f.relative_to(root).as_posix()) for f in found if not f.name.startswith("test_")}
    fourth = [f for path in importers(names, package, root) if path.stem != "__init__" for f in own_tests(path.relative_to(root).as_posix(), root)]

    ranks: list[list[str]] = []
    taken: set[str] = set()
    for rank in (first, own, third, fourth):
        rank_names = [f.relative_to(root).as_posix() for f in rank if f.is_file() and f.name.startswith("test_")]
        ranks.append([n for n in dict.fromkeys(rank_names) if n not in taken])
        taken.update(rank_names)
    return ranks


def smoke(root: Path = ROOT) -> list[str]:
    """The files of SMOKE, wherever below tests/ the house keeps them."""
    return [sorted((root / "tests").glob(f"**/{end}"))[0].relative_to(root).as_posix() for end in SMOKE]


def chosen(paths: list[str], root: Path = ROOT) -> tuple[list[str], str]:
    """The test files to run, and in words why these."""
    changed_tests, own, importing, beyond = closest(paths, root)
    near = [*changed_tests, *own, *importing]
    if not near and not beyond:
        return smoke(root), "nothing that a test imports: the fixed selection"
    if len(near) > MOST:
        return list(dict.fromkeys([*changed_tests[:MOST], *smoke(root)])), f"{len(near)} test files, too many for a minute: the fixed selection"
    files = [*near, *beyond][:MOST]
    left = len(near) + len(beyond) - len(files)
    return files, f"{len(files)} test files" + (f"; {left} farther ones are left to `make test`" if left else "")


# ------------------------------------------------------------------------------------------------------------- running
def over() -> bool:
    return time.time() > float(os.environ.get(UNTIL, "inf"))


def pytest_runtest_teardown(item: Any) -> None:
    """In each process of the tests, which load this file as a plugin: no further test once the time is over."""
    if over():
        item.session.shouldstop = "the time is over"


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """A session that the time ended has not failed, unless a test had."""
    if exitstatus == INTERRUPTED and over():
        session.exitstatus = 1 if session.testsfailed else 0


def run_tests(files: list[str], jobs: int, until: float, more: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-r", "fE", "-m", "not slow", "-p", "tools.quick", *more]
    command += ["-n", str(jobs)] if jobs > 1 else []
    environment = {**os.environ, UNTIL: str(until)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run([*command, *files], cwd=ROOT, env=environment, check=False).returncode


def checks(paths: list[str]) -> Iterator[tuple[str, list[str]]]:
    python = [p for p in paths if p.endswith((".py", ".pyi")) and (ROOT / p).is_file()]
    if python:
        yield "ruff", [sys.executable, "-m", "ruff", "check", "--quiet", "--output-format", "concise", "--force-exclude", *python]
    if any(p.startswith(f"{PACKAGE}/") or p == "tools/import_order.py" for p in python):
        yield "import order", [sys.executable, "tools/import_order.py"]


def main() -> int:
    started = time.time()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", help="the revision that the tree is compared with (default: where the branch left main)")
    parser.add_argument("--seconds", type=float, default=50, help="when the tests stop")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the tests")
    parser.add_argument("--list", action="store_true", help="only say which test files it would run")
    options, more = parser.parse_known_args()
    paths = changed(options.base)
    files, why = chosen(paths)
    print(f"quick: {len(paths)} files changed, which touch {why}", flush=True)
    if options.list:
        print("\n".join(files))
        return 0
    beside = [(what, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)) for what, command in checks(paths)]
    until = started + options.seconds - 3  # the last test and the report need time as well
    status = run_tests(files, options.jobs, until, more)
    failed = [f"tests (exit {status})"] if status not in (0, NOTHING_LEFT) else []
    for what, process in beside:
        said, _ = process.communicate()
        if process.returncode:
            failed.append(what)
            print(said, end="")
    if time.time() > until:
        print("quick: the time was over before all of these tests had run: `make test` runs them")
    print(f"quick: {'failed: ' + ', '.join(failed) if failed else 'as it should be'}; {time.time() - started:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
