// The generators of LibTorch's CUDA kernels, which number what they draw.
#pragma once

#include <c10/core/Device.h>

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

}  // namespace lazuli::runtime
