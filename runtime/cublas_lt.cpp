#include "runtime/cublas_lt.h"

#include <vector>

#include "runtime/open_library.h"

namespace lazuli::runtime {
namespace {

absl::StatusOr<const CublasLt*> Read() {
  const std::vector<std::string> names{"libcublasLt.so.13", "libcublasLt.so.12"};
  void* library = FindOpen(names);
  if (library == nullptr) {
    absl::StatusOr<void*> opened = OpenFirst("cuBLASLt", names, "install the package nvidia-cublas of LibTorch's CUDA version beside it");
    if (!opened.ok()) return opened.status();
    library = *opened;
  }
  auto* lt = new CublasLt;  // Lives as long as the process.
  SymbolReader reader(library, "cuBLASLt");
  reader.Read(&lt->version, "cublasLtGetVersion");
  reader.Read(&lt->create, "cublasLtCreate");
  reader.Read(&lt->desc_create, "cublasLtMatmulDescCreate");
  reader.Read(&lt->desc_destroy, "cublasLtMatmulDescDestroy");
  reader.Read(&lt->desc_set, "cublasLtMatmulDescSetAttribute");
  reader.Read(&lt->layout_create, "cublasLtMatrixLayoutCreate");
  reader.Read(&lt->layout_destroy, "cublasLtMatrixLayoutDestroy");
  reader.Read(&lt->layout_set, "cublasLtMatrixLayoutSetAttribute");
  reader.Read(&lt->preference_create, "cublasLtMatmulPreferenceCreate");
  reader.Read(&lt->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  reader.Read(&lt->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  reader.Read(&lt->get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  reader.Read(&lt->check, "cublasLtMatmulAlgoCheck");
  reader.Read(&lt->matmul, "cublasLtMatmul");
  if (!reader.status().ok()) return reader.status();
  return lt;
}

}  // namespace

absl::StatusOr<const CublasLt*> GetCublasLt() {
  static const auto* const lt = new absl::StatusOr<const CublasLt*>(Read());
  return *lt;
}

}  // namespace lazuli::runtime
