"""`pytest --flambeau`: a project's unmodified suite on Flambeau, and what the end of the session says of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from flambeau.suite import beside, missing, report

ROOT = Path(__file__).resolve().parents[2]

PROJECT = """
import math, torch

kept = []


def mean(x):
    return x.mean().item()


def keep(x):
    kept.append(x)
"""

TESTS = """
import pytest, torch
import project


@pytest.fixture(scope="module")
def big():
    return torch.ones(5000, device="cuda")


def test_cpu():
    assert torch.ones(2).sum().item() == 2


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs")
def test_cuda(big):
    x = torch.ones(1000, device="cuda:1")
    assert [project.mean(x) for _ in range(3)] == [1, 1, 1]


def test_mixed():
    torch.ones(2, device="cuda") + torch.ones(2)


def test_missing():
    torch.no_such_function(1)


def test_leak():
    project.keep(torch.ones(1000, device="cuda"))


def test_wait():
    stream, host = torch.cuda.Stream(), torch.zeros(100000).pin_memory()
    x = torch.ones(100000, device="cuda")
    with torch.cuda.stream(stream):
        host.copy_(x, non_blocking=True)
    assert host.sum().item() == 100000


def test_wrong():
    assert torch.ones(1).item() == 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project.py").write_text(PROJECT)
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "test_absent.py").write_text("from torch.no_such_module import thing\n\ndef test_it():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


INSTALLED = any(point.value == "pytest_flambeau" for point in importlib.metadata.entry_points(group="pytest11"))  # then pytest knows it


def run(folder: Path, *arguments: str, plugin: bool = not INSTALLED, **env: str) -> tuple[str, int]:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FLAMBEAU_SIM", "PYTEST_"))}
    done = subprocess.run([sys.executable, "-m", "pytest", *(["-p", "pytest_flambeau"] if plugin else []), "-q", "-p", "no:cacheprovider", *arguments],
                          cwd=folder, env={**clean, "PYTHONPATH": paths, **env}, capture_output=True, text=True, check=False, timeout=300)
    return done.stdout + done.stderr, done.returncode


def section(text: str, title: str) -> list[str]:
    """The entries of one kind in the summary."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith(title)), None)
    if at is None:
        return []
    return [line.strip() for line in lines[at + 1:at + 1 + int(lines[at].rpartition("(")[2].rstrip(")"))]]


def test_a_suite_and_what_is_said_of_it(project: Path) -> None:
    text, status = run(project, "--flambeau", "--sim-gpus", "2", "--queue", "lazy", "--ledger")
    assert status == 1 and "3 failed, 3 passed, 2 skipped" in text, text
    assert section(text, "mixed devices")[0].startswith("test_all.py::test_mixed: Expected all tensors to be on the same device")
    assert section(text, "missed a wait") == ["test_all.py::test_wait"]
    assert section(text, "hid a synchronisation") == ["project.py:8: .item() waits for cuda:1 3 times, in test_all.py::test_cuda"]
    assert section(text, "leaked device memory") == ["test_all.py::test_leak: 3.9 KiB on cuda:0 in 1 tensor"]
    absent = section(text, "used what Flambeau has not")
    assert "torch.no_such_module" in absent[0] and absent[0].endswith("1 test, test_absent.py")
    assert "torch.no_such_function" in absent[1] and absent[1].endswith("1 test, test_all.py::test_missing")
    assert "transfers of the suite" in text and "project.py:8" in text.partition("transfers of the suite")[2]


def test_in_processes_of_xdist(project: Path) -> None:
    pytest.importorskip("xdist")
    text, _ = run(project, "--flambeau", "--sim-queue=random", "--sim-seed=5", "-n", "1", "--dist", "loadfile")
    assert "3 failed, 3 passed, 2 skipped" in text or "2 failed, 4 passed, 2 skipped" in text, text
    assert section(text, "leaked device memory") and section(text, "hid a synchronisation") and section(text, "mixed devices")
    assert len(section(text, "used what Flambeau has not")) == 2


def test_beside_another_torch(project: Path) -> None:
    """A stand-in for an environment with PyTorch: a module of that name, which this interpreter finds when Flambeau has not taken it."""
    (project / "torch.py").write_text("class cuda:\n    device_count = staticmethod(lambda: 0)\n\ndef ones(n, **k):\n    raise NotImplementedError\n")
    (project / "test_one.py").write_text("import torch\n\ndef test_real():\n    assert torch.__file__.endswith('torch.py')\n")
    text, _ = run(project, "--flambeau", f"--beside={sys.executable}", "test_one.py", "test_all.py")
    assert "| test_one.py | 1 passed |" in text and "| test_all.py |" in text, text
    assert "1 test passes with PyTorch and not with Flambeau:" in text and "test_one.py::test_real: failed" in text


def test_nothing_is_paid_or_taken_when_it_is_not_asked_for(project: Path) -> None:
    (project / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--seed', default='0')\n    parser.addoption('--queue')\n")
    (project / "test_free.py").write_text(
        "import sys\n\ndef test_free(pytestconfig):\n    assert pytestconfig.getoption('--seed') == '7'\n"
        "    assert not [m for m in sys.modules if m.split('.')[0] in ('flambeau', 'torch', 'llvmlite', 'numpy')]\n")
    text, status = run(project, "--seed", "7", "test_free.py")
    assert status == 0, text


def test_the_entry_point(project: Path) -> None:
    """As after `pip install`: pytest finds the plugin by the distribution's entry points."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "pytest_flambeau" in said["tool"]["setuptools"]["py-modules"]
    info = project / "flambeau_here-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flambeau-here\nVersion: 0\n")
    points = said["project"]["entry-points"]["pytest11"]
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    text, status = run(project, "--flambeau", "test_all.py::test_cpu", plugin=False)
    assert status == 0 and "no test mixed devices" in text, text


