#include "tests/support/golden_file.h"

#include <torch/types.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "codegen/emit_aten.h"
#include "codegen/pipeline.h"
#include "runtime/cpu_features.h"
#include "runtime/dump.h"
#include "runtime/options.h"
#include "tests/support/tensor_diff.h"

namespace lazuli::testing {
namespace {

absl::StatusOr<std::unique_ptr<runtime::Program>> CompileGolden(const GoldenFile& golden, const std::string& backend, int64_t serial) {
  codegen::PipelineOptions options;
  options.backend = backend;
  options.target.isa = runtime::IsaName(runtime::WidestIsa());
  options.target.precision = "eager";
  options.serial = serial;
  return codegen::Compile(golden.test.trace, options, nullptr);
}

}  // namespace

absl::StatusOr<GoldenFile> ReadGolden(const std::string& path) {
  GoldenFile golden;
  golden.path = path;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  golden.text = text.str();
  const auto stages = tools::HeaderWords(golden.text, "RUN");
  if (stages.size() != 1) return absl::InvalidArgumentError(absl::StrCat(path, ": no '// RUN: STAGE' line"));
  golden.stage = stages[0];
  auto test = tools::ReadTraceCase(golden.text);
  if (!test.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", test.status().message()));
  golden.test = *std::move(test);
  const auto tolerance = tools::HeaderWords(golden.text, "TOLERANCE");
  if (!tolerance.empty()) golden.tolerance = std::stod(tolerance[0]);
  return golden;
}

std::vector<std::string> FindGoldens(const std::string& root) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".trace") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::string> DumpStage(const GoldenFile& golden, const std::string& stage) {
  if (stage == "trace") return codegen::PrintTrace(golden.test.trace);
  static int64_t serial = 0;
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / absl::StrCat("lazuli_golden.", getpid());
  runtime::ConfigureDump(stage, dir.string());
  const auto program = CompileGolden(golden, "llvm", ++serial);
  runtime::ConfigureDump("", "");
  if (!program.ok()) return program.status();
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::exists(dir)) {
    for (const auto& entry : std::filesystem::directory_iterator(dir)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) {
    std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    absl::StrAppend(&text, content.str());
  }
  std::filesystem::remove_all(dir);
  return text;
}

std::string CompareRuns(const GoldenFile& golden) {
  const tools::TraceMemory memory(golden.test, /*seed=*/3);
  std::string error;
  const Tensors expected = memory.Run(codegen::MakeReplay(golden.test.trace).get(), &error);
  if (!error.empty()) return "op by op: " + error;
  for (const char* backend : {"aten", "llvm"}) {
    auto program = CompileGolden(golden, backend, 0);
    if (!program.ok()) return absl::StrCat(backend, ": ", std::string(program.status().message()));
    // Twice: a program must not depend on what its last run left behind.
    for (int run = 0; run < 2; ++run) {
      const Tensors actual = memory.Run(program->get(), &error);
      const double scale = std::string(backend) == "llvm" ? golden.tolerance : 0;
      if (error.empty()) error = DiffAll(expected, actual, {scale, scale});
      if (!error.empty()) return absl::StrCat(backend, ", run ", run, ": ", error);
    }
  }
  return "";
}

}  // namespace lazuli::testing
