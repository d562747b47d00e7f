"""What a training step asks of a GPU: ``python benchmarks/gpu/step_count.py [--only TEXT] [--launches] [--json FILE] [--small]``.

The steps that bench_gpu.py measures, at their real sizes, on the tests' fake libcuda, which takes launches and drops them: no GPU is needed.
For each step: launches by name, with the bytes they read and write and what an H200 would take for them, copies, casts, allocations, calls
of the driver that wait or mark a place, waits of the host, the most memory that was taken at once, and the host's own time.

The device's time is what the virtual clock of simulated GPUs predicts for these launches on --model, an H200 or a model file as measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_lines import SMOKE, Sizes, networks, small  # noqa: E402
from host_cost import fake  # noqa: E402

MODEL = "H200"
_CALLS = ("cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuStreamWaitEvent", "cuStreamQuery", "cuStreamSynchronize",
          "cuCtxSynchronize", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAlloc", "cuMemFree", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
          "cuMemcpyDtoDAsync", "cuMemcpyAsync", "cuLaunchKernel")


class Found(NamedTuple):
    """One step.  launches: (how many, bytes, seconds of the device) by name.  calls: of the driver, by name."""

    launches: dict[str, tuple[int, int, float]]
    kernels: int  # that the driver was given: one launch may be several
    calls: dict[str, int]
    copies: dict[str, tuple[int, int]]
    waits: dict[str, int]
    allocations: int
    slow: int  # of them, those that the bins' own lists did not serve
    peak: int
    host: float

    @property
    def seconds(self) -> float:
        return sum(s for _, _, s in self.launches.values())


class _Counting:
    """The bindings, with calls counted."""

    def __init__(self, cu: Any, counts: Counter[str]) -> None:
        self._cu, self._counts = cu, counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cu, name)
        if name not in _CALLS:
            return found

        def call(*args: Any) -> Any:
            self._counts[name] += 1
            return found(*args)
        return call


def seconds(prepared: Any) -> float:
    """What a launch may take on the device."""
    from flambeau._core.drivers.simulated import clock, models
    return clock.kernel_seconds(models.model(MODEL), prepared)


def count(t: Any, step: Callable[[], Any], lib: Any, rounds: int = 9) -> Found:
    """Counts one step that has been done before."""
    from flambeau._core.runtime import dispatch, gpus
    g: Any = gpus.gpu()
    for _ in range(3):
        step()
    t.cuda.synchronize()
    t.cuda.reset_peak_memory_stats()
    launches: dict[str, list[Any]] = {}
    copies: dict[str, list[int]] = {}
    waits: Counter[str] = Counter()
    calls: Counter[str] = Counter()

    def launched(dev: Any, stream: Any, prepared: Any, args: Any) -> None:
        if dev.type == "cpu":
            return
        entry = launches.setdefault(prepared.name, [0, 0, 0.0])
        entry[0] += 1
        entry[1] += prepared.nbytes
        entry[2] += seconds(prepared)

    def copied(c: Any) -> None:
        entry = copies.setdefault(f"{c.direction} {c.path}" + (", waiting" if c.blocking else ""), [0, 0])
        entry[0] += 1
        entry[1] += c.nbytes
    slow = [0]
    take, plain = g.pool._take, g.driver._cu

    def taken(stream: Any, nbytes: int) -> Any:
        slow[0] += 1
        return take(stream, nbytes)
    with dispatch.observe(launched, copied, lambda w: waits.update([w.reason])):
        step()  # launches are bound anew under an observer
        launches.clear()
        copies.clear()
        waits.clear()
        kernels = lib.fake_count(1)
        g.driver._cu, g.pool._take = _Counting(plain, calls), taken
        try:
            step()
        finally:
            g.driver._cu, g.pool._take = plain, take
        kernels = lib.fake_count(1) - kernels
    before = t.cuda.memory_stats()["allocation.all.allocated"]  # which empties the bins' own lists
    step()
    allocations = t.cuda.memory_stats()["allocation.all.allocated"] - before
    peak = t.cuda.max_memory_allocated()
    best = float("inf")
    step()
    for _ in range(rounds):
        since = time.thread_time()  # what others do on this machine does not count
        step()
        best = min(best, time.thread_time() - since)
        t.cuda.synchronize()
    return Found({k: (n, b, s) for k, (n, b, s) in launches.items()}, kernels, dict(calls), {k: (n, b) for k, (n, b) in copies.items()},
                 dict(waits), allocations, slow[0], peak, best)


def steps(s: Sizes) -> Iterator[tuple[str, Callable[[Any], Callable[[], Any]]]]:
    """(name, what makes the step of a library's module)."""
    one = s._replace(steps=1)
    for line in small(one):
        if "network" in line.name:
            yield "a small network, SGD", line.setup
    for line in networks(one):
        yield line.name, line.setup
    for name, foreach, fused in (("AdamW", None, None), ("AdamW, foreach", True, None), ("AdamW, fused", None, True)):
        def plain(t: Any, foreach: Any = foreach, fused: Any = fused) -> Any:
            net, x, y = _model(t, s)
            return _step(t, net, x, y, t.optim.AdamW(net.parameters(), 1e-3, foreach=foreach, fused=fused))
        yield f"{s.gpt[2]} blocks of nn.TransformerEncoderLayer, {name}", plain

    def whole(t: Any) -> Any:
        net, x, y = _model(t, s)
        net.to(t.bfloat16)
        return _step(t, net, x.to(t.bfloat16), y, t.optim.AdamW(net.parameters(), 1e-3))
    yield "the same, to(bfloat16)", whole

    def cast(t: Any) -> Any:
        net, x, y = _model(t, s)
        return _step(t, net, x, y, t.optim.AdamW(net.parameters(), 1e-3), region=t.bfloat16)
    yield "the same, autocast to bfloat16", cast

    def scaled(t: Any) -> Any:
        net, x, y = _model(t, s)
        return _step(t, net, x, y, t.optim.AdamW(net.parameters(), 1e-3), region=t.float16, scaler=t.amp.GradScaler("cuda"), clip=1.0)
    yield "the same, autocast to float16, GradScaler, clip_grad_norm_", scaled

    def clipped(t: Any) -> Any:
        net, x, y = _model(t, s)
        return _step(t, net, x, y, t.optim.AdamW(net.parameters(), 1e-3), clip=1.0)
    yield "the same in float32, clip_grad_norm_", clipped


def _model(t: Any, s: Sizes) -> tuple[Any, Any, Any]:
    batch, length, layers, width, heads, _ = s.gpt
    t.manual_seed(0)
    layer = t.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    net = t.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to("cuda")
    return net, t.randn(batch, length, width, device="cuda"), t.zeros(batch, length, dtype=t.int64, device="cuda")


def _step(t: Any, net: Any, x: Any, y: Any, updates: Any, region: Any = None, scaler: Any = None, clip: float | None = None) -> Callable[[], Any]:
    f = t.nn.functional

    def loss() -> Any:
        out = net(x)
        return f.cross_entropy(out.flatten(0, 1).float(), y.flatten())

    def step() -> None:
        updates.zero_grad()
        if region is None:
            made = loss()
        else:
            with t.autocast("cuda", region):
                made = loss()
        (made if scaler is None else scaler.scale(made)).backward()
        if clip is not None:
            if scaler is not None:
                scaler.unscale_(updates)
            t.nn.utils.clip_grad_norm_(net.parameters(), clip)
        if scaler is None:
            updates.step()
        else:
            scaler.step(updates)
            scaler.update()
    return step


def tell(name: str, found: Found, each: bool) -> None:
    moved = sum(b for _, b, _ in found.launches.values())
    number = sum(n for n, _, _ in found.launches.values())
    print(f"{name}\n  {number} launches ({found.kernels} kernels of our own), {moved / 1e9:.3f} GB, {found.seconds * 1e3:.3f} ms on the device; "
          f"host {found.host * 1e6:.0f} us; {found.allocations} allocations ({found.slow} not from a list); peak {found.peak / 2**20:.0f} MiB")
    rest = {**{k: f"{n}" for k, n in found.calls.items() if k != "cuLaunchKernel"},
            **{f"copies {k}": f"{n} ({b} bytes)" for k, (n, b) in found.copies.items()}, **{f"waits for {k}": f"{n}" for k, n in found.waits.items()}}
    if rest:
        print("  " + ", ".join(f"{k} {v}" for k, v in rest.items()))
    if each:
        for key, (n, b, took) in sorted(found.launches.items(), key=lambda item: -item[1][2]):
            print(f"    {n:5} {key:34} {b / 1e6:10.2f} MB {took * 1e6:10.1f} us")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="steps whose name holds this text")
    parser.add_argument("--launches", action="store_true", help="each kind of launch")
    parser.add_argument("--json", default="", help="a file for the figures")
    parser.add_argument("--small", action="store_true", help="the smoke form's sizes")
    parser.add_argument("--model", default="H200", help="whose times are predicted: a simulated GPU's name, or a model file")
    options = parser.parse_args()
    global MODEL
    MODEL = options.model
    os.environ.pop("FLAMBEAU_SIM_GPUS", None)
    os.environ.setdefault("FAKE_ABSENT", "")  # cuDNN is there
    if not fake(memory=64 << 30):  # nothing touches it
        print("step_count: the fake driver needs g++")
        return 2
    import ctypes

    import flambeau
    lib = ctypes.CDLL("libcuda.so.1")
    lib.fake_count.restype = ctypes.c_long
    told = {}
    for name, setup in steps(SMOKE if options.small else Sizes()):
        if options.only in name:
            found = count(flambeau, setup(flambeau), lib)
            tell(name, found, options.launches)
            told[name] = found._asdict()
            flambeau.cuda.empty_cache()
    if options.json:
        Path(options.json).write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
