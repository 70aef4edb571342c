// CUDA text: facts about it, and that NVRTC compiles it. Needs no GPU; without NVRTC what compiles is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "codegen/kernel_compiler.h"
#include "runtime/cuda_driver.h"
#include "runtime/open_library.h"
#include "tests/support/cache_fixture.h"
#include "tests/support/gpu_target.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/log_file.h"
#include "tests/support/nvrtc.h"
#include "tests/support/random_kernel.h"
#include "tests/support/scan_kernels.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

KernelIR Chain(const c10::DimVector& sizes, T type = T::Float) {
  KernelBuilder b(sizes);
  const int x = b.Cast(b.Load(b.Buffer(type)), T::Float), y = b.Cast(b.Load(b.Buffer(type)), T::Float);
  b.Store(b.Buffer(type, true), b.Cast(b.Op(K::kTanh, b.Op(K::kAdd, x, y)), type));
  return b.kernel();
}

KernelIR Softmax(int64_t rows, int64_t columns, T type = T::Float) {
  KernelBuilder b({rows, columns}, 1);
  const int x = b.Cast(b.Load(b.Buffer(type)), T::Float);
  const int e = b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  b.Store(b.Buffer(type, true), b.Cast(b.Op(K::kDiv, e, b.Op(K::kReduceSum, e)), type));
  return b.kernel();
}

KernelIR Sum(const c10::DimVector& sizes, int num_reduced, const c10::DimVector& strides) {
  KernelBuilder b(sizes, num_reduced);
  const int rows = b.Buffer(T::Float, strides);
  b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceSum, b.Load(rows)));
  return b.kernel();
}

TEST(CudaText, NoHeadersAndOneFunctionForEachLaunch) {
  for (const KernelIR& kernel : {Chain({1 << 20}), Softmax(4096, 4096), Sum({4096, 4096}, 1, {4096, 1})}) {
    const std::string text = GpuSource(kernel);
    EXPECT_FALSE(absl::StrContains(text, "#include")) << text;
    EXPECT_EQ(CountOf(text, "__global__"), 1) << text;
    EXPECT_EQ(text, GpuSource(kernel));
  }
}

TEST(CudaText, MovesSixteenBytesAtATimeWhereMemoryIsContiguous) {
  EXPECT_EQ(codegen::PlanCuda(Chain({1 << 22}), false).lanes, 4);
  EXPECT_EQ(codegen::PlanCuda(Chain({1 << 22}, T::BFloat16), false).lanes, 8);
  EXPECT_EQ(codegen::PlanCuda(Chain({1001, 4096}), false).lanes, 4);
  EXPECT_TRUE(absl::StrContains(GpuSource(Chain({1 << 22})), "aligned<16>(b0)"));
  EXPECT_EQ(codegen::PlanCuda(Chain({64}), false).lanes, 1) << "as many threads as there are points";
}

TEST(CudaText, RowsOfOddLengthAreReadInAlignedPieces) {
  EXPECT_EQ(codegen::PlanCuda(Softmax(4096, 50257, T::BFloat16), false).lanes, 8);
  EXPECT_TRUE(absl::StrContains(GpuSource(Softmax(4096, 50257, T::BFloat16)), "aligned<16>(b0 + (i0 * 50257) - shift)"));
  EXPECT_FALSE(absl::StrContains(GpuSource(Softmax(4096, 50256, T::BFloat16)), "shift"));
}

// Much is done at each point, in three passes.
KernelIR HeavyRows(int64_t columns) {
  KernelBuilder b({4096, columns}, 1);
  const int x = b.Cast(b.Load(b.Buffer(T::BFloat16)), T::Float);
  const int e = b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  int y = b.Op(K::kDiv, e, b.Op(K::kReduceSum, e));
  for (int i = 0; i < 16; ++i) y = b.Op(K::kAdd, b.Op(K::kMul, y, x), y);
  b.Store(b.Buffer(T::BFloat16, true), b.Cast(y, T::BFloat16));
  return b.kernel();
}

