// Kernels of a GPU that serve all sizes, and run many in one launch. Needs no GPU; without NVRTC what compiles is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/compile_kernels.h"
#include "codegen/cuda/batch_table.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "codegen/cuda/open_size.h"
#include "codegen/ir/trace_text.h"
#include "codegen/passes/plan.h"
#include "codegen/pipeline.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/nvrtc.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::AddKernel;
using lazuli::testing::KernelBuilder;
using runtime::BoundKernel;
using runtime::KernelLaunch;
using T = c10::ScalarType;
using K = KOp;

constexpr const char* kArch = "sm_90";

// w += x0 * g, of one dense dimension.
KernelIR Update(const c10::DimVector& sizes, T type = T::Float) {
  KernelBuilder b(sizes);
  const int w = b.Buffer(type, true);
  const int step = b.Op(K::kMul, b.Cast(b.Load(b.Buffer(type)), T::Float), b.Scalar(T::Float));
  b.Store(w, b.Cast(b.Op(K::kAdd, b.Cast(b.Load(w), T::Float), step), type));
  return b.kernel();
}

// The root of the sum of squares of all elements.
KernelIR SumOfSquares(int64_t size, T type = T::Float) {
  KernelBuilder b({size}, 1);
  const int x = b.Cast(b.Load(b.Buffer(type)), T::Float);
  b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kSqrt, b.Op(K::kReduceSum, b.Op(K::kMul, x, x))));
  return b.kernel();
}

// Whether its size becomes a symbol, which then stands for the size.
bool Opens(KernelIR kernel, int64_t size) {
  std::vector<int64_t> symbols;
  if (!OpenSize(&kernel, &symbols)) return false;
  EXPECT_EQ(symbols, std::vector<int64_t>{size});
  EXPECT_TRUE(VerifyKernel(kernel).ok());
  return kernel.symbols.IsSymbolic(kernel.sizes[0]);
}

KernelIR Open(KernelIR kernel) {
  std::vector<int64_t> symbols;
  EXPECT_TRUE(OpenSize(&kernel, &symbols));
  return kernel;
}

TEST(CudaOpenSize, KernelsOverDenseMemoryAreOneForAllSizes) {
  const std::string text = PrintKernel(Open(Update({2})));
  for (const int64_t size : {3, 768, 521, 768 * 3072, 50257 * 768}) EXPECT_EQ(PrintKernel(Open(Update({size}))), text) << size;
  EXPECT_EQ(PrintKernel(Open(Update({50257, 768}))), text) << "loops that are one";
  EXPECT_NE(PrintKernel(Open(Update({768}, T::BFloat16))), text);
}

TEST(CudaOpenSize, SymbolsJoin) {
  KernelIR kernel = Update({100});
  kernel.symbols = runtime::SymbolTable::Make({128}, {});
  kernel.sizes[0] = kernel.symbols.prime(0);
  std::vector<int64_t> symbols = {100};
  ASSERT_TRUE(OpenSize(&kernel, &symbols));
  EXPECT_EQ(symbols, std::vector<int64_t>{100});
  EXPECT_EQ(PrintKernel(kernel), PrintKernel(Open(Update({100}))));
}

TEST(CudaOpenSize, OnlyWhereNoPlaceDependsOnTheSize) {
  EXPECT_TRUE(Opens(Update({100}), 100));
  EXPECT_TRUE(Opens(AddKernel({100}, {0}, {1}, {1}, T::Float), 100)) << "a number and dense memory";
  EXPECT_FALSE(Opens(Update({1}), 1));
  EXPECT_FALSE(Opens(Update({(int64_t{1} << 30) + 1}), 0)) << "counted with 64 bits from the start";
  EXPECT_FALSE(Opens(AddKernel({100}, {1}, {2}, {1}, T::Float), 100));
  EXPECT_FALSE(Opens(AddKernel({10, 10}, {10, 1}, {0, 1}, {10, 1}, T::Float), 100));
  KernelBuilder gather({100});
  gather.Store(gather.Buffer(T::Float, true),
               gather.Gather(gather.Buffer(T::Float, c10::DimVector{0}), gather.Load(gather.Buffer(T::Long))));
  EXPECT_FALSE(Opens(gather.kernel(), 100));
  EXPECT_TRUE(Opens(SumOfSquares(100), 100));
  KernelBuilder twice({100}, 1);
  const int x = twice.Load(twice.Buffer(T::Float)), most = twice.Op(K::kReduceMax, x);
  twice.Store(twice.KeptBuffer(T::Float, true), twice.Op(K::kReduceSum, twice.Op(K::kSub, x, most)));
  EXPECT_FALSE(Opens(twice.kernel(), 100)) << "two passes, which small ones do without reading twice";
}

