"""The CUDA C of attention: what its three kernels share, and each of them.

A block has a tile of rows and goes through tiles of columns.  Two products serve all kernels: of rows with columns (both along the
depth), and of what came of that with columns.  Queries are the rows where outputs or their own gradients are made, keys where the
gradients of keys and values are, so that nothing is added up by several blocks.

A warp's part of a product is held as tensor cores hold it: in tiles of 16 rows and 8 columns, a thread has columns 2 (lane % 4) and the
next of rows lane / 4 and lane / 4 + 8.  Float32 is multiplied without them, in the same places.
"""

from __future__ import annotations

# MT, NT: tiles of 16 rows and of 8 columns that a warp has.  LD, LDV: from row to row of tiles in shared memory, with a gap so
# that eight rows lie in different banks.
COMMON = """
typedef long long Wide;
__device__ __forceinline__ float real(unsigned long long bits) { return (float)__longlong_as_double((Wide)bits); }

// a tile of rows first ... below limit, zeros elsewhere
template <int THREADS, int ROWS, int WIDTH, int STEP>
__device__ __forceinline__ void fetch(T* tile, const T* from, Wide step, int first, int limit, int depth) {
  constexpr int CHUNK = 16 / sizeof(T), PER = WIDTH / CHUNK;
  if constexpr (WHOLE) {
    if constexpr (THREADS % PER == 0 && ROWS * PER % THREADS == 0) {  // a thread has one chunk of columns
      constexpr int BY = THREADS / PER;
      const int r = (int)threadIdx.x / PER, c = (int)threadIdx.x % PER * CHUNK, left = c < depth ? limit - first - r : 0;
      const T* at = from + (first + r) * step + c;
      #pragma unroll
      for (int i = 0; i < ROWS / BY; i++, at += BY * step) {
        const bool there = i * BY < left;
        copy_async_16(tile + (r + i * BY) * STEP + c, there ? at : from, there ? 16 : 0);
      }
    } else {
      for (int i = (int)threadIdx.x; i < ROWS * PER; i += THREADS) {
        const int r = i / PER, c = i % PER * CHUNK;
        const bool there = first + r < limit && c < depth;
        copy_async_16(tile + r * STEP + c, there ? from + (first + r) * step + c : from, there ? 16 : 0);
      }
    }
  } else {
    for (int i = (int)threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
      const int r = i / WIDTH, c = i % WIDTH;
      tile[r * STEP + c] = first + r < limit && c < depth ? from[(first + r) * step + c] : (T)0;
    }
  }
}

template <int MT, int NT> __device__ __forceinline__ void clear(float (&x)[MT][NT][4]) {
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int n = 0; n < NT; n++)
      #pragma unroll
      for (int i = 0; i < 4; i++) x[m][n][i] = 0.0f;
}

// 1 / (1 - p) with probability 1 - p, else 0: the number of this counter
__device__ __forceinline__ float kept(unsigned long long counter, unsigned long long seed, float p, float factor) {
  unsigned int c0 = (unsigned int)counter, c1 = (unsigned int)(counter >> 32), c2 = 0, c3 = 0, k0 = (unsigned int)seed, k1 = (unsigned int)(seed >> 32);
  #pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned int h0 = __umulhi(c0, 0xD2511F53u), l0 = c0 * 0xD2511F53u, h1 = __umulhi(c2, 0xCD9E8D57u), l1 = c2 * 0xCD9E8D57u;
    c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return (float)(c0 >> 8) * 5.9604644775390625e-8f >= p ? factor : 0.0f;
}

// What a head's queries and keys are.
struct Head {
  int batch, head, length, source;
  float scale2;  // of a score, in powers of two
  unsigned long long counter, seed;
  float p, factor;
  const unsigned char* mask;
  Wide mask_row;
  __device__ __forceinline__ Head(const Args& a, int batch, int head) : batch(batch), head(head) {
    length = (int)a.w[w_length], source = (int)a.w[w_source];
    scale2 = real(a.w[w_scale2]);
    mask = nullptr, mask_row = 0, counter = seed = 0, p = factor = 0.0f;
    if constexpr (MASK != 0) {
      mask = (const unsigned char*)a.w[w_mask] + (batch * (Wide)a.w[w_mask_batch] + head * (Wide)a.w[w_mask_head]) * MASK_SIZE;
      mask_row = (Wide)a.w[w_mask_row];
    }
    if constexpr (DROP) {
      seed = a.w[w_seed], p = real(a.w[w_p]), factor = 1.0f / (1.0f - p);
      counter = a.w[w_offset] + (unsigned long long)(batch * (int)a.w[w_heads] + head) * (unsigned long long)length * (unsigned long long)source;
    }
  }
  __device__ __forceinline__ float keep(int query, int key) const {
    return kept(counter + (unsigned long long)query * (unsigned long long)source + (unsigned long long)key, seed, p, factor);
  }
  __device__ __forceinline__ float score(float x, int query, int key) const {
    if constexpr (PRE) x *= scale2;
    if constexpr (MASK != 0) {
      if (query < length && key < source) {
        const Wide at = query * mask_row + key;
        if constexpr (MASK == 1) x = mask[at] ? x : -INFINITE;
        else if constexpr (MASK == 2) x = fmaf(((const float*)mask)[at], 1.44269504088896341f, x);
        else x = fmaf(wide(((const unsigned short*)mask)[at]), 1.44269504088896341f, x);
      }
    }
    return x;
  }
};

// Scores with what the mask and the causal order hide.  edge: whether any column may be beyond the keys, or after its query.
template <int MT, int NT, bool TURNED> __device__ __forceinline__ void hide(float (&s)[MT][NT][4], const Head& h, int row, int column, bool edge) {
  const int lane = (int)threadIdx.x & 31;
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int n = 0; n < NT; n++)
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        const int r = row + m * 16 + lane / 4 + (i >> 1) * 8, c = column + n * 8 + lane % 4 * 2 + (i & 1);
        const int query = TURNED ? c : r, key = TURNED ? r : c;
        if constexpr (PRE || MASK != 0) s[m][n][i] = h.score(s[m][n][i], query, key);
        if (edge && (key >= h.source || (CAUSAL && key > query))) s[m][n][i] = -INFINITE;
      }
}

// Rows of a result, each times its factor.
template <int MT, int NT> __device__ __forceinline__ void store(const float (&x)[MT][NT][4], const float (&factor)[MT][2], T* to, Wide step, int row, int limit,
                                                                int depth) {
  const int lane = (int)threadIdx.x & 31;
  const bool pairs = depth % 2 == 0 && (((unsigned long long)to | (unsigned long long)(step * (Wide)sizeof(T))) & (2 * sizeof(T) - 1)) == 0;
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int k = 0; k < 2; k++) {
      const int r = row + m * 16 + lane / 4 + k * 8;
      if (r < limit) {
        T* const line = to + r * step;
        #pragma unroll
        for (int n = 0; n < NT; n++) {
          const int c = n * 8 + lane % 4 * 2;
          const float u = x[m][n][2 * k] * factor[m][k], v = x[m][n][2 * k + 1] * factor[m][k];
          if (pairs) {
            if (c < depth) put_pair(line + c, u, v);
          } else {
            if (c < depth) line[c] = rounded(u);
            if (c + 1 < depth) line[c + 1] = rounded(v);
          }
        }
      }
    }
}
"""

