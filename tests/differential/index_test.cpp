// Gathers, scatters, masks, concatenation, padding and other ops that move elements.
#include <torch/torch.h>

#include <limits>

#include "tests/support/differential.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;
using torch::indexing::None;
using torch::indexing::Slice;

// An index for dimension 0 of `x`, `count` long.
torch::Tensor Rows(const torch::Tensor& x, int64_t count) { return Indices({count}, x.size(0)); }

const std::vector<OpCase>& GatherOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("index_select", kAny, kExact, x.index_select(0, Rows(x, 5))),
      LAZULI_UNARY("index_select last", kAny, kExact, x.index_select(-1, Indices({4}, x.size(-1)))),
      LAZULI_UNARY("index", kAny, kExact, x.index({Rows(x, 5)})),
      LAZULI_UNARY("index two", kAny, kExact, x.index({Rows(x, 3), Indices({3}, x.size(1))})),
      LAZULI_UNARY("index second", kAny, kExact, x.index({Slice(), Indices({3}, x.size(1))})),
      LAZULI_UNARY("index broadcast", kAny, kExact, x.index({Rows(x, 3).unsqueeze(1), Indices({2}, x.size(1))})),
      LAZULI_UNARY("index from the end", kAny, kExact, x.index({Rows(x, 5) - x.size(0), Indices({5}, x.size(1))})),
      LAZULI_UNARY("index int", kAny, kExact, x.index({Slice(), Indices({2, 3}, x.size(1)).to(torch::kInt)})),
      LAZULI_UNARY("index apart", kAny, kExact, x.unsqueeze(1).index({Rows(x, 3), Slice(), Indices({3}, x.size(1))})),
      LAZULI_UNARY("index_select of a view", kAny, kExact, x.t().index_select(0, Indices({4}, x.size(1)).to(torch::kInt))),
      LAZULI_UNARY("gather fewer", kAny, kExact, x.gather(1, Indices({1, 4}, x.size(1)))),
      LAZULI_UNARY("gather", kAny, kExact, x.gather(0, Indices(x.sizes(), x.size(0)))),
      LAZULI_UNARY("gather last", kAny, kExact, x.gather(-1, Indices(x.sizes(), x.size(-1)))),
      LAZULI_UNARY("take", kAny, kExact, x.take(Indices({6}, x.numel()))),
      LAZULI_UNARY("take_along_dim", kAny, kExact, x.take_along_dim(Indices(x.sizes(), x.size(0)), 0)),
      LAZULI_UNARY("embedding", kAny, kExact, torch::embedding(x, Indices({3, 2}, x.size(0)))),
      LAZULI_UNARY("embedding_bag", kFinite, kReduction, std::get<0>(torch::embedding_bag(x, Indices({6}, x.size(0)), Indices({2}, 1)))),
      LAZULI_UNARY("masked_select", kFinite, kExact, x.masked_select(x > 0)),
      LAZULI_UNARY("index by mask", kFinite, kExact, x.index({x > 0})),
      LAZULI_UNARY("nonzero", kUnit, kExact, x.nonzero()),
      LAZULI_UNARY("one_hot", kIndex, kExact, torch::one_hot(x.to(torch::kLong), 7)),
      LAZULI_UNARY("searchsorted", kFinite, kExact, torch::searchsorted(Constant({9}, x, -3, 3).msort(), x)),
      LAZULI_UNARY("bucketize", kFinite, kExact, torch::bucketize(x, Constant({5}, x, -3, 3).msort())),
      LAZULI_UNARY("bincount", kIndex, kExact, torch::bincount(x.reshape(-1))),
      LAZULI_UNARY("unique", kIndex, kExact, std::get<0>(at::_unique2(x))),
  };
  return *ops;
}

