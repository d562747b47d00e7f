"""The driver itself on a fake libcuda, in a process of its own: pools of memory, what the environment says, what is told.

``python cases_driver.py ORDER SEED [NAME...]``.  All but ``case_...`` want an environment of their own: see `test_driver.py`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402
import host_kernels  # noqa: E402

array = cases.array
CALLS, USED, TAKEN, GIVEN, TRIMMED, REACHED, KEPT, SLEPT = 0, 2, 4, 5, 6, 7, 8, 9


def count(what: int) -> int:
    """A number of the fake libcuda's."""
    import ctypes
    fake = ctypes.CDLL(str(host_kernels.libraries()["libcuda.so.1"]))
    fake.fake_count.restype = ctypes.c_long
    return int(fake.fake_count(what))


def case_pools() -> None:
    import flambeau as torch
    a = torch.ones(1 << 20, device="cuda")
    b = torch.full((3 << 20,), 2.0, device="cuda")
    assert count(TAKEN) >= 2 and count(KEPT) == 0 and count(USED) >= 16 << 20
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # a fresh segment is every stream's at once
        c = torch.ones(5 << 20, device="cuda")
        assert c.sum().item() == 5 << 20
    assert a.sum().item() == 1 << 20 and b[0].item() == 2
    given, trimmed = count(GIVEN), count(TRIMMED)
    del a, b, c
    torch.cuda.empty_cache()
    assert count(GIVEN) >= given + 3 and count(TRIMMED) == trimmed + 1 and count(KEPT) == 0
    free, total = torch.cuda.mem_get_info()
    assert total - free == torch.cuda.memory_reserved() == count(USED)


def case_a_pool_under_the_ladder() -> None:
    import flambeau as torch
    torch.cuda.empty_cache()
    held = [torch.empty(20 << 20, dtype=torch.uint8, device="cuda") for _ in range(9)]
    del held
    before = torch.cuda.memory_stats()["num_alloc_retries"]
    big = torch.zeros(200 << 20, dtype=torch.uint8, device="cuda")  # by segments given back
    assert big.sum().item() == 0 and torch.cuda.memory_stats()["num_alloc_retries"] == before + 1
    try:
        torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        raise AssertionError("there was room")
    except torch.cuda.OutOfMemoryError as error:
        assert "Tried to allocate 100.00 MiB" in str(error), error
    del big
    assert torch.ones(150 << 18, device="cuda").sum().item() == 150 << 18


def case_peers_reach_a_pool() -> None:
    import flambeau as torch
    x = torch.arange(5, device="cuda:0")
    assert x.to("cuda:1").tolist() == [0, 1, 2, 3, 4] and x.to("cuda:1").to("cuda:0").tolist() == [0, 1, 2, 3, 4]
    assert count(REACHED) >= 2


def case_who_waits_sleeps_where_that_is_asked_for() -> None:
    """Waits look again and again, as PyTorch's do; only an event made with blocking=True lets its thread sleep."""
    import flambeau as torch
    x, buffer = torch.arange(1 << 20, device="cuda"), torch.zeros(1 << 20, dtype=torch.int64).pin_memory()
    before = count(SLEPT)
    for timing in (False, True):
        event = torch.cuda.Event(enable_timing=timing)
        event.record()
        event.synchronize()
    buffer.copy_(x, non_blocking=True)
    assert buffer[-1].item() == (1 << 20) - 1 and x[-1].item() == (1 << 20) - 1 and x.cpu()[-1].item() == (1 << 20) - 1
    torch.cuda.current_stream().synchronize()
    torch.cuda.synchronize()
    assert count(SLEPT) == before
    for timing in (False, True):
        event = torch.cuda.Event(enable_timing=timing, blocking=True)
        event.record()
        event.synchronize()
    assert count(SLEPT) == before + 2
    again = torch.cuda.Event()  # whose handle is no sleeper's
    del event
    again.record()
    again.synchronize()
    assert count(SLEPT) == before + 2


def case_what_is_told_of_memory() -> None:
    import flambeau as torch
    x = torch.ones(3 << 20, dtype=torch.uint8, device="cuda")
    told = torch.cuda.memory_summary()
    assert told.startswith("cuda:0 (Fake H200): ") and "reserved" in told and "segments" in told, told
    assert len(torch.cuda.memory_summary(abbreviated=True)) < len(told)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated() >= x.numel()
    assert torch.cuda.max_memory_allocated() >= stats["allocated_bytes.all.current"] <= torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    assert torch.cuda.memory_stats("cuda:1")["segment.all.current"] >= 0 and torch.cuda.get_allocator_backend() == "native"


