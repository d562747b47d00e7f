"""Every Python example of the README, the guides and CONTRIBUTING runs as it stands, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs").glob("guide/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """(page and line, source) of each example, placed so that a traceback names the page's own line."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(1))
            found.append((f"{page.relative_to(ROOT)}:{line + 1}", "\n" * line + match.group(1)))
    return found


@pytest.mark.parametrize(("where", "source"), blocks(), ids=[where for where, _ in blocks()])
def test_example(where: str, source: str) -> None:
    program = f"exec(compile({source!r}, {where.rpartition(':')[0]!r}, 'exec'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_every_page_has_examples() -> None:
    assert {where.partition(":")[0] for where, _ in blocks()} >= {"README.md", "CONTRIBUTING.md"}


def test_the_two_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^\$ make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
