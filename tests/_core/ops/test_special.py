"""Special functions against SciPy, in both precisions; gradients against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch
from tests.late import Late

sp = Late("scipy.special")
X = np.concatenate([np.linspace(-30, 30, 241), [0.0, 1e-3, -1e-3, 100.0, -100.0, np.inf, -np.inf, np.nan]])
POSITIVE = np.concatenate([np.geomspace(1e-6, 600, 200), [0.0, np.inf, -1.0, np.nan]])
FINITE, NOT_INFINITE = X[np.isfinite(X)], POSITIVE[~np.isinf(POSITIVE)]
ROWS = [("i0", sp.i0, X), ("i0e", sp.i0e, X), ("i1", sp.i1, X), ("i1e", sp.i1e, X), ("bessel_j0", sp.j0, FINITE), ("bessel_j1", sp.j1, FINITE),
        ("bessel_y0", sp.y0, NOT_INFINITE), ("bessel_y1", sp.y1, NOT_INFINITE), ("modified_bessel_i0", sp.i0, X), ("modified_bessel_i1", sp.i1, X),
        ("modified_bessel_k0", sp.k0, POSITIVE), ("modified_bessel_k1", sp.k1, POSITIVE), ("scaled_modified_bessel_k0", sp.k0e, POSITIVE),
        ("scaled_modified_bessel_k1", sp.k1e, POSITIVE), ("spherical_bessel_j0", lambda x: np.sinc(x / np.pi), X[:-3]),
        ("airy_ai", lambda x: sp.airy(x)[0], X[:-5]), ("erfcx", sp.erfcx, X[X > -20]), ("ndtr", sp.ndtr, X), ("log_ndtr", sp.log_ndtr, X),
        ("ndtri", sp.ndtri, np.concatenate([np.linspace(0, 1, 101), np.geomspace(1e-30, 0.4, 50), [-0.1, 1.1, np.nan]])), ("entr", sp.entr, POSITIVE)]


@pytest.mark.parametrize(("name", "oracle", "xs"), ROWS, ids=[r[0] for r in ROWS])
def test_one_operand(device: str, name: str, oracle, xs: np.ndarray) -> None:
    f = getattr(torch.special, name)
    with np.errstate(all="ignore"):
        want = oracle(xs)
    got = f(torch.tensor(xs, device=device)).cpu().numpy()
    np.testing.assert_allclose(got, want, rtol=2e-12, atol=1e-13)
    single = xs.astype(np.float32)
    with np.errstate(all="ignore"):
        want = oracle(single.astype(np.float64))
        fits = np.abs(want) < 3e38
    got = f(torch.tensor(single, device=device)).cpu().numpy()
    np.testing.assert_allclose(got[fits | np.isnan(want)], want[fits | np.isnan(want)], rtol=1e-4 if name in ("i0", "i1", "modified_bessel_i0",
                               "modified_bessel_i1", "erfcx") else 2e-5, atol=3e-6)


def test_at_infinity() -> None:
    ends = torch.tensor([float("inf"), -float("inf")])
    for name in ("bessel_j0", "bessel_j1", "airy_ai", "spherical_bessel_j0"):
        assert getattr(torch.special, name)(ends).tolist() == [0.0, 0.0]
    assert torch.special.bessel_y0(ends)[0].item() == 0.0 and torch.special.bessel_y1(ends)[1].isnan()


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e", "ndtr", "log_ndtr", "erfcx", "bessel_j0", "bessel_j1", "spherical_bessel_j0"])
def test_gradients(name: str) -> None:
    x = torch.tensor([-3.1, -0.4, 0.3, 1.7, 9.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(torch.special, name), (x,))
    assert torch.autograd.gradgradcheck(getattr(torch.special, name), (x,), atol=1e-4)


def test_gradients_on_their_domains() -> None:
    p = torch.tensor([0.01, 0.3, 0.6, 0.99], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.4, 1.5, 7.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(torch.special.ndtri, (p,))
    assert torch.autograd.gradcheck(torch.special.entr, (q,))
    assert torch.autograd.gradcheck(lambda q: torch.special.zeta(torch.full_like(q, 3.0), q), (q,))
    for first in (p + 1, torch.tensor(2.5, requires_grad=True)):  # PyTorch has none either
        with pytest.raises(NotImplementedError, match="the derivative for 'zeta' is not implemented"):
            torch.special.zeta(first, q[0]).sum().backward()
    assert torch.autograd.gradcheck(lambda q: torch.polygamma(2, q), (q,))
    assert torch.autograd.gradcheck(lambda q: torch.mvlgamma(q + 2, 3), (q,))
    assert torch.autograd.gradcheck(lambda q: torch.igamma(torch.full_like(q, 2.5), q), (q,))
    assert torch.autograd.gradcheck(lambda q: torch.igammac(torch.full_like(q, 2.5), q), (q,))
    assert torch.autograd.gradcheck(lambda q: torch.frexp(q).mantissa, (q,))
    with pytest.raises(NotImplementedError, match="'input'"):
        torch.igamma(q, q).sum().backward()


def test_zeta_and_polygamma(device: str) -> None:
    q = np.concatenate([np.linspace(0.1, 30, 60), [0.0, -1.0]])
    for s in (1.0, 0.5, 1.5, 2.0, 3.7, 12.0):
        got = torch.special.zeta(s, torch.tensor(q, device=device)).cpu().numpy()
        np.testing.assert_allclose(got, sp.zeta(s, q) if s > 1 else np.full(q.shape, np.inf if s == 1 else np.nan), rtol=1e-12)
    x = np.linspace(0.2, 20, 50)
    for n in range(5):
        t = torch.tensor(x, device=device)
        np.testing.assert_allclose(torch.polygamma(n, t).cpu().numpy(), sp.polygamma(n, x), rtol=1e-9)
        np.testing.assert_allclose(t.polygamma(n).cpu().numpy(), sp.polygamma(n, x), rtol=1e-9)
        assert torch.equal(t.clone().polygamma_(n), torch.special.polygamma(n, t))
    with pytest.raises(RuntimeError, match="negative n"):
        torch.polygamma(-1, torch.ones(1))
    want = [sp.multigammaln(v, 4) for v in x + 3]
    np.testing.assert_allclose(torch.mvlgamma(torch.tensor(x + 3, device=device), 4).cpu().numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float32", "float64"])
def test_polygamma_is_infinite_at_its_poles(device: str, d: str) -> None:
    """PyTorch's trigamma there is what rounding leaves, from 1e13 to 1e32."""
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, -7.0, -128.0], dtype=getattr(torch, d), device=device)
    for n in (1, 2, 3, 4):
        assert torch.polygamma(n, x).tolist() == [math.inf if n % 2 else -math.inf] * 6
    assert torch.polygamma(0, x)[2:].isnan().all()


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_neighbours_in_a_vector_do_not_change_the_incomplete_gammas(name: str) -> None:
    rng = np.random.default_rng(1)
    odd = np.array([0, 0.1, 1, 3, 100, 1e6, 2e6, 2.0001e6, 1e7, np.inf, np.nan, -1, 1e-30, 0.19, 30, 1e-3], np.float32)
    a, x = (np.concatenate([rng.uniform(0, 50, 200), rng.choice(odd, 97)]).astype(np.float32) for _ in range(2))
    f = getattr(torch, name)
    made = f(torch.from_numpy(a), torch.from_numpy(x)).numpy()
    alone = [f(torch.from_numpy(a[i:i + 1]), torch.from_numpy(x[i:i + 1])).item() for i in range(len(a))]
    np.testing.assert_array_equal(made, np.array(alone, np.float32))
    np.testing.assert_array_equal(made[3:], f(torch.from_numpy(a[3:].copy()), torch.from_numpy(x[3:].copy())).numpy())
    np.testing.assert_allclose(made, f(torch.from_numpy(a).double(), torch.from_numpy(x).double()).numpy(), rtol=1e-7, atol=1e-37)  # singles underflow


