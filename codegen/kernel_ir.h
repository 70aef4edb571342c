// Loop-level IR: one fused loop nest over a rectangular domain, shared by every target.
//
// The domain is `sizes`, outermost first; its last `num_reduced` dimensions are reduced over. Instructions are SSA in order, each
// conceptually evaluated at every point of the domain (or, when it does not depend on the reduced dimensions, once per kept
// point). A Reduce instruction consumes a value over the reduced dimensions and yields one value per kept point, which later
// instructions may use at every point again (softmax, layer norm): the emitter splits the nest into the passes this needs.
//
// Types: arithmetic is on Float, Double, Long, Int, Short, Char, Byte and Bool. BFloat16 and Half appear only as operands and results of
// Load, Store and Cast (round to nearest even): rounding between ops is explicit in the IR. Integer arithmetic wraps.
// No instruction is contracted or reassociated, except inside reductions; Fma is explicit.
//
// Sizes and strides may hold symbols (runtime/symbols.h): run-time numbers, each independent of the others, passed to every run. Estimates
// use their hints; a symbol that is a size is at least 2, one that is a stride is not 0.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/symbols.h"

namespace lazuli::codegen {

enum class KOp : uint8_t {
  // clang-format off
  kLoad,    // imm: buffer. Type = the buffer's.
  kStore,   // imm: buffer, in[0]. Type = the buffer's = in[0]'s. At kept level when the buffer's reduced strides are all 0.
  kGather,  // imm: buffer, in[0]: Long. Loads what lies that many elements after the buffer's element at this point.
  kCheck,   // imm: a Bool buffer whose strides are 0, in[0]: Bool. Makes the buffer true when it is false at some point.
  // imm: buffer, in[0], in[1]: Long, in[2]: Bool. At every point of the domain where in[2] is true, in[0] is stored or added so many
  // elements after the buffer's element there. Points of one kept point come one after another, so that the last one stored stays; those
  // of different ones must not meet.
  kScatter, kScatterAdd,
  // imm: a buffer that does not vary over kept dimensions, in[0]: Float or Double. Sums of columns: adds up in[0] over the kept points.
  // Each of kPartialSums parts of these has a sum of its own for each reduced point; that of part p is p times the reduced points after
  // the buffer's element there. Which points make a part is up to the target, empty ones included. GPUs only.
  kPartialSum,
  kConst,   // imm: bits (of a double for Float/Double, else an int64_t).
  kScalar,  // imm: index into the run-time scalars: double bits when `type` is floating, else int64_t; narrowed to `type`.
  kIndex,   // imm: domain dimension; the current coordinate, Long.
  kSize,    // imm: a product of symbols; its value, converted to `type`.
  kCast,    // C++ conversion in[0] -> type; to Bool: != 0; float -> int truncates as ATen's CPU kernels do.
  // Binary, in[0] op in[1], same types, result of that type.
  kAdd, kSub, kMul, kDiv,        // Integer kDiv truncates; division by zero is undefined (lowering sends those to ATen).
  kMod,                          // Integer: C++ %. Floating: std::fmod.
  kMin, kMax,                    // NaN propagates (at::minimum / at::maximum).
  kFmin, kFmax,                  // NaN ignored (std::fmin / std::fmax).
  kPow, kAtan2, kHypot,          // Floating.
  kAnd, kOr, kXor, kShl, kShr,   // Integer and Bool.
  kEq, kNe, kLt, kLe, kGt, kGe,  // Result Bool; NaN compares unequal and unordered.
  // Unary.
  kNeg, kAbs, kNot,              // kNot: bitwise for integers, logical for Bool.
  // Of kSqrt and the functions below, imm says which of ATen's two implementations precision "strict" equals bit for bit: 0, the unary
  // operator on float and double tensors (at::exp; Intel's VML where LibTorch has it); 1, the one inside composite operators and on
  // reduced-precision tensors (sigmoid, gelu, softmax; SLEEF, IEEE square root). Other precisions ignore it.
  kSqrt, kFloor, kCeil, kTrunc, kRound,  // kRound: half to even.
  kExp, kExpm1, kLog, kLog1p, kLog2, kLog10, kExp2,
  kSin, kCos, kTan, kAsin, kAcos, kAtan, kSinh, kCosh, kTanh, kAsinh, kAcosh, kAtanh,
  kErf, kErfc, kErfinv, kLgamma,
  kIsNan,                        // Result Bool.
  kBits,                         // Of a Float, as an Int.
  // Ternary.
  kSelect,                       // in[0] Bool ? in[1] : in[2]
  kFma,                          // in[0] * in[1] + in[2], one rounding.
  // Float in (0, 1] as cuRAND's curand_uniform draws it with its generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
  // as 1, 2, 3", 2011): number in[1] of sequence in[2], both Long, under the seed that a scalar is: imm is that scalar and a vector's size,
  // UniformImm. in[0] is an element, Long: those of a vector, which begins at a multiple of its size, have one sequence, and numbers that
  // follow each other from a multiple of four. GPUs only.
  kUniform,
  // The same for curand_normal: of a mean of 0 and a deviation of 1, by Box and Muller's transform of two numbers of a four.
  kNormal,
  // Scans: in[0] put together over the reduced points up to this one, in their order; a result at every point, type = in[0]'s. imm: 0, or
  // kFromEnd: over those from this one to the last. Kernels with scans have one reduced dimension, of several
  // points, and all their scans the same imm.
  kScanSum, kScanProd,
  // Reductions of in[0] over the reduced dimensions; result at kept level, type = in[0]'s (kMin/kMax propagate NaN).
  kReduceSum, kReduceProd, kReduceMax, kReduceMin, kReduceAny, kReduceAll,
  // clang-format on
};

struct KInst {
  KOp op = KOp::kConst;
  c10::ScalarType type = c10::ScalarType::Float;
  std::array<int32_t, 3> in = {-1, -1, -1};  // Earlier instructions.
  int64_t imm = 0;

