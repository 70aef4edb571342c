#include "options.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace char_gpt {
namespace {

struct Row {
  const char* name;
  const char* help;
  double min;
  double max;
  int64_t Options::*integer = nullptr;
  double Options::*real = nullptr;
  std::string Options::*string = nullptr;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {"--steps", "training steps of each run", 1, 1e9, &Options::steps},
      {"--batch", "sequences a step", 1, 1e6, &Options::batch},
      {"--block", "characters of context", 1, 1e6, &Options::block},
      {"--layers", "transformer blocks", 1, 1e4, &Options::layers},
      {"--dim", "width of the model, a multiple of --heads", 1, 1e6, &Options::dim},
      {"--heads", "attention heads", 1, 1e4, &Options::heads},
      {"--dropout", "dropout probability", 0, 0.99, nullptr, &Options::dropout},
      {"--lr", "learning rate of AdamW", 0, 1e3, nullptr, &Options::lr},
      {"--seed", "seed of weights, batches and dropout", 0, 1e15, &Options::seed},
      {"--threads", "CPU threads, 0 for LibTorch's default", 0, 4096, &Options::threads},
      {"--text", "a text file, or a folder of text files", 0, 0, nullptr, nullptr, &Options::text},
  };
  return rows;
}

double ParseNumber(const Row& row, const std::string& value) {
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(value.c_str(), &end);
  const bool whole = row.integer == nullptr || number == static_cast<double>(static_cast<int64_t>(number));
  if (value.empty() || *end != '\0' || errno != 0 || !(number >= row.min && number <= row.max) || !whole) {
    char range[96];
    std::snprintf(range, sizeof(range), "a %s from %g to %g", row.integer != nullptr ? "whole number" : "number", row.min, row.max);
    throw UserError(std::string(row.name) + " takes " + range + ", not '" + value + "'.");
  }
  return number;
}

void Store(const Row& row, const std::string& value, Options& options) {
  if (row.string != nullptr) {
    options.*row.string = value;
  } else if (row.integer != nullptr) {
    options.*row.integer = static_cast<int64_t>(ParseNumber(row, value));
  } else {
    options.*row.real = ParseNumber(row, value);
  }
}

const Row& FindRow(const std::string& name) {
  for (const Row& row : Rows()) {
    if (name == row.name) return row;
  }
  throw UserError("Unknown option '" + name + "'. See char_gpt --help.");
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
      continue;
    }
    if (name == "--no-sample") {
      options.sample = false;
      continue;
    }
    const size_t equals = name.find('=');
    const Row& row = FindRow(name.substr(0, equals));
    if (equals == std::string::npos && i + 1 == argc) throw UserError(name + " needs a value. See char_gpt --help.");
    Store(row, equals == std::string::npos ? argv[++i] : name.substr(equals + 1), options);
  }
  if (options.dim % options.heads != 0) {
    throw UserError("--dim " + std::to_string(options.dim) + " is not a multiple of --heads " + std::to_string(options.heads) +
                    ": change one of them.");
  }
  return options;
}

std::string HelpText() {
  const Options defaults;
  std::string text =
      "char_gpt: trains a character-level GPT twice from the same seed, eagerly and with Lazuli, and compares the two runs.\n\n"
      "usage: char_gpt [options]\n";
  for (const Row& row : Rows()) {
    char value[64] = "";
    if (row.integer != nullptr) std::snprintf(value, sizeof(value), "%lld", static_cast<long long>(defaults.*row.integer));
    if (row.real != nullptr) std::snprintf(value, sizeof(value), "%g", defaults.*row.real);
    if (row.string != nullptr) std::snprintf(value, sizeof(value), "%s", (defaults.*row.string).c_str());
    char line[256];
    std::snprintf(line, sizeof(line), "  %-12s %s (%s)\n", row.name, row.help, value);
    text += line;
  }
  return text + "  --no-sample  print no text sampled from the model\n";
}

}  // namespace char_gpt