def test_too_late(project: Path) -> None:
    (project / "torch.py").write_text("")
    (project / "early.py").write_text("import torch\n")
    text, status = run(project, "-p", "early", "--flambeau")
    assert status == pytest.ExitCode.USAGE_ERROR and "torch was imported before" in text and "-p no:NAME" in text


def test_arguments_for_the_other_interpreter() -> None:
    given = ["-q", "--flambeau", "--sim-gpus", "2", "--queue=lazy", "--seed", "3", "tests", "-p", "pytest_flambeau", "-k", "a and b", "--ledger"]
    assert beside.arguments(given) == ["-q", "tests", "-k", "a and b"]


def test_the_table() -> None:
    ours = {"a.py::x": ["passed", 1.0, ""], "a.py::y": ["failed", 0.5, "AssertionError"]}
    theirs = {"a.py::x": ["passed", 2.0, ""], "a.py::y": ["passed", 1.0, ""], "b.py::z": ["passed", 0.0, ""]}
    lines = beside.table(ours, theirs)
    assert lines[2] == "| a.py | 2 passed | 3.0 | 1 passed, 1 failed | 1.5 | 1 |" and lines[4].startswith("| all | 3 passed |")
    assert lines[-2:] == ["  a.py::y: failed: AssertionError", "  b.py::z: absent: was not collected"]


def test_findings_of_several_processes() -> None:
    one, two = report.Findings(), report.Findings()
    one.waits["f:1\ncuda:0\nitem"], two.waits["f:1\ncuda:0\nitem"] = {"a": 1}, {"a": 1, "b": 2}
    one.absent["torch.x"], two.absent["torch.x"] = ["a"], ["a", "b"]
    one.add(json.loads(json.dumps(two.data())))
    assert report.lines(one) == ["hid a synchronisation (1)", "  f:1: .item() waits for cuda:0 4 times, in 2 tests, a the first",
                                 "used what Flambeau has not: skipped (1)", "  torch.x: 2 tests, a the first"]


def test_what_is_missing_and_what_is_not() -> None:
    import flambeau as torch
    from flambeau.script import missing as script_missing

    def error_of(f: Any) -> BaseException:
        with pytest.raises(Exception) as found:
            f()
        return found.value

    def swallowed() -> None:
        try:
            raise script_missing.no_attribute("torch", "wanted", list)
        except AttributeError as error:
            raise RuntimeError("cannot start") from error
    assert "torch.wanted" in str(missing.wanted(error_of(swallowed)))
    assert "no_method" in str(missing.wanted(error_of(lambda: torch.ones(1).no_method)))
    for other in (lambda: torch.ones(2) @ torch.ones(3), lambda: {}["a"], lambda: object().a, lambda: (_ for _ in ()).throw(NotImplementedError("mine"))):
        assert missing.wanted(error_of(other)) is None
    mixed = error_of(lambda: torch.ones(2) + torch.ones(2, device="meta"))
    assert missing.mixes_devices(error_of(lambda: torch.ones(2) @ torch.ones(3))) is None and isinstance(mixed, RuntimeError)


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    """The page's two files, run, end with the lines that the page shows."""
    page = (ROOT / "docs" / "guide" / "9-suites.md").read_text(encoding="utf-8")
    blocks = [textwrap.dedent(b).lstrip("\n") for b in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, re.MULTILINE)]
    sources = next(b for b in blocks if b.startswith("# fit.py"))
    fit, tests = sources.split("# test_fit.py")
    (tmp_path / "fit.py").write_text(fit)
    (tmp_path / "test_fit.py").write_text(tests)
    text, _ = run(tmp_path, "--flambeau", "--queue", "lazy")
    shown = next(b for b in blocks if b.startswith("missed a wait"))
    assert shown.strip() in text, text


def test_the_workflow_of_the_guide() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((ROOT / "docs" / "guide" / "flambeau-tests.yml").read_text())["jobs"]["simulated-gpus"]
    command = job["steps"][-1]["run"]
    orders = job["strategy"]["matrix"]["queue"]
    assert command.startswith("pytest --flambeau") and [o.split()[1] for o in orders] == ["eager", "lazy", "random"]
    assert all(beside.arguments(command.replace("${{ matrix.queue }}", o).split()) == ["pytest"] for o in orders)


def test_pytest_reads_the_package_as_python_does() -> None:
    """In its own way, for modules of plugins, it reads 800 of them several times slower."""
    ours = [m for name, m in sys.modules.items() if name.partition(".")[0] == "flambeau" and m.__spec__ is not None and m.__spec__.has_location]
    assert len(ours) > 100 and {type(m.__spec__.loader) for m in ours} == {SourceFileLoader}
