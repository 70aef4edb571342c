#include "codegen/passes/batch.h"

#include <algorithm>
#include <utility>

#include "codegen/passes/recorded_apart.h"
#include "runtime/step_args.h"

namespace lazuli::codegen {
namespace {

using runtime::KernelLaunch;
using runtime::MemorySpec;
using runtime::StepSpec;

constexpr int kAnySlot = -1;
constexpr int kMaxDistance = 256;                   // Slots that a launch moves past.
constexpr int64_t kSmallBytes = int64_t{64} << 10;  // Launches that touch more only join the slot before them.
constexpr int64_t kSmallBytesOnGpu = int64_t{16} << 20;

const KernelLaunch* BatchableLaunch(const StepSpec& step) {
  const auto* launch = std::get_if<KernelLaunch>(&step.work);
  return launch != nullptr && launch->run_batch != nullptr && step.batch == 1 ? launch : nullptr;
}

// The time of one step, or of the steps of one batch.
struct Slot {
  std::vector<size_t> steps;
  const KernelLaunch* launch = nullptr;  // The first one; null: not a batch.
  int64_t live_bytes = 0;                // Arena memory in use.
  int32_t known_at = 0;                  // So many operators have what these steps need, or any before them.
};

class Batcher {
 public:
  explicit Batcher(runtime::ProgramSpec* spec) : spec_(spec), memories_(spec->memories.size()) {
    for (size_t m = 0; m < memories_.size(); ++m) {
      memories_[m].bytes = runtime::ArenaBytes(spec->symbols.Hint(spec->memories[m].nbytes), spec->memories[m].device);
      memories_[m].in_arena = spec->memories[m].kind == MemorySpec::Kind::kArena;
    }
    for (const StepSpec& step : spec->steps) {
      ForEachMemory(step, [&](Memory& memory) { ++memory.todo; });
      known_at_.push_back(runtime::IsOnGpu(*spec, step) ? std::max(runtime::StepNeeds(*spec, step).KnownAt(*spec), step.overwrites_at) : 0);
    }
    FindPeak();
  }

  void Run() {
    for (size_t s = 0; s < spec_->steps.size();) {
      if (runs_ahead_ && spec_->steps[s].overwrites > runtime::kMostSavedBytes) {
        runs_ahead_ = false;
        first_behind_ = static_cast<int>(slots_.size());
      }
      // Steps that are together already stay so.
      const auto together = static_cast<size_t>(spec_->steps[s].batch);
      const int slot = Place(s, kAnySlot);
      for (size_t i = 1; i < together; ++i) Place(s + i, slot);
      s += together;
    }
    std::vector<StepSpec> steps;
    for (const Slot& slot : slots_) {
      for (const size_t s : slot.steps) {
        steps.push_back(std::move(spec_->steps[s]));
        steps.back().batch = static_cast<int32_t>(s == slot.steps.front() ? slot.steps.size() : 1);
      }
    }
    spec_->steps = std::move(steps);
  }

 private:
  struct Memory {
    int64_t bytes = 0;
    bool in_arena = false;
    bool seen = false;    // By a step that is placed.
    int todo = 0;         // Steps that touch it and are not placed, those that write it twice over.
    int after_write = 0;  // The first slot after those that write it,
    int after_use = 0;    // and after those that read or write it.
  };

  template <class Fn>
  void ForEachMemory(const StepSpec& step, const Fn& fn) {
    for (const int32_t memory : step.reads) fn(memories_[memory]);
    for (const int32_t memory : step.writes) fn(memories_[memory]);
  }

  // The most that is alive at a time in the order as it is.
  void FindPeak() {
    std::vector<Memory> saved = memories_;
    int64_t live = 0;
    for (const StepSpec& step : spec_->steps) {
      ForEachMemory(step, [&](Memory& memory) {
        if (!memory.seen && memory.in_arena) live += memory.bytes;
        memory.seen = true;
      });
      peak_ = std::max(peak_, live);
      ForEachMemory(step, [&](Memory& memory) { live -= --memory.todo == 0 && memory.in_arena ? memory.bytes : 0; });
    }
    memories_ = std::move(saved);
  }

