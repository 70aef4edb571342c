#include "tracer/typed_kernel_shard.h"

namespace lazuli::tracer {

void RegisterShard3(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  RegisterShard<3>(library, generic, names);
}

}  // namespace lazuli::tracer
