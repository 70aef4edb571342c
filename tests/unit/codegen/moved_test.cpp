// What is rolled and flipped on a GPU, whose kernels read each point where it comes from: run by the CPU's compiler, against ATen.
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad3d.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/slice_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "codegen/kernel_compiler.h"
#include "tests/support/gpu_graph.h"
#include "tests/support/nvrtc.h"

namespace lazuli::testing {
namespace {

// What the trace `text`, which is one kernel, makes of `self`, in a tensor of these sizes.
at::Tensor Computed(const std::string& text, const at::Tensor& self, at::IntArrayRef sizes) {
  const auto graph = GpuGraph(text);
  const at::Tensor result = at::full(sizes, NAN);
  EXPECT_TRUE(graph.ok()) << graph.status() << text;
  if (!graph.ok()) return result;
  EXPECT_EQ(graph->groups.size(), 1u) << "one kernel with what uses it";
  const auto lowered = LowerFirstGroup(text);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  if (!lowered.ok()) return result;
  const auto kernel = codegen::CompileKernel(lowered->kernel, {"avx2", "eager"}, nullptr);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return result;
  std::vector<void*> buffers;
  for (const codegen::KBuffer& buffer : lowered->kernel.buffers) {
    buffers.push_back(buffer.written ? result.mutable_data_ptr() : self.data_ptr());
  }
  (*kernel)->Run(buffers.data(), nullptr, nullptr);
  if (!codegen::NvrtcVersion().ok()) return result;
  const auto code = codegen::CompileCuda(codegen::EmitCuda(codegen::PlanCuda(lowered->kernel, false)), "sm_90", false);
  EXPECT_TRUE(code.ok()) << code.status();
  return result;
}

// The trace `text` is one kernel that makes the square of `expected` of `self`.
void ExpectKernel(const std::string& text, const at::Tensor& self, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(Computed(text, self, expected.sizes()), expected * expected)) << text;
}

// A call of [6, 5, 8] floats, squared, is one kernel, and what that gives.
void ExpectMoved(const std::string& call, const std::string& arguments, const at::Tensor& self, const at::Tensor& expected) {
  const std::string text = absl::StrCat(
      "\ntrace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: fresh 960 bytes cuda:0\nstorage %2: fresh 960 bytes cuda:0 "
      "live\n",
      "%1 f32[6,5,8] = ", call, "(%0 f32[6,5,8](", absl::StrJoin(self.strides(), ","), "), ", arguments, ")\n",
      "%2 f32[6,5,8] = aten::mul.Tensor(%1 f32[6,5,8], %1 f32[6,5,8])\n");
  ExpectKernel(text, self, expected);
}

// A call with floats, squared, is one kernel, and what that gives.
void ExpectImage(const std::string& call, const std::string& arguments, const at::Tensor& self, const at::Tensor& expected) {
  const std::string sizes = absl::StrJoin(expected.sizes(), ","), from = absl::StrJoin(self.sizes(), ",");
  const std::string memory = absl::StrCat("fresh ", expected.numel() * 4, " bytes cuda:0");
  ExpectKernel(absl::StrCat("\ntrace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: ", memory, "\nstorage %2: ", memory,
                            " live\n%1 f32[", sizes, "] = ", call, "(%0 f32[", from, "](", absl::StrJoin(self.strides(), ","), "), ",
                            arguments, ")\n%2 f32[", sizes, "] = aten::mul.Tensor(%1 f32[", sizes, "], %1 f32[", sizes, "])\n"),
               self, expected);
}

TEST(MovedTest, ImagesAreReadWhereTheirPointsComeFrom) {
  const at::Tensor dense = at::arange(120, at::kFloat).view({2, 3, 4, 5}),
                   channels_last = at::arange(120, at::kFloat).view({2, 4, 5, 3}).permute({0, 3, 1, 2});
  for (const at::Tensor& self : {dense, channels_last}) {
    ExpectImage("aten::reflection_pad2d", "padding=[1,2,3,0]", self, at::reflection_pad2d(self, {1, 2, 3, 0}));
    ExpectImage("aten::upsample_nearest2d", "output_size=[8,10], scales_h=none, scales_w=none", self,
                at::upsample_nearest2d(self, {8, 10}));
    ExpectImage("aten::upsample_nearest2d", "output_size=[7,3], scales_h=none, scales_w=none", self, at::upsample_nearest2d(self, {7, 3}));
    ExpectImage("aten::upsample_nearest2d", "output_size=[28,205], scales_h=none, scales_w=none", self,
                at::upsample_nearest2d(self, {28, 205}));
  }
}

TEST(MovedTest, BordersAreReflectedOrRepeatedInOneToThreeDimensions) {
  const at::Tensor image = at::arange(120, at::kFloat).view({2, 3, 4, 5}), rows = image.select(0, 1), volume = image.view({2, 3, 2, 2, 5});
  ExpectImage("aten::reflection_pad1d", "padding=[3,1]", rows, at::reflection_pad1d(rows, {3, 1}));
  ExpectImage("aten::reflection_pad3d", "padding=[1,2,1,0,0,1]", volume, at::reflection_pad3d(volume, {1, 2, 1, 0, 0, 1}));
  ExpectImage("aten::replication_pad1d", "padding=[3,9]", rows, at::replication_pad1d(rows, {3, 9}));
  ExpectImage("aten::replication_pad2d", "padding=[1,2,7,0]", image, at::replication_pad2d(image, {1, 2, 7, 0}));
  ExpectImage("aten::replication_pad2d", "padding=[-1,2,0,-2]", image, at::replication_pad2d(image, {-1, 2, 0, -2}));
  ExpectImage("aten::replication_pad3d", "padding=[0,2,1,0,3,1]", volume, at::replication_pad3d(volume, {0, 2, 1, 0, 3, 1}));
}

// Kernel, dilation, padding and stride of windows.
struct Windows {
  std::vector<int64_t> kernel, dilation, padding, stride;

