// A stand-in for libcudnn: handles, and graphs (fake_cudnn_graph.cc, which follows in one text), queued on the fake libcuda's streams.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { NOT_INITIALIZED = 1001, BAD = 2000, UNSUPPORTED = 3000, FAILED = 5000 };
struct Handle { void *stream = nullptr; };

// what tests tell of convolutions: engines refused when a plan is made (bits), refused when run (bits), bytes of workspace of engine 1, the only
// fast one (-1: all are), whether layouts with the channels last are refused, what the next run fails with; and the version
static long rules[7] = {0, 0, 4096, -1, 0, 0, 91900}, ran[16];
EXPORT void fake_cudnn(int which, long value) { rules[which] = value; }
EXPORT long fake_cudnn_ran(int engine) { return ran[engine]; }  // engine + 8: with its bias

static float half(uint16_t h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
static double get(const void *p, int64_t i, int type) {
  if (type == 0) return ((const float *)p)[i];
  if (type == 1) return ((const double *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  if (type == 2) return half(h);
  uint32_t w = (uint32_t)h << 16;
  float v;
  memcpy(&v, &w, 4);
  return v;
}
static void put(void *p, int64_t i, int type, double x) {
  if (type == 0) { ((float *)p)[i] = (float)x; return; }
  if (type == 1) { ((double *)p)[i] = x; return; }
  float v = (float)x;
  uint16_t bits;
  if (type == 2) { _Float16 h = (_Float16)v; memcpy(&bits, &h, 2); }
  else { uint32_t w; memcpy(&w, &v, 4); bits = v != v ? 0x7fc0 : (uint16_t)((w + 0x7fff + (w >> 16 & 1)) >> 16); }
  ((uint16_t *)p)[i] = bits;
}

EXPORT size_t cudnnGetVersion() { return (size_t)rules[6]; }
EXPORT int cudnnCreate(Handle **h) { *h = new Handle; return 0; }
EXPORT int cudnnDestroy(Handle *h) { delete h; return 0; }
EXPORT int cudnnSetStream(Handle *h, void *stream) { h->stream = stream; return 0; }
static int enqueue(Handle *h, int (*f)(void *), void *with) {
  static auto queue = (int (*)(void *, int (*)(void *), void *))dlsym(RTLD_DEFAULT, "fake_enqueue");
  return queue(h->stream, f, with) ? FAILED : 0;
}
