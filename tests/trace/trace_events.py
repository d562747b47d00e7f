"""A reader of trace events by the rules of the format's description: what a viewer makes of a file.

Perfetto's own trace processor is a program that its Python package fetches when it is first used: tests must run without a network, so
they read the file by themselves (`make perfetto` asks the processor too).  Events are taken in the order of their moments, those of one
moment in the order of the file.  A slice lies in the one that is open on its thread; it must end within it.  An arrow begins and ends at the
innermost slice that is open on its thread, and its end must not come before its beginning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ROUNDED = 2e-4  # microseconds: both ends of a slice are rounded


class Read:
    """`slices`, each with its `parent` (or None); `arrows` as (category, slice, slice); `counters` as {(process, name): [(moment, value)]}."""

    def __init__(self, path: str | Path) -> None:
        self.slices: list[dict[str, Any]] = []
        self.arrows: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.counters: dict[tuple[str, str], list[tuple[float, float]]] = {}
        events = json.loads(Path(path).read_text("utf-8"))["traceEvents"]
        self.processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        open_: dict[tuple[int, int], list[dict[str, Any]]] = {}
        begun: dict[int, tuple[str, dict[str, Any]]] = {}
        for e in sorted((e for e in events if e["ph"] != "M"), key=lambda e: e["ts"]):
            track, process = (e["pid"], e["tid"]), self.processes[e["pid"]]
            stack = open_.setdefault(track, [])
            if e["ph"] == "C":
                values = list(e["args"].values())
                assert len(values) == 1 and isinstance(values[0], (int, float))
                self.counters.setdefault((process, e["name"]), []).append((e["ts"], values[0]))
            elif e["ph"] == "X":
                assert track in self.threads, e
                while stack and stack[-1]["ts"] + stack[-1]["dur"] <= e["ts"] + _ROUNDED:
                    stack.pop()
                assert not stack or e["ts"] + e["dur"] <= stack[-1]["ts"] + stack[-1]["dur"] + _ROUNDED, (e, stack[-1])
                stack.append({**e, "parent": stack[-1] if stack else None, "process": process})
                self.slices.append(stack[-1])
            elif e["ph"] == "s":
                assert stack and e["id"] not in begun, e
                begun[e["id"]] = e["cat"], stack[-1]
            else:
                assert e["ph"] == "f" and e["bp"] == "e" and stack, e
                category, source = begun.pop(e["id"])
                self.arrows.append((category, source, stack[-1]))
        assert not begun, "arrows without an end"
