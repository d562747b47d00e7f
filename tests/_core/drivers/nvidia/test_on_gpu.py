"""The driver on a GPU: what the fake libcuda can only claim of hardware."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import flambeau as torch

from .running import ROOT

pytestmark = pytest.mark.gpu
HEAD = 'struct Args { unsigned long long w[2]; };\nextern "C" __global__ void __launch_bounds__(256) k_0(const Args a) {\n'


def fake() -> bool:
    return torch.cuda.get_device_name(0) == "Fake H200"


def launcher(body: str, grid: int = 1, block: int = 32, shared: int = 0) -> Any:
    """A kernel of two addresses on the current stream of the first GPU."""
    from flambeau._core.kernels.cuda_c import Kernel
    from flambeau._core.runtime import gpus
    g = gpus.gpu(0)
    kernel = Kernel(HEAD + body + "\n}\n", (("k_0", (grid, 1, 1), (block, 1, 1), shared),), "PP", (), 0, 0, 0)
    call = g.driver.bind(g.physical, g.driver._programs().kernel("planted", kernel))
    return lambda a, b: call(gpus.current_stream()._handle, (a, b))


def test_what_it_is() -> None:
    p = torch.cuda.get_device_properties(0)
    assert p.major >= 8 and p.warp_size == 32 and p.multi_processor_count > 0 and p.shared_memory_per_block_optin >= 99 << 10
    assert p.shared_memory_per_block == 48 << 10 and p.L2_cache_size > 0 and len(str(p.uuid)) == 36
    assert torch.cuda.get_device_capability(0) == (p.major, p.minor)
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total and abs(total - p.total_memory) < total // 10


@pytest.mark.parametrize("kbytes", [16, 48, 64, 99, 160, 227])
def test_dynamic_shared_memory(kbytes: int) -> None:
    if kbytes << 10 > torch.cuda.get_device_properties(0).shared_memory_per_block_optin:
        pytest.skip("this GPU has less")
    n = kbytes << 8
    body = f"""  extern __shared__ int s[];
  for (int i = threadIdx.x; i < {n}; i += 256) s[i] = i * 3;
  __syncthreads();
  for (int i = threadIdx.x; i < {n}; i += 256) ((int*)a.w[0])[i] = s[{n} - 1 - i] + ((int*)a.w[1])[0];"""
    out, one = torch.empty(n, dtype=torch.int32, device="cuda"), torch.ones(1, dtype=torch.int32, device="cuda")
    launcher(body, block=256, shared=kbytes << 10)(out.data_ptr(), one.data_ptr())
    np.testing.assert_array_equal(out.cpu().numpy(), np.arange(n)[::-1] * 3 + 1)


def test_a_kernel_writes_page_locked_memory() -> None:
    """As those do that complain."""
    host = torch.zeros(4, dtype=torch.int32).pin_memory()
    launcher("  ((volatile int*)a.w[0])[threadIdx.x & 3] = 7;")(host.data_ptr(), 0)
    torch.cuda.synchronize()
    assert host.tolist() == [7] * 4


def test_copies_of_every_kind_and_size() -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, 3, 1023, 4096, 70001, (1 << 20) + 5, (9 << 20) + 1):
        a = rng.integers(0, 256, n).astype(np.uint8)
        x = torch.tensor(a)
        for source in (x, x.pin_memory()):
            there = source.to("cuda", non_blocking=True)
            second = there.clone()
            back = torch.empty(n, dtype=torch.uint8).pin_memory()
            back.copy_(second, non_blocking=True)
            torch.cuda.synchronize()
            assert (back.numpy() == a).all() and (second.cpu().numpy() == a).all(), n


def test_threads_and_streams() -> None:
    """Threads that begin with a launch, each on a stream of its own, its work waited for by an event."""
    found: list[bool] = []

    def work(k: int) -> None:
        stream, event = torch.cuda.Stream(priority=-(k & 1)), torch.cuda.Event()
        with torch.cuda.stream(stream):
            x = torch.full((1 << 16,), float(k), device="cuda")
            for _ in range(50):
                x = x + 1
            event.record()
        event.synchronize()
        found.append(bool((x == k + 50).all().item()))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 8


def test_a_thread_begins_with_a_launch() -> None:
    """Its memory is the allocator's already, so the launch is its first call of the driver."""
    x = torch.full((1000,), 3.0, device="cuda")
    for _ in range(3):
        x + x
    torch.cuda.synchronize()
    found: list[Any] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(x + x))
        thread.start()
        thread.join()
    assert [t.sum().item() for t in found] == [6000.0] * 3


