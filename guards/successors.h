// What the recorder expects next: the traces that followed a place of the program of late.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace lazuli::guards {

struct CachedTrace;
using CachedTracePtr = std::shared_ptr<CachedTrace>;

// Not thread-safe.
class Successors {
 public:
  void Note(const CachedTracePtr& next);

  // The trace that is best expected; null when there is none. One whose operators run eagerly comes before the last one: where another
  // follows instead, expecting it costs nothing.
  CachedTracePtr Likeliest() const;

  // The same of those that begin with operator `op_id`.
  CachedTracePtr StartingWith(int32_t op_id) const;

  // Adds all that are there to `traces`, the last one first.
  void AppendTo(std::vector<CachedTracePtr>* traces) const;

 private:
  template <class Fits>
  CachedTracePtr Choose(const Fits& fits) const;

  std::array<std::weak_ptr<CachedTrace>, 4> traces_;  // The last one first.
};

}  // namespace lazuli::guards
