#include "runtime/run_ahead.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "runtime/cuda_driver.h"
#include "runtime/device.h"
#include "runtime/options.h"

namespace lazuli::runtime {
namespace {

// Returns the driver's error; 0 is none.
int Copy(void* to, const void* from, size_t nbytes, c10::Device device) {
  if (device.is_cpu()) {
    std::memcpy(to, from, nbytes);
    return 0;
  }
  return RequireCudaDriver().memcpy_device_to_device(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), nbytes,
                                                     HandleOf(CurrentStream(device)));
}

}  // namespace

AheadSteps::AheadSteps(const ProgramSpec& spec) : spec_(spec) {
  on_gpu_ = std::any_of(spec.steps.begin(), spec.steps.end(), [&](const StepSpec& step) { return IsOnGpu(spec, step); });
  for (auto step = spec.steps.begin(); step != spec.steps.end();) {
    const auto end = step + step->batch;
    if (std::any_of(step, end, [](const StepSpec& s) { return s.overwrites > kMostSavedBytes; })) break;
    for (; step != end; ++step) {
      needs_.emplace_back(spec, *step);
      last_at_ = std::max<size_t>(last_at_, std::max(needs_.back().KnownAt(spec), step->overwrites_at));
    }
  }
}

size_t AheadSteps::size() const {
  const When wanted = Active().head_start;
  return wanted == When::kAlways || (wanted == When::kAuto && on_gpu_) ? needs_.size() : 0;
}

size_t AheadSteps::NeededBy(size_t first, size_t count, const PartialArgs& args) const {
  size_t needed = 0;
  const auto wait = [&needed](int32_t ops) { needed = std::max(needed, ops > 0 ? static_cast<size_t>(ops) : Program::kNever); };
  const auto is_known = [](absl::Span<const uint8_t> known, int32_t slot) {
    return static_cast<size_t>(slot) < known.size() && known[static_cast<size_t>(slot)] != 0;
  };
  for (size_t i = first; i < first + count; ++i) {
    for (const int32_t s : needs_[i].storages) {
      const auto number = static_cast<size_t>(s);
      if (number >= args.run.storages.size() || args.run.storages[number] == nullptr) wait(AtOf(spec_.known_at.storages, s));
    }
    for (const int32_t slot : needs_[i].scalars) {
      if (!is_known(args.known_scalars, slot)) wait(AtOf(spec_.known_at.scalars, slot));
    }
    for (const int32_t slot : needs_[i].offsets) {
      if (!is_known(args.known_offsets, slot)) wait(AtOf(spec_.known_at.offsets, slot));
    }
    if (static_cast<size_t>(spec_.steps[i].overwrites_at) > args.num_ops) wait(spec_.steps[i].overwrites_at);
  }
  return needed;
}

void SavedMemory::Save(void* memory, size_t nbytes, c10::Device device) {
  const auto is_same = [memory](const Saved& saved) { return saved.memory == memory; };
  if (nbytes == 0 || std::any_of(saved_.begin(), saved_.end(), is_same)) return;
  at::DataPtr copy = AllocateOn(device, static_cast<int64_t>(nbytes), /*scratch=*/false);
  const int error = Copy(copy.get(), memory, nbytes, device);
  TORCH_CHECK(error == 0, "lazuli: memory that is about to be overwritten could not be copied: ", RequireCudaDriver().ErrorText(error));
  saved_.push_back({memory, nbytes, std::move(copy)});
}

void SavedMemory::Restore() {
  for (Saved& saved : saved_) {
    // An error here is one of the whole device, which the next call meets, too.
    (void)Copy(saved.memory, saved.copy.get(), saved.nbytes, saved.copy.device());
  }
  saved_.clear();
}

}  // namespace lazuli::runtime
