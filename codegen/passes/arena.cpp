#include "codegen/passes/arena.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lazuli::codegen {
namespace {

using runtime::MemorySpec;

// The steps during which a memory is in use.
struct Interval {
  int32_t memory;
  int first, last;
  bool Overlaps(const Interval& other) const { return other.first <= last && other.last >= first; }
};

class ArenaPlacer {
 public:
  explicit ArenaPlacer(runtime::ProgramSpec* spec) : spec_(*spec) {}

  void Run() {
    std::vector<Interval> intervals(spec_.memories.size(), {-1, 0, 0});
    int first = 0, last = -1;
    for (int s = 0; s < static_cast<int>(spec_.steps.size()); ++s) {
      if (s > last) first = s, last = s + spec_.steps[s].batch - 1;
      const auto touch = [&](int32_t memory) {
        Interval& interval = intervals[memory];
        if (interval.memory < 0) interval = {memory, first, last};
        interval.last = last;
      };
      for (int32_t memory : spec_.steps[s].reads) touch(memory);
      for (int32_t memory : spec_.steps[s].writes) touch(memory);
    }
    std::vector<Interval> todo;
    for (const Interval& interval : intervals) {
      if (interval.memory < 0) continue;
      const MemorySpec& memory = spec_.memories[interval.memory];
      if (memory.kind == MemorySpec::Kind::kArena) {
        spec_.memories[interval.memory].arena = ArenaOn(memory.device);
        todo.push_back(interval);
      }
      const bool is_input = memory.kind == MemorySpec::Kind::kInput;
      if (is_input || (memory.kind == MemorySpec::Kind::kAdopted && memory.storage < 0))
        spec_.steps[interval.last].releases.push_back(interval.memory);
    }
    const auto size_of = [&](int32_t m) {
      const MemorySpec& memory = spec_.memories[m];
      return runtime::ArenaBytes(spec_.symbols.Hint(memory.nbytes), memory.device);
    };
    std::stable_sort(todo.begin(), todo.end(), [&](const Interval& a, const Interval& b) { return size_of(a.memory) > size_of(b.memory); });
    if (spec_.symbols.empty()) {
      PlaceAtOffsets(todo, size_of);
    } else {
      PlaceInSlots(todo);
    }
  }

 private:
  int32_t ArenaOn(c10::Device device) {
    const auto on_device = [&](const runtime::ArenaSpec& arena) { return arena.device == device; };
    const auto it = std::find_if(spec_.arenas.begin(), spec_.arenas.end(), on_device);
    if (it != spec_.arenas.end()) return static_cast<int32_t>(it - spec_.arenas.begin());
    spec_.arenas.push_back({device, 0});
    return static_cast<int32_t>(spec_.arenas.size()) - 1;
  }
  int32_t ArenaOf(const Interval& interval) const { return spec_.memories[interval.memory].arena; }

  template <class SizeFn>
  void PlaceAtOffsets(const std::vector<Interval>& todo, const SizeFn& size_of) {
    std::vector<Interval> placed;
    for (const Interval& interval : todo) {
      std::vector<std::pair<int64_t, int64_t>> taken;
      for (const Interval& other : placed) {
        if (!interval.Overlaps(other) || ArenaOf(interval) != ArenaOf(other)) continue;
        const int64_t at = spec_.memories[other.memory].offset;
        taken.emplace_back(at, at + size_of(other.memory));
      }
      std::sort(taken.begin(), taken.end());
      int64_t offset = 0;
      for (const auto& [begin, end] : taken) {
        if (begin - offset >= size_of(interval.memory)) break;
        offset = std::max(offset, end);
      }
      spec_.memories[interval.memory].offset = offset;
      int64_t& used = spec_.arenas[ArenaOf(interval)].nbytes;
      used = std::max(used, offset + size_of(interval.memory));
      placed.push_back(interval);
    }
  }

  // Where sizes change, memories share slots that are as large as the largest of them turns out to be.
  void PlaceInSlots(const std::vector<Interval>& todo) {
    std::vector<std::vector<Interval>> slots;
    for (const Interval& interval : todo) {
      size_t slot = 0;
      const auto overlaps = [&](const Interval& other) { return interval.Overlaps(other) || ArenaOf(interval) != ArenaOf(other); };
      while (slot < slots.size() && std::any_of(slots[slot].begin(), slots[slot].end(), overlaps)) ++slot;
      if (slot == slots.size()) slots.emplace_back();
      slots[slot].push_back(interval);
      spec_.memories[interval.memory].arena_slot = static_cast<int32_t>(slot);
    }
  }

  runtime::ProgramSpec& spec_;
};

}  // namespace

void PlaceInArena(runtime::ProgramSpec* spec) { ArenaPlacer(spec).Run(); }

}  // namespace lazuli::codegen
