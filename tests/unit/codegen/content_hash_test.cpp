#include "codegen/products/content_hash.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace lazuli::codegen {
namespace {

std::vector<uint32_t> Words(size_t count) {
  std::vector<uint32_t> words(count);
  std::iota(words.begin(), words.end(), 7);
  return words;
}

ContentHash HashOf(const std::vector<uint32_t>& words) { return HashContent(words.data(), static_cast<int64_t>(words.size() * 4)); }

TEST(ContentHashTest, EachWordCounts) {
  for (const size_t count : {1, 15, 64, 65, 1000, 20000, 50000}) {
    std::vector<uint32_t> words = Words(count);
    const ContentHash before = HashOf(words);
    EXPECT_EQ(HashOf(words), before);
    for (size_t i = 0; i < count; i += 1 + count / 50) {
      for (const uint32_t bit : {0, 12, 31}) {
        words[i] ^= uint32_t{1} << bit;
        EXPECT_NE(HashOf(words), before) << count << " words, word " << i << ", bit " << bit;
        words[i] ^= uint32_t{1} << bit;
      }
    }
  }
}

TEST(ContentHashTest, SoDoTheirOrderAndTheirNumber) {
  std::set<ContentHash> hashes;
  for (const size_t other : {0, 1, 16, 32, 64, 512, 16384, 40000}) {
    std::vector<uint32_t> words = Words(50000);
    std::swap(words[0], words[other]);
    hashes.insert(HashOf(words));
  }
  EXPECT_EQ(hashes.size(), 8u);
  EXPECT_NE(HashOf(std::vector<uint32_t>(63)), HashOf(std::vector<uint32_t>(64)));
  EXPECT_NE(HashOf(std::vector<uint32_t>(16384)), HashOf(std::vector<uint32_t>(32768)));
}

TEST(ContentHashTest, TheNumberOfThreadsDoesNot) {
  const std::vector<uint32_t> words = Words(300000);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const ContentHash alone = HashOf(words);
  at::set_num_threads(3);
  EXPECT_EQ(HashOf(words), alone);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace lazuli::codegen
