"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
    monkeypatch.setenv("FLAMBEAU_OF_TOMORROW", "7")
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    for part in ("flambeau", "cpu", "cuda", "kernel cache", "FLAMBEAU_OF_TOMORROW=7", "FLAMBEAU_SIM_GPUS=0", "OpenBLAS"):
        assert part in shown


def test_info_for_another_program_is_not_wrapped() -> None:
    env = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run([sys.executable, "-m", "flambeau", "info"], env=env, capture_output=True, text=True, check=True, timeout=100)
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) > 100 and all(line and line[0] != " " for line in lines) and lines[0].startswith("flambeau ")
    assert sum(line.startswith("packages ") for line in lines) == 1


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


@pytest.mark.parametrize(("environment", "reason"), [
    ({}, "there is no NVIDIA driver here: libcuda.so.1 cannot be loaded, and none is simulated"), ({"FLAMBEAU_SIM_GPUS": "0"}, "FLAMBEAU_SIM_GPUS is 0"),
    ({"FLAMBEAU_SIM_GPUS": "2", "CUDA_VISIBLE_DEVICES": "-1"}, "2 GPUs are hidden by CUDA_VISIBLE_DEVICES='-1'"),
    ({"FLAMBEAU_SIM_GPUS": "many"}, "cannot be told: RuntimeError: FLAMBEAU_SIM_GPUS: expected a number of GPUs, got 'many'"),
])  # fmt: skip
def test_info_says_why_there_is_no_gpu(environment: dict[str, str], reason: str) -> None:
    if inventory.hardware() != "no NVIDIA device, driver or libcuda on this machine" and not environment:
        pytest.skip("there is NVIDIA hardware here")
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *arguments], env={**os.environ, **environment, "COLUMNS": "300"}, capture_output=True, text=True, timeout=100)

    shown = run("-m", "flambeau", "info", "--json")
    facts = json.loads(shown.stdout)
    assert facts["why no gpu"].startswith(reason)
    assert reason in run("-m", "flambeau", "info").stdout
    use = run("-c", "import flambeau as t; t.ones(1).cuda()")
    assert reason.removeprefix("cannot be told: RuntimeError: ") in use.stderr  # the error itself says it too


def test_what_the_machine_shows_of_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").write_text("")
    (tmp_path / "dev" / "nvidiactl").write_text("")
    assert inventory.hardware(str(tmp_path)).startswith("1 NVIDIA device files, no NVIDIA kernel driver loaded, ")
    (tmp_path / "proc" / "driver" / "nvidia").mkdir(parents=True)
    (tmp_path / "proc" / "driver" / "nvidia" / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Release Build\nGCC version: 12\n")
    assert "kernel driver 580.65.06" in inventory.hardware(str(tmp_path))
    (tmp_path / "dev" / "nvidia0").unlink()
    assert inventory.hardware(str(tmp_path)).startswith("no /dev/nvidia* files: was the container started with GPUs?")


@pytest.mark.parametrize("arguments", [("smi", "--watch", "0.1"), ("smi",), ("info",), ("info", "--json"), ("completion", "bash")])
def test_a_reader_that_goes_is_no_error(arguments: tuple[str, ...]) -> None:
    """As with `| head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    made = subprocess.run([sys.executable, "-m", "flambeau", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=100)
    os.close(writing)
    assert made.stderr == "" and made.returncode == 141
