#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "runtime/cache_explain.h"
#include "runtime/hash128.h"
#include "runtime/options.h"
#include "tests/support/cache_fixture.h"

namespace lazuli::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kLarge;
using ::testing::Not;
using ::testing::Optional;
using ::testing::SizeIs;

TEST(Hash128Test, HasThePublishedValues) {
  const auto hash_of = [](int size) {
    std::string data;
    for (int i = 0; i < size; ++i) data += static_cast<char>(i);
    return HexOf(SipHash128(data, 0x0706050403020100, 0x0f0e0d0c0b0a0908));
  };
  EXPECT_EQ(hash_of(0), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(hash_of(1), "da87c1d86b99af44347659119b22fc45");
  EXPECT_EQ(hash_of(2), "8177228da4a45dc7fca38bdef60affe4");
  EXPECT_EQ(hash_of(63), "5150d1772f50834a503e069a973fbd7c");
}

class DiskCacheTest : public testing::CacheFixture {
 protected:
  // Files look as if last used that long ago.
  void Age(const std::string& name, int64_t seconds) const {
    timespec then{};
    then.tv_sec = time(nullptr) - seconds;
    const timespec times[2] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, (folder_ / name).c_str(), times, 0), 0);
  }
  int64_t AgeOf(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(stat((folder_ / name).c_str(), &info), 0);
    return time(nullptr) - info.st_mtim.tv_sec;
  }
  int64_t TotalBytes() const {
    int64_t bytes = 0;
    for (const std::string& name : Entries()) bytes += static_cast<int64_t>(std::filesystem::file_size(folder_ / name));
    return bytes;
  }

  DiskCache cache_{folder_, kLarge};
};

TEST_F(DiskCacheTest, ReturnsWhatWasPut) {
  const std::string binary("\0\xff\n\0 key", 9);
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  cache_.Put("kernel", "a", "first");
  cache_.Put("kernel", binary, binary + binary);
  cache_.Put("kernel", "empty", "");
  EXPECT_THAT(cache_.Get("kernel", "a"), Optional(std::string("first")));
  EXPECT_THAT(cache_.Get("kernel", binary), Optional(binary + binary));
  EXPECT_THAT(cache_.Get("kernel", "empty"), Optional(std::string()));
  EXPECT_EQ(cache_.Get("other", "a"), std::nullopt);
  EXPECT_EQ(cache_.Get("kernel", "b"), std::nullopt);
  cache_.Put("kernel", "a", "second");
  EXPECT_THAT(DiskCache(folder_, kLarge).Get("kernel", "a"), Optional(std::string("second")));
  EXPECT_EQ(Counts().disk_cache_hits, 4);
  EXPECT_EQ(Counts().disk_cache_misses, 3);
  EXPECT_EQ(Counts().disk_cache_writes, 4);
  EXPECT_EQ(Counts().disk_cache_errors, 0);
  EXPECT_EQ(Log(), "");
}

// The boundary between kind and key is part of the name.
TEST_F(DiskCacheTest, NamesDoNotRunTogether) { EXPECT_NE(EntryName("ab", "c"), EntryName("a", "bc")); }

