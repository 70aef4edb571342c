// What is foretold of a trace's arguments.
#include "guards/steady_args.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

namespace lazuli::guards {
namespace {

c10::intrusive_ptr<c10::StorageImpl> MakeStorage() {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 16, c10::GetCPUAllocator(), /*resizable=*/false);
}

void NoteTimes(int times, SteadyArgs* args, c10::StorageImpl* storage, uint64_t scalar, int64_t offset) {
  for (int i = 0; i < times; ++i) args->Note({storage, nullptr}, {scalar}, {offset});
}

TEST(SteadyArgs, WhatStaysTheSameIsForetold) {
  SteadyArgs args;
  const auto storage = MakeStorage();
  NoteTimes(2, &args, storage.get(), 5, 7);
  EXPECT_EQ(args.Storage(0), nullptr);
  EXPECT_EQ(args.Scalar(0), nullptr);
  NoteTimes(1, &args, storage.get(), 5, 7);
  EXPECT_EQ(args.Storage(0), storage);
  ASSERT_NE(args.Scalar(0), nullptr);
  EXPECT_EQ(*args.Scalar(0), 5u);
  ASSERT_NE(args.Offset(0), nullptr);
  EXPECT_EQ(*args.Offset(0), 7);
  EXPECT_EQ(args.Storage(1), nullptr);
  EXPECT_EQ(args.Storage(2), nullptr);
  EXPECT_EQ(args.Scalar(1), nullptr);
}

TEST(SteadyArgs, WhatChangesIsNotForLong) {
  SteadyArgs args;
  const auto storage = MakeStorage();
  NoteTimes(8, &args, storage.get(), 5, 7);
  args.Note({storage.get(), nullptr}, {6}, {7});
  NoteTimes(32, &args, storage.get(), 6, 7);
  EXPECT_EQ(args.Scalar(0), nullptr);
  EXPECT_NE(args.Offset(0), nullptr);
  NoteTimes(64, &args, storage.get(), 6, 7);
  ASSERT_NE(args.Scalar(0), nullptr);
  EXPECT_EQ(*args.Scalar(0), 6u);
}

TEST(SteadyArgs, AStorageThatIsGoneIsNotForetold) {
  SteadyArgs args;
  auto storage = MakeStorage();
  NoteTimes(8, &args, storage.get(), 0, 0);
  EXPECT_EQ(args.Storage(0), storage);
  storage.reset();
  EXPECT_EQ(args.Storage(0), nullptr);
}

TEST(SteadyArgs, NorOneThatSomebodyElseUses) {
  SteadyArgs args;
  const auto storage = MakeStorage();
  NoteTimes(8, &args, storage.get(), 0, 0);
  args.Distrust(storage.get());
  EXPECT_EQ(args.Storage(0), nullptr);
  NoteTimes(8, &args, storage.get(), 0, 0);
  EXPECT_EQ(args.Storage(0), nullptr);
}

}  // namespace
}  // namespace lazuli::guards
