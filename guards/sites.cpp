// What the program cache knows by site.
#include <algorithm>
#include <functional>

#include "guards/guard.h"
#include "guards/program_cache.h"
#include "runtime/options.h"

namespace lazuli::guards {

uint64_t ProgramCache::SiteKey(const codegen::TraceLog& log, std::string_view cause) {
  uint64_t key = std::hash<std::string_view>()(cause);
  for (size_t i = 0; i < std::min(kSiteOps, log.ops.size()); ++i) {
    const auto op = static_cast<codegen::Word>(log.ops[i].op_id);
    key = codegen::HashWords(&op, 1, key);
  }
  return key;
}

bool ProgramCache::NeverSettles(const codegen::TraceLog& log, std::string_view cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto site = sites_.find(SiteKey(log, cause));
  return site != sites_.end() && site->second->new_in_a_row > runtime::Active().recompile_limit;
}

Site& ProgramCache::FindSite(const codegen::TraceLog& log, std::string_view cause) {
  auto& site = sites_[SiteKey(log, cause)];
  if (site == nullptr) {
    site = std::make_unique<Site>();
    site->id = static_cast<int64_t>(sites_.size()) - 1;
    site->cause = std::string(cause);
  }
  return *site;
}

bool ProgramCache::CameWithOtherAliases(const codegen::TraceLog& log, const codegen::TraceLog& separated) {
  constexpr size_t kMostPatterns = 1 << 16;
  std::lock_guard<std::mutex> lock(mutex_);
  if (alias_patterns_.size() >= kMostPatterns) alias_patterns_.clear();
  const uint64_t fingerprint = Fingerprint(log);
  return alias_patterns_.try_emplace(Fingerprint(separated), fingerprint).first->second != fingerprint;
}

CachedTracePtr ProgramCache::FindWider(const codegen::TraceLog& log, std::string_view cause, const CachedTracePtr& predicted) {
  constexpr int kMostRuns = 2;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto serves = [&](const CachedTracePtr& entry) {
    return entry != nullptr && entry->skeleton != nullptr && entry->body->ready() && MatchesButForDead(entry->log, log) &&
           entry->wider_runs.fetch_add(1, std::memory_order_relaxed) < kMostRuns;
  };
  CachedTracePtr found = serves(predicted) ? predicted : nullptr;
  if (const auto site = sites_.find(SiteKey(log, cause)); found == nullptr && site != sites_.end()) {
    for (const auto& variant : site->second->variants) {
      if (const CachedTracePtr entry = variant.lock(); found == nullptr && entry != predicted && serves(entry)) found = entry;
    }
  }
  if (found != nullptr) found->last_use = ++clock_;
  return found;
}

}  // namespace lazuli::guards
