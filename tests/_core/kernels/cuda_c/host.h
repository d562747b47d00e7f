// Enough of CUDA C to build kernels with g++ and run them on the CPU: see README.md, and host.cc for how threads are carried out.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FLAMBEAU_HOST
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__
#define warpSize 32

struct Place { unsigned x, y, z; };
enum Op : int { BARRIER, WARP };
enum Kind : int { XOR, UP, DOWN, FROM, BALLOT, MATCH, SYNC, GATHER };
enum Change : int { ADD, MIN, MAX, AND, OR, EXCLUSIVE, EXCHANGE, COMPARE };
enum Number : int { SIGNED, UNSIGNED, FLOATING };

// Calls into host.cc, which is not instrumented: what they touch is no memory of the kernel's.
extern "C" {
extern Place host_thread_place, host_block_place, host_block_size, host_grid_size;
Place host_thread();
Place host_block();
Place host_block_dim();
Place host_grid_dim();
int host_lane();
int host_barrier(int line, int vote);
uint64_t host_warp(uint64_t value, int kind, int argument, int source, unsigned mask);
void host_gather(const void* mine, int bytes, void* all);
void* host_shared(const void* site, size_t bytes, size_t align);
void* host_dynamic();
uint64_t host_atomic(void* at, int bytes, int change, int number, uint64_t value, uint64_t compare);
void host_fence();
void host_copy_async(void* to, const void* from, int bytes, int filled);
void host_copy_commit();
void host_copy_wait(int left);
void host_stop(const char* what, int line);
const char* host_launch(void (*fn)(const unsigned long long*), const unsigned long long* parameter, const unsigned* grid, const unsigned* block,
                        const uint64_t* memory, int memories, unsigned order, int check, unsigned dynamic, int plain);
int host_tell(const char* kernel, const char* error);
}
#define HOST_ALL 0xffffffffu
#ifndef HOST_RUNTIME  // what follows is for kernels
#ifdef __SANITIZE_THREAD__
#define threadIdx (host_thread())
#define blockIdx (host_block())
#define blockDim (host_block_dim())
#define gridDim (host_grid_dim())
#else
#define threadIdx host_thread_place
#define blockIdx host_block_place
#define blockDim host_block_size
#define gridDim host_grid_size
#endif
#define __syncthreads() ((void)host_barrier(__LINE__, 0))
#define __syncthreads_count(p) host_barrier(__LINE__, (p) ? 1 : 0)
#define __syncthreads_or(p) (host_barrier(__LINE__, (p) ? 1 : 0) > 0)
#define __syncthreads_and(p) (host_barrier(__LINE__, (p) ? 0 : 1) == 0)
#define __trap() host_stop("a trap", __LINE__)
#define assert(x) ((x) ? (void)0 : host_stop("an assertion that fails: " #x, __LINE__))
inline void __threadfence() { host_fence(); }
inline void __threadfence_block() {}

// ----------------------------------------------------------------------------------------------------------- vectors, loads
#define HOST_VECTOR(T, N) \
  struct alignas(sizeof(T) * 2) N##2 { T x, y; }; \
  struct alignas(sizeof(T) < 4 ? sizeof(T) * 4 : 16) N##4 { T x, y, z, w; }; \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; } \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HOST_VECTOR(int, int) HOST_VECTOR(unsigned, uint) HOST_VECTOR(float, float) HOST_VECTOR(short, short) HOST_VECTOR(unsigned short, ushort)
HOST_VECTOR(unsigned char, uchar) HOST_VECTOR(double, double) HOST_VECTOR(long long, longlong) HOST_VECTOR(unsigned long long, ulonglong)
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline void __stcs(T* p, T x) { *p = x; }
template <class T> inline void __stcg(T* p, T x) { *p = x; }

// ------------------------------------------------------------------------------------------------------------ warps
template <class T> inline T host_exchange(T x, int kind, int argument, int source, unsigned mask) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "only values of 4 and 8 bytes travel between lanes");
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = host_warp(bits, kind, argument, source, mask);
  memcpy(&x, &bits, sizeof x);
  return x;
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int lanes, int width = 32) {
  const int lane = host_lane(), from = lane ^ lanes;
  return host_exchange(x, XOR, lanes, width < 32 && from >= (lane & -width) + width ? lane : from, mask);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T x, unsigned lanes, int width = 32) {
  const int lane = host_lane(), from = lane - (int)lanes;
  return host_exchange(x, UP, (int)lanes, from < (lane & -width) ? lane : from, mask);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T x, unsigned lanes, int width = 32) {
  const int lane = host_lane(), from = lane + (int)lanes;
  return host_exchange(x, DOWN, (int)lanes, from >= (lane & -width) + width ? lane : from, mask);
}
template <class T> inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
  return host_exchange(x, FROM, 0, lane < 0 || lane >= width ? 64 + lane : (host_lane() & -width) + lane, mask);
}
inline unsigned __ballot_sync(unsigned mask, int p) { return (unsigned)host_warp(p != 0, BALLOT, 0, 0, mask); }
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }
template <class T> inline unsigned __match_any_sync(unsigned mask, T x) {
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof x);
  return (unsigned)host_warp(bits, MATCH, 0, 0, mask);
}
inline void __syncwarp(unsigned mask = HOST_ALL) { host_warp(0, SYNC, 0, 0, mask); }
template <class T, class F> inline T host_reduce(unsigned mask, T x, F f) {
  uint64_t all[32];
  uint64_t mine = (uint64_t)(uint32_t)x;
  if (mask != HOST_ALL) host_stop("a reduction of part of a warp", 0);
  host_gather(&mine, 8, all);
  T out = (T)(uint32_t)all[0];
  for (int i = 1; i < 32; i++) out = f(out, (T)(uint32_t)all[i]);
  return out;
}
#define HOST_REDUCE(NAME, EXPRESSION) \
  template <class T> __attribute__((no_sanitize("thread"))) inline T __reduce_##NAME##_sync(unsigned mask, T x) { \
    static_assert(sizeof(T) == 4); return host_reduce(mask, x, [](T a, T b) { return (T)(EXPRESSION); }); }
