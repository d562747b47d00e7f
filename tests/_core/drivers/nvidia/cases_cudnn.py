"""Convolutions through the NVIDIA driver and a fake cuDNN, in a process of its own: ``python cases_cudnn.py ORDER SEED [NAME...]``."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402
import host_kernels  # noqa: E402

array = cases.array
fake_dnn: Any = None
REFUSED_AT_ONCE, REFUSED_WHEN_RUN, WORKSPACE, FASTEST, NO_LAST, FAILURE = range(6)


def start() -> None:
    """The fake cuDNN in place of a real one."""
    global fake_dnn
    path = str(host_kernels.libraries()["libcudnn.so.9"])
    fake_dnn = ctypes.CDLL(path)
    fake_dnn.fake_cudnn_ran.restype = ctypes.c_long
    fake_dnn.fake_cudnn.argtypes = (ctypes.c_int, ctypes.c_long)
    from flambeau._core.drivers.nvidia import libraries
    others = libraries.find
    libraries.find = lambda name: path if name == "cudnn" else others(name)
    from flambeau._core.drivers.nvidia import cudnn_convolutions
    from flambeau._core.kernels import cache
    kind: Any = cudnn_convolutions._Convolutions
    plain = kind.name
    # what other runs of these cases tried is not this one's to find
    kind.name = lambda *what: cache.key(plain(*what), str(os.getpid()))


class told:
    """A rule of the fake library, for a block."""

    def __init__(self, *rules: tuple[int, int]) -> None:
        self.rules = rules

    def __enter__(self) -> None:
        from flambeau._core.runtime import dispatch
        dispatch.changed()
        for which, value in self.rules:
            fake_dnn.fake_cudnn(which, value)

    def __exit__(self, *exc: object) -> None:
        from flambeau._core.runtime import dispatch
        for which, value in enumerate((0, 0, 4096, -1, 0, 0)):
            fake_dnn.fake_cudnn(which, value)
        dispatch.changed()


def ran() -> list[int]:
    return [fake_dnn.fake_cudnn_ran(a) for a in range(16)]


def both(n: int, x: Any, w: Any, b: Any, transposed: bool = False, last: bool = False, **how: Any) -> float:
    """The result and all gradients on the GPU and on the CPU; the largest difference, relative to the largest value."""
    import numpy as np

    import flambeau as torch
    f = getattr(torch.nn.functional, f"conv{'_transpose' if transposed else ''}{n}d")
    found = []
    for device in ("cuda", "cpu"):
        leaves = [None if t is None else t.to(device).requires_grad_() for t in (x, w, b)]
        a = leaves[0].to(memory_format=torch.channels_last if n == 2 else torch.channels_last_3d) if last and device == "cuda" else leaves[0]
        y = f(a, leaves[1], leaves[2], **how)
        assert y.dtype is x.dtype
        if last and device == "cuda":
            assert y.is_contiguous(memory_format=torch.channels_last if n == 2 else torch.channels_last_3d)
        weights = torch.arange(y.numel(), device=device).reshape(y.shape).remainder(7).to(y.dtype) - 3
        (y * weights).sum().backward()
        found.append([array(t.float()) for t in (y, *[leaf.grad for leaf in leaves if leaf is not None])])
    worst = 0.0
    for mine, host in zip(*found, strict=True):
        assert mine.shape == host.shape
        worst = max(worst, float(np.abs(mine - host).max() / max(np.abs(host).max(), 1e-6)))
    return worst


def data(d: Any, *shape: int) -> Any:
    import flambeau as torch
    torch.manual_seed(sum(shape))
    return torch.randn(*shape).to(d)


def case_kinds() -> None:
    """One to three axes, plain and transposed, strides, paddings, dilations, groups, with and without bias."""
    import flambeau as torch
    before = sum(ran())
    for n, transposed, groups, bias in itertools.product((1, 2, 3), (False, True), (1, 2), (False, True)):
        shape = (9, 8, 7)[:n]
        how: dict[str, Any] = {"stride": (2, 1, 2)[:n], "padding": (1, 2, 0)[:n], "dilation": (1, 2, 1)[:n], "groups": groups}
        w = data(torch.float32, *((4, 3) if transposed else (6, 4 // groups)), *(3, 2, 3)[:n])
        if transposed:
            how["output_padding"] = (1, 0, 0)[:n]
        b = data(torch.float32, 3 * groups if transposed else 6) if bias else None
        worst = both(n, data(torch.float32, 2, 4, *shape), w, b, transposed, **how)
        assert worst < 2e-6, (n, transposed, groups, bias, worst)
    assert sum(ran()) - before >= 24 * 3


def case_types() -> None:
    import flambeau as torch
    for d, limit in ((torch.float64, 1e-12), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)):
        for last in (False, True)[:1 + (d is not torch.float64)]:  # doubles go by columns, which are row by row
            worst = both(2, data(d, 2, 4, 7, 6), data(d, 6, 4, 3, 3), data(d, 6), last=last, padding=1)
            assert worst < limit, (d, last, worst)
    x = data(torch.float16, 1, 2, 5, 5).cuda()
    assert torch.nn.functional.conv2d(x, data(torch.float16, 3, 2, 3, 3).cuda(), padding="same").dtype is torch.float16


def case_one_channel_a_group() -> None:
    """By our kernels: one and two axes, plain and transposed, several results a channel, types, channels last, without cuDNN."""
    import flambeau as torch
    before = sum(ran())
    for n, each, step, bias in itertools.product((1, 2), (1, 3), (1, 2), (False, True)):
        shape = (2, 5, *(13, 11)[:n])
        for w, transposed, how in (((5 * each, 1, *(3, 5)[:n]), False, {"dilation": 3 - step}), ((5, 1, *(3, 4)[:n]), True, {"output_padding": step - 1})):
            b = data(torch.float32, 5 if transposed else 5 * each) if bias else None
            worst = both(n, data(torch.float32, *shape), data(torch.float32, *w), b, transposed, padding=1, stride=step, groups=5, **how)
            assert worst < 2e-6, (n, each, step, bias, transposed, worst)
    for d, limit in ((torch.float64, 1e-12), (torch.float32, 2e-6), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)):
        for last in (False, True):
            worst = both(2, data(d, 3, 40, 15, 14), data(d, 40, 1, 7, 7), data(d, 40), last=last, padding=3, groups=40)
            assert worst < limit, (d, last, worst)
    assert sum(ran()) == before


def case_layouts() -> None:
    """Channels last stay last; anything else is copied; axes of length 1 have no order."""
    import flambeau as torch
    worst = both(2, data(torch.float32, 2, 4, 7, 6), data(torch.float32, 6, 4, 3, 3), data(torch.float32, 6), last=True, padding=1)
    assert worst < 2e-6, worst
    worst = both(3, data(torch.float32, 2, 4, 5, 4, 3), data(torch.float32, 6, 4, 2, 2, 2), None, last=True)
    assert worst < 2e-6, worst
    worst = both(2, data(torch.float32, 2, 4, 7, 6), data(torch.float32, 6, 4, 1, 1), data(torch.float32, 6), last=True)
    assert worst < 2e-6, worst
    worst = both(2, data(torch.float32, 7, 6, 4, 2).permute(3, 2, 0, 1)[:, :, ::2], data(torch.float32, 4, 6, 3, 3).transpose(0, 1), None)
    assert worst < 2e-6, worst
    before = ran()
    with told((NO_LAST, 1)):  # then row by row
        f, x, w = torch.nn.functional.conv2d, data(torch.float32, 2, 4, 7, 6), data(torch.float32, 6, 4, 3, 3)
        y = f(x.cuda().to(memory_format=torch.channels_last), w.cuda())
        assert y.is_contiguous() and torch.allclose(y.cpu(), f(x, w), atol=1e-5)
    assert sum(ran()) == sum(before) + 1


def case_empty() -> None:
    import flambeau as torch
    f = torch.nn.functional.conv2d
    assert f(torch.zeros(0, 3, 5, 5, device="cuda"), torch.zeros(4, 3, 3, 3, device="cuda")).shape == (0, 4, 3, 3)
    z = f(torch.zeros(1, 2, 5, 5, device="cuda", dtype=torch.complex64), torch.ones(4, 2, 3, 3, device="cuda", dtype=torch.complex64))
    assert array(torch.view_as_real(z)).max() == 0


def case_second_order() -> None:
    import flambeau as torch
    grads = []
    for device in ("cuda", "cpu"):
        x = data(torch.float32, 2, 2, 5, 5).to(device).requires_grad_()
        w = data(torch.float32, 3, 2, 3, 3).to(device).requires_grad_()
        (g,) = torch.autograd.grad((torch.nn.functional.conv2d(x, w) ** 2).sum(), x, create_graph=True)
        (g ** 2).sum().backward()
        grads.append((x.grad.cpu(), w.grad.cpu()))
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-2), (a - b).abs().max()


def _plain(batch: int = 2) -> tuple[Any, Any, Any]:
    import flambeau as torch
    x, w, b = data(torch.float32, batch, 4, 9, 9), data(torch.float32, 5, 4, 3, 3), data(torch.float32, 5)
    return [t.cuda() for t in (x, w, b)], torch.nn.functional.conv2d(x, w, b), torch.nn.functional.conv2d


def case_choice() -> None:
    """The library's first choice, with its bias; refused ones are passed over; determinism and TF32 are heeded."""
    import flambeau as torch
    args, right, f = _plain()

    def used(*rules: tuple[int, int]) -> list[int]:
        with told(*rules):
            before = ran()
            assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
            return [k for k, (a, b) in enumerate(zip(before, ran(), strict=True)) for _ in range(b - a)]
    assert used() == [1 + 8]  # the default: TF32 where it is faster; not the engine that would be compiled first
    torch.backends.cudnn.allow_tf32 = False
    assert used() == [2 + 8]
    torch.backends.cudnn.allow_tf32 = True
    assert used((REFUSED_AT_ONCE, 2)) == [2 + 8]
    assert used((REFUSED_WHEN_RUN, 2)) == [2 + 8]
    assert used((REFUSED_WHEN_RUN, 6)) == [0 + 8]
    assert used((FAILURE, 2003)) == [2 + 8]  # that kernel wants other addresses
    torch.backends.cudnn.deterministic = True
    assert used((REFUSED_AT_ONCE, 2)) == [0 + 8]
    torch.backends.cudnn.deterministic = False
    torch.use_deterministic_algorithms(True)
    assert used((REFUSED_AT_ONCE, 2)) == [0 + 8]
    torch.use_deterministic_algorithms(False)
    assert used((REFUSED_WHEN_RUN, 7)) == []  # columns and products
    assert used((REFUSED_AT_ONCE, 7)) == []
    with torch.backends.cudnn.flags(enabled=False):
        assert used() == []
    h = [t.half() for t in args]
    assert used() == [1 + 8]
    with told((REFUSED_AT_ONCE, 7)):  # then in float32, rounded once
        assert torch.allclose(f(*h).float().cpu(), right, atol=2e-2)
        x, w = args[0].bfloat16(), args[1].bfloat16()  # with no bias: one product
        right = f(x.cpu().float(), w.cpu().float())
        assert (f(x, w).cpu().float() - right).abs().max() < 0.01 * right.abs().max()
        for d in (torch.float16, torch.bfloat16):
            worst = both(2, data(d, 2, 4, 7, 6), data(d, 6, 4, 3, 3), None, stride=2, padding=1)
            assert worst < (3e-3 if d is torch.float16 else 2e-2), worst


