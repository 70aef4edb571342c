// Ops that programs leave to libraries: matrix products, convolutions, pooling, attention, resampling, linear algebra.
#include <torch/torch.h>

#include "tests/support/differential.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

// Weights for `x`'s dimension `dim`: [out, in, rest...].
torch::Tensor Weight(const torch::Tensor& x, int64_t dim, int64_t out, std::vector<int64_t> rest = {}) {
  std::vector<int64_t> sizes = {out, x.size(dim)};
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return Constant(sizes, x);
}

// Operands that differ by name only in how an op gets its second matrix.
const std::vector<OpCase>& MatrixOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("mm", kFinite, kReduction, x.mm(Weight(x, 1, 5).t())),
      LAZULI_UNARY("mm both transposed", kFinite, kReduction, x.t().mm(x)),
      LAZULI_UNARY("matmul", kFinite, kReduction, x.matmul(Weight(x, -1, 4).t())),
      LAZULI_UNARY("bmm", kFinite, kReduction, x.unsqueeze(0).bmm(Weight(x, 1, 4).t().unsqueeze(0))),
      LAZULI_UNARY("mv", kFinite, kReduction, x.mv(Constant({x.size(1)}, x))),
      LAZULI_UNARY("dot", kFinite, kReduction, x.reshape(-1).dot(x.reshape(-1))),
      LAZULI_UNARY("outer", kFinite, kExact, x.reshape(-1).slice(0, 0, 9).outer(x.reshape(-1).slice(0, 0, 4))),
      LAZULI_UNARY("addmm", kFinite, kReduction, torch::addmm(Constant({5}, x), x, Weight(x, 1, 5).t())),
      LAZULI_UNARY("addmm scaled", kFinite, kReduction, torch::addmm(Constant({5}, x), x, Weight(x, 1, 5).t(), 0.5, 2)),
      LAZULI_UNARY("addmv", kFinite, kReduction, torch::addmv(Constant({x.size(0)}, x), x, Constant({x.size(1)}, x))),
      LAZULI_UNARY("baddbmm", kFinite, kReduction,
                   torch::baddbmm(Constant({1, x.size(0), 4}, x), x.unsqueeze(0), Weight(x, 1, 4).t().unsqueeze(0), 0.5, 1)),
      LAZULI_UNARY("einsum", kFinite, kReduction, torch::einsum("ij,kj->ik", {x, x})),
      LAZULI_UNARY("tensordot", kFinite, kReduction, torch::tensordot(x, x, {0}, {0})),
      LAZULI_UNARY("kron", kFinite, kExact, torch::kron(x.slice(0, 0, 2), x.slice(0, 0, 2))),
      LAZULI_UNARY("linear", kFinite, kReduction, torch::linear(x, Weight(x, -1, 6), Constant({6}, x))),
      LAZULI_UNARY("linear no bias", kFinite, kReduction, torch::linear(x, Weight(x, -1, 6))),
      LAZULI_UNARY("linear relu linear", kFinite, kReduction,
                   torch::linear(torch::linear(x, Weight(x, -1, 6), Constant({6}, x)).relu(), Constant({3, 6}, x))),
      LAZULI_UNARY("bias then gelu", kFinite, kReduction, torch::gelu(x.matmul(Weight(x, -1, 6).t()) + Constant({6}, x))),
      LAZULI_UNARY("addmm_", kFinite, kReduction, Constant({x.size(0), 5}, x).addmm_(x, Weight(x, 1, 5).t())),
      LAZULI_BINARY("bilinear", kFinite, kFinite, kReduction,
                    torch::bilinear(x, y.expand_as(x), Constant({2, x.size(-1), x.size(-1)}, x), Constant({2}, x))),
      LAZULI_UNARY("matrix_power", kFinite, kReduction, torch::matrix_power(x.slice(0, 0, 3).slice(1, 0, 3) * 0.1, 3)),
      LAZULI_UNARY("inverse", kFinite, kReduction, torch::inverse(x.slice(0, 0, 3).slice(1, 0, 3) * 0.01 + torch::eye(3, x.options()))),
      LAZULI_UNARY("det", kFinite, kReduction, torch::det(x.slice(0, 0, 3).slice(1, 0, 3) * 0.01 + torch::eye(3, x.options()))),
      LAZULI_UNARY("cholesky", kFinite, kReduction, torch::linalg_cholesky(x.mm(x.t()) + 9 * torch::eye(x.size(0), x.options()))),
      LAZULI_UNARY("attention", kFinite, kReduction,
                   [&] {
                     auto q = x.unsqueeze(0).unsqueeze(0);
                     return torch::scaled_dot_product_attention(q, q * 0.5, q * 2);
                   }()),
      LAZULI_UNARY("causal attention", kFinite, kReduction,
                   [&] {
                     auto q = x.unsqueeze(0).unsqueeze(0);
                     return torch::scaled_dot_product_attention(q, q * 0.5, q * 2, {}, 0.0, true);
                   }()),
      LAZULI_UNARY("attention by hand", kFinite, kReduction, (x.mm(x.t()) * 0.05).softmax(-1).mm(x)),
      LAZULI_UNARY("fft", kFinite, kReduction, torch::fft_rfft(x)),
  };
  return *ops;
}

