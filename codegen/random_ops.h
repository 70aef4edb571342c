// What lazuli::_random draws.
#pragma once

#include <cstdint>
#include <string_view>

namespace lazuli::codegen {

enum class Distribution : int64_t {
  kUniform,  // From a, included, to b, excluded, as Tensor::uniform_.
  kNormal,   // Of mean a and standard deviation b, as Tensor::normal_.
};

// Whether the operator's random numbers depend on how its result lies in memory.
inline bool DrawsInOrderOfMemory(std::string_view name) { return name == "lazuli::_dropout_mask" || name == "lazuli::_random"; }

}  // namespace lazuli::codegen
