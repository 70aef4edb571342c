// Random programs, eager against lazy, on other values each time (Fuzz) or on other sizes (FuzzSizes). LAZULI_FUZZ_PROGRAMS sets how many,
// LAZULI_FUZZ_SEED where to start; a failure prints the seed and the shortest program that still fails, and leaves that as a C++ file
// beside its traces in fuzz_failures/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "codegen/ir/trace_text.h"
#include "lazuli/lazuli.h"
#include "tests/support/fuzz_program.h"
#include "tests/support/silent_warnings.h"
#include "tests/support/test_device.h"
#include "tests/support/test_env.h"

namespace lazuli::testing {
namespace {

constexpr int kLength = 16;
constexpr int kMaxFailures = 5;

std::string MessageOf(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

// Rounding errors grow along a program; in half precision nothing is compared but what is exact.
Tolerance ToleranceOf(FuzzFlavour flavour, const std::string& backend) {
  if (flavour == FuzzFlavour::kExact) return {};
  // On a GPU ATen adds up gradients, and what meets in one place, in any order.
  if (backend == "aten" && !OnGpu()) return {};
  return {4096, 4096};
}

// What is run of a program, one after another: run i on the values of round i.
using Runs = std::vector<FuzzProgram>;
using MakeRuns = Runs (*)(const FuzzProgram&);

// The second run finds the first one's programs, on other values.
Runs Twice(const FuzzProgram& program) { return {program, program}; }

// One or two of the inputs' sizes grow: the second run makes a dynamic program, the next ones are served by it, and the first size comes
// again.
Runs WithGrowingSizes(const FuzzProgram& program) {
  constexpr int64_t kSteps[] = {0, 3, 7, 1, 0};
  Runs runs;
  const std::vector<int64_t> sizes = InputSizes(program);
  if (sizes.empty()) return runs;
  const int64_t first = sizes[program.seed % sizes.size()], second = sizes[program.seed / 8 % sizes.size()];
  for (const int64_t step : kSteps) {
    // The larger one first, or it might meet what the other has become.
    const int64_t large = std::max(first, second), small = std::min(first, second);
    const bool grows_both = program.seed / 4 % 2 == 0 && large != small;
    const FuzzProgram grown = grows_both ? WithSize(program, large, 2 * step) : program;
    runs.push_back(WithSize(grown, grows_both ? small : first, step));
  }
  return runs;
}

// "" when lazy is like eager, else how it differs.
std::string Check(const FuzzProgram& program, const std::string& backend, MakeRuns make_runs) {
  lazuli::reset();
  const Runs runs = make_runs(program);
  for (size_t round = 0; round < runs.size(); ++round) {
    Tensors eager;
    try {
      if (OnGpu()) {
        const CpuFactories on_cpu;
        (void)RunFuzzProgram(runs[round], static_cast<int>(round));
      }
      eager = RunFuzzProgram(runs[round], static_cast<int>(round));
    } catch (const std::exception&) {
      return "";  // Shrunk or grown to something that is no program any more.
    }
    try {
      const lazuli::DeviceMode mode(lazuli::Options().backend(backend).dynamic("auto").recompile_limit(1 << 20));
      const Tensors lazy = RunFuzzProgram(runs[round], static_cast<int>(round));
      lazuli::sync();
      const std::string difference = DiffAll(eager, lazy, ToleranceOf(program.flavour, backend));
      if (!difference.empty()) return "round " + std::to_string(round) + ": " + difference;
    } catch (const std::exception& error) {
      return "round " + std::to_string(round) + ": throws " + MessageOf(error);
    }
    if (lazuli::stats().compile_failures != 0) return "a trace could not be compiled";
  }
  const Stats stats = lazuli::stats();
  return stats.traces > 0 && stats.programs_compiled == 0 ? "no program was compiled" : "";
}

FuzzProgram Shrink(FuzzProgram program, const std::string& backend, MakeRuns make_runs) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = program.statements.size(); i-- > 0;) {
      if (program.dropped[i]) continue;
      const FuzzProgram candidate = WithoutStatement(program, i);
      if (Check(candidate, backend, make_runs).empty()) continue;
      program = candidate;
      smaller = true;
    }
  }
  return program;
}

// Leaves `program` in fuzz_failures/<seed>_<backend>: a C++ file, and its traces as golden tests read them. Returns the folder.
std::string WriteReproducer(const FuzzProgram& program, const std::string& backend) {
  const std::string folder = "fuzz_failures/" + std::to_string(program.seed) + "_" + backend;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/program.cpp") << FuzzProgramSource(program, backend);
  lazuli::reset();
  try {
    const lazuli::DeviceMode mode(lazuli::Options().backend(backend).recompile_limit(1 << 20).dump("trace").dump_dir(folder));
    const Tensors results = RunFuzzProgram(program, 0);
    lazuli::sync();
  } catch (const std::exception&) {  // It is a failure, after all.
  }
  for (const auto& file : std::vector<std::filesystem::directory_entry>(std::filesystem::directory_iterator(folder), {})) {
    const std::string name = file.path().string();  // 0000.trace.txt
    if (file.path().extension() == ".txt") std::filesystem::rename(name, name.substr(0, name.size() - 4));
  }
  return folder;
}

