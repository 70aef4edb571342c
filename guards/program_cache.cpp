#include "guards/program_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "guards/compile_jobs.h"
#include "guards/compile_policy.h"
#include "guards/compile_wait.h"
#include "guards/guard.h"
#include "guards/miss_report.h"
#include "guards/shape_marks.h"
#include "runtime/counters.h"
#include "runtime/history.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::guards {
namespace {

using runtime::Counters;
using runtime::LogCategory;

struct ChosenShapes {
  std::optional<DynamicShapes> shapes;
  bool known = false;  // From an earlier process.
};

// The symbols that `entry` gets: those of an earlier process, else those that its numbers and earlier ones of its code call for, else
// those that the program asked for. Says so, or why there are none, in the log.
ChosenShapes ChooseShapes(const CachedTrace& entry, const Skeleton& skeleton) {
  const codegen::TraceLog& log = entry.log;
  const bool marked = std::any_of(log.marks.begin(), log.marks.end(), [](const codegen::SizeMark& mark) { return mark.dynamic; });
  ChosenShapes chosen{skeleton.profile->FindDynamic(log), false};
  chosen.known = chosen.shapes.has_value();
  std::string why_not;
  const bool compared = !chosen.known && !skeleton.examples.empty();
  if (compared) chosen.shapes = DynamicShapes::Infer(log, skeleton.examples, &why_not);
  const bool guessed = !chosen.shapes.has_value() && marked;
  if (guessed) chosen.shapes = GuessFromMarks(log, &why_not);
  if (!chosen.shapes.has_value()) {
    if (!why_not.empty()) LogWithoutSymbols(entry.serial, why_not);
  } else if (runtime::LogEnabled(LogCategory::kDynamic)) {
    const char* const origin = chosen.known ? "as in an earlier process" : "from the start";
    const auto& examples = compared && !guessed ? skeleton.examples : std::vector<std::vector<int64_t>>();
    runtime::Log(LogCategory::kDynamic,
                 absl::StrCat("trace #", entry.serial, " is compiled with symbols:", chosen.shapes->Text(log, examples, origin)));
  }
  return chosen;
}

size_t BytesOf(const codegen::TraceLog& log) {
  return (log.code.size() + log.shapes.size()) * sizeof(codegen::Word) + log.ops.size() * sizeof(codegen::TraceLog::Op);
}

}  // namespace

ProgramCache& ProgramCache::Get() {
  static auto* cache = new ProgramCache;
  return *cache;
}

CachedTracePtr ProgramCache::Find(const codegen::TraceLog& log) {
  std::lock_guard<std::mutex> lock(mutex_);
  return FindKnown(log);
}

CachedTracePtr ProgramCache::Current(const CachedTracePtr& entry) {
  std::lock_guard<std::mutex> lock(mutex_);
  return entry->skeleton != nullptr ? entry : FindKnown(entry->log);
}

CachedTracePtr ProgramCache::FindKnown(const codegen::TraceLog& log) {
  const uint64_t hash = Fingerprint(log);
  if (const auto it = traces_.find(hash); it != traces_.end()) {
    for (const auto& entry : it->second) {
      if (!Matches(entry->log, log)) continue;
      if (entry->body->failed()) {
        Evict(entry);
        break;
      }
      entry->last_use = ++clock_;
      entry->site->new_in_a_row = 0;
      return entry;
    }
  }
  Skeleton* skeleton = FindSkeleton(log);
  if (skeleton == nullptr || skeleton->dynamic.empty()) return nullptr;
  const CachedTracePtr entry = MakeServed(log, skeleton);
  if (entry == nullptr) return nullptr;
  InsertServed(entry);
  entry->site->new_in_a_row = 0;
  return entry;
}

CachedTracePtr ProgramCache::MakeServed(const codegen::TraceLog& log, Skeleton* skeleton) {
  const std::vector<int64_t> numbers = NumbersOf(log);
  for (auto dynamic = skeleton->dynamic.rbegin(); dynamic != skeleton->dynamic.rend(); ++dynamic) {
    if (dynamic->program->failed()) continue;
    auto values = dynamic->shapes.Match(numbers);
    if (!values.has_value()) continue;
    const CachedTracePtr entry = MakeTrace(log, dynamic->site, skeleton, dynamic->program);
    entry->symbols = *std::move(values);
    return entry;
  }
  return nullptr;
}

void ProgramCache::InsertServed(const CachedTracePtr& entry) {
  Insert(entry);
  // Sizes may be without number, and a trace of each without use.
  auto& served = entry->skeleton->served;
  served.push_back(entry);
  if (served.size() <= Skeleton::kMaxServed) return;
  const CachedTracePtr oldest = served.front().lock();
  served.pop_front();
  if (oldest != nullptr && oldest->skeleton != nullptr) Evict(oldest);
}

