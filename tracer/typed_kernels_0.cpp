#include "tracer/typed_kernel_shard.h"

namespace lazuli::tracer {

void RegisterShard0(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  RegisterShard<0>(library, generic, names);
}

}  // namespace lazuli::tracer
