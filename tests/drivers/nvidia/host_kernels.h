// Enough of CUDA C to run generated kernels on the CPU: blocks in turn, a block's threads as fibers that switch at barriers
// and warp collectives. Kernels without either run as a plain loop.
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define FLAMBEAU_HOST 1
#define __global__ static
#define __device__ static
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)

struct Place { unsigned x, y, z; };
struct Fiber {
  Place index;
  unsigned state, lane, warp, source;  // state: 0 ready, 1 at a barrier, 2 in a warp collective, 3 done
  unsigned long long in, out;
  jmp_buf at;
  bool begun;
};
static Fiber host_fibers[1024], *host_current = host_fibers;
static char *host_stacks;
static jmp_buf host_scheduler;
static Place blockIdx, blockDim, gridDim;
static void (*host_body)(const void *);
static const void *host_parameter;
#define threadIdx (host_current->index)
static const unsigned host_stack = 64 << 10;

static void host_begin() {
  host_body(host_parameter);
  host_current->state = 3;
  _longjmp(host_scheduler, 1);
}
static void host_wait(unsigned state) {
  host_current->state = state;
  if (!_setjmp(host_current->at)) _longjmp(host_scheduler, 1);
}
static void host_resume(Fiber *f) {
  host_current = f;
  if (_setjmp(host_scheduler)) return;
  if (f->begun) _longjmp(f->at, 1);
  f->begun = true;
  ucontext_t c;
  getcontext(&c);
  c.uc_stack.ss_sp = host_stacks + (f - host_fibers) * host_stack;
  c.uc_stack.ss_size = host_stack;
  c.uc_link = nullptr;
  makecontext(&c, host_begin, 0);
  setcontext(&c);
}
static bool host_block(unsigned n) {
  unsigned k = 0;
  for (unsigned z = 0; z < blockDim.z; z++)
    for (unsigned y = 0; y < blockDim.y; y++)
      for (unsigned x = 0; x < blockDim.x; x++, k++) {
        Fiber &f = host_fibers[k];
        f.index = {x, y, z};
        f.state = 0, f.lane = k & 31, f.warp = k >> 5, f.begun = false;
      }
  for (;;) {
    bool ran = false;
    for (unsigned i = 0; i < n; i++) if (host_fibers[i].state == 0) { host_resume(host_fibers + i); ran = true; }
    if (ran) continue;
    bool moved = false, done = true, barrier = true;
    for (unsigned w = 0; w * 32 < n; w++) {
      Fiber *warp = host_fibers + w * 32;
      unsigned lanes = n - w * 32 < 32 ? n - w * 32 : 32, waiting = 0;
      for (unsigned i = 0; i < lanes; i++) waiting += warp[i].state == 2;
      if (waiting == lanes) {
        for (unsigned i = 0; i < lanes; i++) warp[i].out = warp[i].source < lanes ? warp[warp[i].source].in : 0x7fbadbad7fbadbadull;
        for (unsigned i = 0; i < lanes; i++) warp[i].state = 0;
        moved = true;
      }
    }
    if (moved) continue;
    for (unsigned i = 0; i < n; i++) { done &= host_fibers[i].state == 3; barrier &= host_fibers[i].state == 1; }
    if (done) return true;
    if (!barrier) return false;  // some threads wait where others never come
    for (unsigned i = 0; i < n; i++) host_fibers[i].state = 0;
  }
}
static int host_run(void (*body)(const void *), const void *parameter, Place grid, Place block, bool fibers) {
  host_body = body, host_parameter = parameter, gridDim = grid, blockDim = block;
  unsigned n = block.x * block.y * block.z;
  if (fibers && !host_stacks) host_stacks = (char *)malloc((size_t)host_stack * 1024);
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        blockIdx = {x, y, z};
        if (fibers) {
          if (!host_block(n)) return 1;
          continue;
        }
        host_current = host_fibers;
        for (unsigned c = 0; c < block.z; c++)
          for (unsigned b = 0; b < block.y; b++)
            for (unsigned a = 0; a < block.x; a++) { host_current->index = {a, b, c}; body(parameter); }
      }
  return 0;
}

static void __syncthreads() { host_wait(1); }
static void __syncwarp(unsigned = ~0u) { host_current->source = host_current->lane; host_wait(2); }
template <class T> static T host_shuffle(T v, unsigned source) {
  host_current->in = 0;
  memcpy(&host_current->in, &v, sizeof v);
  host_current->source = source;
  host_wait(2);
  memcpy(&v, &host_current->out, sizeof v);
  return v;
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int m) { return host_shuffle(v, host_current->lane ^ m); }
template <class T> static T __shfl_sync(unsigned, T v, int l) { return host_shuffle(v, l & 31); }
template <class T> static T __shfl_up_sync(unsigned, T v, unsigned d) { return host_shuffle(v, host_current->lane < d ? host_current->lane : host_current->lane - d); }
template <class T> static T __shfl_down_sync(unsigned, T v, unsigned d) { return host_shuffle(v, host_current->lane + d > 31 ? host_current->lane : host_current->lane + d); }
template <class T, class S> static T host_bits(S x) { T y; memcpy(&y, &x, sizeof y); return y; }
static float __int_as_float(int x) { return host_bits<float>(x); }
static int __float_as_int(float x) { return host_bits<int>(x); }
static float __uint_as_float(unsigned x) { return host_bits<float>(x); }
static unsigned __float_as_uint(float x) { return host_bits<unsigned>(x); }
static double __longlong_as_double(long long x) { return host_bits<double>(x); }
static long long __double_as_longlong(double x) { return host_bits<long long>(x); }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static float __fmul_rn(float a, float b) { volatile float c = a * b; return c; }
static float __fadd_rn(float a, float b) { volatile float c = a + b; return c; }
static double __dmul_rn(double a, double b) { volatile double c = a * b; return c; }
static double __dadd_rn(double a, double b) { volatile double c = a + b; return c; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static float from_float16(unsigned short x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
static unsigned short to_float16(float x) { _Float16 h = (_Float16)x; unsigned short y; memcpy(&y, &h, 2); return y; }
static unsigned short to_float16(double x) { _Float16 h = (_Float16)x; unsigned short y; memcpy(&y, &h, 2); return y; }
static float from_bfloat16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
static unsigned short to_bfloat16(float x) {
  unsigned w = __float_as_uint(x);
  return x != x ? 0x7fc0 : (unsigned short)((w + 0x7fff + (w >> 16 & 1)) >> 16);
}
