// Kernels with scans, for tests on the CPU and on GPUs.
#pragma once

#include <utility>
#include <vector>

#include "tests/support/kernel_builder.h"

namespace lazuli::testing {

// Scans the last dimension.
inline codegen::KernelIR ScanKernel(codegen::KOp op, const c10::DimVector& sizes, const c10::DimVector& in, const c10::DimVector& out,
                                    c10::ScalarType type, bool from_end) {
  KernelBuilder b(sizes, 1);
  b.Store(b.Buffer(type, out, true), b.Scan(op, b.Load(b.Buffer(type, in)), from_end));
  return b.kernel();
}

// Rows and columns, short and long.
inline std::vector<std::pair<c10::DimVector, c10::DimVector>> ScanLayouts() {
  return {{{5, 64}, {64, 1}},  {{3, 9000}, {9000, 1}}, {{40, 300}, {1, 40}},      {{3, 257}, {257, 1}},
          {{70, 19}, {1, 70}}, {{9, 3}, {3, 1}},       {{2, 3, 40}, {120, 1, 3}}, {{2000}, {1}}};
}

// In two passes: a scan of what is less than the largest of another scan's absolute values, added to a third one of how they differ, and
// the largest of that, with the sum of the first. Exact for random whole numbers of up to 1, as long as there are no more than 10,000.
inline codegen::KernelIR ScansAmongReductions(const c10::DimVector& sizes, const c10::DimVector& strides, bool from_end) {
  using T = c10::ScalarType;
  using K = codegen::KOp;
  KernelBuilder b(sizes, 1);
  const int x = b.Load(b.Buffer(T::Float, strides)), first = b.Scan(K::kScanSum, x, from_end);
  const int most = b.Op(K::kReduceMax, b.Op(K::kAbs, first));
  const int less = b.Op(K::kSelect, b.Op(K::kLt, b.Op(K::kMul, x, b.Const(8)), most), x, b.Const(1));
  const int second = b.Scan(K::kScanSum, less, from_end), third = b.Scan(K::kScanSum, b.Op(K::kSub, second, first), from_end);
  b.Store(b.Buffer(T::Float, strides, true), b.Op(K::kAdd, second, third));
  b.Store(b.Buffer(T::Float, strides, true), first);
  c10::DimVector kept(sizes.size(), 0);
  int64_t stride = 1;
  for (size_t d = sizes.size() - 1; d-- > 0;) {
    kept[d] = stride;
    stride *= sizes[d];
  }
  b.Store(b.Buffer(T::Float, kept, true), b.Op(K::kAdd, b.Op(K::kSub, b.Op(K::kReduceMax, third), most), b.Op(K::kReduceSum, first)));
  return b.kernel();
}

}  // namespace lazuli::testing
