"""The command `flambeau run script.py args...`."""

from __future__ import annotations

import contextlib
import linecache
import os
import runpy
import sys
import types
from typing import Any, NamedTuple

from .._core.drivers.collectives import parent
from . import importer
from .missing import explain
from .tracebacks import TEXTS


class Program(NamedTuple):
    """What is run: a file (or with `module` a module) by its name, "-" for the text on stdin; or `code`, the text itself."""

    name: str
    module: bool = False
    code: str | None = None

    def why_not(self) -> str:
        """Why it cannot be run; "" where it can be looked for."""
        if self.code is not None or self.module or self.name == "-" or os.path.isfile(self.name):
            return ""
        return f"there is no file {self.name!r}"

    @property
    def folder(self) -> str:
        """Where its imports are looked for first."""
        return os.getcwd() if self.module or self.code is not None or self.name == "-" else os.path.dirname(os.path.abspath(self.name))

    def run(self) -> None:
        """As `__main__`."""
        if self.code is not None or self.name == "-":
            _run_text(self.code if self.code is not None else sys.stdin.read(), TEXTS[self.code is None])
        elif self.module:
            runpy.run_module(importer.target(self.name), run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(self.name, run_name="__main__")


def _run_text(text: str, name: str) -> None:
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # so that tracebacks show its lines
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)  # this file's __future__ is not the script's
    finally:
        sys.modules["__main__"] = before


def simulate(gpus: int | None, model: str | None, memory: str | None, queue: str | None, network: str | None = None, node: int | None = None) -> str:
    """Puts what GPUs a script is to see into the environment, where its children find it too; gives what is wrong with that, or "".

    A model, a memory, a queue, a network or a machine's size without a number is of one GPU.
    """
    chosen = {"MODEL": model, "MEMORY": memory, "QUEUE": queue, "NETWORK": network, "NODE": None if node is None else str(node)}
    if gpus is None and any(v is not None for v in chosen.values()):
        gpus = 1
    if gpus is None:
        return ""
    if gpus == 0:
        os.environ.pop("FLAMBEAU_SIM_GPUS", None)
        return ""
    from .._core.drivers.simulated.models import model as known
    from .._core.drivers.simulated.models import network as joined
    from .._core.drivers.simulated.queues import MODES
    from .._core.runtime.gpus import parse_size
    try:
        if model is not None:
            known(model)
        if memory is not None:
            parse_size(memory)
        if network is not None:
            joined(network)
        if queue is not None and queue not in MODES:
            raise ValueError(f"queue: expected one of {', '.join(map(repr, MODES))}, got {queue!r}")
    except ValueError as error:
        return f"--{'sim-' * (not str(error).startswith('queue'))}{error}"
    os.environ["FLAMBEAU_SIM_GPUS"] = str(gpus)
    os.environ.update({f"FLAMBEAU_SIM_{name}": value for name, value in chosen.items() if value is not None})
    return ""


def run_many(program: Program, arguments: list[str], *, nproc: int, nnodes: int = 1, node_rank: int = 0, endpoint: str | None = None,
             max_restarts: int = 0, report: str | None = None, ledger: bool = False) -> int:
    """Runs a program as `nproc` processes on this host, which find each other by `torch.distributed`; see `distributed.agent.run`.

    report: each rank writes a page of its own, `page-rank0.html` and so on, and those of a host are joined on one, `page.html`, or with several hosts
    `page-node0.html` and so on.  The others as of `run`.
    """
    from ..distributed import agent
    report, wrong = _page(report)
    if wrong or program.why_not():
        print(f"flambeau run: {wrong or program.why_not()}", file=sys.stderr)
        return 2
    if program.name == "-" and program.code is None:
        program = Program("-c", code=sys.stdin.read())  # each rank needs the text
    what = ["-c", program.code] if program.code is not None else [*(["-m"] if program.module else []), program.name]
    command = [sys.executable, "-m", "flambeau", "run", *(["--report", report] if report is not None else []), *(["--ledger"] if ledger else []),
               *what, *arguments]
    ranks = range(node_rank * nproc, (node_rank + 1) * nproc)
    if report is not None:
        from ..trace import ranks as traced
        for r in ranks:  # of a run before
            with contextlib.suppress(FileNotFoundError):
                os.unlink(traced.part_path(report, r))
    status = agent.run(command, nproc=nproc, nnodes=nnodes, node_rank=node_rank, endpoint=endpoint, max_restarts=max_restarts)
    if report is not None:
        to = report if nnodes == 1 else traced.node_path(report, node_rank)
        missing = traced.join(report, ranks, to)
        without = f", without {', '.join(f'rank {r}' for r in missing)}, of which nothing came" if missing else ""
        if len(missing) < nproc:
            print(f"flambeau run: the page of all ranks is {os.path.abspath(to)}{without}", file=sys.stderr)
    return status


