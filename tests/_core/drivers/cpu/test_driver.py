"""The CPU answers the interface that GPUs answer."""

from __future__ import annotations

import ctypes

import pytest

import flambeau as torch
from flambeau._core.drivers.cpu.driver import CPU, CpuDriver
from flambeau._core.drivers.interface import Driver
from flambeau._core.dtypes import float32, int64
from flambeau._core.kernels.specs import Check, Product, Put, Sort, Spread
from flambeau._core.runtime import dispatch


def test_every_verb_of_the_interface_is_there() -> None:
    assert isinstance(CPU, Driver) and not CpuDriver.__abstractmethods__
    assert CPU.near and not CPU.simulated and CPU.device_count() == 1
    known = CPU.properties(0)
    assert known.total_memory > 0 and known.multi_processor_count >= 1 and not known.simulated
    free, total = CPU.memory_info(0)
    assert 0 <= free <= total
    with pytest.raises(RuntimeError, match="one CPU device"):
        CPU.enable_peer(0, 1)


def test_memory_and_copies() -> None:
    a, b = CPU.alloc(0, 4096), CPU.host_alloc(4096)
    assert a and b and a % 512 == 0
    ctypes.memset(a, 7, 4096)
    CPU.memcpy(CPU.stream_create(0), b, a, 4096)
    assert ctypes.string_at(b, 4096) == b"\x07" * 4096
    CPU.free(0, a)
    CPU.host_free(b)
    with pytest.raises(ValueError, match="not the start"):
        CPU.free(0, a)
    assert CPU.alloc(0, 1 << 60) == 0


def test_work_is_done_when_it_is_asked_for() -> None:
    stream, start, end = CPU.stream_create(0), CPU.event_create(True), CPU.event_create(True)
    CPU.event_record(start, stream)
    a, b, c = torch.ones(2, 3), torch.ones(3, 2), torch.empty(2, 2)
    made = CPU.prepare(0, Product(float32, 2, 2, 3, (3, 1, 0), (2, 1, 0), (2, 1, 0)))
    assert made is not None and CPU.direct(0, made, stream) is made.entry
    CPU.launch(stream, made, (c.data_ptr(), a.data_ptr(), b.data_ptr()))
    assert c.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    CPU.event_record(end, stream)
    CPU.stream_wait_event(stream, end)
    CPU.event_synchronize(end)
    CPU.stream_synchronize(stream)
    CPU.synchronize(0)
    assert CPU.stream_query(stream) and CPU.event_query(end) and CPU.event_elapsed(start, end) >= 0


def test_what_it_serves() -> None:
    assert CPU.serves(Sort) and CPU.serves(Product) and CPU.serves(Spread) and not CPU.serves(Put)
    cpu, put = torch.device("cpu"), Put(float32, (3,), 3, ((1,), (1,), (1,)))
    assert dispatch.find(cpu, put) is None
    with pytest.raises(NotImplementedError, match="Put"):
        dispatch.require(cpu, put)


def test_a_check_raises_with_the_position() -> None:
    at = torch.tensor([1, 5, -100])
    for spared, text in ((None, "-100"), (-100, "5")):
        made = CPU.prepare(0, Check((3,), (1,), 0, 3, spared, "found {} there", KeyError))
        assert made is not None
        with pytest.raises(KeyError, match=text):
            made.entry(at.data_ptr())
    assert at.dtype is int64
    made = CPU.prepare(0, Check((3,), (1,), -100, 6, None, ""))
    assert made is not None and made.entry(at.data_ptr()) is None
