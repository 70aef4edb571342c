#include "tests/support/tensor_diff.h"

#include <cmath>
#include <limits>
#include <sstream>

namespace lazuli::testing {
namespace {

struct Format {
  double epsilon;
  double smallest;  // Normal number.
};

Format FormatOf(torch::ScalarType type) {
  switch (type) {
    case torch::kBFloat16:
      return {1.0 / 128, std::numeric_limits<float>::min()};
    case torch::kHalf:
      return {1.0 / 1024, 1.0 / 16384};
    case torch::kFloat:
      return {std::numeric_limits<float>::epsilon(), std::numeric_limits<float>::min()};
    default:
      return {std::numeric_limits<double>::epsilon(), std::numeric_limits<double>::min()};
  }
}

template <class A, class B>
std::string Differ(const char* what, const A& expected, const B& actual) {
  std::ostringstream text;
  text << what << ": expected " << expected << ", got " << actual;
  return text.str();
}

// A unit in the last place of `value`, never below the smallest normal number's.
double UlpOf(double value, const Format& format) {
  const double magnitude = std::max(std::fabs(value), format.smallest);
  return std::ldexp(format.epsilon, std::ilogb(magnitude));
}

std::string DiffValue(double expected, double actual, int64_t index, double allowed, const Format& format) {
  if (std::isnan(expected) && std::isnan(actual)) return "";
  if (expected == actual && std::signbit(expected) == std::signbit(actual)) return "";
  if (std::isfinite(expected) && std::isfinite(actual) && allowed > 0 && std::fabs(expected - actual) <= allowed) return "";
  std::ostringstream text;
  text.precision(17);
  text << "element " << index << ": expected " << expected << ", got " << actual;
  if (std::isfinite(expected) && std::isfinite(actual)) {
    text << " (off by " << std::fabs(expected - actual) / UlpOf(expected, format) << " ulp, " << allowed / UlpOf(expected, format)
         << " allowed)";
  }
  return text.str();
}

std::string DiffFloats(const torch::Tensor& expected, const torch::Tensor& actual, const Tolerance& tolerance) {
  const Format format = FormatOf(expected.scalar_type());
  if (expected._is_zerotensor() != actual._is_zerotensor()) return "one of them is a tensor of zeros without memory";
  if (expected._is_zerotensor()) return "";
  const torch::Tensor a = expected.detach().to(torch::kDouble).contiguous();
  const torch::Tensor b = actual.detach().to(torch::kDouble).contiguous();
  const double* want = a.const_data_ptr<double>();
  const double* got = b.const_data_ptr<double>();
  double largest = 1;
  if (tolerance.scale > 0) {
    for (int64_t i = 0; i < a.numel(); ++i) {
      if (std::isfinite(want[i])) largest = std::max(largest, std::fabs(want[i]));
    }
  }
  const double by_scale = tolerance.scale * format.epsilon * largest;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double allowed = std::max(by_scale, std::isfinite(want[i]) && tolerance.ulps > 0 ? tolerance.ulps * UlpOf(want[i], format) : 0);
    const std::string difference = DiffValue(want[i], got[i], i, allowed, format);
    if (!difference.empty()) return difference;
  }
  return "";
}

std::string DiffIntegers(const torch::Tensor& expected, const torch::Tensor& actual) {
  const torch::Tensor a = expected.to(torch::kLong).contiguous();
  const torch::Tensor b = actual.to(torch::kLong).contiguous();
  const auto* want = a.const_data_ptr<int64_t>();
  const auto* got = b.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (want[i] != got[i]) return Differ(("element " + std::to_string(i)).c_str(), want[i], got[i]);
  }
  return "";
}

}  // namespace

std::string DiffTensors(const torch::Tensor& expected, const torch::Tensor& actual, const Tolerance& tolerance) {
  if (expected.defined() != actual.defined()) return Differ("defined", expected.defined(), actual.defined());
  if (!expected.defined()) return "";
  if (expected.scalar_type() != actual.scalar_type()) return Differ("dtype", expected.scalar_type(), actual.scalar_type());
  if (expected.sizes() != actual.sizes()) return Differ("sizes", expected.sizes(), actual.sizes());
  if (expected.strides() != actual.strides()) return Differ("strides", expected.strides(), actual.strides());
  if (expected.storage_offset() != actual.storage_offset())
    return Differ("storage offset", expected.storage_offset(), actual.storage_offset());
  if (expected.requires_grad() != actual.requires_grad()) return Differ("requires_grad", expected.requires_grad(), actual.requires_grad());
  if (expected.is_complex())
    return DiffTensors(torch::view_as_real(expected.resolve_conj()), torch::view_as_real(actual.resolve_conj()), tolerance);
  return expected.is_floating_point() ? DiffFloats(expected, actual, tolerance) : DiffIntegers(expected, actual);
}

std::vector<int> AliasClasses(const Tensors& tensors) {
  std::vector<int> classes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t first = i;
    for (size_t j = 0; tensors[i].defined() && j < i; ++j) {
      if (tensors[j].defined() && tensors[j].is_alias_of(tensors[i])) {
        first = j;
        break;
      }
    }
    classes.push_back(static_cast<int>(first));
  }
  return classes;
}

std::string DiffAll(const Tensors& expected, const Tensors& actual, const Tolerance& tolerance) {
  if (expected.size() != actual.size()) return Differ("number of tensors", expected.size(), actual.size());
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string difference = DiffTensors(expected[i], actual[i], tolerance);
    if (!difference.empty()) return "tensor " + std::to_string(i) + ": " + difference;
  }
  const auto want = AliasClasses(expected), got = AliasClasses(actual);
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] != got[i]) return Differ(("tensor " + std::to_string(i) + " shares memory with tensor").c_str(), want[i], got[i]);
  }
  return "";
}

}  // namespace lazuli::testing