// What a run of many programs has seen.
struct FuzzTotals {
  int64_t programs = 0, statements = 0, hits = 0, dynamic_programs = 0;
};

// LAZULI_FUZZ_PROGRAMS and LAZULI_FUZZ_SEED; taken out of the environment by the first test, for all of them.
int64_t NumPrograms(int64_t fallback) {
  static const int64_t programs = TakeFromEnv("LAZULI_FUZZ_PROGRAMS", 0);
  return programs != 0 ? programs : fallback;
}

int64_t FirstSeed() {
  static const int64_t seed = TakeFromEnv("LAZULI_FUZZ_SEED", 1);
  return seed;
}

FuzzTotals RunFuzz(const std::string& backend, int64_t num_programs, MakeRuns make_runs) {
  const SilentWarnings silent;  // Operators that are deprecated are operators still.
  FuzzTotals totals;
  int64_t failures = 0;
  for (int64_t seed = FirstSeed(); seed < FirstSeed() + num_programs && failures < kMaxFailures; ++seed) {
    const auto flavour = seed % 2 == 0 ? FuzzFlavour::kExact : FuzzFlavour::kSmooth;
    const FuzzProgram program = MakeFuzzProgram(static_cast<uint64_t>(seed), flavour, kLength);
    const std::string difference = Check(program, backend, make_runs);
    const Stats stats = lazuli::stats();
    ++totals.programs;
    totals.statements += NumStatements(program);
    totals.hits += stats.cache_hits;
    totals.dynamic_programs += stats.dynamic_programs;
    if (difference.empty()) continue;
    ++failures;
    const FuzzProgram small = Shrink(program, backend, make_runs);
    ADD_FAILURE() << "LAZULI_FUZZ_SEED=" << seed << " LAZULI_FUZZ_PROGRAMS=1, backend " << backend << ": "
                  << Check(small, backend, make_runs) << "\n"
                  << FuzzProgramText(make_runs(small).back()) << "written to " << WriteReproducer(small, backend);
  }
  std::cout << "fuzz on " << backend << ": seeds " << FirstSeed() << " to " << FirstSeed() + num_programs - 1 << ", " << totals.statements
            << " statements, " << totals.hits << " cache hits, " << totals.dynamic_programs << " dynamic programs\n";
  return totals;
}

class Fuzz : public ::testing::TestWithParam<std::string> {};

TEST_P(Fuzz, LikeEager) {
  const int64_t programs = NumPrograms(1000);
  // Programs repeat with other values, so about every trace must have come from the cache the second time.
  EXPECT_GE(RunFuzz(GetParam(), programs, &Twice).hits, programs / 2);
}

class FuzzSizes : public ::testing::TestWithParam<std::string> {};

TEST_P(FuzzSizes, LikeEager) {
  const FuzzTotals totals = RunFuzz(GetParam(), NumPrograms(300), &WithGrowingSizes);
  if (totals.programs < 50) return;
  EXPECT_GE(totals.dynamic_programs, totals.programs / 4);
  EXPECT_GE(totals.hits, totals.dynamic_programs);
}

// What a failure leaves behind is itself a program and a trace.
TEST(FuzzReproducer, HasSourceAndTraces) {
  FuzzProgram program = MakeFuzzProgram(7, FuzzFlavour::kSmooth, kLength);
  const std::string folder = WriteReproducer(program, "llvm");
  std::ifstream source(folder + "/program.cpp");
  const std::string text{std::istreambuf_iterator<char>(source), {}};
  EXPECT_NE(text.find(FuzzProgramText(program)), std::string::npos);
  const size_t statements = text.find("Program(int round) {");
  ASSERT_NE(statements, std::string::npos);
  EXPECT_EQ(text.find("s.", statements), std::string::npos);  // Every name was replaced.
  int traces = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".trace") continue;
    ++traces;
    std::ifstream stream(file.path());
    const auto trace = codegen::ParseTrace(std::string{std::istreambuf_iterator<char>(stream), {}});
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_FALSE(trace->ops.empty());
  }
  EXPECT_GT(traces, 0);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Backends, FuzzSizes, ::testing::Values("aten", "llvm"),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Backends, Fuzz, ::testing::Values("aten", "llvm"),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace lazuli::testing
