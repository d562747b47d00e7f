"""docs/speed.md, written from figures of `bench_ops.py`: the machine, what the runs say in sum, the worst lines, a sheet for each family.

`bench_ops.py --page docs/speed.md` makes the runs of `RUNS`, each in a process of its own, since libraries read how many threads they have once;
with figures of earlier runs (`--json`) behind the page's name it makes none.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

Result = dict[str, Any]
RUNS = (("small", 1, "float32"), ("large", 1, "float32"), ("small", 2, "float32"), ("large", 2, "float32"), ("large", 1, "bfloat16"))
SHORT = {"forward": "forward", "forward + backward": "with backward"}
WORST = 20
LEAST = 1e-4  # ratios are kept to four digits, of which nothing may be left
QUIET = 0.7  # of load by others
MOST = 0.7  # of the lines: those that cannot be timed are not all there are
FIXED = 0.1  # of a ratio: three digits below it


def machine() -> str:
    """The processor and what Python sees of it."""
    name, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    widest = ""
    if info.exists():
        text = info.read_text()
        name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), name)
        widest = next((f", {label}" for flag, label in (("amx_tile", "AMX"), ("avx512f", "AVX-512"), ("avx2", "AVX2")) if f" {flag} " in text + " "), "")
    return f"{name}{widest}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"


def copy_speed() -> float:
    """Bytes a second that NumPy's copy reads and writes beyond the caches: the limit of what only moves memory."""
    import numpy as np
    source = np.ones(1 << 26, np.uint8)
    target, best = np.empty_like(source), math.inf
    for _ in range(7):
        started = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - started)
    return 2 * source.nbytes / best


def make_runs(script: Path) -> list[Result]:
    """The figures of all runs."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for size, threads, dtype in RUNS:
            file = Path(folder) / "figures.json"
            options = ["--size", size, "--threads", str(threads), "--dtype", dtype, "--json", str(file), "--worst", "1"]
            print(f"{size}, {threads} threads, {dtype}", file=sys.stderr, flush=True)
            subprocess.run([sys.executable, str(script), *options], check=True, stdout=subprocess.DEVNULL)
            found.append(json.loads(file.read_text()))
    return found


def title(run: Result) -> str:
    return f"{run['case']}, {run['threads']} thread{'s' * (run['threads'] != 1)}" + ("" if run["dtype"] == "float32" else f", {run['dtype']}")


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(max(r, LEAST)) for r in ratios) / len(ratios)) if ratios else math.nan


def shown(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= FIXED else f"{ratio:.3f}"


def busy(runs: list[Result]) -> list[str]:
    """Says so where others worked on the machine too: a run's own load is its threads."""
    most = max([run.get("load", 0) - run["threads"] for run in runs], default=0)
    return [f"Taken on a busy machine (a load of up to {most:.0f} beside the run's own): both sides took turns in one process, yet single ratios "
            "may be well off, those of short calls most."] if most > QUIET else []


def sampled(runs: list[Result]) -> list[str]:
    """Says so where runs did not see all lines."""
    seen = [(len({name.rpartition(",")[0] for name in run["lines"]}), run.get("of", 0)) for run in runs]
    few = any(n < MOST * of for n, of in seen)
    return [f"A sample of the operations, mixed over all families: {', '.join([f'{n} of {of}' for n, of in seen])}."] if few else []


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    marks = ["---", *["--:"] * (len(head) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)] + [""]


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def page(runs: list[Result], where: str = "", bandwidth: float = 0.0) -> str:
    """The text; where: the machine; bandwidth: a copy's bytes a second."""
    columns = [(run, mode) for run in runs for mode in SHORT if any(r["mode"] == mode and "ratio" in r for r in run["lines"].values())]
    values: dict[str, dict[int, float]] = {}  # by operation: its ratio in each column
    families: dict[str, str] = {}
    for k, (run, mode) in enumerate(columns):
        for name, r in run["lines"].items():
            if r["mode"] == mode and "ratio" in r:
                operation = name.removesuffix(f", {mode}")
                values.setdefault(operation, {})[k] = r["ratio"]
                families[operation] = r["family"]
    heads = [f"{title(run)}, {SHORT[mode]}" for run, mode in columns]
    text = ["# Speed beside PyTorch", "",
            "Written by `make bench-ops BENCH=\"--page docs/speed.md\"`; nobody edits it. A figure is PyTorch's time over Flambeau's for the same call in the "
            "same process: above 1, Flambeau is faster. Small is 4 x 4, large 1,024 x 1,024, or a shape of the operation's own that is as small or large.", "",
            *([f"Machine: {where}."] if where else []), *busy(runs), *sampled(runs),
            *([f"A copy beyond the caches moves {bandwidth / 1e9:.1f} GB/s there."] if bandwidth else []), "",
            "## In sum", ""]
    rows = []
    for k, head in enumerate(heads):
        ratios = [v[k] for v in values.values() if k in v]
        rows.append([head, str(len(ratios)), f"{mean(ratios):.2f}x", str(sum(r < 1 for r in ratios)), shown(min(ratios))])
    text += _table(["run", "lines", "geometric mean", "below 1x", "least"], rows)
    text += ["## The worst lines", ""]
    worst = sorted((ratio, operation, k) for operation, found in values.items() for k, ratio in found.items())[:WORST]
    text += _table(["line", "run", "ratio"], [[_cell(operation), heads[k], shown(ratio)] for ratio, operation, k in worst])
    text += ["## The families", "", "Each sheet has its worst line first.", ""]
    spread = {f: [r for o, found in values.items() if families[o] == f for r in found.values()] for f in set(families.values())}
    for family in sorted(spread, key=lambda f: mean(spread[f])):
        below = sum(r < 1 for r in spread[family])
        text += [f"### {family}", "", f"Geometric mean {mean(spread[family]):.2f}x; {below} of {len(spread[family])} figures below 1x.", ""]
        lines = sorted((o for o in values if families[o] == family), key=lambda o: (min(values[o].values()), o))
        text += _table(["operation", *heads], [[_cell(o), *[shown(values[o][k]) if k in values[o] else "" for k in range(len(columns))]] for o in lines])
    untimed = sorted({f"{_cell(name.split(', ')[0])}: {why}" for run in runs for name, why in run["not timed"].items()})
    if untimed:
        text += ["## Not timed", "", *[f"- {line}" for line in untimed], ""]
    return "\n".join(text).rstrip() + "\n"


def write(path: Path, given: list[str], script: Path) -> None:
    """The page from the figures in the files given, or from runs made now."""
    runs = [json.loads(Path(file).read_text()) for file in given] or make_runs(script)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("flambeau", "torch") if _installed(name))
    path.write_text(page(runs, f"{machine()}, {versions}", copy_speed()))


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
