// Kernels over more memory than caches hold: what they ask for ahead of time, and what they store past the caches.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "codegen/emit_llvm_plan.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"
#include "tests/support/log_file.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

constexpr int64_t kLarge = codegen::kStreamBytes / 4;

struct Uses {
  int streams, fences, prefetches;
  bool operator==(const Uses& o) const { return streams == o.streams && fences == o.fences && prefetches == o.prefetches; }
};

std::ostream& operator<<(std::ostream& out, const Uses& uses) {
  return out << uses.streams << " streaming stores, " << uses.fences << " fences, " << uses.prefetches << " prefetches";
}

Uses UsesOf(const codegen::KernelIR& kernel) {
  const auto text = codegen::KernelSource(kernel, {"sse4", "eager"});
  EXPECT_TRUE(text.ok()) << text.status();
  const std::string ir = text->substr(0, text->find("\n}\n"));
  return {CountOf(ir, "!nontemporal"), CountOf(ir, "call void @llvm.x86.sse.sfence"), CountOf(ir, "call void @llvm.prefetch") > 0 ? 1 : 0};
}

codegen::KernelIR Double(c10::DimVector sizes, bool in_place) {
  KernelBuilder b(std::move(sizes));
  const int from = b.Buffer(T::Float, in_place);
  const int x = b.Load(from);
  b.Store(in_place ? from : b.Buffer(T::Float, true), b.Op(K::kAdd, x, x));
  return b.kernel();
}

TEST(KernelStream, LargeResultsGoPastTheCaches) {
  EXPECT_EQ(UsesOf(Double({kLarge}, /*in_place=*/false)), (Uses{4, 1, 1}));
  // Rows of whole vectors, too, but none that begin in the middle of a vector.
  EXPECT_EQ(UsesOf(Double({4, kLarge / 4}, false)), (Uses{4, 1, 1}));
}

TEST(KernelStream, OthersDoNot) {
  EXPECT_EQ(UsesOf(Double({kLarge - 1}, /*in_place=*/false)), (Uses{0, 0, 1}));
  EXPECT_EQ(UsesOf(Double({kLarge}, /*in_place=*/true)), (Uses{0, 0, 1}));
  EXPECT_EQ(UsesOf(Double({1024}, /*in_place=*/false)), (Uses{0, 0, 0}));
  KernelBuilder odd_rows({2, kLarge});
  const int x = odd_rows.Load(odd_rows.Buffer(T::Float, {kLarge, 1}));
  odd_rows.Store(odd_rows.Buffer(T::Float, {kLarge + 1, 1}, true), x);
  EXPECT_EQ(UsesOf(odd_rows.kernel()), (Uses{0, 0, 1}));
}

codegen::KernelIR SumOfColumns(int64_t rows, int64_t columns) {
  KernelBuilder b({columns, rows}, 1);
  const int x = b.Load(b.Buffer(T::Float, {1, columns}));
  b.Store(b.Buffer(T::Float, {1, 0}, true), b.Op(K::kReduceSum, x));
  return b.kernel();
}

TEST(KernelStream, WalksDownColumnsAskForRowsAhead) {
  EXPECT_EQ(UsesOf(SumOfColumns(4096, 1024)), (Uses{0, 0, 1}));
  EXPECT_EQ(UsesOf(SumOfColumns(16, 1024)), (Uses{0, 0, 0}));
}

codegen::KernelIR LogSoftmax(int64_t rows, int64_t columns) {
  KernelBuilder b({rows, columns}, 1);
  const int x = b.Load(b.Buffer(T::Float));
  const int shifted = b.Op(K::kSub, x, b.Op(K::kReduceMax, x));
  const int sum = b.Op(K::kReduceSum, b.Op(K::kExp, shifted));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kSub, shifted, b.Op(K::kLog, sum)));
  return b.kernel();
}

