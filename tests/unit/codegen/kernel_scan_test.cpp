// Scans along rows and down columns, forwards and from the end, against the reference.
#include <gtest/gtest.h>

#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"
#include "tests/support/scan_kernels.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

class KernelScans : public ::testing::TestWithParam<std::string> {
 protected:
  // Of whole numbers, so that sums are exact in any order.
  CheckOptions Options(double most = 4) const {
    CheckOptions options;
    options.low = -most;
    options.high = most;
    options.target.isa = GetParam();
    options.whole = true;
    options.absolute = 1e-30;  // 0 and -0 are equal.
    return options;
  }
};

TEST_P(KernelScans, SizesAndTails) {
  for (const bool from_end : {false, true}) {
    for (T type : {T::Float, T::Double, T::Int, T::Long}) {
      for (int64_t size : {2, 3, 15, 16, 17, 31, 63, 64, 65, 127, 200, 1000}) {
        EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {size}, {1}, {1}, type, from_end), Options()), "") << size << from_end;
        EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {3, size}, {size, 1}, {size + 1, 1}, type, from_end), Options()), "") << size;
      }
    }
  }
}

TEST_P(KernelScans, ColumnsAndStrides) {
  for (const bool from_end : {false, true}) {
    for (T type : {T::Float, T::Long}) {
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {67, 40}, {1, 67}, {1, 67}, type, from_end), Options()), "") << "columns";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {5, 33, 9}, {297, 1, 33}, {297, 1, 33}, type, from_end), Options()), "") << "middle";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {1, 48}, {67, 1}, type, from_end), Options()), "") << "transposed load";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {134, 2}, {67, 1}, type, from_end), Options()), "") << "every other";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {0, 1}, {67, 1}, type, from_end), Options()), "") << "one row for all";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {48, 67}, {1, 0}, {67, 1}, type, from_end), Options()), "") << "equal elements";
      EXPECT_EQ(CheckKernel(ScanKernel(K::kScanSum, {300, 501}, {501, 1}, {501, 1}, type, from_end), Options()), "") << "in parallel";
    }
  }
}

TEST_P(KernelScans, Products) {
  for (const bool from_end : {false, true}) {
    const CheckOptions options = Options(1);
    EXPECT_EQ(CheckKernel(ScanKernel(K::kScanProd, {7, 100}, {100, 1}, {100, 1}, T::Float, from_end), options), "");
    EXPECT_EQ(CheckKernel(ScanKernel(K::kScanProd, {40, 33}, {1, 40}, {1, 40}, T::Double, from_end), options), "");
    EXPECT_EQ(CheckKernel(ScanKernel(K::kScanProd, {7, 100}, {100, 1}, {100, 1}, T::Int, from_end), options), "");
  }
}

TEST_P(KernelScans, OfScansAmongReductions) {
  for (const bool from_end : {false, true}) {
    for (const auto& [sizes, strides] : ScanLayouts())
      EXPECT_EQ(CheckKernel(ScansAmongReductions(sizes, strides, from_end), Options(1)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, KernelScans, ::testing::ValuesIn(AllIsas()), [](const auto& info) { return info.param; });

TEST(KernelScanErrors, SayWhatIsWrong) {
  const auto error = [](const KernelBuilder& b) { return std::string(codegen::VerifyKernel(b.kernel()).message()); };
  KernelBuilder two({4, 4, 4}, 2);
  two.Scan(K::kScanSum, two.Load(two.Buffer(T::Float)), false);
  EXPECT_NE(error(two).find("scan of other than one reduced dimension"), std::string::npos) << error(two);
  KernelBuilder one({4, 1}, 1);
  one.Scan(K::kScanSum, one.Load(one.Buffer(T::Float)), false);
  EXPECT_NE(error(one).find("of several points"), std::string::npos) << error(one);
  KernelBuilder both({4, 4}, 1);
  const int x = both.Load(both.Buffer(T::Float));
  both.Scan(K::kScanSum, x, false);
  both.Scan(K::kScanSum, x, true);
  EXPECT_NE(error(both).find("scans differ in direction"), std::string::npos) << error(both);
}

}  // namespace
}  // namespace lazuli::testing
