"""What Perfetto's own trace processor reads of a file, beside what our reader of the format does.

`make perfetto` installs its package and runs these.  The processor is a program that the package fetches from the network when it is first used,
so where neither is on the machine they are skipped: no test fetches anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch

from .trace_events import Read

processor = pytest.importorskip("perfetto.trace_processor", reason="the package perfetto is not installed: make perfetto")


def program() -> str | None:
    """The processor, if it is on this machine: on the path, or where the package has put what it fetched."""
    kept = sorted(Path.home().glob(".local/share/perfetto/prebuilts/trace_processor_shell*"))
    return shutil.which("trace_processor_shell") or shutil.which("trace_processor") or next((str(p) for p in kept if p.suffix != ".tmp"), None)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Any, Read]]:
    """A training step on two GPUs, as the processor has it and as we read it."""
    found = program()
    if found is None:
        pytest.skip("Perfetto's trace processor is not on this machine, and only its package may fetch it: make perfetto")
    with torch.simulate(gpus=2, model="A100"):
        with torch.trace("A step") as t:
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to("cuda:0")
            loss = model(torch.randn(6, 8).to("cuda:0")).square().mean()
            loss.backward()
            loss.to("cuda:1").item()
        path = t.save(tmp_path / "trace.json")
    with processor.TraceProcessor(trace=path, config=processor.TraceProcessorConfig(bin_path=found)) as tp:
        yield tp, Read(path)


def test_it_reads_every_slice_in_its_thread_and_reports_no_error(opened: tuple[Any, Read]) -> None:
    tp, read = opened
    assert [(r.name, r.value) for r in tp.query("select name, value from stats where severity = 'error' and value > 0")] == []
    found = sorted((r.process, r.thread, r.name) for r in tp.query(
        "select process.name as process, thread.name as thread, slice.name as name from slice join thread_track on slice.track_id = thread_track.id "
        "join thread using (utid) join process using (upid)"))
    assert found == sorted((s["process"], read.threads[s["pid"], s["tid"]], s["name"]) for s in read.slices)
    parents = sorted(r.name for r in tp.query("select parent.name as name from slice join slice as parent on slice.parent_id = parent.id"))
    assert parents == sorted(s["parent"]["name"] for s in read.slices if s["parent"])


def test_it_reads_every_arrow_between_its_slices(opened: tuple[Any, Read]) -> None:
    tp, read = opened
    found = sorted((r.a, r.b) for r in tp.query(
        "select a.name as a, b.name as b from flow join slice as a on flow.slice_out = a.id join slice as b on flow.slice_in = b.id"))
    assert found == sorted((a["name"], b["name"]) for _, a, b in read.arrows) and found


def test_it_reads_the_memory_of_every_device(opened: tuple[Any, Read]) -> None:
    tp, read = opened
    found = {r.process: (r.n, r.most) for r in tp.query(
        "select process.name as process, count(*) as n, max(counter.value) as most from counter join process_counter_track as track "
        "on counter.track_id = track.id join process using (upid) group by process.name")}
    assert found == {process: (len(points), max(v for _, v in points)) for (process, _), points in read.counters.items()} and len(found) == 3
