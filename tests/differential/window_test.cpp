// Ops put together from windows (cat, stack, padding, roll, flip), and those that write where indices say, beside what they fuse with.
#include "tests/support/differential.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

// An index for dimension `dim` of `x`, `count` long: some rows twice, some never.
torch::Tensor Places(const torch::Tensor& x, int64_t dim, int64_t count) { return Indices({count}, x.size(dim)); }

// An index that names one place each time. Which write is the last is not defined on a GPU.
torch::Tensor OnePlace(int64_t count) { return OnGpu() ? torch::arange(count) : torch::zeros({count}, torch::kLong); }

// Gradients for the rows of an embedding: `x`. LibTorch's CUDA kernel reads where there is nothing when rows are empty.
torch::Tensor Rows(const torch::Tensor& x) { return OnGpu() && x.size(1) == 0 ? torch::ones({x.size(0), 1}, x.options()) : x; }

// The gradient of looking `indices` up in a tensor of these sizes.
torch::Tensor AddedAt(torch::IntArrayRef sizes, const std::vector<std::optional<torch::Tensor>>& indices, const torch::Tensor& values) {
  torch::Tensor sum = torch::zeros(sizes, values.options());
  return sum.index_put_(c10::List<std::optional<torch::Tensor>>(indices), values, /*accumulate=*/true);
}

// What a write makes of a fresh tensor, and of `x` itself.
Tensors Written(torch::Tensor x, const std::function<void(torch::Tensor&)>& write) {
  auto fresh = x * 2;
  write(fresh);
  write(x);
  return {fresh, fresh + 1, x};
}

