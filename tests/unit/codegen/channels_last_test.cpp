// Windows of images, in row-major order and channels last: the same elements.
#include "codegen/passes/channels_last.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "codegen/lower.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kSizes[] = {3, 8, 6, 4};

TensorRef RefTo(const at::Tensor& x) {
  TensorRef ref;
  ref.storage = 0;
  ref.dtype = x.scalar_type();
  ref.sizes = c10::DimVector(x.sizes());
  ref.strides = c10::DimVector(x.strides());
  return ref;
}

// Whether the window is one of an image that lies channels last; fails where that has other elements.
bool Follows(const at::Tensor& image, const at::Tensor& window) {
  Graph graph;
  TensorRef use = RefTo(window);
  if (window.storage_offset() != 0) use.SetOffset(AddOffset(&graph, -1, {window.storage_offset()}));
  const TensorRef layout = RefTo(image);
  if (!FollowsToChannelsLast(graph, use, layout)) return false;
  const TensorRef moved = InChannelsLast(&graph, use, layout);
  int64_t offset = 0;
  if (moved.offset_slot != -1) {
    for (const int64_t term : graph.offset_sums[static_cast<size_t>(moved.offset_slot - graph.num_offsets)].terms) offset += term;
  }
  const at::Tensor turned = image.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor same = turned.as_strided(c10::IntArrayRef(moved.sizes), c10::IntArrayRef(moved.strides), offset);
  EXPECT_TRUE(at::equal(window, same)) << window.sizes() << window.strides() << window.storage_offset();
  return true;
}

at::Tensor Image() { return at::arange(3 * 8 * 6 * 4, at::kFloat).view(kSizes); }

TEST(ChannelsLastTest, WholePartsAndBlocks) {
  const at::Tensor x = Image();
  const std::vector<at::Tensor> windows = {x,
                                           x.permute({0, 2, 3, 1}),
                                           x.narrow(1, 3, 4),
                                           x.narrow(0, 1, 2),
                                           x.narrow(3, 1, 2),
                                           x.narrow(1, 0, 4),
                                           x.select(1, 5),
                                           x.select(2, 3),
                                           x.flatten(2),
                                           x.flatten(2).transpose(1, 2),
                                           x.view({3, 2, 4, 6, 4}),
                                           x.view({3, 8, 3, 2, 2, 2}),
                                           x.view({3, 2, 4, 3, 2, 4}).permute({0, 3, 1, 5, 2, 4}),
                                           x.narrow(1, 4, 4).view({3, 4, 3, 2, 2, 2}),
                                           x.unsqueeze(2).expand({3, 8, 5, 6, 4})};
  for (size_t i = 0; i < windows.size(); ++i) EXPECT_TRUE(Follows(x, windows[i])) << i;
}

TEST(ChannelsLastTest, WhatIsNoWindowThere) {
  const at::Tensor x = Image();
  EXPECT_FALSE(Follows(x, x.flatten())) << "channels are not next to their neighbours";
  EXPECT_FALSE(Follows(x, x.flatten(1)));
  EXPECT_FALSE(Follows(x, x.diagonal(0, 2, 3)));
  EXPECT_FALSE(Follows(x, x.narrow(1, 2, 3).narrow(2, 1, 2))) << "parts along two dimensions, of which an offset says one";
  EXPECT_FALSE(Follows(x, x.slice(2, 0, 6, 2))) << "every other row";
  EXPECT_FALSE(Follows(x, x.flatten(2).narrow(2, 3, 12)));
  EXPECT_FALSE(Follows(x, x.unfold(3, 2, 1))) << "neighbours overlap";
}

