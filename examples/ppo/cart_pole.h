// A pole on a cart that is pushed left or right; it must stay up.
#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace ppo {

class CartPole {
 public:
  static constexpr int64_t kObservations = 4;
  static constexpr int64_t kActions = 2;
  using Observation = std::array<float, kObservations>;  // Place, speed, angle, turning speed.

  struct Outcome {
    float reward = 0;
    bool done = false;  // The pole fell, the cart left the track, or time is up.
  };

  explicit CartPole(uint64_t seed) : random_(seed) { Reset(); }

  void Reset();
  // One fiftieth of a second, pushing right for 1 and left for 0.
  Outcome Step(int64_t action);
  const Observation& observation() const { return state_; }

 private:
  std::mt19937 random_;
  Observation state_{};
  int steps_ = 0;
};

}  // namespace ppo
