"""Random histories of calls: learned and replayed they tell what the bodies tell, with each block of memory between pages that nobody may touch."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SEEDS = os.environ.get("HISTORIES", "0:48")  # others: HISTORIES=1000:4000
MODES = ("learned", "at-once")


def told(mode: str, first: int, last: int) -> list[str]:
    """What the histories of these seeds tell; a process that ends is begun anew behind the seed at which it ended."""
    env = {**{k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "FLAMBEAU_WARM": "0"}
    lines: list[str] = []
    while first < last:
        done = subprocess.run([sys.executable, "-m", "tests._core.engine.histories", mode, str(first), str(last)], cwd=ROOT, env=env, check=False,
                              capture_output=True, text=True)
        here = done.stdout.splitlines()
        if not done.returncode:
            return [*lines, *here]
        assert here, done.stderr
        lines += [*here, f"{here[-1].split('.')[0]} ended with {done.returncode}: {done.stderr[-2000:]}"]
        first = int(re.split(r"\D", here[-1])[0]) + 1
    return lines


def difference(a: Any, b: Any, path: str = "") -> str:
    """Where two told things differ first."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return next((difference(x, y, f"{path}[{k}]") for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), "")
    return f"{path}: by the bodies {str(a)[:200]}, learned {str(b)[:200]}"


@pytest.mark.parametrize("mode", MODES)
def test_learned_calls_tell_what_the_bodies_tell(mode: str) -> None:
    first, last = map(int, SEEDS.split(":"))
    middle = (first + last) // 2
    span = (first, middle) if mode == MODES[0] else (middle, last)
    plain, learned = told("bodies", *span), told(mode, *span)
    assert plain[-1] == "learned 0" and int(learned[-1].split()[1]) > (last - first) // 2  # plans
    wrong, call = [], ""
    for a, b in zip(plain[:-1], learned[:-1], strict=True):
        if re.match(r"\d+ ", a):
            call = a
        if a != b:
            (where, *_, one), (*_, other) = a.split(" ", 3), b.split(" ", 3)
            wrong.append(f"{call}\n  {where}{difference(ast.literal_eval(one), ast.literal_eval(other))}")
    assert not wrong, "\n".join(wrong)
