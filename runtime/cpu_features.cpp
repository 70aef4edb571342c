#include "runtime/cpu_features.h"

namespace lazuli::runtime {

Isa WidestIsa() {
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks the operating system whether it saves the wide registers.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kSse4;
}

}  // namespace lazuli::runtime
