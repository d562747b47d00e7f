// A stand-in for libcudnn: descriptors and plain convolutions of up to three axes, queued on the fake libcuda's streams.
//
// Which algorithms there are can be told: fake_cudnn(rules, value). Descriptors are checked as the library checks them.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { NOT_INITIALIZED = 1001, BAD = 2000, UNSUPPORTED = 3000, FAILED = 5000 };
struct Tensor { int type = 0, rank = 0, sizes[5] = {}, strides[5] = {}; };
struct Convolution { int axes = 0, padding[3] = {}, stride[3] = {}, dilation[3] = {}, type = 0, groups = 1, math = 0; };
struct Choice { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; };
struct Handle { void *stream = nullptr; };

// what tests tell: algorithms refused at once (bits), refused when run (bits), bytes of workspace of algorithm 1, the fastest
// when tried, whether layouts with the channels last are refused, what the next run fails with,
// and the version
static long rules[7] = {0, 0, 4096, 2, 0, 0, 91900}, ran[16], ran_math;
EXPORT void fake_cudnn(int which, long value) { rules[which] = value; }
EXPORT long fake_cudnn_ran(int algorithm) { return algorithm < 0 ? ran_math : ran[algorithm]; }  // algorithm + 8: with its bias

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

// ------------------------------------------------------------------------------------------------------------- descriptors
EXPORT size_t cudnnGetVersion() { return (size_t)rules[6]; }
EXPORT int cudnnCreate(Handle **h) { *h = new Handle; return 0; }
EXPORT int cudnnDestroy(Handle *h) { delete h; return 0; }
EXPORT int cudnnSetStream(Handle *h, void *stream) { h->stream = stream; return 0; }
EXPORT int cudnnCreateTensorDescriptor(Tensor **d) { *d = new Tensor; return 0; }
EXPORT int cudnnDestroyTensorDescriptor(Tensor *d) { delete d; return 0; }
EXPORT int cudnnCreateFilterDescriptor(Tensor **d) { *d = new Tensor; return 0; }
EXPORT int cudnnDestroyFilterDescriptor(Tensor *d) { delete d; return 0; }
EXPORT int cudnnCreateConvolutionDescriptor(Convolution **d) { *d = new Convolution; return 0; }
EXPORT int cudnnDestroyConvolutionDescriptor(Convolution *d) { delete d; return 0; }
EXPORT int cudnnCreateActivationDescriptor(int **d) { *d = new int(-1); return 0; }
EXPORT int cudnnDestroyActivationDescriptor(int *d) { delete d; return 0; }
EXPORT int cudnnSetActivationDescriptor(int *d, int mode, int, double) { *d = mode; return 0; }
EXPORT int cudnnSetTensorNdDescriptor(Tensor *d, int type, int rank, const int *sizes, const int *strides) {
  if (rank < 4 || rank > 5) return BAD;
  d->type = type, d->rank = rank;
  for (int k = 0; k < rank; k++) {
    if (sizes[k] < 1 || strides[k] < 1) return BAD;
    d->sizes[k] = sizes[k], d->strides[k] = strides[k];
  }
  return 0;
}
EXPORT int cudnnSetFilterNdDescriptor(Tensor *d, int type, int format, int rank, const int *sizes) {
  if (rank < 4 || rank > 5 || format < 0 || format > 1) return BAD;
  d->type = type, d->rank = rank;
  int step = 1;
  for (int k = rank - 1; k >= 0; k--) {
    int axis = format == 0 ? k : k == rank - 1 ? 1 : k == 0 ? 0 : k + 1;
    if (sizes[axis] < 1) return BAD;
    d->sizes[axis] = sizes[axis], d->strides[axis] = step;
    step *= sizes[axis];
  }
  return 0;
}
EXPORT int cudnnSetConvolutionNdDescriptor(Convolution *d, int axes, const int *padding, const int *stride, const int *dilation, int mode, int type) {
  if (axes < 2 || axes > 3 || mode != 1) return BAD;
  d->axes = axes, d->type = type;
  for (int k = 0; k < axes; k++) {
    if (padding[k] < 0 || stride[k] < 1 || dilation[k] < 1) return BAD;
    d->padding[k] = padding[k], d->stride[k] = stride[k], d->dilation[k] = dilation[k];
  }
  return 0;
}
EXPORT int cudnnSetConvolutionGroupCount(Convolution *d, int n) { d->groups = n; return n < 1 ? BAD : 0; }
EXPORT int cudnnSetConvolutionMathType(Convolution *d, int math) { d->math = math; return 0; }

