#include "codegen/cuda/other_plans.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/numeric/bits.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/options.h"

namespace lazuli::codegen {
namespace {

int BitsOf(int64_t number) { return absl::bit_width(static_cast<uint64_t>(std::max<int64_t>(number, 0))); }

// Null where it cannot be made, or need not: the kernel at hand does.
std::shared_ptr<const CompiledKernel> MadeWith(const OtherPlans::Make& make, const std::vector<int64_t>& hints) {
  try {
    absl::StatusOr<std::shared_ptr<const CompiledKernel>> made = make(hints);
    return made.ok() ? *std::move(made) : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace

int8_t OtherPlans::ClassOf(int64_t value, int64_t hint) { return static_cast<int8_t>((BitsOf(value) - BitsOf(hint)) / 2); }

const CompiledKernel* OtherPlans::For(const int64_t* symbols) const {
  for (size_t i = 0; i < hints_.size(); ++i) {
    if (ClassOf(symbols[i], hints_[i]) != 0) return Find(symbols);
  }
  return nullptr;
}

const CompiledKernel* OtherPlans::Find(const int64_t* symbols) const {
  std::shared_ptr<Class> fresh;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_theirs = [&](const std::shared_ptr<Class>& known) {
      for (size_t i = 0; i < hints_.size(); ++i) {
        if (known->factors[i] != ClassOf(symbols[i], hints_[i])) return false;
      }
      return true;
    };
    const auto known = std::find_if(classes_.begin(), classes_.end(), is_theirs);
    if (known != classes_.end()) return (*known)->ready.load(std::memory_order_acquire) ? (*known)->kernel.get() : nullptr;
    if (classes_.size() >= kMostClasses) return nullptr;
    fresh = std::make_shared<Class>();
    for (size_t i = 0; i < hints_.size(); ++i) fresh->factors.push_back(ClassOf(symbols[i], hints_[i]));
    classes_.push_back(fresh);
  }
  const auto compile = [fresh, make = make_, hints = std::vector<int64_t>(symbols, symbols + hints_.size())] {
    fresh->kernel = MadeWith(make, hints);
    if (fresh->kernel != nullptr) runtime::Counters::Get().kernels_replanned.Add();
    fresh->ready.store(true, std::memory_order_release);
  };
  const auto& active = runtime::Active();
  if (active.async) {
    runtime::CompilePool::Get().Submit(std::make_shared<const runtime::CompileDemand>(), compile, active.compile_threads);
    return nullptr;
  }
  compile();
  return fresh->kernel.get();
}

}  // namespace lazuli::codegen
