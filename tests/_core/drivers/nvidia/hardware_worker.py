"""What a worker of `hardware` adds to pytest: it tells which tests there are, then runs those it is told to, one at a time.

A test is over when the GPU has done its work, so that a fault of it is not another's.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any

import pytest

pytest_plugins = ["tests._core.drivers.nvidia.gpu_kernels"]
_commands, _reports = (int(n) for n in os.environ["HARDWARE_PIPES"].split(","))
_phases: list[pytest.TestReport] = []
_unread: list[str] = []  # files that could not be collected, and why
faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=False)


def _tell(**message: Any) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(_reports, data):]


def _told() -> Any:
    """The tests to run, by name, as they are asked for."""
    with open(_commands, encoding="utf-8", closefd=False) as lines:
        while line := lines.readline():
            yield line.rstrip("\n")


def _about() -> dict[str, str]:
    """What is tested, without beginning to use it."""
    from flambeau._core.drivers.nvidia import probe
    found = probe.look()
    if not found.count:
        return {"none": found.why or "there is no GPU"}
    return {"device": f"{found.count} GPUs, driver of CUDA {probe.text(found.version)}, cuda-bindings {probe.bindings_version()}",
            "python": sys.version.split()[0]}


def _finished() -> tuple[str, str]:
    """Waits for the GPUs; what went wrong there, and what has ended one of them."""
    from flambeau._core.runtime import gpus
    system = gpus._system
    driver: Any = None if system is None else system.driver
    if driver is None or driver.simulated or driver._gone:
        return "", ""
    wrong = ""
    for d in driver._devices:
        if d.context is not None and not d.state.first:
            try:
                driver.synchronize(d.index)
            except Exception as error:
                wrong = wrong or str(error)
    return wrong, next((f"GPU {d.index}: {d.state.first}" for d in driver._devices if d.state.first), "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _unread.append(f"{report.nodeid}: {_cause(report)}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _phases.append(report)


def _cause(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The first line of a failure."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        lines = [line for line in crash.message.splitlines() if line.strip()]
        if len(lines) == 1 and len(lines[0]) < 40:  # an assertion without words: what it asserts
            lines += [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith(">")][-1:]
        return " ".join(lines[:2])[:400] + f" ({os.path.basename(crash.path)}:{crash.lineno})"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return next(iter(text.strip().splitlines()[-1:]), "no words")[:400]


def _one(item: pytest.Item) -> bool:
    """Runs a test and tells; False where the GPU can be used no more."""
    del _phases[:]
    since = time.monotonic()
    item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    wrong, ended = _finished()
    outcome, cause, text = "passed", "", ""
    for report in _phases:
        if report.failed:
            outcome, cause, text = "failed", cause or _cause(report), text + report.longreprtext
        elif report.skipped and outcome == "passed":
            outcome, cause = "skipped", _cause(report)
    if wrong and outcome != "failed":
        outcome, cause = "failed", f"after the test: {wrong}"
    if ended:
        outcome, cause = "died", ended
    _tell(outcome=outcome, seconds=round(time.monotonic() - since, 3), cause=cause, text=text[-12000:])
    return not ended


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    items = {item.nodeid: item for item in session.items}
    about = _about()
    if _unread:
        about["unread"] = "; ".join(_unread)[:2000]
    known = [] if "none" in about else list(items)
    _tell(tests=known, alone=[n for n in known if items[n].get_closest_marker("alone")], about=about)
    for name in _told():
        if not _one(items[name]):
            sys.stdout.flush()
            os._exit(3)  # what exit would call could wait for the GPU
    return True
