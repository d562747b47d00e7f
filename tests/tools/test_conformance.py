"""The score's own arithmetic, its reasons and its kept answers."""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("conformance", ROOT / "tools" / "conformance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def counted(passed: int, failed: int = 0, missing: int = 0) -> dict[str, int]:
    return {"pass": passed, "fail": failed, "missing": missing}


RESULT = {"meta": {"device": "cpu"}, "ops": {
    "add": {"tested": True, "group": "binary", "checks": {"float32": {"func": counted(3), "grad": counted(2)}, "bfloat16": {"func": counted(1, 1)}}},
    "sort": {"tested": True, "group": "sort", "checks": {"float32": {"func": counted(1), "out": counted(0, 0, 1)}}},
    "_inner": {"tested": True, "group": "internal", "checks": {"float32": {"func": counted(0, 5)}}},
    "never": {"tested": False, "group": "sort", "checks": {}}}}


def test_counts(tool: Any) -> None:
    ops = tool.public(RESULT)
    assert list(ops) == ["add", "sort"]
    assert tool.whole(ops["add"], True) and not tool.whole(ops["add"], False)
    assert tool.whole(ops["sort"], False)  # out= is not a part of being whole
    assert tool.counts(ops["add"], ("func",)) == (4, 5)
    assert tool.failures(RESULT) == [("add", "bfloat16", "func", "cpu"), ("sort", "float32", "out", "cpu")]


def test_reasons_are_held_against_what_fails(tool: Any) -> None:
    found = tool.failures(RESULT)
    fitting = {"ops": ["add"], "types": ["bfloat16"], "why": "rounding"}
    assert tool.unexplained(found, [fitting]) == [("sort", "float32", "out", "cpu")]
    assert tool.unexplained(found, [{**fitting, "types": ["float32"]}]) == found
    assert tool.unexplained(found, [{**fitting, "devices": ["cuda"]}]) == found
    assert tool.stale(found, [fitting, {"ops": ["sort"], "checks": ["out"], "why": "missing"}]) == []
    assert tool.stale(found, [{"ops": ["add", "mul"], "why": "?"}]) == ["mul"]
    assert tool.stale(found, [{**fitting, "checks": ["func", "grad"]}]) == ["add (grad)"]


def test_the_reasons_file(tool: Any) -> None:
    known = {"ops", "types", "checks", "devices", "why"}
    for reason in tool.reasons():
        assert set(reason) <= known and reason["ops"] and len(reason["why"]) > 20 and "|" not in reason["why"], reason
        assert set(reason.get("checks", ())) <= {*tool.CORE, *tool.OTHER}
        assert set(reason.get("types", ())) <= set(tool.TYPES) and set(reason.get("devices", ())) <= {"cpu", "cuda"}


def test_the_kept_answers_are_about_every_operation(tool: Any) -> None:
    data = lzma.decompress(tool.KEPT.read_bytes())
    start = data.index(b"\n") + 1
    end = start + int(data[:start])
    index = json.loads(data[start:end])
    assert sum(index.values()) == len(data) - end
    catalogue = json.loads(data[end:end + index["catalogue.json"]])
    asked = {name for name, info in catalogue["ops"].items() if info["dtypes"]}
    assert len(asked) > 680 and asked == {name.split("/")[1].removesuffix(".pkl.z") for name in index if "/" in name and not name.startswith("error")}


def test_the_page_is_of_this_form(tool: Any) -> None:
    text = tool.PAGE.read_text()
    for heading in ("# Conformance", "## Operations whole, by group", "## Aliasing rules", "## Not whole, and why"):
        assert heading in text
    assert "not yet looked into" not in text


def test_a_gpu_keeps_the_digits_of_float32() -> None:
    """In a process of its own: the module takes the name of the package."""
    program = "import flambeau as f; from tests.conformance import mortal; print(f.backends.cudnn.allow_tf32, f.backends.cuda.matmul.allow_tf32)"
    environment = {k: v for k, v in os.environ.items() if k != "FAKE_ORDER"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment, check=True)
    assert done.stdout.split() == ["False", "False"]
