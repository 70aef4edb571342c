// Reductions, scans, softmax and normalisation layers, losses.
#include <torch/torch.h>

#include "tests/support/differential.h"

namespace lazuli::testing {
namespace {

// `x` without equal elements in a row: ties have no defined winner, and where all elements are equal a variance is only rounding error.
torch::Tensor Ramp(const torch::Tensor& x) { return x + Constant(x.sizes(), x, -3, 3); }

// The differences of the rows of `x`, each repeated, up to three columns of them, from each other.
torch::Tensor Pairs(const torch::Tensor& x) {
  const torch::Tensor rows = x.slice(1, 0, 3).repeat({16, 1});
  return rows.unsqueeze(1) - rows.unsqueeze(0).flip(1) * 2;
}

const std::vector<OpCase>& ReduceOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("sum", kFinite, kReduction, x.sum()),
      LAZULI_UNARY("sum last", kFinite, kReduction, x.sum(-1)),
      LAZULI_UNARY("sum first keepdim", kFinite, kReduction, x.sum(0, true)),
      LAZULI_UNARY("sum two", kFinite, kReduction, x.sum(torch::IntArrayRef{0, 1})),
      LAZULI_UNARY("sum dtype", kFinite, kReduction, x.sum(-1, false, torch::kDouble)),
      LAZULI_UNARY("sum of pairs", kFinite, kReduction, Pairs(x).square().sum(-1).sqrt().amin(1)),
      LAZULI_UNARY("sum of pairs keepdim", kFinite, kReduction, (Pairs(x) / (Pairs(x).abs().sum(-1, true) + 1)).sum(0)),
      LAZULI_UNARY("amax of pairs", kAny, kExact, Pairs(x).amax(-1)),
      LAZULI_UNARY("prod of pairs", kUnit, kReduction, (Pairs(x) + 1).prod(-1) * 2),
      LAZULI_UNARY("mean", kFinite, kReduction, x.mean()),
      LAZULI_UNARY("mean last keepdim", kFinite, kReduction, x.mean(-1, true)),
      LAZULI_UNARY("mean first", kFinite, kReduction, x.mean(0)),
      LAZULI_UNARY("prod", kUnit, kReduction, x.prod()),
      LAZULI_UNARY("prod last", kUnit, kReduction, x.prod(-1)),
      LAZULI_UNARY("amax", kAny, kExact, x.amax(-1)),
      LAZULI_UNARY("amin keepdim", kAny, kExact, x.amin(0, true)),
      LAZULI_UNARY("max all", kAny, kExact, x.max()),
      LAZULI_UNARY("min all", kAny, kExact, x.min()),
      LAZULI_UNARY("max dim", kAny, kExact, All(x.max(-1))),
      LAZULI_UNARY("min dim", kAny, kExact, All(x.min(0, true))),
      LAZULI_UNARY("aminmax", kAny, kExact, All(x.aminmax())),
      LAZULI_UNARY("argmax", kFinite, kExact, x.argmax(-1)),
      LAZULI_UNARY("argmin all", kFinite, kExact, x.argmin()),
      LAZULI_UNARY("any", kUnit, kExact, x.any()),
      LAZULI_UNARY("any dim", kUnit, kExact, x.any(-1)),
      LAZULI_UNARY("all", kUnit, kExact, x.all()),
      LAZULI_UNARY("all dim keepdim", kUnit, kExact, x.all(0, true)),
      LAZULI_UNARY("count_nonzero", kUnit, kExact, x.count_nonzero(std::optional<int64_t>(-1))),
      LAZULI_UNARY("var", kFinite, kReduction, x.var()),
      LAZULI_UNARY("var dim", kFinite, kReduction, x.var(-1, 0)),
      LAZULI_UNARY("var unbiased keepdim", kFinite, kReduction, x.var(torch::IntArrayRef{-1}, true, true)),
      LAZULI_UNARY("std", kFinite, kReduction, Ramp(x).std(-1)),
      LAZULI_UNARY("var_mean", kFinite, kReduction, All(torch::var_mean(x, -1))),
      LAZULI_UNARY("norm", kFinite, kReduction, x.norm()),
      LAZULI_UNARY("norm dim", kFinite, kReduction, x.norm(2, -1, true)),
      LAZULI_UNARY("vector_norm 1", kFinite, kReduction, torch::linalg_vector_norm(x, 1, torch::IntArrayRef{-1})),
      LAZULI_UNARY("vector_norm inf", kFinite, kReduction, torch::linalg_vector_norm(x, INFINITY)),
      LAZULI_UNARY("nansum", kAny, kReduction, torch::where(x.isinf(), torch::zeros_like(x), x).clamp(-9, 9).nansum(-1)),
      LAZULI_UNARY("logsumexp", kFinite, kReduction, x.logsumexp(-1)),
      LAZULI_UNARY("logsumexp masked", kFinite, kReduction, x.masked_fill(x > 0, -INFINITY).logsumexp(0, true)),
      LAZULI_UNARY("sum of bools", kFinite, kExact, (x > 0).sum(-1)),
      LAZULI_UNARY("sum of all bools", kFinite, kExact, (x > 0).sum()),
      LAZULI_UNARY("cumsum", kFinite, kReduction, x.cumsum(-1)),
      LAZULI_UNARY("cumprod", kUnit, kReduction, x.cumprod(0)),
      LAZULI_UNARY("cumprod last", kUnit, kReduction, x.cumprod(-1) * 2),
      LAZULI_UNARY("cumsum first", kFinite, kReduction, (x * 2).cumsum(0) - x),
      LAZULI_UNARY("cumsum dtype", kFinite, kReduction, x.cumsum(0, torch::kDouble)),
      LAZULI_UNARY("cumsum of bools", kFinite, kExact, (x > 0).cumsum(-1) - 1),
      LAZULI_UNARY("cumsum in place", kFinite, kReduction, (x + 1).cumsum_(-1)),
      LAZULI_UNARY("cumsum from the end", kFinite, kReduction, x.flip(-1).cumsum(-1).flip(-1)),
      LAZULI_UNARY("cumsum from the end first", kFinite, kReduction, (x.flip(0).cumsum(0).flip(0) * 0.5).sum(-1)),
      LAZULI_UNARY("cumsum both ways", kFinite, kReduction, x.cumsum(-1) + x.flip(-1).cumsum(-1).flip(-1)),
      LAZULI_UNARY("cumsum of one", kFinite, kReduction, ([&] {
                     const auto y = x.unsqueeze(-1).unsqueeze(-1);
                     return y.cumsum(-1) * 5 + y.cumsum(-2).cumprod(-1);
                   }())),
      LAZULI_UNARY("cumsum from the end of many", kFinite, kReduction, ([&] {
                     const auto wide = x.to(c10::promoteTypes(x.scalar_type(), torch::kFloat));  // GPUs' kernels round each step.
                     const auto y = wide.flatten().repeat({130}).view({130, -1}).flip(0).cumsum(0).flip(0);
                     const auto narrow = x.is_floating_point() ? x.scalar_type() : torch::kFloat;
                     return All(std::make_tuple((y - y.mean(0)).to(narrow), y.t().softmax(-1).to(narrow)));
                   }())),
      LAZULI_UNARY("cumsum of softmax", kFinite, kReduction, x.softmax(-1).cumsum(-1)),
      LAZULI_UNARY("cumsum then max", kFinite, kReduction, x.cumsum(-1).amax(-1)),
      LAZULI_UNARY("cummax", kFinite, kExact, All(x.cummax(-1))),
      LAZULI_UNARY("sort", kFinite, kExact, All(x.sort(-1, true))),
      LAZULI_UNARY("argsort", kFinite, kExact, x.argsort(/*stable=*/true, -1, false)),
      LAZULI_UNARY("topk", kFinite, kExact, All(x.topk(1, -1))),
      LAZULI_UNARY("median", kFinite, kExact, All(Ramp(x).median(-1))),
      LAZULI_UNARY("kthvalue", kFinite, kExact, All(x.kthvalue(1, -1))),
      LAZULI_UNARY("sum of product", kFinite, kReduction, (x * x).sum(-1)),
      LAZULI_UNARY("mean of chain", kFinite, kReduction, (x * 0.5 + 1).tanh().mean()),
      LAZULI_UNARY("centred", kFinite, kReduction, x - x.mean(-1, true)),
      LAZULI_UNARY("scaled by max", kFinite, kReduction, x / x.abs().amax(-1, true)),
      LAZULI_UNARY("sum then sum", kFinite, kReduction, x.sum(-1).sum()),
      LAZULI_UNARY("sum both ways", kFinite, kReduction, x.sum(0).sum() + x.sum(-1).sum()),
  };
  return *ops;
}

