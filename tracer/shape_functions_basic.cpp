// Shape functions of pointwise operators, copies, fills, reductions and indexing.
#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/unsqueeze_native.h>

#include <algorithm>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

bool IsReal(const at::Tensor& tensor) { return tensor.scalar_type() != at::kBool && !tensor.is_complex(); }

// One operand, any real dtype.
Shapes UnaryShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsReal(self)) return {};
  return {PointwiseResult({self}, self.scalar_type())};
}

// The magnitudes of complex numbers are real. Strides of sizes that make no difference are chosen in another way then.
Shapes AbsShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const auto sizes = self.sizes();
  const bool is_plain = HasDefaultStrides(self) && self.numel() > 0;
  const bool all_count = std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 1; });
  if (!IsReal(self) && !(self.is_complex() && (is_plain || all_count))) return {};
  return {PointwiseResult({self}, c10::toRealValueType(self.scalar_type()))};
}

Shapes IsNanShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  return {PointwiseResult({self}, at::kBool)};
}

// (a, b, ...) of one floating dtype and size, kernels that allocate by themselves.
Shapes FreshBinaryShape(Args args) {
  const at::Tensor a = TensorArg(args[0]);
  const at::Tensor b = TensorArg(args[1]);
  if (!HaveOneFloatDtype({a, b}) || !a.sizes().equals(b.sizes()) || !HasDefaultStrides(a) || !HasDefaultStrides(b)) return {};
  return {Fresh(a.sizes(), a.scalar_type())};
}

// (self, weight): weight is expanded to self.
Shapes PreluShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor weight = TensorArg(args[1]);
  if (!HaveOneFloatDtype({self, weight}) || !HasDefaultStrides(self)) return {};
  weight.expand(self.sizes());
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self, other): other may be a number, of any dtype but a complex one.
Shapes FloorDivideShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const bool is_number = args[1].isScalar() && !args[1].isTensor();
  const bool is_wrapped = !is_number && args[1].toTensor().unsafeGetTensorImpl()->is_wrapped_number();
  if (!is_number && !is_wrapped) return FloatBinaryShape(args);
  const bool is_complex = is_number ? args[1].isComplexDouble() : args[1].toTensor().is_complex();
  if (!HaveOneFloatDtype({self}) || self.unsafeGetTensorImpl()->is_wrapped_number() || is_complex) return {};
  return {PointwiseResult({self, Fresh({}, self.scalar_type())}, self.scalar_type())};
}

Shapes WhereShape(Args args) {
  const at::Tensor condition = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor other = TensorArg(args[2]);
  // Wrapped numbers promote by category, operands without dimensions too.
  if (condition.scalar_type() != at::kBool || self.scalar_type() != other.scalar_type()) return {};
  return {PointwiseResult({condition, self, other}, self.scalar_type())};
}

Shapes DropoutBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor mask = TensorArg(args[1]);
  if (!HaveOneFloatDtype({grad}) || mask.scalar_type() != at::kBool || !grad.sizes().equals(mask.sizes())) return {};
  return {PointwiseResult({grad, mask}, grad.scalar_type())};
}

// (self, target, weight?, reduction)
Shapes BinaryCrossEntropyShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor target = TensorArg(args[1]);
  const at::Tensor weight = TensorArg(args[2]);
  if (!HaveOneFloatDtype({self, target, weight}) || !HasDefaultStrides(self) || !self.sizes().equals(target.sizes()) || weight.defined()) {
    return {};
  }
  return {Fresh(args[3].toInt() == 0 ? self.sizes() : at::IntArrayRef(), self.scalar_type())};
}

// (self, target, weight?, pos_weight?, reduction): elements lie as the target's do.
Shapes LogitsLossShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor target = TensorArg(args[1]);
  const bool reduces = args[4].toInt() != 0;
  if (!HaveOneFloatDtype({self, target, TensorArg(args[2]), TensorArg(args[3])}) || !self.sizes().equals(target.sizes())) return {};
  if (!reduces && !HasDefaultStrides(target)) return {};
  for (const at::Tensor& weight : {TensorArg(args[2]), TensorArg(args[3])}) {
    if (weight.defined() && !at::is_expandable_to(weight.sizes(), self.sizes())) return {};
  }
  return {Fresh(reduces ? at::IntArrayRef() : self.sizes(), self.scalar_type())};
}

