#include "guards/program_cache.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <list>

#include "guards/compile_policy.h"
#include "runtime/counters.h"
#include "runtime/options.h"
#include "tests/support/log_builder.h"

namespace lazuli::guards {
namespace {

using codegen::TraceLog;
using testing::LogBuilder;

TraceLog Unary(const std::string& op, int64_t size) {
  LogBuilder b;
  const int32_t x = b.Input();
  b.Begin(op).Tensor(x, {size});
  return b.Finish({b.End({size})});
}

// So many stacks of `size` equal tensors, and then the negative of the last.
TraceLog Stacks(size_t count, int64_t size) {
  LogBuilder b;
  const int32_t x = b.Input();
  int32_t last = x;
  for (size_t i = 0; i < count; ++i) {
    b.Begin("aten::stack").List(static_cast<size_t>(size));
    for (int64_t k = 0; k < size; ++k) b.Tensor(x, {4});
    last = b.Int(0).End({size, 4});
  }
  b.Begin("aten::neg").Tensor(last, {size, 4});
  return b.Finish({b.End({size, 4})});
}

// What is recorded of `log` before its last operator.
TraceLog WithoutLastOp(TraceLog log) {
  log.code.resize(log.ops.back().code_begin);
  log.shapes.resize(log.ops.back().shapes_begin);
  log.ops.pop_back();
  return log;
}

class ProgramCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { Use(Options()); }
  static void Use(Options options) { ASSERT_TRUE(runtime::ActivateOptions(options.backend("aten")).ok()); }
  CachedTracePtr Compile(const std::string& op, int64_t size, const char* cause = "start") {
    CompilePolicy policy(runtime::Stance::kDefault);
    return cache_.Compile(Unary(op, size), cause, "", &policy);
  }
  CachedTracePtr Find(const std::string& op, int64_t size) { return cache_.Find(Unary(op, size)); }

  ProgramCache cache_;
};

TEST_F(ProgramCacheTest, FindsWhatWasCompiledAndNothingElse) {
  EXPECT_EQ(Find("aten::exp", 4), nullptr);
  const auto entry = Compile("aten::exp", 4);
  ASSERT_NE(entry, nullptr);
  EXPECT_TRUE(entry->body->compiled);
  EXPECT_NE(entry->body->program, nullptr);
  EXPECT_EQ(Find("aten::exp", 4), entry);
  EXPECT_EQ(Find("aten::exp", 5), nullptr);
  EXPECT_EQ(Find("aten::sin", 4), nullptr);
  EXPECT_EQ(cache_.size(), 1U);
}

TEST_F(ProgramCacheTest, EqualHashesAreNotEnough) {
  const auto entry = Compile("aten::exp", 4);
  // As if another trace had the same fingerprint.
  entry->log.shapes[0] = 9;
  EXPECT_EQ(Find("aten::exp", 4), nullptr);
}

TEST_F(ProgramCacheTest, CompiledProgramsRun) {
  const auto entry = Compile("aten::neg", 3);
  auto memory = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 12, c10::GetCPUAllocator(), false);
  auto* values = static_cast<float*>(memory->mutable_data());
  for (int i = 0; i < 3; ++i) values[i] = static_cast<float>(i + 1);
  std::vector<c10::StorageImpl*> storages{memory.get(), nullptr};
  std::vector<at::DataPtr> outputs(2);
  const auto result = entry->body->program->Run({storages, {}, {}, absl::MakeSpan(outputs)});
  EXPECT_EQ(result.error, nullptr);
  ASSERT_NE(outputs[1].get(), nullptr);
  EXPECT_EQ(static_cast<float*>(outputs[1].get())[2], -3);
}

TEST_F(ProgramCacheTest, SitesAreToldApartByCauseAndFirstOps) {
  const auto a = Compile("aten::exp", 4);
  EXPECT_EQ(Compile("aten::exp", 5)->site, a->site);
  EXPECT_NE(Compile("aten::exp", 4, "sync")->site, a->site);
  EXPECT_NE(Compile("aten::sin", 4)->site, a->site);
  EXPECT_EQ(a->site->programs, 2);
}

