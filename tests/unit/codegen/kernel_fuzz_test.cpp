// Random kernels against the reference. Values are small whole numbers, so that every result is exact whatever the order of additions.
// LAZULI_FUZZ_SEED starts elsewhere, LAZULI_FUZZ_COUNT runs more; a failure prints its seed.
#include <gtest/gtest.h>

#include "tests/support/kernel_check.h"
#include "tests/support/random_kernel.h"

namespace lazuli::testing {
namespace {

TEST(KernelFuzz, RandomKernels) {
  const int64_t first = EnvOr("LAZULI_FUZZ_SEED", 1), count = EnvOr("LAZULI_FUZZ_COUNT", 60);
  for (int64_t seed = first; seed < first + count; ++seed) {
    const codegen::KernelIR kernel = RandomKernel(seed).Build();
    for (const std::string& isa : AllIsas()) {
      CheckOptions options;
      options.target.isa = isa;
      options.seed = seed;
      options.whole = true;
      options.absolute = 1e-30;  // 0 and -0 are equal.
      ASSERT_EQ(CheckKernel(kernel, options), "") << "LAZULI_FUZZ_SEED=" << seed;
    }
    auto parsed = codegen::ParseKernel(codegen::PrintKernel(kernel));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_EQ(codegen::PrintKernel(*parsed), codegen::PrintKernel(kernel));
  }
}

}  // namespace
}  // namespace lazuli::testing