HOST_REDUCE(add, a + b) HOST_REDUCE(min, a < b ? a : b) HOST_REDUCE(max, a > b ? a : b) HOST_REDUCE(and, a & b) HOST_REDUCE(or, a | b)
HOST_REDUCE(xor, a ^ b)

// ---------------------------------------------------------------------------------------------------------- atomics
template <class T> inline T host_change(T* at, T value, int change, T compare = T()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2);
  uint64_t v = 0, c = 0;
  memcpy(&v, &value, sizeof value);
  memcpy(&c, &compare, sizeof compare);
  v = host_atomic(at, sizeof(T), change, (T)0.5 != (T)0 ? FLOATING : (T)-1 < (T)0 ? SIGNED : UNSIGNED, v, c);
  memcpy(&value, &v, sizeof value);
  return value;
}
template <class T> struct HostSame { typedef T type; };
#define HOST_ATOMIC(NAME, CHANGE) \
  template <class T> inline T NAME(T* at, typename HostSame<T>::type v) { return host_change<T>(at, v, CHANGE); } \
  template <class T> inline T NAME##_block(T* at, typename HostSame<T>::type v) { return host_change<T>(at, v, CHANGE); }
HOST_ATOMIC(atomicAdd, ADD) HOST_ATOMIC(atomicMin, MIN) HOST_ATOMIC(atomicMax, MAX) HOST_ATOMIC(atomicAnd, AND) HOST_ATOMIC(atomicOr, OR)
HOST_ATOMIC(atomicXor, EXCLUSIVE) HOST_ATOMIC(atomicExch, EXCHANGE)
template <class T> inline T atomicSub(T* at, typename HostSame<T>::type v) { return host_change<T>(at, (T)0 - v, ADD); }
template <class T> inline T atomicCAS(T* at, typename HostSame<T>::type compare, typename HostSame<T>::type v) {
  return host_change<T>(at, v, COMPARE, compare);
}

// ---------------------------------------------------------------------------------------------------- numbers and bits
template <class T, class S> inline T host_bits(S x) { T y; static_assert(sizeof y == sizeof x); memcpy(&y, &x, sizeof y); return y; }
inline float __int_as_float(int x) { return host_bits<float>(x); }
inline int __float_as_int(float x) { return host_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return host_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return host_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return host_bits<double>(x); }
inline long long __double_as_longlong(double x) { return host_bits<long long>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) { unsigned y = 0; for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i); return y; }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const uint64_t both = (uint64_t)b << 32 | a;
  unsigned y = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned byte = (unsigned)(both >> (s >> 4 * i & 7) * 8) & 255;
    y |= (s >> 4 * i & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
  }
  return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) { return (unsigned)(((uint64_t)high << 32 | low) << (n & 31) >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) { return (unsigned)(((uint64_t)high << 32 | low) >> (n & 31)); }

// the compiler may fuse other products with additions, never these
#define HOST_ROUNDED(T, PREFIX) \
  inline T PREFIX##mul_rn(T a, T b) { T c = a * b; asm("" : "+x"(c)); return c; } \
  inline T PREFIX##add_rn(T a, T b) { T c = a + b; asm("" : "+x"(c)); return c; } \
  inline T PREFIX##sub_rn(T a, T b) { T c = a - b; asm("" : "+x"(c)); return c; } \
  inline T PREFIX##div_rn(T a, T b) { return a / b; }
HOST_ROUNDED(float, __f) HOST_ROUNDED(double, __d)
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }
// CUDA C has these for floats under the same name
#define HOST_FLOAT(F) inline float F(float x) { return F##f(x); }
HOST_FLOAT(fabs) HOST_FLOAT(floor) HOST_FLOAT(ceil) HOST_FLOAT(trunc) HOST_FLOAT(rint) HOST_FLOAT(sqrt) HOST_FLOAT(exp) HOST_FLOAT(exp2) HOST_FLOAT(log)
HOST_FLOAT(log2) HOST_FLOAT(log1p) HOST_FLOAT(expm1) HOST_FLOAT(sin) HOST_FLOAT(cos) HOST_FLOAT(tanh) HOST_FLOAT(erf) HOST_FLOAT(rsqrt)
#define HOST_FLOAT2(F) inline float F(float x, float y) { return F##f(x, y); }
HOST_FLOAT2(pow) HOST_FLOAT2(fmod) HOST_FLOAT2(fmin) HOST_FLOAT2(fmax) HOST_FLOAT2(copysign)
template <class A, class B> inline auto min(A a, B b) -> decltype(a < b ? a : b) { return a < b ? a : b; }
template <class A, class B> inline auto max(A a, B b) -> decltype(a < b ? a : b) { return a > b ? a : b; }