// (grad, self, target, ...): a fresh tensor like self.
Shapes LossBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor target = TensorArg(args[2]);
  const bool fits = grad.sizes().equals(self.sizes()) || grad.dim() == 0;
  if (!HaveOneFloatDtype({grad, self, target}) || !HasDefaultStrides(self) || !self.sizes().equals(target.sizes()) || !fits) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// A full reduction of at least one element that keeps the dtype.
Shapes ReduceAllShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.numel() == 0 || self.is_complex()) return {};
  return {Fresh({}, self.scalar_type())};
}

// (self, dim?, correction, keepdim): `count` fresh tensors.
Shapes MomentsShape(Args args, int count) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  const auto sizes = ReducedSizes(self, args[1].isNone() ? std::vector<int64_t>() : IntsArg(args[1]), args[3].toBool());
  if (!sizes.has_value()) return {};
  return Shapes(count, Fresh(*sizes, self.scalar_type()));
}

Shapes VarShape(Args args) { return MomentsShape(args, 1); }
Shapes VarMeanShape(Args args) { return MomentsShape(args, 2); }

// (self, dim, index)
Shapes IndexSelectShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor index = TensorArg(args[2]);
  if (self.dim() == 0 || self.numel() == 0 || index.dim() != 1 || !IsIndex(index)) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[c10::maybe_wrap_dim(args[1].toInt(), self.dim())] = index.numel();
  return {Fresh(sizes, self.scalar_type())};
}

// (self, dim, dtype?): the layout of the pointwise operators that it is made of.
Shapes SafeSoftmaxShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self}) || !args[2].isNone() || self.dim() == 0 || !HasDefaultStrides(self)) return {};
  c10::maybe_wrap_dim(args[1].toInt(), self.dim());
  return {Fresh(self.sizes(), self.scalar_type())};
}

Shapes LogicalUnaryShape(Args args) { return {PointwiseResult({TensorArg(args[0])}, at::kBool)}; }

Shapes LogicalBinaryShape(Args args) { return {PointwiseResult({TensorArg(args[0]), TensorArg(args[1])}, at::kBool)}; }

// A tensor in `self`'s layout, of another dtype if one is given.
Shapes Like(const at::Tensor& self, const c10::IValue& dtype, const c10::IValue& memory_format) {
  return {at::compositeexplicitautograd::empty_like(self, dtype.isNone() ? std::nullopt : std::optional(dtype.toScalarType()), {}, {}, {},
                                                    memory_format.isNone() ? std::nullopt : std::optional(memory_format.toMemoryFormat()))};
}

Shapes CloneShape(Args args) { return Like(TensorArg(args[0]), c10::IValue(), args[1]); }

// (self, dtype?, layout?, device?, pin_memory?, memory_format?)
Shapes ZerosLikeShape(Args args) { return Like(TensorArg(args[0]), args[1], args[5]); }

// (self, number, dtype?, layout?, device?, pin_memory?, memory_format?), and _to_copy's (self, dtype?, ..., non_blocking, memory_format?).
Shapes FullLikeShape(Args args) {
  const Shapes results = Like(TensorArg(args[0]), args[2], args[6]);
  return args[1].isComplexDouble() && !results[0].is_complex() ? Shapes() : results;
}
Shapes ToCopyShape(Args args) { return Like(TensorArg(args[0]), args[1], args[6]); }

// (self, number) or (self): overwritten whole.
Shapes FillShape(Args args) { return {at::compositeexplicitautograd::empty_like(TensorArg(args[0]))}; }

// (self, value), a tensor that stands for a number.
Shapes FillTensorShape(Args args) {
  if (TensorArg(args[1]).dim() != 0) return {};
  return FillShape(args);
}

// (self, mask, number)
Shapes MaskedFillShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor mask = TensorArg(args[1]);
  if (mask.scalar_type() != at::kBool || (args[2].isComplexDouble() && !self.is_complex())) return {};
  return {Fresh(at::infer_size(self.sizes(), mask.sizes()), self.scalar_type())};
}

