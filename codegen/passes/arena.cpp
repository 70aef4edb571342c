#include "codegen/passes/arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace lazuli::codegen {
namespace {

using runtime::MemorySpec;

// Smaller memories stay in an arena: LibTorch's allocator for GPUs has larger ones in segments of their own.
constexpr int64_t kLarge = int64_t{1} << 20;
// What has to be saved for memories to be allocated one by one: one of so many parts, and so many bytes.
constexpr int64_t kWorthShare = 32;
constexpr int64_t kWorthBytes = int64_t{4} << 20;

// The steps during which a memory is in use.
struct Interval {
  int32_t memory;
  int first, last;  // Those of batches are all in use together.
  int acquirer;     // The very first.
  bool Overlaps(const Interval& other) const { return other.first <= last && other.last >= first; }
};

class ArenaPlacer {
 public:
  explicit ArenaPlacer(runtime::ProgramSpec* spec) : spec_(*spec) {}

  void Run(bool own_memory) {
    FindIntervals();
    absl::flat_hash_set<c10::Device> devices;
    for (const MemorySpec& memory : spec_.memories) devices.insert(memory.device);
    for (const c10::Device device : devices) {
      const bool arena_too = own_memory && !device.is_cpu() && OwnMemoryPays(device);
      if (arena_too || device.is_cpu()) AcquireBySteps(device, arena_too);
    }
    std::vector<Interval> todo;
    for (const Interval& interval : intervals_) {
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
    std::stable_sort(todo.begin(), todo.end(), [&](const Interval& a, const Interval& b) { return Bytes(a.memory) > Bytes(b.memory); });
    if (spec_.symbols.empty()) {
      PlaceAtOffsets(todo);
    } else {
      PlaceInSlots(todo);
    }
  }

 private:
  int64_t Bytes(int32_t m) const {
    const MemorySpec& memory = spec_.memories[m];
    return runtime::ArenaBytes(spec_.symbols.Hint(memory.nbytes), memory.device);
  }

  void FindIntervals() {
    intervals_.assign(spec_.memories.size(), {-1, 0, 0, 0});
    int first = 0, last = -1;
    for (int s = 0; s < static_cast<int>(spec_.steps.size()); ++s) {
      if (s > last) first = s, last = s + spec_.steps[s].batch - 1;
      const auto touch = [&](int32_t memory) {
        Interval& interval = intervals_[memory];
        if (interval.memory < 0) interval = {memory, first, last, s};
        interval.last = last;
      };
      for (int32_t memory : spec_.steps[s].reads) touch(memory);
      for (int32_t memory : spec_.steps[s].writes) touch(memory);
    }
  }

  // Whether the most that an arena, results that leave and the other memories need at one time is much less than the most that each of the
  // three needs.
  bool OwnMemoryPays(c10::Device device) const {
    const size_t count = spec_.steps.size();
    std::vector<int64_t> arena(count + 1, 0), others(count + 1, 0), leaving(count + 1, 0);  // What comes into use with each step.
    for (const Interval& interval : intervals_) {
      if (interval.memory < 0) continue;
      const MemorySpec& memory = spec_.memories[interval.memory];
      if (memory.device != device || memory.kind == MemorySpec::Kind::kInput) continue;
      using Kind = MemorySpec::Kind;
      std::vector<int64_t>& change = memory.kind == Kind::kArena ? arena : memory.kind == Kind::kOutput ? leaving : others;
      change[interval.first] += Bytes(interval.memory);
      if (memory.storage < 0) change[interval.last + 1] -= Bytes(interval.memory);
    }
    int64_t in_arena = 0, in_others = 0, left = 0, most_in_arena = 0, most_in_others = 0, most = 0;
    for (size_t s = 0; s < count; ++s) {
      in_arena += arena[s];
      in_others += others[s];
      most_in_arena = std::max(most_in_arena, in_arena);
      most_in_others = std::max(most_in_others, in_others);
      left += leaving[s];
      most = std::max(most, in_arena + in_others + left);
    }
    return most_in_arena + most_in_others + left - most >= std::max(most / kWorthShare, kWorthBytes);
  }

  // Results, on a CPU large ones, and where `arena_too` what is large of the arena.
  void AcquireBySteps(c10::Device device, bool arena_too) {
    for (const Interval& interval : intervals_) {
      if (interval.memory < 0 || spec_.memories[interval.memory].device != device) continue;
      MemorySpec& memory = spec_.memories[interval.memory];
      const bool is_large = Bytes(interval.memory) >= kLarge;
      const bool leaves_arena = arena_too && is_large && memory.kind == MemorySpec::Kind::kArena;
      const bool is_result = memory.kind == MemorySpec::Kind::kOutput && (is_large || !device.is_cpu());
      if (!leaves_arena && !is_result) continue;
      if (leaves_arena) memory.kind = MemorySpec::Kind::kAdopted;
      spec_.steps[interval.acquirer].acquires.push_back(interval.memory);
    }
  }

  int32_t ArenaOn(c10::Device device) {
    const auto on_device = [&](const runtime::ArenaSpec& arena) { return arena.device == device; };
    const auto it = std::find_if(spec_.arenas.begin(), spec_.arenas.end(), on_device);
    if (it != spec_.arenas.end()) return static_cast<int32_t>(it - spec_.arenas.begin());
    spec_.arenas.push_back({device, 0});
    return static_cast<int32_t>(spec_.arenas.size()) - 1;
  }
  int32_t ArenaOf(const Interval& interval) const { return spec_.memories[interval.memory].arena; }

  void PlaceAtOffsets(const std::vector<Interval>& todo) {
    std::vector<Interval> placed;
    for (const Interval& interval : todo) {
      std::vector<std::pair<int64_t, int64_t>> taken;
      for (const Interval& other : placed) {
        if (!interval.Overlaps(other) || ArenaOf(interval) != ArenaOf(other)) continue;
        const int64_t at = spec_.memories[other.memory].offset;
        taken.emplace_back(at, at + Bytes(other.memory));
      }
      std::sort(taken.begin(), taken.end());
      int64_t offset = 0;
      for (const auto& [begin, end] : taken) {
        if (begin - offset >= Bytes(interval.memory)) break;
        offset = std::max(offset, end);
      }
      spec_.memories[interval.memory].offset = offset;
      int64_t& used = spec_.arenas[ArenaOf(interval)].nbytes;
      used = std::max(used, offset + Bytes(interval.memory));
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
  std::vector<Interval> intervals_;  // By memory; of none that no step touches.
};

}  // namespace

void PlaceInArena(runtime::ProgramSpec* spec, bool own_memory) { ArenaPlacer(spec).Run(own_memory); }

}  // namespace lazuli::codegen
