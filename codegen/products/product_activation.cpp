#include "codegen/products/product_activation.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <torch/library.h>

namespace lazuli::codegen {
namespace {

constexpr const char* kRelu = "relu";
constexpr const char* kGelu = "gelu";
constexpr const char* kByTanh = "tanh";

using OptionalTensor = std::optional<at::Tensor>;

void Multiply(const OptionalTensor& bias, const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  if (bias.has_value() && bias->defined()) {
    at::addmm_out(out, *bias, self, mat2);
  } else {
    at::mm_out(out, self, mat2);
  }
}

at::Tensor ResultOf(const at::Tensor& self, const at::Tensor& mat2) { return at::empty({self.size(0), mat2.size(1)}, self.options()); }

// `out` and `input` may be one tensor.
std::tuple<at::Tensor&, at::Tensor&> KeepOut(const OptionalTensor& bias, const at::Tensor& self, const at::Tensor& mat2,
                                             c10::string_view activation, at::Tensor& out, at::Tensor& input) {
  Multiply(bias, self, mat2, input);
  if (ActivationNamed(std::string(activation)) == Activation::kRelu) {
    at::relu_out(out, input);
  } else {
    at::gelu_out(out, input, kByTanh);
  }
  return {out, input};
}

std::tuple<at::Tensor, at::Tensor> Keep(const OptionalTensor& bias, const at::Tensor& self, const at::Tensor& mat2,
                                        c10::string_view activation) {
  at::Tensor out = ResultOf(self, mat2), input = ResultOf(self, mat2);
  KeepOut(bias, self, mat2, activation, out, input);
  return {out, input};
}

at::Tensor& ActivateOut(const OptionalTensor& bias, const at::Tensor& self, const at::Tensor& mat2, c10::string_view activation,
                        at::Tensor& out) {
  KeepOut(bias, self, mat2, activation, out, out);
  return out;
}

at::Tensor Activate(const OptionalTensor& bias, const at::Tensor& self, const at::Tensor& mat2, c10::string_view activation) {
  at::Tensor out = ResultOf(self, mat2);
  return ActivateOut(bias, self, mat2, activation, out);
}

TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  m.def("_product_activation(Tensor? bias, Tensor self, Tensor mat2, str activation) -> Tensor");
  m.def("_product_activation.out(Tensor? bias, Tensor self, Tensor mat2, str activation, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("_product_activation.keep(Tensor? bias, Tensor self, Tensor mat2, str activation) -> (Tensor, Tensor)");
  m.def(
      "_product_activation.keep_out(Tensor? bias, Tensor self, Tensor mat2, str activation, *, Tensor(a!) out, Tensor(b!) input)"
      " -> (Tensor(a!), Tensor(b!))");
}

void Implement(torch::Library& m) {
  m.impl("_product_activation", &Activate);
  m.impl("_product_activation.out", &ActivateOut);
  m.impl("_product_activation.keep", &Keep);
  m.impl("_product_activation.keep_out", &KeepOut);
}

TORCH_LIBRARY_IMPL(lazuli, CPU, m) { Implement(m); }
TORCH_LIBRARY_IMPL(lazuli, CUDA, m) { Implement(m); }

bool IsByTanh(const TraceArg& approximate) {
  return approximate.kind == TraceArg::Kind::kConst && approximate.value.isString() && approximate.value.toStringRef() == kByTanh;
}

}  // namespace

std::optional<Activation> ActivationOf(const TraceOp& op) {
  if (op.info == nullptr) return std::nullopt;
  const std::string& name = op.info->name;
  if (name == "aten::relu" || name == "aten::relu_") return Activation::kRelu;
  if ((name == "aten::gelu" || name == "aten::gelu_") && IsByTanh(op.args[1])) return Activation::kGelu;
  return std::nullopt;
}

const OpInfo* ProductWithActivation(bool keeps) {
  static const OpInfo* const drops_it = FindOpInfo("lazuli::_product_activation");
  static const OpInfo* const keeps_it = FindOpInfo("lazuli::_product_activation.keep");
  return keeps ? keeps_it : drops_it;
}

TraceArg ActivationArg(Activation activation) {
  TraceArg arg;
  arg.value = std::string(activation == Activation::kRelu ? kRelu : kGelu);
  return arg;
}

Activation ActivationNamed(const std::string& name) {
  TORCH_CHECK(name == kRelu || name == kGelu, "no activation '", name, "'; there are relu and gelu");
  return name == kRelu ? Activation::kRelu : Activation::kGelu;
}

}  // namespace lazuli::codegen