TEST(CudaOpenSize, SumsOnlyWhereSeveralBecomeOne) {
  KernelIR a = SumOfSquares(100), b = SumOfSquares(3000), update = Update({100});
  std::vector<int64_t> of_a, of_b, of_update;
  OpenSizes({{&a, &of_a}, {&update, &of_update}});
  EXPECT_TRUE(a.symbols.empty());
  EXPECT_FALSE(update.symbols.empty());
  EXPECT_EQ(PlanCuda(a, false).launch.phases.size(), 1u);
  OpenSizes({{&a, &of_a}, {&b, &of_b}});
  EXPECT_EQ(PrintKernel(a), PrintKernel(b));
  EXPECT_EQ(of_a, std::vector<int64_t>{100});
  EXPECT_EQ(of_b, std::vector<int64_t>{3000});
}

TEST(CudaOpenSize, StillMovesSixteenBytesAtATime) {
  EXPECT_EQ(PlanCuda(Open(Update({2})), false).lanes, 4);
  EXPECT_EQ(PlanCuda(Open(Update({2}, T::BFloat16)), false).lanes, 8);
}

// Of every dtype; with symbols and scalars.
TEST(CudaBatchText, CompilesWithTheTableThatIsFilled) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const T type : {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool, T::BFloat16, T::Half}) {
    KernelBuilder b({100});
    const int x = b.Load(b.Buffer(type));
    for (int k = 0; k < 3; ++k) b.Store(b.Buffer(type, true), b.Cast(b.Op(K::kEq, b.Cast(x, T::Double), b.Scalar(T::Double)), type));
    const CudaPlan plan = PlanCuda(Open(b.kernel()), false, true);
    BatchTable table(plan.launch, 4, 3, 1);
    EXPECT_LE(table.bytes(), static_cast<size_t>(BatchTable::kBytes));
    EXPECT_EQ(plan.launch.batch_entries, 4088 / (8 * 8 + 4));
    // Both sides agree where everything is.
    const std::string layout =
        absl::StrCat("\nstatic_assert(sizeof(Table) == ", table.bytes(), ", \"\");\nstatic_assert(sizeof(Entry) == 64, \"\");\n",
                     "static_assert(sizeof(Table::entries) == ", 64 * plan.launch.batch_entries, ", \"\");\n",
                     "static_assert(sizeof(Table::ends) == ", 4 * plan.launch.batch_entries, ", \"\");\n");
    for (const char* arch : {"sm_75", "sm_90"}) {
      const auto code = CompileCuda(EmitCuda(plan) + layout, arch, false);
      ASSERT_TRUE(code.ok()) << code.status() << EmitCuda(plan);
      EXPECT_TRUE(absl::StrContains(*code, plan.launch.batch[0].function));
    }
  }
}

// Both phases of sums, with a place in the scratch memory of all and so many parts each.
TEST(CudaBatchText, CompilesForSums) {
  const CudaPlan plan = PlanCuda(Open(SumOfSquares(100)), false, true);
  ASSERT_EQ(plan.launch.batch.size(), 2u);
  EXPECT_EQ(plan.launch.batch_entries, 4088 / (8 * 5 + 4));
  LAZULI_SKIP_WITHOUT_NVRTC();
  BatchTable table(plan.launch, 2, 0, 1);
  const std::string layout =
      absl::StrCat("\nstatic_assert(sizeof(Table) == ", table.bytes(), ", \"\");\nstatic_assert(sizeof(Entry) == 40, \"\");\n");
  for (const T type : {T::Float, T::BFloat16, T::Half}) {
    const CudaPlan of_type = PlanCuda(Open(SumOfSquares(100, type)), false, true);
    const auto code = CompileCuda(EmitCuda(of_type) + layout, kArch, false);
    ASSERT_TRUE(code.ok()) << code.status() << EmitCuda(of_type);
    for (const CudaLaunch::Phase& phase : of_type.launch.batch) EXPECT_TRUE(absl::StrContains(*code, phase.function));
  }
}