TEST_F(DiskCacheTest, FilesAreTheUsersOwn) {
  cache_.Put("kernel", "a", "blob");
  struct stat info {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700);
  ASSERT_EQ(stat((folder_ / EntryName("kernel", "a")).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
}

TEST_F(DiskCacheTest, RefusesAFolderThatOthersCanWriteTo) {
  cache_.Put("kernel", "a", "blob");
  ASSERT_EQ(chmod(folder_.c_str(), 0770), 0);
  DiskCache cache(folder_, kLarge);
  EXPECT_EQ(cache.Get("kernel", "a"), std::nullopt);
  cache.Put("kernel", "b", "blob");
  EXPECT_THAT(Entries(), SizeIs(1));
  EXPECT_EQ(Counts().disk_cache_errors, 1);
  EXPECT_THAT(Log(), HasSubstr("other users may write to it; chmod 700"));
  EXPECT_THAT(Log(), HasSubstr("LAZULI_CACHE_DIR"));
}

TEST_F(DiskCacheTest, RefusesAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  cache_.Put("kernel", "a", "blob");
  ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
  DiskCache cache(folder_, kLarge);
  EXPECT_EQ(cache.Get("kernel", "a"), std::nullopt);
  EXPECT_EQ(Counts().disk_cache_errors, 1);
  EXPECT_THAT(Log(), HasSubstr("it belongs to user 65534"));
}

TEST_F(DiskCacheTest, DoesWithoutAFolder) {
  testing::WriteBytes(root_ / "file", "");
  for (const char* name : {"file", "file/below", "/proc/lazuli/cache"}) {
    const std::string path = (root_ / name).string();
    runtime::Counters::Get().Reset();
    DiskCache cache(path, kLarge);
    for (int i = 0; i < 3; ++i) {
      cache.Put("kernel", "a", "blob");
      EXPECT_EQ(cache.Get("kernel", "a"), std::nullopt);
    }
    EXPECT_EQ(Counts().disk_cache_errors, 1) << path;
    EXPECT_EQ(Counts().disk_cache_misses, 3) << path;
    EXPECT_THAT(Log(), HasSubstr("folder '" + path + "'"));
  }
}

TEST_F(DiskCacheTest, OutlivesItsFolder) {
  cache_.Put("kernel", "a", "blob");
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  cache_.Put("kernel", "a", "again");
  EXPECT_THAT(cache_.Get("kernel", "a"), Optional(std::string("again")));
  EXPECT_EQ(Counts().disk_cache_errors, 0);
}

// Two keys of one hash: the name is right, the key is not.
TEST_F(DiskCacheTest, ComparesTheWholeKey) {
  cache_.Put("kernel", "a", "of a");
  cache_.Put("kernel", "b", "of b");
  std::filesystem::rename(folder_ / EntryName("kernel", "b"), folder_ / EntryName("kernel", "a"));
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  EXPECT_EQ(Counts().disk_cache_errors, 1);
  EXPECT_THAT(Log(), HasSubstr("another entry than its name says"));
}

TEST_F(DiskCacheTest, WaitsForNothingThatIsNoFile) {
  cache_.Put("kernel", "a", "blob");
  const std::filesystem::path path = folder_ / EntryName("kernel", "a");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  cache_.Put("kernel", "a", "blob");  // Cannot replace a folder.
  std::filesystem::remove(path);
  std::filesystem::create_symlink(path, path);
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  testing::WriteBytes(root_ / "sparse", "");
  std::filesystem::resize_file(root_ / "sparse", uintmax_t{1} << 40);
  std::filesystem::remove(path);
  std::filesystem::rename(root_ / "sparse", path);
  EXPECT_EQ(cache_.Get("kernel", "a"), std::nullopt);
  EXPECT_EQ(Counts().disk_cache_errors, 5);
  EXPECT_THAT(Temporaries(), IsEmpty());
  std::filesystem::remove(path);
  cache_.Put("kernel", "a", "blob");
  EXPECT_THAT(cache_.Get("kernel", "a"), Optional(std::string("blob")));
}

TEST_F(DiskCacheTest, AHitNotesTheUseOnceAMinute) {
  cache_.Put("kernel", "a", "blob");
  const std::string name = EntryName("kernel", "a");
  Age(name, 30);
  ASSERT_TRUE(cache_.Get("kernel", "a").has_value());
  EXPECT_NEAR(static_cast<double>(AgeOf(name)), 30, 10);
  Age(name, 3600);
  ASSERT_TRUE(cache_.Get("kernel", "a").has_value());
  EXPECT_LT(AgeOf(name), 30);
}

TEST_F(DiskCacheTest, StaysBelowItsSizeAndDropsTheOldest) {
  constexpr int64_t kMax = 1 << 20;
  DiskCache cache(folder_, kMax);
  const std::string blob(20000, 'x');
  for (int i = 0; i < 100; ++i) {
    const std::string key = std::to_string(i);
    cache.Put("kernel", key, blob);
    Age(EntryName("kernel", key), 10000 - i);
    // In use all the time.
    ASSERT_TRUE(cache.Get("kernel", "0").has_value()) << i;
    Age(EntryName("kernel", "0"), 61);
    ASSERT_LE(TotalBytes(), kMax) << i;
  }
  EXPECT_GT(TotalBytes(), kMax / 2);
  EXPECT_TRUE(cache.Get("kernel", "99").has_value());
  EXPECT_EQ(cache.Get("kernel", "1"), std::nullopt);
  cache.Put("kernel", "huge", std::string(2 * kMax, 'x'));
  EXPECT_EQ(cache.Get("kernel", "huge"), std::nullopt);
  EXPECT_EQ(Counts().disk_cache_errors, 0);
}

TEST_F(DiskCacheTest, PrunesWhatKilledProcessesLeft) {
  cache_.Put("kernel", "a", "blob");
  testing::WriteBytes(folder_ / ".tmp-1-1.1-0", "half");
  testing::WriteBytes(folder_ / ".tmp-1-1.1-1", "being written");
  testing::WriteBytes(folder_ / "README", "not ours");
  Age(".tmp-1-1.1-0", 3600);
  const auto folder = CacheFolder::Open(folder_, /*create=*/false);
  ASSERT_TRUE(folder.ok());
  const auto result = (*folder)->Prune(PruneLimits());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->removed_files, 1);
  EXPECT_EQ(result->removed_bytes, 4);
  EXPECT_THAT(Temporaries(), ::testing::ElementsAre(".tmp-1-1.1-1"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "README"));
  EXPECT_TRUE(cache_.Get("kernel", "a").has_value());
  EXPECT_LT((*folder)->SecondsSincePrune(), 30);
}

TEST_F(DiskCacheTest, NeverWaitsForAnotherPruner) {
  DiskCache cache(folder_, 1 << 16);
  cache.Put("kernel", "a", "blob");
  const int lock = open((folder_ / ".lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  for (int i = 0; i < 20; ++i) cache.Put("kernel", std::to_string(i), std::string(10000, 'x'));
  EXPECT_THAT(Entries(), SizeIs(21));
  close(lock);
  for (int i = 20; i < 22; ++i) cache.Put("kernel", std::to_string(i), std::string(10000, 'x'));
  EXPECT_LE(TotalBytes(), 1 << 16);
  EXPECT_EQ(Counts().disk_cache_errors, 0);
}

TEST_F(DiskCacheTest, SaysWhatTheNearestEntryHasElse) {
  ConfigureLog("cache", (root_ / "log").string());
  cache_.Put("kernel", "codegen 1\ncpu fast\n\nline\nsame\n", "1");
  cache_.Put("kernel", "codegen 2\ncpu slow\n\nother\ntext\n", "2");
  cache_.Put("graph", "codegen 2\ncpu fast\n\nline\nsame\n", "3");
  EXPECT_EQ(cache_.Get("kernel", "codegen 2\ncpu fast\n\nline\nsame\n"), std::nullopt);
  EXPECT_THAT(Log(), HasSubstr("nearest entry: " + EntryName("kernel", "codegen 1\ncpu fast\n\nline\nsame\n")));
  EXPECT_THAT(Log(), HasSubstr("  codegen: 2 here, 1 there\n"));
  EXPECT_THAT(Log(), Not(HasSubstr("cpu")));
  EXPECT_EQ(DescribeDifference("isa a\n\nx\ny\nz", "isa a\n\nx\nw"), "  line 2 of the text: 'y' here, 'w' there\n");
  EXPECT_EQ(DescribeDifference("isa a\nmore 1\n\nx", "isa a\n\nx"), "  more: 1 here, none there\n");
  EXPECT_EQ(DescribeDifference("isa a\n\nx", "isa a\n\nx"), "  no difference\n");
}

TEST_F(DiskCacheTest, OptionsChooseTheFolderOrNone) {
  ASSERT_TRUE(ActivateOptions(Options().disk_cache(true).cache_dir(folder_.string()).log_file((root_ / "log").string())).ok());
  DiskCache* const cache = DiskCache::Active();
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(cache, DiskCache::Active());
  cache->Put("kernel", "a", "blob");
  EXPECT_THAT(Entries(), SizeIs(1));
  ASSERT_TRUE(ActivateOptions(Options().disk_cache(false)).ok());
  EXPECT_EQ(DiskCache::Active(), nullptr);
}

TEST(DefaultCacheFolderTest, FollowsTheStandard) {
  const char* const names[] = {"XDG_CACHE_HOME", "HOME"};
  std::optional<std::string> before[2];
  for (int i = 0; i < 2; ++i) {
    if (const char* value = std::getenv(names[i])) before[i] = value;
  }
  setenv("XDG_CACHE_HOME", "/x/cache", 1);
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(DefaultCacheFolder(), "/x/cache/lazuli");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(DefaultCacheFolder(), "/home/me/.cache/lazuli");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(DefaultCacheFolder(), "");
  for (int i = 0; i < 2; ++i) {
    if (before[i].has_value()) setenv(names[i], before[i]->c_str(), 1);
  }
}

}  // namespace
}  // namespace lazuli::runtime
