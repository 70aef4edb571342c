#include "cart_pole.h"

#include <cmath>

namespace ppo {
namespace {

constexpr float kGravity = 9.8F;
constexpr float kCartMass = 1.0F;
constexpr float kPoleMass = 0.1F;
constexpr float kTotalMass = kCartMass + kPoleMass;
constexpr float kHalfLength = 0.5F;
constexpr float kPush = 10.0F;
constexpr float kSeconds = 0.02F;
constexpr float kMaxPlace = 2.4F;
constexpr float kMaxAngle = 0.2095F;
constexpr int kMaxSteps = 500;

}  // namespace

void CartPole::Reset() {
  for (float& value : state_) value = (static_cast<float>(random_() % 1000) / 1000 - 0.5F) * 0.1F;
  steps_ = 0;
}

CartPole::Outcome CartPole::Step(int64_t action) {
  auto& [place, speed, angle, turning] = state_;
  const float force = action == 1 ? kPush : -kPush;
  const float cosine = std::cos(angle), sine = std::sin(angle);
  const float inner = (force + kPoleMass * kHalfLength * turning * turning * sine) / kTotalMass;
  const float turning_rate = (kGravity * sine - cosine * inner) / (kHalfLength * (4.0F / 3.0F - kPoleMass * cosine * cosine / kTotalMass));
  const float speed_rate = inner - kPoleMass * kHalfLength * turning_rate * cosine / kTotalMass;
  place += kSeconds * speed;
  speed += kSeconds * speed_rate;
  angle += kSeconds * turning;
  turning += kSeconds * turning_rate;
  ++steps_;
  return {1.0F, std::abs(place) > kMaxPlace || std::abs(angle) > kMaxAngle || steps_ >= kMaxSteps};
}

}  // namespace ppo
