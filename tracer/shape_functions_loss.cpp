// Shape functions of losses, and of activations' gradients.
#include <ATen/TensorIterator.h>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

constexpr int64_t kReductionNone = 0;

// A contiguous tensor of one dtype with others.
bool IsPlain(const at::Tensor& tensor, std::initializer_list<at::Tensor> others) {
  for (const at::Tensor& other : others) {
    if (!HaveOneFloatDtype({tensor, other})) return false;
  }
  return IsPlainFloat(tensor);
}

bool IsLong(const at::Tensor& tensor) { return tensor.scalar_type() == at::kLong; }

// The result of a loss: `sizes`, or one number.
at::Tensor Reduced(const c10::IValue& reduction, at::IntArrayRef sizes, const at::Tensor& self) {
  return Fresh(reduction.toInt() == kReductionNone ? sizes : at::IntArrayRef(), self.scalar_type());
}

// (self, target, reduction, delta)
Shapes HuberLossShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor target = TensorArg(args[1]);
  if (!IsPlain(self, {target}) || !HasDefaultStrides(target) || !self.sizes().equals(target.sizes()) || !(args[3].toDouble() > 0))
    return {};
  return {Reduced(args[2], self.sizes(), self)};
}

// (self, target, reduction)
Shapes SoftMarginLossShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor target = TensorArg(args[1]);
  if (!IsPlain(self, {target}) || !HasDefaultStrides(target) || !self.sizes().equals(target.sizes())) return {};
  return {Reduced(args[2], self.sizes(), self)};
}

// (self): the result and a buffer.
Shapes LogSigmoidShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  return {Fresh(self.sizes(), self.scalar_type()), Fresh(self.sizes(), self.scalar_type())};
}

// (grad, self, dim): halves of `self` along `dim` made `grad`.
Shapes GluBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  if (!IsPlain(self, {grad}) || self.dim() == 0) return {};
  const int64_t dim = c10::maybe_wrap_dim(args[2].toInt(), self.dim());
  std::vector<int64_t> half = self.sizes().vec();
  if (half[dim] % 2 != 0) return {};
  half[dim] /= 2;
  if (!grad.sizes().equals(half)) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (grad, self, weight): gradients of both, as large as `self`.
Shapes PreluBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor weight = TensorArg(args[2]);
  if (!IsPlain(self, {grad, weight}) || !HasDefaultStrides(grad) || !grad.sizes().equals(self.sizes())) return {};
  weight.expand(self.sizes());
  return {Fresh(self.sizes(), self.scalar_type()), Fresh(self.sizes(), self.scalar_type())};
}

// Scores of [batch, classes] with one class each: (self, target, ..., weight?).
bool AreClassScores(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  if (self.dim() != 2 || target.dim() != 1 || !IsLong(target) || target.size(0) != self.size(0)) return false;
  return IsPlain(self, {weight.defined() ? weight : self}) && (!weight.defined() || (weight.dim() == 1 && weight.size(0) == self.size(1)));
}

bool IsMarginPower(const c10::IValue& p) { return p.toScalar().equal(1) || p.toScalar().equal(2); }

// (self, target, p, margin, weight?, reduction)
Shapes MultiMarginLossShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!AreClassScores(self, TensorArg(args[1]), TensorArg(args[4])) || !IsMarginPower(args[2])) return {};
  return {Reduced(args[5], {self.size(0)}, self)};
}

// Whether `grad` is that of a loss of `batch` rows.
bool FitsLoss(const at::Tensor& grad, const c10::IValue& reduction, at::IntArrayRef sizes) {
  return reduction.toInt() == kReductionNone ? grad.sizes().equals(sizes) : grad.dim() == 0;
}

// (grad, self, target, p, margin, weight?, reduction)
Shapes MultiMarginLossBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  if (!AreClassScores(self, TensorArg(args[2]), TensorArg(args[5])) || !IsMarginPower(args[3])) return {};
  if (!HaveOneFloatDtype({grad, self}) || !FitsLoss(grad, args[6], {self.size(0)})) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

bool AreLabelScores(const at::Tensor& self, const at::Tensor& target) {
  return IsPlain(self, {}) && self.dim() == 2 && IsLong(target) && target.sizes().equals(self.sizes());
}

// (self, target, reduction): the loss, and which classes are targets.
Shapes MultilabelMarginLossShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor target = TensorArg(args[1]);
  if (!AreLabelScores(self, target)) return {};
  return {Reduced(args[2], {self.size(0)}, self), Fresh(target.sizes(), self.scalar_type())};
}

// (grad, self, target, reduction, is_target)
Shapes MultilabelMarginLossBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor is_target = TensorArg(args[4]);
  if (!AreLabelScores(self, TensorArg(args[2])) || !HaveOneFloatDtype({grad, self, is_target})) return {};
  if (!is_target.sizes().equals(self.sizes()) || !FitsLoss(grad, args[3], {self.size(0)})) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// Scores of [batch, classes, height, width] with one class for each place.
bool ArePlaceScores(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  if (!IsPlain(self, {weight.defined() ? weight : self}) || self.dim() != 4 || target.dim() != 3 || !IsLong(target)) return false;
  if (weight.defined() && weight.numel() != self.size(1)) return false;
  return target.size(0) == self.size(0) && target.size(1) == self.size(2) && target.size(2) == self.size(3);
}

// (self, target, weight?, reduction, ignore_index): the loss and the total weight.
Shapes NllLoss2dShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor target = TensorArg(args[1]);
  if (!ArePlaceScores(self, target, TensorArg(args[2]))) return {};
  return {Reduced(args[3], target.sizes(), self), Fresh({}, self.scalar_type())};
}

// (grad, self, target, weight?, reduction, ignore_index, total_weight)
Shapes NllLoss2dBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor target = TensorArg(args[2]);
  const at::Tensor total_weight = TensorArg(args[6]);
  if (!ArePlaceScores(self, target, TensorArg(args[3])) || !HaveOneFloatDtype({grad, self, total_weight})) return {};
  if (total_weight.numel() != 1 || !FitsLoss(grad, args[4], target.sizes())) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity): what the forward operator
// has checked.
Shapes CtcLossBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor log_probs = TensorArg(args[1]);
  if (!HaveOneFloatDtype({grad, log_probs, TensorArg(args[5]), TensorArg(args[6])}) || log_probs.dim() != 3) return {};
  return {Fresh(log_probs.sizes(), log_probs.scalar_type())};
}

}  // namespace

void AddLossShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::huber_loss", HuberLossShape},
      {"aten::soft_margin_loss", SoftMarginLossShape},
      {"aten::log_sigmoid_forward", LogSigmoidShape},
      {"aten::glu_backward", GluBackwardShape},
      {"aten::_prelu_kernel_backward", PreluBackwardShape},
      {"aten::multi_margin_loss", MultiMarginLossShape},
      {"aten::multi_margin_loss_backward", MultiMarginLossBackwardShape},
      {"aten::multilabel_margin_loss_forward", MultilabelMarginLossShape},
      {"aten::multilabel_margin_loss_backward", MultilabelMarginLossBackwardShape},
      {"aten::nll_loss2d_forward", NllLoss2dShape},
      {"aten::nll_loss2d_backward", NllLoss2dBackwardShape},
      {"aten::_ctc_loss_backward", CtcLossBackwardShape},
      {"aten::_ctc_loss_backward.Tensor", CtcLossBackwardShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
