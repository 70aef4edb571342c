#include "tracer/typed_kernel_shard.h"

namespace lazuli::tracer {

void RegisterShard1(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  RegisterShard<1>(library, generic, names);
}

}  // namespace lazuli::tracer
