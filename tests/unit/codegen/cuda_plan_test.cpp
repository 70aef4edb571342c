// Which threads take which points of a kernel for a GPU. Needs none.
#include "codegen/cuda/cuda_plan.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "codegen/cuda/emit_cuda.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/scan_kernels.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

codegen::CudaPlan PlanOf(const KernelIR& kernel) { return codegen::PlanCuda(kernel, /*wide=*/false); }

KernelIR SumOver(const c10::DimVector& sizes, const c10::DimVector& strides) {
  KernelBuilder b(sizes, 1);
  b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceSum, b.Load(b.Buffer(T::Float, strides))));
  return b.kernel();
}

TEST(CudaText, SingleElementsOfColumnsAreUnderWayTogether) {
  const std::string text = codegen::EmitCuda(PlanOf(SumOver({255, 1 << 14}, {1, 255})));
  EXPECT_TRUE(absl::StrContains(text, "if (n == 1) {")) << text;
  EXPECT_TRUE(absl::StrContains(text, "l0[8][1];")) << text;
}

TEST(CudaPlan, ManyShortColumnsAreThreadsOwn) {
  const auto threads = [](int64_t columns, int64_t rows) { return PlanOf(SumOver({columns, rows}, {1, columns})).launch.phases[0]; };
  EXPECT_EQ(threads(1000003, 33).threads_y, 1);
  EXPECT_EQ(threads(1000003, 33).threads_x, 256);
  EXPECT_GT(threads(1003, 33).threads_y, 1) << "few";
  EXPECT_GT(threads(1000003, 3000).threads_y, 1) << "long";
}

TEST(CudaPlan, BlocksOfScansAreNoLargerThanThereAre) {
  for (T type : {T::Float, T::Long}) {
    for (const int64_t columns : {3, 33, 1000, 70000, 1000001}) {
      for (const int64_t points : {2, 33, 64, 256, 5000}) {
        for (const int64_t apart : {1, 2}) {
          const c10::DimVector sizes = {columns, points}, strides = {apart, apart * columns};
          const codegen::CudaLaunch launch = PlanOf(ScanKernel(K::kScanSum, sizes, strides, strides, type, false)).launch;
          EXPECT_LE(launch.phases[0].threads_x * launch.phases[0].threads_y, 1024) << columns << " of " << points;
          EXPECT_FALSE(launch.split);
        }
      }
    }
  }
  EXPECT_EQ(PlanOf(ScanKernel(K::kScanSum, {1000001, 64}, {1, 1000001}, {1, 1000001}, T::Float, false)).launch.phases[0].threads_y, 1)
      << "many short ones";
  EXPECT_TRUE(PlanOf(ScanKernel(K::kScanSum, {8, 65536}, {1, 8}, {1, 8}, T::Float, false)).rows) << "a block for each of few";
}

TEST(CudaPlan, ManyShortRowsAreThreadsOwn) {
  const auto threads = [](int64_t rows, int64_t columns) {
    return PlanOf(SumOver({rows, columns}, {columns, 1})).launch.phases[0].threads_x;
  };
  EXPECT_EQ(threads(4000000, 7), 1);
  EXPECT_GT(threads(400, 7), 1) << "few";
}

// As many loads of a row as given, in two passes, with much to do at each point.
KernelIR HeavyRows(int loads, T type) {
  KernelBuilder b({1 << 14, 512}, 1);
  int sum = b.Cast(b.Load(b.Buffer(type)), T::Float);
  for (int i = 1; i < loads; ++i) sum = b.Op(K::kMul, sum, b.Cast(b.Load(b.Buffer(type)), T::Float));
  int y = b.Op(K::kSub, sum, b.Op(K::kReduceMax, sum));
  for (int i = 0; i < 24; ++i) y = b.Op(K::kAdd, b.Op(K::kMul, y, sum), y);
  b.Store(b.Buffer(type, true), b.Cast(y, type));
  return b.kernel();
}

