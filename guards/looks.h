// When to look at one of many again: less and less often.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lazuli::guards {

// Not thread-safe.
class Looks {
 public:
  // At one in `fewest` at first, later at one in up to `rarely`.
  Looks(int64_t fewest, int64_t rarely) : fewest_(fewest), rarely_(rarely), next_(fewest) {}

  // One more came: whether it is one to look at, which it is in any case where `overdue`.
  bool Due(bool overdue = false) {
    if (++count_ < next_ && !overdue) return false;
    next_ = count_ + std::clamp(count_ / 4, fewest_, rarely_);
    return true;
  }

  // How many came.
  int64_t count() const { return count_; }

 private:
  int64_t fewest_, rarely_;
  int64_t count_ = 0;
  int64_t next_;
};

}  // namespace lazuli::guards
