// Sums, differences and products of numbers (0-dim CPU tensors) in place, without ATen's kernels, which take a hundred times as long:
// counters of an optimizer's steps, powers of its betas.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sub_ops.h>
#include <c10/core/Scalar.h>

namespace lazuli::tracer {

enum class Arithmetic { kAdd, kSubtract, kMultiply };

// self = self (op) alpha * other, as ATen's kernel computes it, where `self` and a tensor `other` are 0-dim with their values at hand.
// False: nothing was done, since types would have to be promoted, or alpha is not 1.
bool ComputeInPlace(Arithmetic op, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha);
bool ComputeInPlace(Arithmetic op, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha);

// The same for the arguments of operator `Called`; false for all others.
template <class Called>
struct NumberArithmetic {
  template <class... A>
  static bool Run(const A&... /*args*/) {
    return false;
  }
};
template <Arithmetic op>
struct ArithmeticInPlace {
  template <class Other>
  static bool Run(const at::Tensor& self, const Other& other, const at::Scalar& alpha = 1) {
    return ComputeInPlace(op, self, other, alpha);
  }
};
template <>
struct NumberArithmetic<at::_ops::add__Scalar> : ArithmeticInPlace<Arithmetic::kAdd> {};
template <>
struct NumberArithmetic<at::_ops::add__Tensor> : ArithmeticInPlace<Arithmetic::kAdd> {};
template <>
struct NumberArithmetic<at::_ops::sub__Scalar> : ArithmeticInPlace<Arithmetic::kSubtract> {};
template <>
struct NumberArithmetic<at::_ops::sub__Tensor> : ArithmeticInPlace<Arithmetic::kSubtract> {};
template <>
struct NumberArithmetic<at::_ops::mul__Scalar> : ArithmeticInPlace<Arithmetic::kMultiply> {};
template <>
struct NumberArithmetic<at::_ops::mul__Tensor> : ArithmeticInPlace<Arithmetic::kMultiply> {};

}  // namespace lazuli::tracer
