// What a launch needs to know beside the plan: how its reduced points are split.
#include <algorithm>

#include "codegen/cuda/cuda_plan.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMinSplitIterations = 4;  // Of a thread, that splitting leaves.
constexpr int64_t kMaxSplits = 1024;
constexpr int64_t kBlocksPerMultiprocessor = 4, kMostBlocksPerMultiprocessor = 8;

}  // namespace

int64_t CudaLaunch::SplitChunks(int64_t chunks, int64_t splits, int64_t threads) {
  const int64_t part = CeilDiv(chunks, splits), turns = threads * kSplitUnroll;
  return 2 * part > turns ? CeilDiv(part, turns) * turns : part;
}

int64_t CudaLaunch::Splits(const int64_t* symbols, int64_t multiprocessors) const {
  if (!split) return 1;
  // What is stored row by row costs nothing to split further.
  const int64_t blocks = partial_bytes.empty() ? kMostBlocksPerMultiprocessor : kBlocksPerMultiprocessor;
  const int64_t most = CudaSchedule::Shift(static_cast<int>(multiprocessors * blocks), more_splits);
  const int64_t wanted = CeilDiv(most, std::max<int64_t>(1, Blocks(symbols)));
  const int64_t chunks = std::max<int64_t>(1, reduced.Count(symbols));
  const int64_t possible = chunks / (reduced_threads * kMinSplitIterations);
  const int64_t splits = std::max<int64_t>(1, std::min({wanted, possible, kMaxSplits}));
  return CeilDiv(chunks, SplitChunks(chunks, splits, reduced_threads));
}

int64_t CudaLaunch::ScratchBytes(const int64_t* symbols, int64_t splits) const {
  int64_t bytes = 0;
  for (const int64_t element : partial_bytes) bytes += Aligned(kept_points.Evaluate(symbols) * splits * element);
  return bytes;
}

}  // namespace lazuli::codegen
