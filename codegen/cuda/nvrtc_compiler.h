// CUDA C++ to machine code of a GPU, by NVRTC.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lazuli::codegen {

// A cubin of `source` for `arch` ("sm_90"); where NVRTC is older than the GPU, PTX of the newest it knows, which the driver translates.
// `contract`: products and sums may become one rounding. Thread-safe. What NVRTC says of an error is in the status.
absl::StatusOr<std::string> CompileCuda(const std::string& source, const std::string& arch, bool contract);

// "13.0". Fails where there is no NVRTC.
absl::StatusOr<std::string> NvrtcVersion();

}  // namespace lazuli::codegen
