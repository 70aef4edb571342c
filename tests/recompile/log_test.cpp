// The text of recompile reports.

#include <gmock/gmock.h>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

class RecompileLogTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  Options options(const std::string& logs = "recompiles") const { return Options().backend("aten").logs(logs).log_file(log_.path()); }

  // `count` additions to `x`.
  static torch::Tensor Additions(torch::Tensor x, int count) {
    for (int i = 0; i < count; ++i) x = x + 1;
    return x;
  }
  // More ops than a site is told apart by.
  static constexpr int kPrefix = 10;

  // The failure lines of a second trace, recorded by `second`, at a site where `first` was compiled.
  std::string FailureBetween(const std::function<void()>& first, const std::function<void()>& second) {
    const lazuli::DeviceMode mode(options());
    for (const auto& record : {&first, &second}) {
      (torch::ones({1}) * 3).item<float>();  // The cut that both traces start after.
      (*record)();
      lazuli::sync();
    }
    const std::string text = log_.text();
    const size_t dash = text.find("    - ");
    return dash == std::string::npos ? "no failure in the log: " + text : text.substr(dash, text.find('\n', dash) - dash);
  }

  LogFile log_;
};

TEST_F(RecompileLogTest, BlockReadsAsDocumented) {
  const auto c4 = torch::ones({4});
  const auto c5 = torch::ones({5});
  const auto a64 = torch::ones({64, 8});
  const auto a48 = torch::ones({48, 8});
  const auto weight = torch::ones({8, 3});
  const auto trace = [&](const torch::Tensor& c, const torch::Tensor& a) {
    Additions(c, 17);                      // Ops 0 to 16.
    Additions(torch::mm(a, weight), 125);  // Op 17, up to 143 ops.
    lazuli::sync();
  };
  const lazuli::DeviceMode mode(options());
  (c4 * 2).sum(0).item<float>();  // Trace 0, site 0: at the start.
  (c4 * 2).neg();                 // Trace 1, site 1: after an item().
  lazuli::sync();
  EXPECT_EQ(log_.text(), "");
  trace(c5, a64);  // Trace 2, the first of site 2.
  trace(c5, a64);
  EXPECT_EQ(log_.text(), "");
  trace(c4, a64);  // Trace 3: variant 2.
  trace(c4, a48);  // Trace 4: nearest to variant 2, with which it agrees up to op 17.
  const std::string text = log_.text();
  EXPECT_EQ(text.substr(text.find("[lazuli] Recompiling trace #4")),
            "[lazuli] Recompiling trace #4 (site 2, 143 ops, variant 3/8)\n"
            "[lazuli]     triggered by the following guard failure(s):\n"
            "[lazuli]     - 2/1: input 0 of op 17 aten::mm size mismatch at index 0. expected 64, actual 48\n");
}

TEST_F(RecompileLogTest, SizeMismatch) {
  const auto a = torch::ones({6, 4});
  const auto b = torch::ones({7, 4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix); }, [&] { Additions(b, kPrefix); }),
            "    - 1/0: input 0 of op 0 aten::add.Tensor size mismatch at index 0. expected 6, actual 7");
}

TEST_F(RecompileLogTest, StrideMismatch) {
  const auto a = torch::ones({4, 4});
  const auto b = a.t();
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix); }, [&] { Additions(b, kPrefix); }),
            "    - 1/0: input 0 of op 0 aten::add.Tensor stride mismatch at index 0. expected 4, actual 1");
}

TEST_F(RecompileLogTest, DtypeMismatch) {
  const auto a = torch::ones({4});
  const auto b = torch::ones({4}, torch::kDouble);
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix); }, [&] { Additions(b, kPrefix); }),
            "    - 1/0: input 0 of op 0 aten::add.Tensor dtype mismatch. expected Float, actual Double");
}

TEST_F(RecompileLogTest, RankMismatch) {
  const auto a = torch::ones({4});
  const auto b = torch::ones({4, 4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix); }, [&] { Additions(b, kPrefix); }),
            "    - 1/0: input 0 of op 0 aten::add.Tensor rank mismatch. expected 1, actual 2");
}

TEST_F(RecompileLogTest, OperatorMismatch) {
  const auto a = torch::ones({4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix).exp(); }, [&] { Additions(a, kPrefix).tanh(); }),
            "    - 1/0: op 10 mismatch. expected aten::exp, actual aten::tanh");
}

TEST_F(RecompileLogTest, LengthMismatch) {
  const auto a = torch::ones({4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix).exp(); }, [&] { Additions(a, kPrefix); }),
            "    - 1/0: op 10 mismatch. expected aten::exp, actual end of trace");
}

TEST_F(RecompileLogTest, LongerTrace) {
  const auto a = torch::ones({4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix); }, [&] { Additions(a, kPrefix).exp(); }),
            "    - 1/0: op 10 mismatch. expected end of trace, actual aten::exp");
}

TEST_F(RecompileLogTest, ArgumentMismatch) {
  const auto a = torch::ones({4, 4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix).sum(0); }, [&] { Additions(a, kPrefix).sum(1); }),
            "    - 1/0: input 1 of op 10 aten::sum.dim_IntList value of 'dim' mismatch at index 0. expected 0, actual 1");
}

TEST_F(RecompileLogTest, FlagMismatch) {
  const auto a = torch::ones({4, 4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix).sum(0, false); }, [&] { Additions(a, kPrefix).sum(0, true); }),
            "    - 1/0: input 2 of op 10 aten::sum.dim_IntList value of 'keepdim' mismatch. expected false, actual true");
}

TEST_F(RecompileLogTest, AliasingMismatch) {
  const auto a = torch::ones({4});
  const auto b = torch::ones({4});
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix), a.add_(b); }, [&] { Additions(a, kPrefix), a.add_(a); }),
            "    - 1/0: input 1 of op 10 aten::add_.Tensor aliasing mismatch. expected storage 11, actual storage 0");
}

TEST_F(RecompileLogTest, LiveOutMismatch) {
  const auto a = torch::ones({4});
  torch::Tensor kept;
  EXPECT_EQ(FailureBetween([&] { Additions(a, kPrefix); }, [&] { kept = Additions(a, kPrefix); }),
            "    - 1/0: storage 10 visibility after the trace mismatch. expected dead, actual visible");
}

TEST_F(RecompileLogTest, VerboseListsEveryVariant) {
  const lazuli::DeviceMode mode(options("recompiles_verbose").dynamic("0"));
  Tensors inputs{torch::ones({4}), torch::ones({5}), torch::ones({6}), torch::ones({7})};
  for (const auto& input : inputs) (input * 2).exp().sum(0).item<float>();
  const std::string text = log_.text();
  // The first trace starts at a site of its own; the fourth is compared with the second and the third.
  EXPECT_THAT(text, HasSubstr("variant 3/8)\n"));
  EXPECT_EQ(CountOf(text, "    - 1/0: input 0 of op 0 aten::mul.Tensor size mismatch at index 0. expected 5, actual 7"), 1);
  EXPECT_EQ(CountOf(text, "    - 1/1: input 0 of op 0 aten::mul.Tensor size mismatch at index 0. expected 6, actual 7"), 1);
}

TEST_F(RecompileLogTest, SilentByDefault) {
  const lazuli::DeviceMode mode(options("").dynamic("0"));
  for (int64_t size = 2; size < 8; ++size) (torch::ones({size}) * 2).sum(0).item<float>();
  EXPECT_GT(lazuli::stats().recompiles, 0);
  EXPECT_EQ(log_.text(), "");
}

}  // namespace
}  // namespace lazuli::testing
