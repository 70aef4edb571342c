// Sums, differences and products of numbers (0-dim CPU tensors) in place, without ATen's kernels, which take a hundred times as long:
// counters of an optimizer's steps, powers of its betas.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/sub_ops.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace lazuli::tracer {

enum class Arithmetic { kAdd, kSubtract, kMultiply };

// self = self (op) alpha * other, as ATen's kernel computes it, where `self` and a tensor `other` are 0-dim with their values at hand.
// False: nothing was done, since types would have to be promoted, or alpha is not 1.
bool ComputeInPlace(Arithmetic op, const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha = 1);
bool ComputeInPlace(Arithmetic op, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha = 1);

// What operator `Called` does to a number in place, if it is one of these.
template <class Called>
inline constexpr std::optional<Arithmetic> kArithmetic;
template <>
inline constexpr std::optional<Arithmetic> kArithmetic<at::_ops::add__Scalar> = Arithmetic::kAdd;
template <>
inline constexpr std::optional<Arithmetic> kArithmetic<at::_ops::add__Tensor> = Arithmetic::kAdd;
template <>
inline constexpr std::optional<Arithmetic> kArithmetic<at::_ops::sub__Scalar> = Arithmetic::kSubtract;
template <>
inline constexpr std::optional<Arithmetic> kArithmetic<at::_ops::sub__Tensor> = Arithmetic::kSubtract;
template <>
inline constexpr std::optional<Arithmetic> kArithmetic<at::_ops::mul__Scalar> = Arithmetic::kMultiply;
template <>
inline constexpr std::optional<Arithmetic> kArithmetic<at::_ops::mul__Tensor> = Arithmetic::kMultiply;

}  // namespace lazuli::tracer