TENSOR = """
// 16-bit floats, by tensor cores
typedef unsigned short T;
__device__ __forceinline__ float wide(T x) { return from_$name(x); }
__device__ __forceinline__ T rounded(float x) { return to_$name(x); }
#ifdef FLAMBEAU_HOST
inline float power(float x) { return exp2f(x); }
inline unsigned int pack(float low, float high) { return (unsigned int)rounded(high) << 16 | rounded(low); }
#else
__device__ __forceinline__ float power(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ __forceinline__ unsigned int pack(float low, float high) {
  unsigned int y;
  asm("cvt.rn.$packed.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
#endif
__device__ __forceinline__ void put_pair(T* at, float low, float high) { *(unsigned int*)at = pack(low, high); }
"""

TENSOR_PRODUCTS = """
// s += rows columns^T, along DEPTH
template <int MT, int NT, int DEPTH, int STEP> __device__ __forceinline__ void across(float (&s)[MT][NT][4], const T* rows, const T* columns) {
  const int lane = (int)threadIdx.x & 31;
  const T* const left = rows + (lane & 15) * STEP + (lane >> 4) * 8;
  const T* const right = columns + ((lane & 7) + (lane >> 4) * 8) * STEP + (lane >> 3 & 1) * 8;
  #pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    unsigned int x[MT][4];
    #pragma unroll
    for (int m = 0; m < MT; m++) load_matrices(x[m], left + m * 16 * STEP + k);
    #pragma unroll
    for (int n = 0; n < NT; n += 2) {
      unsigned int y[4];
      load_matrices(y, right + n * 8 * STEP + k);
      const unsigned int low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
      #pragma unroll
      for (int m = 0; m < MT; m++) {
        mma_$name(s[m][n], x[m], low);
        mma_$name(s[m][n + 1], x[m], high);
      }
    }
  }
}

// o += p columns, for the columns of p
template <int MT, int NT, int NO, int STEP>
__device__ __forceinline__ void along(float (&o)[MT][NO][4], const float (&p)[MT][NT][4], const T* columns, T* scratch) {
  const int lane = (int)threadIdx.x & 31;
  const T* const right = columns + (lane & 15) * STEP + (lane >> 4) * 8;
  #pragma unroll
  for (int k = 0; k < NT; k += 2) {
    unsigned int x[MT][4];
    #pragma unroll
    for (int m = 0; m < MT; m++)
      #pragma unroll
      for (int i = 0; i < 4; i++) x[m][i] = pack(p[m][k + i / 2][i % 2 * 2], p[m][k + i / 2][i % 2 * 2 + 1]);
    #pragma unroll
    for (int n = 0; n < NO; n += 2) {
      unsigned int y[4];
      load_matrices_transposed(y, right + k * 8 * STEP + n * 8);
      const unsigned int low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
      #pragma unroll
      for (int m = 0; m < MT; m++) {
        mma_$name(o[m][n], x[m], low);
        mma_$name(o[m][n + 1], x[m], high);
      }
    }
  }
}
"""

