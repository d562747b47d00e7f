"""Forks, capsules, exits and first calls beside threads, many times over, at moments that are drawn: does a process hang or crash, or give wrong values?

    python tools/races.py [--rounds 300] [--seed N] [--only fork,dlpack,exit,values,cuda,finalizers]

fork     a thread is in its first operations, where modules are imported and kernels compiled, when the process forks; the child does the same.
dlpack   threads take one capsule at once: one gets the memory, the others are refused.
exit     the interpreter ends while daemon threads launch, allocate and compile.
values   threads call public operations, and pass backward through them, for the first time at once, with kernels made anew; each result is that of one
         thread which has nothing learned, to the bit.  cuda: the same on a simulated GPU.
finalizers  tensors, views, streams, pools and objects whose finalizers compute die at any allocation of a program (finalizers.py).

Each round is a process of its own, forked before the first operation, so that all is new in it.  The seed is printed; a round that fails is named by its
number, and `--from K --rounds 1` with that seed runs it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau as torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks" / "ops"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import finalizers
import ops_lines
import ops_timing
import ops_values

LIMIT = 60.0  # seconds of a round
# what gives other values at each call, or unwritten memory
OTHERS = ("rand", "drop", "normal", "poisson", "bernoulli", "multinomial", "exponential", "cauchy", "geometric", "uniform", "gumbel", "rrelu", "gamma",
          "dirichlet", "seed", "pca", "svd_lowrank", "lobpcg", "binomial", "fractional", "empty", "data_ptr", "Tensor.new")


def _work(rng: random.Random) -> None:
    """Some operations, each family in an order of its own."""
    jobs: list[Callable[[], object]] = [
        lambda: torch.ones(8).sum().item(), lambda: (torch.randn(20, 20) @ torch.randn(20, 20)).softmax(-1).sum().item(),
        lambda: torch.linalg.svd(torch.eye(4)), lambda: torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward(), lambda: torch.fft.fft(torch.ones(8)),
        lambda: torch.sort(torch.randn(50)), lambda: torch.ones(1 << 18).mul(2).sum(), lambda: torch.arange(10).numpy(),
        lambda: torch.tensor([1.0, float(rng.randrange(9))]).to("cpu")]
    rng.shuffle(jobs)
    for job in jobs:
        job()


def ended(pid: int, seconds: float) -> str:
    """How a child ended: nothing to say where it ended well."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"ended with {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
        time.sleep(0.005)
    os.kill(pid, signal.SIGABRT)  # upon which faulthandler says where it is
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


def fork(rng: random.Random) -> None:
    thread = threading.Thread(target=_work, args=(random.Random(rng.random()),))
    thread.start()
    time.sleep(rng.choice((0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.3))))
    pid = os.fork()
    if not pid:
        _work(rng)
        os._exit(0)
    said = ended(pid, LIMIT / 2)
    thread.join()
    if said:
        raise SystemExit(f"the fork's child {said}")


def dlpack(rng: random.Random) -> None:
    sys.setswitchinterval(1e-6)
    for _ in range(20):
        capsule = torch.arange(float(rng.randrange(1, 2000))).__dlpack__()
        count = rng.randrange(2, 5)
        taken: list[object] = []
        refused: list[object] = []
        ready = threading.Barrier(count)

        def take(capsule: object = capsule, ready: threading.Barrier = ready, taken: list[object] = taken, refused: list[object] = refused) -> None:
            ready.wait()
            try:
                taken.append(torch.from_dlpack(capsule))
            except Exception as error:  # what it is, the tests of the capsule say
                refused.append(error)
        threads = [threading.Thread(target=take) for _ in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if len(taken) != 1 or len(refused) != count - 1:
            raise SystemExit(f"{len(taken)} of {count} threads took the capsule")


def leave(rng: random.Random) -> None:
    def forever(seed: float) -> None:
        mine = random.Random(seed)
        while True:
            _work(mine)
            torch.randn(mine.randrange(1, 40), mine.randrange(1, 40)).exp().sum(0)
    for _ in range(rng.randrange(1, 4)):
        threading.Thread(target=forever, args=(rng.random(),), daemon=True).start()
    time.sleep(rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.5))))
    raise SystemExit(0)


def _bits(x: Any) -> Any:
    """A result as what can be compared exactly."""
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided:
            return str(x.layout), _bits(x.to_dense())
        x = x.detach().resolve_conj().cpu()
        return str(x.dtype), tuple(x.shape), x.numpy().tobytes() if x.dtype is not torch.bfloat16 else repr(x.tolist())
    if isinstance(x, (tuple, list)):
        return [_bits(y) for y in x]
    return repr(x) if isinstance(x, (int, float, complex, str, bool, type(None))) else type(x).__name__