// Rows that are a symbol: whole ones and known parts of other dimensions follow, and a part whose end is not known does not.
TEST(ChannelsLastTest, Symbols) {
  Graph graph;
  graph.symbols = runtime::SymbolTable::Make({6}, {3, 8, 4, 2, 32, 64, 192});
  const int64_t rows = graph.symbols.prime(0), plane = rows * 4;
  TensorRef layout;
  layout.storage = 0;
  layout.dtype = at::kFloat;
  layout.sizes = {3, 8, rows, 4};
  layout.strides = {8 * plane, plane, 4, 1};
  const auto window = [&](c10::DimVector sizes, c10::DimVector strides, const std::vector<int64_t>& offset) {
    TensorRef use = layout;
    use.sizes = std::move(sizes);
    use.strides = std::move(strides);
    if (!offset.empty()) use.SetOffset(AddOffset(&graph, -1, offset));
    return use;
  };
  const TensorRef channels = window({3, 2, rows, 4}, layout.strides, {2 * plane, 4 * plane});
  ASSERT_TRUE(FollowsToChannelsLast(graph, channels, layout));
  const TensorRef moved = InChannelsLast(&graph, channels, layout);
  EXPECT_EQ(moved.strides, (c10::DimVector{8 * plane, 1, 32, 8}));
  EXPECT_EQ(graph.offset_sums.back().terms, (std::vector<int64_t>{2, 4}));
  const TensorRef pixels = window({3, 8, plane}, {8 * plane, plane, 1}, {});
  ASSERT_TRUE(FollowsToChannelsLast(graph, pixels, layout));
  EXPECT_EQ(InChannelsLast(&graph, pixels, layout).strides, (c10::DimVector{8 * plane, 1, 8}));
  EXPECT_TRUE(FollowsToChannelsLast(graph, window({3, 8, rows, 2, 2}, {8 * plane, plane, 4, 2, 1}, {}), layout));
  EXPECT_FALSE(FollowsToChannelsLast(graph, window({3, 8, 12}, {8 * plane, plane, 1}, {}), layout)) << "12 of an unknown number of pixels";
  EXPECT_FALSE(FollowsToChannelsLast(graph, window({3, 2, rows, 4}, layout.strides, {2 * plane + 4}), layout)) << "between channels";
}

// One row and one channel: strides that two dimensions share.
TEST(ChannelsLastTest, DimensionsOfOne) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{3, 8, 1, 4}, {3, 1, 6, 4}, {1, 8, 6, 4}, {3, 8, 6, 1}, {1, 8, 1, 4}}) {
    const at::Tensor x = at::arange(sizes[0] * sizes[1] * sizes[2] * sizes[3], at::kFloat).view(sizes);
    for (const at::Tensor& window : {x, x.permute({0, 2, 3, 1}), x.flatten(2), x.narrow(1, 0, 1), x.select(1, 0), x.select(2, 0)}) {
      EXPECT_TRUE(Follows(x, window)) << x.sizes() << window.sizes();
    }
  }
}

TEST(ChannelsLastTest, MoreThanThereIsOfADimensionOfOne) {
  const at::Tensor x = at::arange(96, at::kFloat).view({3, 8, 1, 4});
  EXPECT_FALSE(Follows(x, x.as_strided({3, 4, 4, 4}, {32, 4, 4, 1}))) << "channels that overlap";
}

// Chains of views, of which some follow.
TEST(ChannelsLastTest, RandomViews) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto draw = [&](int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random); };
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> steps = {
      [&](const at::Tensor& x) { return x.transpose(draw(x.dim()), draw(x.dim())); },
      [&](const at::Tensor& x) {
        const int64_t d = draw(x.dim()), begin = draw(x.size(d));
        return x.narrow(d, begin, 1 + draw(x.size(d) - begin));
      },
      [&](const at::Tensor& x) { return x.dim() > 1 ? x.select(0, draw(x.size(0))) : x; },
      [&](const at::Tensor& x) { return x.unsqueeze(draw(x.dim() + 1)); },
      [&](const at::Tensor& x) {
        const int64_t d = draw(x.dim());
        return x.size(d) % 2 == 0 ? x.unflatten(d, {2, x.size(d) / 2}) : x;
      },
      [&](const at::Tensor& x) {
        const int64_t d = draw(x.dim());
        return x.size(d) % 2 == 0 ? x.unflatten(d, {x.size(d) / 2, 2}) : x;
      },
      [&](const at::Tensor& x) {
        const int64_t d = draw(x.dim());
        return d + 1 < x.dim() && x.stride(d) == x.stride(d + 1) * x.size(d + 1) ? x.flatten(d, d + 1) : x;
      },
  };
  int followed = 0;
  for (int round = 0; round < 3000; ++round) {
    const at::Tensor all = Image(), image = draw(2) == 0 ? all : all.narrow(draw(4), 0, 1).contiguous();
    at::Tensor view = image;
    for (int64_t left = 1 + draw(4); left > 0; --left) view = steps[static_cast<size_t>(draw(static_cast<int64_t>(steps.size())))](view);
    followed += Follows(image, view) ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round;
  }
  EXPECT_GT(followed, 500) << "seed " << seed;
}

}  // namespace
}  // namespace lazuli::codegen