TEST_F(ProgramCacheTest, KnowsWhatGoesOn) {
  const auto id = [](const char* name) { return codegen::FindOpInfo(name)->id; };
  const int32_t neg = id("aten::neg");
  const auto goes_on = [&](size_t count, int64_t size, const char* cause, int32_t op_id) {
    return cache_.GoesOn(WithoutLastOp(Stacks(count, size)), cause, op_id);
  };
  EXPECT_FALSE(goes_on(kSiteOps, 2, "start", neg));
  CompilePolicy policy(runtime::Stance::kDefault);
  for (const size_t count : {kSiteOps, kSiteOps - 1}) ASSERT_NE(cache_.Compile(Stacks(count, 2), "start", "", &policy), nullptr);
  EXPECT_TRUE(goes_on(kSiteOps, 2, "start", neg));
  EXPECT_FALSE(goes_on(kSiteOps, 2, "start", id("aten::exp")));
  EXPECT_FALSE(goes_on(kSiteOps, 2, "sync", neg));
  EXPECT_FALSE(goes_on(kSiteOps, 3, "start", neg)) << "other operands";
  EXPECT_FALSE(goes_on(kSiteOps, 300, "start", neg)) << "more words than all of the other has";
  EXPECT_FALSE(goes_on(kSiteOps - 1, 2, "start", neg)) << "too short to tell the site";
}

TEST_F(ProgramCacheTest, LimitIsPerSite) {
  Use(Options().recompile_limit(2));
  auto& hits = runtime::Counters::Get().recompile_limit_hits;
  const int64_t before = hits.value();
  EXPECT_NE(Compile("aten::exp", 1), nullptr);
  EXPECT_NE(Compile("aten::exp", 2), nullptr);
  EXPECT_EQ(Compile("aten::exp", 3), nullptr);
  EXPECT_EQ(Compile("aten::exp", 4), nullptr);
  EXPECT_EQ(hits.value() - before, 2);
  EXPECT_NE(Find("aten::exp", 1), nullptr);
  EXPECT_NE(Compile("aten::sin", 3), nullptr);
}

TEST_F(ProgramCacheTest, AccumulatedLimitLetsFirstProgramsThrough) {
  Use(Options().accumulated_recompile_limit(1));
  EXPECT_NE(Compile("aten::exp", 1), nullptr);
  EXPECT_NE(Compile("aten::exp", 2), nullptr);
  EXPECT_EQ(Compile("aten::exp", 3), nullptr);
  EXPECT_NE(Compile("aten::sin", 1), nullptr);
  EXPECT_EQ(Compile("aten::sin", 2), nullptr);
}

TEST_F(ProgramCacheTest, APolicyKeepsTracesFromBeingCompiled) {
  const auto compile = [this](CompilePolicy* policy) { return cache_.Compile(Unary("aten::exp", 4), "start", "x.cpp:3", policy); };
  CompilePolicy eager(runtime::Stance::kEagerOnRecompile);
  EXPECT_EQ(compile(&eager), nullptr);
  EXPECT_TRUE(eager.kept_eager());
  EXPECT_EQ(eager.error(), "");
  CompilePolicy fail(runtime::Stance::kFailOnRecompile);
  EXPECT_EQ(compile(&fail), nullptr);
  EXPECT_TRUE(fail.kept_eager());
  EXPECT_NE(fail.error().find(" at x.cpp:3\n    the site has no program yet: after start, starts with aten::exp\n"), std::string::npos)
      << fail.error();
  EXPECT_EQ(cache_.size(), 0U);
  CompilePolicy first(runtime::Stance::kEagerThenCompile);
  const auto seen = compile(&first);
  ASSERT_NE(seen, nullptr);
  EXPECT_TRUE(seen->body->seen_once());
  EXPECT_TRUE(first.kept_eager());
  CompilePolicy second(runtime::Stance::kEagerThenCompile);
  EXPECT_TRUE(cache_.CompileSeen(seen, "", &second)->body->ready());
  EXPECT_FALSE(second.kept_eager());
  EXPECT_EQ(cache_.size(), 1U);
}

