// Sums at places that indices say on a GPU, in memory and by each block for itself first. Skipped where there is none.
#include <gtest/gtest.h>

#include "codegen/cuda/cuda_plan.h"
#include "tests/support/gpu_check.h"
#include "tests/support/kernel_builder.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

enum class Places { kAny, kSorted, kOne };

// Adds `rows` rows of `width` numbers to those of `places` rows, but for what would go to row 5.
codegen::KernelIR ScatterTo(int64_t rows, int64_t width, int64_t places, T type, Places which) {
  KernelBuilder b({rows, width});
  int row = b.Const(3, T::Long);
  if (which == Places::kAny) row = b.Op(K::kAnd, b.Load(b.Buffer(T::Long, {1, 0})), b.Const(places - 1, T::Long));
  if (which == Places::kSorted) row = b.Op(K::kDiv, b.Index(0), b.Const(rows / places, T::Long));
  const int value = b.Load(b.Buffer(type));
  const int target = b.Target(type, {0, 1}, (places - 1) * width + 1);
  b.Scatter(K::kScatterAdd, target, value, b.Op(K::kMul, row, b.Const(width, T::Long)), b.Op(K::kNe, row, b.Const(5, T::Long)));
  return b.kernel();
}

class CudaScatterGpu : public ::testing::Test {
 protected:
  void SetUp() override { LAZULI_SKIP_WITHOUT_GPU(); }
};

TEST_F(CudaScatterGpu, FewPlaces) {
  for (const T type : {T::Float, T::Double, T::Long, T::Int}) {
    for (const Places which : {Places::kAny, Places::kSorted, Places::kOne}) {
      for (const auto& [rows, width, places] : {std::tuple<int64_t, int64_t, int64_t>{1 << 17, 1, 64}, {70016, 3, 64}, {1 << 16, 32, 16}}) {
        const codegen::KernelIR kernel = ScatterTo(rows, width, places, type, which);
        ASSERT_TRUE(codegen::PlanCuda(kernel, false).HasOwnPlaces());
        EXPECT_EQ(CheckKernel(kernel, GpuCheckInAnyOrder(4)), "") << c10::toString(type) << " " << rows << " x " << width;
      }
    }
  }
}

TEST_F(CudaScatterGpu, ManyPlaces) {
  for (const T type : {T::Float, T::Double, T::Long, T::Int}) {
    const codegen::KernelIR kernel = ScatterTo(1 << 14, 4, 1 << 11, type, Places::kAny);
    ASSERT_FALSE(codegen::PlanCuda(kernel, false).HasOwnPlaces());
    EXPECT_EQ(CheckKernel(kernel, GpuCheckInAnyOrder(4)), "") << c10::toString(type);
  }
}

}  // namespace
}  // namespace lazuli::testing
