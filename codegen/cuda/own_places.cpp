// Which scatters of a GPU's kernel add up by blocks what they add to few places. Adds that go anywhere take fifty times as long as those of
// neighbours to neighbouring places, in which each block's sums are added in the end.
#include <algorithm>

#include "codegen/cuda/cuda_plan.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {
namespace {

// Adds to a place, on average, from which on it pays: where neighbours go to neighbouring places, and where they go anywhere.
constexpr int64_t kNeighboursOfPlace = 1024, kAddsOfPlace = 64;

}  // namespace

CudaPlan::Adds CudaPlan::AddsOf(int i) const {
  const KInst& at = kernel.insts[i];
  if (at.op != KOp::kScatterAdd || ElementBytes(at.type) < 4) return {};
  const KBuffer& buffer = kernel.buffers[at.imm];
  if (buffer.within == 0) return {};
  Adds adds{1, buffer.within};
  for (int d = 0; d < rank; ++d) {
    adds.points *= SizeHint(d);
    const int64_t stride = buffer.strides[d];
    if (stride == 0) continue;
    if (stride < 0 || kernel.symbols.IsSymbolic(stride) || kernel.symbols.IsSymbolic(kernel.sizes[d])) return {};
    adds.places += (kernel.sizes[d] - 1) * stride;
  }
  return adds;
}

void CudaPlan::ChooseOwnPlaces(int64_t shared_bytes) {
  own_places.assign(kernel.insts.size(), 0);
  for (size_t i = 0; i < kernel.insts.size() && kernel.num_reduced == 0 && tile_dim < 0; ++i) {
    const Adds adds = AddsOf(static_cast<int>(i));
    const int64_t bytes = adds.places * ElementBytes(kernel.insts[i].type);
    const int64_t least = AddsNeighbours(static_cast<int>(i)) ? kNeighboursOfPlace : kAddsOfPlace;
    if (adds.places == 0 || bytes > shared_bytes || adds.points < least * adds.places) continue;
    shared_bytes -= bytes;
    own_places[i] = adds.places;
    // So many blocks that each adds something to most places.
    const int64_t blocks = std::clamp(adds.points / adds.places, kPlannedMultiprocessors, kPlannedMultiprocessors * kAddingBlocks);
    launch.most_blocks = std::max(launch.most_blocks, blocks);
  }
}

}  // namespace lazuli::codegen
