"""What a trace notes: the smallest example to the letter, then every kind of stage, on every device and queue."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.simulated.reached import COPY, KERNEL, LAUNCH
from flambeau._core.runtime import dispatch
from flambeau.trace import Trace

A = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
B = [[11.0, 12.0, 13.0], [14.0, 15.0, 16.0], [17.0, 18.0, 19.0]]
PAGEABLE = 36 / 8e9


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_the_smallest_example_is_four_stages(queue: str) -> None:
    with torch.simulate(gpus=1, model="H200", queue=queue):
        with torch.trace() as t:
            x = torch.tensor(A)
            y = x.to("cuda:0")
            z = y + 10
            back = z.cpu()
        assert back.tolist() == B
        assert [s.call for s in t.stages] == ["tensor", "to('cuda:0')", "add(10)", "cpu"]
        assert [s.name for s in t.stages] == ["tensor", "to", "add", "cpu"]
        assert [s.device for s in t.stages] == ["cpu", "cpu -> cuda:0", "cuda:0", "cuda:0 -> cpu"]
        assert [s.samples[0].nested() for s in t.stages] == [A, A, B, B]
        on = ["cpu", "cuda:0", "cuda:0", "cpu"]
        assert [s.outputs for s in t.stages] == [[((3, 3), "float32", d)] for d in on]
        assert [s.inputs for s in t.stages] == [[]] + [[((3, 3), "float32", d)] for d in on[:-1]]
        assert [s.nbytes for s in t.stages] == [36, 36, 72, 36] and [s.moved for s in t.stages] == [0, 36, 0, 36]
        assert [s.predicted for s in t.stages] == [False, True, True, True]
        assert t.stages[0].seconds == t.stages[0].host > 0
        assert [s.seconds for s in t.stages[1:]] == [pytest.approx(v, abs=1e-12) for v in (COPY + PAGEABLE, KERNEL, COPY + PAGEABLE)]
        lines = [s.line for s in t.stages]
        assert all(line is not None and line.startswith(__file__) for line in lines)
        numbers = [int(line.rpartition(":")[2]) for line in lines if line]
        assert numbers == list(range(numbers[0], numbers[0] + 4))
        assert [w.direction for w in t.transfers()] == ["h2d", "d2h"]


def test_the_timeline_of_the_smallest_example_follows_the_clock() -> None:
    with torch.simulate(gpus=1, model="H200"):
        with torch.trace() as t:
            y = torch.tensor(A).to("cuda:0")
            (y + 10).cpu()
        make, up, add, down = t.stages
        assert make.end - make.start == pytest.approx(make.host, rel=1e-6)  # measured CPU work moves the clock
        near = lambda v: pytest.approx(v, abs=1e-12)  # noqa: E731
        first, kernel, last = up.works[0], add.works[0], down.works[0]
        assert first.start == near(up.start + LAUNCH) and first.end == near(up.start + LAUNCH + COPY + PAGEABLE) and up.end == near(first.end)
        assert kernel.start == near(add.start + LAUNCH) and kernel.end == near(add.start + LAUNCH + KERNEL)
        assert add.end == near(add.start + LAUNCH)  # the host goes on
        assert last.start == near(down.start + LAUNCH) and down.end == near(last.end)


def test_nothing_is_left_behind_and_nothing_is_seen_outside() -> None:
    before = torch.Tensor.__add__, torch.add, dispatch._launch_observers, dispatch._copy_observers
    with torch.trace() as t:
        torch.ones(2)
    assert before == (torch.Tensor.__add__, torch.add, dispatch._launch_observers, dispatch._copy_observers)
    torch.ones(2)
    assert len(t.stages) == 1
    with pytest.raises(RuntimeError, match="has been used"), t:
        pass


def test_the_block_ends_when_the_program_raises() -> None:
    call = torch.add
    with pytest.raises(RuntimeError), torch.trace() as t:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert torch.add is call
    assert [s.name for s in t.stages] == ["ones", "ones", "matmul"]
    assert t.stages[2].error.startswith("RuntimeError: ")


def test_views_and_questions_are_no_stages() -> None:
    x = torch.arange(12.0)
    with torch.trace() as t:
        y = x.reshape(3, 4).T[1]
        assert y.shape == (3,) and y.is_contiguous() is False and x.sum is not None
        y.contiguous()
    assert [s.name for s in t.stages] == ["contiguous"]
    assert t.stages[0].samples[0].values == [1, 5, 9] and t.stages[0].inputs == [((3,), "float32", "cpu")]


def test_reading_a_value_from_a_gpu_is_a_transfer_and_from_the_cpu_nothing(device: str) -> None:
    x = torch.tensor([0.25, 1.5], device=device)
    with torch.trace() as t:
        assert x[1].item() == 1.5 and bool(x[0] > 0) and x.tolist() == [0.25, 1.5]
        assert "1.5" in repr(x)
    names = [s.name for s in t.stages if s.moved]
    assert names == ([] if device == "cpu" else ["item", "bool", "tolist", "print"])
    if device != "cpu":
        assert next(s for s in t.stages if s.name == "item").result == "1.5"


def test_in_place_functions_methods_and_modules_are_seen(device: str) -> None:
    x = torch.ones(2, 2, device=device)
    with torch.trace() as t:
        x += 1
        x.mul_(3)
        y = torch.relu(x)
        z = torch.nn.functional.softmax(y, dim=-1)
        torch.nn.Flatten()(z)
    assert [s.name for s in t.stages] == ["add_", "mul_", "relu", "softmax"]
    assert [s.samples[0].values for s in t.stages] == [[2.0] * 4, [6.0] * 4, [6.0] * 4, [0.5] * 4]
    assert all(s.device == device for s in t.stages)


def test_values_are_those_of_the_moment(device: str) -> None:
    """What was shown is not changed by later writes, nor by memory that is used again."""
    with torch.trace() as t:
        x = torch.zeros(4, device=device)
        for _ in range(5):
            x += 1
        for k in range(5):
            torch.full((1000,), float(k), device=device)
    assert [s.samples[0].values for s in t.stages[:6]] == [[float(k)] * 4 for k in range(6)]
    assert [s.samples[0].values for s in t.stages[6:]] == [[float(k)] * 8 for k in range(5)]


def test_an_asynchronous_copy_to_pinned_memory_shows_what_arrives() -> None:
    with torch.simulate(gpus=1, queue="lazy"):
        x = torch.arange(6.0, device="cuda:0")
        host = torch.zeros(6).pin_memory()
        with torch.trace() as t:
            host.copy_(x, non_blocking=True)
        stage = next(s for s in t.stages if s.moved)
        assert stage.samples[0].values == [0, 1, 2, 3, 4, 5]
        assert stage.works[0].path == "pinned" and stage.works[0].blocking is False


def test_streams_have_lanes_and_overlap() -> None:
    with torch.simulate(gpus=2, model="A100"):
        x = torch.ones(1 << 20, device="cuda:0")
        host = torch.ones(1 << 20).pin_memory()
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.trace() as t:
            with torch.cuda.stream(side):
                host.to("cuda:0", non_blocking=True)
            x * 2
            x.to("cuda:1")
        up, work, peer = t.stages
        assert up.works[0].lane == ("cuda:0", side.stream_id) and up.works[0].engine == "copy in"
        assert work.works[0].lane == ("cuda:0", 0) and work.works[0].engine == "compute"
        a, b = up.works[0], work.works[0]
        assert a.start is not None and b.start is not None and a.end is not None and b.end is not None
        assert a.start < b.start < b.end < a.end
        assert peer.device == "cuda:0 -> cuda:1" and peer.works[0].direction == "peer" and peer.moved == 4 << 20


def test_a_training_step_has_groups() -> None:
    with torch.simulate(gpus=1):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("cuda:0")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(5, 4, device="cuda:0")
        with torch.trace() as t:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        groups = [s.groups for s in t.stages]
        assert groups[0] == ("Sequential", "Linear") and ("Sequential", "ReLU") in groups
        assert ("backward",) in groups and ("SGD.step",) in groups
        names = [g.name for g in t.groups]
        assert names == ["Sequential", "Linear", "ReLU", "Linear", "backward", "SGD.step"]
        outer, inner = t.groups[0], t.groups[1]
        assert outer.start <= inner.start <= inner.end <= outer.end
        assert all(s.predicted for s in t.stages if s.works)


def test_results_do_not_change_under_a_trace(device: str) -> None:
    def learn() -> list[float]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(12, 3)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        x, y = torch.randn(16, 6, device=device), torch.randint(0, 3, (16,), device=device)
        losses = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    plain = learn()
    with torch.trace() as t:
        traced = learn()
    assert traced == plain and len(t.stages) > 100


def test_the_virtual_clock_is_only_moved_by_cpu_work() -> None:
    from flambeau import simulated

    def work() -> float:
        with torch.simulate(gpus=1, model="L4"):
            x = torch.ones(1 << 16, device="cuda:0")
            torch.cuda.synchronize()
            begun = simulated.clock()
            for _ in range(10):
                x = x * 1.5
            x.sum()
            torch.cuda.synchronize()
            return simulated.clock() - begun
    plain = work()
    with torch.trace():
        assert work() == pytest.approx(plain, rel=1e-9)


def test_threads_are_kept_apart() -> None:
    begun = threading.Barrier(4)  # one that has ended would give its lane away

    def work() -> None:
        x = torch.ones(3)
        begun.wait(60)
        for _ in range(20):
            x = x + 1
    with torch.trace() as t:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    by = {n: [s for s in t.stages if s.thread == n] for n in {s.thread for s in t.stages}}
    assert len(by) == 4
    for stages in by.values():
        assert [s.name for s in stages] == ["ones"] + ["add"] * 20
        assert [s.samples[0].values[0] for s in stages if s.samples[0].values] == [float(k) for k in range(1, 22)]
    assert sorted(s.index for s in t.stages) == list(range(1, 85))


def test_traces_nest_and_the_limit_counts() -> None:
    with torch.trace() as outer:
        torch.ones(2)
        with torch.trace(limit=2) as inner:
            for _ in range(5):
                torch.zeros(3)
    assert len(outer.stages) == 6 and len(inner.stages) == 2 and inner.dropped == 3


def test_gpus_that_come_and_go_inside() -> None:
    with torch.trace() as t:
        torch.ones(2)
        with torch.simulate(gpus=1, model="T4"):
            torch.ones(2, device="cuda:0")
        torch.ones(2)
        with torch.simulate(gpus=1, model="L4"):
            torch.ones(2, device="cuda:0").cpu()
    assert [s.device for s in t.stages] == ["cpu", "cuda:0", "cpu", "cuda:0", "cuda:0 -> cpu"]
    assert [s.predicted for s in t.stages] == [False, True, False, True, True]
    starts = [s.start for s in t.stages]
    assert starts == sorted(starts)


def test_a_failed_device_shows_no_made_up_values() -> None:
    with torch.simulate(gpus=1, queue="lazy"):
        x = torch.ones(4, device="cuda:0")
        torch.cuda.synchronize()
        from flambeau._core.ops import launch

        def fail(address: int) -> None:
            raise ValueError("planted")
        with torch.trace() as t:
            launch.routine("planted", fail, [x], [])
            y = x + 1
        with pytest.raises(torch.AcceleratorError, match="planted"):
            torch.cuda.synchronize()
        assert t.stages[-1].name == "add" and t.stages[-1].samples[0].values is None
        del y


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_values_of_every_type(device: str, dtype: str) -> None:
    wanted: Any = [[True, False], [True, True]] if dtype == "bool" else [[1, 0], [2, 3]]
    with torch.trace() as t:
        torch.tensor(wanted, dtype=getattr(torch, dtype), device=device)
    found = t.stages[-1].samples[0]
    assert found.nested() == wanted and found.dtype == dtype


def test_values_of_strided_zero_dim_empty_and_special_tensors(device: str) -> None:
    x = torch.arange(24.0, device=device).reshape(4, 6)
    big = torch.arange(1 << 18, device=device).reshape(2, 1 << 17)
    with torch.trace() as t:
        x.T.clone()
        torch.zeros(0, 3, device=device)
        torch.tensor(float("nan"), device=device)
        torch.tensor([float("inf"), -0.0], device=device)
        big.T.clone()
        torch.empty(3, device=device)
    kept = [s.samples[0].values if s.samples else None for s in t.stages]
    assert kept[0] == np.arange(24.0).reshape(4, 6).T.reshape(-1).tolist()
    assert kept[1] == [] and np.isnan(kept[2]).all() and kept[3] == [float("inf"), 0.0]
    assert kept[4] == [0, 1 << 17, 1, (1 << 17) + 1, 2, (1 << 17) + 2, 3, (1 << 17) + 3]
    assert kept[5] is None  # nothing is in it yet


def test_without_values_none_are_kept() -> None:
    with torch.trace(values=False) as t:
        torch.ones(3)
    assert t.stages[0].samples == [] and t.stages[0].outputs == [((3,), "float32", "cpu")]


def test_importing_the_package_does_not_import_the_trace() -> None:
    code = ("import sys, flambeau\nassert not any(m.startswith(('flambeau.trace', 'rich')) for m in sys.modules)\n"
            "assert flambeau.trace(flambeau.eye(3)).item() == 3 and 'flambeau.trace.record' not in sys.modules\n"
            "with flambeau.trace() as t: flambeau.ones(2)\nassert len(t.stages) == 1 and flambeau.trace(flambeau.eye(2)).item() == 2")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_name_is_also_pytorchs_function() -> None:
    x = torch.arange(9.0).reshape(3, 3)
    assert torch.trace(x).item() == 12.0 and torch.trace(input=x).item() == 12.0
    assert isinstance(torch.trace(), Trace) and torch.trace("a page").title == "a page"
    with pytest.raises(TypeError):
        torch.trace(3)


def test_a_trace_of_nothing_is_a_few_calls() -> None:
    """Entering and leaving costs as little as the other modes do: 20 us on the machine where calls were counted."""
    for _ in range(3):
        with torch.trace():
            pass
    calls: list[str] = []

    def note(frame: Any, event: str, what: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)
    sys.setprofile(note)
    try:
        with torch.trace():
            pass
    finally:
        sys.setprofile(None)
    assert len(calls) <= 60, calls
