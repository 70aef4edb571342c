// What happens to a disk cache: damaged files, killed writers, several processes at once, a disk that is full.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <set>
#include <thread>

#include "runtime/disk_cache.h"
#include "tests/support/cache_fixture.h"

namespace lazuli::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kLarge;
using ::testing::SizeIs;

using Random = std::mt19937_64;

std::string KeyOf(int i) { return "isa test\n\nkernel " + std::to_string(i) + "\n"; }

// A blob that tells which key it belongs to.
std::string BlobOf(int i, size_t size) {
  std::string blob;
  while (blob.size() < size) blob += "blob " + std::to_string(i) + " byte " + std::to_string(blob.size()) + "\n";
  return blob.substr(0, size);
}

// Runs `work` in a child; its exit status, or -signal.
int InChild(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class DamageTest : public testing::CacheFixture {
 protected:
  std::filesystem::path PathOf(int i) const { return folder_ / EntryName("kernel", KeyOf(i)); }
  DiskCache cache_{folder_, kLarge};
};

size_t Below(size_t limit, Random& random) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); }

struct Mutation {
  const char* name;
  // `other` is the sound file of another key.
  std::string (*apply)(std::string bytes, const std::string& other, Random& random);
};

const Mutation kMutations[] = {
    {"flip",
     [](std::string bytes, const std::string&, Random& random) {
       for (size_t flips = 1 + Below(4, random); flips > 0; --flips) {
         bytes[Below(bytes.size(), random)] ^= static_cast<char>(1u << Below(8, random));
       }
       return bytes;
     }},
    {"header",
     [](std::string bytes, const std::string&, Random& random) {
       bytes[Below(40, random)] = static_cast<char>(random());
       return bytes;
     }},
    {"truncate", [](std::string bytes, const std::string&, Random& random) { return bytes.substr(0, Below(bytes.size(), random)); }},
    {"zero",
     [](std::string bytes, const std::string&, Random& random) {
       const size_t begin = Below(bytes.size(), random);
       const size_t size = 1 + Below(bytes.size() - begin, random);
       return bytes.replace(begin, size, size, '\0');
     }},
    {"other", [](std::string, const std::string& other, Random&) { return other; }},
    {"mix",
     [](std::string bytes, const std::string& other, Random& random) {
       const size_t cut = Below(std::min(bytes.size(), other.size()), random);
       return bytes.substr(0, cut) + other.substr(cut);
     }},
    {"append", [](std::string bytes, const std::string&, Random& random) { return bytes + std::string(1 + Below(5000, random), 'x'); }},
    {"twice", [](std::string bytes, const std::string&, Random&) { return bytes + bytes; }},
    {"version",
     [](std::string bytes, const std::string&, Random& random) {
       bytes[8] = static_cast<char>(2 + Below(200, random));
       return bytes;
     }},
    {"noise",
     [](std::string bytes, const std::string&, Random& random) {
       for (char& byte : bytes) byte = static_cast<char>(random());
       return bytes;
     }},
};

TEST_F(DamageTest, TenThousandDamagedFilesAreNeverBelieved) {
  constexpr int kEntries = 20, kTries = 10000;
  std::vector<std::string> files;
  for (int i = 0; i < kEntries; ++i) {
    cache_.Put("kernel", KeyOf(i), BlobOf(i, 37 * i * i));
    files.push_back(testing::ReadBytes(PathOf(i)));
    ASSERT_GT(files.back().size(), 60u);
  }
  Random random(20240517);
  int64_t damaged = 0;
  for (int i = 0; i < kTries; ++i) {
    const Mutation& mutation = kMutations[i % std::size(kMutations)];
    const int entry = static_cast<int>(Below(kEntries, random));
    const std::string bytes = mutation.apply(files[entry], files[(entry + 1 + Below(kEntries - 1, random)) % kEntries], random);
    if (bytes == files[entry]) continue;
    ++damaged;
    testing::WriteBytes(PathOf(entry), bytes);
    ASSERT_EQ(cache_.Get("kernel", KeyOf(entry)), std::nullopt) << mutation.name << " " << i;
    ASSERT_EQ(Counts().disk_cache_errors, damaged) << mutation.name << " " << i;
    testing::WriteBytes(PathOf(entry), files[entry]);
  }
  EXPECT_GT(damaged, kTries * 9 / 10);
  EXPECT_EQ(Counts().disk_cache_misses, damaged);
  for (int i = 0; i < kEntries; ++i) EXPECT_EQ(cache_.Get("kernel", KeyOf(i)), BlobOf(i, 37 * i * i));
  // A line for each kind of trouble, not for each file.
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("its checksum is wrong: it is cut short or damaged. It is not used, and is made anew."));
  EXPECT_THAT(log, HasSubstr("its format is that of another version"));
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 10);
}

