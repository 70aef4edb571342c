// Units of a kernel: where they begin in a buffer, and that running them in pieces is running the kernel.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <numeric>

#include "codegen/kernel_compiler.h"
#include "runtime/cpu_features.h"
#include "tests/support/kernel_builder.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

std::shared_ptr<const codegen::CompiledKernel> CompileIt(const KernelBuilder& builder) {
  auto kernel = codegen::CompileKernel(builder.kernel(), {runtime::IsaName(runtime::WidestIsa()), "eager"}, nullptr);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return *std::move(kernel);
}

// exp(x + shift), where shift is one number for each column, or the sum over the row.
KernelBuilder Rows(int64_t rows, int64_t cols, bool reduce) {
  KernelBuilder b({rows, cols}, reduce ? 1 : 0);
  const int x = b.Load(b.Buffer(T::Float));
  const int shift = b.Load(b.Buffer(T::Float, {0, 1}));
  const int sum = b.Op(K::kAdd, x, reduce ? b.Op(K::kReduceMax, x) : shift);
  b.Store(b.Buffer(T::Float, true), b.Op(K::kExp, reduce ? b.Op(K::kAdd, sum, shift) : sum));
  return b;
}

class KernelUnits : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, bool>> {};

TEST_P(KernelUnits, PiecesMakeTheWhole) {
  const auto [rows, cols, reduce] = GetParam();
  const auto kernel = CompileIt(Rows(rows, cols, reduce));
  const at::Tensor x = at::randn({rows, cols}), shift = at::randn({cols}), whole = at::zeros({rows, cols}),
                   pieces = at::zeros({rows, cols});
  void* buffers[] = {x.data_ptr(), shift.data_ptr(), whole.data_ptr()};
  kernel->Run(buffers, nullptr);
  ASSERT_TRUE(kernel->Walks(0));
  ASSERT_TRUE(kernel->Walks(2));
  EXPECT_FALSE(kernel->Walks(1));
  EXPECT_FALSE(kernel->Walks(3));
  const codegen::UnitWalk walk = kernel->WalkOf(2, nullptr);
  EXPECT_EQ(walk.elements, rows * cols);
  const int64_t granule = walk.RowsOfUnits(cols);
  ASSERT_GT(granule, 0);
  buffers[2] = pieces.data_ptr();
  for (int64_t begin = 0; begin < rows; begin += granule) {
    const int64_t end = std::min(rows, begin + granule);
    kernel->RunUnits(buffers, nullptr, nullptr, walk.UnitAt(begin * cols), walk.UnitAt(end * cols));
    EXPECT_TRUE(at::equal(pieces.slice(0, begin, end), whole.slice(0, begin, end))) << begin;
    EXPECT_FALSE(pieces.slice(0, end).any().item<bool>()) << begin;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelUnits,
                         ::testing::Combine(::testing::Values(2, 37, 300), ::testing::Values(7, 64, 1000, 9000), ::testing::Bool()));

TEST(KernelWalks, OnlyWhatUnitsDivideInOrder) {
  KernelBuilder turned({300, 500});
  const int across = turned.Buffer(T::Float, {1, 300});
  turned.Store(turned.Buffer(T::Float, true), turned.Load(across));
  EXPECT_FALSE(CompileIt(turned)->Walks(1));
  KernelBuilder columns({300, 500}, 1);  // Reduced over what the units go along.
  const int down = columns.Buffer(T::Float, {1, 300});
  columns.Store(columns.KeptBuffer(T::Float, true), columns.Op(K::kReduceSum, columns.Load(down)));
  EXPECT_FALSE(CompileIt(columns)->Walks(0) && CompileIt(columns)->WalkOf(0, nullptr).RowsOfUnits(500) > 0);
  KernelBuilder all({1000000}, 1);
  const int row = all.Buffer(T::Float);
  all.Store(all.KeptBuffer(T::Float, true), all.Op(K::kReduceSum, all.Load(row)));
  EXPECT_FALSE(CompileIt(all)->Walks(0));
  KernelBuilder gaps({300, 500});
  const int from = gaps.Buffer(T::Float, {512, 1});
  gaps.Store(gaps.Buffer(T::Float, true), gaps.Load(from));
  EXPECT_FALSE(CompileIt(gaps)->Walks(0));
}

TEST(UnitWalk, RowsThatUnitsAreWholeIn) {
  const codegen::UnitWalk lines{/*outer=*/4096, /*chunk=*/4096, /*chunks=*/1, /*elements=*/40960};
  EXPECT_EQ(lines.RowsOfUnits(4096), 1);
  EXPECT_EQ(lines.RowsOfUnits(8192), 1);
  EXPECT_EQ(lines.RowsOfUnits(1024), 4);
  EXPECT_EQ(lines.RowsOfUnits(1000), 0);
  const codegen::UnitWalk chunks{/*outer=*/40000, /*chunk=*/4096, /*chunks=*/10, /*elements=*/40000};
  EXPECT_EQ(chunks.RowsOfUnits(1000), 512);  // lcm(4096, 1000) / 1000.
  EXPECT_EQ(chunks.UnitAt(8192), 2);
  EXPECT_EQ(chunks.UnitAt(40000), 10);
}

}  // namespace
}  // namespace lazuli::testing
