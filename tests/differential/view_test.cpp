// Views followed by arithmetic, writes through views, dtype casts, factories.
#include "tests/support/differential.h"

namespace lazuli::testing {
namespace {

using torch::indexing::None;
using torch::indexing::Slice;

const std::vector<OpCase>& ViewOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("t", kAny, kExact, x.t() + 1),
      LAZULI_UNARY("transpose", kAny, kExact, x.transpose(0, -1) * 2),
      LAZULI_UNARY("permute", kAny, kExact, x.permute({1, 0}).neg()),
      LAZULI_UNARY("permute four", kAny, kExact, x.permute({0, 2, 3, 1}).neg()),
      LAZULI_UNARY("movedim", kAny, kExact, x.movedim(0, -1) + 1),
      LAZULI_UNARY("view", kAny, kExact, x.view({-1}) + 1),
      LAZULI_UNARY("reshape", kAny, kExact, x.reshape({-1}) + 1),
      LAZULI_UNARY("reshape of result", kAny, kExact, (x + 1).reshape({-1}) * 2),
      LAZULI_UNARY("flatten", kAny, kExact, (x * 2).flatten() + 1),
      LAZULI_UNARY("unflatten", kAny, kExact, (x * 2).unflatten(0, {1, -1}) + 1),
      LAZULI_UNARY("unsqueeze", kAny, kExact, x.unsqueeze(0) + 1),
      LAZULI_UNARY("squeeze", kAny, kExact, x.squeeze() + 1),
      LAZULI_UNARY("expand", kAny, kExact, x.unsqueeze(0).expand({3, -1, -1}) + 1),
      LAZULI_UNARY("expand zero stride", kAny, kExact, x.max().to(torch::kDouble).expand({4, 3}) + 1),
      LAZULI_BINARY("broadcast_to", kAny, kAny, kExact, y.broadcast_to(x.sizes()) - x),
      LAZULI_UNARY("select", kAny, kExact, x.select(0, 0) * 2),
      LAZULI_UNARY("select last", kAny, kExact, (x + 1).select(-1, -1) * 2),
      LAZULI_UNARY("slice", kAny, kExact, x.slice(0, 1, 6) * 2),
      LAZULI_UNARY("slice step", kAny, kExact, x.slice(-1, 0, 12, 3) * 2),
      LAZULI_UNARY("slice of result", kAny, kExact, (x * 3).slice(-1, 1, 4) + (x * 3).slice(-1, 0, 3)),
      LAZULI_UNARY("narrow", kAny, kExact, x.narrow(0, 0, 1) + x.narrow(0, 0, 1)),
      LAZULI_UNARY("shifted difference", kFinite, kExact, x.slice(0, 1) - x.slice(0, 0, -1)),
      LAZULI_UNARY("diagonal", kAny, kExact, x.diagonal() + 1),
      LAZULI_UNARY("as_strided", kAny, kExact, x.as_strided({2, 3}, {3, 1}, 1) + 1),
      LAZULI_UNARY("unfold", kAny, kExact, x.unfold(-1, 3, 2) * 2),
      LAZULI_UNARY("chunk", kAny, kExact,
                   [&] {
                     auto parts = x.chunk(2, -1);
                     return Tensors{parts.front() * 2, parts.back() + 1};
                   }()),
      LAZULI_UNARY("split gate", kFinite, kTranscendental,
                   [&] {
                     auto parts = torch::cat({x, x}, -1).chunk(2, -1);
                     return parts[0] * parts[1].sigmoid();
                   }()),
      LAZULI_UNARY("unbind", kAny, kExact,
                   [&] {
                     auto rows = x.unbind(0);
                     return rows.front() + rows.back();
                   }()),
      LAZULI_UNARY("tensor_split", kAny, kExact, x.tensor_split(3, 0)),
      LAZULI_UNARY("detach", kAny, kExact, x.detach() + 1),
      LAZULI_UNARY("alias result", kAny, kExact,
                   [&] {
                     auto y = x + 1;
                     return Tensors{y, y.view({-1}), y.t()};
                   }()),
      LAZULI_UNARY("view dtype", kFinite, kExact, (x + 0).view(torch::kInt)),
      LAZULI_UNARY("view_as_complex", kFinite, kExact, torch::view_as_complex(torch::stack({x, x + 1}, -1))),
      LAZULI_UNARY("view_as_real", kFinite, kExact, torch::view_as_real(torch::complex(x, x * 2))),
      LAZULI_UNARY("real", kFinite, kExact, torch::real(torch::complex(x, x * 2)) + 1),
      LAZULI_UNARY("ravel transposed", kAny, kExact, (x * 2).t().reshape({-1}) + 1),
      LAZULI_BINARY("outer by broadcast", kFinite, kFinite, kExact,
                    x.reshape({-1}).slice(0, 0, 9).unsqueeze(1) * y.reshape({-1}).slice(0, 0, 7)),
      LAZULI_UNARY("heads", kFinite, kExact, (x + 1).unsqueeze(0).unsqueeze(2).transpose(1, 2) * 2),
  };
  return *ops;
}

