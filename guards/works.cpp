#include "guards/works.h"

#include <algorithm>

#include "absl/types/span.h"
#include "guards/guard.h"

namespace lazuli::guards {

namespace {

template <class Log>
auto VisibleWords(Log& log) {
  return absl::MakeSpan(log.code).last(LiveOutWords(log));
}

}  // namespace

void Work::Note(const codegen::TraceLog& log) {
  constexpr size_t kMostWays = 128;
  const auto now = VisibleWords(log);
  const uint64_t way = codegen::HashWords(now.data(), now.size(), 0);
  if (std::find(ways_.begin(), ways_.end(), way) == ways_.end() && ways_.size() < kMostWays) ways_.push_back(way);
  all_.resize(std::max(all_.size(), now.size()));
  for (size_t i = 0; i < now.size(); ++i) all_[i] |= now[i];
}

codegen::TraceLog Work::Widened(codegen::TraceLog log) const {
  const auto now = VisibleWords(log);
  for (size_t i = 0; i < std::min(now.size(), all_.size()); ++i) now[i] |= all_[i];
  return log;
}

Work& Works::Of(const codegen::TraceLog& log) {
  constexpr size_t kMost = 1 << 16;
  if (works_.size() >= kMost) works_.clear();
  const uint64_t seed = codegen::HashWords(log.shapes.data(), log.shapes.size(), 0x576F726Bull);
  return works_[codegen::HashWords(log.code.data(), log.code.size() - LiveOutWords(log), seed)];
}

}  // namespace lazuli::guards
