// lazuli::_random against the loops of ATen's kernels, thread by thread, with LibTorch's own Philox engine.
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/kernel_compiler.h"
#include "codegen/random_ops.h"
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
using lazuli::testing::UniformOf;

constexpr uint64_t kSeed = 0x9E3779B97F4A7C15, kOffset = 8;

struct RandomCase {
  Distribution distribution = Distribution::kUniform;
  double a = 0, b = 1;
  int64_t elements = 1000;
  int64_t threads = 256;  // That ATen launches.
  std::string window = "f32[1000]";
};

std::string RandomTrace(const RandomCase& c) {
  const std::string type = c.window.substr(0, c.window.find('['));
  return absl::StrCat("\ntrace scalars=4 offsets=0\nstorage %0: input cuda:0\nstorage %1: fresh ", c.elements * (type == "f32" ? 4 : 2),
                      " bytes cuda:0 live\n%1 ", c.window, " = lazuli::_random(%0 ", c.window,
                      ", distribution=", static_cast<int64_t>(c.distribution), ", threads=", c.elements > c.threads ? c.threads : 0,
                      ", seed=#0:i64, offset=#1:i64, a=#2:f64, b=#3:f64)\n");
}

LoweredGroup Lowered(const RandomCase& c) {
  auto lowered = LowerFirstGroup(RandomTrace(c));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernel.buffers.size(), 1u) << "what it is like is not read";
  EXPECT_TRUE(VerifyKernel(lowered->kernel).ok()) << VerifyKernel(lowered->kernel);
  return *std::move(lowered);
}

template <class T>
std::vector<T> ByKernel(const RandomCase& c) {
  std::vector<T> values(static_cast<size_t>(c.elements), T(-100));
  void* buffers[] = {values.data()};
  const uint64_t numbers[] = {kSeed, kOffset, BitsOf(c.a), BitsOf(c.b)};
  const LoweredGroup lowered = Lowered(c);
  std::vector<uint64_t> scalars;
  for (const int32_t slot : lowered.scalar_slots) scalars.push_back(numbers[slot]);
  lazuli::testing::RunReference(lowered.kernel, buffers, scalars.data());
  return values;
}

// By place in memory: `value` of what a thread draws, and which of its four it is.
template <class T, class Value>
std::vector<T> ByThreads(const RandomCase& c, const Value& value) {
  std::vector<T> values(static_cast<size_t>(c.elements));
  for (int64_t thread = 0; thread < c.threads; ++thread) {
    ThreadRandom random(kSeed, static_cast<uint64_t>(thread), kOffset);
    for (int64_t first = thread; first < c.elements; first += c.threads * 4) {
      const auto bits = random.DrawBits();
      for (size_t i = 0; i < 4; ++i) {
        const int64_t element = first + static_cast<int64_t>(i) * c.threads;
        if (element < c.elements) values[static_cast<size_t>(element)] = value(bits, i);
      }
    }
  }
  return values;
}

TEST(RandomTest, UniformNumbers) {
  for (const RandomCase& c : std::vector<RandomCase>{{Distribution::kUniform, 0, 1},
                                                     {Distribution::kUniform, -3, 0.3, 4000, 512, "f32[40,100](1,40)"},
                                                     {Distribution::kUniform, 0.1, 0.7, 7, 256, "f32[7]"}}) {
    const auto from = static_cast<float>(c.a), to = static_cast<float>(c.b);
    const auto expected = ByThreads<float>(c, [&](const auto& bits, size_t i) {
      const float value = std::fmaf(UniformOf(bits[i]), to - from, from);
      return value == to ? from : value;
    });
    EXPECT_EQ(ByKernel<float>(c), expected) << RandomTrace(c);
  }
}

// The bounds are halves themselves, and so is what they are apart; what is rounded up to the upper bound is the lower one.
TEST(RandomTest, UniformHalves) {
  const RandomCase c{Distribution::kUniform, -0.3, 0.7, 3000, 256, "bf16[3000]"};
  const c10::BFloat16 from(static_cast<float>(c.a)), to(static_cast<float>(c.b));
  int at_bounds = 0;
  const auto expected = ByThreads<c10::BFloat16>(c, [&](const auto& bits, size_t i) {
    const c10::BFloat16 value(std::fmaf(UniformOf(bits[i]), static_cast<float>(to - from), static_cast<float>(from)));
    at_bounds += value == to ? 1 : 0;
    return value == to ? from : value;
  });
  EXPECT_EQ(ByKernel<c10::BFloat16>(c), expected);
  EXPECT_GT(at_bounds, 0);
}

