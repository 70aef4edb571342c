#include "codegen/value_diff.h"

#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace lazuli::codegen {
namespace {

struct Format {
  double epsilon;
  double smallest;  // Normal number.
};

Format FormatOf(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::BFloat16:
      return {1.0 / 128, std::numeric_limits<float>::min()};
    case c10::ScalarType::Half:
      return {1.0 / 1024, 1.0 / 16384};
    case c10::ScalarType::Float:
      return {std::numeric_limits<float>::epsilon(), std::numeric_limits<float>::min()};
    default:
      return {std::numeric_limits<double>::epsilon(), std::numeric_limits<double>::min()};
  }
}

// A unit in the last place of `value`, never below the smallest normal number's.
double UlpOf(double value, const Format& format) {
  const double magnitude = std::max(std::fabs(value), format.smallest);
  return std::ldexp(format.epsilon, std::ilogb(magnitude));
}

template <class T>
std::string NumberText(T value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

template <class T>
ValueDifference Difference(int64_t index, T expected, T actual) {
  ValueDifference difference{index, NumberText(expected), NumberText(actual), ""};
  difference.text = "element " + std::to_string(index) + ": expected " + difference.expected + ", got " + difference.actual;
  return difference;
}

bool Near(double expected, double actual, double allowed) {
  if (std::isnan(expected) && std::isnan(actual)) return true;
  if (expected == actual && std::signbit(expected) == std::signbit(actual)) return true;
  return std::isfinite(expected) && std::isfinite(actual) && allowed > 0 && std::fabs(expected - actual) <= allowed;
}

std::optional<ValueDifference> FirstFloat(const at::Tensor& expected, const at::Tensor& actual, const Tolerance& tolerance) {
  const Format format = FormatOf(expected.scalar_type());
  const at::Tensor a = expected.detach().to(c10::kCPU, c10::kDouble).contiguous();
  const at::Tensor b = actual.detach().to(c10::kCPU, c10::kDouble).contiguous();
  const auto* want = a.const_data_ptr<double>();
  const auto* got = b.const_data_ptr<double>();
  double largest = 1;
  if (tolerance.scale > 0) {
    for (int64_t i = 0; i < a.numel(); ++i) {
      if (std::isfinite(want[i])) largest = std::max(largest, std::fabs(want[i]));
    }
  }
  const double by_scale = tolerance.scale * format.epsilon * largest;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double allowed = std::max(by_scale, std::isfinite(want[i]) && tolerance.ulps > 0 ? tolerance.ulps * UlpOf(want[i], format) : 0);
    if (Near(want[i], got[i], allowed)) continue;
    ValueDifference difference = Difference(i, want[i], got[i]);
    if (std::isfinite(want[i]) && std::isfinite(got[i])) {
      std::ostringstream text;
      text.precision(17);
      text << " (off by " << std::fabs(want[i] - got[i]) / UlpOf(want[i], format) << " ulp, " << allowed / UlpOf(want[i], format)
           << " allowed)";
      difference.text += text.str();
    }
    return difference;
  }
  return std::nullopt;
}

std::optional<ValueDifference> FirstInteger(const at::Tensor& expected, const at::Tensor& actual) {
  const at::Tensor a = expected.to(c10::kCPU, c10::kLong).contiguous();
  const at::Tensor b = actual.to(c10::kCPU, c10::kLong).contiguous();
  const auto* want = a.const_data_ptr<int64_t>();
  const auto* got = b.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (want[i] != got[i]) return Difference(i, want[i], got[i]);
  }
  return std::nullopt;
}

}  // namespace

double EpsilonOf(c10::ScalarType dtype) { return FormatOf(c10::toRealValueType(dtype)).epsilon; }

std::optional<ValueDifference> FirstValueDifference(const at::Tensor& expected, const at::Tensor& actual, const Tolerance& tolerance) {
  if (expected.is_complex()) {
    return FirstValueDifference(at::view_as_real(expected.resolve_conj()), at::view_as_real(actual.resolve_conj()), tolerance);
  }
  return expected.is_floating_point() ? FirstFloat(expected, actual, tolerance) : FirstInteger(expected, actual);
}

double LargestDifference(const at::Tensor& expected, const at::Tensor& actual) {
  if (expected.is_complex()) {
    return LargestDifference(at::view_as_real(expected.resolve_conj()), at::view_as_real(actual.resolve_conj()));
  }
  const at::Tensor a = expected.detach().to(c10::kCPU, c10::kDouble).contiguous();
  const at::Tensor b = actual.detach().to(c10::kCPU, c10::kDouble).contiguous();
  double largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double want = a.const_data_ptr<double>()[i], got = b.const_data_ptr<double>()[i];
    if (std::isnan(want) && std::isnan(got)) continue;
    if (want == got) continue;
    largest = std::max(largest, std::isfinite(want - got) ? std::fabs(want - got) : std::numeric_limits<double>::infinity());
  }
  return largest;
}

}  // namespace lazuli::codegen