TEST(CudaText, LongRowsLeaveRoomForOtherBlocks) {
  const auto plan = [](int64_t columns) { return codegen::PlanCuda(HeavyRows(columns), false); };
  EXPECT_EQ(plan(16384).iterations, 4) << "in registers";
  EXPECT_EQ(plan(16384).launch.row_bytes, 0);
  EXPECT_EQ(plan(32000).iterations, 0);
  EXPECT_EQ(plan(32000).launch.row_bytes, 2 * 32000) << "in shared memory, three blocks at a time";
  EXPECT_EQ(plan(32000).launch.phases[0].threads_x, 512);
  EXPECT_EQ(plan(31999).launch.row_bytes, 0) << "pieces of rows are not whole";
  EXPECT_EQ(plan(31999).iterations, 8);
  EXPECT_EQ(plan(128256).launch.row_bytes, 0) << "nowhere";
  EXPECT_EQ(plan(128256).launch.phases[0].threads_x, 1024);
}

TEST(CudaText, ShortRowsStayInRegisters) {
  EXPECT_GT(codegen::PlanCuda(Softmax(4096, 4096), false).iterations, 0);
  EXPECT_EQ(codegen::PlanCuda(Softmax(512, 1 << 17), false).iterations, 0);
  EXPECT_EQ(CountOf(GpuSource(Softmax(4096, 4096)), "ld<true>("), 1) << "memory is read once";
}

// What batch norm does to [rows, columns] of bfloat16 with four numbers for each column.
KernelIR Normalized(int64_t rows, int64_t columns, int numbers) {
  KernelBuilder b({rows, columns}, 0);
  int x = b.Cast(b.Load(b.Buffer(T::BFloat16)), T::Float);
  for (int i = 0; i < numbers; ++i) x = b.Op(i % 2 == 0 ? K::kSub : K::kMul, x, b.Load(b.Buffer(T::Float, {0, 1})));
  b.Store(b.Buffer(T::BFloat16, true), b.Cast(x, T::BFloat16));
  return b.kernel();
}

TEST(CudaText, ThreadsKeepNumbersOfColumnsWhereTheseAreMoreThanTheRest) {
  const codegen::CudaPlan plan = codegen::PlanCuda(Normalized(1 << 16, 256, 4), false);
  EXPECT_EQ(plan.kernel.sizes, (c10::DimVector{256, 1 << 16}));
  EXPECT_TRUE(plan.launch.split);
  EXPECT_TRUE(plan.launch.partial_bytes.empty());
  EXPECT_EQ(plan.launch.phases.size(), 1u);
  EXPECT_EQ(codegen::PlanCuda(Normalized(1 << 16, 256, 1), false).kernel.num_reduced, 0) << "no more than the rest";
  EXPECT_EQ(codegen::PlanCuda(Normalized(1 << 16, 8, 4), false).kernel.num_reduced, 0) << "short rows";
  EXPECT_EQ(codegen::PlanCuda(Normalized(1 << 16, 257, 4), false).kernel.num_reduced, 0) << "rows that begin anywhere";
  EXPECT_EQ(codegen::PlanCuda(Normalized(16, 1 << 18, 4), false).kernel.num_reduced, 0) << "few rows";
  EXPECT_EQ(Compiles(Normalized(1 << 16, 256, 4)), "");
}

TEST(CudaText, WhatIsWidestAtEachPointSaysHowManyAThreadTakes) {
  KernelBuilder b({1 << 22}, 0);
  b.Store(b.Buffer(T::BFloat16, true), b.Cast(b.Load(b.Buffer(T::Float)), T::BFloat16));
  EXPECT_EQ(codegen::PlanCuda(b.kernel(), false).lanes, 4);
  EXPECT_EQ(codegen::PlanCuda(Normalized(1 << 16, 256, 1), false).lanes, 8) << "columns' numbers are few";
}