def case_inventory() -> None:
    """What `flambeau info` says of the driver, the GPUs and the libraries."""
    from flambeau import inventory
    facts = inventory.collect()
    assert [(g["device"], g["name"], g["kind"]) for g in facts["gpus"]] == [("cuda:0", "Fake H200", "real"), ("cuda:1", "Fake H200", "real")]
    assert "cannot be told" not in str(facts), facts
    told = facts["nvidia"]
    assert told["driver"] == "speaks CUDA 13.0, 2 GPUs" and "compute capability 9.0" in facts["gpus"][0]["capability"]
    for work, name in (("Fourier transforms", "cuFFT"), ("factorizations of matrices", "cuSOLVER"), ("triangular equations", "cuBLAS")):
        assert told[work].replace(",", " ").startswith(name + " ") and told[work].endswith((".so.12", ".so.13")), told
    assert "pip install 'flambeau[cuda-dist]'" in told["collectives"]


def end_absent_inventory(fake: Any) -> None:
    from flambeau import inventory
    told = inventory.nvidia()
    assert "pip install 'flambeau[cuda-fft]'" in told["Fourier transforms"] and "the host on copies" in told["Fourier transforms"], told
    assert "pip install 'flambeau[cuda-math]'" in told["factorizations of matrices"]
    assert "pip install 'flambeau[cuda]'" in told["matrix products"], told
    import contextlib
    import io
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        inventory.show()
    text = " ".join(shown.getvalue().split())
    for extra in ("cuda", "cuda-fft", "cuda-math", "cuda-dist"):
        assert f"'flambeau[{extra}]'" in text.replace("- ", "-"), text


def end_side_streams(fake: Any) -> None:
    """Launches stay builtins, and go to the stream that their own thread made current."""
    import threading

    import flambeau as torch
    from flambeau._core.drivers.nvidia.launches import Launches
    fake.fake_launched_on.restype = ctypes.c_void_p
    made: list[Any] = []
    plain = Launches.direct

    def direct(self: Launches, *args: Any) -> Any:
        made.append(plain(self, *args))
        return made[-1]
    Launches.direct = direct  # type: ignore[method-assign]
    x = torch.ones(64, device="cuda")
    y = x + x
    home, side, other = fake.fake_launched_on(), torch.cuda.Stream(), torch.cuda.Stream()
    first = torch.cuda.default_stream()
    assert home == first.cuda_stream
    held, go = threading.Event(), threading.Event()
    told: list[int] = []

    def beside() -> None:
        for stream in (None, other, first, None):
            with torch.cuda.stream(stream):
                x * 2.0
                told.append(fake.fake_launched_on())
        with torch.cuda.stream(other):
            held.set()
            go.wait()
            x * 3.0
            told.append(fake.fake_launched_on())
    with torch.cuda.stream(side):
        x + x
        assert fake.fake_launched_on() == side.cuda_stream
        with torch.cuda.stream(other):
            x + x
            assert fake.fake_launched_on() == other.cuda_stream
            with torch.cuda.stream(first):
                x + x
                assert fake.fake_launched_on() == home
            x + x
            assert fake.fake_launched_on() == other.cuda_stream
        x + x
        assert fake.fake_launched_on() == side.cuda_stream
    x + x
    assert fake.fake_launched_on() == home
    thread = threading.Thread(target=beside)
    thread.start()
    held.wait()
    torch.cuda.set_stream(side)
    y = x + x
    assert fake.fake_launched_on() == side.cuda_stream
    go.set()
    thread.join()
    assert told == [home, other.cuda_stream, home, home, other.cuda_stream]
    torch.cuda.set_stream(first)
    y = x + x
    assert fake.fake_launched_on() == home
    torch.cuda.synchronize()
    assert y.tolist() == [2.0] * 64
    assert len(made) >= 3 and None not in made, made
    if torch.cuda.device_count() > 1:
        with torch.cuda.stream(side):  # a stream of one GPU is none of another's
            z = torch.ones(8, device="cuda:1")
            z + z
            assert fake.fake_launched_on() == torch.cuda.default_stream(1).cuda_stream


