"""A few planted failures of each kind; and what a round's judge finds wrong."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None or not hasattr(os, "fork"), reason="no mpi4py, or no fork, here")


def test_a_few_rounds() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "failures.py"), "--rounds", "10", "--seed", "2", "--only", "SIGKILL,_exit,raise,differ,hub"],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, timeout=400)
    assert done.returncode == 0 and done.stdout.endswith("failures: 10 rounds, 0 failed\n"), done.stdout + done.stderr


def test_the_judge() -> None:
    from tools import failures
    quiet = failures.Lateness()
    plan = failures.Plan(2, 1, "SIGKILL", "barrier", 0.0, False, False)
    planted = {"rank": 1, "time": 10.0, "planted": "SIGKILL"}

    def told(text: str, at: float) -> dict[str, object]:
        return {"rank": 0, "time": at, "error": "DistBackendError", "text": text, "began": 9.0}
    right = "rank 1 is gone: it died (process 7 on here). Rank 0 was waiting"
    assert failures.judged(plan, [planted, told(right, 10.5)], "", {0: 7, 1: -9}, quiet) == ("", 0.5)
    assert "of 1.00" in failures.judged(plan, [planted, told(right, 12.0)], "", {0: 7, 1: -9}, quiet)[0]
    assert "does not say" in failures.judged(plan, [planted, told("rank 0 is gone: it died", 10.5)], "", {0: 7, 1: -9}, quiet)[0]
    assert "says nothing" in failures.judged(plan, [planted], "", {0: -11, 1: -9}, quiet)[0]
    # MPI ends those that wait for a rank in its own beginning, and says so; not those that it says nothing of
    ended = "Abort(204621071) on node 0: Fatal error in internal_Init_thread: Other MPI error"
    assert failures.judged(plan, [planted], ended, {0: 15, 1: -9}, quiet) == ("", 0.0)
    assert "says nothing" in failures.judged(plan, [planted], ended, {0: 0, 1: -9}, quiet)[0]
    assert "hangs" in failures.judged(plan, [planted], "", {0: None, 1: -9}, quiet)[0]
    assert "was not told" in failures.judged(plan, [planted, {"rank": 0, "time": 10.5, "well": True, "began": 9.0}], "", {0: 0, 1: -9}, quiet)[0]


def test_plans_are_drawn_from_the_seed_and_are_of_all_kinds() -> None:
    from tools import failures
    plans = [failures.Plan.drawn(random.Random(f"5 {k}"), list(failures.LIMITS)) for k in range(400)]
    assert plans[:50] == [failures.Plan.drawn(random.Random(f"5 {k}"), list(failures.LIMITS)) for k in range(50)]
    assert {p.how for p in plans} == set(failures.LIMITS) and {p.place for p in plans} >= {*failures.STEPS, "start", "end", ""}
    assert any(p.launched for p in plans) and all(p.agent for p in plans if p.launched)