def test_time_between_events() -> None:
    """A kernel that waits for a while takes that while."""
    if fake():
        pytest.skip("the fake has no clock of a GPU's")
    wait = launcher("""  unsigned long long since, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(since));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - since < 20000000ull);""")
    wait(0, 0)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    since = time.perf_counter()
    wait(0, 0)
    queued = time.perf_counter() - since
    end.record()
    assert not end.query()
    torch.cuda.synchronize()
    assert queued < 0.01 and 19 < start.elapsed_time(end) < 40 and end.query()


@pytest.mark.alone
def test_memory_runs_out_and_comes_back() -> None:
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"):
        torch.empty(total + (1 << 30), dtype=torch.uint8, device="cuda")
    part = free // 4 >> 21 << 21
    held = [torch.empty(part, dtype=torch.uint8, device="cuda") for _ in range(3)]
    assert torch.cuda.mem_get_info()[0] <= free - 3 * part and torch.cuda.memory_allocated() >= 3 * part
    del held  # kept by the allocator, in pieces too small for the next
    big = torch.empty(free // 8 * 5, dtype=torch.uint8, device="cuda")
    big[-1] = 7
    assert big[-1].item() == 7
    del big
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > free - (256 << 20)


def elsewhere(code: str, limit: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Runs this in a process of its own, which may lose its GPU."""
    text = "import flambeau as torch\nfrom tests._core.drivers.nvidia.test_on_gpu import launcher\n" + code
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=limit, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT,
                          check=False)


@pytest.mark.parametrize("body, words", [("  *(volatile int*)(16ull << 40) = 1;", "CUDA_ERROR_ILLEGAL_ADDRESS"), ("  __trap();", "CUDA_ERROR_"),
                                         ("  *(volatile int*)(a.w[0] + 2) = 1;", "CUDA_ERROR_MISALIGNED_ADDRESS")])
def test_a_fault_ends_the_device_for_its_process_alone(body: str, words: str) -> None:
    if fake():
        pytest.skip("it would end the process here")
    mine = torch.ones(1000, device="cuda")
    done = elsewhere(f"""
x = torch.ones(8, device="cuda")
launcher({body!r})(x.data_ptr(), 0)
for _ in range(2):
    try:
        x.sum().item()
        print("nothing was raised")
    except torch.AcceleratorError as error:
        print(error)
""")
    first, second = done.stdout.strip().splitlines()[:2]
    assert words in first and "The device is unusable until the process ends" in first, done.stdout + done.stderr
    assert "it is unusable until the process ends, since: " in second and words in second
    assert done.returncode == 0 and mine.sum().item() == 1000


def test_a_kernel_that_never_ends_can_be_killed() -> None:
    if fake():
        pytest.skip("it would hold the process here")
    with pytest.raises(subprocess.TimeoutExpired):
        elsewhere("x = torch.ones(8, device='cuda')\nlauncher('  while (*(volatile int*)a.w[0]);')(x.data_ptr(), 0)\ntorch.cuda.synchronize()\n", 15.0)
    assert torch.ones(5, device="cuda").sum().item() == 5


def test_a_forked_child_is_told() -> None:
    torch.ones(1, device="cuda").sum().item()
    done = elsewhere("""
import os
x = torch.ones(3, device="cuda")
pid = os.fork()
if not pid:
    try:
        torch.ones(1, device="cuda")
    except RuntimeError as error:
        os._exit(0 if "forked" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), x.sum().item())
""") if not fake() else None
    assert done is None or done.stdout.split() == ["0", "3.0"], done.stdout + done.stderr


def test_counting_leaves_a_fork_whole() -> None:
    if fake():
        pytest.skip("the process of its own would look for a real GPU")
    done = elsewhere("""
import os
assert torch.cuda.device_count() and torch.cuda.is_available()
pid = os.fork()
if not pid:
    os._exit(0 if torch.ones(4, device="cuda").sum().item() == 4 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), torch.ones(5, device="cuda").sum().item())
""")
    assert done.stdout.split() == ["0", "5.0"], done.stdout + done.stderr
