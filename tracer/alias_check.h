// LibTorch asks whether two storages share memory by looking at their pointers, past their tensors, which throws while one is pending: so
// an iterator over a pending tensor (a program's own kernel, an operator on a thread that records nothing) would fail before it asks for
// data, and settles it, the usual way.
#pragma once

namespace lazuli::tracer {

// Makes c10::isSharedStorageAlias, called from any library that is loaded, answer for pending storages, too. Once a process.
void AnswerForPendingStorages();

}  // namespace lazuli::tracer
