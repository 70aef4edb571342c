// Runs a program eagerly and in a DeviceMode, and compares everything a program can see of the results.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "lazuli/lazuli.h"

namespace lazuli::testing {

using Tensors = std::vector<torch::Tensor>;
using Program = std::function<Tensors()>;

// Fails the test unless the two agree in defined-ness, dtype, sizes, strides, storage offset, requires_grad and conjugate and negative
// bits, and in values: bit for bit when `exact`, NaN payloads included; otherwise within what reordered float arithmetic of that dtype may
// differ by (integers and bools never), with NaN in the same places and infinities and zeros of the same sign.
void ExpectSame(const torch::Tensor& eager, const torch::Tensor& lazy, bool exact, const std::string& what);
void ExpectSame(const Tensors& eager, const Tensors& lazy, bool exact, const std::string& what);

// What the counters gained since construction.
class StatsDelta {
 public:
  StatsDelta() : begin_(lazuli::stats()) {}
  int64_t of(int64_t Stats::*counter) const { return lazuli::stats().*counter - begin_.*counter; }
  // Cuts by `cause`, and fallbacks of operator `op`.
  int64_t cuts(const std::string& cause) const { return Count(lazuli::stats().cuts, cause) - Count(begin_.cuts, cause); }
  int64_t fallbacks(const std::string& op) const { return Count(lazuli::stats().eager_fallbacks, op) - Count(begin_.eager_fallbacks, op); }
  int64_t uncut(const std::string& op) const { return Count(lazuli::stats().eager_uncut, op) - Count(begin_.eager_uncut, op); }

 private:
  static int64_t Count(const std::map<std::string, int64_t>& map, const std::string& key) {
    const auto it = map.find(key);
    return it == map.end() ? 0 : it->second;
  }
  const Stats begin_;
};

// A test run once for each backend. Starts with an empty cache.
class BackendTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { lazuli::reset(); }

  // The test's backend, other options as built in.
  Options options() const { return Options().backend(GetParam()); }
  bool exact() const { return GetParam() == "aten"; }

  // Seeds, runs `program` eagerly, then `runs` times in a mode, each from the same seed: the first time infers shapes and compiles, the
  // second finds programs, the third follows predictions. Every run must give what eager gave, and all work of the last one must have run
  // from programs.
  void ExpectSameAsEager(const Program& program) const { ExpectSameAsEager(program, options()); }
  void ExpectSameAsEager(const Program& program, const Options& options, int runs = kRuns) const;

  // The same for a program of which nothing can be recorded.
  void ExpectSameButEager(const Program& program) const;

  static constexpr int kRuns = 3;

 private:
  void Run(const Program& program, const Options& options, int runs) const;
};

// At the end of a file with `class SuiteTest : public BackendTest {}`.
#define LAZULI_FOR_EACH_BACKEND(SuiteTest)                                         \
  INSTANTIATE_TEST_SUITE_P(Backends, SuiteTest, ::testing::Values("aten", "llvm"), \
                           [](const ::testing::TestParamInfo<std::string>& info) { return info.param; })

}  // namespace lazuli::testing
