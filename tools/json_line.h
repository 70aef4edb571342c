// Reads one line of an event log: a JSON object of numbers, strings, and objects of numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lazuli::tools {

struct JsonLine {
  std::map<std::string, std::string> texts;
  std::map<std::string, int64_t> numbers;
  std::map<std::string, std::map<std::string, int64_t>> objects;

  // The member, or what stands for a missing one.
  std::string text(const std::string& key) const;
  int64_t number(const std::string& key, int64_t missing = 0) const;
};

// None when `line` is not exactly one such object.
std::optional<JsonLine> ReadJsonLine(std::string_view line);

}  // namespace lazuli::tools
