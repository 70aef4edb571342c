#include "tracer/typed_kernel_shard.h"

namespace lazuli::tracer {

void RegisterShard4(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  RegisterShard<4>(library, generic, names);
}

}  // namespace lazuli::tracer