TEST(CudaText, ColumnsAreReadWithoutConditionsWhereVectorsAreWhole) {
  const std::string text = GpuSource(Sum({256, 1 << 16}, 1, {1, 256}));
  EXPECT_TRUE(absl::StrContains(text, "if (fast0 && n == 4) {")) << text;
  EXPECT_EQ(CountOf(text, "ld<true>("), 3) << "of several turns, of one, and with conditions";
  EXPECT_TRUE(absl::StrContains(text, "l0[8][4];")) << text;
}

TEST(CudaText, RowsThatRegistersDoNotHoldAreKeptInSharedMemory) {
  const auto plan = [](int64_t columns, T type) { return codegen::PlanCuda(Softmax(512, columns, type), false); };
  EXPECT_EQ(plan(1 << 12, T::Float).launch.row_bytes, 0) << "they do";
  EXPECT_EQ(plan(50304, T::BFloat16).launch.row_bytes, 2 * 50304);
  EXPECT_EQ(plan(50304, T::Float).launch.row_bytes, 0) << "too long";
  EXPECT_EQ(plan(50301, T::BFloat16).launch.row_bytes, 0) << "rows do not begin where vectors do";
  const std::string text = GpuSource(Softmax(512, 50304, T::BFloat16));
  EXPECT_EQ(CountOf(text, "ld<true>("), 3) << "in the first pass alone";
  EXPECT_GE(CountOf(text, "(row + 0)"), 4);
}

TEST(CudaPlan, PartsOfWhatIsSplitAreWholeTurns) {
  using codegen::CudaLaunch;
  EXPECT_EQ(CudaLaunch::SplitChunks(8192, 22, 8), 384);
  EXPECT_EQ(CudaLaunch::SplitChunks(8192, 88, 8), 128);
  EXPECT_EQ(CudaLaunch::SplitChunks(100, 10, 8), 10) << "few";
}

TEST(CudaText, PartsOfColumnsArePutTogetherByManyThreads) {
  const codegen::CudaLaunch launch = codegen::PlanCuda(Sum({64, 1 << 16}, 1, {1, 64}), false).launch;
  ASSERT_EQ(launch.phases.size(), 2u);
  EXPECT_EQ(launch.phases[1].threads_x, 8);
  EXPECT_EQ(launch.phases[1].threads_y, 64);
  EXPECT_EQ(launch.Blocks(launch.phases[1], nullptr), 8) << "a thread has one column, though others have several";
}

TEST(CudaText, MuchToReduceForFewPointsIsSplit) {
  EXPECT_EQ(CountOf(GpuSource(Sum({1 << 24}, 1, {1})), "__global__"), 2);
  EXPECT_EQ(CountOf(GpuSource(Sum({64, 1 << 16}, 1, {1, 64})), "__global__"), 2);
  EXPECT_EQ(CountOf(GpuSource(Softmax(2, 1 << 20)), "__global__"), 3);
  EXPECT_EQ(CountOf(GpuSource(Sum({1 << 16, 512}, 1, {512, 1})), "__global__"), 1);
}

TEST(CudaText, CountsWithMoreBitsWhereElementsAreMany) {
  EXPECT_TRUE(absl::StrContains(GpuSource(Chain({int64_t{1} << 32})), "typedef i64 I;"));
  EXPECT_TRUE(absl::StrContains(GpuSource(Chain({int64_t{1} << 20})), "typedef int I;"));
}

TEST(CudaText, ExplainsItsCost) {
  const auto line = codegen::ExplainKernel(Softmax(4096, 4096), GpuTarget());
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(absl::StrContains(*line, "rows stay in registers")) << *line;
}

constexpr T kArithmetic[] = {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool};
constexpr T kStorable[] = {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool, T::BFloat16, T::Half};

