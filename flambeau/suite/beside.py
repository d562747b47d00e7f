"""The same suite with PyTorch: run in another interpreter, and both in one table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..script import importer

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = ("passed", "failed", "error", "skipped", "xfailed")
_WITH_VALUE = ("--sim-gpus", "--sim-model", "--sim-memory", "--sim-queue", "--queue", "--sim-seed", "--seed", "--flambeau-beside", "--beside")
_ALONE = ("--flambeau", "--sim-ledger", "--ledger")


def arguments(given: Sequence[str]) -> list[str]:
    """pytest's arguments without those that are Flambeau's."""
    kept: list[str] = []
    skip, after = False, ""
    for arg in map(str, given):
        name, equals, _ = arg.partition("=")
        plugin = (arg == "-p", after == "-p" and arg == "pytest_flambeau")
        if skip:
            skip = False
        elif name in _WITH_VALUE:
            skip = not equals
        elif plugin[1]:
            kept.pop()
        elif name not in _ALONE and arg != "-ppytest_flambeau":
            kept.append(arg)
        after = arg
    return kept


def run(python: str, given: Sequence[str], folder: str) -> dict[str, list[Any]]:
    """The outcomes of the suite in `folder` by another interpreter and its torch.  Raises RuntimeError where it gives none."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(Path(__file__).with_name("outcomes.py"), Path(place) / "flambeau_outcomes.py")
        target = Path(place) / "outcomes.json"
        env = dict(os.environ, FLAMBEAU_OUTCOMES=str(target))
        paths = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p != importer._ALIAS]
        env["PYTHONPATH"] = os.pathsep.join([place, *paths])
        for name in [n for n in env if n.startswith("FLAMBEAU_SIM_")]:
            del env[name]
        done = subprocess.run([python, "-m", "pytest", *arguments(given), "-p", "flambeau_outcomes"], cwd=folder, env=env, capture_output=True,
                              text=True, check=False)
        if not target.exists():
            raise RuntimeError(f"{python} -m pytest ended with status {done.returncode} and told nothing:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        found: dict[str, list[Any]] = json.loads(target.read_text(encoding="utf-8"))
        return found


def table(ours: dict[str, list[Any]], theirs: dict[str, list[Any]]) -> list[str]:
    """Both outcomes by file, as the lines of a Markdown table, and after it the tests that only PyTorch passes."""
    files = sorted({n.partition("::")[0] for n in (*ours, *theirs)})
    lines = ["| file | PyTorch | s | Flambeau | s | differ |", "|---|---|---|---|---|---|"]
    for file in [*files, "all"]:
        mine, other = [{n: v for n, v in o.items() if file in ("all", n.partition("::")[0])} for o in (ours, theirs)]
        differ = [n for n in {**mine, **other} if _kind(mine, n) != _kind(other, n)]
        lines.append(f"| {file} | {_counts(other)} | {_seconds(other)} | {_counts(mine)} | {_seconds(mine)} | {len(differ)} |")
    worse = [n for n, v in theirs.items() if v[0] == "passed" and _kind(ours, n) != "passed"]
    lines += ["", f"{len(worse)} {'test passes' if len(worse) == 1 else 'tests pass'} with PyTorch and not with Flambeau" + (":" if worse else "")]
    return lines + [f"  {n}: {_kind(ours, n)}: {ours[n][2] if n in ours else 'was not collected'}" for n in worse]


def _kind(outcomes: dict[str, list[Any]], name: str) -> str:
    return str(outcomes[name][0]) if name in outcomes else "absent"


def _counts(outcomes: dict[str, list[Any]]) -> str:
    counts = {k: sum(v[0] == k for v in outcomes.values()) for k in _KINDS}
    return ", ".join(f"{n} {k}" for k, n in counts.items() if n) or "none"


def _seconds(outcomes: dict[str, list[Any]]) -> str:
    return f"{sum(v[1] for v in outcomes.values()):.1f}"
