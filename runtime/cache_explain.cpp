#include "runtime/cache_explain.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/cache_entry.h"

namespace lazuli::runtime {
namespace {

constexpr size_t kMaxLookedAt = 1000;

// A key is a paragraph of facts, each a line of a name and a value, an empty line, and text.
struct ParsedKey {
  std::map<std::string, std::string> facts;
  std::vector<std::string> text;
};

ParsedKey Parse(std::string_view key) {
  ParsedKey parsed;
  bool in_text = false;
  for (const absl::string_view line : absl::StrSplit(absl::string_view(key.data(), key.size()), '\n')) {
    if (in_text) {
      parsed.text.emplace_back(line);
    } else if (line.empty()) {
      in_text = true;
    } else {
      const std::pair<std::string, std::string> fact = absl::StrSplit(line, absl::MaxSplits(' ', 1));
      parsed.facts[fact.first] = fact.second;
    }
  }
  return parsed;
}

const std::string& FactOf(const ParsedKey& key, const std::string& name) {
  static const auto* const none = new std::string("none");
  const auto it = key.facts.find(name);
  return it != key.facts.end() ? it->second : *none;
}

size_t NumDifferences(const ParsedKey& here, const ParsedKey& there) {
  size_t count = std::max(here.text.size(), there.text.size());
  for (size_t i = 0; i < std::min(here.text.size(), there.text.size()); ++i) count -= here.text[i] == there.text[i] ? 1 : 0;
  for (const auto& [name, value] : here.facts) count += FactOf(there, name) != value ? 1 : 0;
  return count;
}

}  // namespace

std::string DescribeDifference(std::string_view here, std::string_view there) {
  const ParsedKey a = Parse(here), b = Parse(there);
  std::map<std::string, std::string> names = a.facts;
  names.insert(b.facts.begin(), b.facts.end());
  std::string lines;
  for (const auto& [name, value] : names) {
    if (FactOf(a, name) != FactOf(b, name))
      absl::StrAppend(&lines, "  ", name, ": ", FactOf(a, name), " here, ", FactOf(b, name), " there\n");
  }
  const auto line = [](const ParsedKey& key, size_t i) { return i < key.text.size() ? absl::StrCat("'", key.text[i], "'") : "nothing"; };
  for (size_t i = 0; i < std::max(a.text.size(), b.text.size()); ++i) {
    if (line(a, i) == line(b, i)) continue;
    absl::StrAppend(&lines, "  line ", i + 1, " of the text: ", line(a, i), " here, ", line(b, i), " there\n");
    break;
  }
  return lines.empty() ? "  no difference\n" : lines;
}

std::string DescribeNearest(const CacheFolder& folder, std::string_view kind, std::string_view key) {
  const ParsedKey wanted = Parse(key);
  const std::string wanted_name = EntryName(kind, key);
  std::string nearest_name, nearest_key;
  size_t fewest = 0;
  std::vector<CacheFile> files = folder.List();
  if (files.size() > kMaxLookedAt) files.resize(kMaxLookedAt);
  for (const CacheFile& file : files) {
    if (file.name == wanted_name) continue;
    absl::StatusOr<std::string> bytes = ReadCacheFile(folder.descriptor(), file.name, -1);
    absl::StatusOr<CacheEntry> entry = bytes.ok() ? DecodeEntry(*bytes) : bytes.status();
    if (!entry.ok() || entry->kind != kind) continue;
    const size_t count = NumDifferences(wanted, Parse(entry->key));
    if (!nearest_name.empty() && count >= fewest) continue;
    fewest = count;
    nearest_name = file.name;
    nearest_key = std::move(entry->key);
  }
  if (nearest_name.empty()) return absl::StrCat("  ", folder.path(), " has no other entry of this kind\n");
  return absl::StrCat("  nearest entry: ", nearest_name, "\n", DescribeDifference(key, nearest_key));
}

}  // namespace lazuli::runtime
