"""Measures what a GPU reaches, and writes a model file for simulated ones: ``python -m flambeau.simulated.calibrate [--out FILE] [--small]``.

Measured are the host's time for a launch, the shortest kernel, copies over the link, the GPU's memory by pattern of access, products by type and
shape, and attention.  Ten programs that nothing of this was measured with are then timed, and predicted by a simulated GPU of the new file, which
carries nothing out; the file's comments and what is printed tell the difference.  The file is used by its path, wherever a model's name is
taken: ``flambeau.simulate(model="H200-measured.toml")``, ``--sim-model``, ``FLAMBEAU_SIM_MODEL``.

Exit status: 0, or 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import flambeau

from .._core.drivers.simulated import clock, models, reached
from .._core.drivers.simulated.driver import SimulatedDriver
from .._core.drivers.simulated.priced import PricedDriver
from .._core.runtime import dispatch, gpus
from .workloads import SMALL, Sizes, Work, workloads

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPES = ((1, 256, 256, 256), (1, 1024, 1024, 1024), (1, 4096, 4096, 1024), (1, 4096, 4096, 4096), (1, 8192, 768, 768), (1, 8192, 3072, 768),
          (96, 1024, 64, 1024))
FEW = ((1, 64, 64, 64), (2, 96, 32, 64))


class How(NamedTuple):
    """elements and rows of a large tensor (rows x columns of the two-dimensional ones); bytes of a copy; shapes of products; heads and length of attention;
    seconds of one measurement, repetitions in it at most, and how many there are; sizes of the programs."""

    elements: int = 1 << 26
    rows: int = 8192
    copied: int = 256 << 20
    shapes: tuple[tuple[int, int, int, int], ...] = SHAPES
    heads: int = 16
    length: int = 4096
    seconds: float = 0.02
    most: int = 200
    rounds: int = 5
    sizes: Sizes = Sizes()


TINY = How(1 << 14, 64, 1 << 16, FEW, 1, 16, 1e-4, 2, 1, SMALL)  # for the tests on GPUs that are not there: its figures mean nothing


# ------------------------------------------------------------------------------------------------------------------- times
def host_now() -> float:
    """The host's clock: the virtual one where the GPUs are simulated."""
    driver = gpus.start().driver
    return driver.host_time() if isinstance(driver, SimulatedDriver) else time.perf_counter()


def on_device(work: Work, how: How, cover: Work | None = None) -> float:
    """Seconds of one repetition on the GPU, by events.  cover: queued before, so that the GPU is busy until the host has queued what is measured."""
    for _ in range(2):
        work()
    start, end = (flambeau.cuda.Event(enable_timing=True) for _ in range(2))

    def once(n: int) -> float:
        flambeau.cuda.synchronize()
        if cover is not None:
            cover()
        start.record()
        for _ in range(n):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / n
    n = max(1, min(how.most, int(how.seconds / max(once(1), 1e-7))))
    return statistics.median(once(n) for _ in range(how.rounds))


def by_wall(work: Work, how: How) -> float:
    """Seconds of one repetition, as the host has it, with the wait for its end."""
    for _ in range(2):
        work()
    found = []
    for _ in range(how.rounds):
        flambeau.cuda.synchronize()
        since = host_now()
        for _ in range(4):
            work()
        flambeau.cuda.synchronize()
        found.append((host_now() - since) / 4)
    return statistics.median(found)


# ---------------------------------------------------------------------------------------------------------------- measured
def _priced(work: Work) -> list[Any]:
    """The launches of some work."""
    seen: list[Any] = []
    with dispatch.observe(lambda dev, stream, prepared, args: seen.append(prepared), lambda copy: None, lambda wait: None):
        work()
    return seen


