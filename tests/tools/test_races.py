"""A few rounds of each kind, one of each; and that a round which hangs or fails is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import races

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def test_a_few_rounds() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "races.py"), "--rounds", "6", "--seed", "1"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0 and done.stdout == "races: seed 1\nraces: 6 rounds, 0 failed\n", done


@pytest.mark.parametrize(("program", "said"), [
    ("pass", ""), ("raise SystemExit(3)", "ended with 3"), ("import os; os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
    ("import time; time.sleep(60)", "hangs")])
def test_how_a_round_ended(program: str, said: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    start = time.monotonic()
    assert races.ended(child.pid, 2.0 if said == "hangs" else 60.0) == said and time.monotonic() - start < 60
    child.returncode = -signal.SIGKILL  # waited for already
