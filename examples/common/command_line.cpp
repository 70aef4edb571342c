#include "common/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace examples {
namespace {

// `parse` is strtoll or strtod.
template <typename T, typename Parse>
T ParseNumber(const std::string& name, const std::string& value, T min, T max, const char* kind, Parse parse) {
  char* end = nullptr;
  errno = 0;
  const T number = parse(value.c_str(), &end);
  if (value.empty() || *end != '\0' || errno != 0 || !(number >= min && number <= max)) {
    throw UserError(name + " takes a " + kind + " from " + std::to_string(min) + " to " + std::to_string(max) + ", not '" + value + "'.");
  }
  return number;
}

int64_t ParseInteger(const std::string& name, const std::string& value, int64_t min, int64_t max) {
  return ParseNumber<int64_t>(name, value, min, max, "whole number",
                              [](const char* text, char** end) { return std::strtoll(text, end, 10); });
}

double ParseDouble(const std::string& name, const std::string& value, double min, double max) {
  return ParseNumber<double>(name, value, min, max, "number", [](const char* text, char** end) { return std::strtod(text, end); });
}

}  // namespace

void CommandLine::Integer(const std::string& name, int64_t& value, int64_t min, int64_t max, const std::string& help) {
  Row row;
  row.name = name, row.help = help, row.min = min, row.max = max, row.integer = &value;
  rows_.push_back(row);
}

void CommandLine::Number(const std::string& name, double& value, double min, double max, const std::string& help) {
  Row row;
  row.name = name, row.help = help, row.number_min = min, row.number_max = max, row.number = &value;
  rows_.push_back(row);
}

void CommandLine::Text(const std::string& name, std::string& value, const std::string& help) {
  Row row;
  row.name = name, row.help = help, row.text = &value;
  rows_.push_back(row);
}

void CommandLine::Flag(const std::string& name, bool& value, const std::string& help) {
  Row row;
  row.name = name, row.help = help, row.flag = &value;
  rows_.push_back(row);
}

const CommandLine::Row& CommandLine::Find(const std::string& name) const {
  for (const Row& row : rows_) {
    if (row.name == name) return row;
  }
  throw UserError("Unknown option '" + name + "'. See " + program_ + " --help.");
}

bool CommandLine::Parse(int argc, char** argv) const {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      PrintHelp();
      return false;
    }
    const size_t equals = name.find('=');
    const Row& row = Find(name.substr(0, equals));
    if (row.flag != nullptr) {
      if (equals != std::string::npos) throw UserError(row.name + " takes no value.");
      *row.flag = true;
      continue;
    }
    if (equals == std::string::npos && i + 1 == argc) throw UserError(name + " needs a value. See " + program_ + " --help.");
    const std::string value = equals == std::string::npos ? argv[++i] : name.substr(equals + 1);
    if (row.text != nullptr) {
      *row.text = value;
    } else if (row.number != nullptr) {
      *row.number = ParseDouble(row.name, value, row.number_min, row.number_max);
    } else {
      *row.integer = ParseInteger(row.name, value, row.min, row.max);
    }
  }
  return true;
}

void CommandLine::PrintHelp() const {
  std::printf("%s: %s\n\nusage: %s [options]\n", program_.c_str(), about_.c_str(), program_.c_str());
  for (const Row& row : rows_) {
    std::string shown = row.help;
    if (row.integer != nullptr) shown += " (" + std::to_string(*row.integer) + ")";
    if (row.number != nullptr) shown += " (" + std::to_string(*row.number) + ")";
    if (row.text != nullptr && !row.text->empty()) shown += " (" + *row.text + ")";
    std::printf("  %-14s %s\n", row.name.c_str(), shown.c_str());
  }
}

int RunMain(const char* program, const std::function<int()>& run) {
  try {
    return run();
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

void StepTimer::PrintMedian() const {
  if (ms_.empty()) return;
  const auto warm_up = static_cast<std::ptrdiff_t>(std::min<size_t>(10, ms_.size() / 2));
  std::vector<double> values(ms_.begin() + warm_up, ms_.end());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  std::printf("median step %.2f ms\n", *middle);
}

}  // namespace examples
