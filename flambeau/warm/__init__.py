"""`flambeau warm`: makes the kernels that usual programs need, on all cores, before any of them runs.

Kernels are compiled when they are first met, for no size in particular, and kept for all programs of this user (see FLAMBEAU_CACHE_DIR).  Made
ahead, at an installation or in an image for CI, the first step of a first program costs what the second costs.  Where nobody says `flambeau warm`,
the first program that makes kernels has them made behind it (`behind.py`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from .._core.kernels import cache

if TYPE_CHECKING:
    import subprocess


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


def run(chosen: list[str] | None = None, jobs: int | None = None, behind: bool = False) -> int:
    """Each group in a process of its own, `jobs` at a time (default: as many as this process may use cores).  Returns the exit status.

    What was kept before is not made again; processes at work at once share what they make.  behind: of the lowest priority.
    """
    from concurrent.futures import ThreadPoolExecutor

    from . import behind as unseen
    why = cache.why_not()
    if why:
        print(f"flambeau warm: no kernel can be kept: {why}", file=sys.stderr)
        return 1
    groups = chosen or names()
    jobs = jobs or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    since, failed = time.perf_counter(), False
    made, seconds = 0, 0.0
    with ThreadPoolExecutor(min(jobs, len(groups))) as workers:
        for name, done in zip(groups, workers.map(_behind if behind else _apart, groups), strict=True):
            if done.returncode:
                failed = True
                last = (done.stderr.strip().splitlines() or [f"ended with exit status {done.returncode}"])[-1]
                print(f"flambeau warm: {name}: {last}", file=sys.stderr)
                continue
            told = json.loads(done.stdout.splitlines()[-1])
            made, seconds = made + told["kernels"], seconds + told["seconds"]
            print(f"{name:12} {told['kernels']:4} kernels", flush=True)
    if not failed and not chosen:
        unseen.done()
    print(f"{made} kernels made in {time.perf_counter() - since:.1f} s ({seconds:.1f} s of CPU), kept in {cache.folder()}")
    return int(failed)


def _apart(name: str, *flags: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """One core each: what is waited for is the compiler, which has one thread."""
    import subprocess

    from .behind import environment, python
    command = python(*flags, name)
    try:
        return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"took longer than {seconds} s")


def _behind(name: str) -> subprocess.CompletedProcess[str]:
    from .behind import SECONDS
    return _apart(name, "--one-behind", seconds=SECONDS)
