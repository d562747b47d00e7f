// Carries out a launch of generated CUDA C on the CPU.
//
// Blocks run one after another.  A block's threads are fibers that run until they wait, at __syncthreads or in a shuffle,
// in ascending, descending or random order.  Shared memory is NaN bytes at first, with gaps between the arrays.
//
// Built with -fsanitize=thread, the compiler calls the __tsan_ functions below for each access, in place of that
// sanitizer's own run-time library.  They find accesses outside of every buffer, reads of shared memory that nobody wrote,
// and races: two accesses to a byte by different threads, one of them a write, with no barrier between (between blocks
// there is none at all).  As on the device, a shuffle orders no memory accesses.
#include "host.h"
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace {
const size_t STACK = 128 * 1024, SHARED_MOST = 48 * 1024, GAP = 64;
const unsigned MANY = ~0u;
enum State { READY, WAITING, DONE };

struct Fiber {
  jmp_buf at;
  char* stack;
  Place place;
  State state;
  bool started;
  Op op;
  int site, kind, argument;
  unsigned mask;
  uint64_t in, out;
};
// Who touched a byte last: thread, barrier interval (unique to a block), block.
struct Trace { unsigned writer = 0, write_epoch = 0, write_block = 0, reader = 0, read_epoch = 0, read_block = 0; };
struct Buffer { uintptr_t begin, end; std::vector<Trace> traces; };
struct Array { int site; size_t at, bytes; };

std::vector<Fiber> fibers;
std::vector<char*> stacks;
Fiber* current;
unsigned current_index;
jmp_buf scheduler, failure;
bool inside, checked;
char message[512];
Place block_place;
unsigned block_number, epoch;
void (*kernel)(const unsigned long long*);
const unsigned long long* words;
std::vector<Buffer> buffers;
std::vector<Array> arrays;
alignas(256) unsigned char shared[2 * SHARED_MOST];
std::vector<Trace> shared_traces;
size_t shared_used;
uint64_t random_state;

unsigned draw() { random_state = random_state * 6364136223846793005ull + 1442695040888963407ull; return (unsigned)(random_state >> 33); }

void fail(const char* form, ...) {
  va_list rest;
  va_start(rest, form);
  if (!message[0]) vsnprintf(message, sizeof message, form, rest);
  va_end(rest);
  inside = false;
  _longjmp(failure, 1);
}

void begin_thread() {
  kernel(words);
  current->state = DONE;
  _longjmp(scheduler, 1);
}

void resume(unsigned index) {
  current = &fibers[index];
  current_index = index;
  if (_setjmp(scheduler) == 0) {
    inside = true;
    if (current->started) _longjmp(current->at, 1);
    current->started = true;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = current->stack;
    start.uc_stack.ss_size = STACK;
    start.uc_link = nullptr;
    makecontext(&start, begin_thread, 0);
    setcontext(&start);
  }
  inside = false;
}

void wait_for(Op op) {
  inside = false;
  current->op = op;
  current->state = WAITING;
  if (_setjmp(current->at) == 0) _longjmp(scheduler, 1);
  inside = true;
}

// Lets a warp's threads go on whose shuffle all of them have reached.
bool shuffle_warp(unsigned first) {
  const unsigned last = first + 32 < fibers.size() ? first + 32 : (unsigned)fibers.size();
  unsigned arrived = 0;
  for (unsigned i = first; i < last; i++) arrived += fibers[i].state == WAITING && fibers[i].op == SHUFFLE;
  if (!arrived) return false;
  for (unsigned i = first; i < last; i++) {
    Fiber& f = fibers[i];
    if (f.state == DONE) fail("a shuffle waits for thread %u, which has ended", i);
    if (f.state != WAITING || f.op != SHUFFLE) fail("a shuffle waits for thread %u, which waits at the barrier in line %d", i, f.site);
    if (f.mask != 0xffffffffu || last - first != 32) fail("a shuffle of thread %u does not name the whole warp", i);
    if (f.kind != fibers[first].kind || f.argument != fibers[first].argument) fail("thread %u is in another shuffle than the rest of its warp", i);
  }
  for (unsigned i = first; i < last; i++) {
    Fiber& f = fibers[i];
    const int lane = (int)(i - first);
    int from = f.kind == XOR ? lane ^ f.argument : f.kind == UP ? lane - f.argument : f.argument;
    if (from < 0) from = lane;
    if (from > 31) fail("a shuffle of thread %u reads lane %d", i, from);
    f.out = fibers[first + (unsigned)from].in;
  }
  for (unsigned i = first; i < last; i++) fibers[i].state = READY;
  return true;
}

void pass_barrier() {
  unsigned ended = 0, waiting = 0;
  int line = 0;
  for (Fiber& f : fibers) {
    if (f.state == DONE) { ended++; continue; }
    if (waiting && f.site != line) fail("threads of a block wait at different barriers: lines %d and %d", line, f.site);
    line = f.site;
    waiting++;
  }
  if (ended) fail("%u threads wait at the barrier in line %d for %u that have ended", waiting, line, ended);
  epoch++;
  for (Fiber& f : fibers) f.state = READY;
}

void run_block(unsigned order) {
  std::vector<unsigned> ready;
  for (;;) {
    ready.clear();
    unsigned ended = 0;
    for (unsigned i = 0; i < fibers.size(); i++) {
      if (fibers[i].state == READY) ready.push_back(i);
      ended += fibers[i].state == DONE;
    }
    if (ready.empty()) {
      if (ended == fibers.size()) return;
      bool any = false;
      for (unsigned first = 0; first < fibers.size(); first += 32) any |= shuffle_warp(first);
      if (!any) pass_barrier();
      continue;
    }
    const size_t n = ready.size();
    if (order == 1) for (size_t i = 0; i < n / 2; i++) std::swap(ready[i], ready[n - 1 - i]);
    if (order > 1) for (size_t i = n; i > 1; i--) std::swap(ready[i - 1], ready[draw() % i]);
    for (unsigned i : ready) resume(i);
  }
}

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

void touch(uintptr_t at, size_t bytes, bool writes) {
  if (!inside || !checked) return;
  const uintptr_t stack = (uintptr_t)current->stack;
  if (at - stack < STACK) return;
  Trace* trace = nullptr;
  bool is_shared = false;
  const uintptr_t base = (uintptr_t)shared;
  if (at - base < sizeof shared) {
    is_shared = true;
    for (const Array& a : arrays)
      if (at - base >= a.at && at - base + bytes <= a.at + a.bytes) trace = &shared_traces[at - base];
  } else {
    for (Buffer& b : buffers)
      if (at >= b.begin && at + bytes <= b.end) trace = &b.traces[at - b.begin];
    if (!trace && !writes && at >= (uintptr_t)__ehdr_start && at < (uintptr_t)_end) return;  // constants
  }
  const char* what = writes ? "writes" : "reads";
  if (!trace) fail("thread %u of block %u %s %zu bytes out of bounds of every %s", current_index, block_number, what, bytes, is_shared ? "shared array" : "buffer");
  if (at % bytes && bytes <= 16) fail("thread %u of block %u %s %zu bytes at an address that is no multiple of them", current_index, block_number, what, bytes);
  const unsigned me = current_index;
  for (size_t k = 0; k < bytes; k++, trace++) {
    if (is_shared) {
      if (!writes && trace->write_block != block_number + 1) fail("thread %u of block %u reads shared memory that nobody wrote", me, block_number);
    } else {
      if (trace->write_block && trace->write_block != block_number + 1)
        fail("block %u %s what block %u wrote", block_number, what, trace->write_block - 1);
      if (writes && trace->read_block && trace->read_block != block_number + 1)
        fail("block %u writes what block %u read", block_number, trace->read_block - 1);
    }
    if (trace->write_epoch == epoch && trace->writer != me) fail("thread %u of block %u %s what thread %u wrote, with no barrier between", me, block_number, what, trace->writer);
    if (writes && trace->read_epoch == epoch && trace->reader != me) fail("thread %u of block %u writes what thread %u read, with no barrier between", me, block_number, trace->reader);
    if (writes) {
      trace->writer = me, trace->write_epoch = epoch, trace->write_block = block_number + 1;
    } else {
      trace->reader = trace->read_epoch == epoch && trace->reader != me ? MANY : me;
      trace->read_block = trace->read_block && trace->read_block != block_number + 1 ? MANY : block_number + 1;
      trace->read_epoch = epoch;
    }
  }
}
}  // namespace