def end_launches_that_wait(fake: Any) -> None:
    """While a launch waits for room in the device's queue, other threads run Python: one of them makes room."""
    import threading
    import time

    import flambeau as torch
    from flambeau._core.drivers.nvidia import direct
    fake.fake_full.argtypes = (ctypes.c_long,)
    x = torch.ones(8, device="cuda")
    for _ in range(direct.MANY + 1):
        y = x + x
    began = threading.Event()

    def make_room() -> None:
        began.wait()
        fake.fake_full(0)
    thread = threading.Thread(target=make_room)
    thread.start()
    fake.fake_full(20_000_000)
    since = time.perf_counter()
    began.set()
    for _ in range(3):
        y = x + x
    thread.join()
    assert time.perf_counter() - since < 10, "nobody could make room"
    torch.cuda.synchronize()
    assert y.tolist() == [2.0] * 8


def end_copies_that_wait(fake: Any) -> None:
    """While a copy waits for room in the queue, or for its end, other threads run Python."""
    import threading
    import time

    import flambeau as torch
    from flambeau._core.drivers.nvidia import direct
    fake.fake_full.argtypes = (ctypes.c_long,)
    x, host = torch.zeros(8, device="cuda"), torch.arange(8.0).pin_memory()
    y = torch.zeros(8)

    def many() -> None:
        for _ in range(direct.MANY + 3):
            x.copy_(host, non_blocking=True)
    for work in (lambda: x.copy_(host), lambda: y.copy_(x), lambda: x[1].item(), lambda: torch.cuda.current_stream().synchronize()):
        many()  # so that one more may have to wait
        began = threading.Event()

        def make_room(began: Any = began) -> None:
            began.wait()
            fake.fake_full(0)
        thread = threading.Thread(target=make_room)
        thread.start()
        fake.fake_full(20_000_000)
        since = time.perf_counter()
        began.set()
        work()
        thread.join()
        assert time.perf_counter() - since < 10, "nobody could make room"
    assert y.tolist() == list(range(8))


