#include "guards/hot_sizes.h"

#include <algorithm>
#include <utility>

#include "guards/program_cache.h"

namespace lazuli::guards {

HotSizes::Next HotSizes::Note(absl::Span<const int64_t> symbols, int64_t hot_after) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (symbols != absl::MakeConstSpan(last_)) {
    last_.assign(symbols.begin(), symbols.end());
    in_a_row_ = 0;
  }
  ++in_a_row_;
  const auto own = std::find_if(own_.begin(), own_.end(), [&](const Own& known) { return symbols == absl::MakeConstSpan(known.symbols); });
  if (own == own_.end()) {
    const bool is_hot = hot_after > 0 && in_a_row_ > hot_after && own_.size() < kMost;
    return {is_hot ? Advice::kSpecialize : Advice::kSymbols, nullptr};
  }
  const bool has_program = own->trace != nullptr && own->trace->body->ready() && own->trace->body->compiled;
  if (!has_program || in_a_row_ < kReturns) return {};
  return {Advice::kOwn, own->trace};
}

void HotSizes::Add(absl::Span<const int64_t> symbols, CachedTracePtr own) {
  std::lock_guard<std::mutex> lock(mutex_);
  own_.push_back({{symbols.begin(), symbols.end()}, std::move(own)});
}

}  // namespace lazuli::guards