  std::string Text() const {
    return absl::StrCat("kernel_size=[", absl::StrJoin(kernel, ","), "], dilation=[", absl::StrJoin(dilation, ","), "], padding=[",
                        absl::StrJoin(padding, ","), "], stride=[", absl::StrJoin(stride, ","), "]");
  }
};

TEST(MovedTest, WindowsAreColumnsAndColumnsAddUpToImages) {
  const at::Tensor image = at::arange(120, at::kFloat).remainder(11).view({2, 3, 4, 5});
  const at::Tensor channels_last = image.contiguous(at::MemoryFormat::ChannelsLast);
  const std::vector<Windows> all = {{{3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                    {{2, 3}, {1, 2}, {0, 2}, {2, 1}},
                                    {{1, 2}, {1, 1}, {0, 0}, {3, 2}},
                                    {{2, 2}, {3, 1}, {1, 1}, {1, 3}},
                                    {{4, 5}, {1, 1}, {0, 0}, {1, 1}}};
  for (const Windows& w : all) {
    const at::Tensor columns = at::im2col(image, w.kernel, w.dilation, w.padding, w.stride);
    for (const at::Tensor& self : {image, channels_last, image.select(0, 1)}) {
      ExpectImage("aten::im2col", w.Text(), self, at::im2col(self, w.kernel, w.dilation, w.padding, w.stride));
    }
    for (const at::Tensor& self : {columns, columns.transpose(1, 2).contiguous().transpose(1, 2), columns.select(0, 0)}) {
      ExpectImage("aten::col2im", absl::StrCat("output_size=[4,5], ", w.Text()), self,
                  at::col2im(self, {4, 5}, w.kernel, w.dilation, w.padding, w.stride));
    }
  }
}

// The gradient of [2, 3, 4, 5] floats that became [2, 3, `rows`, `columns`], with the scales that are written so.
std::string RepeatedPixelsGradient(const at::Tensor& gradient, const std::string& scales) {
  return absl::StrCat("\ntrace scalars=1 offsets=0\nstorage %0: input cuda:0\nstorage %1: fresh 480 bytes cuda:0\n",
                      "storage %2: fresh 480 bytes cuda:0 live\n%1 f32[2,3,4,5] = aten::upsample_nearest2d_backward(%0 f32[",
                      absl::StrJoin(gradient.sizes(), ","), "](", absl::StrJoin(gradient.strides(), ","), "), output_size=[",
                      gradient.size(2), ",", gradient.size(3), "], input_size=[2,3,4,5], ", scales,
                      ")\n%2 f32[2,3,4,5] = aten::mul.Tensor(%1 f32[2,3,4,5], %1 f32[2,3,4,5])\n");
}

TEST(MovedTest, GradientsOfRepeatedPixelsAreSumsOfBlocks) {
  for (const auto& [rows, columns] : {std::pair(2, 2), std::pair(1, 3), std::pair(6, 9)}) {
    const at::Tensor dense = at::arange(120 * rows * columns, at::kFloat).remainder(7).view({2, 3, 4 * rows, 5 * columns});
    const at::Tensor expected = at::upsample_nearest2d_backward(dense, {4 * rows, 5 * columns}, {2, 3, 4, 5});
    const std::string scales = absl::StrCat("scales_h=", rows, ".0, scales_w=", columns, ".0");
    ExpectKernel(RepeatedPixelsGradient(dense, "scales_h=none, scales_w=none"), dense, expected);
    ExpectKernel(RepeatedPixelsGradient(dense, scales), dense, expected);
    const at::Tensor channels_last = dense.contiguous(at::MemoryFormat::ChannelsLast);
    ExpectKernel(RepeatedPixelsGradient(channels_last, scales), channels_last, expected);
  }
}

TEST(MovedTest, GradientsOfPixelsThatAreNotRepeatedEquallyAreLeftToAten) {
  const at::Tensor twice = at::empty({2, 3, 8, 10}), more = at::empty({2, 3, 9, 10});
  const auto groups = [](const std::string& text) {
    const auto graph = GpuGraph(text);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? graph->groups.size() : 0;
  };
  EXPECT_EQ(groups(RepeatedPixelsGradient(twice, "scales_h=2.0, scales_w=2.0")), 1u);
  EXPECT_EQ(groups(RepeatedPixelsGradient(more, "scales_h=none, scales_w=none")), 2u);
  EXPECT_EQ(groups(RepeatedPixelsGradient(at::empty({2, 3, 4, 205}), "scales_h=none, scales_w=none")), 2u) << "41 times 1/41 is below 1";
  EXPECT_EQ(groups(RepeatedPixelsGradient(twice, "scales_h=2.1, scales_w=2.0")), 2u) << "a scale that was given counts";
  EXPECT_EQ(groups(RepeatedPixelsGradient(twice, "scales_h=2.0, scales_w=#0:f64")), 2u) << "one that is not known";
}

TEST(MovedTest, RollsAndFlipsAreReadWhereTheyComeFrom) {
  const at::Tensor dense = at::arange(240, at::kFloat).view({6, 5, 8}),
                   turned = at::arange(240, at::kFloat).view({8, 6, 5}).permute({1, 2, 0});
  for (const at::Tensor& self : {dense, turned}) {
    ExpectMoved("aten::roll", "shifts=[2], dims=[0]", self, self.roll({2}, {0}));
    ExpectMoved("aten::roll", "shifts=[-1], dims=[2]", self, self.roll({-1}, {2}));
    ExpectMoved("aten::roll", "shifts=[13,-7], dims=[1,-1]", self, self.roll({13, -7}, {1, -1}));
    ExpectMoved("aten::roll", "shifts=[0], dims=[1]", self, self);
    ExpectMoved("aten::flip", "dims=[2]", self, self.flip({2}));
    ExpectMoved("aten::flip", "dims=[0,-2]", self, self.flip({0, -2}));
  }
}

// Of whole numbers, which add up to the same in any order.
TEST(MovedTest, SmallProductsAreAddedUpWhereTheyAreUsed) {
  const auto expect = [](const std::string& product, const at::Tensor& self, const at::Tensor& expected) {
    const std::string shape = absl::StrCat("f32[", absl::StrJoin(expected.sizes(), ","), "]"),
                      memory = absl::StrCat("fresh ", expected.numel() * 4, " bytes cuda:0");
    ExpectKernel(
        absl::StrCat("\ntrace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: ", memory, "\nstorage %2: ", memory, " live\n%1 ",
                     shape, " = aten::", product, "\n%2 ", shape, " = aten::mul.Tensor(%1 ", shape, ", %1 ", shape, ")\n"),
        self, expected);
  };
  const at::Tensor many = at::arange(5 * 4 * 3, at::kFloat).remainder(7).view({5, 4, 3}), few = many.view({20, 3}),
                   one = at::arange(6, at::kFloat).view({6, 1});
  expect("bmm(%0 f32[5,4,3], %0 f32[5,3,4](12,1,3))", many, many.bmm(many.transpose(1, 2)));
  expect("bmm(%0 f32[5,3,4](12,1,3), %0 f32[5,4,3](0,3,1))", many, many.transpose(1, 2).bmm(many.select(0, 0).expand({5, 4, 3})));
  expect("mm(%0 f32[20,3], %0 f32[3,2](1,3))", few, few.mm(few.slice(0, 0, 2).t()));
  expect("mm(%0 f32[2,3], %0 f32[3,20](1,3))", few, few.slice(0, 0, 2).mm(few.t()));
  expect("mm(%0 f32[6,1], %0 f32[1,6])", one, one.mm(one.t()));
}

TEST(MovedTest, SmallProductsOfZerosAreZero) {
  const at::Tensor self = at::full({4, 2}, -1.0f);
  self.select(0, 0).fill_(0);
  const at::Tensor product = Computed(
      "trace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: fresh 64 bytes cuda:0 live\n"
      "%1 f32[4,4] = aten::mm(%0 f32[4,2], %0 f32[2,4](1,2))\n",
      self, {4, 4});
  EXPECT_TRUE(at::equal(at::signbit(product), at::signbit(self.mm(self.t())))) << product;
}

TEST(MovedTest, LargeProductsAreTheLibrarys) {
  const auto groups = [](const std::string& x, const std::string& y, const std::string& result, const std::string& device) {
    const auto graph = GpuGraph(absl::StrCat("\ntrace scalars=0 offsets=0\nstorage %0: input ", device, "\nstorage %1: input ", device,
                                             "\nstorage %2: fresh 4096 bytes ", device, " live\n%2 f32[", result, "] = aten::mm(%0 f32[", x,
                                             "], %1 f32[", y, "])\n"));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() && graph->groups.at(0).is_kernel();
  };
  EXPECT_TRUE(groups("64,8", "8,8", "64,8", "cuda:0"));
  EXPECT_FALSE(groups("64,9", "9,8", "64,8", "cuda:0")) << "adds up more";
  EXPECT_FALSE(groups("16,8", "8,16", "16,16", "cuda:0")) << "has more rows and columns";
  EXPECT_FALSE(groups("64,8", "8,8", "64,8", "cpu"));
}

TEST(MovedTest, GradientsOfSlicesInSteps) {
  const at::Tensor gradient = at::arange(24, at::kFloat).view({4, 6}) + 1;
  const auto expect = [&](at::IntArrayRef sizes, int64_t dim, int64_t start, int64_t step) {
    const std::string shape = absl::StrJoin(sizes, ","), memory = absl::StrCat("fresh ", sizes[0] * sizes[1] * 4, " bytes cuda:0");
    ExpectKernel(absl::StrCat("\ntrace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: ", memory, "\nstorage %2: ", memory,
                              " live\n%1 f32[", shape, "] = aten::slice_backward(%0 f32[4,6], input_sizes=[", shape, "], dim=", dim,
                              ", start=", start, ", end=9223372036854775807, step=", step, ")\n%2 f32[", shape,
                              "] = aten::mul.Tensor(%1 f32[", shape, "], %1 f32[", shape, "])\n"),
                 gradient, at::slice_backward(gradient, sizes, dim, start, std::numeric_limits<int64_t>::max(), step));
  };
  expect({4, 12}, 1, 0, 2);
  expect({4, 12}, 1, 1, 2);
  expect({4, 17}, 1, 1, 3);
  expect({4, 16}, 1, -16, 3);
  expect({7, 6}, 0, 0, 2);
  expect({8, 6}, 0, 0, 2);
  expect({21, 6}, -2, 2, 5);
  const at::Tensor row = gradient.slice(0, 0, 1);
  const std::string text =
      "trace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: fresh 96 bytes cuda:0\nstorage %2: fresh 96 bytes cuda:0 live\n"
      "%1 f32[4,6] = aten::slice_backward(%0 f32[1,6], input_sizes=[4,6], dim=0, start=3, end=9223372036854775807, "
      "step=9223372036854775807)\n%2 f32[4,6] = aten::mul.Tensor(%1 f32[4,6], %1 f32[4,6])\n";
  at::Tensor far = at::zeros({4, 6});
  far.select(0, 3).copy_(row.select(0, 0));
  ExpectKernel(text, row, far);
}

// What is written must have been read by all points before.
TEST(MovedTest, AreNotReadWhereTheKernelWrites) {
  for (const char* call : {"aten::roll(%0 f32[64], shifts=[1], dims=[0])", "aten::flip(%0 f32[64], dims=[0])"}) {
    const auto graph =
        GpuGraph(absl::StrCat("\ntrace scalars=0 offsets=0\nstorage %0: input cuda:0 live\nstorage %1: fresh 256 bytes cuda:0\n",
                              "%1 f32[64] = ", call, "\naten::add_.Tensor(%0 f32[64], %1 f32[64], alpha=1)\n"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->groups.size(), 2u) << codegen::PrintGraph(*graph);
  }
}

}  // namespace
}  // namespace lazuli::testing
