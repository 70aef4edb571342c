// Device functions that generated CUDA text calls. They need no header.
#pragma once

#include <string>

namespace lazuli::codegen {

// Those that `body` calls, and what they call.
std::string DeviceHelpersFor(const std::string& body);

}  // namespace lazuli::codegen