def case_copies_of_threads_and_gpus() -> None:
    """A thread's first call may be a copy, to a GPU that is not its current one; each goes to the driver by itself, without calls around it."""
    import threading

    import flambeau as torch
    hosts = [torch.arange(300.0) + k for k in range(2)]
    pinned = [h.pin_memory() for h in hosts]
    there = [torch.zeros(300, device=f"cuda:{k}") for k in range(2)]
    wrong: list[Any] = []

    def carry(first: int) -> None:
        for turn in range(6):
            k = (first + turn) % 2
            x = torch.zeros(300, device=f"cuda:{k}")
            back = torch.zeros(300).pin_memory()
            for copy in (lambda: x.copy_(pinned[k], non_blocking=True), lambda: x.copy_(hosts[k]), lambda: x.copy_(pinned[k])):  # noqa: B023
                copy()
                if x.tolist() != hosts[k].tolist() or back.copy_(x, non_blocking=True).tolist() != hosts[k].tolist():
                    wrong.append((first, turn))
    for first in range(2):
        thread = threading.Thread(target=lambda k=first: there[k].copy_(pinned[k], non_blocking=True))
        thread.start()
        thread.join()
        assert there[first].tolist() == hosts[first].tolist()
    threads = [threading.Thread(target=carry, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    x, p, h, back = there[0], pinned[0], hosts[0], torch.zeros(300).pin_memory()
    torch.cuda.current_stream().synchronize()  # what earlier copies kept is let go of
    for copy, calls in ((lambda: x.copy_(p, non_blocking=True), 1), (lambda: x.copy_(h), 2), (lambda: x.copy_(p), 2), (lambda: h.copy_(x), 2),
                        (lambda: x.copy_(h, non_blocking=True), 1), (lambda: back.copy_(x, non_blocking=True), 2)):
        for _ in range(2):  # two events take turns
            copy()
        before = count(CALLS)
        copy()
        assert count(CALLS) - before == calls, (count(CALLS) - before, calls)


def _staged(n: int, device: str = "cuda", seed: int = 0) -> None:
    """Pageable memory goes to a GPU and back whole, whether or not the host waits in between."""
    import numpy as np

    import flambeau as torch
    source = np.random.default_rng(seed).integers(0, 256, n + 8, np.uint8)
    host, around = torch.from_numpy(source)[3:n + 3], torch.zeros(n + 8, dtype=torch.uint8)
    x = host.to(device)
    y = torch.zeros(n, dtype=torch.uint8, device=device).copy_(host, non_blocking=True)
    host.add_(1)  # it has been read
    assert (x.cpu().numpy() == source[3:n + 3] - 1).all(), n
    around[5:n + 5].copy_(y)
    found = around.numpy()
    assert (found[5:n + 5] == source[3:n + 3] - 1).all() and not found[:5].any() and not found[n + 5:].any(), n


def case_pageable_memory_by_several_threads() -> None:
    for n in (65_537, 131_072, 131_073, (1 << 18) + 1, (1 << 20) - 7, (4 << 20) + 4099, (9 << 20) + 13, 20 << 20):
        _staged(n)


def case_pageable_memory_both_ways_at_once() -> None:
    """Some threads of the program, two GPUs: each copy has places and events of its own, and nobody waits for ever."""
    import threading
    wrong: list[BaseException] = []

    def carry(k: int) -> None:
        try:
            for turn in range(4):
                _staged((1 << 20) * (k + 1) + turn, f"cuda:{(k + turn) % 2}", k)
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=carry, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def end_staged_copies_that_fail(fake: Any) -> None:
    """A failure in the middle is told, and the ring is whole afterwards."""
    import flambeau as torch
    from flambeau._core.runtime import gpus
    host, x = torch.arange(1 << 20), torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    x.copy_(host)
    host.copy_(x)
    ring = gpus.start().ring
    for call, after, work in ((b"cuMemcpyHtoDAsync_v2", 0, lambda: x.copy_(host)), (b"cuMemcpyHtoDAsync_v2", 5, lambda: x.copy_(host)),
                              (b"cuEventRecord", 7, lambda: x.copy_(host)), (b"cuMemcpyDtoHAsync_v2", 3, lambda: host.copy_(x)),
                              (b"cuEventSynchronize", 2, lambda: host.copy_(x)), (b"cuCtxSetCurrent", 0, lambda: host.copy_(x))):
        torch.cuda.synchronize()
        fake.fake_fail(call, after, 1)
        try:
            work()
            raise AssertionError(f"{call!r}: nothing was raised")
        except RuntimeError as error:
            assert "CUDA_ERROR_INVALID_VALUE (1)" in str(error) and "reported by copying 8388608 bytes" in str(error), (call, error)
        fake.fake_fail(b"", 0, 0)
        assert len(ring._free) == ring.made
        x.copy_(torch.arange(1 << 20))
        assert (x.cpu() == torch.arange(1 << 20)).all()
    fake.fake_fail(b"cuMemcpyHtoDAsync_v2", 4, 700)  # and one that ends the device
    for text in ("CUDA_ERROR_ILLEGAL_ADDRESS", "unusable"):
        try:
            x.copy_(host)
            raise AssertionError("nothing was raised")
        except RuntimeError as error:
            assert text in str(error), error
    assert len(ring._free) == ring.made


def case_small_pageable_memory_is_read_at_once() -> None:
    import flambeau as torch
    from flambeau._core.runtime import dispatch
    for n in (1, 300, 16384, 16385):
        host, x = torch.arange(float(n)), torch.zeros(n, device="cuda")
        ways: list[Any] = []
        with dispatch.observe(copies=ways.append):
            x.copy_(host, non_blocking=True)
        host.fill_(-1.0)
        assert x.tolist() == list(range(n)) and [(w.path, w.blocking) for w in ways] == [("pageable" if n <= 16384 else "staged", False)], (n, ways)


def case_a_copy_tells_what_kernels_found() -> None:
    """The host's wait in a copy is one in which wrong indices are told, as in any other."""
    import flambeau as torch
    x = torch.ones(4, device="cuda")
    for wait in (lambda: x.cpu(), lambda: x[0].item(), lambda: x.copy_(torch.ones(4))):
        x[torch.tensor([1, 9]).cuda()]
        try:
            wait()
            raise AssertionError("nothing was told")
        except torch.AcceleratorError as error:
            assert "9" in str(error) and "out of bounds" in str(error), error
        assert x.sum().item() == 4


def end_without_pools(fake: Any) -> None:
    """A device that has none, and an environment that wants none."""
    import flambeau as torch
    x = torch.ones(1 << 20, device="cuda")
    assert x.sum().item() == 1 << 20 and count(TAKEN) == 0 and count(USED) > 0
    del x
    torch.cuda.empty_cache()
    assert count(USED) == torch.cuda.memory_reserved() and count(TRIMMED) == 0
    fake.fake_fail(b"cuMemAlloc_v2", 0, 2)
    held = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    assert held.numel() and torch.cuda.memory_stats()["num_alloc_retries"] == 1
    assert torch.arange(3, device="cuda:0").to("cuda:1").tolist() == [0, 1, 2]


def end_unknown_backend(fake: Any) -> None:
    import flambeau as torch
    try:
        torch.ones(1, device="cuda")
        raise AssertionError("it was taken")
    except RuntimeError as error:
        assert "PYTORCH_CUDA_ALLOC_CONF: Unknown allocator backend 'other', options are native and cudaMallocAsync" in str(error), error


def end_pool_fails(fake: Any) -> None:
    """A pool that cannot be made is done without; one that fails is told."""
    import flambeau as torch
    fake.fake_fail(b"cuMemPoolCreate", 0, 801)
    assert torch.ones(4, device="cuda").sum().item() == 4 and count(TAKEN) == 0
    fake.fake_fail(b"cuMemAllocFromPoolAsync", 0, 1)
    try:
        torch.ones(1 << 22, device="cuda:1")
        raise AssertionError("the failure was not told")
    except RuntimeError as error:
        assert "allocating" in str(error) and "CUDA_ERROR_INVALID_VALUE" in str(error), error
    assert torch.ones(1 << 22, device="cuda:1")[0].item() == 1


def end_no_start(fake: Any) -> None:
    """A driver that does not start: asking whether there is a GPU does not raise, using one says why."""
    import flambeau as torch
    there = torch.cuda.is_available()  # NVML, where it answers, sees GPUs all the same
    assert there == (not os.environ.get("FAKE_NO_NVML"))
    for _ in range(2):
        try:
            torch.ones(1, device="cuda")
            raise AssertionError("nothing was raised")
        except RuntimeError as error:
            assert "the NVIDIA driver does not start" in str(error) and "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in str(error), error
    assert torch.ones(2).sum().item() == 2


def end_context_fails(fake: Any) -> None:
    """The first use of a GPU fails, and a later one does not."""
    import flambeau as torch
    fake.fake_fail(b"cuDevicePrimaryCtxRetain", 0, 2)
    try:
        torch.ones(1, device="cuda")
        raise AssertionError("nothing was raised")
    except RuntimeError as error:
        assert "CUDA_ERROR_OUT_OF_MEMORY" in str(error) and "the first use of the device" in str(error), error
    assert torch.ones(3, device="cuda").sum().item() == 3


def end_faults_are_told(fake: Any) -> None:
    """Each call that fails says what was being done; none of these ends the device."""
    import flambeau as torch
    x = torch.ones(8, device="cuda")
    host = torch.ones(8).pin_memory()
    for call, work, text in ((b"cuMemcpyHtoDAsync_v2", lambda: x.copy_(host), "copying 32 bytes"), (b"cuStreamSynchronize", lambda: x.sum().item(), "waiting"),
                             (b"cuStreamCreateWithPriority", lambda: torch.cuda.Stream().synchronize(), "making a stream"),
                             (b"cuEventRecord", lambda: torch.cuda.Event().record(), "recording an event"),
                             (b"cuLaunchKernel", lambda: x + x, "launching"), (b"cuMemGetInfo_v2", torch.cuda.mem_get_info, "asking for its free memory"),
                             (b"cuCtxSynchronize", torch.cuda.synchronize, "waiting for the device")):
        torch.cuda.synchronize()
        fake.fake_fail(call, 0, 1)
        try:
            work()
            raise AssertionError(f"{call!r}: nothing was raised")
        except RuntimeError as error:
            assert "CUDA error on GPU 0: CUDA_ERROR_INVALID_VALUE (1)" in str(error) and text in str(error), (call, error)
        fake.fake_fail(b"", 0, 0)
        assert (x + x).sum().item() == 16


def case_one_kernel_with_less_and_more_shared_memory() -> None:
    """Rows of other lengths are launches of one function: one that asks for less must not take from what another needs."""
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(2)
    for _ in range(2):
        for length in (25000, 14000, 20000):
            rows = rng.standard_normal((2, length)).astype("f4")
            e = np.exp(rows - rows.max(1, keepdims=True))
            np.testing.assert_allclose(array(torch.tensor(rows).cuda().softmax(1)), e / e.sum(1, keepdims=True), rtol=1e-4)


def end_what_hardware_refuses(fake: Any) -> None:
    """The fake refuses it too."""
    from cuda.bindings import driver as cu

    import flambeau as torch
    from flambeau._core.kernels.cuda_c import Kernel
    from flambeau._core.runtime import gpus
    x = torch.ones(8, device="cuda")
    g = gpus.gpu(0)
    stream = g.default_handle.handle

    def refused(code: int, f: Any, *args: Any) -> None:
        assert int(f(*args)[0]) == code, (f, args)
    source = 'struct Args { unsigned long long w[1]; };\nextern "C" __global__ void __launch_bounds__(64) k_0(const Args a) { *(float*)a.w[0] = 1.0f; }\n'
    refused(209, cu.cuModuleLoadData, host_kernels.compile(source, "sm_80"))
    refused(200, cu.cuModuleLoadData, b"\x7fELF and more")
    for launches, code in (((("k_0", (1, 1, 1), (128, 1, 1), 0),), "701"), ((("k_0", (1, 65536, 1), (1, 1, 1), 0),), "(1)"),
                           ((("k_0", (1 << 31, 1, 1), (1, 1, 1), 0),), "(1)"), ((("k_0", (1, 1, 1), (32, 1, 65), 0),), "(1)"),
                           ((("k_0", (1, 1, 1), (1, 1, 1), 64 << 10),), "")):
        kernel = Kernel(source, launches, "P", (), 0, 0, 0)
        call = g.driver.bind(0, g.driver._programs().kernel("k", kernel))
        try:
            call(g.default_handle, (x.data_ptr(),))
            assert not code, launches
        except torch.AcceleratorError as error:
            assert code and code in str(error), error
    host = __import__("numpy").zeros(4)
    call = g.driver.bind(0, g.driver._programs().kernel("k", Kernel(source, (("k_0", (1, 1, 1), (1, 1, 1), 0),), "P", (), 0, 0, 0)))
    try:
        call(g.default_handle, (host.ctypes.data,))
        raise AssertionError("a kernel was given an address of the host")
    except AssertionError as error:
        assert "argument 0" in str(error), error
    _, event = cu.cuEventCreate(0)
    _, other = cu.cuEventCreate(2)
    refused(400, cu.cuEventElapsedTime, event, event)  # never recorded
    cu.cuEventRecord(event, stream)
    cu.cuEventRecord(other, stream)
    refused(400, cu.cuEventElapsedTime, event, other)  # keeps no time
    cu.cuEventDestroy(event)
    for f, args in ((cu.cuEventRecord, (event, stream)), (cu.cuEventQuery, (event,)), (cu.cuStreamWaitEvent, (stream, event, 0))):
        refused(400, f, *args)
    _, gone = cu.cuStreamCreateWithPriority(1, 0)
    cu.cuStreamDestroy(gone)
    for f, args in ((cu.cuStreamQuery, (gone,)), (cu.cuStreamSynchronize, (gone,)), (cu.cuEventRecord, (other, gone)), (cu.cuStreamDestroy, (gone,))):
        refused(400, f, *args)
    refused(1, cu.cuStreamCreateWithPriority, 2, 0)
    refused(1, cu.cuMemHostAlloc, 0, 1)
    assert x.sum().item() == 8.0


def end_visible(fake: Any) -> None:
    """CUDA_VISIBLE_DEVICES: what is left, by the identities of the GPUs."""
    import flambeau as torch
    want = os.environ["WANT"].split()
    assert torch.cuda.device_count() == len(want), (torch.cuda.device_count(), want)
    found = [str(torch.cuda.get_device_properties(i).uuid)[:2] for i in range(len(want))]
    assert found == want, found
    if want:
        assert torch.ones(3, device=f"cuda:{len(want) - 1}").sum().item() == 3
    else:
        assert not torch.cuda.is_available()


if __name__ == "__main__":
    cases.main(globals())
