#include "tests/support/same_as_eager.h"

#include <cstring>

#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

constexpr uint64_t kSeed = 20240607;

// A few units in the last place of the dtype, times the length of the sums that tests make.
double ToleranceOf(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kDouble:
    case torch::kComplexDouble:
      return 1e-12;
    case torch::kBFloat16:
      return 2e-2;
    case torch::kHalf:
      return 2e-3;
    default:
      return 1e-5;
  }
}

bool SameBytes(const torch::Tensor& a, const torch::Tensor& b) {
  return a.nbytes() == b.nbytes() && (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

bool Close(const torch::Tensor& eager, const torch::Tensor& lazy) {
  if (!eager.is_floating_point()) return torch::allclose(eager, lazy, 1e-5, 1e-6, /*equal_nan=*/true);
  const double tolerance = ToleranceOf(eager.scalar_type());
  const auto not_finite_or_zero = torch::logical_or(torch::logical_not(torch::isfinite(eager)), eager == 0);
  const auto e = eager.masked_select(not_finite_or_zero);
  const auto l = lazy.masked_select(not_finite_or_zero);
  const bool signs = torch::logical_or(torch::isnan(e), torch::signbit(e) == torch::signbit(l)).all().item<bool>();
  return (signs || !torch::allclose(e, l, 0, 0, true)) && torch::allclose(eager, lazy, tolerance, tolerance, /*equal_nan=*/true);
}

}  // namespace

void ExpectSame(const torch::Tensor& eager, const torch::Tensor& lazy, bool exact, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(eager.defined(), lazy.defined());
  if (!eager.defined()) return;
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(eager.scalar_type(), lazy.scalar_type());
  EXPECT_EQ(eager.device(), lazy.device());
  EXPECT_EQ(eager.requires_grad(), lazy.requires_grad());
  ASSERT_EQ(eager.layout(), lazy.layout());
  if (eager.layout() != torch::kStrided) {
    ExpectSame(eager.to_dense(), lazy.to_dense(), exact, "dense form");
    return;
  }
  ASSERT_EQ(eager.sizes(), lazy.sizes());
  EXPECT_EQ(eager.strides(), lazy.strides());
  EXPECT_EQ(eager.storage_offset(), lazy.storage_offset());
  EXPECT_EQ(eager.is_conj(), lazy.is_conj());
  EXPECT_EQ(eager.is_neg(), lazy.is_neg());
  if (eager.scalar_type() != lazy.scalar_type()) return;
  const auto e = eager.detach().resolve_conj().resolve_neg().contiguous().cpu();
  const auto l = lazy.detach().resolve_conj().resolve_neg().contiguous().cpu();
  if (SameBytes(e, l)) return;
  if (!exact && (e.is_floating_point() || e.is_complex()) && Close(e, l)) return;
  ADD_FAILURE() << "values differ\neager: " << e.flatten().slice(0, 0, 16) << "\nlazy: " << l.flatten().slice(0, 0, 16);
}

void ExpectSame(const Tensors& eager, const Tensors& lazy, bool exact, const std::string& what) {
  ASSERT_EQ(eager.size(), lazy.size()) << what;
  for (size_t i = 0; i < eager.size(); ++i) ExpectSame(eager[i], lazy[i], exact, what + ", tensor " + std::to_string(i));
}

void BackendTest::Run(const Program& program, const Options& options, int runs) const {
  torch::manual_seed(kSeed);
  const Tensors eager = program();
  // On a GPU a thread of autograd's own lets go of tensors: when a run has more live results than all before it, which is chance, its
  // trace is a new one, and another run shows that it is found again.
  int more_runs = OnGpu() ? 2 : 0;
  for (int run = 0; run < runs; ++run) {
    const StatsDelta delta;
    Tensors lazy;
    {
      torch::manual_seed(kSeed);
      const lazuli::DeviceMode mode(options);
      lazy = program();
      lazuli::sync();
    }
    ExpectSame(eager, lazy, exact(), "run " + std::to_string(run));
    // Operators seen for the first time may cut a trace that will not come again, which is not compiled.
    if (run + 1 == runs && delta.of(&Stats::cache_hits) < delta.of(&Stats::traces) && more_runs-- > 0) ++runs;
    if (run + 1 == runs) {
      EXPECT_EQ(delta.of(&Stats::cache_hits), delta.of(&Stats::traces)) << "a trace of the last run had no program";
      EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
      EXPECT_EQ(delta.of(&Stats::observations), 0);
    }
  }
}

void BackendTest::ExpectSameAsEager(const Program& program, const Options& options, int runs) const {
  const StatsDelta delta;
  Run(program, options, runs);
  EXPECT_GT(delta.of(&Stats::ops_recorded), 0) << "nothing was recorded";
  EXPECT_GT(delta.of(&Stats::programs_compiled), 0) << "nothing was compiled";
  EXPECT_GT(delta.of(&Stats::cache_hits), 0) << "no program was found again";
}

void BackendTest::ExpectSameButEager(const Program& program) const { Run(program, options(), kRuns); }

}  // namespace lazuli::testing
