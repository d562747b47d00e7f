// A stand-in for libcublasLt: descriptors and plain products by columns, queued on the fake libcuda's streams.
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { INVALID = 7, UNSUPPORTED = 15 };
enum { PLAIN = 1, RELU = 2, BIAS = 4, DRELU = 8, GELU = 32, DGELU = 64, AUX = 128, BGRADB = 512 };  // bits of epilogues
struct Layout { int type; uint64_t rows, cols; int64_t lead; int32_t batch = 1; int64_t step = 0; };
struct Product { int compute, scale; int32_t ta = 0, tb = 0, epilogue = 1; void *row = nullptr, *aux = nullptr; int64_t aux_lead = 0; };
struct Preference { uint64_t workspace = 0; uint32_t align = 256, reductions = 7; };
struct Chosen { uint64_t align, number, rest[6]; size_t workspace; int state; float waves; int reserved[4]; };

static float half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
  return h >> 15 ? -v : v;
}
static float get16(uint16_t bits, int type) {
  if (type == 2) return half(bits);
  uint32_t w = (uint32_t)bits << 16;
  float v;
  memcpy(&v, &w, 4);
  return v;
}
static uint16_t put16(float v, int type) {
  if (type == 2) { _Float16 h = (_Float16)v; uint16_t bits; memcpy(&bits, &h, 2); return bits; }
  uint32_t w;
  memcpy(&w, &v, 4);
  return v != v ? 0x7fc0 : (uint16_t)((w + 0x7fff + (w >> 16 & 1)) >> 16);
}
static long tf32 = 0, wide = 0, rows = 0, sums = 0, fail_next = 0, refused = 0, asked[1024];
EXPORT long fake_products(int what) { return what == 0 ? tf32 : what == 1 ? wide : what == 2 ? rows : sums; }
EXPORT long fake_epilogues(int code) { return asked[code & 1023]; }
EXPORT void fake_refuse_epilogues(int bits) { refused = bits; }  // the heuristic has no kernel for epilogues with one of these
EXPORT void fake_fail_product(int code) { fail_next = code; }
static const int PROPOSED = 3;
static long refused_when_run = 0, fastest = -1, ran[PROPOSED];
EXPORT void fake_algorithms(int refuse, int fast) { refused_when_run = refuse, fastest = fast; }  // bits of those refused; the one that does not take its time, -1: all
EXPORT long fake_ran(int algorithm) { return ran[algorithm]; }

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) {
  double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static bool known(int epilogue) {
  for (int each : {(int)PLAIN, (int)BIAS, (int)RELU, RELU | BIAS, RELU | AUX, RELU | AUX | BIAS, (int)GELU, GELU | BIAS, GELU | AUX, GELU | AUX | BIAS, DRELU | AUX,
                   DGELU | AUX, (int)BGRADB})
    if (epilogue == each) return true;
  return false;
}
// what NVIDIA's header says of what lies beside a result of m rows: bits in rows of a multiple of 128, numbers of one of 8
static bool lead_fits(const Product *p, uint64_t m) {
  return !(p->epilogue & AUX) || (p->aux_lead >= (int64_t)m && p->aux_lead % (p->epilogue & (RELU | DRELU) ? 128 : 8) == 0);
}

typedef std::complex<double> Z;
static Z get(const void *p, int64_t i, int type) {
  if (type == 4) return ((const std::complex<float> *)p)[i];
  if (type == 5) return ((const Z *)p)[i];
  return type == 0 ? ((const float *)p)[i] : type == 1 ? ((const double *)p)[i] : get16(((const uint16_t *)p)[i], type);
}
static void put(void *p, int64_t i, int type, Z v) {
  if (type == 4) ((std::complex<float> *)p)[i] = std::complex<float>(v);
  else if (type == 5) ((Z *)p)[i] = v;
  else if (type == 0) ((float *)p)[i] = (float)v.real();
  else if (type == 1) ((double *)p)[i] = v.real();
  else ((uint16_t *)p)[i] = put16((float)v.real(), type);
}

struct Work { Product p; Layout a, b, c; const void *at, *bt; void *ct; Z alpha, beta; bool slow; };
static int carry_out(void *with) {
  Work *w = (Work *)with;
  if (w->slow) usleep(60000);  // longer than a busy machine keeps a thread waiting
  uint64_t m = w->c.rows, n = w->c.cols, k = w->p.ta ? w->a.rows : w->a.cols;
  for (int32_t q = 0; q < w->c.batch; q++)
    for (uint64_t j = 0; j < n; j++)
      for (uint64_t i = 0; i < m; i++) {
        Z sum = 0;
        for (uint64_t l = 0; l < k; l++)
          sum += get(w->at, q * w->a.step + (w->p.ta ? l + i * w->a.lead : i + l * w->a.lead), w->a.type) *
                 get(w->bt, q * w->b.step + (w->p.tb ? j + l * w->b.lead : l + j * w->b.lead), w->b.type);
        int64_t at = q * w->c.step + i + j * w->c.lead;
        Z v = w->alpha * sum + (w->beta != 0.0 ? w->beta * get(w->ct, at, w->c.type) : 0);
        int e = w->p.epilogue;
        int64_t beside = i + j * w->p.aux_lead;
        auto *bits = (uint8_t *)w->p.aux;
        if (e & BIAS) v += get(w->p.row, i, w->c.type);
        if (e & RELU) {  // as the library does: NaN is not above 0
          bool above = v.real() > 0;
          if (e & AUX) bits[beside / 8] = (bits[beside / 8] & ~(1 << beside % 8)) | above << beside % 8;
          v = above ? v.real() : 0.0;
        } else if (e & GELU) {
          if (e & AUX) put(w->p.aux, beside, w->c.type, v);
          v = gelu(v.real());
        } else if (e & DRELU) v = bits[beside / 8] >> beside % 8 & 1 ? v.real() : 0.0;
        else if (e & DGELU) v = v.real() * gelu_slope(get(w->p.aux, beside, w->c.type).real());
        put(w->ct, at, w->c.type, v);
      }
  if (w->p.epilogue == BGRADB)
    for (uint64_t j = 0; j < n; j++) {
      Z sum = 0;
      for (uint64_t l = 0; l < k; l++) sum += get(w->bt, w->p.tb ? j + l * w->b.lead : l + j * w->b.lead, w->b.type);
      put(w->p.row, j, w->c.type, sum);
    }
  static auto keeps = (int (*)())dlsym(RTLD_DEFAULT, "fake_keeps");
  if (!keeps()) delete w;  // what is in a graph is done again
  return 0;
}

EXPORT size_t cublasLtGetVersion() { return 130000; }
EXPORT int cublasLtCreate(void **h) { *h = malloc(1); return 0; }
EXPORT int cublasLtDestroy(void *h) { free(h); return 0; }
EXPORT int cublasLtMatmulDescCreate(void **d, int compute, int scale) { *d = new Product{compute, scale}; return 0; }
EXPORT int cublasLtMatmulDescDestroy(void *d) { delete (Product *)d; return 0; }
EXPORT int cublasLtMatmulDescSetAttribute(void *d, int what, const void *v, size_t n) {
  auto *p = (Product *)d;
  if ((what == 8 || what == 11 || what == 12) && n == 8) memcpy(what == 8 ? (void *)&p->row : what == 11 ? (void *)&p->aux : &p->aux_lead, v, 8);
  else if (n == 4 && (what == 3 || what == 4 || what == 7)) memcpy(what == 3 ? &p->ta : what == 4 ? &p->tb : &p->epilogue, v, 4);
  else return INVALID;
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t cols, int64_t lead) {
  if (lead < (int64_t)rows) return INVALID;
  *l = new Layout{type, rows, cols, lead};
  return 0;
}
EXPORT int cublasLtMatrixLayoutDestroy(void *l) { delete (Layout *)l; return 0; }
EXPORT int cublasLtMatrixLayoutSetAttribute(void *l, int what, const void *v, size_t n) {
  if (what == 5 && n == 4) memcpy(&((Layout *)l)->batch, v, 4);
  else if (what == 6 && n == 8) memcpy(&((Layout *)l)->step, v, 8);
  else return INVALID;
  return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(void **p) { *p = new Preference; return 0; }
EXPORT int cublasLtMatmulPreferenceDestroy(void *p) { delete (Preference *)p; return 0; }
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *p, int what, const void *v, size_t n) {
  if (what == 1 && n == 8) memcpy(&((Preference *)p)->workspace, v, 8);
  else if (what == 3 && n == 4) memcpy(&((Preference *)p)->reductions, v, 4);
  else if (what >= 5 && what <= 8 && n == 4) memcpy(&((Preference *)p)->align, v, 4);
  else return INVALID;
  return 0;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *, void *d, void *, void *, void *c, void *, void *p, int most, Chosen *found, int *count) {
  if (((Layout *)c)->batch > 65535) { *count = 0; return UNSUPPORTED; }
  auto *product = (Product *)d;
  *count = 0;
  if (!known(product->epilogue) || !lead_fits(product, ((Layout *)c)->rows)) return INVALID;
  if (product->epilogue & refused || (product->epilogue != 1 && (product->scale || ((Preference *)p)->align < 16))) return UNSUPPORTED;  // float32 and 16 bits only
  wide += ((Preference *)p)->reductions == 2;
  for (; *count < most && *count < PROPOSED; ++*count) {
    Chosen &one = found[*count];
    one.align = ((Preference *)p)->align, one.number = *count, one.workspace = ((Preference *)p)->workspace / 4, one.state = 0;
  }
  return 0;
}
EXPORT int cublasLtMatmul(void *, void *p, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c,
                          void *lc, void *d, void *, const void *algorithm, void *workspace, size_t size, void *stream) {
  auto *product = (Product *)p;
  auto *x = (Layout *)la, *y = (Layout *)lb, *z = (Layout *)lc;
  uint64_t align = *(const uint64_t *)algorithm, number = ((const uint64_t *)algorithm)[1];
  if (number >= (uint64_t)PROPOSED) return INVALID;
  if (c != d || ((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) & (align - 1) || (size && !workspace)) return INVALID;
  uint64_t m = product->ta ? x->cols : x->rows, k = product->ta ? x->rows : x->cols, n = product->tb ? y->rows : y->cols;
  if (k != (product->tb ? y->cols : y->rows) || m != z->rows || n != z->cols || x->batch != y->batch || x->batch != z->batch) return INVALID;
  if (product->epilogue & (BIAS | BGRADB) && (!product->row || (uintptr_t)product->row & 15)) return INVALID;
  if (product->epilogue & AUX && (!product->aux || (uintptr_t)product->aux & 15)) return INVALID;
  if (!known(product->epilogue) || !lead_fits(product, m) || (product->epilogue & AUX && x->batch > 1)) return INVALID;
  if (refused_when_run >> number & 1) return UNSUPPORTED;
  if (fail_next) { int code = (int)fail_next; fail_next = 0; return code; }
  ran[number]++;
  tf32 += product->compute == 77;
  rows += product->epilogue == 4;
  sums += product->epilogue == 512;
  asked[product->epilogue & 1023]++;
  auto *w = new Work{*product, *x, *y, *z, a, b, d, get(alpha, 0, product->scale), get(beta, 0, product->scale), fastest >= 0 && number != (uint64_t)fastest};
  static auto enqueue = (int (*)(void *, int (*)(void *), void *))dlsym(RTLD_DEFAULT, "fake_enqueue");
  return enqueue(stream, carry_out, w) ? INVALID : 0;
}