extern "C" {
Place host_thread() { return current->place; }
Place host_block() { return block_place; }
void host_barrier(int line) { current->site = line; wait_for(BARRIER); }
uint64_t host_shuffle(uint64_t value, int kind, int argument, unsigned mask) {
  current->in = value, current->kind = kind, current->argument = argument, current->mask = mask;
  wait_for(SHUFFLE);
  return current->out;
}
void* host_shared(int site, size_t bytes) {
  for (const Array& a : arrays)
    if (a.site == site) return shared + a.at;
  const size_t at = (shared_used + GAP + 15) / 16 * 16;
  arrays.push_back({site, at, bytes});
  shared_used = at + bytes;
  size_t sum = 0;
  for (const Array& a : arrays) sum += a.bytes;
  if (sum > SHARED_MOST || shared_used > sizeof shared) fail("a block asks for %zu bytes of shared memory", sum);
  return shared + at;
}

// Launches `fn`; buffers: (address, bytes) pairs; order: 0 ascending, 1 descending, else the seed of a random one.
// Gives what went wrong, or null.
const char* host_launch(void (*fn)(const unsigned long long*), const unsigned long long* parameter, const unsigned* grid, const unsigned* block,
                        const uint64_t* memory, int memories, unsigned order, int check) {
  const size_t threads = (size_t)block[0] * block[1] * block[2];
  message[0] = 0;
  kernel = fn, words = parameter, checked = check, epoch = 0, random_state = order;
  buffers.clear();
  for (int k = 0; k < memories; k++) {
    buffers.push_back({memory[2 * k], memory[2 * k] + memory[2 * k + 1], {}});
    if (check) buffers.back().traces.resize(memory[2 * k + 1]);
  }
  if (threads == 0 || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 || !grid[0] || !grid[1] || !grid[2]) return "a launch of impossible size";
  while (stacks.size() < threads) stacks.push_back((char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fibers.resize(threads);
  shared_traces.assign(check ? sizeof shared : 0, Trace());
  if (_setjmp(failure)) return message;
  const unsigned blocks = grid[0] * grid[1] * grid[2];
  std::vector<unsigned> turn(blocks);
  for (unsigned b = 0; b < blocks; b++) turn[b] = order == 1 ? blocks - 1 - b : b;
  if (order > 1) for (unsigned b = blocks; b > 1; b--) std::swap(turn[b - 1], turn[draw() % b]);
  for (unsigned b : turn) {
    block_number = b;
    block_place = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
    memset(shared, 0xff, shared_used + GAP);
    arrays.clear();
    shared_used = 0;
    epoch++;
    for (unsigned i = 0; i < threads; i++) {
      Fiber& f = fibers[i];
      f.place = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
      f.state = READY, f.started = false, f.stack = stacks[i];
    }
    run_block(order);
  }
  return nullptr;
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
#define HOOKS(N) \
  void __tsan_read##N(void* p) { touch((uintptr_t)p, N, false); } \
  void __tsan_write##N(void* p) { touch((uintptr_t)p, N, true); } \
  void __tsan_unaligned_read##N(void* p) { touch((uintptr_t)p, N, false); } \
  void __tsan_unaligned_write##N(void* p) { touch((uintptr_t)p, N, true); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { touch((uintptr_t)p, n, false); }
void __tsan_write_range(void* p, unsigned long n) { touch((uintptr_t)p, n, true); }
}
