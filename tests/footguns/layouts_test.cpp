// Results have eager's strides, whatever those of their inputs are.

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class LayoutsTest : public BackendTest {};

TEST_P(LayoutsTest, ChannelsLastGoesThroughPointwiseAndConvolution) {
  ExpectSameAsEager([] {
    auto x = torch::randn({2, 3, 5, 6}).contiguous(torch::MemoryFormat::ChannelsLast);
    auto w = torch::randn({4, 3, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
    auto y = torch::conv2d(x, w, {}, 1, 1);
    auto bias = torch::randn({4, 1, 1});
    return Tensors{x + 1,
                   x * x,
                   x.relu(),
                   y,
                   y + bias,
                   y.contiguous(),
                   x.to(torch::kDouble),
                   torch::max_pool2d(y, 2),
                   torch::zeros_like(x) == 0,
                   x.sum(torch::IntArrayRef{2, 3}),
                   y.mean(torch::IntArrayRef{0, 2, 3}, true),
                   x + torch::randn({2, 3, 5, 6})};
  });
}

TEST_P(LayoutsTest, TransposedAndPermutedInputs) {
  ExpectSameAsEager([] {
    auto x = torch::arange(24, torch::kFloat).view({2, 3, 4});
    auto p = x.permute({2, 0, 1});
    auto t = x.transpose(0, 2);
    return Tensors{p + 1,
                   t * t,
                   p + t.permute({0, 2, 1}),
                   p.sum(0),
                   p.sum(1),
                   p.clone(),
                   p.contiguous() + 1,
                   torch::cat({p, p}, 1),
                   p.softmax(2),
                   t.exp().sum(2, true)};
  });
}

TEST_P(LayoutsTest, GapsAndBroadcastStrides) {
  ExpectSameAsEager([] {
    auto x = torch::arange(40, torch::kFloat).view({5, 8}).slice(1, 0, 8, 2);
    auto e = torch::arange(5, torch::kFloat).view({5, 1}).expand({5, 4});
    auto s = torch::empty_strided({3, 4}, {1, 5}).fill_(2);
    return Tensors{x + e,    x * 2, e * 2, e + 0, s + 1, s * s.contiguous(), x.t() + e.t(), torch::zeros_like(x), torch::ones_like(e),
                   x.flip(0)};
  });
}

TEST_P(LayoutsTest, StridesOfEmptyAndOneElementDimensions) {
  ExpectSameAsEager([] {
    auto none = torch::empty({2, 0, 3}).transpose(0, 2);
    auto one = torch::randn({4, 1, 5}).transpose(1, 2);
    auto odd = torch::randn({1, 3}).as_strided({1, 3}, {17, 1});
    return Tensors{none + 1, none.sum(1), one * 2, odd + 1, odd.t() + 1, one.squeeze(2) + 1, odd.expand({2, 3}) + odd};
  });
}

TEST_P(LayoutsTest, ReshapeCopiesOnlyWhenItMust) {
  ExpectSameAsEager([] {
    auto x = torch::arange(12, torch::kFloat).view({3, 4}) + 1;
    auto alias = x.reshape({12});
    auto copy = x.t().reshape({12});
    x.mul_(2);
    auto flat = x.t().flatten();
    return Tensors{alias, copy, flat, alias + copy, x.contiguous(), x.t().contiguous()};
  });
}

TEST_P(LayoutsTest, ManyDimensions) {
  ExpectSameAsEager([] {
    auto x = torch::arange(256, torch::kFloat).view({2, 2, 2, 2, 2, 2, 2, 2});
    auto y = x.permute({7, 0, 6, 1, 5, 2, 4, 3});
    return Tensors{x + y, y.sum(torch::IntArrayRef{1, 3, 5}), (x * y).amax(7), y.contiguous()};
  });
}

LAZULI_FOR_EACH_BACKEND(LayoutsTest);

}  // namespace
}  // namespace lazuli::testing
