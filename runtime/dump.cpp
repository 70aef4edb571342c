#include "runtime/dump.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "runtime/log.h"

namespace lazuli::runtime {
namespace {

std::atomic<bool> any_dump{false};

struct DumpState {
  std::mutex mutex;
  std::set<std::string, std::less<>> stages;
  std::string dir;
  std::map<std::pair<int64_t, std::string>, int> written;  // How many texts each serial and stage has.
};

DumpState& GetState() {
  static DumpState* const state = new DumpState;
  return *state;
}

std::string FileName(std::string_view name, int64_t serial) {
  char number[24];
  std::snprintf(number, sizeof(number), "%04lld", static_cast<long long>(serial));
  return std::string(number) + "." + std::string(name);
}

// "" on success, otherwise why not.
std::string WriteFile(const std::filesystem::path& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return std::strerror(errno);
  const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  return complete && closed ? "" : std::strerror(errno);
}

}  // namespace

bool DumpEnabled(std::string_view stage) {
  if (!any_dump.load(std::memory_order_relaxed)) return false;
  DumpState& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.stages.count("all") != 0 || state.stages.find(stage) != state.stages.end();
}

std::string WriteDump(std::string_view stage, int64_t serial, std::string_view text) {
  if (!DumpEnabled(stage)) return "";
  DumpState& state = GetState();
  int repeat = 0;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    repeat = state.written[{serial, std::string(stage)}]++;
  }
  return WriteDumpFile(std::string(stage) + (repeat == 0 ? "" : "." + std::to_string(repeat)) + ".txt", serial, text);
}

std::string WriteDumpFile(std::string_view name, int64_t serial, std::string_view text) {
  DumpState& state = GetState();
  std::string dir;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    dir = state.dir.empty() ? "." : state.dir;
  }
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  const std::filesystem::path path = std::filesystem::path(dir) / FileName(name, serial);
  const std::string problem = error ? error.message() : WriteFile(path, text);
  if (problem.empty()) return path.string();
  LogOnce("cannot write into LAZULI_DUMP_DIR '" + dir + "': " + problem + "; nothing is dumped there");
  return "";
}

void ConfigureDump(std::string_view stages, const std::string& dir) {
  DumpState& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.stages.clear();
  while (!stages.empty()) {
    const size_t end = std::min(stages.find(','), stages.size());
    if (end > 0) state.stages.emplace(stages.substr(0, end));
    stages.remove_prefix(std::min(end + 1, stages.size()));
  }
  if (state.dir != dir) state.written.clear();
  state.dir = dir;
  any_dump.store(!state.stages.empty(), std::memory_order_relaxed);
}

}  // namespace lazuli::runtime
