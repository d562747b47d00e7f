"""The guide's notebooks run from top to bottom, each in a process of its own, and what stands at a cell's end has an HTML form."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))

# What a kernel does, as far as a notebook needs it: each cell's last expression is shown, and `display` can show a thing anew.
KERNEL = """
import ast, json, sys, types

class Handle:
    def update(self, thing): shown.append(thing._repr_html_())

def display(thing, display_id=False):
    shown.append(thing._repr_html_())
    return Handle() if display_id else None

shell = types.SimpleNamespace(kernel=object())
ipython = types.ModuleType("IPython"); ipython.get_ipython = lambda: shell
ipython.display = types.ModuleType("IPython.display"); ipython.display.display = display
sys.modules["IPython"], sys.modules["IPython.display"] = ipython, ipython.display
space, told = {"__name__": "__main__"}, []
for number, source in enumerate(json.load(sys.stdin)):
    shown = []
    tree = ast.parse(source, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
        if value is not None:
            display(value)
    told.append(shown)
json.dump(told, sys.stdout)
"""


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_runs(path: Path) -> None:
    code = ["".join(c["source"]) for c in cells(path) if c["cell_type"] == "code"]
    done = subprocess.run([sys.executable, "-c", KERNEL], input=json.dumps(code), capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)  # nothing else was printed: all is shown as HTML
    assert len(told) == len(code) >= 5
    for source, shown in zip(code, told, strict=True):
        if "Progress(" in source:  # a bar that moved
            parts = [float(m[1]) for s in shown if (m := re.search(r'aria-valuenow="([\d.]+)"', s))]
            assert len(parts) == len(shown) > 5 and parts == sorted(parts) and parts[0] == 0 and parts[-1] == 12
            assert "accuracy" in shown[-1] and "<svg" in shown[-1]
        else:
            assert len(shown) == 1 and shown[0].startswith("<"), source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_kernel_of_jupyter_shows_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` installs what this needs: a real kernel, and a client that gets the messages that a browser would."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make docs")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: make docs")
    from nbformat import read

    messages: list[tuple[int, str, str]] = []  # of which cell, what kind, what is shown

    class Client(nbclient.NotebookClient):  # type: ignore[misc, name-defined]
        def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
            if "data" in msg["content"]:
                messages.append((cell_index, msg["msg_type"], msg["content"]["data"].get("text/html", "")))
            return super().process_message(msg, cell, cell_index)

    folder = tmp_path / "kernels" / "flambeau"  # a kernel of this Python, whatever the machine knows as python3
    folder.mkdir(parents=True)
    folder.joinpath("kernel.json").write_text(json.dumps({"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                                                          "display_name": "Flambeau", "language": "python"}), "utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(path, as_version=4)
    Client(notebook, kernel_name="flambeau", timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()  # raises where a cell does
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        mine = [(kind, html) for which, kind, html in messages if which == number]
        if "Progress(" in cell.source:
            # a bar is shown once, and then moved in its place while the work goes on
            assert [kind for kind, _ in mine].count("display_data") == 1 and {kind for kind, _ in mine[1:]} == {"update_display_data"}
            parts = [float(re.search(r'aria-valuenow="([\d.]+)"', html)[1]) for _, html in mine]  # type: ignore[index]
            assert len(parts) > 5 and parts == sorted(parts) and parts[0] == 0 and parts[-1] == 12
        else:
            assert [kind for kind, _ in mine] == ["execute_result"] and mine[0][1].startswith("<"), cell.source
        assert not any(o.output_type == "stream" for o in cell.outputs), cell.outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    whole = json.loads(path.read_text("utf-8"))
    assert whole["nbformat"] == 4 and whole["metadata"]["language_info"] == {"name": "python"}
    for cell in whole["cells"]:
        assert set(cell) == {"cell_type", "metadata", "source"} | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        assert not cell.get("outputs") and cell.get("execution_count") is None
        assert cell["source"] and all(line.endswith("\n") for line in cell["source"][:-1])


def test_there_is_one_and_the_guide_names_it() -> None:
    start = (ROOT / "docs" / "guide" / "README.md").read_text("utf-8")
    assert NOTEBOOKS and all(f"]({p.name})" in start for p in NOTEBOOKS)
