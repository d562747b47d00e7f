"""Flambeau on an NVIDIA GPU against PyTorch, in the same run: ``python benchmarks/gpu/bench_gpu.py [--table FILE] [--only TEXT] [--smoke]``.

Both libraries work in one process on one GPU, in turns.  A line is repeated until it has taken a while, three times over, and
the best counts; a side that is slow is stopped when its own time is over.  The table is written anew after each line, so that a run
that is cut off leaves what it had.  No line is begun after the limit of seconds, which with the longest line ends within 8 minutes.

--smoke tries every line at a thousandth of its size, once, on the tests' fake driver where there is no GPU: its figures mean nothing.
Exit status: 0 where every aim was reached (with --smoke: where every line ran), 1 where one was not, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_lines import GIB, MIB, SMOKE, Line, Sizes, all_lines  # noqa: E402

_SHORT = 0.15  # seconds of one measurement, three of which are made
_LONG = 5.0  # seconds after which one side of a line is measured no further
_SLOTS = ("torch", "flambeau")


def measure(t: Any, line: Line, once: bool = False) -> float:
    """Seconds of one repetition."""
    begun = time.perf_counter()
    t.set_float32_matmul_precision("highest")  # a line that wants another says so
    work = line.setup(t)
    work()
    t.cuda.synchronize()
    since = time.perf_counter()
    work()
    t.cuda.synchronize()
    best = time.perf_counter() - since
    n = max(1, min(2000, int(_SHORT / max(best, 1e-6))))
    for _ in range(0 if once else 3):
        if time.perf_counter() - begun > _LONG:
            break
        since = time.perf_counter()
        for _ in range(n):
            work()
        t.cuda.synchronize()
        best = min(best, (time.perf_counter() - since) / n)
    return best


def limits(t: Any, nbytes: int = GIB, once: bool = False) -> dict[str, float]:
    """Bytes a second of the link, each way, by the largest pinned copy, and of the GPU's memory, by a copy within it."""
    host, gpu = t.ones(nbytes // 4).pin_memory(), t.ones(nbytes // 4, device="cuda")
    other = t.empty_like(gpu)
    found = {}
    for name, work, moved in (("link up", lambda: gpu.copy_(host, non_blocking=True), nbytes),
                              ("link down", lambda: host.copy_(gpu, non_blocking=True), nbytes), ("memory", lambda: other.copy_(gpu), 2 * nbytes)):
        def setup(_: Any, work: Any = work) -> Any:
            return work
        found[name] = moved / measure(t, Line(name, setup), once)
    return found


def said(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def row(line: Line, took: dict[str, Any], bounds: dict[str, float]) -> tuple[str, bool | None]:
    """A line of the table, and whether its aim was reached (None: it has none, or a side failed)."""
    one, other = (took.get(s) for s in _SLOTS)
    cells = [line.name, *[said(v) if isinstance(v, float) else str(v or "") for v in (one, other)]]
    reached, ratio = None, ""
    if isinstance(one, float) and isinstance(other, float):
        ratio = f"{one / other:.2f}"
        if line.target is not None:
            reached = one / other >= line.target
    rate = ""
    if isinstance(other, float):
        if line.flops:
            rate = f"{line.flops / other / 1e12:.1f} TFLOP/s"
        elif line.nbytes:
            bound = bounds.get("memory" if line.against == "memory" else "link up" if " up " in line.name else "link down", 0.0)
            rate = f"{line.nbytes / other / 1e9:.1f} GB/s" + (f", {line.nbytes / other / bound:.2f} of the {line.against}" if bound else "")
            if line.against == "memory" and bound:  # the aim of these is set against what the memory can
                reached = line.nbytes / other / bound >= 0.9
    aim = "" if line.target is None else f"{line.target:g}" + ("" if reached is None else " reached" if reached else " MISSED")
    return "| " + " | ".join([*cells, ratio, rate, aim]) + " |", reached


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", default="", help="a file for the table")
    parser.add_argument("--only", default="", help="lines whose name holds this text")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds after which no line is begun")
    parser.add_argument("--smoke", action="store_true", help="every line once, tiny; on the tests' fake driver where there is no GPU")
    options = parser.parse_args()
    began = time.monotonic()

    if options.smoke:
        from host_cost import fake
        os.environ.pop("FLAMBEAU_SIM_GPUS", None)
        from flambeau.drivers.nvidia import probe
        if not probe.look().count and not fake("eager"):
            print("bench-gpu: nothing was tried: the fake driver needs g++")
            return 2
    import flambeau
    if not flambeau.cuda.is_available():
        from flambeau.runtime import gpus
        print(f"bench-gpu: nothing was measured: {gpus.why_none()}")
        return 2
    modules: dict[str, Any] = {"flambeau": flambeau}
    try:
        import torch
        if torch.cuda.is_available():
            modules["torch"] = torch
        else:
            print("bench-gpu: this PyTorch has no CUDA; Flambeau alone is measured")
    except ImportError:
        print("bench-gpu: PyTorch is not installed; Flambeau alone is measured")
    bounds = limits(modules.get("torch", flambeau), MIB if options.smoke else GIB, options.smoke)
    p = flambeau.cuda.get_device_properties(0)
    head = [f"{p.name}, {p.multi_processor_count} processors, {p.total_memory / GIB:.0f} GiB; Python {platform.python_version()}, "
            f"flambeau {flambeau.__version__}, torch {getattr(modules.get('torch'), '__version__', 'absent')}; "
            + ", ".join(f"{name} {rate / 1e9:.1f} GB/s" for name, rate in bounds.items()), "",
            "| work | torch | flambeau | times as fast | flambeau's rate | aim |", "|---|---|---|---|---|---|"]
    print("\n".join(head), flush=True)
    rows: list[str] = []
    outcomes: list[bool | None] = []
    for line in all_lines(SMOKE if options.smoke else Sizes()):
        if options.only not in line.name:
            continue
        if time.monotonic() - began > options.limit:
            rows.append(f"| {line.name} | not begun: the time was over | | | | |")
            continue
        took: dict[str, Any] = {}
        for name in _SLOTS:
            if name in modules:
                try:
                    took[name] = measure(modules[name], line, options.smoke)
                except Exception as error:  # the rest is worth having all the same
                    took[name] = f"{type(error).__name__}: {str(error)[:120]}".replace("|", "/").replace("\n", " ")
                    if name == "flambeau":
                        outcomes.append(False)
                modules[name].cuda.empty_cache()
        text, reached = row(line, took, {} if options.smoke else bounds)
        rows.append(text)
        outcomes.append(None if options.smoke else reached)
        print(text, flush=True)
        if options.table:
            with open(options.table, "w", encoding="utf-8") as f:
                f.write("\n".join([*head, *rows]) + "\n")
    missed = sum(1 for o in outcomes if o is False)
    print(f"{sum(1 for o in outcomes if o)} aims reached, {missed} missed, in {time.monotonic() - began:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
