// A log file of one test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace lazuli::testing {

// A path that nothing else uses, removed at the end.
class LogFile {
 public:
  LogFile() : path_(::testing::TempDir() + "lazuli_log_" + std::to_string(getpid()) + "_" + std::to_string(Next())) {
    std::remove(path_.c_str());
  }
  ~LogFile() { std::remove(path_.c_str()); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  const std::string& path() const { return path_; }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  static int Next() {
    static int next = 0;
    return next++;
  }
  const std::string path_;
};

inline int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace lazuli::testing
