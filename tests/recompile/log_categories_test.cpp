// Each category of LAZULI_LOGS: what it says, and that it says nothing while it is off.

#include <gmock/gmock.h>

#include "runtime/log.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class LogCategoriesTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }

  // The log of a small program under `logs`.
  static std::string LogOf(const std::string& logs, const std::string& backend = "llvm") {
    const LogFile log;
    {
      const lazuli::DeviceMode mode(Options().backend(backend).logs(logs).log_file(log.path()));
      const auto w = torch::ones({8}), u = torch::ones({4, 4});
      for (const int64_t size : {6, 6, 5}) {
        const auto x = torch::ones({size, 8});
        (torch::relu(x * w + 1).sum() + torch::mm(u, u).sum()).item<float>();
      }
    }
    return log.text();
  }
};

TEST_F(LogCategoriesTest, Guards) {
  const std::string text = LogOf("guards");
  EXPECT_THAT(text, AllOf(HasSubstr("[lazuli] guards of trace #0 (site 0):\n"), HasSubstr("[lazuli]     op 0 == aten::"),
                          HasSubstr("size of input 0 of op "), HasSubstr("visible storages from 0 == 0x")));
  EXPECT_EQ(CountOf(text, "guards of trace #"), lazuli::stats().programs_compiled);
}

TEST_F(LogCategoriesTest, GraphBreaks) {
  const std::string text = LogOf("graph_breaks");
  EXPECT_EQ(CountOf(text, "[lazuli] graph break after "), lazuli::stats().traces);
  EXPECT_EQ(CountOf(text, " ops: aten::_local_scalar_dense\n"), 3);
}

TEST_F(LogCategoriesTest, GraphCode) {
  const std::string text = LogOf("graph_code");
  EXPECT_THAT(text, AllOf(HasSubstr("[lazuli] Graph of trace #0\n"), HasSubstr("aten::mul.Tensor("), HasSubstr("aten::mm(")));
  EXPECT_EQ(CountOf(text, "Graph of trace #"), lazuli::stats().programs_compiled);
  EXPECT_THAT(text, Not(HasSubstr("group [")));
}

TEST_F(LogCategoriesTest, Fusion) {
  const std::string text = LogOf("fusion");
  EXPECT_THAT(text, AllOf(HasSubstr("[lazuli] Fusion groups of trace #0\n"), HasSubstr("[lazuli] group [")));
  EXPECT_EQ(CountOf(text, "Fusion groups of trace #"), lazuli::stats().programs_compiled);
  // What the cost model makes of each kernel.
  EXPECT_THAT(
      text, ContainsRegex("Fused kernel of trace #0, aten::[^:]+: [0-9.]+ KB of memory, estimated [0-9.]+ us on one thread; [0-9]+ units"));
  EXPECT_EQ(CountOf(text, "Fused kernel of trace #"), lazuli::stats().kernels_compiled + lazuli::stats().kernel_cache_hits);
}

TEST_F(LogCategoriesTest, OutputCode) {
  const std::string text = LogOf("output_code");
  EXPECT_THAT(text, AllOf(HasSubstr("[lazuli] Kernel of trace #0\n"), HasSubstr("[lazuli] define "), HasSubstr("ret void")));
  const Stats stats = lazuli::stats();
  EXPECT_EQ(CountOf(text, "Kernel of trace #"), stats.kernels_compiled + stats.kernel_cache_hits);
  EXPECT_EQ(LogOf("output_code", "aten"), "");  // It has no code of its own.
}

TEST_F(LogCategoriesTest, Recompiles) {
  const std::string text = LogOf("recompiles");
  EXPECT_EQ(CountOf(text, "[lazuli] Recompiling trace #"), lazuli::stats().recompiles);
  EXPECT_THAT(text, AllOf(HasSubstr("triggered by the following guard failure(s):\n"), HasSubstr("expected 6, actual 5\n")));
}

TEST_F(LogCategoriesTest, RecompilesVerboseIncludesRecompiles) {
  const std::string text = LogOf("recompiles_verbose");
  EXPECT_EQ(CountOf(text, "[lazuli] Recompiling trace #"), lazuli::stats().recompiles);
  EXPECT_THAT(text, HasSubstr("expected 6, actual 5\n"));
}

TEST_F(LogCategoriesTest, PerfHintsOfForeignMemory) {
  const LogFile log;
  const lazuli::DeviceMode mode(Options().logs("perf_hints").log_file(log.path()));
  std::vector<float> data(1 << 20, 1.0F);
  const auto x = torch::from_blob(data.data(), {1 << 20});
  for (int i = 0; i < 3; ++i) EXPECT_EQ((x * 2).sum().item<float>(), 2 << 20);
  EXPECT_EQ(CountOf(log.text(), "[lazuli] 4 MB of memory that LibTorch does not own are copied whenever a recorded operator reads them"),
            1);
}

TEST_F(LogCategoriesTest, EveryCategoryIsSilentWhileOff) {
  for (const std::string& category : runtime::LogCategoryNames()) {
    if (category == "summary") continue;  // Only at exit.
    lazuli::reset();
    const std::string text = LogOf(category);
    for (const char* other : {"guards of", "graph break", "Graph of", "Fusion groups", "Kernel of", "Recompiling"}) {
      const bool own = (category == "guards" && std::string(other) == "guards of") ||
                       (category == "graph_breaks" && std::string(other) == "graph break") ||
                       (category == "graph_code" && std::string(other) == "Graph of") ||
                       (category == "fusion" && std::string(other) == "Fusion groups") ||
                       (category == "output_code" && std::string(other) == "Kernel of") ||
                       (category.rfind("recompiles", 0) == 0 && std::string(other) == "Recompiling");
      EXPECT_EQ(text.find(other) != std::string::npos, own) << category << " and '" << other << "'";
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
