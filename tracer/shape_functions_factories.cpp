// Shapes of tensors that are made of sizes, or of the sizes of others.
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

// Contiguous, of `sizes`; nothing where the operator refuses them, or makes no plain tensor.
Shapes Made(const std::vector<int64_t>& sizes, at::ScalarType dtype, const c10::IValue& layout) {
  const bool is_plain = layout.isNone() || layout.toLayout() == at::kStrided;
  if (!is_plain || std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) return {};
  return {Fresh(sizes, dtype)};
}

at::ScalarType DtypeOr(const c10::IValue& dtype, at::ScalarType otherwise) { return dtype.isNone() ? otherwise : dtype.toScalarType(); }

// (sizes, dtype?, layout?, ...)
Shapes ZerosShape(Args args) { return Made(IntsArg(args[0]), DtypeOr(args[1], c10::get_default_dtype_as_scalartype()), args[2]); }

// (sizes, number, dtype?, layout?, ...)
Shapes FullShape(Args args) {
  const c10::IValue& number = args[1];
  if (number.isComplexDouble()) return {};
  const at::ScalarType own = number.isBool() ? at::kBool : number.isInt() ? at::kLong : c10::get_default_dtype_as_scalartype();
  return Made(IntsArg(args[0]), DtypeOr(args[2], own), args[3]);
}

// Of what is made without a value; nothing of so many bytes that there may be no memory for it, which the call then says.
Shapes Allocated(Shapes made) {
  constexpr size_t kMany = size_t{1} << 30;
  return made.empty() || made[0].storage().nbytes() > kMany ? Shapes() : made;
}

// (self, sizes, dtype?, layout?, ...)
Shapes NewZerosShape(Args args) { return Made(IntsArg(args[1]), DtypeOr(args[2], TensorArg(args[0]).scalar_type()), args[3]); }

// (self, sizes, strides, dtype?, layout?, ...)
Shapes NewEmptyStridedShape(Args args) {
  const std::vector<int64_t> sizes = IntsArg(args[1]), strides = IntsArg(args[2]);
  const auto is_negative = [](int64_t number) { return number < 0; };
  if (sizes.size() != strides.size() || std::any_of(strides.begin(), strides.end(), is_negative)) return {};
  const Shapes made = Made(sizes, DtypeOr(args[3], TensorArg(args[0]).scalar_type()), args[4]);
  return made.empty() ? made : Allocated({at::empty_strided(sizes, strides, made[0].options())});
}

// (self, sizes, dtype?, layout?, ...)
Shapes NewEmptyShape(Args args) { return Allocated(NewZerosShape(args)); }

// (self, sizes, number, dtype?, layout?, ...)
Shapes NewFullShape(Args args) {
  const at::ScalarType dtype = DtypeOr(args[3], TensorArg(args[0]).scalar_type());
  if (args[2].isComplexDouble() && !c10::isComplexType(dtype)) return {};
  return Made(IntsArg(args[1]), dtype, args[4]);
}

// (self, repeats): one for each dimension, and for new ones before them.
Shapes RepeatShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  std::vector<int64_t> sizes = IntsArg(args[1]);
  if (static_cast<int64_t>(sizes.size()) < self.dim()) return {};
  const size_t before = sizes.size() - static_cast<size_t>(self.dim());
  for (int64_t d = 0; d < self.dim(); ++d) sizes[before + static_cast<size_t>(d)] *= self.size(d);
  return Made(sizes, self.scalar_type(), c10::IValue());
}

// (self, offset, dim1, dim2): the last dimension becomes a diagonal between two.
Shapes DiagEmbedShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.dim() == 0) return {};
  const int64_t rank = self.dim() + 1;
  const int64_t a = c10::maybe_wrap_dim(args[2].toInt(), rank), b = c10::maybe_wrap_dim(args[3].toInt(), rank);
  if (a == b) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  const int64_t side = sizes.back() + std::abs(args[1].toInt());
  sizes.pop_back();
  sizes.insert(sizes.begin() + std::min(a, b), side);
  sizes.insert(sizes.begin() + std::max(a, b), side);
  return Made(sizes, self.scalar_type(), c10::IValue());
}

// (grad, input_sizes, offset, dim1, dim2): zeros of these sizes with `grad` on a diagonal.
Shapes DiagonalBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  std::vector<int64_t> sizes = IntsArg(args[1]), rest = sizes;
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t offset = args[2].toInt(), a = c10::maybe_wrap_dim(args[3].toInt(), rank), b = c10::maybe_wrap_dim(args[4].toInt(), rank);
  if (a == b) return {};
  const int64_t length = std::max<int64_t>(0, std::min(sizes[a] + std::min<int64_t>(offset, 0), sizes[b] - std::max<int64_t>(offset, 0)));
  rest.erase(rest.begin() + std::max(a, b));
  rest.erase(rest.begin() + std::min(a, b));
  rest.push_back(length);
  if (!grad.sizes().equals(rest)) return {};
  return Made(sizes, grad.scalar_type(), c10::IValue());
}

// (matrices): of up to two dimensions each, and one dtype.
Shapes BlockDiagShape(Args args) {
  int64_t rows = 0, columns = 0;
  const std::vector<at::Tensor> tensors = args[0].toTensorVector();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() > 2 || tensor.scalar_type() != tensors[0].scalar_type()) return {};
    rows += tensor.dim() == 2 ? tensor.size(0) : 1;
    columns += tensor.dim() == 0 ? 1 : tensor.size(-1);
  }
  if (tensors.empty()) return {};
  return Made({rows, columns}, tensors[0].scalar_type(), c10::IValue());
}

// (theta, sizes, align_corners): a point for each place of images, or volumes, of these sizes.
Shapes AffineGridShape(Args args) {
  const at::Tensor theta = TensorArg(args[0]);
  const std::vector<int64_t> sizes = IntsArg(args[1]);
  const auto places = static_cast<int64_t>(sizes.size()) - 2;
  if ((places != 2 && places != 3) || theta.dim() != 3 || theta.size(0) != sizes[0] || theta.size(1) != places ||
      theta.size(2) != places + 1 || !HaveOneFloatDtype({theta})) {
    return {};
  }
  // Of one place there is a kernel for floats and doubles alone.
  const bool is_wide = theta.scalar_type() == at::kFloat || theta.scalar_type() == at::kDouble;
  if (!is_wide && std::any_of(sizes.begin() + 2, sizes.end(), [](int64_t size) { return size < 2; })) return {};
  std::vector<int64_t> grid = {sizes[0]};
  grid.insert(grid.end(), sizes.begin() + 2, sizes.end());
  grid.push_back(places);
  return Made(grid, theta.scalar_type(), c10::IValue());
}

}  // namespace

void AddFactoryShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::zeros", ZerosShape},
      {"aten::ones", ZerosShape},
      {"aten::full", FullShape},
      {"aten::new_empty", NewEmptyShape},
      {"aten::new_empty_strided", NewEmptyStridedShape},
      {"aten::new_zeros", NewZerosShape},
      {"aten::new_ones", NewZerosShape},
      {"aten::new_full", NewFullShape},
      {"aten::repeat", RepeatShape},
      {"aten::diag_embed", DiagEmbedShape},
      {"aten::diagonal_backward", DiagonalBackwardShape},
      {"aten::block_diag", BlockDiagShape},
      {"aten::affine_grid_generator", AffineGridShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
