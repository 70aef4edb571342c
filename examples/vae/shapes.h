// Images of simple shapes, computed with tensors.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace vae {

constexpr int64_t kSide = 16;

// [count, 1, kSide, kSide] from 0 to 1: discs, rings and bars of random place, size and direction with soft edges.
torch::Tensor DrawShapes(int64_t count);

// Images [count, 1, kSide, kSide] side by side, a character per pixel.
std::string ToAscii(const torch::Tensor& images);

}  // namespace vae
