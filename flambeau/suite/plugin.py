"""What pytest does otherwise with `--flambeau`: tests run on Flambeau, and the end of the session says what they did to devices."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ..script import importer
from . import beside, missing, outcomes, report
from .watch import Watch, in_order


def begin(config: Any, options: Any) -> None:
    """Makes `torch` mean Flambeau, with simulated GPUs, and watches the session.  Raises pytest.UsageError where the real torch was imported
    already."""
    settings = {"GPUS": options.sim_gpus, "MODEL": options.sim_model, "MEMORY": options.sim_memory, "QUEUE": options.sim_queue,
                "SEED": options.sim_seed}
    for name, value in settings.items():
        if value is not None:
            os.environ[f"FLAMBEAU_SIM_{name}"] = str(value)
    try:
        importer.install()
    except RuntimeError as error:
        raise pytest.UsageError(f"--flambeau: {error}. A plugin that pytest loads imports it: leave that out with -p no:NAME") from None
    config.pluginmanager.register(Suite(options), "flambeau-suite")


class Suite:
    """The hooks of one session."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.watch = Watch()
        self.found = report.Findings()
        self.outcomes: dict[str, list[Any]] = outcomes.outcomes
        self._ledger: Any = None
        if options.sim_ledger:
            from .._core.runtime.ledger import transfers
            self._ledger = transfers(show=False, title="transfers of the suite")
            self._ledger.__enter__()

    def pytest_report_header(self) -> str:
        """A line on what `torch` is."""
        o = self.options
        order = f", seed {o.sim_seed}" if o.sim_queue == "random" else ""
        return f"flambeau: torch is Flambeau ({importer.VERSION}); {o.sim_gpus} simulated {o.sim_model}, queue {o.sim_queue}{order}"

    # -------------------------------------------------------------------------------------------------------------- collecting
    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, Any]:
        """A file that cannot be imported for want of something of PyTorch's is skipped, by that name."""
        made = yield
        call = getattr(made, "call", None)
        error = getattr(getattr(call, "excinfo", None), "value", None)
        why = missing.wanted(error) if made.failed and error is not None else None
        if why is not None:
            made.outcome = "skipped"
            made.longrepr = (str(collector.path), 0, f"Skipped: not in Flambeau: {why}")
            self.found.absent.setdefault(why, []).append(made.nodeid)
        return made

    def pytest_collection_finish(self, session: Any) -> None:
        """The tests are known."""
        self.watch.own_files = {str(item.path) for item in session.items}
        self.watch.settle()

    def pytest_collectreport(self, report: Any) -> None:
        """A file was collected, or was not."""
        outcomes.pytest_collectreport(report)

    # ----------------------------------------------------------------------------------------------------------------- running
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        """Where the order of queues is not the usual one, a test that fails is run again with each piece of work done at once."""
        if self.options.sim_queue == "eager":
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self.watch.begin(item.nodeid)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if any(r.failed for r in reports) and self._passes_in_order(item, nextitem):
            self.found.waits_missed.append(item.nodeid)
        self.watch.end()
        for r in reports:
            item.ihook.pytest_runtest_logreport(report=r)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @staticmethod
    def _passes_in_order(item: Any, nextitem: Any) -> bool:
        if hasattr(item, "_initrequest"):
            item._initrequest()
        with in_order():
            return not any(r.failed for r in runtestprotocol(item, log=False, nextitem=nextitem))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        if self.options.sim_queue == "eager":
            self.watch.begin(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """It is over."""
        if self.options.sim_queue == "eager":
            self.watch.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, Any]:
        """A test that fails for want of something of PyTorch's is skipped, by that name; one that mixes devices is noted."""
        made = yield
        if made.failed and call.excinfo is not None:
            why, mixed = missing.wanted(call.excinfo.value), missing.mixes_devices(call.excinfo.value)
            if why is not None:
                made.outcome = "skipped"
                made.longrepr = (str(item.path), (item.location[1] or 0) + 1, f"Skipped: not in Flambeau: {why}")
                if item.nodeid not in self.found.absent.setdefault(why, []):
                    self.found.absent[why].append(item.nodeid)
            elif mixed is not None:
                self.found.mixed[item.nodeid] = mixed
        return made

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of a test is done."""
        outcomes.note(report)

    # -------------------------------------------------------------------------------------------------------------- the end
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        """The last fixture is gone: what is still held is leaked."""
        # beside what processes of pytest-xdist have told already
        self.found.leaks.update({test: [list(b) for b in held] for test, held in self.watch.leaks().items()})
        self.found.waits.update({"\n".join(key): tests for key, tests in self.watch.waits.items()})
        self.watch.close()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["flambeau"] = self.found.data()
        if self._ledger is not None:
            self._ledger.__exit__(None, None, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """A process of pytest-xdist has ended, and tells what it found."""
        told = getattr(node, "workeroutput", {}).get("flambeau")
        if told is not None:
            self.found.add(told)

    def pytest_terminal_summary(self, terminalreporter: Any, config: Any) -> None:
        """What was found, what moved, and the table of both libraries."""
        o = self.options
        terminalreporter.section(f"flambeau: {o.sim_gpus} simulated {o.sim_model}, queue {o.sim_queue}"
                                 + (f", seed {o.sim_seed}" if o.sim_queue == "random" else ""))
        for line in report.lines(self.found):
            terminalreporter.write_line(line)
        if self._ledger is not None:
            self._ledger.print()
        if o.flambeau_beside is not None:
            terminalreporter.section("the same suite with PyTorch")
            try:
                theirs = beside.run(o.flambeau_beside, config.invocation_params.args, str(config.invocation_params.dir))
            except (OSError, RuntimeError) as error:
                terminalreporter.write_line(f"--beside: {error}")
                return
            for line in beside.table(self.outcomes, theirs):
                terminalreporter.write_line(line)
