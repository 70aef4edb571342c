// A fused group -> KernelIR, with what each of the kernel's buffers and scalars is bound to.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Where a node iterates: its row's answer, or an update's window. `node` must not be extern.
struct Iteration;
enum class ScanDirection : uint8_t;
Iteration IterationOf(const Node& node);
// Whether the node reduces over what its Iteration says, even if that is empty.
bool Reduces(const Node& node);

// Whether, and from where, the node scans along that instead.
ScanDirection ScanOf(const Node& node);

// Which values have to exist in memory: visible contents, those overwritten in place, and those read outside the group that makes
// them (a uniform value only if ATen reads it, since kernels recompute it), and indices, with which ATen throws when they are bad.
std::vector<bool> ValuesInMemory(const Graph& graph);

// Whether every element of `value` is one number that kernels can recompute.
bool IsUniform(const Graph& graph, ValueId value);

struct LoweredGroup {
  KernelIR kernel;
  struct Buffer {
    ValueId memory = kNoValue;  // As MemoryOf gives it. kNoValue: the flag of failed checks, or partial sums.
    int32_t offset_slot = -1;
    int32_t element_size = 1;
    bool written = false;
    int32_t partial_sums = -1;  // The number of those that one kernel leaves for another (partial_sums.h).
  };
  std::vector<Buffer> buffers;        // Parallel to kernel.buffers.
  std::vector<int32_t> scalar_slots;  // By kernel scalar: the run-time slot.
  std::vector<int64_t> symbols;       // By kernel symbol: the graph's number that it stands for.
  std::vector<NodeId> checks;         // Nodes that check indices.
};

// Drops the instructions that no effect needs, and the buffers that are left without any.
void DropDeadInstructions(LoweredGroup* lowered);

// Operations that the nodes of `group` take at each point besides loads and stores, as Weight counts them; infinity where they cannot be
// lowered.
double LoweredWeight(const Graph& graph, const Group& group);

// A kernel without stores and checks (all its values live elsewhere) has no instructions.
absl::StatusOr<LoweredGroup> LowerGroup(const Graph& graph, const Group& group, const std::vector<bool>& in_memory);

}  // namespace lazuli::codegen
