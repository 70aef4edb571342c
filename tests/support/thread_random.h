// The numbers that a thread of ATen's CUDA kernels draws, by LibTorch's own Philox engine.
#pragma once

#include <ATen/core/PhiloxRNGEngine.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace lazuli::testing {

// What cuRAND makes of a number of 32 bits, in (0, 1].
inline float UniformOf(uint32_t bits) { return std::fmaf(static_cast<float>(bits), 0x1p-32f, 0x1p-33f); }
// And of two that follow each other in a four, by Box and Muller's transform: the first or second normal number.
inline double NormalOf(uint32_t even, uint32_t odd, bool second) {
  const double angle = 2 * M_PI * (odd + 0.5) * 0x1p-32, radius = std::sqrt(-2 * std::log(UniformOf(even)));
  return radius * (second ? std::cos(angle) : std::sin(angle));
}

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
    for (size_t i = 0; i < bits.size(); ++i) drawn[i] = UniformOf(bits[i]);
    return drawn;
  }

 private:
  at::Philox4_32 engine_;
};

}  // namespace lazuli::testing
