// Random numbers on GPUs: they are taken at once, and drawn where the trace runs, by the kernels that use them.
#pragma once

#include <torch/library.h>

#include <cstdint>
#include <string_view>

#include "runtime/cuda_driver.h"

namespace lazuli::tracer {

// How ATen launches a kernel that draws a number for each of so many elements, four at a time.
struct RandomLaunch {
  int64_t threads = 0;    // In all.
  int64_t increment = 0;  // So many numbers of its sequence each of them may draw.

  static RandomLaunch Of(int64_t elements, const runtime::CudaDeviceInfo& gpu);
};

// rand, randn, rand_like and randn_like on a GPU become lazuli::_random, whose numbers are taken from the default generator when they are
// called, so that its state and all that is drawn later are eager's. All else goes on as ever: calls with a generator, other dtypes, 2 GiB
// and more, in reduce-overhead what ATen's kernel draws faster (a CUDA graph would hold its numbers), and the first call of each kind, to
// see that ATen's kernel takes as many numbers as it is thought to. `generic` and `recorder`: at those keys. False: none is registered,
// since the program has kernels of its own for what they stand for.
bool RegisterRandomKernels(torch::Library* generic, torch::Library* recorder);
// Whether the operator's kernel at the recorder's key would be one of these.
bool IsRandomLike(std::string_view name);

}  // namespace lazuli::tracer
