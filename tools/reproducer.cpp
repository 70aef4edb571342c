#include "tools/reproducer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/reproducer_helpers_text.h"

namespace lazuli::tools {

std::string ReproducerSource(const std::string& statements, const std::vector<std::string>& results, const std::string& backend) {
  return absl::StrCat(
      "// Build with C++17, linked with liblazuli and LibTorch (in CMake: Lazuli::lazuli). The program itself is at the end.\n",
      absl::StrReplaceAll(kReproducerHelpers, {{"#pragma once\n\n", ""}}),
      "\nusing namespace lazuli::testing;\n\nstd::vector<torch::Tensor> Program(int round) {\n", statements, "  return {",
      absl::StrJoin(results, ", "), "};\n}\n\nint main() { return CompareWithEager(Program, \"", backend, "\"); }\n");
}

}  // namespace lazuli::tools