Skeleton* ProgramCache::FindSkeleton(const codegen::TraceLog& log) {
  const auto it = skeletons_.find(HashCode(log));
  if (it == skeletons_.end()) return nullptr;
  for (const auto& skeleton : it->second) {
    if (skeleton->code == log.code) return skeleton.get();
  }
  return nullptr;
}

Skeleton& ProgramCache::GetSkeleton(const codegen::TraceLog& log) {
  if (Skeleton* found = FindSkeleton(log)) return *found;
  auto& bucket = skeletons_[HashCode(log)];
  bucket.push_back(std::make_unique<Skeleton>());
  bucket.back()->code = log.code;
  bucket.back()->profile = std::make_shared<ShapeProfile>(runtime::DiskCache::Active(), log);
  return *bucket.back();
}

CachedTracePtr ProgramCache::MakeTrace(const codegen::TraceLog& log, SitePtr site, Skeleton* skeleton,
                                       std::shared_ptr<CompiledProgram> body) {
  auto entry = std::make_shared<CachedTrace>();
  entry->log = log;
  entry->log.offsets.assign(log.offsets.size(), 0);
  entry->hash = Fingerprint(log);
  entry->serial = body->serial;
  entry->site = std::move(site);
  entry->body = std::move(body);
  entry->skeleton = skeleton;
  ++skeleton->traces;
  return entry;
}

void ProgramCache::Insert(const CachedTracePtr& entry) {
  entry->last_use = ++clock_;
  traces_[entry->hash].push_back(entry);
  ++size_;
  log_bytes_ += BytesOf(entry->log);
  EvictOverCapacity();
}

void ProgramCache::ReportCompile(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location) {
  if (site.programs == 0 || !runtime::LogEnabled(LogCategory::kRecompiles)) return;
  const bool verbose = runtime::LogEnabled(LogCategory::kRecompilesVerbose);
  runtime::Log(LogCategory::kRecompiles,
               absl::StrCat("Recompiling ", DescribeMiss(site, log, serial, runtime::Active().recompile_limit, location, verbose)));
}

bool ProgramCache::LimitAllows(Site* site, const codegen::TraceLog& log, int64_t serial, std::string_view location, CompilePolicy* policy) {
  const auto& active = runtime::Active();
  site->refuses = IsFull(*site);
  if (!site->refuses) return true;
  const bool site_full = site->programs >= LimitOf(*site);
  Counters::Get().recompile_limit_hits.Add();
  const std::string limit = site_full ? absl::StrCat("recompile_limit (", LimitOf(*site), ")")
                                      : absl::StrCat("accumulated_recompile_limit (", active.accumulated_recompile_limit, ")");
  policy->HitLimit(limit, *site, log, serial, location);
  auto& history = runtime::History::Get();
  history.HitLimit(serial, site->id, limit, history.WantsReason(site->id) ? NearestFailure(*site, log) : runtime::RecompileReason());
  if (std::exchange(site_full ? site->limit_logged : accumulated_limit_logged_, true)) return false;
  ReportCompile(*site, log, serial, location);
  runtime::LogAlways(absl::StrCat("hit ", limit, " at site ", site->id, ": running eagerly from here; ", site->programs,
                                  " programs stay in use. To log all recompilation reasons, use LAZULI_LOGS=\"recompiles\""));
  return false;
}

CachedTracePtr ProgramCache::Compile(const codegen::TraceLog& log, std::string_view cause, std::string_view location,
                                     CompilePolicy* policy) {
  std::lock_guard<std::mutex> lock(mutex_);
  Work& work = works_.Of(log);
  const SitePtr site = FindSite(log, cause);
  if (CachedTracePtr widest = FindWidest(&work, log, /*is_new=*/true, site, location, policy)) return widest;
  Skeleton& skeleton = GetSkeleton(log);
  const CachedTracePtr entry = MakeTrace(log, site, &skeleton, std::make_shared<CompiledProgram>(next_serial_++));
  skeleton.ShareStaticMarks(&entry->log.marks);
  if (skeleton.examples.empty() && work.ways() == 0) ++entry->site->new_in_a_row;
  // What came once, with other results that could be seen, is no news. What came with many may never settle.
  const bool is_known = work.ways() == 1 || skeleton.profile->Knows(log);
  const bool wait_for_more = skeleton.examples.empty() && policy->DeferNewCode(is_known);
  const bool refused = !wait_for_more && !Request(entry, location, policy);
  if (!refused || !policy->kept_eager()) work.Note(log);
  if (refused) {
    Forget(entry.get());
    return nullptr;
  }
  skeleton.AddExample(NumbersOf(log));
  Insert(entry);
  return entry;
}