// All instructions that take values of `type`, each stored; several kernels' worth in one.
KernelIR EveryOp(T type) {
  KernelBuilder b({7, 33}, 1);
  const int x = b.Load(b.Buffer(type)), y = b.Load(b.Buffer(type)), c = b.Op(K::kLt, x, y), s = b.Scalar(type);
  for (int op = static_cast<int>(K::kAdd); op < codegen::kNumKOps; ++op) {
    KernelBuilder trial = b;
    const K k = static_cast<K>(op);
    const int arity = codegen::KOpArity(k);
    const auto add = [&](KernelBuilder& into) {
      if (k == K::kSelect) return into.Op(k, c, x, s);
      return into.Op(k, x, arity > 1 ? y : -1, arity > 2 ? s : -1);
    };
    trial.Op(K::kIsNan, add(trial));  // Any use: what does not verify is not defined on the type.
    KernelIR only = trial.kernel();
    only.insts.pop_back();
    if (!codegen::VerifyKernel(only).ok()) continue;
    const int value = add(b);
    b.Store(b.Buffer(b.kernel().insts[value].type, true), value);
  }
  return b.kernel();
}

TEST(CudaNvrtc, EveryOpOnEveryType) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const T type : kArithmetic) {
    const KernelIR kernel = EveryOp(type);
    EXPECT_GT(kernel.insts.size(), 25u);
    EXPECT_EQ(Compiles(kernel), "") << c10::toString(type);
  }
}

TEST(CudaNvrtc, EveryCastAndMemoryAccess) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const T type : kStorable) {
    KernelBuilder b({5, 70});
    const int x = b.Load(b.Buffer(type)), i = b.Index(1), in = b.Op(K::kLt, i, b.Const(9, T::Long));
    for (const T to : kStorable) b.Store(b.Buffer(to, true), b.Cast(x, to));
    b.Store(b.Buffer(type, true), b.Gather(b.Buffer(type), i));
    b.Scatter(K::kScatter, b.Buffer(type, {0, 0}, true), x, i, in);
    if (type == T::Float)
      b.Scatter(K::kScatterAdd, b.Buffer(type, {0, 1}, true), x, b.Const(9, T::Long),
                b.Op(K::kEq, b.Const(9, T::Long), b.Const(9, T::Long)));
    if (type != T::Bool && type != T::BFloat16 && type != T::Half) b.Scatter(K::kScatterAdd, b.Buffer(type, {0, 0}, true), x, i, in);
    b.Check(b.Flag(), in);
    EXPECT_EQ(Compiles(b.kernel()), "") << c10::toString(type);
    EXPECT_EQ(Compiles(b.kernel(), /*wide=*/true), "") << c10::toString(type);
  }
}

TEST(CudaNvrtc, EveryShapeOfReduction) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const KernelIR& kernel :
       {Softmax(4096, 4096), Softmax(700, 3), Softmax(2, 1 << 20), Softmax(64, 999, T::BFloat16), Sum({1 << 24}, 1, {1}),
        Sum({4096, 4096}, 1, {1, 4096}), Sum({4097, 63}, 1, {1, 4097}), Sum({6, 4, 20000}, 2, {20000, 120000, 1})}) {
    EXPECT_EQ(Compiles(kernel), "");
    EXPECT_EQ(Compiles(kernel, /*wide=*/true), "");
  }
}

TEST(CudaText, TransposedLoadsComeThroughSharedMemory) {
  KernelBuilder b({512, 640});
  const int x = b.Load(b.Buffer(T::Float)), y = b.Load(b.Buffer(T::Float, {1, 512}));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kAdd, x, y));
  EXPECT_EQ(codegen::PlanCuda(b.kernel(), false).tile_dim, 0);
  EXPECT_EQ(CountOf(GpuSource(b.kernel()), "__shared__"), 1);
}

// By the hardware, or word by word where it cannot.
TEST(CudaNvrtc, EveryShapeOfScan) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const bool from_end : {false, true}) {
    for (const auto& [sizes, strides] : ScanLayouts()) EXPECT_EQ(Compiles(ScansAmongReductions(sizes, strides, from_end)), "");
    EXPECT_EQ(Compiles(ScanKernel(K::kScanSum, {100, 4096}, {4096, 1}, {4096, 1}, T::Float, from_end)), "") << "rows";
    EXPECT_EQ(Compiles(ScanKernel(K::kScanSum, {100, 1001}, {1001, 1}, {1001, 1}, T::Float, from_end), /*wide=*/true), "") << "shifted";
    EXPECT_EQ(Compiles(ScanKernel(K::kScanProd, {100000, 16}, {16, 1}, {16, 1}, T::Int, from_end)), "") << "short rows";
    EXPECT_EQ(Compiles(ScanKernel(K::kScanSum, {70000, 100}, {1, 70000}, {1, 70000}, T::Long, from_end)), "") << "columns";
  }
}

