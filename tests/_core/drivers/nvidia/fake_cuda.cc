// A stand-in for NVIDIA's libcuda.so.1: the calls of the driver API that Flambeau makes, on host memory.
//
// Where it can tell, it refuses what hardware refuses: a kernel of another architecture, more threads than it was compiled for, an
// address that the GPU does not see, streams and events that are no more. Streams are real queues. In "lazy" order nothing runs until somebody waits for it, in "random" order bits of it run now
// and then, so that a missing wait shows. Device memory cannot be touched by the host except while queued work runs: a
// program that reads it directly dies as it would read rubbish on hardware. Calls can be told to fail.
//
// A module's image is "FAKECUDA:", the architecture, ":" and the path of a shared object made by host_kernels.py from the CUDA C.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>
#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifdef FAKE_NVML  // the management library, as its own shared object
static int gpus() { const char *text = getenv("FAKE_GPUS"); return text ? atoi(text) : 2; }
EXPORT int nvmlInit_v2() { return getenv("FAKE_NVML_BROKEN") ? 9 : 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned *n) { *n = gpus(); return 0; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(uintptr_t)(i + 1); return 0; }
EXPORT int nvmlDeviceGetUUID(void *h, char *text, unsigned n) {
  snprintf(text, n, "GPU-%02x070707-0707-0707-0707-070707070707", (unsigned)(uintptr_t)h - 1);
  return 0;
}
#else

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY_FOR_GPU = 209,
       INVALID_CONTEXT = 201, PEER_UNSUPPORTED = 217, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
       OUT_OF_RESOURCES = 701, PEER_ENABLED = 704, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904,
       CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907 };
typedef int (*Run)(const void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned);

struct Function { Run run; unsigned shared = 48 << 10; unsigned threads = 1024; };  // the most dynamic shared memory, until more is asked for
struct Kernel { std::pair<Function, int> *function; unsigned size[7]; std::string params; };  // size: grid, block, shared bytes
struct Graph;
struct Node { std::function<int()> run; std::shared_ptr<Kernel> kernel; Node *before = nullptr; std::string told; };  // told: a kernel's parameters, for who asks
struct Stream;
struct Graph { std::vector<std::unique_ptr<Node>> nodes; Stream *origin = nullptr; std::set<Stream *> streams; int broken = 0; bool open = true; };
struct Event { unsigned long long recorded = 0, done = 0; double time = 0; bool timing = true, sleeps = false; int device = 0;
               Graph *graph = nullptr; Node *at = nullptr; Stream *stream = nullptr; };  // graph: it was recorded in a capture, `at` there
struct Item { std::function<int()> run; Event *wait = nullptr; unsigned long long ticket = 0; std::function<int()> poll; };  // poll: below 0, not yet
struct Stream { std::deque<Item> items; int device; Graph *graph = nullptr; Node *last = nullptr; bool apart = false; };  // apart: its captured work is not joined
struct Ready { std::vector<std::pair<std::function<int()>, std::shared_ptr<Kernel>>> steps; std::map<Node *, size_t> places; };  // a graph to launch
struct Device {
  char *low = nullptr;
  size_t span = 0, used = 0;
  std::map<char *, size_t> blocks;
  std::vector<Stream *> streams;
  int sticky = 0;
  std::set<int> peers;
  std::map<char *, void *> unready;  // taken from the pool in a stream that has not got there yet
  std::set<char *> pooled;
  size_t kept = 0;  // of `used`: given back to the pool, which has not given it to the system
  char context = 0;
};

static std::recursive_mutex mutex;
static thread_local int held = 0;
struct Guard {
  explicit Guard(std::recursive_mutex &) { mutex.lock(); held++; }
  ~Guard() { held--; mutex.unlock(); }
};
static int polls = 0;  // queued items that wait for other processes
static void breathe() {  // the program's other threads may call meanwhile
  int n = held;
  for (int i = 0; i < n; i++) mutex.unlock();
  usleep(100);
  for (int i = 0; i < n; i++) mutex.lock();
}
static std::vector<Device> devices;
static pid_t owner = 0;
static int mode = 0;  // 0 eager, 1 lazy, 2 random
static size_t capacity = 256u << 20;
static unsigned seed = 1;
static bool peer_allowed = true;
static int version = 13000;
static std::string fail_name;
static long fail_after = 0;
static int fail_code = 0;
static long calls = 0, launched = 0, slept = 0;  // slept: waits for events whose waiters sleep
static std::map<char *, size_t> pinned;
static thread_local int current = -1;

static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }

