"""The virtual clock: prices of every model, and timelines worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau as torch
from flambeau import simulated
from flambeau._core import dtypes
from flambeau._core.drivers.simulated import clock
from flambeau._core.drivers.simulated.clock import Engine
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.drivers.simulated.models import MODELS, Model, Network, network
from flambeau._core.drivers.simulated.reached import COPY, KERNEL, LAUNCH
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.programs import Map, PreparedLaunch

MB = 10**6


def near(seconds: float) -> Any:
    return pytest.approx(seconds, rel=1e-9, abs=1e-12)


def of(dtype: Any) -> Map:
    return Map((E.input(0, dtype) + E.input(0, dtype),), (dtype,))


# -------------------------------------------------------------------------------------------------------------- prices
# What reaches so much of the data sheet's figure on an H100 (`reached`): moving bytes, sums of bytes, products, links up and down and from GPU to GPU.
MOVED, SUMMED, PRODUCTS, UP, DOWN, PEER = 2.97 / 3.35, 3.18 / 3.35, 0.830, 51 / 63, 52 / 63, 376 / 450
BAR = UP * 63e9, DOWN * 63e9, PEER * 450e9  # bytes a second of an H200's links
# by data sheet, name: bytes that take 1 ms; operations that take 1 ms in float32, float64, float64 products, half products
PER_MILLISECOND = {
    "T4": (320e6, 8.1e9, 0.253e9, 0.253e9, 65e9), "A100": (2039e6, 19.5e9, 9.7e9, 19.5e9, 312e9),
    "RTX 4090": (1008e6, 82.6e9, 1.29e9, 1.29e9, 165.2e9), "L4": (300e6, 30.3e9, 0.473e9, 0.473e9, 121e9),
    "H100": (3350e6, 67e9, 34e9, 67e9, 989.5e9), "H200": (4800e6, 67e9, 34e9, 67e9, 989.5e9),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_millisecond_of_each_kind_of_work(name: str) -> None:
    sheet, single, double, double_products, half = (round(x) for x in PER_MILLISECOND[name])
    nbytes, product = sheet * MOVED, single * PRODUCTS
    m = MODELS[name]

    def price(name: str, **what: Any) -> float:
        return clock.kernel_seconds(m, PreparedLaunch(name, print, **what))
    assert price("map", nbytes=nbytes, program=of(dtypes.float32)) == near(1e-3)
    assert price("map", flops=single, program=of(dtypes.float32)) == near(1e-3)
    assert price("map", flops=single, program=of(dtypes.bfloat16)) == near(1e-3)  # halves are computed in float32
    assert price("map", flops=double, program=of(dtypes.float64)) == near(1e-3)
    assert price("matmul_float32", flops=product) == near(1e-3)
    assert price("matmul_float64", flops=double_products * PRODUCTS) == near(1e-3)
    assert price("matmul_float16", flops=half * PRODUCTS) == near(1e-3)
    assert price("matmul_bfloat16", flops=half * PRODUCTS if name != "T4" else product) == near(1e-3)  # Turing has no bfloat16
    assert price("map", nbytes=2 * nbytes, flops=single, program=of(dtypes.float32)) == near(2e-3)  # the longer of both
    assert price("map", nbytes=8, flops=1, program=of(dtypes.float32)) == KERNEL


@pytest.mark.parametrize("name,link", [("T4", 15.75), ("A100", 31.5), ("L4", 31.5), ("RTX 4090", 31.5), ("H100", 63), ("H200", 63)])
def test_copies_go_at_the_rate_of_their_path(name: str, link: float) -> None:
    m = MODELS[name]
    n = 10**9
    for path in ("h2d", "d2h"):
        assert clock.copy_seconds(m, path, n, True) == near(COPY + 1 / (link * (UP if path == "h2d" else DOWN)))
        assert clock.copy_seconds(m, path, n, False) == near(COPY + 1 / 8)
    assert clock.copy_seconds(m, "host", n, True, m) == near(2 * COPY + 1 / (link * UP) + 1 / (link * DOWN))
    assert clock.copy_seconds(m, "peer", n, True, m) == near(COPY + 1 / (m.nvlink * PEER or link * UP))
    assert clock.copy_seconds(m, "peer", n, True, MODELS["H100"]) == near(COPY + 1 / (min(m.nvlink, 450) * PEER or link * UP))


# ------------------------------------------------------------------------------------------------------------- engines
def test_an_engine_gives_the_first_gap_that_fits() -> None:
    e = Engine("compute")
    for ready, busy, start in ((0, 4, 0), (10, 5, 10), (0, 6, 4), (0, 1, 15), (30, 2, 30), (14, 3, 16), (0, 11, 19)):
        assert e.gap(ready, busy) == start
        e.take(start, busy)
    assert e.gap(0, 0.5) == 32


def test_an_engine_never_does_two_things_at_once() -> None:
    rng = random.Random(3)
    e = Engine("compute")
    taken: list[tuple[float, float]] = []
    now = 0.0
    for _ in range(3000):
        now += rng.random() * 2
        ready, busy = now + rng.random() * 30, rng.random() * 2
        start = e.gap(ready, busy)
        assert start >= ready
        e.take(start, busy)
        taken.append((start, start + busy))
    taken.sort()
    assert all(a[1] <= b[0] + 1e-9 for a, b in zip(taken, taken[1:], strict=False))


class Bench:
    """A driver whose queue is watched: `rows` are (stream number, engine, start, end) in microseconds."""

    def __init__(self, gpus: int = 1, name: str = "H200") -> None:
        self.d = SimulatedDriver([name] * gpus, 256 << 20, "lazy")
        self.streams: list[Any] = []
        self.rows: list[tuple[int, str, float, float]] = []
        self.d.watch(lambda stream, item, engine, start, end: self.rows.append(
            (self.streams.index(stream), engine, round(start * 1e6, 3), round(end * 1e6, 3))))

    def stream(self, device: int = 0) -> Any:
        self.streams.append(self.d.stream_create(device))
        return self.streams[-1]

    def kernel(self, stream: Any, micros: float) -> None:
        self.d.launch(stream, PreparedLaunch("work", lambda: None, nbytes=round(micros * 4800 * MOVED * 1e3)), ())

    def mark(self, stream: Any) -> Any:
        e = self.d.event_create(True)
        self.d.event_record(e, stream)
        return e


def test_a_stream_runs_in_order_and_the_host_runs_ahead() -> None:
    b = Bench()
    s = b.stream()
    for _ in range(3):
        b.kernel(s, 100)
    assert b.rows == [(0, "compute", 4, 104), (0, "compute", 104, 204), (0, "compute", 204, 304)]
    assert b.d.host_time() == near(3 * LAUNCH)
    b.d.stream_synchronize(s)
    assert b.d.host_time() == near(304e-6)
    b.kernel(s, 100)  # the GPU idles until the host has queued it
    assert b.rows[-1] == (0, "compute", 308, 408)


def test_small_kernels_overlap_and_big_ones_queue() -> None:
    b = Bench()
    s, t = b.stream(), b.stream()
    for stream in (s, t):
        b.kernel(stream, 0)
    assert b.rows == [(0, "compute", 4, 6), (1, "compute", 8, 10)]
    b.kernel(s, 50)
    b.kernel(t, 50)
    assert b.rows[2:] == [(0, "compute", 12, 62), (1, "compute", 62, 112)]


def test_copies_of_one_direction_queue_and_everything_else_overlaps() -> None:
    b = Bench()
    up, up2, down, compute = b.stream(), b.stream(), b.stream(), b.stream()
    n, back = round(1e-4 * BAR[0]), round(1e-4 * BAR[1])  # 100 us over PCIe
    host, gpu = b.d.host_alloc(back), b.d.alloc(0, back)
    b.d.memcpy(up, gpu, host, n)
    b.d.memcpy(up2, gpu, host, n)
    b.d.memcpy(down, host, gpu, back)
    b.kernel(compute, 500)
    assert b.rows == [(0, "copy in", 4, 112), (1, "copy in", 112, 220), (2, "copy out", 12, 120), (3, "compute", 16, 516)]


def test_pageable_memory_is_slower_and_an_event_carries_its_end() -> None:
    b = Bench()
    s = b.stream()
    n = 8 * MB  # 1000 us at 8 GB/s
    pageable = bytearray(n)
    import ctypes
    address = ctypes.addressof((ctypes.c_char * n).from_buffer(pageable))
    gpu = b.d.alloc(0, n)
    start = b.mark(s)
    b.d.memcpy(s, gpu, address, n)
    end = b.mark(s)
    assert b.rows == [(0, "copy in", 8, 1016)]
    b.d.event_synchronize(end)
    assert b.d.event_elapsed(start, end) == pytest.approx(1.012, rel=1e-9)  # from the first call at 4 us
    assert b.d.host_time() == near(1016e-6)


def test_waiting_for_another_stream_delays_and_a_later_stream_fills_the_gap() -> None:
    b = Bench()
    copies, work, other = b.stream(), b.stream(), b.stream()
    n = round(1e-4 * BAR[0])
    host, gpu = b.d.host_alloc(n), b.d.alloc(0, n)
    b.d.memcpy(copies, gpu, host, n)  # 4 to 112
    b.d.stream_wait_event(work, b.mark(copies))  # the mark is the host's call at 8
    b.kernel(work, 100)
    b.kernel(other, 50)  # queued later, ready at once
    assert b.rows == [(0, "copy in", 4, 112), (1, "compute", 112, 212), (2, "compute", 16, 66)]
    b.kernel(other, 50)  # 66 to 116 would run into the work at 112
    assert b.rows[-1] == (2, "compute", 212, 262)


def test_a_prefetch_pipeline_hides_its_copies() -> None:
    """Four batches, 108 us a copy and 200 us of work each: the first copy shows, the others hide."""
    b = Bench()
    copies, work = b.stream(), b.stream()
    n = round(1e-4 * BAR[0])
    host, gpu = b.d.host_alloc(n), b.d.alloc(0, n)
    for _ in range(4):
        b.d.memcpy(copies, gpu, host, n)
        b.d.stream_wait_event(work, b.mark(copies))
        b.kernel(work, 200)
    kernels = [(start, end) for k, engine, start, end in b.rows if engine == "compute"]
    assert kernels == [(112, 312), (312, 512), (512, 712), (712, 912)]
    assert [start for k, engine, start, _ in b.rows if engine == "copy in"] == [4, 112, 220, 328]


def test_peer_copies_take_an_engine_at_both_ends() -> None:
    b = Bench(gpus=2)
    b.d.enable_peer(0, 1)
    s, t = b.stream(0), b.stream(1)
    n, up = round(1e-4 * BAR[2]), round(1e-4 * BAR[0])  # 100 us by NVLink, and over PCIe
    x, y, host = b.d.alloc(0, n), b.d.alloc(1, n), b.d.host_alloc(up)
    b.d.memcpy(s, y, x, n)
    b.d.memcpy(t, y, host, up)  # its way into GPU 1 is taken
    assert b.rows == [(0, "copy out", 4, 112), (1, "copy in", 112, 220)]


def test_watching_and_peeking_leave_the_clock_alone() -> None:
    b = Bench()
    s = b.stream()
    x = b.d.alloc(0, 4096)
    import ctypes
    buffer = ctypes.create_string_buffer(16)
    before, rows = b.d.host_time(), len(b.rows)
    done = b.d.peek(s, ctypes.addressof(buffer), x, 16, buffer)
    done()
    assert b.d.host_time() == before and b.d.device_time(0) == 0.0 and len(b.rows) == rows
    b.d.host_spent(1e-3)
    b.kernel(s, 10)
    assert b.rows[-1] == (0, "compute", 1004, 1014)


# ------------------------------------------------------------------------------------------------------- for the user
@pytest.mark.parametrize("name", MODELS)
def test_events_and_the_clock_tell_the_predicted_time_of_a_tensor_operation(name: str) -> None:
    m = MODELS[name]
    with torch.simulate(gpus=1, model=name):
        x = torch.zeros(1 << 20, device="cuda:0")
        (x + 1)
        torch.cuda.synchronize()
        begun = simulated.clock()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        y = x + 1
        end.record()
        torch.cuda.synchronize()
        kernel = (8 << 20) / (m.bandwidth * MOVED * 1e9)
        # the start is marked at the host's first call, the kernel begins at its second, the end is marked at its third
        assert start.elapsed_time(end) == pytest.approx((LAUNCH + max(kernel, LAUNCH)) * 1e3, rel=1e-6)
        assert simulated.clock() - begun == near(2 * LAUNCH + max(kernel, LAUNCH))
        assert simulated.clock("cuda:0") <= simulated.clock()
        assert y[0].item() == 1


def test_a_faster_gpu_is_predicted_to_be_faster() -> None:
    def seconds(name: str) -> float:
        with torch.simulate(gpus=1, model=name):
            x = torch.ones(1024, 1024, device="cuda:0")
            torch.cuda.synchronize()
            begun = simulated.clock()
            for _ in range(5):
                x @ x
            torch.cuda.synchronize()
            return simulated.clock() - begun
    times = {name: seconds(name) for name in MODELS}
    assert times["T4"] > times["A100"] > times["L4"] > times["H100"] == times["H200"] > times["RTX 4090"]
    turn = 2 * 128 * 256 * 1024 / (8.1e12 * PRODUCTS / 40)  # 32 tiles of 128 x 256 on 40 multiprocessors
    assert times["T4"] == pytest.approx(5 * (turn + 5.8e-6) + LAUNCH, rel=1e-6)


def test_real_gpus_have_no_virtual_clock() -> None:
    with torch.simulate(gpus=1), pytest.raises(ValueError, match="cuda"):
        simulated.clock("cpu")


def test_collectives_take_what_a_ring_does() -> None:
    h200 = MODELS["H200"]

    def within(kind: str, nbytes: int, size: int = 8, model: Model = h200) -> float:
        return clock.collective_seconds(model, kind, nbytes, size, 1, network("NDR"))
    whole = 124_439_808 * 4  # GPT-2's gradients in float32
    bandwidth = 2 * 7 / 8 * whole / (450e9 * PEER)
    assert abs(within("all_reduce", whole) / bandwidth - 1) < 0.05
    buckets, cap = [], 25 << 20
    while whole:
        buckets.append(min(whole, cap))
        whole -= buckets[-1]
    found = sum(within("all_reduce", b) for b in buckets)
    assert abs(found / (bandwidth + len(buckets) * 14 * clock.HOP) - 1) < 1e-9  # a bucket goes around in 14 hops
    assert within("all_gather", 1 << 30) == pytest.approx(within("all_reduce", 1 << 30) / 2)
    assert within("all_reduce", 1 << 30, 1) == KERNEL
    assert within("broadcast", 1 << 30, 2, MODELS["L4"]) == pytest.approx(clock.HOP + (1 << 30) / (31.5e9 * UP))  # by PCIe


def test_collectives_of_several_machines_take_what_their_network_lets_through() -> None:
    h200, ndr, slow = MODELS["H200"], network("NDR"), network("25GbE")
    whole = 1 << 30

    def across(kind: str, size: int, machines: int, by: Network = ndr) -> float:
        return clock.collective_seconds(h200, kind, whole, size, machines, by)
    # sixteen GPUs on two machines: eight rings, eight ports of 25 GB/s
    hdr = network("HDR")
    assert across("all_reduce", 16, 2, hdr) == pytest.approx(2 * 15 / 16 * whole / 200e9 + 30 * (2 * hdr.hop + 14 * clock.HOP) / 16)
    assert across("all_reduce", 16, 2, network("XDR")) == pytest.approx(2 * 15 / 16 * whole / (450e9 * PEER), rel=0.05)  # NVLink is the limit
    assert across("all_reduce", 2, 2, slow) == pytest.approx(whole / 3.125e9 + 2 * slow.hop)  # one GPU a machine: one port
    assert across("all_gather", 16, 2) == pytest.approx(across("all_reduce", 16, 2) / 2)
    # to each its own part: seven of sixteen stay within the machine, eight leave it by the sender's port
    assert across("all_to_all", 16, 2) == pytest.approx(8 / 16 * whole / 50e9 + ndr.hop)
    assert across("all_to_all", 16, 2) > across("all_gather", 16, 2)
    assert clock.message_seconds(h200, whole, None) == pytest.approx(clock.HOP + whole / (450e9 * PEER))
    assert clock.message_seconds(h200, whole, ndr) == pytest.approx(ndr.hop + whole / 50e9)
    assert clock.message_seconds(MODELS["L4"], whole, network("800")) == pytest.approx(ndr.hop + whole / (31.5e9 * UP))  # the way to the port is the limit


@pytest.mark.parametrize("name", ["", "ethernet", "-1", "nan", "0", "1e9"])
def test_networks_have_names_or_rates(name: str) -> None:
    with pytest.raises(ValueError, match="choose one of XDR, NDR"):
        network(name)
    assert network("ndr").gigabits == 400 and network("56.5").rate == 56.5e9 / 8