TEST(CudaPlan, ThreadsTakeLessOfARowWhereMuchOfItIsKept) {
  const auto threads = [](int loads, T type) { return PlanOf(HeavyRows(loads, type)).launch.phases[0].threads_x; };
  EXPECT_EQ(threads(2, T::BFloat16), 16);
  EXPECT_EQ(threads(3, T::BFloat16), 32);
  EXPECT_EQ(threads(2, T::Float), 32);
  EXPECT_EQ(threads(3, T::Float), 64);
}

// What lies 32 numbers to an index is added to where another index says: whatever the kernel's loops are called.
TEST(CudaPlan, NeighboursReadWhatLiesTogetherWhereOnlyIndicesSayWhatIsRead) {
  KernelBuilder b({32, 250000}, 1);
  const int width = b.Const(32, T::Long);
  const int from = b.Op(K::kMul, b.Load(b.Buffer(T::Long, {0, 1})), width), to = b.Op(K::kMul, b.Load(b.Buffer(T::Long, {0, 1})), width);
  const int x = b.Gather(b.Buffer(T::Float, {1, 0}), from);
  b.Scatter(K::kScatterAdd, b.Buffer(T::Float, {1, 0}, true), x, to, b.Op(K::kEq, width, width));
  const codegen::CudaPlan plan = PlanOf(b.kernel());
  EXPECT_EQ(plan.kernel.sizes, (c10::DimVector{250000, 32}));
  EXPECT_EQ(plan.lanes, 4);
  EXPECT_TRUE(absl::StrContains(codegen::EmitCuda(plan), "add_vector(b3"));
}

TEST(CudaPlan, WhatIsAddedUpElsewhereGoesLaneByLane) {
  KernelBuilder b({1 << 20, 32});
  const int to = b.Op(K::kMul, b.Load(b.Buffer(T::Long)), b.Const(7, T::Long));
  b.Scatter(K::kScatterAdd, b.Buffer(T::Float, {0, 0}, true), b.Load(b.Buffer(T::Float)), to, b.Op(K::kEq, to, to));
  const codegen::CudaPlan plan = PlanOf(b.kernel());
  EXPECT_EQ(plan.lanes, 1);
  EXPECT_TRUE(absl::StrContains(codegen::EmitCuda(plan), "add_at("));
}

// As many numbers as given, in rows of `width`, are added where indices say, to so many places.
codegen::CudaPlan ScatterTo(int64_t numbers, int64_t width, int64_t within, T type = T::Float) {
  KernelBuilder b({numbers / width, width});
  const int target = b.Target(type, {0, 1}, within);
  const int to = b.Load(b.Buffer(T::Long, {1, 0}));
  b.Scatter(K::kScatterAdd, target, b.Load(b.Buffer(type)), to, b.Op(K::kEq, to, to));
  return PlanOf(b.kernel());
}

TEST(CudaPlan, BlocksAddUpFewPlacesByThemselves) {
  const codegen::CudaPlan plan = ScatterTo(1 << 20, 1, 1000);
  EXPECT_TRUE(plan.HasOwnPlaces());
  EXPECT_EQ(plan.launch.Blocks(nullptr), codegen::kPlannedMultiprocessors * codegen::kAddingBlocks);
  const std::string text = codegen::EmitCuda(plan);
  EXPECT_TRUE(absl::StrContains(text, "__shared__ float o")) << text;
  EXPECT_TRUE(absl::StrContains(text, "add_alike(o")) << text;
  EXPECT_LT(ScatterTo(1 << 17, 1, 64).launch.Blocks(nullptr), codegen::kPlannedMultiprocessors * codegen::kAddingBlocks);
  EXPECT_TRUE(ScatterTo(1 << 22, 32, 993).HasOwnPlaces()) << "32 numbers from the last place on";
  EXPECT_EQ(ScatterTo(1 << 22, 32, 993).lanes, 1);
  EXPECT_FALSE(ScatterTo(1 << 20, 1, 0).HasOwnPlaces()) << "nobody knows how many";
  EXPECT_FALSE(ScatterTo(1 << 20, 1, 20000).HasOwnPlaces()) << "more than shared memory holds";
  EXPECT_TRUE(ScatterTo(1 << 20, 1, 10000).HasOwnPlaces());
  EXPECT_FALSE(ScatterTo(1 << 20, 1, 10000, T::Double).HasOwnPlaces());
  EXPECT_FALSE(ScatterTo(4096, 1, 1000).HasOwnPlaces()) << "few for each place";
  EXPECT_FALSE(ScatterTo(1 << 19, 32, 993).HasOwnPlaces()) << "rows that are added as vectors";
  EXPECT_FALSE(ScatterTo(1 << 20, 1, 100, T::Short).HasOwnPlaces());
}

