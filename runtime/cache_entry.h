// The files of the disk cache as bytes: one entry, or a bundle of them. Whatever the bytes, decoding never trusts them: sizes are checked
// before they are used, and a checksum covers everything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lazuli::runtime {

struct CacheEntry {
  std::string kind;  // What the blob is: a word.
  std::string key;   // Everything that the blob depends on, as lines of text.
  std::string blob;
};

// The name of the entry's file: 32 hexadecimal digits, a hash of kind and key.
std::string EntryName(std::string_view kind, std::string_view key);
bool IsEntryName(std::string_view name);

std::string EncodeEntry(std::string_view kind, std::string_view key, std::string_view blob);
// The status says what is wrong with the bytes, without the file's name: "its checksum is wrong".
absl::StatusOr<CacheEntry> DecodeEntry(std::string_view bytes);

std::string EncodeBundle(const std::vector<CacheEntry>& entries);
absl::StatusOr<std::vector<CacheEntry>> DecodeBundle(std::string_view bytes);

// The whole of a regular file (NotFound when there is none). `directory` is a descriptor that a relative `path` starts at, or AT_FDCWD.
// Where the file's time of change is `refresh_after` seconds or more away from now, it is set to now; -1: never.
absl::StatusOr<std::string> ReadCacheFile(int directory, const std::string& path, int64_t refresh_after);

// Makes `path` hold `bytes`, all or nothing: a file of another name in the same folder is written first and then renamed.
absl::Status WriteCacheFile(int directory, const std::string& path, std::string_view bytes);

// Whether `name` is that of a file WriteCacheFile has not renamed yet; killed processes leave such files.
bool IsTemporaryName(std::string_view name);

}  // namespace lazuli::runtime
