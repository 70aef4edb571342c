#include "codegen/passes/fold.h"

#include <string>

#include "codegen/lower.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

// Whether `wide` holds every value of `narrow`. Integers beyond a float's mantissa are left out.
bool HoldsAll(c10::ScalarType wide, c10::ScalarType narrow) {
  if (wide == narrow) return true;
  if (!c10::isFloatingType(narrow)) return false;
  return wide == c10::kDouble || (wide == c10::kFloat && narrow != c10::kDouble);
}

bool SameWindow(const TensorRef& a, const TensorRef& b) { return a.sizes == b.sizes && a.strides == b.strides; }

class Folder {
 public:
  explicit Folder(Graph graph) : graph_(std::move(graph)), pinned_(PinnedValues(graph_)), overwritten_(OverwrittenValues(graph_)) {
    for (size_t v = 0; v < graph_.values.size(); ++v) replacement_.push_back(static_cast<ValueId>(v));
  }

  Graph Run() {
    std::vector<bool> keep(graph_.nodes.size(), true);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      Node& node = graph_.nodes[n];
      ForEachUse(node, [&](TensorRef& use) { use.storage = replacement_[use.storage]; });
      const TensorRef* source = Source(node);
      if (source == nullptr || pinned_[node.results[0]] || overwritten_[node.results[0]] || overwritten_[source->storage]) continue;
      replacement_[node.results[0]] = source->storage;
      keep[n] = false;
    }
    EraseNodes(&graph_, keep);
    return std::move(graph_);
  }

 private:
  // The tensor whose memory reads like `node`'s result: the one it copies, or that one's own source.
  const TensorRef* Source(const Node& node) const {
    const TensorRef* copied = CopiedBy(node);
    if (copied == nullptr || copied->offset_slot != -1) return nullptr;
    const TensorRef& result = node.op.results[0];
    if (!SameWindow(*copied, result)) return nullptr;
    if (copied->dtype == result.dtype) return copied;
    const NodeId producer = graph_.values[copied->storage].producer;
    if (producer == kNoNode || !HoldsAll(copied->dtype, result.dtype)) return nullptr;
    const Node& cast = graph_.nodes[producer];
    const TensorRef* first = CopiedBy(cast);
    if (first == nullptr || first->offset_slot != -1 || cast.results[0] != copied->storage) return nullptr;
    const bool there_and_back = first->dtype == result.dtype && SameWindow(*first, result) && SameWindow(cast.op.results[0], *copied);
    return there_and_back ? first : nullptr;
  }

  Graph graph_;
  const std::vector<bool> pinned_;
  const std::vector<bool> overwritten_;
  std::vector<ValueId> replacement_;
};

}  // namespace

absl::StatusOr<Graph> FoldCopies(Graph graph) { return Folder(std::move(graph)).Run(); }

}  // namespace lazuli::codegen
