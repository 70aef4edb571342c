// Random programs, eager against lazy. LAZULI_FUZZ_PROGRAMS sets how many, LAZULI_FUZZ_SEED where to start; a failure prints the seed
// and the shortest program that still fails, and leaves that as a C++ file beside its traces in fuzz_failures/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "codegen/ir/trace_text.h"
#include "lazuli/lazuli.h"
#include "tests/support/fuzz_program.h"
#include "tests/support/test_env.h"

namespace lazuli::testing {
namespace {

constexpr int kLength = 16;
constexpr int kRounds = 2;  // The second finds the first one's programs, on other values.
constexpr int kMaxFailures = 5;

std::string MessageOf(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

// Rounding errors grow along a program; in half precision nothing is compared but what is exact.
Tolerance ToleranceOf(FuzzFlavour flavour, const std::string& backend) {
  if (backend == "aten" || flavour == FuzzFlavour::kExact) return {};
  return {4096, 4096};
}

// "" when lazy is like eager, else how it differs.
std::string Check(const FuzzProgram& program, const std::string& backend) {
  lazuli::reset();
  for (int round = 0; round < kRounds; ++round) {
    Tensors eager;
    try {
      eager = RunFuzzProgram(program, round);
    } catch (const std::exception&) {
      return "";  // Shrunk to something that is no program any more.
    }
    try {
      const lazuli::DeviceMode mode(lazuli::Options().backend(backend).recompile_limit(1 << 20));
      const Tensors lazy = RunFuzzProgram(program, round);
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

FuzzProgram Shrink(FuzzProgram program, const std::string& backend) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = program.statements.size(); i-- > 0;) {
      if (program.dropped[i]) continue;
      const FuzzProgram candidate = WithoutStatement(program, i);
      if (Check(candidate, backend).empty()) continue;
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

// Operators that are deprecated are operators still.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class Fuzz : public ::testing::TestWithParam<std::string> {};

TEST_P(Fuzz, LikeEager) {
  static const int64_t programs = TakeFromEnv("LAZULI_FUZZ_PROGRAMS", 1000), first = TakeFromEnv("LAZULI_FUZZ_SEED", 1);
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard silent(&silence);
  int64_t statements = 0, failures = 0, hits = 0;
  for (int64_t seed = first; seed < first + programs && failures < kMaxFailures; ++seed) {
    const auto flavour = seed % 2 == 0 ? FuzzFlavour::kExact : FuzzFlavour::kSmooth;
    const FuzzProgram program = MakeFuzzProgram(static_cast<uint64_t>(seed), flavour, kLength);
    statements += NumStatements(program);
    const std::string difference = Check(program, GetParam());
    hits += lazuli::stats().cache_hits;
    if (difference.empty()) continue;
    ++failures;
    const FuzzProgram small = Shrink(program, GetParam());
    ADD_FAILURE() << "LAZULI_FUZZ_SEED=" << seed << " LAZULI_FUZZ_PROGRAMS=1, backend " << GetParam() << ": " << Check(small, GetParam())
                  << "\n"
                  << FuzzProgramText(small) << "written to " << WriteReproducer(small, GetParam());
  }
  std::cout << "fuzz on " << GetParam() << ": seeds " << first << " to " << first + programs - 1 << ", " << statements << " statements, "
            << hits << " cache hits\n";
  // Programs repeat with other values, so about every trace must have come from the cache the second time.
  EXPECT_GE(hits, programs / 2);
}

// What a failure leaves behind is itself a program and a trace.
TEST(FuzzReproducer, HasSourceAndTraces) {
  FuzzProgram program = MakeFuzzProgram(7, FuzzFlavour::kSmooth, kLength);
  const std::string folder = WriteReproducer(program, "llvm");
  std::ifstream source(folder + "/program.cpp");
  const std::string text{std::istreambuf_iterator<char>(source), {}};
  EXPECT_NE(text.find(FuzzProgramText(program)), std::string::npos);
  EXPECT_EQ(text.find("s."), text.find("s.h"));  // Every name was replaced.
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

INSTANTIATE_TEST_SUITE_P(Backends, Fuzz, ::testing::Values("aten", "llvm"),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace lazuli::testing