static int valid(const Tensor *x, const Tensor *w, const Tensor *y, const Convolution *c) {
  int rank = c->axes + 2;
  if (x->rank != rank || w->rank != rank || y->rank != rank || x->type != w->type || x->type != y->type || c->type != (x->type == 1)) return BAD;
  if (x->sizes[0] != y->sizes[0] || x->sizes[1] != w->sizes[1] * c->groups || y->sizes[1] != w->sizes[0] || w->sizes[0] % c->groups) return BAD;
  for (int k = 0; k < c->axes; k++)
    if ((x->sizes[k + 2] + 2 * c->padding[k] - c->dilation[k] * (w->sizes[k + 2] - 1) - 1) / c->stride[k] + 1 != y->sizes[k + 2]) return BAD;
  if (rules[4] && x->strides[1] == 1 && x->sizes[1] > 1) return UNSUPPORTED;
  return 0;
}
// algorithm 0 needs no workspace, 1 what it was told, 2 twice that and gives results that differ from run to run
static size_t memory_of(int algorithm) { return algorithm == 0 ? 0 : rules[2] * (algorithm == 1 ? 1 : 2); }
static int list(int order[3], const Convolution *c, int n, int *count, Choice *found, int bad) {
  if (bad) return bad;
  *count = 0;
  for (int i = 0; i < 3 && *count < n; i++) {
    int a = order[i];
    found[(*count)++] = Choice{a, rules[0] >> a & 1 ? (int)UNSUPPORTED : 0, rules[0] >> a & 1 ? -1.f : a == rules[3] ? 1.f : 2.f + i, memory_of(a), a != 2,
                               c->math, {}};
  }
  return 0;
}

// ------------------------------------------------------------------------------------------------------------ convolutions
enum Kind { FORWARD, IMAGES, WEIGHTS };
struct Work { Kind kind; Tensor x, w, y; Convolution c; const void *a, *b, *bias; void *out; size_t space; unsigned char *room; };
static int carry_out(void *with) {
  Work *k = (Work *)with;
  if (k->space) memset(k->room, 0xab, k->space);
  const Tensor &x = k->x, &w = k->w, &y = k->y;
  const Tensor &made = k->kind == FORWARD ? y : k->kind == IMAGES ? x : w;
  int type = x.type, axes = k->c.axes;
  auto at = [](const Tensor &t, const int *i) { int64_t p = 0; for (int j = 0; j < t.rank; j++) p += (int64_t)i[j] * t.strides[j]; return p; };
  int64_t total = 1;
  for (int j = 0; j < made.rank; j++) total += (int64_t)(made.sizes[j] - 1) * made.strides[j];
  std::vector<double> sum(total, 0.0);
  int og = w.sizes[0] / k->c.groups, cg = w.sizes[1];
  int o3 = axes == 3 ? y.sizes[4] : 1, t3 = axes == 3 ? w.sizes[4] : 1;
  for (int n = 0; n < y.sizes[0]; n++) for (int o = 0; o < y.sizes[1]; o++) for (int c = 0; c < cg; c++)
    for (int p = 0; p < y.sizes[2] * y.sizes[3] * o3; p++) for (int q = 0; q < w.sizes[2] * w.sizes[3] * t3; q++) {
      int out[3] = {p / (y.sizes[3] * o3), p / o3 % y.sizes[3], p % o3}, tap[3] = {q / (w.sizes[3] * t3), q / t3 % w.sizes[3], q % t3};
      int xi[5] = {n, o / og * cg + c}, wi[5] = {o, c}, yi[5] = {n, o};
      bool inside = true;
      for (int j = 0; j < axes; j++) {
        yi[j + 2] = out[j], wi[j + 2] = tap[j];
        xi[j + 2] = out[j] * k->c.stride[j] - k->c.padding[j] + tap[j] * k->c.dilation[j];
        inside &= xi[j + 2] >= 0 && xi[j + 2] < x.sizes[j + 2];
      }
      if (!inside) continue;
      if (k->kind == FORWARD) sum[at(y, yi)] += get(k->a, at(x, xi), type) * get(k->b, at(w, wi), type);
      if (k->kind == IMAGES) sum[at(x, xi)] += get(k->a, at(w, wi), type) * get(k->b, at(y, yi), type);
      if (k->kind == WEIGHTS) sum[at(w, wi)] += get(k->a, at(x, xi), type) * get(k->b, at(y, yi), type);
    }
  if (k->bias) for (int64_t p = 0; p < total; p++) sum[p] += get(k->bias, p / y.strides[1] % y.sizes[1], type);
  for (int64_t p = 0; p < total; p++) put(k->out, p, type, sum[p]);
  delete k;
  return 0;
}
static int enqueue(Handle *h, int (*f)(void *), void *with) {
  static auto queue = (int (*)(void *, int (*)(void *), void *))dlsym(RTLD_DEFAULT, "fake_enqueue");
  return queue(h->stream, f, with) ? FAILED : 0;
}
static int run(Kind kind, Handle *h, const Tensor *x, const Tensor *w, const Tensor *y, const Convolution *c, int algorithm, const void *a, const void *b,
               const void *bias, void *out, void *room, size_t space) {
  if (int bad = valid(x, w, y, c)) return bad;
  if (rules[5]) { int code = (int)rules[5]; rules[5] = 0; return code; }
  if (rules[1] >> algorithm & 1) return UNSUPPORTED;
  if (space < memory_of(algorithm) || (space && !room) || !h->stream) return BAD;
  ran[algorithm + (bias ? 8 : 0)]++, ran_math = c->math;
  return enqueue(h, carry_out, new Work{kind, *x, *w, *y, *c, a, b, bias, out, memory_of(algorithm), (unsigned char *)room});
}
static double number(const void *p, int type) { return type == 1 ? *(const double *)p : *(const float *)p; }

