// Operators that have a row and are left to ATen all the same.
#pragma once

#include "codegen/ir/graph.h"
#include "codegen/passes/space.h"

namespace lazuli::codegen {

// Whether what `node`, whose row asks for it (OpRow::made_by), takes is made by an operator as that says.
bool IsMadeAsNeeded(const Graph& graph, const Node& node);

// Whether `node` is a running sum of one long row on a GPU: ATen's divides it among all multiprocessors.
bool IsOneLongScan(const Graph& graph, const Node& node);

// Whether `node` is one of OpRow::only_channels_last on a CPU, and its channels, if it has several, do not come last.
bool LacksChannelsLast(const Node& node);

// Whether `node`, which nothing fuses with and which lies in `space` as `placement` says, is better left to ATen.
bool IsBetterLeftToAten(const Graph& graph, const Node& node, const Placement& placement, const Space& space);

// Whether `node` copies to another layout what rows of `space`, which reduces, would read in pieces shorter than a GPU's memory is read in:
// better tile by tile, before.
bool ScattersRows(const Node& node, const Placement& placement, const Space& space);

}  // namespace lazuli::codegen
