#include "runtime/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>

namespace lazuli::runtime {
namespace internal {
std::atomic<uint32_t> log_mask{0};
}

namespace {

constexpr const char* kCategoryNames[kNumLogCategories] = {
    "recompiles", "recompiles_verbose", "guards",     "graph_breaks", "graph_code", "output_code", "fusion", "perf_hints",
    "dynamic",    "cudagraphs",         "autotuning", "cache",        "summary"};

struct Sink {
  std::mutex mutex;
  std::string path;
  int fd = STDERR_FILENO;
  std::set<std::string> said_once;
};

// Never destroyed: the summary at exit still writes.
Sink& GetSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // Nobody is left to tell.
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string Prefixed(std::string_view block) {
  std::string text;
  while (!block.empty()) {
    const size_t end = std::min(block.find('\n'), block.size());
    text += "[lazuli] ";
    text += block.substr(0, end);
    text += '\n';
    block.remove_prefix(std::min(end + 1, block.size()));
  }
  return text;
}

uint32_t Bit(LogCategory category) { return 1u << static_cast<int>(category); }

uint32_t MaskOf(std::string_view categories) {
  uint32_t mask = 0;
  while (!categories.empty()) {
    const size_t end = std::min(categories.find(','), categories.size());
    for (int i = 0; i < kNumLogCategories; ++i) {
      if (categories.substr(0, end) == kCategoryNames[i]) mask |= 1u << i;
    }
    categories.remove_prefix(std::min(end + 1, categories.size()));
  }
  if (mask & Bit(LogCategory::kRecompilesVerbose)) mask |= Bit(LogCategory::kRecompiles);
  return mask;
}

}  // namespace

const char* LogCategoryName(LogCategory category) { return kCategoryNames[static_cast<int>(category)]; }

std::vector<std::string> LogCategoryNames() { return {std::begin(kCategoryNames), std::end(kCategoryNames)}; }

void Log(LogCategory category, std::string_view block) {
  if (LogEnabled(category)) LogAlways(block);
}

void LogAlways(std::string_view block) {
  const std::string text = Prefixed(block);
  Sink& sink = GetSink();
  std::lock_guard<std::mutex> lock(sink.mutex);
  WriteAll(sink.fd, text);
}

void LogOnce(std::string_view block) {
  Sink& sink = GetSink();
  {
    std::lock_guard<std::mutex> lock(sink.mutex);
    if (!sink.said_once.emplace(block).second) return;
  }
  LogAlways(block);
}

void ConfigureLog(std::string_view categories, const std::string& file) {
  Sink& sink = GetSink();
  std::string problem;
  {
    std::lock_guard<std::mutex> lock(sink.mutex);
    if (file != sink.path) {
      if (sink.fd != STDERR_FILENO) close(sink.fd);
      sink.fd = STDERR_FILENO;
      sink.path = file;
      if (!file.empty()) {
        const int fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0) {
          sink.fd = fd;
        } else {
          problem = "cannot write LAZULI_LOG_FILE '" + file + "': " + std::strerror(errno) + "; logging to stderr";
        }
      }
    }
  }
  if (!problem.empty()) LogOnce(problem);
  internal::log_mask.store(MaskOf(categories), std::memory_order_relaxed);
}

}  // namespace lazuli::runtime
