"""Sorting and its kin, run through the driver on a fake libcuda, in a process of its own: ``python cases_sorting.py ORDER SEED [NAME...]``.

Each case also sees to it that nothing but counts goes to the host on the way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402

array = cases.array


class on_device:
    """No launch is carried out by the host, and what crosses is `most` bytes, the copies that ask for results aside."""

    def __init__(self, most: int = 0) -> None:
        self.most, self.crossed, self.paths = most, 0, set()

    def __enter__(self) -> None:
        from flambeau._core.runtime import dispatch
        self.watch = dispatch.observe(copies=self.see)

    def see(self, copy: Any) -> None:
        self.paths.add(copy.path)
        self.crossed += copy.nbytes if copy.direction in ("d2h", "h2d") else 0

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.watch.close()
        if kind is None:
            assert "host" not in self.paths, self.paths
            assert self.crossed <= self.most, f"{self.crossed} bytes crossed"


def same(f: Any, *given: Any, most: int = 0) -> None:
    """f gives the same on both devices, the signs of zeros too, and stays on the GPU."""
    import numpy as np

    import flambeau as torch
    want = f(*given)
    moved = [t.cuda() if isinstance(t, torch.Tensor) else t for t in given]
    with on_device(most):
        got = f(*moved)
    if isinstance(want, torch.Tensor):
        want, got = (want,), (got,)
    for w, g in zip(want, got, strict=True):
        assert g.device.type == "cuda" and g.dtype is w.dtype and g.shape == w.shape, (g, w)
        assert g.stride() == w.stride(), (g.stride(), w.stride())
        a, b = (array(t.double() if t.is_floating_point() else t) for t in (g, w))
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and (a.dtype.kind != "f" or (np.signbit(a) == np.signbit(b))[a == 0].all()), (a, b)


def numbers(d: Any, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Elements among which are equal ones, NaN, infinities and both zeros."""
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(seed)
    if d is torch.bool:
        return torch.tensor(rng.integers(0, 2, shape).astype(bool))
    if not d.is_floating_point:
        return torch.tensor(rng.integers(0 if "uint" in str(d) else -100, 100, shape)).to(d)
    a = rng.standard_normal(shape)
    special = rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5], shape)
    return torch.tensor(np.where(rng.random(shape) < 0.2, special, a)).to(d)