static const ptrdiff_t HUGE_PAGE = 2 << 20;
struct Open {  // device memory can be touched while one of these lives
  static inline int depth = 0;
  Open() { if (depth++ == 0) protect(PROT_READ | PROT_WRITE); }
  ~Open() { if (--depth == 0) protect(PROT_NONE); }
  static void protect(int how) { for (auto &d : devices) if (d.low && !d.blocks.empty()) {
    char *end = d.blocks.rbegin()->first + d.blocks.rbegin()->second;
    mprotect(d.low, ((end - d.low) + HUGE_PAGE - 1) & -HUGE_PAGE, how); } }  // whole pages of the large kind, or they would be split
};

struct Pool { int device; uint64_t threshold = 0; std::set<int> reached; };
static std::vector<Pool *> pools;
static long pool_calls[4];  // taken, given back, trimmed, reached by a peer
static bool has_pools = getenv("FAKE_NO_POOLS") == nullptr;

static int start_call(const char *name) {
  calls++;
  if (!owner || getpid() != owner) return NOT_INITIALIZED;
  if (fail_code && fail_name == name && fail_after-- <= 0) {
    int code = fail_code;
    fail_code = 0;
    if (code >= ILLEGAL_ADDRESS && code != PEER_ENABLED && (code < 800 || code == 999) && current >= 0) devices[current].sticky = code;
    return code;
  }
  return OK;
}
#define CALL Guard guard(mutex); if (int code = start_call(__func__)) return code
#define IN_CONTEXT CALL; if (current < 0) return INVALID_CONTEXT; Device &d = devices[current]; if (d.sticky) return d.sticky

// ---------------------------------------------------------------------------------------------------------------- the queues
static bool step(Stream *s) {
  if (s->items.empty()) return false;
  Item &front = s->items.front();
  if (front.wait && front.wait->done < front.ticket) return false;
  if (front.poll) {
    int code = 0;
    if (!devices[s->device].sticky) { Open open; code = front.poll(); }
    if (code < 0) return false;
    if (code) devices[s->device].sticky = code;
    s->items.pop_front();
    polls--;
    return true;
  }
  Item item = std::move(front);
  s->items.pop_front();
  if (item.run && !devices[s->device].sticky) {
    Open open;
    if (int code = item.run()) devices[s->device].sticky = code;
  }
  return true;
}
static bool step_any(Stream *but = nullptr) {
  std::vector<Stream *> all;
  for (auto &d : devices) for (auto *s : d.streams) if (s != but) all.push_back(s);
  if (all.empty()) return false;
  size_t from = rand_r(&seed) % all.size();
  for (size_t i = 0; i < all.size(); i++) if (step(all[(from + i) % all.size()])) return true;
  return false;
}
static void drain(Stream *s) {
  while (!s->items.empty()) if (!step(s) && !step_any(s)) {
    if (!polls) { fprintf(stderr, "fake libcuda: streams wait for each other\n"); abort(); }
    breathe();
  }
}
static Node *captured(Stream *s, std::function<int()> run, std::shared_ptr<Kernel> kernel = nullptr) {
  auto *made = new Node{std::move(run), std::move(kernel), s->last};
  s->graph->nodes.emplace_back(made);
  s->last = made;
  s->apart = s != s->graph->origin;
  return made;
}
static void push(Stream *s, Item item) {
  if (s->graph) { captured(s, std::move(item.run)); return; }
  s->items.push_back(std::move(item));
  if (mode == 0) { if (polls) while (step(s) || step_any(s)) {} else drain(s); }
  else if (mode == 2) while (rand_r(&seed) % 2 && step_any()) {}
}
static int device_of(const void *p) {
  for (size_t i = 0; i < devices.size(); i++) if ((char *)p >= devices[i].low && (char *)p < devices[i].low + devices[i].span) return (int)i;
  return -1;
}
static bool ready(const void *p, Device &d, void *stream) {  // whether a stream may use the block
  auto i = d.blocks.upper_bound((char *)p);
  if (i == d.blocks.begin()) return true;
  auto waits = d.unready.find((--i)->first);
  return waits == d.unready.end() || waits->second == stream;
}
static bool inside(const void *p, size_t n, std::map<char *, size_t> &blocks) {
  auto i = blocks.upper_bound((char *)p);
  if (i == blocks.begin()) return false;
  --i;
  return (char *)p + n <= i->first + i->second;
}

