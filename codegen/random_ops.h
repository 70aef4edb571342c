// What lazuli::_random draws.
#pragma once

#include <cstdint>
#include <string_view>

namespace lazuli::codegen {

enum class Distribution : int64_t {
  kUniform,  // From a, included, to b, excluded, as Tensor::uniform_.
  kNormal,   // Of mean a and standard deviation b, as Tensor::normal_.
};

// Of more elements, ATen's kernel draws them, each of whose threads uses all four numbers that come at a time; kernels of ours make the
// four for each element.
constexpr int64_t kMostDrawnByKernels = int64_t{1} << 20;

// Whether the operator's random numbers depend on how its result lies in memory.
inline bool DrawsInOrderOfMemory(std::string_view name) { return name == "lazuli::_dropout_mask" || name == "lazuli::_random"; }

}  // namespace lazuli::codegen