// (self, mask, value)
Shapes MaskedFillTensorShape(Args args) {
  const at::Tensor value = TensorArg(args[2]);
  if (value.dim() != 0 || value.scalar_type() != TensorArg(args[0]).scalar_type()) return {};
  return MaskedFillShape(args);
}

// (self, dtype?): over everything.
Shapes SumShape(Args args) {
  const at::ScalarType own = TensorArg(args[0]).scalar_type();
  const at::ScalarType kept = c10::isIntegralType(own, /*includeBool=*/true) ? at::kLong : own;
  return {Fresh({}, args[1].isNone() ? kept : args[1].toScalarType())};
}

Shapes MeanShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self}) || !args[1].isNone()) return {};
  return {Fresh({}, self.scalar_type())};
}

// (tensors, dim)
// ATen's own way: `cat` along the new dimension, and a view of that; along a new last dimension, `cat` of unsqueezed tensors.
Shapes StackShape(Args args) {
  std::vector<at::Tensor> tensors = args[0].toTensorVector();
  if (tensors.empty()) return {};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.sizes().equals(tensors[0].sizes())) return {};
  }
  const int64_t rank = tensors[0].dim(), dim = c10::maybe_wrap_dim(args[1].toInt(), rank + 1);
  std::vector<int64_t> sizes = tensors[0].sizes().vec();
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(tensors.size()));
  if (dim == rank) {
    for (at::Tensor& tensor : tensors) tensor = at::native::unsqueeze(tensor, dim);
  }
  const at::Tensor joined = at::meta::cat(tensors, dim);
  if (dim == rank) return {joined};
  const auto strides = at::detail::computeStride(joined.sizes(), joined.strides(), sizes);
  if (!strides.has_value()) return {};
  return {at::detail::empty_strided_meta(sizes, *strides, joined.scalar_type())};
}

// (grad, input_sizes, dim, start, end, step): zeros of these sizes with `grad` in a slice of them.
Shapes SliceBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const std::vector<int64_t> sizes = IntsArg(args[1]);
  const int64_t dim = c10::maybe_wrap_dim(args[2].toInt(), static_cast<int64_t>(sizes.size()), /*wrap_scalar=*/false);
  const int64_t size = sizes[dim], step = args[5].toInt();
  if (step <= 0) return {};
  const auto clamp = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t length = std::max<int64_t>(0, clamp(args[4].toInt()) - clamp(args[3].toInt()));
  std::vector<int64_t> slice = sizes;
  slice[dim] = (length + step - 1) / step;
  if (!grad.sizes().equals(slice)) return {};
  return {Fresh(sizes, grad.scalar_type())};
}

// (grad, input_sizes, ...): zeros of these sizes with `grad` somewhere in them. Whether it fits, the operator decides.
Shapes SelectBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const std::vector<int64_t> sizes = IntsArg(args[1]);
  std::vector<int64_t> rest = sizes;
  const int64_t dim = c10::maybe_wrap_dim(args[2].toInt(), static_cast<int64_t>(sizes.size()), /*wrap_scalar=*/false);
  const int64_t index = args[3].toInt();
  if (index < -sizes[dim] || index >= sizes[dim]) return {};
  rest.erase(rest.begin() + dim);
  if (!grad.sizes().equals(rest)) return {};
  return {Fresh(sizes, grad.scalar_type())};
}

// (self, padding, number): pairs of what is added before and after, of the last dimension first. A copy where nothing is.
Shapes ConstantPadShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const std::vector<int64_t> padding = IntsArg(args[1]);
  if (padding.size() % 2 != 0 || static_cast<int64_t>(padding.size()) > 2 * self.dim()) return {};
  if (args[2].isComplexDouble() && !self.is_complex()) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  bool grows = false;
  for (size_t i = 0; i < padding.size(); i += 2) {
    int64_t& size = sizes[sizes.size() - 1 - i / 2];
    if (size + std::min<int64_t>(padding[i], 0) + std::min<int64_t>(padding[i + 1], 0) < 0) return {};
    size += padding[i] + padding[i + 1];
    grows |= padding[i] > 0 || padding[i + 1] > 0;
  }
  if (grows) return {Fresh(sizes, self.scalar_type(), self.suggest_memory_format())};
  return Like(at::empty_strided(sizes, self.strides(), self.options()), c10::IValue(), c10::IValue());
}

