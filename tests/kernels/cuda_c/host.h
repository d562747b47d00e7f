// Enough of CUDA C to build generated kernels with g++ and run them on the CPU: see host.cc for how threads are carried out.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define FLAMBEAU_HOST
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct Place { unsigned x, y, z; };
enum Op : int { BARRIER, SHUFFLE };

// Calls into host.cc, which is not instrumented: what they touch is no memory of the kernel's.
extern "C" {
Place host_thread();
Place host_block();
void host_barrier(int line);
uint64_t host_shuffle(uint64_t value, int kind, int argument, unsigned mask);
void* host_shared(int site, size_t bytes);
}
#define threadIdx (host_thread())
#define blockIdx (host_block())
#define __syncthreads() host_barrier(__LINE__)

enum Kind : int { XOR, UP, FROM };
template <class T> inline T host_exchange(T x, int kind, int argument, unsigned mask) {
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = host_shuffle(bits, kind, argument, mask);
  memcpy(&x, &bits, sizeof x);
  return x;
}
// as on the device, only types of 4 and 8 bytes travel
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int lanes) { static_assert(sizeof(T) >= 4); return host_exchange(x, XOR, lanes, mask); }
template <class T> inline T __shfl_up_sync(unsigned mask, T x, int lanes) { static_assert(sizeof(T) >= 4); return host_exchange(x, UP, lanes, mask); }
template <class T> inline T __shfl_sync(unsigned mask, T x, int lane) { static_assert(sizeof(T) >= 4); return host_exchange(x, FROM, lane, mask); }

template <class T, class S> inline T host_bits(S x) { T y; static_assert(sizeof y == sizeof x); memcpy(&y, &x, sizeof y); return y; }
inline float __int_as_float(int x) { return host_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return host_bits<float>(x); }
inline double __longlong_as_double(long long x) { return host_bits<double>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
// the compiler may fuse other products with additions, never these
inline float __fmul_rn(float a, float b) { float c = a * b; asm("" : "+x"(c)); return c; }
inline double __dmul_rn(double a, double b) { double c = a * b; asm("" : "+x"(c)); return c; }

inline float from_float16(unsigned short x) { return (float)host_bits<_Float16>(x); }
inline unsigned short to_float16(float x) { return host_bits<unsigned short>((_Float16)x); }
inline unsigned short to_float16(double x) { return host_bits<unsigned short>((_Float16)x); }
inline float from_bfloat16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
inline unsigned short to_bfloat16(float x) {
  const unsigned bits = host_bits<unsigned>(x);
  return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