TEST_F(ProgramCacheTest, EvictsTheLeastRecentlyUsed) {
  Use(Options().cache_size(2).dynamic("0"));
  const std::weak_ptr<CachedTrace> first = Compile("aten::exp", 1);
  Compile("aten::exp", 2);
  EXPECT_NE(Find("aten::exp", 1), nullptr);
  Compile("aten::exp", 3);
  EXPECT_EQ(cache_.size(), 2U);
  EXPECT_NE(Find("aten::exp", 1), nullptr);
  EXPECT_EQ(Find("aten::exp", 2), nullptr);
  Compile("aten::exp", 4);
  Compile("aten::exp", 5);
  EXPECT_TRUE(first.expired());
}

TEST_F(ProgramCacheTest, EvictsInTheOrderOfUseHoweverManyThereAre) {
  constexpr size_t kSize = 64;
  Use(Options().cache_size(kSize).dynamic("0").recompile_limit(1000).accumulated_recompile_limit(1000));
  std::list<int64_t> by_use;  // The sizes that are there, the last used first.
  uint64_t random = 1;
  for (int64_t next = 1; next < 400;) {
    random = random * 6364136223846793005 + 1442695040888963407;
    if (by_use.size() > 8 && (random >> 33) % 3 != 0) {
      const auto used = std::next(by_use.begin(), static_cast<std::ptrdiff_t>((random >> 40) % by_use.size()));
      ASSERT_NE(Find("aten::exp", *used), nullptr) << *used;
      by_use.splice(by_use.begin(), by_use, used);
      continue;
    }
    ASSERT_NE(Compile("aten::exp", next), nullptr);
    by_use.push_front(next++);
    if (by_use.size() <= kSize) continue;
    ASSERT_EQ(Find("aten::exp", by_use.back()), nullptr) << by_use.back();
    by_use.pop_back();
    ASSERT_EQ(cache_.size(), kSize);
  }
}

TEST_F(ProgramCacheTest, SuccessorsArePredictionsUntilEvicted) {
  Use(Options().cache_size(2));
  const auto first = Compile("aten::exp", 1);
  EXPECT_EQ(cache_.Successor(first, "sync"), nullptr);
  cache_.NoteSuccessor(first, "sync", Compile("aten::exp", 2));
  EXPECT_EQ(cache_.Successor(first, "sync"), Find("aten::exp", 2));
  Compile("aten::exp", 3);
  Compile("aten::exp", 4);
  EXPECT_EQ(cache_.Successor(first, "sync"), nullptr);
}

TEST_F(ProgramCacheTest, WithoutAPreviousTraceWhatFollowedTheSameCauseIsPredicted) {
  const auto exp = Compile("aten::exp", 1), neg = Compile("aten::neg", 1);
  cache_.NoteSuccessor(nullptr, "sync", exp);
  cache_.NoteSuccessor(nullptr, "sync", neg);
  EXPECT_EQ(cache_.Successor(nullptr, "sync"), neg);
  EXPECT_EQ(cache_.SuccessorStartingWith(nullptr, "sync", exp->log.ops[0].op_id), exp);
  EXPECT_EQ(cache_.Successor(nullptr, "data_ptr"), nullptr);
  EXPECT_EQ(cache_.Successor(exp, "sync"), nullptr);
}

TEST_F(ProgramCacheTest, LongTracesAreFewerThanTheLimit) {
  Use(Options().dynamic("0").recompile_limit(64));
  CompilePolicy policy(runtime::Stance::kDefault);
  ProgramCache cache(/*most_log_bytes=*/400);
  for (int64_t size = 2; size < 12; ++size) {
    EXPECT_NE(cache.Compile(Unary("aten::exp", size), "start", "", &policy), nullptr);
    EXPECT_NE(cache.Find(Unary("aten::exp", size)), nullptr);
  }
  EXPECT_GE(cache.size(), 1U);
  EXPECT_LT(cache.size(), 6U);
  EXPECT_EQ(cache.Find(Unary("aten::exp", 2)), nullptr);
}

TEST_F(ProgramCacheTest, ClearForgetsEverything) {
  Compile("aten::exp", 1);
  cache_.Clear();
  EXPECT_EQ(cache_.size(), 0U);
  EXPECT_EQ(Find("aten::exp", 1), nullptr);
  EXPECT_EQ(Compile("aten::exp", 1)->serial, 0);
}

}  // namespace
}  // namespace lazuli::guards
