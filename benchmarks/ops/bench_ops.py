"""Every public operation beside PyTorch, worst first.

    python benchmarks/ops/bench_ops.py [--size small|middle|large] [--threads N] [--dtype bfloat16] [--device cuda] [--only PATTERN] [--worst N]
                                       [--grad | --no-grad | --out] [--every N] [--seconds S] [--json FILE] [--compare OLD.json]
    python benchmarks/ops/bench_ops.py --profile NAME
    python benchmarks/ops/bench_ops.py --page docs/speed.md [FIGURES.json ...]

A line is an operation with generated arguments (ops_calls, ops_values), without gradients and, where PyTorch has one, with
its backward pass; or with out=.  Both libraries run in this process, in turn for short blocks of calls; the least of a few medians counts, of the
processor's time on one thread and of the clock's on several.  The ratio is PyTorch's time over ours: above 1, Flambeau is faster; "calls" are the
Python functions that our call enters, the same on every machine.  What cannot be timed is listed with its reason.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import importlib
import json
import math
import os
import pstats
import random
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before NumPy and PyTorch are imported, which read this once
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "FLAMBEAU_NUM_THREADS"), "1")
    os.environ.pop("OPENBLAS_CORETYPE", None)  # which halves OpenBLAS where it is set to an older CPU

from ops_lines import Line, all_lines, find  # noqa: E402
from ops_timing import Failed, Gradient, entered, gradient_of, measure, on_device, prepare  # noqa: E402
from ops_values import CASES, Case  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
Result = dict[str, Any]
FORWARD, BACKWARD, INTO = "forward", "forward + backward", "with out="


def sides(case: Case, alone: bool) -> list[Any]:
    """PyTorch and Flambeau, or Flambeau alone."""
    found = [importlib.import_module(name) for name in (("flambeau",) if alone else ("torch", "flambeau"))]
    for lib in found:
        lib.set_num_threads(case.threads)
        lib.manual_seed(0)
    return found


def timed(line: Line, libs: list[Any], gradient: Gradient | None, case: Case, with_out: bool = False) -> Result:
    """One line in one mode: its microseconds, PyTorch's and the ratio; or why not."""
    works = []
    for lib in libs:
        try:
            works.append(prepare(lib, line, gradient, case, with_out))
        except Failed as error:
            return {"why": f"{lib.__name__}: {error}"}
    gc.disable()
    try:
        for lib in libs:
            lib.set_grad_enabled(gradient is not None)
        seconds, calls = measure(works, case), len(entered(works[-1]))
    except Exception as error:
        return {"why": f"{type(error).__name__}: {str(error)[:160]}"}
    finally:
        gc.enable()
    us = [round(1e6 * s, 4) for s in seconds]
    return {"us": us[-1], "calls": calls, **({"torch_us": us[0], "ratio": round(us[0] / us[-1], 4)} if len(us) > 1 else {})}


def takes_out(ours: Any, line: Line) -> bool:
    """Whether a line is one call of a function that has `out=`."""
    operation = getattr(find(ours, line.path) if line.path else None, "__operation__", None)
    return line.text.startswith("call(") and getattr(operation, "out", None) is not None


