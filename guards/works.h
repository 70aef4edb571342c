// What traces do, whatever can be seen of their results after them. Who lets go of tensors by chance (collectors of garbage, threads)
// leaves other results visible each time: one program that makes all that ever were serves all such traces.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/ir/trace_log.h"

namespace lazuli::guards {

class Work {
 public:
  int64_t widened = 0;  // Programs for all that could be seen.

  // In how many ways its results were visible, up to some hundred.
  int64_t ways() const { return static_cast<int64_t>(ways_.size()); }
  // It came as `log`.
  void Note(const codegen::TraceLog& log);
  // `log`, which is one of its traces, with all that could be seen after any.
  codegen::TraceLog Widened(codegen::TraceLog log) const;

 private:
  // The last words of a log's code, which say what is visible.
  std::vector<codegen::Word> all_;  // Of all logs.
  std::vector<uint64_t> ways_;      // Fingerprints of each log's.
};

// By the code and sizes of complete logs but for what is visible. What collides is one work, for which there are too many programs then, or
// none that serves all: nothing else depends on it.
class Works {
 public:
  // Forgets all, at times. The reference is good until the next call.
  Work& Of(const codegen::TraceLog& log);
  void Clear() { works_.clear(); }

 private:
  absl::flat_hash_map<uint64_t, Work> works_;
};

}  // namespace lazuli::guards
