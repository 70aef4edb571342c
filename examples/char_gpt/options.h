// The command line of char_gpt.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace char_gpt {

struct Options {
  int64_t steps = 200;
  int64_t batch = 16;
  int64_t block = 64;  // Characters of context.
  int64_t layers = 4;
  int64_t dim = 128;
  int64_t heads = 4;
  double dropout = 0.1;
  double lr = 1e-3;
  int64_t seed = 1;
  int64_t threads = 0;  // 0: LibTorch's default.
  std::string text = "/usr/share/common-licenses";
  bool sample = true;
  bool help = false;
};

// What the user gave cannot be used. The message says what to do.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses `--name value` and `--name=value`. Throws UserError on an unknown name or a value out of range.
Options ParseOptions(int argc, char** argv);

// The text of --help.
std::string HelpText();

}  // namespace char_gpt
