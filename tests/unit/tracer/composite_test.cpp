#include "tracer/composite.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lazuli/lazuli.h"

namespace lazuli::tracer {
namespace {

using torch::Tensor;

const codegen::OpInfo& Info(const std::string& name) {
  const codegen::OpInfo* info = codegen::FindOpInfo(name);
  TORCH_CHECK(info != nullptr, name);
  return *info;
}

class CompositeTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  const lazuli::DeviceMode mode_{Options().backend("aten")};
};

TEST_F(CompositeTest, IsWithoutSideEffectsAndUnknownAsAWhole) {
  EXPECT_TRUE(IsComposite(Info("aten::rot90")));
  for (const char* const known : {"aten::isinf", "aten::stack", "aten::mv", "aten::sort"}) {
    EXPECT_FALSE(IsComposite(Info(known))) << known;
  }
  EXPECT_FALSE(IsComposite(Info("aten::ldexp_")));            // Writes.
  EXPECT_FALSE(IsComposite(Info("aten::bucketize.Scalar")));  // A kernel.
  EXPECT_FALSE(IsComposite(Info("aten::randn")));
}

TEST_F(CompositeTest, ProductsWithVectorsAndSortsAreOneOperatorEach) {
  const Tensor matrix = torch::tensor({1.0F, 2.0F, 3.0F, 0.0F, -1.0F, 4.0F}).view({3, 2}), vector = torch::tensor({2.0F, 1.0F});
  lazuli::sync();
  const Stats before = lazuli::stats();
  const auto [values, indices] = matrix.mv(vector).sort(0, /*descending=*/true);  // Of 4, 6 and 2.
  lazuli::sync();
  EXPECT_EQ(lazuli::stats().ops_recorded - before.ops_recorded, 2);
  EXPECT_TRUE(values.equal(torch::tensor({6.0F, 4.0F, 2.0F}))) << values;
  EXPECT_TRUE(indices.equal(torch::tensor({1, 0, 2}, torch::kLong))) << indices;
  const auto [by_column, places] = matrix.t().sort(0);
  EXPECT_EQ(by_column.strides().vec(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(by_column[0].equal(torch::tensor({1.0F, 0.0F, -1.0F}))) << by_column;
  EXPECT_TRUE(places[0].equal(torch::tensor({0, 1, 0}, torch::kLong))) << places;
  EXPECT_THROW(matrix.mv(torch::ones({3})), c10::Error);
  EXPECT_THROW(matrix.sort(2), c10::Error);
}

TEST_F(CompositeTest, PiecesAreRecordedForEverySize) {
  const auto& rotation = Info("aten::rot90");
  EXPECT_FALSE(RecordsPieces(rotation));
  for (int64_t size = 3; size < 8; ++size) {
    EXPECT_EQ(torch::rot90(torch::full({size, 2}, 1.0)).sum().item<int64_t>(), 2 * size);
    EXPECT_TRUE(RecordsPieces(rotation));
  }
  const Stats stats = lazuli::stats();
  EXPECT_EQ(stats.observations, 0);
  EXPECT_EQ(stats.eager_fallbacks.count(rotation.name), 0U);
  EXPECT_EQ(stats.cuts.count(rotation.name), 0U);
}

TEST_F(CompositeTest, OneThatReachesPastTheDispatcherIsObserved) {
  const auto& norm = Info("aten::_batch_norm_no_update");
  const Tensor ones = torch::ones({3}), zeros = torch::zeros({3});
  ASSERT_TRUE(MayRecordPieces(norm));
  for (int i = 0; i < 3; ++i) {
    const Tensor x = (torch::rand({4, 5, 3}) * 2).transpose(1, 2);
    EXPECT_TRUE(torch::allclose(std::get<0>(torch::_batch_norm_no_update(x, ones, zeros, zeros, ones, 0.1, 0)), x));
    EXPECT_FALSE(RecordsPieces(norm));
  }
  EXPECT_FALSE(MayRecordPieces(norm));
  EXPECT_EQ(lazuli::stats().observations, 1);
}

TEST_F(CompositeTest, WhatFailedBeforeIsNotTheCompositesFailure) {
  const Tensor bad = torch::index_select(torch::rand({3}), 0, torch::full({1}, 7, torch::kLong));
  const Tensor lengths = torch::ones({2}, torch::kLong) * 2;
  EXPECT_THROW(torch::_pack_padded_sequence(torch::rand({2, 2, 3}), lengths, /*batch_first=*/true), c10::Error);
  EXPECT_NO_THROW(lazuli::sync());
}

}  // namespace
}  // namespace lazuli::tracer
