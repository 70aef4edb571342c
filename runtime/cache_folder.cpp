#include "runtime/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>

#include "absl/strings/str_cat.h"
#include "runtime/cache_entry.h"

namespace lazuli::runtime {
namespace {

constexpr const char* kLockName = ".lock";
constexpr int64_t kTemporarySeconds = 600;  // No process takes that long between writing a file and renaming it.

int64_t Now() { return static_cast<int64_t>(time(nullptr)); }

absl::Status MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    // Whatever is wrong with a folder above shows in the last one; some systems refuse to make "/home" before saying that it exists.
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && slash == std::string::npos) {
      return absl::UnavailableError(absl::StrCat("it cannot be made: ", std::strerror(errno)));
    }
    if (slash == std::string::npos) return absl::OkStatus();
  }
}

absl::Status CheckOwner(int descriptor) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return absl::UnavailableError(std::strerror(errno));
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("it belongs to user ", info.st_uid, ", this process to user ", geteuid()));
  }
  if ((info.st_mode & 022) != 0)
    return absl::PermissionDeniedError("other users may write to it; chmod 700 it once you trust what it holds");
  return absl::OkStatus();
}

// Calls `visit` for every regular file.
void VisitFiles(int folder, const std::function<void(const CacheFile&)>& visit) {
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const directory = copy < 0 ? nullptr : fdopendir(copy);
  if (directory == nullptr) {
    if (copy >= 0) close(copy);
    return;
  }
  while (const dirent* item = readdir(directory)) {
    struct stat info {};
    if (fstatat(folder, item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
    visit({item->d_name, static_cast<int64_t>(info.st_size), static_cast<int64_t>(info.st_mtim.tv_sec)});
  }
  closedir(directory);
}

bool RecentlyUsedFirst(const CacheFile& a, const CacheFile& b) { return a.used != b.used ? a.used > b.used : a.name < b.name; }

}  // namespace

std::string DefaultCacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/lazuli");
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? absl::StrCat(home, "/.cache/lazuli") : "";
}

absl::StatusOr<std::unique_ptr<CacheFolder>> CacheFolder::Open(const std::string& path, bool create) {
  if (path.empty()) return absl::NotFoundError("neither XDG_CACHE_HOME nor HOME names a folder");
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  int descriptor = open(path.c_str(), kFlags);
  if (descriptor < 0 && errno == ENOENT && create) {
    if (absl::Status status = MakeFolders(path); !status.ok()) return status;
    descriptor = open(path.c_str(), kFlags);
  }
  if (descriptor < 0) {
    const std::string message = absl::StrCat("it cannot be opened: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }
  std::unique_ptr<CacheFolder> folder(new CacheFolder(path, descriptor));
  if (absl::Status status = CheckOwner(descriptor); !status.ok()) return status;
  return folder;
}

CacheFolder::~CacheFolder() { close(descriptor_); }

std::vector<CacheFile> CacheFolder::List() const {
  std::vector<CacheFile> files;
  VisitFiles(descriptor_, [&](const CacheFile& file) {
    if (IsEntryName(file.name)) files.push_back(file);
  });
  std::sort(files.begin(), files.end(), RecentlyUsedFirst);
  return files;
}

absl::StatusOr<PruneResult> CacheFolder::Prune(const PruneLimits& limits) const {
  const int lock = openat(descriptor_, kLockName, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return absl::UnavailableError(absl::StrCat("it cannot be pruned: ", std::strerror(errno)));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return absl::UnavailableError("another process is pruning it");
  }
  PruneResult result;
  const auto remove = [&](const CacheFile& file) {
    if (unlinkat(descriptor_, file.name.c_str(), 0) != 0) return;
    ++result.removed_files;
    result.removed_bytes += file.bytes;
  };
  const int64_t now = Now();
  VisitFiles(descriptor_, [&](const CacheFile& file) {
    if (IsTemporaryName(file.name) && std::abs(now - file.used) >= kTemporarySeconds) remove(file);
  });
  int64_t bytes = 0;
  for (const CacheFile& file : List()) {
    bytes += file.bytes;
    if (bytes > limits.max_bytes || now - file.used > limits.max_seconds) remove(file);
  }
  (void)futimens(lock, nullptr);
  close(lock);  // And with it the lock.
  return result;
}

int64_t CacheFolder::SecondsSincePrune() const {
  struct stat info {};
  if (fstatat(descriptor_, kLockName, &info, 0) != 0) return INT64_MAX;
  return std::abs(Now() - static_cast<int64_t>(info.st_mtim.tv_sec));
}

}  // namespace lazuli::runtime
