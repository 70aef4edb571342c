// Sums of columns become part of the kernel that goes through the same rows on a GPU. Needs none; values are compared by an interpreter.
#include "codegen/cuda/partial_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "tests/support/gpu_graph.h"
#include "tests/support/kernel_reference.h"
#include "tests/support/log_file.h"
#include "tests/support/nvrtc.h"

namespace lazuli::testing {
namespace {

using codegen::Graph;
using codegen::LoweredGroup;

// The gradient of a layer norm over rows of 768 of a residual sum, whose other branch is a linear layer's with a bias.
std::string LayerNormBackward(const std::string& rows = "8192", const std::string& columns = "768") {
  const char* const text = R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: input cuda:0
storage %4: input cuda:0
storage %5: input cuda:0
storage %6: input cuda:0
storage %7: fresh 25165824 bytes cuda:0
storage %8: fresh 25165824 bytes cuda:0
storage %9: fresh 3072 bytes cuda:0 live
storage %10: fresh 3072 bytes cuda:0 live
storage %11: fresh 25165824 bytes cuda:0 live
storage %12: fresh 12582912 bytes cuda:0 live
storage %13: fresh 1536 bytes cuda:0
storage %14: fresh 3072 bytes cuda:0 live
%7 f32[R,C] = aten::_to_copy(%0 bf16[R,C], TO 6)
%8 f32[R,C], %9 f32[C], %10 f32[C] = aten::native_layer_norm_backward(%7 f32[R,C], %1 f32[R,C], normalized_shape=[C], OTHERS)
%11 f32[R,C] = aten::add.Tensor(%6 f32[R,C], %8 f32[R,C], alpha=1)
%12 bf16[R,C] = aten::_to_copy(%11 f32[R,C], TO 15)
%13 bf16[1,C] = aten::sum.dim_IntList(%12 bf16[R,C], dim=[0], keepdim=true, dtype=none)
%14 f32[C] = aten::_to_copy(%13 bf16[C], TO 6)
)";
  const char* const others = "%2 f32[R,1], %3 f32[R,1], %4 f32[C], %5 f32[C], output_mask=bool[true,true,true]";
  const char* const rest = ", layout=0, device=device(cuda:0), pin_memory=none, non_blocking=false, memory_format=none";
  const std::string whole =
      absl::StrReplaceAll(text, {{"OTHERS", others}, {"TO 6", absl::StrCat("dtype=6", rest)}, {"TO 15", absl::StrCat("dtype=15", rest)}});
  return absl::StrReplaceAll(whole,
                             {{"[R", absl::StrCat("[", rows)}, {",C", absl::StrCat(",", columns)}, {"[C", absl::StrCat("[", columns)}});
}

std::vector<LoweredGroup> Lowered(const Graph& graph) {
  std::vector<LoweredGroup> lowered;
  for (const codegen::Group& group : graph.groups) {
    auto one = codegen::LowerGroup(graph, group, codegen::ValuesInMemory(graph));
    EXPECT_TRUE(one.ok()) << one.status();
    lowered.push_back(*std::move(one));
  }
  return lowered;
}

// Numbers that a float holds, so that sums in any order are near.
class Memory {
 public:
  explicit Memory(uint64_t seed) : generator_(seed) {}

  // For every buffer of `lowered` that has none yet, so many bytes for each point of its extent.
  std::vector<void*> Of(const LoweredGroup& lowered) {
    std::vector<void*> pointers;
    for (size_t b = 0; b < lowered.buffers.size(); ++b) {
      const LoweredGroup::Buffer& buffer = lowered.buffers[b];
      const codegen::KBuffer& layout = lowered.kernel.buffers[b];
      int64_t elements = 1;
      for (size_t d = 0; d < layout.strides.size(); ++d) elements += (lowered.kernel.sizes[d] - 1) * layout.strides[d];
      if (buffer.partial_sums >= 0) elements = kPartialElements;
      auto& memory = memories_[{buffer.memory, buffer.partial_sums}];
      if (memory.empty()) Fill(layout.dtype, elements, /*zero=*/buffer.written || buffer.partial_sums >= 0, &memory);
      pointers.push_back(memory.data());
    }
    return pointers;
  }
  const std::vector<char>& At(codegen::ValueId memory) { return memories_.at({memory, -1}); }