inline float from_float16(unsigned short x) { return (float)host_bits<_Float16>(x); }
inline unsigned short to_float16(float x) { return host_bits<unsigned short>((_Float16)x); }
inline unsigned short to_float16(double x) { return host_bits<unsigned short>((_Float16)x); }
inline float from_bfloat16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
inline unsigned short to_bfloat16(float x) {
  const unsigned bits = host_bits<unsigned>(x);
  return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ------------------------------------------------------------------------------------ asynchronous copies, tensor cores
// Under their names in `helpers.py`.  The bytes of a copy arrive when it is waited for, not before.
inline void copy_async_16(void* to, const void* from) { host_copy_async(to, from, 16, 16); }
inline void copy_async_16(void* to, const void* from, int filled) { host_copy_async(to, from, 16, filled); }
inline void copy_async_8(void* to, const void* from) { host_copy_async(to, from, 8, 8); }
inline void copy_async_4(void* to, const void* from) { host_copy_async(to, from, 4, 4); }
// two words in one store of which any thread's will do
inline void tell_host(unsigned long long* slot, unsigned long long number, unsigned long long value) {
  if ((uintptr_t)slot % 16) host_stop("two words in one store that are no multiple of 16 bytes", 0);
  if (atomicCAS(slot, 0ull, number) == 0) slot[1] = value;
}
inline void copy_async_commit() { host_copy_commit(); }
template <int N> inline void copy_async_wait() { host_copy_wait(N); }

inline float host_half(unsigned pair, int high, bool brain) {
  const unsigned short bits = (unsigned short)(high ? pair >> 16 : pair);
  return brain ? from_bfloat16(bits) : from_float16(bits);
}
inline float host_tf32(unsigned x) { return __uint_as_float(x & 0xffffe000u); }
// d (16 x 8) += a (16 x k) b (k x 8), fragments as PTX lays them out: k is 16 for halves, 8 for float32 in 19 bits
__attribute__((no_sanitize("thread"))) inline void host_mma(float* d, const unsigned* a, const unsigned* b, int kind) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]}, all[32][6];
  host_gather(mine, sizeof mine, all);
  const int lane = host_lane();
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + (i & 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
    float sum = 0;
    if (kind == 2) for (int k = 0; k < 8; k++) sum += host_tf32(all[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)]) * host_tf32(all[column * 4 + k % 4][4 + k / 4]);
    else for (int k = 0; k < 16; k++) {
      const int quad = k % 8 / 2;
      sum += host_half(all[row % 8 * 4 + quad][row / 8 + 2 * (k / 8)], k & 1, kind == 1) * host_half(all[column * 4 + quad][4 + k / 8], k & 1, kind == 1);
    }
    d[i] += sum;
  }
}
inline void mma_float16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { host_mma(d, a, b, 0); }
inline void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { host_mma(d, a, b, 1); }
inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { host_mma(d, a, b, 2); }
// N 8 x 8 matrices of halves from shared memory; lanes 8 m to 8 m + 7 name the rows of matrix m, 16 bytes each
template <int N> inline void host_load_matrices(unsigned (&r)[N], const void* row, bool transposed) {
  const unsigned short* rows[32];
  host_gather(&row, sizeof row, rows);
  const int lane = host_lane();
  for (int m = 0; m < N; m++) {
    const unsigned low = transposed ? rows[8 * m + lane % 4 * 2][lane / 4] : rows[8 * m + lane / 4][lane % 4 * 2];
    const unsigned high = transposed ? rows[8 * m + lane % 4 * 2 + 1][lane / 4] : rows[8 * m + lane / 4][lane % 4 * 2 + 1];
    r[m] = high << 16 | low;
  }
}
inline void load_matrices(unsigned (&r)[4], const void* row) { host_load_matrices(r, row, false); }
inline void load_matrices(unsigned (&r)[2], const void* row) { host_load_matrices(r, row, false); }
inline void load_matrices_transposed(unsigned (&r)[4], const void* row) { host_load_matrices(r, row, true); }
inline void load_matrices_transposed(unsigned (&r)[2], const void* row) { host_load_matrices(r, row, true); }
#endif
