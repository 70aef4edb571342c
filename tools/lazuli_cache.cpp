// The disk cache from a terminal: what is in it, whether it is sound, why a kernel was not found, and making it smaller.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "runtime/cache_entry.h"
#include "runtime/cache_explain.h"
#include "runtime/cache_folder.h"
#include "runtime/options.h"

namespace lazuli::tools {
namespace {

using runtime::CacheEntry;
using runtime::CacheFile;
using runtime::CacheFolder;

using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* arguments;
  const char* help;
  int (*run)(const CacheFolder& folder, const Arguments& arguments);
};

absl::StatusOr<CacheEntry> Read(const CacheFolder& folder, const CacheFile& file) {
  absl::StatusOr<std::string> bytes = runtime::ReadCacheFile(folder.descriptor(), file.name, -1);
  absl::StatusOr<CacheEntry> entry = bytes.ok() ? runtime::DecodeEntry(*bytes) : bytes.status();
  if (entry.ok() && runtime::EntryName(entry->kind, entry->key) != file.name) {
    return absl::DataLossError("it holds another entry than its name says");
  }
  return entry;
}

// The first line of the key's text, below its facts: the kernel's sizes.
std::string Title(const std::string& key) {
  const size_t facts = key.find("\n\n");
  const size_t begin = facts == std::string::npos ? 0 : facts + 2;
  return key.substr(begin, key.find('\n', begin) - begin);
}

std::string Age(int64_t used) {
  const int64_t minutes = std::max<int64_t>(0, static_cast<int64_t>(time(nullptr)) - used) / 60;
  if (minutes < 120) return std::to_string(minutes) + " min";
  return minutes < 2880 ? std::to_string(minutes / 60) + " h" : std::to_string(minutes / 1440) + " days";
}

int List(const CacheFolder& folder, const Arguments& arguments) {
  if (!arguments.empty()) return 2;
  int64_t bytes = 0;
  const std::vector<CacheFile> files = folder.List();
  for (const CacheFile& file : files) {
    bytes += file.bytes;
    const absl::StatusOr<CacheEntry> entry = Read(folder, file);
    const std::string title = entry.ok() ? Title(entry->key) : "UNUSABLE: " + std::string(entry.status().message());
    std::printf("%s %9" PRId64 " bytes, used %8s ago  %-8s %s\n", file.name.c_str(), file.bytes, Age(file.used).c_str(),
                entry.ok() ? entry->kind.c_str() : "", title.c_str());
  }
  std::printf("%zu entries, %.1f MB in %s\n", files.size(), static_cast<double>(bytes) / (1 << 20), folder.path().c_str());
  return 0;
}

int Verify(const CacheFolder& folder, const Arguments& arguments) {
  if (!arguments.empty()) return 2;
  size_t unusable = 0;
  const std::vector<CacheFile> files = folder.List();
  for (const CacheFile& file : files) {
    const absl::StatusOr<CacheEntry> entry = Read(folder, file);
    if (entry.ok()) continue;
    ++unusable;
    std::printf("%s: %s\n", file.name.c_str(), std::string(entry.status().message()).c_str());
  }
  std::printf("%zu entries, %zu unusable%s\n", files.size(), unusable,
              unusable == 0 ? "" : ": they are never run, and are made anew when needed; delete them or leave them");
  return unusable == 0 ? 0 : 1;
}

int Explain(const CacheFolder& folder, const Arguments& arguments) {
  if (arguments.size() != 1) return 2;
  int found = 0;
  for (const CacheFile& file : folder.List()) {
    if (file.name.rfind(arguments[0], 0) != 0) continue;
    ++found;
    const absl::StatusOr<CacheEntry> entry = Read(folder, file);
    if (!entry.ok()) {
      std::printf("%s cannot be used: %s\n", file.name.c_str(), std::string(entry.status().message()).c_str());
      continue;
    }
    std::printf("%s, %s of %zu bytes, depends on\n%s%s", file.name.c_str(), entry->kind.c_str(), entry->blob.size(), entry->key.c_str(),
                runtime::DescribeNearest(folder, entry->kind, entry->key).c_str());
  }
  if (found > 0) return 0;
  std::printf("no entry's name starts with '%s'; lazuli-cache list has them all, LAZULI_LOGS=cache those that a program misses\n",
              arguments[0].c_str());
  return 1;
}

// A whole number of at least 0.
bool ParseNumber(const std::string& text, int64_t unit, int64_t* value) {
  char* end = nullptr;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || number < 0 || number > INT64_MAX / unit) return false;
  *value = number * unit;
  return true;
}

int Prune(const CacheFolder& folder, const Arguments& arguments) {
  runtime::PruneLimits limits;
  if (arguments.empty()) return 2;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (arguments[i] == "--all") {
      limits.max_bytes = 0;
    } else if (arguments[i] == "--mb" && ParseNumber(value, int64_t{1} << 20, &limits.max_bytes)) {
      ++i;
    } else if (arguments[i] == "--days" && ParseNumber(value, 86400, &limits.max_seconds)) {
      ++i;
    } else {
      return 2;
    }
  }
  const absl::StatusOr<runtime::PruneResult> result = folder.Prune(limits);
  if (!result.ok()) {
    std::fprintf(stderr, "%s: %s\n", folder.path().c_str(), std::string(result.status().message()).c_str());
    return 1;
  }
  std::printf("removed %" PRId64 " files, %.1f MB\n", result->removed_files, static_cast<double>(result->removed_bytes) / (1 << 20));
  return 0;
}

const Command kCommands[] = {
    {"list", "", "every entry, the last used first: name, size, last use, kind, and what it is", &List},
    {"verify", "", "checks every entry; status 1 when some are unusable", &Verify},
    {"explain", "NAME", "what the entries whose names start with NAME depend on, and how the nearest other entry differs", &Explain},
    {"prune", "[--mb N] [--days N] [--all]", "removes what was used least recently beyond N MB, what was not used for N days, or all",
     &Prune},
};

int Usage(FILE* stream) {
  std::fputs("usage: lazuli-cache [--dir FOLDER] COMMAND\n", stream);
  for (const Command& command : kCommands) std::fprintf(stream, "%s %s\n    %s\n", command.name, command.arguments, command.help);
  std::fputs(
      "The folder is that of LAZULI_CACHE_DIR, unless --dir names one. LAZULI_LOGS=cache makes a program log why it misses entries.\n",
      stream);
  return stream == stdout ? 0 : 2;
}

int Main(Arguments arguments) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) return Usage(stdout);
  const absl::StatusOr<Options> options = runtime::OptionsFromEnv();
  if (!options.ok()) runtime::ExitForBadOptions(options.status());
  std::string path = options->cache_dir().empty() ? runtime::DefaultCacheFolder() : options->cache_dir();
  if (arguments.size() >= 2 && arguments[0] == "--dir") {
    path = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  if (arguments.empty()) return Usage(stderr);
  for (const Command& command : kCommands) {
    if (arguments[0] != command.name) continue;
    const absl::StatusOr<std::unique_ptr<CacheFolder>> folder = CacheFolder::Open(path, /*create=*/false);
    if (!folder.ok()) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), std::string(folder.status().message()).c_str());
      return 1;
    }
    const int status = command.run(**folder, Arguments(arguments.begin() + 1, arguments.end()));
    return status == 2 ? Usage(stderr) : status;
  }
  return Usage(stderr);
}

}  // namespace
}  // namespace lazuli::tools

int main(int argc, char** argv) { return lazuli::tools::Main({argv + 1, argv + argc}); }
