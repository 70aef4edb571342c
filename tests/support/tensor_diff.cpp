#include "tests/support/tensor_diff.h"

#include <sstream>

namespace lazuli::testing {
namespace {

template <class A, class B>
std::string Differ(const char* what, const A& expected, const B& actual) {
  std::ostringstream text;
  text << what << ": expected " << expected << ", got " << actual;
  return text.str();
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
  if (expected._is_zerotensor() != actual._is_zerotensor()) return "one of them is a tensor of zeros without memory";
  if (expected._is_zerotensor()) return "";
  const auto difference = codegen::FirstValueDifference(expected, actual, tolerance);
  return difference.has_value() ? difference->text : "";
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
