// Shape functions of indexing, searching, sorting and accumulating.
#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/List.h>
#include <ATen/ops/index_meta_dispatch.h>
#include <ATen/ops/sort_meta_dispatch.h>

#include <algorithm>
#include <cmath>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

at::Tensor Like(const at::Tensor& self) { return at::compositeexplicitautograd::empty_like(self); }

// `self`'s sizes with `dim`, whatever its size, left out or, if it is kept, as 1.
std::vector<int64_t> Without(const at::Tensor& self, int64_t dim, bool keep) {
  std::vector<int64_t> sizes = self.sizes().vec();
  if (keep) {
    sizes[dim] = 1;
  } else {
    sizes.erase(sizes.begin() + dim);
  }
  return sizes;
}

// Values chosen along `dim` of `self`, and their places.
Shapes Chosen(const at::Tensor& self, int64_t dim, bool keep) {
  if (self.dim() == 0 || self.numel() == 0 || self.is_complex()) return {};
  const std::vector<int64_t> sizes = Without(self, c10::maybe_wrap_dim(dim, self.dim()), keep);
  return {Fresh(sizes, self.scalar_type()), Fresh(sizes, at::kLong)};
}

// (self, dim, keepdim)
Shapes ChooseShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.scalar_type() == at::kBool) return {};
  return Chosen(self, args[1].toInt(), args[2].toBool());
}

// (self, k, dim, keepdim)
Shapes KthValueShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.dim() == 0 || self.scalar_type() == at::kBool) return {};
  const int64_t size = self.size(c10::maybe_wrap_dim(args[2].toInt(), self.dim()));
  if (args[1].toInt() < 1 || args[1].toInt() > size) return {};
  return Chosen(self, args[2].toInt(), args[3].toBool());
}

// (self, dim, descending): as sort.stable's.
Shapes SortShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.is_complex()) return {};
  const auto [values, indices] = at::meta::sort(self, /*stable=*/false, args[1].toInt(), args[2].toBool());
  return {values, indices};
}

// (self): one of its numbers.
Shapes MedianShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.numel() == 0 || self.is_complex() || self.scalar_type() == at::kBool) return {};
  return {Fresh({}, self.scalar_type())};
}

// (self, dim): running values and their places.
Shapes CumulativeExtremumShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.is_complex()) return {};
  c10::maybe_wrap_dim(args[1].toInt(), self.dim());
  return {Fresh(self.sizes(), self.scalar_type()), Fresh(self.sizes(), at::kLong)};
}

// (self, dim)
Shapes LogCumSumExpShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!HaveOneFloatDtype({self})) return {};
  c10::maybe_wrap_dim(args[1].toInt(), self.dim());
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self, dims)
Shapes FlipShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  std::vector<bool> seen(static_cast<size_t>(std::max<int64_t>(self.dim(), 1)));
  for (const int64_t dim : IntsArg(args[1])) {
    const auto at = static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()));
    if (seen[at]) return {};
    seen[at] = true;
  }
  return {Like(self)};
}

// (self, shifts, dims)
Shapes RollShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const std::vector<int64_t> shifts = IntsArg(args[1]), dims = IntsArg(args[2]);
  const bool aligned = dims.empty() ? shifts.size() == 1 : dims.size() == shifts.size();
  if (!aligned || self.dim() == 0 || !HasDefaultStrides(self)) return {};
  for (const int64_t dim : dims) c10::maybe_wrap_dim(dim, self.dim());
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self, dim, index, value)
Shapes IndexFillShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor index = TensorArg(args[2]);
  if (index.scalar_type() != at::kLong || index.dim() > 1 || self.is_complex()) return {};
  const bool is_number =
      args[3].isTensor() ? args[3].toTensor().dim() == 0 && !args[3].toTensor().is_complex() : !args[3].isComplexDouble();
  if (!is_number) return {};
  c10::maybe_wrap_dim(args[1].toInt(), self.dim());
  return {Like(self)};
}

// Whether masks among `indices` are as large as the dimensions of `self` that they choose from, and nothing else chooses.
bool AreMasks(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  int64_t dim = 0;
  for (const std::optional<at::Tensor> index : indices) {
    if (!index.has_value() || !index->defined()) {
      ++dim;
      continue;
    }
    const int64_t rank = index->dim();
    if (index->scalar_type() != at::kBool || rank == 0 || dim + rank > self.dim()) return false;
    if (!index->sizes().equals(self.sizes().slice(dim, rank))) return false;
    dim += rank;
  }
  return dim <= self.dim();
}