def test_incomplete_gamma(device: str) -> None:
    a, x = (v.ravel() for v in np.meshgrid([0.0, 0.1, 1.0, 3.3, 20.0, 150.0, 450.0, 2000.0], [0.0, 0.05, 1.0, 4.0, 19.0, 160.0, 440.0, 2050.0, np.inf]))
    for f, oracle in ((torch.igamma, sp.gammainc), (torch.igammac, sp.gammaincc)):
        got = f(torch.tensor(a, device=device), torch.tensor(x, device=device)).cpu().numpy()
        defined = ~((a == 0) & (x == 0))
        np.testing.assert_allclose(got[defined], oracle(a, x)[defined], rtol=1e-7, atol=1e-12)
    assert np.isnan(torch.igamma(torch.tensor([-1.0, 1.0]), torch.tensor([1.0, -1.0])).numpy()).all()
    with pytest.raises(TypeError, match="'other'"):
        torch.igamma(torch.ones(2), 1.0)


@pytest.mark.parametrize(("name", "oracle"), [("chebyshev_polynomial_t", sp.eval_chebyt), ("chebyshev_polynomial_u", sp.eval_chebyu),
                                              ("hermite_polynomial_h", sp.eval_hermite), ("hermite_polynomial_he", sp.eval_hermitenorm),
                                              ("laguerre_polynomial_l", sp.eval_laguerre), ("legendre_polynomial_p", sp.eval_legendre),
                                              ("shifted_chebyshev_polynomial_t", sp.eval_sh_chebyt), ("shifted_chebyshev_polynomial_u", sp.eval_sh_chebyu)])
