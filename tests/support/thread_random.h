// The numbers that a thread of ATen's CUDA kernels draws, by LibTorch's own Philox engine.
#pragma once

#include <ATen/core/PhiloxRNGEngine.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace lazuli::testing {

// A thread's generator, as cuRAND starts it.
class ThreadRandom {
 public:
  ThreadRandom(uint64_t seed, uint64_t thread, uint64_t offset) : engine_(seed, thread, offset / 4) {}
  std::array<uint32_t, 4> DrawBits() {
    std::array<uint32_t, 4> bits;
    for (uint32_t& number : bits) number = engine_();
    return bits;
  }
  std::array<float, 4> Draw() {
    std::array<float, 4> drawn;
    const auto bits = DrawBits();
    for (size_t i = 0; i < bits.size(); ++i) drawn[i] = std::fmaf(static_cast<float>(bits[i]), 0x1p-32f, 0x1p-33f);
    return drawn;
  }

 private:
  at::Philox4_32 engine_;
};

}  // namespace lazuli::testing
