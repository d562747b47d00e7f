"""The stubs, as type checkers see them: usual code without an error, types that are known, mistakes that are found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
USUAL, WRONG, ASSERTED = HERE / "usual_code.py", HERE / "wrong_code.py", HERE / "asserted_code.py"


def lines_with(path: Path, pattern: str) -> dict[int, str]:
    found = ((i, re.search(pattern, line)) for i, line in enumerate(path.read_text().splitlines(), 1))
    return {i: m.group(1) for i, m in found if m}


def mypy(path: Path) -> tuple[dict[int, str], dict[int, str]]:
    """(errors, revealed types) by line."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(path)]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    name = re.escape(path.name)
    errors = {int(i): e for i, e in re.findall(rf"{name}:(\d+): error: (.*)", text)}
    revealed = {int(i): re.sub(r"[\w.]+\.(\w+)", r"\1", t) for i, t in re.findall(rf'{name}:(\d+): note: Revealed type is "(.*)"', text)}
    return errors, revealed


@pytest.mark.slow
def test_usual_code_has_no_errors_and_its_types_are_known():
    errors, revealed = mypy(USUAL)
    assert errors == {}
    expected = lines_with(USUAL, r"reveal_type\(.*\)  # (.*)$")
    assert len(expected) > 50 and revealed == expected


@pytest.mark.slow
def test_mistakes_are_found():
    errors, _ = mypy(WRONG)
    assert sorted(errors) == sorted(lines_with(WRONG, r"(# wrong)$"))


@pytest.mark.slow
def test_asserted_types_are_those_of_mypy():
    assert ASSERTED.read_text().count("assert_type(") > 80
    errors, _ = mypy(ASSERTED)
    assert errors == {}


@pytest.mark.slow
def test_pyright_agrees():
    program = shutil.which("pyright") or shutil.which("basedpyright")
    if program is None:
        pytest.skip("neither pyright nor basedpyright is installed (80 MB with its Node: the extra `pyright`)")
    command = [program, "--level", "error", "--pythonpath", sys.executable, str(USUAL), str(WRONG), str(ASSERTED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = re.findall(r"(\w+)\.py:(\d+):\d+ - error", done.stdout)
    assert {int(i) for name, i in errors if name == "wrong_code"} == set(lines_with(WRONG, r"(# wrong)$")), done.stdout
    assert [e for e in errors if e[0] != "wrong_code"] == [], done.stdout