// -------------------------------------------------------------------------------------------------------- for the tests' use
EXPORT void fake_configure(int order, size_t memory, unsigned random, int peer, int cuda) {
  mode = order; capacity = memory; seed = random; peer_allowed = peer; version = cuda;
}
EXPORT void fake_fail(const char *name, long after, int code) { Guard g(mutex); fail_name = name; fail_after = after; fail_code = code; }
// Lets the program itself touch device memory, from now on or no more.
EXPORT void fake_open(int open) {
  Guard g(mutex);
  static Open *held = nullptr;
  if (open && !held) held = new Open;
  else if (!open && held) { delete held; held = nullptr; }
}
EXPORT long fake_count(int what) { return what == 0 ? calls : what == 1 ? launched : what == 2 ? (long)devices[0].used : what < 8 ? pool_calls[what - 4] : what == 9 ? slept : (long)devices[0].kept; }
EXPORT int fake_enqueue(void *stream, int (*f)(void *), void *with) {  // the fake library of products
  Guard g(mutex);
  if (current < 0) return INVALID_CONTEXT;
  if (mode == 3) return OK;  // for timing the host
  Item item;
  item.run = [f, with] { return f(with); };
  push((Stream *)stream, std::move(item));
  return OK;
}
EXPORT int fake_poll(void *stream, int (*f)(void *), void *with) {  // what waits for other processes: f gives -1 until it is done
  Guard g(mutex);
  if (mode == 3) return OK;
  if (((Stream *)stream)->graph) return CAPTURE_UNSUPPORTED;
  Item item;
  item.poll = [f, with] { return f(with); };
  polls++;
  push((Stream *)stream, std::move(item));
  return OK;
}
static int keeps = 0;
EXPORT int fake_keeps() { return keeps; }  // whether what is being done is part of a graph, and will be done again
EXPORT int fake_device_of(const void *p);
EXPORT int fake_current(int number);
EXPORT int fake_stream_device(void *s);

