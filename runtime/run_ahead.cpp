#include "runtime/run_ahead.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/from_blob.h>
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

// So many copies are one launch.
constexpr size_t kMany = 3;

size_t RoundedUp(size_t nbytes) { return (nbytes + 15) / 16 * 16; }

at::Tensor BytesAt(void* memory, size_t nbytes, c10::Device device) {
  return at::from_blob(memory, {static_cast<int64_t>(nbytes)}, at::TensorOptions(at::kByte).device(device));
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

void SavedMemory::Save(std::vector<Piece> pieces, c10::Device device) {
  std::vector<Saved> added;
  size_t nbytes = 0;
  const auto is_saved = [](const std::vector<Saved>& saved, const Piece& piece) {
    return std::any_of(saved.begin(), saved.end(), [&](const Saved& s) { return s.piece.memory == piece.memory; });
  };
  for (const Piece& piece : pieces) {
    if (piece.nbytes == 0 || is_saved(saved_, piece) || is_saved(added, piece)) continue;
    added.push_back({piece, nullptr, device});
    nbytes += RoundedUp(piece.nbytes);
  }
  if (added.empty()) return;
  at::DataPtr copies = AllocateOn(device, static_cast<int64_t>(nbytes), /*scratch=*/false);
  auto* next = static_cast<char*>(copies.get());
  for (Saved& saved : added) {
    saved.copy = next;
    next += RoundedUp(saved.piece.nbytes);
  }
  if (device.is_cuda() && added.size() >= kMany) {
    std::vector<at::Tensor> from, to;
    for (const Saved& saved : added) {
      from.push_back(BytesAt(saved.piece.memory, saved.piece.nbytes, device));
      to.push_back(BytesAt(saved.copy, saved.piece.nbytes, device));
    }
    at::_foreach_copy_(to, from);
  } else {
    for (const Saved& saved : added) {
      const int error = Copy(saved.copy, saved.piece.memory, saved.piece.nbytes, device);
      TORCH_CHECK(error == 0, "lazuli: memory that is about to be overwritten could not be copied: ", RequireCudaDriver().ErrorText(error));
    }
  }
  copies_.push_back(std::move(copies));
  saved_.insert(saved_.end(), added.begin(), added.end());
}

void SavedMemory::Restore() {
  for (const Saved& saved : saved_) {
    // An error here is one of the whole device, which the next call meets, too.
    (void)Copy(saved.piece.memory, saved.copy, saved.piece.nbytes, saved.device);
  }
  Forget();
}

void SavedMemory::Forget() {
  saved_.clear();
  copies_.clear();
}

}  // namespace lazuli::runtime
