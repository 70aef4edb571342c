// Whether a program's traces are ever new ones (random expressions, searches over programs): recording those costs more than it can give,
// so that their operators are best run eagerly, all but a few traces in which something that comes back is found.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "guards/looks.h"

namespace lazuli::guards {

// Of the traces of one recorder. Not thread-safe.
class Novelty {
 public:
  using Clock = std::chrono::steady_clock;

  // So many new traces in a row, and the program is one of those.
  static constexpr int64_t kMany = 256;
  // Traces that are recorded at a time: the first one may begin anywhere in a loop.
  static constexpr int kTracesOfLook = 2;
  // Nobody looks at more traces than one look in so many, and no longer than this ago.
  static constexpr int64_t kFewest = 4, kRarely = 128;
  static constexpr Clock::duration kLongest = std::chrono::milliseconds(200);

  // A trace was cut that is new, or came before. True when the program has just become one of those.
  bool Note(bool is_new) {
    if (!is_new) {
      *this = Novelty();
      return false;
    }
    left_of_look_ = std::max(left_of_look_ - 1, 0);
    if (++new_in_a_row_ != kMany) return false;
    last_look_ = Clock::now();
    return true;
  }

  bool ever_new() const { return new_in_a_row_ >= kMany; }
  int64_t new_in_a_row() const { return new_in_a_row_; }

  // Whether the trace that begins `now`, of which nothing is known, is best not recorded.
  bool StepsAside(Clock::time_point now) {
    if (!ever_new() || left_of_look_ > 0) return false;
    if (!looks_.Due(/*overdue=*/now - last_look_ >= kLongest)) return true;
    last_look_ = now;
    left_of_look_ = kTracesOfLook;
    return false;
  }

 private:
  int64_t new_in_a_row_ = 0;
  Looks looks_{kFewest, kRarely};  // Traces that came since then.
  int left_of_look_ = 0;
  Clock::time_point last_look_;  // At first, when the program became one of those.
};

}  // namespace lazuli::guards
