// What the example programs share that has nothing to do with tensors: options, exit codes, step times.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace examples {

// What the user gave cannot be used. The message says what to do.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Options as `--name value` or `--name=value`, and flags as `--name`. Each is bound to a variable that holds its default.
class CommandLine {
 public:
  CommandLine(std::string program, std::string about) : program_(std::move(program)), about_(std::move(about)) {}

  void Integer(const std::string& name, int64_t& value, int64_t min, int64_t max, const std::string& help);
  void Number(const std::string& name, double& value, double min, double max, const std::string& help);
  void Text(const std::string& name, std::string& value, const std::string& help);
  void Flag(const std::string& name, bool& value, const std::string& help);

  // Sets the variables. False when help was asked for, and printed. Throws UserError on an unknown name or a value out of range.
  bool Parse(int argc, char** argv) const;

 private:
  struct Row {
    std::string name;
    std::string help;
    int64_t min = 0;
    int64_t max = 0;
    int64_t* integer = nullptr;
    double number_min = 0;
    double number_max = 0;
    double* number = nullptr;
    std::string* text = nullptr;
    bool* flag = nullptr;
  };

  const Row& Find(const std::string& name) const;
  void PrintHelp() const;

  std::string program_;
  std::string about_;
  std::vector<Row> rows_;
};

// Runs a program. What it throws becomes a message and an exit code: 2 for UserError, 1 for everything else.
int RunMain(const char* program, const std::function<int()>& run);

// Wall time of training steps.
class StepTimer {
 public:
  void Start() { start_ = Clock::now(); }
  void Stop() { ms_.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start_).count()); }
  // The first half of the steps, at most ten, are left out.
  void PrintMedian() const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  std::vector<double> ms_;
};

}  // namespace examples
