"""Errors of float32 and float64 functions beside PyTorch's, against mpmath, in units of the last place.

    python tools/accuracy.py                            all functions; fails where one is worse than PyTorch's by more than one unit
    python tools/accuracy.py --only lgamma,bessel_j0 --dtype float64 --points 400 --all

Inputs are drawn in sections, and the worst of each section is compared, so that a place where PyTorch is far off excuses no other place:
`small`, `middle` and `large` are spaced by logarithm, `zeros` lie by 0 to 2**40 steps of the type beside the function's own zeros, `edges` beside
the ends of its domain, whole numbers and halves.  An infinity or NaN where the exact value rounds to a number, or the other way round, counts as
an infinite error.  Needs PyTorch and mpmath.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60
INF = math.inf
MIDDLE = 2.0 ** -6, 2.0 ** 6  # magnitudes of that section
STEPS = (0, 1, 2, 3, 5, 16, 100, 1 << 12, 1 << 18, 1 << 24, 1 << 32, 1 << 40)


@dataclass(frozen=True)
class Function:
    """A function's exact values, and where they are asked for: an interval for each argument."""

    exact: Callable[..., Any]
    domains: tuple[tuple[float, float], ...]


def _f(exact: Callable[..., Any], *ends: float) -> Function:
    """Intervals in a row; none: everything, for one argument."""
    ends = ends or (-INF, INF)
    return Function(exact, tuple(zip(ends[::2], ends[1::2], strict=True)))


def _sinc(x: Any) -> Any:
    return mp.sin(mp.pi * x) / (mp.pi * x) if x else mp.mpf(1)


def _lgamma(x: Any) -> Any:
    return mp.re(mp.loggamma(x))


def _ndtr(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _erfinv(y: Any) -> Any:
    """By Newton's steps in the nearer tail, as mpmath's own is slow near 1."""
    return mp.sign(y) * -_ndtri((1 - abs(y)) / 2) / mp.sqrt(2)


def _ndtri(p: Any) -> Any:
    if p > mp.mpf(1) / 2:
        return -_ndtri(1 - p)
    if p == mp.mpf(1) / 2:
        return mp.mpf(0)
    if p > mp.mpf("0.4"):
        return mp.sqrt(2) * mp.erfinv(2 * p - 1)
    t = mp.sqrt(-2 * mp.log(p))
    x = -(t - mp.log(t * t + 2) / (t + 1))
    for _ in range(9):  # on the logarithm, whose slope is known
        tail = _ndtr(x)
        x -= (mp.log(tail) - mp.log(p)) * tail * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
    return x


def _erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x) if x < 1e4 else (1 - 1 / (2 * x * x) + 3 / (4 * x ** 4) - 15 / (8 * x ** 6) + 105 / (16 * x ** 8)) / (x * mp.sqrt(mp.pi))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _zeta(s: Any, q: Any) -> Any:
    return mp.zeta(s, q)


def _gamma_part(upper: bool) -> Callable[[Any, Any], Any]:
    return lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True) if upper else mp.gammainc(a, 0, x, regularized=True)


