// One product on a GPU by cuBLASLt.
#pragma once

#include <vector>

#include "codegen/products/gpu_product.h"
#include "runtime/cublas_lt.h"

namespace lazuli::codegen {

// Its descriptors. What cuBLASLt refuses to describe, it proposes nothing for. Not thread-safe.
class LtProduct {
 public:
  LtProduct(const runtime::CublasLt& lt, runtime::CublasLtHandle handle, const GpuProductShape& shape);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // The algorithms that cuBLASLt proposes, its best guess first. Empty where it does not compute this.
  std::vector<runtime::CublasLtResult> Propose();

  // Whether the library takes the algorithm for this product; fills in what it needs.
  bool Check(runtime::CublasLtResult* result) const;

  // Launches it. False: cuBLASLt refuses.
  bool Run(const GpuProduct& product, const runtime::CublasLtResult& result, runtime::CudaStreamHandle stream) const;

 private:
  void Do(int error) {
    if (error_ == 0) error_ = error;
  }
  void Set(int attribute, int value) {
    if (error_ == 0) Do(lt_.desc_set(desc_, attribute, &value, sizeof(value)));
  }
  void AddLayout(runtime::CublasLtLayout* layout, int64_t rows, int64_t cols, int64_t leading, int64_t stride);

  const runtime::CublasLt& lt_;
  const runtime::CublasLtHandle handle_;
  const GpuProductShape shape_;
  int error_ = 0;  // The first.
  runtime::CublasLtDesc desc_ = nullptr;
  runtime::CublasLtLayout a_ = nullptr, b_ = nullptr, d_ = nullptr;
};

}  // namespace lazuli::codegen
