"""The reference page tells of every environment variable that the source reads, every simulated model and every flag."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau import cli
from flambeau._core.drivers.simulated.models import MODELS

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
assert spec is not None and spec.loader is not None
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)


def test_every_variable_that_is_read_is_told_and_none_besides() -> None:
    found = reference.read()
    assert found - set(reference.VARIABLES) == set(), "tell of them in tools/reference.py"
    assert set(reference.VARIABLES) - found == set(), "nothing reads them"
    assert reference._NO_VARIABLES.isdisjoint(reference.VARIABLES)


@pytest.mark.parametrize("text", [
    'import os\nos.environ["PLANTED"]', 'import os\nenv = os.environ\nenv.get("PLANTED")', 'import os\nfor name in ("PLANTED",): os.environ.pop(name)',
    'import os\nbase = {**os.environ}\nbase.update(PLANTED="1")', 'V = "FLAMBEAU_PLANTED"\nfrom x import get\nget(V)'])
def test_a_variable_is_found_by_whatever_way_it_is_read(text: str, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "flambeau").mkdir()
    (tmp_path / "flambeau" / "one.py").write_text(text)
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    assert len(reference.read()) == 1 and reference.read().pop().endswith("PLANTED")


def test_the_page_is_new() -> None:
    text = reference.PAGE.read_text("utf-8")
    assert text == reference.page(), "run `make generated`"
    for name in MODELS:
        assert f"| `{name}` |" in text
    for flags in re.findall(r"^  +(--?[\w-]+)", cli.parser().format_help(), re.MULTILINE):
        assert flags in ("-h", "--version")
    for flag in ("--sim-gpus N", "--sim-model NAME", "--queue ORDER", "--watch SECONDS", "-c CODE", "--json", "--no-page"):
        assert f"`{flag}`" in text


def test_an_old_page_is_noticed(tmp_path: Path, monkeypatch) -> None:
    old = tmp_path / "reference.md"
    monkeypatch.setattr(reference, "PAGE", old)
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0 and reference.main(["--check"]) == 0
    old.write_text(old.read_text("utf-8").replace("H200", "H2"))
    assert reference.main(["--check"]) == 1


def test_a_variable_that_nobody_tells_of_is_noticed(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(reference, "read", lambda: {*reference.VARIABLES, "FLAMBEAU_PLANTED"})
    assert reference.main(["--check"]) == 1 and "FLAMBEAU_PLANTED" in capsys.readouterr().err


def test_the_defaults_that_are_told_are_true() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_SIM")}
    code = ("import flambeau as t; from flambeau._core.runtime import gpus; "
            "print(t.cuda.get_device_name(), gpus.system().driver.queue_mode, t.cuda.get_device_properties(0).total_memory >> 20)")
    done = subprocess.run([sys.executable, "-c", code], env={**env, "FLAMBEAU_SIM_GPUS": "1"}, capture_output=True, text=True, check=True, timeout=100)
    default = MODELS[reference.VARIABLES["FLAMBEAU_SIM_MODEL"][0]]
    assert done.stdout.split("\n")[0] == f"{default.full_name} {reference.VARIABLES['FLAMBEAU_SIM_QUEUE'][0]} {default.memory_mib}"
