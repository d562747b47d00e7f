"""What a fixed sample of calls costs on any machine (launches, bytes, blocks of memory, Python functions) stays below the table's ceilings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "ops"))
import ops_counts  # noqa: E402


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what has been learned before would count."""
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / "ops" / "ops_counts.py"), *options], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=str(ROOT)), timeout=300, check=False)


def test_no_slow_path_has_come_back() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" launches ") == len(ops_counts.ceilings()) > 120


def test_what_costs_more_is_told() -> None:
    one, two = ops_counts.Counts(1, 200, 1, 12), ops_counts.Counts(2, 200, 1, 8)
    assert ops_counts.beyond({"a": one, "b": one}, {"a": two}) == ["a: calls 12, at most 11", "b: it is not in counts.toml"]
    assert ops_counts.beyond({"a": two}, {"a": one}) == ["a: launches 2, at most 1"]
    assert "'a' = [1, 200, 1, 12]" in ops_counts.written_table({"a": one})
