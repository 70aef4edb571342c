// Places of maxima by bytes that say where in their window they are. Needs no GPU.
#include "codegen/passes/pool_offsets.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

// ARGS: what both say of windows.
const std::string kTraining =
    absl::StrReplaceAll(R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: fresh 16384 bytes cuda:0 live
storage %2: fresh 32768 bytes cuda:0
storage %3: fresh 16384 bytes cuda:0
storage %4: fresh 65536 bytes cuda:0 live
%1 f32[4,16,8,8], %2 i64[4,16,8,8] = aten::max_pool2d_with_indices(%0 f32[4,16,16,16], ARGS)
%3 f32[4,16,8,8] = aten::neg(%1 f32[4,16,8,8])
%4 f32[4,16,16,16] = aten::max_pool2d_with_indices_backward(%3 f32[4,16,8,8], %0 f32[4,16,16,16], ARGS, %2 i64[4,16,8,8])
)",
                        {{"ARGS", "kernel_size=[3,3], stride=[2,2], padding=[1,1], dilation=[1,1], ceil_mode=false"}});

std::string WithOffsets(const std::string& text) {
  const auto trace = codegen::ParseTrace(text);
  EXPECT_TRUE(trace.ok()) << trace.status();
  const auto changed = codegen::UsePoolOffsets(*trace);
  return changed.has_value() ? codegen::PrintTrace(*changed) : "";
}

TEST(PoolOffsets, AreBytesThatOnlyItsGradientReads) {
  const std::string changed = WithOffsets(kTraining);
  EXPECT_THAT(changed, HasSubstr("storage %2: fresh 4096 bytes"));
  EXPECT_THAT(changed, HasSubstr("%2 u8[4,16,8,8] = lazuli::_max_pool2d_with_offsets("));
  EXPECT_THAT(changed, HasSubstr("= lazuli::_max_pool2d_with_offsets_backward("));
  const std::string graph = codegen::PrintGraph(ReadableGpuGraph(kTraining, "fuse"));
  EXPECT_THAT(graph, ::testing::Not(HasSubstr("extern"))) << "kernels compute both";
}

TEST(PoolOffsets, IndicesThatSomebodySeesStay) {
  EXPECT_EQ(WithOffsets(absl::StrReplaceAll(kTraining, {{"32768 bytes cuda:0", "32768 bytes cuda:0 live"}})), "");
  EXPECT_EQ(WithOffsets(absl::StrReplaceAll(kTraining, {{"cuda:0", "cpu"}})), "") << "on CPUs";
  EXPECT_EQ(WithOffsets(absl::StrReplaceAll(kTraining, {{"stride=[2,2], padding=[1,1], dilation=[1,1], ceil_mode=false, %2",
                                                         "stride=[1,1], padding=[1,1], dilation=[1,1], ceil_mode=false, %2"}})),
            "")
      << "of another pool";
  const std::string read = kTraining + "%5 i64[4,16,8,8] = aten::neg(%2 i64[4,16,8,8])\n";
  EXPECT_EQ(WithOffsets(absl::StrReplaceAll(
                read, {{"65536 bytes cuda:0 live\n", "65536 bytes cuda:0 live\nstorage %5: fresh 32768 bytes cuda:0 live\n"}})),
            "");
}

// With kernel, stride and padding.
class PoolOffsetOps : public ::testing::TestWithParam<std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>>> {};

TEST_P(PoolOffsetOps, SayTheSameAsIndices) {
  const auto& [kernel, stride, padding] = GetParam();
  using Pool =
      std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool);
  using Gradient = at::Tensor(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                              bool, const at::Tensor&);
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto pool = dispatcher.findSchemaOrThrow("lazuli::_max_pool2d_with_offsets", "").typed<Pool>();
  const auto gradient = dispatcher.findSchemaOrThrow("lazuli::_max_pool2d_with_offsets_backward", "").typed<Gradient>();
  const at::Tensor x = at::rand({2, 3, 11, 14});
  const std::vector<int64_t> ones = {1};
  const auto [expected, indices] = at::max_pool2d_with_indices(x, kernel, stride, padding, ones, false);
  const auto [result, offsets] = pool.call(x, kernel, stride, padding, ones, false);
  EXPECT_EQ(offsets.scalar_type(), at::kByte);
  EXPECT_TRUE(at::equal(result, expected));
  const at::Tensor grad = at::rand_like(expected);
  EXPECT_TRUE(at::equal(gradient.call(grad, x, kernel, stride, padding, ones, false, offsets),
                        at::max_pool2d_with_indices_backward(grad, x, kernel, stride, padding, ones, false, indices)));
}

INSTANTIATE_TEST_SUITE_P(Windows, PoolOffsetOps,
                         ::testing::Values(std::make_tuple(std::vector<int64_t>{3}, std::vector<int64_t>{2}, std::vector<int64_t>{1}),
                                           std::make_tuple(std::vector<int64_t>{2, 3}, std::vector<int64_t>{}, std::vector<int64_t>{0, 1}),
                                           std::make_tuple(std::vector<int64_t>{4, 2}, std::vector<int64_t>{1, 3},
                                                           std::vector<int64_t>{2, 0})));

}  // namespace
}  // namespace lazuli::testing