const std::vector<OpCase>& WriteOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("select add_", kFinite, kExact,
                   [&] {
                     x.select(0, 0).add_(1);
                     return x * 2;
                   }()),
      LAZULI_UNARY("slice mul_", kFinite, kExact,
                   [&] {
                     x.slice(-1, 0, 2).mul_(2);
                     return x.clone();
                   }()),
      LAZULI_UNARY("transposed add_", kFinite, kExact,
                   [&] {
                     x.t().add_(1);
                     return x + 0;
                   }()),
      LAZULI_UNARY("base write seen by view", kFinite, kExact,
                   [&] {
                     auto view = x.select(-1, 0);
                     x.add_(3);
                     return view * 2;
                   }()),
      LAZULI_UNARY("view write seen by sibling", kFinite, kExact,
                   [&] {
                     auto y = x + 1;
                     auto a = y.slice(0, 0, 2), b = y.slice(0, 1, 3);
                     a.mul_(2);
                     b.sub_(1);
                     return Tensors{a + 0, b + 0, y};
                   }()),
      LAZULI_UNARY("write into fresh", kFinite, kExact,
                   [&] {
                     auto y = torch::zeros_like(x);
                     y.select(0, 0).copy_(x.select(0, 0));
                     y.slice(-1, 0, 1).add_(2);
                     return y;
                   }()),
      LAZULI_UNARY("dead write", kFinite, kExact,
                   [&] {
                     auto y = x + 1;
                     y.mul_(2);
                     return x * 3;
                   }()),
      LAZULI_UNARY("copy of transposed self", kFinite, kExact,
                   [&] {
                     auto square = x.slice(0, 0, 3).slice(1, 0, 3);
                     square.copy_(square.t().clone());
                     return x + 1;
                   }()),
      LAZULI_UNARY("overlapping copy_", kFinite, kExact,
                   [&] {
                     x.slice(0, 0, -1).copy_(x.slice(0, 1));
                     return x + 1;
                   }()),
      LAZULI_UNARY("overlapping add_", kFinite, kExact,
                   [&] {
                     x.slice(0, 1).add_(x.slice(0, 0, -1));
                     return x + 1;
                   }()),
      LAZULI_UNARY("write row by row", kFinite, kExact,
                   [&] {
                     auto y = torch::empty_like(x);
                     for (int64_t i = 0; i < x.size(0) && i < 8; ++i) y.select(0, i).copy_(x.select(0, x.size(0) - 1 - i) * 2);
                     return y.slice(0, 0, 8);
                   }()),
      LAZULI_BINARY("fill from other", kFinite, kFinite, kExact,
                    [&] {
                      auto z = x * 1;
                      z.copy_(y);
                      z.diagonal().zero_();
                      return z;
                    }()),
      LAZULI_UNARY("t_", kFinite, kExact,
                   [&] {
                     auto y = x + 1;
                     y.t_();
                     return y * 2;
                   }()),
      LAZULI_UNARY("unsqueeze_", kFinite, kExact,
                   [&] {
                     auto y = x + 1;
                     y.unsqueeze_(0);
                     return y * 2;
                   }()),
      LAZULI_UNARY("swap halves", kFinite, kExact,
                   [&] {
                     auto first = x.slice(0, 0, 2).clone();
                     x.slice(0, 0, 2).copy_(x.slice(0, 2, 4));
                     x.slice(0, 2, 4).copy_(first);
                     return x + 0;
                   }()),
      LAZULI_UNARY("expanded write", kFinite, kExact,
                   [&] {
                     auto y = (x * 2).unsqueeze(0).expand({2, -1, -1});
                     y.add_(1);
                     return y;
                   }()),
  };
  return *ops;
}

