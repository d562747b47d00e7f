"""Completion of the command line: what bash, zsh and fish offer is what the parser takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau import cli, completion


def text(shell: str) -> str:
    done = subprocess.run([sys.executable, "-m", "flambeau", "completion", shell], capture_output=True, text=True, check=True, timeout=100)
    return done.stdout


def offered(line: str, script: str, folder: Path) -> list[str]:
    """What bash offers at the end of a line. Like bash, the line is parted at `=`."""
    *words, last = (w for w in re.split(r"(=)| ", line) if w is not None)
    quoted = " ".join(f"'{w}'" for w in [*filter(None, words), last])
    ask = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _flambeau; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True, timeout=60, cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_what_bash_offers(tmp_path: Path) -> None:
    script = text("bash")

    def at(line: str) -> list[str]:
        return offered(line, script, tmp_path)
    commands = [c.name for c in completion.commands(cli.parser())]
    assert at("flambeau ")[:len(commands)] == commands == ["info", "smi", "demo", "run", "warm", "completion"]
    assert at("flambeau i") == ["info"] and at("flambeau --v") == ["--version"]
    assert at("flambeau run --sim") == ["--sim-gpus", "--sim-model", "--sim-memory", "--sim-network", "--sim-node"]
    assert at("flambeau run --sim-model H") == at("flambeau run --sim-model=H") == ["H100", "H200"]
    assert at("flambeau run --queue ") == ["eager", "lazy", "random"]
    assert at("flambeau run --queue=lazy --led") == ["--ledger"]
    assert at("flambeau demo --device c") == ["cpu", "cuda"] and at("flambeau info --j") == ["--json"]
    assert at("flambeau completion ")[:3] == list(completion.SHELLS)
    # left to bash, which completes files: a script, its arguments, a page, numbers
    for line in ("flambeau run tr", "flambeau run --report p", "flambeau run train.py --q", "flambeau run -c text --q", "flambeau run --sim-gpus 2 train.py --",
                 "flambeau run -c "):
        assert at(line) == []
    assert at("flambeau nothing --q") == []


def test_every_flag_of_the_parser_is_in_each_script() -> None:
    for shell in completion.SHELLS:
        script = text(shell)
        for command in completion.commands(cli.parser()):
            assert re.search(rf"\b{command.name}\b", script)
            for flag in command.flags:
                for word in flag.words:
                    said = f"-{'l' if word[:2] == '--' else 's'} {word.lstrip('-')} " if shell == "fish" else word
                    assert said in script, (shell, word)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    path = tmp_path / "script"
    path.write_text(text(shell))
    subprocess.run([shell, "-n", str(path)], check=True, timeout=60)
    if shell == "fish":
        ask = f"source {path}; complete -C 'flambeau run --queue '; complete -C 'flambeau comp'"
        done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True, timeout=60)
        assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["eager", "lazy", "random", "completion"]


def test_the_models_offered_can_be_simulated() -> None:
    from flambeau._core.drivers.simulated.models import MODELS, model

    run = next(c for c in completion.commands(cli.parser()) if c.name == "run")
    flag = next(f for f in run.flags if "--sim-model" in f.words)
    assert isinstance(flag.values, tuple) and [model(name).name for name in flag.values] == [m.name for m in MODELS.values()]


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["completion", "tcsh"])
    assert stop.value.code == cli.EXIT_USAGE
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
