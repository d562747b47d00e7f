"""Kernels made behind a program: by whom, when, once, and at nobody's cost."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flambeau import inventory
from flambeau._core.kernels import cache
from flambeau.warm import __main__, behind

MADE = behind.cache.MANY
PROGRAM = """
import os, sys
import flambeau as torch
from flambeau._core.kernels import cache
from flambeau.warm import behind
text = "import os, sys, time; open(sys.argv[1], 'a').write(str(os.getppid()) + chr(10)); time.sleep(60)"
behind.python = lambda *words: [sys.executable, "-c", text, sys.argv[1]]
for k in range(int(sys.argv[2])):
    cache.get(cache.key("some", sys.argv[2], str(k)), lambda: b"body")
try:
    os.waitpid(-1, os.WNOHANG)
    print("a child")
except ChildProcessError:
    print("no child")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no kernel was made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("FLAMBEAU_WARM", "FLAMBEAU_CACHE_DIR", *behind._ELSEWHERE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "_open", {})
    return tmp_path / "cache" / "flambeau" / "kernels-1"


def run(told: Path, count: int, **env: str) -> str:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(told), str(count)], env={**os.environ, **env}, capture_output=True, text=True,
                          check=True, timeout=100).stdout


def test_the_first_program_that_makes_kernels_begins_it_once_and_does_not_wait(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert run(told, MADE - 1) == "no child\n"  # too few: nobody trains with so few
    assert run(told, MADE + 3) == "no child\n"
    for _ in range(400):
        if told.exists() and told.read_text().endswith("\n"):
            break
        time.sleep(0.05)
    assert len(told.read_text().splitlines()) == 1 and int(told.read_text()) != os.getpid()


@pytest.mark.parametrize("name", ["CI", "PYTEST_VERSION", "RANK", "SLURM_JOB_ID", "FLAMBEAU_CACHE_DIR"])
def test_elsewhere_nothing_is_begun_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delitem(sys.modules, "pytest")
    assert behind.why_not() == ""
    monkeypatch.setenv(name, str(tmp_path / "1"))
    assert name in behind.why_not() and behind.start() is False
    monkeypatch.setenv("FLAMBEAU_WARM", "1")
    assert behind.why_not() == ""
    monkeypatch.setenv("FLAMBEAU_WARM", "0")
    assert "FLAMBEAU_WARM" in behind.why_not() and behind.start() is False


def test_a_program_with_a_python_inside_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_WARM", "1")
    monkeypatch.setattr(sys, "executable", "/opt/paint/paint")
    assert "/opt/paint/paint" in behind.why_not()
    monkeypatch.setattr(sys, "executable", None)
    assert behind.why_not()


def test_a_test_begins_nothing() -> None:
    assert "test" in behind.why_not()


def test_a_shell_that_cannot_be_had_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("/bin/sh")
    monkeypatch.setenv("FLAMBEAU_WARM", "1")
    monkeypatch.setattr(subprocess, "run", missing)
    assert behind.start() is False


def test_it_is_done_once_and_told(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(behind, "lowest", lambda: None)
    monkeypatch.setenv("FLAMBEAU_WARM", "1")
    assert inventory.kernel_cache()["ahead"].startswith("not made ahead; the next program")
    assert __main__.main(["--behind", "optimizers"]) == 0
    kept = cache.held()[0]
    assert kept > 10 and inventory.kernel_cache()["ahead"] == "made ahead" and inventory.kernel_cache()["kernels"] == kept
    assert behind.start() is False
    for path in folder.iterdir():
        if not path.name.endswith(".beside"):
            path.unlink()
    assert __main__.main(["--behind", "optimizers"]) == 0 and cache.held()[0] == 0
    assert cache.trim(0) == 0 and inventory.kernel_cache()["ahead"] == "made ahead"  # the folder's limit does not forget it


def test_attempts_that_fail_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "lowest", lambda: None)
    monkeypatch.setenv("FLAMBEAU_WARM", "1")
    for _ in range(behind.TRIES):
        assert behind.state().startswith("not made ahead; the next")
        assert behind.work(["poetry"]) == 1
    assert behind.work(["poetry"]) == 0 and behind.start() is False
    assert behind.state() == "not made ahead: given up"


def test_while_one_is_at_work_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "lowest", lambda: None)
    monkeypatch.setenv("FLAMBEAU_WARM", "1")
    mark = cache.beside(behind._name())
    fcntl.flock(mark, fcntl.LOCK_EX)
    assert behind.state() == "being made behind the programs that run"
    assert behind.start() is False and behind.work(["poetry"]) == 0
    assert os.pread(mark, 16, 0) == b""
    os.close(mark)


def test_its_processes_have_the_lowest_priority_and_a_limit() -> None:
    text = ("import os, resource; from flambeau.warm import behind; behind.lowest(); "
            "print(os.nice(0), getattr(os, 'sched_getscheduler', lambda _: 5)(0), resource.getrlimit(resource.RLIMIT_CPU)[0])")
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=100).stdout.split()
    assert told == ["19", "5", str(behind.SECONDS_OF_CPU)]  # 5: SCHED_IDLE


def test_the_folder_where_a_program_stands_is_not_imported_from(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong module')\n")
    told = subprocess.run(behind.python("optimizers"), cwd=tmp_path, env=behind.environment(), capture_output=True, text=True, check=False, timeout=200)
    assert told.returncode == 0 and '"kernels"' in told.stdout, told.stderr


def test_who_waits_for_such_a_process_waits_no_longer_than_a_kernel_takes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    name = cache.key("slow")
    began, stop = threading.Event(), threading.Event()
    monkeypatch.setattr(cache, "behind", True)

    def never() -> bytes:
        began.set()
        stop.wait(60)
        return b"body"
    slow = threading.Thread(target=lambda: cache.get(name, never))
    slow.start()
    assert began.wait(60)
    monkeypatch.setattr(cache, "behind", False)
    since = time.monotonic()
    assert cache.get(name, lambda: b"body") == b"body" and time.monotonic() - since < cache._PATIENCE / 2
    stop.set()
    slow.join(60)
    assert cache.load(name) == b"body" and [p.name for p in folder.iterdir()] == [name]