// Each operation: the library's guess, its trial, its workspace and itself. X, W and Y say where its descriptors stand.
#define OPERATION(NAME, KIND, X, W, Y, ORDER) \
  EXPORT int cudnnGetConvolution##NAME##Algorithm_v7(Handle *h, Tensor *first, Tensor *second, Convolution *c, Tensor *made, int n, int *count, Choice *found) { \
    int order[3] = ORDER; \
    return list(order, c, n, count, found, valid(X, W, Y, c)); \
  } \
  EXPORT int cudnnGetConvolution##NAME##WorkspaceSize(Handle *, Tensor *first, Tensor *second, Convolution *c, Tensor *made, int algorithm, size_t *size) { \
    *size = memory_of(algorithm); \
    return algorithm > 2 ? UNSUPPORTED : valid(X, W, Y, c); \
  } \
  EXPORT int cudnnConvolution##NAME(Handle *h, const void *alpha, Tensor *first, const void *a, Tensor *second, const void *b, Convolution *c, int algorithm, \
                                    void *room, size_t space, const void *beta, Tensor *made, void *out) { \
    if (number(alpha, made->type) != 1 || number(beta, made->type) != 0) return BAD; \
    return run(KIND, h, X, W, Y, c, algorithm, a, b, nullptr, out, room, space); \
  } \
  EXPORT int cudnnFindConvolution##NAME##AlgorithmEx(Handle *h, Tensor *first, const void *a, Tensor *second, const void *b, Convolution *c, Tensor *made, \
                                                     void *out, int n, int *count, Choice *found, void *room, size_t space) { \
    int order[3] = {(int)rules[3], (int)(rules[3] + 1) % 3, (int)(rules[3] + 2) % 3}; \
    for (int i = 0; i < 3; i++) if (memory_of(i) <= space) if (int bad = run(KIND, h, X, W, Y, c, i, a, b, nullptr, out, room, space)) return bad; \
    return list(order, c, n, count, found, valid(X, W, Y, c)); \
  }
#define GUESS {1, 2, 0}
OPERATION(Forward, FORWARD, first, second, made, GUESS)
OPERATION(BackwardData, IMAGES, made, first, second, GUESS)
OPERATION(BackwardFilter, WEIGHTS, first, made, second, GUESS)

EXPORT int cudnnConvolutionBiasActivationForward(Handle *h, const void *, Tensor *x, const void *a, Tensor *w, const void *b, Convolution *c, int algorithm,
                                                 void *room, size_t space, const void *keep, Tensor *, const void *, Tensor *bias, const void *add,
                                                 int *activation, Tensor *y, void *out) {
  if (algorithm != 1 || *activation != 5 || number(keep, y->type) != 0) return UNSUPPORTED;
  if (bias->sizes[1] != y->sizes[1] || bias->type != y->type) return BAD;
  return run(FORWARD, h, x, w, y, c, algorithm, a, b, add, out, room, space);
}
struct Add { Tensor bias, y; const void *add; void *out; };
static int carry_add(void *with) {
  Add *k = (Add *)with;
  int64_t total = 1;
  for (int j = 0; j < k->y.rank; j++) total *= k->y.sizes[j];
  for (int64_t p = 0; p < total; p++) put(k->out, p, k->y.type, get(k->out, p, k->y.type) + get(k->add, p / k->y.strides[1] % k->y.sizes[1], k->y.type));
  delete k;
  return 0;
}
EXPORT int cudnnAddTensor(Handle *h, const void *, Tensor *bias, const void *add, const void *, Tensor *y, void *out) {
  if (bias->sizes[1] != y->sizes[1]) return BAD;
  return enqueue(h, carry_add, new Add{*bias, *y, add, out});
}
