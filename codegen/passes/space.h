// Iteration spaces and how two of them become one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

struct Space {
  c10::DimVector sizes;  // None of them 1.
  std::vector<bool> reduced;
  bool reduces = false;  // Some node in it reduces, be it over dimensions of size 1 that are no longer there.

  int64_t numel() const;
};

// How the dimensions of one space lie in a finer or larger one: new dimension j walks old dimension `from[j].dim` in steps of
// `from[j].step`, or does not move in it at all (dim -1).
struct DimMap {
  struct Source {
    int dim = -1;
    int64_t step = 1;
  };
  std::vector<Source> from;

  c10::DimVector Apply(const c10::DimVector& strides) const;
  bool IsIdentity() const;
};

struct JoinedSpace {
  Space space;
  DimMap a, b;
};

// One space for both: the common refinement of equal spaces split differently ([6, 4] and [6, 2, 2]), or `a`'s when `b` is what
// remains of it after its reductions, or the other way round. None when they do not fit.
std::optional<JoinedSpace> JoinSpaces(const Space& a, const Space& b);

// One space for both where a value lies in `a` with strides `in_a` and in `b` with `in_b`, in whatever order these have their dimensions:
// what is computed and then copied to another layout. None where the value is the same at several points of either.
std::optional<JoinedSpace> JoinSpacesAlong(const Space& a, const c10::DimVector& in_a, const Space& b, const c10::DimVector& in_b);

// One space for both where a value lies in all of `small` with strides `in_small`, and is used throughout `large` with strides `in_large`,
// some of them 0: `large`'s, its dimensions split where `small`'s are. None where all of them move in the value.
std::optional<JoinedSpace> JoinBroadcast(const Space& small, const c10::DimVector& in_small, const Space& large,
                                         const c10::DimVector& in_large);

// `placement` of `node` in the space that `map` leads to.
void MapPlacement(const DimMap& map, const Node& node, Placement* placement);

// The space of one node, without the dimensions of size 1, which are dropped from `placement` too.
Space SqueezeSpace(const c10::DimVector& sizes, const std::vector<bool>& reduced, bool reduces, Placement* placement);

}  // namespace lazuli::codegen
