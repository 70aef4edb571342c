// lazuli::_dropout_mask against the loops of ATen's kernels, thread by thread, with LibTorch's own Philox engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/kernel_compiler.h"
#include "tests/support/gpu_graph.h"
#include "tests/support/kernel_reference.h"
#include "tests/support/nvrtc.h"
#include "tests/support/thread_random.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::BitsOf;
using lazuli::testing::GpuGraph;
using lazuli::testing::LowerFirstGroup;
using lazuli::testing::ThreadRandom;

constexpr uint64_t kSeed = 0x9E3779B97F4A7C15, kOffset = 8;

struct DropoutCase {
  std::string window;  // Type, sizes and strides of the tensor.
  int64_t elements = 0;
  int64_t vector = 1;
  int64_t threads = 256;
  double keep = 0.5;
  std::string mask_window = {};
};

std::string DropoutTrace(const DropoutCase& c) {
  const std::string mask = c.mask_window.empty() ? "bool" + c.window.substr(c.window.find('[')) : c.mask_window;
  return absl::StrCat("\ntrace scalars=4 offsets=0\nstorage %0: input cuda:0\nstorage %1: fresh ", c.elements, " bytes cuda:0 live\n%1 ",
                      mask, " = lazuli::_dropout_mask(%0 ", c.window, ", vector=", c.vector,
                      ", threads=#0:i64, keep=#1:f64, seed=#2:i64, offset=#3:i64)\n");
}

LoweredGroup Lowered(const DropoutCase& c) {
  auto lowered = LowerFirstGroup(DropoutTrace(c));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernel.buffers.size(), 1u) << "what it is like is not read";
  return *std::move(lowered);
}

// By place in memory; without vectors by place in the tensor.
std::vector<uint8_t> MaskByThreads(const DropoutCase& c) {
  std::vector<uint8_t> mask(c.elements, 2);
  for (int64_t thread = 0; thread < c.threads; ++thread) {
    ThreadRandom random(kSeed, static_cast<uint64_t>(thread), kOffset);
    if (c.vector == 1) {
      for (int64_t first = thread; first < c.elements; first += c.threads * 4) {
        const auto drawn = random.Draw();
        for (int64_t i = 0; i < 4; ++i) {
          if (first + i * c.threads < c.elements) mask[first + i * c.threads] = drawn[i] < static_cast<float>(c.keep);
        }
      }
      continue;
    }
    for (int64_t first = thread * c.vector; first < c.elements; first += c.threads * c.vector) {
      for (int64_t i = 0; i < c.vector; i += 4) {
        const auto drawn = random.Draw();
        for (int64_t k = 0; k < std::min<int64_t>(4, c.vector); ++k) mask[first + i + k] = drawn[k] < static_cast<float>(c.keep);
      }
    }
  }
  return mask;
}

std::vector<uint8_t> MaskByKernel(const DropoutCase& c) {
  std::vector<uint8_t> mask(c.elements, 3);
  void* buffers[] = {mask.data()};
  const uint64_t numbers[] = {static_cast<uint64_t>(c.threads), BitsOf(c.keep), kSeed, kOffset};
  const LoweredGroup lowered = Lowered(c);
  std::vector<uint64_t> scalars;
  for (const int32_t slot : lowered.scalar_slots) scalars.push_back(numbers[slot]);
  lazuli::testing::RunReference(lowered.kernel, buffers, scalars.data());
  return mask;
}

TEST(DropoutMaskTest, DrawsWhatThreadsDraw) {
  for (const DropoutCase& c : std::vector<DropoutCase>{{"bf16[4096]", 4096, 8, 256, 0.9},
                                                       {"f32[3,1024]", 3072, 4, 256, 0.1},
                                                       {"f32[2,3,171,4]", 4104, 4, 512},
                                                       {"f64[37,70]", 2590, 2, 256, 0.7},
                                                       {"f32[5]", 5, 1, 256},
                                                       {"f32[]", 1, 1, 256},
                                                       {"f16[3,7,211]", 4431, 1, 512}}) {
    const std::vector<uint8_t> expected = MaskByThreads(c);
    EXPECT_EQ(MaskByKernel(c), expected) << DropoutTrace(c);
    const auto kept = static_cast<double>(std::count(expected.begin(), expected.end(), 1)), elements = static_cast<double>(c.elements);
    if (c.elements > 1000) {
      EXPECT_NEAR(kept, c.keep * elements, 0.05 * elements);
    }
  }
}

