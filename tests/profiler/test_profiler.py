"""What a profiler sees of a small program, its tables, its traces, its schedules; names for annotations and results."""

from __future__ import annotations

import gzip
import json

import pytest

import flambeau as torch
from flambeau.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def _work() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    with record_function("forward"):
        y = torch.relu(torch.mm(x, x)).sum()
    y.backward()


def test_operations_and_ranges_are_seen() -> None:
    _work()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
        _work()
    names = [e.name for e in prof.events()]
    assert {"forward", "aten::mm", "aten::relu", "aten::sum"} <= set(names)
    by_name = {e.key: e for e in prof.key_averages()}
    assert by_name["aten::mm"].count >= 1 and by_name["forward"].cpu_time_total >= by_name["aten::relu"].cpu_time_total
    assert by_name["forward"].self_cpu_time_total < by_name["forward"].cpu_time_total
    mm = next(e for e in prof.events() if e.name == "aten::mm")
    assert mm.input_shapes == [[8, 8], [8, 8]]
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    assert "Self CPU time total" in table and "forward" in table and len(table.splitlines()) == 5 + 5
    assert prof.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total").count("[[8, 8]") >= 1
    with record_function("outside"):
        torch.relu(torch.ones(2))
    assert "outside" not in [e.name for e in prof.events()]


def test_traces(tmp_path) -> None:
    with profile() as prof:
        _work()
    prof.export_chrome_trace(str(tmp_path / "a.json"))
    found = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert any(e["name"] == "aten::mm" and e["dur"] > 0 for e in found)
    prof.export_chrome_trace(str(tmp_path / "a.json.gz"))
    with gzip.open(tmp_path / "a.json.gz") as f:
        assert json.load(f)["traceEvents"] == found


def test_schedules() -> None:
    act = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
    assert [act(i).name for i in range(7)] == ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE"]
    assert act(3) is ProfilerAction.RECORD
    ready = []
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda p: ready.append(len(p.events()))) as prof:
        for _ in range(9):
            torch.mm(torch.ones(2, 2), torch.ones(2, 2))
            prof.step()
    assert len(ready) == 2 and all(n >= 4 for n in ready)
    with pytest.raises(AssertionError):
        schedule(wait=0, warmup=0, active=0)


def test_the_older_names() -> None:
    from flambeau.autograd import profiler
    with profiler.profile(use_cuda=False, record_shapes=True) as prof, profiler.record_function("mine"):
        torch.ones(3).exp()
    assert "mine" in {e.key for e in prof.key_averages()} and "aten::exp" in prof.key_averages().table()


def test_a_decorated_function() -> None:
    @record_function("named")
    def f(x):
        return x + 1
    with profile() as prof:
        assert float(f(torch.tensor(1.0))) == 2.0
    assert "named" in {e.name for e in prof.events()}


def test_types_and_results() -> None:
    assert isinstance(3.0, torch.types.Number) and torch.types._dtype is torch.dtype and torch.types._size is not None
    assert isinstance(torch.max(torch.ones(2, 2), 0), torch.return_types.max)
    assert isinstance(torch.sort(torch.ones(2)), torch.return_types.sort)
    assert torch.return_types.topk._fields == ("values", "indices")
    with pytest.raises(AttributeError):
        _ = torch.return_types.nothing