// ATen's CUDA kernel for the gradient of channels-last averages forgets the padding (in LibTorch 2.11; later ones do not).
torch::Tensor Padded(const torch::Tensor& x) { return x.is_cuda() && x.requires_grad() ? x.contiguous() : x; }

torch::Tensor Enlarged(const torch::Tensor& x, double rows, double columns) {
  return F::interpolate(
      x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{rows, columns}).mode(torch::kBilinear).align_corners(false));
}

const std::vector<OpCase>& ImageOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("conv1d", kFinite, kReduction, torch::conv1d(x.unsqueeze(0), Weight(x, 0, 4, {1}), Constant({4}, x))),
      LAZULI_UNARY("conv2d", kFinite, kReduction, torch::conv2d(x, Weight(x, 1, 4, {3, 3}), Constant({4}, x), 1, 1)),
      LAZULI_UNARY("conv2d stride", kFinite, kReduction, torch::conv2d(x, Weight(x, 1, 4, {2, 2}), {}, 2)),
      LAZULI_UNARY("conv2d groups", kFinite, kReduction, torch::conv2d(x, Constant({x.size(1), 1, 3, 3}, x), {}, 1, 1, 1, x.size(1))),
      LAZULI_UNARY("conv2d relu", kFinite, kReduction, torch::conv2d(x, Weight(x, 1, 4, {3, 3}), {}, 1, 1).relu()),
      LAZULI_UNARY("conv_transpose2d", kFinite, kReduction, torch::conv_transpose2d(x, Constant({x.size(1), 2, 2, 2}, x), {}, 2)),
      LAZULI_UNARY("conv3d", kFinite, kReduction, torch::conv3d(x.unsqueeze(0), Weight(x, 0, 2, {1, 1, 1}))),
      LAZULI_UNARY("max_pool1d", kFinite, kExact, torch::max_pool1d(x, 1)),
      LAZULI_UNARY("max_pool2d", kFinite, kExact, torch::max_pool2d(x, 2)),
      LAZULI_UNARY("max_pool2d indices", kFinite, kExact, All(torch::max_pool2d_with_indices(x, 2, 1))),
      LAZULI_UNARY("avg_pool2d", kFinite, kReduction, torch::avg_pool2d(x, 2)),
      LAZULI_UNARY("avg_pool2d padded", kFinite, kReduction, torch::avg_pool2d(Padded(x), 2, 2, 1, false, false)),
      LAZULI_UNARY("max_pool2d overlapping", kFinite, kExact, All(torch::max_pool2d_with_indices(x.relu(), 3, 2, 1))),
      LAZULI_UNARY("avg_pool2d overlapping", kFinite, kReduction, torch::avg_pool2d(Padded(x), 3, 1, 1) * 2),
      LAZULI_UNARY("avg_pool2d in ceil mode", kFinite, kReduction, torch::avg_pool2d(Padded(x * 2), 3, 2, 1, true, true)),
      LAZULI_UNARY("avg_pool2d in ceil mode without padding", kFinite, kReduction, torch::avg_pool2d(x, 2, 2, 0, true, false)),
      LAZULI_UNARY("avg_pool2d apart", kFinite, kReduction, torch::avg_pool2d(Padded(x), {1, 2}, {2, 3}, {0, 1}, false, false)),
      LAZULI_UNARY("avg_pool2d with a divisor", kFinite, kReduction, torch::avg_pool2d(Padded(x), 2, 1, 1, true, true, 3)),
      LAZULI_UNARY("pool after relu", kFinite, kExact, torch::max_pool2d(x.relu(), 2)),
      LAZULI_UNARY("adaptive_avg_pool2d", kFinite, kReduction, torch::adaptive_avg_pool2d(x, {2, 2})),
      LAZULI_UNARY("adaptive_avg_pool2d one", kFinite, kReduction, torch::adaptive_avg_pool2d(x, {1, 1})),
      LAZULI_UNARY("adaptive_max_pool2d", kFinite, kExact, All(torch::adaptive_max_pool2d(x, {2, 2}))),
      LAZULI_UNARY("lp_pool2d", kPositive, kReduction, F::lp_pool2d(x, F::LPPool2dFuncOptions(2, 2))),
      LAZULI_UNARY("upsample nearest", kFinite, kExact, torch::upsample_nearest2d(x, {7, 9})),
      LAZULI_UNARY("upsample nearest by factors", kFinite, kExact,
                   F::interpolate(x * 2, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 1.7})) + 1),
      LAZULI_UNARY("upsample nearest to less", kFinite, kExact, torch::upsample_nearest2d(x + 1, {1, 2}) * 2),
      LAZULI_UNARY("reflection pad", kFinite, kExact, torch::reflection_pad2d(x * 2, {1, 0, 1, 1}) + 1),
      LAZULI_UNARY("replication pad", kFinite, kExact, torch::replication_pad2d(x + 1, {3, 0, 0, 9}).relu()),
      LAZULI_UNARY("upsample bilinear", kFinite, kReduction, torch::upsample_bilinear2d(x, {7, 9}, false)),
      LAZULI_UNARY("upsample bilinear by corners", kFinite, kReduction, torch::upsample_bilinear2d(x * 2, {5, 11}, true) + 1),
      LAZULI_UNARY("upsample bilinear to less", kFinite, kReduction, torch::upsample_bilinear2d(x + 1, {2, 1}, false) * 2),
      LAZULI_UNARY("upsample bilinear to one", kFinite, kReduction, torch::upsample_bilinear2d(x, {1, 3}, true)),
      LAZULI_UNARY("upsample bilinear by factors", kFinite, kReduction, Enlarged(x * 2, 2, 3) - 1),
      LAZULI_UNARY("upsample bilinear by broken factors", kFinite, kReduction, Enlarged(x, 1.7, 2.4)),
      LAZULI_UNARY("upsample bilinear by scales of its own", kFinite, kReduction,
                   torch::upsample_bilinear2d(x, {2 * x.size(2), 3 * x.size(3)}, false, 2.3, 2.6)),
      LAZULI_UNARY("upsample bilinear to the same sizes", kFinite, kReduction, ([&] {
                     const auto images = (x * 2).contiguous(torch::MemoryFormat::ChannelsLast);
                     const std::vector<int64_t> same = {x.size(2), x.size(3)}, wider = {x.size(2), 2 * x.size(3)};
                     return Tensors{torch::upsample_bilinear2d(images, same, false, 1.1, 1.1) + 1,
                                    torch::upsample_bilinear2d(images, wider, false, 1.1, 2) + 1};
                   }())),
      LAZULI_UNARY("upsample bilinear of a row", kFinite, kReduction, torch::upsample_bilinear2d(x.slice(2, 0, 1), {4, 6}, false)),
      LAZULI_UNARY("upsample bilinear channels last", kFinite, kReduction,
                   Enlarged((x * 2).contiguous(torch::MemoryFormat::ChannelsLast), 2, 2).relu()),
      LAZULI_UNARY("upsample bicubic", kFinite, kReduction, torch::upsample_bicubic2d(x, {7, 9}, true)),
      LAZULI_UNARY("im2col", kFinite, kExact, torch::im2col(x, {2, 2}, {1, 1}, {0, 0}, {1, 1})),
      LAZULI_UNARY("im2col and back", kFinite, kReduction, ([&] {
                     const auto columns = torch::im2col(x * 2, {2, 2}, {1, 1}, {1, 1}, {1, 2}) + 1;
                     return Tensors{columns, torch::col2im(columns, {x.size(2), x.size(3)}, {2, 2}, {1, 1}, {1, 1}, {1, 2}) * 3};
                   }())),
      LAZULI_UNARY("grid_sampler", kFinite, kReduction, torch::grid_sampler(x, Constant({x.size(0), 3, 3, 2}, x), 0, 0, false)),
      LAZULI_UNARY("channel_shuffle", kFinite, kExact, torch::channel_shuffle(x, 1)),
      LAZULI_UNARY("conv batch_norm relu", kFinite, kReduction,
                   torch::batch_norm(torch::conv2d(x, Weight(x, 1, 4, {3, 3})), {}, {}, {}, {}, true, 0.1, 1e-5, false).relu()),
      LAZULI_UNARY("channel bias", kFinite, kExact, x + Constant({x.size(1), 1, 1}, x)),
      LAZULI_UNARY("squeeze and excite", kFinite, kReduction, x * x.mean({2, 3}, true).sigmoid()),
      // Sums no larger than their results, as trained weights give: what is allowed to be off is a part of a result.
      LAZULI_UNARY("gru_cell", kFinite, kReduction,
                   torch::gru_cell(x, Constant({x.size(0), 5}, x), Weight(x, 1, 15) / (6 * x.size(1)), Constant({15, 5}, x),
                                   Constant({15}, x), Constant({15}, x))),
      LAZULI_UNARY("lstm_cell", kFinite, kReduction, ([&] {
                     const Tensors state = {Constant({x.size(0), 5}, x), Constant({x.size(0), 5}, x)};
                     return All(torch::lstm_cell(x, state, Weight(x, 1, 20), Constant({20, 5}, x), Constant({20}, x), Constant({20}, x)));
                   }())),
  };
  return *ops;
}

class LibraryOps : public ::testing::TestWithParam<std::string> {};

TEST_P(LibraryOps, Matrices) { RunDifferential("matrices", GetParam(), MatrixOps()); }
TEST_P(LibraryOps, Images) { RunDifferential("images", GetParam(), ImageOps()); }
TEST_P(LibraryOps, MatrixGradients) { RunGradients("matrices", GetParam(), MatrixOps()); }
TEST_P(LibraryOps, ImageGradients) { RunGradients("images", GetParam(), ImageOps()); }

LAZULI_BOTH_BACKENDS(LibraryOps);

}  // namespace
}  // namespace lazuli::testing