// With vectors elements are numbered as they lie in memory; without, as they stand in the tensor.
TEST(DropoutMaskTest, LayoutsOtherThanRowMajor) {
  const DropoutCase dense{"f32[64,48](1,64)", 3072, 4, 256};
  EXPECT_EQ(MaskByKernel(dense), MaskByThreads(dense));
  const DropoutCase gaps{"f32[3,50](1,64)", 150, 1, 256, 0.5, "bool[3,50](1,3)"};
  const std::vector<uint8_t> by_place = MaskByThreads(gaps), in_memory = MaskByKernel(gaps);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 50; ++j) EXPECT_EQ(in_memory[i + 3 * j], by_place[50 * i + j]) << i << " " << j;
  }
}

// One kernel with what uses it, in both directions.
TEST(DropoutMaskTest, IsPartOfTheKernelAroundIt) {
  const auto graph = GpuGraph(R"(
trace scalars=4 offsets=0
storage %0: input cuda:0
storage %1: fresh 4096 bytes cuda:0
storage %2: fresh 1024 bytes cuda:0 live
storage %3: fresh 4096 bytes cuda:0
storage %4: fresh 4096 bytes cuda:0 live
%1 f32[32,32] = aten::exp(%0 f32[32,32])
%2 bool[32,32] = lazuli::_dropout_mask(%1 f32[32,32], vector=4, threads=#0:i64, keep=#1:f64, seed=#2:i64, offset=#3:i64)
%3 f32[32,32] = aten::native_dropout_backward(%1 f32[32,32], %2 bool[32,32], scale=2.0)
%4 f32[32,32] = aten::add.Tensor(%3 f32[32,32], %0 f32[32,32], alpha=1)
)");
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->groups.size(), 1u);
  EXPECT_EQ(graph->groups[0].nodes.size(), 4u);
}

TEST(DropoutMaskTest, NobodysMaskIsNotDrawn) {
  std::string text = DropoutTrace({"f32[32]", 32, 4});
  text.replace(text.find(" live"), 5, "");
  const auto graph = GpuGraph(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(graph->nodes.empty());
}

// The four of a draw are for lanes that lie side by side in what the mask is like, which the kernel's lanes need not.
TEST(DropoutMaskTest, LanesShareADrawWhereTheyAreNeighbours) {
  constexpr const char* kText = R"(
trace scalars=4 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: fresh 262144 bytes cuda:0
storage %3: fresh 1048576 bytes cuda:0 live
%2 bool[512,512]$ = lazuli::_dropout_mask(%0 f32[512,512]$, vector=4, threads=#0:i64, keep=#1:f64, seed=#2:i64, offset=#3:i64)
%3 f32[512,512] = aten::mul.Tensor(%1 f32[512,512], %2 bool[512,512]$)
)";
  for (const char* strides : {"", "(1,512)"}) {
    const auto lowered = LowerFirstGroup(absl::StrReplaceAll(kText, {{"$", strides}}));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const CudaPlan plan = PlanCuda(lowered->kernel, /*wide=*/false);
    EXPECT_GT(plan.lanes, 1);
    const std::string text = EmitCuda(plan);
    const size_t call = text.find("= uniform<4>(g");
    ASSERT_NE(call, std::string::npos) << text;
    const size_t lane = text.find(", ", call) + 2;
    EXPECT_EQ(text.substr(lane, text.find(",", lane) - lane), *strides == 0 ? "v" : "0") << text;
  }
}

TEST(DropoutMaskTest, IsForGpusAlone) {
  const auto compiled = CompileKernel(Lowered({"f32[32]", 32, 4}).kernel, KernelTarget(), nullptr);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(compiled.status().message(), "kernels draw random numbers on GPUs only");
}

TEST(DropoutMaskTest, Compiles) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const DropoutCase& c : std::vector<DropoutCase>{{"bf16[4096]", 4096, 8}, {"f16[3,7,211]", 4431, 1}, {"f64[64,48](1,64)", 3072, 2}}) {
    const std::string text = EmitCuda(PlanCuda(Lowered(c).kernel, /*wide=*/false));
    const auto compiled = CompileCuda(text, "sm_80", /*contract=*/false);
    EXPECT_TRUE(compiled.ok()) << compiled.status() << text;
  }
}

}  // namespace
}  // namespace lazuli::codegen
