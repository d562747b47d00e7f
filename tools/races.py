"""Forks, capsules and exits beside threads, many times over, at moments that are drawn: does a process hang or crash?

    python tools/races.py [--rounds 300] [--seed N] [--only fork,dlpack,exit]

fork     a thread is in its first operations, where modules are imported and kernels compiled, when the process forks; the child does the same.
dlpack   threads take one capsule at once: one gets the memory, the others are refused.
exit     the interpreter ends while daemon threads launch, allocate and compile.

Each round is a process of its own, forked before the first operation, so that all is new in it.  The seed is printed; a round that fails is named by its
number, and `--from K --rounds 1` with that seed runs it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

import flambeau as torch

LIMIT = 60.0  # seconds of a round


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


ROUNDS: dict[str, Callable[[random.Random], None]] = {"fork": fork, "dlpack": dlpack, "exit": leave}


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