// Whether `indices` are positions, of as many elements as `values`.
bool ArePositions(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& values) {
  for (const std::optional<at::Tensor> index : indices) {
    if (index.has_value() && index->defined() && index->scalar_type() != at::kLong) return false;
  }
  if (static_cast<int64_t>(indices.size()) > self.dim()) return false;
  at::IOptTensorListRef::boxed_type boxed = indices;
  return at::is_expandable_to(values.sizes(), at::meta::index(self, boxed).sizes());
}

// (self, indices, values, ...)
Shapes IndexPutShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor values = TensorArg(args[2]);
  const auto indices = args[1].toOptionalTensorList();
  if (values.scalar_type() != self.scalar_type() || self.numel() == 0) return {};
  const bool any = std::any_of(indices.begin(), indices.end(), [](const std::optional<at::Tensor>& each) { return each.has_value(); });
  // How many elements a mask chooses is not known: one value fits.
  if (!any || !((values.dim() == 0 && AreMasks(self, indices)) || ArePositions(self, indices, values))) return {};
  return {Like(self)};
}

// (self, index, source, accumulate)
Shapes PutShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor index = TensorArg(args[1]);
  const at::Tensor source = TensorArg(args[2]);
  if (index.scalar_type() != at::kLong || source.scalar_type() != self.scalar_type() || index.numel() != source.numel()) return {};
  if (self.numel() == 0) return {};
  return {Like(self)};
}

// (self, index)
Shapes TakeShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor index = TensorArg(args[1]);
  if (index.scalar_type() != at::kLong || self.numel() == 0) return {};
  return {Fresh(index.sizes(), self.scalar_type())};
}

// (self, mask, source)
Shapes MaskedScatterShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor mask = TensorArg(args[1]);
  if (mask.scalar_type() != at::kBool || TensorArg(args[2]).scalar_type() != self.scalar_type()) return {};
  return {Fresh(at::infer_size(self.sizes(), mask.sizes()), self.scalar_type())};
}

at::ScalarType PlaceDtype(const c10::IValue& out_int32) { return out_int32.toBool() ? at::kInt : at::kLong; }

// (self, boundaries, out_int32, right)
Shapes BucketizeShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor boundaries = TensorArg(args[1]);
  if (boundaries.dim() != 1 || boundaries.numel() == 0 || boundaries.scalar_type() != self.scalar_type() || self.is_complex()) return {};
  return {Fresh(self.sizes(), PlaceDtype(args[2]))};
}

// (sorted_sequence, self, out_int32, right, side?, sorter?)
Shapes SearchSortedShape(Args args) {
  const at::Tensor sequence = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  if (sequence.numel() == 0 || sequence.scalar_type() != self.scalar_type() || self.is_complex() || !args[4].isNone() ||
      !args[5].isNone()) {
    return {};
  }
  const bool fits = sequence.dim() == 1 || (sequence.dim() > 1 && sequence.dim() == self.dim() &&
                                            sequence.sizes().slice(0, sequence.dim() - 1).equals(self.sizes().slice(0, self.dim() - 1)));
  if (!fits) return {};
  return {Fresh(self.sizes(), PlaceDtype(args[2]))};
}

// (self, dims)
Shapes CountNonzeroShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const auto sizes = ReducedSizes(self, IntsArg(args[1]), /*keep=*/false);
  if (!sizes.has_value()) return {};
  return {Fresh(*sizes, at::kLong)};
}

// (self, bins, min, max)
Shapes HistogramShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const double min = args[2].toScalar().toDouble(), max = args[3].toScalar().toDouble();
  if (!HaveOneFloatDtype({self}) || args[1].toInt() < 1 || !(min <= max) || !std::isfinite(max - min)) return {};
  return {Fresh({args[1].toInt()}, self.scalar_type())};
}

// (self, indices, max_norm, norm_type)
Shapes EmbeddingRenormShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.dim() != 2 || !HaveOneFloatDtype({self}) || !IsIndex(TensorArg(args[1]))) return {};
  return {Like(self)};
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights?, include_last_offset, padding_idx): results, the bag of
// each index, unless the kernel needs not know, sizes of bags, and where maxima come from.
Shapes EmbeddingBagShape(Args args, bool with_gradient) {
  constexpr int64_t kSum = 0, kMax = 2;
  const at::Tensor weight = TensorArg(args[0]);
  const at::Tensor indices = TensorArg(args[1]);
  const at::Tensor offsets = TensorArg(args[2]);
  const at::Tensor scales = TensorArg(args[6]);
  const int64_t mode = args[4].toInt(), padding = args[8].toInt();
  if (!HaveOneFloatDtype({weight, scales}) || weight.dim() != 2 || weight.numel() == 0 || !IsIndex(indices)) return {};
  if (offsets.scalar_type() != indices.scalar_type() || offsets.dim() != 1 || indices.dim() != 1) return {};
  const int64_t bags = offsets.size(0) - (args[7].toBool() ? 1 : 0);
  if (bags < 1 || indices.numel() == 0 || mode < kSum || mode > kMax || padding < -1 || padding >= weight.size(0)) return {};
  if (scales.defined() && (mode != kSum || !scales.sizes().equals(indices.sizes()) || !HasDefaultStrides(scales))) return {};
  const at::ScalarType places = offsets.scalar_type();
  const bool is_fast = mode == kSum && weight.scalar_type() != at::kDouble && weight.stride(1) == 1 && padding < 0;
  const at::Tensor bag_size = Fresh({mode == kSum && !with_gradient ? offsets.size(0) : bags}, places);
  return {Fresh({bags, weight.size(1)}, weight.scalar_type()), Fresh({is_fast ? 0 : indices.size(0)}, places), bag_size,
          mode == kMax ? Fresh({bags, weight.size(1)}, places) : Fresh(bag_size.sizes(), places)};
}