def test_polynomials(device: str, name: str, oracle) -> None:
    x, n = np.meshgrid(np.linspace(-1.6, 1.6, 33), [0, 1, 2, 3, 5, 7, 12, 23, 30, 33, 41])
    got = getattr(torch.special, name)(torch.tensor(x, device=device), torch.tensor(n.astype(float), device=device)).cpu().numpy()
    np.testing.assert_allclose(got, oracle(n, x), rtol=1e-8, atol=1e-8)
    assert getattr(torch.special, name)(torch.ones(2), -1).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["v", "w"])
def test_third_and_fourth_kind(kind: str) -> None:
    theta = np.linspace(0.1, 3.0, 20)
    for n in (0, 1, 4, 9, 40):
        top = np.cos if kind == "v" else np.sin
        got = getattr(torch.special, f"chebyshev_polynomial_{kind}")(torch.tensor(np.cos(theta)), n).numpy()
        np.testing.assert_allclose(got, top((n + 0.5) * theta) / top(theta / 2), rtol=1e-8, atol=1e-9)


def test_integers_and_parts(device: str) -> None:
    a, b = np.array([12, -18, 0, 7, 0]), np.array([18, 24, 5, 13, 0])
    x, y = torch.tensor(a, device=device), torch.tensor(b, device=device)
    assert torch.gcd(x, y).tolist() == np.gcd(a, b).tolist() and torch.lcm(x, y).tolist() == np.lcm(a, b).tolist()
    assert torch.gcd(x[:, None], y).shape == (5, 5) and x.clone().gcd_(y).tolist() == np.gcd(a, b).tolist()
    grid = torch.arange(24).reshape(4, 3, 2).permute(2, 0, 1)
    found = torch.gcd(grid, torch.tensor([6], dtype=torch.int8))
    assert found.tolist() == np.gcd(grid.numpy(), 6).tolist() and found.stride() == grid.stride() and found._base is None
    with pytest.raises(RuntimeError, match="Long can't be cast to the desired output type Bool"):
        torch.gcd(x, y, out=torch.empty(5, dtype=torch.bool))
    with pytest.raises(NotImplementedError, match="gcd"):
        torch.gcd(x.float(), y.float())
    v = np.array([0.0, 1.0, -3.5, 1e-40, 6e30])
    m, e = torch.frexp(torch.tensor(v, device=device))
    assert e.dtype is torch.int32 and np.array_equal(m.cpu().numpy(), np.frexp(v)[0]) and np.array_equal(e.cpu().numpy(), np.frexp(v)[1])
    with pytest.raises(RuntimeError, match="floating-point"):
        torch.frexp(x)


