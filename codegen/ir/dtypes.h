// Kinds of dtypes.
#pragma once

#include <c10/core/ScalarType.h>

namespace lazuli::codegen {

constexpr bool IsHalf(c10::ScalarType type) { return type == c10::kHalf || type == c10::kBFloat16; }

}  // namespace lazuli::codegen
