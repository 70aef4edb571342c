#include "codegen/products/lt_product.h"

#include <c10/core/Allocator.h>

#include <algorithm>

namespace lazuli::codegen {
namespace {

using runtime::CublasLt;
using runtime::CublasLtResult;

constexpr int kMostAlgorithms = 32;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // The most that an algorithm may need, as LibTorch allows on Hopper.

int CublasTypeOf(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
      return CublasLt::kDouble;
    case c10::ScalarType::Half:
      return CublasLt::kHalf;
    case c10::ScalarType::BFloat16:
      return CublasLt::kBFloat16;
    default:
      return CublasLt::kFloat;
  }
}

int CublasEpilogueOf(const GpuProductShape& shape) {
  const int bias = shape.has_bias ? CublasLt::kEpilogueBias : 0;
  switch (shape.epilogue) {
    case Epilogue::kRelu:
      return bias | CublasLt::kEpilogueRelu;
    case Epilogue::kGelu:
      return bias | CublasLt::kEpilogueGelu;
    case Epilogue::kGeluAux:
      return bias | CublasLt::kEpilogueGeluAux;
    case Epilogue::kNone:
      break;
  }
  return shape.has_bias ? bias : CublasLt::kEpilogueDefault;
}

}  // namespace

LtProduct::LtProduct(const CublasLt& lt, runtime::CublasLtHandle handle, const GpuProductShape& shape)
    : lt_(lt), handle_(handle), shape_(shape) {
  const bool wide = shape.dtype == c10::kDouble;
  const int compute = wide ? CublasLt::kCompute64F : shape.tf32 ? CublasLt::kComputeTf32 : CublasLt::kCompute32F;
  Do(lt.desc_create(&desc_, compute, wide ? CublasLt::kDouble : CublasLt::kFloat));
  if (shape.transposed_a) Set(CublasLt::kTransA, CublasLt::kTransposed);
  if (shape.transposed_b) Set(CublasLt::kTransB, CublasLt::kTransposed);
  Set(CublasLt::kEpilogue, CublasEpilogueOf(shape));
  if (HasAux(shape.epilogue) && error_ == 0) Do(lt.desc_set(desc_, CublasLt::kAuxLeading, &shape.ld_aux, sizeof(shape.ld_aux)));
  AddLayout(&a_, shape.transposed_a ? shape.k : shape.m, shape.transposed_a ? shape.m : shape.k, shape.lda, shape.stride_a);
  AddLayout(&b_, shape.transposed_b ? shape.n : shape.k, shape.transposed_b ? shape.k : shape.n, shape.ldb, shape.stride_b);
  AddLayout(&d_, shape.m, shape.n, shape.ldd, shape.stride_d);
}

LtProduct::~LtProduct() {
  for (const runtime::CublasLtLayout layout : {a_, b_, d_}) {
    if (layout != nullptr) lt_.layout_destroy(layout);
  }
  if (desc_ != nullptr) lt_.desc_destroy(desc_);
}

std::vector<CublasLtResult> LtProduct::Propose() {
  std::vector<CublasLtResult> results(kMostAlgorithms);
  runtime::CublasLtPreference preference = nullptr;
  int count = 0;
  Do(lt_.preference_create(&preference));
  const auto prefer = [&](int attribute, auto value) {
    if (error_ == 0) Do(lt_.preference_set(preference, attribute, &value, sizeof(value)));
  };
  prefer(CublasLt::kMaxWorkspaceBytes, uint64_t{kWorkspaceBytes});
  prefer(CublasLt::kReductionSchemes, uint32_t{CublasLt::kReducesInComputeType});
  prefer(CublasLt::kMinAlignmentA, static_cast<uint32_t>(shape_.aligned_a));
  prefer(CublasLt::kMinAlignmentB, static_cast<uint32_t>(shape_.aligned_b));
  prefer(CublasLt::kMinAlignmentC, static_cast<uint32_t>(shape_.aligned_d));
  prefer(CublasLt::kMinAlignmentD, static_cast<uint32_t>(shape_.aligned_d));
  if (error_ == 0) Do(lt_.get_heuristic(handle_, desc_, a_, b_, d_, d_, preference, kMostAlgorithms, results.data(), &count));
  if (preference != nullptr) lt_.preference_destroy(preference);
  results.resize(error_ == 0 ? static_cast<size_t>(count) : 0);
  results.erase(std::remove_if(results.begin(), results.end(), [](const CublasLtResult& r) { return r.status != 0; }), results.end());
  return results;
}

bool LtProduct::Check(CublasLtResult* result) const {
  if (error_ != 0) return false;
  const runtime::CublasLtAlgorithm algorithm = result->algorithm;
  return lt_.check(handle_, desc_, a_, b_, d_, d_, &algorithm, result) == 0 && result->status == 0 &&
         result->workspace_bytes <= kWorkspaceBytes;
}

bool LtProduct::Run(const GpuProduct& product, const CublasLtResult& result, runtime::CudaStreamHandle stream) const {
  // Freed in the order of the stream.
  const c10::DataPtr workspace =
      result.workspace_bytes > 0 ? c10::GetAllocator(c10::kCUDA)->allocate(result.workspace_bytes) : c10::DataPtr();
  if (shape_.has_bias && lt_.desc_set(desc_, CublasLt::kBiasPointer, &product.bias, sizeof(product.bias)) != 0) return false;
  if (HasAux(shape_.epilogue) && lt_.desc_set(desc_, CublasLt::kAuxPointer, &product.aux, sizeof(product.aux)) != 0) return false;
  const double one = 1, zero = 0;
  const float narrow_one = 1, narrow_zero = 0;
  const bool wide = shape_.dtype == c10::kDouble;
  return lt_.matmul(handle_, desc_, wide ? static_cast<const void*>(&one) : &narrow_one, product.a, a_, product.b, b_,
                    wide ? static_cast<const void*>(&zero) : &narrow_zero, product.d, d_, product.d, d_, &result.algorithm, workspace.get(),
                    result.workspace_bytes, stream) == 0;
}

void LtProduct::AddLayout(runtime::CublasLtLayout* layout, int64_t rows, int64_t cols, int64_t leading, int64_t stride) {
  if (error_ != 0) return;
  Do(lt_.layout_create(layout, CublasTypeOf(shape_.dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), leading));
  if (shape_.batch == 1 || error_ != 0) return;
  const auto batch = static_cast<int32_t>(shape_.batch);
  Do(lt_.layout_set(*layout, CublasLt::kBatchCount, &batch, sizeof(batch)));
  Do(lt_.layout_set(*layout, CublasLt::kBatchStride, &stride, sizeof(stride)));
}

}  // namespace lazuli::codegen