Shapes EmbeddingBagForwardShape(Args args) { return EmbeddingBagShape(args, /*with_gradient=*/false); }
Shapes EmbeddingBagTrainShape(Args args) { return EmbeddingBagShape(args, /*with_gradient=*/true); }

// (grad, num_weights, ...): of all rows of a table.
Shapes TableGradient(const at::Tensor& grad, int64_t rows) {
  if (!HaveOneFloatDtype({grad}) || grad.dim() != 2) return {};
  return {Fresh({rows, grad.size(1)}, grad.scalar_type())};
}

// (grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights?,
// padding_idx): what the forward operator has checked.
Shapes EmbeddingBagBackwardShape(Args args) {
  if (args[9].toBool()) return {};
  return TableGradient(TensorArg(args[0]), args[6].toInt());
}

// (self, dim, start, length)
Shapes NarrowCopyShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (self.dim() == 0) return {};
  const int64_t dim = c10::maybe_wrap_dim(args[1].toInt(), self.dim()), start = args[2].toInt(), length = args[3].toInt();
  if (start < 0 || length < 0 || start + length > self.size(dim)) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[dim] = length;
  return {Fresh(sizes, self.scalar_type())};
}

// (grad, input_sizes, dim, size, step): windows put back where they came from.
Shapes UnfoldBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const std::vector<int64_t> sizes = IntsArg(args[1]);
  const int64_t size = args[3].toInt(), step = args[4].toInt();
  if (sizes.empty() || step < 1 || size < 1) return {};
  const int64_t dim = c10::maybe_wrap_dim(args[2].toInt(), static_cast<int64_t>(sizes.size()));
  if (size > sizes[dim]) return {};
  std::vector<int64_t> windows = sizes;
  windows[dim] = (sizes[dim] - size) / step + 1;
  windows.push_back(size);
  if (!grad.sizes().equals(windows)) return {};
  return {Fresh(sizes, grad.scalar_type())};
}

}  // namespace

void AddIndexShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::kthvalue", KthValueShape},
      {"aten::sort", SortShape},
      {"aten::mode", ChooseShape},
      {"aten::median", MedianShape},
      {"aten::nanmedian", MedianShape},
      {"aten::median.dim", ChooseShape},
      {"aten::nanmedian.dim", ChooseShape},
      {"aten::cummax", CumulativeExtremumShape},
      {"aten::cummin", CumulativeExtremumShape},
      {"aten::logcumsumexp", LogCumSumExpShape},
      {"aten::_logcumsumexp", LogCumSumExpShape},
      {"aten::flip", FlipShape},
      {"aten::roll", RollShape},
      {"aten::index_fill.int_Scalar", IndexFillShape},
      {"aten::index_fill.int_Tensor", IndexFillShape},
      {"aten::index_put", IndexPutShape},
      {"aten::_index_put_impl", IndexPutShape},
      {"aten::put", PutShape},
      {"aten::take", TakeShape},
      {"aten::masked_scatter", MaskedScatterShape},
      {"aten::bucketize.Tensor", BucketizeShape},
      {"aten::searchsorted.Tensor", SearchSortedShape},
      {"aten::count_nonzero.dim_IntList", CountNonzeroShape},
      {"aten::histc", HistogramShape},
      {"aten::embedding_renorm", EmbeddingRenormShape},
      {"aten::_embedding_bag", EmbeddingBagTrainShape},
      {"aten::_embedding_bag_forward_only", EmbeddingBagForwardShape},
      {"aten::_embedding_bag_backward", EmbeddingBagBackwardShape},
      {"aten::narrow_copy", NarrowCopyShape},
      {"aten::unfold_backward", UnfoldBackwardShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
