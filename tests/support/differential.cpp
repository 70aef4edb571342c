#include "tests/support/differential.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>
#include <sstream>

#include "lazuli/lazuli.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

// The first round may only observe shapes, the second has other values (and with them, for some ops, other shapes), the third compiles
// at the latest, the fourth must find programs. It is left out where the third has found them already.
constexpr int kRounds = 4;
constexpr int kMaxReported = 60;  // Failures of a suite that are printed.
constexpr const char* kShapeNames[] = {"scalar",     "empty",  "one",           "odd",      "large",
                                       "transposed", "sliced", "channels_last", "expanded", "broadcast"};

using Program = std::function<Tensors(const Tensors&)>;

struct Outcome {
  bool threw = false;
  std::string error;
  Tensors tensors;  // What the program made, then its operands.
};

std::string NameOf(const CaseId& id) { return id.op->name + " " + c10::toString(id.dtype) + " " + kShapeNames[static_cast<int>(id.shape)]; }

// Everything a suite counts.
struct Summary {
  int cases = 0, equal = 0, same_error = 0, left_to_cpu = 0, failed = 0;
  std::map<std::string, std::set<std::string>> fallbacks;  // Operator to the ops of the table that met it.
  std::map<std::string, std::string> first_failure;        // By op of the table.

  void Fail(const CaseId& id, const std::string& what) {
    ++failed;
    first_failure.emplace(id.op->name, NameOf(id) + ": " + what);
    if (failed <= kMaxReported) ADD_FAILURE() << NameOf(id) << ": " << what;
  }

  void Print(const std::string& suite, const Stats& stats, double seconds) const {
    std::cout << suite << ": " << cases << " cases in " << seconds << " s: " << equal << " like eager, " << same_error
              << " with eager's error, " << left_to_cpu << " left to the CPU, " << failed << " wrong; " << stats.programs_compiled
              << " programs, " << stats.kernels_compiled << " kernels, " << stats.cache_hits << " hits, " << stats.observations
              << " observations\n";
    for (const auto& [op, users] : fallbacks) {
      std::cout << "  " << op << " stays eager in";
      for (const std::string& user : users) std::cout << " " << user;
      std::cout << "\n";
    }
    if (failed > kMaxReported) {
      for (const auto& [op, text] : first_failure) std::cout << "  first failure: " << text << "\n";
    }
  }
};

