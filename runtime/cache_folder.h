// The folder of the disk cache: who may use it, what is in it, and what has to go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lazuli::runtime {

struct CacheFile {
  std::string name;
  int64_t bytes = 0;
  int64_t used = 0;  // When it was last written or read, to the minute. Seconds since 1970.
};

struct PruneLimits {
  int64_t max_bytes = INT64_MAX;    // Of all entries.
  int64_t max_seconds = INT64_MAX;  // Since an entry's last use.
};

struct PruneResult {
  int64_t removed_files = 0;
  int64_t removed_bytes = 0;
};

// $XDG_CACHE_HOME/lazuli or ~/.cache/lazuli; empty when neither variable has an absolute path.
std::string DefaultCacheFolder();

// An open folder. Thread-safe; any number of processes may use one at once.
class CacheFolder {
 public:
  // Fails on a folder that belongs to another user or that others can write to, since code is run from it. `create`: makes the folder,
  // and those above it, for this user alone.
  static absl::StatusOr<std::unique_ptr<CacheFolder>> Open(const std::string& path, bool create);
  ~CacheFolder();
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

  // The entries, most recently used first. Other files are left out.
  std::vector<CacheFile> List() const;

  // Removes the entries beyond the limits, least recently used first, and what killed processes left. Unavailable when another process
  // is doing so; never waits.
  absl::StatusOr<PruneResult> Prune(const PruneLimits& limits) const;
  // Seconds since the last Prune of any process; INT64_MAX when there was none.
  int64_t SecondsSincePrune() const;

 private:
  CacheFolder(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  const int descriptor_;
};

}  // namespace lazuli::runtime
