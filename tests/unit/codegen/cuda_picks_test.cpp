// Elements of long rows that are picked by their number: what vectors that hold none of them do not compute. Needs no GPU.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "codegen/cuda/emit_cuda.h"
#include "tests/support/gpu_target.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/nvrtc.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

// The gradient of a cross entropy but for a factor: a row's picked element, and where it is, in two passes. `unpicked` is what others add.
codegen::KernelIR Picks(int64_t columns, K compare = K::kEq, double unpicked = 0) {
  KernelBuilder b({512, columns}, 1);
  const int x = b.Cast(b.Load(b.Buffer(T::BFloat16, {columns, 1})), T::Float);
  const int number = b.Load(b.Buffer(T::Long, {1, 0}));
  const int is_picked = b.Op(compare, b.Index(1), number);
  const int sum = b.Op(K::kReduceSum, b.Op(K::kSelect, is_picked, x, b.Const(unpicked, T::Float)));
  const int below = b.Op(K::kSub, x, b.Op(K::kReduceMax, x));
  const int other = b.Op(K::kSelect, is_picked, b.Op(K::kMul, below, sum), below);
  b.Store(b.Buffer(T::BFloat16, {columns, 1}, true), b.Cast(other, T::BFloat16));
  return b.kernel();
}

TEST(CudaPicks, VectorsOfLongRowsThatHoldNoneSumNothing) {
  const std::string text = GpuSource(Picks(50304));
  EXPECT_TRUE(absl::StrContains(text, "if (holds<8>(t")) << text;
  EXPECT_TRUE(absl::StrContains(text, "if (near && v < n) a")) << text;
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const int64_t columns : {50304, 50257, 1 << 18}) {
    EXPECT_EQ(Compiles(Picks(columns)), "") << columns;
    EXPECT_EQ(Compiles(Picks(columns), /*wide=*/true), "") << columns;
  }
}

TEST(CudaPicks, WhatOthersChangeIsAddedUp) {
  for (const auto& kernel : {Picks(50304, K::kNe), Picks(50304, K::kEq, 1)}) {
    const std::string text = GpuSource(kernel);
    EXPECT_TRUE(absl::StrContains(text, "if (holds<8>(t")) << text;
    EXPECT_FALSE(absl::StrContains(text, "if (near && v < n) a")) << text;
    LAZULI_SKIP_WITHOUT_NVRTC();
    EXPECT_EQ(Compiles(kernel), "");
  }
}

TEST(CudaPicks, RowsInRegistersAndColumnsCompareEach) {
  EXPECT_FALSE(absl::StrContains(GpuSource(Picks(1024)), "holds<"));
  KernelBuilder b({512, 50304}, 1);  // Numbers of columns are no coordinates along vectors.
  const int x = b.Load(b.Buffer(T::Float, {50304, 1}));
  const int row = b.Op(K::kEq, b.Index(0), b.Load(b.Buffer(T::Long, {0, 0})));
  b.Store(b.Buffer(T::Float, {1, 0}, true), b.Op(K::kReduceSum, b.Op(K::kSelect, row, x, b.Const(0, T::Float))));
  EXPECT_FALSE(absl::StrContains(GpuSource(b.kernel()), "holds<"));
}

}  // namespace
}  // namespace lazuli::testing
