"""Linear equations and inverses against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.linalg import LinAlgError

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (0, 0), (0, 3, 3), (2, 0, 0)])
def test_inverse(dtype, shape, regular, close):
    a = regular(shape, dtype)
    want = np.linalg.inv(a).astype(dtype)
    for got in (fb.linalg.inv(fb.tensor(a)), fb.inverse(fb.tensor(a)), fb.tensor(a).inverse(), fb.linalg.inv_ex(fb.tensor(a)).inverse):
        close(got, want)


def test_inverse_of_views_and_layout(regular, close):
    a = regular((8, 6, 6))
    close(fb.linalg.inv(fb.tensor(a)[::3, ::2, ::2].mT), np.linalg.inv(a[::3, ::2, ::2]).swapaxes(-1, -2))
    assert fb.linalg.inv(fb.eye(3).expand(2, 3, 3)).stride() == (9, 1, 3)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("a, b", [((4, 4), (4, 2)), ((4, 4), (4,)), ((3, 4, 4), (3, 4)), ((3, 4, 4), (4, 2)), ((2, 1, 4, 4), (3, 4, 1)),
                                  ((0, 0), (0, 3)), ((4, 4), (4, 0)), ((0, 2, 2), (0, 2, 1))])
def test_solve(dtype, a, b, regular, make, close):
    x, y = regular(a, dtype), make(b, dtype, 1)
    vector = len(b) == 1 or b == a[:-1]
    want = np.linalg.solve(x, y[..., None] if vector else y).astype(dtype)
    want = want[..., 0] if vector else want
    close(fb.linalg.solve(fb.tensor(x), fb.tensor(y)), want)
    got = fb.linalg.solve_ex(fb.tensor(x), fb.tensor(y))
    close(got.result, want)
    assert got.info.shape == got.result.shape[:len(got.info.shape)] and not bool(got.info.any())


def test_solve_from_the_right(regular, make, close):
    a, b = regular((2, 3, 3)), make((2, 5, 3))
    close(fb.linalg.solve(fb.tensor(a), fb.tensor(b), left=False), b @ np.linalg.inv(a))


def test_failures(regular):
    a = regular((2, 3, 3))
    a[1] = 0
    t, b = fb.tensor(a), fb.ones(2, 3, 1, dtype=fb.float64)
    with pytest.raises(LinAlgError, match=r"linalg.inv: \(Batch element 1\): The diagonal element 1 is zero"):
        fb.linalg.inv(t)
    with pytest.raises(LinAlgError, match=r"torch.linalg.solve: \(Batch element 1\): The solver failed because the input matrix is singular"):
        fb.linalg.solve(t, b)
    with pytest.raises(LinAlgError, match="linalg.inv: The diagonal element 1"):
        fb.linalg.inv(t[1])
    assert fb.linalg.inv_ex(t).info.tolist() == [0, 1]
    with pytest.raises(LinAlgError):
        fb.linalg.inv_ex(t, check_errors=True)
    with pytest.raises(RuntimeError, match="Incompatible shapes of A and B for the equation AX = B"):
        fb.linalg.solve(t, b[:, :2])
    with pytest.raises(RuntimeError, match="Expected A and B to have the same dtype, but found A of type Double and B of type Float"):
        fb.linalg.solve(t, b.float())
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        fb.linalg.inv(fb.ones(3))
    with pytest.raises(RuntimeError, match="Expected a floating point or complex tensor as input. Got Long"):
        fb.linalg.inv(fb.ones(3, 3, dtype=fb.int64))
    with pytest.raises(RuntimeError, match="Low precision dtypes not supported. Got Half"):
        fb.linalg.inv(fb.ones(3, 3, dtype=fb.float16))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.integers(0, 4), st.sampled_from(TYPES), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_triangular(n, k, dtype, upper, left, unit, turned):
    rng = np.random.default_rng(n * 7 + k)
    a = (rng.normal(size=(2, n, n)) + 3 * np.eye(n)).astype(dtype)
    b = rng.normal(size=(2, n, k) if left else (2, k, n)).astype(dtype)
    t = fb.tensor(a.swapaxes(-1, -2).copy()).mT if turned else fb.tensor(a)
    got = fb.linalg.solve_triangular(t, fb.tensor(b), upper=upper, left=left, unitriangular=unit).numpy()
    one = np.triu(a) if upper else np.tril(a)
    if unit:
        one = one - one * np.eye(n, dtype=dtype) + np.eye(n, dtype=dtype)
    np.testing.assert_allclose(one @ got if left else got @ one, b, atol=2e-3 if np.finfo(dtype).eps > 1e-10 else 1e-10)


def test_older_triangular_solve(regular, make, close):
    a, b = regular((3, 3)), make((3, 2))
    got = fb.triangular_solve(fb.tensor(b), fb.tensor(a))
    close(got.solution, np.linalg.solve(np.triu(a), b))
    close(got.cloned_coefficient, a)
    close(fb.triangular_solve(fb.tensor(b), fb.tensor(a), upper=False, transpose=True)[0], np.linalg.solve(np.tril(a).T, b))


def test_out(regular, close):
    a = regular((3, 3))
    out = fb.empty(0, dtype=fb.float64)
    assert fb.linalg.inv(fb.tensor(a), out=out) is out
    close(out, np.linalg.inv(a))
    x, info = fb.empty(0, dtype=fb.float64), fb.empty(0, dtype=fb.int32)
    fb.linalg.inv_ex(fb.tensor(a), out=(x, info))
    close(x, np.linalg.inv(a))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_gradients(dtype, regular, make, differentiable):
    a, b = regular((2, 3, 3), dtype), make((2, 3, 2), dtype, 1)
    differentiable(fb.linalg.inv, a)
    differentiable(fb.linalg.solve, a, b)
    differentiable(fb.linalg.solve, a, b[0])
    differentiable(lambda x, y: fb.linalg.solve(x, y, left=False), a, b.swapaxes(-1, -2).copy())
    differentiable(lambda x, y: fb.linalg.solve(x, y), a, b[..., 0].copy())
    for upper, left, unit in ((True, True, False), (False, False, True)):
        right = b if left else b.swapaxes(-1, -2).copy()
        differentiable(lambda x, y, upper=upper, left=left, unit=unit: fb.linalg.solve_triangular(x, y, upper=upper, left=left, unitriangular=unit), a,
                       right)


def test_a_change_in_place_is_noticed(regular):
    a = fb.tensor(regular((3, 3)))
    b = fb.ones(3, 1, dtype=fb.float64, requires_grad=True)
    x = fb.linalg.solve(a, b)
    a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()


def test_big_batches_run_on_several_threads(regular, close):
    a, b = regular((16, 70, 70)), regular((16, 70, 70), seed=1)
    close(fb.linalg.solve(fb.tensor(a), fb.tensor(b)), np.linalg.solve(a, b), 2000)


def test_simulated_gpu(sim_gpus, regular, make, close):
    a, b = regular((3, 4, 4)), make((3, 4, 2))
    x, y = fb.tensor(a).cuda().requires_grad_(), fb.tensor(b).cuda()
    got = fb.linalg.solve(x, y)
    close(got.detach(), np.linalg.solve(a, b))
    got.sum().backward()
    want = -np.linalg.inv(a).swapaxes(-1, -2) @ np.ones_like(b) @ np.linalg.solve(a, b).swapaxes(-1, -2)
    close(x.grad, want)
    with pytest.raises(RuntimeError, match="same device"):
        fb.linalg.solve(x, fb.tensor(b))


def test_one_very_large_matrix(regular, close):
    a = regular((700, 700), np.float32)
    got = fb.linalg.inv(fb.tensor(a)).numpy()
    np.testing.assert_allclose(a @ got, np.eye(700), atol=2e-2)
    from flambeau._core.drivers.cpu import blas
    assert blas.library().scipy_openblas_get_num_threads64_() == 1


def test_many_threads_at_once(regular):
    from concurrent.futures import ThreadPoolExecutor
    a = [regular((40 + i, 40 + i), seed=i) for i in range(24)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda x: fb.linalg.solve(fb.tensor(x), fb.tensor(x)).numpy(), a))
    for x in found:
        np.testing.assert_allclose(x, np.eye(len(x)), atol=1e-8)


def test_several_threads_call_at_once(regular):
    import threading
    a = [fb.tensor(regular((30, 6, 6), seed=k)) for k in range(4)]
    b = fb.ones(30, 6, 2, dtype=fb.float64)
    want = [fb.linalg.solve(x, b).numpy() for x in a]
    wrong = []

    def call(k):
        for _ in range(50):
            if not np.array_equal(fb.linalg.solve(a[k], b).numpy(), want[k]):
                wrong.append(k)
    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


LAYOUTS = {
    "rows": lambda a: a, "columns": lambda a: a.transpose(-2, -1).contiguous().transpose(-2, -1), "shared": lambda a: a[:1].expand(3, 4, 4),
    "part": lambda a: fb.nn.functional.pad(a, (1, 2, 3, 1))[:, 3:-1, 1:-2], "every second": lambda a: a.repeat_interleave(2, 0)[::2],
    "steps": lambda a: a.repeat_interleave(2, -1)[..., ::2], "axes": lambda a: a.permute(1, 2, 0).contiguous().permute(2, 0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_matrices_lie_as_they_like(layout, dtype, regular, close):
    a = LAYOUTS[layout](fb.tensor(regular((3, 4, 4), dtype)))
    b = fb.tensor(regular((3, 4, 4), dtype, 1))[..., :2]
    want = np.array(a.numpy())
    for upper in (True, False):
        t = np.triu(want) if upper else np.tril(want)
        close(fb.linalg.solve_triangular(a, b, upper=upper), np.linalg.solve(t, b.numpy()), 2000)
        both = t.conj().swapaxes(-1, -2) @ t if upper else t @ t.conj().swapaxes(-1, -2)
        close(fb.cholesky_solve(b, a, upper=upper), np.linalg.solve(both, b.numpy()), 20000)
    close(fb.linalg.solve(a, b), np.linalg.solve(want, b.numpy()), 2000)
    lu, pivots = fb.linalg.lu_factor(a)
    for t in (lu, lu.contiguous()):
        close(fb.linalg.lu_solve(t, pivots, b), np.linalg.solve(want, b.numpy()), 2000)
    ld, pivots = fb.linalg.ldl_factor(a)
    low = np.tril(want) + np.tril(want, -1).swapaxes(-1, -2)
    for t in (ld, ld.contiguous()):
        close(fb.linalg.ldl_solve(t, pivots, b), np.linalg.solve(low, b.numpy()), 2000)


@pytest.mark.parametrize("batch", [9, 100])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_batch_of_small_matrices(batch, dtype, regular, close):
    a, b = regular((batch, 4, 4), dtype), regular((batch, 4, 4), dtype, 1)[..., :3]
    singular = a.copy()
    singular[batch // 2] = 0
    for _ in range(6):  # learned calls too
        close(fb.linalg.solve(fb.tensor(a), fb.tensor(b)), np.linalg.solve(a, b), 2000)
        close(fb.linalg.inv(fb.tensor(a)), np.linalg.inv(a), 2000)
        close(fb.linalg.det(fb.tensor(a)), np.linalg.det(a), 2000)
        lu, pivots = fb.linalg.lu_factor(fb.tensor(a))
        close(fb.linalg.lu_solve(lu, pivots, fb.tensor(b)), np.linalg.solve(a, b), 2000)
        for f in (lambda t: fb.linalg.solve(t, fb.tensor(b)), fb.linalg.inv, fb.linalg.lu_factor):
            with pytest.raises(LinAlgError, match=f"Batch element {batch // 2}"):
                f(fb.tensor(singular))
