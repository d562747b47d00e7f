"""A pytest plugin that writes the outcome of each test to a file. It stands alone: a copy of it goes to interpreters without Flambeau."""

from __future__ import annotations

import json
import os
from typing import Any

outcomes: dict[str, list[Any]] = {}  # node id: [outcome, seconds, why]


def note(report: Any) -> None:
    """Enters a report of a test's setup, call or teardown, or of a file that could not be collected."""
    nodeid = report.nodeid
    before = outcomes.get(nodeid)
    seconds = (before[1] if before else 0.0) + getattr(report, "duration", 0.0)
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = str(getattr(crash, "message", None) or report.longrepr).strip().splitlines()
        outcomes[nodeid] = ["failed" if getattr(report, "when", None) == "call" else "error", seconds, text[0] if text else ""]
    elif report.skipped:
        kind = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        outcomes[nodeid] = [kind, seconds, why]
    elif getattr(report, "when", None) is not None:
        if before is None or before[0] == "passed":
            outcomes[nodeid] = ["passed", seconds, ""]
        else:
            before[1] = seconds


def pytest_runtest_logreport(report: Any) -> None:
    """A part of a test is done."""
    note(report)


def pytest_collectreport(report: Any) -> None:
    """A file was collected, or was not."""
    if report.failed or (report.skipped and "::" not in report.nodeid):
        note(report)


def pytest_sessionfinish() -> None:
    """Writes the file."""
    target = os.environ.get("FLAMBEAU_OUTCOMES")
    if target:
        with open(target, "w", encoding="utf-8") as file:
            json.dump(outcomes, file)
