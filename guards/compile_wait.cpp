#include "guards/compile_wait.h"

#include <algorithm>

#include "guards/skeleton.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/options.h"

namespace lazuli::guards {

using std::chrono::nanoseconds;

WaitBudget& WaitBudget::Get() {
  static auto* const budget = new WaitBudget;
  return *budget;
}

nanoseconds WaitBudget::Left(nanoseconds most, Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  spent_ = std::max(spent_ - (now - refilled_) / kRefill, nanoseconds(0));
  refilled_ = now;
  return std::max(most - spent_, nanoseconds(0));
}

void WaitBudget::Spend(nanoseconds time) {
  std::lock_guard<std::mutex> lock(mutex_);
  spent_ += time;
}

void WaitBudget::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  spent_ = nanoseconds(0);
}

bool AwaitProgram(CompiledProgram* body) {
  const auto compiling = [body] { return body->state.load(std::memory_order_acquire) == CompiledProgram::State::kCompiling; };
  if (!compiling()) return false;
  const auto start = WaitBudget::Clock::now();
  const nanoseconds most = std::chrono::milliseconds(runtime::Active().compile_wait_ms);
  const nanoseconds left = WaitBudget::Get().Left(most, start);
  // A short wait is in vain, mostly.
  constexpr int kLeast = 8;
  if (left.count() == 0 || left < most / kLeast) return false;
  // Nothing that was asked for before is more urgent.
  body->demand.lost_nanoseconds.fetch_add(left.count(), std::memory_order_relaxed);
  runtime::CompilePool::Get().WaitUntil([&] { return !compiling(); }, left);
  const nanoseconds time = WaitBudget::Clock::now() - start;
  WaitBudget::Get().Spend(time);
  runtime::Counters::Get().compile_waits.Add();
  runtime::Counters::Get().compile_wait_nanoseconds.Add(time.count());
  return true;
}

}  // namespace lazuli::guards
