// Memory of results: what is asked of the system for large blocks, and that what is freed is given out again.
#include "runtime/buffer_pool.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace lazuli::testing {
namespace {

using runtime::BufferPool;

// The flags of the mapping that holds `address`, as /proc/self/smaps gives them.
std::string MappingFlags(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<unsigned long>(address);
      inside = begin <= at && at < end;
    }
    if (inside && line.rfind("VmFlags:", 0) == 0) return line;
  }
  return "";
}

TEST(BufferPool, LargeBlocksAskForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "this system has no huge pages";
  BufferPool& pool = BufferPool::Get();
  const at::DataPtr large = pool.Allocate(16 << 20), small = pool.Allocate(1 << 20);
  EXPECT_NE(MappingFlags(static_cast<char*>(large.get()) + (8 << 20)).find(" hg"), std::string::npos);
  EXPECT_EQ(MappingFlags(small.get()).find(" hg"), std::string::npos);
}

// What operators of LibTorch take and free in each step: else each page of it would be asked for and given back each time.
TEST(BufferPool, TheHeapKeepsWhatIsTakenAndFreedAgainAndAgain) {
  BufferPool::Get();
  if (mallinfo2().arena == 0) GTEST_SKIP() << "another malloc than glibc's, or another heap";
  // Less each than what malloc asks the system for, which would teach it, too.
  constexpr size_t kBlocks = 30, kBytes = 100 << 10;
  const auto use = [] {
    void* blocks[kBlocks];
    for (void*& block : blocks) std::memset(block = std::malloc(kBytes), 1, kBytes);
    for (void* const block : blocks) std::free(block);
  };
  use();
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  for (int i = 0; i < 10; ++i) use();
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 100);  // Of 7,500 pages.
}

TEST(BufferPool, GivesFreedBlocksOutAgain) {
  BufferPool& pool = BufferPool::Get();
  at::DataPtr block = pool.Allocate(5 << 20);
  const void* first = block.get();
  block.clear();
  block = pool.Allocate(5 << 20);
  EXPECT_EQ(block.get(), first);
}

// Two programs by turns, each with memory of a size of its own, of which there is never more than one block.
TEST(BufferPool, SizesThatComeByTurnsStay) {
  constexpr int kMany = 40;
  BufferPool& pool = BufferPool::Get();
  pool.Trim();
  const int64_t peak = pool.usage().used_bytes + (2 << 20);
  int same = 0;
  const void* before[2] = {nullptr, nullptr};
  for (int round = 0; round < kMany; ++round) {
    const at::DataPtr block = pool.Allocate((1 + round % 2) << 20);
    same += block.get() == before[round % 2] ? 1 : 0;
    before[round % 2] = block.get();
    EXPECT_LE(pool.usage().used_bytes + pool.usage().idle_bytes, peak + (8 << 20));
  }
  EXPECT_GE(same, kMany - 12);
  EXPECT_EQ(pool.usage().used_bytes + pool.usage().idle_bytes, peak + (1 << 20));
  pool.Trim();
}

// Blocks of many sizes do not: then the most that is kept is a share of what was in use at once.
TEST(BufferPool, ManySizesAreNotAllKept) {
  BufferPool& pool = BufferPool::Get();
  pool.Trim();
  const int64_t used = pool.usage().used_bytes;
  for (int round = 0; round < 400; ++round) pool.Allocate((1 + round % 30) << 20);
  EXPECT_EQ(pool.usage().peak_bytes, used + (30 << 20));
  EXPECT_LE(pool.usage().idle_bytes, (30 << 20) + (8 << 20));
  pool.Trim();
}

TEST(BufferPool, ScratchAloneIsGivenBack) {
  BufferPool& pool = BufferPool::Get();
  pool.Trim();
  const int64_t idle = pool.usage().idle_bytes;
  {
    const at::DataPtr result = pool.Allocate(6 << 20), scratch = pool.AllocateScratch(7 << 20), small = pool.AllocateScratch(1 << 20);
    EXPECT_EQ(pool.TrimScratch(), 0);  // In use.
  }
  EXPECT_EQ(pool.usage().idle_bytes, idle + (14 << 20));
  EXPECT_EQ(pool.TrimScratch(), 7 << 20);
  EXPECT_EQ(pool.usage().idle_bytes, idle + (7 << 20));
  EXPECT_EQ(pool.Trim(), 7 << 20);
}

}  // namespace
}  // namespace lazuli::testing
