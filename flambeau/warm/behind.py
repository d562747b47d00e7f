"""The kernels of usual programs, made behind the first program that has to make its own.

Once for each version on a machine, by processes of the lowest priority that nobody waits for.  A program that makes its first kernels starts them
(`hooks.many_made`) and goes on; they hold nothing of it, neither its terminal nor its exit.  A kernel that both want is made by one of them: who
waits for such a process waits no longer than the kernel would take itself.  A file beside the kernels says how far that came: nothing, so many
attempts, or "done".
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING

from .._core.kernels import cache
from .._core.kernels.llvm import compile as compiler

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = ("mlp", "images", "tensors", "optimizers", "language", "recurrent", "transformers", "residual", "pictures", "narrow")  # the commonest first
TRIES = 3  # attempts that did not come to their end, since the machine was switched off or a program failed
SECONDS_OF_CPU, SECONDS = 120, 3600  # of each process; of one group of programs on a busy machine
_DONE = b"done"
_KEPT = frozenset(("FLAMBEAU_CACHE_DIR", "FLAMBEAU_CPU", "FLAMBEAU_ONEDNN"))  # what decides which kernels are made, and where they lie
# a test's kernels are its own, many ranks begin at once, and a batch job's cores are paid for
_ELSEWHERE = ("CI", "PYTEST_VERSION", "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def why_not() -> str:
    """Why nothing is made behind this program; empty where it is."""
    asked = os.environ.get("FLAMBEAU_WARM", "")
    if asked == "0":
        return "FLAMBEAU_WARM is 0"
    if asked != "1":
        for name in (*_ELSEWHERE, "FLAMBEAU_CACHE_DIR"):
            if os.environ.get(name):
                return f"{name} is set, and FLAMBEAU_WARM is not 1"
        if "pytest" in sys.modules:
            return "this is a test, and FLAMBEAU_WARM is not 1"
    processes = sys.modules.get("multiprocessing")
    if processes is not None and processes.parent_process() is not None:
        return "another program started this process"
    if getattr(sys, "frozen", False) or not os.path.basename(sys.executable or "").startswith("python"):
        return f"{sys.executable or 'this program'} is no Python that could be started once more"  # a program that has one inside
    return cache.why_not()


def state() -> str:
    """What is known of it on this machine, in words."""
    try:
        mark = cache.beside(_name())
    except OSError as error:
        return f"unknown ({error})"
    try:
        found = os.pread(mark, 16, 0)
        if found == _DONE:
            return "made ahead"
        if not _lock(mark):
            return "being made behind the programs that run"
    finally:
        os.close(mark)
    why = why_not() or ("given up" if found >= b"%d" % TRIES else "")
    return f"not made ahead: {why}" if why else "not made ahead; the next program that makes kernels begins with it"


def start(groups: Sequence[str] = ()) -> bool:
    """Begins it unless it was begun before; gives whether processes were started.  Raises nothing: no program fails for this.

    groups: of which programs, by default of all.
    """
    if why_not():
        return False
    import subprocess
    try:
        mark = cache.beside(_name())
        try:
            if not _lock(mark) or os.pread(mark, 16, 0) >= b"%d" % TRIES:  # "done" too
                return False
        finally:
            os.close(mark)
        # a shell that ends at once, so that they are nobody's children: a program may wait for all of its own
        subprocess.run(["/bin/sh", "-c", '"$@" &', "sh", *python("--behind", *groups)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, start_new_session=True, cwd="/", env=environment(), check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def work(groups: Sequence[str] = ()) -> int:
    """Makes them, in this process's children; gives the exit status.  Does nothing while another process does, and where it was done."""
    lowest()
    mark = cache.beside(_name())
    try:
        found = os.pread(mark, 16, 0)
        if not _lock(mark) or found >= b"%d" % TRIES:
            return 0
        os.pwrite(mark, b"%d" % (int(found or b"0") + 1), 0)
        from . import run
        status = run(list(groups or FIRST), max(1, min(4, _cores() - 1)), behind=True)
        if not status:
            os.pwrite(mark, _DONE, 0)
        return status
    finally:
        os.close(mark)


def done() -> None:
    """Says that they are all made, as `flambeau warm` does."""
    mark = cache.beside(_name())
    os.pwrite(mark, _DONE, 0)
    os.close(mark)


def python(*words: str) -> list[str]:
    """The command of a process of this package: found where this one lies, and without the folder that one stands in, which may hold anything."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    text = "import sys; sys.path.append(sys.argv.pop(1)); from flambeau.warm.__main__ import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-P", "-c", text, here, *words]


def environment() -> dict[str, str]:
    """The variables of such a process: one thread, no GPU, and no setting of the program beside which it runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_") or name in _KEPT}
    return {**kept, "FLAMBEAU_NUM_THREADS": "1", "FLAMBEAU_WARM": "0", "CUDA_VISIBLE_DEVICES": ""}


def lowest() -> None:
    """This process, and those that it starts, get what time nobody else wants, and only so much of it."""
    import contextlib
    import resource
    with contextlib.suppress(OSError):
        os.nice(19)
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_OF_CPU, SECONDS_OF_CPU))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lock(mark: int) -> bool:
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _name() -> str:
    from ..version import __version__
    return cache.key("ahead", __version__, compiler.surroundings())