 private:
  static constexpr int64_t kPartialElements = codegen::kPartialSums * 32;

  void Fill(c10::ScalarType dtype, int64_t elements, bool zero, std::vector<char>* memory) {
    memory->resize(static_cast<size_t>(elements) * c10::elementSize(dtype));
    for (int64_t i = 0; i < elements && !zero; ++i) {
      const float value = static_cast<float>(generator_() % 17) / 8.0f - 1.0f;
      if (dtype == c10::ScalarType::Float) std::memcpy(memory->data() + 4 * i, &value, 4);
      const c10::BFloat16 half(value);
      if (dtype == c10::ScalarType::BFloat16) std::memcpy(memory->data() + 2 * i, &half, 2);
    }
  }

  std::mt19937_64 generator_;
  std::map<std::pair<codegen::ValueId, int32_t>, std::vector<char>> memories_;
};

void ExpectNear(const std::vector<char>& expected, const std::vector<char>& actual, c10::ScalarType dtype) {
  ASSERT_EQ(expected.size(), actual.size());
  if (dtype == c10::ScalarType::BFloat16) {
    EXPECT_EQ(expected, actual);
    return;
  }
  for (size_t at = 0; at < expected.size(); at += 4) {
    float x, y;
    std::memcpy(&x, &expected[at], 4);
    std::memcpy(&y, &actual[at], 4);
    EXPECT_NEAR(x, y, 1e-5 * std::abs(x) + 1e-3) << at / 4;
  }
}

struct Joined {
  std::vector<LoweredGroup> before, after;
  std::vector<int64_t> partial_bytes;
};

// The groups of the trace, and what becomes of them where all others are joined to that of rows.
Joined Join(const std::string& text, bool combine = true) {
  Joined joined;
  joined.before = Lowered(ReadableGpuGraph(text, "column_sums"));
  const auto is_of_rows = [](const LoweredGroup& lowered) { return lowered.kernel.sizes[0] > lowered.kernel.sizes[1]; };
  std::stable_partition(joined.before.begin(), joined.before.end(), is_of_rows);
  joined.after = joined.before;
  size_t sums = 0;
  for (size_t g = 1; g < joined.after.size(); ++g) {
    if (!codegen::JoinColumnSums(&joined.after[0], &joined.after[g], &joined.partial_bytes)) continue;
    if (sums == 0 || !combine || !codegen::JoinCombining(&joined.after[sums], &joined.after[g])) sums = g;
  }
  return joined;
}

TEST(PartialSums, LayerNormBackward) {
  const Joined joined = Join(LayerNormBackward());
  ASSERT_EQ(joined.before.size(), 3u);
  ASSERT_EQ(joined.partial_bytes, std::vector<int64_t>(3, codegen::kPartialSums * 768 * 4));
  const codegen::CudaPlan rows = codegen::PlanCuda(joined.after[0].kernel, /*wide=*/false);
  EXPECT_EQ(rows.launch.Blocks(nullptr), codegen::kPartialSums);
  EXPECT_EQ(rows.launch.phases.size(), 1u);
  EXPECT_EQ(rows.launch.phases[0].threads_x * rows.launch.phases[0].threads_y, 256);
  const codegen::CudaPlan sums = codegen::PlanCuda(joined.after[1].kernel, /*wide=*/false);
  EXPECT_EQ(sums.kernel.sizes, (c10::DimVector{768, codegen::kPartialSums}));
  EXPECT_EQ(sums.launch.phases.size(), 1u) << "one launch for all that is put together";
  EXPECT_TRUE(joined.after[2].kernel.insts.empty()) << "it is part of the other one";
}

// Rows of several warps have a barrier of their own each, and not all of them go round equally often.
TEST(PartialSums, AllThreadsPassEquallyManyBarriers) {
  for (const std::string rows : {"8192", "9001"}) {
    const Joined joined = Join(LayerNormBackward(rows));
    const codegen::CudaPlan plan = codegen::PlanCuda(joined.after[0].kernel, /*wide=*/false);
    ASSERT_GT(plan.launch.phases[0].threads_x, 32);
    ASSERT_GT(plan.launch.phases[0].threads_y, 1);
    const std::string text = codegen::EmitCuda(plan);
    const size_t loop = text.find("for (U k ="), caught_up = text.find("if (last > 0 && threadIdx.y >= last)");
    const size_t end = text.find('}', std::min(caught_up, text.size()));
    ASSERT_NE(loop, std::string::npos) << text;
    ASSERT_NE(end, std::string::npos) << text;
    const int in_loop = CountOf(text.substr(loop, caught_up - loop), "row_barrier(");
    EXPECT_GE(in_loop, 1);
    EXPECT_EQ(in_loop, CountOf(text.substr(caught_up, end - caught_up), "row_barrier(")) << text;
  }
}

TEST(PartialSums, Compile) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const char* columns : {"32", "100", "257", "768", "2048", "4096"}) {
    const Joined joined = Join(LayerNormBackward("65537", columns));
    EXPECT_EQ(joined.partial_bytes.size(), 3u) << columns;
    for (const LoweredGroup& lowered : joined.after) {
      if (lowered.kernel.insts.empty()) continue;
      const auto code = codegen::CompileCuda(codegen::EmitCuda(codegen::PlanCuda(lowered.kernel, /*wide=*/false)), "sm_80", false);
      EXPECT_TRUE(code.ok()) << code.status();
    }
  }
}