const std::vector<OpCase>& CastOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("to float", kFinite, kExact, x.to(torch::kFloat)),
      LAZULI_UNARY("to double", kFinite, kExact, x.to(torch::kDouble)),
      LAZULI_UNARY("to bfloat16", kAny, kExact, x.to(torch::kBFloat16)),
      LAZULI_UNARY("to half", kAny, kExact, x.to(torch::kHalf)),
      LAZULI_UNARY("to long", kFinite, kExact, x.to(torch::kLong)),
      LAZULI_UNARY("to int", kFinite, kExact, x.to(torch::kInt)),
      LAZULI_UNARY("to short", kFinite, kExact, x.to(torch::kShort)),
      LAZULI_UNARY("to int8", kFinite, kExact, x.to(torch::kChar)),
      LAZULI_UNARY("to uint8", kPositive, kExact, x.to(torch::kByte)),
      LAZULI_UNARY("to bool", kAny, kExact, x.to(torch::kBool)),
      LAZULI_UNARY("to complex", kFinite, kExact, x.to(torch::kComplexFloat)),
      LAZULI_UNARY("round trip", kFinite, kExact, x.to(torch::kBFloat16).to(torch::kFloat).to(torch::kHalf)),
      LAZULI_UNARY("cast chain", kFinite, kExact, (x.to(torch::kFloat) * 1.7).to(torch::kInt).to(torch::kFloat) + 0.5),
      LAZULI_UNARY("type_as", kFinite, kExact, (x > 0).type_as(x)),
      LAZULI_UNARY("zeros_like", kFinite, kExact, torch::zeros_like(x) + x),
      LAZULI_UNARY("ones_like dtype", kFinite, kExact, torch::ones_like(x, torch::kDouble) + x),
      LAZULI_UNARY("full_like", kFinite, kExact, torch::full_like(x, 2) * x),
      LAZULI_UNARY("empty_like fill", kFinite, kExact, torch::empty_like(x).fill_(3)),
      LAZULI_UNARY("new_zeros", kFinite, kExact, x.new_zeros({2, 3}) + 1),
      LAZULI_UNARY("new_full", kFinite, kExact, x.new_full({2, 3}, 1.5)),
      LAZULI_UNARY("zeros", kFinite, kExact, torch::zeros({3, 4}, x.options()) + 1),
      LAZULI_UNARY("full", kFinite, kExact, torch::full({3, 4}, 7, x.options())),
      LAZULI_UNARY("scalar_tensor", kFinite, kExact, torch::scalar_tensor(2.5, x.options()) + x),
      LAZULI_UNARY("arange", kFinite, kExact, torch::arange(5, x.options()) * 2),
      LAZULI_UNARY("arange step", kFinite, kExact, torch::arange(1, 10, 3, x.options()) + 1),
      LAZULI_UNARY("linspace", kFinite, kExact, torch::linspace(0, 1, 7, x.options())),
      LAZULI_UNARY("eye", kFinite, kExact, torch::eye(3, 4, x.options()) + 1),
      LAZULI_UNARY("tensor literal", kFinite, kExact, x + torch::tensor(3, x.options())),
      LAZULI_UNARY("causal mask", kFinite, kExact, torch::ones({4, 4}, x.options()).tril()),
  };
  return *ops;
}

class ViewOpsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ViewOpsTest, Views) { RunDifferential("views", GetParam(), ViewOps()); }
TEST_P(ViewOpsTest, Writes) { RunDifferential("writes through views", GetParam(), WriteOps()); }
TEST_P(ViewOpsTest, Casts) { RunDifferential("casts and factories", GetParam(), CastOps()); }
TEST_P(ViewOpsTest, ViewGradients) { RunGradients("views", GetParam(), ViewOps()); }
TEST_P(ViewOpsTest, WriteGradients) { RunGradients("writes through views", GetParam(), WriteOps()); }
TEST_P(ViewOpsTest, CastGradients) { RunGradients("casts and factories", GetParam(), CastOps()); }

LAZULI_BOTH_BACKENDS(ViewOpsTest);

}  // namespace
}  // namespace lazuli::testing