// ------------------------------------------------------------------------------------------------------------------- devices
static std::vector<int> physical;
static std::vector<int> visible(int n) {  // CUDA_VISIBLE_DEVICES: numbers or starts of identities; the first that is wrong ends the list
  std::vector<int> found;
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  if (!text) { for (int i = 0; i < n; i++) found.push_back(i); return found; }
  for (std::string rest = text;;) {
    std::string one = rest.substr(0, rest.find(','));
    while (!one.empty() && one[0] == ' ') one.erase(0, 1);
    int at = -1;
    if (one.rfind("GPU-", 0) == 0) {
      for (int i = 0; i < n; i++) {
        char id[48];
        snprintf(id, sizeof id, "GPU-%02x070707-0707-0707-0707-070707070707", i);
        if (one.size() > 4 && std::string(id).rfind(one, 0) == 0) at = at == -1 ? i : -2;
      }
    } else if (!one.empty() && isdigit(one[0])) at = atoi(one.c_str());
    if (at < 0 || at >= n) return found;
    if (std::find(found.begin(), found.end(), at) != found.end()) return {};
    found.push_back(at);
    if (rest.find(',') == std::string::npos) return found;
    rest = rest.substr(rest.find(',') + 1);
  }
}
EXPORT int fake_device_of(const void *p) { Guard g(mutex); return device_of(p); }
EXPORT int fake_current(int number) { Guard g(mutex); return current < 0 ? -1 : number ? physical[current] : current; }  // of the machine, or of the program
EXPORT int cuInit(unsigned) {
  Guard g(mutex);
  if (const char *text = getenv("FAKE_INIT")) return atoi(text);
  if (owner) return getpid() == owner ? OK : NOT_INITIALIZED;
  const char *text = getenv("FAKE_GPUS");
  physical = visible(text ? atoi(text) : 2);
  if (physical.empty()) return NO_DEVICE;
  owner = getpid();
  devices = std::vector<Device>(physical.size());
  for (auto &d : devices) {
    d.span = 2 * capacity + (64 << 20);
    d.low = (char *)mmap(nullptr, d.span + (2 << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    d.low = (char *)(((uintptr_t)d.low + HUGE_PAGE - 1) & -(uintptr_t)HUGE_PAGE);
    madvise(d.low, d.span, MADV_HUGEPAGE);  // each launch opens the memory and closes it, which takes its time by the page
  }
  return OK;
}
EXPORT int cuDriverGetVersion(int *v) { *v = version; return OK; }
EXPORT int cuDeviceGetCount(int *n) { CALL; *n = (int)devices.size(); return OK; }
EXPORT int cuDeviceGet(int *d, int i) { CALL; if (i < 0 || i >= (int)devices.size()) return INVALID_DEVICE; *d = i; return OK; }
EXPORT int cuDeviceGetName(char *s, int n, int) { CALL; snprintf(s, n, "Fake H200"); return OK; }
EXPORT int cuDeviceGetUuid_v2(unsigned char *u, int d) { CALL; memset(u, 7, 16); u[0] = (unsigned char)physical[d]; return OK; }
EXPORT int cuDeviceTotalMem_v2(size_t *b, int) { CALL; *b = capacity; return OK; }
EXPORT int cuDeviceGetAttribute(int *v, int what, int d) {
  CALL;
  static const std::map<int, int> known = {{75, 9}, {76, 0}, {16, 132}, {10, 32}, {39, 2048}, {82, 65536}, {8, 49152}, {81, 233472}, {97, 232448},
                                           {38, 50 << 20}, {18, 0}, {84, 0}, {34, 0}, {50, 0}, {1, 1024}};
  auto i = known.find(what);
  if (what != 33 && what != 115 && i == known.end()) return INVALID_VALUE;  // one that nobody has given a value here
  *v = what == 33 ? d + 1 : what == 115 ? has_pools : i->second;
  return OK;
}
EXPORT int cuDevicePrimaryCtxRetain(void **c, int d) { CALL; *c = &devices[d].context; return OK; }
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { CALL; return OK; }
EXPORT int cuCtxSetCurrent(void *c) {
  current = -1;  // whatever befell the context that was
  CALL;
  for (size_t i = 0; i < devices.size(); i++) if (c == &devices[i].context) current = (int)i;
  return c && current < 0 ? INVALID_CONTEXT : OK;
}
EXPORT int cuCtxGetCurrent(void **c) { CALL; *c = current < 0 ? nullptr : &devices[current].context; return OK; }
EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) { IN_CONTEXT; *least = 0; *greatest = -5; return OK; }
static int refuse(Graph *g, int code) { g->broken = CAPTURE_INVALIDATED; return code; }  // the capture is given up
EXPORT int cuCtxSynchronize() { IN_CONTEXT; for (auto *s : d.streams) if (s->graph) return refuse(s->graph, CAPTURE_UNSUPPORTED); for (auto *s : std::vector<Stream *>(d.streams)) drain(s); return d.sticky; }
EXPORT int cuDeviceCanAccessPeer(int *can, int a, int b) { CALL; *can = peer_allowed && a != b; return OK; }
EXPORT int cuCtxEnablePeerAccess(void *c, unsigned) {
  IN_CONTEXT;
  if (!peer_allowed) return PEER_UNSUPPORTED;
  int other = -1;
  for (size_t i = 0; i < devices.size(); i++) if (c == &devices[i].context) other = (int)i;
  if (other < 0 || other == current) return INVALID_CONTEXT;
  return d.peers.insert(other).second ? OK : PEER_ENABLED;
}

// -------------------------------------------------------------------------------------------------------------------- memory
static char *place(Device &d, size_t size) {
  char *at = d.low;
  for (auto &b : d.blocks) { if (at + size <= b.first) break; at = b.first + b.second; }
  return at + size > d.low + d.span ? nullptr : at;
}
static void open_block(Device &d, char *at, size_t size) {
  d.blocks[at] = size;
  Open open;
  if (Open::depth > 1) Open::protect(PROT_READ | PROT_WRITE);
  memset(at, 0xff, std::min(size, (size_t)1 << 20));  // floats start as NaN
}
static void close_block(Device &d, char *at) {
  size_t size = d.blocks[at];
  madvise(at, size, MADV_DONTNEED);
  d.blocks.erase(at);
}
EXPORT int cuMemPoolCreate(void **p, const int *props) {
  IN_CONTEXT;
  if (!has_pools || props[0] != 1 || props[2] != 1 || props[3] != current) return INVALID_VALUE;
  pools.push_back(new Pool{current});
  *p = pools.back();
  return OK;
}
EXPORT int cuMemPoolSetAttribute(void *p, int what, void *v) {
  IN_CONTEXT;
  if (what != 4) return INVALID_VALUE;
  ((Pool *)p)->threshold = *(uint64_t *)v;
  return OK;
}
EXPORT int cuMemPoolSetAccess(void *p, const int *access, size_t n) {
  IN_CONTEXT;
  if (n != 1 || access[0] != 1 || access[2] != 3 || access[1] == ((Pool *)p)->device) return INVALID_VALUE;
  ((Pool *)p)->reached.insert(access[1]);
  pool_calls[3]++;
  return OK;
}
EXPORT int cuMemPoolTrimTo(void *p, size_t keep) {
  IN_CONTEXT;
  Device &own = devices[((Pool *)p)->device];
  size_t go = own.kept > keep ? own.kept - keep : 0;
  own.kept -= go;
  own.used -= go;
  pool_calls[2]++;
  return OK;
}
EXPORT int cuMemAllocFromPoolAsync(uint64_t *p, size_t n, void *pool, void *s) {
  IN_CONTEXT;
  if (!n || ((Pool *)pool)->device != current || ((Pool *)pool)->threshold != ~0ull) return INVALID_VALUE;
  size_t size = (n + 4095) & ~4095ull, more = size > d.kept ? size - d.kept : 0;
  if (d.used + more > capacity) return OUT_OF_MEMORY;
  char *at = place(d, size);
  if (!at) return OUT_OF_MEMORY;
  d.used += more;
  d.kept -= size - more;
  open_block(d, at, size);
  d.unready[at] = s;
  d.pooled.insert(at);
  pool_calls[0]++;
  *p = (uint64_t)at;
  Item item;
  Device *own = &d;
  item.run = [=] { own->unready.erase(at); return 0; };
  push((Stream *)s, std::move(item));
  return OK;
}
EXPORT int cuMemFreeAsync(uint64_t p, void *s) {
  IN_CONTEXT;
  char *at = (char *)p;
  if (!d.pooled.count(at)) return INVALID_VALUE;
  pool_calls[1]++;
  Item item;
  Device *own = &d;
  item.run = [=] { own->kept += own->blocks[at]; own->pooled.erase(at); close_block(*own, at); return 0; };
  push((Stream *)s, std::move(item));
  return OK;
}
EXPORT int cuMemGetInfo_v2(size_t *free, size_t *total) { IN_CONTEXT; *free = capacity - d.used; *total = capacity; return OK; }
EXPORT int cuMemAlloc_v2(uint64_t *p, size_t n) {
  IN_CONTEXT;
  if (!n) return INVALID_VALUE;
  size_t size = (n + 4095) & ~4095ull;
  if (d.used + size > capacity) return OUT_OF_MEMORY;
  char *at = place(d, size);
  if (!at) return OUT_OF_MEMORY;
  d.used += size;
  open_block(d, at, size);
  *p = (uint64_t)at;
  return OK;
}
EXPORT int cuMemFree_v2(uint64_t p) {
  IN_CONTEXT;
  int on = device_of((void *)p);
  if (on < 0 || !devices[on].blocks.count((char *)p) || devices[on].pooled.count((char *)p)) return INVALID_VALUE;
  for (auto *s : std::vector<Stream *>(devices[on].streams)) drain(s);
  devices[on].used -= devices[on].blocks[(char *)p];
  close_block(devices[on], (char *)p);
  return OK;
}
EXPORT int cuMemHostAlloc(void **p, size_t n, unsigned flags) {
  IN_CONTEXT;
  if (!n || flags > 7) return INVALID_VALUE;
  *p = aligned_alloc(4096, (n + 4095) & ~4095ull);
  pinned[(char *)*p] = n;
  return OK;
}
EXPORT int cuMemFreeHost(void *p) {
  IN_CONTEXT;
  if (!pinned.erase((char *)p)) return INVALID_VALUE;
  for (auto &e : devices) for (auto *s : std::vector<Stream *>(e.streams)) drain(s);
  free(p);
  return OK;
}
static int copy(void *to, const void *from, size_t n, Stream *s, int kind) {  // kind: bit 0 the target is on a device, bit 1 the source
  int t = device_of(to), f = device_of(from);
  if ((t >= 0) != (kind & 1) || (f >= 0) != (kind >> 1 & 1)) return INVALID_VALUE;
  if (t >= 0 && !inside(to, n, devices[t].blocks)) return INVALID_VALUE;
  if (f >= 0 && !inside(from, n, devices[f].blocks)) return INVALID_VALUE;
  if ((t >= 0 && !ready(to, devices[t], s)) || (f >= 0 && !ready(from, devices[f], s))) return INVALID_VALUE;
  Item item;
  if (s->graph && ((f < 0 && !inside(from, n, pinned)) || (t < 0 && !inside(to, n, pinned)))) return refuse(s->graph, CAPTURE_UNSUPPORTED);
  if (f < 0 && !inside(from, n, pinned)) {  // pageable: the driver has it staged when the call returns
    auto held = std::make_shared<std::string>((const char *)from, n);
    item.run = [=] { memcpy(to, held->data(), n); return 0; };
  } else item.run = [=] { memmove(to, from, n); return 0; };
  push(s, std::move(item));
  if (t < 0 && !inside(to, n, pinned)) { drain(s); return devices[s->device].sticky; }
  return OK;
}
static bool known(void *s) { for (auto &d : devices) for (auto *v : d.streams) if (v == s) return true; return false; }
EXPORT int fake_stream_device(void *s) { Guard g(mutex); return known(s) ? ((Stream *)s)->device : -1; }
static std::set<void *> events;  // that live
// A full queue: launches, copies and who waits for a stream wait until it is opened, at most `most` microseconds
static volatile long full_for = 0;
EXPORT void fake_full(long most) { full_for = most; }
#define QUEUED for (long waited = 0; waited < full_for; waited += 1000) usleep(1000)
#define ON_STREAM IN_CONTEXT; if (!known(s) || ((Stream *)s)->device != current) return INVALID_HANDLE
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) { QUEUED; ON_STREAM; return copy((void *)to, from, n, (Stream *)s, 1); }
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { QUEUED; ON_STREAM; return copy(to, (void *)from, n, (Stream *)s, 2); }
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *s) {
  ON_STREAM;
  return device_of((void *)to) != device_of((void *)from) ? INVALID_VALUE : copy((void *)to, (void *)from, n, (Stream *)s, 3);
}
EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t n, void *s) { ON_STREAM; return copy((void *)to, (void *)from, n, (Stream *)s, 0); }
EXPORT int cuMemcpyPeerAsync(uint64_t to, void *tc, uint64_t from, void *fc, size_t n, void *s) {
  ON_STREAM;
  int t = device_of((void *)to), f = device_of((void *)from);
  if (t < 0 || f < 0 || tc != &devices[t].context || fc != &devices[f].context) return INVALID_VALUE;
  return copy((void *)to, (void *)from, n, (Stream *)s, 3);
}

