"""Flambeau on an NVIDIA GPU against PyTorch, in the same run: ``python benchmarks/gpu/bench_gpu.py [--table FILE] [--only TEXT] [--smoke]``.

Both libraries work in one process on one GPU, in turns, and the limits of the link and of the GPU's memory are measured there first, by
the driver's own copies.  That process is a child of this one: should it hang, crash, or a fault end its use of the GPU, the line is
given up and the next ones go on in a new child.  Each line has its time, and all of them have; the table is written anew after each.

A line is warmed up until its time is steady, on both sides alike: its first two repetitions apart, which compile and plan, it is repeated in groups of
a fiftieth of a second or more until for half a second none of them, six at least, was a twentieth faster, for at most four seconds. Then it is measured
seven times over some hundredth of a second or more, and the median counts; PyTorch uses its fused optimizers, cuDNN's search and the faster of its
attentions.  Some lines are measured with torch.compile around them too, when all lines have been measured without, as it takes far longer to compile
than a line does; --no-compile leaves that out.  A line's limit is the time that its bytes take at the measured rates, its operations at the rate of the
GPU's data sheet, or its launches at that of the driver's own.
--smoke tries every line at a thousandth of its size, once, on the tests' fake driver where there is no GPU: its figures mean nothing.
Exit status: 0 where every aim was reached (with --smoke: where every line ran), 1 where one was not, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import platform
import re
import selectors
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from gpu_lines import GIB, MIB, SMOKE, Line, Sizes, all_lines  # noqa: E402

_SHORT = 0.06  # seconds of one measurement
_ROUNDS = 7
_GROUP, _GROUPS, _STEADY, _FASTER, _WARMED = 0.02, 6, 0.5, 0.95, 4.0  # see `warmed`
_LONG = 5.0  # seconds after which one side of a line that is warm is measured no further
_RESTARTS = 12  # children that may be lost
_HEAD = ["| work | torch | flambeau | times as fast | flambeau's rate | aim | limit | torch.compile |", "|---|---|---|---|---|---|---|---|"]


# ------------------------------------------------------------------------------------------------------------ in the child
def measure(t: Any, line: Line, once: bool = False, compiled: bool = False) -> float:
    """Seconds of one repetition; compiled: by the library's compiler."""
    t.set_float32_matmul_precision("highest")  # a line that wants another says so
    t.backends.cudnn.benchmark = True
    work = line.setup(t)
    if compiled:
        work = t.compile(work)
    if line.clock == "host":
        import host_cost
        return float(host_cost.measure(t, work, *((1, 3) if once else (60, 100)))) * 1e-6
    took = warmed(t, work, 0.0 if once else _WARMED)
    n = max(1, min(2000, int(_SHORT / max(took, 1e-6))))
    begun = time.perf_counter()
    start, end = (t.cuda.Event(enable_timing=True) for _ in range(2))
    rounds: list[float] = []
    for _ in range(1 if once else _ROUNDS):
        if rounds and time.perf_counter() - begun > _LONG:
            break
        since = time.perf_counter()
        start.record()
        for _ in range(n):
            work()
        end.record()
        t.cuda.synchronize()
        wall = (time.perf_counter() - since) / n
        rounds.append(start.elapsed_time(end) / 1e3 / n if line.clock == "gpu" else wall)
    return statistics.median(rounds)


def warmed(t: Any, work: Any, most: float = _WARMED) -> float:
    """Seconds of a repetition, waited for, once they no longer fall: what is learned of calls, and what a library still tries, is behind it then.  The first
    two repetitions do not count.  most: seconds after them."""
    for _ in range(2):
        work()
        t.cuda.synchronize()
    until = time.perf_counter() + most
    best = mark = float("inf")
    steady, since_then = 0, time.perf_counter()
    while True:
        since, n = time.perf_counter(), 0
        while not n or time.perf_counter() - since < _GROUP and most:
            work()
            n += 1
        t.cuda.synchronize()
        took = (time.perf_counter() - since) / n
        best, steady = min(best, took), steady + 1
        if took < _FASTER * mark:
            mark, steady, since_then = took, 0, time.perf_counter()
        if (steady >= _GROUPS and time.perf_counter() - since_then >= _STEADY) or time.perf_counter() >= until:
            return best


