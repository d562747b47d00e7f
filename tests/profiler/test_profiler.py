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


def test_steps_of_a_schedule_are_ranges_whatever_else_is_open(tmp_path) -> None:
    """A range of the program around the loop begins in the first step, and ends after the last: neither takes the other's end."""
    with profile(schedule=schedule(wait=0, warmup=0, active=3, repeat=1)) as prof:
        with record_function("epoch"):
            for _ in range(2):
                torch.ones(2) + 1
                prof.step()
            torch.ones(2) * 2
    rows = {e.key: e for e in prof.key_averages()}
    assert rows["ProfilerStep*"].count == 3 and rows["epoch"].count == 1 and rows["aten::add"].count == 2
    steps = [e for e in prof.events() if e.name == "ProfilerStep*"]
    assert [e.trace_name for e in steps] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    epoch = next(e for e in prof.events() if e.name == "epoch")
    assert [e.name for e in epoch.cpu_children if e.name.startswith("aten::")].count("aten::add") >= 1
    assert epoch.time_range.start <= steps[1].time_range.start and steps[1].time_range.end <= epoch.time_range.end
    path = str(tmp_path / "a.json")
    prof.export_chrome_trace(path)
    assert {"ProfilerStep#1", "epoch"} <= {e["name"] for e in json.loads((tmp_path / "a.json").read_text())["traceEvents"]}


def test_events_of_all_cycles_are_kept_where_that_is_asked() -> None:
    for acc, count in ((False, 1), (True, 2)):
        with profile(schedule=schedule(wait=1, warmup=0, active=1, repeat=2), acc_events=acc) as prof:
            for _ in range(5):
                torch.ones(2) + 1
                prof.step()
        assert {e.key: e.count for e in prof.key_averages()}["aten::add"] == count
        assert [e.id for e in prof.events()] == list(range(1, len(prof.events()) + 1))


def test_what_an_event_tells() -> None:
    with profile() as prof, record_function("outer"):
        torch.ones(2) + 1
    outer = prof.events()[0]
    add = next(e for e in prof.events() if e.name == "aten::add")
    assert add.cpu_parent is outer and add in outer.cpu_children and outer.cpu_parent is None
    assert (outer.scope, add.scope, outer.activity_type, add.activity_type) == (7, 0, "user_annotation", "cpu_op")
    for e in (outer, add):
        assert e.time_range.elapsed_us() == pytest.approx(e.cpu_time_total) and 0 <= e.time_range.start < 1e8
        assert e.device_type is torch.profiler.DeviceType.CPU and e.overload_name == "" and e.sequence_nr == -1
    assert outer.time_range.start <= add.time_range.start and add.time_range.end <= outer.time_range.end
    mean = next(e for e in prof.key_averages() if e.key == "outer")
    assert mean.cpu_children == outer.cpu_children and mean.cpu_time_str == outer.cpu_time_total_str and mean.cpu_time_str[-1] == "s"


def test_notes_are_in_the_trace(tmp_path) -> None:
    prof = profile(custom_trace_id_callback=lambda: "mine")
    for call in (prof.events, prof.key_averages, lambda: prof.export_chrome_trace(str(tmp_path / "a.json"))):
        with pytest.raises(AssertionError, match="Profiler must be initialized before"):
            call()
    with prof:
        prof.add_metadata("k", "v")
        prof.add_metadata_json("j", '{"a": [1]}')
        torch.ones(2) + 1
    prof.export_chrome_trace(str(tmp_path / "a.json"))
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["k"], found["j"], found["trace_id"], prof.get_trace_id()) == ("v", {"a": [1]}, "mine", "mine")


def test_words_that_nobody_knows_are_refused() -> None:
    with profile() as prof:
        torch.ones(2) + 1
    with pytest.raises(TypeError):
        prof.key_averages(by_shape=True)
    with pytest.raises(TypeError):
        prof.key_averages().table(sort="count")
    with pytest.raises(AssertionError, match=r"No valid profiler activities found: activities is \['CPU'\]"):
        profile(activities=["CPU"])
    assert ProfilerAction(2) is ProfilerAction.RECORD and int(torch.profiler.ProfilerActivity.CUDA) == 2
    with profile(activities=[{torch.profiler.ProfilerActivity.CPU: ["x"]}]):
        pass


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


