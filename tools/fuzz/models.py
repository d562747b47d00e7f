"""The part `models`: runs models_process.py in processes of its own, goes on after crashes, compares with what is known."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from . import classes, programs

CHECKED = "0:300"  # what a check without --seeds runs
HEAD = """Differences between PyTorch and Flambeau that random training programs show: `make fuzz FUZZ="--only models --write"` renews counts.
Reasons are written by hand and stay. A class without a reason is a difference that nobody has judged yet."""


def check(root: Path, instruments: Path, a: argparse.Namespace) -> bool:
    """Needs PyTorch and no instrument; says so where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        print("fuzz: models: skipped, because PyTorch is not installed here")
        return True
    known = classes.read(Path(__file__).parent / "known" / "models.toml")
    seeds = programs.drawn(a.fresh) if a.fresh else a.seeds or CHECKED
    out = root / "build" / "fuzz" / "models.jsonl"
    found = programs.in_processes(root, out, [sys.executable, "-m", "tools.fuzz.models_process", "--out", str(out)], seeds, a.seconds)
    if a.fresh:
        return programs.told_of_fresh("models", known, found, seeds)
    counts = classes.total([c for c, _ in ds] for ds in found.values())
    if a.write:
        kept = Path(__file__).parent / "known" / "models.toml"
        examples = {c: f"seed {seed}: {t}" for seed, ds in sorted(found.items(), reverse=True) for c, t in ds}
        about = {"seeds": seeds, "programs": len(found), "differ": sum(1 for ds in found.values() if ds)}
        classes.write(kept, classes.renewed(known, counts, examples, about), HEAD)
        return True
    new = classes.compare(counts, known).new
    print(f"fuzz: {len(found)} training programs (seeds {seeds}), {sum(1 for ds in found.values() if ds)} differ")
    for c in new:
        seed, text = next((seed, t) for seed, ds in sorted(found.items()) for d, t in ds if d == c)
        print(f"  new: {classes.said(c)}: seed {seed}\n       {text}")
    return not new
