#include "runtime/disk_cache.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_explain.h"
#include "runtime/counters.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::runtime {
namespace {

constexpr int64_t kRefreshSeconds = 60;
constexpr int64_t kPruneSeconds = 60;

constexpr const char* kChooseFolder =
    "Choose another folder with LAZULI_CACHE_DIR, or turn the disk cache off with LAZULI_DISK_CACHE=0. Until then nothing is "
    "kept for the next process.";

}  // namespace

DiskCache::DiskCache(const std::string& path, int64_t max_bytes)
    : path_(path.empty() ? DefaultCacheFolder() : path), max_bytes_(max_bytes) {}

DiskCache* DiskCache::Active() {
  const Options& options = runtime::Active().options;
  if (!options.disk_cache()) return nullptr;
  static auto* const mutex = new std::mutex;
  static auto* const caches = new std::map<std::pair<std::string, int64_t>, std::unique_ptr<DiskCache>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<DiskCache>& cache = (*caches)[{options.cache_dir(), options.cache_mb()}];
  if (cache == nullptr) cache = std::make_unique<DiskCache>(options.cache_dir(), std::min(options.cache_mb(), INT64_MAX >> 20) << 20);
  return cache.get();
}

std::optional<std::string> DiskCache::Get(std::string_view kind, std::string_view key, Count count) {
  Counters& counters = Counters::Get();
  const std::string name = EntryName(kind, key);
  const std::shared_ptr<CacheFolder> folder = Folder(/*again=*/false);
  std::optional<std::string> blob;
  if (folder != nullptr) blob = Read(*folder, name, kind, key);
  if (count == Count::kNo) return blob;
  (blob.has_value() ? counters.disk_cache_hits : counters.disk_cache_misses).Add();
  if (!blob.has_value() && folder != nullptr && LogEnabled(LogCategory::kCache)) {
    Log(LogCategory::kCache, absl::StrCat("disk cache: no entry ", name, "\n", DescribeNearest(*folder, kind, key)));
  }
  return blob;
}

std::optional<std::string> DiskCache::Read(const CacheFolder& folder, const std::string& name, std::string_view kind,
                                           std::string_view key) {
  constexpr const char* kRemade =
      "It is not used, and is made anew. If this goes on, check the disk; lazuli-cache verify finds such files.";
  absl::StatusOr<std::string> bytes = ReadCacheFile(folder.descriptor(), name, kRefreshSeconds);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  absl::StatusOr<CacheEntry> entry = bytes.ok() ? DecodeEntry(*bytes) : bytes.status();
  if (!entry.ok()) {
    Report(std::string(entry.status().message()), absl::StrCat("file ", folder.path(), "/", name), kRemade);
    return std::nullopt;
  }
  if (entry->kind == kind && entry->key == key) return std::move(entry->blob);
  if (EntryName(entry->kind, entry->key) != name) {
    Report("it holds another entry than its name says", absl::StrCat("file ", folder.path(), "/", name), kRemade);
  }
  return std::nullopt;
}

void DiskCache::Put(std::string_view kind, std::string_view key, std::string_view blob, Count count) {
  std::shared_ptr<CacheFolder> folder = Folder(/*again=*/false);
  if (folder == nullptr) return;
  const std::string name = EntryName(kind, key);
  const std::string bytes = EncodeEntry(kind, key, blob);
  if (static_cast<int64_t>(bytes.size()) > max_bytes_) return;
  absl::Status status = WriteCacheFile(folder->descriptor(), name, bytes);
  if (absl::IsNotFound(status)) {
    folder = Folder(/*again=*/true);
    if (folder == nullptr) return;
    status = WriteCacheFile(folder->descriptor(), name, bytes);
  }
  if (!status.ok()) {
    Report(std::string(status.message()), absl::StrCat("folder ", folder->path()), kChooseFolder);
    return;
  }
  if (count == Count::kYes) Counters::Get().disk_cache_writes.Add();
  PruneSometimes(*folder, static_cast<int64_t>(bytes.size()));
}

void DiskCache::Reject(std::string_view kind, std::string_view key, const std::string& reason) {
  Report(reason, absl::StrCat("entry ", EntryName(kind, key), " in ", path_), "It is made anew.");
}

std::shared_ptr<CacheFolder> DiskCache::Folder(bool again) {
  absl::Status trouble;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (opened_ && !again) return folder_;
    opened_ = true;
    absl::StatusOr<std::unique_ptr<CacheFolder>> folder = CacheFolder::Open(path_, /*create=*/true);
    folder_ = folder.ok() ? *std::move(folder) : nullptr;
    if (folder_ != nullptr) return folder_;
    trouble = folder.status();
  }
  Report(std::string(trouble.message()), absl::StrCat("folder '", path_, "'"), kChooseFolder);
  return nullptr;
}

void DiskCache::PruneSometimes(const CacheFolder& folder, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    bytes_since_prune_ += bytes;
    const bool first = !pruned_ && folder.SecondsSincePrune() >= kPruneSeconds;
    pruned_ = true;
    if (!first && bytes_since_prune_ < max_bytes_ / 8) return;
    bytes_since_prune_ = 0;
  }
  // Some room is left, so that the next entries do not each push one out.
  PruneLimits limits;
  limits.max_bytes = max_bytes_ - max_bytes_ / 8;
  (void)folder.Prune(limits);
}

void DiskCache::Report(const std::string& trouble, const std::string& where, const char* what_to_do) {
  Counters::Get().disk_cache_errors.Add();
  const std::string text = absl::StrCat("disk cache: ", where, ": ", trouble, ". ", what_to_do);
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    first = reported_.insert(trouble).second;
  }
  if (first) {
    LogAlways(text);
  } else {
    Log(LogCategory::kCache, text);
  }
}

}  // namespace lazuli::runtime
