// For the files that define shape functions: what they share. A new shape function is a row of its file's Add function.
#pragma once

#include <initializer_list>

#include "absl/container/flat_hash_map.h"
#include "tracer/shape_functions.h"

namespace lazuli::tracer {

using Args = c10::ArrayRef<c10::IValue>;
using Shapes = std::vector<at::Tensor>;
using ShapeTable = absl::flat_hash_map<std::string, ShapeFunction>;  // By operator name; in-place forms are not listed.

void AddBasicShapes(ShapeTable* table);  // Pointwise, copies, fills, reductions, indexing.
void AddLayerShapes(ShapeTable* table);  // Convolution, normalisation, embedding, attention.

// These know sizes, not which dtypes the operators' kernels take: that is learnt when they run.
void AddLossShapes(ShapeTable* table);
void AddImageShapes(ShapeTable* table);   // Pooling, padding, sampling, shuffling.
void AddIndexShapes(ShapeTable* table);   // Indexing, searching, sorting, accumulating.
void AddLinalgShapes(ShapeTable* table);  // Products, distances, factorisations, Fourier transforms.
void AddPointwiseShapes(ShapeTable* table);
void AddFactoryShapes(ShapeTable* table);  // What is made of sizes.

// Where GPUs' kernels give results other sizes or layouts than the CPU's; without a function where no rule is known.
void AddGpuShapes(ShapeTable* table);
void AddGpuAttentionShapes(ShapeTable* table);

// Whether those of several tensors that are defined have one dtype, which is floating point (not of 8 bits).
bool HaveOneFloatDtype(std::initializer_list<at::Tensor> tensors);
// Whether the dtype is one that ATen takes for indices.
bool IsIndex(const at::Tensor& tensor);
// Whether the strides are those of a fresh contiguous tensor; is_contiguous() allows any stride where a size is 1.
bool HasDefaultStrides(const at::Tensor& tensor);
// A tensor argument, undefined for None.
at::Tensor TensorArg(const c10::IValue& value);
// An int list argument, of plain or symbolic ints.
std::vector<int64_t> IntsArg(const c10::IValue& value);
// Flags of a `bool[N] output_mask` argument.
std::vector<bool> MaskArg(const c10::IValue& value);
// What TensorIterator allocates over `inputs`: their broadcast sizes, and strides after their layouts.
at::Tensor PointwiseResult(std::initializer_list<at::Tensor> inputs, at::ScalarType dtype);
// The shape functions of (a, ...), of a floating dtype: what TensorIterator allocates, and an empty_like(), which keeps strides of size 1,
// too. And of (a, b, ...), two operands of one floating dtype.
Shapes FloatUnaryShape(Args args);
Shapes FloatLikeShape(Args args);
Shapes FloatBinaryShape(Args args);
// Of a floating dtype, contiguous and not empty.
bool IsPlainFloat(const at::Tensor& tensor);
// `self`'s sizes without `dims`, or with 1 for them if they are kept; all of them are meant by none. Nothing where one comes twice.
std::optional<std::vector<int64_t>> ReducedSizes(const at::Tensor& self, const std::vector<int64_t>& dims, bool keep);
// A fresh result, contiguous in this format.
at::Tensor Fresh(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format = at::MemoryFormat::Contiguous);
// Whether these are attention's operands, [batch, heads, length, width] of one floating dtype; several heads of queries may share one of
// keys.
bool AreAttentionHeads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);
// A fresh tensor of heads' sizes and dtype, length before heads in memory.
at::Tensor FreshHeads(const at::Tensor& heads);
// How a function says that a result is this number, which is no tensor.
at::Tensor NumberResult(int64_t number);
// The format, contiguous or channels last, in which the tensor has no gaps: that of `Fresh` with its sizes. None for any other layout.
std::optional<at::MemoryFormat> FormatOf(const at::Tensor& tensor);

}  // namespace lazuli::tracer
