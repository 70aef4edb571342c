// Attention that a program writes as its formula: one kernel computes it, and its gradient, wherever that is the same.
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

constexpr float kHidden = -std::numeric_limits<float>::infinity();

class AttentionByHandTest : public BackendTest {
 protected:
  static torch::TensorOptions Type() { return torch::dtype(torch::kFloat).device(TestDevice()); }
  // On a GPU that is for halves, and many of them (tests/gpu).
  bool fuses() const { return GetParam() != "aten" && TestDevice().is_cpu(); }

  // Batch 2, 3 heads of `width` elements, in rows as a layer makes them.
  struct Rows {
    torch::Tensor q, k, v;
    torch::Tensor Heads(const torch::Tensor& rows) const { return rows.view({rows.size(0), rows.size(1), 3, -1}).transpose(1, 2); }
    torch::Tensor Join(const torch::Tensor& heads) const { return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), -1}); }
  };
  static Rows MakeRows(int64_t queries, int64_t keys, int64_t width = 16, bool grad = false) {
    const auto make = [&](int64_t rows) { return torch::randn({2, rows, 3 * width}, Type()).requires_grad_(grad); };
    return {make(queries), make(keys), make(keys)};
  }

  using Change = std::function<torch::Tensor(torch::Tensor scores)>;

  // softmax(change(q k^T / sqrt(width))) v, and gradients.
  static Program Attention(int64_t queries, int64_t keys, const Change& change, int64_t width = 16) {
    return [=] {
      const Rows rows = MakeRows(queries, keys, width, /*grad=*/true);
      const auto q = rows.Heads(rows.q * 1.5), k = rows.Heads(rows.k * 0.5), v = rows.Heads(rows.v + 1);
      const auto scores = torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(width));
      const auto y = rows.Join(torch::matmul(torch::softmax(change(scores), -1), v));
      const auto loss = (y * y.detach().cos()).sum();
      auto results = torch::autograd::grad({loss}, {rows.q, rows.k, rows.v});
      results.push_back(y.detach());
      return results;
    };
  }

  // Forward and backward are each one call in each of the runs that are not eager's.
  void ExpectFused(const Program& program, int64_t calls = 2) const { ExpectCalls(program, fuses() ? calls : 0); }
  void ExpectCalls(const Program& program, int64_t calls) const {
    lazuli::reset();
    const StatsDelta stats;
    ExpectSameAsEager(program);
    EXPECT_EQ(stats.of(&Stats::fused_attentions), kRuns * calls);
    EXPECT_EQ(stats.of(&Stats::unfused_attentions), 0);
  }

  static torch::Tensor Causal(int64_t queries, int64_t keys) { return torch::ones({queries, keys}, Type()).tril(); }
};

INSTANTIATE_TEST_SUITE_P(Backends, AttentionByHandTest, ::testing::Values("llvm", "aten"));

TEST_P(AttentionByHandTest, Plain) {
  for (const auto& [queries, keys] : {std::pair(16, 16), std::pair(65, 65), std::pair(40, 200), std::pair(130, 17)}) {
    ExpectFused(Attention(queries, keys, [](torch::Tensor scores) { return scores; }));
  }
}

TEST_P(AttentionByHandTest, WithoutAGradient) {
  ExpectFused(
      [] {
        const torch::NoGradGuard guard;
        const Rows rows = MakeRows(40, 40);
        const auto scores = torch::matmul(rows.Heads(rows.q) * 0.25, rows.Heads(rows.k).transpose(-2, -1));
        return Tensors{rows.Join(torch::matmul(scores.softmax(-1), rows.Heads(rows.v)))};
      },
      1);
}

TEST_P(AttentionByHandTest, Masks) {
  const auto hide_later = [](torch::Tensor scores) { return scores.masked_fill(Causal(70, 150) == 0, kHidden); };
  ExpectFused(Attention(70, 150, hide_later));
  const auto in_place = [](torch::Tensor scores) { return scores.masked_fill_(Causal(40, 40).view({1, 1, 40, 40}) == 0, -1e9); };
  ExpectFused(Attention(40, 40, in_place));
  const auto padding = [](torch::Tensor scores) {
    const auto lengths = torch::tensor({30, 17}, torch::dtype(torch::kLong).device(TestDevice()));
    const auto keys = torch::arange(40, torch::dtype(torch::kLong).device(TestDevice()));
    return scores.masked_fill((keys.unsqueeze(0) >= lengths.unsqueeze(1)).view({2, 1, 1, 40}), kHidden);
  };
  ExpectFused(Attention(33, 40, padding));
  const auto bias = [](torch::Tensor scores) { return scores + torch::linspace(-2, 2, 3 * 40 * 40, Type()).view({3, 40, 40}); };
  ExpectFused(Attention(40, 40, bias));
  const auto both = [](torch::Tensor scores) {
    return (torch::linspace(-2, 2, 40, Type()) + scores).masked_fill(Causal(40, 40) == 0, kHidden);
  };
  ExpectFused(Attention(40, 40, both));
}

