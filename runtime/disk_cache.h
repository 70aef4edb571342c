// A store of small blobs on disk, shared by all processes of a user, that may lose entries but never returns a wrong one.
//
// One file per entry, named by a hash of kind and key; it holds the whole key, which Get compares, and a checksum. Nothing that is wrong
// with files or folder is an error to the caller: it is counted (disk_cache_errors), said in the log once for each kind of trouble, and
// then the entry is not there.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/cache_folder.h"

namespace lazuli::runtime {

// Thread-safe.
class DiskCache {
 public:
  // Touches nothing on disk before the first Get or Put. `path` empty: DefaultCacheFolder().
  DiskCache(const std::string& path, int64_t max_bytes);

  // The cache of the options in force; null when they turn it off. Valid for the life of the process.
  static DiskCache* Active();

  // Whether hits, misses and writes are counted, and misses logged: for what is expected to be there.
  enum class Count : uint8_t { kYes, kNo };

  // The blob that was put under exactly this kind and key.
  std::optional<std::string> Get(std::string_view kind, std::string_view key, Count count = Count::kYes);

  // Keeps `blob`, in place of what was there. Now and then removes what was not used for longest.
  void Put(std::string_view kind, std::string_view key, std::string_view blob, Count count = Count::kYes);

  // The caller could do nothing with what Get returned.
  void Reject(std::string_view kind, std::string_view key, const std::string& reason);

 private:
  // Null when it cannot be used. `again`: it may have been removed since.
  std::shared_ptr<CacheFolder> Folder(bool again);
  std::optional<std::string> Read(const CacheFolder& folder, const std::string& name, std::string_view kind, std::string_view key);
  void PruneSometimes(const CacheFolder& folder, int64_t bytes);
  // Counts; logs unless `trouble` was logged before.
  void Report(const std::string& trouble, const std::string& where, const char* what_to_do);

  const std::string path_;
  const int64_t max_bytes_;
  std::mutex mutex_;
  std::shared_ptr<CacheFolder> folder_;
  bool opened_ = false;
  bool pruned_ = false;
  int64_t bytes_since_prune_ = 0;
  std::set<std::string> reported_;
};

}  // namespace lazuli::runtime
