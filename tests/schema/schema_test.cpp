// Every operator of the dispatcher that plain CPU tensors can meet, called from its schema, against eager.

#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/schema_runner.h"

namespace lazuli::testing {
namespace {

constexpr int kShards = 8;
constexpr int kMinAcceptedOverloads = 2650;
constexpr double kMaxUncovered = 0.03;  // Of the operators that plain CPU tensors can meet.

class SchemaTest : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(SchemaTest, LikeEager) {
  const auto& [backend, shard] = GetParam();
  RunShard(backend, shard, kShards);
}

INSTANTIATE_TEST_SUITE_P(Shards, SchemaTest, ::testing::Combine(::testing::Values("aten", "llvm"), ::testing::Range(0, kShards)),
                         [](const auto& info) { return std::get<0>(info.param) + std::to_string(std::get<1>(info.param)); });

// Runs last.
class SchemaTotalsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SchemaTotalsTest, Coverage) {
  const SchemaTotals& totals = TotalsOf(GetParam());
  PrintTotals(GetParam());
  if (IsFiltered() || totals.shards.size() != kShards) GTEST_SKIP() << "not all operators were run";
  EXPECT_GE(totals.accepted_overloads, kMinAcceptedOverloads);
  const int never_accepted = totals.overloads - totals.accepted_overloads;
  EXPECT_LE(never_accepted + totals.NumUntested(), kMaxUncovered * (totals.overloads + totals.NumUntested()));
  EXPECT_GT(totals.ops_recorded, totals.calls);
  EXPECT_GT(totals.programs_compiled, totals.accepted_overloads / 2);
  EXPECT_GT(totals.cache_hits, totals.programs_compiled / 2);
  EXPECT_GT(totals.predicted_hits, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, SchemaTotalsTest, ::testing::Values("aten", "llvm"),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace lazuli::testing