PLAIN = """
typedef float T;
struct alignas(8) Pair { T v[2]; };
struct alignas(16) Four { T v[4]; };
__device__ __forceinline__ float wide(T x) { return x; }
__device__ __forceinline__ T rounded(float x) { return x; }
__device__ __forceinline__ float power(float x) { return exp2f(x); }
__device__ __forceinline__ void put_pair(T* at, float low, float high) { *(Pair*)at = Pair{{low, high}}; }
"""

PLAIN_PRODUCTS = """
// s += rows columns^T, along DEPTH
template <int MT, int NT, int DEPTH, int STEP> __device__ __forceinline__ void across(float (&s)[MT][NT][4], const T* rows, const T* columns) {
  const int lane = (int)threadIdx.x & 31;
  #pragma unroll 1
  for (int k = 0; k < DEPTH; k += 4) {
    Four x[MT][2];
    #pragma unroll
    for (int m = 0; m < MT; m++)
      #pragma unroll
      for (int j = 0; j < 2; j++) x[m][j] = *(const Four*)(rows + (m * 16 + lane / 4 + j * 8) * STEP + k);
    #pragma unroll
    for (int n = 0; n < NT; n++)
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        const Four y = *(const Four*)(columns + (n * 8 + lane % 4 * 2 + e) * STEP + k);
        #pragma unroll
        for (int m = 0; m < MT; m++)
          #pragma unroll
          for (int j = 0; j < 2; j++)
            #pragma unroll
            for (int q = 0; q < 4; q++) s[m][n][2 * j + e] = fmaf(x[m][j].v[q], y.v[q], s[m][n][2 * j + e]);
      }
  }
}

// o += p columns, for the columns of p, which go through the warp's own piece of shared memory
template <int MT, int NT, int NO, int STEP>
__device__ __forceinline__ void along(float (&o)[MT][NO][4], const float (&p)[MT][NT][4], const T* columns, T* scratch) {
  const int lane = (int)threadIdx.x & 31;
  constexpr int WIDE = NT * 8 + 4;
  __syncwarp();
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int n = 0; n < NT; n++)
      #pragma unroll
      for (int i = 0; i < 4; i++) scratch[(m * 16 + lane / 4 + (i >> 1) * 8) * WIDE + n * 8 + lane % 4 * 2 + (i & 1)] = p[m][n][i];
  __syncwarp();
  #pragma unroll 1
  for (int k = 0; k < NT * 8; k += 4) {
    Four x[MT][2];
    #pragma unroll
    for (int m = 0; m < MT; m++)
      #pragma unroll
      for (int j = 0; j < 2; j++) x[m][j] = *(const Four*)(scratch + (m * 16 + lane / 4 + j * 8) * WIDE + k);
    #pragma unroll
    for (int q = 0; q < 4; q++)
      #pragma unroll
      for (int n = 0; n < NO; n++) {
        const Pair y = *(const Pair*)(columns + (k + q) * STEP + n * 8 + lane % 4 * 2);
        #pragma unroll
        for (int m = 0; m < MT; m++)
          #pragma unroll
          for (int j = 0; j < 2; j++)
            #pragma unroll
            for (int e = 0; e < 2; e++) o[m][n][2 * j + e] = fmaf(x[m][j].v[q], y.v[e], o[m][n][2 * j + e]);
      }
  }
}
"""

