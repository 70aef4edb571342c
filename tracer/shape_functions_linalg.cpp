// Shape functions of products, distances, factorisations and Fourier transforms.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

// (a, b)
Shapes DotShape(Args args) {
  const at::Tensor a = TensorArg(args[0]);
  const at::Tensor b = TensorArg(args[1]);
  if (!HaveOneFloatDtype({a, b}) || a.dim() != 1 || !a.sizes().equals(b.sizes())) return {};
  return {Fresh({}, a.scalar_type())};
}

// (self, vec): a matrix times a vector.
Shapes MvShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor vec = TensorArg(args[1]);
  if (!HaveOneFloatDtype({self, vec}) || self.dim() != 2 || vec.dim() != 1 || self.size(1) != vec.size(0)) return {};
  return {Fresh({self.size(0)}, self.scalar_type())};
}

// (self, batch1, batch2, beta, alpha): a sum of products.
Shapes AddBmmShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor a = TensorArg(args[1]);
  const at::Tensor b = TensorArg(args[2]);
  if (!HaveOneFloatDtype({self, a, b}) || a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1)) return {};
  if (a.numel() == 0 || b.numel() == 0 || !at::is_expandable_to(self.sizes(), {a.size(1), b.size(2)})) return {};
  return {Fresh({a.size(1), b.size(2)}, self.scalar_type())};
}

// (self, vec1, vec2, beta, alpha)
Shapes AddrShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor a = TensorArg(args[1]);
  const at::Tensor b = TensorArg(args[2]);
  if (!HaveOneFloatDtype({self, a, b}) || !IsPlainFloat(self) || a.dim() != 1 || b.dim() != 1) return {};
  if (!self.sizes().equals({a.size(0), b.size(0)})) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self): of a matrix.
Shapes TraceShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self}) || self.dim() != 2) return {};
  return {Fresh({}, self.scalar_type())};
}

// (x1, x2, ...): sizes of the distances of rows; empty where they do not fit.
std::vector<int64_t> DistanceSizes(const at::Tensor& x1, const at::Tensor& x2) {
  if (!HaveOneFloatDtype({x1, x2}) || x1.dim() < 2 || x2.dim() < 2 || x1.size(-1) != x2.size(-1)) return {};
  std::vector<int64_t> sizes = at::infer_size(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  return sizes;
}

// (x1, x2, p, compute_mode?)
Shapes CdistShape(Args args) {
  const at::Tensor x1 = TensorArg(args[0]);
  const std::vector<int64_t> sizes = DistanceSizes(x1, TensorArg(args[1]));
  const int64_t mode = args[3].isNone() ? 0 : args[3].toInt();
  if (sizes.empty() || !(args[2].toDouble() >= 0) || mode < 0 || mode > 2) return {};
  return {Fresh(sizes, x1.scalar_type())};
}

// (grad, x1, x2, p, distances): of x1, in all batches.
Shapes CdistBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor x1 = TensorArg(args[1]);
  const at::Tensor distances = TensorArg(args[4]);
  std::vector<int64_t> sizes = DistanceSizes(x1, TensorArg(args[2]));
  if (sizes.empty() || !HaveOneFloatDtype({grad, x1, distances}) || !grad.sizes().equals(sizes) || !distances.sizes().equals(sizes))
    return {};
  sizes.back() = x1.size(-1);
  if (!IsPlainFloat(x1) || !x1.sizes().equals(sizes)) return {};
  return {Fresh(sizes, x1.scalar_type())};
}

// (self, p): the distances of each pair of rows.
Shapes PdistShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsPlainFloat(self) || self.dim() != 2 || args[1].toDouble() < 0) return {};
  const int64_t rows = self.size(0);
  return {Fresh({rows * (rows - 1) / 2}, self.scalar_type())};
}

// (grad, self, p, distances)
Shapes PdistBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  if (!IsPlainFloat(self) || self.dim() != 2 || !HaveOneFloatDtype({grad, self, TensorArg(args[3])})) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self, dims, keepdim)
Shapes LogSumExpShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self}) || self.numel() == 0) return {};
  const auto sizes = ReducedSizes(self, IntsArg(args[1]), args[2].toBool());
  if (!sizes.has_value()) return {};
  return {Fresh(*sizes, self.scalar_type())};
}