const std::vector<OpCase>& WindowOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("cat computed", kAny, kAny, kExact, torch::cat({x * 2, y.expand_as(x) * 3}, 0)),
      LAZULI_BINARY("cat computed last", kAny, kAny, kExact, torch::cat({x * 2, y.expand_as(x), x + 1}, -1)),
      LAZULI_BINARY("cat of two sizes", kFinite, kFinite, kExact, torch::cat({x * 2, y.expand_as(x).slice(0, 0, 1) * 3}, 0)),
      LAZULI_BINARY("cat computed mixed", kFinite, kFinite, kExact, torch::cat({x * 2, y.expand_as(x).to(torch::kFloat) * 3}, 0)),
      LAZULI_UNARY("cat with nothing", kAny, kExact, torch::cat({x * 2, x.slice(0, 0, 0), (x + 1).slice(0, 0, 0)}, 0)),
      LAZULI_UNARY("cat of one twice", kAny, kExact,
                   [&] {
                     const auto y = x * 2;
                     return torch::cat({y, y}, 1) + 1;
                   }()),
      LAZULI_UNARY("cat of one alone", kAny, kExact, torch::cat({x * 2}, 0)),
      LAZULI_BINARY("cat of products of each other", kFinite, kFinite, kExact,
                    [&] {
                      const auto a = x * 2, b = a + y;
                      return torch::cat({b.expand_as(x), a, (b * a).expand_as(x)}, 0);
                    }()),
      LAZULI_BINARY("cat of broadcast", kAny, kAny, kExact, torch::cat({(x * 2).expand_as(x), (y * 2).expand_as(x)}, 0)),
      LAZULI_UNARY("cat of transposed", kAny, kExact, torch::cat({(x * 2).t(), x.t()}, 0)),
      LAZULI_UNARY("cat of rows", kFinite, kReduction, torch::cat({x.sum(1, true), x * 2}, 1)),
      LAZULI_UNARY("cat of look-ups", kAny, kExact, torch::cat({x.index({Places(x, 0, 5)}), x * 2}, 0)),
      LAZULI_UNARY("rotate half", kFinite, kExact, torch::cat({-x.slice(1, x.size(1) / 2), x.slice(1, 0, x.size(1) / 2)}, -1) * 2 + x),
      LAZULI_BINARY("computed of a cat", kFinite, kFinite, kExact, torch::cat({x, y.expand_as(x), x}, 1) * 2 + 1),
      LAZULI_BINARY("computed of a cat and others", kFinite, kFinite, kExact,
                    [&] {
                      const auto wide = torch::cat({x, x}, 1);
                      return (wide * 2) * torch::cat({x + 1, y.expand_as(x)}, 1) + wide.sum(0, true).sign() + y.size(0);
                    }()),
      LAZULI_BINARY("computed of a stack", kFinite, kFinite, kExact, torch::relu(torch::stack({x, y.expand_as(x)}, -1)) + y.unsqueeze(-1)),
      LAZULI_UNARY("a cat overwritten", kFinite, kExact, torch::cat({x, x.slice(0, 0, 1)}, 0).mul_(2).add_(1)),
      LAZULI_UNARY("a cat and what it is made of, overwritten", kFinite, kExact,
                   [&] {
                     auto part = x * 2;
                     const auto both = torch::cat({part, x}, 0);
                     part.add_(1);
                     return torch::cat({both * 3, part}, 0);
                   }()),
      LAZULI_UNARY("cats in different parts", kFinite, kExact,
                   torch::cat({x, x.slice(0, 0, 1)}, 0) * 2 + torch::cat({x.slice(0, 0, 1), x}, 0)),
      LAZULI_UNARY("a cat added to what it is computed of", kFinite, kExact,
                   [&] {
                     auto sum = torch::cat({x, x}, 0) * 2;
                     return sum.add_(torch::cat({x * x, x}, 0) * 3);
                   }()),
      LAZULI_UNARY("comparison of a cat", kAny, kExact, torch::cat({x, x.slice(1, 0, 1)}, 1) == 1),
      LAZULI_UNARY("slices of a cat", kAny, kExact,
                   [&] {
                     const auto both = torch::cat({x * 2, x + 1}, 0);
                     return both.slice(0, 0, x.size(0)) + both.slice(0, x.size(0));
                   }()),
      LAZULI_UNARY("cat written later", kAny, kExact,
                   [&] {
                     auto both = torch::cat({x * 2, x + 1}, 0);
                     both.slice(0, 0, 1).add_(1);
                     return both;
                   }()),
      LAZULI_BINARY("stack computed", kAny, kAny, kExact, torch::stack({x * 2, y.expand_as(x) * 3}, 0)),
      LAZULI_BINARY("stack computed middle", kAny, kAny, kExact, torch::stack({x * 2, y.expand_as(x), x + 1}, 1)),
      LAZULI_BINARY("stack computed last", kAny, kAny, kExact, torch::stack({x * 2, y.expand_as(x) * 3}, -1)),
      LAZULI_UNARY("pad computed", kAny, kExact, torch::constant_pad_nd(x * 2, {2, 1}, 0.5)),
      LAZULI_UNARY("pad both", kAny, kExact, torch::constant_pad_nd(x + 1, {0, 1, 2, 3}, 7) * 2),
      LAZULI_UNARY("pad rows", kAny, kExact, torch::constant_pad_nd(x, {0, 0, 1, 0})),
      LAZULI_UNARY("pad nothing", kAny, kExact, torch::constant_pad_nd(x * 2, {0, 0})),
      LAZULI_UNARY("pad images", kFinite, kExact, torch::constant_pad_nd(torch::relu(x).unsqueeze(0).unsqueeze(0), {1, 1, 1, 1}, -1)),
      LAZULI_UNARY("roll by more", kAny, kExact, x.roll(-100, 1) * x),
      LAZULI_UNARY("roll computed", kAny, kExact, (x * 2).roll({3, 1}, {0, -1})),
      LAZULI_UNARY("roll not at all", kAny, kExact, x.roll(0, 0)),
      LAZULI_UNARY("roll three", kAny, kExact, x.unsqueeze(1).roll({1, 1, 1}, {0, 1, 2})),
      LAZULI_UNARY("roll all", kAny, kExact, x.roll(2)),
      LAZULI_UNARY("flip beside itself", kAny, kExact, x.flip({-1}) * x),
      LAZULI_UNARY("flip computed", kAny, kExact, (x + 1).flip({0}) + 1),
      LAZULI_UNARY("flip reduced", kFinite, kReduction, x.flip({0, 1}).sum(1)),
      LAZULI_UNARY("flip of every other", kAny, kExact, torch::cat({x, x}, 1).slice(1, 0, 2 * x.size(1), 2).flip({0})),
      LAZULI_UNARY("flip nothing", kAny, kExact, x.flip(torch::IntArrayRef{})),
  };
  return *ops;
}

// Vectors of three from `x`, along its second dimension.
torch::Tensor Vectors(const torch::Tensor& x) { return x.slice(1, 0, 1) + Constant({x.size(0), 3}, x, -2, 2); }

