// Visiting the tensors among a schema's arguments and results, C++ values or boxed.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

namespace lazuli::tracer {

template <class Visit>
void VisitTensors(const at::Tensor& value, const Visit& visit) {
  if (value.defined()) visit(value);
}
template <class Visit>
void VisitTensors(const std::optional<at::Tensor>& value, const Visit& visit) {
  if (value.has_value()) VisitTensors(*value, visit);
}
template <class Visit>
void VisitTensors(at::TensorList value, const Visit& visit) {
  for (const at::Tensor& tensor : value) VisitTensors(tensor, visit);
}
template <class Visit>
void VisitTensors(const std::vector<at::Tensor>& value, const Visit& visit) {
  VisitTensors(at::TensorList(value), visit);
}
template <class Visit>
void VisitTensors(const at::ITensorListRef& value, const Visit& visit) {
  for (const at::Tensor& tensor : value) VisitTensors(tensor, visit);
}
template <class Visit>
void VisitTensors(const c10::List<std::optional<at::Tensor>>& value, const Visit& visit) {
  for (const std::optional<at::Tensor> tensor : value) VisitTensors(tensor, visit);
}
template <class Visit, class... T>
void VisitTensors(const std::tuple<T...>& value, const Visit& visit) {
  std::apply([&visit](const auto&... items) { (VisitTensors(items, visit), ...); }, value);
}
template <class T>
struct HoldsNoTensor : std::disjunction<std::is_arithmetic<T>, std::is_enum<T>> {};
template <>
struct HoldsNoTensor<c10::SymInt> : std::true_type {};
template <>
struct HoldsNoTensor<at::Scalar> : std::true_type {};
template <>
struct HoldsNoTensor<at::Device> : std::true_type {};
template <>
struct HoldsNoTensor<c10::string_view> : std::true_type {};
template <>
struct HoldsNoTensor<at::ArrayRef<double>> : std::true_type {};
template <>
struct HoldsNoTensor<at::OptionalIntArrayRef> : std::true_type {};
template <>
struct HoldsNoTensor<at::OptionalSymIntArrayRef> : std::true_type {};
template <size_t N>
struct HoldsNoTensor<std::array<bool, N>> : std::true_type {};
template <>
struct HoldsNoTensor<at::IntArrayRef> : std::true_type {};
template <>
struct HoldsNoTensor<c10::SymIntArrayRef> : std::true_type {};
template <class T>
struct HoldsNoTensor<std::optional<T>> : HoldsNoTensor<T> {};
template <>
struct HoldsNoTensor<std::optional<at::Generator>> : std::true_type {};
template <class T, class Visit>
std::enable_if_t<HoldsNoTensor<T>::value> VisitTensors(const T&, const Visit&) {}

// False: `value` may hold tensors in a way that is not seen here.
template <class Visit>
bool VisitTensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    VisitTensors(value.toTensor(), visit);
  } else if (value.isTensorList()) {
    VisitTensors(value.toTensorVector(), visit);
  } else if (value.isOptionalTensorList()) {
    VisitTensors(value.toOptionalTensorList(), visit);
  } else {
    return value.isNone() || value.isScalar() || value.isString() || value.isIntList() || value.isDoubleList() || value.isBoolList() ||
           value.isDevice() || value.isGenerator() || value.isSymIntList();
  }
  return true;
}

}  // namespace lazuli::tracer