def run(chosen: argparse.Namespace, case: Case) -> Result:
    """All chosen lines, by "name, mode"."""
    libs = sides(case, chosen.alone)
    lines, reasons = all_lines(libs[-1], None if chosen.alone else libs[0])
    figures: Result = {"case": case.name, "dtype": case.dtype, "device": case.device, "threads": case.threads, "lines": {},
                       "not timed": {} if chosen.only else reasons,
                       "without a gradient": []}
    gc.collect()
    gc.freeze()  # so that a collection between lines is quick
    clock = time.process_time if case.device == "cpu" else time.perf_counter
    figures["of"], started = len(lines), clock()
    # with `every` each family has its share; a run that ends early has seen lines from everywhere
    order = sorted(lines, key=lambda line: (line.family, line.name))[::chosen.every] if chosen.every > 1 else lines
    if chosen.seconds:
        random.Random(0).shuffle(order)
    for done, line in enumerate(order):
        if chosen.seconds and clock() - started > chosen.seconds:
            break
        if not re.search(chosen.only, f"{line.name} [{line.family}]", re.IGNORECASE):
            continue
        if case.device != "cpu" and not on_device(line, libs[-1], case):
            continue  # a factory: it is the CPU's
        if line.name in case.skips:
            figures["not timed"][line.name] = "takes too long, or too much memory, at this size"
            continue
        if sys.stderr.isatty():
            print(f"\r\033[K{done}/{len(lines)} {line.name}", end="", file=sys.stderr)
        for mode in (INTO,) if chosen.out else (FORWARD, BACKWARD):
            if chosen.grad is not None and chosen.grad != (mode == BACKWARD) or mode == INTO and not takes_out(libs[-1], line):
                continue
            gradient = None
            if mode == BACKWARD:
                gradient = gradient_of(libs[0], line, case)
                if gradient is None:
                    figures["without a gradient"].append(line.name)
                    continue
            result = timed(line, libs, gradient, case, mode == INTO)
            if "why" in result:
                figures["not timed"][f"{line.name}, {mode}"] = result["why"]
            else:
                figures["lines"][f"{line.name}, {mode}"] = {"family": line.family, "mode": mode, **result}
            gc.collect()
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    figures["load"] = round(os.getloadavg()[0], 1)
    return figures


# ------------------------------------------------------------------------------------------------------------- the table
def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def summary(title: str, results: list[Result]) -> str:
    ratios = [r["ratio"] for r in results]
    return f"{title:32} {len(ratios):5} lines   geometric mean {mean(ratios):5.2f}x   below 1x: {sum(r < 1 for r in ratios):4}   least {min(ratios):5.2f}x"


def report(figures: Result, worst: int, old: Result | None) -> str:
    lines: dict[str, Result] = figures["lines"]
    text = []
    if any("ratio" in r for r in lines.values()):
        order = sorted(lines, key=lambda n: float(lines[n]["ratio"]))
        text.append(f"{'ratio':>6} {'torch us':>10} {'our us':>10} {'calls':>5} {'was':>6} line")
        for name in order[:worst or None]:
            r = lines[name]
            was = (old or {}).get("lines", {}).get(name, {}).get("ratio")
            then = "" if was is None else f"{was:.2f}"
            text.append(f"{r['ratio']:6.3f} {r['torch_us']:10.2f} {r['us']:10.2f} {r['calls']:5} {then:>6} {name}  [{r['family']}]")
        text.append("")
        families = sorted({r["family"] for r in lines.values()}, key=lambda f: mean([r["ratio"] for r in lines.values() if r["family"] == f]))
        text += [summary(f, [r for r in lines.values() if r["family"] == f]) for f in families]
        text += [""] + [summary(m, part) for m in (FORWARD, BACKWARD, INTO) if (part := [r for r in lines.values() if r["mode"] == m])]
        text.append(summary("all", list(lines.values())))
        text += beside_add(lines)
    else:
        text += [f"{r['us']:10.2f} us {r['calls']:5} calls  {name}" for name, r in lines.items()]
    if old:
        text += compared(lines, old["lines"])
    if figures["not timed"]:
        text += ["", f"not timed: {len(figures['not timed'])}", *(f"  {name}: {why}" for name, why in sorted(figures["not timed"].items()))]
    return "\n".join(text)


def beside_add(lines: dict[str, Result]) -> list[str]:
    """The views and factories that cost us more than 1.5 times what an addition of the same size does, where that was timed."""
    add = lines.get(f"x + y, {FORWARD}")
    if add is None:
        return []
    mine = {n: r["us"] / add["us"] for n, r in lines.items() if r["family"] in ("views", "creation") and r["mode"] == FORWARD}
    dear = sorted(((times, n) for n, times in mine.items() if times > 1.5), reverse=True)
    return ["", f"views and creation beside our x + y ({add['us']:.2f} us): {len(dear)} of {len(mine)} lines above 1.5x",
            *(f"  {times:5.2f}x {lines[n]['us']:8.2f} us  {n}" for times, n in dear)]


