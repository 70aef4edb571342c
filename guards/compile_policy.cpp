#include "guards/compile_policy.h"

#include "absl/strings/str_cat.h"
#include "codegen/caller_location.h"
#include "guards/miss_report.h"
#include "guards/program_cache.h"
#include "runtime/process_end.h"

namespace lazuli::guards {
namespace {

using runtime::Stance;

// "<why> trace #4 (...) ... <advice>".
std::string ErrorText(std::string_view why, const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location,
                      std::string_view advice) {
  const std::string place = location.empty() ? codegen::CallerLocation(codegen::CaptureStack()) : std::string(location);
  return absl::StrCat(std::string(why), " ", DescribeMiss(site, log, serial, runtime::Active().recompile_limit, place, /*verbose=*/false),
                      "\nIts operators ran one by one, so nothing is lost. To go on, ", std::string(advice));
}

}  // namespace

bool CompilePolicy::DeferNewCode(bool known) {
  if (stance_ == Stance::kEagerOnRecompile) return false;
  if (runtime::Active().async && !known) return true;
  kept_eager_ = stance_ == Stance::kEagerThenCompile;
  return kept_eager_;
}

bool CompilePolicy::Allows(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location) {
  if (runtime::ThreadEnds()) return false;
  const bool is_recompile_error = site.programs > 0 && runtime::Active().error_on_recompile;
  if (stance_ == Stance::kFailOnRecompile) {
    error_ = ErrorText("the stance fail_on_recompile forbids to compile", site, log, serial, location,
                       "let it be compiled before, under lazuli::StanceGuard(\"default\"), or use the stance \"eager_on_recompile\", which "
                       "runs what has no program op by op.");
  } else if (stance_ != Stance::kEagerOnRecompile && is_recompile_error) {
    error_ = ErrorText("error_on_recompile forbids to compile", site, log, serial, location,
                       "make what differs the same in every step (docs/RECOMPILES.md), or allow recompiles with "
                       "LAZULI_ERROR_ON_RECOMPILE=0.");
  } else if (stance_ != Stance::kEagerOnRecompile) {
    return true;
  }
  kept_eager_ = true;
  return false;
}

bool CompilePolicy::AllowsMore() const {
  const auto& active = runtime::Active();
  return stance_ == Stance::kDefault && !runtime::ThreadEnds() && !active.error_on_recompile && active.dynamic == runtime::When::kAuto;
}

void CompilePolicy::HitLimit(std::string_view limit, const Site& site, const codegen::TraceLog& log, int64_t serial,
                             std::string_view location) {
  if (!runtime::Active().fail_on_recompile_limit_hit) return;
  error_ = ErrorText(absl::StrCat("hit ", std::string(limit), " with"), site, log, serial, location,
                     "make what differs the same in every step (docs/RECOMPILES.md), raise the limit, or let such traces run eagerly "
                     "without an error, with LAZULI_FAIL_ON_RECOMPILE_LIMIT_HIT=0.");
}

}  // namespace lazuli::guards