CachedTracePtr ProgramCache::FindWidest(Work* work, const codegen::TraceLog& log, bool is_new, const SitePtr& site,
                                        std::string_view location, CompilePolicy* policy) {
  constexpr int64_t kFewest = 8;
  const auto& active = runtime::Active();
  if (work->ways() < active.recompile_limit) return nullptr;
  work->Note(log);
  const codegen::TraceLog all = work->Widened(log);
  const CachedTracePtr known = FindKnown(all);
  if (known != nullptr && !known->body->seen_once()) {
    known->widest = true;
    return known;
  }
  if (is_new && policy->DeferNewCode(/*known=*/true)) return nullptr;
  const bool wanted = work->WantsWider(std::max(active.recompile_limit, kFewest));
  if (!wanted || recompiles_ >= active.accumulated_recompile_limit || !policy->Allows(*site, all, next_serial_, location)) return nullptr;
  if (known != nullptr) Evict(known);
  work->NoteWidened();
  Skeleton& skeleton = GetSkeleton(all);
  const CachedTracePtr entry = MakeTrace(all, site, &skeleton, std::make_shared<CompiledProgram>(next_serial_++));
  entry->widest = true;
  Schedule(entry, location);
  skeleton.AddExample(NumbersOf(all));
  Insert(entry);
  return entry;
}

CachedTracePtr ProgramCache::CompileSeen(const CachedTracePtr& entry, std::string_view location, CompilePolicy* policy) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (entry->skeleton == nullptr || !entry->body->seen_once()) return entry;
  // Other threads may be running it: what compiles is a trace of its own.
  if (const CachedTracePtr served = MakeServed(entry->log, entry->skeleton)) {
    Evict(entry);
    InsertServed(served);
    return served;
  }
  const CachedTracePtr fresh = MakeTrace(entry->log, entry->site, entry->skeleton, std::make_shared<CompiledProgram>(entry->serial));
  if (!Request(fresh, location, policy)) {
    Forget(fresh.get());
    const CachedTracePtr widest = FindWidest(&works_.Of(entry->log), entry->log, /*is_new=*/false, entry->site, location, policy);
    return widest != nullptr ? widest : entry;
  }
  Evict(entry);
  Insert(fresh);
  return fresh;
}

CachedTracePtr ProgramCache::Specialize(const CachedTrace& general, const codegen::TraceLog& log) {
  std::lock_guard<std::mutex> lock(mutex_);
  Skeleton* const skeleton = FindSkeleton(log);
  const bool marked = std::any_of(log.marks.begin(), log.marks.end(), [](const codegen::SizeMark& mark) { return mark.dynamic; });
  const DynamicShapes* const shapes = skeleton == nullptr ? nullptr : skeleton->ShapesOf(general.body.get());
  if (marked || shapes == nullptr || !shapes->FollowFromSymbols()) return nullptr;
  const CachedTracePtr own = MakeTrace(log, general.site, skeleton, std::make_shared<CompiledProgram>(next_serial_++));
  const Site& site = *own->site;
  if (runtime::LogEnabled(LogCategory::kDynamic)) {
    runtime::Log(LogCategory::kDynamic, absl::StrCat("trace #", own->serial, " is compiled for its sizes alone, with which trace #",
                                                     general.serial, ", compiled with symbols, ran again and again"));
  }
  runtime::History::Get().StartCompile(
      {own->serial, site.id, site.cause, static_cast<int64_t>(log.ops.size()), FirstOps(log), site.programs + 1});
  ScheduleStatic(own);
  // It is found through the program with symbols alone, and lives as long.
  own->skeleton = nullptr;
  own->specialized = true;
  --skeleton->traces;
  Counters::Get().specialized_programs.Add();
  return own;
}

bool ProgramCache::Request(const CachedTracePtr& entry, std::string_view location, CompilePolicy* policy) {
  Site& site = *entry->site;
  if (!policy->Allows(site, entry->log, entry->serial, location)) return false;
  if (!LimitAllows(&site, entry->log, entry->serial, location, policy)) return false;
  Schedule(entry, location);
  return true;
}

