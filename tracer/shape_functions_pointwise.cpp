// Shape functions of pointwise operators whose kernels take more dtypes than are known here, and of ranges.
#include <ATen/CompositeExplicitAutogradFunctions.h>

#include <cmath>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

// (self, ...): a tensor in its layout.
Shapes LikeShape(Args args) { return {at::compositeexplicitautograd::empty_like(TensorArg(args[0]))}; }

// (self, alpha)
Shapes CeluShape(Args args) {
  if (args[1].toScalar().toDouble() == 0) return {};
  return FloatUnaryShape(args);
}

// (self): mantissas and exponents.
Shapes FrexpShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  return {at::compositeexplicitautograd::empty_like(self), at::compositeexplicitautograd::empty_like(self, at::kInt)};
}

// (real, imag) or (abs, angle)
Shapes ComplexShape(Args args) {
  const at::Tensor a = TensorArg(args[0]);
  const at::Tensor b = TensorArg(args[1]);
  if (a.scalar_type() != b.scalar_type() || (a.scalar_type() != at::kFloat && a.scalar_type() != at::kDouble)) return {};
  return {PointwiseResult({a, b}, c10::toComplexType(a.scalar_type()))};
}

// (self, other): shifted bits of integers.
Shapes ShiftShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) return {};
  if (!args[1].isTensor()) {
    if (!args[1].isInt()) return {};
    return {PointwiseResult({self, Fresh({}, self.scalar_type())}, self.scalar_type())};
  }
  const at::Tensor other = TensorArg(args[1]);
  if (other.scalar_type() != self.scalar_type() || self.dim() == 0 || other.dim() == 0) return {};
  return {PointwiseResult({self, other}, self.scalar_type())};
}

// A range's numbers and then dtype. Whole numbers only, where both formulas of the kernel agree.
Shapes Range(const c10::Scalar& start, const c10::Scalar& end, const c10::Scalar& step, const c10::IValue& dtype) {
  constexpr int64_t kExact = int64_t{1} << 52;
  for (const c10::Scalar& number : {start, end, step}) {
    if (!number.isIntegral(/*includeBool=*/false) || std::abs(number.toLong()) > kExact) return {};
  }
  const at::ScalarType type = dtype.isNone() ? at::kLong : dtype.toScalarType();
  if (!c10::isIntegralType(type, /*includeBool=*/false) && !c10::isFloatingType(type)) return {};
  const int64_t width = end.toLong() - start.toLong(), by = step.toLong();
  if (by == 0 || (width < 0) != (by < 0 && width != 0)) return {};
  return {Fresh({(width + by - (by > 0 ? 1 : -1)) / by}, type)};
}

// (end, dtype?, ...), (start, end, dtype?, ...), (start, end, step, dtype?, ...)
Shapes ArangeShape(Args args) { return Range(0, args[0].toScalar(), 1, args[1]); }
Shapes ArangeStartShape(Args args) { return Range(args[0].toScalar(), args[1].toScalar(), 1, args[2]); }
Shapes ArangeStepShape(Args args) { return Range(args[0].toScalar(), args[1].toScalar(), args[2].toScalar(), args[3]); }

// (n, dtype?, ...), (n, m, dtype?, ...)
Shapes Eye(const c10::IValue& rows, const c10::IValue& columns, const c10::IValue& dtype) {
  if (rows.toInt() < 0 || columns.toInt() < 0) return {};
  return {Fresh({rows.toInt(), columns.toInt()}, dtype.isNone() ? c10::get_default_dtype_as_scalartype() : dtype.toScalarType())};
}
Shapes EyeShape(Args args) { return Eye(args[0], args[0], args[1]); }
Shapes EyeOfTwoShape(Args args) { return Eye(args[0], args[1], args[2]); }

}  // namespace

void AddPointwiseShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::nan_to_num", LikeShape},
      {"aten::_conj_physical", LikeShape},
      {"aten::angle", FloatUnaryShape},
      {"aten::celu", CeluShape},
      {"aten::deg2rad", FloatLikeShape},
      {"aten::rad2deg", FloatLikeShape},
      {"aten::frexp.Tensor", FrexpShape},
      {"aten::mish_backward", FloatBinaryShape},
      {"aten::complex", ComplexShape},
      {"aten::polar", ComplexShape},
      {"aten::__lshift__.Scalar", ShiftShape},
      {"aten::__lshift__.Tensor", ShiftShape},
      {"aten::__rshift__.Scalar", ShiftShape},
      {"aten::__rshift__.Tensor", ShiftShape},
      {"aten::__ilshift__.Scalar", ShiftShape},
      {"aten::__ilshift__.Tensor", ShiftShape},
      {"aten::__irshift__.Scalar", ShiftShape},
      {"aten::__irshift__.Tensor", ShiftShape},
      {"aten::arange", ArangeShape},
      {"aten::arange.start", ArangeStartShape},
      {"aten::arange.start_step", ArangeStepShape},
      {"aten::eye", EyeShape},
      {"aten::eye.m", EyeOfTwoShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
