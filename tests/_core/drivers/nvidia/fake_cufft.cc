// A stand-in for libcufft: plans, and transforms by the definition, queued on the fake libcuda's streams.
//
// Work areas are written to, and what a real inverse reads is lost, as on hardware: who keeps either shows.
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>
#include <dlfcn.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { INVALID_PLAN = 1, INVALID_VALUE = 4, EXEC_FAILED = 6, NO_WORKSPACE = 13 };
typedef std::complex<double> Z;
struct Plan { std::vector<int64_t> n; int type = 0; int64_t batch = 0; size_t work = 0; void *area = nullptr, *stream = nullptr; bool own = true; };
static std::map<int, Plan> plans;
static int next = 0, fail_plan = 0, fail_exec = 0;
static long executed = 0;
EXPORT void fake_fft_fail(int plan, int exec) { fail_plan = plan; fail_exec = exec; }
EXPORT long fake_fft_count(int what) { return what ? executed : (long)plans.size(); }

EXPORT int cufftCreate(int *p) { *p = next++; plans[*p]; return 0; }
EXPORT int cufftDestroy(int p) { return plans.erase(p) ? 0 : INVALID_PLAN; }
EXPORT int cufftSetAutoAllocation(int p, int on) { if (!plans.count(p)) return INVALID_PLAN; plans[p].own = on; return 0; }
EXPORT int cufftMakePlanMany64(int p, int rank, long long *n, long long *in, long long, long long, long long *out, long long, long long, int type,
                               long long batch, size_t *work) {
  if (!plans.count(p)) return INVALID_PLAN;
  if (fail_plan) { int code = fail_plan; fail_plan = 0; return code; }
  if (rank < 1 || rank > 3 || in || out || batch < 1) return INVALID_VALUE;
  auto &made = plans[p];
  made.n.assign(n, n + rank);
  made.type = type;
  made.batch = batch;
  made.work = *work = made.n.back() % 2 ? 4096 : 0;  // some need one, some do not
  return 0;
}
EXPORT int cufftSetStream(int p, void *s) { if (!plans.count(p)) return INVALID_PLAN; plans[p].stream = s; return 0; }
EXPORT int cufftSetWorkArea(int p, void *a) { if (!plans.count(p)) return INVALID_PLAN; plans[p].area = a; return 0; }

struct Work { Plan plan; const void *from; void *to; int sign; };
template <class T> static void along(std::vector<Z> &v, const std::vector<int64_t> &n, size_t axis, int sign) {
  int64_t inner = 1, outer = 1, m = n[axis];
  for (size_t i = axis + 1; i < n.size(); i++) inner *= n[i];
  for (size_t i = 0; i < axis; i++) outer *= n[i];
  std::vector<Z> line(m);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t q = 0; q < inner; q++) {
      for (int64_t k = 0; k < m; k++) {
        Z sum = 0;
        for (int64_t j = 0; j < m; j++) sum += v[(o * m + j) * inner + q] * std::polar(1.0, sign * 2 * M_PI * (double)(j * k % m) / m);
        line[k] = sum;
      }
      for (int64_t k = 0; k < m; k++) v[(o * m + k) * inner + q] = line[k];
    }
}
template <class T> static int carry_out(void *with) {
  Work *w = (Work *)with;
  auto &n = w->plan.n;
  int64_t all = 1, half = n.back() / 2 + 1;
  for (auto k : n) all *= k;
  int64_t packed = all / n.back() * half;
  int kind = w->plan.type & 0xf;  // a: real to complex, c: complex to real, 9: complex
  if (w->plan.area) memset(w->plan.area, 0xff, w->plan.work);
  for (int64_t b = 0; b < w->plan.batch; b++) {
    std::vector<Z> v(all);
    for (int64_t i = 0; i < all; i++) {
      if (kind == 0xa) v[i] = ((const T *)w->from)[b * all + i];
      else if (kind == 9) v[i] = Z(((const std::complex<T> *)w->from)[b * all + i]);
      else {
        int64_t row = i / n.back(), k = i % n.back();
        auto *from = (const std::complex<T> *)w->from + b * packed + row * half;
        v[i] = k < half ? Z(from[k]) : std::conj(Z(from[n.back() - k]));  // one axis only is asked for
      }
    }
    if (kind == 0xc) memset((char *)w->from + b * packed * 2 * sizeof(T), 0xff, packed * 2 * sizeof(T));
    for (size_t axis = 0; axis < n.size(); axis++) along<T>(v, n, axis, kind == 0xa ? -1 : kind == 0xc ? 1 : w->sign);
    for (int64_t i = 0; i < all; i++) {
      if (kind == 0xc) ((T *)w->to)[b * all + i] = (T)v[i].real();
      else if (kind == 9) ((std::complex<T> *)w->to)[b * all + i] = std::complex<T>(v[i]);
      else if (i % n.back() < half) ((std::complex<T> *)w->to)[b * packed + i / n.back() * half + i % n.back()] = std::complex<T>(v[i]);
    }
  }
  static auto keeps = (int (*)())dlsym(RTLD_DEFAULT, "fake_keeps");
  if (!keeps()) delete w;  // what is in a graph is done again
  return 0;
}
static int start(int p, void *from, void *to, int sign, int type) {
  if (!plans.count(p) || plans[p].type != type) return INVALID_PLAN;
  Plan &plan = plans[p];
  if (fail_exec) { int code = fail_exec; fail_exec = 0; return code; }
  if (plan.own || (plan.work && !plan.area)) return NO_WORKSPACE;
  if (type % 16 == 0xc && plan.n.size() > 1) return INVALID_VALUE;
  if (((uintptr_t)from | (uintptr_t)to) % (type >= 0x60 ? 16 : 8)) return INVALID_VALUE;
  executed++;
  static auto enqueue = (int (*)(void *, int (*)(void *), void *))dlsym(RTLD_DEFAULT, "fake_enqueue");
  auto *w = new Work{plan, from, to, sign};
  plan.area = nullptr;  // set again before each use
  return enqueue(plan.stream, type & 0x40 && type >= 0x60 ? carry_out<double> : carry_out<float>, w) ? EXEC_FAILED : 0;
}
EXPORT int cufftExecC2C(int p, void *from, void *to, int sign) { return start(p, from, to, sign, 0x29); }
EXPORT int cufftExecR2C(int p, void *from, void *to) { return start(p, from, to, 0, 0x2a); }
EXPORT int cufftExecC2R(int p, void *from, void *to) { return start(p, from, to, 0, 0x2c); }
EXPORT int cufftExecZ2Z(int p, void *from, void *to, int sign) { return start(p, from, to, sign, 0x69); }
EXPORT int cufftExecD2Z(int p, void *from, void *to) { return start(p, from, to, 0, 0x6a); }
EXPORT int cufftExecZ2D(int p, void *from, void *to) { return start(p, from, to, 0, 0x6c); }