void ProgramCache::Schedule(const CachedTracePtr& entry, std::string_view location) {
  Site& site = *entry->site;
  ReportCompile(site, entry->log, entry->serial, location);
  if (site.programs > 0) {
    Counters::Get().recompiles.Add();
    ++recompiles_;
    runtime::History::Get().Recompile(entry->serial, site.id, site.programs + 1, NearestFailure(site, entry->log));
  }
  runtime::History::Get().StartCompile(
      {entry->serial, site.id, site.cause, static_cast<int64_t>(entry->log.ops.size()), FirstOps(entry->log), site.programs + 1});
  if (!MakeDynamic(entry.get())) ScheduleStatic(entry);
  if (runtime::LogEnabled(LogCategory::kGuards)) {
    std::string text = absl::StrCat("guards of trace #", entry->serial, " (site ", site.id, "):");
    for (const Guard& guard : BuildGuards(entry->log)) absl::StrAppend(&text, "\n    ", guard.Text(entry->log));
    runtime::Log(LogCategory::kGuards, text);
  }
  ++site.programs;
  site.variants.push_back(entry);
}

bool ProgramCache::MakeDynamic(CachedTrace* entry) {
  Skeleton& skeleton = *entry->skeleton;
  if (runtime::Active().dynamic == runtime::When::kNever) return false;
  // What could not be compiled with some symbols will not be with more.
  for (const auto& dynamic : skeleton.dynamic) {
    if (dynamic.program->failed()) return false;
  }
  auto [shapes, known] = ChooseShapes(*entry, skeleton);
  if (!shapes.has_value()) return false;
  const std::shared_ptr<CompiledProgram> body = entry->body;
  entry->symbols = *shapes->Match(NumbersOf(entry->log));
  ScheduleDynamic({body, entry->log, *shapes, skeleton.profile, entry->site->id, known}, [infer = infer_shapes_](const DynamicJob& job) {
    if (job.body->ready()) job.body->SetPlan(std::make_shared<const ShapePlan>(job.log, job.shapes, infer));
  });
  if (body->failed()) {
    entry->symbols.clear();
    return false;
  }
  skeleton.dynamic.push_back({*std::move(shapes), body, entry->site});
  return true;
}

void ProgramCache::EvictOverCapacity() {
  while (size_ > static_cast<size_t>(runtime::Active().cache_size) || (log_bytes_ > most_log_bytes_ && size_ > 1)) Evict(Oldest());
}

// Several are looked for at a time: what is used afterwards is newer than all of them.
CachedTracePtr ProgramCache::Oldest() {
  constexpr size_t kPart = 16;
  const auto take = [this] {
    auto oldest = std::move(oldest_.back());
    oldest_.pop_back();
    return oldest;
  };
  while (!oldest_.empty()) {
    const auto [last_use, weak] = take();
    const CachedTracePtr entry = weak.lock();
    if (entry != nullptr && entry->skeleton != nullptr && entry->last_use == last_use) return entry;
  }
  for (const auto& [hash, entries] : traces_) {
    for (const auto& entry : entries) oldest_.emplace_back(entry->last_use, entry);
  }
  const auto newer = [](const auto& a, const auto& b) { return a.first > b.first; };
  const auto first = oldest_.end() - static_cast<std::ptrdiff_t>(oldest_.size() / kPart + 1);
  std::nth_element(oldest_.begin(), first, oldest_.end(), newer);
  oldest_.erase(oldest_.begin(), first);
  std::sort(oldest_.begin(), oldest_.end(), newer);
  return take().second.lock();
}

void ProgramCache::Evict(CachedTracePtr entry) {
  auto it = traces_.find(entry->hash);
  auto& entries = it->second;
  entries.erase(std::find(entries.begin(), entries.end(), entry));
  if (entries.empty()) traces_.erase(it);
  --size_;
  log_bytes_ -= BytesOf(entry->log);
  if (entry->symbols.empty()) entry->body->wanted = false;
  Forget(entry.get());
}

void ProgramCache::Forget(CachedTrace* entry) {
  if (entry->symbols.empty() && entry->body->state.load() != State::kSeen) --entry->site->programs;
  Skeleton* const skeleton = std::exchange(entry->skeleton, nullptr);
  if (--skeleton->traces > 0) return;
  // Programs with symbols go with the last trace that they served.
  for (const auto& dynamic : skeleton->dynamic) --dynamic.site->programs;
  auto& bucket = skeletons_[HashCode(entry->log)];
  bucket.erase(std::find_if(bucket.begin(), bucket.end(), [&](const auto& owner) { return owner.get() == skeleton; }));
}

void ProgramCache::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  traces_.clear();
  alias_patterns_.clear();
  forks_.clear();
  after_cause_.clear();
  sites_.clear();
  skeletons_.clear();
  size_ = 0;
  log_bytes_ = 0;
  next_serial_ = 0;
  recompiles_ = 0;
  accumulated_limit_logged_ = false;
  works_.Clear();
  WaitBudget::Get().Reset();
  oldest_.clear();
}

size_t ProgramCache::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return size_;
}

}  // namespace lazuli::guards
