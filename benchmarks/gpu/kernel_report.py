"""How far kernels are from the limit of an H200, without a GPU: ``python benchmarks/gpu/kernel_report.py [--only TEXT] [--check] [--write] [--sites]``.

Each call of `kernel_programs.py` is made on the tests' fake driver at its real size.  Of its kernels some blocks are carried out on the CPU, which
counts what each warp asks of memory (`tests/_core/kernels/cuda_c/traffic.py`), and the machine code that NVRTC makes for sm_90 is followed for the
same blocks (`sass.py`), which counts instructions.  A kernel takes as long as what takes longest: memory, the second cache, a pipe of the
multiprocessors, shared memory, the launch, or the reads of the thread that has most of them, one after another.  Other latencies are not in
it: a kernel with too little on its way is slower than this says.

--check holds every kernel to its bound in kernel_bounds.toml; --write writes that file; --sites shows the line of each kernel that wastes most.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import multiprocessing
import os
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "tests" / "_core" / "drivers" / "nvidia")]
import kernel_programs  # noqa: E402
import sass  # noqa: E402

# An H200 (SXM): what streaming reaches, what its second cache gives, bytes of that cache that one can count on, clock, multiprocessors.
MEMORY, SECOND, KEPT, CLOCK, CORES = 4.3e12, 5.5e12, 30 << 20, 1.98e9, 132
LAUNCH = 2.0e-6
WAIT, ON_WAY = 0.6e-6, 8  # for a read of memory, and how many reads a thread has on their way at best
COMMON = 96 << 10  # of the first cache, that blocks one after another find again
SECTORS = 4  # that a multiprocessor's first cache takes in a clock
BLOCKS = 3  # that are counted of a launch
WHOLE = 1 << 18  # threads of launches that are carried out whole: others read what they write
BOUNDS = HERE / "kernel_bounds.toml"


class Part(NamedTuple):
    """One function of a call.  asked, moved: bytes of global memory, over the whole launch; sectors: of a request; turns: of the banks, of a request to
    shared memory; registers, spilt: bytes of it; occupancy: at most; slots: instructions of warps times 32, by pipe; seconds: by what
    might take longest; sure: whether machine code and text agree on how often memory is asked."""

    name: str
    asked: float
    moved: float
    sectors: float
    turns: float
    registers: int
    spilt: int
    occupancy: float
    slots: dict[str, float]
    seconds: dict[str, float]
    worst: str
    sure: bool

    @property
    def limit(self) -> str:
        return max(self.seconds, key=lambda k: self.seconds[k])

    @property
    def time(self) -> float:
        return max(self.seconds.values())


class Row(NamedTuple):
    """One call."""

    line: kernel_programs.Line
    parts: list[Part]

    @property
    def seconds(self) -> float:
        return sum(p.time for p in self.parts)

    @property
    def fraction(self) -> float:
        """Of what memory alone allows."""
        return self.line.nbytes / MEMORY / self.seconds if self.parts else 1.0

    def figures(self) -> dict[str, float]:
        """What is held to a bound: the least, or the most, of its kernels."""
        asked, moved = sum(p.asked for p in self.parts), sum(p.moved for p in self.parts)
        return {"fraction": round(self.fraction, 3), "efficiency": round(asked / moved, 3) if moved else 1.0,
                "turns": round(max((p.turns for p in self.parts), default=0.0), 2),
                "slots": round(sum(sum(p.slots.values()) for p in self.parts) / self.line.elements, 2),
                "registers": max((p.registers for p in self.parts), default=0), "spilt": sum(p.spilt for p in self.parts)}


def start() -> Any:
    """The fake driver in place of a real one; gives its library."""
    os.environ.setdefault("FAKE_GPUS", "1")
    os.environ.pop("FLAMBEAU_SIM_GPUS", None)
    import cases  # type: ignore[import-not-found]
    cases.MEMORY = 16 << 30  # only what is touched takes any
    return cases.start("none", 0)


def captured(call: Callable[[], Any]) -> list[tuple[Any, tuple[Any, ...]]]:
    """(kernel, arguments) of what a call launches."""
    from flambeau._core.runtime import dispatch
    seen: list[tuple[Any, tuple[Any, ...]]] = []

    def launched(dev: Any, stream: Any, prepared: Any, args: tuple[Any, ...]) -> None:
        if dev.type == "cuda" and getattr(prepared.keep, "launches", None):
            seen.append((prepared.keep, args))
    with dispatch.observe(launched):
        call()
    return seen


def compiled(source: str) -> tuple[bytes, str]:
    """The cubin and what ptxas says of it."""
    from flambeau._core.kernels.cuda_c import nvrtc
    return nvrtc.build(source, "sm_90", ("--ptxas-options=-v",))


@functools.cache
def _compiler() -> ProcessPoolExecutor:
    """NVRTC has a process of its own: it looks for a driver, and here would find the fake one."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def usage(kernel: Any) -> tuple[dict[str, tuple[int, int]], dict[str, sass.Code], dict[str, int]]:
    """Registers and bytes spilt, code, and static shared memory by function; empty where nothing can be compiled or disassembled."""
    if sass.disassembler() is None:
        return {}, {}, {}
    cubin, log = _compiler().submit(compiled, kernel.source).result()
    told = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)", log, re.S)
    shared = {name: int(m[1]) if (m := re.search(r"(\d+) bytes smem", rest)) else 0 for name, _, _, _, rest in told}
    return {name: (int(r), int(a) + int(b)) for name, a, b, r, _ in told}, sass.functions(cubin), shared


