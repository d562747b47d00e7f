// A stand-in for NVIDIA's libnccl: collectives of several processes over files in FAKE_NCCL_HOME, queued on the fake libcuda's streams.
//
// As NCCL does, it gives each communicator's collectives a number and matches by that alone: where ranks call different things, nothing is ever done.
// A rank's part is read when its stream gets there; what it receives is written when all parts have come.  A send is done when it has been received.
// Only communicators that do not block are served; the first call on each is under way for a while, and nothing else may be called then.
//
// FAKE_NCCL plants faults, each for a rank and the number of its call, from 1: "hang:RANK:CALL", "async:RANK:CALL" (a remote error, for which the
// communicator is asked), "refuse:RANK:CALL" (an error of the call); "init:RANK:0": the rank never comes into being.
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { OK = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum Kind : int { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE };
struct UniqueId { char internal[128]; };
struct Config { size_t size; unsigned magic, version; int blocking, cga, least, most; const char *net; int share; };

static int (*poll_on)(void *, int (*)(void *), void *);
static int (*device_of)(const void *);
static int (*current)(int);
static int (*stream_device)(void *);
static void look_up() {
  if (poll_on) return;
  poll_on = (decltype(poll_on))dlsym(RTLD_DEFAULT, "fake_poll");
  device_of = (decltype(device_of))dlsym(RTLD_DEFAULT, "fake_device_of");
  current = (decltype(current))dlsym(RTLD_DEFAULT, "fake_current");
  stream_device = (decltype(stream_device))dlsym(RTLD_DEFAULT, "fake_stream_device");
}

static bool planted(const char *what, int rank, long call) {
  const char *text = getenv("FAKE_NCCL");
  std::istringstream all(text ? text : "");
  for (std::string one; all >> one;) if (one == std::string(what) + ":" + std::to_string(rank) + ":" + std::to_string(call)) return true;
  return false;
}
static bool there(const std::string &path) { struct stat s; return stat(path.c_str(), &s) == 0; }
static void put(const std::string &path, const std::string &bytes) {
  { std::ofstream f(path + ".new", std::ios::binary); f << bytes; }
  rename((path + ".new").c_str(), path.c_str());
}
static std::string get(const std::string &path) {
  std::ifstream f(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(f), std::istreambuf_iterator<char>());
}

struct Op;
struct Comm {
  std::string home, error;
  int rank, n, gpu;
  std::atomic<int> code{IN_PROGRESS};
  std::atomic<bool> aborted{false};
  bool first = true;
  int asked = 0;
  long calls = 0, collectives = 0;
  std::map<int, long> sent, received;
  std::vector<Op *> waiting;  // of the first call
  void *stream = nullptr;
};
struct Head { int kind; size_t count; int type, op, root; };
struct Part {  // one collective, or one message
  Head head;
  const void *from;
  void *to;
  long number;
  int peer;
  bool hangs, posted = false, done = false;
};
struct Op { Comm *comm; std::vector<Part> parts; };  // what one call, or one group of calls, queues

static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
template <class T> static T combine(T a, T b, int op) { return op == 0 ? a + b : op == 1 ? a * b : op == 2 ? (a > b ? a : b) : (a < b ? a : b); }
template <class T> static void add(void *to, const void *from, size_t n, int op) {
  for (size_t i = 0; i < n; i++) ((T *)to)[i] = combine<T>(((T *)to)[i], ((const T *)from)[i], op);
}
static float wide(uint16_t v) { uint32_t w = (uint32_t)v << 16; float f; memcpy(&f, &w, 4); return f; }
static uint16_t narrow(float f) { uint32_t w; memcpy(&w, &f, 4); return (uint16_t)((w + 0x7fff + (w >> 16 & 1)) >> 16); }
static void reduce_into(char *to, const char *from, size_t n, int type, int op) {
  switch (type) {
    case 0: add<int8_t>(to, from, n, op); break;
    case 1: add<uint8_t>(to, from, n, op); break;
    case 2: add<int32_t>(to, from, n, op); break;
    case 3: add<uint32_t>(to, from, n, op); break;
    case 4: add<int64_t>(to, from, n, op); break;
    case 5: add<uint64_t>(to, from, n, op); break;
    case 6: add<_Float16>(to, from, n, op); break;
    case 7: add<float>(to, from, n, op); break;
    case 8: add<double>(to, from, n, op); break;
    default: for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = narrow(combine<float>(wide(((uint16_t *)to)[i]), wide(((const uint16_t *)from)[i]), op));
  }
}

// ---------------------------------------------------------------------------------------------------------------- on a stream
static std::string place(Comm *c, Part &p, int rank) {
  if (p.head.kind == SEND) return c->home + "/m" + std::to_string(c->rank) + "-" + std::to_string(p.peer) + "-" + std::to_string(p.number);
  if (p.head.kind == RECEIVE) return c->home + "/m" + std::to_string(p.peer) + "-" + std::to_string(c->rank) + "-" + std::to_string(p.number);
  return c->home + "/c" + std::to_string(p.number) + "-" + std::to_string(rank);
}
static bool carry(Comm *c, Part &p) {  // whether it is done
  if (p.done) return true;
  const Head &h = p.head;
  size_t bytes = h.count * SIZES[h.type];
  if (h.kind == RECEIVE) {
    std::string path = place(c, p, 0);
    if (p.hangs || !there(path)) return false;
    std::string got = get(path);
    Head theirs;
    memcpy(&theirs, got.data(), sizeof theirs);
    if (theirs.count * SIZES[theirs.type] != bytes) return false;
    memcpy(p.to, got.data() + sizeof theirs, bytes);
    put(path + ".taken", "");
    unlink(path.c_str());
    return p.done = true;
  }
  if (!p.posted) {
    size_t own = h.kind == REDUCE_SCATTER ? bytes * c->n : h.kind == BROADCAST && h.root != c->rank ? 0 : bytes;
    if (!p.hangs) put(place(c, p, c->rank), std::string((const char *)&h, sizeof h) + std::string((const char *)p.from, own));
    p.posted = true;
  }
  if (p.hangs) return false;
  if (h.kind == SEND) {
    if (!there(place(c, p, 0) + ".taken")) return false;
    unlink((place(c, p, 0) + ".taken").c_str());
    return p.done = true;
  }
  for (int r = 0; r < c->n; r++) if (!there(place(c, p, r))) return false;
  std::vector<std::string> all;
  for (int r = 0; r < c->n; r++) {
    all.push_back(get(place(c, p, r)));
    Head theirs;
    memcpy(&theirs, all[r].data(), sizeof theirs);
    if (theirs.kind != h.kind || theirs.count != h.count || theirs.type != h.type || theirs.op != h.op || theirs.root != h.root) return false;
    all[r].erase(0, sizeof theirs);
  }
  char *to = (char *)p.to;
  if (h.kind == BROADCAST) memcpy(to, all[h.root].data(), bytes);
  if (h.kind == ALL_GATHER) for (int r = 0; r < c->n; r++) memcpy(to + r * bytes, all[r].data(), bytes);
  if (h.kind == ALL_REDUCE || h.kind == REDUCE_SCATTER || (h.kind == REDUCE && h.root == c->rank)) {
    size_t start = h.kind == REDUCE_SCATTER ? c->rank * bytes : 0;
    std::string sum = all[0].substr(start, bytes);
    for (int r = 1; r < c->n; r++) reduce_into(&sum[0], all[r].data() + start, h.count, h.type, h.op);
    memcpy(to, sum.data(), bytes);
  }
  if (p.number > 1) { Part before = p; before.number--; unlink(place(c, before, c->rank).c_str()); }  // all have come to this one, so all are done with that
  return p.done = true;
}
static int carry_out(void *with) {
  Op *op = (Op *)with;
  if (op->comm->aborted) { delete op; return 0; }
  bool all = true;
  for (auto &p : op->parts) all = carry(op->comm, p) && all;
  if (!all) return -1;
  delete op;
  return 0;
}

// ------------------------------------------------------------------------------------------------------------------- the calls
EXPORT int ncclGetVersion(int *v) { *v = 22703; return OK; }
EXPORT const char *ncclGetErrorString(int code) {
  static const char *texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
                                "remote process exited or there was a network error", "NCCL operation in progress"};
  return texts[code];
}
EXPORT const char *ncclGetLastError(void *c) { return c ? ((Comm *)c)->error.c_str() : ""; }
EXPORT int ncclGetUniqueId(UniqueId *id) {
  memset(id, 0, sizeof *id);
  static long made = 0;
  snprintf(id->internal, sizeof id->internal, "%d-%ld", (int)getpid(), made++);
  return OK;
}
EXPORT int ncclCommInitRankConfig(void **to, int n, UniqueId id, int rank, const Config *config) {
  look_up();
  *to = nullptr;
  if (config->magic != 0xcafebeef || config->size != sizeof(Config) || config->version < 21800 || config->blocking != 0) return INVALID_ARGUMENT;
  if (config->cga != INT_MIN || config->least != INT_MIN || config->most != INT_MIN || config->net || config->share != INT_MIN) return INVALID_ARGUMENT;
  if (n < 1 || rank < 0 || rank >= n || current(0) < 0) return INVALID_ARGUMENT;
  auto *c = new Comm;
  c->home = std::string(getenv("FAKE_NCCL_HOME")) + "/" + id.internal;
  mkdir(c->home.c_str(), 0700);
  c->rank = rank; c->n = n; c->gpu = current(0);
  if (!planted("init", rank, 0)) put(c->home + "/i" + std::to_string(rank), std::to_string(current(1)));
  *to = c;
  return IN_PROGRESS;
}
static void begin(Comm *c) {  // what waits for all ranks to come
  std::vector<std::string> gpus;
  for (int r = 0; r < c->n; r++) {
    std::string path = c->home + "/i" + std::to_string(r);
    if (!there(path)) return;
    gpus.push_back(get(path));
  }
  for (int a = 0; a < c->n; a++) for (int b = 0; b < a; b++) if (gpus[a] == gpus[b] && (a == c->rank || b == c->rank)) {
    c->error = "Duplicate GPU detected : rank " + std::to_string(c->rank) + " and rank " + std::to_string(a == c->rank ? b : a) + " both on CUDA device " + gpus[a] + "000";
    c->code = INVALID_USAGE;
    return;
  }
  c->code = OK;
}
static void queue(Comm *c, Op *op) {
  for (auto &p : op->parts) if (planted("async", c->rank, c->calls)) { p.hangs = true; c->error = "the connection of a peer was closed"; c->code = REMOTE_ERROR; }
  poll_on(c->stream, carry_out, op);
}
EXPORT int ncclCommGetAsyncError(void *p, int *code) {
  Comm *c = (Comm *)p;
  if (c->code == IN_PROGRESS && c->waiting.empty()) begin(c);
  else if (c->code == IN_PROGRESS && ++c->asked > 2) {
    std::vector<Op *> all;
    all.swap(c->waiting);
    c->code = OK;
    for (auto *op : all) queue(c, op);
  }
  *code = c->code;
  return OK;
}
EXPORT int ncclCommAbort(void *p) { ((Comm *)p)->aborted = true; return OK; }  // what is queued lets its memory be, and ends
EXPORT int ncclCommFinalize(void *p) { return ((Comm *)p)->code; }
EXPORT int ncclCommDestroy(void *) { return OK; }