namespace F = torch::nn::functional;

int64_t LastSize(const torch::Tensor& x) { return x.dim() == 0 ? 1 : x.size(-1); }

const std::vector<OpCase>& NormOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("softmax", kFinite, kReduction, x.softmax(-1)),
      LAZULI_UNARY("softmax first", kFinite, kReduction, x.softmax(0)),
      LAZULI_UNARY("softmax dtype", kFinite, kReduction, x.softmax(-1, torch::kFloat)),
      LAZULI_UNARY("softmax masked", kFinite, kReduction, x.masked_fill(x > 1, -9).softmax(-1)),
      LAZULI_UNARY("log_softmax", kFinite, kReduction, x.log_softmax(-1)),
      LAZULI_UNARY("softmin", kFinite, kReduction, F::softmin(x, F::SoftminFuncOptions(-1))),
      LAZULI_BINARY("softmax backward", kFinite, kFinite, kReduction,
                    torch::_softmax_backward_data(x, y.expand_as(x).softmax(-1), -1, x.scalar_type())),
      LAZULI_BINARY("log_softmax backward", kFinite, kFinite, kReduction,
                    torch::_log_softmax_backward_data(x, y.expand_as(x).log_softmax(-1), -1, x.scalar_type())),
      LAZULI_UNARY("layer_norm", kFinite, kReduction, torch::layer_norm(Ramp(x), {LastSize(x)})),
      LAZULI_UNARY("layer_norm affine", kFinite, kReduction,
                   torch::layer_norm(Ramp(x), {LastSize(x)}, Constant({LastSize(x)}, x), Constant({LastSize(x)}, x, 0, 1))),
      LAZULI_UNARY("native_layer_norm", kFinite, kReduction, All(torch::native_layer_norm(Ramp(x), {LastSize(x)}, {}, {}, 1e-5))),
      LAZULI_UNARY("rms_norm", kFinite, kReduction, torch::rms_norm(x, {LastSize(x)}, Constant({LastSize(x)}, x))),
      LAZULI_UNARY("batch_norm train", kFinite, kReduction,
                   torch::batch_norm(x, Constant({x.size(1)}, x), Constant({x.size(1)}, x), {}, {}, true, 0.1, 1e-5, false)),
      LAZULI_UNARY("batch_norm running", kFinite, kReduction, ([&] {
                     auto mean = Constant({x.size(1)}, x), var = Constant({x.size(1)}, x, 1, 2);
                     auto out = torch::batch_norm(x, {}, {}, mean, var, true, 0.1, 1e-5, false);
                     return Tensors{out, mean, var};
                   }())),
      LAZULI_UNARY("batch_norm eval", kFinite, kReduction,
                   torch::batch_norm(x, {}, {}, Constant({x.size(1)}, x), Constant({x.size(1)}, x, 1, 2), false, 0.1, 1e-5, false)),
      LAZULI_UNARY("batch_norm eval affine relu_", kFinite, kReduction,
                   torch::batch_norm(x, Constant({x.size(1)}, x), Constant({x.size(1)}, x), Constant({x.size(1)}, x),
                                     Constant({x.size(1)}, x, 1, 2), false, 0.1, 1e-5, false)
                       .relu_()),
      LAZULI_UNARY("group_norm", kFinite, kReduction, torch::group_norm(Ramp(x), 1)),
      LAZULI_UNARY("instance_norm", kFinite, kReduction, torch::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false)),
      LAZULI_UNARY("normalize", kFinite, kReduction, F::normalize(x, F::NormalizeFuncOptions().dim(-1))),
      LAZULI_UNARY("local_response_norm", kFinite, kReduction, F::local_response_norm(x, F::LocalResponseNormFuncOptions(2))),
      LAZULI_BINARY("cosine_similarity", kFinite, kFinite, kReduction, torch::cosine_similarity(x, y, -1)),
      LAZULI_BINARY("pairwise_distance", kFinite, kFinite, kReduction, torch::pairwise_distance(x, y)),
  };
  return *ops;
}

