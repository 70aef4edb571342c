// Plans of a kernel with symbols for sizes far from those that it was planned for: a block of a thousand threads for each row is right
// where rows are long, and ten times too slow where they are short. Each class of sizes, by factors of four, that is met gets the plan that
// its sizes call for; what differs is compiled in the background, and the kernel at hand goes on meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/kernel_compiler.h"

namespace lazuli::codegen {

// Thread-safe.
class OtherPlans {
 public:
  // Compiles the kernel as it is planned with these hints; null: its plan is the same.
  using Make = std::function<absl::StatusOr<std::shared_ptr<const CompiledKernel>>(absl::Span<const int64_t> hints)>;

  // Of a kernel that was planned with `hints`.
  OtherPlans(std::vector<int64_t> hints, Make make) : hints_(std::move(hints)), make_(std::move(make)) {}

  // What runs best with these values of the symbols, as far as it is compiled; null: the kernel itself.
  const CompiledKernel* For(const int64_t* symbols) const;

 private:
  static constexpr size_t kMostClasses = 8;

  struct Class {
    std::vector<int8_t> factors;  // By symbol, as ClassOf().
    std::shared_ptr<const CompiledKernel> kernel;
    std::atomic<bool> ready{false};
  };

  // By how many factors of four `value` is more or less than `hint`; 0: it is near.
  static int8_t ClassOf(int64_t value, int64_t hint);
  const CompiledKernel* Find(const int64_t* symbols) const;

  const std::vector<int64_t> hints_;
  const Make make_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<Class>> classes_;
};

}  // namespace lazuli::codegen
