"""Kernels made ahead: the programs run, what they made is kept, and other programs need no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau import cli, warm
from flambeau._core.kernels import cache
from flambeau.warm import programs

OTHER = """
import flambeau as torch
from flambeau._core.kernels import cache
model = torch.nn.Sequential(torch.nn.Linear(37, 21), torch.nn.ReLU(), torch.nn.Linear(21, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(50, 37)), torch.randint(0, 5, (50,))).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
print(cache.made)
"""


@pytest.mark.parametrize("name", list(programs.GROUPS))
def test_each_group_runs_and_leaves_nothing_to_make(name: str) -> None:
    warm.make(name)
    assert warm.make(name)[0] == 0


def test_what_was_made_ahead_serves_other_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    assert cli.main(["warm", "--only", "optimizers", "--jobs", "2"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert first[0].split()[0] == "optimizers" and int(first[0].split()[1]) > 10
    assert str(tmp_path) in first[-1]
    other = subprocess.run([sys.executable, "-c", OTHER], capture_output=True, text=True, env=dict(os.environ), check=True, timeout=120)
    assert int(other.stdout) <= 1  # a product of other widths may be another kernel
    assert cli.main(["warm", "--only", "optimizers"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[1] == "0"


def test_what_fails_is_told_and_the_rest_is_made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def apart(name: str) -> subprocess.CompletedProcess[str]:
        if name == "mlp":
            return subprocess.CompletedProcess([], 1, "", "Traceback\nMemoryError: no room")
        return subprocess.CompletedProcess([], 0, json.dumps({"kernels": 3, "seconds": 0.5}) + "\n", "")
    monkeypatch.setattr(warm, "_apart", apart)
    assert warm.run() == 1
    told = capsys.readouterr()
    assert told.err == "flambeau warm: mlp: MemoryError: no room\n"
    assert told.out.splitlines()[-1].startswith(f"{3 * (len(programs.GROUPS) - 1)} kernels made")


def test_where_nothing_can_be_kept_nothing_is_made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file"))
    assert cache.why_not()
    assert cli.main(["warm"]) == 1
    assert "no kernel can be kept" in capsys.readouterr().err


def test_an_unknown_group_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["warm", "--only", "poetry"])
    assert stop.value.code == cli.EXIT_USAGE
    assert "poetry" in (told := capsys.readouterr().err) and "language" in told