// (self, dims?, keepdim, dtype?)
Shapes NanSumShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self}) || !args[3].isNone()) return {};
  const auto sizes = ReducedSizes(self, args[1].isNone() ? std::vector<int64_t>() : IntsArg(args[1]), args[2].toBool());
  if (!sizes.has_value()) return {};
  return {Fresh(*sizes, self.scalar_type())};
}

// (self, dtype?)
Shapes ProdShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self}) || !args[1].isNone()) return {};
  return {Fresh({}, self.scalar_type())};
}

// (v, g, dim): the scaled weight, and norms like `g`.
Shapes WeightNormShape(Args args) {
  const at::Tensor v = TensorArg(args[0]);
  const at::Tensor g = TensorArg(args[1]);
  const int64_t dim = args[2].toInt();
  if (!HaveOneFloatDtype({v, g}) || !IsPlainFloat(v) || !IsPlainFloat(g) || g.dim() != v.dim() || (dim != 0 && dim != v.dim() - 1))
    return {};
  for (int64_t d = 0; d < v.dim(); ++d) {
    if (g.size(d) != (d == dim ? v.size(d) : 1)) return {};
  }
  const auto norms = v.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {Fresh(v.sizes(), v.scalar_type()), Fresh(g.sizes(), norms)};
}

// (grad, v, g, norms, dim)
Shapes WeightNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor v = TensorArg(args[1]);
  const at::Tensor g = TensorArg(args[2]);
  const at::Tensor norms = TensorArg(args[3]);
  const Shapes forward = WeightNormShape({v, g, args[4]});
  if (forward.empty() || !HaveOneFloatDtype({grad, v, norms}) || !grad.sizes().equals(v.sizes()) || !norms.sizes().equals(g.sizes()))
    return {};
  return {Fresh(v.sizes(), v.scalar_type()), Fresh(g.sizes(), g.scalar_type())};
}

// Square matrices, one or a batch of them.
bool AreSquare(const at::Tensor& tensor) { return IsPlainFloat(tensor) && tensor.dim() >= 2 && tensor.size(-1) == tensor.size(-2); }

// Matrices in columns, as LAPACK has them.
at::Tensor FreshColumns(const at::Tensor& like) { return Fresh(like.mT().sizes(), like.scalar_type()).mT(); }

// (self, upper)
Shapes CholeskyShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!AreSquare(self)) return {};
  return {FreshColumns(self)};
}

// (self, pivot, check_errors): factors, pivots, infos. Without pivots there is a kernel for GPUs alone.
Shapes LuFactorShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsPlainFloat(self) || self.dim() < 2 || self.numel() == 0 || !args[1].toBool()) return {};
  std::vector<int64_t> infos(self.sizes().begin(), self.sizes().end() - 2), pivots = infos;
  pivots.push_back(std::min(self.size(-2), self.size(-1)));
  return {FreshColumns(self), Fresh(pivots, at::kInt), Fresh(infos, at::kInt)};
}

// (self, matrices, upper): a right side for each matrix.
Shapes CholeskySolveShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor matrices = TensorArg(args[1]);
  if (!AreSquare(matrices) || !IsPlainFloat(self) || !HaveOneFloatDtype({self, matrices}) || self.dim() != matrices.dim()) return {};
  if (!self.sizes().slice(0, self.dim() - 1).equals(matrices.sizes().slice(0, self.dim() - 1))) return {};
  return {FreshColumns(self)};
}

// (matrices, right side, upper, left, unitriangular): with the batches of both.
Shapes SolveTriangularShape(Args args) {
  const at::Tensor a = TensorArg(args[0]);
  const at::Tensor b = TensorArg(args[1]);
  if (!HaveOneFloatDtype({a, b}) || a.numel() == 0 || b.numel() == 0 || a.dim() < 2 || b.dim() < 2 || a.size(-1) != a.size(-2)) return {};
  if (b.size(args[3].toBool() ? -2 : -1) != a.size(-1) || b.size(-1) == 1 || b.size(-2) == 1) return {};
  std::vector<int64_t> sizes = at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.insert(sizes.end(), {b.size(-1), b.size(-2)});
  return {Fresh(sizes, b.scalar_type()).mT()};
}

