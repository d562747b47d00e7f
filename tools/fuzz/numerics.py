"""The part `numerics`: programs/numerics.py of the instruments, its table of errors and its list of answers held against what is known.

Known are, for each function and range, the largest error, the error that one value in a thousand exceeds (both in units of the last place of float32)
and how many values are not-a-number or infinite where the exact one is not; for sums and products of ten million numbers, their error; and which
answers differ from PyTorch's.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HEAD = """# Errors of float32 functions beside float64, in units of the last place: the largest, the one that 1 of 1000 exceeds, and how many values
# are special where the exact one is not. Renewed by `make fuzz FUZZ="--only numerics --write"`. Reasons are written by hand and stay.
"""

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
_ROW = re.compile(rf"^(\S+) +(wide|mid|small) +.* \| \(({_NUMBER}), ({_NUMBER}), (\d+),")


@dataclass
class Report:
    functions: dict[str, tuple[float, float, int]] = field(default_factory=dict)  # by "name range"
    long: dict[str, float] = field(default_factory=dict)  # results over ten million numbers: errors, and what has no exact answer
    answers: dict[str, str] = field(default_factory=dict)  # that differ from PyTorch's: label, both answers
    refused: list[str] = field(default_factory=list)  # functions that raise here


def parse(text: str) -> Report:
    """The report that the instrument printed; of a pair of lines, the second is Flambeau's."""
    r = Report()
    for line in text.splitlines():
        row = _ROW.match(line)
        if row:
            r.functions[f"{row[1]} {row[2]}"] = (float(row[3]), float(row[4]), int(row[5]))
        elif re.match(r"^\S+ +(wide|mid|small) .*\| ERR ", line):
            r.refused.append(" ".join(line.split()[:2]))
        elif line.startswith("sum1e7 "):
            r.long = {name.strip(): float(value) for name, value in re.findall(r"([a-z](?:[a-z0-9_ ]|\([^)]*\))*) (" + _NUMBER + r")(?= |$)", line)}
        elif line.startswith("DIFF "):
            label, _, both = line[5:].partition(" (")
            r.answers[label] = "(" + both
    return r


def worse(now: Report, known: Report) -> list[str]:
    """What is not known, in words.  Errors may be a quarter larger: another processor rounds elsewhere."""
    out = []
    for name, (largest, usual, special) in sorted(now.functions.items()):
        if name not in known.functions:
            out.append(f"{name}: not recorded")
            continue
        most, often, specials = known.functions[name]
        if largest > most * 1.25 + 0.3 or usual > often * 1.25 + 0.6 or special > specials + specials // 20 + 2:
            out.append(f"{name}: largest {largest:.3g}, 1 of 1000 {usual:.3g}, special {special}; recorded {most:.3g}, {often:.3g}, {specials}")
    out += [f"{name}: raises now" for name in now.refused if name not in known.refused]
    out += [f"{name}: no longer reported" for name in sorted(known.functions.keys() - now.functions.keys()) if name not in now.refused]
    for name, value in now.long.items():
        if name not in known.long:
            out.append(f"{name}: not recorded")
        elif abs(value) > abs(known.long[name]) * 2 + 1e-6:
            out.append(f"{name}: {value:.4g}, recorded {known.long[name]:.4g}")
    out += [f"{label}: {both}" for label, both in now.answers.items() if label not in known.answers or _ours(both) != _ours(known.answers[label])]
    return out


def _ours(both: str) -> str:
    """Flambeau's answer of the two."""
    return str(ast.literal_eval(both)[1])


def read(path: Path) -> tuple[Report, dict[str, str]]:
    """What is known, and the reasons by label or by function and range."""
    if not path.exists():
        return Report(), {}
    raw = tomllib.loads(path.read_text())
    functions = {name: (float(v[0]), float(v[1]), int(v[2])) for name, v in raw["functions"].items()}
    return Report(functions, raw["long"], raw["answers"], raw["refused"]), raw["reasons"]


def write(path: Path, r: Report, reasons: dict[str, str]) -> None:
    def table(name: str, rows: dict[str, str]) -> list[str]:
        return ["", f"[{name}]", *(f"{json.dumps(k)} = {v}" for k, v in rows.items())]

    lines = [HEAD, f"refused = {json.dumps(r.refused)}"]
    lines += table("functions", {k: f"[{_rounded(v[0])}, {_rounded(v[1])}, {v[2]}]" for k, v in r.functions.items()})
    lines += table("long", {k: _rounded(v) for k, v in r.long.items()})
    lines += table("answers", {k: json.dumps(v, ensure_ascii=False) for k, v in r.answers.items()})
    lines += table("reasons", {k: json.dumps(v, ensure_ascii=False) for k, v in reasons.items()})
    path.write_text("\n".join(lines) + "\n")


def _rounded(value: float) -> str:
    """Six digits; a float of TOML."""
    return repr(float(f"{value:.6g}"))


def check(root: Path, instruments: Path, a: argparse.Namespace) -> bool:
    kept = Path(__file__).parent / "known" / "numerics.toml"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, str(instruments / "programs" / "numerics.py"), "all"], cwd=root / "build" / "fuzz", env=environment,
                          check=False, capture_output=True, text=True)
    (root / "build" / "fuzz" / "numerics.txt").write_text(done.stdout)
    if done.returncode:
        print(f"fuzz: numerics ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return False
    now = parse(done.stdout)
    known, reasons = read(kept)
    print(f"fuzz: numerics: {len(now.functions)} rows of functions, {len(now.answers)} answers differ from PyTorch's")
    if a.write:
        write(kept, now, reasons)
        return True
    found = worse(now, known)
    for line in found:
        print("  new:", line)
    for label in known.answers.keys() - now.answers.keys():
        print("  gone:", label)
    return not found
