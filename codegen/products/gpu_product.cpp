#include "codegen/products/gpu_product.h"

#include <ATen/Context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/ir/dtypes.h"
#include "codegen/ir/trace_text.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMostAligned = 256;

// How the last two dimensions of a tensor are stored.
struct MatrixStorage {
  bool by_rows = false;  // Row after row; else column after column.
  int64_t leading = 0;   // Elements from one to the next.
};

std::optional<MatrixStorage> MatrixStorageOf(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(-2), cols = matrix.size(-1);
  const int64_t down = matrix.stride(-2), along = matrix.stride(-1);
  if ((along == 1 || cols == 1) && (down >= cols || rows == 1)) return MatrixStorage{true, rows == 1 ? cols : down};
  if ((down == 1 || rows == 1) && (along >= rows || cols == 1)) return MatrixStorage{false, cols == 1 ? rows : along};
  return std::nullopt;
}

int32_t AlignmentOf(const void* address, const GpuProductShape& shape, int64_t stride) {
  // Each of a batch has an address of its own.
  const auto bits = reinterpret_cast<uintptr_t>(address) |
                    (shape.batch > 1 ? static_cast<uintptr_t>(stride) * c10::elementSize(shape.dtype) : uintptr_t{0}) | kMostAligned;
  return static_cast<int32_t>(bits & ~(bits - 1));
}

bool IsProductType(c10::ScalarType type) { return type == c10::kFloat || type == c10::kDouble || IsHalf(type); }

bool IsBias(const at::Tensor& bias, const at::Tensor& out) {
  if (bias.scalar_type() != out.scalar_type() || bias.dim() == 0 || bias.numel() != out.size(-1)) return false;
  return bias.size(-1) == out.size(-1) && (bias.stride(-1) == 1 || bias.numel() == 1);
}

const char* EpilogueText(Epilogue epilogue) {
  constexpr const char* kTexts[] = {"", " relu", " gelu", " gelu with aux"};
  return kTexts[static_cast<int>(epilogue)];
}

int64_t BatchStride(const at::Tensor& tensor) { return tensor.dim() == 3 ? tensor.stride(0) : 0; }

// False: it is not stored as `out` is.
bool AddAux(const at::Tensor& aux, const at::Tensor& out, const MatrixStorage& of_out, GpuProduct* product) {
  if (!aux.defined() || aux.sizes() != out.sizes() || aux.scalar_type() != out.scalar_type()) return false;
  const std::optional<MatrixStorage> of_aux = MatrixStorageOf(aux);
  if (!of_aux.has_value() || of_aux->by_rows != of_out.by_rows) return false;
  product->aux = aux.data_ptr();
  product->shape.ld_aux = of_aux->leading;
  product->shape.aligned_aux = AlignmentOf(product->aux, product->shape, 0);
  return true;
}

}  // namespace

std::string GpuProductShape::Text() const {
  std::string text = absl::StrCat(ScalarTypeText(dtype), tf32 ? " as tf32" : "", batch > 1 ? absl::StrCat(" ", batch, " times") : "", " [",
                                  m, ", ", k, "]", transposed_a ? "t" : "", " x [", k, ", ", n, "]", transposed_b ? "t" : "",
                                  has_bias ? " + bias" : "", EpilogueText(epilogue), ", leading ", lda, " ", ldb, " ", ldd);
  if (batch > 1) absl::StrAppend(&text, ", apart ", stride_a, " ", stride_b, " ", stride_d);
  absl::StrAppend(&text, ", aligned ", aligned_a, " ", aligned_b, " ", aligned_d);
  if (HasAux(epilogue)) absl::StrAppend(&text, ", aux leading ", ld_aux, " aligned ", aligned_aux);
  return text;
}

bool IsUnitFactor(const c10::IValue& factor) { return factor.isScalar() && factor.toScalar().equal(1); }

std::optional<GpuProduct> DescribeGpuProduct(const at::Tensor& x, const at::Tensor& y, const at::Tensor& bias, const at::Tensor& out,
                                             Epilogue epilogue, const at::Tensor& aux) {
  const c10::ScalarType type = out.scalar_type();
  if (!IsProductType(type) || x.scalar_type() != type || y.scalar_type() != type || out.numel() == 0 || x.numel() == 0) return std::nullopt;
  if (x.is_conj() || y.is_conj() || x.is_neg() || y.is_neg()) return std::nullopt;
  const std::optional<MatrixStorage> of_x = MatrixStorageOf(x), of_y = MatrixStorageOf(y), of_out = MatrixStorageOf(out);
  if (!of_x.has_value() || !of_y.has_value() || !of_out.has_value()) return std::nullopt;
  if (bias.defined() && (!of_out->by_rows || !IsBias(bias, out))) return std::nullopt;
  if (epilogue != Epilogue::kNone && out.dim() != 2) return std::nullopt;
  GpuProduct product;
  GpuProductShape& shape = product.shape;
  shape.dtype = type;
  shape.tf32 = type == c10::kFloat &&
               at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32;
  shape.has_bias = bias.defined();
  shape.epilogue = epilogue;
  shape.batch = out.dim() == 3 ? out.size(0) : 1;
  shape.k = x.size(-1);
  // What is stored by rows is its transpose by columns, and a product's transpose is that of the transposes, the other way round.
  const bool swapped = of_out->by_rows;
  const at::Tensor& a = swapped ? y : x;
  const at::Tensor& b = swapped ? x : y;
  const MatrixStorage& of_a = swapped ? *of_y : *of_x;
  const MatrixStorage& of_b = swapped ? *of_x : *of_y;
  shape.m = swapped ? out.size(-1) : out.size(-2);
  shape.n = swapped ? out.size(-2) : out.size(-1);
  shape.transposed_a = of_a.by_rows != swapped;
  shape.transposed_b = of_b.by_rows != swapped;
  shape.lda = of_a.leading;
  shape.ldb = of_b.leading;
  shape.ldd = of_out->leading;
  shape.stride_a = BatchStride(a);
  shape.stride_b = BatchStride(b);
  shape.stride_d = BatchStride(out);
  product.a = a.const_data_ptr();
  product.b = b.const_data_ptr();
  product.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  product.d = out.mutable_data_ptr();
  shape.aligned_a = AlignmentOf(product.a, shape, shape.stride_a);
  shape.aligned_b = AlignmentOf(product.b, shape, shape.stride_b);
  shape.aligned_d = AlignmentOf(product.d, shape, shape.stride_d);
  return HasAux(epilogue) && !AddAux(aux, out, *of_out, &product) ? std::nullopt : std::make_optional(product);
}

}  // namespace lazuli::codegen
