// What rows that follow indices share.
#pragma once

#include <vector>

#include "codegen/lower_rows.h"

namespace lazuli::codegen {

bool IsIndex(const TensorRef& ref);
bool IsTensor(const TraceArg& arg);
int64_t Rank(const TensorRef& ref);

// An argument `dim` of an op on `ref`, from 0 on; -1 where it is none.
int64_t DimArg(const TraceOp& op, int arg, const TensorRef& ref);

Expr InRange(Expr index, int64_t size);
// How far on `index`, of any integers, leads along a dimension with this stride: Long.
Expr Steps(Expr index, int64_t stride);
// The same along dimension `dim` of `ref`. What is out of range is the op's error, and leads nowhere; it makes `valid`, if any, false.
Expr CheckedSteps(OpEmitter& e, Expr index, const TensorRef& ref, int64_t dim, bool wraps, Expr* valid = nullptr);

// `strides`, 0 where there is one element.
c10::DimVector StridesOf(const c10::DimVector& sizes, c10::DimVector strides);
// All of `result`, its only one; uses are yet to come.
Iteration Whole(const TensorRef& result);
// The coordinate of dimension `dim`.
c10::DimVector Along(const c10::DimVector& sizes, int64_t dim);

// Which dimensions of self (argument 0) an op looks up, and where the indices' own dimensions, broadcast to each other, stand in its result
// instead.
struct LookUp {
  std::vector<int64_t> dims;
  std::vector<int> items;  // Of the index argument, for each of `dims`.
  int64_t index_rank = 0;
  int64_t at = 0;
};

int IndexArg(const OpRow& row);
const std::vector<TensorRef>& IndicesOf(const TraceOp& op, const OpRow& row);
// Whether `op` has indices, all of them of integers and each for a dimension of self.
bool IsLookUp(const OpRow& row, const TraceOp& op);
LookUp LookUpOf(const TraceOp& op, const OpRow& row);
// How far on in self the indices lead; `valid` as above.
Expr LookedUpSteps(OpEmitter& e, Expr* valid = nullptr);
// Where self, without those dimensions, and an index lie in what is looked up.
c10::DimVector LookedUpStrides(const TensorRef& self, const LookUp& look_up);
c10::DimVector IndexStrides(const TensorRef& index, const LookUp& look_up, size_t rank);

}  // namespace lazuli::codegen
