// A stand-in for libcusolver's dense routines and, with FAKE_CUBLAS, for libcublas's triangular equations: textbook algorithms in
// double, queued on the fake libcuda's streams. Work areas are filled with rubbish, and what a routine destroys is destroyed.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>
#include <dlfcn.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
typedef std::complex<double> Z;
typedef std::complex<float> C;
enum { INVALID = 3, FAILED = 6 };
struct Handle { void *stream = nullptr; };
struct Matrix {  // columns one after another
  int m, n;
  std::vector<Z> v;
  Matrix(int m, int n) : m(m), n(n), v((size_t)m * n) {}
  Z &operator()(int i, int j) { return v[(size_t)j * m + i]; }
  template <class T> static Matrix of(const T *p, int m, int n, int lead) {
    Matrix a(m, n);
    for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) a(i, j) = Z(p[(size_t)j * lead + i]);
    return a;
  }
  template <class T> void to(T *p, int lead, int triangle = 0) {
    for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) if (triangle == 0 || (triangle > 0 ? i >= j : i <= j)) set(p[(size_t)j * lead + i], (*this)(i, j));
  }
  static void set(float &x, Z v) { x = (float)v.real(); }
  static void set(double &x, Z v) { x = v.real(); }
  static void set(C &x, Z v) { x = C(v); }
  static void set(Z &x, Z v) { x = v; }
};
static int fail_next = 0;
static long done = 0;

static int carry_out(void *with) {
  auto *work = (std::function<void()> *)with;
  (*work)();
  static auto keeps = (int (*)())dlsym(RTLD_DEFAULT, "fake_keeps");
  if (!keeps()) delete work;  // what is in a graph is done again
  return 0;
}
static int queue(void *handle, std::function<void()> work) {
  if (!handle || !((Handle *)handle)->stream) return 1;
  if (fail_next) { int code = fail_next; fail_next = 0; return code; }
  done++;
  static auto enqueue = (int (*)(void *, int (*)(void *), void *))dlsym(RTLD_DEFAULT, "fake_enqueue");
  return enqueue(((Handle *)handle)->stream, carry_out, new std::function<void()>(work)) ? FAILED : 0;
}

// ------------------------------------------------------------------------------------------------------- for one matrix
static void solve_triangle(Matrix &a, Matrix &b, bool upper, bool unit) {
  for (int c = 0; c < b.n; c++)
    for (int q = 0; q < a.n; q++) {
      int i = upper ? a.n - 1 - q : q;
      Z sum = b(i, c);
      for (int j = upper ? i + 1 : 0; j < (upper ? a.n : i); j++) sum -= a(i, j) * b(j, c);
      b(i, c) = unit ? sum : sum / a(i, i);
    }
}
static void factor(Matrix &a, int *pivots, int *info) {
  *info = 0;
  for (int j = 0; j < std::min(a.m, a.n); j++) {
    int best = j;
    if (pivots) for (int i = j + 1; i < a.m; i++) if (std::abs(a(i, j)) > std::abs(a(best, j))) best = i;
    if (pivots) pivots[j] = best + 1;
    for (int k = 0; k < a.n; k++) std::swap(a(j, k), a(best, k));
    if (a(j, j) == 0.0) { if (!*info) *info = j + 1; continue; }
    for (int i = j + 1; i < a.m; i++) {
      a(i, j) /= a(j, j);
      for (int k = j + 1; k < a.n; k++) a(i, k) -= a(i, j) * a(j, k);
    }
  }
}
static void solve_factors(Matrix &a, const int *pivots, Matrix &b, bool turned) {
  int n = a.n;
  for (int c = 0; c < b.n; c++) {
    if (!turned) {
      for (int i = 0; i < n; i++) std::swap(b(i, c), b(pivots[i] - 1, c));
      for (int i = 0; i < n; i++) for (int j = 0; j < i; j++) b(i, c) -= a(i, j) * b(j, c);
      for (int i = n - 1; i >= 0; i--) { for (int j = i + 1; j < n; j++) b(i, c) -= a(i, j) * b(j, c); b(i, c) /= a(i, i); }
    } else {
      for (int i = 0; i < n; i++) { for (int j = 0; j < i; j++) b(i, c) -= std::conj(a(j, i)) * b(j, c); b(i, c) /= std::conj(a(i, i)); }
      for (int i = n - 1; i >= 0; i--) for (int j = i + 1; j < n; j++) b(i, c) -= std::conj(a(j, i)) * b(j, c);
      for (int i = n - 1; i >= 0; i--) std::swap(b(i, c), b(pivots[i] - 1, c));
    }
  }
}
static void root(Matrix &a, int *info) {
  *info = 0;
  for (int j = 0; j < a.n; j++) {
    double d = a(j, j).real();
    for (int k = 0; k < j; k++) d -= std::norm(a(j, k));
    if (!(d > 0)) { *info = j + 1; break; }
    a(j, j) = std::sqrt(d);
    for (int i = j + 1; i < a.n; i++) {
      Z sum = a(i, j);
      for (int k = 0; k < j; k++) sum -= a(i, k) * std::conj(a(j, k));
      a(i, j) = sum / a(j, j);
    }
  }
}