// -------------------------------------------------------------------------------------------------------- streams and events
EXPORT int cuStreamCreateWithPriority(void **s, unsigned flags, int priority) {
  IN_CONTEXT;
  if (flags > 1 || priority > 0 || priority < -5) return INVALID_VALUE;
  auto *made = new Stream{{}, current};
  d.streams.push_back(made);
  *s = made;
  return OK;
}
EXPORT int cuStreamDestroy_v2(void *s) {
  IN_CONTEXT;
  if (!known(s)) return INVALID_HANDLE;
  drain((Stream *)s);
  auto &all = devices[((Stream *)s)->device].streams;
  all.erase(std::find(all.begin(), all.end(), (Stream *)s));
  delete (Stream *)s;
  return OK;
}
EXPORT int cuStreamSynchronize(void *s) { QUEUED; IN_CONTEXT; if (!known(s)) return INVALID_HANDLE; if (((Stream *)s)->graph) return refuse(((Stream *)s)->graph, CAPTURE_UNSUPPORTED); drain((Stream *)s); return devices[((Stream *)s)->device].sticky; }
EXPORT int cuStreamQuery(void *s) {
  IN_CONTEXT;
  if (!known(s)) return INVALID_HANDLE;
  if (((Stream *)s)->graph) return refuse(((Stream *)s)->graph, CAPTURE_UNSUPPORTED);
  if (mode == 2 || polls) step_any();
  return ((Stream *)s)->items.empty() ? OK : NOT_READY;
}
EXPORT int cuStreamWaitEvent(void *s, void *e, unsigned flags) {
  ON_STREAM;
  if (flags > 1) return INVALID_VALUE;
  if (!events.count(e)) return INVALID_HANDLE;
  auto *waiting = (Stream *)s;
  auto *of = (Event *)e;
  if (of->graph) {
    if (!of->graph->open) return INVALID_VALUE;
    if (!waiting->graph) { waiting->graph = of->graph; of->graph->streams.insert(waiting); waiting->last = of->at; waiting->apart = true; }
    if (of->stream->last == of->at && waiting != of->stream) of->stream->apart = false;
    return OK;
  }
  if (waiting->graph) return refuse(waiting->graph, CAPTURE_ISOLATION);
  Item item;
  item.wait = (Event *)e;
  item.ticket = item.wait->recorded;
  push((Stream *)s, std::move(item));
  return OK;
}
EXPORT int cuEventCreate(void **e, unsigned flags) {
  IN_CONTEXT;
  if (flags > 7 || (flags & 6) == 4) return INVALID_VALUE;  // those for other processes keep no time
  auto *v = new Event;
  v->timing = !(flags & 2);
  v->sleeps = flags & 1;
  v->device = current;
  events.insert(*e = v);
  return OK;
}
EXPORT int cuEventDestroy_v2(void *e) { IN_CONTEXT; return events.erase(e) ? OK : INVALID_HANDLE; }
EXPORT int cuEventRecord(void *e, void *s) {
  ON_STREAM;
  auto *v = (Event *)e;
  if (!events.count(e) || v->device != current) return INVALID_HANDLE;
  v->graph = ((Stream *)s)->graph;
  if (v->graph) { v->at = ((Stream *)s)->last; v->stream = (Stream *)s; return OK; }
  unsigned long long ticket = ++v->recorded;
  Item item;
  item.run = [=] { v->done = ticket; v->time = now(); return 0; };
  push((Stream *)s, std::move(item));
  return OK;
}
EXPORT int cuEventQuery(void *e) { IN_CONTEXT; if (!events.count(e)) return INVALID_HANDLE; if (((Event *)e)->graph) return CAPTURED_EVENT; if (mode == 2 || polls) step_any(); return ((Event *)e)->done >= ((Event *)e)->recorded ? OK : NOT_READY; }
EXPORT int cuEventSynchronize(void *e) {
  IN_CONTEXT;
  if (!events.count(e)) return INVALID_HANDLE;
  if (((Event *)e)->graph) return CAPTURED_EVENT;
  if (((Event *)e)->sleeps) slept++;
  while (((Event *)e)->done < ((Event *)e)->recorded && !d.sticky) if (!step_any()) { if (!polls) abort(); breathe(); }
  return d.sticky;
}
EXPORT int cuEventElapsedTime_v2(float *ms, void *a, void *b) {
  IN_CONTEXT;
  auto *x = (Event *)a, *y = (Event *)b;
  if (!events.count(a) || !events.count(b) || !x->timing || !y->timing || !x->recorded || !y->recorded) return INVALID_HANDLE;
  if (x->done < x->recorded || y->done < y->recorded) return NOT_READY;
  *ms = (float)(y->time - x->time);
  return OK;
}

