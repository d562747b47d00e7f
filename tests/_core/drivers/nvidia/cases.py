"""What is run through the NVIDIA driver on a fake libcuda, in a process of its own: ``python cases.py ORDER SEED``.

Each function named ``case_...`` is a test; a line of JSON tells each one's outcome.  `test_nvidia.py` runs this in every order.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import host_kernels  # noqa: E402
import strict  # noqa: E402

ORDERS = {"eager": 0, "lazy": 1, "random": 2, "none": 3}
MEMORY = 256 << 20


def start(order: str, seed: int) -> Any:
    """Puts the fake libraries in place of the real ones, and gives the fake libcuda."""
    made = host_kernels.libraries()
    fake = ctypes.CDLL(str(made["libcuda.so.1"]), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    if not os.environ.get("FAKE_NO_NVML"):
        ctypes.CDLL(str(made["libnvidia-ml.so.1"]), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    fake.fake_configure.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_int)
    fake.fake_count.restype = ctypes.c_long
    fake.fake_configure(ORDERS[order], MEMORY, seed, int(not os.environ.get("FAKE_NO_PEER")), int(os.environ.get("FAKE_VERSION", "13000")))
    from flambeau._core.drivers.nvidia import libraries
    from flambeau._core.kernels import cuda_c
    absent = os.environ.get("FAKE_ABSENT", "cudnn").split() + ([] if "FAKE_NCCL_HOME" in os.environ else ["nccl"])
    libraries.find = lambda name: "libabsent.so" if name in absent else str(made.get(libraries.KNOWN[name].files[0], "libabsent.so"))
    libraries.load = lambda name: ctypes.CDLL(libraries.find(name))
    cuda_c.compile = host_kernels.compile
    if order != "none":
        strict.install()
    if path := os.environ.get("FAKE_PROTOTYPES"):  # calls are held against the libraries' headers
        import watched
        fake.watch = watched.start(path)
    return fake


def array(t: Any) -> Any:
    return t.detach().cpu().numpy()


def case_creation() -> None:
    import numpy as np

    import flambeau as torch
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    p = torch.cuda.get_device_properties(0)
    assert (p.name, p.major, p.minor, p.simulated) == ("Fake H200", 9, 0, False)
    assert array(torch.zeros(3, 4, device="cuda")).tolist() == [[0.0] * 4] * 3
    assert array(torch.full((5,), 7, device="cuda")).tolist() == [7] * 5
    assert array(torch.arange(10, device="cuda")).tolist() == list(range(10))
    x = np.random.default_rng(0).standard_normal((33, 17)).astype("f4")
    assert (array(torch.tensor(x).cuda()) == x).all()
    assert (array(torch.tensor(x).cuda().t()) == x.T).all()
    assert torch.zeros(0, 3, device="cuda").sum().item() == 0.0


def case_stepwise() -> None:
    """Functions that take as many steps as their operands ask for are kernels: nothing goes to the host between."""
    import numpy as np

    import flambeau as torch
    from flambeau._core.runtime import dispatch
    rng = np.random.default_rng(3)
    whole, real = (torch.tensor(rng.integers(0, 99, (30, 40))) for _ in range(2)), (torch.tensor(rng.uniform(0.01, 9, (30, 40))) for _ in range(2))
    for names, operands in ((("gcd", "lcm"), tuple(whole)), (("igamma", "igammac"), tuple(real))):
        there = [t.cuda() for t in operands]
        for name in names:
            copies: list[object] = []
            with dispatch.observe(lambda *launch: None, copies.append, lambda wait: None):
                made = getattr(torch, name)(there[0], there[1].t().contiguous().t())
            assert not copies, name
            assert np.allclose(array(made), array(getattr(torch, name)(*operands)), rtol=1e-12, atol=0), name


def case_values_are_checked_without_a_wait() -> None:
    """Codes and places that a host would look at are looked at by the GPU; a wrong one is told when the host next waits."""
    import flambeau as torch
    from flambeau._core.runtime import dispatch
    f = torch.nn.functional
    codes, x, places = torch.tensor([2, 0, 1]).cuda(), torch.ones(1, 1, 2, device="cuda"), torch.tensor([[[1, 2]]]).cuda()
    waited: list[object] = []
    with dispatch.observe(lambda *launch: None, waited.append, waited.append):
        found = f.one_hot(codes, 3), f.max_unpool1d(x, places, 2)
    assert not waited
    assert array(found[0]).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]] and array(found[1]).tolist() == [[[0, 1, 1, 0]]]
    for call, words in ((lambda: f.one_hot(codes, 2), "Class values must be smaller"), (lambda: f.one_hot(codes - 1, 3), "must be"),
                        (lambda: f.max_unpool1d(x, places + 9, 2), "invalid max index: 1")):
        try:
            call()
            torch.cuda.synchronize()
            raise AssertionError(words)
        except RuntimeError as error:
            assert words in str(error), error


def case_pointwise() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(1)
    for d, np_d in ((torch.float32, "f4"), (torch.float64, "f8"), (torch.int32, "i4"), (torch.int64, "i8")):
        a, b = rng.integers(1, 50, (37, 21)).astype(np_d), rng.integers(1, 50, (21,)).astype(np_d)
        x, y = torch.tensor(a).cuda(), torch.tensor(b).cuda()
        assert x.dtype is d
        np.testing.assert_array_equal(array(x + y), a + b)
        np.testing.assert_array_equal(array(x * y - x), a * b - a)
        np.testing.assert_array_equal(array(x.t() > 20), a.T > 20)
    a = rng.standard_normal((129,)).astype("f4")
    x = torch.tensor(a).cuda()
    np.testing.assert_allclose(array(torch.exp(x).tanh()), np.tanh(np.exp(a)), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(array(torch.nn.functional.gelu(x)), array(torch.nn.functional.gelu(x.cpu())), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(array(torch.where(x > 0, x, 0.0)), np.where(a > 0, a, 0))
    h = x.half()
    np.testing.assert_array_equal(array(h + h), (a.astype("f2") + a.astype("f2")))
    np.testing.assert_array_equal(array((x.bfloat16() * 2).float()), array((x.cpu().bfloat16() * 2).float()))
    x += 1
    np.testing.assert_array_equal(array(x), a + np.float32(1))


def case_reductions() -> None:
    import numpy as np

    import flambeau as torch
    a = np.random.default_rng(2).standard_normal((65, 130)).astype("f4")
    x = torch.tensor(a).cuda()
    np.testing.assert_allclose(x.sum().item(), a.astype("f8").sum(), rtol=1e-4)
    np.testing.assert_allclose(array(x.sum(0)), a.astype("f8").sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(array(x.mean(1)), a.astype("f8").mean(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(array(x.amax(1)), a.max(1))
    np.testing.assert_array_equal(array(x.argmax(1)), a.argmax(1))
    e = np.exp(a.astype("f8"))
    np.testing.assert_allclose(array(x.softmax(1)), e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-7)
    assert x.sum().item() == x.sum().item()


def case_no_element_or_one() -> None:
    """Scans, sorts, folds and rows of scalars, of rows of one element and of none."""
    import flambeau as torch
    along = ("cumsum cumprod cummax cummin logcumsumexp sort argsort softmax log_softmax sum prod amax argmax median mode norm flip count_nonzero any "
             "trapezoid").split()
    calls = {**dict.fromkeys(along, (-1,)), "norm": (2, -1), "kthvalue": (1, -1), "topk": (0, -1), "histc": (3,),
             **dict.fromkeys(("unique_consecutive", "nonzero", "msort", "diff", "nansum", "std", "unique"), ())}
    for shape in ((), (1,), (0,), (1, 1), (0, 3), (3, 0)):
        for name, given in calls.items():
            outcomes = []
            for t in (torch.ones(shape), torch.ones(shape).cuda()):
                try:
                    made = getattr(torch, name)(t, *given)
                    outcomes.append([array(m).tolist() for m in (made if isinstance(made, tuple) else (made,))])
                except (RuntimeError, IndexError, TypeError) as error:
                    outcomes.append([type(error).__name__])
            assert repr(outcomes[0]) == repr(outcomes[1]), (name, shape, outcomes)


def case_scans() -> None:
    import numpy as np

    import flambeau as torch
    a = np.random.default_rng(3).integers(-9, 9, (7, 300))
    np.testing.assert_array_equal(array(torch.tensor(a).cuda().cumsum(1)), a.cumsum(1))


def case_products() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(4)
    for d, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        a, b = rng.standard_normal((5, 7)), rng.standard_normal((7, 6))
        x, y = torch.tensor(a, dtype=d, device="cuda"), torch.tensor(b, dtype=d, device="cuda")
        np.testing.assert_allclose(array((x @ y).double()), a @ b, rtol=tolerance, atol=tolerance * 4)
        np.testing.assert_allclose(array((y.t() @ x.t()).double()), (a @ b).T, rtol=tolerance, atol=tolerance * 4)
        np.testing.assert_allclose(array((x[1:, 1:] @ y[1:]).double()), a[1:, 1:] @ b[1:], rtol=tolerance, atol=tolerance * 4)
    a, b = rng.standard_normal((3, 5, 7)).astype("f4"), rng.standard_normal((3, 7, 6)).astype("f4")
    x, y = torch.tensor(a).cuda(), torch.tensor(b).cuda()
    np.testing.assert_allclose(array(torch.bmm(x, y)), a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(x[:, ::2, ::2] @ y[:, ::2]), a[:, ::2, ::2] @ b[:, ::2], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(torch.baddbmm(torch.ones(3, 5, 6, device="cuda"), x, y, beta=0.5, alpha=2.0)), 0.5 + 2 * (a @ b), rtol=1e-5, atol=1e-5)
    i = torch.arange(6, device="cuda").reshape(2, 3)
    assert array(i @ i.t()).tolist() == [[5, 14], [14, 50]]
    torch.set_float32_matmul_precision("high")
    np.testing.assert_allclose(array(x @ y), a @ b, rtol=1e-2, atol=1e-2)
    torch.set_float32_matmul_precision("highest")


def case_by_the_host() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(5)
    a = rng.standard_normal((6, 6)).astype("f4")
    x = torch.tensor(a).cuda()
    seen = []
    from flambeau._core.runtime import dispatch
    with dispatch.observe(copies=lambda c: seen.append((c.direction, c.path))):
        drawn = torch.poisson(x.abs() * 9)
    assert ("d2h", "host") in seen and ("h2d", "host") in seen
    assert 0 < array(drawn).sum() < 2000
    np.testing.assert_allclose(array(torch.linalg.inv(x) @ x), np.eye(6), atol=1e-3)
    np.testing.assert_allclose(array(torch.fft.fft(x)), np.fft.fft(a), rtol=1e-4, atol=1e-4)
    assert array(torch.unique(torch.tensor([3, 1, 3]).cuda())).tolist() == [1, 3]
    assert array(x[torch.tensor([4, 0]).cuda()]).tolist() == a[[4, 0]].tolist()
    np.testing.assert_array_equal(array(torch.topk(x, 2, 1).values), -np.sort(-a, 1)[:, :2])


def case_tiles_pairs_and_long_rows() -> None:
    """Copies across memory, complex products and scans, rows in dynamic shared memory: none of them by the host."""
    import numpy as np

    import flambeau as torch
    from flambeau._core.runtime import dispatch
    rng = np.random.default_rng(16)
    a, z = rng.standard_normal((70, 90)).astype("f4"), np.exp(1j * rng.standard_normal((5, 60))).astype("c8")
    rows = rng.standard_normal((2, 20000)).astype("f4")
    x, c, long = torch.tensor(a).cuda(), torch.tensor(z).cuda(), torch.tensor(rows).cuda()
    paths = []
    with dispatch.observe(copies=lambda copy: paths.append(copy.path)):
        turned = (x.t() + 1).contiguous()
        product, running, added = c.prod(1), c.cumprod(1), torch.zeros(3, dtype=torch.complex64, device="cuda")
        added.index_put_((torch.tensor([0, 2, 0], device="cuda"),), c[0, :3], accumulate=True)
        soft = long.softmax(1)
        table, at = torch.zeros(12, 33, device="cuda", requires_grad=True), torch.randint(0, 12, (5, 40), device="cuda")
        slope = torch.tensor(rng.integers(-4, 5, (5, 40, 33)).astype("f4")).cuda()
        torch.nn.functional.embedding(at, table).backward(slope)
    assert "host" not in paths
    want = np.zeros((12, 33), "f4")
    np.add.at(want, array(at), array(slope))
    np.testing.assert_array_equal(array(table.grad), want)
    np.testing.assert_array_equal(array(turned), a.T + 1)
    np.testing.assert_allclose(array(product), z.prod(1), rtol=1e-4)
    np.testing.assert_allclose(array(running), z.cumprod(1), rtol=1e-4)
    np.testing.assert_allclose(array(added), [z[0, 0] + z[0, 2], 0, z[0, 1]], rtol=1e-5)
    e = np.exp(rows - rows.max(1, keepdims=True))
    np.testing.assert_allclose(array(soft), e / e.sum(1, keepdims=True), rtol=1e-4)


def case_convolution() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(6)
    x, w = torch.tensor(rng.standard_normal((2, 3, 8, 8)).astype("f4")), torch.tensor(rng.standard_normal((4, 3, 3, 3)).astype("f4"))
    results = []
    for device in ("cpu", "cuda"):
        a, b = x.detach().to(device).requires_grad_(), w.detach().to(device).requires_grad_()
        y = torch.nn.functional.conv2d(a, b, padding=1)
        (y * y).sum().backward()
        results.append([array(t) for t in (y, a.grad, b.grad)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-3)


def case_attention() -> None:
    import numpy as np

    import flambeau as torch
    q = torch.tensor(np.random.default_rng(7).standard_normal((1, 2, 9, 8)).astype("f4"))
    results = []
    for device in ("cpu", "cuda"):
        a = q.detach().to(device).requires_grad_()
        y = torch.nn.functional.scaled_dot_product_attention(a, a, a, is_causal=True)
        y.sum().backward()
        results.append((array(y), array(a.grad)))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def case_training() -> None:
    """A small network learns on the GPU what it learns on the CPU."""
    import numpy as np

    import flambeau as torch

    def train(device: str) -> tuple[list[float], Any]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        net.to(device)
        rng = np.random.default_rng(8)
        x, y = torch.tensor(rng.standard_normal((32, 6)).astype("f4")).to(device), torch.tensor(rng.integers(0, 3, 32)).to(device)
        steps = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(4):
            steps.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            steps.step()
            losses.append(loss.item())
        return losses, array(net[0].weight)
    (one, w1), (other, w2) = train("cpu"), train("cuda")
    np.testing.assert_allclose(other, one, rtol=1e-4)
    np.testing.assert_allclose(w2, w1, rtol=1e-3, atol=1e-5)
    assert other[-1] < other[0]


def case_random_numbers() -> None:
    import flambeau as torch
    for f in (torch.rand, torch.randn):
        made = []
        with torch.random.fork_rng():
            torch.random.set_stream("counter")  # whose numbers are the same on both
            for device in ("cpu", "cuda"):
                g = torch.Generator(device).manual_seed(3)
                made.append(array(f(100, device=device, generator=g)))
        assert abs(made[0] - made[1]).max() < 1e-5


def case_copies() -> None:
    import numpy as np

    import flambeau as torch
    a = (np.arange(1 << 20) % 60000).astype("f4")
    p = torch.tensor(a).pin_memory()
    assert p.is_pinned()
    x = p.to("cuda", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    p.zero_()  # the copy is over
    np.testing.assert_array_equal(array(x), a)
    np.testing.assert_array_equal(array(x.reshape(1024, 1024)[::2, ::3]), a.reshape(1024, 1024)[::2, ::3])
    y = x.to("cuda:1")
    assert y.device.index == 1
    np.testing.assert_array_equal(array(y + 1), a + 1)
    np.testing.assert_array_equal(array(x.to(torch.float16).float()), a.astype("f2").astype("f4"))
    back = torch.empty(1 << 20).pin_memory()
    back.copy_(y, non_blocking=True)
    torch.cuda.synchronize(1)
    np.testing.assert_array_equal(back.numpy(), a)


def case_streams() -> None:
    import flambeau as torch
    side = torch.cuda.Stream()
    x = torch.full((1000,), 2.0, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 3
        y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    assert (y + 1).sum().item() == 7000.0
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(5):
        x = x * 1.0
    end.record()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0.0
    torch.cuda.synchronize()
    assert torch.cuda.current_stream().query()
    assert side.cuda_stream > 0
    same = torch.cuda.ExternalStream(side.cuda_stream)
    assert same.cuda_stream == side.cuda_stream and same == torch.cuda.ExternalStream(side.cuda_stream)
    with torch.cuda.stream(same):
        y = torch.full((100,), 2.0, device="cuda") * 3
    side.synchronize()
    assert same.query() and y.tolist() == [6.0] * 100


def case_pools() -> None:
    import flambeau as torch
    before = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(1 << 20, device="cuda")
    segment, = pool.snapshot()
    assert segment["address"] <= x.data_ptr() < segment["address"] + segment["total_size"] and x.sum().item() == 1 << 20
    del x, pool
    assert torch.cuda.memory_reserved() == before


def case_memory() -> None:
    import flambeau as torch
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    free, total = torch.cuda.mem_get_info()
    assert total == MEMORY and 0 < free < total
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == before
    try:
        torch.zeros(MEMORY, device="cuda")
    except torch.cuda.OutOfMemoryError as e:
        assert "CUDA out of memory" in str(e) and e.total == MEMORY
    else:
        raise AssertionError("there was room")
    held = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(6)]
    del held
    assert torch.zeros(200 << 20, dtype=torch.uint8, device="cuda").sum().item() == 0  # what is cached makes room


def case_complex_numbers() -> None:
    import numpy as np

    import flambeau as torch
    a = np.arange(6).reshape(2, 3) * (1 + 2j)
    x = torch.tensor(a).cuda()
    np.testing.assert_allclose(array(x * (2 - 1j) + x.conj()), a * (2 - 1j) + a.conj())
    assert array(torch.full((3,), 1 - 3j, device="cuda")).tolist() == [1 - 3j] * 3


def case_benchmark_networks() -> None:
    """What benchmarks/gpu trains, made small."""
    sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks" / "gpu"))
    import gpu_lines

    import flambeau as torch
    step = gpu_lines._gpt(torch, 1, 8, layers=1, width=16, heads=2, words=32)
    for _ in range(2):
        step()
    for line in gpu_lines.small(gpu_lines.SMOKE):
        line.setup(torch)()
    torch.cuda.synchronize()


def case_threads() -> None:
    """Each thread gets its context, and the same bound launch serves all at once."""
    import threading

    import flambeau as torch
    x = torch.arange(100, device="cuda")
    found: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            found.append((x * k).sum().item() - 4950 * k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [0] * 80


# ------------------------------------------------------------------------------------------------- those that end a device
def end_launch_failure(fake: Any) -> None:
    import flambeau as torch
    x = torch.ones(8, device="cuda")
    x + 1
    fake.fake_fail(b"cuLaunchKernel", 0, 719)
    for attempt in range(2):
        try:
            x + 1
            torch.cuda.synchronize()
        except torch.AcceleratorError as e:
            assert "CUDA_ERROR_LAUNCH_FAILED (719)" in str(e) and "unusable" in str(e), e
            assert attempt == 0 or "since:" in str(e), e
        else:
            raise AssertionError("nothing was raised")
    del x
    assert torch.ones(3, device="cuda:1").sum().item() == 3.0  # the other device works on


def end_lost_device(fake: Any) -> None:
    import flambeau as torch
    x = torch.ones(8, device="cuda")
    fake.fake_fail(b"cuStreamSynchronize", 0, 999)
    try:
        x.sum().item()
    except torch.AcceleratorError as e:
        assert "lost" in str(e) and "999" in str(e)
    else:
        raise AssertionError("nothing was raised")
    try:
        torch.zeros(3, device="cuda")
    except torch.AcceleratorError as e:
        assert "since:" in str(e)
    else:
        raise AssertionError("nothing was raised")


def end_passing_fault(fake: Any) -> None:
    """An error that leaves the device as it was is raised once."""
    import flambeau as torch
    x = torch.ones(8, device="cuda")
    fake.fake_fail(b"cuLaunchKernel", 0, 1)
    try:
        x * 5
    except torch.AcceleratorError as e:
        assert "CUDA_ERROR_INVALID_VALUE" in str(e) and "unusable" not in str(e)
    else:
        raise AssertionError("nothing was raised")
    assert (x * 5).sum().item() == 40.0


def end_out_of_memory(fake: Any) -> None:
    import flambeau as torch
    held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    del held
    fake.fake_fail(b"cuMemAllocFromPoolAsync", 0, 2)
    assert torch.zeros(32 << 20, dtype=torch.uint8, device="cuda").sum().item() == 0  # by what was cached, given back
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 1


def end_peer_refused(fake: Any) -> None:
    """Without peer access copies between GPUs go through the host."""
    import flambeau as torch
    assert not torch.cuda.can_device_access_peer(0, 1)
    x = torch.arange(1000, device="cuda:0")
    assert x.to("cuda:1").sum().item() == 499500
    from flambeau._core.runtime import gpus
    try:
        gpus.gpu(0).driver.enable_peer(0, 1)
    except RuntimeError as e:
        assert "peer access is not supported" in str(e)
    else:
        raise AssertionError("nothing was raised")


def end_fork(fake: Any) -> None:
    """Counting leaves a fork whole; use does not, and the child is told so."""
    import flambeau as torch
    assert torch.cuda.device_count() == 2 and torch.cuda.is_available()
    assert not torch.cuda.is_initialized()

    def child(check: Any) -> None:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                check()
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def uses() -> None:
        assert torch.ones(4, device="cuda").sum().item() == 4.0

    def is_told() -> None:
        try:
            torch.ones(4, device="cuda")
        except RuntimeError as e:
            assert "forked" in str(e)
        else:
            raise AssertionError("nothing was raised")
        assert not torch.cuda.is_available()
    child(uses)
    uses()
    child(is_told)
    uses()


def end_idle_gpus(fake: Any) -> None:
    """A GPU that is not used gets no context."""
    import flambeau as torch
    assert torch.ones(4, device="cuda").sum().item() == 4.0
    from flambeau._core.runtime import gpus
    devices = gpus.gpu(0).driver._devices
    assert [d.context is None for d in devices] == [False, True]
    assert torch.ones(4, device="cuda:1").sum().item() == 4.0
    assert devices[1].context is not None


def end_nothing_visible(fake: Any) -> None:
    """With CUDA_VISIBLE_DEVICES empty."""
    import flambeau as torch
    assert torch.cuda.device_count() == 0
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as e:
        assert "hidden by CUDA_VISIBLE_DEVICES" in str(e), e
    else:
        raise AssertionError("nothing was raised")


def end_old_driver(fake: Any) -> None:
    import flambeau as torch
    assert not torch.cuda.is_available()
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as e:
        assert "too old" in str(e) and "CUDA 11.4" in str(e), e
    else:
        raise AssertionError("nothing was raised")


def end_no_device(fake: Any) -> None:
    import flambeau as torch
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as e:
        assert "sees no GPU" in str(e), e
    else:
        raise AssertionError("nothing was raised")


def end_host_time(fake: Any) -> None:
    """What an eager operation costs the host, kernels being nothing."""
    import time

    import flambeau as torch
    x, y = torch.ones(16, device="cuda"), torch.ones(16, device="cuda")
    for _ in range(100):
        x + y
    best = 1.0
    for _ in range(5):
        since = time.perf_counter()
        for _ in range(2000):
            x + y
        best = min(best, (time.perf_counter() - since) / 2000)
    print(json.dumps({"microseconds": best * 1e6}), flush=True)
    assert fake.fake_count(1) >= 10000


def main(cases: dict[str, Any], more: Any = None) -> None:
    """Runs the functions among `cases` that the command line asks for; `more` prepares for them."""
    order, seed = sys.argv[1], int(sys.argv[2])
    fake = start(order, seed)
    if more is not None:
        more()
    only = sys.argv[3:]
    for name, f in list(cases.items()):
        if name not in only and (only or not name.startswith("case_")):
            continue
        try:
            f(fake) if name.startswith("end_") else f()
            told = ""
        except BaseException:
            told = traceback.format_exc()
        print(json.dumps({"name": name, "error": told}), flush=True)
    if hasattr(fake, "watch"):
        print(json.dumps({"name": "called", "functions": sorted(fake.watch.called)}))


if __name__ == "__main__":
    main(globals())
