"""What a trace says in short, held against traces whose times and bytes are written down here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.trace import Stage, Trace, Work, answer


def stage(t: Trace, name: str, line: str, start: float, end: float, *works: tuple[str, str, float, float], waits: tuple[tuple[str, float, float], ...] = (),
          moved: int = 0) -> Stage:
    s = Stage(name, name, line, 0, (), start)
    s.end, s.index, s.host = end, len(t.stages) + 1, end - start
    for kind, lane, a, b in works:
        w = Work(kind, name, (lane, 0), moved)
        w.start, w.end = a, b
        if lane != "cpu":
            w.predicted = True
        if moved:
            w.source, w.target = "cpu", lane
        s.works.append(w)
    s.waits = list(waits)
    t.stages.append(s)
    return s


@pytest.fixture
def known() -> Trace:
    t = torch.trace("known")
    t.devices["cuda:0"] = "A, simulated"
    stage(t, "to", "a.py:1", 0.0, 1.0, ("copy", "cuda:0", 0.0, 1.0), waits=(("cuda:0", 0.5, 1.0),), moved=64)
    stage(t, "mul", "a.py:2", 1.0, 1.5, ("kernel", "cuda:0", 1.25, 5.0))
    stage(t, "mul", "a.py:2", 1.5, 2.0, ("kernel", "cuda:0", 5.0, 6.0))
    stage(t, "item", "a.py:3", 4.0, 8.0, ("copy", "cuda:0", 7.0, 8.0), waits=(("cuda:0", 4.0, 8.0),))
    return t


def test_each_device_s_time_adds_up(known: Trace) -> None:
    cpu, gpu = answer.busy(known)
    assert answer.extent(known) == 8.0
    assert (cpu.device, cpu.working, cpu.moving, cpu.waiting, cpu.idle) == ("cpu", 1.5, 0.0, 4.5, 2.0)
    assert cpu.waits == [(4.0, "a.py:3", "cuda:0"), (0.5, "a.py:1", "cuda:0")] and cpu.predicted
    assert (gpu.device, gpu.working, gpu.moving, gpu.waiting, gpu.idle) == ("cuda:0", 4.75, 2.0, 0.0, 1.25) and gpu.predicted
    assert all(b.working + b.moving + b.waiting + b.idle == 8.0 for b in (cpu, gpu))


def test_costs_by_line_and_by_operation(known: Trace) -> None:
    rows = answer.costs(known, lambda s: s.line or "")
    assert [(c.name, c.calls, c.seconds, c.waited, c.moved) for c in rows] == [
        ("a.py:2", 2, 4.75, 0.0, 0), ("a.py:3", 1, 1.0, 4.0, 0), ("a.py:1", 1, 1.0, 0.5, 64)]
    assert sum(c.share for c in rows) == pytest.approx(1.0) and rows[0].stage is known.stages[1]
    assert [c.name for c in answer.costs(known, lambda s: s.name)] == ["mul", "item", "to"]


def test_a_sum_of_which_a_part_is_predicted_is_told_as_predicted(known: Trace, tmp_path: Path) -> None:
    measured = stage(known, "mul", "b.py:1", 8.0, 108.0)  # the costliest
    row = answer.costs(known, lambda s: s.name)[0]
    assert row.name == "mul" and row.stage is measured and row.seconds == 104.75 and row.predicted and not measured.predicted
    page = Path(known.save(tmp_path / "a.html")).read_text("utf-8")
    assert re.search(r'data-find="mul">mul</button></td><td class="num">3</td><td class="num">~105 s</td>', page)
    assert re.search(r'<code>b.py:1</code></button></td><td class="num">1</td><td class="num">100 s</td>', page)


def test_peaks_name_the_lines_that_held_the_memory() -> None:
    with torch.simulate(gpus=1, model="A100"):
        with torch.trace() as t:
            a = torch.ones(1 << 16, device="cuda")
            b = torch.zeros(1 << 14, device="cuda")
            c = a * 2
            del c
            torch.ones(10)
        peak = {p.device: p for p in answer.peaks(t)}
        assert b.numel() and peak["cuda:0"].nbytes == torch.cuda.max_memory_allocated()
        lines = {s.name: s.line for s in t.stages}
        assert sorted(peak["cuda:0"].holders) == sorted([(1 << 18, 1, lines["mul"]), (1 << 18, 1, t.stages[0].line), (1 << 16, 1, lines["zeros"])])
        assert peak["cpu"].nbytes == 40
        moments = [m for m, _ in peak["cuda:0"].curve]
        assert moments == sorted(moments) and max(n for _, n in peak["cuda:0"].curve) == peak["cuda:0"].nbytes


def test_an_empty_trace_has_an_empty_answer() -> None:
    with torch.trace() as t:
        pass
    assert answer.extent(t) == 0 and answer.costs(t, lambda s: s.name) == [] and answer.peaks(t) == []
    assert [b.device for b in answer.busy(t)] == ["cpu"]


FIRST = """
import time
import flambeau as torch
with torch.trace() as t:
    begun = time.perf_counter()
    x = torch.empty(40, 3)
    y = (x.zero_() + 1.5).exp().sum(1).softmax(0)
    took = time.perf_counter() - begun
assert 0 < t.making < took, (t.making, took)
assert all((s.seconds or 0.0) >= 0 for s in t.stages)
worked = sum(s.host for s in t.stages)
assert worked + t.making <= took, (worked, t.making, took)
t.save("page.html")
with torch.trace():  # which binds what comes again
    y = (torch.empty(40, 3).zero_() + 1.5).exp().sum(1).softmax(0)
with torch.trace() as again:
    y = (torch.empty(40, 3).zero_() + 1.5).exp().sum(1).softmax(0)
assert again.making == 0
again.save("again.html")
"""


def test_the_making_of_kernels_is_no_lines_cost(tmp_path: Path) -> None:
    """On a machine that has none: they are made once, and the page says for how long."""
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("FLAMBEAU_KERNELS", None)
    done = subprocess.run([sys.executable, "-c", FIRST], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "First calls were prepared for" in (tmp_path / "page.html").read_text()
    assert "First calls were prepared for" not in (tmp_path / "again.html").read_text()


WARM = """
import time
import flambeau as torch
with torch.trace() as t:
    torch.empty(16, 3, 3, 3)
    begun, made = time.perf_counter(), t.making
    torch.empty(16, 3, 3, 3)  # which binds: a first call loads nothing
    took = time.perf_counter() - begun
_, second = t.stages
assert second.host + t.making - made <= took
print(second.host / took)
"""


def test_the_loading_of_kernels_is_no_lines_cost_either() -> None:
    """On a machine that has them: what the first plan that is bound loads is not what `empty` costs."""
    share = [float(subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, timeout=120, check=True).stdout) for _ in range(3)]
    assert min(share[1:]) < 0.2, share


def test_what_fails_takes_its_time_on_the_clock() -> None:
    with torch.simulate(gpus=1, model="A100", memory="1GiB"):
        with torch.trace() as t:
            with pytest.raises(torch.cuda.OutOfMemoryError):
                torch.empty(1 << 30, device="cuda")
        failed, = t.stages
        assert failed.error and failed.host > 0 and failed.end - failed.start == pytest.approx(failed.host)
        assert answer.extent(t) == pytest.approx(failed.host)