// A product's rows of two sequences, without the first ones of each: not a view, but a copy.
torch::Tensor SlicedLogits(const torch::Tensor& x) {
  const auto logits = torch::matmul(torch::stack({x, x * 2}), Constant({x.size(1), 9}, x, -1, 1));
  return logits.slice(1, x.size(0) / 2).reshape({-1, 9});
}

// The targets come first, or not at all where `x` has no classes.
torch::Tensor PickedLoss(const torch::Tensor& x, int64_t reduction = at::Reduction::Mean, int64_t ignored = -100) {
  const torch::Tensor targets = Indices({x.size(0)}, x.size(1));
  return torch::nll_loss(x.log_softmax(-1), targets, {}, reduction, ignored);
}

const std::vector<OpCase>& LossOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("mse_loss", kFinite, kFinite, kReduction, torch::mse_loss(x, y)),
      LAZULI_BINARY("mse_loss none", kFinite, kFinite, kExact, torch::mse_loss(x, y, at::Reduction::None)),
      LAZULI_BINARY("mse_loss sum", kFinite, kFinite, kReduction, torch::mse_loss(x, y, at::Reduction::Sum)),
      LAZULI_BINARY("l1_loss", kFinite, kFinite, kReduction, torch::l1_loss(x, y)),
      LAZULI_BINARY("smooth_l1_loss", kFinite, kFinite, kReduction, torch::smooth_l1_loss(x, y)),
      LAZULI_BINARY("huber_loss", kFinite, kFinite, kReduction, torch::huber_loss(x, y)),
      LAZULI_BINARY("smooth_l1_loss beta", kFinite, kFinite, kReduction, torch::smooth_l1_loss(x, y, at::Reduction::Sum, 0.3)),
      LAZULI_BINARY("smooth_l1_loss none", kFinite, kFinite, kExact, torch::smooth_l1_loss(x, y, at::Reduction::None, 0.5)),
      LAZULI_BINARY("huber_loss delta", kFinite, kFinite, kReduction, torch::huber_loss(x, y, at::Reduction::Sum, 0.3)),
      LAZULI_BINARY("huber_loss none", kFinite, kFinite, kExact, torch::huber_loss(x, y, at::Reduction::None, 0.5)),
      LAZULI_BINARY("bce weighted", kUnit, kUnit, kReduction,
                    torch::binary_cross_entropy(x.abs(), y.abs(), Constant({x.size(-1)}, x, 0.5, 2), at::Reduction::Sum)),
      LAZULI_BINARY("bce none", kUnit, kUnit, kReduction, torch::binary_cross_entropy(x.abs(), y.abs(), {}, at::Reduction::None)),
      LAZULI_BINARY("kl_div", kFinite, kPositive, kReduction, torch::kl_div(x, y)),
      LAZULI_BINARY("bce", kUnit, kUnit, kReduction, torch::binary_cross_entropy(x.abs(), y.abs())),
      LAZULI_BINARY("bce with logits", kFinite, kUnit, kReduction, torch::binary_cross_entropy_with_logits(x, y.abs())),
      LAZULI_BINARY("bce with logits weighted", kFinite, kUnit, kReduction,
                    torch::binary_cross_entropy_with_logits(x, y.abs(), Constant({x.size(-1)}, x, 0.5, 2), Constant({1}, x, 2, 3),
                                                            at::Reduction::Sum)),
      LAZULI_BINARY("bce with logits none", kFinite, kUnit, kReduction,
                    torch::binary_cross_entropy_with_logits(x, y.abs(), {}, Constant({x.size(-1)}, x, 0.5, 2), at::Reduction::None)),
      LAZULI_BINARY("soft_margin_loss", kFinite, kFinite, kReduction, torch::soft_margin_loss(x, y.sign())),
      LAZULI_BINARY("poisson_nll_loss", kFinite, kPositive, kReduction,
                    torch::poisson_nll_loss(x, y, true, false, 1e-8, at::Reduction::Mean)),
      LAZULI_BINARY("hinge_embedding_loss", kFinite, kFinite, kReduction, torch::hinge_embedding_loss(x, y.sign())),
      LAZULI_UNARY("cross_entropy", kFinite, kReduction, torch::cross_entropy_loss(x, Indices({x.size(0)}, x.size(1)))),
      LAZULI_UNARY("cross_entropy rows", kFinite, kReduction,
                   torch::cross_entropy_loss(x, Indices({x.size(0)}, x.size(1)), {}, at::Reduction::None, 1)),
      LAZULI_UNARY("cross_entropy weighted", kFinite, kReduction,
                   torch::cross_entropy_loss(x, Indices({x.size(0)}, x.size(1)), Constant({x.size(1)}, x, 0.5, 2), at::Reduction::Mean, 1)),
      LAZULI_UNARY("cross_entropy weighted sum", kFinite, kReduction,
                   torch::cross_entropy_loss(x, Indices({x.size(0)}, x.size(1)), Constant({x.size(1)}, x, 0.5, 2), at::Reduction::Sum)),
      LAZULI_UNARY("cross_entropy weighted rows", kFinite, kReduction,
                   torch::cross_entropy_loss(x, Indices({x.size(0)}, x.size(1)), Constant({x.size(1)}, x, 0.5, 2), at::Reduction::None)),
      LAZULI_UNARY(
          "cross_entropy of places", kFinite, kReduction,
          torch::cross_entropy_loss(x.flatten(1).unsqueeze(0), Indices({1, x.flatten(1).size(1)}, x.size(0)), {}, at::Reduction::Mean, 1)),
      LAZULI_UNARY("cross_entropy of weighted places", kFinite, kReduction,
                   torch::cross_entropy_loss(torch::stack({x, -x}).flatten(2), Indices({2, x[0].numel()}, x.size(0)),
                                             Constant({x.size(0)}, x, 0.5, 2), at::Reduction::Sum)),
      LAZULI_UNARY("cross_entropy by places", kFinite, kReduction,
                   torch::cross_entropy_loss(torch::stack({x, -x}).flatten(2), Indices({2, x[0].numel()}, x.size(0)),
                                             Constant({x.size(0)}, x, 0.5, 2), at::Reduction::None)),
      LAZULI_UNARY("cross_entropy of sliced logits", kFinite, kReduction,
                   torch::cross_entropy_loss(SlicedLogits(x), Indices({SlicedLogits(x).size(0)}, 9))),
      LAZULI_UNARY("cross_entropy of sliced logits, weighted", kFinite, kReduction,
                   torch::cross_entropy_loss(SlicedLogits(x), Indices({SlicedLogits(x).size(0)}, 9), Constant({9}, x, 0.5, 2),
                                             at::Reduction::Sum, 1)),
      LAZULI_UNARY("nll_loss of one", kFinite, kReduction, torch::nll_loss(x.select(0, 0), Indices({}, x.size(1)))),
      LAZULI_UNARY("cross_entropy smooth", kFinite, kReduction,
                   torch::cross_entropy_loss(x, Indices({x.size(0)}, x.size(1)), {}, at::Reduction::Mean, -100, 0.1)),
      LAZULI_UNARY("nll_loss", kFinite, kReduction, PickedLoss(x)),
      LAZULI_UNARY("nll_loss ignore", kFinite, kReduction, PickedLoss(x, at::Reduction::Sum, 1)),
  };
  return *ops;
}

class ReduceOpsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReduceOpsTest, Reductions) { RunDifferential("reductions", GetParam(), ReduceOps()); }
TEST_P(ReduceOpsTest, Norms) { RunDifferential("norms", GetParam(), NormOps()); }
TEST_P(ReduceOpsTest, Losses) { RunDifferential("losses", GetParam(), LossOps()); }
TEST_P(ReduceOpsTest, ReductionGradients) { RunGradients("reductions", GetParam(), ReduceOps()); }
TEST_P(ReduceOpsTest, NormGradients) { RunGradients("norms", GetParam(), NormOps()); }
TEST_P(ReduceOpsTest, LossGradients) { RunGradients("losses", GetParam(), LossOps()); }

LAZULI_BOTH_BACKENDS(ReduceOpsTest);

}  // namespace
}  // namespace lazuli::testing