// ------------------------------------------------------------------------------------------------------------------- kernels
EXPORT int cuModuleLoadData(void **m, const void *image) {
  IN_CONTEXT;
  if (strncmp((const char *)image, "FAKECUDA:", 9)) return INVALID_IMAGE;
  if (strncmp((const char *)image + 9, "sm_90:", 6)) return NO_BINARY_FOR_GPU;
  *m = dlopen((const char *)image + 15, RTLD_NOW | RTLD_LOCAL);
  if (!*m) { fprintf(stderr, "fake libcuda: %s\n", dlerror()); return INVALID_IMAGE; }
  return OK;
}
EXPORT int cuModuleGetFunction(void **f, void *m, const char *name) {
  IN_CONTEXT;
  void *run = dlsym(m, (std::string("run_") + name).c_str());
  if (!run) return NOT_FOUND;
  int words = *(int *)dlsym(m, (std::string("bytes_") + name).c_str());
  auto *made = new std::pair<Function, int>(Function{(Run)run}, words);
  made->first.threads = *(unsigned *)dlsym(m, (std::string("threads_") + name).c_str());
  *f = made;
  return OK;
}
EXPORT int cuFuncSetAttribute(void *f, int what, int v) {
  IN_CONTEXT;
  if (v < 0 || v > 232448) return INVALID_VALUE;
  if (what == 8) ((std::pair<Function, int> *)f)->first.shared = v;  // MAX_DYNAMIC_SHARED_SIZE_BYTES: less takes back what was given
  return OK;
}
static thread_local void *launched_on = nullptr;
EXPORT void *fake_launched_on() { return launched_on; }  // the stream of this thread's last launch
EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s,
                          void **args, void **) {
  QUEUED;
  ON_STREAM;
  if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024 || bz > 64 || gx > 0x7fffffffu || gy > 65535 || gz > 65535)
    return INVALID_VALUE;
  launched++, launched_on = s;
  if (mode == 3) return OK;  // for timing the host
  auto *function = (std::pair<Function, int> *)f;
  if (bx * by * bz > function->first.threads) return OUT_OF_RESOURCES;  // by its __launch_bounds__
  if (shared > function->first.shared || function->second > 4096) return INVALID_VALUE;  // 4096: of the parameters, before CUDA 12.1
  if (((Stream *)s)->graph) {
    captured((Stream *)s, nullptr, std::make_shared<Kernel>(Kernel{function, {gx, gy, gz, bx, by, bz, shared}, std::string((const char *)args[0], function->second)}));
    return OK;
  }
  auto held = std::make_shared<std::string>((const char *)args[0], function->second);  // the parameter is taken at the call
  Run run = function->first.run;
  Item item;
  item.run = [=] { return run(held->data(), gx, gy, gz, bx, by, bz, shared) ? ILLEGAL_ADDRESS : 0; };
  push((Stream *)s, std::move(item));
  return OK;
}

