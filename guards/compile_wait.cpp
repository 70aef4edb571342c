#include "guards/compile_wait.h"

#include <algorithm>

#include "guards/skeleton.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/options.h"

namespace lazuli::guards {

WaitBudget& WaitBudget::Get() {
  static auto* const budget = new WaitBudget;
  return *budget;
}

std::chrono::nanoseconds WaitBudget::Left(std::chrono::nanoseconds most) const {
  // What was spent before a reset may come back after it.
  const int64_t spent = std::max<int64_t>(spent_.load(std::memory_order_relaxed), 0);
  return std::max(most - std::chrono::nanoseconds(spent), std::chrono::nanoseconds(0));
}

void WaitedFor::PayBack() {
  if (runs_.fetch_add(1, std::memory_order_relaxed) + 1 < kPaidBackAfter) return;
  WaitBudget::Get().GiveBack(std::chrono::nanoseconds(nanoseconds_.exchange(0, std::memory_order_relaxed)));
}

bool AwaitProgram(CompiledProgram* body) {
  const auto compiling = [body] { return body->state.load(std::memory_order_acquire) == CompiledProgram::State::kCompiling; };
  if (!compiling()) return false;
  using Clock = std::chrono::steady_clock;
  const std::chrono::nanoseconds left = WaitBudget::Get().Left(std::chrono::milliseconds(runtime::Active().compile_wait_ms));
  if (left.count() == 0) return false;
  // Nothing that was asked for before is more urgent.
  body->demand.lost_nanoseconds.fetch_add(left.count(), std::memory_order_relaxed);
  const auto start = Clock::now();
  runtime::CompilePool::Get().WaitUntil([&] { return !compiling(); }, left);
  const std::chrono::nanoseconds time = Clock::now() - start;
  WaitBudget::Get().Spend(time);
  body->waited_for.Note(time);
  runtime::Counters::Get().compile_waits.Add();
  runtime::Counters::Get().compile_wait_nanoseconds.Add(time.count());
  return true;
}

}  // namespace lazuli::guards