FORWARD = """
extern "C" __global__ void __launch_bounds__(WARPS * 32) attention_forward_$tag(const Args a) {
  extern __shared__ __align__(16) T tiles[];
  constexpr int THREADS = WARPS * 32, ROWS = WARPS * MT * 16, COLUMNS = NT * 8;
  T* const rows = tiles;
  T* const keys = rows + ROWS * LD;
  T* const values = keys + COLUMNS * LD;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31, heads = (int)a.w[w_heads], blocks = (int)a.w[w_row_blocks];
  T* const scratch = values + COLUMNS * LDV + warp * (MT * 16 * (COLUMNS + 4));
  const int both = (int)blockIdx.x / blocks, first = (blocks - 1 - (int)blockIdx.x % blocks) * ROWS, shared_by = (int)a.w[w_group];
  const Head h(a, both / heads, both % heads);
  const int depth = (int)a.w[w_depth], value_depth = (int)a.w[w_value_depth], key_head = h.head / shared_by;
  const T* const q = (const T*)a.w[w_q] + h.batch * (Wide)a.w[w_q_batch] + h.head * (Wide)a.w[w_q_head];
  const T* const k = (const T*)a.w[w_k] + h.batch * (Wide)a.w[w_k_batch] + key_head * (Wide)a.w[w_k_head];
  const T* const v = (const T*)a.w[w_v] + h.batch * (Wide)a.w[w_v_batch] + key_head * (Wide)a.w[w_v_head];
  const int last = CAUSAL && first + ROWS < h.source ? first + ROWS : h.source;
  const int row = first + warp * (MT * 16);
  const float by = PRE ? 1.0f : h.scale2;
  float o[MT][NV][4], top[MT][2], sum[MT][2];
  clear(o);
  #pragma unroll
  for (int m = 0; m < MT; m++) top[m][0] = top[m][1] = -INFINITE, sum[m][0] = sum[m][1] = 0.0f;
  fetch<THREADS, ROWS, D, LD>(rows, q, (Wide)a.w[w_q_row], first, h.length, depth);
  fetch<THREADS, COLUMNS, D, LD>(keys, k, (Wide)a.w[w_k_row], 0, last, depth);
  copy_async_commit();
  #pragma unroll 1
  for (int c = 0; c < last; c += COLUMNS) {
    copy_async_wait<0>();
    __syncthreads();
    fetch<THREADS, COLUMNS, DV, LDV>(values, v, (Wide)a.w[w_v_row], c, last, value_depth);
    copy_async_commit();
    float s[MT][NT][4];
    clear(s);
    const bool seen = !CAUSAL || c < row + MT * 16;  // by any of the warp's queries
    if (seen) across<MT, NT, D, LD>(s, rows + warp * (MT * 16 * LD), keys);
    copy_async_wait<0>();
    __syncthreads();
    if (c + COLUMNS < last) fetch<THREADS, COLUMNS, D, LD>(keys, k, (Wide)a.w[w_k_row], c + COLUMNS, last, depth);
    copy_async_commit();
    if (!seen) continue;
    hide<MT, NT, false>(s, h, row, c, c + COLUMNS > h.source || (CAUSAL && c + COLUMNS > row));
    #pragma unroll
    for (int m = 0; m < MT; m++)
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        float high = top[m][j];
        #pragma unroll
        for (int n = 0; n < NT; n++) high = fmaxf(high, fmaxf(s[m][n][2 * j], s[m][n][2 * j + 1]));  // without NaN: the sum has it
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
        const float finite = high == -INFINITE ? 0.0f : high, shift = -finite * by, again = power(fmaf(top[m][j], by, shift));
        top[m][j] = high;
        float part = 0.0f;
        #pragma unroll
        for (int n = 0; n < NT; n++)
          #pragma unroll
          for (int e = 0; e < 2; e++) {
            s[m][n][2 * j + e] = power(fmaf(s[m][n][2 * j + e], by, shift));
            part += s[m][n][2 * j + e];
          }
        sum[m][j] = sum[m][j] * again + part;
        #pragma unroll
        for (int n = 0; n < NV; n++) o[m][n][2 * j] *= again, o[m][n][2 * j + 1] *= again;
      }
    if constexpr (DROP) {
      #pragma unroll
      for (int m = 0; m < MT; m++)
        #pragma unroll
        for (int n = 0; n < NT; n++)
          #pragma unroll
          for (int i = 0; i < 4; i++) s[m][n][i] *= h.keep(row + m * 16 + lane / 4 + (i >> 1) * 8, c + n * 8 + lane % 4 * 2 + (i & 1));
    }
    along<MT, NT, NV, LDV>(o, s, values, scratch);
  }
  float factor[MT][2];
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int j = 0; j < 2; j++) {
      float all = sum[m][j];
      all += __shfl_xor_sync(0xffffffffu, all, 1);
      all += __shfl_xor_sync(0xffffffffu, all, 2);
      const bool none = all == 0.0f;  // it sees nothing: zeros, and weights of 0 in the gradient
      factor[m][j] = none ? 0.0f : 1.0f / all;
      const int r = row + m * 16 + lane / 4 + j * 8;
      if (lane % 4 == 0 && r < h.length) ((float*)a.w[w_lse])[(Wide)both * h.length + r] = none ? INFINITE : NATURAL * fmaf(top[m][j], by, log2f(all));
    }
  store(o, factor, (T*)a.w[w_o] + h.batch * (Wide)a.w[w_o_batch] + h.head * (Wide)a.w[w_o_head], (Wide)a.w[w_o_row], row, h.length, value_depth);
}
"""

