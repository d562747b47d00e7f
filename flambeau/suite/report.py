"""What a session found, in words."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from .._core.runtime.findings import _reason, size

_MOST = 20  # lines of a kind


@dataclass
class Findings:
    """mixed: by test, the error.  waits_missed: tests that pass when work is done in the program's order.  waits: "line, device, reason" by
    lines, and how often in which tests.  leaks: by test, [device, bytes] of what is still held.  absent: what Flambeau has not, and which tests
    asked for it."""

    mixed: dict[str, str] = field(default_factory=dict)
    waits_missed: list[str] = field(default_factory=list)
    waits: dict[str, dict[str, int]] = field(default_factory=dict)
    leaks: dict[str, list[list[Any]]] = field(default_factory=dict)
    absent: dict[str, list[str]] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def add(self, told: dict[str, Any]) -> None:
        """Takes what another process found along."""
        self.mixed.update(told["mixed"])
        self.waits_missed += told["waits_missed"]
        self.leaks.update(told["leaks"])
        for why, tests in told["absent"].items():
            mine = self.absent.setdefault(why, [])
            mine += [t for t in tests if t not in mine]
        for key, times in told["waits"].items():
            counts = self.waits.setdefault(key, {})
            for test, n in times.items():
                counts[test] = counts.get(test, 0) + n


def lines(found: Findings) -> list[str]:
    """The findings, a heading for each kind that there is."""
    out: list[str] = []
    out += _section("mixed devices", [f"{test}: {error}" for test, error in found.mixed.items()])
    out += _section("missed a wait: fails in this order of queues, passes when each piece of work is done at once", found.waits_missed)
    often = sorted(((sum(tests.values()), key, tests) for key, tests in found.waits.items()), key=lambda x: -x[0])
    hidden = []
    for times, key, tests in often:
        line, device, reason = key.split("\n")
        if times >= 2:
            many = f"{len(tests)} tests, {next(iter(tests))} the first" if len(tests) > 1 else next(iter(tests))
            hidden.append(f"{_short(line)}: {_reason(reason)} waits for {device} {times} times, in {many}")
    out += _section("hid a synchronisation", hidden)
    out += _section("leaked device memory: still held when the last fixture was gone",
                    [f"{test}: {', '.join(_held(held))}" for test, held in found.leaks.items()])
    out += _section("used what Flambeau has not: skipped",
                    [f"{why}: {_count(len(tests), 'test')}, {tests[0]}{' the first' if len(tests) > 1 else ''}"
                     for why, tests in found.absent.items()])
    return out or ["no test mixed devices, missed a wait, hid a synchronisation, leaked device memory or used what Flambeau has not"]


def _short(line: str) -> str:
    """A line's path as it is seen from here."""
    here = os.getcwd() + os.sep
    return line.removeprefix(here)


def _held(held: list[list[Any]]) -> list[str]:
    devices = dict.fromkeys(d for d, _ in held)
    return [f"{size(sum(n for d, n in held if d == device))} on {device} in {_count(sum(d == device for d, _ in held), 'tensor')}" for device in devices]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _section(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = [f"  and {len(entries) - _MOST} more"] if len(entries) > _MOST else []
    return [f"{title} ({len(entries)})", *[f"  {e}" for e in entries[:_MOST]], *more]