TEST(CudaNvrtc, AddsToReducedPrecisionOnEveryArchitecture) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const T type : {T::BFloat16, T::Half}) {
    KernelBuilder b({512});
    const int i = b.Index(0);
    b.Scatter(K::kScatterAdd, b.Buffer(type, {0}, true), b.Load(b.Buffer(type)), i, b.Op(K::kLt, i, b.Const(9, T::Long)));
    const std::string text = codegen::EmitCuda(codegen::PlanCuda(b.kernel(), false));
    for (const char* arch : {"sm_75", "sm_80", "sm_90"}) {
      const auto code = codegen::CompileCuda(text, arch, false);
      EXPECT_TRUE(code.ok()) << arch << code.status() << text;
    }
  }
}

TEST(CudaNvrtc, SumsOfEachBlock) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const T type : {T::Float, T::Double, T::Long, T::Int}) {
    KernelBuilder b({1 << 16});
    const int i = b.Load(b.Buffer(T::Long)), target = b.Target(type, {0}, 64);
    b.Scatter(K::kScatterAdd, target, b.Load(b.Buffer(type)), i, b.Op(K::kLt, i, b.Const(64, T::Long)));
    const KernelIR& kernel = b.kernel();
    EXPECT_TRUE(absl::StrContains(GpuSource(kernel), "add_alike(")) << c10::toString(type);
    EXPECT_EQ(Compiles(kernel), "") << c10::toString(type);
    EXPECT_EQ(Compiles(kernel, /*wide=*/true), "") << c10::toString(type);
  }
}

TEST(CudaNvrtc, RandomKernelsCompile) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  const int64_t first = EnvOr("LAZULI_FUZZ_SEED", 1), count = EnvOr("LAZULI_FUZZ_COUNT", 12);
  for (int64_t seed = first; seed < first + count; ++seed) {
    ASSERT_EQ(Compiles(RandomKernel(static_cast<uint64_t>(seed)).Build()), "") << "LAZULI_FUZZ_SEED=" << seed;
  }
}

// A kernel begins before what is ahead of it has ended: for an architecture that no NVRTC knows there is a text to read.
TEST(CudaNvrtc, NothingIsReadBeforeTheWait) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  std::vector<KernelIR> kernels{Chain({1 << 22}), Softmax(4096, 4096), Softmax(4096, 50257, T::BFloat16), Sum({1 << 24}, 1, {1}),
                                Sum({4096, 4096}, 1, {1, 4096})};
  for (uint64_t seed = 100; seed < 106; ++seed) kernels.push_back(RandomKernel(seed).Build());
  int reads = 0;
  for (const KernelIR& kernel : kernels) {
    for (const bool batches : {false, true}) {
      const std::string text = codegen::EmitCuda(codegen::PlanCuda(kernel, /*wide=*/false, batches));
      const auto ptx = codegen::CompileCuda(text, "sm_9999", false);
      ASSERT_TRUE(ptx.ok()) << ptx.status() << text;
      const std::vector<std::string> entries = absl::StrSplit(*ptx, ".entry");
      ASSERT_EQ(entries.size(), 1 + CountOf(text, "__global__"));
      for (size_t e = 1; e < entries.size(); ++e) {
        const size_t wait = entries[e].find("griddepcontrol.wait");
        ASSERT_NE(wait, std::string::npos) << *ptx;
        EXPECT_GT(entries[e].find("ld.global"), wait) << *ptx;
        EXPECT_GT(entries[e].find("st.global"), wait) << *ptx;
        EXPECT_EQ(entries[e].find("ld.global.nc"), std::string::npos) << "memory is no constant yet\n" << *ptx;
        reads += CountOf(entries[e], "ld.global");
      }
    }
  }
  EXPECT_GT(reads, 20);
}

