#include "codegen/compile_kernels.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/compile_pool.h"

namespace lazuli::codegen {
namespace {

// NVRTC reads one text at a time, which is from a fiftieth of what kernels take to a third: more threads would wait for each other.
constexpr unsigned kMostThreads = 16;

using Made = std::optional<absl::StatusOr<ProgramKernel>>;

absl::StatusOr<ProgramKernel> Make(const KernelRequest& request) {
  ProgramKernel made;
  auto kernel = CompileKernel(*request.kernel, request.target, &made.origin);
  if (!kernel.ok()) return kernel.status();
  made.kernel = *std::move(kernel);
  return made;
}

// What leaves a thread ends the process.
absl::StatusOr<ProgramKernel> MakeOrExplain(const KernelRequest& request) {
  try {
    return Make(request);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("the compiler failed, please report this: ", error.what()));
  }
}

// Which requests are the first of their kernel for a GPU. What takes longest to compile comes first, lest all others be done while one
// thread has only begun with it.
std::vector<size_t> DistinctOnGpus(absl::Span<const KernelRequest> requests) {
  std::vector<size_t> distinct;
  absl::flat_hash_set<std::string> seen;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].target.cuda_arch.empty() && seen.insert(PrintKernel(*requests[i].kernel)).second) distinct.push_back(i);
  }
  std::stable_sort(distinct.begin(), distinct.end(),
                   [&](size_t a, size_t b) { return requests[a].kernel->insts.size() > requests[b].kernel->insts.size(); });
  return distinct;
}

// One is left to the program where it goes on meanwhile.
unsigned CompilingThreads() {
  const unsigned left = runtime::CompilePool::OnItsThread() ? 1 : 0;
  return std::clamp(std::thread::hardware_concurrency(), 1 + left, kMostThreads + left) - left;
}

}  // namespace

absl::StatusOr<std::vector<ProgramKernel>> CompileKernels(absl::Span<const KernelRequest> requests) {
  std::vector<Made> made(requests.size());
  const std::vector<size_t> distinct = DistinctOnGpus(requests);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < distinct.size(); i = next++) made[distinct[i]] = MakeOrExplain(requests[distinct[i]]);
  };
  std::vector<std::thread> threads;
  const size_t count = std::min<size_t>(distinct.size(), CompilingThreads());
  for (size_t t = 1; t < count; ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::vector<ProgramKernel> kernels;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto kernel = made[i].has_value() ? *std::move(made[i]) : Make(requests[i]);
    if (!kernel.ok()) return kernel.status();
    kernels.push_back(*std::move(kernel));
  }
  return kernels;
}

}  // namespace lazuli::codegen
