"""What the threads of a block do together: sums of what comes before, and sorting what they hold by four bits."""

from __future__ import annotations

# The sum of x over the threads before this one, and over all; `warps` is used again only behind another barrier.
SUMS = """
template <class T, int WARPS> __device__ __forceinline__ T sum_before(T x, T* warps, T& total) {
  const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  T sum = x;
  #pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const T y = __shfl_up_sync(0xffffffffu, sum, by);
    if (lane >= by) sum += y;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  T ahead = 0;
  total = 0;
  #pragma unroll
  for (int k = 0; k < WARPS; k++) {
    const T y = warps[k];
    if (k < warp) ahead += y;
    total += y;
  }
  return ahead + sum - x;
}"""

# A block's keys are kept in shared memory with a gap after every 32, so that threads that read neighbours do not wait for one
# another.  A thread counts the digits of its own keys, which are neighbours, in a column of its own: sixteen counters of 16 bits in
# four words.  Counter d is field d / 4 of word d % 4, so that the words in order, field by field, are the counters in order.
DIGIT = """
typedef unsigned long long Word;
__device__ __forceinline__ int gapped(int i) { return i + (i >> 5); }
template <int THREADS, int EACH>
__device__ __forceinline__ void sort_digit(Key* keys, unsigned short* order, Word* counts, Word* warps, int shift, bool first) {
  const int me = (int)threadIdx.x;
  Key k[EACH];
  unsigned int from[EACH];  // and, in its high half, its place among the thread's own of the same digit
  #pragma unroll
  for (int j = 0; j < 4; j++) counts[j * THREADS + me] = 0;
  #pragma unroll
  for (int e = 0; e < EACH; e++) {
    k[e] = keys[gapped(me * EACH + e)];
    from[e] = first ? (unsigned int)(me * EACH + e) : order[gapped(me * EACH + e)];
    const int digit = (int)(k[e] >> shift) & 15;
    const Word word = counts[(digit & 3) * THREADS + me];
    from[e] |= (unsigned int)(word >> (digit >> 2) * 16) << 16;
    counts[(digit & 3) * THREADS + me] = word + ((Word)1 << (digit >> 2) * 16);
  }
  __syncthreads();
  Word own[4], sum = 0, total;
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    own[j] = counts[4 * me + j];
    sum += own[j];
  }
  Word ahead = sum_before<Word, THREADS / 32>(sum, warps, total);
  ahead += (total << 16) + (total << 32) + (total << 48);  // all of a lower field goes before a higher one
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    counts[4 * me + j] = ahead;
    ahead += own[j];
  }
  __syncthreads();
  #pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int digit = (int)(k[e] >> shift) & 15;
    const int to = gapped((int)(from[e] >> 16) + (int)(counts[(digit & 3) * THREADS + me] >> (digit >> 2) * 16 & 0xffff));
    keys[to] = k[e];
    order[to] = (unsigned short)from[e];
  }
  __syncthreads();
}"""
