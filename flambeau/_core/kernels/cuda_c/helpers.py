"""Device functions that kernels lean on, each with what it needs of the others.

Only those a kernel uses go into its text, so that a simple kernel compiles in little time.  Under `FLAMBEAU_HOST` a test
harness gives its own conversions of 16-bit floats in place of the machine instructions.
"""

from __future__ import annotations

from . import rough

# Plain text; the first word of a line "needs:" names helpers that must stand before.
_HELPERS: dict[str, tuple[tuple[str, ...], str]] = {
    "vec": ((), """
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };"""),
    "bits": ((), """
template <class T, class S> __device__ __forceinline__ T bits_of(S x) { T y; memcpy(&y, &x, sizeof y); return y; }"""),
    "half": ((), """
#ifndef FLAMBEAU_HOST
__device__ __forceinline__ float from_float16(unsigned short x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ __forceinline__ unsigned short to_float16(float x) { unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
__device__ __forceinline__ unsigned short to_float16(double x) { unsigned short y; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x)); return y; }
#endif"""),
    "bfloat": ((), """
#ifndef FLAMBEAU_HOST
__device__ __forceinline__ float from_bfloat16(unsigned short x) { return __uint_as_float((unsigned int)x << 16); }
__device__ __forceinline__ unsigned short to_bfloat16(float x) { unsigned short y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
#endif"""),
    # a float as an int64, towards zero; what does not fit gives the lowest
    "to_int": ((), """
template <class F> __device__ __forceinline__ long long to_int(F x) {
  return x >= (F)-9223372036854775808.0 && x < (F)9223372036854775808.0 ? (long long)x : (-9223372036854775807LL - 1);
}"""),
    "to_uint64": (("to_int",), """
template <class F> __device__ __forceinline__ unsigned long long to_uint64(F x) {
  return x >= (F)9223372036854775808.0 && x < (F)18446744073709551616.0 ? (unsigned long long)x : (unsigned long long)to_int(x);
}"""),
    # division of integers: by zero gives 0, the lowest by -1 wraps; U is the unsigned type arithmetic is done in
    "truncdiv": ((), """
template <class T, class U> __device__ __forceinline__ T truncdiv(T a, T b) {
  if (b == (T)0) return (T)0;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)((U)0 - (U)a);
  return (T)(a / b);
}"""),
    "int_fmod": ((), """
template <class T> __device__ __forceinline__ T int_fmod(T a, T b) {
  return b == (T)0 || ((T)-1 < (T)0 && b == (T)-1) ? (T)0 : (T)(a % b);
}"""),
    "floordiv": (("truncdiv", "int_fmod"), """
template <class T, class U> __device__ __forceinline__ T floordiv(T a, T b) {
  const T r = int_fmod(a, b), q = truncdiv<T, U>(a, b);
  return r != (T)0 && (r < (T)0) != (b < (T)0) ? (T)(q - (T)1) : q;
}"""),
    "int_rem": (("int_fmod",), """
template <class T> __device__ __forceinline__ T int_rem(T a, T b) {
  const T r = int_fmod(a, b);
  return r != (T)0 && (r < (T)0) != (b < (T)0) ? (T)(r + b) : r;
}"""),
    "int_pow": ((), """
template <class T, class U> __device__ __forceinline__ T int_pow(T a, T b) {
  const bool odd = (b & (T)1) != (T)0;
  if (b < (T)0) return a == (T)1 ? (T)1 : a == (T)-1 ? (odd ? (T)-1 : (T)1) : (T)0;
  U x = (U)a, p = (U)1;
  for (U n = (U)b; n != 0; n >>= 1) { if (n & 1) p *= x; x *= x; }
  return (T)p;
}"""),
    # counts outside 0 .. bits - 1 shift everything out
    "shl": ((), """
template <class T, class U> __device__ __forceinline__ T shl(T a, T b) {
  return b >= (T)0 && b < (T)(8 * sizeof(T)) ? (T)((U)a << (int)b) : (T)0;
}"""),
    "shr": ((), """
template <class T> __device__ __forceinline__ T shr(T a, T b) {
  return b >= (T)0 && b < (T)(8 * sizeof(T)) ? (T)(a >> (int)b) : a < (T)0 ? (T)-1 : (T)0;
}"""),
    # the remainder has the divisor's sign, and quotient * divisor + remainder gives a back
    "float_fmod": ((), """
__device__ __forceinline__ float float_fmod(float a, float b) { return fmodf(a, b); }
__device__ __forceinline__ double float_fmod(double a, double b) { return fmod(a, b); }"""),
    "float_rem": (("float_fmod",), """
template <class T> __device__ __forceinline__ T float_rem(T a, T b) {
  const T r = float_fmod(a, b);
  return r != (T)0 && (b < (T)0) != (r < (T)0) ? r + b : r;
}"""),
    "float_floordiv": (("float_fmod",), """
template <class T> __device__ __forceinline__ T float_floordiv(T a, T b) {
  if (b == (T)0) return a / b;
  const T r = float_fmod(a, b);
  T q = (a - r) / b;
  if (r != (T)0 && (b < (T)0) != (r < (T)0)) q -= (T)1;
  if (q == (T)0) return (T)copysign((T)0, a / b);
  const T whole = (T)floor(q);
  return q - whole > (T)0.5 ? whole + (T)1 : whole;
}"""),
    # NaN wins over everything
    "maximum": ((), """
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a != a ? a : a > b ? a : b; }"""),
    "minimum": ((), """
template <class T> __device__ __forceinline__ T minimum(T a, T b) { return a != a ? a : a < b ? a : b; }"""),
    # the same but for the sign of zeros and the bits of NaN: one instruction
    "peak": (("maximum",), """
template <class T> __device__ __forceinline__ T peak(T a, T b) { return maximum(a, b); }
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ float peak(float a, float b) { float m; asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b)); return m; }
#endif"""),
    # the value of the lane whose number differs by `lanes`; whole warps only
    "shuffle": ((), """
template <class T> __device__ __forceinline__ T shuffle(T x, int lanes) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(0xffffffffu, (int)x, lanes);
  else return __shfl_xor_sync(0xffffffffu, x, lanes);
}"""),
    # the value `lanes` lanes before; the first lanes get their own
    "before": ((), """
template <class T> __device__ __forceinline__ T before(T x, int lanes) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_up_sync(0xffffffffu, (int)x, lanes);
  else return __shfl_up_sync(0xffffffffu, x, lanes);
}"""),
    # whether (y, j) goes before (x, i) as the extreme and its first position: NaN counts as extreme
    "above": ((), """
template <class T> __device__ __forceinline__ bool above(T x, long long i, T y, long long j) {
  return x != x ? y != y && j < i : y != y || y > x || (y == x && j < i);
}"""),
    "below": ((), """
template <class T> __device__ __forceinline__ bool below(T x, long long i, T y, long long j) {
  return x != x ? y != y && j < i : y != y || y < x || (y == x && j < i);
}"""),
    # the same of complex numbers, in the order of their real parts, then of their imaginary ones; those with a NaN are extreme
    "complex_above": ((), """
template <class T> __device__ __forceinline__ bool complex_above(T x, T xi, long long i, T y, T yi, long long j) {
  const bool nan = y != y || yi != yi;
  return x != x || xi != xi ? nan && j < i : nan || y > x || (y == x && (yi > xi || (yi == xi && j < i)));
}"""),
    "complex_below": (("complex_above",), """
template <class T> __device__ __forceinline__ bool complex_below(T x, T xi, long long i, T y, T yi, long long j) {
  return complex_above(-x, -xi, i, -y, -yi, j);
}"""),
    # whether y, the later one, takes the place of the running extreme x: ties go to the later, NaN stays
    "later_max": ((), """
template <class T> __device__ __forceinline__ bool later_max(T x, T y) { return y != y || (y >= x && x == x); }"""),
    "later_min": ((), """
template <class T> __device__ __forceinline__ bool later_min(T x, T y) { return y != y || (y <= x && x == x); }"""),
    "complex_later": ((), """
template <class T> __device__ __forceinline__ bool complex_later(T x, T xi, T y, T yi) {
  return y != y || yi != yi || ((y > x || (y == x && yi >= xi)) && x == x && xi == xi);
}"""),
    "logaddexp": ((), """
__device__ __forceinline__ float logaddexp(float a, float b) {
  if (a == b) return a + 0.693147180559945309f;
  const float d = a - b;
  return d > 0 ? a + log1pf(expf(-d)) : d <= 0 ? b + log1pf(expf(d)) : d;
}
__device__ __forceinline__ double logaddexp(double a, double b) {
  if (a == b) return a + 0.693147180559945309;
  const double d = a - b;
  return d > 0 ? a + log1p(exp(-d)) : d <= 0 ? b + log1p(exp(d)) : d;
}"""),
    # two sorted runs of `run` places each, side by side, become one: the place of element i of n is its own in its run and
    # the number of elements of the other run that go before it (equal ones only if the other run is the first)
    "merged_place": ((), """
template <class P> __device__ __forceinline__ P merged_place(const long long* keys, P n, P run, P i) {
  const P own = i / run, start = (own & ~(P)1) * run;
  const P from = (own ^ 1) * run, end = from + run < n ? from + run : n;
  const long long key = keys[i];
  P low = from < n ? from : n, high = end > low ? end : low;
  const P first = low;
  while (low < high) {
    const P middle = low + (high - low) / 2;
    if (keys[middle] < key || (keys[middle] == key && (own & 1))) low = middle + 1;
    else high = middle;
  }
  return start + (i - own * run) + (low - first);
}"""),
    # n / d by a multiplication, for n below 2**31; the multiplier and the shift come from the host
    "divide": ((), """
__device__ __forceinline__ int divide(int n, unsigned int multiplier, int shift) {
  return (int)((__umulhi((unsigned int)n, multiplier) + (unsigned int)n) >> shift);
}"""),
    # bytes from global to shared memory without registers; they are there after copy_async_wait<n>, where at most n groups
    # committed later may be on their way, and, for other threads' bytes, a barrier.  `filled` bytes are read, the rest is 0
    "copy_async": ((), """
#ifndef FLAMBEAU_HOST
__device__ __forceinline__ void copy_async_16(void* to, const void* from, int filled = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from), "r"(filled) : "memory");
}
__device__ __forceinline__ void copy_async_8(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#endif"""),
    # d (16 x 8) += a (16 x k) b (k x 8) by a warp; k is 16 for halves, 8 for float32 rounded to 19 bits (PTX mma.m16n8k16, m16n8k8)
    "mma": ((), """
#ifndef FLAMBEAU_HOST
#define FLAMBEAU_MMA(NAME, SHAPE) \\
  __device__ __forceinline__ void NAME(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) { \\
    asm volatile("mma.sync.aligned." SHAPE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \\
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
FLAMBEAU_MMA(mma_float16, "m16n8k16.row.col.f32.f16.f16.f32")
FLAMBEAU_MMA(mma_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
FLAMBEAU_MMA(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef FLAMBEAU_MMA
#endif"""),
    # 2 or 4 matrices of 8 x 8 halves from shared memory; lanes 8 m to 8 m + 7 name the rows of matrix m, of 16 bytes each
    "load_matrices": ((), """
#ifndef FLAMBEAU_HOST
#define FLAMBEAU_LOAD(NAME, HOW) \\
  __device__ __forceinline__ void NAME(unsigned int (&r)[4], const void* row) { \\
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" HOW ".shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) \\
                 : "r"((unsigned int)__cvta_generic_to_shared(row)) : "memory"); } \\
  __device__ __forceinline__ void NAME(unsigned int (&r)[2], const void* row) { \\
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" HOW ".shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) \\
                 : "r"((unsigned int)__cvta_generic_to_shared(row)) : "memory"); }
FLAMBEAU_LOAD(load_matrices, "")
FLAMBEAU_LOAD(load_matrices_transposed, ".trans")
#undef FLAMBEAU_LOAD
#endif"""),
}


def text(names: set[str]) -> str:
    """The helpers of these names and what they need, in an order that compiles."""
    out: list[str] = []
    done: set[str] = set()

    def add(name: str) -> None:
        if name in done:
            return
        done.add(name)
        needs, body = _HELPERS.get(name) or rough.HELPERS.get(name) or _made(name)
        for n in needs:
            add(n)
        out.append(body.strip("\n"))
    for name in sorted(names):
        add(name)
    return "\n".join(out)


def _made(name: str) -> tuple[tuple[str, ...], str]:
    """A transcendental function, "exp_of_float32": see `values.device_function`."""
    from ... import dtypes
    from .values import device_function
    op, _, kind = name.partition("_of_")
    found = device_function(op, getattr(dtypes, kind))
    assert found is not None, name
    return ("bits",), found[1]
