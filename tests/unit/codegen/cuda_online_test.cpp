// Sums of exponentials that come with the maximum that they are taken below: in which kernels, and what their text does. Needs no GPU.
#include "codegen/cuda/online_sums.h"

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
using codegen::CudaPlan;
using codegen::KernelIR;

// Softmax along rows, of `type`; with a second sum beside it, of the exponentials' squares, where `squares`.
KernelIR Softmax(const c10::DimVector& strides, int64_t rows, int64_t columns, T type = T::Float, bool squares = false) {
  KernelBuilder b({rows, columns}, 1);
  const int loaded = b.Load(b.Buffer(type, strides)), x = type == T::Double ? loaded : b.Cast(loaded, T::Float);
  const int e = b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  int sum = b.Op(K::kReduceSum, e);
  if (squares) sum = b.Op(K::kAdd, sum, b.Op(K::kReduceSum, b.Op(K::kMul, e, e)));
  const int result = b.Op(K::kDiv, e, sum);
  b.Store(b.Buffer(type, strides, true), type == T::Double ? result : b.Cast(result, type));
  return b.kernel();
}
KernelIR Rows(int64_t rows, int64_t columns, T type = T::Float, bool squares = false) {
  return Softmax({columns, 1}, rows, columns, type, squares);
}

CudaPlan PlanOf(const KernelIR& kernel, const char* schedule = "default") {
  return codegen::PlanCuda(kernel, /*wide=*/false, /*batches=*/false, *codegen::ParseCudaSchedule(schedule));
}

int CountOnline(const CudaPlan& plan) {
  return static_cast<int>(plan.online.size()) - static_cast<int>(std::count(plan.online.begin(), plan.online.end(), -1));
}

TEST(CudaOnline, LongRowsAreReadOnceForBoth) {
  for (const T type : {T::Float, T::Double, T::BFloat16, T::Half}) {
    const CudaPlan plan = PlanOf(Rows(512, 1 << 17, type));
    ASSERT_EQ(CountOnline(plan), 2) << c10::toString(type);
    for (size_t i = 0; i < plan.online.size(); ++i) {
      if (plan.online[i] < 0) continue;
      EXPECT_EQ(plan.pass[i], 0);
      EXPECT_EQ(plan.online[static_cast<size_t>(plan.online[i])], static_cast<int>(i));
    }
    const std::string text = codegen::EmitCuda(plan);
    EXPECT_TRUE(absl::StrContains(text, "online(q")) << text;
    EXPECT_TRUE(absl::StrContains(text, " * down(a")) << text;
  }
}

TEST(CudaOnline, WhatIsInSharedMemoryIsReadFromThereOnce) {
  const CudaPlan plan = PlanOf(Rows(512, 50304, T::BFloat16));
  EXPECT_GT(plan.launch.row_bytes, 0);
  EXPECT_EQ(CountOnline(plan), 2);
}

TEST(CudaOnline, RowsInRegistersAreNot) {
  EXPECT_EQ(CountOnline(PlanOf(Rows(4096, 4096))), 0);
  EXPECT_EQ(CountOnline(PlanOf(Rows(4096, 4096), "keep=-1")), 0) << "no bit of a result hangs on what is kept";
}

TEST(CudaOnline, WhatIsSplitOrInColumnsIsNot) {
  const CudaPlan split = PlanOf(Rows(2, 1 << 22));
  EXPECT_TRUE(split.launch.split);
  EXPECT_EQ(CountOnline(split), 0);
  const CudaPlan columns = PlanOf(Softmax({1, 4096}, 4096, 5000));
  EXPECT_FALSE(columns.rows);
  EXPECT_EQ(CountOnline(columns), 0);
}

TEST(CudaOnline, OnlyWhereThatSparesAPass) { EXPECT_EQ(CountOnline(PlanOf(Rows(512, 1 << 17, T::Float, /*squares=*/true))), 0); }

TEST(CudaOnline, OnlyBelowTheMaximumOfTheSameNumbers) {
  KernelBuilder b({512, 1 << 17}, 1);
  const int x = b.Load(b.Buffer(T::Float)), y = b.Op(K::kMul, x, b.Const(2));
  const int sum = b.Op(K::kReduceSum, b.Op(K::kExp, b.Op(K::kSub, y, b.Op(K::kReduceMax, x))));
  b.Store(b.KeptBuffer(T::Float, true), sum);
  EXPECT_EQ(CountOnline(PlanOf(b.kernel())), 0);
}

TEST(CudaOnline, Compiles) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const T type : {T::Float, T::Double, T::BFloat16}) {
    for (const int64_t columns : {50304, 1 << 17, (1 << 17) + 1}) {
      for (const char* const precision : {"eager", "strict", "fast"}) {
        const auto made = codegen::CompileKernel(Rows(512, columns, type), GpuTarget(precision), nullptr);
        EXPECT_TRUE(made.ok()) << made.status();
      }
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