# The sum of the products of each output with its gradient, a warp for each row.
DELTA = """
extern "C" __global__ void __launch_bounds__(256) attention_delta_$tag(const Args a) {
  const int lane = (int)threadIdx.x & 31, length = (int)a.w[w_length], heads = (int)a.w[w_heads], depth = (int)a.w[w_value_depth];
  const Wide index = (Wide)blockIdx.x * 8 + (int)threadIdx.x / 32;
  if (index >= (Wide)a.w[w_all_rows]) return;
  const int row = (int)(index % length), both = (int)(index / length), batch = both / heads, head = both % heads;
  const T* const g = (const T*)a.w[w_g] + batch * (Wide)a.w[w_g_batch] + head * (Wide)a.w[w_g_head] + row * (Wide)a.w[w_g_row];
  const T* const o = (const T*)a.w[w_o] + batch * (Wide)a.w[w_o_batch] + head * (Wide)a.w[w_o_head] + row * (Wide)a.w[w_o_row];
  float sum = 0.0f;
  for (int c = lane; c < depth; c += 32) sum = fmaf(wide(g[c]), wide(o[c]), sum);
  #pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (lane == 0) ((float*)a.w[w_work])[index] = sum;
}
"""

# Each of the two following has two tiles of columns at a time: one is multiplied while the next arrives.
QUERIES = """
extern "C" __global__ void __launch_bounds__(QWARPS * 32) attention_queries_$tag(const Args a) {
  extern __shared__ __align__(16) T tiles[];
  constexpr int WARPS = QWARPS, THREADS = WARPS * 32, MT = QMT, NT = QNT, ROWS = WARPS * MT * 16, COLUMNS = NT * 8, STEP = COLUMNS * (LD + LDV);
  T* const rows = tiles;
  T* const grads = rows + ROWS * LD;
  T* const columns = grads + ROWS * LDV;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31, heads = (int)a.w[w_heads], blocks = (int)a.w[w_query_blocks];
  T* const scratch = columns + 2 * STEP + warp * (MT * 16 * (COLUMNS + 4));
  const int both = (int)blockIdx.x / blocks, first = (blocks - 1 - (int)blockIdx.x % blocks) * ROWS;
  const Head h(a, both / heads, both % heads);
  const int depth = (int)a.w[w_depth], value_depth = (int)a.w[w_value_depth], key_head = h.head / (int)a.w[w_group];
  const T* const q = (const T*)a.w[w_q] + h.batch * (Wide)a.w[w_q_batch] + h.head * (Wide)a.w[w_q_head];
  const T* const k = (const T*)a.w[w_k] + h.batch * (Wide)a.w[w_k_batch] + key_head * (Wide)a.w[w_k_head];
  const T* const v = (const T*)a.w[w_v] + h.batch * (Wide)a.w[w_v_batch] + key_head * (Wide)a.w[w_v_head];
  const T* const g = (const T*)a.w[w_g] + h.batch * (Wide)a.w[w_g_batch] + h.head * (Wide)a.w[w_g_head];
  const int last = CAUSAL && first + ROWS < h.source ? first + ROWS : h.source;
  const int row = first + warp * (MT * 16);
  const float by = PRE ? 1.0f : h.scale2;
  float dq[MT][ND][4], lse[MT][2], delta[MT][2], factor[MT][2];
  clear(dq);
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int j = 0; j < 2; j++) {
      const int r = row + m * 16 + lane / 4 + j * 8;
      const Wide at = (Wide)both * h.length + r;
      lse[m][j] = r < h.length ? BINARY * ((const float*)a.w[w_lse])[at] : INFINITE;
      delta[m][j] = r < h.length ? ((const float*)a.w[w_work])[at] : 0.0f;
      factor[m][j] = real(a.w[w_scale]);
    }
  fetch<THREADS, ROWS, D, LD>(rows, q, (Wide)a.w[w_q_row], first, h.length, depth);
  fetch<THREADS, ROWS, DV, LDV>(grads, g, (Wide)a.w[w_g_row], first, h.length, value_depth);
  fetch<THREADS, COLUMNS, D, LD>(columns, k, (Wide)a.w[w_k_row], 0, last, depth);
  fetch<THREADS, COLUMNS, DV, LDV>(columns + COLUMNS * LD, v, (Wide)a.w[w_v_row], 0, last, value_depth);
  copy_async_commit();
  #pragma unroll 1
  for (int c = 0, turn = 0; c < last; c += COLUMNS, turn ^= 1) {
    const T* const keys = columns + turn * STEP;
    T* const next = columns + (turn ^ 1) * STEP;
    copy_async_wait<0>();
    __syncthreads();
    if (c + COLUMNS < last) {
      fetch<THREADS, COLUMNS, D, LD>(next, k, (Wide)a.w[w_k_row], c + COLUMNS, last, depth);
      fetch<THREADS, COLUMNS, DV, LDV>(next + COLUMNS * LD, v, (Wide)a.w[w_v_row], c + COLUMNS, last, value_depth);
      copy_async_commit();
    }
    if (CAUSAL && c >= row + MT * 16) continue;  // none of the warp's queries sees these keys
    float s[MT][NT][4], d[MT][NT][4];
    clear(s);
    clear(d);
    across<MT, NT, D, LD>(s, rows + warp * (MT * 16 * LD), keys);
    across<MT, NT, DV, LDV>(d, grads + warp * (MT * 16 * LDV), keys + COLUMNS * LD);
    hide<MT, NT, false>(s, h, row, c, c + COLUMNS > h.source || (CAUSAL && c + COLUMNS > row));
    #pragma unroll
    for (int m = 0; m < MT; m++)
      #pragma unroll
      for (int n = 0; n < NT; n++)
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          float x = d[m][n][i];
          if constexpr (DROP) x *= h.keep(row + m * 16 + lane / 4 + (i >> 1) * 8, c + n * 8 + lane % 4 * 2 + (i & 1));
          d[m][n][i] = power(fmaf(s[m][n][i], by, -lse[m][i >> 1])) * (x - delta[m][i >> 1]);
        }
    along<MT, NT, ND, LD>(dq, d, keys, scratch);
  }
  store(dq, factor, (T*)a.w[w_dq] + h.batch * (Wide)a.w[w_dq_batch] + h.head * (Wide)a.w[w_dq_head], (Wide)a.w[w_dq_row], row, h.length, depth);
}
"""