def followed(code: sass.Code, parameters: bytes, grid: tuple[int, int, int], block: tuple[int, int, int]) -> tuple[dict[str, float], bool]:
    """Instructions that all warps of a launch issue, by opcode, from a few warps of two of its blocks, and whether some of those went where
    it was not known; empty where they do not end, as what they wait for is not known."""
    number, warps = grid[0] * grid[1] * grid[2], -(-block[0] * block[1] * block[2] // 32)
    out: dict[str, float] = {}
    guessed = False
    some, lanes = sorted({number // 3, max(0, number - 2)}), sorted({0, 1, warps // 2, warps - 1} & set(range(warps)))
    for b in some:
        at = (b % grid[0], b // grid[0] % grid[1], b // grid[0] // grid[1])
        for warp in lanes:
            times = number / len(some) * (1 if warp == 0 else (warps - 1) / (len(lanes) - 1))  # the first may have more to do than the rest
            try:
                counts = sass.follow(code, parameters, grid, block, at, warp)
                guessed = guessed or counts.guessed
                for op, n in counts.items():
                    out[op] = out.get(op, 0) + n * times
            except RuntimeError:
                return {}, False
    return out, guessed


def parts(kernel: Any, args: tuple[Any, ...], blocks: int = BLOCKS) -> Iterator[Part]:
    """What each function of a kernel does."""
    from tests._core.kernels.cuda_c import traffic
    found, (used, code, static) = traffic.count(kernel, list(args), blocks, WHOLE), usage(kernel)
    parameters = kernel.pack(*args)
    for name, grid, block, dynamic in kernel.launches:
        t, number = found[name], grid[0] * grid[1] * grid[2]
        threads = block[0] * block[1] * block[2]
        registers, spilt = used.get(name, (0, 0))
        room = static.get(name, 0) + dynamic
        issued, guessed = followed(code[name], parameters, grid, block) if name in code else ({}, False)
        scale = t.scale
        pipes: dict[str, float] = {}
        for op, n in issued.items():
            pipes[sass.pipe(op)] = pipes.get(sass.pipe(op), 0) + n
        memory = t.memory
        requests = {"LD": t.over("loads", "shared loads").requests, "ST": t.over("stores", "shared stores").requests}
        told = {k: sum(n for op, n in issued.items() if op.startswith(k) and sass.pipe(op) == "memory" and not op.startswith(("LDL", "STL"))) for k in requests}
        sure = bool(issued) and all(abs(told[k] - requests[k] * scale) <= 0.1 * requests[k] * scale + 2 * number for k in requests)
        # a loop that ends by what memory holds was taken to run to its bound: the requests say how often it ran
        ran = min(1.0, sum(requests.values()) * scale / max(1.0, sum(told.values()))) if guessed else 1.0
        slots = {k: 32 * n * ran for k, n in sorted(pipes.items())}
        asked, moved = memory.asked * scale, memory.moved * scale
        # what every block reads, such as the weights of a layer, stays in the first cache if it is small
        common = 32 * t.sectors[1]
        far = moved - common * t.blocks[1] + common if common <= COMMON else moved
        # what a block asks again is near, as far as the blocks at work together fit the cache
        occupancy = sass.occupancy(max(registers, 16), threads, room)
        together = min(number, CORES * occupancy * 64 / -(-threads // 32))
        held = min(1.0, KEPT * number / max(1.0, t.touched * together))
        again = t.touched + max(0.0, far - t.touched) * (1 - held)
        seconds = {"launch": LAUNCH, "longest thread": t.longest * WAIT / ON_WAY, "memory": min(again, far) / MEMORY, "second cache": far / SECOND,
                   "first cache": (memory.turns / SECTORS + t.shared.turns) * scale / CORES / CLOCK,
                   "issue": sum(slots.values()) / sass.ISSUED / CORES / CLOCK}
        seconds |= {f"{k} pipe": n / sass.RATES[k] / CORES / CLOCK for k, n in slots.items() if k != "other"}
        if number < CORES:  # some multiprocessors have nothing to do
            for k in ("first cache", "issue", *(k for k in seconds if k.endswith("pipe"))):
                seconds[k] *= CORES / number
        line, kind, _ = t.worst()
        text = kernel.source.splitlines()[line - 1].strip() if line else ""
        yield Part(name, asked, moved, memory.turns / max(1, memory.requests), t.shared.turns / max(1, t.shared.requests), registers, spilt, occupancy, slots,
                   seconds, f"{kind}: {text}", sure)


def rows(only: str = "", t: Any = None) -> Iterator[Row]:
    """The report, call by call; the fake driver must be in place (`start`)."""
    if t is None:
        import flambeau as t
    rng = np.random.default_rng(0)

    def fill(at: Any, below: int) -> None:
        view = np.ctypeslib.as_array((ctypes.c_int64 * at.numel()).from_address(at.data_ptr()))
        view[...] = rng.integers(0, below, at.numel())
    for line in kernel_programs.lines():
        if only in line.name:
            call = line.setup(t, fill)
            yield Row(line, [p for kernel, args in captured(call) for p in parts(kernel, args)])
            del call
            t.cuda.empty_cache()


def table(found: list[Row], sites: bool = False) -> str:
    """The report as Markdown."""
    out = ["| call | of memory's limit | asked of moved | sectors a request | bank turns | registers, spilt | occupancy | slots an element | limit |",
           "|---|---|---|---|---|---|---|---|---|"]
    for r in found:
        f = r.figures()
        # the part that takes longest speaks for the call
        p = max(r.parts, key=lambda p: p.time, default=None)
        if p is None:
            out.append(f"| {r.line.name} | | | | | | | | no kernel of ours |")
            continue
        out.append(f"| {r.line.name} | {r.fraction:.2f} | {f['efficiency']:.2f} | {p.sectors:.1f} | {f['turns']:.2f} | {f['registers']}, {f['spilt']} | "
                   f"{p.occupancy:.2f} | {f['slots']:.1f}{'' if all(p.sure for p in r.parts) else ' ?'} | {p.limit} |")
        if sites:
            out += [f"| `{p.name}` {1e6 * p.time:.1f} us | | {p.asked / max(1, p.moved):.2f} | {p.sectors:.1f} | {p.turns:.2f} | {p.registers}, {p.spilt} | "
                    f"{p.occupancy:.2f} | {' '.join(f'{k} {v / r.line.elements:.1f}' for k, v in p.slots.items())}{'' if p.sure else ' ?'} | "
                    f"{p.limit}; `{p.worst}` |" for p in r.parts]
    return "\n".join(out)


# --------------------------------------------------------------------------------------------------------------- bounds
_LEAST = ("fraction", "efficiency")


def bounds() -> dict[str, dict[str, float]]:
    return tomllib.loads(BOUNDS.read_text())["bounds"] if BOUNDS.exists() else {}


def beyond(found: list[Row], held: dict[str, dict[str, float]]) -> list[str]:
    """What is worse than its bound.  A twentieth is left to compilers' versions, 8 registers, and of what memory allows a hundredth."""
    out = []
    for r in found:
        if r.line.name not in held:
            out.append(f"{r.line.name}: it is not in {BOUNDS.name}")
            continue
        for what, is_ in r.figures().items():
            was = held[r.line.name][what]
            if sass.disassembler() is None and what in ("fraction", "slots", "registers", "spilt"):
                continue
            room = 8 if what == "registers" else 0 if what == "spilt" else 0.05 * was + (0.01 if what in _LEAST else 0.05)
            if is_ < was - room if what in _LEAST else is_ > was + room:
                out.append(f"{r.line.name}: {what} {is_:g}, {'at least' if what in _LEAST else 'at most'} {was:g}")
    return out


def written(found: list[Row]) -> str:
    """The table of bounds, with these calls' anew."""
    every = bounds() | {r.line.name: r.figures() for r in found}
    lines = "".join(f"'{line.name}' = {{ {', '.join(f'{k} = {v:g}' for k, v in every[line.name].items())} }}\n"
                    for line in kernel_programs.lines() if line.name in every)
    return ("# What each call's kernels must reach: of what memory allows, and bytes asked of bytes moved, at least; turns of shared memory's\n"
            "# banks a request, issue slots an element, registers and bytes spilt, at most.  Written by\n"
            "# `python benchmarks/gpu/kernel_report.py --write`; one that gets worse needs its reason in the commit.\n[bounds]\n" + lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="calls whose name holds this text")
    parser.add_argument("--check", action="store_true", help="fail where a kernel is worse than its bound")
    parser.add_argument("--write", action="store_true", help="write the bounds anew")
    parser.add_argument("--sites", action="store_true", help="each kernel, its pipes, and the line that wastes most")
    options = parser.parse_args()
    import host_kernels  # type: ignore[import-not-found]
    if host_kernels.GXX is None:
        print("kernel-report: skipped, because there is no g++ here")
        return 0
    if sass.disassembler() is None:
        print("kernel-report: without nvdisasm (pip install nvidia-cuda-nvdisasm) no instructions are counted")
    since = time.monotonic()
    lib = start()
    import flambeau
    flambeau.zeros(1, device="cuda")
    lib.fake_open(1)
    found = []
    for row in rows(options.only, flambeau):
        found.append(row)
        print("\n".join(table([row], options.sites).splitlines()[0 if len(found) == 1 else 2:]), flush=True)
    print(f"\n{len(found)} calls in {time.monotonic() - since:.0f} s")
    if options.write:
        BOUNDS.write_text(written(found))
    wrong = beyond(found, bounds()) if options.check else []
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
