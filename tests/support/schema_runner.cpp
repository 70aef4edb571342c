#include "tests/support/schema_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "lazuli/lazuli.h"
#include "tests/support/schema_args.h"
#include "tests/support/schema_call.h"
#include "tests/support/schema_ops.h"
#include "tests/support/silent_warnings.h"
#include "tests/support/test_env.h"

namespace lazuli::testing {
namespace {

constexpr int kRounds = 3;        // The first infers shapes, the second finds programs, the third follows predictions.
constexpr int kMaxGradients = 1;  // Calls of an operator that are run backward.
constexpr int kMaxReported = 2;   // Differences of one operator.

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string TextFromEnv(const char* name) {
  const char* text = std::getenv(name);
  const std::string value = text == nullptr ? "" : text;
  unsetenv(name);
  return value;
}

// LAZULI_SCHEMA_SEED rotates the sample; _FILTER is part of the names of the operators to run, _SKIP a list of names not to run; _TRACE=1
// writes every call before it is made.
struct Settings {
  uint64_t seed = static_cast<uint64_t>(TakeFromEnv("LAZULI_SCHEMA_SEED", 0));
  bool trace = TakeFromEnv("LAZULI_SCHEMA_TRACE", 0) != 0;
  std::string filter = TextFromEnv("LAZULI_SCHEMA_FILTER");
  std::string skip = TextFromEnv("LAZULI_SCHEMA_SKIP");

  bool Skips(const std::string& name) const { return ("," + skip + ",").find("," + name + ",") != std::string::npos; }
};

const Settings& GetSettings() {
  static const Settings settings;
  return settings;
}

Options OptionsOf(const std::string& backend) {
  constexpr int64_t kUnlimited = 1 << 30;
  return Options().backend(backend).recompile_limit(kUnlimited).accumulated_recompile_limit(kUnlimited).cache_size(64);
}

using CallFunction = CallOutcome (*)(const CallPlan&, const Tensors&, int);

class OpRunner {
 public:
  OpRunner(const std::string& backend, const c10::OperatorHandle& op)
      : backend_(backend), options_(OptionsOf(backend)), op_(op), totals_(&TotalsOf(backend)) {}

  void RunAll() {
    for (const CallPlan& plan : PlanCalls(op_, GetSettings().seed)) {
      if (GetSettings().trace) std::cerr << backend_ << " " << plan.text << std::endl;
      const bool ok = Run(plan, &Call, "");
      if (ok && gradients_ < kMaxGradients && IsDifferentiable(plan)) Run(plan, &CallBackward, "backward of ");
    }
    if (!accepted_) totals_->never_accepted[FullName(op_)] = first_error_;
    totals_->accepted_overloads += accepted_ ? 1 : 0;
  }

 private:
  static bool IsDifferentiable(const CallPlan& plan) {
    for (const c10::Argument& arg : plan.op.schema().arguments()) {
      if (arg.is_out()) return false;
    }
    return plan.point.dtype == torch::kFloat || plan.point.dtype == torch::kDouble || plan.point.dtype == torch::kComplexFloat;
  }

  CallOutcome RunEagerly(const CallPlan& plan, CallFunction call, int round, int byte) const {
    FillNewMemory(byte);
    CallOutcome outcome = call(plan, MakeStorages(plan, round), round);
    FillNewMemory(0);
    return outcome;
  }

  CallOutcome RunLazily(const CallPlan& plan, CallFunction call, int round) const {
    const Tensors storages = MakeStorages(plan, round);
    FillNewMemory(0xff);
    CallOutcome outcome;
    {
      const lazuli::DeviceMode mode(options_);
      outcome = call(plan, storages, round);
    }
    FillNewMemory(0);
    return outcome;
  }

  void Report(const CallPlan& plan, const std::string& what, int round, const std::string& difference) {
    ++totals_->mismatches;
    if (++reported_ <= kMaxReported) ADD_FAILURE() << what << plan.text << " round " << round << ": " << difference;
  }

  // False when eager throws or the two differ.
  bool Run(const CallPlan& plan, CallFunction call, const char* what) {
    const bool backward = call == &CallBackward;
    if (!backward) ++totals_->calls;
    const Stats before = lazuli::stats();
    std::vector<bool> unstable;
    bool ok = true;
    for (int round = 0; round < kRounds && ok; ++round) {
      const CallOutcome eager = RunEagerly(plan, call, round, 0);
      if (backward && round == 0) {
        if (eager.error.empty() && !eager.has_gradients) return true;
        ++gradients_;
        ++totals_->gradients;
      }
      // After an error, results may have been resized and not written.
      if (round == 0 || !eager.error.empty()) unstable = UnstableTensors(eager, RunEagerly(plan, call, round, 0xff));
      if (round == 0 && !backward) Count(plan, eager, unstable);
      const CallOutcome lazy = RunLazily(plan, call, round);
      std::string difference = DiffOutcomes(eager, lazy, backend_ == "aten", unstable);
      if (difference.empty() && lazy.late && !DependsOnValues(plan, call, eager.error)) {
        difference = "throws late what it always throws: '" + eager.error + "'";
      }
      if (!difference.empty()) {
        if (IsUnsure(plan, call, round, eager, unstable)) {
          totals_->unsure.insert(what + FullName(op_));
        } else {
          Report(plan, what, round, difference);
        }
        return false;
      }
      if (lazy.late) NoteLate(lazy.error);
      ok = eager.error.empty();
    }
    if (lazuli::stats().compile_failures != before.compile_failures) Report(plan, what, 0, "a trace could not be compiled");
    return ok;
  }