def _on_gpu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with record_function("forward"):
        return torch.mm(x.to("cuda"), w.to("cuda")).relu().cpu()


def test_columns_of_simulated_gpus_are_predicted_and_say_so(tmp_path) -> None:
    with torch.simulate(gpus=1, model="A100"):
        x, w = torch.ones(256, 512), torch.ones(512, 256)
        with profile(profile_memory=True, with_flops=True) as prof:
            _on_gpu(x, w)
        rows = {e.key: e for e in prof.key_averages()}
        mm, forward = rows["aten::mm"], rows["forward"]
        assert mm.self_cuda_time_total == mm.self_device_time_total > 0 and mm.cuda_time == mm.cuda_time_total == mm.device_time_total
        assert forward.self_device_time_total == 0
        inner = sum(e.self_device_time_total for e in rows.values())
        assert forward.device_time_total == pytest.approx(inner) and rows["aten::to"].count == 2
        assert mm.flops == 2 * 256 * 512 * 256 and mm.self_cuda_memory_usage == 256 * 256 * 4
        table = prof.key_averages().table(sort_by="self_cuda_time_total")
        assert "Self CUDA time total" in table and "(predicted for NVIDIA A100-SXM4-80GB)" in table
        for head in ("Self CUDA %", "CUDA time avg", "CUDA Mem", "Self CUDA Mem", "Total KFLOPs"):
            assert head in table
        assert [k.name for e in prof.events() if e.name == "aten::mm" for k in e.kernels] == ["matmul_float32"]
        prof.export_chrome_trace(str(tmp_path / "t.json"))
        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        kernels = [e for e in events if e.get("cat") == "kernel"]
        assert {e["pid"] for e in kernels} == {1} and {e["args"]["call"] for e in kernels} >= {"aten::mm", "aten::to", "aten::relu"}
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            _on_gpu(x, w)
        assert "CUDA" not in prof.key_averages().table()


def test_the_times_of_a_gpu_are_those_of_a_trace() -> None:
    with torch.simulate(gpus=1, model="A100"):
        x = torch.ones(512, 512, device="cuda")
        for _ in range(3):
            x @ x
        with profile() as prof:
            for _ in range(4):
                y = x @ x
        with torch.trace() as t:
            for _ in range(4):
                y = x @ x
        assert y.device.type == "cuda"
        traced = sum(s.seconds or 0.0 for s in t.stages) * 1e6
        found = sum(e.self_device_time_total for e in prof.key_averages())
        assert traced - 1e-3 <= found <= traced + 4 * 6  # a launch's way to an idle GPU is within the pair of events


@pytest.mark.parametrize("key", ["cuda", "name", "nothing", "self_cpu_time"])
def test_an_unknown_sort_key_is_refused(key: str) -> None:
    with profile() as prof:
        torch.ones(2) + 1
    for rows in (prof.key_averages(), prof.events(), type(prof.events())()):
        with pytest.raises(AttributeError, match=f"sort_by is '{key}'; accepted are 'cpu_time', "):
            rows.table(sort_by=key)
    with pytest.raises(AssertionError, match="activities is empty"):
        profile(activities=[])


