// Carries out a launch of CUDA C on the CPU.
//
// Blocks run one after another.  A block's threads are fibers that run until they wait, at a barrier or with their warp,
// in ascending, descending or random order.  Shared memory is NaN bytes at first, with gaps between the arrays.
//
// Built with -fsanitize=thread, the compiler calls the __tsan_ functions below for each access, in place of that
// sanitizer's own run-time library.  They find accesses outside of every buffer, reads of shared memory that nobody wrote,
// and races: two accesses to a byte by different threads, one of them a write and not both atomic, with no barrier between
// (within a warp, __syncwarp will do; between blocks there is none but a fence and an atomic).  As on the device, a shuffle
// orders no memory accesses.
#define HOST_RUNTIME
#include "host.h"
#include "traffic.h"
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>
#include <vector>

namespace {
const size_t STACK = 128 * 1024, STATIC_MOST = 48 * 1024, DYNAMIC_MOST = 227 * 1024, GAP = 64;
const unsigned MANY = ~0u, OF_WARP = 1u << 31;  // several readers: of any warps; of the warp of that number
enum State { READY, WAITING, DONE };

struct Copy { void* to; unsigned char bytes[16]; int size, group; };
struct Fiber {
  jmp_buf at;
  char* stack;
  Place place;
  State state;
  bool started = false;
  Op op;
  int site, kind, argument, source, vote;
  unsigned mask;
  uint64_t in, out;
  const void* mine;
  void* all;
  std::vector<Copy> copies;
  int groups;
};
// Who touched a byte last: thread, barrier interval, block (both unique to this process' launches), moment.
struct Trace {
  unsigned writer = 0, write_epoch = 0, write_block = 0, write_tick = 0, reader = 0, read_epoch = 0, read_block = 0, read_tick = 0;
  bool atomic = false;
};
struct Buffer { uintptr_t begin, end; std::vector<Trace> traces; };
struct Array { const void* site; size_t at, bytes; };
typedef std::vector<bool> Blocks;

std::vector<Fiber> fibers;
std::vector<char*> stacks;
Fiber* current;
unsigned current_index;
jmp_buf scheduler, failure;
bool inside, checked, fenced;
char message[512];
unsigned first_block, block_number, blocks, epoch, tick, synced[32];  // synced: when the warp last passed __syncwarp
int barrier_votes;
void (*kernel)(const unsigned long long*);
const unsigned long long* words;
std::vector<Buffer> buffers;
std::vector<Array> arrays;
alignas(1024) unsigned char shared[DYNAMIC_MOST + 2 * STATIC_MOST];
std::vector<Trace> shared_traces;
size_t shared_used, shared_filled, dynamic_bytes;
uint64_t random_state;
Blocks acquired;
std::map<uintptr_t, Blocks> released;
Traffic traffic;

unsigned draw() { random_state = random_state * 6364136223846793005ull + 1442695040888963407ull; return (unsigned)(random_state >> 33); }

void fail(const char* form, ...) {
  va_list rest;
  va_start(rest, form);
  if (!message[0]) vsnprintf(message, sizeof message, form, rest);
  va_end(rest);
  inside = false;
  _longjmp(failure, 1);
}

// A fiber that has ended waits for its next thread, since making one asks the system.
void begin_thread() {
  for (;;) {
    kernel(words);
    current->state = DONE;
    if (_setjmp(current->at) == 0) _longjmp(scheduler, 1);
    current->state = READY;
  }
}

void resume(unsigned index) {
  current = &fibers[index];
  current_index = index;
  host_thread_place = current->place;
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

// What the lanes of `mask` in a warp asked for, once all of them have.
void pass_warp(unsigned first, unsigned lanes, unsigned mask) {
  Fiber* warp = &fibers[first];
  const Fiber* lead = warp + __builtin_ctz(mask);
  if (lanes < 32 && mask >> lanes) fail("threads %u to %u name lanes that their warp has not", first, first + lanes - 1);
  unsigned ballot = 0;
  for (unsigned i = 0; i < lanes; i++) if (mask >> i & 1) {
    const Fiber& f = warp[i];
    const unsigned me = first + i;
    if (f.state == DONE) fail("a shuffle or vote waits for thread %u, which has ended", me);
    if (f.state != WAITING || f.op != WARP) fail("a shuffle or vote waits for thread %u, which waits at the barrier in line %d", me, f.site);
    if (f.mask != mask) fail("thread %u names the lanes %08x where others of its warp name %08x", me, f.mask, mask);
    if (f.kind != lead->kind || f.argument != lead->argument) fail("thread %u is in another shuffle than the rest of its warp", me);
    if (f.kind <= FROM && (f.source < 0 || f.source > 31 || !(mask >> f.source & 1))) fail("a shuffle of thread %u reads lane %d", me, f.source);
    if (f.in & 1) ballot |= 1u << i;
  }
  for (unsigned i = 0; i < lanes; i++) if (mask >> i & 1) {
    Fiber& f = warp[i];
    if (f.kind <= FROM) f.out = warp[f.source].in;
    else if (f.kind == BALLOT) f.out = ballot;
    else if (f.kind == MATCH) {
      f.out = 0;
      for (unsigned j = 0; j < lanes; j++) if (mask >> j & 1 && warp[j].in == f.in) f.out |= 1ull << j;
    } else if (f.kind == GATHER) {
      for (unsigned j = 0; j < 32; j++) memcpy((char*)f.all + j * f.argument, warp[j].mine, f.argument);
    }
  }
  if (lead->kind == SYNC && mask == HOST_ALL) synced[first / 32] = ++tick;
  for (unsigned i = 0; i < lanes; i++) if (mask >> i & 1) warp[i].state = READY;
}

bool pass_warps() {
  bool any = false;
  for (unsigned first = 0; first < fibers.size(); first += 32) {
    const unsigned lanes = first + 32 < fibers.size() ? 32 : (unsigned)fibers.size() - first;
    for (unsigned i = 0; i < lanes; i++) {
      Fiber& f = fibers[first + i];
      if (f.state != WAITING || f.op != WARP) continue;
      if (!(f.mask >> i & 1)) fail("a shuffle or vote of thread %u does not name its own lane: %08x", first + i, f.mask);
      // another part of the warp may still be on its way here
      bool all = true;
      for (unsigned j = 0; j < lanes; j++) if (f.mask >> j & 1) all &= fibers[first + j].state != READY;
      if (all) { pass_warp(first, lanes, f.mask); any = true; }
    }
  }
  return any;
}

void pass_barrier() {
  unsigned ended = 0, waiting = 0;
  int line = 0;
  barrier_votes = 0;
  for (Fiber& f : fibers) {
    if (f.state == DONE) { ended++; continue; }
    if (waiting && f.site != line) fail("threads of a block wait at different barriers: lines %d and %d", line, f.site);
    line = f.site;
    barrier_votes += f.vote;
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
      if (!pass_warps()) pass_barrier();
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

// Whether what another block did there happened before this block goes on.
bool other_block(unsigned who) {
  if (!who || who == block_number + 1) return false;
  if (who == MANY) {
    for (unsigned b = 0; b < blocks; b++) if (b != block_number - first_block && !(fenced && acquired[b])) return true;
    return false;
  }
  return !(fenced && acquired[who - 1 - first_block]);
}
unsigned said(unsigned who) { return who == MANY ? MANY : who - 1 - first_block; }

void touch(uintptr_t at, size_t bytes, bool writes, bool atomic) {
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
  const char* what = atomic ? "changes atomically" : writes ? "writes" : "reads";
  const unsigned me = current_index, warp = me / 32, block = block_number - first_block;
  if (!trace) fail("thread %u of block %u %s %zu bytes out of bounds of every %s", me, block, what, bytes, is_shared ? "shared array" : "buffer");
  if (at % bytes && bytes <= 16) fail("thread %u of block %u %s %zu bytes at an address that is no multiple of them", me, block, what, bytes);
  tick++;
  for (size_t k = 0; k < bytes; k++, trace++) {
    const bool calm = atomic && trace->atomic;  // two atomics never race
    if (is_shared) {
      if ((!writes || atomic) && trace->write_block != block_number + 1) fail("thread %u of block %u reads shared memory that nobody wrote", me, block);
    } else {
      if (!calm && other_block(trace->write_block)) fail("block %u %s what block %u wrote", block, what, said(trace->write_block));
      if (writes && other_block(trace->read_block)) fail("block %u %s what block %u read", block, what, said(trace->read_block));
    }
    if (!calm && trace->write_epoch == epoch && trace->writer != me
        && (trace->writer == MANY || trace->writer / 32 != warp || trace->write_tick >= synced[warp]))
      fail("thread %u of block %u %s what thread %u wrote, with no barrier between", me, block, what, trace->writer);
    if (writes && trace->read_epoch == epoch && trace->reader != me) {
      const unsigned other = trace->reader == MANY ? MANY : trace->reader & OF_WARP ? trace->reader - OF_WARP : trace->reader / 32;
      if (other != warp || trace->read_tick >= synced[warp])
        fail("thread %u of block %u %s what thread %u read, with no barrier between", me, block, what, trace->reader);
    }
    if (writes) {
      trace->writer = calm && trace->write_epoch == epoch && trace->writer != me ? MANY : me;
      trace->write_block = calm && trace->write_block && trace->write_block != block_number + 1 ? MANY : block_number + 1;
      trace->write_epoch = epoch, trace->write_tick = tick, trace->atomic = atomic;
    } else {
      if (trace->read_epoch != epoch || trace->reader == me) trace->reader = me;
      else if (trace->reader != MANY) {
        const unsigned other = trace->reader & OF_WARP ? trace->reader - OF_WARP : trace->reader / 32;
        trace->reader = other == warp ? OF_WARP | warp : MANY;
      }
      trace->read_block = trace->read_block && trace->read_block != block_number + 1 ? MANY : block_number + 1;
      trace->read_epoch = epoch, trace->read_tick = tick;
    }
  }
}
// Tells the traffic's counters of an access from a place in the kernel's code.
void count(const void* place, uintptr_t at, size_t bytes, Access access) {
  if (at - (uintptr_t)current->stack < STACK || (at >= (uintptr_t)__ehdr_start && at < (uintptr_t)_end && at - (uintptr_t)shared >= sizeof shared)) return;
  const unsigned first = current_index / 32 * 32, lanes = std::min<unsigned>(32, (unsigned)fibers.size() - first);
  if (at - (uintptr_t)shared < sizeof shared) access = (Access)(access + SHARED_LOAD);
  traffic.see((uint64_t)place, access, current_index, lanes, at, (unsigned)bytes);
}
void look(void* at, size_t bytes, bool writes, const void* place) {
  if (inside && checked) touch((uintptr_t)at, bytes, writes, false);
  if (inside && traffic.on) count(place, (uintptr_t)at, bytes, writes ? STORE : LOAD);
}

template <class T> uint64_t change(void* at, int how, uint64_t value, uint64_t compare) {
  T old, v, c;
  memcpy(&old, at, sizeof old);
  memcpy(&v, &value, sizeof v);
  memcpy(&c, &compare, sizeof c);
  T now = v;
  if (how == ADD) now = old + v;
  if (how == MIN) now = old < v ? old : v;
  if (how == MAX) now = old > v ? old : v;
  if constexpr ((T)0.5 == (T)0) {
    if (how == AND) now = old & v;
    if (how == OR) now = old | v;
    if (how == EXCLUSIVE) now = old ^ v;
  }
  if (how == COMPARE) now = memcmp(&old, &c, sizeof old) ? old : v;
  memcpy(at, &now, sizeof now);
  uint64_t out = 0;
  memcpy(&out, &old, sizeof old);
  return out;
}

const char* run(size_t threads, const unsigned* grid, const unsigned* block, unsigned order, bool plain) {
  std::vector<unsigned> turn(blocks);
  for (unsigned b = 0; b < blocks; b++) turn[b] = order == 1 ? blocks - 1 - b : b;
  if (order > 1) for (unsigned b = blocks; b > 1; b--) std::swap(turn[b - 1], turn[draw() % b]);
  if (traffic.on && traffic.most < blocks) {  // some of them, from the first to the last
    turn.resize(traffic.most);
    for (unsigned k = 0; k < traffic.most; k++) turn[k] = traffic.most < 2 ? 0 : (unsigned)((uint64_t)k * (blocks - 1) / (traffic.most - 1));
  }
  if (_setjmp(failure)) return message;
  for (unsigned b : turn) {
    block_number = first_block + b;
    host_block_place = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
    if (plain && !checked && !traffic.on) {  // nothing waits
      current = &fibers[0];
      for (unsigned i = 0; i < threads; i++) {
        host_thread_place = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
        kernel(words);
      }
      continue;
    }
    memset(shared, 0xff, shared_filled + GAP);
    arrays.clear();
    shared_used = 0;
    epoch++;
    acquired.assign(blocks, false);
    memset(synced, 0, sizeof synced);
    for (unsigned i = 0; i < threads; i++) {
      Fiber& f = fibers[i];
      f.place = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
      f.started = f.started && f.state == DONE;  // a launch that failed left some in the middle
      f.state = READY, f.stack = stacks[i], f.groups = 0;
      f.copies.clear();
    }
    if (traffic.on) traffic.begin_block(threads);
    run_block(order);
    if (traffic.on) traffic.end_block();
  }
  return nullptr;
}
}  // namespace

extern "C" {
Place host_thread_place, host_block_place, host_block_size, host_grid_size;
Place host_thread() { return host_thread_place; }
Place host_block() { return host_block_place; }
Place host_block_dim() { return host_block_size; }
Place host_grid_dim() { return host_grid_size; }
int host_lane() { return (int)(current_index & 31); }
void host_stop(const char* what, int line) { fail("%s in line %d, thread %u of block %u", what, line, current_index, block_number - first_block); }
int host_barrier(int line, int vote) {
  current->site = line, current->vote = vote;
  wait_for(BARRIER);
  return barrier_votes;
}
uint64_t host_warp(uint64_t value, int kind, int argument, int source, unsigned mask) {
  current->in = value, current->kind = kind, current->argument = argument, current->source = source, current->mask = mask;
  wait_for(WARP);
  return current->out;
}
void host_gather(const void* mine, int bytes, void* all) {
  current->mine = mine, current->all = all;
  host_warp(0, GATHER, bytes, 0, HOST_ALL);
}
static void* array(const void* site, size_t bytes, size_t align) {
  for (const Array& a : arrays)
    if (a.site == site) return shared + a.at;
  const size_t at = (shared_used + GAP + align - 1) / align * align;
  if (at + bytes > sizeof shared) fail("a block asks for %zu bytes of shared memory", bytes);
  arrays.push_back({site, at, bytes});
  shared_used = at + bytes;
  if (shared_used > shared_filled) {  // a kernel's first block finds out how much there is
    memset(shared + shared_filled, 0xff, shared_used + GAP > sizeof shared ? sizeof shared - shared_filled : shared_used + GAP - shared_filled);
    shared_filled = shared_used + GAP > sizeof shared ? sizeof shared - GAP : shared_used;
  }
  return shared + at;
}
void* host_shared(const void* site, size_t bytes, size_t align) {
  void* at = array(site, bytes, align < 16 ? 16 : align);
  size_t sum = 0;
  for (const Array& a : arrays) sum += a.site == &dynamic_bytes ? 0 : a.bytes;
  if (sum > STATIC_MOST) fail("a block asks for %zu bytes of shared memory; more than %zu must be dynamic", sum, STATIC_MOST);
  return at;
}
void* host_dynamic() { return array(&dynamic_bytes, dynamic_bytes, 1024); }

uint64_t host_atomic(void* at, int bytes, int how, int number, uint64_t value, uint64_t compare) {
  if (inside && traffic.on) count(__builtin_return_address(0), (uintptr_t)at, (size_t)bytes, CHANGE);
  if (inside && checked) {
    touch((uintptr_t)at, (size_t)bytes, true, true);
    if (fenced) {
      // what a block did before its fence and its atomic here, others that come here later may see
      Blocks& before = released[(uintptr_t)at];
      before.resize(blocks);
      acquired[block_number - first_block] = true;
      for (unsigned b = 0; b < blocks; b++) acquired[b] = before[b] = before[b] || acquired[b];
    }
  }
  if (number == FLOATING) return bytes == 4 ? change<float>(at, how, value, compare) : change<double>(at, how, value, compare);
  if (bytes == 2) return change<unsigned short>(at, how, value, compare);
  if (number == SIGNED) return bytes == 4 ? change<int>(at, how, value, compare) : change<long long>(at, how, value, compare);
  return bytes == 4 ? change<unsigned>(at, how, value, compare) : change<unsigned long long>(at, how, value, compare);
}
void host_fence() { fenced = true; }

void host_copy_async(void* to, const void* from, int bytes, int filled) {
  if ((uintptr_t)to % (unsigned)bytes || (uintptr_t)from % (unsigned)bytes) fail("thread %u copies %d bytes at an address that is no multiple of them", current_index, bytes);
  Copy c = {to, {}, bytes, current->groups};
  if (inside && traffic.on) {
    count(__builtin_return_address(0), (uintptr_t)from, (size_t)bytes, LOAD);
    count(__builtin_return_address(0), (uintptr_t)to, (size_t)bytes, STORE);
  }
  if (filled) {
    if (inside && checked) for (int k = 0; k < filled; k++) touch((uintptr_t)from + k, 1, false, false);
    memcpy(c.bytes, from, (size_t)filled);
  }
  current->copies.push_back(c);
}
void host_copy_commit() { current->groups++; }
void host_copy_wait(int left) {
  std::vector<Copy> later;
  for (const Copy& c : current->copies) {
    if (c.group >= current->groups - left) { later.push_back(c); continue; }
    if (inside && checked) touch((uintptr_t)c.to, (size_t)c.size, true, false);
    memcpy(c.to, c.bytes, (size_t)c.size);
  }
  current->copies.swap(later);
}

// Launches `fn`; buffers: (address, bytes) pairs; order: 0 ascending, 1 descending, else the seed of a random one; shared:
// bytes of dynamic shared memory; plain: no thread waits for another.  Gives what went wrong, or null.
const char* host_launch(void (*fn)(const unsigned long long*), const unsigned long long* parameter, const unsigned* grid, const unsigned* block,
                        const uint64_t* memory, int memories, unsigned order, int check, unsigned dynamic, int plain) {
  const size_t threads = (size_t)block[0] * block[1] * block[2];
  message[0] = 0;
  kernel = fn, words = parameter, checked = check, fenced = false, random_state = order, dynamic_bytes = dynamic;
  first_block += blocks;  // numbers that no earlier launch had
  blocks = grid[0] * grid[1] * grid[2];
  buffers.clear();
  released.clear();
  for (int k = 0; k < memories; k++) {
    buffers.push_back({memory[2 * k], memory[2 * k] + memory[2 * k + 1], {}});
    if (check) buffers.back().traces.resize(memory[2 * k + 1]);
  }
  if (threads == 0 || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 || !grid[0] || !grid[1] || !grid[2]) return "a launch of impossible size";
  if (dynamic > DYNAMIC_MOST) return "a launch with more shared memory than there is";
  while (stacks.size() < threads) stacks.push_back((char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  fibers.resize(threads);
  if (check && shared_traces.empty()) shared_traces.resize(sizeof shared);
  host_block_size = {block[0], block[1], block[2]};
  host_grid_size = {grid[0], grid[1], grid[2]};
  shared_filled = 0;
  return run(threads, grid, block, order, plain);
}

// From now on launches count their traffic, and do `blocks` of their blocks at most; 0: no more of that.
void host_count(unsigned blocks) { traffic.begin(blocks > 0, blocks); }
// What was counted, six numbers for each place in the code, and the sectors that one block touched and that several did, and the reads of
// the busiest thread; gives how many places there are.
int host_counted(uint64_t* to, int room, uint64_t* sectors) {
  sectors[0] = traffic.alone, sectors[1] = traffic.common, sectors[2] = traffic.longest;
  const int n = std::min(room, (int)traffic.sites.size());
  if (n > 0) memcpy(to, traffic.sites.data(), (size_t)n * sizeof(Site));
  return (int)traffic.sites.size();
}

// Says what a launch gave where nobody asks for the message; gives whether it was an error.
int host_tell(const char* kernel, const char* error) {
  if (error) fprintf(stderr, "%s: %s\n", kernel, error);
  return error != nullptr;
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
#define HOOKS(N) \
  void __tsan_read##N(void* p) { look(p, N, false, __builtin_return_address(0)); } \
  void __tsan_write##N(void* p) { look(p, N, true, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##N(void* p) { look(p, N, false, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##N(void* p) { look(p, N, true, __builtin_return_address(0)); } \
  void __tsan_volatile_read##N(void* p) { look(p, N, false, __builtin_return_address(0)); } \
  void __tsan_volatile_write##N(void* p) { look(p, N, true, __builtin_return_address(0)); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { look(p, n, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, unsigned long n) { look(p, n, true, __builtin_return_address(0)); }
}