TEST(CudaNvrtc, ErrorsCarryTheCompilersLog) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  const auto code = codegen::CompileCuda("int x = nonsense;", kTestedArch, false);
  ASSERT_FALSE(code.ok());
  EXPECT_TRUE(absl::StrContains(code.status().message(), "nonsense")) << code.status();
  EXPECT_FALSE(codegen::CompileCuda("", "volta", false).ok());
}

TEST(CudaNvrtc, ACompiledKernelIsFoundAgain) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  codegen::KernelOrigin origin;
  const auto first = codegen::CompileKernel(Chain({12345}), GpuTarget(), &origin);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(origin, codegen::KernelOrigin::kCompiled);
  const auto second = codegen::CompileKernel(Chain({12345}), GpuTarget(), &origin);
  EXPECT_EQ(origin, codegen::KernelOrigin::kFound);
  EXPECT_EQ(*first, *second);
  codegen::KernelTarget cached = GpuTarget();
  cached.cached_only = true;
  EXPECT_EQ(codegen::CompileKernel(Chain({12346}), cached, nullptr).status().code(), absl::StatusCode::kUnavailable);
}

class CudaCache : public CacheFixture {};

TEST_F(CudaCache, CodeIsKeptOnDiskByArchitecture) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  runtime::DiskCache disk(folder_.string(), int64_t{1} << 30);
  codegen::KernelTarget target = GpuTarget();
  target.disk = &disk;
  const auto origin_of = [&] {
    codegen::KernelOrigin origin;
    const auto kernel = codegen::CompileKernel(Chain({4321}), target, &origin);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return origin;
  };
  EXPECT_EQ(origin_of(), codegen::KernelOrigin::kCompiled);
  EXPECT_EQ(Entries().size(), 1u);
  codegen::ForgetIdleKernels();
  EXPECT_EQ(origin_of(), codegen::KernelOrigin::kLoaded);
  target.cuda_arch = "sm_80";
  EXPECT_EQ(origin_of(), codegen::KernelOrigin::kCompiled);
  EXPECT_EQ(Entries().size(), 2u);
  codegen::ForgetIdleKernels();
}

TEST(CudaText, RowsThatAnIndexNamesAreReadInVectors) {
  KernelBuilder b({65536, 768});
  b.Store(b.Buffer(T::BFloat16, true), b.Gather(b.Buffer(T::BFloat16, {0, 1}), b.Load(b.Buffer(T::Long, {1, 0}))));
  EXPECT_EQ(codegen::PlanCuda(b.kernel(), false).lanes, 8);
}

TEST(CudaNvrtc, NumbersAreComparedWithCoordinatesInTheTypeOfCoordinates) {
  KernelBuilder b({512, 640});
  const int number = b.Load(b.Buffer(T::Long, {1, 0}));
  b.Store(b.Buffer(T::Bool, true), b.Op(K::kEq, number, b.Index(1)));
  b.Store(b.Buffer(T::Bool, true), b.Op(K::kNe, b.Index(0), number));
  b.Store(b.Buffer(T::Bool, true), b.Op(K::kEq, b.Index(0), b.Index(1)));
  const std::string text = GpuSource(b.kernel());
  EXPECT_EQ(CountOf(text, "= is_at(t"), 1);
  EXPECT_EQ(CountOf(text, "= !is_at(t"), 1);
  LAZULI_SKIP_WITHOUT_NVRTC();
  EXPECT_EQ(Compiles(b.kernel()), "");
  EXPECT_EQ(Compiles(b.kernel(), /*wide=*/true), "");
}

TEST(CudaDriver, SaysWhatIsMissingAndWhatToDo) {
  const auto opened = runtime::OpenFirst("NVIDIA's driver", {"libnothere.so.1", "libnothere.so"}, "install it");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "libnothere.so.1")) << opened.status();
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "; install it")) << opened.status();
}

