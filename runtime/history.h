// What this process compiled, why, and what it could not: the facts behind lazuli::explain(), the summary at exit, and LAZULI_TRACE.
//
// Whoever decides something tells the one History, which keeps a bounded account of it and writes the event.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazuli::runtime {

// Why an existing program did not fit a trace: the guard that the nearest one failed.
struct RecompileReason {
  std::string text;      // "input 0 of op 4 aten::mm size mismatch at index 0. expected 64, actual 48".
  int64_t op = -1;       // Its place in the trace; -1: no program was there to compare with.
  std::string op_name;   // "aten::mm"; empty past the end of the trace.
  std::string argument;  // What differed: "size of input 0 of op 4 aten::mm at index 0".
  std::string expected;
  std::string actual;
};

// A trace that is about to get a program.
struct CompileStart {
  int64_t serial = 0;
  int64_t site = 0;
  std::string_view cause;  // Of the cut before the site's traces.
  int64_t ops = 0;
  std::string_view first_ops;  // "aten::mul.Tensor, aten::add.Tensor, ...".
  int64_t variant = 1;         // Of its site, from 1.
};

struct CompileEnd {
  int64_t serial = 0;
  int64_t site = 0;
  int64_t ns = 0;
  int64_t kernels_compiled = 0, kernel_cache_hits = 0, groups = 0, arena_bytes = 0;
  std::vector<std::pair<std::string, int64_t>> passes;  // Name and nanoseconds, in order.
  std::string failure;                                  // Empty on success.
};

// Thread-safe. Every list is bounded; what no longer fits is still counted.
class History {
 public:
  // Never destroyed.
  static History& Get();

  void StartCompile(const CompileStart& start);
  void EndCompile(const CompileEnd& end);
  // `serial` is compiled although its site has programs.
  void Recompile(int64_t serial, int64_t site, int64_t variant, const RecompileReason& reason);
  // `serial` runs eagerly: `limit` ("recompile_limit (8)") was reached.
  void HitLimit(int64_t serial, int64_t site, std::string_view limit, const RecompileReason& reason);
  // Whether another reason at `site` would still be kept, so worth finding out.
  bool WantsReason(int64_t site);
  void StepAside(int64_t serial, int64_t ops, int64_t program_ns, int64_t eager_ns);
  void FellBack(std::string_view op, std::string_view why);
  // A program's results differed from its operators'.
  void Mismatch(int64_t serial, std::string_view op, std::string_view text);
  void Clear();

  // Whether some site reached its limit.
  bool hit_limit();

 private:
  friend std::string Explain();

  struct Program {
    int64_t serial = 0, ops = 0, ns = 0, kernels_compiled = 0, kernel_cache_hits = 0;
    std::string why;  // Empty: the first of its site.
    std::string failure;
  };
  // One thing that kept differing at a site.
  struct Difference {
    int64_t count = 0;
    std::set<std::string> values;
  };
  struct Site {
    std::string cause, first_ops;
    int64_t programs = 0, limit_hits = 0, reasons = 0;
    std::string limit;
    int64_t first_trace = 0, last_trace = 0;  // Traces in the process when its first and its last program were compiled.
    std::vector<Program> kept;
    std::map<std::string, Difference> differences;  // By RecompileReason::argument.
  };

  Site* FindSite(int64_t id);
  static void Note(const RecompileReason& reason, Site* site);
  std::string SitesText() const;
  std::string CompileText() const;
  std::string HintsText(int64_t traces) const;

  std::mutex mutex_;
  std::map<int64_t, Site> sites_;
  int64_t sites_left_out_ = 0;
  std::vector<int64_t> compile_ns_;  // The last ones, in no order.
  int64_t compiles_ = 0, compile_total_ns_ = 0;
  std::map<std::string, std::string, std::less<>> fallback_reasons_;  // By operator.
  std::vector<std::string> stepped_aside_;
  std::vector<std::string> mismatches_;
};

// The text of lazuli::explain().
std::string Explain();

// At the end of the process, once: ends the events, logs the summary when LAZULI_LOGS has it, and says in a line when a recompile limit was
// reached. Call whenever options come into force.
void ReportAtExit();

}  // namespace lazuli::runtime