TEST_F(DamageTest, ADamagedBundleIsRefusedWhole) {
  const std::vector<CacheEntry> entries = {{"kernel", KeyOf(1), BlobOf(1, 100)}, {"kernel", KeyOf(2), BlobOf(2, 3000)}, {"", "", ""}};
  const std::string bytes = EncodeBundle(entries);
  const auto decoded = DecodeBundle(bytes);
  ASSERT_TRUE(decoded.ok());
  ASSERT_THAT(*decoded, SizeIs(3));
  EXPECT_EQ((*decoded)[1].blob, entries[1].blob);
  EXPECT_EQ((*decoded)[1].key, entries[1].key);
  const std::string entry = EncodeEntry("kernel", KeyOf(1), BlobOf(1, 4000));
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    const Mutation& mutation = kMutations[i % std::size(kMutations)];
    const std::string mutated = mutation.apply(bytes, entry, random);
    if (mutated == bytes) continue;
    ASSERT_FALSE(DecodeBundle(mutated).ok()) << mutation.name << " " << i;
  }
  for (size_t size = 0; size < bytes.size(); ++size) ASSERT_FALSE(DecodeBundle(bytes.substr(0, size)).ok()) << size;
  EXPECT_TRUE(DecodeBundle(EncodeBundle({})).ok());
}

TEST_F(DamageTest, KilledWritersLeaveNothingWrong) {
#if defined(LAZULI_SANITIZE_THREAD) || defined(LAZULI_SANITIZE_ADDRESS)
  GTEST_SKIP() << "minutes of checksums";
#endif
  constexpr int kKills = 100, kEarlier = 10, kKeys = 30;
  constexpr size_t kSize = 300000;
  for (int i = 0; i < kEarlier; ++i) cache_.Put("kernel", KeyOf(i), BlobOf(i, kSize));
  std::vector<std::string> blobs;
  for (int i = 0; i < kEarlier + kKeys; ++i) blobs.push_back(BlobOf(i, kSize));
  Random random(3);
  std::set<int> complete;
  // At least so many, and until one was killed in the middle of a file.
  for (int kill_number = 0; kill_number < kKills || (Temporaries().empty() && kill_number < 10 * kKills); ++kill_number) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      // Writes new entries, and those there are again; says which are complete.
      DiskCache writer(folder_, kLarge);
      for (int i = kill_number;; ++i) {
        const int key = i % (kEarlier + kKeys);
        writer.Put("kernel", KeyOf(key), blobs[key]);
        const auto done = static_cast<unsigned char>(key);
        if (write(pipe_ends[1], &done, 1) != 1) _exit(1);
      }
    }
    close(pipe_ends[1]);
    unsigned char key = 0;
    ASSERT_EQ(read(pipe_ends[0], &key, 1), 1);  // It is at work.
    complete.insert(key);
    usleep(static_cast<useconds_t>(Below(2000, random)));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (read(pipe_ends[0], &key, 1) == 1) complete.insert(key);
    close(pipe_ends[0]);
    for (int i = 0; i < kEarlier + kKeys; ++i) {
      const std::optional<std::string> blob = cache_.Get("kernel", KeyOf(i));
      const bool expected = i < kEarlier || complete.count(i) != 0;
      if (!expected && !blob.has_value()) continue;
      ASSERT_EQ(blob, blobs[i]) << "entry " << i << " after kill " << kill_number;
    }
  }
  EXPECT_EQ(Counts().disk_cache_errors, 0);
  EXPECT_THAT(Entries(), SizeIs(kEarlier + kKeys));
  const std::vector<std::string> left = Temporaries();
  EXPECT_FALSE(left.empty());
  const timespec old[2] = {{1, 0}, {1, 0}};
  for (const std::string& name : left) ASSERT_EQ(utimensat(AT_FDCWD, (folder_ / name).c_str(), old, 0), 0);
  const auto folder = CacheFolder::Open(folder_, /*create=*/false);
  ASSERT_TRUE(folder.ok() && (*folder)->Prune(PruneLimits()).ok());
  EXPECT_THAT(Temporaries(), IsEmpty());
  EXPECT_THAT(Entries(), SizeIs(kEarlier + kKeys));
}