def case_benchmark() -> None:
    """Those proposed first are tried once for each convolution, and the fastest is kept, within the workspace it needs."""
    import flambeau as torch
    args, right, f = _plain()

    def since(before: list[int]) -> list[int]:
        return [b - a for a, b in zip(before, ran(), strict=True)][8:11]
    torch.backends.cudnn.benchmark = True
    with told((FASTEST, 2)):
        before = ran()
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        tried = since(before)
        assert tried[0] == tried[1] > 1 and tried[2] == tried[0] + 1, tried
        for _ in range(3):
            assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        assert since(before) == [tried[0], tried[1], tried[2] + 3]
        x, w = (t.detach().requires_grad_() for t in args[:2])
        f(x, w, *args[2:]).sum().backward()
        on_host = [t.detach().cpu().requires_grad_() for t in (x, w)]
        f(*on_host, *(t.cpu() for t in args[2:])).sum().backward()
        assert all(torch.allclose(t.grad.cpu(), right.grad, atol=1e-4) for t, right in zip((x, w), on_host, strict=True))
    torch.backends.cudnn.benchmark_limit = 2
    args, right, f = _plain(4)
    with told((FASTEST, 0)):
        before = ran()
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        assert since(before)[0] == 0 and all(since(before)[1:]), since(before)
    torch.backends.cudnn.benchmark_limit = 10
    torch.backends.cudnn.benchmark = False
    assert torch.allclose(f(*args).cpu(), right, atol=1e-4)


