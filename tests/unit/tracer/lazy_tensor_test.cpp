#include "tracer/lazy_tensor.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lazuli/lazuli.h"

namespace lazuli::tracer {
namespace {

c10::StorageImpl* StorageOf(const torch::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(); }

class LazyTensorTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  const lazuli::DeviceMode mode_{Options().backend("aten")};
};

TEST_F(LazyTensorTest, ARecordedResultIsPendingUntilSomeoneLooks) {
  const auto x = torch::ones({3}) + 1;
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  ASSERT_NE(AsLazy(StorageOf(x)), nullptr);
  // Metadata never settles.
  EXPECT_EQ(x.sizes(), torch::IntArrayRef({3}));
  EXPECT_EQ(x.numel(), 3);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.scalar_type(), torch::kFloat);
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  EXPECT_EQ(static_cast<const float*>(x.const_data_ptr())[1], 2);
  EXPECT_FALSE(IsPending(*StorageOf(x)));
}

TEST_F(LazyTensorTest, SyncSettlesEverything) {
  const auto x = torch::ones({3}) + 1;
  const auto y = x * 2;
  lazuli::sync();
  EXPECT_FALSE(IsPending(*StorageOf(x)));
  EXPECT_FALSE(IsPending(*StorageOf(y)));
}

TEST_F(LazyTensorTest, ViewsShareThePendingStorage) {
  const auto x = torch::ones({4, 3}) + 1;
  const auto view = x.t().select(0, 1);
  EXPECT_EQ(StorageOf(x), StorageOf(view));
  EXPECT_TRUE(IsPending(*StorageOf(view)));
  view.data_ptr();
  EXPECT_FALSE(IsPending(*StorageOf(x)));
}

TEST_F(LazyTensorTest, AnAllocationAloneNeverNeedsACut) {
  const auto x = at::empty({5}, torch::kFloat);
  const auto pending = torch::ones({5}) + 1;
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  x.data_ptr();
  EXPECT_FALSE(IsPending(*StorageOf(x)));
  EXPECT_TRUE(IsPending(*StorageOf(pending)));
  EXPECT_EQ(lazuli::stats().traces, 0);
}

TEST_F(LazyTensorTest, APlainTensorWrittenInPlaceIsClosedUntilTheWriteRan) {
  torch::Tensor x;
  {
    const lazuli::EagerScope eager;
    x = torch::ones({3});
  }
  EXPECT_FALSE(IsPending(*StorageOf(x)));
  x.add_(1);
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  EXPECT_EQ(AsLazy(StorageOf(x)), nullptr);
  EXPECT_EQ(x.data_ptr<float>()[0], 2);
  EXPECT_FALSE(IsPending(*StorageOf(x)));
}

TEST_F(LazyTensorTest, APathPastTheTensorThrowsInsteadOfReadingOldBytes) {
  torch::Tensor x;
  {
    const lazuli::EagerScope eager;
    x = torch::ones({3});
  }
  const c10::Storage storage = x.storage();
  // Somebody else holds the memory of a tensor that was not seen before: written at once.
  x.add_(1);
  EXPECT_FALSE(IsPending(*StorageOf(x)));
  EXPECT_EQ(static_cast<const float*>(storage.data())[2], 2);
  x.add_(1);
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  try {
    storage.mutable_data();
    FAIL() << "pending memory was handed out";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("lazuli::sync()"), std::string::npos) << error.what();
  }
  lazuli::sync();
  EXPECT_EQ(static_cast<const float*>(storage.data())[2], 3);
}

TEST_F(LazyTensorTest, AdoptChangesPlainTensorsOnly) {
  torch::Tensor plain;
  torch::Tensor sparse;
  {
    const lazuli::EagerScope eager;
    plain = torch::ones({3});
    sparse = torch::eye(3).to_sparse();
  }
  EXPECT_TRUE(IsPlainOrLazy(*plain.unsafeGetTensorImpl()));
  EXPECT_FALSE(IsPlainOrLazy(*sparse.unsafeGetTensorImpl()));
  Adopt(plain.unsafeGetTensorImpl());
  Adopt(plain.unsafeGetTensorImpl());
  Adopt(sparse.unsafeGetTensorImpl());
  EXPECT_NE(dynamic_cast<LazyTensorImpl*>(plain.unsafeGetTensorImpl()), nullptr);
  EXPECT_EQ(plain.sum().item<float>(), 3);
  EXPECT_EQ(sparse._nnz(), 3);
}

TEST_F(LazyTensorTest, DetachedCopiesSettleToo) {
  const auto x = torch::ones({3}).requires_grad_() * 2;
  const auto detached = x.detach();
  const auto data = x.variable_data();
  EXPECT_NE(dynamic_cast<LazyTensorImpl*>(detached.unsafeGetTensorImpl()), nullptr);
  EXPECT_EQ(detached.data_ptr<float>()[0], 2);
  EXPECT_EQ(data.data_ptr<float>()[2], 2);
}

TEST_F(LazyTensorTest, MetadataScopeLooksWithoutSettling) {
  const auto x = torch::ones({3}) + 1;
  {
    const MetadataScope metadata;
    EXPECT_TRUE(x.has_storage());
    EXPECT_EQ(x.storage().nbytes(), 12U);
  }
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  EXPECT_EQ(lazuli::stats().traces, 0);
}

TEST_F(LazyTensorTest, ResultsHaveTheExactMemoryOfTheirWindow) {
  const auto x = torch::ones({4, 3}).t() + 1;
  EXPECT_EQ(x.strides(), torch::IntArrayRef({1, 3}));
  EXPECT_EQ(StorageOf(x)->nbytes(), 48U);
  EXPECT_EQ(x.storage_offset(), 0);
}

}  // namespace
}  // namespace lazuli::tracer
