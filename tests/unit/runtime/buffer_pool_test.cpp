// Memory of ATen calls inside a PoolScope, and that of all others.

#include "runtime/buffer_pool.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace lazuli::runtime {
namespace {

constexpr int64_t kElements = 100000;
constexpr int64_t kBytes = kElements * 4;

class BufferPoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { BufferPool::ServeAtenCalls(); }
  void SetUp() override { BufferPool::Get().Trim(); }
  static int64_t used() { return BufferPool::Get().usage().used_bytes; }
};

TEST_F(BufferPoolTest, ServesAtenCallsInItsScopeAlone) {
  const int64_t before = used();
  const at::Tensor outside = at::empty({kElements});
  EXPECT_EQ(used(), before);
  std::optional<at::Tensor> inside;
  {
    const PoolScope scope;
    inside = at::empty({kElements});
    const at::Tensor small = at::empty({4});
    EXPECT_GE(used(), before + kBytes);
    EXPECT_LT(used(), before + 2 * kBytes);
  }
  EXPECT_FALSE(PoolScope::active());
  const void* block = inside->data_ptr();
  inside.reset();
  EXPECT_EQ(used(), before);
  const PoolScope scope;
  EXPECT_EQ(at::empty({kElements}).data_ptr(), block) << "an idle block is given out again";
}

TEST_F(BufferPoolTest, MemoryWithoutDataPtrGoesBackWhereItCameFrom) {
  const int64_t before = used();
  void* from_base = c10::GetCPUAllocator()->raw_allocate(kBytes);
  EXPECT_EQ(used(), before);
  void* from_pool = nullptr;
  {
    const PoolScope scope;
    from_pool = c10::GetCPUAllocator()->raw_allocate(kBytes);
    EXPECT_GE(used(), before + kBytes);
    c10::GetCPUAllocator()->raw_deallocate(from_base);
    EXPECT_GE(used(), before + kBytes);
  }
  std::thread([from_pool] { c10::GetCPUAllocator()->raw_deallocate(from_pool); }).join();
  EXPECT_EQ(used(), before);
}

TEST_F(BufferPoolTest, DeletersAreTold) {
  const at::Tensor outside = at::empty({kElements});
  EXPECT_TRUE(BufferPool::IsOwnDeleter(outside.storage().data_ptr().get_deleter()));
  const PoolScope scope;
  const at::Tensor inside = at::empty({kElements});
  EXPECT_TRUE(BufferPool::IsOwnDeleter(inside.storage().data_ptr().get_deleter()));
  EXPECT_FALSE(BufferPool::IsOwnDeleter(&c10::detail::deleteNothing));
}

}  // namespace
}  // namespace lazuli::runtime
