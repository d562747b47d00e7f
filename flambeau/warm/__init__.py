"""`flambeau warm`: makes the kernels that usual programs need, on all cores, before any of them runs.

Kernels are compiled when they are first met, for no size in particular, and kept for all programs of this user (see FLAMBEAU_CACHE_DIR).  Made
ahead, at an installation or in an image for CI, the first step of a first program costs what the second costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from .._core.kernels import cache


def names() -> list[str]:
    """Of the groups of programs, the longest first."""
    from . import programs
    return list(programs.GROUPS)


def make(name: str) -> tuple[int, float]:
    """Runs one group in this process: how many kernels were not kept before, and the seconds of CPU that it all took."""
    from . import programs
    before, since = cache.made, time.process_time()
    programs.GROUPS[name]()
    return cache.made - before, time.process_time() - since


def run(chosen: list[str] | None = None, jobs: int | None = None) -> int:
    """Each group in a process of its own, `jobs` at a time (default: as many as this process may use cores).  Returns the exit status.

    What was kept before is not made again; processes at work at once share what they make.
    """
    why = cache.why_not()
    if why:
        print(f"flambeau warm: no kernel can be kept: {why}", file=sys.stderr)
        return 1
    groups = chosen or names()
    jobs = jobs or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    since, failed = time.perf_counter(), False
    made, seconds = 0, 0.0
    with ThreadPoolExecutor(min(jobs, len(groups))) as workers:
        for name, done in zip(groups, workers.map(_apart, groups), strict=True):
            if done.returncode:
                failed = True
                last = (done.stderr.strip().splitlines() or [f"ended with exit status {done.returncode}"])[-1]
                print(f"flambeau warm: {name}: {last}", file=sys.stderr)
                continue
            told = json.loads(done.stdout.splitlines()[-1])
            made, seconds = made + told["kernels"], seconds + told["seconds"]
            print(f"{name:12} {told['kernels']:4} kernels", flush=True)
    print(f"{made} kernels made in {time.perf_counter() - since:.1f} s ({seconds:.1f} s of CPU), kept in {cache.folder()}")
    return int(failed)


def _apart(name: str) -> subprocess.CompletedProcess[str]:
    """One core each: what is waited for is the compiler, which has one thread."""
    env = {**os.environ, "FLAMBEAU_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "flambeau.warm", name], capture_output=True, text=True, env=env, check=False)
