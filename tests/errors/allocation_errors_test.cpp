// Memory that runs out inside a program: the trace runs op by op; what then still fails, fails as in eager mode.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <functional>
#include <limits>

#include "runtime/buffer_pool.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

// The CPU's allocator, but blocks of more than `limit` bytes are refused.
class LimitedAllocator final : public c10::Allocator {
 public:
  LimitedAllocator() { c10::SetCPUAllocator(this, /*priority=*/100); }
  at::DataPtr allocate(size_t nbytes) override {
    TORCH_CHECK(nbytes <= limit, "out of memory: you tried to allocate ", nbytes, " bytes");
    return c10::GetDefaultCPUAllocator()->allocate(nbytes);
  }
  at::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }

  size_t limit = std::numeric_limits<size_t>::max();
};

LimitedAllocator& Memory() {
  static auto* allocator = new LimitedAllocator;  // Allocators are for good.
  return *allocator;
}

class AllocationErrorsTest : public BackendTest {
 protected:
  static constexpr int64_t kSide = 512;  // 1 MB each.
  static constexpr size_t kMegabyte = kSide * kSide * sizeof(float);

  void SetUp() override {
    BackendTest::SetUp();
    const torch::NoGradGuard no_grad;
    a_ = torch::rand({kSide, kSide});
    b_ = torch::rand({kSide, kSide});
  }
  void TearDown() override { Memory().limit = std::numeric_limits<size_t>::max(); }

  // Several results of 1 MB are alive at once in the middle.
  torch::Tensor Run() const { return (a_.mm(b_) - b_.mm(a_)) * a_.mm(a_); }

  static std::string ErrorOf(const std::function<void()>& run) {
    try {
      run();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  }

  torch::Tensor a_, b_;
};

TEST_P(AllocationErrorsTest, ProgramTooLargeAtOnceRunsOpByOp) {
  const torch::Tensor eager = Run();
  const lazuli::DeviceMode mode(options());
  torch::Tensor first = Run();
  lazuli::sync();
  first = torch::Tensor();
  runtime::BufferPool::Get().Trim();
  Memory().limit = kMegabyte;  // Enough for each result, not for the program's block of temporaries.
  const StatsDelta delta;
  const torch::Tensor lazy = Run();
  lazuli::sync();
  ExpectSame(eager, lazy, exact(), "result");
  EXPECT_EQ(delta.of(&Stats::eager_replays), 1);
  // With memory again, the program runs again.
  Memory().limit = std::numeric_limits<size_t>::max();
  const StatsDelta again;
  ExpectSame(eager, Run(), exact(), "result");
  EXPECT_EQ(again.of(&Stats::eager_replays), 0);
  EXPECT_EQ(again.of(&Stats::cache_hits), 1);
}

TEST_P(AllocationErrorsTest, FailsAsEagerAndTheModeGoesOn) {
  const torch::Tensor expected = Run(), small = torch::ones({3});
  Memory().limit = kMegabyte - 1;
  const std::string eager = ErrorOf([&] { Run(); });
  ASSERT_NE(eager.find("you tried to allocate"), std::string::npos);
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) {
    runtime::BufferPool::Get().Trim();
    Memory().limit = kMegabyte - 1;
    const torch::Tensor kept = small * (i + 2);  // The rest of the trace.
    torch::Tensor lazy = Run();
    EXPECT_EQ(ErrorOf([] { lazuli::sync(); }), eager);
    EXPECT_EQ(ErrorOf([&] { lazy.data_ptr(); }), eager);
    ExpectSame(torch::full({3}, i + 2.0), kept, true, "rest of the trace");
    Memory().limit = std::numeric_limits<size_t>::max();
    ExpectSame(expected, Run(), exact(), "after the error");
  }
}

// What no machine has room for fails where it is asked for, and nothing else does.
TEST_P(AllocationErrorsTest, WhatCannotFitFailsWhereItIsAskedFor) {
  constexpr int64_t kTooMany = int64_t{1} << 45;
  Memory().limit = size_t{1} << 40;  // Of which sanitizers' allocators would not think.
  const auto one = torch::ones({1});
  const std::function<torch::Tensor()> programs[] = {[] { return torch::zeros({kTooMany}); }, [] { return torch::full({kTooMany}, 3.0); },
                                                     [&] { return torch::zeros_like(one.expand(kTooMany)); },
                                                     [&] { return one.expand(kTooMany) + 1; },
                                                     [&] {
                                                       return torch::cat({one.expand(kTooMany), one}).mul_(2);
                                                     }};
  for (const auto& program : programs) {
    const std::string eager = ErrorOf([&] { program(); });
    ASSERT_NE(eager, "no error");
    const lazuli::DeviceMode mode(options());
    for (int i = 0; i < 3; ++i) {
      const auto other = one * 2 + i;
      EXPECT_EQ(ErrorOf([&] { program(); }), eager);
      EXPECT_EQ(other.item<float>(), 2 + i);
    }
  }
}

LAZULI_FOR_EACH_BACKEND(AllocationErrorsTest);

}  // namespace
}  // namespace lazuli::testing