TEST(CudaPlan, TilesOfHalvesAreWider) {
  const auto plan = [](T type, int64_t rows) {
    KernelBuilder b({rows, 1000});
    b.Store(b.Buffer(type, true), b.Load(b.Buffer(type, c10::DimVector{1, rows})));
    return PlanOf(b.kernel());
  };
  EXPECT_EQ(plan(T::BFloat16, 500).launch.phases[0].threads_x, 64);
  EXPECT_EQ(plan(T::BFloat16, 40).launch.phases[0].threads_x, 32) << "few rows";
  EXPECT_EQ(plan(T::Float, 500).launch.phases[0].threads_x, 32);
  EXPECT_TRUE(absl::StrContains(codegen::EmitCuda(plan(T::BFloat16, 500)), "[64][65];"));
}

TEST(CudaPlan, NearLoadsTakeAsManyLanesAsShareWhatIsRead) {
  const auto lanes = [](T type, int64_t stride) {
    KernelBuilder b({1 << 24});
    b.Store(b.Buffer(type, true), b.Load(b.Buffer(type, c10::DimVector{stride})));
    return PlanOf(b.kernel()).lanes;
  };
  EXPECT_EQ(lanes(T::BFloat16, 2), 4);
  EXPECT_EQ(lanes(T::Byte, 3), 4);
  EXPECT_EQ(lanes(T::Float, 2), 2);
  EXPECT_EQ(lanes(T::Float, 5), 1);
}

TEST(CudaText, RowsThatAreShiftedAreReadInWholeVectors) {
  KernelBuilder b({30001, 1023});
  b.Store(b.Buffer(T::Float, true), b.Op(K::kNeg, b.Load(b.Buffer(T::Float, {1025, 1}))));
  const codegen::CudaPlan plan = PlanOf(b.kernel());
  const std::string text = codegen::EmitCuda(plan);
  EXPECT_GE(plan.shift_buffer, 0);
  EXPECT_TRUE(absl::StrContains(text, ", in);")) << text;
}

TEST(CudaPlan, RowsWithGapsAreNotShifted) {
  KernelBuilder b({30001, 1023});
  b.Store(b.Buffer(T::BFloat16, true), b.Load(b.Buffer(T::BFloat16, {2046, 2})));
  EXPECT_EQ(PlanOf(b.kernel()).shift_buffer, -1);
}

TEST(CudaText, TheLastTurnIsTakenByFewWarps) {
  KernelBuilder b({30001, 1023}, 1);
  const int x = b.Load(b.Buffer(T::Float));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  const std::string text = codegen::EmitCuda(PlanOf(b.kernel()));
  EXPECT_TRUE(absl::StrContains(text, ") continue;")) << "the last turn has one piece\n" << text;
  EXPECT_EQ(text.find(") continue;"), text.rfind(") continue;")) << "loads of the first pass are under way together\n" << text;
}

// Softmax of what several operands are combined to.
KernelIR SoftmaxOfGates(int64_t rows, int64_t columns) {
  KernelBuilder b({rows, columns}, 1);
  int x = b.Load(b.Buffer(T::Float));
  for (int i = 0; i < 3; ++i) x = b.Op(K::kAdd, b.Op(K::kMul, x, b.Load(b.Buffer(T::Float, {0, 1}))), b.Load(b.Buffer(T::Float)));
  const int e = b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kDiv, e, b.Op(K::kReduceSum, e)));
  return b.kernel();
}