// Reading a row and computing with it take turns, so that computing has to bring the next one.
TEST(KernelStream, RowsAskForTheNextOneWhileTheyCompute) {
  const auto pass = [](const codegen::KernelIR& kernel) { return codegen::PlanLoops(kernel, {64, true, true}).next_row_pass[0]; };
  EXPECT_EQ(pass(LogSoftmax(4096, 1024)), 1);
  EXPECT_EQ(pass(LogSoftmax(4096, 128)), -1);      // What lies 2 KiB ahead is some rows ahead.
  EXPECT_EQ(pass(LogSoftmax(4096, 1 << 16)), -1);  // No cache holds the next row, too.
  EXPECT_EQ(pass(LogSoftmax(4, 1024)), -1);        // It is in a cache.
  EXPECT_EQ(pass(Double({kLarge}, false)), -1);
  KernelBuilder of_sum({5000, 1024}, 1);
  const int sum = of_sum.Op(K::kAdd, of_sum.Load(of_sum.Buffer(T::Float)), of_sum.Load(of_sum.Buffer(T::Float)));
  of_sum.Store(of_sum.Buffer(T::Float, true), of_sum.Op(K::kSub, sum, of_sum.Op(K::kReduceMax, sum)));
  EXPECT_EQ(pass(of_sum.kernel()), -1);  // Two rows at a time are too much.
  const auto text = codegen::KernelSource(LogSoftmax(5000, 1024), {"sse4", "eager"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("i64 4096"), std::string::npos) << "no offset of a row";
}

// Units that take pieces of the same rows turn back after few of them.
TEST(KernelStream, WalksDownColumnsAreShort) {
  const auto splits = [](int64_t rows, int64_t columns) {
    return codegen::PlanLoops(SumOfColumns(rows, columns), {64, true, true}).num_splits;
  };
  EXPECT_EQ(splits(16384, 1024), 64);
  EXPECT_EQ(splits(8192, 512), 32);
  EXPECT_EQ(splits(1 << 20, 512), 64);
  EXPECT_EQ(splits(16384, 8192), 1);  // There are units enough for many threads.
  EXPECT_EQ(splits(256, 1024), splits(255, 1024));
}

// Each result, and what lies around it, wherever memory begins and ends.
TEST(KernelStream, StoresWhatItShould) {
  constexpr int64_t kPoints = kLarge + 37, kAround = 64;
  const at::Tensor in = at::arange(kPoints + kAround, at::kInt).to(at::kFloat);
  for (const std::string& isa : AllIsas()) {
    const auto kernel = codegen::CompileKernel(Double({kPoints}, /*in_place=*/false), {isa, "eager"}, nullptr);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    for (const int64_t offset : {0, 3}) {
      at::Tensor out = at::full({kPoints + kAround}, -1.0);
      void* buffers[] = {in.data_ptr<float>() + offset, out.data_ptr<float>() + offset};
      (*kernel)->Run(buffers, nullptr);
      EXPECT_TRUE(out.narrow(0, offset, kPoints).equal(in.narrow(0, offset, kPoints) * 2)) << isa << " " << offset;
      EXPECT_EQ(out.eq(-1).sum().item<int64_t>(), kAround) << isa << " " << offset;
    }
  }
}

// Sizes that are known only then, some of which leave rows unaligned, and a reduction before the store.
TEST(KernelStream, StoresRowsOfAnySize) {
  constexpr int64_t kRows = 96, kRow = kLarge / 64;
  const auto symbols = runtime::SymbolTable::Make({kRows, kRow}, {1});
  KernelBuilder b({symbols.prime(0), symbols.prime(1)}, /*num_reduced=*/1);
  const int x = b.Load(b.Buffer(T::Float));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  codegen::KernelIR kernel = b.kernel();
  kernel.symbols = symbols;
  EXPECT_GT(UsesOf(kernel).streams, 0u);
  for (const std::string& isa : AllIsas()) {
    const auto compiled = codegen::CompileKernel(kernel, {isa, "eager"}, nullptr);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    for (const int64_t row : {kRow, kRow + 1}) {
      const at::Tensor in = at::arange(kRows * row, at::kInt).remainder(1009).to(at::kFloat).view({kRows, row}),
                       out = at::empty({kRows, row});
      void* buffers[] = {in.data_ptr(), out.data_ptr()};
      const int64_t values[] = {kRows, row};
      (*compiled)->Run(buffers, nullptr, values);
      EXPECT_TRUE(out.equal(in - in.amax(1, /*keepdim=*/true))) << isa << " " << row;
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
