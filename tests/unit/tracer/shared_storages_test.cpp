#include "tracer/shared_storages.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "lazuli/lazuli.h"
#include "tests/support/same_as_eager.h"
#include "tracer/lazy_tensor.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {
namespace {

c10::StorageImpl* StorageOf(const torch::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(); }

bool Marks(c10::StorageImpl* storage, const Recorder* recorder) {
  bool marked = false;
  const bool answer = MarkUnlessShared(storage, recorder, [&] { marked = true; });
  EXPECT_EQ(answer, marked);
  return marked;
}

TEST(SharedStoragesTest, OnlyTheSoleReaderMayRecordAWrite) {
  Recorder one, two;
  const auto x = torch::ones({3});
  EXPECT_TRUE(Marks(StorageOf(x), &one));
  RegisterInput(StorageOf(x), &one);
  EXPECT_TRUE(Marks(StorageOf(x), &one));
  EXPECT_FALSE(Marks(StorageOf(x), &two));
  EXPECT_TRUE(RegisterSettledInput(StorageOf(x), &two));
  EXPECT_FALSE(Marks(StorageOf(x), &one));
  UnregisterInput(StorageOf(x), &two);
  EXPECT_TRUE(Marks(StorageOf(x), &one));
  UnregisterInput(StorageOf(x), &one);
  EXPECT_TRUE(Marks(StorageOf(x), &two));
}

TEST(SharedStoragesTest, PendingContentsAreNoInput) {
  Recorder recorder;
  const lazuli::DeviceMode mode(Options().backend("aten"));
  const auto x = torch::ones({3}) + 1;
  ASSERT_EQ(PendingIn(StorageOf(x)), Recorder::Current());
  EXPECT_FALSE(RegisterSettledInput(StorageOf(x), &recorder));
  lazuli::sync();
  EXPECT_EQ(PendingIn(StorageOf(x)), nullptr);
  EXPECT_TRUE(RegisterSettledInput(StorageOf(x), &recorder));
  UnregisterInput(StorageOf(x), &recorder);
}

TEST(SharedStoragesTest, WhileAnOperatorRunsNobodyMayRecordAWriteOfItsOperands) {
  NoteSeveralRecorders();
  Recorder recorder;
  const auto x = torch::ones({3});
  {
    OperandsInUse operands(&recorder);
    operands.Add(x, /*writes=*/false);
    operands.Add(x, /*writes=*/true);
    operands.Settle();
    EXPECT_FALSE(Marks(StorageOf(x), &recorder));
  }
  EXPECT_TRUE(Marks(StorageOf(x), &recorder));
}

TEST(SharedStoragesTest, OperandsAreSettled) {
  NoteSeveralRecorders();
  const lazuli::DeviceMode mode(Options().backend("aten"));
  const auto x = torch::ones({3}) + 1;
  OperandsInUse operands(nullptr);
  operands.Add(x, /*writes=*/false);
  EXPECT_TRUE(IsPending(*StorageOf(x)));
  operands.Settle();
  EXPECT_FALSE(IsPending(*StorageOf(x)));
}

TEST(SharedStoragesTest, AStorageHasANumberInOneTraceAtATime) {
  const auto storage = c10::make_intrusive<LazyStorage>(4, c10::kCPU, nullptr, /*epoch=*/7, /*id=*/3);
  EXPECT_EQ(storage->NumberIn(7), 3);
  EXPECT_EQ(storage->NumberIn(8), -1);
  storage->SetNumber(8, 5);
  EXPECT_EQ(storage->NumberIn(7), -1);
  storage->ClearNumber(7, 3);
  EXPECT_EQ(storage->NumberIn(8), 5);
  storage->ClearNumber(8, 5);
  EXPECT_EQ(storage->NumberIn(8), -1);
}

}  // namespace
}  // namespace lazuli::tracer
