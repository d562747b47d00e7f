"""Functions of two elements that take as many steps as their values ask for, in CUDA C: common divisors, and the incomplete gamma functions.

The incomplete gamma functions are worked out in double, as `kernels/incomplete_gamma.py` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import incomplete_gamma as g
from .. import types
from .templates import Written

if TYPE_CHECKING:
    from ....dtypes import dtype
    from ...kernel import Kernel

THREADS = 256
_AT_ONCE = 1 << 20  # blocks: of more elements a thread has several

_DIVISORS = """
typedef $wide W;
typedef $unsigned U;
__device__ __forceinline__ U size_of(T x) { return $size; }
__device__ __forceinline__ W divisor(W a, W b) {
  while (b != 0) {
    const W rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}
__device__ __forceinline__ T gcd(T x, T y) { return (T)(U)divisor(size_of(x), size_of(y)); }
__device__ __forceinline__ T lcm(T x, T y) {
  const W a = size_of(x), b = size_of(y), common = divisor(a, b);
  return (T)(U)(a / (common == 0 ? (W)1 : common) * b);
}"""

_GAMMA = """
__device__ double p_series(double a, double x, double near) {
  double term = 1.0 / a, total = term;
  for (double k = 1.0; k < $most; k += 1.0) {
    term *= x / (a + k);
    total += term;
    if (fabs(term) < fabs(total) * near) break;
  }
  return total;
}
__device__ __forceinline__ double away(double v) { return fabs(v) < 1e-300 ? 1e-300 : v; }
__device__ double q_fraction(double a, double x, double near) {
  double b = x + 1.0 - a, c = 1e300, d = 1.0 / (b == 0.0 ? 1e-300 : b), h = d;
  for (double k = 1.0; k < $most; k += 1.0) {
    const double an = (a - k) * k;
    b += 2.0;
    d = 1.0 / away(an * d + b);
    c = away(b + an / c);
    h *= c * d;
    if (fabs(c * d - 1.0) < 4.0 * near) break;
  }
  return h;
}
__device__ double q_of_small(double a, double x) {
  double beyond = 0.0;
$log_gamma
  const double u = a * (log(x) - beyond);
  double term = 1.0, total = 0.0;
  for (double k = 1.0; k < $most; k += 1.0) {
    term = -(term * (x / k));
    const double part = term / (a + k);
    total += part;
    if (fabs(part) <= fabs(total) * $eps) break;
  }
  const double grown = expm1(u);
  return -grown - (grown + 1.0) * a * total;
}
__device__ double q_of_large(double a, double x) {
  const double mu = (x - a) / a;
  double few = 0.0;
  for (int k = 8; k >= 2; k--) few = 1.0 / k - mu * few;
  const double phi = fabs(mu) < 0.02 ? mu * mu * few : mu - log1p(mu);
  const double eta = mu < 0.0 ? -sqrt(phi * 2.0) : sqrt(phi * 2.0);
  double c0 = 0.0, c1 = 0.0;
$c0
$c1
  const double tail = exp(a * eta * eta * -0.5) / sqrt(a * 6.283185307179586);
  return erfc(eta * sqrt(a * 0.5)) * 0.5 + tail * (c0 + c1 / a);
}
__device__ double incomplete(double a, double x, bool upper, double enough) {
  const double infinite = __longlong_as_double(0x7ff0000000000000LL);
  if (a != a || x != x || a < 0.0 || x < 0.0 || (a == 0.0 && x == 0.0) || (a == infinite && x == infinite))
    return __longlong_as_double(0x7ff8000000000000LL);
  if (x == 0.0 || a == infinite) return upper ? 1.0 : 0.0;
  if (a == 0.0 || x == infinite) return upper ? 0.0 : 1.0;
  if (a > 1e6 && fabs(x - a) < sqrt(a) * 6.0) {
    const double q = q_of_large(a, x);
    return upper ? q : 1.0 - q;
  }
  const bool low = x < a + 1.0;
  if (upper && low && a < $small) return q_of_small(a, x);
  const double front = exp(a * log(x) - x - lgamma(a));
  const double found = front * (low ? p_series(a, x, upper ? $eps : enough) : q_fraction(a, x, enough));
  return low == upper ? 1.0 - found : found;
}
__device__ __forceinline__ T igamma(T a, T x) { return (T)incomplete((double)a, (double)x, false, $enough); }
__device__ __forceinline__ T igammac(T a, T x) { return (T)incomplete((double)a, (double)x, true, $enough); }"""

_EACH = """
  const T* const first = (const T*)a.w[1];
  const T* const second = (const T*)a.w[2];
  for (long long i = (long long)blockIdx.x * $threads + (int)threadIdx.x; i < $n; i += $stride) ((T*)a.w[0])[i] = $function(first[i], second[i]);"""


def _polynomial(name: str, at: str, coefficients: tuple[float, ...]) -> str:
    return "\n".join(f"  {name} = {name} * {at} + ({c!r});" for c in reversed(coefficients))


def kernel(name: str, d: dtype, n: int) -> Kernel:
    """``entry(out, first, second)``: see `specs.Stepwise`."""
    w = Written("PPP")
    w.add(f"typedef {types.stored(d)} T;")
    if d.kind == "f":
        single = d.itemsize < 8
        w.constants(most=repr(g.MOST), eps=repr(g.EPS), small=repr(g.SMALL), enough=repr(g.EPS_OF_FLOAT if single else g.EPS),
                    log_gamma=_polynomial("beyond", "a", g.LOG_GAMMA), c0=_polynomial("c0", "eta", g.C0), c1=_polynomial("c1", "eta", g.C1))
        w.add(_GAMMA)
    else:
        own = types.stored(d)
        unsigned = own if d.kind == "u" else "unsigned long long" if d.itemsize == 8 else f"unsigned {own.removeprefix('signed ')}"
        w.constants(wide="unsigned long long" if d.itemsize == 8 else "unsigned int", unsigned=unsigned, size="x" if d.kind == "u" else
                    "x < 0 ? (U)((U)0 - (U)x) : (U)x")
        w.add(_DIVISORS)
    blocks = max(1, min(_AT_ONCE, -(-n // THREADS)))
    w.words("long long", n=n, stride=blocks * THREADS)
    w.constants(threads=THREADS, function=name)
    w.function(name, THREADS, _EACH)
    if n:
        w.launch(name, blocks, THREADS)
    return w.kernel(0, 3 * n * d.itemsize)