# by the path below the package
FUNCTIONS: dict[str, Function] = {
    "exp": _f(mp.exp, -800, 800), "exp2": _f(lambda x: mp.mpf(2) ** x, -1100, 1100), "expm1": _f(mp.expm1, -800, 800),
    "log": _f(mp.log, 0, INF), "log2": _f(lambda x: mp.log(x) / mp.log(2), 0, INF), "log10": _f(lambda x: mp.log(x) / mp.log(10), 0, INF),
    "log1p": _f(mp.log1p, -1, INF), "sqrt": _f(mp.sqrt, 0, INF), "rsqrt": _f(lambda x: 1 / mp.sqrt(x), 0, INF), "reciprocal": _f(lambda x: 1 / x),
    "sin": _f(mp.sin), "cos": _f(mp.cos), "tan": _f(mp.tan), "asin": _f(mp.asin, -1, 1), "acos": _f(mp.acos, -1, 1), "atan": _f(mp.atan),
    "sinh": _f(mp.sinh, -800, 800), "cosh": _f(mp.cosh, -800, 800), "tanh": _f(mp.tanh, -800, 800), "asinh": _f(mp.asinh),
    "acosh": _f(mp.acosh, 1, INF), "atanh": _f(mp.atanh, -1, 1), "sigmoid": _f(lambda x: 1 / (1 + mp.exp(-x)), -800, 800),
    "logit": _f(lambda p: mp.log(p) - mp.log1p(-p), 0, 1), "sinc": _f(_sinc, -1e6, 1e6), "erf": _f(mp.erf, -30, 30), "erfc": _f(mp.erfc, -30, 30),
    "erfinv": _f(_erfinv, -1, 1), "lgamma": _f(_lgamma, -1e6, INF), "digamma": _f(lambda x: mp.psi(0, x), -1e6, INF),
    "i0": _f(lambda x: mp.besseli(0, x), -720, 720),
    "special.i0e": _f(lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), -1e6, 1e6), "special.i1": _f(lambda x: mp.besseli(1, x), -720, 720),
    "special.i1e": _f(lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), -1e6, 1e6),
    "special.bessel_j0": _f(lambda x: mp.besselj(0, x), -1e6, 1e6), "special.bessel_j1": _f(lambda x: mp.besselj(1, x), -1e6, 1e6),
    "special.bessel_y0": _f(lambda x: mp.bessely(0, x), 0, 1e6), "special.bessel_y1": _f(lambda x: mp.bessely(1, x), 0, 1e6),
    "special.modified_bessel_k0": _f(lambda x: mp.besselk(0, x), 0, 750), "special.modified_bessel_k1": _f(lambda x: mp.besselk(1, x), 0, 750),
    "special.scaled_modified_bessel_k0": _f(lambda x: mp.exp(x) * mp.besselk(0, x), 0, 1e6),
    "special.scaled_modified_bessel_k1": _f(lambda x: mp.exp(x) * mp.besselk(1, x), 0, 1e6),
    "special.spherical_bessel_j0": _f(lambda x: mp.sin(x) / x if x else mp.mpf(1), -1e6, 1e6), "special.airy_ai": _f(mp.airyai, -1e4, 110),
    "special.ndtr": _f(_ndtr, -40, 40), "special.log_ndtr": _f(lambda x: mp.log(_ndtr(x)) if x < 0 else mp.log1p(-_ndtr(-x)), -1e4, 40),
    "special.ndtri": _f(_ndtri, 0, 1), "special.erfcx": _f(_erfcx, -27, 1e6), "special.entr": _f(lambda x: -x * mp.log(x), 0, INF),
    "nn.functional.silu": _f(lambda x: x / (1 + mp.exp(-x)), -800, 800), "nn.functional.gelu": _f(lambda x: x * _ndtr(x), -30, 30),
    "nn.functional.softplus": _f(_softplus, -800, 800), "nn.functional.mish": _f(lambda x: x * mp.tanh(_softplus(x)), -800, 800),
    "nn.functional.logsigmoid": _f(lambda x: -_softplus(-x), -800, 800), "nn.functional.elu": _f(lambda x: x if x > 0 else mp.expm1(x), -800, 800),
    **{f"polygamma({n})": _f(lambda x, n=n: mp.psi(n, x), -50, 1e6) for n in (1, 2, 3, 10)},
    "atan2": _f(lambda y, x: mp.atan2(y, x), -INF, INF, -INF, INF), "hypot": _f(lambda x, y: mp.sqrt(x * x + y * y), -INF, INF, -INF, INF),
    "pow": _f(lambda x, y: x ** y, 0, INF, -60, 60), "xlogy": _f(lambda x, y: x * mp.log(y) if x else mp.mpf(0), -INF, INF, 0, INF),
    "special.xlog1py": _f(lambda x, y: x * mp.log1p(y) if x else mp.mpf(0), -INF, INF, -1, INF),
    "logaddexp": _f(lambda x, y: mp.log(mp.exp(x) + mp.exp(y)), -700, 700, -700, 700),
    "special.zeta": _f(_zeta, 1, 60, 0, 1e4), "igamma": _f(_gamma_part(False), 1e-6, 300, 1e-6, 400), "igammac": _f(_gamma_part(True), 1e-6, 300, 1e-6, 400),
}


