// Memory that the program or another library owns (from_blob, DLPack, NumPy, shared or mapped memory), or that a CUDA graph of the
// program's uses (captured_memory.h): it may change or go away between an operator's recording and its run, without a word to LibTorch. So
// a recorded read takes a snapshot, and a write happens at once; on GPUs, a read does, too.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"

namespace lazuli::tracer {

// Whether `storage` is such memory. False while it is pending.
bool IsForeign(c10::StorageImpl* storage);

// What `impl`'s window of `storage` holds now, in memory of our own, from its first element on; null when the copy would be mostly gaps.
c10::intrusive_ptr<c10::StorageImpl> Snapshot(const c10::TensorImpl& impl, c10::StorageImpl* storage);

// The large foreign storages that a recorder met. Weights in a read-only mapping are read by every trace: they need no snapshot once they
// have been seen to outlive a trace. Under the recorder's lock.
class ForeignMemory {
 public:
  // Whether a read of `storage`, recorded in trace `epoch`, may wait for the trace to run.
  bool CanWait(c10::StorageImpl* storage, uint64_t epoch);

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // Keeps the address from being another storage's.
    uint64_t epoch;                                     // Of the first read.
    bool read_only;
  };
  absl::flat_hash_map<c10::StorageImpl*, Known> known_;
};

}  // namespace lazuli::tracer