def test_mvlgamma_sums_any_number_of_terms_or_refuses_at_once() -> None:
    from scipy import special
    x = np.array([6000.5, 7001.0])
    for p in (1, 2, 3, 1000, 12000):
        np.testing.assert_allclose(torch.mvlgamma(torch.tensor(x), p).numpy(), [special.multigammaln(v, p) for v in x], rtol=1e-11)
    for p in (2**30, 2**31, 2**63 - 1):
        with pytest.raises(RuntimeError, match=rf"mvlgamma: p of {p} for an input of 2 elements"):
            torch.mvlgamma(torch.tensor(x), p)
    assert torch.mvlgamma(torch.ones(0, 3), 2 ** 63 - 1).shape == (0, 3)  # there is nothing to sum


WIDE = {"digamma": sp.digamma, "special.i0": sp.i0, "special.i0e": sp.i0e, "special.i1": sp.i1, "special.i1e": sp.i1e, "special.bessel_j0": sp.j0,
        "special.bessel_j1": sp.j1, "special.bessel_y0": sp.y0, "special.bessel_y1": sp.y1, "special.modified_bessel_k0": sp.k0,
        "special.modified_bessel_k1": sp.k1, "special.ndtri": sp.ndtri}


@pytest.mark.parametrize("name", sorted(WIDE))
def test_singles_are_rounded_once_near_zeros_and_poles_too(name: str) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-20, 20, 20000), rng.uniform(0, 1, 20000), rng.uniform(-1, 1, 20000) * 10.0 ** rng.integers(-40, 0, 20000),
                        0.5 + rng.normal(size=2000) * 1e-5,
                        [2.4048256, 5.5200781, 3.8317060, 0.89357697, 1.4616321, -1.5734978, -0.50408301]]).astype(np.float32)
    f = torch
    for part in name.split("."):
        f = getattr(f, part)
    with np.errstate(all="ignore"):
        want = WIDE[name](x.astype(np.float64))
        got = f(torch.from_numpy(x)).numpy()
        rounded = want.astype(np.float32)
        known = np.isfinite(rounded) & np.isfinite(want)
        off = np.abs(got.astype(np.float64) - want)[known] / np.spacing(np.maximum(np.abs(rounded[known]), np.float32(1e-37)))
    assert off.max() <= 1.0 and np.isfinite(got[known]).all()
    assert f(torch.from_numpy(x[:8]).half()).dtype is torch.float16


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_divisors_of_extremes(kind):
    info = np.iinfo(kind)
    a = np.array([info.min, info.max, 0, 0, info.max, info.min, 6, info.min], kind)
    b = np.array([info.min, info.min, 0, info.max, 0, 1, 4, 0], kind)
    assert torch.gcd(torch.tensor(a), torch.tensor(b)).numpy().tolist() == np.gcd(a, b).tolist()
    assert torch.lcm(torch.tensor(a), torch.tensor(b)).numpy().tolist() == np.lcm(a, b).tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_frexp_of_every_kind_of_number(kind):
    info, bits = np.finfo(kind), {np.float32: np.uint32, np.float64: np.uint64}[kind]
    x = np.concatenate([np.random.default_rng(0).integers(0, np.iinfo(bits).max, 4096, dtype=bits).view(kind), np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, info.tiny, info.tiny / 3, info.smallest_subnormal, -info.smallest_subnormal, info.max, 1, -0.5], kind)])
    with np.errstate(invalid="ignore"):
        want = np.frexp(x)
    found = torch.frexp(torch.tensor(x))
    np.testing.assert_array_equal(found.mantissa.numpy(), want[0])
    np.testing.assert_array_equal(np.signbit(found.mantissa.numpy()), np.signbit(want[0]))
    np.testing.assert_array_equal(found.exponent.numpy(), want[1])


def test_incomplete_gamma_at_the_edges_and_over_many_magnitudes():
    s = np.array([0, -1, np.nan, 1, 2, 5e6, -0.0])
    a, x = (v.copy() for v in np.meshgrid(s, s))
    r = np.random.default_rng(0)
    b = 10 ** r.uniform(-3, 3, 2048)
    y = np.abs(np.where(r.uniform(size=2048) < 0.5, b * (1 + 3 * r.normal(size=2048) / np.sqrt(b)), 10 ** r.uniform(-3, 3, 2048)))
    for f, oracle in ((torch.igamma, sp.gammainc), (torch.igammac, sp.gammaincc)):
        np.testing.assert_allclose(f(torch.tensor(a), torch.tensor(x)).numpy(), oracle(a, x), rtol=1e-7, atol=1e-300)
        np.testing.assert_allclose(f(torch.tensor(b), torch.tensor(y)).numpy(), oracle(b, y), rtol=1e-11, atol=1e-200)
        narrow = f(torch.tensor(b, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)).numpy()
        np.testing.assert_allclose(narrow, oracle(b.astype(np.float32).astype(float), y.astype(np.float32).astype(float)), rtol=2e-7, atol=1e-37)


