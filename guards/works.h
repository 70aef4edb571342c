// What traces do, whatever can be seen of their results after them. Who lets go of tensors by chance (collectors of garbage, threads)
// leaves other results visible each time: one program that makes all that ever were serves all such traces.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/ir/trace_log.h"

namespace lazuli::guards {

// One of these.
class Work {
 public:
  // In how many ways its results were visible, up to some hundred.
  int64_t ways() const { return static_cast<int64_t>(ways_.size()); }
  // It came as `log`.
  void Note(const codegen::TraceLog& log);
  // No program for all that could be seen serves it as it came now. Whether there should be a further one: after twice as many times each
  // time, of `most` in all.
  bool WantsWider(int64_t most) { return ++unserved_ >= int64_t{1} << widened_ && widened_ < most; }
  void NoteWidened() {
    ++widened_;
    unserved_ = 0;
  }
  // `log`, which is one of its traces, with all that could be seen after any.
  codegen::TraceLog Widened(codegen::TraceLog log) const;

 private:
  // The last words of a log's code, which say what is visible.
  std::vector<codegen::Word> all_;  // Of all logs.
  std::vector<uint64_t> ways_;      // Fingerprints of each log's.
  int64_t widened_ = 0, unserved_ = 0;
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
