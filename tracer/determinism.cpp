#include "tracer/determinism.h"

#include <ATen/Context.h>

#include <cstdint>
#include <mutex>

#include "absl/container/flat_hash_set.h"

namespace lazuli::tracer {
namespace {

struct Accepted {
  std::mutex mutex;
  absl::flat_hash_set<int64_t> ops;

  static Accepted& Get() {
    static auto* accepted = new Accepted;
    return *accepted;
  }
  static int64_t KeyOf(const codegen::OpInfo& info, bool on_gpu) { return int64_t{info.id} * 2 + (on_gpu ? 1 : 0); }
};

bool ThrowsForDeterminism() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
}

}  // namespace

bool MayRefuse(const codegen::OpInfo& info, bool on_gpu) {
  if (!ThrowsForDeterminism() || info.is_factory) return false;
  Accepted& accepted = Accepted::Get();
  std::lock_guard<std::mutex> lock(accepted.mutex);
  return !accepted.ops.contains(Accepted::KeyOf(info, on_gpu));
}

void NoteAccepted(const codegen::OpInfo& info, bool on_gpu) {
  if (!ThrowsForDeterminism()) return;
  Accepted& accepted = Accepted::Get();
  std::lock_guard<std::mutex> lock(accepted.mutex);
  accepted.ops.insert(Accepted::KeyOf(info, on_gpu));
}

}  // namespace lazuli::tracer
