#include "codegen/ir/replaced_kernels.h"
#include "tracer/replaced_kernels.h"
#include "tracer/typed_foreach.h"

namespace lazuli::tracer {
namespace {

// Where the program has put another kernel in the place of a piece's, the composite kernel finds that one.
template <class Op, class Called>
void Register(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
  using Kernel = ForeachKernel<Op, Called>;
  const codegen::OpInfo& info = InfoOf<Op>();
  const codegen::OpInfo& called = InfoOf<Called>();
  const codegen::OpInfo& recorded = InfoOf<typename RecordedAs<Called>::Op>();
  for (const codegen::OpInfo* piece : {&info, &called, &recorded}) {
    if (codegen::IsKernelReplaced(piece->handle)) return;
  }
  library->impl(info.name.c_str(), TORCH_FN((&Kernel::Call)));
  if (!codegen::IsAutogradReplaced(info.handle)) generic->impl(info.name.c_str(), TORCH_FN((&Kernel::CallAboveAutograd)));
  names->insert(info.name);
  NoteTwin(called.name, info.name);
  if (&recorded != &called) NoteTwin(recorded.name, info.name);
}

}  // namespace

void RegisterForeachKernels(torch::Library* library, torch::Library* generic, absl::flat_hash_set<std::string>* names) {
#define LAZULI_FOREACH_OP(op, piece) Register<at::_ops::op, at::_ops::piece>(library, generic, names);
#include "tracer/foreach_ops.def"
#undef LAZULI_FOREACH_OP
}

}  // namespace lazuli::tracer