# exact values, by mpmath, where series cancelled, squares were rounded before an exponential, or terms were too few; x: value
EXACT = {
    "erfc": {0.5000000000000001: 0.47950012218695337, 6.000000000000002: 2.1519736712498447e-17, 14.907758755740044: 1.145205343884768e-98,
        26.6: 1.088512588544227e-309},
    "tan": {-2.111751886521391: 1.6646433606599513, 1.5707963267948966: 1.633123935319537e+16, 45.3: 3.8663823595024094},
    "expm1": {0.37093700373466876: 0.4490917831407424, -0.35: -0.29531191028128656},
    "digamma": {1.4616321449683622: -9.241265521729427e-17, 1.4616321449683625: 1.2245374622004068e-16, 1.3: -0.16919088886679962},
    "special.bessel_j0": {-0.000494428428965238: 0.999999938885133, 1.5: 0.5118276717359181},
    "special.bessel_y0": {0.002190224942605576: -3.972299752545911, 0.4: -0.6060245684270095},
    "special.modified_bessel_k0": {0.5369067687861605: 0.8660377892343613, 1.0: 0.42102443824070834},
    "special.i1": {7.999996185302734: 399.87169643187866, -6.5: -97.73501077403152, 699.0: 5.627055139822027e+301, -712.0: -2.4666770135246153e+307},
    "special.i0e": {3.0: 0.2430003541618254, 60.0: 0.05161154917360984},
    "special.i1e": {-6.545803821574864: -0.14649446013893702},
    "special.spherical_bessel_j0": {0.4946940486119864: 0.9597091429057848, -0.4999999999997726: 0.958851077208443},
    "special.ndtri": {0.4999999999999999: -2.782916424671767e-16, 0.47772191489136345: -0.05587193341522983,
        0.04585387789744289: -1.686457284893891, 2.523600840866743e-178: -28.448767446207597, 5e-324: -38.467405617144344},
    "polygamma(2)": {-10.62822020942593: -31.230647717892094, -1e-13: 2e+39, -3.25: 123.95521103942203},
    "polygamma(3)": {-10.62822020942593: 355.5823299899989, 0.25: 1538.7821440091884},
}


@pytest.mark.parametrize("name", sorted(EXACT))
def test_doubles_lose_no_digits(name: str) -> None:
    x, want = np.array(list(EXACT[name])), np.array(list(EXACT[name].values()))
    if name.startswith("polygamma"):
        got = torch.polygamma(int(name[10:-1]), torch.tensor(x)).numpy()
    else:
        got = _named(name)(torch.tensor(x)).numpy()
    assert (np.abs(got - want) <= 3 * np.spacing(np.abs(want))).all(), (x, got, want)


def _named(path: str):
    f = torch
    for part in path.split("."):
        f = getattr(f, part)
    return f


def test_zeta_below_zero_and_where_single_terms_leave_the_range() -> None:
    q = np.array([-0.25, -3.5, -10.628220558166504, -1e-13, -40.000003814697266], np.float32)
    for s in (2, 3, 7):
        want = [sum(float(k + v) ** -s for k in range(60)) + sp.zeta(s, v + 60.0) for v in q.astype(np.float64).tolist()]
        np.testing.assert_allclose(torch.special.zeta(torch.tensor(float(s)), torch.tensor(q)).numpy(), np.array(want).astype(np.float32), rtol=2e-7)
    assert torch.special.zeta(torch.tensor(2.5), torch.tensor(-0.5)).isnan() and torch.special.zeta(torch.tensor(2.0), torch.tensor(-3.0)).isinf()
    far = torch.special.zeta(torch.tensor([41.97758865356445]), torch.tensor([2.0]))
    np.testing.assert_allclose(far.numpy(), sp.zeta(41.97758865356445, 2.0), rtol=1e-6)  # was infinite