#ifdef FAKE_CUBLAS
static long batches = 0;
EXPORT long fake_blas_count() { return done; }
EXPORT long fake_blas_batches() { return batches; }
template <class T> static int getrf_batched(void *h, int n, T **list, int lead, int *pivots, int *info, int batch) {
  if (lead < n || batch < 1) return 7;
  batches++;
  return queue(h, [=] {
    for (int q = 0; q < batch; q++) { auto a = Matrix::of(list[q], n, n, lead); factor(a, pivots ? pivots + q * n : nullptr, info + q); a.to(list[q], lead); }
  });
}
template <class T> static int getrs_batched(void *h, int turned, int n, int k, T **la, int lda, const int *pivots, T **lb, int ldb, int *info, int batch) {
  if (lda < n || ldb < n || turned == 1) return 7;
  *info = 0;
  batches++;
  return queue(h, [=] {
    for (int q = 0; q < batch; q++) {
      auto a = Matrix::of(la[q], n, n, lda), b = Matrix::of(lb[q], n, k, ldb);
      solve_factors(a, pivots + q * n, b, turned);
      b.to(lb[q], ldb);
    }
  });
}
template <class T> static int trsm_batched(void *h, int side, int upper, int turned, int unit, int n, int k, const T *alpha, T **la, int lda, T **lb, int ldb, int batch) {
  if (side || turned || lda < n || ldb < n || Z(*alpha) != Z(1)) return 7;
  batches++;
  return queue(h, [=] {
    for (int q = 0; q < batch; q++) { auto a = Matrix::of(la[q], n, n, lda), b = Matrix::of(lb[q], n, k, ldb); solve_triangle(a, b, upper, unit); b.to(lb[q], ldb); }
  });
}
#define BATCHED(L, T) \
  EXPORT int cublas##L##getrfBatched(void *h, int n, T **a, int l, int *p, int *i, int b) { return getrf_batched<T>(h, n, a, l, p, i, b); } \
  EXPORT int cublas##L##getrsBatched(void *h, int t, int n, int k, T **a, int l, const int *p, T **x, int lx, int *i, int b) { \
    return getrs_batched<T>(h, t, n, k, a, l, p, x, lx, i, b); } \
  EXPORT int cublas##L##trsmBatched(void *h, int s, int u, int t, int d, int n, int k, const T *x, T **a, int la, T **c, int lc, int b) { \
    return trsm_batched<T>(h, s, u, t, d, n, k, x, a, la, c, lc, b); }
BATCHED(S, float) BATCHED(D, double) BATCHED(C, C) BATCHED(Z, Z)
EXPORT int cublasCreate_v2(void **h) { *h = new Handle; return 0; }
EXPORT int cublasSetStream_v2(void *h, void *s) { ((Handle *)h)->stream = s; return 0; }
template <class T> static int trsm(void *h, int side, int upper, int turned, int unit, int n, int k, const T *alpha, const T *pa, int lda, T *pb, int ldb) {
  if (side || turned || lda < n || ldb < n || Z(*alpha) != Z(1)) return 7;
  return queue(h, [=] {
    auto a = Matrix::of(pa, n, n, lda), b = Matrix::of(pb, n, k, ldb);
    solve_triangle(a, b, upper, unit);
    b.to(pb, ldb);
  });
}
#define TRSM(L, T) EXPORT int cublas##L##trsm_v2(void *h, int s, int u, int t, int d, int n, int k, const T *x, const T *a, int la, T *b, int lb) { \
  return trsm<T>(h, s, u, t, d, n, k, x, a, la, b, lb); }
