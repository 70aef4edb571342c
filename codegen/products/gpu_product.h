// Products of matrices on a GPU as cuBLASLt takes them: column-major, D = op(A) op(B), perhaps with a number added to each row of D, and
// with a function of each element ("epilogue").
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace lazuli::codegen {

enum class Epilogue : uint8_t {
  kNone,
  kRelu,
  kGelu,     // By tanh.
  kGeluAux,  // The same, and what it took is stored in a further matrix.
};
constexpr bool HasAux(Epilogue epilogue) { return epilogue == Epilogue::kGeluAux; }

// All that an algorithm's choice depends on.
struct GpuProductShape {
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // Of all matrices: float, double, half or bfloat16.
  bool tf32 = false;                                   // Floats may be rounded to TF32.
  bool transposed_a = false, transposed_b = false;
  bool has_bias = false;
  Epilogue epilogue = Epilogue::kNone;
  int64_t m = 0, n = 0, k = 0;                          // D is m x n, op(A) m x k, op(B) k x n.
  int64_t lda = 0, ldb = 0, ldd = 0;                    // Elements from column to column, as stored.
  int64_t ld_aux = 0;                                   // Of the further matrix, which is like D.
  int64_t batch = 1;                                    // So many products,
  int64_t stride_a = 0, stride_b = 0, stride_d = 0;     // so many elements apart.
  int32_t aligned_a = 0, aligned_b = 0, aligned_d = 0;  // Bytes that the addresses are multiples of: powers of two up to 256.
  int32_t aligned_aux = 0;

  // "bf16[8192, 768] x [768, 2304] + bias ...": each shape's own.
  std::string Text() const;

  auto Fields() const {
    return std::make_tuple(dtype, tf32, transposed_a, transposed_b, has_bias, epilogue, m, n, k, lda, ldb, ldd, ld_aux, batch, stride_a,
                           stride_b, stride_d, aligned_a, aligned_b, aligned_d, aligned_aux);
  }
  friend bool operator==(const GpuProductShape& x, const GpuProductShape& y) { return x.Fields() == y.Fields(); }
  template <typename H>
  friend H AbslHashValue(H h, const GpuProductShape& x) {
    return H::combine(std::move(h), x.Fields());
  }
};

struct GpuProduct {
  GpuProductShape shape;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
  void* aux = nullptr;
};

// x y + bias into `out`: matrices, or batches of them. `bias`: a number for each column, or undefined. None where cuBLASLt does not take
// it: dtypes that differ, gaps or overlaps within rows and columns, nothing to do, or a bias of a result that is stored column by column.
// Addresses are asked for, so that the tensors must have memory; they may be on the CPU, for tests. `aux`: the epilogue's further matrix,
// which must be stored as `out` is; undefined where it has none.
std::optional<GpuProduct> DescribeGpuProduct(const at::Tensor& x, const at::Tensor& y, const at::Tensor& bias, const at::Tensor& out,
                                             Epilogue epilogue = Epilogue::kNone, const at::Tensor& aux = {});

// Sums of so many terms are short: where they are longer, the first algorithm that cuBLASLt proposes may be one that does not split them,
// and takes twice as long as the best.
constexpr int64_t kShortSums = 1024;

// Whether a factor of addmm's is 1.
bool IsUnitFactor(const c10::IValue& factor);

}  // namespace lazuli::codegen
