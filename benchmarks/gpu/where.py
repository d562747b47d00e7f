"""Where a step's time goes on a GPU, beside PyTorch's: ``python benchmarks/gpu/where.py [--only TEXT] [--most N] [--table FILE] [--smoke]``.

For the lines of the benchmark whose name holds TEXT (a step of a network, unless told otherwise): each launch of one repetition is timed by events
around it, and the times are added up by the launch's name and sizes.  The GPU is given other work first, so that the host is ahead of it and its
own time is what is seen; small kernels seem longer by an event, a microsecond or two.  Beside the sum stands how long a repetition takes by the clock, and how
long the host is busy with it: a step that takes longer than its launches waits for the host.  PyTorch's kernels are its own profiler's.  --smoke tries it at
a thousandth of the size, on the tests' fake driver where there is no GPU: its figures mean nothing.  Exit status: 0, or 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from gpu_lines import SMOKE, Sizes, Work, all_lines  # noqa: E402
from host_cost import absent  # noqa: E402

Times = dict[str, tuple[float, int]]  # by what was launched: seconds, and how often


_REPEATS = 5
_OFTEN, _WARMED = 100, 4.0  # repetitions, or seconds of them, before the clock begins
_AHEAD = 4.0  # how much longer than the host the GPU is kept at other work


def clocked(t: Any, work: Work) -> tuple[float, float]:
    """Seconds of a repetition by the clock, and of those the host's."""
    until = time.perf_counter() + _WARMED
    for k in range(_OFTEN):  # what is learned of calls is not part of them
        work()
        if k > 1 and time.perf_counter() > until:
            break
    t.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(_REPEATS):
        work()
    queued = time.perf_counter()
    t.cuda.synchronize()
    return (time.perf_counter() - begin) / _REPEATS, (queued - begin) / _REPEATS


def busy(t: Any, seconds: float, nbytes: int) -> None:
    """Gives the GPU work for so long."""
    room = t.empty(nbytes // 4, device="cuda")
    begin, end = (t.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    room.fill_(0)
    end.record()
    t.cuda.synchronize()
    for _ in range(int(seconds / max(begin.elapsed_time(end) / 1e3, 1e-6)) + 1):
        room.fill_(0)


def ours(t: Any, work: Work, host: float, nbytes: int) -> Times:
    """Of Flambeau's launches, copies among them."""
    from flambeau._core.runtime import dispatch
    events: list[tuple[str, Any, Any]] = []

    def launched(device: Any, stream: Any, prepared: Any, args: Any) -> Any:
        begin, end = (t.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        events.append((f"{prepared.name}, {prepared.nbytes / 1e6:.3g} MB" if prepared.nbytes else prepared.name, begin, end))
        return lambda: end.record(stream)
    with dispatch.observe(launched, lambda copy: None, lambda wait: None):
        work()
    t.cuda.synchronize()
    events.clear()
    busy(t, _AHEAD * host, nbytes)
    with dispatch.observe(launched, lambda copy: None, lambda wait: None):
        work()
    t.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(list)
    for name, begin, end in events:
        found[name].append(begin.elapsed_time(end) / 1e3)
    return {name: (sum(seconds), len(seconds)) for name, seconds in found.items()}


def theirs(t: Any, work: Work, host: float, nbytes: int) -> Times:
    """Of PyTorch's kernels, by its profiler."""
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CUDA]) as watched:
        work()
        t.cuda.synchronize()
    return {e.key[:90]: (e.self_device_time_total / 1e6, e.count) for e in watched.key_averages() if e.self_device_time_total}


def told(name: str, clock: tuple[float, float], times: Times, most: int) -> list[str]:
    """The longest first."""
    total = sum(seconds for seconds, _ in times.values())
    order = sorted(times.items(), key=lambda item: -item[1][0])
    lines = [f"### {name}: {clock[0] * 1e3:.2f} ms, the host busy for {clock[1] * 1e3:.2f}; {total * 1e3:.2f} ms in "
             f"{sum(n for _, n in times.values())} launches", "", "| ms | launches | what |", "|---|---|---|"]
    lines += [f"| {seconds * 1e3:.3f} | {n} | {what.replace('|', '/')} |" for what, (seconds, n) in order[:most]]
    rest = sum(seconds for _, (seconds, _) in order[most:])
    return [*lines, *([f"| {rest * 1e3:.3f} | | {len(order) - most} others |"] if len(order) > most else []), ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="a step of", help="lines whose name holds this text (a step of)")
    parser.add_argument("--most", type=int, default=25, help="names that are shown of each")
    parser.add_argument("--table", default="", help="a file for it")
    parser.add_argument("--smoke", action="store_true", help="tiny; on the tests' fake driver where there is no GPU")
    options = parser.parse_args()
    if why := absent(options.smoke):
        print(f"where: {why}")
        return 2
    import flambeau
    sides = {"flambeau": (flambeau, ours)}
    try:
        torch = importlib.import_module("torch")
        sides |= {"torch": (torch, theirs)} if torch.cuda.is_available() else {}
    except ImportError:
        pass
    lines = []
    for line in all_lines(SMOKE if options.smoke else Sizes()):
        if line.name.endswith(("as a graph", "compiled (torch eager)")):  # its launches are one, or are shown to nobody
            continue
        if options.only not in line.name:
            continue
        for side, (t, measure) in sides.items():
            t.backends.cudnn.benchmark = True
            try:
                work = line.setup(t)
                clock = clocked(t, work)
                lines += told(f"{line.name}, {side}", clock, measure(t, work, clock[1], 1 << (16 if options.smoke else 30)), options.most)
            except Exception as error:  # the rest is worth having all the same
                lines += [f"### {line.name}, {side}: {type(error).__name__}: {str(error)[:300]}", ""]
            t.cuda.empty_cache()
            if options.table:
                Path(options.table).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
