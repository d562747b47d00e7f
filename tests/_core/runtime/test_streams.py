"""Streams and events."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.errors import launched_at
from flambeau.cuda import Event, Stream
from flambeau.simulated import clock


@pytest.fixture(params=["eager", "lazy", "random"])
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    with torch.simulate(gpus=2, memory="64MiB", queue=request.param):
        yield request.param


def test_the_current_stream_is_the_threads_own(gpu: str) -> None:
    c = torch.cuda
    assert c.current_stream() == c.default_stream() and c.default_stream().cuda_stream == 0
    s = Stream()
    seen: list[Any] = []
    with c.stream(s):
        assert c.current_stream() is s and c.current_stream(1) == c.default_stream(1)
        t = threading.Thread(target=lambda: seen.append(c.current_stream()))
        t.start()
        t.join()
        with s, c.stream(None):
            assert c.current_stream() is s
    assert seen == [c.default_stream()] and c.current_stream() == c.default_stream()
    far = Stream(device="cuda:1", priority=-1)
    with far:
        assert c.current_device() == 1 and c.current_stream() is far and far.priority == -1
    assert c.current_device() == 0
    c.set_stream(far)
    assert c.current_device() == 1
    c.set_stream(c.default_stream(0))
    assert far != s and len({far, s, far}) == 2 and far.device == torch.device("cuda:1")


def test_work_of_two_streams_with_wait_stream(gpu: str) -> None:
    s = Stream()
    x = torch.zeros(1000, device="cuda")
    for _ in range(20):
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            x = x + 1
        torch.cuda.current_stream().wait_stream(s)
        x = x * 2
    expected = 0.0
    for _ in range(20):
        expected = (expected + 1) * 2
    assert x.tolist() == [expected] * 1000


def test_threads_inside_the_same_stream_leave_to_their_own(gpu: str) -> None:
    s, own = Stream(), [Stream(), Stream()]
    step = threading.Barrier(2)
    left: list[bool] = []

    def work(k: int) -> None:
        with own[k]:
            if k:
                step.wait()
            with s:
                if not k:
                    step.wait()
                step.wait()
                if k:
                    step.wait()
            left.append(torch.cuda.current_stream() is own[k])
            if not k:
                step.wait()
        left.append(torch.cuda.current_stream() == torch.cuda.default_stream())
    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(10)
    assert left == [True] * 4


def test_without_the_wait_a_lazy_queue_is_wrong() -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        x = torch.zeros(8, device="cuda")
        torch.cuda.synchronize()
        x.add_(1)
        with torch.cuda.stream(Stream()):
            assert x.tolist() == [0.0] * 8
        torch.cuda.synchronize()
        assert x.tolist() == [1.0] * 8


def test_streams_made_without_end_are_given_in_turns(gpu: str) -> None:
    before = threading.active_count()
    streams = [Stream() for _ in range(100)]
    assert len(set(streams)) == 32 and streams[0] == streams[32] and streams[0] != torch.cuda.default_stream()
    for s in streams:
        with s:
            torch.ones(10, device="cuda")
    torch.cuda.synchronize()
    assert threading.active_count() <= before + 32
    assert Stream(priority=-1) not in streams


def test_events(gpu: str) -> None:
    e = Event()
    assert e.query() and e.device is None
    e.wait()
    e.synchronize()
    s = Stream()
    with torch.cuda.stream(s):
        x = torch.ones(10, device="cuda") + 1
    assert s.record_event(e) is e
    torch.cuda.current_stream().wait_event(e)
    assert (x + 1).tolist() == [3.0] * 10
    e.synchronize()
    assert e.query() and s.query()
    with pytest.raises(RuntimeError, match="made on cuda:0"):
        e.record(torch.cuda.default_stream(1))
    with pytest.raises(RuntimeError, match="interprocess"):
        Event(interprocess=True)


def test_copies_and_kernels_of_different_streams_overlap() -> None:
    with torch.simulate(gpus=1, memory="1GiB", queue="lazy"):
        x = torch.zeros(64 << 20 >> 2, pin_memory=True)
        there, work = torch.empty_like(x, device="cuda"), torch.zeros(128 << 20 >> 2, device="cuda")
        copies = Stream()

        def kernels() -> None:
            for _ in range(12):
                work.add_(1)

        def up() -> None:
            there.copy_(x, non_blocking=True)

        def down() -> None:
            x.copy_(there, non_blocking=True)

        def seconds(*parts: Any) -> float:
            torch.cuda.synchronize()
            before = clock()
            for stream, part in parts:
                with torch.cuda.stream(stream):
                    part()
            torch.cuda.synchronize()
            return clock() - before
        main = torch.cuda.default_stream()
        one, other = seconds((main, kernels)), seconds((main, up))
        assert one > 4e-4 and other > 4e-4
        assert seconds((main, kernels), (main, up)) > 0.9 * (one + other)
        assert seconds((main, kernels), (copies, up)) < 1.1 * max(one, other)
        assert seconds((main, up), (copies, up)) > 1.9 * other  # one link in each direction
        assert seconds((main, up), (copies, down)) < 1.1 * other


def test_elapsed_time(gpu: str) -> None:
    a, b, plain = Event(enable_timing=True), Event(enable_timing=True), Event()
    with pytest.raises(ValueError, match="enable_timing"):
        a.elapsed_time(plain)
    with pytest.raises(ValueError, match="recorded"):
        a.elapsed_time(b)
    a.record()
    x = torch.ones(1 << 20, device="cuda")
    x + x
    b.record()
    if gpu == "lazy":
        with pytest.raises(RuntimeError, match="completed"):
            a.elapsed_time(b)
    b.synchronize()
    assert 0.001 < a.elapsed_time(b) < 1
    assert a.elapsed_time(a) == 0.0


def test_memory_freed_on_one_stream_is_not_overwritten_by_another(gpu: str) -> None:
    s = Stream()
    kept = []
    for k in range(50):
        x = torch.full((256,), float(k), device="cuda")
        y = x + 1
        del x  # its block goes back while the launch that reads it may still be queued
        with torch.cuda.stream(s):
            torch.full((256,), -1.0, device="cuda")
        kept.append(y)
    assert [y.tolist() for y in kept] == [[k + 1.0] * 256 for k in range(50)]


def test_an_error_in_queued_work_names_its_launch(gpu: str) -> None:
    from flambeau._core.ops import launch

    def fail(address: int) -> None:
        raise OverflowError("too much")
    x = torch.ones(2, device="cuda:0")
    launch.routine("factorise", fail, [x], [])
    with pytest.raises(torch.cuda.AcceleratorError, match="'factorise' failed with OverflowError: too much"):
        torch.cuda.synchronize()
    assert (torch.ones(2, device="cuda") + 1).tolist() == [2.0, 2.0]


def test_streams_of_other_libraries(gpu: str) -> None:
    s = Stream()
    same = torch.cuda.ExternalStream(s.cuda_stream)
    assert same == s and isinstance(same, Stream) and same.cuda_stream == s.cuda_stream and same.device == torch.device("cuda:0")
    assert torch.cuda.ExternalStream(0) == torch.cuda.default_stream()
    assert torch.cuda.ExternalStream(Stream("cuda:1").cuda_stream, device="cuda:1").device_index == 1
    with torch.cuda.stream(same):
        x = torch.ones(100, device="cuda") * 3
        done = same.record_event()
    s.synchronize()
    assert done.query() and x.tolist() == [3.0] * 100
    with pytest.raises(RuntimeError, match="0x5 is no stream of simulated GPU 0"):
        torch.cuda.ExternalStream(5)
    with pytest.raises(RuntimeError, match="is no stream of simulated GPU 1"):
        torch.cuda.ExternalStream(s.cuda_stream, 1)
    with pytest.raises(TypeError, match="stream_ptr must be an int, got str"):
        torch.cuda.ExternalStream("5")
    with pytest.raises(TypeError, match="unexpected keyword argument 'priority'"):
        torch.cuda.ExternalStream(0, priority=1)


def test_errors_name_the_line_that_launched(gpu: str) -> None:
    x, far = torch.arange(10.0, device="cuda"), torch.tensor([3, 12], device="cuda")
    line = inspect.currentframe().f_lineno + 1
    x[far]
    x[far.clamp(max=9)]
    with pytest.raises(torch.AcceleratorError, match=rf"index 12 is out of bounds.*launched at .*test_streams.py:{line}\)"):
        torch.cuda.synchronize()
    weight = torch.ones(4, 2, device="cuda", requires_grad=True)
    line = inspect.currentframe().f_lineno + 1
    torch.nn.functional.embedding(far, weight).sum().backward()
    with pytest.raises(torch.AcceleratorError, match=rf"launched at .*test_streams.py:{line}\)"):
        torch.cuda.synchronize()
    for _ in range(5):  # learned, and replayed
        torch.nn.functional.cross_entropy(torch.zeros(2, 4, device="cuda"), far.clamp(max=3))
    torch.cuda.synchronize()
    line = inspect.currentframe().f_lineno + 1
    torch.nn.functional.cross_entropy(torch.zeros(2, 4, device="cuda"), far)
    with pytest.raises(torch.AcceleratorError, match=rf"Target 12 is out of bounds.*launched at .*test_streams.py:{line}\)"):
        torch.cuda.synchronize()


def test_the_lines_that_a_launch_may_have_come_from() -> None:
    assert launched_at([]) == launched_at([None, ("", 0)]) == ""
    assert launched_at([("a.py", 3), None, ("a.py", 3)]) == " (launched at a.py:3)"
    told = launched_at([("a.py", 3), ("b.py", 4)])
    assert told.startswith(" (launched at one of a.py:3, b.py:4;") and "CUDA_LAUNCH_BLOCKING=1" in told