# --------------------------------------------------------------------------------------------------------------- inputs
def neighbours(x: Any, d: Any, low: float, high: float) -> list[Any]:
    """x and numbers of type d that lie by `STEPS` beside it, inside the interval and of its size."""
    whole = np.int32 if d == np.float32 else np.int64
    bits = int(abs(d(x)).view(whole))
    out = []
    for step in STEPS:
        for b in {bits - step, bits + step}:
            if 0 <= b < int(d(INF).view(whole)) and step < max(abs(bits), 1 << 20):
                v = np.copysign(whole(b).view(d), d(x))
                if low <= v <= high:
                    out.append(v)
    return out


def _sizes(rng: np.random.Generator, low: float, high: float, n: int) -> np.ndarray[Any, Any]:
    """n numbers spaced by logarithm between two positive ones."""
    return np.exp(rng.uniform(math.log(low), math.log(high), n)) if low < high else np.zeros(0)


def spread(rng: np.random.Generator, d: Any, low: float, high: float, n: int) -> dict[str, list[Any]]:
    """The three sections that are spaced by logarithm, n each, both signs where the interval has both."""
    kind = np.finfo(d)
    between = {"small": (float(kind.tiny), MIDDLE[0]), "middle": MIDDLE, "large": (MIDDLE[1], float(kind.max))}
    out = {}
    for section, (first, last) in between.items():
        sides = []
        if high > first:
            sides.append(_sizes(rng, max(first, low), min(last, high), n))
        if low < -first:
            sides.append(-_sizes(rng, max(first, -high), min(last, -low), n))
        made = np.concatenate(sides).astype(d) if sides else np.zeros(0, d)
        out[section] = [v for v in made if low <= v <= high]
    return out


