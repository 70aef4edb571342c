#include "tracer/typed_kernel.h"

namespace lazuli::tracer {

#define LAZULI_DECLARE_SHARD(n) void RegisterShard##n(torch::Library* library, absl::flat_hash_set<std::string>* names);
LAZULI_DECLARE_SHARD(0)
LAZULI_DECLARE_SHARD(1)
LAZULI_DECLARE_SHARD(2)
LAZULI_DECLARE_SHARD(3)
LAZULI_DECLARE_SHARD(4)
LAZULI_DECLARE_SHARD(5)
#undef LAZULI_DECLARE_SHARD

absl::flat_hash_set<std::string> RegisterTypedKernels(torch::Library* library) {
  absl::flat_hash_set<std::string> names;
  RegisterShard0(library, &names);
  RegisterShard1(library, &names);
  RegisterShard2(library, &names);
  RegisterShard3(library, &names);
  RegisterShard4(library, &names);
  RegisterShard5(library, &names);
  return names;
}

}  // namespace lazuli::tracer