def case_what_was_tried_is_kept() -> None:
    """Another process, and this one once it has forgotten, takes the engine that was fastest; not one that must give the same bits each time."""
    import flambeau as torch
    from flambeau._core.runtime import caches, gpus
    args, right, f = _plain(5)
    f(*args)
    kept = gpus.gpu(0).driver._programs()._libraries["cudnn convolutions"]
    torch.backends.cudnn.benchmark = True

    def used() -> list[int]:
        kept.tried.clear()
        caches.forget()
        before = ran()
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        return [b - a for a, b in zip(before, ran(), strict=True)][8:11]
    with told((FASTEST, 2)):
        first = used()
        assert used() == [0, 0, 1], first
    with told((FASTEST, 1)):  # nobody asks again
        assert used() == [0, 0, 1]
        torch.backends.cudnn.deterministic = True
        assert used() != [0, 0, 1]
        torch.backends.cudnn.deterministic = False
    with told((REFUSED_WHEN_RUN, 4)):  # what is kept and refused is passed over
        assert used() == [0, 1, 0]
    torch.backends.cudnn.benchmark = False


def case_addresses_of_any_alignment() -> None:
    """A view that begins anywhere: another plan serves it; the one for whole addresses stays."""
    import flambeau as torch
    args, right, f = _plain()
    odd = torch.zeros(args[0].numel() + 1, device="cuda")
    x = odd[1:].view(args[0].shape)
    x.copy_(args[0])
    for _ in range(2):
        before = ran()
        assert torch.allclose(f(x, *args[1:]).cpu(), right, atol=1e-4)
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        assert [b - a for a, b in zip(before, ran(), strict=True)][8:11] == [1, 1, 0]