def _page(report: str | None) -> tuple[str | None, str]:
    """Where the page goes, also when the program changes its folder, and why it cannot: told before the program works for hours."""
    if report is None:
        return None, ""
    from ..trace.save import why_not
    wrong = why_not(report)
    return os.path.abspath(report), f"--report: {wrong}" if wrong else ""


def tell_of_slow_compilation() -> None:
    """A line on stderr once making kernels has taken this process over a second: why the first run is slow, and that the next is not."""
    from .._core.kernels import cache

    def tell(count: int, seconds: float) -> None:
        why = cache.why_not()
        kept = f"they are not kept: {why}" if why else f"they are kept in {cache.folder()}, so the next run starts sooner (see `flambeau warm`)"
        print(f"flambeau run: compiling kernels, {count} in {seconds:.1f} s so far; {kept}", file=sys.stderr)
    cache.on_slow = tell


def run(program: Program, arguments: list[str], *, report: str | None = None, ledger: bool = False) -> int:
    """Runs a program as `__main__`; returns its exit status.

    report: where to write the page of what ran; where it could not be written the status is 2, and nothing runs.  ledger: print what moved between
    devices at the end.  What the program raises is raised here.
    """
    report, wrong = _page(report)
    if wrong or program.why_not():
        print(f"flambeau run: {wrong or program.why_not()}", file=sys.stderr)
        return 2
    if "FLAMBEAU_AGENT" in os.environ:
        from ..distributed.agent import die_with_agent
        die_with_agent()
    parent.begin()
    own = report
    if "FLAMBEAU_AGENT" in os.environ and report is not None:
        from ..trace import ranks
        own = ranks.rank_path(report, int(os.environ["RANK"]))
    before, status = (sys.argv, sys.path[:]), 0
    importer.install()
    sys.argv = [program.name, *arguments]
    sys.path[0] = program.folder
    with contextlib.ExitStack() as watching:
        if ledger:
            from .._core.runtime.ledger import transfers
            watching.enter_context(transfers(title=f"transfers of {os.path.basename(program.name)}"))
        traced: Any = None
        if own is not None:
            import flambeau
            traced = watching.enter_context(flambeau.trace(os.path.basename(program.name)))
        try:
            program.run()
            if own != report:
                from ..distributed import world
                world.settle()  # when collectives began is known once they are done
        except Exception as error:
            more = explain(error)
            if more:
                error.add_note(more)
            raise
        finally:
            sys.argv, sys.path[:] = before
            if traced is not None and own is not None and report is not None:
                traced.close()  # its findings are made when it ends
                try:
                    traced.save(own)
                    print(f"flambeau run: the page is {own}", file=sys.stderr)
                    if own != report:
                        ranks.write_part(traced, report, int(os.environ["RANK"]))
                except OSError as error:  # nothing that hides what the program raised
                    print(f"flambeau run: the page is not written: {error}", file=sys.stderr)
                    status = 1
    return status
