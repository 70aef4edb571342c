// Products of matrices through cuBLASLt, and mode max-autotune on a GPU: what is timed, what serves from then on, and that values are
// eager's. All are skipped without a GPU.
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuAutotuneTest : public GpuModesTest {
 protected:
  // A layer forward and backward, and batches of products: four products.
  static Program Layer(torch::Dtype dtype, int64_t rows) {
    const auto x = torch::randn({rows, 264}, OnGpu(dtype)) * 0.1, w = torch::randn({136, 264}, OnGpu(dtype)) * 0.1,
               b = torch::randn({136}, OnGpu(dtype)), batch = torch::randn({5, rows, 24}, OnGpu(dtype)) * 0.1;
    return [=] {
      const auto weight = w.detach().requires_grad_(), input = x.detach().requires_grad_();
      const auto y = torch::linear(input, weight, b);
      Tensors results = torch::autograd::grad({(y * y).sum()}, {weight, input});
      results.push_back(y.detach());
      results.push_back(torch::bmm(batch, batch.transpose(1, 2)));
      return results;
    };
  }
};

// Sizes that no other test has, since what was timed stays.
TEST_F(GpuAutotuneTest, ProductsAreTimedOnce) {
  int64_t rows = 328;
  for (const std::string mode : {"max-autotune", "max-autotune-no-cudagraphs"}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble}) {
      rows += 8;
      const Program program = Layer(dtype, rows);
      const StatsDelta first;
      ExpectSameAsEager(program, mode);
      EXPECT_EQ(first.of(&Stats::products_tuned), 4) << mode << " " << dtype;
      EXPECT_GE(first.of(&Stats::algorithms_timed), 4);
      lazuli::reset();
      const StatsDelta again;
      ExpectSameAsEager(program, mode);
      EXPECT_EQ(again.of(&Stats::products_tuned), 0);
      EXPECT_EQ(again.of(&Stats::cudagraph_failures), 0);
      EXPECT_GE(again.of(&Stats::cudagraph_launches), mode == "max-autotune" ? 1 : 0);
    }
  }
}

// In every mode, so that LibTorch's library need not be called; large ones are its own unless they are timed. After many other shapes, one
// has to come several times.
TEST_F(GpuAutotuneTest, SmallProductsGoThroughCublasLt) {
  for (const std::string mode : {"default", "reduce-overhead"}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble}) {
      const StatsDelta stats;
      const Program program = Layer(dtype, 72);
      for (int i = 0; i < 8; ++i) ExpectSameAsEager(program, mode);
      EXPECT_GE(stats.of(&Stats::programs_compiled), 1) << mode << " " << dtype;
      EXPECT_GE(stats.of(&Stats::cublaslt_products), 4);
      EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
      EXPECT_EQ(stats.of(&Stats::products_tuned), 0);
      lazuli::reset();
    }
  }
  const auto large = torch::randn({1024, 1024}, OnGpu(torch::kBFloat16)) * 0.1;
  const StatsDelta stats;
  ExpectSameAsEager([&] { return Tensors{torch::mm(large, large) + 1}; }, "default");
  EXPECT_EQ(stats.of(&Stats::cublaslt_products), 0);
  EXPECT_GE(stats.of(&Stats::aten_calls), 1);
}

// Pointwise, rows, columns and everything into one number, over memory that is worth it.
TEST_F(GpuAutotuneTest, KernelsAreTimedOnce) {
  const auto x = torch::randn({2048, 3000}, OnGpu(torch::kFloat)), w = torch::randn({3000}, OnGpu(torch::kFloat));
  const Program program = [&] {
    const auto hidden = torch::gelu(x * w);
    return Tensors{hidden.softmax(1) + x, hidden.sum(0), (x * x).sum(), x.to(torch::kBFloat16)};
  };
  const StatsDelta first;
  ExpectSameAsEager(program, "max-autotune-no-cudagraphs");
  EXPECT_GE(first.of(&Stats::kernels_tuned), 3);
  EXPECT_GT(first.of(&Stats::schedules_timed), 3 * first.of(&Stats::kernels_tuned));
  const StatsDelta again;
  ExpectSameAsEager(program, "max-autotune-no-cudagraphs");
  EXPECT_EQ(again.of(&Stats::kernels_tuned), 0);
}

TEST_F(GpuAutotuneTest, OtherModesAndDeterministicProgramsTimeNothing) {
  const auto x = torch::randn({72, 56}, OnGpu(torch::kFloat)), y = torch::randn({56, 88}, OnGpu(torch::kFloat));
  const Program program = [&] { return Tensors{torch::mm(x, y) + 1}; };
  const StatsDelta stats;
  ExpectSameAsEager(program, "default");
  ExpectSameAsEager(program, "reduce-overhead");
  lazuli::reset();
  at::globalContext().setDeterministicAlgorithms(true, false);
  ExpectSameAsEager(program, "max-autotune");
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_EQ(stats.of(&Stats::products_tuned), 0);
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
  const StatsDelta strict;
  {
    const DeviceMode device_mode(Options().precision("strict").disk_cache(false));
    const auto result = program();
    lazuli::sync();
  }
  EXPECT_EQ(strict.of(&Stats::cublaslt_products), 0);
  lazuli::reset();
  ExpectSameAsEager(program, "max-autotune");
  EXPECT_EQ(stats.of(&Stats::products_tuned), 1);
}

}  // namespace
}  // namespace lazuli::testing