def limits(nbytes: int = GIB, rounds: int = 6) -> dict[str, float]:
    """Bytes a second of the link, each way, and of the GPU's memory (read and written), by the driver's own copies."""
    from cuda.bindings import driver as cu

    def made(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RuntimeError(f"measuring the limits: {result[0]!r}")
        return result[1] if len(result) > 1 else None
    made(cu.cuInit(0))
    made(cu.cuCtxSetCurrent(made(cu.cuDevicePrimaryCtxRetain(made(cu.cuDeviceGet(0))))))
    one, other, host = made(cu.cuMemAlloc(nbytes)), made(cu.cuMemAlloc(nbytes)), made(cu.cuMemHostAlloc(nbytes, 1))
    stream = made(cu.cuStreamCreateWithPriority(1, 0))
    start, end = made(cu.cuEventCreate(0)), made(cu.cuEventCreate(0))
    found = {}
    for name, moved, copy, to, source in (("link up", nbytes, cu.cuMemcpyHtoDAsync, one, host), ("link down", nbytes, cu.cuMemcpyDtoHAsync, host, one),
                                          ("memory", 2 * nbytes, cu.cuMemcpyDtoDAsync, other, one)):
        best = float("inf")
        for _ in range(rounds):
            made(cu.cuEventRecord(start, stream))
            for _ in range(2):
                made(copy(to, source, nbytes, stream))
            made(cu.cuEventRecord(end, stream))
            made(cu.cuStreamSynchronize(stream))
            best = min(best, float(made(cu.cuEventElapsedTime(start, end))) / 2e3)
        found[name] = moved / max(best, 1e-9)
    made(cu.cuEventRecord(start, stream))
    for _ in range(many := 100 * rounds):
        made(cu.cuMemcpyDtoDAsync(other, one, 16, stream))  # as little work as there is
    made(cu.cuEventRecord(end, stream))
    made(cu.cuStreamSynchronize(stream))
    found["launches"] = many / max(float(made(cu.cuEventElapsedTime(start, end))) / 1e3, 1e-9)
    for block in (one, other):
        made(cu.cuMemFree(block))
    made(cu.cuMemFreeHost(host))
    return found


def rates(name: str) -> dict[str, float]:
    """Operations a second of products by type, of the GPU of this name, as its maker gives them; none for one that is not known."""
    from flambeau._core.drivers.simulated.models import MODELS
    for model in MODELS.values():
        if model.full_name in name or name.endswith(model.full_name):
            return {f"{kind} products": 1e12 * rate for kind, rate in (("bfloat16", model.half), ("float16", model.half), ("TF32", model.tf32),
                                                                       ("float32", model.float32))}
    return {}


def usable(flambeau: Any, others: list[Any]) -> bool:
    """Whether the GPU still works in this process."""
    try:
        for t in (flambeau, *others):
            t.cuda.synchronize()
    except Exception:
        return False
    return True


def child(options: argparse.Namespace, tell: Any) -> int:
    """Measures the lines from the step of a number on; tells all it finds as it goes."""
    from host_cost import absent
    if why := absent(options.smoke):
        tell(none=why)
        return 2
    import flambeau
    modules: dict[str, Any] = {}
    lacking = ""
    try:
        modules["torch"] = importlib.import_module(options.against)
        if not modules["torch"].cuda.is_available():
            del modules["torch"]
            lacking = "this PyTorch has no CUDA; Flambeau alone is measured"
    except ImportError as error:
        lacking = f"PyTorch cannot be had ({error}); Flambeau alone is measured"
    modules["flambeau"] = flambeau
    if options.plant:
        plant(options.plant, flambeau)
    if not options.bounds:
        p: Any = flambeau.cuda.get_device_properties(0)
        tell(about=f"{p.name}, {p.multi_processor_count} processors, {p.total_memory / GIB:.0f} GiB, cache {p.L2_cache_size / MIB:.0f} MiB; Python "
                   f"{platform.python_version()}, flambeau {flambeau.__version__}, torch {getattr(modules.get('torch'), '__version__', 'absent')}",
             lacking=lacking)
        tell(bounds=(limits(MIB, 2) if options.smoke else limits()) | rates(p.name))
    lines = chosen(options)
    for number, (place, compiled) in enumerate(steps(options)):
        if number < options.step:
            continue
        for side, t in modules.items():
            if compiled and side == "flambeau":
                continue
            side = "compiled" if compiled else side
            tell(step=number, side=side)
            try:
                took: Any = measure(t, lines[place], options.smoke, compiled)
            except Exception as error:  # the rest is worth having all the same
                took = f"{type(error).__name__}: {str(error)[:200]}".replace("|", "/").replace("\n", " ")
            tell(step=number, side=side, took=took)
            if isinstance(took, str) and not usable(flambeau, [m for m in modules.values() if m is not flambeau]):
                return 3
            t.cuda.empty_cache()
    tell(end=True)
    return 0


def plant(what: str, flambeau: Any) -> None:
    """Makes a line go wrong, for the tests on the fake driver: "fault:TEXT", "crash:TEXT", "hang:TEXT", "error:TEXT"; TEXT is in its name."""
    global measure
    kind, _, text = what.partition(":")
    plain = measure

    def planted(t: Any, line: Line, once: bool = False, compiled: bool = False) -> float:
        if text in line.name and t is flambeau:
            if kind == "fault":
                import ctypes
                ctypes.CDLL("libcuda.so.1").fake_fail(b"cuLaunchKernel", 0, 700)
            elif kind == "crash":
                os.abort()
            elif kind == "hang":
                time.sleep(1000)
            else:
                raise ValueError("planted | here")
        return plain(t, line, once, compiled)
    measure = planted


# ----------------------------------------------------------------------------------------------------------- in the parent
def chosen(options: argparse.Namespace) -> list[Line]:
    return [line for line in all_lines(SMOKE if options.smoke else Sizes()) if options.only in line.name]


def steps(options: argparse.Namespace) -> list[tuple[int, bool]]:
    """The lines in the order in which they are measured: each without torch.compile, then, where it is wanted, some with it."""
    lines = chosen(options)
    which = range(options.first, len(lines))
    return [(k, False) for k in which] + [(k, True) for k in which if lines[k].compiled and not options.no_compile]


def said(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def row(line: Line, took: dict[str, Any], bounds: dict[str, float]) -> tuple[str, bool | None]:
    """A line of the table, and whether its aims were reached (None: it has none, or they cannot be told)."""
    one, other = took.get("torch"), took.get("flambeau")
    cells = [line.name, *[said(v) if isinstance(v, float) else str(v or "") for v in (one, other)]]
    met: list[bool] = []
    ratio, rate, aims = "", "", []
    if isinstance(one, float) and isinstance(other, float):
        ratio = f"{one / other:.2f}"
        if line.target is not None:
            met.append(one / other >= line.target)
    if line.target is not None:
        aims.append(f"{line.target:g} times")
    if isinstance(other, float):
        bound = bounds.get(line.against, 0.0)
        if line.flops:
            rate = f"{line.flops / other / 1e12:.1f} TFLOP/s"
        elif line.nbytes:
            rate = f"{line.nbytes / other / 1e9:.2f} GB/s" + (f", {line.nbytes / other / bound:.2f} of the {line.against}" if bound else "")
        if line.part is not None and bound:
            met.append(line.nbytes / other / bound >= line.part)
    if line.part is not None:
        aims.append(f"{line.part:.2g} of the {line.against}")
    least, what = line.limit(bounds)
    by_compiler = took.get("compiled")
    ends = [f"{said(least)} ({what})" if what else "", said(by_compiler) if isinstance(by_compiler, float) else str(by_compiler or "")]
    reached = all(met) if met else None
    aim = " and ".join(aims) + ("" if reached is None else ": reached" if reached else ": MISSED")
    return "| " + " | ".join([*cells, ratio, rate, aim, *ends]) + " |", reached


class Bench:
    """What is known so far, and the child at work."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.lines, self.steps = options, chosen(options), steps(options)
        self.began = time.monotonic()
        self.took: list[dict[str, Any]] = [{} for _ in self.lines]
        self.about, self.none = "", ""
        self.bounds: dict[str, float] = {}
        self.step, self.shown = 0, options.first  # what comes next; how many lines are printed
        self.lost = 0
        self.over = False

    def one_child(self) -> None:
        """Starts a child at the first line that is left, and hears it to its end."""
        o = self.options
        words = [sys.executable, str(Path(__file__).resolve()), "--child", "--first", str(o.first), "--step", str(self.step)]
        words += ["--only", o.only, "--against", o.against] + ["--smoke"] * o.smoke
        words += ["--plant", o.plant] * bool(o.plant) + ["--bounds"] * bool(self.bounds) + ["--no-compile"] * o.no_compile
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None and child.stderr is not None
        selector = selectors.DefaultSelector()
        for pipe in (child.stdout, child.stderr):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        rest, errors, at, since, end = b"", b"", (self.step, ""), time.monotonic(), False
        why = ""
        while selector.get_map() and not why:
            for key, _ in selector.select(0.5):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    errors = (errors + data)[-20000:]
                else:
                    *whole, rest = (rest + data).split(b"\n")
                    for message in map(json.loads, whole):
                        since = time.monotonic()
                        end = end or "end" in message or "none" in message
                        at = self.heard(message) or at
            now = time.monotonic()
            if now - self.began > o.limit:
                why, self.over = "the time was over", True
            elif now - since > (o.each if self.bounds else 2 * o.each):
                why = f"given up after {o.each:g} s"
        if why:
            child.send_signal(signal.SIGUSR1)  # that makes it write where it is
            time.sleep(0.5)
            try:
                errors += os.read(child.stderr.fileno(), 1 << 16)
            except BlockingIOError:
                pass
            child.kill()
            frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', errors.decode(errors="replace").rpartition("most recent call first")[2])
            why += "".join(f" < {Path(file).name}:{line} {name}" for file, line, name in frames[:3])
        try:
            status = child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            status = -9
        if end:
            self.step = len(self.steps)
            return
        words_said = [line for line in errors.decode(errors="replace").splitlines() if line.strip() and "xtension modules" not in line]
        number, side = at
        took = self.took[self.steps[number][0]] if number < len(self.steps) else {}
        if side and side not in took:
            fatal = next((line for line in words_said if line.startswith("Fatal Python error")), words_said[-1] if words_said else "")
            took[side] = (why or f"the process ended with {status}: {fatal[:200]}").replace("|", "/")
        elif not side and not why:
            print(f"bench-gpu: the child ended with {status} before it had begun:\n" + "\n".join(words_said[-30:]), flush=True)
        self.step = number + bool(side)
        self.lost += 1
        self.show(min(o.first + self.step, len(self.lines)))

    def heard(self, message: dict[str, Any]) -> tuple[int, str] | None:
        if "none" in message:
            self.none = message["none"]
        elif "about" in message:
            self.about = message["about"]
            print(self.about + (f"\n{message['lacking']}" if message["lacking"] else ""), flush=True)
        elif "bounds" in message:
            self.bounds = message["bounds"]
            print("\n".join([self.limits(), "", *_HEAD]), flush=True)
        elif "took" in message:
            place, compiled = self.steps[message["step"]]
            self.took[place][message["side"]] = message["took"]
            if message["side"] != "torch":
                self.show(place + 1)
            if compiled:
                print(self.rows()[place][0], flush=True)  # once more, whole
        elif "step" in message:
            return message["step"], message["side"]
        return None

    def rows(self) -> list[tuple[str, bool | None]]:
        found = []
        for line, took in zip(self.lines, self.took, strict=True):
            if took:
                text, reached = row(line, took, {} if self.options.smoke else self.bounds)
                failed = any(isinstance(took.get(s), str) for s in ("flambeau",))
                found.append((text, False if failed else None if self.options.smoke else reached))
            else:
                found.append((f"| {line.name} | not begun | | | | | | |", None))
        return found

    def show(self, to: int) -> None:
        """Prints the lines that are over, and writes all there is."""
        rows = self.rows()
        for text, _ in rows[self.shown:to]:
            print(text, flush=True)
        self.shown = max(self.shown, to)
        if self.options.table:
            table = Path(self.options.table)
            table.parent.mkdir(parents=True, exist_ok=True)
            table.write_text("\n".join([f"{self.about}; {self.limits()}", "", *_HEAD, *[text for text, _ in rows], "", self.count()]) + "\n", encoding="utf-8")
            told = {"about": self.about, "bounds": self.bounds, "seconds": {line.name: t for line, t in zip(self.lines, self.took, strict=True)},
                    "missed": [line.name for line, (_, reached) in zip(self.lines, rows, strict=True) if reached is False]}
            table.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    def limits(self) -> str:
        """What the lines' limits rest on."""
        def rate(name: str, value: float) -> str:
            if name == "launches":
                return f"a launch {1e6 / value:.2f} us"
            return f"{name} {value / 1e12:.0f} TFLOP/s" if name.endswith("products") else f"{name} {value / 1e9:.1f} GB/s"
        return ", ".join(rate(*each) for each in self.bounds.items())

    def count(self) -> str:
        outcomes = [reached for _, reached in self.rows()]
        return (f"{outcomes.count(True)} aims reached, {outcomes.count(False)} missed or failed, {sum(1 for t in self.took if not t)} lines not begun, "
                f"{self.lost} processes lost, in {time.monotonic() - self.began:.0f} s")

    def run(self) -> int:
        while self.step < len(self.steps) and not self.over and not self.none and self.lost < _RESTARTS:
            before = self.step
            self.one_child()
            if self.step == before and self.lost >= 3:
                break  # it never begins
        if self.none:
            print(f"bench-gpu: {self.none}")
            return 2
        self.show(len(self.lines))
        print(self.count())
        wrong = any(reached is False for _, reached in self.rows()) or self.lost or self.over
        return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", default="", help="a file for the table; the figures go beside it as JSON")
    parser.add_argument("--only", default="", help="lines whose name holds this text")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds for all of it")
    parser.add_argument("--each", type=float, default=45.0, help="seconds for one side of a line; twice that for the start")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--smoke", action="store_true", help="every line once, tiny; on the tests' fake driver where there is no GPU")
    parser.add_argument("--against", default="torch", help="the module in PyTorch's place, for trying this out")
    parser.add_argument("--plant", default="", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help="the number of the line to begin with (0)")
    parser.add_argument("--step", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--bounds", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.child:
        return Bench(options).run()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    out = os.dup(1)
    os.dup2(2, 1)  # what anything else prints is no message

    def tell(**message: Any) -> None:
        os.write(out, json.dumps(message).encode() + b"\n")
    status = child(options, tell)
    sys.stderr.flush()
    os._exit(status) if status == 3 else None
    return status


if __name__ == "__main__":
    sys.exit(main())
