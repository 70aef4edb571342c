#include "tracer/number_arithmetic.h"

#include <c10/core/impl/COW.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "tracer/lazy_tensor.h"
#include "tracer/read_number.h"

namespace lazuli::tracer {
namespace {

bool IsInteger(const at::Scalar& number) { return number.isIntegral(/*includeBool=*/false) && number.type() != c10::kUInt64; }

// An integer may not be given a factor that is none.
bool IsOne(const at::Scalar& factor, c10::ScalarType self) {
  if (IsInteger(factor)) return factor.toLong() == 1;
  return factor.isFloatingPoint() && factor.toDouble() == 1 && c10::isFloatingType(self);
}

// As ATen casts a number to the type of the tensor that it meets. False: the result would be of another type, or the number is out of
// range.
bool Cast(const at::Scalar& number, int64_t* value) {
  if (!IsInteger(number)) return false;
  *value = number.toLong();
  return true;
}
template <class Float>
bool Cast(const at::Scalar& number, Float* value) {
  if (IsInteger(number)) {
    *value = static_cast<Float>(number.toLong());
    return true;
  }
  if (!number.isFloatingPoint()) return false;
  const double wide = number.toDouble();
  if (std::isfinite(wide) && std::fabs(wide) > std::numeric_limits<Float>::max()) return false;
  *value = static_cast<Float>(wide);
  return true;
}

template <class T>
T Compute(Arithmetic op, T a, T b) {
  switch (op) {
    case Arithmetic::kAdd:
      return a + b;
    case Arithmetic::kSubtract:
      return a - b;
    case Arithmetic::kMultiply:
      return a * b;
  }
  return a;
}

template <class T>
bool Compute(Arithmetic op, void* data, const at::Scalar& other) {
  T number;
  if (!Cast(other, &number)) return false;
  T* const self = static_cast<T*>(data);
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // Wraps around.
    *self = static_cast<T>(Compute(op, static_cast<Unsigned>(*self), static_cast<Unsigned>(number)));
  } else {
    *self = Compute(op, *self, number);
  }
  return true;
}

}  // namespace

bool ComputeInPlace(Arithmetic op, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha) {
  if (!IsOne(alpha, self.scalar_type())) return false;
  void* const number = FindNumber(self);
  if (number == nullptr || c10::impl::cow::is_cow_data_ptr(DataOf(self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()))) {
    return false;
  }
  switch (self.scalar_type()) {
    case c10::kFloat:
      return Compute<float>(op, number, other);
    case c10::kDouble:
      return Compute<double>(op, number, other);
    case c10::kLong:
      return Compute<int64_t>(op, number, other);
    default:
      return false;
  }
}

bool ComputeInPlace(Arithmetic op, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  const bool is_plain = other.scalar_type() == self.scalar_type() || other.unsafeGetTensorImpl()->is_wrapped_number();
  if (!is_plain || other.is_neg()) return false;
  const std::optional<at::Scalar> number = ReadNumber(other);
  return number.has_value() && ComputeInPlace(op, self, *number, alpha);
}

}  // namespace lazuli::tracer
