// Kernels that the program, or a library that it uses, has put in place of LibTorch's (TORCH_LIBRARY_IMPL(aten, ...),
// torch.library.Library) by the time of the question. The dispatcher says where each was registered: LibTorch's are where its sources were.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace lazuli::codegen {

// Of an operator of LibTorch's: that of a device. What it computes is not known then.
bool IsKernelReplaced(const c10::OperatorHandle& op);
// One that comes before it: autograd's and its like.
bool IsAutogradReplaced(const c10::OperatorHandle& op);

}  // namespace lazuli::codegen