TRSM(S, float) TRSM(D, double) TRSM(C, C) TRSM(Z, Z)
#else
EXPORT long fake_solver_count() { return done; }
EXPORT void fake_solver_fail(int code) { fail_next = code; }
EXPORT int cusolverDnCreate(void **h) { *h = new Handle; return 0; }
EXPORT int cusolverDnSetStream(void *h, void *s) { ((Handle *)h)->stream = s; return 0; }

template <class T> static int potrf(void *h, int upper, int n, T *p, int lead, T *work, int size, int *info) {
  if (upper || lead < n || size != n + 3) return INVALID;
  return queue(h, [=] {
    memset((void *)work, 0xff, size * sizeof(T));
    auto a = Matrix::of(p, n, n, lead);
    root(a, info);
    a.to(p, lead, 1);  // the other triangle keeps what it had
  });
}
template <class T> static int potrf_batched(void *h, int upper, int n, T **list, int lead, int *info, int batch) {
  if (upper || lead < n || batch < 1) return INVALID;
  return queue(h, [=] {
    for (int q = 0; q < batch; q++) { auto a = Matrix::of(list[q], n, n, lead); root(a, info + q); a.to(list[q], lead, 1); }
  });
}
template <class T> static int getrf(void *h, int m, int n, T *p, int lead, T *work, int *pivots, int *info) {
  if (lead < m) return INVALID;
  return queue(h, [=] {
    memset((void *)work, 0xff, (n + 5) * sizeof(T));
    auto a = Matrix::of(p, m, n, lead);
    factor(a, pivots, info);
    a.to(p, lead);
  });
}
template <class T> static int getrs(void *h, int turned, int n, int k, const T *pa, int lda, const int *pivots, T *pb, int ldb, int *info) {
  if (lda < n || ldb < n || turned == 1) return INVALID;
  return queue(h, [=] {
    auto a = Matrix::of(pa, n, n, lda), b = Matrix::of(pb, n, k, ldb);
    *info = 0;
    solve_factors(a, pivots, b, turned);
    b.to(pb, ldb);
  });
}
static void reflect(Matrix &a, const std::vector<Z> &v, Z tau, int row, int from) {  // a -= tau v v^H a
  for (int c = from; c < a.n; c++) {
    Z sum = 0;
    for (int i = row; i < a.m; i++) sum += std::conj(v[i]) * a(i, c);
    for (int i = row; i < a.m; i++) a(i, c) -= tau * v[i] * sum;
  }
}
template <class T> static int geqrf(void *h, int m, int n, T *p, int lead, T *tau, T *work, int size, int *info) {
  if (lead < m || size != m + n) return INVALID;
  return queue(h, [=] {
    memset((void *)work, 0xff, size * sizeof(T));
    auto a = Matrix::of(p, m, n, lead);
    *info = 0;
    for (int j = 0; j < std::min(m, n); j++) {
      double norm = 0, rest = 0;
      for (int i = j; i < m; i++) norm += std::norm(a(i, j));
      for (int i = j + 1; i < m; i++) rest += std::norm(a(i, j));
      Z x = a(j, j), t = 0;
      std::vector<Z> v(m);
      if (rest > 0 || x.imag()) {
        double beta = x.real() > 0 ? -std::sqrt(norm) : std::sqrt(norm);
        t = Z((beta - x.real()) / beta, -x.imag() / beta);
        v[j] = 1;
        for (int i = j + 1; i < m; i++) v[i] = a(i, j) / (x - beta);
        reflect(a, v, std::conj(t), j, j + 1);
        a(j, j) = beta;
        for (int i = j + 1; i < m; i++) a(i, j) = v[i];
      }
      Matrix::set(tau[j], t);
    }
    a.to(p, lead);
  });
}
template <class T> static int orgqr(void *h, int m, int n, int k, T *p, int lead, const T *tau, T *work, int size, int *info) {
  if (lead < m || m < n || n < k || size != m + k) return INVALID;
  return queue(h, [=] {
    memset((void *)work, 0xff, size * sizeof(T));
    auto a = Matrix::of(p, m, n, lead);
    Matrix q(m, n);
    *info = 0;
    for (int i = 0; i < n; i++) q(i, i) = 1;
    for (int j = k - 1; j >= 0; j--) {
      std::vector<Z> v(m);
      v[j] = 1;
      for (int i = j + 1; i < m; i++) v[i] = a(i, j);
      reflect(q, v, Z(tau[j]), j, 0);
    }
    q.to(p, lead);
  });
}
static void jacobi(Matrix &a, Matrix &u) {  // columns of a become orthogonal: a = a0 u
  int n = a.n;
  for (int sweep = 0; sweep < 60; sweep++) {
    double off = 0;
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++) {
        Z g = 0;
        double x = 0, y = 0;
        for (int i = 0; i < a.m; i++) { g += std::conj(a(i, p)) * a(i, q); x += std::norm(a(i, p)); y += std::norm(a(i, q)); }
        double size = std::abs(g);
        if (size == 0 || size <= 1e-17 * std::sqrt(x * y)) continue;
        off = std::max(off, size / std::sqrt(x * y));
        double z = (y - x) / (2 * size), t = (z >= 0 ? 1 : -1) / (std::abs(z) + std::sqrt(1 + z * z)), c = 1 / std::sqrt(1 + t * t);
        Z s = c * t * g / size;
        for (Matrix *w : {&a, &u})
          for (int i = 0; i < w->m; i++) {
            Z l = (*w)(i, p), r = (*w)(i, q);
            (*w)(i, p) = c * l - std::conj(s) * r;
            (*w)(i, q) = s * l + c * r;
          }
      }
    if (off < 1e-15) break;
  }
}
static void order(Matrix &a, Matrix &u, std::vector<double> &s) {  // largest first
  std::vector<int> by(a.n);
  std::iota(by.begin(), by.end(), 0);
  std::sort(by.begin(), by.end(), [&](int i, int j) { return s[i] > s[j]; });
  Matrix b = a, w = u;
  auto t = s;
  for (int j = 0; j < a.n; j++) {
    s[j] = t[by[j]];
    for (int i = 0; i < a.m; i++) a(i, j) = b(i, by[j]);
    for (int i = 0; i < u.m; i++) u(i, j) = w(i, by[j]);
  }
}
template <class T, class R> static int syevd(void *h, int vectors, int upper, int n, T *p, int lead, R *w, T *work, int size, int *info) {
  if (lead < n || size != 2 * n + 1) return INVALID;
  return queue(h, [=] {
    memset((void *)work, 0xff, size * sizeof(T));
    auto a = Matrix::of(p, n, n, lead);
    Matrix u(n, n);
    double shift = 1;
    *info = 0;
    for (int j = 0; j < n; j++)
      for (int i = 0; i < n; i++) if (upper ? i > j : i < j) a(i, j) = std::conj(Z(p[(size_t)i * lead + j]));
    for (auto &x : a.v) shift += std::abs(x);
    for (int i = 0; i < n; i++) { u(i, i) = 1; a(i, i) = a(i, i).real() + shift; }  // positive: its singular values are its eigenvalues
    jacobi(a, u);
    std::vector<double> s(n);
    for (int j = 0; j < n; j++) { for (int i = 0; i < n; i++) s[j] += std::norm(a(i, j)); s[j] = -std::sqrt(s[j]); }
    order(a, u, s);
    for (int j = 0; j < n; j++) w[j] = (R)(-s[j] - shift);
    if (vectors) u.to(p, lead); else memset((void *)p, 0xff, (size_t)n * lead * sizeof(T));
  });
}
template <class T, class R> static int gesvd(void *h, signed char ju, signed char jv, int m, int n, T *p, int lead, R *s, T *pu, int ldu, T *pv, int ldv,
                                             T *work, int size, R *rwork, int *info) {
  if (m < n || ju != jv || lead < m || ldu < m || ldv < n || size != 3 * n || !rwork) return INVALID;
  return queue(h, [=] {
    memset((void *)work, 0xff, size * sizeof(T));
    memset((void *)rwork, 0xff, (n - 1) * sizeof(R));
    auto a = Matrix::of(p, m, n, lead);
    memset((void *)p, 0xff, (size_t)n * lead * sizeof(T));
    Matrix v(n, n);
    *info = 0;
    for (int i = 0; i < n; i++) v(i, i) = 1;
    jacobi(a, v);
    std::vector<double> norms(n);
    for (int j = 0; j < n; j++) { for (int i = 0; i < m; i++) norms[j] += std::norm(a(i, j)); norms[j] = std::sqrt(norms[j]); }
    order(a, v, norms);
    for (int j = 0; j < n; j++) s[j] = (R)norms[j];
    if (ju == 'N') return;
    Matrix u(m, ju == 'A' ? m : n);
    int have = 0;
    for (int j = 0; j < n && norms[j] > 1e-13 * norms[0]; j++, have++) for (int i = 0; i < m; i++) u(i, j) = a(i, j) / norms[j];
    for (int e = 0; have < u.n && e < m; e++) {  // the rest by Gram and Schmidt
      std::vector<Z> x(m);
      x[e] = 1;
      for (int again = 0; again < 2; again++)
        for (int j = 0; j < have; j++) {
          Z sum = 0;
          for (int i = 0; i < m; i++) sum += std::conj(u(i, j)) * x[i];
          for (int i = 0; i < m; i++) x[i] -= sum * u(i, j);
        }
      double norm = 0;
      for (auto &y : x) norm += std::norm(y);
      if (norm < 1e-8) continue;
      for (int i = 0; i < m; i++) u(i, have) = x[i] / std::sqrt(norm);
      have++;
    }
    u.to(pu, ldu);
    Matrix t(n, n);
    for (int j = 0; j < n; j++) for (int i = 0; i < n; i++) t(i, j) = std::conj(v(j, i));
    t.to(pv, ldv);
  });
}
#define ALL(L, T, R, ORG, SYE) \
  EXPORT int cusolverDn##L##potrf_bufferSize(void *, int, int n, T *, int, int *s) { *s = n + 3; return 0; } \
  EXPORT int cusolverDn##L##potrf(void *h, int u, int n, T *a, int l, T *w, int s, int *i) { return potrf<T>(h, u, n, a, l, w, s, i); } \
  EXPORT int cusolverDn##L##potrfBatched(void *h, int u, int n, T **a, int l, int *i, int b) { return potrf_batched<T>(h, u, n, a, l, i, b); } \
  EXPORT int cusolverDn##L##getrf_bufferSize(void *, int, int n, T *, int, int *s) { *s = n + 5; return 0; } \
  EXPORT int cusolverDn##L##getrf(void *h, int m, int n, T *a, int l, T *w, int *p, int *i) { return getrf<T>(h, m, n, a, l, w, p, i); } \
  EXPORT int cusolverDn##L##getrs(void *h, int t, int n, int k, const T *a, int l, const int *p, T *b, int lb, int *i) { \
    return getrs<T>(h, t, n, k, a, l, p, b, lb, i); } \
  EXPORT int cusolverDn##L##geqrf_bufferSize(void *, int m, int n, T *, int, int *s) { *s = m + n; return 0; } \
  EXPORT int cusolverDn##L##geqrf(void *h, int m, int n, T *a, int l, T *t, T *w, int s, int *i) { return geqrf<T>(h, m, n, a, l, t, w, s, i); } \
  EXPORT int cusolverDn##L##ORG##_bufferSize(void *, int m, int, int k, const T *, int, const T *, int *s) { *s = m + k; return 0; } \
  EXPORT int cusolverDn##L##ORG(void *h, int m, int n, int k, T *a, int l, const T *t, T *w, int s, int *i) { \
    return orgqr<T>(h, m, n, k, a, l, t, w, s, i); } \
  EXPORT int cusolverDn##L##SYE##_bufferSize(void *, int, int, int n, const T *, int, const R *, int *s) { *s = 2 * n + 1; return 0; } \
  EXPORT int cusolverDn##L##SYE(void *h, int j, int u, int n, T *a, int l, R *w, T *k, int s, int *i) { \
    return syevd<T, R>(h, j, u, n, a, l, w, k, s, i); } \
  EXPORT int cusolverDn##L##gesvd_bufferSize(void *, int, int n, int *s) { *s = 3 * n; return 0; } \
  EXPORT int cusolverDn##L##gesvd(void *h, signed char ju, signed char jv, int m, int n, T *a, int l, R *s, T *u, int lu, T *v, int lv, T *w, int z, \
                                  R *r, int *i) { return gesvd<T, R>(h, ju, jv, m, n, a, l, s, u, lu, v, lv, w, z, r, i); }
ALL(S, float, float, orgqr, syevd) ALL(D, double, double, orgqr, syevd) ALL(C, C, float, ungqr, heevd) ALL(Z, Z, double, ungqr, heevd)
#endif
