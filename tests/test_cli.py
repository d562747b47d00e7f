"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import flambeau
from flambeau import cli, inventory


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"flambeau {flambeau.__version__}\n"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.EXIT_USAGE
    shown = capsys.readouterr().out
    assert "info" in shown and "demo" in shown


@pytest.mark.parametrize("arguments", [["nothing"], ["demo", "--epochs", "0"], ["demo", "--epochs", "many"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == cli.EXIT_USAGE
    assert arguments[-1] in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:-1"])
def test_a_device_that_cannot_be_is_one_line_on_stderr(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--device", name]) == 1
    caught = capsys.readouterr()
    assert caught.err.startswith("flambeau: ") and caught.err.count("\n") == 1 and name in caught.err


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["flambeau"] == flambeau.__version__
    assert facts["cpu"]["threads"] >= 1 and facts["cpu"]["memory"] > 1 << 28
    assert facts["packages"]["numpy"] and facts["packages"]["llvmlite"]
    assert facts["kernel cache"]["bytes"] <= facts["kernel cache"]["limit"]
    assert facts["libraries"]["float matmul, linear algebra"]


def test_info_as_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FLAMBEAU_SIM_GPUS", "0")
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    for part in ("flambeau", "cpu", "cuda", "kernel cache", "FLAMBEAU_SIM_GPUS=0", "OpenBLAS"):
        assert part in shown


def test_info_says_what_it_cannot_tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise OSError("no such driver")

    monkeypatch.setattr(inventory, "gpus", broken)
    assert cli.main(["info"]) == 0
    assert "cannot be told: OSError: no such driver" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (141 << 30, "141.0 GiB"), (1 << 52, "4096.0 TiB")],
)
def test_sizes_for_people(nbytes: int, text: str) -> None:
    assert inventory.size(nbytes) == text


def test_python_m_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "flambeau", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"flambeau {flambeau.__version__}\n"


def test_the_command_line_is_light() -> None:
    """`flambeau --help` loads neither LLVM nor rich."""
    code = (
        "import sys\nfrom flambeau import cli\ntry:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('rich', 'llvmlite', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