TEST(RandomTest, NormalNumbers) {
  const RandomCase c{Distribution::kNormal, 1.5, 2, 5000, 256, "f32[5000]"};
  const auto expected = ByThreads<double>(
      c, [&](const auto& bits, size_t i) { return c.a + c.b * lazuli::testing::NormalOf(bits[i & 2], bits[i | 1], i % 2 == 1); });
  const auto values = ByKernel<float>(c);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 1e-5) << i;
    sum += values[i];
    squares += (values[i] - c.a) * (values[i] - c.a);
  }
  const auto n = static_cast<double>(c.elements);
  EXPECT_NEAR(sum / n, c.a, 0.1);
  EXPECT_NEAR(std::sqrt(squares / n), c.b, 0.1);
}

// One kernel with what uses them, of which none is stored.
TEST(RandomTest, ArePartOfTheKernelAroundThem) {
  const auto graph = GpuGraph(R"(
trace scalars=4 offsets=0
storage %0: fresh 4096 bytes cuda:0
storage %1: fresh 4096 bytes cuda:0
storage %2: fresh 4 bytes cuda:0 live
%0 f32[1024] = aten::empty.memory_format(size=[1024], dtype=6, layout=0, device=device(cuda:0), pin_memory=false, memory_format=none)
%1 f32[1024] = lazuli::_random(%0 f32[1024], distribution=1, threads=0, seed=#0:i64, offset=#1:i64, a=#2:f64, b=#3:f64)
%2 f32[] = aten::sum(%1 f32[1024], dtype=none)
)");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->groups.size(), 1u);
}

// ATen's kernel draws many, into memory of its own; what they are like is one element, seen as many.
constexpr char kManyNumbers[] = R"(
trace scalars=4 offsets=0
storage %0: fresh 4 bytes cuda:0
storage %1: fresh 4194308 bytes cuda:0
storage %2: fresh 4 bytes cuda:0 live
%0 f32[1] = aten::empty.memory_format(size=[1], dtype=6, layout=0, device=device(cuda:0), pin_memory=false, memory_format=none)
%1 f32[1048577] = lazuli::_random(%0 f32[1048577](0), distribution=1, threads=1024, seed=#0:i64, offset=#1:i64, a=#2:f64, b=#3:f64)
%2 f32[] = aten::sum(%1 f32[1048577], dtype=none)
)";

TEST(RandomTest, ManyAreDrawnByAten) {
  const auto graph = GpuGraph(kManyNumbers);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto is_draw = [&](NodeId n) { return graph->nodes[n].op.info->name == "lazuli::_random"; };
  size_t draws = 0;
  for (const Group& group : graph->groups) {
    if (!std::any_of(group.nodes.begin(), group.nodes.end(), is_draw)) continue;
    ++draws;
    EXPECT_FALSE(group.is_kernel());
  }
  EXPECT_EQ(draws, 1u);
}

TEST(RandomTest, NobodysNumbersAreNotDrawn) {
  for (std::string text : {RandomTrace({}), std::string(kManyNumbers)}) {
    text.replace(text.find(" live"), 5, "");
    const auto graph = GpuGraph(text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(graph->nodes.empty());
  }
}

TEST(RandomTest, Compile) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const RandomCase& c : std::vector<RandomCase>{{Distribution::kUniform},
                                                     {Distribution::kUniform, 0, 1, 1000, 256, "bf16[1000]"},
                                                     {Distribution::kNormal},
                                                     {Distribution::kNormal, 0, 1, 1000, 1024, "f16[1000]"}}) {
    const std::string text = EmitCuda(PlanCuda(Lowered(c).kernel, /*wide=*/false));
    const auto compiled = CompileCuda(text, "sm_80", /*contract=*/false);
    EXPECT_TRUE(compiled.ok()) << compiled.status() << text;
  }
}

}  // namespace
}  // namespace lazuli::codegen