  bool operator==(const KInst& other) const { return op == other.op && type == other.type && in == other.in && imm == other.imm; }
};

// Memory a kernel touches. The pointer passed at run time already includes the view's offset.
struct KBuffer {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::DimVector strides;  // One per domain dimension, in elements; 0 broadcasts.
  bool written = false;    // A buffer may be both loaded and stored only through one KBuffer with one set of strides (in place):
                           // every load at a point precedes the store at that point.
  int64_t within = 0;      // Elements, from the one at a point on, within which a scatter's offsets lead. Constant; 0: not known.
  bool operator==(const KBuffer& other) const {
    return dtype == other.dtype && strides == other.strides && written == other.written && within == other.within;
  }
};

struct KernelIR {
  c10::DimVector sizes;
  int num_reduced = 0;
  std::vector<KBuffer> buffers;
  int num_scalars = 0;
  std::vector<KInst> insts;
  runtime::SymbolTable symbols;
  // The operators whose indices are checked ("aten::gather, aten::index_add"), in a kernel whose device itself says that one is wrong: a
  // GPU does, long after the program has gone on. Empty in others, where whoever runs the kernel looks at the flag.
  std::string checked;
};

// Lower-case mnemonic of `op` ("add", "reduce_sum"), as PrintKernel writes it.
const char* KOpName(KOp op);
// Number of operands of `op`: 0 to 3.
int KOpArity(KOp op);
// Whether `imm` of `op` is a buffer.
inline bool HasBuffer(KOp op) { return op <= KOp::kPartialSum; }
// Whether `op` writes where its operand says.
inline bool IsScatter(KOp op) { return op == KOp::kScatter || op == KOp::kScatterAdd; }
// Whether `op` writes to memory rather than yielding a value.
inline bool HasEffect(KOp op) { return op == KOp::kStore || op == KOp::kCheck || IsScatter(op) || op == KOp::kPartialSum; }
// Whether `op` draws random numbers.
inline bool IsRandom(KOp op) { return op == KOp::kUniform || op == KOp::kNormal; }
// The imm of one that does, and what is in it. Vectors are of 1, 2, 4 or 8 elements.
constexpr int64_t UniformImm(int64_t scalar, int64_t vector) { return scalar * 16 + vector; }
constexpr int64_t UniformScalar(int64_t imm) { return imm / 16; }
constexpr int64_t UniformVector(int64_t imm) { return imm % 16; }
// The parts of a kPartialSum: two blocks of threads for each multiprocessor of a large GPU.
constexpr int64_t kPartialSums = 264;
// Whether `op` is one of the Reduce instructions.
inline bool IsReduce(KOp op) { return op >= KOp::kReduceSum; }
constexpr int kNumKOps = static_cast<int>(KOp::kReduceAll) + 1;
bool HasReductions(const KernelIR& kernel);
// Whether `op` is one of the scans.
inline bool IsScan(KOp op) { return op == KOp::kScanSum || op == KOp::kScanProd; }
constexpr int64_t kFromEnd = 1;
bool HasScans(const KernelIR& kernel);
// Whether its scans begin at the end, so that its reduced loop is gone through backwards.
bool ScansFromEnd(const KernelIR& kernel);

// Whether results have the very bits of ATen's kernels whatever the order of evaluation and the implementation of functions: IEEE
// arithmetic, comparisons, casts and integers. Not minima and maxima of floating types, whose zero's sign depends on ATen's loop.
bool IsBitExact(const KernelIR& kernel);

// Checks operand order, types and levels. The message names the instruction.
absl::Status VerifyKernel(const KernelIR& kernel);

// Text form, also the kernel's canonical form and cache key; ParseKernel(PrintKernel(k)) equals k.
std::string PrintKernel(const KernelIR& kernel);
absl::StatusOr<KernelIR> ParseKernel(const std::string& text);

}  // namespace lazuli::codegen