def _moving(how: How) -> dict[str, Work]:
    """What goes through memory by each pattern, and nothing else."""
    t, rows, columns = flambeau, how.rows, how.elements // how.rows
    x, y = t.zeros(how.elements, device="cuda"), t.zeros(how.elements, device="cuda")
    wide = x.view(rows, columns)
    at = (t.arange(how.elements, device="cuda") * 40503) % how.elements
    few = at[:how.elements // 16]
    part = t.zeros(few.numel(), device="cuda")
    return {"map": lambda: t.add(x, y), "turned": lambda: wide.t().contiguous(), "gather": lambda: x[at], "scatter": lambda: y.scatter_(0, few, part),
            "reduce": lambda: x.sum(), "rows": lambda: wide.softmax(1), "scan": lambda: wide.cumsum(1), "copy": _copy(y, x, 4 * how.elements)}


def _copy(to: Any, source: Any, nbytes: int) -> Work:
    """The driver's own copy, on the default stream."""
    g = gpus.gpu()
    return lambda: g.driver.memcpy(g.default_handle, to.data_ptr(), source.data_ptr(), nbytes, (to, source))


def memory(how: How) -> dict[str, float]:
    """GB/s by pattern of access, of the bytes that the clock counts."""
    found: dict[str, float] = {}
    for pattern, work in _moving(how).items():
        moved = {pattern: 8 * how.elements} if pattern == "copy" else {}
        for p in _priced(work):
            own = clock.pattern(p)
            moved[own] = moved.get(own, 0) + p.nbytes
        # a check of indices goes through memory too, by a pattern that was measured before
        beside = sum(nbytes / (found[own] * 1e9) for own, nbytes in moved.items() if own != pattern and own in found)
        nbytes = moved.get(pattern) or sum(moved.values())
        found[pattern] = nbytes / max(on_device(work, how) - (beside if pattern in moved else 0.0), 1e-9) / 1e9
    return found


def links(how: How) -> tuple[dict[str, float], float]:
    """(GB/s of copies, seconds before the first byte)."""
    t, n = flambeau, how.copied
    on_gpu, pinned, plain = t.zeros(n, device="cuda", dtype=t.uint8), t.zeros(n, dtype=t.uint8).pin_memory(), t.zeros(n, dtype=t.uint8)
    setup = on_device(_copy(on_gpu, pinned, 16), how)
    found = {}
    for name, to, source in (("up", on_gpu, pinned), ("down", pinned, on_gpu), ("pageable_up", on_gpu, plain), ("pageable_down", plain, on_gpu)):
        found[name] = n / max(on_device(_copy(to, source, n), how) - setup, 1e-9) / 1e9
    found["peer"] = 0.0
    if t.cuda.device_count() > 1 and t.cuda.can_device_access_peer(0, 1):
        there = t.zeros(n, device="cuda:1", dtype=t.uint8)
        there.copy_(on_gpu)  # which asks for access
        found["peer"] = n / max(on_device(lambda: there.copy_(on_gpu, non_blocking=True), how) - setup, 1e-9) / 1e9
    return found, setup


def products(how: How, processors: int) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """(TFLOP/s and start by type, as they fit the measured shapes best; lines that tell each shape)."""
    t = flambeau
    found, told = {}, []
    before = t.backends.cuda.matmul.allow_tf32
    for name, kind, tf32 in (("half", t.bfloat16, False), ("tf32", t.float32, True), ("float32", t.float32, False), ("double", t.float64, False)):
        t.backends.cuda.matmul.allow_tf32 = tf32
        try:
            measured = []
            for batch, m, n, k in how.shapes:
                a, b = t.zeros(batch, m, k, device="cuda", dtype=kind), t.zeros(batch, k, n, device="cuda", dtype=kind)
                seconds = on_device(lambda a=a, b=b: a @ b, how)  # type: ignore[misc]
                measured.append(((batch, m, n, k), seconds))
                told.append(f"product {name}, {batch} x ({m}, {n}, {k}): {2 * batch * m * n * k / seconds / 1e12:.4g} TFLOP/s")
        finally:
            t.backends.cuda.matmul.allow_tf32 = before
        found[name] = fitted(measured, processors)
    return found, told


def fitted(measured: list[tuple[tuple[int, int, int, int], float]], processors: int) -> tuple[float, float]:
    """(TFLOP/s, seconds) by which `clock`'s price of a product is nearest to what was measured, in the mean of logarithms."""
    def error(rate: float, start: float) -> float:
        return sum(abs(log((reached.product_seconds(rate, processors, *shape) + start) / seconds)) for shape, seconds in measured)
    top = max(2 * b * m * n * k / seconds for (b, m, n, k), seconds in measured)
    least = min(seconds for _, seconds in measured)
    rate, start, wide = 1.1 * top, 0.5 * least, 0.5
    for _ in range(12):  # ever finer grids around the best so far
        choices = [(rate * (1 + wide * i / 6), max(0.0, start + least * wide * j / 6)) for i in range(-6, 7) for j in range(-6, 7)]
        rate, start = min((c for c in choices if c[0] > 0), key=lambda c: error(*c))
        wide *= 0.6
    return rate / 1e12, start


def attention(how: How, rated: float) -> float:
    """The part of the rated 16-bit TFLOP/s that attention reaches."""
    t, heads, length, depth = flambeau, how.heads, how.length, 128
    q = t.zeros(2, heads, length, depth, device="cuda", dtype=t.bfloat16)
    seconds = on_device(lambda: t.nn.functional.scaled_dot_product_attention(q, q, q), how)
    return 4 * 2 * heads * length * length * depth / max(seconds, 1e-9) / (rated * 1e12)


def rated(found: dict[str, float], joined: dict[str, float], rates: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """The figures a GPU is sold with: of the model of its name, or, for one that is not known, what was measured and what its driver says."""
    p: Any = gpus.gpu().properties
    for m in models.MODELS.values():
        if m.full_name in p.name:
            return m.rated()
    return {"name": p.name, "full_name": p.name, "capability": [p.major, p.minor], "memory_mib": p.total_memory >> 20, "bandwidth": max(found.values()),
            "float64": rates["double"][0], "double_products": rates["double"][0], "float32": rates["float32"][0], "tf32": rates["tf32"][0],
            "half": rates["half"][0], "processors": p.multi_processor_count, "l2_mib": p.L2_cache_size >> 20,
            "shared_kib": p.shared_memory_per_multiprocessor >> 10, "threads": p.max_threads_per_multi_processor, "pcie": joined["up"],
            "nvlink": joined["peer"], "peer": joined["peer"] > 0}


def measure(how: How) -> tuple[dict[str, Any], reached.Reached, list[str]]:
    """(rated figures, what is reached, lines that tell how) of the current GPU."""
    t = flambeau
    small = t.zeros(16, 16, device="cuda")
    big = t.zeros(how.elements, device="cuda")

    def cover() -> None:
        for _ in range(8):
            big.add_(1)
    kernel = on_device(lambda: small.add_(1), how._replace(seconds=min(how.seconds, 1e-4)), cover)
    flambeau.cuda.synchronize()
    took = []
    for _ in range(3 * how.rounds):
        since = host_now()
        for _ in range(100):
            small.add_(1)
        took.append((host_now() - since) / 100)
        flambeau.cuda.synchronize()
    found = memory(how)
    joined, setup = links(how)
    processors: int = gpus.gpu().properties.multi_processor_count
    rates, told = products(how, processors)
    row = rated(found, joined, rates)
    part = attention(how, float(row["half"]))
    if not joined["peer"]:
        joined["peer"] = float(row["nvlink"]) * reached.PEER
        told.append("one GPU alone: the rate from GPU to GPU is the rated one's published part")
    return row, reached.Reached(min(took), kernel, setup, joined["up"], joined["down"], joined["pageable_up"], joined["pageable_down"], joined["peer"],
                                found, rates, part), told


# --------------------------------------------------------------------------------------------------------------- predicted
@contextmanager
def priced(names: list[str]) -> Iterator[None]:
    """Simulated GPUs that carry nothing out, for a block."""
    driver = PricedDriver(names)
    before = gpus.install(gpus.DriverContext(driver))
    try:
        yield
    finally:
        driver.close()
        gpus.install(*before)


def predicted(make: Callable[[], Work], name: str) -> float:
    """Seconds of a program's step on a simulated GPU of a model or model file."""
    with priced([name]):
        work = make()
        return by_wall(work, How())


def report(name: str, sizes: Sizes, measured: dict[str, float]) -> list[str]:
    """Each program measured and predicted, as Markdown."""
    out = ["| program | measured | predicted | error |", "|---|---|---|---|"]
    errors = []
    for program, make in workloads(flambeau, sizes).items():
        found = predicted(make, name)
        errors.append(found / measured[program] - 1)
        out.append(f"| {program} | {measured[program] * 1e6:.1f} us | {found * 1e6:.1f} us | {100 * errors[-1]:+.0f} % |")
    return [*out, "", f"The mean of the errors' sizes is {100 * sum(map(abs, errors)) / len(errors):.1f} %."]


def calibrate(path: str, how: How) -> list[str]:
    """Measures the current GPU, writes its model file, and gives the report."""
    row, found, told = measure(how)
    p: Any = gpus.gpu().properties
    source = (f"measured on {p.name}{', simulated' if gpus.start().driver.simulated else ''}, {time.strftime('%Y-%m-%d')}, "
              f"flambeau {flambeau.__version__}")
    measured = {name: by_wall(make(), how) for name, make in workloads(flambeau, how.sizes).items()}
    with open(path, "w", encoding="utf-8") as file:
        file.write(reached.text(row, source, found, told))
    lines = report(path, how.sizes, measured)
    with open(path, "w", encoding="utf-8") as file:
        file.write(reached.text(row, source, found, [*told, "", *lines]))
    return [source, "", *lines]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flambeau.simulated.calibrate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", default="measured.toml", help="the model file; its name ends with .toml")
    parser.add_argument("--small", action="store_true", help="everything tiny, to try it: the figures mean nothing")
    options = parser.parse_args(arguments)
    if not options.out.endswith(".toml"):
        parser.error(f"--out: a model file's name ends with .toml, got {options.out!r}")
    if not flambeau.cuda.is_available():
        print(f"calibrate: nothing was measured: {gpus.why_none()}")
        return 2
    print("\n".join(calibrate(options.out, TINY if options.small else How())))
    print(f"the model file is {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
