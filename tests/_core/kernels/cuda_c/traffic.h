// Counts what a launch's warps ask of memory, as the hardware carries it out: included by host.cc, which tells it of each access.
//
// A warp's lanes run one after another here.  The accesses of one request are found by the place in the machine code and by how often
// the lane has come there: the third access of lane 5 in a line belongs with the third of lane 6.  A request to global memory moves the
// sectors of 32 bytes that it touches; one to shared memory takes a turn for each word of the fullest of 32 banks, in parts of
// 128 bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

enum Access : int { LOAD, STORE, CHANGE, SHARED_LOAD, SHARED_STORE, SHARED_CHANGE };

// For one place in the code.  asked: different bytes of each request.  moved: bytes of its sectors; of shared memory, turns of 128 bytes.
struct Site { uint64_t place = 0, access = 0, requests = 0, asked = 0, moved = 0, turns = 0; };

class Traffic {
 public:
  bool on = false;
  unsigned most = 0;  // blocks that are carried out, evenly spaced
  std::vector<Site> sites;
  uint64_t alone = 0, common = 0;  // sectors that one of the blocks touched, and that several did
  uint64_t longest = 0;            // reads of global memory by the thread that has most

  void begin(bool start, unsigned blocks) {
    on = start, most = blocks, block = 0, alone = common = longest = 0;
    sites.clear(), numbers.clear(), open.clear(), often.clear(), sectors.clear();
  }
  void begin_block(size_t threads) {
    often.assign(threads, {});
    block++;
  }
  void see(uint64_t place, Access access, unsigned thread, unsigned lanes, uintptr_t at, unsigned bytes) {
    const auto found = numbers.emplace(std::make_pair(place, (int)access), sites.size());
    const size_t site = found.first->second;
    if (found.second) sites.push_back({place, (uint64_t)access});
    std::vector<unsigned>& mine = often[thread];
    if (mine.size() <= site) mine.resize(site + 1);
    const uint64_t key = (uint64_t)mine[site]++ << 24 | (uint64_t)site << 5 | thread / 32;
    Request& r = open[key];
    r.parts.push_back({at, bytes});
    if (r.parts.size() < lanes) return;
    settle(sites[site], r);
    open.erase(key);
  }
  // What lanes never reached belongs to requests of fewer lanes.
  void end_block() {
    for (auto& each : open) settle(sites[each.first >> 5 & 0x7ffff], each.second);
    open.clear();
    for (const auto& mine : often) {
      uint64_t reads = 0;
      for (size_t site = 0; site < mine.size(); site++) reads += sites[site].access == LOAD ? mine[site] : 0;
      longest = std::max(longest, reads);
    }
  }

 private:
  typedef std::pair<uintptr_t, unsigned> Part;
  struct Request { std::vector<Part> parts; };
  std::map<std::pair<uint64_t, int>, size_t> numbers;
  std::vector<std::vector<unsigned>> often;
  std::unordered_map<uint64_t, Request> open;
  std::unordered_map<uintptr_t, unsigned> sectors;  // by which block each was touched; 0: by several
  unsigned block = 0;

  void touched(uintptr_t sector) {
    const auto found = sectors.emplace(sector, block);
    if (found.second) alone++;
    else if (found.first->second && found.first->second != block) found.first->second = 0, alone--, common++;
  }
  void settle(Site& s, Request& r) {
    s.requests++;
    const bool shared = s.access >= SHARED_LOAD, change = s.access == CHANGE || s.access == SHARED_CHANGE;
    if (shared) {
      // 32 lanes of 4 bytes, 16 of 8 or 8 of 16 are one part
      const size_t together = r.parts[0].second <= 4 ? 32 : r.parts[0].second <= 8 ? 16 : 8;
      for (size_t first = 0; first < r.parts.size(); first += together) {
        std::vector<uintptr_t> words;
        for (size_t k = first; k < std::min(first + together, r.parts.size()); k++)
          for (uintptr_t w = r.parts[k].first >> 2; w <= (r.parts[k].first + r.parts[k].second - 1) >> 2; w++) words.push_back(w);
        std::sort(words.begin(), words.end());
        // lanes that change one word wait for each other; others share it
        if (!change) words.erase(std::unique(words.begin(), words.end()), words.end());
        unsigned banks[32] = {}, fullest = 0;
        for (uintptr_t w : words) fullest = std::max(fullest, ++banks[w & 31]);
        s.turns += fullest, s.moved += 128 * fullest, s.asked += 128;
      }
      return;
    }
    std::sort(r.parts.begin(), r.parts.end());
    uintptr_t end = 0, sector = 0;
    for (const Part& p : r.parts) {
      const uintptr_t last = p.first + p.second, from = std::max(end, p.first);
      if (last > from) s.asked += last - from;
      end = std::max(end, last);
      for (uintptr_t x = std::max(sector, p.first >> 5); x <= (last - 1) >> 5; x++) s.moved += 32, s.turns++, sector = x + 1, touched(x);
    }
  }
};
