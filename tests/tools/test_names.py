"""The table of names and the pages of docstrings."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name):
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_states_are_found_by_looking():
    names = tool("names")
    assert names.resolve("torch.add")[0] and names.resolve("torch.Tensor.add_")[0] and names.resolve("torch.nn.functional.relu")[0]
    assert not names.resolve("torch.nothing_of_the_kind")[0] and not names.resolve("torch.onnx.export")[0]
    assert names.reason("torch.onnx.export") and names.reason("torch.quantize_per_tensor") and names.reason("torch.add") is None
    assert names.section("torch.nn.functional.relu") == "torch.nn.functional" and names.section("torch.nn.Module.cuda") == "torch.nn"
    text = names.page({"torch.add": True, "torch.onnx.export": False, "torch.nothing_of_the_kind": False}, "2.13.0")
    assert "| **`torch.add`** | here | `flambeau._core.ops.binary` |" in text and "| `torch.nothing_of_the_kind` | missing |  |" in text
    assert "| all | 1 | 1 | 1 |" in text and "| common | 1 | 0 | 0 |" in text


def test_the_page_keeps_its_names():
    names = tool("names")
    listed, version = names.of_page()
    assert len(listed) > 2500 and version == "2.13.0" and sum(listed.values()) > 400
    assert not [n for n, common in listed.items() if common and not names.resolve(n)[0] and names.reason(n) is None]


@pytest.fixture
def pages(tmp_path, monkeypatch):
    made = tool("api_pages")
    monkeypatch.setattr(made, "FOLDER", tmp_path)
    return made, tmp_path


def test_pages_are_made_of_docstrings(pages):
    made, folder = pages
    text, count, bare = made.page("nn", "nn", "Modules.")
    assert count > 100 and "## Linear" in text and "torch.nn.Linear" not in bare
    text, _, bare = made.page("torch", "", "All.")
    assert "add(input, other, *, alpha" in re.sub(r": Any", "", text) and "## sin\n\n```python\nsin(input, *, out=None)" in text
    assert len(bare) < 60