TEST(PartialSums, ValuesAreThoseOfKernelsOfTheirOwn) {
  for (const bool combine : {false, true}) {
    const Joined joined = Join(LayerNormBackward("1900", "32"), combine);
    ASSERT_EQ(joined.partial_bytes.size(), 3u);
    Memory expected(7), actual(7);
    for (const LoweredGroup& lowered : joined.before) RunReference(lowered.kernel, expected.Of(lowered).data(), nullptr);
    for (const LoweredGroup& lowered : joined.before) (void)actual.Of(lowered);  // In the same order.
    for (const LoweredGroup& lowered : joined.after) RunReference(lowered.kernel, actual.Of(lowered).data(), nullptr);
    int compared = 0;
    for (const LoweredGroup& lowered : joined.before) {
      for (size_t b = 0; b < lowered.buffers.size(); ++b) {
        if (!lowered.buffers[b].written) continue;
        ++compared;
        ExpectNear(expected.At(lowered.buffers[b].memory), actual.At(lowered.buffers[b].memory), lowered.kernel.buffers[b].dtype);
      }
    }
    EXPECT_EQ(compared, 5);
  }
}

// The kernels of `joined.before` with rows that are a symbol, which is `number` in the graph.
std::vector<LoweredGroup> WithSymbolicRows(const Joined& joined, int64_t number) {
  std::vector<LoweredGroup> symbolic = joined.before;
  for (LoweredGroup& lowered : symbolic) {
    const auto kernel = codegen::ParseKernel(absl::StrReplaceAll(
        PrintKernel(lowered.kernel),
        {{"[8192, 768] reduce 1", "[s0, 768] reduce 1 symbols [8192]"}, {"[768, 8192] reduce 1", "[768, s0] reduce 1 symbols [8192]"}}));
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    lowered.kernel = *kernel;
    lowered.symbols = {number};
  }
  return symbolic;
}

TEST(PartialSums, NumbersOfRowsMayBeSymbols) {
  const Joined joined = Join(LayerNormBackward());
  std::vector<LoweredGroup> symbolic = WithSymbolicRows(joined, 13);
  std::vector<int64_t> partial_bytes;
  ASSERT_TRUE(JoinColumnSums(&symbolic[0], &symbolic[1], &partial_bytes));
  EXPECT_EQ(symbolic[0].symbols, std::vector<int64_t>{13});
  EXPECT_TRUE(symbolic[1].symbols.empty()) << "the number of parts is known";
  EXPECT_TRUE(absl::StartsWith(PrintKernel(symbolic[1].kernel), "kernel [768, 264] reduce 1\n")) << PrintKernel(symbolic[1].kernel);
  std::vector<LoweredGroup> others = WithSymbolicRows(joined, 17);
  EXPECT_FALSE(JoinColumnSums(&symbolic[0], &others[2], &partial_bytes)) << "of another number of rows";
}

