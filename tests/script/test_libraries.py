"""The part of `make libraries` that needs no library: its environment's bookkeeping and its comparison."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest

from .test_run import run

FOLDER = Path(__file__).resolve().parents[2] / "tools" / "libraries"


def loaded(name: str):
    spec = importlib.util.spec_from_file_location(f"libraries_{name.strip('_')}", FOLDER / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def command(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "environment", raising=False)
    return loaded("__main__")


def test_how_far_two_results_are_apart(command) -> None:
    far = command.difference
    assert far([1.0, [2, "a"]], [1.0, [2, "a"]]) == 0 and far(1000.0, 1001.0) == pytest.approx(1 / 1001) and far(0.5, 0.6) == pytest.approx(0.1)
    assert far([1], [1, 2]) == far("a", "b") == far(True, 2) == math.inf
    assert far(math.nan, math.nan) == 0 and far(math.inf, math.inf) == 0 and far(math.nan, 1.0) == math.inf and far(None, 1.0) == math.inf


def test_programs_and_packages(command) -> None:
    assert {f"with_{name}.py" for name in command.PROGRAMS} | {"fed.py"} == {p.name for p in (FOLDER / "programs").glob("*.py")}
    environment = sys.modules["environment"]
    assert environment._plain("Torch_Geometric>=2.1; python_version>'3'") == "torch-geometric" and "torch" in environment.LEFT_OUT
    page = command.page({"peft": ["| LoRA | equal | 1.0 | 2.0 |"]}, {"peft": "1.2", "transformers": "5.0"})
    assert "## peft 1.2, transformers 5.0" in page and "| LoRA | equal" in page
    assert command._said({"gave": 1.0}, {"gave": 1.1}, False) == ("**differs** by 9.1e-02", False)
    assert command._said({"error": "gone"}, None, False) == ("stops: gone", False)
    assert command._said({"gave": 1.0}, {"gave": 1.0}, False) == ("equal", True) and command._said({"gave": 1.0}, None, True) == ("runs", True)


def test_what_programs_share(tmp_path) -> None:
    made = run(tmp_path, f"""
        import sys
        sys.path.insert(0, {str(FOLDER / "programs")!r})
        import fed, torch

        @fed.case("training")
        def training():
            net = fed.fill(torch.nn.Linear(3, 2), 0.5)
            return fed.steps(net, lambda: net(fed.numbers(4, 3)).square().mean())

        @fed.case("stops")
        def stops():
            raise ValueError("on purpose")
        fed.main()
    """)
    first, second = (json.loads(line.removeprefix("CASE ")) for line in made.stdout.splitlines())
    assert len(first["gave"]) == 3 and first["gave"][2] < first["gave"][0] and second["error"] == "ValueError: on purpose"


def test_inner_names_that_libraries_import(tmp_path) -> None:
    """And the first word of the class's module, by which opt_einsum and autoray choose what computes."""
    said = run(tmp_path, """
import pickle
import torch
from torch.distributions.multivariate_normal import _precision_to_scale_tril
from torch.distributions.transforms import _clipped_sigmoid
from torch.nn.modules.module import _addindent
from torch.nn.modules.utils import _ntuple
from torch.nn.parameter import _ParameterMeta
print(type(torch.ones(2)).__module__, torch.nn.Parameter.__module__, torch.nn.Linear(2, 2).weight.__class__.__module__)
print(_ntuple(3)(2), _ntuple(2, "_two")([4, 5]), _ntuple(2, "_two").__name__, _addindent("a\\nb", 2), isinstance(torch.nn.Parameter, _ParameterMeta))
print(_clipped_sigmoid(torch.tensor([0.0, 1e3])).tolist(), _precision_to_scale_tril(torch.eye(2) * 4).tolist())
p = torch.nn.Parameter(torch.ones(2))
print(type(pickle.loads(pickle.dumps(p))) is torch.nn.Parameter, pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor)
""").stdout
    assert said.splitlines() == [
        "torch torch.nn.parameter torch.nn.parameter", "(2, 2, 2) (4, 5) _two a", "  b True",
        "[0.5, 0.9999998807907104] [[0.5, 0.0], [0.0, 0.5]]", "True True"]