// Every value of every choice, alone.
std::vector<codegen::CudaSchedule> Schedules() {
  std::vector<codegen::CudaSchedule> all;
  for (int choice = 0; choice < codegen::NumCudaChoices(); ++choice) {
    for (const codegen::CudaSchedule& schedule : codegen::CudaVariations({}, choice, /*reorder=*/true)) all.push_back(schedule);
  }
  return all;
}

TEST(CudaScheduleTest, TextParsesBack) {
  EXPECT_EQ(codegen::PrintCudaSchedule({}), "default");
  EXPECT_GE(Schedules().size(), 10u);
  for (const codegen::CudaSchedule& schedule : Schedules()) {
    const std::string text = codegen::PrintCudaSchedule(schedule);
    EXPECT_NE(text, "default");
    const auto parsed = codegen::ParseCudaSchedule(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(*parsed == schedule) << text;
  }
  codegen::CudaSchedule two;
  two.threads = 1;
  two.keep = -1;
  EXPECT_EQ(codegen::PrintCudaSchedule(two), "threads=1 keep=-1");
  for (const char* bad : {"", "threads", "threads=2", "keep=1", "speed=1", "lanes=x"})
    EXPECT_FALSE(codegen::ParseCudaSchedule(bad).ok()) << bad;
}

TEST(CudaScheduleTest, SumsKeepTheirOrderWhereThatIsAskedFor) {
  size_t all = 0;
  for (int choice = 0; choice < codegen::NumCudaChoices(); ++choice) {
    for (const codegen::CudaSchedule& schedule : codegen::CudaVariations({}, choice, /*reorder=*/false)) {
      ++all;
      EXPECT_EQ(schedule.threads, 0);
      EXPECT_EQ(schedule.lanes, 0);
      EXPECT_EQ(schedule.splits, 0);
    }
  }
  EXPECT_GT(all, 0u);
}

TEST(CudaScheduleTest, MovesWhatItSays) {
  const auto plan = [](const KernelIR& kernel, const char* schedule) {
    return codegen::PlanCuda(kernel, false, false, *codegen::ParseCudaSchedule(schedule));
  };
  const KernelIR chain = Chain({1 << 22}), rows = Softmax(4096, 4096), all = Sum({1 << 22}, 1, {1});
  EXPECT_EQ(plan(chain, "threads=1").launch.phases[0].threads_x, 512);
  EXPECT_EQ(plan(chain, "threads=-1").launch.phases[0].threads_x, 128);
  EXPECT_EQ(plan(chain, "lanes=-1").lanes, 2);
  const int threads = plan(rows, "default").launch.phases[0].threads_x;
  EXPECT_EQ(plan(rows, "threads=-1").launch.phases[0].threads_x, threads / 2);
  EXPECT_GT(plan(rows, "default").iterations, 0);
  EXPECT_EQ(plan(rows, "keep=-1").iterations, 0);
  EXPECT_GT(CountOf(codegen::EmitCuda(plan(rows, "keep=-1")), "ld<true>("), 1) << "memory is read in each pass";
  EXPECT_TRUE(absl::StrContains(codegen::EmitCuda(plan(chain, "occupancy=3")), "__launch_bounds__(256, 6)"));
  EXPECT_EQ(plan(all, "splits=1").launch.Splits(nullptr, 132), 2 * plan(all, "default").launch.Splits(nullptr, 132));
}

TEST(CudaScheduleTest, AllCompile) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const KernelIR& kernel : {Chain({1000, 333}), Softmax(4096, 4096), Softmax(70, 50257, T::BFloat16), Sum({1 << 20}, 1, {1}),
                                 Sum({300, 5000}, 1, {1, 300}), Normalized(1 << 16, 256, 4)}) {
    for (const codegen::CudaSchedule& schedule : Schedules()) {
      EXPECT_EQ(Compiles(kernel, false, schedule), "") << codegen::PrintCudaSchedule(schedule);
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
