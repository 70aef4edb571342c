// Functions of LibTorch that look at a program's state past the dispatcher, and what they do while work is pending.
//
// c10::isSharedStorageAlias asks whether two storages share memory by looking at their pointers, past their tensors, which throws while one
// is pending: an iterator over a pending tensor (a program's own kernel, an operator on a thread that records nothing) would fail before
// it asks for data, and settles it, the usual way. c10::cuda::device_synchronize waits for work that the program takes to be launched.
#pragma once

namespace lazuli::tracer {

// Makes calls of them, from any library that is loaded, come to ours. Once a process.
void RedirectCalls();

}  // namespace lazuli::tracer