TEST(CudaBatchText, OnlyOfKernelsThatServeAllSizesOrOneElement) {
  EXPECT_TRUE(absl::StrContains(EmitCuda(PlanCuda(Open(Update({100})), false, true)), "_batch("));
  EXPECT_FALSE(absl::StrContains(EmitCuda(PlanCuda(Open(Update({100})), true, true)), "_batch(")) << "wide ones run alone";
  EXPECT_FALSE(absl::StrContains(EmitCuda(PlanCuda(Open(Update({100})), false)), "_batch(")) << "nobody asked for it";
  EXPECT_FALSE(absl::StrContains(EmitCuda(PlanCuda(Update({100}), false, true)), "_batch("));
  EXPECT_TRUE(absl::StrContains(EmitCuda(PlanCuda(Update({1}), false, true)), "_batch(")) << "each optimizer's count of steps";
}

TEST(CudaBatchText, TooManyArgumentsRunAlone) {
  KernelBuilder b({100});
  int sum = b.Load(b.Buffer(T::Float));
  for (int i = 0; i < 300; ++i) sum = b.Op(K::kAdd, sum, b.Scalar(T::Float));
  b.Store(b.Buffer(T::Float, true), sum);
  EXPECT_EQ(PlanCuda(Open(b.kernel()), false, true).launch.batch_entries, 0);
}

TEST(CudaBatchTable, HoldsArgumentsEndsAndCount) {
  const CudaPlan plan = PlanCuda(Open(Update({100})), false, true);
  const int entries = plan.launch.batch_entries;
  ASSERT_EQ(entries, 4088 / 36);
  BatchTable table(plan.launch, 2, 1, 1);
  float memory[4] = {};
  std::vector<BoundKernel> batch;
  void* buffers[] = {memory, memory + 1, memory + 2};
  const uint64_t scalars[] = {7, 8};
  const int64_t sizes[] = {1, 1025};
  ASSERT_TRUE(table.Fits(1));
  table.Add({nullptr, buffers, 2, scalars, sizes}, plan.launch.Blocks(sizes));
  table.Add({nullptr, buffers + 1, 2, scalars + 1, sizes + 1}, plan.launch.Blocks(sizes + 1));
  EXPECT_EQ(table.count(), 2);
  EXPECT_EQ(table.blocks(), 1 + 2);
  const auto* words = static_cast<const uint64_t*>(table.data());
  const auto place = [](const float* at) { return reinterpret_cast<uint64_t>(at); };
  const std::vector<uint64_t> expected = {place(memory), place(memory + 1), 7, 1, place(memory + 1), place(memory + 2), 8, 1025};
  EXPECT_EQ(std::vector<uint64_t>(words, words + 8), expected);
  const auto* numbers = reinterpret_cast<const uint32_t*>(words + 4 * entries);
  EXPECT_EQ(numbers[0], 1u);
  EXPECT_EQ(numbers[1], 3u);
  EXPECT_EQ(numbers[entries], 2u);
}