// (self, reflections): what LAPACK calls tau.
bool AreReflections(const at::Tensor& self, const at::Tensor& tau) {
  if (!IsPlainFloat(self) || !IsPlainFloat(tau) || !HaveOneFloatDtype({self, tau}) || self.dim() < 2 || tau.dim() != self.dim() - 1)
    return false;
  const bool same_batch = self.sizes().slice(0, self.dim() - 2).equals(tau.sizes().slice(0, tau.dim() - 1));
  return same_batch && self.size(-2) >= self.size(-1) && tau.size(-1) <= self.size(-1);
}

Shapes HouseholderProductShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!AreReflections(self, TensorArg(args[1]))) return {};
  return {FreshColumns(self)};
}

// (self): a factorisation, and reflections.
Shapes GeqrfShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsPlainFloat(self) || self.dim() < 2) return {};
  std::vector<int64_t> sizes(self.sizes().begin(), self.sizes().end() - 2);
  sizes.push_back(std::min(self.size(-1), self.size(-2)));
  return {FreshColumns(self), Fresh(sizes, self.scalar_type())};
}

// (self)
Shapes MatrixExpShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!AreSquare(self)) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// Whether `dims` are the last ones of contiguous `self`, in order.
bool AreLast(const at::Tensor& self, const std::vector<int64_t>& dims) {
  const auto count = static_cast<int64_t>(dims.size());
  if (count == 0 || count > self.dim() || self.numel() == 0 || !HasDefaultStrides(self)) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (c10::maybe_wrap_dim(dims[static_cast<size_t>(i)], self.dim()) != self.dim() - count + i) return false;
  }
  return true;
}

bool IsWide(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kDouble; }

// (self, dims, normalization, forward)
Shapes FftC2cShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!self.is_complex() || !IsWide(c10::toRealValueType(self.scalar_type())) || !AreLast(self, IntsArg(args[1]))) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self, dims, normalization, last_dim_size)
Shapes FftC2rShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const int64_t last = args[3].toInt();
  if (!self.is_complex() || !IsWide(c10::toRealValueType(self.scalar_type())) || !AreLast(self, IntsArg(args[1]))) return {};
  if (last < 1 || self.size(-1) != last / 2 + 1) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.back() = last;
  return {Fresh(sizes, c10::toRealValueType(self.scalar_type()))};
}

// (self, dims, normalization, onesided)
Shapes FftR2cShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsWide(self.scalar_type()) || !AreLast(self, IntsArg(args[1]))) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  if (args[3].toBool()) sizes.back() = sizes.back() / 2 + 1;
  return {Fresh(sizes, c10::toComplexType(self.scalar_type()))};
}

}  // namespace

void AddLinalgShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::dot", DotShape},
      {"aten::vdot", DotShape},
      {"aten::mv", MvShape},
      {"aten::addbmm", AddBmmShape},
      {"aten::addr", AddrShape},
      {"aten::trace", TraceShape},
      {"aten::_cdist_forward", CdistShape},
      {"aten::_cdist_backward", CdistBackwardShape},
      {"aten::_pdist_forward", PdistShape},
      {"aten::_pdist_backward", PdistBackwardShape},
      {"aten::logsumexp", LogSumExpShape},
      {"aten::nansum", NanSumShape},
      {"aten::prod", ProdShape},
      {"aten::_weight_norm_interface", WeightNormShape},
      {"aten::_weight_norm_interface_backward", WeightNormBackwardShape},
      {"aten::cholesky", CholeskyShape},
      {"aten::cholesky_inverse", CholeskyShape},
      {"aten::_cholesky_solve_helper", CholeskySolveShape},
      {"aten::linalg_solve_triangular", SolveTriangularShape},
      {"aten::linalg_householder_product", HouseholderProductShape},
      {"aten::geqrf", GeqrfShape},
      {"aten::linalg_lu_factor_ex", LuFactorShape},
      {"aten::linalg_matrix_exp", MatrixExpShape},
      {"aten::_fft_c2c", FftC2cShape},
      {"aten::_fft_c2r", FftC2rShape},
      {"aten::_fft_r2c", FftR2cShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