TEST(CudaPlan, RowsHaveAsManyWarpsAsLeaveNoneIdle) {
  const auto threads = [](int64_t columns) { return PlanOf(SoftmaxOfGates(8192, columns)).launch.phases[0].threads_x; };
  for (const int64_t columns : {768, 1152, 1536, 3072}) {
    const codegen::CudaPlan plan = PlanOf(SoftmaxOfGates(8192, columns));
    EXPECT_EQ(plan.launch.phases[0].threads_x * plan.iterations * plan.lanes, columns);
  }
  EXPECT_EQ(threads(1000) & (threads(1000) - 1), 0) << "where some would be idle anyway, a power of two";
}

TEST(CudaText, RowsOfThreeWarpsArePutTogetherAsFour) {
  codegen::CudaPlan plan = PlanOf(SoftmaxOfGates(8192, 1152));
  ASSERT_EQ(plan.launch.phases[0].threads_x % 96, 0);
  const std::string text = codegen::EmitCuda(plan);
  EXPECT_TRUE(absl::StrContains(text, "[threadIdx.x % ")) << text;
  EXPECT_TRUE(absl::StrContains(text, " < 3 ? ")) << text;
}

// Seven operands of each point make one number, which later passes need.
TEST(CudaPlan, ASumIsKeptInsteadOfWhatItIsMadeOf) {
  const codegen::CudaPlan plan = PlanOf(SoftmaxOfGates(8192, 1024));
  ASSERT_GT(plan.iterations, 0);
  int loads = 0, sums = 0;
  for (size_t i = 0; i < plan.kernel.insts.size(); ++i) {
    loads += plan.cached[i] && plan.kernel.insts[i].op == K::kLoad ? 1 : 0;
    sums += plan.cached[i] && plan.kernel.insts[i].op == K::kAdd ? 1 : 0;
  }
  EXPECT_EQ(loads, 0);
  EXPECT_EQ(sums, 1);
}

TEST(CudaPlan, MuchAtFewPointsOfColumnsHasAThreadEach) {
  const auto kernel = [](int64_t columns, int64_t rows, int steps) {
    KernelBuilder b({columns, rows}, 1);
    int x = b.Load(b.Buffer(T::Float, {1, columns}));
    for (int i = 0; i < steps; ++i) x = b.Op(K::kTanh, b.Op(K::kMul, x, x));
    b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceSum, x));
    return b.kernel();
  };
  const codegen::CudaPlan much = PlanOf(kernel(512, 64, 20));
  EXPECT_EQ(much.lanes, 1);
  EXPECT_EQ(much.launch.phases[0].threads_y, 64);
  EXPECT_EQ(much.launch.Blocks(nullptr), 64);
  EXPECT_GT(PlanOf(kernel(512, 64, 1)).lanes, 1) << "little";
  EXPECT_GT(PlanOf(kernel(8192, 64, 20)).lanes, 1) << "at many";
}

// A BFloat16 that is computed with again is the upper half of a register.
TEST(CudaText, HalvesAreRoundedAsFloats) {
  KernelBuilder b({1 << 20});
  int x = b.Cast(b.Load(b.Buffer(T::BFloat16)), T::Float);
  for (int i = 0; i < 3; ++i) x = b.Cast(b.Cast(b.Op(K::kMul, x, x), T::BFloat16), T::Float);
  b.Store(b.Buffer(T::BFloat16, true), b.Cast(x, T::BFloat16));
  const std::string text = codegen::EmitCuda(PlanOf(b.kernel()));
  size_t rounded = 0;
  for (size_t at = text.find("= rb("); at != std::string::npos; at = text.find("= rb(", at + 1)) ++rounded;
  EXPECT_GE(rounded, 2u) << text;
  EXPECT_TRUE(absl::StrContains(text, "cvt.rn.bf16x2.f32")) << text;
}

}  // namespace
}  // namespace lazuli::testing