// -------------------------------------------------------------------------------------------------------------------- graphs
struct KernelParams { std::pair<Function, int> *function; unsigned size[7]; void **params, **extra; void *kern, *ctx; };  // CUDA_KERNEL_NODE_PARAMS_v2
static std::set<Graph *> graphs;
static std::set<Ready *> ready_graphs;
static long graph_calls[4];  // launched, parameters changed, graphs and ready ones that live
EXPORT long fake_graphs(int what) { graph_calls[2] = (long)graphs.size(); graph_calls[3] = (long)ready_graphs.size(); return graph_calls[what]; }
EXPORT int cuStreamBeginCapture_v2(void *s, int how) {
  ON_STREAM;
  auto *stream = (Stream *)s;
  if (how != 2) return INVALID_VALUE;  // the one that we ask for
  if (stream->graph) return refuse(stream->graph, CAPTURE_UNSUPPORTED);
  stream->graph = new Graph;
  stream->graph->origin = stream;
  stream->graph->streams.insert(stream);
  stream->last = nullptr;
  return OK;
}
EXPORT int cuStreamEndCapture(void *s, void **made) {
  ON_STREAM;
  *made = nullptr;
  Graph *g = ((Stream *)s)->graph;
  if (!g || g->origin != s) return CAPTURE_UNMATCHED;
  int code = g->broken;
  for (auto *one : g->streams) { if (one->apart && one != s && !code) code = CAPTURE_UNJOINED; one->graph = nullptr; one->last = nullptr; one->apart = false; }
  g->open = false;  // events may still name it, so it stays
  if (code) return code;
  graphs.insert(g);
  *made = g;
  return OK;
}
EXPORT int cuStreamGetCaptureInfo_v2(void *s, int *status, uint64_t *id, void **graph, void ***before, size_t *n) {
  ON_STREAM;
  static thread_local void *last;
  Graph *g = ((Stream *)s)->graph;
  *status = !g ? 0 : g->broken ? 2 : 1;
  if (!g || g->broken) return OK;
  last = ((Stream *)s)->last;
  if (id) *id = (uint64_t)(uintptr_t)g;
  if (graph) *graph = g;
  if (before) *before = &last;
  if (n) *n = last ? 1 : 0;
  return OK;
}
static Node *node_of(void *p) { for (auto *g : graphs) for (auto &n : g->nodes) if (n.get() == p) return n.get(); return nullptr; }
EXPORT int cuGraphNodeGetDependencies(void *node, void **before, size_t *n) {
  CALL;
  Node *found = node_of(node);
  if (!found) return INVALID_VALUE;
  if (before && *n && found->before) before[0] = found->before;
  *n = found->before ? 1 : 0;
  return OK;
}
EXPORT int cuGraphKernelNodeGetParams_v2(void *node, KernelParams *to) {
  CALL;
  Node *found = node_of(node);
  if (!found || !found->kernel) return INVALID_VALUE;
  static thread_local void *pointer;
  found->told = found->kernel->params;
  pointer = &found->told[0];
  *to = KernelParams{found->kernel->function, {}, &pointer, nullptr, nullptr, nullptr};
  memcpy(to->size, found->kernel->size, sizeof to->size);
  return OK;
}
EXPORT int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  IN_CONTEXT;
  if (flags || !graphs.count((Graph *)graph)) return INVALID_VALUE;
  auto *r = new Ready;
  for (auto &n : ((Graph *)graph)->nodes) { r->places[n.get()] = r->steps.size(); r->steps.emplace_back(n->run, n->kernel); }
  ready_graphs.insert(r);
  *made = r;
  return OK;
}
EXPORT int cuGraphExecKernelNodeSetParams_v2(void *ready, void *node, const KernelParams *from) {
  CALL;
  auto *r = (Ready *)ready;
  if (!ready_graphs.count(r) || !r->places.count((Node *)node)) return INVALID_VALUE;
  auto &kernel = r->steps[r->places[(Node *)node]].second;
  if (!kernel || kernel->function != from->function || from->extra) return INVALID_VALUE;
  auto changed = std::make_shared<Kernel>(Kernel{from->function, {}, std::string((const char *)from->params[0], from->function->second)});
  memcpy(changed->size, from->size, sizeof from->size);
  kernel = changed;  // replays under way keep the one that was
  graph_calls[1]++;
  return OK;
}
EXPORT int cuGraphLaunch(void *ready, void *s) {
  QUEUED;
  ON_STREAM;
  if (!ready_graphs.count((Ready *)ready)) return INVALID_VALUE;
  graph_calls[0]++;
  if (mode == 3) return OK;
  Item item;
  item.run = [steps = ((Ready *)ready)->steps] {
    for (auto &step : steps) {
      int code = 0;
      keeps++;
      if (step.second) {
        auto &k = *step.second;
        code = k.function->first.run(k.params.data(), k.size[0], k.size[1], k.size[2], k.size[3], k.size[4], k.size[5], k.size[6]) ? ILLEGAL_ADDRESS : 0;
      } else if (step.first) code = step.first();
      keeps--;
      if (code) return code;
    }
    return 0;
  };
  push((Stream *)s, std::move(item));
  return OK;
}
EXPORT int cuGraphExecDestroy(void *ready) { CALL; if (!ready_graphs.erase((Ready *)ready)) return INVALID_VALUE; delete (Ready *)ready; return OK; }
EXPORT int cuGraphDestroy(void *graph) { CALL; if (!graphs.erase((Graph *)graph)) return INVALID_VALUE; delete (Graph *)graph; return OK; }

// -------------------------------------------------------------------------------------------------------------- errors' names
EXPORT int cuGetErrorName(int code, const char **s) {
  static const std::map<int, const char *> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"}, {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
      {100, "CUDA_ERROR_NO_DEVICE"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {200, "CUDA_ERROR_INVALID_IMAGE"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {400, "CUDA_ERROR_INVALID_HANDLE"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}, {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"}, {907, "CUDA_ERROR_CAPTURED_EVENT"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {999, "CUDA_ERROR_UNKNOWN"}};
  auto i = names.find(code);
  *s = i == names.end() ? "CUDA_ERROR_OTHER" : i->second;
  return OK;
}
EXPORT int cuGetErrorString(int code, const char **s) { return cuGetErrorName(code, s); }
EXPORT int cuGetProcAddress_v2(const char *name, void **p, int, uint64_t, int *status) {
  static void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *p = nullptr;
  for (const char *suffix : {"_v2", ""}) if (!*p) *p = dlsym(self, (std::string(name) + suffix).c_str());
  if (status) *status = *p ? 0 : 1;
  return *p ? OK : NOT_FOUND;
}
#endif