// Puts and gets the same keys; the store is so small that entries are removed all the time. The number of wrong blobs.
int Hammer(DiskCache& cache, uint64_t seed) {
  Random random(seed);
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    const int key = static_cast<int>(Below(50, random));
    const std::string blob = BlobOf(key, 2000 + 100 * key);
    if (Below(2, random) == 0) cache.Put("kernel", KeyOf(key), blob);
    const std::optional<std::string> found = cache.Get("kernel", KeyOf(key));
    wrong += found.has_value() && *found != blob ? 1 : 0;
  }
  return wrong;
}

TEST_F(DamageTest, ProcessesAndThreadsShareAFolder) {
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Counters::Get().Reset();
      DiskCache cache(folder_, 100000);
      const int wrong = Hammer(cache, i);
      const Stats counts = Counts();
      _exit(wrong != 0 ? 1 : counts.disk_cache_errors != 0 ? 2 : counts.disk_cache_hits < 50 ? 3 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  DiskCache cache(folder_, 100000);
  for (int i = 0; i < kProcesses; ++i) threads.emplace_back([&, i] { wrong += Hammer(cache, 100 + i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Counts().disk_cache_errors, 0);
  EXPECT_THAT(Temporaries(), IsEmpty());
}

// A large entry cannot be written, small ones can, and nothing half written stays. What went wrong, as an exit status.
int WriteWhereThereIsLittleRoom(const std::string& folder) {
  DiskCache cache(folder, kLarge);
  cache.Put("kernel", "small", "blob");
  for (int i = 0; i < 3; ++i) cache.Put("kernel", KeyOf(i), std::string(1 << 20, 'x'));
  cache.Put("kernel", "small too", "blob");
  const Stats counts = Counters::Get().Snapshot();
  if (counts.disk_cache_errors != 3 || counts.disk_cache_writes != 2) return 2;
  if (!cache.Get("kernel", "small").has_value() || !cache.Get("kernel", "small too").has_value()) return 3;
  if (cache.Get("kernel", KeyOf(0)).has_value()) return 4;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    if (IsTemporaryName(item.path().filename().string())) return 5;
  }
  return 0;
}

TEST_F(DamageTest, AFullDisk) {
  constexpr int kNoMount = 77;
  const int status = InChild([&] {
    std::filesystem::create_directory(folder_);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder_.c_str(), "tmpfs", 0, "size=256k,mode=700") != 0) {
      return kNoMount;
    }
    return WriteWhereThereIsLittleRoom(folder_);
  });
  if (status == kNoMount) GTEST_SKIP() << "file systems cannot be mounted here";
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Log(), HasSubstr("it cannot be written: No space left on device. Choose another folder with LAZULI_CACHE_DIR"));
}

TEST_F(DamageTest, ALimitOfFileSizes) {
  const int status = InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, 100000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    return WriteWhereThereIsLittleRoom(folder_);
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Log(), HasSubstr("it cannot be written: File too large"));
}

TEST_F(DamageTest, AFolderThatCanOnlyBeRead) {
  cache_.Put("kernel", "a", "blob");
  ASSERT_EQ(chmod(root_.c_str(), 0711), 0);
  ASSERT_EQ(chmod((root_ / "log").c_str(), 0666), 0);
  // Root may write everywhere: its child becomes somebody else.
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
    ASSERT_EQ(chown((folder_ / EntryName("kernel", "a")).c_str(), 65534, 65534), 0);
  }
  ASSERT_EQ(chmod(folder_.c_str(), 0500), 0);
  Counters::Get().Reset();
  const int status = InChild([&] {
    if (geteuid() == 0 && setuid(65534) != 0) return 1;
    DiskCache cache(folder_, kLarge);
    cache.Put("kernel", "b", "blob");
    if (cache.Get("kernel", "a") != "blob") return 2;
    if (cache.Get("kernel", "b").has_value()) return 3;
    return Counts().disk_cache_errors == 1 && Counts().disk_cache_hits == 1 ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Log(), HasSubstr("it cannot be written: Permission denied"));
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
}

}  // namespace
}  // namespace lazuli::runtime
