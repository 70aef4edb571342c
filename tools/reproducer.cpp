#include "tools/reproducer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lazuli::tools {

std::string ReproducerSource(const std::string& statements, const std::vector<std::string>& results, const std::string& backend) {
  return absl::StrCat(
      "// Build: c++ -std=c++17 -I<Lazuli> -I<Lazuli>/include, linked with liblazuli and LibTorch.\n"
      "#include \"tests/support/fuzz_helpers.h\"\n\nusing namespace lazuli::testing;\n\n"
      "std::vector<torch::Tensor> Program(int round) {\n",
      statements, "  return {", absl::StrJoin(results, ", "), "};\n}\n\nint main() { return CompareWithEager(Program, \"", backend,
      "\"); }\n");
}

}  // namespace lazuli::tools
