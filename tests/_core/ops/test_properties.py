"""What holds of whole families of operations for any shape, layout and values: against NumPy and SciPy, or there and back again."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # which imports its parts when they are first asked for
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from tests.late import Late

sp = Late("scipy.special")
F: Any = fb.nn.functional
quick = settings(max_examples=25, deadline=None)
SIZES = st.sampled_from([0, 1, 2, 3, 5, 8, 17])
SOME = st.sampled_from([1, 2, 3, 5, 8, 17])


@st.composite
def arrays(draw: Any, least: int = 0, most: int = 3, sizes: Any = SIZES, types: tuple[Any, ...] = (np.float32, np.float64), special: bool = False) -> Any:
    """A NumPy array, whole or a strided piece, turned or not, now and then with special values."""
    shape = draw(st.lists(sizes, min_size=least, max_size=most))
    d = np.dtype(draw(st.sampled_from(types)))
    rng = np.random.default_rng(draw(st.integers(0, 2 ** 32 - 1)))
    steps = [draw(st.integers(1, 2)) for _ in shape]
    a = np.asarray(rng.standard_normal([n * k for n, k in zip(shape, steps, strict=True)]) * draw(st.sampled_from([1.0, 10.0, 1e-3])))
    if d.kind == "c":
        a = np.asarray(a + 1j * rng.standard_normal(a.shape))
    a = np.asarray(a * 5 if d.kind == "i" else a > 0 if d.kind == "b" else a).astype(d)
    if special and a.size and d.kind == "f":
        a.reshape(-1)[rng.integers(0, a.size, 3)] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(d).tiny / 4], 3)
    a = a[(*(slice(None, None, k) for k in steps), ...)]
    return a.transpose(draw(st.permutations(range(a.ndim)))) if a.ndim > 1 else a


def made(a: np.ndarray) -> Any:
    """The array as a tensor with its strides."""
    return fb.from_numpy(a if all(s >= 0 for s in a.strides) else a.copy())


def close(got: Any, want: Any, rtol: float = 0.0) -> None:
    want = np.asarray(want)
    eps = rtol or (2e-4 if want.dtype in (np.float32, np.complex64) else 1e-9)
    got = got.numpy()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=eps, atol=eps * max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0))))


# ------------------------------------------------------------------------------------------------------- pointwise, special
POINTWISE: dict[str, Any] = {
    "exp": np.exp, "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh,
    "abs": np.abs, "neg": np.negative,
    "sign": lambda x: np.nan_to_num(np.sign(x)), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round,
    "square": np.square,
    "sqrt": np.sqrt, "log": np.log, "log1p": np.log1p, "log2": np.log2, "isnan": np.isnan, "isinf": np.isinf, "signbit": np.signbit,
    "reciprocal": lambda x: (1 / x).astype(x.dtype), "sigmoid": lambda x: sp.expit(x), "exp2": np.exp2, "erf": sp.erf, "erfc": sp.erfc}


@quick
@given(arrays(special=True), st.sampled_from(sorted(POINTWISE)))
def test_pointwise_functions_are_numpys(a: np.ndarray, name: str) -> None:
    with np.errstate(all="ignore"):
        want = POINTWISE[name](a)
        eps = 2e-6 if a.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(getattr(fb, name)(made(a)).numpy(), want, rtol=eps, atol=1e-7 if name in ("sin", "cos") else 0)


SPECIAL: dict[str, tuple[Any, float, float]] = {
    "gammaln": (sp.gammaln, 0.01, 90.0), "digamma": (sp.digamma, 0.2, 50.0), "i0": (sp.i0, -15.0, 15.0), "i0e": (sp.i0e, -50.0, 50.0),
    "i1": (sp.i1, -15.0, 15.0),
    "i1e": (sp.i1e, -50.0, 50.0), "ndtr": (sp.ndtr, -8.0, 8.0), "ndtri": (sp.ndtri, 0.001, 0.999), "log_ndtr": (sp.log_ndtr, -30.0, 8.0),
    "erfcx": (sp.erfcx, -3.0, 50.0), "erfinv": (sp.erfinv, -0.99, 0.99), "entr": (sp.entr, 0.0, 5.0), "bessel_j0": (sp.j0, 0.1, 20.0),
    "bessel_j1": (sp.j1, 0.1, 20.0), "bessel_y0": (sp.y0, 0.1, 20.0), "bessel_y1": (sp.y1, 0.1, 20.0), "modified_bessel_k0": (sp.k0, 0.1, 20.0),
    "modified_bessel_k1": (sp.k1, 0.1, 20.0), "spherical_bessel_j0": (lambda x: sp.spherical_jn(0, x), 0.1, 20.0), "sinc": (np.sinc, -5.0, 5.0),
    "expit": (sp.expit, -20.0, 20.0), "logit": (sp.logit, 0.01, 0.99), "airy_ai": (lambda x: sp.airy(x)[0], -8.0, 5.0)}


@quick
@given(arrays(), st.sampled_from(sorted(SPECIAL)))
def test_special_functions_are_scipys(a: np.ndarray, name: str) -> None:
    f, low, high = SPECIAL[name]
    x = np.asarray(low + (high - low) * sp.expit(a.astype(np.float64)))
    x = np.asarray(x.astype(a.dtype))
    want = f(x.astype(np.float64))
    got = getattr(fb.special, name)(made(x)).numpy()
    assert got.dtype == a.dtype and got.shape == a.shape
    eps = 2e-5 if a.dtype == np.float32 else 1e-9
    slope = np.abs(f(x.astype(np.float64) * (1 + 1e-7)) - want) * (1 if a.dtype == np.float32 else 1e-7)  # the argument's own rounding
    assert (np.abs(got - want) <= eps * np.maximum(np.abs(want), 1e-3) + 4 * slope).all()


# ---------------------------------------------------------------------------------------- differences, distances, covariance
@quick
@given(arrays(least=1, types=(np.float64, np.int64)), st.integers(0, 3), st.data())
def test_differences_are_numpys(a: np.ndarray, n: int, data: Any) -> None:
    dim = data.draw(st.integers(-a.ndim, a.ndim - 1))
    if a.shape[dim] > n:
        close(fb.diff(made(a), n, dim), np.diff(a, n, dim))
        total = fb.cumsum(fb.diff(made(a), 1, dim), dim)
        close(total, np.cumsum(np.diff(a, 1, dim), dim))


@quick
@given(arrays(least=1, sizes=st.sampled_from([2, 3, 5, 8]), types=(np.float64,)), st.floats(0.1, 3.0))
def test_slopes_and_areas_are_numpys(a: np.ndarray, step: float) -> None:
    for axis in range(a.ndim):
        close(fb.gradient(made(a), spacing=step, dim=axis)[0], np.gradient(a, step, axis=axis))
        trapezoid = getattr(np, "trapezoid", None) or np.trapz
        close(fb.trapezoid(made(a), dx=step, dim=axis), trapezoid(a, dx=step, axis=axis))
        close(fb.cumulative_trapezoid(made(a), dx=step, dim=axis).select(axis, -1), trapezoid(a, dx=step, axis=axis))


@quick
@given(arrays(least=2, most=2, sizes=SOME, types=(np.float64,)), st.sampled_from([1.0, 2.0, 3.0, np.inf, 0.0]))
def test_distances_are_scipys(a: np.ndarray, p: float) -> None:
    b = a[::-1] * 0.7 + 0.1
    name = {1.0: "cityblock", 2.0: "euclidean", np.inf: "chebyshev"}.get(p)
    want = scipy.spatial.distance.cdist(a, b, name) if name else ((np.abs(a[:, None] - b[None]) ** p).sum(-1) ** (1 / p) if p else
                                                                  (a[:, None] != b[None]).sum(-1).astype(a.dtype))
    close(fb.cdist(made(a), made(b.copy()), p), want)
    pairs = F.pdist(made(a), p)
    close(pairs, fb.cdist(made(a), made(a), p).numpy()[np.triu_indices(len(a), 1)], 1e-6)


@quick
@given(arrays(least=2, sizes=SOME), st.sampled_from([1.0, 2.0, np.inf]), st.floats(0.1, 5.0))
def test_renormed_slices_are_short_enough(a: np.ndarray, p: float, most: float) -> None:
    got = fb.renorm(made(a), p, 0, most)
    sizes = np.linalg.norm(a.reshape(len(a), -1).astype(np.float64), p, axis=1)
    after = np.linalg.norm(got.numpy().reshape(len(a), -1).astype(np.float64), p, axis=1)
    np.testing.assert_allclose(after, np.minimum(sizes, most), rtol=1e-4)


@quick
@given(arrays(least=2, most=2, sizes=st.sampled_from([2, 3, 5, 8]), types=(np.float64,)), st.integers(0, 1))
def test_covariances_are_numpys(a: np.ndarray, correction: int) -> None:
    weights = np.arange(1, a.shape[1] + 1)
    close(fb.cov(made(a), correction=correction), np.cov(a, ddof=correction))
    close(fb.cov(made(a), correction=correction, fweights=fb.from_numpy(weights)), np.cov(a, ddof=correction, fweights=weights))
    close(fb.corrcoef(made(a)), np.corrcoef(a))


# ---------------------------------------------------------------------------------------------------------- fft, folds
@quick
@given(arrays(least=1, sizes=SOME, types=(np.float32, np.float64, np.complex64, np.complex128)), st.sampled_from(["backward", "ortho", "forward"]), st.data())
def test_transforms_are_scipys_and_come_back(a: np.ndarray, norm: str, data: Any) -> None:
    dims = data.draw(st.lists(st.integers(0, a.ndim - 1), min_size=1, max_size=a.ndim, unique=True))
    x = made(a)
    there = fb.fft.fftn(x, dim=dims, norm=norm)
    close(there, scipy.fft.fftn(a, axes=dims, norm=norm))
    close(fb.fft.ifftn(there, dim=dims, norm=norm), a.astype(there.numpy().dtype))
    close(fb.fft.ifftshift(fb.fft.fftshift(x, dims), dims), a)
    if a.dtype.kind == "f":
        half = fb.fft.rfft(x, dim=dims[0], norm=norm)
        close(half, scipy.fft.rfft(a, axis=dims[0], norm=norm))
        close(fb.fft.irfft(half, a.shape[dims[0]], dims[0], norm), a)


@quick
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.integers(1, 2), st.integers(5, 9), st.integers(5, 9))
def test_folding_back_counts_how_often_each_place_was_taken(kh: int, kw: int, stride: int, padding: int, dilation: int, h: int, w: int) -> None:
    x = fb.randn(2, 3, h, w, dtype=fb.float64)
    options: Any = {"kernel_size": (kh, kw), "stride": stride, "padding": padding, "dilation": dilation}
    columns = F.unfold(x, **options)
    counts = F.fold(F.unfold(fb.ones_like(x), **options), (h, w), **options)
    close(F.fold(columns, (h, w), **options), (x * counts).numpy())
    assert columns.shape[1] == 3 * kh * kw


@quick
@given(st.sampled_from([8, 12, 16]), st.sampled_from([2, 4]), st.booleans(), st.integers(30, 90))
def test_a_spectrum_gives_its_signal_back(n_fft: int, parts: int, centre: bool, length: int) -> None:
    x, window = fb.randn(2, length, dtype=fb.float64), fb.hann_window(n_fft, dtype=fb.float64) + 0.1
    spectrum = fb.stft(x, n_fft, n_fft // parts, window=window, center=centre, return_complex=True)
    back = fb.istft(spectrum, n_fft, n_fft // parts, window=window, center=centre)
    n = back.shape[-1]
    close(back, x[..., :n].numpy())


# --------------------------------------------------------------------------------------------- layout, storage, attributes
@quick
@given(arrays(types=(np.float32, np.int64, np.bool_, np.complex64)))
def test_layouts_and_storages_are_numpys(a: np.ndarray) -> None:
    x = made(a)
    assert tuple(x.shape) == a.shape and x.numel() == a.size and x.dim() == a.ndim and x.element_size() == a.itemsize
    assert tuple(x.stride()) == tuple(s // a.itemsize for s in a.strides) or 0 in a.shape or 1 in a.shape
    if a.size:
        assert x.is_contiguous() == a.flags.c_contiguous and x.data_ptr() == a.ctypes.data
    whole = x.contiguous()
    assert whole.is_contiguous() and bytes(whole.untyped_storage()) == a.tobytes()
    assert fb.equal(x.clone(), whole) and np.array_equal(x.numpy(), a)
    if a.ndim >= 2:
        assert np.array_equal(x.mT.numpy(), a.swapaxes(-1, -2))
    if a.dtype.kind == "c":
        assert np.array_equal(x.real.numpy(), a.real) and np.array_equal(x.imag.numpy(), a.imag)


@quick
@given(arrays(least=4, most=4, sizes=SOME))
def test_a_memory_format_changes_strides_only(a: np.ndarray) -> None:
    x = made(a).contiguous(memory_format=fb.channels_last)
    n, c, h, w = a.shape
    assert x.is_contiguous(memory_format=fb.channels_last) and np.array_equal(x.numpy(), a)
    if 1 not in a.shape:
        assert x.stride() == (c * h * w, 1, w * c, c)
    assert np.array_equal(x.contiguous().numpy(), a)


@quick
@given(arrays(types=(np.float32, np.int64, np.bool_, np.complex64)), st.booleans())
def test_there_and_back_again(a: np.ndarray, pinned: bool) -> None:
    with fb.simulate(gpus=2):
        x = made(a)
        there = (x.pin_memory() if pinned and a.size else x).to("cuda:1", non_blocking=pinned)
        assert there.device.index == 1 and np.array_equal(there.to("cuda:0").cpu().numpy(), a)
        assert np.array_equal(there.mT.cpu().numpy() if a.ndim >= 2 else there.cpu().numpy(), a.swapaxes(-1, -2) if a.ndim >= 2 else a)


# ------------------------------------------------------------------------------------------------------ random, results
@quick
@given(st.integers(0, 2 ** 63 - 1), st.lists(SIZES, max_size=3), st.integers(-5, 5), st.integers(1, 100))
def test_random_numbers_follow_their_seed_and_bounds(seed: int, shape: list[int], low: int, span: int) -> None:
    def draw() -> list[Any]:
        fb.manual_seed(seed)
        return [fb.rand(shape), fb.randn(shape), fb.randint(low, low + span, shape), fb.randperm(span), fb.bernoulli(fb.full(shape, 0.5)),
                fb.empty(shape).uniform_(low, low + span), fb.multinomial(fb.ones(span), span)]
    first, second = draw(), draw()
    assert all(fb.equal(a, b) for a, b in zip(first, second, strict=True))
    flat, whole, order, coins, spread, picks = first[0], first[2], first[3], first[4], first[5], first[6]
    assert all(list(t.shape) == shape for t in (flat, whole, coins, spread))
    assert ((flat >= 0) & (flat < 1)).all() and ((whole >= low) & (whole < low + span)).all() and ((spread >= low) & (spread <= low + span)).all()
    assert order.sort().values.tolist() == picks.sort().values.tolist() == list(range(span)) and set(coins.flatten().tolist()) <= {0.0, 1.0}


@quick
@given(arrays(least=1, sizes=SOME), st.data())
def test_named_results_are_tuples_too(a: np.ndarray, data: Any) -> None:
    x, dim = made(a), data.draw(st.integers(-a.ndim, a.ndim - 1))
    for found in (x.max(dim), x.min(dim), x.sort(dim), x.median(dim), x.mode(dim), x.kthvalue(1, dim), x.topk(1, dim), x.cummax(dim)):
        values, indices = found
        assert found.values is values and found[1] is found.indices is indices and len(found) == 2 and indices.dtype is fb.int64
        picked = x.gather(dim, indices if indices.dim() == x.dim() else indices.unsqueeze(dim))
        assert fb.equal(picked if values.dim() == x.dim() else picked.squeeze(dim), values)


# -------------------------------------------------------------------------------------------------------------- sparse
@quick
@given(arrays(least=2, most=2), st.integers(1, 4))
def test_sparse_matrices_are_their_dense_ones(a: np.ndarray, columns: int) -> None:
    a = np.where(a > 0, a, 0)
    x, other = made(a), fb.randn(a.shape[1], columns, dtype=made(a).dtype)
    for s in (x.to_sparse(), x.to_sparse_csr()):
        assert np.array_equal(s.to_dense().numpy(), a) and s.values().numel() == np.count_nonzero(a)
        close(s @ other, a @ other.numpy())
    coo = x.to_sparse()
    assert np.array_equal((coo + coo).to_dense().numpy(), 2 * a) and np.array_equal(coo.t().to_dense().numpy(), a.T)
    twice = fb.sparse_coo_tensor(fb.cat([coo.indices()] * 2, 1), fb.cat([coo.values()] * 2), a.shape)
    assert twice.coalesce()._nnz() == coo._nnz() and np.array_equal(twice.to_dense().numpy(), 2 * a)
    close(coo.sum(), a.sum())


def test_every_family_has_a_property() -> None:
    """Each file of tests of operations has properties of its own, or its family is named here."""
    from pathlib import Path
    here = Path(__file__).parent
    named = {"attributes", "covariance", "differences", "distances", "fft", "map_reduce", "memory_format", "pointwise", "random", "results", "sparse",
             "special", "stft", "storages", "transfer", "typed_storages"}
    about_the_house = {"error_inputs", "aten_compat", "autocast", "narrow_arithmetic", "deprecated_signatures", "removed", "out_memory", "pinning", "queries",
                       "second_derivatives", "table", "conditions", "sparse_learning",
                       "foreach", "transfer_paths", "determinism"}
    for path in here.glob("test_*.py"):
        family = path.stem.removeprefix("test_")
        assert "hypothesis" in path.read_text() or family in named | about_the_house, f"{path.name} has no property"