  // Whether eager execution differs from itself, run after run.
  bool IsUnsure(const CallPlan& plan, CallFunction call, int round, const CallOutcome& eager, const std::vector<bool>& unstable) const {
    constexpr int kControls = 6;
    for (int i = 0; i < kControls; ++i) {
      if (!DiffOutcomes(eager, RunEagerly(plan, call, round, i % 2 == 0 ? 0xff : 0), /*exact=*/true, unstable).empty()) return true;
    }
    return false;
  }

  // Whether the call fails otherwise, or not at all, for other values.
  bool DependsOnValues(const CallPlan& plan, CallFunction call, const std::string& error) const {
    for (int round = 0; round < kRounds; ++round) {
      if (RunEagerly(plan, call, round, 0).error != error) return true;
    }
    for (const Fill fill : {Fill::kZeros, Fill::kOnes, Fill::kCount, Fill::kPositive}) {
      CallPlan other = plan;
      for (ArgPlan& arg : other.args) {
        for (TensorPlan& tensor : arg.tensors) tensor.fill = fill;
      }
      if (RunEagerly(other, call, 0, 0).error != error) return true;
    }
    return false;
  }

  void Count(const CallPlan& plan, const CallOutcome& eager, const std::vector<bool>& unstable) {
    if (eager.error.empty()) {
      accepted_ = true;
      ++totals_->succeeded;
      for (const bool each : unstable) totals_->unstable += each ? 1 : 0;
    } else {
      ++totals_->eager_errors;
      if (first_error_.empty()) first_error_ = plan.text + ": " + eager.error;
    }
  }

  void NoteLate(const std::string& error) {
    ++totals_->late_errors;
    totals_->late.insert(FullName(op_) + ": " + error.substr(0, error.find('\n')).substr(0, 120));
  }

  const std::string backend_;
  const Options options_;
  const c10::OperatorHandle op_;
  SchemaTotals* totals_;
  int gradients_ = 0, reported_ = 0;
  bool accepted_ = false;
  std::string first_error_;
};

}  // namespace

int SchemaTotals::NumUntested() const {
  return static_cast<int>(std::count_if(untested.begin(), untested.end(), [](const auto& row) { return !IsOutOfReach(row.second); }));
}

SchemaTotals& TotalsOf(const std::string& backend) {
  static auto* totals = new std::map<std::string, SchemaTotals>;
  return (*totals)[backend];
}

bool IsFiltered() { return !GetSettings().filter.empty() || !GetSettings().skip.empty(); }

void RunShard(const std::string& backend, int shard, int num_shards) {
  const Clock::time_point begin = Clock::now();
  const SilentWarnings silent;
  const Settings& settings = GetSettings();
  SchemaTotals& totals = TotalsOf(backend);
  lazuli::reset();
  for (const c10::OperatorHandle& op : CpuOperators(settings.filter)) {
    const std::string name = FullName(op);
    if (HashOf(name) % static_cast<uint64_t>(num_shards) != static_cast<uint64_t>(shard) || settings.Skips(name)) continue;
    const std::string reason = ReasonUntested(op);
    if (!reason.empty()) {
      totals.untested[name] = reason;
      continue;
    }
    const Clock::time_point op_begin = Clock::now();
    ++totals.overloads;
    if (settings.trace) std::cerr << "operator " << name << std::endl;
    try {
      OpRunner(backend, op).RunAll();
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << ": no call could be made: " << error.what();
    }
    if (settings.trace) std::cerr << "seconds " << SecondsSince(op_begin) << " " << name << std::endl;
  }
  const Stats stats = lazuli::stats();
  totals.ops_recorded += stats.ops_recorded;
  totals.programs_compiled += stats.programs_compiled;
  totals.cache_hits += stats.cache_hits;
  totals.predicted_hits += stats.predicted_hits;
  totals.seconds += SecondsSince(begin);
  totals.shards.insert(shard);
}

void PrintTotals(const std::string& backend) {
  const SchemaTotals& t = TotalsOf(backend);
  std::cout << "schema on " << backend << ": " << t.accepted_overloads << " of " << t.overloads << " overloads in " << t.calls << " cases, "
            << t.succeeded << " that eager accepts, " << t.eager_errors << " with eager's error (" << t.late_errors
            << " for their values, late), " << t.gradients << " backward, " << t.unstable << " tensors without stable values, "
            << t.mismatches << " mismatches; " << t.ops_recorded << " operators recorded, " << t.programs_compiled << " programs, "
            << t.cache_hits << " hits, " << t.predicted_hits << " predicted, " << t.seconds << " s\n";
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [op, reason] : t.untested) reasons[reason].push_back(op);
  std::cout << "  untested: " << t.NumUntested() << " operators that plain CPU tensors can meet\n";
  for (const auto& [reason, ops] : reasons) {
    std::cout << "  " << (IsOutOfReach(reason) ? "out of reach: " : "untested: ") << ops.size() << " " << reason;
    const char* separator = ": ";
    for (const std::string& op : IsOutOfReach(reason) ? std::vector<std::string>() : ops) {
      std::cout << separator << op;
      separator = ", ";
    }
    std::cout << "\n";
  }
  for (const std::string& op : t.unsure) std::cout << "  eager differs from itself: " << op << "\n";
  for (const auto& [op, error] : t.never_accepted) std::cout << "  never accepted: " << op << ": " << error.substr(0, 400) << "\n";
  if (!GetSettings().trace) return;
  for (const std::string& text : t.late) std::cout << "  late error: " << text << "\n";
}

}  // namespace lazuli::testing
