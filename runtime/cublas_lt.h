// cuBLASLt, opened when a product's algorithm is first to be chosen. The few types and numbers of its stable binary interface that are used
// are declared here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/cuda_driver.h"

namespace lazuli::runtime {

using CublasLtHandle = struct cublasLtContext*;
using CublasLtDesc = struct cublasLtMatmulDescOpaque*;
using CublasLtLayout = struct cublasLtMatrixLayoutOpaque*;
using CublasLtPreference = struct cublasLtMatmulPreferenceOpaque*;

// cublasLtMatmulAlgo_t.
struct CublasLtAlgorithm {
  uint64_t data[8];
};

// cublasLtMatmulHeuristicResult_t.
struct CublasLtResult {
  CublasLtAlgorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

// Functions of libcublasLt. Each but `version` returns 0 or an error; all are thread-safe, as long as no two threads share a descriptor
// that one of them changes.
struct CublasLt {
  size_t (*version)();
  int (*create)(CublasLtHandle* handle);
  int (*desc_create)(CublasLtDesc* desc, int compute_type, int scale_type);
  int (*desc_destroy)(CublasLtDesc desc);
  int (*desc_set)(CublasLtDesc desc, int attribute, const void* value, size_t bytes);
  int (*layout_create)(CublasLtLayout* layout, int type, uint64_t rows, uint64_t cols, int64_t leading);
  int (*layout_destroy)(CublasLtLayout layout);
  int (*layout_set)(CublasLtLayout layout, int attribute, const void* value, size_t bytes);
  int (*preference_create)(CublasLtPreference* preference);
  int (*preference_destroy)(CublasLtPreference preference);
  int (*preference_set)(CublasLtPreference preference, int attribute, const void* value, size_t bytes);
  int (*get_heuristic)(CublasLtHandle handle, CublasLtDesc desc, CublasLtLayout a, CublasLtLayout b, CublasLtLayout c, CublasLtLayout d,
                       CublasLtPreference preference, int most, CublasLtResult* results, int* count);
  int (*check)(CublasLtHandle handle, CublasLtDesc desc, CublasLtLayout a, CublasLtLayout b, CublasLtLayout c, CublasLtLayout d,
               const CublasLtAlgorithm* algorithm, CublasLtResult* result);
  int (*matmul)(CublasLtHandle handle, CublasLtDesc desc, const void* alpha, const void* a, CublasLtLayout a_layout, const void* b,
                CublasLtLayout b_layout, const void* beta, const void* c, CublasLtLayout c_layout, void* d, CublasLtLayout d_layout,
                const CublasLtAlgorithm* algorithm, void* workspace, size_t workspace_bytes, CudaStreamHandle stream);

  // cudaDataType.
  static constexpr int kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 14;
  // cublasComputeType_t.
  static constexpr int kCompute32F = 68, kCompute64F = 70, kComputeTf32 = 77;
  // cublasLtMatmulDescAttributes_t, with values of 4 bytes but for pointers and the leading dimension.
  static constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kAuxPointer = 11, kAuxLeading = 12;
  static constexpr int kTransposed = 1;  // cublasOperation_t.
  // cublasLtEpilogue_t. Bias: a number for each row of D; may be joined with the functions of each element.
  static constexpr int kEpilogueDefault = 1, kEpilogueBias = 4, kEpilogueRelu = 2, kEpilogueGelu = 32;
  static constexpr int kEpilogueGeluAux = kEpilogueGelu | 128;
  // cublasLtMatrixLayoutAttribute_t: of 4 and 8 bytes.
  static constexpr int kBatchCount = 5, kBatchStride = 6;
  // cublasLtMatmulPreferenceAttributes_t: of 8 and, all others, 4 bytes.
  static constexpr int kMaxWorkspaceBytes = 1, kReductionSchemes = 3;
  static constexpr int kMinAlignmentA = 5, kMinAlignmentB = 6, kMinAlignmentC = 7, kMinAlignmentD = 8;
  // cublasLtReductionScheme_t, a mask: parts of a sum are added up in the type that it is computed in.
  static constexpr uint32_t kReducesInComputeType = 2;
};

// cuBLASLt as LibTorch has it open, or on the loader's path. Fails with Unavailable where it is neither.
absl::StatusOr<const CublasLt*> GetCublasLt();

}  // namespace lazuli::runtime