def types() -> list[Any]:
    import flambeau as torch
    return [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def case_sort() -> None:
    import flambeau as torch
    for d in types():
        x = numbers(d, (3, 5, 40))
        same(lambda t: t.sort(-1), x)
        same(lambda t: t.sort(1, descending=True), x)
        same(lambda t: t.argsort(0), x)
    for n in (300, 5000):
        x = numbers(torch.float32, (2, n), 1)
        same(lambda t: t.sort(-1, stable=True), x)
        same(lambda t: t.t().sort(0, descending=True), x)
        same(lambda t: t[:, ::2].sort(-1), x)
    same(lambda t: t.sort(), torch.tensor(3.0))
    same(lambda t: t.msort(), numbers(torch.int64, (7, 3)))
    same(lambda t: t.sort(-1), torch.zeros(0, 4))


def case_other_axes() -> None:
    """Large tensors are turned before their columns are sorted."""
    import flambeau as torch
    from flambeau._core.drivers.nvidia import ordering
    ordering._APART, before = 64, ordering._APART
    x = numbers(torch.float32, (40, 3, 7), 25)
    same(lambda t: t.sort(0), x)
    same(lambda t: t.transpose(0, 2).sort(-1, descending=True), x)
    same(lambda t: t.topk(5, 0), x)
    same(lambda t: _kth(t, 5, 0), x)
    same(lambda t: t.nanmedian(0, keepdim=True), x)
    ordering._APART = before


def case_topk() -> None:
    import flambeau as torch
    for d in types()[1:]:
        x = numbers(d, (3, 100), 2)
        same(lambda t: t.topk(5), x)
        same(lambda t: t.topk(2, dim=0, largest=False), x)
    x = numbers(torch.float32, (2, 6000), 3)
    for k in (1, 50, 2100):
        same(lambda t: t.topk(k, -1), x)  # noqa: B023
    same(lambda t: t.topk(20), numbers(torch.float32, (40000,), 4))
    same(lambda t: t.topk(1), torch.tensor(3.0))


def _kth(t: Any, k: int, axis: int) -> Any:
    """The k-th elements, and those at the positions found: which of equal ones that is differs between devices, as the sign of a zero may."""
    found = t.kthvalue(k, axis, True)
    return found.values + 0, t.gather(axis, found.indices) + 0


def case_elements() -> None:
    import flambeau as torch
    for d in types()[1:]:
        x = numbers(d, (4, 30), 5)
        same(lambda t: _kth(t, 7, -1), x)
        same(lambda t: _kth(t, 2, 0), x)
        same(lambda t: t.median(-1), x)
        same(lambda t: t.nanmedian(0, keepdim=True), x)
        same(lambda t: t.mode(-1), x)
        same(lambda t: t.mode(0, keepdim=True), x)
        same(lambda t: (t.median(), t.nanmedian()), x)
    same(lambda t: t.kthvalue(1), torch.tensor(3.0))
    same(lambda t: t.mode(), torch.tensor(3.0))
    from flambeau._core.drivers.nvidia import ordering
    ordering._LONG, before = 50, ordering._LONG
    for d in (torch.float32, torch.int64):
        x = numbers(d, (3, 200), 6)
        same(lambda t: _kth(t, 90, -1), x)
        same(lambda t: t.median(-1), x)
        same(lambda t: t.nanmedian(-1), x)
        same(lambda t: (t.median(), t.nanmedian()), x)
    ordering._LONG = before


def case_gradients() -> None:
    import flambeau as torch
    for f in (lambda t: t.sort(0)[0] * 2, lambda t: t.topk(3, 1)[0], lambda t: t.kthvalue(2, 1)[0], lambda t: t.median(0)[0], lambda t: t.mode(1)[0],
              lambda t: t.median(), lambda t: t.quantile(torch.tensor([0.25, 0.7], device=t.device), 1)):
        found = []
        for device in ("cpu", "cuda"):  # rows without equal elements of which kthvalue finds others on GPUs
            x = torch.tensor([[3.0, 1.0, 2.0, 2.5], [5.0, 5.0, 0.0, 1.0], [0.5, 1.5, -1.0, 9.0]], device=device, requires_grad=True)
            f(x).pow(2).sum().backward()
            found.append(array(x.grad).tolist())
        assert found[0] == found[1], found


def case_quantile() -> None:
    import flambeau as torch
    x, q = numbers(torch.float32, (4, 31), 7), torch.tensor([0.0, 0.3, 0.5, 1.0])
    for how in ("linear", "lower", "higher", "midpoint", "nearest"):
        same(lambda t, p: t.quantile(p, 1, interpolation=how), x, q)  # noqa: B023
        same(lambda t, p: t.nanquantile(p, 0, interpolation=how), x, q)  # noqa: B023


def case_nonzero() -> None:
    import flambeau as torch
    for d in (*types(), torch.complex64):
        x = numbers(torch.int64, (7, 9, 5), 8).clamp(0, 60).to(d)
        same(lambda t: t.nonzero(), x, most=8)
        same(lambda t: t.t().nonzero(as_tuple=True), x[0], most=8)
    x = numbers(torch.float32, (3000,), 9)
    same(lambda t: torch.where(t > 0), x, most=8)
    same(lambda t: t.argwhere(), x, most=8)
    same(lambda t: torch.nonzero_static(t > 0, size=4000, fill_value=-7), x)
    same(lambda t: torch.nonzero_static(t > 0, size=5), x.reshape(30, 100))
    same(lambda t: (t > 100).nonzero(), x, most=8)


def case_masks() -> None:
    import flambeau as torch
    x, y = numbers(torch.float32, (40, 50), 10), numbers(torch.float32, (40,), 11)
    same(lambda t: t[t > 0], x, most=8)
    same(lambda t: t.masked_select(t.isnan()), x, most=8)
    same(lambda t, u: t[u > 0], x, y, most=8)
    same(lambda t, u: t.masked_select((u > 0).unsqueeze(1)), x, y, most=8)

    def put(t: Any) -> Any:
        t = t.clone()
        t[t != t] = 0.0
        t[t > 1] *= 2
        return t
    same(put, x, most=16)

    def fill(t: Any) -> Any:
        t = t.clone()
        t[t != t] = 0.0
        t[1:, 2] = 5
        t[3:][t[3:] > 1] = -1
        t[:, t[0] > 0] = t[2, 2].abs()
        return t
    same(fill, x)


def case_unique() -> None:
    import flambeau as torch
    for d in types():
        x = numbers(d, (30, 4), 12)
        for f in (torch.unique, torch.unique_consecutive):
            same(lambda t: f(t, return_inverse=True, return_counts=True), x, most=8)  # noqa: B023
    x = numbers(torch.int64, (20, 3), 13).clamp(0, 1)
    for dim in (0, 1, -1):
        for f in (torch.unique, torch.unique_consecutive):
            same(lambda t: f(t, return_inverse=True, return_counts=True, dim=dim), x, most=8)  # noqa: B023
    same(torch.unique, numbers(torch.int64, (5000,), 14), most=8)
    same(torch.unique, torch.tensor(3), most=8)


def case_searching() -> None:
    import flambeau as torch
    for d in types()[1:]:
        edges, x = numbers(d, (50,), 15).sort()[0], numbers(d, (6, 20), 16)
        for right in (False, True):
            same(lambda e, t: torch.searchsorted(e, t, right=right), edges, x)  # noqa: B023
        same(lambda e, t: torch.bucketize(t, e, out_int32=True), edges, x)
    rows, x = numbers(torch.float32, (3, 30), 17), numbers(torch.float64, (3, 7), 18)
    same(lambda r, t: torch.searchsorted(r.sort()[0], t), rows, x)
    same(lambda r, t: torch.searchsorted(r, t, sorter=r.argsort()), rows, x)
    same(lambda r, t: torch.searchsorted(r.sort()[0], t[:, :1]), rows, x)
    same(lambda r: torch.searchsorted(r.sort()[0][0], 0.5), rows, most=8)
    for d in (torch.int64, torch.uint8, torch.float32, torch.bfloat16):
        a, b = numbers(d, (40, 5), 19), numbers(d, (70,), 20)
        same(lambda t, u: torch.isin(t, u), a, b)
        same(lambda t, u: torch.isin(t, u[:9], invert=True), a, b)
    same(lambda t, u: torch.isin(t, u), numbers(torch.int16, (50,), 21), numbers(torch.float64, (50,), 22))


def case_counting() -> None:
    import flambeau as torch
    x, w = numbers(torch.int64, (3000,), 23).clamp(0, 70), numbers(torch.float32, (3000,), 24).nan_to_num(0.5, 2.0, -2.0)
    same(torch.bincount, x, most=16)
    same(lambda t: t.to(torch.uint8).bincount(minlength=300), x, most=16)
    same(lambda t: torch.bincount(t * 100), x, most=16)
    same(torch.bincount, x, w, most=16)
    same(torch.bincount, x, w.double(), most=16)
    for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        y = w.to(d)
        same(lambda t: t.histc(20), y, most=16)
        same(lambda t: t.histc(7, -1, 1.5), y)
        same(lambda t: t.histc(3, 0, 0), y[:0])
    same(lambda t: t.repeat_interleave(t.clamp(max=9)), x[:400], most=16)
    same(lambda t: t.reshape(20, 20).repeat_interleave(t[:20], dim=1), x[:400], most=16)
    same(lambda t: t[:3].repeat_interleave(t[:3], output_size=int(x[:3].sum())), x)
    same(lambda t, u: torch.repeat_interleave(t, u[:1], dim=0), x[:10], x[1:], most=16)


def case_drawing() -> None:
    import flambeau as torch
    made = []
    for device in ("cpu", "cuda"):
        with torch.random.fork_rng():
            torch.random.set_stream("counter")  # whose numbers are the same on both
            g = torch.Generator(device).manual_seed(5)
        p = torch.tensor([[0.1, 0.5, 0.0, 0.4], [3.0, 1.0, 2.0, 2.0]], device=device)
        with on_device(64):
            drawn = [torch.randperm(1000, generator=g, device=device), torch.randperm(7, generator=g, device=device, dtype=torch.int32),
                     torch.multinomial(p, 3, generator=g), torch.multinomial(p[0], 50, True, generator=g)]
        made.append([array(t).tolist() for t in drawn])
    assert made[0] == made[1]


def case_complaints() -> None:
    import flambeau as torch
    from flambeau._core.errors import AcceleratorError
    x, at = torch.arange(10.0, device="cuda"), torch.tensor([3, 12, -1], device="cuda")
    logits = torch.zeros(3, 4, device="cuda")
    for f, told in ((lambda: x[at], "index 12 is out of bounds for dimension 0 with size 10"),
                    (lambda: x.gather(0, at.abs()), "index 12 is out of bounds for dimension 0 with size 10"),
                    (lambda: torch.nn.functional.cross_entropy(logits, at.abs()), "Target 12 is out of bounds.")):
        torch.cuda.synchronize()  # what was launched before is done, and is not named
        with on_device():
            f()
        try:
            torch.cuda.synchronize()
        except AcceleratorError as e:
            assert told in str(e) and f"launched at {__file__}:{f.__code__.co_firstlineno})" in str(e), e
        else:
            raise AssertionError("nothing was told")
        torch.cuda.synchronize()  # it is told once
    good, classes = torch.tensor([3, -10, 9], device="cuda"), torch.tensor([1, -100, 3], device="cuda")
    with on_device():
        y = x[good]
        torch.nn.functional.cross_entropy(logits, classes)
    assert array(y).tolist() == [3.0, 0.0, 9.0]


def case_benchmarks() -> None:
    """What benchmarks/gpu times, made small."""
    sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks" / "gpu"))
    import gpu_lines

    import flambeau as torch
    for line in gpu_lines.ordering(gpu_lines.SMOKE):
        line.setup(torch)()
    torch.cuda.synchronize()


if __name__ == "__main__":
    cases.main(globals())
