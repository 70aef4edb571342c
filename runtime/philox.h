// The generators of LibTorch's CUDA kernels, which number what they draw.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace lazuli::runtime {

// Where a kernel begins to draw: at this number of each thread's sequence.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// Takes the next `increment` numbers of every sequence from the default generator of GPU `device`, as a kernel of LibTorch's that draws so
// many does. None, with nothing taken: LibTorch is of another version, or a CUDA graph is captured, in which numbers are not known yet.
std::optional<PhiloxState> TakeRandomNumbers(c10::Device device, uint64_t increment);

// What LibTorch's CUDA generators do while it lives, when a kernel that this thread calls wants numbers of them. Nests.
class NumbersOfCalls {
 public:
  // As always; says what the kernels took of the default generators.
  NumbersOfCalls();
  // Nothing is taken from any: numbers begin at `state`.
  explicit NumbersOfCalls(PhiloxState state);
  ~NumbersOfCalls();
  NumbersOfCalls(const NumbersOfCalls&) = delete;
  NumbersOfCalls& operator=(const NumbersOfCalls&) = delete;

  // This thread's; null for none.
  static NumbersOfCalls* Current();

  const std::optional<PhiloxState>& state() const { return state_; }
  void OnTake(const c10::GeneratorImpl& generator, uint64_t increment);
  int calls() const { return calls_; }
  uint64_t taken() const { return taken_; }

 private:
  const std::optional<PhiloxState> state_;
  NumbersOfCalls* const outer_;
  int calls_ = 0;
  uint64_t taken_ = 0;
};

// Whether a kernel takes as many numbers of the default generator as it is thought to, in one go: believed once that was seen.
class TakenAsThought {
 public:
  enum class Known : uint8_t { kNothing, kYes, kNo };
  Known known() const { return known_.load(std::memory_order_relaxed); }
  // Makes the kernel's `call`, which is thought to take `numbers`.
  template <class Call>
  void Watch(uint64_t numbers, const Call& call) {
    NumbersOfCalls seen;
    call();
    // What was launched before, too, may have drawn.
    if (seen.calls() > 1) return;
    known_.store(seen.calls() == 1 && seen.taken() == numbers ? Known::kYes : Known::kNo, std::memory_order_relaxed);
  }

 private:
  std::atomic<Known> known_{Known::kNothing};
};

}  // namespace lazuli::runtime