// (self, other, alpha) of two tensors, one of which may stand for a number, and of a number.
Shapes RsubShape(Args args) {
  const at::Tensor self = TensorArg(args[0]), other = TensorArg(args[1]);
  const at::ScalarType type = at::result_type(self, other);
  const bool is_float = type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  const bool is_int = c10::isIntegralType(type, /*includeBool=*/false) && args[2].isInt();
  if (!(is_float || is_int) || args[2].isComplexDouble() || !IsReal(self) || !IsReal(other)) return {};
  return {PointwiseResult({self, other}, type)};
}

Shapes RsubScalarShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (args[1].isComplexDouble() || args[2].isComplexDouble() || !HaveOneFloatDtype({self})) return {};
  return {PointwiseResult({self, Fresh({}, self.scalar_type())}, self.scalar_type())};
}

// (self, p)
Shapes NormShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsPlainFloat(self)) return {};
  return {Fresh({}, self.scalar_type())};
}

}  // namespace

void AddBasicShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::relu", UnaryShape},
      {"aten::hardtanh", FloatLikeShape},
      {"aten::hardswish", FloatUnaryShape},
      {"aten::logit", FloatUnaryShape},
      {"aten::isnan", IsNanShape},
      {"aten::isinf", IsNanShape},
      {"aten::where.self", WhereShape},
      {"aten::rsub.Tensor", RsubShape},
      {"aten::floor_divide", FloorDivideShape},
      {"aten::floor_divide.Scalar", FloorDivideShape},
      {"aten::div.Scalar", FloorDivideShape},
      {"aten::hardtanh_backward", FloatBinaryShape},
      {"aten::hardswish_backward", FloatBinaryShape},
      {"aten::log_sigmoid_backward", FreshBinaryShape},
      {"aten::_prelu_kernel", PreluShape},
      {"aten::native_dropout_backward", DropoutBackwardShape},
      {"aten::binary_cross_entropy", BinaryCrossEntropyShape},
      {"aten::binary_cross_entropy_with_logits", LogitsLossShape},
      {"aten::binary_cross_entropy_backward", LossBackwardShape},
      {"aten::mse_loss_backward", LossBackwardShape},
      {"aten::huber_loss_backward", LossBackwardShape},
      {"aten::smooth_l1_loss_backward", LossBackwardShape},
      {"aten::max", ReduceAllShape},
      {"aten::min", ReduceAllShape},
      {"aten::var.correction", VarShape},
      {"aten::std.correction", VarShape},
      {"aten::var_mean.correction", VarMeanShape},
      {"aten::std_mean.correction", VarMeanShape},
      {"aten::_safe_softmax", SafeSoftmaxShape},
      {"aten::index_select", IndexSelectShape},
      {"aten::abs", AbsShape},
      {"aten::logical_not", LogicalUnaryShape},
      {"aten::logical_and", LogicalBinaryShape},
      {"aten::logical_or", LogicalBinaryShape},
      {"aten::logical_xor", LogicalBinaryShape},
      {"aten::clone", CloneShape},
      {"aten::zeros_like", ZerosLikeShape},
      {"aten::ones_like", ZerosLikeShape},
      {"aten::full_like", FullLikeShape},
      {"aten::_to_copy", ToCopyShape},
      {"aten::fill.Scalar", FillShape},
      {"aten::fill.Tensor", FillTensorShape},
      {"aten::zero", FillShape},
      {"aten::masked_fill.Scalar", MaskedFillShape},
      {"aten::masked_fill.Tensor", MaskedFillTensorShape},
      {"aten::sum", SumShape},
      {"aten::mean", MeanShape},
      {"aten::stack", StackShape},
      {"aten::select_backward", SelectBackwardShape},
      {"aten::slice_backward", SliceBackwardShape},
      {"aten::constant_pad_nd", ConstantPadShape},
      {"aten::rsub.Scalar", RsubScalarShape},
      {"aten::norm.Scalar", NormShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