KEYS = """
extern "C" __global__ void __launch_bounds__(KWARPS * 32) attention_keys_$tag(const Args a) {
  extern __shared__ __align__(16) T tiles[];
  constexpr int WARPS = KWARPS, THREADS = WARPS * 32, MT = KMT, NT = KNT, ROWS = WARPS * MT * 16, COLUMNS = NT * 8, STEP = COLUMNS * (LD + LDV);
  __shared__ float stats[2][2][COLUMNS];
  T* const rows = tiles;
  T* const values = rows + ROWS * LD;
  T* const columns = values + ROWS * LDV;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x & 31, shared_by = (int)a.w[w_group], blocks = (int)a.w[w_key_blocks];
  T* const scratch = columns + 2 * STEP + warp * (MT * 16 * (COLUMNS + 4));
  const int heads = (int)a.w[w_heads], key_heads = heads / shared_by, both = (int)blockIdx.x / blocks, first = (int)blockIdx.x % blocks * ROWS;
  const int batch = both / key_heads, key_head = both % key_heads, length = (int)a.w[w_length], source = (int)a.w[w_source];
  const int depth = (int)a.w[w_depth], value_depth = (int)a.w[w_value_depth];
  const T* const k = (const T*)a.w[w_k] + batch * (Wide)a.w[w_k_batch] + key_head * (Wide)a.w[w_k_head];
  const T* const v = (const T*)a.w[w_v] + batch * (Wide)a.w[w_v_batch] + key_head * (Wide)a.w[w_v_head];
  const int row = first + warp * (MT * 16), begin = CAUSAL ? first / COLUMNS * COLUMNS : 0;  // earlier queries see none of these keys
  const int each = begin < length ? (length - begin + COLUMNS - 1) / COLUMNS : 0, turns = each * shared_by;
  float dk[MT][ND][4], dv[MT][NV][4];
  clear(dk);
  clear(dv);

  const auto arrive = [&](int turn) {  // a head's tile of queries, with what is known of each
    const int head = key_head * shared_by + turn / each, c = begin + turn % each * COLUMNS;
    T* const to = columns + (turn & 1) * STEP;
    fetch<THREADS, COLUMNS, D, LD>(to, (const T*)a.w[w_q] + batch * (Wide)a.w[w_q_batch] + head * (Wide)a.w[w_q_head], (Wide)a.w[w_q_row], c, length, depth);
    fetch<THREADS, COLUMNS, DV, LDV>(to + COLUMNS * LD, (const T*)a.w[w_g] + batch * (Wide)a.w[w_g_batch] + head * (Wide)a.w[w_g_head], (Wide)a.w[w_g_row], c,
                            length, value_depth);
    if ((int)threadIdx.x < COLUMNS) {
      const int query = c + (int)threadIdx.x;
      const Wide at = (Wide)(batch * heads + head) * length + query;
      stats[turn & 1][0][threadIdx.x] = query < length ? BINARY * ((const float*)a.w[w_lse])[at] : INFINITE;
      stats[turn & 1][1][threadIdx.x] = query < length ? ((const float*)a.w[w_work])[at] : 0.0f;
    }
  };
  fetch<THREADS, ROWS, D, LD>(rows, k, (Wide)a.w[w_k_row], first, source, depth);
  fetch<THREADS, ROWS, DV, LDV>(values, v, (Wide)a.w[w_v_row], first, source, value_depth);
  if (turns > 0) arrive(0);
  copy_async_commit();
  #pragma unroll 1
  for (int turn = 0; turn < turns; turn++) {
    copy_async_wait<0>();
    __syncthreads();
    if (turn + 1 < turns) {
      arrive(turn + 1);
      copy_async_commit();
    }
    const Head h(a, batch, key_head * shared_by + turn / each);
    const int c = begin + turn % each * COLUMNS;
    if (CAUSAL && c + COLUMNS <= row) continue;  // none of these queries sees the warp's keys
    const T* const queries = columns + (turn & 1) * STEP;
    const float (*stat)[COLUMNS] = stats[turn & 1];
    const float by = PRE ? 1.0f : h.scale2;
    float s[MT][NT][4], d[MT][NT][4];
    clear(s);
    clear(d);
    across<MT, NT, D, LD>(s, rows + warp * (MT * 16 * LD), queries);
    across<MT, NT, DV, LDV>(d, values + warp * (MT * 16 * LDV), queries + COLUMNS * LD);
    hide<MT, NT, true>(s, h, row, c, CAUSAL && row + MT * 16 > c);
    #pragma unroll
    for (int n = 0; n < NT; n++)
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        const int column = n * 8 + lane % 4 * 2 + e;
        const float lse = stat[0][column], delta = stat[1][column];
        #pragma unroll
        for (int m = 0; m < MT; m++)
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            const float p = power(fmaf(s[m][n][2 * j + e], by, -lse));
            float keep = 1.0f;
            if constexpr (DROP) keep = h.keep(c + column, row + m * 16 + lane / 4 + j * 8);
            d[m][n][2 * j + e] = p * (d[m][n][2 * j + e] * keep - delta);
            s[m][n][2 * j + e] = p * keep;
          }
      }
    along<MT, NT, NV, LDV>(dv, s, queries + COLUMNS * LD, scratch);
    along<MT, NT, ND, LD>(dk, d, queries, scratch);
  }
  float one[MT][2], scale[MT][2];
  #pragma unroll
  for (int m = 0; m < MT; m++)
    #pragma unroll
    for (int j = 0; j < 2; j++) one[m][j] = 1.0f, scale[m][j] = real(a.w[w_scale]);
  store(dk, scale, (T*)a.w[w_dk] + batch * (Wide)a.w[w_dk_batch] + key_head * (Wide)a.w[w_dk_head], (Wide)a.w[w_dk_row], row, source, depth);
  store(dv, one, (T*)a.w[w_dv] + batch * (Wide)a.w[w_dv_batch] + key_head * (Wide)a.w[w_dv_head], (Wide)a.w[w_dv_row], row, source, value_depth);
}
"""
