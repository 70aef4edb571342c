// Scans on a GPU: rows of a few threads, a warp, several warps and turns, and columns. Skipped where there is none.
#include <gtest/gtest.h>

#include "tests/support/gpu_check.h"
#include "tests/support/scan_kernels.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

class CudaScanGpu : public ::testing::Test {
 protected:
  void SetUp() override { LAZULI_SKIP_WITHOUT_GPU(); }
};

TEST_F(CudaScanGpu, Rows) {
  for (const bool from_end : {false, true}) {
    for (int64_t size : {2, 3, 17, 64, 100, 1000, 4096, 10001, 70000}) {
      for (const int misaligned : {0, 1}) {
        CheckOptions options = GpuCheckInAnyOrder(4);
        options.misaligned = misaligned;
        const int64_t rows = size < 1000 ? 3001 : 5;
        EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {rows, size}, {size, 1}, {size, 1}, T::Float, from_end), options), "") << size;
      }
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {7, size}, {size, 1}, {size, 1}, T::Long, from_end), GpuCheckInAnyOrder(4)), "")
          << size;
    }
  }
}

TEST_F(CudaScanGpu, ColumnsAndStrides) {
  for (const bool from_end : {false, true}) {
    for (T type : {T::Float, T::Long, T::Int, T::Double}) {
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {67, 40}, {1, 67}, {1, 67}, type, from_end), GpuCheckInAnyOrder(4)), "") << "columns";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {70000, 33}, {1, 70000}, {1, 70000}, type, from_end), GpuCheckInAnyOrder(4)), "")
          << "many";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {5, 33, 9}, {297, 1, 33}, {297, 1, 33}, type, from_end), GpuCheckInAnyOrder(4)), "")
          << "middle";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {1, 48}, {67, 1}, type, from_end), GpuCheckInAnyOrder(4)), "")
          << "transposed load";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {0, 1}, {67, 1}, type, from_end), GpuCheckInAnyOrder(4)), "")
          << "one row for all";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {1, 0}, {67, 1}, type, from_end), GpuCheckInAnyOrder(4)), "")
          << "equal elements";
    }
  }
}

TEST_F(CudaScanGpu, Products) {
  const CheckOptions options = GpuCheckInAnyOrder(1);
  for (const bool from_end : {false, true}) {
    EXPECT_EQ(CheckKernel(ScanKernel(K::kScanProd, {70, 1000}, {1000, 1}, {1000, 1}, T::Float, from_end), options), "");
    EXPECT_EQ(CheckKernel(ScanKernel(K::kScanProd, {40, 33}, {1, 40}, {1, 40}, T::Int, from_end), options), "");
  }
}

TEST_F(CudaScanGpu, OfScansAmongReductions) {
  for (const bool from_end : {false, true}) {
    for (const auto& [sizes, strides] : ScanLayouts())
      EXPECT_EQ(CheckKernel(ScansAmongReductions(sizes, strides, from_end), GpuCheckInAnyOrder(1)), "");
    EXPECT_EQ(CheckKernel(ScansAmongReductions({9, 3996}, {3996, 1}, from_end), GpuCheckInAnyOrder(1)), "") << "whole pieces";
    EXPECT_EQ(CheckKernel(ScansAmongReductions({3, 3999}, {3999, 1}, from_end), GpuCheckInAnyOrder(1)), "") << "rows that begin anywhere";
  }
}

}  // namespace
}  // namespace lazuli::testing
