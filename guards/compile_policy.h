// Whether the trace of one cut may be compiled: what the stance and the options say, and what the cut has to say where it may not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "codegen/ir/trace_log.h"
#include "runtime/options.h"

namespace lazuli::guards {

struct Site;

// Made for one cut, asked by the cache, read by the cut.
class CompilePolicy {
 public:
  // Under `stance` and the options in force.
  explicit CompilePolicy(runtime::Stance stance) : stance_(stance) {}

  // Whether a trace whose code is new is only to be remembered, and compiled when it comes again. `known`: an earlier process compiled it.
  bool DeferNewCode(bool known);

  // Whether `log` may get a program at `site`. `location`: the program's "file:line"; empty: found out when it is needed.
  bool Allows(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location);

  // Whether a trace that has a program may get another one, which is faster.
  bool AllowsMore() const;

  // `log` gets no program because of `limit`: "recompile_limit (8)".
  void HitLimit(std::string_view limit, const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location);

  // The trace would have been compiled but for the stance or error_on_recompile.
  bool kept_eager() const { return kept_eager_; }
  // What the cut throws after the trace has run; empty: nothing.
  const std::string& error() const { return error_; }

 private:
  const runtime::Stance stance_;
  bool kept_eager_ = false;
  std::string error_;
};

}  // namespace lazuli::guards