def case_more_room_than_was_asked_for() -> None:
    """Where a plan is refused once callers know its workspace, the next one's own is not theirs to give."""
    import flambeau as torch
    args, right, f = _plain(6)
    with told((FASTEST, -1)):
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        fake_dnn.fake_cudnn(REFUSED_WHEN_RUN, 2)
        before = ran()
        for _ in range(2):
            assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        assert [b - a for a, b in zip(before, ran(), strict=True)][8:11] == [0, 0, 2]


def case_little_room() -> None:
    """Where there is no room for an algorithm's workspace, a smaller one serves."""
    import flambeau as torch
    args, right, f = _plain(3)
    with told((WORKSPACE, 1 << 40)):
        before = ran()
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        assert [b - a for a, b in zip(before, ran(), strict=True)][8:11] == [1, 0, 0]
        torch.backends.cudnn.benchmark = True
        assert torch.allclose(f(*args).cpu(), right, atol=1e-4)
        torch.backends.cudnn.benchmark = False


def case_failures() -> None:
    """What the library says when it fails is told; the device lives on."""
    import flambeau as torch
    args, right, f = _plain()
    f(*args)
    torch.cuda.synchronize()
    for code, words in ((5000, "status 5000"), (2000, "an argument is not valid")):
        fake_dnn.fake_cudnn(FAILURE, code)
        try:
            f(*args)
        except RuntimeError as error:
            assert words in str(error) and "(2, 4, 9, 9)" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    assert torch.allclose(f(*args).cpu(), right, atol=1e-4)


def case_streams() -> None:
    """A handle for each stream."""
    import flambeau as torch
    args, right, f = _plain()
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for s in streams:
        with torch.cuda.stream(s):
            found.append(f(*args))
    torch.cuda.synchronize()
    assert all(torch.allclose(y.cpu(), right, atol=1e-4) for y in found)


def case_few_engines_are_named_first() -> None:
    """All of them only once those were passed over, each once and in the library's order."""
    import flambeau as torch
    from flambeau._core.drivers.nvidia import cudnn, cudnn_convolutions, cudnn_graph
    lib = cudnn_graph.declared(cudnn.load())
    x, w, y = ((s, cudnn_convolutions._dense(s, False)) for s in ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)))
    shape = cudnn_convolutions.Shape("forward", torch.float32, x, w, y, ((0, 0), (1, 1), (1, 1)), False)
    asked: list[int] = []
    plain, few = cudnn_graph.Descriptor.read, cudnn_graph._FEW_ENGINES

    def read(self: Any, name: str, count: int = 1, into: Any = None) -> Any:
        if name == "results":
            asked.append(count)
        return plain(self, name, count, into)
    cudnn_graph.Descriptor.read = read
    try:
        found = {}
        for cudnn_graph._FEW_ENGINES in (1, 2, 3, 5):
            asked.clear()
            made = cudnn_graph.plans(shape.graph(lib), 1 << 40, ctypes.c_void_p(1))
            first = next(made)
            assert asked == [cudnn_graph._FEW_ENGINES], asked
            found[cudnn_graph._FEW_ENGINES] = [first.engine(), *[p.engine() for p in made]]
        # the second way of asking names them once more
        assert found[5] == [3, 1, 2, 0] * 2 and all(engines == found[5] for engines in found.values()), found
    finally:
        cudnn_graph.Descriptor.read, cudnn_graph._FEW_ENGINES = plain, few


def case_what_is_there() -> None:
    import warnings

    import flambeau as torch
    from flambeau import inventory
    assert torch.backends.cudnn.is_available() and torch.backends.cudnn.version() == 91900
    told = inventory.nvidia()["convolutions"]
    assert "cuDNN 9.19.0" in told and "libcudnn.so.9" in told
    from flambeau._core.drivers.nvidia import cudnn, libraries
    found, libraries.find = libraries.find, lambda name: "libabsent.so"
    try:
        assert not torch.backends.cudnn.is_available() and torch.backends.cudnn.version() is None
        assert "pip install 'flambeau[cuda-dnn]'" in inventory.nvidia()["convolutions"]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert [cudnn.Library(None).lib for _ in range(2)] == [None, None]
        assert len(said) == 1 and "cuDNN cannot be loaded, so columns by generated kernels" in str(said[0].message), said
    finally:
        libraries.find = found


if __name__ == "__main__":
    cases.main(globals(), start)