def _call(line: ops_lines.Line, gradient: Any, n: int) -> Any:
    """The bits of a line's results and of what it writes, or of its results and gradients, in a size; or its error."""
    letters = {"m": n, "B": 2, "C": 4 + n % 3, "K": 5, "L": n + 4, "H": n + 6, "D": n, "b": 2, "h": 3, "t": n, "d": 6, "e": n + 1, "s": 3, "w": n,
               "T": n + 8, "V": n, "S": 8 * n}
    try:
        values = ops_values.Values(torch, ops_values.SMALL._replace(n=n, sizes=letters))
        made = ops_timing._call(torch, line, values, () if gradient is None else gradient.inputs)
        if gradient is None:
            return _bits(made), [_bits(values[name]) for name in ops_timing.written(line)]
        outs = dict(ops_timing._outputs(torch.Tensor, made))
        results = [outs[at] for at in gradient.outputs]
        torch.autograd.backward(results, [torch.ones_like(t) for t in results])
        return _bits(results), [_bits(values[name].grad) for name in gradient.inputs]
    except Exception as error:
        return type(error).__name__, str(error)


def _gradients(lines: list[ops_lines.Line]) -> list[Any]:
    """What of each line can be differentiated, found by a child, so that all stays new here."""
    end, begin = os.pipe()
    pid = os.fork()
    if not pid:
        with open(begin, "wb") as f:
            f.write(pickle.dumps([ops_timing.gradient_of(torch, line) for line in lines]))
        os._exit(0)
    os.close(begin)
    with open(end, "rb") as f:
        found: list[Any] = pickle.loads(f.read())
    os.waitpid(pid, 0)
    return found


def values(rng: random.Random, device: str = "cpu") -> None:
    from flambeau._core.engine import learning
    from flambeau._core.runtime import caches
    os.environ["FLAMBEAU_CACHE_DIR"] = kernels = tempfile.mkdtemp()
    few = rng.sample([line for line in ops_lines.all_lines(torch)[0] if not any(part in line.name for part in OTHERS)], 14)
    work: list[tuple[ops_lines.Line, Any]] = [(line, None) for line in few] + [(line, g) for line, g in zip(few, _gradients(few), strict=True) if g is not None]
    jobs = [(i, n) for i in range(len(work)) for n in rng.sample(range(4, 14), 3)] * 6
    found: list[tuple[int, int, Any]] = []
    sys.setswitchinterval(rng.choice((5e-3, 5e-4, 5e-5)))

    def run(seed: float) -> None:
        torch.set_default_device(device)
        mine = list(jobs)
        random.Random(seed).shuffle(mine)
        found.extend([(i, n, _call(*work[i], n)) for i, n in mine])
    with torch.simulate(gpus=1):
        threads = [threading.Thread(target=run, args=(rng.random(),)) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        learning.on = False
        caches.forget()
        torch.set_default_device(device)
        want = {(i, n): _call(*work[i], n) for i, n in jobs}
    shutil.rmtree(kernels)
    wrong = sorted({(work[i][0].name, "backward" if work[i][1] else "forward", n) for i, n, bits in found if bits != want[i, n]})
    if wrong or len(found) < 3 * len(jobs):
        raise SystemExit(f"other values of {wrong}; {len(found)} of {3 * len(jobs)} calls came back")


ROUNDS: dict[str, Callable[[random.Random], None]] = {
    "fork": fork, "dlpack": dlpack, "exit": leave, "values": values, "cuda": lambda rng: values(rng, "cuda"),
    "finalizers": lambda rng: (finalizers.programs(rng), None)[1]}


def main() -> int:
    p = argparse.ArgumentParser(prog="races", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=300)
    p.add_argument("--from", dest="first", type=int, default=0)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--only", default=",".join(ROUNDS))
    p.add_argument("--seconds", type=float, default=0, help="stop after so long")
    a = p.parse_args()
    seed = random.SystemRandom().randrange(10 ** 6) if a.seed is None else a.seed
    kinds, until, failed, done = a.only.split(","), time.monotonic() + (a.seconds or 1e9), 0, 0
    print(f"races: seed {seed}", flush=True)
    for k in range(a.first, a.first + a.rounds):
        if time.monotonic() > until:
            break
        kind = kinds[k % len(kinds)]
        pid = os.fork()
        if not pid:
            faulthandler.enable()
            ROUNDS[kind](random.Random(f"{seed} {k}"))
            sys.exit(0)
        done += 1
        if said := ended(pid, LIMIT):
            failed += 1
            print(f"races: round {k}, {kind}: {said}", flush=True)
    print(f"races: {done} rounds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
