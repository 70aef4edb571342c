// What the program cache knows by site.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "guards/guard.h"
#include "guards/program_cache.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::guards {

namespace {

// Of the cause of the cut before `log` and its first operators.
uint64_t KeyOf(const codegen::TraceLog& log, size_t num_ops, std::string_view cause) {
  uint64_t key = std::hash<std::string_view>()(cause);
  for (size_t i = 0; i < num_ops; ++i) {
    const auto op = static_cast<codegen::Word>(log.ops[i].op_id);
    key = codegen::HashWords(&op, 1, key);
  }
  return key;
}

}  // namespace

uint64_t ProgramCache::SiteKey(const codegen::TraceLog& log, std::string_view cause) {
  return KeyOf(log, std::min(kSiteOps, log.ops.size()), cause);
}

int64_t ProgramCache::LimitOf(const Site& site) {
  const int64_t earned = site.runs.load(std::memory_order_relaxed) / Site::kRunsForOneMore;
  return runtime::Active().recompile_limit * (IsOfPieces(site.cause) ? kBlockSites : 1) + earned;
}

bool ProgramCache::IsFull(const Site& site) const {
  return site.programs >= LimitOf(site) || (site.programs > 0 && recompiles_ >= runtime::Active().accumulated_recompile_limit);
}

Advice ProgramCache::AdviceFor(const codegen::TraceLog& log, std::string_view cause, ForkKeys* forks, size_t* num_ops) {
  constexpr double kFew = 0.125;
  constexpr size_t kMostForks = 1 << 14;
  forks->same_ops = KeyOf(log, log.ops.size(), cause);
  forks->same_trace = codegen::HashWords(log.code.data(), log.code.size(), forks->same_ops);
  forks->same_trace = codegen::HashWords(log.shapes.data(), log.shapes.size(), forks->same_trace);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sites_.find(SiteKey(log, cause));
  if (it == sites_.end()) return Advice::kRecord;
  const Site& site = *it->second;
  if (cause != kBlock && site.new_in_a_row > runtime::Active().recompile_limit) return Advice::kBlocks;
  if (!IsFull(site)) return Advice::kRecord;
  if (forks_.size() >= kMostForks) forks_.clear();
  for (const uint64_t key : {forks->same_ops, forks->same_trace}) {
    Fork& fork = forks_[key];
    if (fork.program_share >= kFew) continue;
    if (fork.asides.Due()) continue;
    *num_ops = fork.last_ops;
    if (fork.asides.count() == 1 && runtime::LogEnabled(runtime::LogCategory::kPerfHints)) {
      runtime::Log(runtime::LogCategory::kPerfHints,
                   absl::StrCat("site ", site.id, " has all the programs that it may have, and few of the traces that go on after ",
                                codegen::OpInfoById(log.ops.back().op_id).name, " (op ", log.ops.size() - 1,
                                ") are theirs: their operators run eagerly, but for one trace in ", Fork::kFewest, " to ", Fork::kRarely));
    }
    return Advice::kEagerly;
  }
  return Advice::kRecord;
}

bool ProgramCache::HasTooMany(const CachedTracePtr& entry, const codegen::TraceLog& log, std::string_view cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sites_.find(SiteKey(log, cause));
  if (found == sites_.end()) return false;
  const Site& site = *found->second;
  const int64_t limit = runtime::Active().recompile_limit;
  if (site.new_in_a_row > limit || (IsOfPieces(site.cause) && site.programs > limit)) return true;
  return IsFull(site) && (entry == nullptr || entry->body->seen_once());
}

bool ProgramCache::GoesOn(const codegen::TraceLog& log, std::string_view cause, int32_t op_id) {
  if (log.ops.size() < kSiteOps) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto site = sites_.find(SiteKey(log, cause));
  if (site == sites_.end()) return false;
  const auto& variants = site->second->variants;
  return std::any_of(variants.begin(), variants.end(), [&](const std::weak_ptr<CachedTrace>& variant) {
    const CachedTracePtr entry = variant.lock();
    if (entry == nullptr || entry->skeleton == nullptr) return false;
    const codegen::TraceLog& known = entry->log;
    return known.ops.size() > log.ops.size() && known.ops[log.ops.size()].op_id == op_id && ContinuesAs(log.code, known.code, 0);
  });
}

void ProgramCache::NotePieces(const codegen::TraceLog& log, std::string_view cause, std::string_view how) {
  std::lock_guard<std::mutex> lock(mutex_);
  forks_.clear();
  Site& site = *FindSite(log, cause);
  site.new_in_a_row = 0;
  if (std::exchange(site.pieces_logged, true)) return;
  runtime::LogAlways(absl::StrCat("traces of site ", site.id, " ", std::string(how), ", and the pieces are compiled"));
}

void ProgramCache::NoteTrace(const std::vector<ForkKeys>& forks, const codegen::TraceLog& log, std::string_view cause,
                             const CachedTracePtr& entry) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool has_program = (entry != nullptr && !entry->body->seen_once()) || !IsFull(*FindSite(log, cause));
  const auto note = [&](uint64_t key, double recent) {
    const auto fork = forks_.find(key);
    if (fork == forks_.end()) return;
    fork->second.program_share += ((has_program ? 1 : 0) - fork->second.program_share) / recent;
    if (!has_program) fork->second.last_ops = log.ops.size();
  };
  for (const ForkKeys& at : forks) {
    note(at.same_ops, 16);
    note(at.same_trace, 4);  // Of traces that begin as the very same few are others.
  }
}

const SitePtr& ProgramCache::FindSite(const codegen::TraceLog& log, std::string_view cause) {
  auto& site = sites_[SiteKey(log, cause)];
  if (site == nullptr) {
    site = std::make_shared<Site>();
    site->id = static_cast<int64_t>(sites_.size()) - 1;
    site->cause = std::string(cause);
  }
  return site;
}

bool ProgramCache::CameWithOtherAliases(const codegen::TraceLog& log, const codegen::TraceLog& separated) {
  constexpr size_t kMostPatterns = 1 << 16;
  std::lock_guard<std::mutex> lock(mutex_);
  if (alias_patterns_.size() >= kMostPatterns) alias_patterns_.clear();
  const uint64_t code = HashCode(log);
  return alias_patterns_.try_emplace(HashCode(separated), code).first->second != code;
}

CachedTracePtr ProgramCache::FindWider(const codegen::TraceLog& log, std::string_view cause, const CachedTracePtr& predicted) {
  constexpr int kMostRuns = 2;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto serves = [&](const CachedTracePtr& entry) {
    return entry != nullptr && (entry->skeleton != nullptr || entry->specialized) && entry->body->ready() &&
           MatchesButForDead(entry->log, log) && (entry->widest || entry->wider_runs.fetch_add(1, std::memory_order_relaxed) < kMostRuns);
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