const std::vector<OpCase>& ScatterOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("scatter", kFinite, kFinite, kExact, x.scatter(0, torch::zeros({1, x.size(1)}, torch::kLong), y.expand_as(x))),
      LAZULI_UNARY("scatter value", kFinite, kExact, x.scatter(0, Indices(x.sizes(), x.size(0)), 1.5)),
      LAZULI_BINARY("scatter_add", kFinite, kFinite, kReduction, x.scatter_add(0, Indices(x.sizes(), x.size(0)), y.expand_as(x))),
      LAZULI_BINARY("scatter_reduce", kFinite, kFinite, kReduction,
                    x.scatter_reduce(0, Indices(x.sizes(), x.size(0)), y.expand_as(x), "amax")),
      LAZULI_BINARY("index_add", kFinite, kFinite, kReduction, x.index_add(0, Rows(x, x.size(0)), y.expand_as(x))),
      LAZULI_BINARY("index_copy", kFinite, kFinite, kExact, x.index_copy(0, torch::arange(x.size(0)), y.expand_as(x))),
      LAZULI_UNARY("index_fill", kFinite, kExact, x.index_fill(0, Rows(x, 2), 3)),
      LAZULI_UNARY("index_put", kFinite, kExact, x.index_put({Rows(x, 2)}, Constant({}, x))),
      LAZULI_UNARY("index_put accumulate", kFinite, kReduction, x.index_put({Rows(x, 6)}, Constant({}, x), true)),
      LAZULI_UNARY("index_put_", kFinite, kExact, x.index_put_({Rows(x, 2)}, 4)),
      LAZULI_UNARY("index_put_ mask", kFinite, kExact, x.index_put_({x > 1}, 4)),
      LAZULI_BINARY("masked_scatter", kFinite, kFinite, kExact, x.masked_scatter(x > 0, y.expand_as(x))),
      LAZULI_UNARY("put", kFinite, kExact, x.put(Indices({3}, 1), Constant({3}, x).fill_(2))),
      LAZULI_BINARY("slice assign", kFinite, kFinite, kExact,
                    [&] {
                      x.slice(0, 0, 1).copy_(y.expand_as(x).slice(0, 0, 1));
                      return x;
                    }()),
      LAZULI_UNARY("select assign", kFinite, kExact,
                   [&] {
                     x.select(0, 0).fill_(2);
                     return x + 1;
                   }()),
      LAZULI_UNARY("slice_backward", kFinite, kExact, at::slice_backward(x, {x.size(0) + 3, x.size(1)}, 0, 2, x.size(0) + 2, 1) + 1),
      LAZULI_UNARY("slice_backward from the end", kFinite, kExact,
                   at::slice_backward(x, {x.size(0) + 3, x.size(1)}, 0, -x.size(0), std::numeric_limits<int64_t>::max(), 1)),
      LAZULI_UNARY("slice_backward last", kFinite, kExact, at::slice_backward(x, {x.size(0), x.size(1) + 1}, 1, 0, -1, 1)),
      LAZULI_UNARY("slice_backward in steps", kFinite, kExact, at::slice_backward(x, {x.size(0) * 2, x.size(1)}, 0, 0, x.size(0) * 2, 2)),
      LAZULI_UNARY("slice_backward in steps, last", kFinite, kExact,
                   at::slice_backward(x, {x.size(0), x.size(1) * 3 + 2}, 1, 2, std::numeric_limits<int64_t>::max(), 3) * 2),
      LAZULI_UNARY("slice_backward in steps, from the end", kFinite, kExact,
                   at::slice_backward(x, {x.size(0) * 2 + 1, x.size(1)}, 0, -2 * x.size(0), std::numeric_limits<int64_t>::max(), 2)),
      LAZULI_UNARY("slice_backward of every second and the others", kFinite, kExact,
                   at::slice_backward(x * 2, {x.size(0), x.size(1) * 2}, 1, 0, std::numeric_limits<int64_t>::max(), 2) +
                       at::slice_backward(x * 3, {x.size(0), x.size(1) * 2}, 1, 1, std::numeric_limits<int64_t>::max(), 2)),
      LAZULI_UNARY("slice_backward placed in steps", kFinite, kExact,
                   at::slice_backward(x * 2, {x.size(0) * 2, x.size(1)}, 0, 1, std::numeric_limits<int64_t>::max(), 2)),
      LAZULI_UNARY("slice_backward placed", kFinite, kExact, at::slice_backward(x * 2, {x.size(0) + 3, x.size(1)}, 0, 2, x.size(0) + 2, 1)),
      LAZULI_UNARY("slice_backward placed from the end", kFinite, kExact,
                   at::slice_backward(x * 2, {x.size(0) + 1, x.size(1)}, 0, -x.size(0), std::numeric_limits<int64_t>::max(), 1)),
      LAZULI_UNARY("slice_backward placed at the start", kFinite, kExact,
                   at::slice_backward(torch::stack({x, x}) * 2, {2, x.size(0) + 1, x.size(1)}, 1, 0, x.size(0), 1)),
      LAZULI_UNARY("select_backward placed", kFinite, kExact, at::select_backward(x * 2, {2, x.size(0), x.size(1)}, 0, -1)),
      LAZULI_UNARY("select_backward", kFinite, kExact,
                   at::select_backward(x, {4, x.size(0), x.size(1)}, 0, 1) + at::select_backward(x, {4, x.size(0), x.size(1)}, 0, -1)),
      LAZULI_UNARY("slice_scatter", kFinite, kExact, x.slice_scatter(x.slice(0, 0, 1) * 2, 0, 0, 1)),
      LAZULI_UNARY("select_scatter", kFinite, kExact, x.select_scatter(x.select(0, 0) * 2, 0, 0)),
      LAZULI_UNARY("diagonal_scatter", kFinite, kExact, x.diagonal_scatter(x.diagonal() * 2)),
      LAZULI_UNARY("fill_diagonal_", kFinite, kExact, x.fill_diagonal_(5)),
  };
  return *ops;
}

