// Whether a program's traces are ever new ones (random expressions, searches over programs): recording those costs more than it can give,
// so that their operators are best run eagerly, all but a few traces in which something that comes back would be found.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lazuli::guards {

// Of the traces of one recorder. Not thread-safe.
class Novelty {
 public:
  // So many new places in a row, and the program is one of those.
  static constexpr int64_t kMany = 256;

  // A trace was cut. `new_place`: none that was at its site, and began like it, is known.
  void Note(bool new_place) {
    if (new_place) {
      ++new_in_a_row_;
    } else {
      *this = Novelty();
    }
  }

  bool ever_new() const { return new_in_a_row_ >= kMany; }

  // Whether the trace that begins now, of which nothing is known, is best not recorded. Call once per trace.
  bool StepsAside() {
    constexpr int64_t kFewest = 4, kRarely = 64;
    if (!ever_new()) return false;
    if (++asides_ < next_look_) return true;
    next_look_ = asides_ + std::clamp(asides_ / 4, kFewest, kRarely);
    return false;
  }

 private:
  int64_t new_in_a_row_ = 0;
  int64_t asides_ = 0;     // Traces that came since then.
  int64_t next_look_ = 4;  // Of so many, one is recorded, to see whether they still are new.
};

}  // namespace lazuli::guards