TEST(PartialSums, TextReadsBack) {
  const Joined joined = Join(LayerNormBackward());
  const std::string text = PrintKernel(joined.after[0].kernel);
  EXPECT_TRUE(absl::StrContains(text, " = partial_sum.Float b8, ")) << text;
  const auto parsed = codegen::ParseKernel(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(PrintKernel(*parsed), text);
}

TEST(PartialSums, NotOfFewRowsNorOfWideOnes) {
  for (const auto& [rows, columns] : std::vector<std::pair<const char*, const char*>>{{"1600", "768"}, {"8192", "5000"}}) {
    const Joined joined = Join(LayerNormBackward(rows, columns));
    EXPECT_TRUE(joined.partial_bytes.empty()) << rows << " " << columns;
    for (size_t g = 0; g < joined.before.size(); ++g) {
      EXPECT_EQ(PrintKernel(joined.after[g].kernel), PrintKernel(joined.before[g].kernel));
    }
  }
}

TEST(PartialSums, AKernelOfPartialSumsMustHoldThem) {
  const Joined joined = Join(LayerNormBackward());
  codegen::KernelIR kernel = joined.after[0].kernel;
  EXPECT_TRUE(VerifyKernel(kernel).ok());
  kernel.buffers[8].strides = {768, 1};
  EXPECT_FALSE(VerifyKernel(kernel).ok()) << "it varies over rows";
  kernel.buffers[8].strides = {0, 1};
  kernel.buffers[8].written = false;
  EXPECT_FALSE(VerifyKernel(kernel).ok());
}

// The group that sums the columns of `%12` comes right after the one that makes it, though a product of its rows comes between them.
TEST(ColumnSums, ComeAfterTheirRows) {
  std::string text = LayerNormBackward();
  const std::string sum = "%13 bf16[1,768]";
  text.insert(text.find("%7 f32"), "storage %15: input cuda:0\nstorage %16: fresh 12582912 bytes cuda:0 live\n");
  text.insert(text.find(sum), "%16 bf16[8192,768] = aten::mm(%12 bf16[8192,768], %15 bf16[768,768])\n");
  for (const char* pass : {"fuse", "column_sums"}) {
    const Graph graph = ReadableGpuGraph(text, pass);
    std::vector<bool> kernels;
    for (const codegen::Group& group : graph.groups) kernels.push_back(group.is_kernel());
    EXPECT_EQ(kernels,
              std::string(pass) == "fuse" ? (std::vector<bool>{true, true, false, true}) : (std::vector<bool>{true, true, true, false}));
    if (std::string(pass) == "fuse") continue;
    EXPECT_EQ(graph.groups[0].reduced, (std::vector<bool>{false, true}));
    EXPECT_EQ(graph.groups[1].reduced, (std::vector<bool>{true, false}));
    EXPECT_EQ(graph.groups[2].reduced, (std::vector<bool>{true, false}));
  }
}

// What is read before it is overwritten stays before.
TEST(ColumnSums, NotWhereSomethingBetweenForbidsIt) {
  for (const bool overwrites : {false, true}) {
    const std::string text = absl::StrCat(R"(trace scalars=0 offsets=0
storage %0: input cuda:0 mutated
storage %1: input cuda:0
storage %2: fresh 25165824 bytes cuda:0
storage %3: fresh 3072 bytes cuda:0 live
storage %4: fresh 25165824 bytes cuda:0
storage %5: fresh 25165824 bytes cuda:0 live
storage %6: input cuda:0 mutated
%2 f32[8192,768] = aten::mul.Tensor(%0 f32[8192,768], %1 f32[8192,768])
%3 f32[768] = aten::sum.dim_IntList(%2 f32[8192,768], dim=[0], keepdim=false, dtype=none)
aten::i0_()",
                                          overwrites ? "%0" : "%6", R"( f32[8192,768])
%4 f32[8192,768] = aten::add.Tensor(%0 f32[8192,768], %1 f32[8192,768], alpha=1)
%5 f32[8192,768] = aten::_softmax(%4 f32[8192,768], dim=1, half_to_float=false)
)");
    const Graph graph = ReadableGpuGraph(text, "column_sums");
    ASSERT_EQ(graph.groups.size(), 3u);
    EXPECT_EQ(graph.groups[0].is_kernel() && graph.groups[0].reduced == (std::vector<bool>{true, false}), overwrites);
    EXPECT_EQ(graph.groups[1].is_kernel(), !overwrites);
  }
}

}  // namespace
}  // namespace lazuli::testing
