"""Snapshots of GPU memory: segments and blocks that add up to the allocator's figures, a history with the program's lines."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import cuda


@pytest.fixture
def gpus() -> Iterator[None]:
    with torch.simulate(gpus=2, model="A100", memory="64MiB"):
        yield


def _line(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["frames"][0]["filename"], entry["frames"][0]["name"]


def test_segments_hold_what_the_allocator_says(gpus: None) -> None:
    small, large = torch.ones(300, device="cuda"), torch.ones(3 << 20, dtype=torch.uint8, device="cuda:1")
    gone = torch.ones(1 << 18, device="cuda")
    del gone
    segments = cuda.memory_snapshot()
    assert sum(s["total_size"] for s in segments) == sum(cuda.memory_reserved(i) for i in (0, 1))
    for s in segments:
        assert sum(b["size"] for b in s["blocks"]) == s["total_size"]
        assert s["allocated_size"] == sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated")
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at
            at += b["size"]
    living = {b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    assert living == {small.data_ptr(), large.data_ptr()}
    assert {(s["device"], s["segment_type"]) for s in segments} == {(0, "small"), (1, "large")}


def test_the_history_tells_lines(gpus: None) -> None:
    before = torch.ones(4, device="cuda")
    cuda.memory._record_memory_history()
    x = torch.ones(1000, device="cuda")
    y = x + 1
    del x
    z = torch.ones(5, device="cuda:1")
    s = cuda.memory._snapshot()
    allocs = [e for e in s["device_traces"][0] if e["action"] == "alloc"]
    assert [e["size"] for e in allocs] == [4000, 4000] and {_line(e) for e in allocs} == {(__file__, "test_the_history_tells_lines")}
    assert [e["action"] for e in s["device_traces"][0] if e["action"].startswith("free")] == ["free_requested", "free_completed"]
    assert [e["size"] for e in s["device_traces"][1] if e["action"] == "alloc"] == [20] and z.numel() == 5
    assert [e["action"] for e in s["device_traces"][1]][0] == "segment_alloc" and s["device_traces"][1][-1]["action"] == "snapshot"
    blocks = {b["address"]: b for seg in s["segments"] for b in seg["blocks"]}
    assert blocks[y.data_ptr()]["requested_size"] == 4000 and _line(blocks[y.data_ptr()])[0] == __file__
    assert blocks[before.data_ptr()]["frames"] == []
    cuda.memory._record_memory_history(enabled=None)
    told = len(cuda.memory._snapshot()["device_traces"][0])
    w = torch.ones(1000, device="cuda")
    del w, y
    assert len(cuda.memory._snapshot()["device_traces"][0]) == told
    cuda.memory._record_memory_history(None, clear_history=True)
    assert cuda.memory._snapshot()["device_traces"] == [[], []]


def test_what_is_recorded_is_chosen(gpus: None) -> None:
    cuda.memory._record_memory_history("all", context="state", max_entries=3, skip_actions=["free_requested"])
    for _ in range(5):
        x = torch.ones(1000, device="cuda")
        del x
    trace = cuda.memory._snapshot()["device_traces"][0]
    assert len(trace) == 3 and all(e["frames"] == [] for e in trace) and "free_requested" not in {e["action"] for e in trace}
    cuda.memory._record_memory_history("state", clear_history=True)
    y = torch.ones(1000, device="cuda")
    s = cuda.memory._snapshot()
    assert s["device_traces"][0] == [] and [b["requested_size"] for seg in s["segments"] for b in seg["blocks"] if b["frames"]] == [4000]
    assert y.numel() == 1000
    cuda.memory._record_memory_history(True, clear_history=True)
    with pytest.raises(cuda.OutOfMemoryError):
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    error = next(e for e in cuda.memory._snapshot()["device_traces"][0] if e["action"] == "oom")
    assert error["size"] == 1 << 30 and error["device_free"] <= 64 << 20 and _line(error)[0] == __file__
    for wrong in ({"enabled": "some"}, {"context": "none"}, {"skip_actions": ["sleep"]}):
        with pytest.raises(RuntimeError, match="accepted are"):
            cuda.memory._record_memory_history(**wrong)


def test_a_snapshot_is_a_file(gpus: None, tmp_path: Path) -> None:
    x = torch.ones(1000, device="cuda")
    cuda.memory._dump_snapshot(str(tmp_path / "s.pickle"))
    with open(tmp_path / "s.pickle", "rb") as f:
        found = pickle.load(f)
    assert set(found) == {"segments", "device_traces", "allocator_settings", "external_annotations"} and x.numel()
    assert [s["total_size"] for s in found["segments"]] == [2 << 20]
