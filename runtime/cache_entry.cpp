#include "runtime/cache_entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "runtime/hash128.h"

namespace lazuli::runtime {
namespace {

constexpr std::string_view kEntryMagic = "LZLENTRY";
constexpr std::string_view kBundleMagic = "LZLBUNDL";
constexpr uint64_t kFormatVersion = 1;
constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kChecksum = sizeof(Hash128);
constexpr off_t kMaxFileBytes = off_t{1} << 28;
constexpr char kTemporaryPrefix[] = ".tmp-";

void AppendWord(uint64_t word, std::string* bytes) {
  for (size_t i = 0; i < kWord; ++i) *bytes += static_cast<char>(word >> (8 * i));
}

void AppendBlock(std::string_view block, std::string* bytes) {
  AppendWord(block.size(), bytes);
  bytes->append(block);
}

void AppendParts(std::string_view kind, std::string_view key, std::string_view blob, std::string* bytes) {
  AppendBlock(kind, bytes);
  AppendBlock(key, bytes);
  AppendBlock(blob, bytes);
}

std::string Checksum(std::string_view bytes) {
  const Hash128 hash = SipHash128(bytes, 0x6c617a756c692063, 0x6865636b73756d20);
  return std::string(hash.begin(), hash.end());
}

// Takes words and blocks off the front. Once something is missing, everything is.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t Word() {
    const std::string_view taken = Take(kWord);
    uint64_t word = 0;
    for (size_t i = 0; i < taken.size(); ++i) word |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    return word;
  }
  std::string Block() { return std::string(Take(Word())); }
  CacheEntry Parts() {
    CacheEntry entry;
    entry.kind = Block();
    entry.key = Block();
    entry.blob = Block();
    return entry;
  }
  bool AtEnd() const { return complete_ && bytes_.empty(); }
  bool complete() const { return complete_; }

 private:
  std::string_view Take(uint64_t size) {
    if (!complete_ || size > bytes_.size()) {
      complete_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
  bool complete_ = true;
};

// What is between the version and the checksum.
absl::StatusOr<std::string_view> CheckFrame(std::string_view bytes, std::string_view magic) {
  if (bytes.substr(0, magic.size()) != magic) return absl::DataLossError("it is not a file of Lazuli's cache");
  Reader reader(bytes.substr(magic.size()));
  const uint64_t version = reader.Word();
  if (!reader.complete()) return absl::DataLossError("it is cut short");
  if (version != kFormatVersion) return absl::DataLossError("its format is that of another version of Lazuli, or it is damaged");
  const size_t header = magic.size() + kWord;
  if (bytes.size() < header + kChecksum) return absl::DataLossError("it is cut short");
  const size_t end = bytes.size() - kChecksum;
  if (Checksum(bytes.substr(0, end)) != bytes.substr(end)) {
    return absl::DataLossError("its checksum is wrong: it is cut short or damaged");
  }
  return bytes.substr(header, end - header);
}

absl::Status ErrnoStatus(const char* what) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // False when the file system says only now that it could not write.
  bool Close() {
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0;
  }

 private:
  int fd_;
};

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// In the folder of `path`. No two processes, threads or tries share one; where the numbers of two processes are equal (containers, machines
// that share a folder), the time differs, and O_EXCL decides.
std::string TemporaryPath(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  return absl::StrCat(folder, kTemporaryPrefix, getpid(), "-", now.tv_sec, ".", now.tv_nsec, "-", count.fetch_add(1));
}

}  // namespace

std::string EntryName(std::string_view kind, std::string_view key) {
  std::string text;
  AppendBlock(kind, &text);
  AppendBlock(key, &text);
  return HexOf(SipHash128(text, 0x6c617a756c69206e, 0x616d65206f66206b));
}

bool IsEntryName(std::string_view name) {
  return name.size() == 2 * kChecksum && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string EncodeEntry(std::string_view kind, std::string_view key, std::string_view blob) {
  std::string bytes(kEntryMagic);
  bytes.reserve(bytes.size() + 4 * kWord + kind.size() + key.size() + blob.size() + kChecksum);
  AppendWord(kFormatVersion, &bytes);
  AppendParts(kind, key, blob, &bytes);
  return bytes += Checksum(bytes);
}

absl::StatusOr<CacheEntry> DecodeEntry(std::string_view bytes) {
  absl::StatusOr<std::string_view> content = CheckFrame(bytes, kEntryMagic);
  if (!content.ok()) return content.status();
  Reader reader(*content);
  CacheEntry entry = reader.Parts();
  if (!reader.AtEnd()) return absl::DataLossError("its parts have wrong sizes");
  return entry;
}

std::string EncodeBundle(const std::vector<CacheEntry>& entries) {
  std::string bytes(kBundleMagic);
  AppendWord(kFormatVersion, &bytes);
  for (const CacheEntry& entry : entries) AppendParts(entry.kind, entry.key, entry.blob, &bytes);
  return bytes += Checksum(bytes);
}

absl::StatusOr<std::vector<CacheEntry>> DecodeBundle(std::string_view bytes) {
  absl::StatusOr<std::string_view> content = CheckFrame(bytes, kBundleMagic);
  if (!content.ok()) return content.status();
  std::vector<CacheEntry> entries;
  for (Reader reader(*content); !reader.AtEnd();) {
    entries.push_back(reader.Parts());
    if (!reader.complete()) return absl::DataLossError("its parts have wrong sizes");
  }
  return entries;
}

absl::StatusOr<std::string> ReadCacheFile(int directory, const std::string& path, int64_t refresh_after) {
  // A pipe of that name must not stop the program.
  const Descriptor file(openat(directory, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return ErrnoStatus("it cannot be read");
  if (!S_ISREG(info.st_mode)) return absl::DataLossError("it is no regular file");
  if (info.st_size > kMaxFileBytes) return absl::DataLossError("it is too large to be one of Lazuli's");
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(file.get(), &bytes[size], bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("it cannot be read");
    if (got == 0) break;  // Cut short since: the checksum will tell.
    size += static_cast<size_t>(got);
  }
  bytes.resize(size);
  if (refresh_after >= 0 && std::abs(static_cast<int64_t>(time(nullptr)) - info.st_mtim.tv_sec) >= refresh_after) {
    (void)futimens(file.get(), nullptr);
  }
  return bytes;
}

absl::Status WriteCacheFile(int directory, const std::string& path, std::string_view bytes) {
  const std::string temporary = TemporaryPath(path);
  Descriptor file(openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return ErrnoStatus("it cannot be written");
  const bool written = WriteAll(file.get(), bytes) && file.Close() && renameat(directory, temporary.c_str(), directory, path.c_str()) == 0;
  if (written) return absl::OkStatus();
  const absl::Status status = ErrnoStatus("it cannot be written");
  unlinkat(directory, temporary.c_str(), 0);
  return status;
}

bool IsTemporaryName(std::string_view name) { return name.substr(0, sizeof(kTemporaryPrefix) - 1) == kTemporaryPrefix; }

}  // namespace lazuli::runtime
