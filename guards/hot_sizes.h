// Sizes that a program with symbols runs with again and again. Code for sizes that are known is better (rows that fit registers, loops that
// are unrolled, vectors that end with the row), so that such sizes are worth a program of their own beside the one that serves all.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/types/span.h"
#include "guards/successors.h"

namespace lazuli::guards {

// Of one program with symbols. Thread-safe.
class HotSizes {
 public:
  // Runs in a row before sizes that have a program of their own go back to it: where sizes take turns, the program for all of them is the
  // one that is predicted.
  static constexpr int64_t kReturns = 3;
  // Sets of sizes that get one.
  static constexpr size_t kMost = 8;

  enum class Advice : uint8_t {
    kSymbols,     // Run the program for all sizes.
    kSpecialize,  // As well, and Add() one for these.
    kOwn,         // Run `own`.
  };
  struct Next {
    Advice advice = Advice::kSymbols;
    CachedTracePtr own;
  };

  // What to do about a run with these values of the symbols. `hot_after`: so many in a row are worth a program; 0: none ever are.
  Next Note(absl::Span<const int64_t> symbols, int64_t hot_after);

  // `own`, whose program may still be compiled, is the trace of these sizes alone; null: they get none.
  void Add(absl::Span<const int64_t> symbols, CachedTracePtr own);

 private:
  struct Own {
    std::vector<int64_t> symbols;
    CachedTracePtr trace;
  };

  std::mutex mutex_;
  std::vector<int64_t> last_;
  int64_t in_a_row_ = 0;
  std::vector<Own> own_;
};

}  // namespace lazuli::guards
