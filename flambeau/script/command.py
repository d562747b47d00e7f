"""The command `flambeau run script.py args...`."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from typing import Any

from . import importer
from .missing import explain


def short_tracebacks() -> None:
    """Has an error that ends this process shown from the script's own first line on: how it was started tells nobody anything."""
    before, ours = sys.excepthook, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

    def shown(kind: Any, value: Any, trace: Any) -> None:
        own = trace
        while own is not None and own.tb_frame.f_code.co_filename.startswith((ours, "<frozen runpy>", "<frozen importlib")):
            own = own.tb_next
        if own is not None or isinstance(value, SyntaxError):  # which shows its place by itself
            value, trace = value.with_traceback(own), own
        before(kind, value, trace)
    sys.excepthook = shown


def run_many(script: str, arguments: list[str], *, nproc: int, nnodes: int = 1, node_rank: int = 0, endpoint: str | None = None, max_restarts: int = 0,
             module: bool = False, sim_gpus: int | None = None, report: str | None = None, ledger: bool = False) -> int:
    """Runs a script as `nproc` processes on this host, which find each other by `torch.distributed`; see `distributed.agent.run`.

    report: each rank writes a page of its own, `page-rank0.html` and so on.  The others as of `run`.
    """
    from ..distributed import agent
    if not module and not os.path.isfile(script):
        print(f"flambeau run: there is no file {script!r}", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "flambeau", "run", *(["--sim-gpus", str(sim_gpus)] if sim_gpus is not None else []), *(["-m"] if module else []),
               *(["--report", report] if report is not None else []), *(["--ledger"] if ledger else []), script, *arguments]
    return agent.run(command, nproc=nproc, nnodes=nnodes, node_rank=node_rank, endpoint=endpoint, max_restarts=max_restarts)


def run(script: str, arguments: list[str], *, module: bool = False, sim_gpus: int | None = None, report: str | None = None,
        ledger: bool = False) -> int:
    """Runs a script (or, with `module`, a module by its name) as `__main__`; returns its exit status.

    sim_gpus: how many simulated GPUs it sees.  report: where to write the page of what ran.  ledger: print what moved
    between devices at the end.  What the script raises is raised here.
    """
    if not module and not os.path.isfile(script):
        print(f"flambeau run: there is no file {script!r}", file=sys.stderr)
        return 2
    if sim_gpus is not None:
        os.environ["FLAMBEAU_SIM_GPUS"] = str(sim_gpus)
        if sim_gpus == 0:
            del os.environ["FLAMBEAU_SIM_GPUS"]
    if "FLAMBEAU_AGENT" in os.environ:
        from ..distributed.agent import die_with_agent
        die_with_agent()
        if report is not None:
            stem, ending = os.path.splitext(report)
            report = f"{stem}-rank{os.environ['RANK']}{ending}"
    before = sys.argv, sys.path[:]
    importer.install()
    sys.argv = [script, *arguments]
    sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(script))
    with contextlib.ExitStack() as watching:
        if ledger:
            from .._core.runtime.ledger import transfers
            watching.enter_context(transfers(title=f"transfers of {os.path.basename(script)}"))
        traced: Any = None
        if report is not None:
            import flambeau
            traced = watching.enter_context(flambeau.trace())
        try:
            if module:
                runpy.run_module(importer.target(script), run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
        except Exception as error:
            more = explain(error)
            if more:
                error.add_note(more)
            raise
        finally:
            sys.argv, sys.path[:] = before
            if traced is not None and report is not None:
                traced.close()  # its findings are made when it ends
                traced.save(report)
                print(f"flambeau run: the page is {os.path.abspath(report)}", file=sys.stderr)
    return 0