const std::vector<OpCase>& CrossOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("cross", kFinite, kFinite, kReduction, torch::linalg_cross(Vectors(x), Vectors(y.expand_as(x)) * 2, 1)),
      LAZULI_UNARY("cross of columns", kFinite, kReduction, torch::linalg_cross(Vectors(x).t().clone(), Vectors(x + 1).t(), 0) * 2),
      LAZULI_UNARY("cross broadcast", kFinite, kReduction, torch::linalg_cross(Vectors(x).slice(0, 0, 1), Vectors(x * 2).flip(1)) + 1),
      LAZULI_UNARY("cross twice", kFinite, kReduction, torch::cross(torch::cross(Vectors(x), Vectors(x * 3), 1), Vectors(x + 2), 1)),
  };
  return *ops;
}

const std::vector<OpCase>& WindowWriteOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("index_add alpha", kFinite, kFinite, kReduction, x.index_add(0, Places(x, 0, x.size(0)), y.expand_as(x), 2)),
      LAZULI_BINARY("index_add last", kFinite, kFinite, kReduction, x.index_add(-1, Places(x, 1, x.size(1)), y.expand_as(x) * 2)),
      LAZULI_BINARY("index_add_", kFinite, kFinite, kReduction,
                    Written(x, [&](torch::Tensor& z) { z.index_add_(0, Places(x, 0, x.size(0)).to(torch::kInt), y.expand_as(x)); })),
      LAZULI_UNARY("index_add_ of a window", kFinite, kReduction,
                   [&] {
                     auto z = torch::zeros_like(torch::cat({x, x}, 1));
                     z.slice(1, 1, x.size(1) + 1).index_add_(0, Places(x, 0, x.size(0)), x);
                     return z;
                   }()),
      LAZULI_UNARY("index_add twice", kFinite, kReduction,
                   torch::zeros_like(x).index_add_(0, Places(x, 0, x.size(0)), x).index_add_(0, Places(x, 0, x.size(0)), x * 2) + 1),
      LAZULI_UNARY("index_add three", kFinite, kReduction,
                   torch::zeros({3, 4, x.size(1)}, x.options())
                       .index_add_(1, Indices({x.size(0)}, 4), (x * 2).unsqueeze(0).expand({3, x.size(0), x.size(1)}))),
      LAZULI_BINARY("index_copy_", kFinite, kFinite, kExact,
                    Written(x, [&](torch::Tensor& z) { z.index_copy_(0, torch::arange(x.size(0)).flip(0), y.expand_as(x) + 1); })),
      LAZULI_BINARY("index_copy twice to one", kFinite, kFinite, kExact, x.index_copy(1, OnePlace(x.size(1)), y.expand_as(x))),
      LAZULI_UNARY("scatter_add rows", kFinite, kReduction,
                   torch::zeros_like(x).scatter_add_(0, Places(x, 0, x.size(0)).unsqueeze(1).expand_as(x), x * 2)),
      LAZULI_UNARY("scatter_add columns", kFinite, kReduction, torch::zeros_like(x).scatter_add_(0, Indices(x.sizes(), x.size(0)), x)),
      LAZULI_UNARY("scatter_add fewer", kFinite, kReduction, x.scatter_add(0, Indices({1, 1}, x.size(0)), x)),
      LAZULI_UNARY("scatter columns", kFinite, kRace, torch::zeros_like(x).scatter_(0, Indices(x.sizes(), x.size(0)), x)),
      LAZULI_UNARY("scatter to one place", kFinite, kExact,
                   torch::zeros_like(x).scatter_(1, Indices({x.size(0), 1}, x.size(1)), x.slice(1, 0, 1) * 2)),
      LAZULI_UNARY("scatter a number", kFinite, kExact, torch::zeros_like(x).scatter_(1, Indices({x.size(0), 1}, x.size(1)), 1.5) * x),
      LAZULI_UNARY("scatter to one of each", kFinite, kExact, x.scatter(1, Indices({x.size(0), 1}, x.size(1)), x.slice(1, 0, 1) * 2) + 1),
      LAZULI_UNARY("scatter_add to one of each", kFinite, kReduction,
                   (x * 2).scatter_add_(0, Indices({1, x.size(1)}, x.size(0)), x.slice(0, 0, 1)) * x),
      LAZULI_UNARY("scatter_ to one of each of a window", kFinite, kExact,
                   [&] {
                     auto z = torch::cat({x, x}, 1) * 2;
                     z.slice(1, 1, x.size(1) + 1).scatter_(1, Indices({x.size(0), 1}, x.size(1)), -1);
                     return z + 1;
                   }()),
      LAZULI_UNARY("one_hot", kFinite, kReduction, torch::one_hot(Indices({x.size(0)}, 7), 7).to(x.dtype()) * 2 + x.sum()),
      LAZULI_UNARY("index_put_ rows", kFinite, kReduction,
                   Written(x,
                           [&](torch::Tensor& z) {
                             z.index_put_({Places(x, 0, 7)}, Constant({7, x.size(1)}, x), true);
                           })),
      LAZULI_UNARY("index_put_ from the end", kFinite, kReduction,
                   AddedAt(x.sizes(), {std::nullopt, Places(x, 1, 5) - x.size(1)}, x.slice(1, 0, 1).expand({x.size(0), 5}) * 2)),
      LAZULI_UNARY("index_put_ elements", kFinite, kReduction,
                   torch::zeros_like(x).index_put_({Places(x, 0, 9), Places(x, 1, 9)}, Constant({9}, x), true)),
      LAZULI_UNARY("index_put_ a table", kFinite, kReduction,
                   torch::zeros_like(x).index_put_({Indices({2, 3}, x.size(0))}, Constant({3, x.size(1)}, x), true)),
      LAZULI_UNARY("index_put_ apart", kFinite, kReduction,
                   AddedAt({x.size(0), 2, x.size(1)}, {Places(x, 0, 4), std::nullopt, Places(x, 1, 4)}, Constant({4, 2}, x))),
      LAZULI_UNARY("index_put_ stores", kFinite, kExact, torch::zeros_like(x).index_put_({torch::arange(x.size(0)).flip(0)}, x + 1)),
      LAZULI_UNARY("index_put functional", kFinite, kReduction, x.index_put({Places(x, 0, 6)}, Constant({x.size(1)}, x), true) * 2),
      LAZULI_UNARY("embedding_dense_backward", kFinite, kReduction,
                   at::embedding_dense_backward(Rows(x), Indices({x.size(0)}, 5), 5, -1, false)),
      LAZULI_UNARY("embedding_dense_backward padding", kFinite, kReduction,
                   at::embedding_dense_backward(Rows(x) * 2, Indices({x.size(0)}, 5).to(torch::kInt), 6, 2, false) * 3),
      LAZULI_UNARY("embedding_dense_backward of a batch", kFinite, kReduction,
                   at::embedding_dense_backward((Rows(x) * 2).unsqueeze(0).expand({3, x.size(0), Rows(x).size(1)}),
                                                Indices({3, x.size(0)}, 7), 7, 0, false)),
      LAZULI_UNARY("embedding_dense_backward by frequency", kFinite, kReduction,
                   at::embedding_dense_backward(Rows(x), Indices({x.size(0)}, 5), 5, -1, true)),
      LAZULI_UNARY("look-up", kFinite, kReduction, torch::embedding(x, Indices({3, 4}, x.size(0))) * 2),
      LAZULI_UNARY("index_select", kFinite, kReduction, x.index_select(0, Places(x, 0, 6)) * x.index_select(0, Places(x, 0, 6))),
      LAZULI_UNARY("gather", kFinite, kReduction, x.gather(0, Indices(x.sizes(), x.size(0))) * 2),
      LAZULI_UNARY("index", kFinite, kReduction, x.index({Places(x, 0, 6), Places(x, 1, 6)}) * 2),
  };
  return *ops;
}

class WindowSuite : public ::testing::TestWithParam<std::string> {};

TEST_P(WindowSuite, Windows) { RunDifferential("windows", GetParam(), WindowOps()); }
TEST_P(WindowSuite, Writes) { RunDifferential("writes", GetParam(), WindowWriteOps()); }
TEST_P(WindowSuite, WindowsGradients) { RunGradients("windows", GetParam(), WindowOps()); }
TEST_P(WindowSuite, WritesGradients) { RunGradients("writes", GetParam(), WindowWriteOps()); }

TEST_P(WindowSuite, CrossProducts) { RunDifferential("cross", GetParam(), CrossOps()); }

TEST_P(WindowSuite, CrossProductsGradients) { RunGradients("cross", GetParam(), CrossOps()); }

LAZULI_BOTH_BACKENDS(WindowSuite);

}  // namespace
}  // namespace lazuli::testing
