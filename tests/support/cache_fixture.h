// A disk cache in a folder of the test's own, and the files in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/cache_entry.h"
#include "runtime/counters.h"
#include "runtime/log.h"

namespace lazuli::testing {

// Bytes that no test fills.
constexpr int64_t kLarge = int64_t{1} << 30;

inline std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A new file: some file systems write what replaces a file's content to the disk at once.
inline void WriteBytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Has a folder that is removed again, counters at 0 and the log in a file.
class CacheFixture : public ::testing::Test {
 protected:
  CacheFixture() {
    std::string name = (std::filesystem::temp_directory_path() / "lazuli_cache_XXXXXX").string();
    root_ = mkdtemp(name.data());
    folder_ = root_ / "cache";
    runtime::ConfigureLog("", (root_ / "log").string());
    runtime::Counters::Get().Reset();
  }
  ~CacheFixture() override {
    runtime::ConfigureLog("", "");
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  std::string Log() const { return ReadBytes(root_ / "log"); }
  static Stats Counts() { return runtime::Counters::Get().Snapshot(); }

  // Names of the files in the folder: entries, or those that are being written.
  std::vector<std::string> Entries() const { return Names(&runtime::IsEntryName); }
  std::vector<std::string> Temporaries() const { return Names(&runtime::IsTemporaryName); }

  std::filesystem::path root_, folder_;

 private:
  std::vector<std::string> Names(bool (*wanted)(std::string_view)) const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& item : std::filesystem::directory_iterator(folder_, none)) {
      if (wanted(item.path().filename().string())) names.push_back(item.path().filename().string());
    }
    return names;
  }
};

}  // namespace lazuli::testing
