// The log: blocks of lines on stderr or in LAZULI_LOG_FILE, every line prefixed "[lazuli] ".
//
//   if (LogEnabled(LogCategory::kRecompiles)) Log(LogCategory::kRecompiles, DescribeMiss(...));
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lazuli::runtime {

// LAZULI_LOGS, with torch.compile's names where it has one.
enum class LogCategory : uint8_t {
  kRecompiles,
  kRecompilesVerbose,
  kGuards,
  kGraphBreaks,
  kGraphCode,
  kOutputCode,
  kFusion,
  kPerfHints,
  kDynamic,
  kCudagraphs,
  kAutotuning,
  kCache,
  kSummary,
};
constexpr int kNumLogCategories = 13;

// "recompiles_verbose".
const char* LogCategoryName(LogCategory category);
// All of them, in order.
std::vector<std::string> LogCategoryNames();

namespace internal {
extern std::atomic<uint32_t> log_mask;
}

// One relaxed load.
inline bool LogEnabled(LogCategory category) {
  return (internal::log_mask.load(std::memory_order_relaxed) >> static_cast<int>(category)) & 1;
}

// Writes `block`, one or more lines with or without a final newline, when its category is on. Blocks of concurrent threads never mix.
void Log(LogCategory category, std::string_view block);

// Writes `block` whatever LAZULI_LOGS says: for what a user must see, such as a recompile limit that was reached.
void LogAlways(std::string_view block);

// Like LogAlways, but at most once per process for equal blocks.
void LogOnce(std::string_view block);

// Turns on the categories of a comma-separated, already validated list, and no others; recompiles_verbose brings recompiles. Blocks go
// to the end of `file`, or to stderr when it is empty or cannot be written, which is said once.
void ConfigureLog(std::string_view categories, const std::string& file);

}  // namespace lazuli::runtime
