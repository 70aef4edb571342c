#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "tracer/typed_direct.h"
#include "tracer/typed_kernel.h"

namespace lazuli::tracer {

#define LAZULI_DECLARE_SHARD(n) \
  void RegisterShard##n(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names);
LAZULI_DECLARE_SHARD(0)
LAZULI_DECLARE_SHARD(1)
LAZULI_DECLARE_SHARD(2)
LAZULI_DECLARE_SHARD(3)
LAZULI_DECLARE_SHARD(4)
LAZULI_DECLARE_SHARD(5)
#undef LAZULI_DECLARE_SHARD

absl::flat_hash_set<std::string> RegisterTypedKernels(torch::Library* library, torch::Library* generic) {
  absl::flat_hash_set<std::string> names;
  RegisterShard0(library, generic, &names);
  RegisterShard1(library, generic, &names);
  RegisterShard2(library, generic, &names);
  RegisterShard3(library, generic, &names);
  RegisterShard4(library, generic, &names);
  RegisterShard5(library, generic, &names);
  return names;
}

template <class Op>
void RegisterAllocation(torch::Library* library) {
  library->impl(InfoOf<Op>().name.c_str(), TORCH_FN((&AllocationKernel<Op, typename Op::schema>::Call)));
}

void RegisterAllocations(torch::Library* library) {
  RegisterAllocation<at::_ops::empty_memory_format>(library);
  RegisterAllocation<at::_ops::empty_strided>(library);
}

}  // namespace lazuli::tracer
