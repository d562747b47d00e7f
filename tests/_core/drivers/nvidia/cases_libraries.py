"""What NVIDIA's libraries do, run through the driver on fake ones, in a process of its own: epilogues of products, transforms,
factorizations.  ``python cases_libraries.py ORDER SEED [NAME...]``.
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


def fake(name: str) -> ctypes.CDLL:
    """The fake library itself, for its counters."""
    return ctypes.CDLL(str(host_kernels.libraries()[name]))


def case_linear_epilogues() -> None:
    import numpy as np

    import flambeau as torch
    lib = fake("libcublasLt.so.13")
    rng = np.random.default_rng(20)
    f = torch.nn.functional
    for d, tolerance, fused in ((torch.float32, 1e-5, 1), (torch.bfloat16, 6e-2, 1), (torch.float16, 1e-2, 1), (torch.float64, 1e-12, 0)):
        a, w, b, g = (rng.standard_normal(s) for s in ((3, 6, 8), (5, 8), (5,), (3, 6, 5)))
        x, weight, bias = (torch.tensor(v, dtype=d, device="cuda", requires_grad=True) for v in (a, w, b))
        before = [lib.fake_products(i) for i in (2, 3)]
        y = f.linear(x, weight, bias)
        y.backward(torch.tensor(g, dtype=d, device="cuda"))
        assert [lib.fake_products(i) for i in (2, 3)] == [n + fused for n in before], d
        close = lambda t, v: np.testing.assert_allclose(array(t.double()), v, rtol=tolerance, atol=tolerance * 8)  # noqa: B023
        close(y, a @ w.T + b)
        close(x.grad, g @ w)
        close(weight.grad, np.einsum("bio,bik->ok", g, a))
        close(bias.grad, g.sum((0, 1)))
    # a bias that lies askew, one with gaps, and one of a single element
    rows = torch.tensor(rng.standard_normal((4, 8)), dtype=torch.float32, device="cuda")
    weight = torch.tensor(rng.standard_normal((5, 8)), dtype=torch.float32, device="cuda")
    whole = torch.tensor(rng.standard_normal(20), dtype=torch.float32, device="cuda")
    for bias in (whole[1:6], whole[::4]):
        np.testing.assert_allclose(array(f.linear(rows, weight, bias)), array(rows) @ array(weight).T + array(bias), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(f.linear(rows, weight[:1], whole[:1])), array(rows) @ array(weight[:1]).T + array(whole[:1]), rtol=1e-5, atol=1e-5)
    # operands that lie askew, in the gradient too
    askew = torch.tensor(rng.standard_normal(33), dtype=torch.float32, device="cuda")[1:].view(4, 8)
    np.testing.assert_allclose(array(f.linear(askew, weight, whole[:5])), array(askew) @ array(weight).T + array(whole[:5]), rtol=1e-5, atol=1e-5)
    w, b = weight.clone().requires_grad_(), whole[:5].clone().requires_grad_()
    f.linear(askew, w, b).sum().backward()
    np.testing.assert_allclose(array(w.grad), np.ones((5, 4)) @ array(askew), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(b.grad), np.full(5, 4.0), rtol=1e-5)
    # two biases in turn through one plan
    for _ in range(2):
        for bias in (whole[:5], whole[8:13]):
            np.testing.assert_allclose(array(f.linear(rows, weight, bias)), array(rows) @ array(weight).T + array(bias), rtol=1e-5, atol=1e-5)
    # gradients of gradients
    x, weight, bias = (torch.tensor(rng.standard_normal(s), dtype=torch.float64, device="cuda", requires_grad=True) for s in ((3, 4), (2, 4), (2,)))
    assert torch.autograd.gradgradcheck(f.linear, (x, weight, bias))


def case_products_of_complex_numbers() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(21)
    made = lambda *s: rng.standard_normal(s) + 1j * rng.standard_normal(s)
    for d, tolerance in ((torch.complex64, 1e-5), (torch.complex128, 1e-12)):
        a, b = made(2, 5, 7), made(2, 7, 3)
        x, y = torch.tensor(a, dtype=d, device="cuda"), torch.tensor(b, dtype=d, device="cuda")
        np.testing.assert_allclose(array(x @ y), a @ b, rtol=tolerance, atol=tolerance * 10)
        np.testing.assert_allclose(array(x[0] @ y[0]), a[0] @ b[0], rtol=tolerance, atol=tolerance * 10)
        np.testing.assert_allclose(array(y.mH @ x.mH), (a @ b).conj().swapaxes(1, 2), rtol=tolerance, atol=tolerance * 10)
        c = made(5, 3)
        got = torch.addmm(torch.tensor(c, dtype=d, device="cuda"), x[1], y[1], beta=0.5, alpha=2 - 1j)
        np.testing.assert_allclose(array(got), 0.5 * c + (2 - 1j) * (a[1] @ b[1]), rtol=tolerance, atol=tolerance * 10)


def case_batches() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(22)
    a, b = rng.standard_normal((4, 5, 6)).astype("f4"), rng.standard_normal((6, 3)).astype("f4")
    x, y = torch.tensor(a).cuda(), torch.tensor(b).cuda()
    np.testing.assert_allclose(array(x @ y), a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(torch.bmm(x, y.expand(4, 6, 3))), a @ b, rtol=1e-5, atol=1e-5)  # one matrix for all, not copied
    np.testing.assert_allclose(array(y.t() @ x.transpose(1, 2)), b.T @ a.swapaxes(1, 2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(x[:, None] @ x.transpose(1, 2)[None]), a[:, None] @ a.swapaxes(1, 2)[None], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(x[::2] @ y), a[::2] @ b, rtol=1e-5, atol=1e-5)
    for shapes in (((0, 4), (4, 3)), ((2, 0), (0, 3)), ((2, 3, 0), (2, 0, 4))):
        left, right = (torch.ones(*s, device="cuda") for s in shapes)
        assert array(left @ right).tolist() == (np.ones(shapes[0]) @ np.ones(shapes[1])).tolist()


def case_precision_switches() -> None:
    import flambeau as torch
    lib = fake("libcublasLt.so.13")
    matmul = torch.backends.cuda.matmul
    x = torch.ones(4, 4, device="cuda")

    def rounded() -> bool:
        before = lib.fake_products(0)
        x @ x
        torch.nn.functional.linear(x, x, x[0])
        torch.cuda.synchronize()
        return bool(lib.fake_products(0) == before + 2)
    assert not rounded()
    for on, off in ((lambda: setattr(matmul, "allow_tf32", True), lambda: setattr(matmul, "allow_tf32", False)),
                    (lambda: torch.set_float32_matmul_precision("high"), lambda: torch.set_float32_matmul_precision("highest")),
                    (lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.set_float32_matmul_precision("highest"))):
        on()
        assert rounded() and matmul.allow_tf32
        off()
        assert not rounded() and not matmul.allow_tf32
    for name, kind in (("allow_bf16_reduced_precision_reduction", torch.bfloat16), ("allow_fp16_reduced_precision_reduction", torch.float16)):
        h = torch.ones(4, 4, device="cuda", dtype=kind)
        before = lib.fake_products(1)
        assert getattr(matmul, name) is True and (h @ h).sum().item() == 64 and lib.fake_products(1) == before
        setattr(matmul, name, False)
        assert (h @ h).sum().item() == 64 and lib.fake_products(1) == before + 1 and getattr(matmul, name) is False
        setattr(matmul, name, True)
        assert (h @ h).sum().item() == 64 and lib.fake_products(1) == before + 1


def case_product_fails() -> None:
    import flambeau as torch
    lib = fake("libcublasLt.so.13")
    x = torch.ones(6, 6, device="cuda")
    x @ x
    lib.fake_fail_product(13)
    try:
        x @ x
        raise AssertionError("the failure was not told")
    except RuntimeError as error:
        assert "cuBLASLt, a product of torch.float32 matrices (6, 6) and (6, 6): its kernel failed (status 13)" in str(error), error
    assert (x @ x).sum().item() == 216.0


def case_algorithms_that_refuse_when_they_are_run() -> None:
    """The next of those proposed does it, then and later; where none does, what the library says is told."""
    import flambeau as torch
    lib = fake("libcublasLt.so.13")
    f, relu = torch.nn.functional, torch.nn.ReLU()
    for epilogue in (False, True):
        n = 24 if epilogue else 40
        x, layer = torch.ones(16, n, device="cuda"), torch.nn.Linear(n, 16, device="cuda")
        with torch.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.fill_(-1.0)

            def made(x: Any = x, layer: Any = layer, epilogue: bool = epilogue) -> Any:
                return torch.nn.Sequential(layer, relu)(x) if epilogue else f.linear(x, layer.weight)
            right = [[n / 2 - epilogue] * 16] * 16
            lib.fake_algorithms(1, -1)
            before = [lib.fake_ran(k) for k in range(3)]
            assert made().tolist() == right
            lib.fake_algorithms(0, -1)
            assert made().tolist() == right
            assert [lib.fake_ran(k) - was for k, was in enumerate(before)] == [0, 2, 0]
            lib.fake_algorithms(7, -1)
            try:
                made()
                raise AssertionError("the failure was not told")
            except RuntimeError as error:
                assert "it does not support this (status 15)" in str(error), error
            lib.fake_algorithms(0, -1)
            assert made().tolist() == right


def case_algorithms_of_products_are_timed_and_kept() -> None:
    """Once for a shape, where the program lets libraries be tried; another process takes what the disk keeps."""
    import flambeau as torch
    from flambeau._core.drivers.nvidia import blaslt
    from flambeau._core.kernels import cache
    from flambeau._core.runtime import caches, gpus
    lib = fake("libcublasLt.so.13")
    x = torch.ones(32, 56, device="cuda")
    y = torch.ones(56, 8, device="cuda")
    x @ y  # loads the library
    library = gpus.gpu(0).driver._programs()._libraries["cublasLt"]
    worth, plain = blaslt._WORTH_TIMING, cache.key
    blaslt._WORTH_TIMING = 1
    cache.key = lambda *parts: plain(*parts, str(os.getpid()))  # what other runs of these cases found is not this one's to find

    def used() -> list[int]:
        library._made.clear()
        caches.forget()
        before = [lib.fake_ran(k) for k in range(3)]
        assert (x @ y).sum().item() == 32 * 56 * 8
        return [lib.fake_ran(k) - was for k, was in enumerate(before)]
    try:
        lib.fake_algorithms(0, 2)
        assert used() == [1, 0, 0]  # nobody has asked for it
        torch.backends.cudnn.benchmark = True
        n = blaslt._TIMES + 1
        assert used() == [n, n, n + 1]
        assert (x @ y).sum().item() == 32 * 56 * 8
        lib.fake_algorithms(0, 1)
        assert used() == [0, 0, 1]  # from the disk
        lib.fake_algorithms(4, 1)
        assert used() == [1, 0, 0]  # what is kept may be refused
        torch.use_deterministic_algorithms(True)
        lib.fake_algorithms(0, 2)
        assert used() == [1, 0, 0]
        torch.use_deterministic_algorithms(False)
        y = torch.ones(56, 16, device="cuda")[:, :8]
        lib.fake_algorithms(1, 1)
        assert used() == [0, n + 1, n]  # another shape; one that is refused takes no part
    finally:
        lib.fake_algorithms(0, -1)
        blaslt._WORTH_TIMING, cache.key = worth, plain
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False


def case_products_that_are_not_served() -> None:
    """A generated kernel does those; a batch too large for the library goes in parts."""
    import numpy as np

    import flambeau as torch
    lib = fake("libcublasLt.so.13")
    rng = np.random.default_rng(23)
    a, b = rng.standard_normal((3, 5)).astype("f4"), rng.standard_normal((5, 2)).astype("f4")
    x, y = torch.tensor(a).cuda(), torch.tensor(b).cuda()
    lib.fake_refuse_epilogues(1)
    np.testing.assert_allclose(array(x @ y), a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(y.t() @ x.t()), (a @ b).T, rtol=1e-5, atol=1e-5)
    lib.fake_refuse_epilogues(0)
    a, b = rng.standard_normal((70000, 2, 1)).astype("f4"), rng.standard_normal((70000, 1, 2)).astype("f4")
    np.testing.assert_allclose(array(torch.tensor(a).cuda() @ torch.tensor(b).cuda()), a @ b, rtol=1e-5, atol=1e-5)
    one = torch.tensor(b[:1]).cuda().expand(70000, 1, 2)  # the same matrix for all
    np.testing.assert_allclose(array(torch.bmm(torch.tensor(a).cuda(), one)), a @ b[:1], rtol=1e-5, atol=1e-5)


def case_no_room_for_a_workspace() -> None:
    """A kernel that needs none serves; once there is room, it is taken."""
    import flambeau as torch
    lib = fake("libcuda.so.1")
    lib.fake_count.restype = ctypes.c_long
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what other cases left is no room for this one
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x, y = torch.ones(7, 7, device="cuda"), torch.empty(7, 7, device="cuda")
        taken = []
        for code in (2, 0, 0):
            before = lib.fake_count(4)
            lib.fake_fail(b"cuMemAllocFromPoolAsync", 0, code)
            torch.mm(x, x, out=y)
            taken.append(lib.fake_count(4) - before)
            assert y.sum().item() == 343.0
        assert taken == [0, 1, 0], taken


def _numbers(seed: int, *shape: int, complex_: bool = True) -> Any:
    import numpy as np
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex_ else 0)


def case_transforms() -> None:
    import numpy as np

    import flambeau as torch
    lib = fake("libcufft.so.12")
    seen: list[Any] = []
    from flambeau._core.runtime import dispatch
    with dispatch.observe(copies=lambda c: seen.append(c.path)):
        for d, tolerance in ((torch.complex64, 2e-5), (torch.complex128, 1e-11)):
            a = _numbers(30, 3, 4, 5, 6)
            x = torch.tensor(a, dtype=d, device="cuda")
            close = lambda t, v: np.testing.assert_allclose(array(t), v, rtol=tolerance, atol=tolerance * 10)  # noqa: B023
            for dim in (-1, 0, 1, 2):
                close(torch.fft.fft(x, dim=dim), np.fft.fft(a, axis=dim))
                close(torch.fft.ifft(x, dim=dim), np.fft.ifft(a, axis=dim))
            for dims in ((2, 3), (0, 2), (3, 1), (0, 1, 3), (0, 1, 2, 3)):
                for norm in ("backward", "ortho", "forward"):
                    close(torch.fft.fftn(x, dim=dims, norm=norm), np.fft.fftn(a, axes=dims, norm=norm))
                    close(torch.fft.ifftn(x, dim=dims, norm=norm), np.fft.ifftn(a, axes=dims, norm=norm))
            close(torch.fft.fft(x.transpose(0, 3), n=7, dim=1), np.fft.fft(a.swapaxes(0, 3), n=7, axis=1))
            close(torch.fft.fft(x[:, ::2, 1:], dim=1), np.fft.fft(a[:, ::2, 1:], axis=1))
            real = a.real
            r = torch.tensor(real, dtype=d.to_real(), device="cuda")
            for dims in ((3,), (0,), (1, 2), (2, 0, 1), (0, 1, 2, 3)):
                close(torch.fft.rfftn(r, dim=dims), np.fft.rfftn(real, axes=dims))
                close(torch.fft.rfftn(r, dim=dims, norm="ortho"), np.fft.rfftn(real, axes=dims, norm="ortho"))
                close(torch.fft.irfftn(x, dim=dims), np.fft.irfftn(a, axes=dims))
            for n in (1, 2, 6, 9):
                close(torch.fft.irfft(x, n=n), np.fft.irfft(a, n=n))
                close(torch.fft.hfft(x, n=n), np.fft.hfft(a, n=n))
                close(torch.fft.rfft(r, n=n), np.fft.rfft(real, n=n))
                close(torch.fft.ihfft(r, n=n), np.fft.ihfft(real, n=n))
            close(torch.fft.rfft(r.reshape(-1)[1:]), np.fft.rfft(real.reshape(-1)[1:]))  # real numbers that lie as complex ones cannot
            close(x, a)  # what a transform reads is not lost
            close(torch.fft.fft(r), np.fft.fft(real))
    assert lib.fake_fft_count(1) > 100 and "host" not in seen
    assert torch.fft.fft(torch.ones(0, 4, device="cuda")).shape == (0, 4)
    i = torch.arange(6, device="cuda")
    np.testing.assert_allclose(array(torch.fft.rfft(i)), np.fft.rfft(np.arange(6)), rtol=1e-5, atol=1e-5)


def case_gradients_of_transforms() -> None:
    import flambeau as torch
    for n in (4, 5):
        z = torch.tensor(_numbers(31, 2, 3, n), dtype=torch.complex128, device="cuda", requires_grad=True)
        r = torch.tensor(_numbers(32, 2, 3, n, complex_=False), dtype=torch.float64, device="cuda", requires_grad=True)
        for f, x in ((lambda t: torch.fft.fft(t, dim=1), z), (lambda t: torch.fft.rfft(t), r), (lambda t: torch.fft.rfftn(t, dim=(0, 2, 1)), r),
                     (lambda t: torch.fft.irfft(t), z), (lambda t, n=n: torch.fft.irfft(t, n=n + 1), z), (lambda t: torch.fft.irfftn(t, dim=(2, 1)), z),
                     (lambda t: torch.fft.hfft(t), z)):
            assert torch.autograd.gradcheck(f, (x,))
    assert torch.autograd.gradgradcheck(torch.fft.irfft, (z[0, 0],)) and torch.autograd.gradgradcheck(torch.fft.rfft, (r[0, 0],))


def case_plans_of_transforms() -> None:
    import gc

    import flambeau as torch
    lib = fake("libcufft.so.12")
    plans = torch.backends.cuda.cufft_plan_cache
    plans.clear()
    gc.collect()
    assert plans.size == 0 and plans.max_size == 4096 and lib.fake_fft_count(0) == 0
    x = torch.ones(2, 12, device="cuda", dtype=torch.complex64)
    for n in range(1, 9):
        torch.fft.fft(x, n=n)
        torch.fft.fft(x, n=n)
    assert plans.size == 8 and plans[0].size == 8 and plans["cuda:1"].size == 0
    plans.max_size = 3
    torch.cuda.synchronize()
    assert plans.size == 3 and lib.fake_fft_count(0) <= 4
    torch.fft.fft(x, n=2)
    assert plans.size == 3
    plans.max_size = 4096
    plans.clear()
    for plan, run, text in ((5, 0, "cuFFT, planning 2 transforms of (12,): an internal error (status 5)"),
                            (0, 6, "cuFFT, 2 transforms of (12,): the transform could not be started (status 6)")):
        lib.fake_fft_fail(plan, run)
        try:
            torch.fft.fft(x)
            raise AssertionError("the failure was not told")
        except RuntimeError as error:
            assert text in str(error), error
    lib.fake_fft_fail(16, 0)  # a size it does not take is left to the host
    plans.clear()
    assert torch.fft.fft(x)[0, 0].item() == 12
    assert torch.fft.fft(x[:, :7])[0, 0].item() == 7


def case_factorizations() -> None:
    import numpy as np

    import flambeau as torch
    la = torch.linalg
    seen: list[Any] = []
    from flambeau._core.runtime import dispatch
    with dispatch.observe(copies=lambda c: seen.append(c.path)):
        for d, tolerance in ((torch.float32, 2e-4), (torch.float64, 1e-9), (torch.complex64, 2e-4), (torch.complex128, 1e-9)):
            close = lambda t, v: np.testing.assert_allclose(array(t), v, rtol=tolerance, atol=tolerance * 10)  # noqa: B023
            a = _numbers(40, 3, 5, 5, complex_=d.is_complex) + 3 * np.eye(5)
            b = _numbers(41, 3, 5, 2, complex_=d.is_complex)
            x, y = torch.tensor(a, dtype=d, device="cuda"), torch.tensor(b, dtype=d, device="cuda")
            sym = a @ a.conj().swapaxes(1, 2)
            s = torch.tensor(sym, dtype=d, device="cuda")
            close(la.cholesky(s), np.linalg.cholesky(sym))
            close(la.cholesky(s, upper=True), np.linalg.cholesky(sym).conj().swapaxes(1, 2))
            close(torch.cholesky_solve(y, la.cholesky(s)), np.linalg.solve(sym, b))
            close(la.solve(x, y), np.linalg.solve(a, b))
            close(la.inv(x), np.linalg.inv(a))
            before = len(seen)
            close(la.det(x), np.linalg.det(a))
            sign, log = la.slogdet(x)
            close(sign * log.exp(), np.linalg.det(a))
            if d.is_complex:
                del seen[before:]  # products of complex numbers along an axis are the host's
            for upper in (False, True):
                triangle = (np.triu if upper else np.tril)(a)
                close(la.solve_triangular(torch.tensor(triangle, dtype=d, device="cuda"), y, upper=upper), np.linalg.solve(triangle, b))
            unit = np.tril(a, -1) + np.eye(5)
            close(la.solve_triangular(x, y, upper=False, unitriangular=True), np.linalg.solve(unit, b))
            packed, pivots = la.lu_factor(x)
            close(la.lu_solve(packed, pivots, y), np.linalg.solve(a, b))
            close(la.lu_solve(packed, pivots, y, adjoint=True), np.linalg.solve(a.conj().swapaxes(1, 2), b))
            plain, order = la.lu_factor(s, pivot=False)
            close(plain.tril(-1).add(torch.eye(5, dtype=d, device="cuda")) @ plain.triu(), sym)
            assert array(order).tolist() == [[1, 2, 3, 4, 5]] * 3
            for shape in ((6, 4), (4, 6), (5, 5), (1, 3), (3, 1)):
                m = _numbers(42, 2, *shape, complex_=d.is_complex)
                t = torch.tensor(m, dtype=d, device="cuda")
                k = min(shape)
                for mode, columns in (("reduced", k), ("complete", shape[0])):
                    q, r = la.qr(t, mode)
                    assert tuple(q.shape) == (2, shape[0], columns) and tuple(r.shape) == (2, columns, shape[1])
                    close(q @ r, m)
                    close(q.mH @ q, np.broadcast_to(np.eye(columns), (2, columns, columns)))
                    assert (array(r.tril(-1)) == 0).all()
                close(la.qr(t, "r")[1], array(la.qr(t)[1]))
                for full in (False, True):
                    u, w, vh = la.svd(t, full_matrices=full)
                    close((u[..., :k] * w.unsqueeze(-2)) @ vh[:, :k], m)
                    close(u.mH @ u, np.broadcast_to(np.eye(u.shape[-1]), (2, u.shape[-1], u.shape[-1])))
                    close(vh @ vh.mH, np.broadcast_to(np.eye(vh.shape[-2]), (2, vh.shape[-2], vh.shape[-2])))
                    close(w, np.linalg.svd(m)[1])
                close(la.svdvals(t), np.linalg.svd(m)[1])
            for lower in "LU":
                w, v = la.eigh(x, UPLO=lower)
                half = np.tril(a, -1) if lower == "L" else np.triu(a, 1).conj().swapaxes(1, 2)
                whole = half + half.conj().swapaxes(1, 2) + np.einsum("bii->bi", a).real[..., None] * np.eye(5)
                close(v @ (w.unsqueeze(-1) * v.mH), whole)
                close(w, np.linalg.eigvalsh(whole))
                close(la.eigvalsh(x, UPLO=lower), np.linalg.eigvalsh(whole))
    assert "host" not in seen
    assert fake("libcusolver.so.12").fake_solver_count() > 300 and fake("libcublas.so.13").fake_blas_batches() > 20
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        assert la.inv(torch.ones(*shape, device="cuda")).shape == shape
        assert la.qr(torch.ones(*shape, device="cuda"))[0].shape == shape


def case_batches_of_large_matrices() -> None:
    """More rows than the batched routines are for: one after another, with the same results."""
    import numpy as np

    import flambeau as torch
    from flambeau._core.drivers.nvidia import cusolver
    small, cusolver._SMALL = cusolver._SMALL, 3
    try:
        before = fake("libcublas.so.13").fake_blas_batches()
        a = _numbers(44, 2, 4, 4, complex_=False) + 3 * np.eye(4)
        b = _numbers(45, 2, 4, 2, complex_=False)
        x, y = torch.tensor(a, device="cuda"), torch.tensor(b, device="cuda")
        np.testing.assert_allclose(array(torch.linalg.solve(x, y)), np.linalg.solve(a, b), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(array(torch.linalg.cholesky(x @ x.mT)), np.linalg.cholesky(a @ a.swapaxes(1, 2)), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(array(torch.linalg.solve_triangular(x, y, upper=True)), np.linalg.solve(np.triu(a), b), rtol=1e-9, atol=1e-9)
        assert fake("libcublas.so.13").fake_blas_batches() == before
    finally:
        cusolver._SMALL = small


def case_singular_matrices() -> None:
    import flambeau as torch
    la = torch.linalg
    flat = torch.ones(2, 3, 3, device="cuda")
    flat[0] = torch.eye(3, device="cuda")
    assert array(la.cholesky_ex(flat).info).tolist() == [0, 2]
    assert array(la.inv_ex(flat).info).tolist() == [0, 2] and array(la.lu_factor_ex(flat).info).tolist() == [0, 2]
    for f, text in ((la.cholesky, "Batch element 1.*not positive-definite|positive-definite"), (la.inv, "singular"),
                    (lambda t: la.solve(t, flat), "singular")):
        try:
            f(flat)
            raise AssertionError("no error")
        except la.LinAlgError as error:
            assert "Batch element 1" in str(error) and text.split("|")[-1] in str(error), error
    assert la.det(flat).tolist() == [1.0, 0.0]
    lib = fake("libcusolver.so.12")
    lib.fake_solver_fail(7)
    try:
        la.cholesky(torch.eye(3, device="cuda"))
        raise AssertionError("the failure was not told")
    except RuntimeError as error:
        assert "cuSOLVER, cusolverDnSpotrf of 1 matrices (3): an internal error (status 7)" in str(error), error
    assert la.cholesky(torch.eye(3, device="cuda")).sum().item() == 3


def case_gradients_of_factorizations() -> None:
    import flambeau as torch
    la = torch.linalg
    a = torch.tensor(_numbers(43, 3, 3, complex_=False), dtype=torch.float64, device="cuda")
    x = (a @ a.t() + torch.eye(3, dtype=torch.float64, device="cuda")).requires_grad_()
    for f in (lambda t: la.cholesky(t + t.t()), la.inv, la.det, lambda t: la.solve(t, a), lambda t: la.qr(t)[1], lambda t: la.svdvals(t),
              lambda t: la.eigvalsh(t + t.t()), lambda t: la.lu_factor(t)[0]):
        assert torch.autograd.gradcheck(f, (x,))


def case_streams_of_libraries() -> None:
    import flambeau as torch
    x = torch.eye(4, device="cuda") * 2
    torch.cuda.synchronize()
    found = []
    for _ in range(3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            found.append((torch.linalg.inv(x), torch.fft.fft(x), torch.nn.functional.linear(x, x, x[0].contiguous())))
    torch.cuda.synchronize()
    for inverse, spectrum, line in found:
        assert inverse.sum().item() == 2.0 and spectrum[0, 0].item() == 2 and line.sum().item() == 24.0


def end_absent_libraries(fake: Any) -> None:
    """Without them the host does the work, and that is said once."""
    import warnings

    import flambeau as torch
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        x = torch.ones(4, 4, device="cuda")
        for _ in range(2):
            assert torch.fft.fft(x)[0, 0].item() == 4 and torch.fft.rfft(x)[0, 0].item() == 4
            assert torch.linalg.inv(torch.eye(2, device="cuda")).sum().item() == 2
            assert torch.linalg.solve_triangular(torch.eye(2, device="cuda"), torch.ones(2, 1, device="cuda"), upper=True).sum().item() == 2
    told = [str(w.message) for w in seen]
    assert len(told) == 3 and "Fourier transforms" in told[0] and "pip install 'flambeau[cuda-fft]'" in told[0], told
    assert "cuSOLVER" in told[1] and "pip install 'flambeau[cuda-math]'" in told[1] and "cuBLAS" in told[2], told


if __name__ == "__main__":
    cases.main(globals())