def compared(lines: dict[str, Result], old: dict[str, Result]) -> list[str]:
    """What became slower beside the other library by more than noise, and what is gone."""
    changes = {n: r["ratio"] / old[n]["ratio"] for n, r in lines.items() if "ratio" in r and "ratio" in old.get(n, {})}
    slower = sorted((c, n) for n, c in changes.items() if c < 0.85)
    longer = sorted(((r["calls"] - old[n]["calls"], n) for n, r in lines.items() if r["calls"] > old.get(n, {}).get("calls", math.inf)), reverse=True)
    gone = [n for n in old if n not in lines and lines]
    return ["", f"beside the old figures: {mean(list(changes.values())):.2f}x over {len(changes)} lines; {len(slower)} slower by more than 15 %",
            *(f"  {c:.2f}x  {n}" for c, n in slower[:30]), f"more Python calls than then: {len(longer)} lines", *(f"  {c:+}  {n}" for c, n in longer[:30]),
            *([f"no longer timed or not chosen: {len(gone)}"] if gone else [])]


def profile(name: str, case: Case, backward: bool) -> int:
    """Where the time of our call goes."""
    libs = sides(case, True)
    # PyTorch's names are not asked for here: some of its methods are functions too in ours
    line = next((line for line in all_lines(libs[0])[0] if line.name in (name, name.removeprefix("Tensor."))), None)
    if line is None:
        print(f"bench-ops: there is no line {name!r}")
        return 2
    work = prepare(libs[0], line, gradient_of(libs[0], line, case) if backward else None, case)
    work.block(200 if case.n < 16 else 8)
    path = entered(work)
    count, watch = max(1, min(2000, round(1 / max(work.block(1), 1e-9)))), cProfile.Profile()
    alone = work.block(count) / count
    watch.enable()
    work.block(count)
    watch.disable()
    print(f"{line.text}: {1e6 * alone:.2f} us a call without the profiler, {count} calls below")
    print(f"it enters {len(path)} Python functions:", *[p.removeprefix(str(ROOT) + "/") for p in path], sep="\n  ")
    pstats.Stats(watch).sort_stats("tottime").print_stats(30)
    return 0


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--size", choices=CASES, default="small", help="4x4, 96x96 or 1,024x1,024, or a shape of the family's that is as small or large")
    options.add_argument("--small", dest="size", action="store_const", const="small", help="--size small")
    options.add_argument("--threads", type=int, default=1, metavar="N", help="how many threads work (1)")
    options.add_argument("--dtype", default="float32", help="the type of real numbers (float32)")
    options.add_argument("--device", default="cpu", help="where the values lie; a GPU's time is the clock's until it is done (cpu)")
    options.add_argument("--only", metavar="PATTERN", default="", help='lines whose "name [family]" this regular expression finds')
    options.add_argument("--worst", type=int, default=0, metavar="N", help="show that many lines, not all")
    options.add_argument("--grad", action=argparse.BooleanOptionalAction, default=None, help="only with, or only without, the backward pass")
    options.add_argument("--out", action="store_true", help="instead, calls with out= of a tensor that lies as the result")
    options.add_argument("--every", type=int, default=1, metavar="N", help="each N-th line of each family only")
    options.add_argument("--seconds", type=float, default=0, metavar="S", help="lines in a mixed order, until so many seconds of processor time are used")
    options.add_argument("--json", metavar="FILE", help="write the figures there too")
    options.add_argument("--compare", metavar="FILE", help="figures of an earlier run to hold these against")
    options.add_argument("--alone", action="store_true", help="Flambeau only; PyTorch is not needed")
    options.add_argument("--page", metavar="FILE", nargs="+", help="write that page from all runs it has, or from the figures of runs that are named behind it")
    options.add_argument("--profile", metavar="NAME", help="where the time of our call goes, for one line; with --grad, its backward too")
    chosen = options.parse_args()
    case = CASES[chosen.size]._replace(threads=chosen.threads, dtype=chosen.dtype, device=chosen.device)
    if chosen.page:
        from ops_page import write
        write(Path(chosen.page[0]), chosen.page[1:], Path(__file__).resolve())
        return 0
    if chosen.profile:
        return profile(chosen.profile, case, bool(chosen.grad))
    warnings.simplefilter("ignore")  # of deprecated names: they are timed too
    started, used = time.perf_counter(), time.process_time()
    figures = run(chosen, case)
    old = json.loads(Path(chosen.compare).read_text()) if chosen.compare else None
    print(report(figures, chosen.worst, old))
    print(f"{time.perf_counter() - started:.0f} s, {time.process_time() - used:.0f} s of processor time")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