TEST_P(AttentionByHandTest, NumbersThatAreTensorsAndWhere) {
  ExpectFused(Attention(40, 40, [](torch::Tensor scores) { return torch::where(Causal(40, 40).to(torch::kBool), scores, kHidden); }));
  ExpectFused(Attention(40, 40, [](torch::Tensor scores) { return torch::where(Causal(40, 40) == 0, torch::tensor(-1e9f), scores); }));
  ExpectFused(Attention(40, 40, [](torch::Tensor scores) { return scores.masked_fill(Causal(40, 40) == 0, torch::tensor(-5.0f)); }));
  ExpectFused([] {
    const Rows rows = MakeRows(33, 40, 16, /*grad=*/true);
    const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1));
    const auto y = torch::matmul((scores / torch::sqrt(torch::tensor(16.0f))).softmax(-1), rows.Heads(rows.v));
    return torch::autograd::grad({(y * y).sum()}, {rows.q, rows.k, rows.v});
  });
}

TEST_P(AttentionByHandTest, Einsum) {
  ExpectFused([] {
    const Rows rows = MakeRows(33, 40, 16, /*grad=*/true);
    const auto heads = [](const torch::Tensor& t) { return t.view({2, -1, 3, 16}); };
    const auto scores = torch::einsum("bthd,bshd->bhts", {heads(rows.q), heads(rows.k)}) * 0.25;
    const auto y = torch::einsum("bhts,bshd->bthd", {scores.softmax(-1), heads(rows.v)});
    return torch::autograd::grad({(y * y).sum()}, {rows.q, rows.k, rows.v});
  });
}

// softmax gives NaN to a query that sees no key, and so does eager's gradient to all values.
TEST_P(AttentionByHandTest, AQueryThatSeesNothing) {
  ExpectFused(Attention(40, 40, [](torch::Tensor scores) { return scores.masked_fill(Causal(40, 40).tril(-1) == 0, kHidden); }));
}

TEST_P(AttentionByHandTest, LayersOfLibTorch) {
  // Its heads are a batch of matrices, whose masks are of four dimensions.
  if (!TestDevice().is_cpu()) GTEST_SKIP() << "fused on the CPU alone";
  ExpectFused(
      [] {
        const torch::NoGradGuard guard;
        torch::nn::TransformerEncoderLayer layer(torch::nn::TransformerEncoderLayerOptions(32, 4).dropout(0));
        const auto padding = torch::arange(20).unsqueeze(0) >= torch::tensor({20, 13}).unsqueeze(1);
        return Tensors{layer(torch::randn({20, 2, 32})), layer(torch::randn({20, 2, 32}), torch::Tensor(), padding),
                       layer(torch::randn({20, 2, 32}), torch::randn({20, 20}))};
      },
      3);
}

TEST_P(AttentionByHandTest, LengthsThatChange) {
  const StatsDelta stats;
  const std::vector<int64_t> lengths = {24, 25, 31, 48, 50, 77};
  for (const int64_t length : lengths) {
    const Program program = Attention(length, length, [](torch::Tensor scores) { return scores; });
    torch::manual_seed(length);
    const Tensors eager = program();
    torch::manual_seed(length);
    Tensors lazy;
    {
      const DeviceMode mode(options());
      lazy = program();
      lazuli::sync();
    }
    for (size_t i = 0; i < eager.size(); ++i) ExpectSame(eager[i].cpu(), lazy[i].cpu(), exact(), "result " + std::to_string(i));
  }
  EXPECT_EQ(stats.of(&Stats::fused_attentions), fuses() ? 2 * static_cast<int64_t>(lengths.size()) : 0);
  EXPECT_EQ(stats.of(&Stats::unfused_attentions), 0);
  EXPECT_LE(stats.of(&Stats::programs_compiled), 3);
}

