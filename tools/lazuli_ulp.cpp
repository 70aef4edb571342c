// Measures kernels' functions against wider types: of floats over all of them or a sample, of doubles over random ones.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "runtime/options.h"
#include "tools/function_accuracy.h"

namespace {

constexpr char kUsage[] =
    "usage: lazuli-ulp [options] [FUNCTION...]\n\n"
    "Runs functions (all by default) over bit patterns of floats and prints the largest error of each, in units in the last place.\n\n"
    "  --step=N          every Nth pattern (1: all 2^32; a minute of one CPU for each function)\n"
    "  --doubles=N       over N random doubles instead\n"
    "  --isa=NAME        avx512, avx2 or sse4 (the CPU's own)\n"
    "  --precision=NAME  eager, strict or fast (eager)\n\n"
    "Exit status: 0 all within their bounds, 1 one is not, 2 an error.\n";

int Fail(const std::string& message) {
  std::fprintf(stderr, "lazuli-ulp: %s\n%s", message.c_str(), kUsage);
  return 2;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  lazuli::codegen::KernelTarget target{lazuli::runtime::IsaName(lazuli::runtime::Active().isa), "eager"};
  uint64_t step = 1, doubles = 0;
  std::set<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--help") return std::fputs(kUsage, stdout), 0;
    if (arg.rfind("--step=", 0) == 0) {
      step = std::strtoull(arg.c_str() + 7, nullptr, 10);
      if (step == 0) return Fail("--step must be a number of at least 1, not \"" + arg.substr(7) + "\"");
    } else if (arg.rfind("--doubles=", 0) == 0) {
      doubles = std::strtoull(arg.c_str() + 10, nullptr, 10);
      if (doubles == 0) return Fail("--doubles must be a number of at least 1, not \"" + arg.substr(10) + "\"");
    } else if (arg.rfind("--isa=", 0) == 0) {
      target.isa = arg.substr(6);
    } else if (arg.rfind("--precision=", 0) == 0) {
      target.precision = arg.substr(12);
    } else if (arg.rfind("-", 0) == 0) {
      return Fail("unknown option " + arg);
    } else {
      wanted.insert(arg);
    }
  }
  bool within = true;
  const bool all = wanted.empty();
  for (const auto& function : lazuli::tools::MeasuredFunctions()) {
    if (!all && wanted.erase(function.name) == 0) continue;
    const double bound = doubles > 0 ? function.double_bound : function.float_bound;
    const auto accuracy =
        doubles > 0 ? lazuli::tools::MeasureDoubles(function, target, doubles) : lazuli::tools::MeasureFloats(function, target, step);
    if (!accuracy.ok()) return Fail(std::string(accuracy.status().message()));
    const bool ok = accuracy->worst <= bound;
    const std::string second = lazuli::codegen::KOpArity(function.op) == 1 ? "" : ", " + Number(accuracy->worst_with);
    std::printf("%-8s %-7s %10.4f ulp at %s%s of %lld %s%s\n", function.name, target.isa.c_str(), accuracy->worst,
                Number(accuracy->worst_at).c_str(), second.c_str(), static_cast<long long>(accuracy->measured),
                doubles > 0 ? "doubles" : "floats", ok ? "" : "  ABOVE ITS BOUND");
    std::fflush(stdout);
    within = within && ok;
  }
  if (!wanted.empty()) return Fail("unknown function " + *wanted.begin());
  return within ? 0 : 1;
}
