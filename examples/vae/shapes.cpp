#include "shapes.h"

namespace vae {

torch::Tensor DrawShapes(int64_t count) {
  const auto axis = torch::linspace(-1, 1, kSide);
  const auto y = axis.view({1, 1, kSide, 1}), x = axis.view({1, 1, 1, kSide});
  const auto number = [&](double low, double high) { return torch::rand({count, 1, 1, 1}) * (high - low) + low; };
  const auto dx = x - number(-0.35, 0.35), dy = y - number(-0.35, 0.35);
  const auto size = number(0.3, 0.6);
  const auto radius = (dx * dx + dy * dy).sqrt();
  const auto disc = size - radius;
  const auto ring = 0.15 - (radius - size).abs();
  const auto angle = number(0, 3.1416);
  const auto bar = 0.15 - (dx * angle.sin() - dy * angle.cos()).abs();
  const auto kind = torch::randint(3, {count, 1, 1, 1});
  const auto inside = torch::where(kind == 0, disc, torch::where(kind == 1, ring, bar));
  return torch::sigmoid(inside * 20);
}

std::string ToAscii(const torch::Tensor& images) {
  constexpr char kShades[] = " .:-=+*#%@";
  const auto shades = (images.detach().squeeze(1) * 9.99).to(torch::kLong).clamp(0, 9).contiguous();
  const auto shade = shades.accessor<int64_t, 3>();
  std::string text;
  for (int64_t row = 0; row < kSide; ++row) {
    for (int64_t image = 0; image < shades.size(0); ++image) {
      for (int64_t column = 0; column < kSide; ++column) text.push_back(kShades[shade[image][row][column]]);
      text += "  ";
    }
    text.push_back('\n');
  }
  return text;
}

}  // namespace vae