// Where somebody looks at what is between, or it is another formula, it stays as it is.
TEST_P(AttentionByHandTest, OthersStayAsTheyAre) {
  const auto over = [](int64_t dim) {
    return [dim] {
      const Rows rows = MakeRows(24, 24);
      const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1));
      const auto weights = scores.softmax(dim);
      return Tensors{torch::matmul(weights, rows.Heads(rows.v)), dim == -1 ? weights : weights.sum()};
    };
  };
  ExpectCalls(over(-1), 0);
  ExpectCalls(over(-2), 0);
  // The scale is not the last but one.
  ExpectCalls(Attention(24, 24, [](torch::Tensor scores) { return scores.masked_fill(Causal(24, 24) == 0, -4) * 2; }), 0);
  // A bias that learns.
  ExpectCalls(
      [] {
        const Rows rows = MakeRows(24, 24);
        const auto bias = torch::randn({24, 24}, Type()).requires_grad_();
        const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1)) + bias;
        const auto y = torch::matmul(scores.softmax(-1), rows.Heads(rows.v));
        return torch::autograd::grad({(y * y).sum()}, {bias});
      },
      0);
  ExpectCalls(Attention(24, 24, [](torch::Tensor scores) { return scores.relu(); }), 0);
}

// Products save nothing of their result, which may be written in part before the gradient is computed; an attention's gradient reads it.
TEST_P(AttentionByHandTest, AResultThatIsWrittenInPart) {
  ExpectCalls(
      [] {
        const Rows rows = MakeRows(24, 24, 16, /*grad=*/true);
        const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1)) * 0.25;
        const auto y = torch::matmul(scores.softmax(-1), rows.Heads(rows.v));
        y.select(1, 2).mul_(3);
        return torch::autograd::grad({(y * y.detach()).sum()}, {rows.q, rows.k, rows.v});
      },
      0);
}

// Heads that share keys, as a view that repeats them.
TEST_P(AttentionByHandTest, ExpandedKeys) {
  ExpectFused([] {
    const Rows rows = MakeRows(24, 24, 16, /*grad=*/true);
    const auto k = rows.Heads(rows.k).slice(1, 0, 1).expand({2, 3, 24, 16}), v = rows.Heads(rows.v).slice(1, 2, 3).expand({2, 3, 24, 16});
    const auto scores = torch::matmul(rows.Heads(rows.q), k.transpose(-2, -1)) * 0.25;
    const auto y = torch::matmul(scores.softmax(-1), v);
    return torch::autograd::grad({(y * y.detach()).sum()}, {rows.q, rows.k, rows.v});
  });
}

// Each reads what the one before it made, wherever that lies by then.
TEST_P(AttentionByHandTest, AttentionOfAttention) {
  ExpectFused(
      [] {
        const auto rows = torch::randn({1, 24, 48}, Type()).requires_grad_();
        const auto k = torch::randn({1, 3, 20, 16}, Type()), v = torch::randn({1, 3, 20, 16}, Type());
        auto x = rows.view({1, 24, 3, 16}).transpose(1, 2);
        for (int i = 0; i < 3; ++i) x = torch::matmul((torch::matmul(x, k.transpose(-2, -1)) * 0.3).softmax(-1), v);
        const auto y = torch::matmul((torch::matmul(x, x.transpose(-2, -1)) * 0.3).softmax(-1), x).transpose(1, 2).reshape({24, 48}) * 2;
        auto results = torch::autograd::grad({(y * y).sum()}, {rows});
        results.push_back(y.detach());
        return results;
      },
      2 * 4);
}

// Scores of one batch or of one key, which a mask or a bias repeats, are another formula.
TEST_P(AttentionByHandTest, ScoresThatAreRepeated) {
  const auto attend = [](int64_t batch, int64_t keys, bool where) {
    return [=] {
      const torch::NoGradGuard guard;
      const auto q = torch::randn({batch, 3, 24, 16}, Type()), k = torch::randn({batch, 3, keys, 16}, Type());
      const auto v = torch::randn({2, 3, 20, 16}, Type());
      const auto scores = torch::matmul(q, k.transpose(-2, -1));
      const auto table = torch::randn({2, 1, 24, 20}, Type());
      const auto changed = where ? torch::where(table > 0, scores, -1e4) : table + scores;
      return Tensors{torch::matmul(changed.softmax(-1), v)};
    };
  };
  for (const bool where : {false, true}) {
    ExpectCalls(attend(1, 20, where), 0);
    ExpectCalls(attend(2, 1, where), 0);
  }
}

