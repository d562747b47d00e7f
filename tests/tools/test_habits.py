"""The habits agree: what .ci/run runs, the workflow runs, on the Pythons that the package names; hooks and targets exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"


def parts() -> list[str]:
    """The make targets of .ci/run, in order."""
    return re.findall(r"^part (\S+) \d+$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def parsed(path: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="an environment made before pyyaml was asked for")
    return yaml.safe_load(path.read_text())


def test_the_workflow_runs_what_ci_runs() -> None:
    assert len(parts()) >= 6
    assert re.findall(r"^ +- run: make (\S+)$", WORKFLOW.read_text(), re.MULTILINE) == parts()


def test_every_part_is_a_target_that_help_tells_of() -> None:
    told = set(re.findall(r"^#   make ([\w-]+) ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(parts()) <= targets() & told
    assert {"quick", "fix"} <= targets() & told


def test_the_workflow_parses_and_runs_every_part_to_its_end() -> None:
    jobs = parsed(WORKFLOW)["jobs"]
    assert len(jobs) == 1
    job = jobs["everything"]
    assert job["strategy"]["fail-fast"] is False and "continue-on-error" not in str(jobs)
    limits = dict(re.findall(r"^part (\S+) (\d+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    made = [step for step in job["steps"] if step.get("run", "").startswith("make ")]
    for step in made:
        assert step["if"] == "${{ !cancelled() }}", step
        assert 60 * step["timeout-minutes"] >= int(limits[step["run"].removeprefix("make ")]), step
    assert job["timeout-minutes"] >= sum(step["timeout-minutes"] for step in made)


def test_the_workflow_runs_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert parsed(WORKFLOW)["jobs"]["everything"]["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13", "3.14"]
    assert project["requires-python"] == f">={named[0]}"


def test_the_hooks_run_tools_that_exist() -> None:
    hooks = [hook for repo in parsed(HOOKS)["repos"] for hook in repo["hooks"]]
    assert [repo["repo"] for repo in parsed(HOOKS)["repos"]] == ["local"]
    assert [hook["id"] for hook in hooks] == ["ruff", "import-order", "stubs", "names"]
    check = re.search(r"^check:.*?^$", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)
    assert check is not None
    for hook in hooks:
        program, *arguments = hook["entry"].split()
        assert program in (".venv/bin/python", ".venv/bin/ruff"), hook
        assert hook["language"] == "system"
        if program.endswith("python"):  # then the same as `make check` runs
            assert (ROOT / arguments[0]).is_file() and " ".join(arguments) in check[0], hook
            assert re.match(hook["files"], "flambeau/_core/tensor.py") and not re.match(hook["files"], "tests/_core/test_tensor.py")


def test_contributing_names_every_generated_file_and_targets_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## Generated files"):text.index("## Add an operation")]
    package = ROOT / "flambeau"
    stubs = [f for f in package.rglob("*.pyi") if "tools/stubs.py" in f.read_text()[:200]]
    fitted = [f for f in package.rglob("*.py") if "made by tools/" in f.read_text(errors="ignore")[:200]]
    known = [ROOT / "docs" / "names.md", ROOT / "docs" / "conformance.md", *(ROOT / "tests" / "conformance").glob("*.xz")]
    assert len(stubs) >= 6 and len(fitted) >= 2
    for file in [*stubs, *fitted, *known]:
        assert file.relative_to(ROOT).as_posix() in table or (file in stubs and f"`{file.relative_to(package).as_posix()}`" in table), file
    assert [t for t in re.findall(r"tools/\w+\.py", text) if not (ROOT / t).is_file()] == []
    assert [t for t in re.findall(r"`make ([\w-]+)", text) if t not in targets()] == []


def test_collecting_the_tests_imports_no_part_of_scipy() -> None:
    """Of the seconds that it took to collect them, these imports were the most: see tests/late.py."""
    tests = [f for f in sorted((ROOT / "tests").rglob("*.py")) if "parity" not in f.relative_to(ROOT).parts]
    found = []
    for f in tests:
        for node in ast.parse(f.read_text()).body:  # scripts that tests hold as texts are run elsewhere
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(n.startswith("scipy.") or n.partition(".")[0] == "torch" or (n == "scipy" and isinstance(node, ast.ImportFrom)) for n in names):
                found.append(f.relative_to(ROOT).as_posix())
    assert found == []
