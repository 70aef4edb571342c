// Who uses which memory, where a process has several recorders.
//
// What one thread's trace is yet to read another thread may come to write, and what one writes in its trace another may be running an
// operator on. So every trace registers its inputs, and every operator that runs eagerly its operands for as long as it runs. A write is
// recorded only of memory that nobody else uses, and only memory with nothing pending becomes an input. Programs that order their threads'
// accesses see what eager mode shows; those that do not (Hogwild) see some value that the memory held, as in eager mode.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <atomic>

#include "absl/functional/function_ref.h"

namespace lazuli::tracer {

class Recorder;

namespace internal {
extern std::atomic<bool> several_recorders;
}

// Whether there is more than one recorder, or was. False: nothing has to be registered but inputs that tensors may share which the recorder
// has not met.
inline bool SeveralRecorders() { return internal::several_recorders.load(std::memory_order_relaxed); }
void NoteSeveralRecorders();

// `storage` is an input of `recorder`'s trace. Thread-safe, as all of this.
void RegisterInput(c10::StorageImpl* storage, Recorder* recorder);
// The same, unless its contents are pending: then false.
bool RegisterSettledInput(c10::StorageImpl* storage, Recorder* recorder);
// It is no more.
void UnregisterInput(c10::StorageImpl* storage, Recorder* recorder);

// Calls `mark`, which makes `storage` pending in `recorder`, unless anyone else uses it: then false.
bool MarkUnlessShared(c10::StorageImpl* storage, const Recorder* recorder, absl::FunctionRef<void()> mark);

// For an operator that `recorder` may record: runs what other recorders have pending that writes `tensor`, and, as the operator `writes`
// it, what they are yet to read of it. Rethrows errors of what runs.
void SettleElsewhere(const at::Tensor& tensor, bool writes, const Recorder* recorder);

// A thread is about to use `storage`, perhaps to write it, past its recorder `own`, or without one, through a tensor that recorders have
// `met` or not: runs what other recorders are yet to read of it. Rethrows errors of what runs. Takes no recorder's lock for memory that no
// trace has registered, if the tensor is not met: its thread may hold what the recorder's waits for.
void SettleReaders(c10::StorageImpl* storage, const Recorder* own, bool met);

// In a child process: forgets what threads have registered that are not there.
void ForgetUsersInChild();

// The operands of an operator that `recorder`'s thread runs eagerly: settled, read by nobody's pending trace as far as it writes them, and
// kept so while this lives. Does nothing where there is one recorder. Like SettleElsewhere, rethrows errors of what runs.
class OperandsInUse {
 public:
  explicit OperandsInUse(const Recorder* recorder) : recorder_(recorder) {}
  ~OperandsInUse() {
    if (!operands_.empty()) LetGo();
  }
  OperandsInUse(const OperandsInUse&) = delete;
  OperandsInUse& operator=(const OperandsInUse&) = delete;

  void Add(const at::Tensor& tensor, bool writes);
  // After all were added.
  void Settle() const;

 private:
  struct Operand {
    c10::StorageImpl* storage;
    bool written;
  };
  void LetGo();

  const Recorder* recorder_;
  c10::SmallVector<Operand, 4> operands_;
};

}  // namespace lazuli::tracer
