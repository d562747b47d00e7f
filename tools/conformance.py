"""The score against PyTorch's operator database, as a check and as docs/conformance.md.

    python tools/conformance.py --check        float32 on the CPU: exits 1 below the floor (what CI runs)
    python tools/conformance.py --write        every type, and simulated GPUs: writes docs/conformance.md (about ten minutes)

The instrument is ../shared/opinfo (see its README): answers are made once with torch, into build/oracle, and scoring needs
none.  Where the instrument is absent this says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT.parent / "shared" / "opinfo" / "opinfo_score.py"
BUILD = ROOT / "build" / "conformance"
FLOOR = 90.0  # percent of the public operations whole in float32, below which CI fails
LEFT_OUT = {"jiterator": "left out: a CUDA-only way to write kernels; flambeau.pointwise is ours",
            "sparse": "sparse layouts are few yet", "nested": "nested tensors are left out"}


def score(name: str, *options: str) -> dict[str, Any]:
    """One run of the instrument; its JSON."""
    BUILD.mkdir(parents=True, exist_ok=True)
    out = BUILD / f"{name}.json"
    command = [sys.executable, str(TOOL), "--path", str(ROOT), "--oracle", str(BUILD / "oracle"), "--json", str(out), *options]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=BUILD, check=False)
    if not out.exists():
        raise SystemExit(f"the instrument failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def whole(result: dict[str, Any], internal: bool = False) -> tuple[int, int]:
    """(public operations whole, public operations tested)."""
    rows = [o for o in result["ops"].values() if o["tested"] and (internal or o["group"] != "internal")]
    return sum(bool(o["full"]) for o in rows), len(rows)


def shares(result: dict[str, Any], check: str) -> tuple[int, int]:
    """(samples passed, samples asked) of one check, over public operations and types."""
    passed = asked = 0
    for o in result["ops"].values():
        if not o["tested"] or o["group"] == "internal":
            continue
        for checks in o["checks"].values():
            n = checks.get(check)
            if n:
                passed += n["pass"]
                asked += n["pass"] + n["fail"] + n["missing"]
    return passed, asked


def percent(pair: tuple[int, int]) -> str:
    return f"{100 * pair[0] / max(pair[1], 1):.1f} % ({pair[0]} of {pair[1]})"


def why(o: dict[str, Any]) -> str:
    """The first failure of an operation in one line, without paths."""
    if not o["exists"]:
        known = next((text for key, text in LEFT_OUT.items() if key in o["name"]), "")
        return known or "not there yet"
    first = o.get("first") or {}
    text = "; ".join(f"{k}: {v}" for k, v in first.items() if k in ("func", "method", "inplace", "grad")) or "; ".join(first.values())
    return re.sub(r"\s+", " ", re.sub(r"\(/[^)]*\)", "", text)).replace("|", "\\|")[:220]


def table(result: dict[str, Any]) -> list[str]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for o in result["ops"].values():
        if o["tested"]:
            groups.setdefault(o["group"], []).append(o)
    lines = ["| group | operations | there | whole |", "|---|---|---|---|"]
    for name in sorted(groups):
        rows = groups[name]
        lines.append(f"| {name} | {len(rows)} | {sum(bool(o['exists']) for o in rows)} | {sum(bool(o['full']) for o in rows)} |")
    return lines


def write() -> None:
    single = score("float32")
    every = score("all", "--dtypes", "all")
    gpu = score("cuda", "--device", "cuda")
    lines = [
        "# Conformance", "",
        "PyTorch's own operator database (OpInfo, 2.13) asked of Flambeau. An operation is *whole* when every sample of it gives PyTorch's",
        "values, shape, type and structure, as function, method and in place, and its gradient is PyTorch's. Made by `make conformance-page`.", "",
        "| | public operations whole | gradients |", "|---|---|---|",
        f"| float32, CPU | {percent(whole(single))} | {percent(shares(single, 'grad'))} |",
        f"| float32, simulated GPU | {percent(whole(gpu))} | {percent(shares(gpu, 'grad'))} |",
        f"| all six types, CPU | {percent(whole(every))} | {percent(shares(every, 'grad'))} |", "",
        "## By group, float32 on the CPU", "", *table(single), "", "## Not whole, and why", "",
        "| operation | group | first difference |", "|---|---|---|",
    ]
    for o in sorted(single["ops"].values(), key=lambda o: (o["group"], o["name"])):
        if o["tested"] and not o["full"]:
            lines.append(f"| `{o['name']}` | {o['group']} | {why(o)} |")
    both = [o for o in every["ops"].values() if o["tested"] and not o["full"] and single["ops"].get(o["name"], {}).get("full") and o["group"] != "internal"]
    if both:
        lines += ["", "## Whole in float32, but not in every type", "", "| operation | group | first difference |", "|---|---|---|"]
        lines += [f"| `{o['name']}` | {o['group']} | {why(o)} |" for o in sorted(both, key=lambda o: (o["group"], o["name"]))]
    (ROOT / "docs" / "conformance.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[4:11]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    if not TOOL.exists():
        print("conformance: skipped, because the instrument is not beside this checkout (../shared/opinfo)")
        return 0
    if chosen.write:
        write()
        return 0
    result = score("float32")
    pair = whole(result)
    print(f"conformance: {percent(pair)} of the public operations whole in float32; gradients {percent(shares(result, 'grad'))}")
    if 100 * pair[0] / pair[1] < FLOOR:
        print(f"conformance: below the floor of {FLOOR} %:", ", ".join(o["name"] for o in result["ops"].values() if o["tested"] and not o["full"]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
