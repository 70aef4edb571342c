#include "runtime/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lazuli::runtime {
namespace {

class CountersTest : public ::testing::Test {
 protected:
  void SetUp() override { Counters::Get().Reset(); }
  void TearDown() override { Counters::Get().Reset(); }
};

TEST_F(CountersTest, ListCoversEveryMemberOfStats) {
  size_t integers = 0;
#define LAZULI_COUNT(name) ++integers;
  LAZULI_COUNTERS(LAZULI_COUNT)
#undef LAZULI_COUNT
  ++integers;  // packed_weight_bytes is no count: Reset() leaves it.
  EXPECT_EQ(sizeof(Stats), integers * sizeof(int64_t) + 2 * sizeof(double) + 3 * sizeof(std::map<std::string, int64_t>));
}

TEST_F(CountersTest, SnapshotHasWhatWasAdded) {
  Counters& counters = Counters::Get();
  counters.traces.Add();
  counters.ops_recorded.Add(41);
  counters.ops_recorded.Add();
  counters.compile_nanoseconds.Add(1500000);
  counters.CountEagerFallback("aten::nonzero");
  counters.CountEagerFallback("aten::nonzero", 2);
  counters.EagerUncut("aten::rand").Add();
  counters.CountCut("sync");
  const Stats stats = counters.Snapshot();
  EXPECT_EQ(stats.traces, 1);
  EXPECT_EQ(stats.ops_recorded, 42);
  EXPECT_DOUBLE_EQ(stats.compile_seconds, 0.0015);
  EXPECT_EQ(stats.eager_fallbacks, (std::map<std::string, int64_t>{{"aten::nonzero", 3}}));
  EXPECT_EQ(stats.eager_uncut, (std::map<std::string, int64_t>{{"aten::rand", 1}}));
  EXPECT_EQ(stats.cuts, (std::map<std::string, int64_t>{{"sync", 1}}));
}

TEST_F(CountersTest, ResetForgetsAll) {
  Counters& counters = Counters::Get();
  counters.kernel_launches.Add(5);
  counters.CountCut("sync");
  counters.compile_nanoseconds.Add(7);
  counters.Reset();
  EXPECT_EQ(counters.Snapshot().ToJson(), Stats().ToJson());
}

TEST_F(CountersTest, ThreadsLoseNothing) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 1000; ++k) {
        Counters::Get().ops_recorded.Add();
        Counters::Get().CountCut("sync");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Counters::Get().Snapshot().ops_recorded, 4000);
  EXPECT_EQ(Counters::Get().Snapshot().cuts.at("sync"), 4000);
}

TEST_F(CountersTest, CompileTimerAddsItsScope) {
  {
    CompileTimer timer;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(Counters::Get().Snapshot().compile_seconds, 0.005);
  EXPECT_LT(Counters::Get().Snapshot().compile_seconds, 5.0);
}

TEST(StatsTest, JsonIsOneLineInMemberOrder) {
  Stats stats;
  stats.ops_recorded = 12;
  stats.compile_seconds = 1.25;
  stats.compile_wait_seconds = 0.5;
  stats.eager_fallbacks["aten::nonzero"] = 2;
  stats.cuts["sync"] = 1;
  stats.cuts["a\"b\\c\n"] = 3;
  const std::string json = stats.ToJson();
  EXPECT_EQ(json.rfind("{\"ops_recorded\": 12, \"views_recorded\": 0, \"traces\": 0, ", 0), 0u) << json;
  const std::string tail =
      "\"compile_seconds\": 1.250000, \"compile_wait_seconds\": 0.500000, "
      "\"eager_fallbacks\": {\"aten::nonzero\": 2}, \"eager_uncut\": {}, \"cuts\": {\"a\\\"b\\\\c\\u000a\": "
      "3, \"sync\": 1}}";
  ASSERT_GT(json.size(), tail.size());
  EXPECT_EQ(json.substr(json.size() - tail.size()), tail);
  EXPECT_EQ(json.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace lazuli::runtime