static thread_local int depth = 0;
static thread_local Op *group = nullptr;
static int send_off(Op *op, void *stream) {
  Comm *c = op->comm;
  c->stream = stream;
  if (c->first) {  // connections are made by a thread of NCCL's
    c->first = false;
    c->waiting.push_back(op);
    c->code = IN_PROGRESS;
    return IN_PROGRESS;
  }
  queue(c, op);
  return OK;
}
static int enqueue(Comm *c, Head head, const void *from, void *to, int peer, void *stream) {
  c->calls++;
  if (c->code != OK || c->aborted) { c->error = "called while it is under way, or after an error"; return INVALID_USAGE; }
  if (head.type < 0 || head.type > 9 || head.op < 0 || head.op > 3 || head.root < 0 || head.root >= c->n || peer >= c->n) return INVALID_ARGUMENT;
  if (current(0) != c->gpu || stream_device(stream) != c->gpu) { c->error = "another device is current, or the stream is another's"; return INVALID_USAGE; }
  if (head.count) for (const void *at : {from, (const void *)to}) if (at && device_of(at) != c->gpu) return INVALID_ARGUMENT;
  if (planted("refuse", c->rank, c->calls)) { c->error = "Call to bind failed"; return SYSTEM_ERROR; }
  long number = head.kind == SEND ? ++c->sent[peer] : head.kind == RECEIVE ? ++c->received[peer] : ++c->collectives;
  Part part{head, from, to, number, peer, planted("hang", c->rank, c->calls)};
  if (depth) {
    if (!group) group = new Op{c, {}};
    if (group->comm != c || (c->stream && c->stream != stream && !group->parts.empty())) return INVALID_USAGE;
    c->stream = stream;
    group->parts.push_back(part);
    return OK;
  }
  return send_off(new Op{c, {part}}, stream);
}
EXPORT int ncclGroupStart() { depth++; return OK; }
EXPORT int ncclGroupEnd() {
  if (!depth) return INVALID_USAGE;
  if (--depth || !group) return OK;
  Op *op = group;
  group = nullptr;
  return send_off(op, op->comm->stream);
}
EXPORT int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *c, void *s) { return enqueue((Comm *)c, {ALL_REDUCE, n, type, op, 0}, from, to, -1, s); }
EXPORT int ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, void *c, void *s) { return enqueue((Comm *)c, {REDUCE, n, type, op, root}, from, to, -1, s); }
EXPORT int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, void *c, void *s) { return enqueue((Comm *)c, {BROADCAST, n, type, 0, root}, from, to, -1, s); }
EXPORT int ncclAllGather(const void *from, void *to, size_t n, int type, void *c, void *s) { return enqueue((Comm *)c, {ALL_GATHER, n, type, 0, 0}, from, to, -1, s); }
EXPORT int ncclReduceScatter(const void *from, void *to, size_t n, int type, int op, void *c, void *s) { return enqueue((Comm *)c, {REDUCE_SCATTER, n, type, op, 0}, from, to, -1, s); }
EXPORT int ncclSend(const void *from, size_t n, int type, int peer, void *c, void *s) { return peer < 0 ? INVALID_ARGUMENT : enqueue((Comm *)c, {SEND, n, type, 0, 0}, from, nullptr, peer, s); }
EXPORT int ncclRecv(void *to, size_t n, int type, int peer, void *c, void *s) { return peer < 0 ? INVALID_ARGUMENT : enqueue((Comm *)c, {RECEIVE, n, type, 0, 0}, nullptr, to, peer, s); }