// A copy with the same layout in a storage of its own, on the device of the test.
torch::Tensor CopyStorage(const torch::Tensor& tensor) {
  const int64_t elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  const torch::Tensor flat = tensor.as_strided({elements}, {1}, 0).to(TestDevice(), /*non_blocking=*/false, /*copy=*/true);
  return flat.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

Tensors CopyAll(const Tensors& tensors) {
  Tensors copies;
  for (const torch::Tensor& tensor : tensors) copies.push_back(CopyStorage(tensor));
  return copies;
}

// Without the addresses that LibTorch quotes when one error is wrapped in another.
std::string WithoutBacktrace(const std::string& message) { return message.substr(0, message.find("\nException raised from")); }

Outcome RunOnce(const Program& program, const Tensors& inputs) {
  Outcome outcome;
  try {
    outcome.tensors = program(inputs);
    lazuli::sync();
    outcome.tensors.insert(outcome.tensors.end(), inputs.begin(), inputs.end());
  } catch (const c10::Error& error) {
    outcome.threw = true;
    outcome.error = WithoutBacktrace(error.what_without_backtrace());
    outcome.tensors.clear();
  } catch (const std::exception& error) {
    outcome.threw = true;
    outcome.error = error.what();
    outcome.tensors.clear();
  }
  return outcome;
}

// An error leaves nothing pending that a later case could trip over.
void ClearErrors() {
  try {
    lazuli::sync();
  } catch (const std::exception&) {
  }
}

// Whether what is made of `accuracy` is bit-equal here.
bool IsExact(Accuracy accuracy) {
  const bool on_cpu = accuracy == Accuracy::kExactOnCpu || accuracy == Accuracy::kContracted;
  return accuracy == Accuracy::kExact || accuracy == Accuracy::kRace || (on_cpu && !OnGpu());
}

// A result's own consumer: something to fuse the op with, that loses no precision where results may be off.
torch::Tensor Consume(const torch::Tensor& result, Accuracy accuracy) {
  if (result.scalar_type() == torch::kBool) return result.logical_not();
  if (result.is_complex() || (result.is_floating_point() && !IsExact(accuracy))) return (result * 2).neg();
  return result * 3 + 1;
}

Program ForwardProgram(const CaseId& id) {
  return [&id](const Tensors& inputs) {
    Tensors made = id.op->run(inputs);
    Tensors results;
    for (const torch::Tensor& tensor : made) {
      if (tensor.defined()) results.push_back(Consume(tensor, id.op->accuracy));
    }
    // Half of the cases let go of the op's own results, which then need no memory.
    if (id.seed % 2 == 0) results.insert(results.end(), made.begin(), made.end());
    return results;
  };
}

Tolerance ToleranceOf(Accuracy accuracy, torch::ScalarType dtype, const std::string& backend) {
  if (backend == "aten" && !(OnGpu() && accuracy == Accuracy::kReduction)) return {};
  const bool narrow = dtype == torch::kHalf || dtype == torch::kBFloat16;
  if (accuracy == Accuracy::kContracted && OnGpu()) accuracy = Accuracy::kComposite;
  switch (accuracy) {
    case Accuracy::kExact:
    case Accuracy::kContracted:
    case Accuracy::kRace:
      return {};
    case Accuracy::kExactOnCpu:
      return OnGpu() ? Tolerance{2, 0} : Tolerance{};
    case Accuracy::kTranscendental:
      return {narrow ? 1.0 : 4.0, 0};
    case Accuracy::kComposite:
      return {narrow ? 2.0 : 16.0, narrow ? 2.0 : 16.0};
    case Accuracy::kReduction:
      return {narrow ? 2.0 : 64.0, narrow ? 2.0 : 64.0};
  }
  return {};
}

class Runner {
 public:
  Runner(std::string suite, std::string backend) : suite_(std::move(suite)), backend_(std::move(backend)) {
    lazuli::reset();
    constexpr int64_t kUnlimited = 1 << 30;
    options_.backend(backend_).recompile_limit(kUnlimited).accumulated_recompile_limit(kUnlimited).cache_size(64).record_scalars(true);
  }

  ~Runner() {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    summary_.Print(suite_ + " on " + backend_, lazuli::stats(), seconds.count());
  }

  // A backward pass finds its own errors before the kernels that run later find theirs: any error will do.
  void AcceptAnyError() { errors_differ_ = true; }

  void Run(const CaseId& id, const Program& program, const Tolerance& tolerance) {
    ++summary_.cases;
    if (OnGpu() && IsLeftToCpu(id, program)) {
      ++summary_.left_to_cpu;
      return;
    }
    for (int round = 0; round < kRounds; ++round) {
      const Tensors inputs = MakeInputs(id, std::min(round, 1));
      const Outcome eager = RunOnce(program, CopyAll(inputs));
      const Stats before = lazuli::stats();
      const Outcome lazy = RunLazily(program, inputs);
      if (!Compare(id, eager, lazy, tolerance)) return;
      if (eager.threw) {
        ++summary_.same_error;
        return;
      }
      bool settled = false;
      if (!CheckCounters(id, before, round, &settled)) return;
      if (settled) break;
    }
    ++summary_.equal;
  }

 private:
  static bool IsLeftToCpu(const CaseId& id, const Program& program) {
    if (id.op->accuracy == Accuracy::kRace) return true;
    const CpuFactories on_cpu;
    return RunOnce(program, CopyAll(MakeInputs(id, 0))).threw || RunOnce(program, CopyAll(MakeInputs(id, 1))).threw;
  }

  Outcome RunLazily(const Program& program, const Tensors& inputs) {
    const Tensors copies = CopyAll(inputs);
    const lazuli::DeviceMode mode(options_);
    Outcome outcome = RunOnce(program, copies);
    if (outcome.threw) ClearErrors();
    return outcome;
  }

  bool Compare(const CaseId& id, const Outcome& eager, const Outcome& lazy, const Tolerance& tolerance) {
    const bool same_error = errors_differ_ || eager.error == lazy.error;
    if (eager.threw != lazy.threw || !same_error) {
      summary_.Fail(id, "eager " + (eager.threw ? "throws '" + eager.error + "'" : "works") + ", lazy " +
                            (lazy.threw ? "throws '" + lazy.error + "'" : "works"));
      return false;
    }
    const std::string difference = DiffAll(eager.tensors, lazy.tensors, tolerance);
    if (!difference.empty()) summary_.Fail(id, difference);
    return difference.empty();
  }

  // `settled`: every trace of this round ran from a program found in the cache.
  bool CheckCounters(const CaseId& id, const Stats& before, int round, bool* settled) {
    const Stats after = lazuli::stats();
    const int64_t traces = after.traces - before.traces;
    *settled = round >= kRounds - 2 && traces > 0 && after.cache_hits - before.cache_hits == traces;
    for (const auto& [op, count] : after.eager_fallbacks) {
      const auto it = before.eager_fallbacks.find(op);
      if (*settled && count != (it == before.eager_fallbacks.end() ? 0 : it->second)) summary_.fallbacks[op].insert(id.op->name);
    }
    std::string problem;
    if (round > 1 && after.eager_replays != before.eager_replays) problem = "a trace ran op by op";
    if (after.compile_failures != before.compile_failures) problem = "a trace could not be compiled";
    if (after.recompile_limit_hits != before.recompile_limit_hits) problem = "the recompile limit was hit";
    if (round == kRounds - 1 && !*settled) problem = traces == 0 ? "nothing was recorded" : "not every trace found its program in the end";
    if (!problem.empty()) summary_.Fail(id, problem);
    return problem.empty();
  }

  const std::string suite_, backend_;
  lazuli::Options options_;
  bool errors_differ_ = false;
  Summary summary_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The weighted sum of `made`'s differentiable tensors, and its gradients.
Tensors Gradients(const CaseId& id, const Tensors& inputs) {
  Tensors leaves, operands;
  for (const torch::Tensor& input : inputs) {
    leaves.push_back(input.detach().requires_grad_());
    // Ops may write their operands, but not leaves.
    operands.push_back(leaves.back() * 1);
  }
  torch::Tensor loss;
  Tensors made = id.op->run(operands);
  for (const torch::Tensor& tensor : made) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const torch::Tensor term = (tensor * Constant(tensor.sizes(), tensor)).sum();
    loss = loss.defined() ? loss + term : term;
  }
  if (!loss.defined()) return {};
  return torch::autograd::grad({loss}, leaves, {}, {}, false, /*allow_unused=*/true);
}

}  // namespace

void RunDifferential(const std::string& suite, const std::string& backend, const std::vector<OpCase>& ops) {
  Runner runner(suite, backend);
  const torch::NoGradGuard no_grad;
  for (const CaseId& id : SelectCases(ops)) runner.Run(id, ForwardProgram(id), ToleranceOf(id.op->accuracy, id.dtype, backend));
}

void RunGradients(const std::string& suite, const std::string& backend, const std::vector<OpCase>& ops) {
  Runner runner(suite + " gradients", backend);
  runner.AcceptAnyError();
  for (const CaseId& id : SelectCases(ops)) {
    const bool is_float = id.dtype == torch::kFloat || id.dtype == torch::kDouble;
    if (!is_float || id.shape == ShapeClass::kLarge || id.shape == ShapeClass::kEmpty) continue;
    // Backward sums in another order even where forward is exact.
    const Program program = [&id](const Tensors& inputs) { return Gradients(id, inputs); };
    runner.Run(id, program, ToleranceOf(Accuracy::kReduction, id.dtype, backend));
  }
}

}  // namespace lazuli::testing