// A query of which a large number leaves nothing sees all keys alike; each weighs its share in the gradient, too.
TEST_P(AttentionByHandTest, QueriesOfWhichNothingIsLeft) {
  const auto rows = [] { return (torch::arange(40, torch::dtype(torch::kLong).device(TestDevice())) < 5).view({40, 1}); };
  for (const float number : {-1e9f, std::numeric_limits<float>::lowest()}) {
    ExpectFused(Attention(40, 40, [&](torch::Tensor scores) { return scores.masked_fill(rows(), number); }));
    ExpectFused(Attention(40, 40, [&](torch::Tensor scores) { return scores + rows().to(torch::kFloat) * number; }));
  }
}

// A copy to another dtype that rounds is part of the formula.
TEST_P(AttentionByHandTest, RoundingBetween) {
  const auto attend = [](torch::Dtype scores_as, torch::Dtype softmax_as) {
    return [=] {
      const torch::NoGradGuard guard;
      const Rows rows = MakeRows(24, 24);
      const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1)).to(scores_as).to(softmax_as);
      return Tensors{torch::matmul(scores.softmax(-1).to(torch::kFloat), rows.Heads(rows.v))};
    };
  };
  ExpectCalls(attend(torch::kInt, torch::kFloat), 0);
  ExpectCalls(attend(torch::kDouble, torch::kDouble), 0);
  ExpectCalls(attend(torch::kFloat, torch::kFloat), 1 * fuses());
}

// By hand, in the order that suits the writer.
TEST_P(AttentionByHandTest, AGradientBeforeTheResult) {
  ExpectCalls(
      [] {
        const torch::NoGradGuard guard;
        const auto heads = [] { return torch::randn({3, 24, 16}, Type()); };
        const auto q = heads(), k = heads(), v = heads(), grad = heads();
        const auto grad_weights = torch::bmm(grad, v.transpose(1, 2));
        const auto weights = torch::bmm(q, k.transpose(1, 2)).softmax(-1);
        const auto grad_scores = at::_softmax_backward_data(grad_weights, weights, -1, torch::kFloat);
        return Tensors{torch::bmm(weights, v), torch::bmm(grad_scores, k)};
      },
      0);
}

// The gradient's numbers need not be those of the formula: then products compute it, and it is counted.
TEST_P(AttentionByHandTest, AGradientOfAnotherScale) {
  struct Halved : torch::autograd::Function<Halved> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& scores) { return scores * 0.5; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
      return {grads[0] * 0.25};
    }
  };
  const Program program = [] {
    const Rows rows = MakeRows(24, 24, 16, /*grad=*/true);
    const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1));
    const auto y = torch::matmul(Halved::apply(scores).softmax(-1), rows.Heads(rows.v));
    return torch::autograd::grad({(y * y).sum()}, {rows.q, rows.k, rows.v});
  };
  const StatsDelta stats;
  ExpectSameAsEager(program);
  EXPECT_EQ(stats.of(&Stats::fused_attentions), fuses() ? kRuns : 0);
  EXPECT_EQ(stats.of(&Stats::unfused_attentions), fuses() ? kRuns : 0);
}

TEST_P(AttentionByHandTest, AGradientThatIsFilledWithAnotherNumber) {
  LAZULI_CPU_ONLY("on GPUs so few scores stay products, whose sums cancel");
  struct Hide : torch::autograd::Function<Hide> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& scores, const torch::Tensor& mask,
                                 double number) {
      context->save_for_backward({mask});
      context->saved_data["number"] = number;
      return scores.masked_fill(mask, kHidden);
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
      const auto mask = context->get_saved_variables()[0];
      return {grads[0].masked_fill(mask, context->saved_data["number"].toDouble()), {}, {}};
    }
  };
  const auto program = [](double number) {
    return [number] {
      const Rows rows = MakeRows(24, 24, 16, /*grad=*/true);
      const auto scores = torch::matmul(rows.Heads(rows.q), rows.Heads(rows.k).transpose(-2, -1));
      const auto y = torch::matmul(Hide::apply(scores, Causal(24, 24) == 0, number).softmax(-1), rows.Heads(rows.v));
      return torch::autograd::grad({(y * y).sum()}, {rows.q, rows.k, rows.v});
    };
  };
  const StatsDelta stats;
  ExpectSameAsEager(program(0.5));
  EXPECT_EQ(stats.of(&Stats::unfused_attentions), fuses() ? kRuns : 0);
  ExpectCalls(program(kHidden), 0);
}

TEST_P(AttentionByHandTest, StrictAsEager) {
  const StatsDelta stats;
  ExpectSameAsEager(Attention(24, 24, [](torch::Tensor scores) { return scores; }), options().precision("strict"));
  EXPECT_EQ(stats.of(&Stats::fused_attentions), 0);
}

}  // namespace
}  // namespace lazuli::testing