def test_memory_by_time(tmp_path) -> None:
    with torch.simulate(gpus=1), profile(profile_memory=True) as prof:
        a = torch.ones(1 << 18, device="cuda")
        b = a + 1
        del a
        c = torch.ones(1 << 18)
        torch.ones(1)
    assert b.numel() == c.numel()
    with torch.simulate(gpus=1):
        prof.export_memory_timeline(str(tmp_path / "m.json"))
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert len(times) == len(sizes) and times == sorted(times) and {len(row) for row in sizes} == {9}
    assert max(row[8] for row in sizes) == 2 << 20 and sizes[-1][8] == 1 << 20
    prof.export_memory_timeline(str(tmp_path / "m.json.gz"), "cpu")
    with gzip.open(tmp_path / "m.json.gz") as f:
        _, host = json.load(f)
    assert max(row[8] for row in host) - host[0][8] >= 1 << 20
    prof.export_memory_timeline(str(tmp_path / "m.raw.json.gz"), "cuda:0")
    with gzip.open(tmp_path / "m.raw.json.gz") as f:
        changes = json.load(f)
    assert [(action, n) for _, action, n, _ in changes] == [(1, 1 << 20), (1, 1 << 20), (3, 1 << 20)]
    prof.export_memory_timeline(str(tmp_path / "m.html"), "cuda:0")
    page = (tmp_path / "m.html").read_text()
    assert "At most 2.0" in page and "<polygon" in page
    with profile() as plain:
        torch.ones(2)
    with pytest.raises(ValueError, match="profile_memory=True"):
        plain.export_memory_timeline(str(tmp_path / "no.json"), "cpu")
    rows = {e.key: e for e in prof.key_averages()}
    assert rows["aten::ones"].cpu_memory_usage >= 1 << 20 and "CPU Mem" in prof.key_averages().table(sort_by="cpu_memory_usage")


def test_stacks(tmp_path) -> None:
    def inner() -> None:
        torch.ones(300, 300).exp()
    with profile(with_stack=True) as prof:
        inner()
    first = next(e for e in prof.events() if e.name == "aten::exp")
    assert first.stack[0].startswith(__file__) and first.stack[0].endswith(": inner") and first.stack[1].endswith(": test_stacks")
    prof.export_stacks(str(tmp_path / "s.txt"))
    lines = (tmp_path / "s.txt").read_text().splitlines()
    assert any(line.rpartition(" ")[0].split(";")[-1].endswith("inner") for line in lines)
    assert all(int(line.rpartition(" ")[2]) > 0 for line in lines)
    by_line = prof.key_averages(group_by_stack_n=1)
    assert all(len(e.stack) == 1 for e in by_line) and "Source Location" in by_line.table()
    with pytest.raises(ValueError, match="metric is 'count'"):
        prof.export_stacks(str(tmp_path / "s.txt"), "count")


def test_the_older_profiler_tells_the_calls_as_a_list_and_as_text():
    from flambeau import autograd
    x = torch.randn(10, 10)

    @autograd.profiler.record_function("mine")
    def run(x):
        return x * 2 + 4
    assert not autograd._profiler_enabled()
    with autograd.profiler.profile(record_shapes=True) as p:
        assert autograd._profiler_enabled()
        run(x)
    assert not autograd._profiler_enabled()
    names = [e.name for e in p.function_events]
    assert [n for n in names if n in ("mine", "aten::mul", "aten::add")] == ["mine", "aten::mul", "aten::add"]
    assert str(p) == p.table() and "mine" in str(p) and p.self_cpu_time_total > 0 and p.total_average().count == len(names)
    assert p.table(header="HEAD", row_limit=1, top_level_events_only=True).startswith("HEAD")
    with autograd.profiler.profile(enabled=False) as p:
        run(x)
    assert not p.function_events


def test_older_names_of_the_profilers() -> None:
    from flambeau.autograd import profiler
    assert torch.profiler.DeviceType.CUDA.value == 1 and torch.profiler.DeviceType["PrivateUse1"].value == 20
    with pytest.raises(NotImplementedError, match="ITT"):
        profiler.emit_itt()
    with profiler.emit_itt(enabled=False):
        pass
    with pytest.raises(NotImplementedError, match="nvprof"):
        profiler.load_nvprof("trace")
    keys = profiler.EnforceUnique()
    keys.see(1, 2)
    keys.see(1)
    with pytest.raises(RuntimeError, match=r"duplicate key: \(1, 2\)"):
        keys.see(1, 2)


def test_steps_that_several_count_are_counted_once() -> None:
    steps = torch.autograd.profiler.KinetoStepTracker
    start = steps.current_step()
    steps.init_step_count("a")
    steps.init_step_count("b")
    assert [steps.increment_step(who) - start for who in "abab"] == [1, 1, 2, 2]
    assert steps.erase_step_count("a") and not steps.erase_step_count("a") and steps.erase_step_count("b")
    assert steps.increment_step("c") == steps.current_step() == start + 3 and steps.erase_step_count("c")
