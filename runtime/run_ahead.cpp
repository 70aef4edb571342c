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
  const auto stream = static_cast<CudaStreamHandle>(CurrentStream(device).native_handle());
  return RequireCudaDriver().memcpy_device_to_device(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), nbytes, stream);
}

}  // namespace

AheadSteps::AheadSteps(const ProgramSpec& spec) {
  on_gpu_ = std::any_of(spec.steps.begin(), spec.steps.end(), [&](const StepSpec& step) { return IsOnGpu(spec, step); });
  size_t needed = 1;
  for (auto step = spec.steps.begin(); step != spec.steps.end();) {
    const auto end = step + step->batch;
    if (std::any_of(step, end, [](const StepSpec& s) { return s.overwrites > kMostSavedBytes; })) break;
    for (auto member = step; member != end; ++member) needed = std::max(needed, static_cast<size_t>(member->ops_needed));
    needed_.insert(needed_.end(), static_cast<size_t>(end - step), needed);
    step = end;
  }
}

size_t AheadSteps::NextAt(size_t done) const {
  const When wanted = Active().head_start;
  const bool may = wanted == When::kAlways || (wanted == When::kAuto && on_gpu_);
  return may && done < needed_.size() ? needed_[done] : Program::kNever;
}

size_t AheadSteps::NumberFor(size_t num_ops) const {
  return static_cast<size_t>(std::upper_bound(needed_.begin(), needed_.end(), num_ops) - needed_.begin());
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
