#include "guards/shape_profile.h"

#include <gmock/gmock.h>

#include "tests/support/cache_fixture.h"
#include "tests/support/log_builder.h"

namespace lazuli::testing {
namespace {

using codegen::TraceLog;
using guards::DynamicShapes;
using guards::NumbersOf;
using guards::ShapeProfile;
using runtime::DiskCache;

// x [rows, columns] -> `op` -> a reduction to one number, and a view of the same memory as one row.
TraceLog Work(const char* op, int64_t rows, int64_t columns) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin(op).Tensor(x, {rows, columns});
  const int32_t y = log.End({rows, columns});
  log.Begin("aten::exp").Tensor(y, {rows * columns});
  const int32_t z = log.End({rows * columns});
  log.Begin("aten::sum").Tensor(z, {rows * columns}).None();
  return log.Finish({log.End({})});
}

class ShapeProfileTest : public CacheFixture {
 protected:
  // As a process of its own would find it.
  ShapeProfile In(const TraceLog& log) { return ShapeProfile(&disk_, log); }
  // What became of `now` after `before`.
  static DynamicShapes Inferred(const TraceLog& now, const TraceLog& before) {
    std::string why_not;
    return *DynamicShapes::Infer(now, {NumbersOf(before)}, &why_not);
  }
  std::string OnlyEntry() const {
    const auto names = Entries();
    EXPECT_EQ(names.size(), 1U);
    return names.empty() ? "" : names[0];
  }

  DiskCache disk_{folder_.string(), 1 << 20};
};

// x [16] -> `relu` -> two elements of it.
TraceLog Picked(int64_t first) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {16});
  const int32_t y = log.End({16});
  log.Begin("aten::exp").Window(y, {1}, 0, first);
  log.End({1});
  log.Begin("aten::sin").Window(y, {1}, 1, 17 - first);
  return log.Finish({log.End({1})});
}

TEST_F(ShapeProfileTest, OffsetsThatMayBeAny) {
  {
    ShapeProfile profile = In(Picked(3));
    profile.AddDynamic(Inferred(Picked(5), Picked(3)));
  }
  const auto shapes = In(Picked(9)).FindDynamic(Picked(9));
  ASSERT_TRUE(shapes.has_value());
  EXPECT_TRUE(shapes->Match(NumbersOf(Picked(12))).has_value());
}

TEST_F(ShapeProfileTest, NothingIsKnownAtFirst) {
  ShapeProfile profile = In(Work("aten::relu", 4, 8));
  EXPECT_FALSE(profile.Knows(Work("aten::relu", 4, 8)));
  EXPECT_THAT(Entries(), ::testing::IsEmpty());
}

TEST_F(ShapeProfileTest, ExactNumbers) {
  const TraceLog log = Work("aten::relu", 4, 8);
  In(log).AddStatic(log);
  EXPECT_TRUE(In(log).HasStatic(log));
  EXPECT_TRUE(In(log).Knows(log));
  EXPECT_FALSE(In(log).Knows(Work("aten::relu", 5, 8)));
  EXPECT_FALSE(In(Work("aten::neg", 4, 8)).Knows(Work("aten::neg", 4, 8)));
}

TEST_F(ShapeProfileTest, SymbolsComeBackAsTheyWere) {
  const DynamicShapes shapes = Inferred(Work("aten::relu", 6, 8), Work("aten::relu", 4, 8));
  In(Work("aten::relu", 6, 8)).AddDynamic(shapes);
  const TraceLog other = Work("aten::relu", 100, 8);
  const auto found = In(other).FindDynamic(other);
  ASSERT_TRUE(found.has_value());
  // Hints are those of the program that was compiled, so that it is compiled to the same code.
  EXPECT_EQ(found->symbols().hint(0), 6);
  EXPECT_EQ(found->numbers(), shapes.numbers());
  EXPECT_EQ(*found->Match(NumbersOf(other)), *shapes.Match(NumbersOf(other)));
}

TEST_F(ShapeProfileTest, ProductsOfSymbolsComeBack) {
  const DynamicShapes shapes = Inferred(Work("aten::relu", 6, 8), Work("aten::relu", 4, 7));
  EXPECT_EQ(shapes.symbols().size(), 2);
  In(Work("aten::relu", 6, 8)).AddDynamic(shapes);
  const TraceLog other = Work("aten::relu", 11, 13);
  const auto found = In(other).FindDynamic(other);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->numbers(), shapes.numbers());
}

TEST_F(ShapeProfileTest, OnlyWhereTheConstantsAreTheSame) {
  const TraceLog log = Work("aten::relu", 6, 8);
  In(log).AddDynamic(Inferred(log, Work("aten::relu", 4, 8)));
  EXPECT_FALSE(In(log).Knows(Work("aten::relu", 6, 9)));
  EXPECT_FALSE(In(log).Knows(Work("aten::relu", 1, 8)));
}

TEST_F(ShapeProfileTest, WithoutADiskCacheNothingIsKept) {
  const TraceLog log = Work("aten::relu", 6, 8);
  ShapeProfile profile(nullptr, log);
  profile.AddStatic(log);
  EXPECT_FALSE(profile.Knows(log));
}

TEST_F(ShapeProfileTest, TheLatestAreKept) {
  const TraceLog first = Work("aten::relu", 2, 8);
  for (int64_t rows = 2; rows < 40; ++rows) In(first).AddStatic(Work("aten::relu", rows, 8));
  EXPECT_FALSE(In(first).HasStatic(first));
  EXPECT_TRUE(In(first).HasStatic(Work("aten::relu", 39, 8)));
  EXPECT_LT(std::filesystem::file_size(folder_ / OnlyEntry()), 2000U);
}

// Whatever stands in the profile, no symbols come out that do not fit the log.
TEST_F(ShapeProfileTest, NonsenseIsNotBelieved) {
  const TraceLog log = Work("aten::relu", 6, 8);
  In(log).AddDynamic(Inferred(log, Work("aten::relu", 4, 8)));
  const auto entry = runtime::DecodeEntry(ReadBytes(folder_ / OnlyEntry()));
  ASSERT_TRUE(entry.ok());
  int believed = 0;
  for (size_t i = 0; i < entry->blob.size(); ++i) {
    for (const char c : std::string("0 19;,:-x\n")) {
      std::string blob = entry->blob;
      blob[i] = c;
      disk_.Put(entry->kind, entry->key, blob);
      if (const auto found = In(log).FindDynamic(log)) {
        ++believed;
        EXPECT_TRUE(found->Match(NumbersOf(log)).has_value()) << blob;
      }
    }
  }
  EXPECT_GT(believed, 0);  // Another hint, for one, is as good.
}

}  // namespace
}  // namespace lazuli::testing
