"""The parent of a rank that an MPI launcher started: it ends as the rank does, passes signals on, and tells the hub what it saw."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flambeau._core.drivers.collectives import parent

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks have a parent on Linux only")
BEGIN = "import os, sys, time; from flambeau._core.drivers.collectives import parent; own = os.getpid(); parent.begin(); "


def _started(text: str, **env: str) -> subprocess.Popen[str]:
    known = {k: v for k, v in os.environ.items() if k not in ("RANK", *parent._LAUNCHED)}
    return subprocess.Popen([sys.executable, "-c", BEGIN + text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                            env={**known, "PYTHONPATH": str(ROOT), "PMI_RANK": "0", **env})


@pytest.mark.parametrize(("text", "status"), [("print(os.getppid() == own)", 0), ("print(os.getppid() == own); sys.exit(3)", 3),
                                              ("print(os.getppid() == own, flush=True); os.kill(os.getpid(), 9)", -9),
                                              ("print(os.getppid() == own, flush=True); os.abort()", -6)])
def test_it_ends_as_the_rank_does(text: str, status: int) -> None:
    made = _started(text)
    assert made.communicate(timeout=60)[0] == "True\n" and made.returncode == status


@pytest.mark.parametrize("env", [{"PMI_RANK": "", "RANK": "0"}, {"RANK": "0"}])
def test_a_rank_that_is_told_so_by_rank_has_none(env: dict[str, str]) -> None:
    made = _started("print(os.getpid() == own)", **env)
    assert made.communicate(timeout=60)[0] == "True\n"


def test_signals_are_passed_on_once() -> None:
    made = _started("import signal; signal.signal(15, lambda *a: print('told', flush=True)); print('up', flush=True)\n"
                    "for _ in range(50): time.sleep(0.02)\nsys.exit(5)")
    assert made.stdout is not None and made.stdout.readline() == "up\n"
    made.send_signal(signal.SIGTERM)
    assert made.communicate(timeout=60)[0] == "told\n" and made.returncode == 5


def test_a_rank_does_not_outlive_it() -> None:
    made = _started("print(os.getpid(), flush=True); time.sleep(60)")
    assert made.stdout is not None
    rank = int(made.stdout.readline())
    made.kill()
    made.wait()
    end = time.monotonic() + 10
    while _runs(rank) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(rank)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_hub_is_told_how_the_rank_ended() -> None:
    heard: list[dict[str, object]] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(60)

        def hear() -> None:
            with listener.accept()[0] as made:
                heard.append(json.loads(made.makefile().readline()))
        hearing = threading.Thread(target=hear, daemon=True)
        hearing.start()
        made = _started(f"parent.found('127.0.0.1', {listener.getsockname()[1]}, 'secret', 2); os.kill(os.getpid(), 11)")
        made.communicate(timeout=60)
        hearing.join(10)
    assert made.returncode == -11 and heard == [{"kind": "parent", "rank": 2, "secret": "secret", "how": "by signal SIGSEGV"}]
