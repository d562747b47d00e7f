"""PyTorch's own tools read our snapshots of GPU memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import flambeau

pytest.importorskip("torch")


def test_pytorchs_viewer_opens_a_snapshot(tmp_path: Path) -> None:
    import pickle

    from torch.cuda import _memory_viz
    with flambeau.simulate(gpus=1, model="A100"):
        flambeau.cuda.memory._record_memory_history()
        kept = flambeau.ones(1 << 18, device="cuda")
        gone = kept + 1
        del gone
        flambeau.cuda.memory._dump_snapshot(str(tmp_path / "s.pickle"))
    with open(tmp_path / "s.pickle", "rb") as f:
        data = pickle.load(f)
    told = _memory_viz.trace(data)
    assert "cudaMalloc(" in told and "del " in told and told.count("1.0MiB") >= 3
    assert "1.0MiB" in _memory_viz.segsum(data) and Path(__file__).name in _memory_viz.memory(data, lambda lines: lines)
    for page in (_memory_viz.trace_plot(data), _memory_viz.segment_plot(data)):
        assert page.lstrip().startswith("<!DOCTYPE html>") and len(page) > 1000