def zeros(exact: Callable[..., Any], d: Any, places: list[Any], most: int = 12) -> list[Any]:
    """The numbers of type d nearest to the function's changes of sign between the places, without poles."""
    out: list[Any] = []
    at = sorted({float(p) for p in places})
    values = [_exact(exact, (p,)) for p in at]
    for a, b, fa, fb in zip(at, at[1:], values, values[1:], strict=False):
        if fa is None or fb is None or not fa * fb < 0:
            continue
        top = max(abs(fa), abs(fb))
        for _ in range(80):
            middle = float(d((a + b) / 2))
            if middle in (a, b):
                break
            f = _exact(exact, (middle,))
            if f is None:
                break
            a, b, fa = (middle, b, f) if f * fa > 0 else (a, middle, fa)
        end = _exact(exact, (a,))
        if end is not None and abs(end) <= top:
            out.append(d(a))
    if len(out) > most:
        out = [out[k * (len(out) - 1) // (most - 1)] for k in range(most)]
    return out


def inputs(f: Function, d: Any, n: int, rng: np.random.Generator) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Sections with their arguments."""
    drawn = [spread(rng, d, low, high, n) for low, high in f.domains]
    if len(f.domains) == 1:
        (low, high), sections = f.domains[0], drawn[0]
        for name, values in sections.items():
            yield name, [(v,) for v in values]
        places = [*sections["middle"], *np.linspace(max(low, -20), min(high, 40), 400)]
        found = [w for z in zeros(f.exact, d, places) for w in neighbours(z, d, low, high)]
        yield "zeros", [(v,) for v in found]
        marks = [0.0, low, high, *(k / 2 for k in range(-12, 13)), 8.0, 10.0, 12.0, 100.0]
        yield "edges", [(v,) for m in marks if low <= m <= high and abs(m) < INF for v in neighbours(m, d, low, high)]
        return
    first, second = drawn
    for name in ("small", "middle", "large"):
        xs, ys = first[name] or first["middle"], second[name] or second["middle"]
        yield name, [(xs[k % len(xs)], ys[(k * 7 + 3) % len(ys)]) for k in range(2 * n)]
    alike = [(x, y) for x in first["middle"] for y in neighbours(abs(x), d, *f.domains[1])[:3]]
    yield "edges", [alike[k] for k in rng.permutation(len(alike))[:2 * n]]


# ----------------------------------------------------------------------------------------------------------- comparison
def _exact(f: Callable[..., Any], at: tuple[Any, ...]) -> Any:
    """The exact value; None where there is none that is real."""
    try:
        v = f(*(mp.mpf(float(x)) for x in at))
    except (ValueError, ZeroDivisionError, mp.libmp.NoConvergence, OverflowError):
        return None
    return None if isinstance(v, mp.mpc) or mp.isnan(v) or mp.isinf(v) else mp.mpf(v)


def ulps(got: Any, exact: Any, d: Any) -> float:
    """|got - exact| in units of the last place of type d at the exact value."""
    kind = np.finfo(d)
    m = mp.frexp(abs(exact))[1] - 1 if exact else -2000
    unit = mp.mpf(2) ** (max(m, kind.minexp) - kind.nmant)
    if not math.isfinite(got):
        beyond = abs(exact) >= mp.mpf(2) ** kind.maxexp - mp.mpf(2) ** (kind.maxexp - kind.nmant - 2)
        return 0.0 if beyond and math.isinf(got) and (got > 0) == (exact > 0) else INF
    if abs(exact) > mp.mpf(float(kind.max)) * (1 + mp.mpf(2) ** -kind.nmant):
        return INF
    return float(abs(mp.mpf(float(got)) - exact) / unit)


def _named(package: Any, path: str) -> Callable[..., Any]:
    if path.startswith("polygamma("):
        n = int(path[10:-1])
        return lambda x: package.polygamma(n, x)
    made = package
    for part in path.split("."):
        made = getattr(made, part)
    return made  # type: ignore[no-any-return]


def worst(package: Any, path: str, d: Any, at: list[tuple[Any, ...]], exact: list[Any]) -> tuple[float, tuple[Any, ...]]:
    """The largest error and where it is."""
    columns = [package.tensor(np.array(column, d)) for column in zip(*at, strict=True)]
    got = _named(package, path)(*columns).numpy()
    return max(((ulps(g, e, d), a) for g, e, a in zip(got, exact, at, strict=True)), key=lambda pair: pair[0])


@dataclass(frozen=True)
class Row:
    """The worst of a section, here and in PyTorch."""

    name: str
    dtype: str
    section: str
    ours: tuple[float, tuple[Any, ...]]
    theirs: tuple[float, tuple[Any, ...]]

    @property
    def worse(self) -> bool:
        return self.ours[0] > self.theirs[0] + 1

    def __str__(self) -> str:
        (mine, here), (their, there) = ((error, ", ".join(map(repr, map(float, at)))) for error, at in (self.ours, self.theirs))
        return (f"{self.name:34s} {self.dtype} {self.section:6s} {mine:10.3g} at {here:26s} PyTorch {their:10.3g} at {there}"
                f"{'  WORSE' if self.worse else ''}")


def rows(name: str, dtype: str, points: int, seed: int) -> Iterator[Row]:
    """The sections of a function, by its path or the last word of that."""
    torch, ours = importlib.import_module("torch"), importlib.import_module("flambeau")
    name = {path.rsplit(".", 1)[-1]: path for path in FUNCTIONS}.get(name, name)
    d = np.dtype(dtype).type
    for section, at in inputs(FUNCTIONS[name], d, points, np.random.default_rng(seed)):
        known = [(x, v) for x in at if (v := _exact(FUNCTIONS[name].exact, x)) is not None]
        if known:
            places, values = [x for x, _ in known], [v for _, v in known]
            yield Row(name, dtype, section, worst(ours, name, d, places, values), worst(torch, name, d, places, values))


def main() -> int:
    p = argparse.ArgumentParser(prog="accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="names, with commas")
    p.add_argument("--dtype", default="float32,float64")
    p.add_argument("--points", type=int, default=100, help="of each section and sign")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--all", action="store_true", help="a line for each section, not only those that are worse than PyTorch's")
    a = p.parse_args()
    names = a.only.split(",") if a.only else list(FUNCTIONS)
    failed = 0
    for name in names:
        for dtype in a.dtype.split(","):
            for row in rows(name, dtype, a.points, a.seed):
                failed += row.worse
                if row.worse or a.all:
                    print(row, flush=True)
    print(f"accuracy: {len(names)} functions, {failed} sections worse than PyTorch's by more than a unit of the last place")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