TEST(CudaBatchTable, GivesEachSumItsPlaceAndParts) {
  const CudaPlan plan = PlanCuda(Open(SumOfSquares(100)), false, true);
  BatchTable table(plan.launch, 2, 0, 1);
  void* buffers[] = {nullptr, nullptr};
  const int64_t sizes[] = {100, 100000};
  for (const int64_t& size : sizes) table.Add({nullptr, buffers, 2, nullptr, &size}, plan.launch.Splits(&size, 132));
  const int64_t parts = plan.launch.Splits(sizes + 1, 132);
  ASSERT_GT(parts, 1);
  EXPECT_EQ(table.blocks(), 1 + parts);
  const auto* words = static_cast<const uint64_t*>(table.data());
  EXPECT_EQ(std::vector<uint64_t>(words + 3, words + 5), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(std::vector<uint64_t>(words + 8, words + 10), (std::vector<uint64_t>{CudaLaunch::kAlignment, static_cast<uint64_t>(parts)}));
  EXPECT_EQ(table.scratch_bytes(), CudaLaunch::kAlignment + CudaLaunch::Aligned(4 * parts));
  table.SetOneBlockEach();
  EXPECT_EQ(table.blocks(), 2);
  const auto* numbers = reinterpret_cast<const uint32_t*>(words + 5 * plan.launch.batch_entries);
  EXPECT_EQ(numbers[0], 1u);
  EXPECT_EQ(numbers[1], 2u);
}

TEST(CudaBatchTable, IsFullWhereArgumentsOrBlocksAre) {
  const CudaPlan plan = PlanCuda(Open(Update({100})), false, true);
  BatchTable table(plan.launch, 2, 1, 1);
  void* buffers[] = {nullptr, nullptr};
  const uint64_t scalar = 0;
  const int64_t size = 100;
  const BoundKernel bound{nullptr, buffers, 2, &scalar, &size};
  int tables = 1;
  for (int i = 0; i < 300; ++i) {
    if (!table.Fits(1)) ++tables, table.Clear();
    table.Add(bound, 1);
  }
  EXPECT_EQ(tables, 3);
  EXPECT_EQ(table.count(), 300 - 2 * plan.launch.batch_entries);
  table.Clear();
  table.Add(bound, CudaLaunch::kMostBlocks - 1);
  EXPECT_TRUE(table.Fits(1));
  EXPECT_FALSE(table.Fits(2));
}

// Parameters of `sizes`, each with its update by its gradient.
std::string Updates(const std::vector<int64_t>& sizes) {
  std::string text = "trace scalars=1 offsets=0\n", ops;
  int storage = 0;
  for (const int64_t size : sizes) {
    absl::StrAppend(&text, "storage %", storage, ": input cuda:0 mutated\nstorage %", storage + 1, ": input cuda:0\n");
    absl::StrAppend(&ops, "aten::add_.Tensor(%", storage, " f32[", size, "], %", storage + 1, " f32[", size, "], alpha=#0:f64)\n");
    storage += 2;
  }
  return text + ops;
}

absl::StatusOr<runtime::ProgramSpec> PlanUpdates(const std::vector<int64_t>& sizes, PlanReport* report) {
  const auto trace = ParseTrace(Updates(sizes));
  if (!trace.ok()) return trace.status();
  PipelineOptions options;
  options.target = {"avx512", "eager"};
  options.target.cuda_arch = kArch;
  const auto graph = RunPasses(*trace, options, "fuse");
  if (!graph.ok()) return graph.status();
  return PlanProgram(*graph, {options.target}, report);
}

TEST(CudaBatchPlan, UpdatesOfAllParametersAreOneKernelAndOneBatch) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  PlanReport report;
  const auto spec = PlanUpdates({17, 768, 30000, 768, 4096}, &report);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->steps.size(), 5u);
  EXPECT_EQ(spec->steps[0].batch, 5);
  EXPECT_EQ(report.kernels_compiled, 1);
  EXPECT_EQ(report.kernel_cache_hits, 4);
  std::set<const void*> kernels;
  std::map<int64_t, int64_t> bytes;
  std::multiset<int64_t> sizes;
  for (const runtime::StepSpec& step : spec->steps) {
    const auto& launch = std::get<KernelLaunch>(step.work);
    kernels.insert(launch.kernel.get());
    ASSERT_EQ(launch.symbols.size(), 1u);
    sizes.insert(launch.symbols[0]);
    bytes[launch.symbols[0]] = launch.touched_bytes;
  }
  EXPECT_EQ(kernels.size(), 1u);
  EXPECT_EQ(sizes, (std::multiset<int64_t>{17, 768, 30000, 768, 4096}));
  EXPECT_TRUE(static_cast<const CompiledKernel*>(std::get<KernelLaunch>(spec->steps[0].work).kernel.get())->CanBatch());
  EXPECT_EQ(bytes[30000], 2 * 30000 * 4) << "of the sizes that are, not of those that are planned for";
}

TEST(CudaBatchPlan, WhatAProgramHasOneOfHasNoCodeForBatches) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  PlanReport report;
  const auto spec = PlanUpdates({777}, &report);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->steps.size(), 1u);
  EXPECT_FALSE(static_cast<const CompiledKernel*>(std::get<KernelLaunch>(spec->steps[0].work).kernel.get())->CanBatch());
}

}  // namespace
}  // namespace lazuli::codegen