const std::vector<OpCase>& MoveOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("cat", kAny, kAny, kExact, torch::cat({x, y.expand_as(x)}, 0)),
      LAZULI_BINARY("cat last", kAny, kAny, kExact, torch::cat({x, y.expand_as(x) * 2, x}, -1)),
      LAZULI_BINARY("cat mixed", kFinite, kFinite, kExact, torch::cat({x, y.expand_as(x).to(torch::kFloat)}, 0)),
      LAZULI_BINARY("stack", kAny, kAny, kExact, torch::stack({x, y.expand_as(x)}, -1)),
      LAZULI_BINARY("hstack", kAny, kAny, kExact, torch::hstack({x, x})),
      LAZULI_UNARY("vstack", kAny, kExact, torch::vstack({x, x})),
      LAZULI_UNARY("pad", kAny, kExact, torch::constant_pad_nd(x, {1, 2}, 0.5)),
      LAZULI_UNARY("pad negative", kAny, kExact, torch::constant_pad_nd(x, {-1, 1}, 0)),
      LAZULI_UNARY("pad reflect", kAny, kExact, F::pad(x, F::PadFuncOptions({1, 1}).mode(torch::kReflect))),
      LAZULI_UNARY("pad replicate", kAny, kExact, F::pad(x, F::PadFuncOptions({1, 1, 1, 0}).mode(torch::kReplicate))),
      LAZULI_UNARY("roll", kAny, kExact, x.roll(2, 0)),
      LAZULI_UNARY("roll two", kAny, kExact, x.roll({1, -1}, {0, 1})),
      LAZULI_UNARY("flip", kAny, kExact, x.flip({0})),
      LAZULI_UNARY("flip two", kAny, kExact, x.flip({0, -1})),
      LAZULI_UNARY("rot90", kAny, kExact, torch::rot90(x)),
      LAZULI_UNARY("tril", kAny, kExact, x.tril()),
      LAZULI_UNARY("triu", kAny, kExact, x.triu(1)),
      LAZULI_UNARY("tril_", kAny, kExact, x.tril_(-1)),
      LAZULI_UNARY("diag", kAny, kExact, torch::diag(x)),
      LAZULI_UNARY("diag_embed", kAny, kExact, torch::diag_embed(x.slice(-1, 0, 9))),
      LAZULI_UNARY("repeat", kAny, kExact, x.repeat({2, 1, 2})),
      LAZULI_UNARY("repeat_interleave", kAny, kExact, x.repeat_interleave(2, 0)),
      LAZULI_UNARY("tile", kAny, kExact, x.tile({2, 2})),
      LAZULI_UNARY("trace", kFinite, kReduction, x.trace()),
      LAZULI_UNARY("meshgrid", kAny, kExact, torch::meshgrid({x.reshape(-1).slice(0, 0, 4), x.reshape(-1).slice(0, 0, 3)}, "ij")),
      LAZULI_UNARY("clone", kAny, kExact, x.clone()),
      LAZULI_UNARY("contiguous", kAny, kExact, x.contiguous()),
      LAZULI_UNARY("clone contiguous", kAny, kExact, x.clone(torch::MemoryFormat::Contiguous)),
      LAZULI_UNARY("channels_last", kAny, kExact, x.contiguous(torch::MemoryFormat::ChannelsLast)),
      LAZULI_UNARY("cdist", kFinite, kReduction, torch::cdist(x, x)),
      LAZULI_UNARY("renorm", kFinite, kReduction, x.renorm(2, 0, 1)),
      LAZULI_UNARY("unfold copy", kAny, kExact, x.unfold(-1, 1, 1).clone()),
      LAZULI_UNARY("pixel_shuffle", kAny, kExact, torch::pixel_shuffle(torch::cat({x, x, x, x}, 1), 2)),
  };
  return *ops;
}

class IndexOps : public ::testing::TestWithParam<std::string> {};

TEST_P(IndexOps, Gather) { RunDifferential("gather", GetParam(), GatherOps()); }
TEST_P(IndexOps, Scatter) { RunDifferential("scatter", GetParam(), ScatterOps()); }
TEST_P(IndexOps, Move) { RunDifferential("move", GetParam(), MoveOps()); }
TEST_P(IndexOps, GatherGradients) { RunGradients("gather", GetParam(), GatherOps()); }
TEST_P(IndexOps, ScatterGradients) { RunGradients("scatter", GetParam(), ScatterOps()); }
TEST_P(IndexOps, MoveGradients) { RunGradients("move", GetParam(), MoveOps()); }

LAZULI_BOTH_BACKENDS(IndexOps);

}  // namespace
}  // namespace lazuli::testing