def test_the_upper_incomplete_gamma_function_of_small_numbers_keeps_its_digits() -> None:
    a, x = np.array([1e-300, 1e-20, 1e-8, 0.01, 0.19]), np.array([1e-210, 1e-30, 0.5, 1.0, 1.15])
    np.testing.assert_allclose(torch.igammac(torch.tensor(a), torch.tensor(x)).numpy(), sp.gammaincc(a, x), rtol=2e-14)
    np.testing.assert_allclose(torch.igamma(torch.tensor(a), torch.tensor(x)).numpy(), sp.gammainc(a, x), rtol=2e-14)


def test_zeta_and_polygamma_of_arguments_whose_power_vanishes() -> None:
    x = torch.tensor([1.5e124, 5e142, 1e15], dtype=torch.float64)
    np.testing.assert_allclose(torch.polygamma(2, x).numpy(), -1.0 / x.numpy() ** 2, rtol=2e-15)
    far = torch.tensor([1.1e78, 3.9e94], dtype=torch.float64)
    np.testing.assert_allclose(torch.polygamma(3, far).numpy(), 2.0 / far.numpy() ** 3, rtol=1e-15)
    np.testing.assert_allclose(torch.special.zeta(torch.tensor(4.0, dtype=torch.float64), far).numpy(), far.numpy() ** -3 / 3, rtol=1e-15)
    assert torch.polygamma(3, torch.tensor(math.inf)).isnan() and torch.polygamma(1, torch.tensor(math.inf)) == 0


def test_the_inverse_of_erf_in_double_is_exact_in_its_tails() -> None:
    y = np.concatenate([np.linspace(-0.999, 0.999, 2001), 1 - np.geomspace(1e-15, 0.3, 500), np.geomspace(1e-300, 0.5, 200), np.linspace(0.79, 0.81, 201)])
    np.testing.assert_allclose(torch.tensor(y).erfinv().numpy(), sp.erfinv(y), rtol=1.2e-15)
    ends = torch.tensor([1.0, -1.0, 1.5, -2.0, 0.0, -0.0, float("nan")], dtype=torch.float64).erfinv().numpy()
    np.testing.assert_array_equal(ends, [np.inf, -np.inf, np.nan, np.nan, 0.0, -0.0, np.nan])
    assert np.signbit(ends[5]) and not np.signbit(ends[4])


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_lgamma_of_any_order_are_polygammas(order):
    """Between the poles and at the halves, where the tangent of the reflection is infinite."""
    at = np.array([-7.5, -3.2, -0.5, 0.3, 0.5, 1.0, 5.0, 1e3])
    x = torch.tensor(at, requires_grad=True)
    y = torch.lgamma(x)
    for _ in range(order):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    # scipy has no polygamma below 0: psi_n(x) = psi_n(x + k) + sum of (-1)^(n+1) n! / (x + j)^(n+1)
    n, k = order - 1, 8
    want = sp.polygamma(n, at + k) - sum((-1.0) ** n * math.factorial(n) / (at + j) ** (n + 1) for j in range(k))
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-11)


def test_second_derivatives_at_0_of_what_is_defined_there_by_a_case():
    x = torch.tensor([0.0, -0.0], dtype=torch.float64, requires_grad=True)
    for function, want in ((torch.sinc, -math.pi ** 2 / 3), (torch.special.i0, 0.5), (torch.special.i0e, 0.5), (torch.special.i1, 0.0),
                           (torch.special.i1e, 0.0)):
        (slope,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        (curve,) = torch.autograd.grad(slope.sum(), x)
        np.testing.assert_allclose(curve.tolist(), [want, want], err_msg=function.__name__)
    far = torch.tensor([np.inf, -np.inf], dtype=torch.float64, requires_grad=True)
    for function in (torch.special.i0e, torch.special.i1e):
        (slope,) = torch.autograd.grad(function(far).sum(), far)
        assert slope.tolist() == [0, 0]