  int EarliestSlot(const StepSpec& step) const {
    int earliest = 0;
    for (const int32_t memory : step.reads) earliest = std::max(earliest, memories_[memory].after_write);
    for (const int32_t memory : step.writes) earliest = std::max(earliest, memories_[memory].after_use);
    return earliest;
  }

  static bool GoTogether(const KernelLaunch& a, const KernelLaunch& b) { return a.run_batch == b.run_batch && a.batch_key == b.batch_key; }

  // The batch that `step` joins; -1: it gets a slot of its own. `fresh` are the arena's bytes that are in use from it on.
  int FindBatch(size_t s, int64_t fresh) const {
    const StepSpec& step = spec_->steps[s];
    const KernelLaunch* launch = BatchableLaunch(step);
    if (launch == nullptr) return -1;
    const int64_t small = runtime::IsOnGpu(*spec_, step) ? kSmallBytesOnGpu : kSmallBytes;
    const int end = static_cast<int>(slots_.size());
    const int distance = launch->touched_bytes > small ? 1 : kMaxDistance;
    int found = -1;
    // Steps on a GPU that run ahead of the trace's end are not to wait for operators that come much later.
    const int last_ahead = runs_ahead_ ? end : first_behind_;
    const int32_t least = known_at_[s] - kMostOpsApartInBatch;
    for (int slot = end - 1; slot >= std::max(EarliestSlot(step), end - distance); --slot) {
      if (fresh > 0 && slots_[slot].live_bytes + fresh > peak_) break;
      if (slot < last_ahead && slots_[slot].known_at < least) break;
      if (slots_[slot].launch != nullptr && GoTogether(*slots_[slot].launch, *launch)) found = slot;
    }
    return found;
  }

  // Puts the step into slot `into`, or the best one; which it returns.
  int Place(size_t s, int into) {
    const StepSpec& step = spec_->steps[s];
    int64_t fresh = 0;
    for (const int32_t memory : step.writes) fresh += memories_[memory].in_arena && !memories_[memory].seen ? memories_[memory].bytes : 0;
    int slot = into != kAnySlot ? into : FindBatch(s, fresh);
    if (slot < 0) {
      slot = static_cast<int>(slots_.size());
      slots_.push_back({{}, BatchableLaunch(step), live_, slot == 0 ? 0 : slots_.back().known_at});
    }
    slots_[slot].steps.push_back(s);
    for (size_t i = static_cast<size_t>(slot); i < slots_.size(); ++i) {
      slots_[i].live_bytes += fresh;
      slots_[i].known_at = std::max(slots_[i].known_at, known_at_[s]);
    }
    live_ += fresh;
    for (const int32_t memory : step.reads) memories_[memory].after_use = std::max(memories_[memory].after_use, slot + 1);
    for (const int32_t memory : step.writes) memories_[memory].after_write = memories_[memory].after_use = slot + 1;
    ForEachMemory(step, [&](Memory& memory) {
      memory.seen = true;
      live_ -= --memory.todo == 0 && memory.in_arena ? memory.bytes : 0;
    });
    return slot;
  }

  runtime::ProgramSpec* spec_;
  std::vector<Memory> memories_;
  std::vector<int32_t> known_at_;  // By step: so many operators have what it needs. 0 on the CPU.
  std::vector<Slot> slots_;
  int64_t live_ = 0;  // After the steps that are placed.
  int64_t peak_ = 0;
  bool runs_ahead_ = true;  // The steps that are placed may run ahead, all of them.
  int first_behind_ = 0;    // The first slot of those that do not.
};

}  // namespace

void BatchKernels(runtime::ProgramSpec* spec) { Batcher(spec).Run(); }

}  // namespace lazuli::codegen
