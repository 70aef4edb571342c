// How ops become kernel instructions: the rows of ir/op.def, what they say of an op before fusion, and the emitter they write to.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "codegen/ir/graph.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Where one op iterates: its space (dimensions of size 1 included), and how each use and result lies in it.
struct Iteration {
  c10::DimVector sizes;
  std::vector<bool> reduced;
  std::vector<c10::DimVector> uses;         // In ForEachUse's order; one stride for each dimension, 0 where it is broadcast.
  std::vector<c10::DimVector> results;      // Parallel to op.results; empty where undefined.
  std::vector<c10::DimVector> coordinates;  // Numbers that formulas compute from the point: so much for a step along each dimension.
};

// Pieces that take the place of one op, in an order to run them in.
struct Expansion {
  static constexpr int kWholeOp = -1;
  struct Piece {
    // As in a trace. Parts of a row have the op's arguments, each with whatever operand the part wants there, and results of their own.
    // Without an operator: args[1] is written through the window args[0], part of a memory of this expansion's.
    TraceOp op;
    int part = kWholeOp;  // Of the row that is expanded; kWholeOp: an op by itself.
  };
  std::vector<Piece> pieces;
  StorageId first_temporary = 0;     // Storages of the pieces' own have numbers from here on,
  std::vector<int64_t> temporaries;  // and so many bytes each.
  int32_t first_offset = 0;          // Offsets that are sums have slots from here on.
  std::vector<runtime::OffsetSum> offset_sums;

  // A contiguous tensor over a storage of its own.
  TensorRef Temporary(c10::ScalarType dtype, const c10::DimVector& sizes);
  // The slot of offset `slot` (-1: 0) and `terms`.
  int32_t Offset(int32_t slot, const std::vector<int64_t>& terms);
  // Pieces that make a tensor of one number, argument `arg` of `op` (-1: 0) in type `dtype`, with strides 0.
  TensorRef Number(const TraceOp& op, int arg, c10::ScalarType dtype, const c10::DimVector& sizes);
};

// A slot of `graph` for offset `slot` (-1: 0) and `terms`, as expansions have theirs.
int32_t AddOffset(Graph* graph, int32_t slot, const std::vector<int64_t>& terms);

class OpEmitter;

// The type a pointwise formula is computed in; see op.def.
enum class TypeRule : uint8_t { kPromote, kPromoteFloat, kCompare };

enum class ScanDirection : uint8_t { kNone, kForward, kFromEnd };

// Sets of types, as bits.
constexpr uint8_t kWide = 1;    // Float, Double
constexpr uint8_t kBFloat = 2;  // BFloat16
constexpr uint8_t kInts = 4;    // Long, Int, Short, Char, Byte
constexpr uint8_t kBools = 8;
constexpr uint8_t kHalfs = 16;      // Half
constexpr uint8_t kGpuHalves = 32;  // BFloat16 and Half, on a GPU alone: the CPU's kernels round them in ways of their own.
constexpr uint8_t kGpuWide = 64;    // Float and Double likewise: functions that the CPU has no vectors of,
constexpr uint8_t kGpuInts = 128;   // and what throws there.
constexpr uint8_t kGpuFloats = kGpuWide | kGpuHalves;
constexpr uint8_t kWideOnCpu = kWide | kGpuHalves;
constexpr uint8_t kFloats = kWide | kBFloat | kHalfs;
constexpr uint8_t kNumbers = kFloats | kInts;
constexpr uint8_t kIntegral = kInts | kBools;
constexpr uint8_t kAll = kNumbers | kBools;

// One row of op.def.
struct OpRow {
  const char* name = "";                       // Of the functional op: "aten::add.Tensor" serves aten::add_.Tensor too.
  uint64_t shape_args = 0;                     // Tensor arguments of which only the shape counts.
  bool uniform = false;                        // Every element of the result is the same run-time scalar or constant.
  uint8_t reducing_parts = 0;                  // As bits: parts whose formula reduces over Iteration::reduced, even if that is empty.
  ScanDirection scans = ScanDirection::kNone;  // Of those parts, whether they scan along it instead, a result for each point.
  // Makes the pieces of an op that falls into parts of which some use what others make. Null: none.
  void (*expand)(const TraceOp& op, Expansion* out) = nullptr;
  int empty_part = -1;  // Of an expansion: the part that makes a memory without content, for others to write.
  // The same, instead of the op's own kernel, where a kernel makes argument 0, which may then write its place in the result:
  // passes/place.h.
  void (*place)(const TraceOp& op, Expansion* out) = nullptr;
  // Otherwise: independent kernels that the op falls into, and which of them makes which result.
  int parts = 1;
  std::array<int8_t, 3> part_of_result = {0, 0, 0};
  // Tensor arguments that hold indices, which the formula checks: an op with a bad one is left to ATen, to throw. And those that are read
  // where indices say, so that they must be there before the kernel starts.
  uint64_t index_args = 0;
  uint64_t indexed_args = 0;
  // Likewise of part 0 alone: the argument of which it takes, for each element of its result, one element along dimension `picked_dim`, of
  // all others the same one. Null: none.
  int picked_arg = -1;
  size_t (*picked_dim)(const TraceOp& op) = nullptr;
  int pick_in_row = -1;  // The part that does the same, but goes through all elements along that dimension.
  // Tensor arguments that kernels do not read: they are there for ATen, which looks at their shape before it throws.
  uint64_t unread_args = 0;
  // Made of copies to other places, so that none of what is true of loops over elements is: what they take, and may overwrite.
  bool moves = false;
  // The tensor argument into which it writes where indices say; -1: none.
  int target_arg = -1;
  // Writes where indices say, itself or in one of its pieces: on a GPU, what meets in one place is added in any order.
  bool writes_at_indices = false;
  // Of such rows: the row that computes all of the argument written, element by element, in place of this one where kernels compute that
  // argument anyway. Null: none.
  const OpRow* (*everywhere)(const TraceOp& op) = nullptr;
  // Expansions that only pay where an operand is made by a kernel, which may then write its place in the result; rows that need numbers of
  // their sizes, which must be no symbols then; and arguments that decide an expansion's pieces, which must be none either.
  bool only_computed = false;
  bool only_known_sizes = false;
  uint64_t known_args = 0;
  uint64_t known_args_of_floats = 0;  // The same where the result is floating.
  // ATen's kernel is faster than a kernel of this op alone, unless channels come last. The op has no shape_args.
  bool only_fused = false;
  // Finds where a maximum or minimum is.
  bool finds_places = false;
  // A CPU's kernel is faster than ATen's only where channels come last.
  bool only_channels_last = false;
  // Argument `made_arg` has to be all of a result of an operator of the trace of which `made_by` is true; otherwise the op is left to ATen.
  // Null: whatever it is. The op has no shape_args.
  int made_arg = -1;
  bool (*made_by)(const TraceOp& op, const TraceOp& maker) = nullptr;
  // Whether the row can lower `op` as it is: types, layouts, flags.
  bool (*accepts)(const OpRow& row, const TraceOp& op) = nullptr;
  Iteration (*iterate)(const OpRow& row, const Node& node) = nullptr;
  void (*emit)(OpEmitter& emitter) = nullptr;
  // Which arguments decide the type, how, and which types are allowed.
  TypeRule rule = TypeRule::kPromote;
  uint64_t operands = 0;
  uint8_t types = 0;
  // Reductions: positions of the `dim` and `keepdim` arguments; -1: all dimensions.
  int dims_arg = -1;
  int keepdim_arg = -1;
  int reduction_arg = -1;  // Losses: the position of that argument.
};

// The row that can lower `op` as it is; null when it is left to ATen.
const OpRow* FindRow(const TraceOp& op);

// Whether argument `arg` of `node` is read elsewhere than at the point that is computed.
bool ReadsElsewhere(const Node& node, size_t arg);

// The row that serves the op named `name`, whatever it accepts; null when there is none.
const OpRow* FindRowByName(const std::string& name);

// The functional op of the name of `info`, which is in place; null when there is none.
const OpInfo* FunctionalOf(const OpInfo& info);

// `op`, or if that overwrites all of what it is called on, the one that makes a result instead, in the same place.
TraceOp Functional(TraceOp op);

// Whether the row computes each element of the results of those beside it, or that are broadcast to be.
bool IsPointwise(const OpRow& row);
// The same, and of nothing else: it may as well compute some of the elements. False for null.
bool IsFreePointwise(const OpRow* row);

// Whether there is one, and it makes of the op a loop over elements.
bool IsLoopOverElements(const std::string& name);

class Emitter;

// The result of a kernel instruction under construction; lower_expr.h gives it arithmetic.
struct Expr {
  Emitter* emitter = nullptr;
  int32_t id = -1;
  c10::ScalarType type() const;
};

// Appends instructions to a KernelIR, equal ones once. A reduction of what is the same at every reduced point is not emitted: it is
// that value, or a multiple or power of it. Nor is a scan of one point. Nor is a sum of what is zero at every reduced point but one.
class Emitter {
 public:
  // `reduced` tells which of the kernel's dimensions are reduced; it must outlive the emitter.
  Emitter(KernelIR* kernel, const std::vector<bool>* reduced) : kernel_(kernel), reduced_(*reduced) {}

  Expr Add(KOp op, c10::ScalarType type, std::array<int32_t, 3> in = {-1, -1, -1}, int64_t imm = 0);
  Expr Const(c10::ScalarType type, double value);
  Expr ConstInt(c10::ScalarType type, int64_t value);
  // A number of the graph's, which may be a product of symbols.
  Expr Size(c10::ScalarType type, int64_t number);
  Expr Cast(Expr value, c10::ScalarType type);
  // `value` as `type` can hold it, in its own type.
  Expr Round(Expr value, c10::ScalarType type) { return Cast(Cast(value, type), value.type()); }
  const KernelIR& kernel() const { return *kernel_; }

 private:
  bool VariesWhenReduced(const KInst& inst) const;
  Expr ReduceSame(KOp op, Expr value);
  // Null when `value` is not known to be zero wherever the coordinate is not some number.
  Expr SumOfOneHot(Expr value);

  KernelIR* kernel_;
  const std::vector<bool>& reduced_;
  std::vector<bool> varies_;  // By instruction: differs along reduced dimensions.
  absl::flat_hash_map<std::tuple<int, int, int32_t, int32_t, int32_t, int64_t>, int32_t> numbered_;
};

// What a row's formula sees: the arguments of one op, and where its results go.
class OpEmitter {
 public:
  OpEmitter(Emitter* emitter, const Node& node) : emitter_(emitter), node_(node) {}
  virtual ~OpEmitter() = default;

  Emitter& emitter() { return *emitter_; }
  const Node& node() const { return node_; }
  const TraceOp& op() const { return node_.op; }

  // Argument `arg`, tensor or number, as `type`.
  Expr Arg(int arg, c10::ScalarType type);
  // Tensor argument `arg`, or of a list its `item`th, in the type it is stored in.
  virtual Expr Load(int arg, int item = 0) = 0;
  // The same, so many elements further on than where it lies at this point. One of the row's indexed_args.
  virtual Expr LoadAt(int arg, Expr offset) = 0;
  // Says that the op is one that ATen throws for unless `valid` is true at every point.
  virtual void Check(Expr valid) = 0;
  // At every point of the iteration where `condition` is true, stores or adds `value` that many elements further on than where the row's
  // target lies at this point: further along its dimensions `dims`.
  virtual void Scatter(KOp op, Expr value, Expr offset, Expr condition, absl::Span<const int64_t> dims) = 0;
  // Number `index` of Iteration::coordinates at this point, Long.
  virtual Expr Coordinate(int index) = 0;
  // Gives result `index`, cast to its type.
  void Result(int index, Expr value);
  bool WantsResult(int index) const { return node_.results[index] != kNoValue; }
  // Tensor absent, or None.
  bool IsNone(int arg) const;
  // Ints and flags, which are always part of the skeleton.
  int64_t Int(int arg) const { return node_.op.args[arg].value.toInt(); }

 protected:
  // Run-time scalar `slot`, holding a value of type `held`.
  virtual Expr LoadScalar(int32_t slot, c10::ScalarType held, c10::ScalarType type) = 0;
  virtual void Define(int index, Expr value) = 0;

 private:
  Emitter* emitter_;
  const Node& node_;
};

// The type that values of `type` are computed in: Float for BFloat16 and Half, else `type`.
c10::ScalarType OpMathType(c10::ScalarType type);

// The bit of `type` among kWide...kHalfs; 0 for all others.
uint8_t TypeBit(c10::ScalarType type);
// Whether the set `types` has `type`, where `op` runs.
bool HasType(uint8_t types, c10::ScalarType type, const TraceOp& op);

// The common type of those arguments in `args` that are tensors or numbers, by ATen's promotion rules.
c10::ScalarType PromotedType(const TraceOp& op, uint64_t args);

// The type that `row`'s formula computes in for `op`, before OpMathType.
c10::ScalarType ComputeType(const OpRow& row, const TraceOp& op);

// Whether `ref` can be broadcast to `sizes`.
bool BroadcastsTo(const TensorRef& ref, const c10::DimVector& sizes);

// Strides of `ref`, which broadcasts to `sizes`, there: right-aligned, 0 along dimensions of size 1.
c10::DimVector BroadcastStrides(const TensorRef& ref, const c10::DimVector& sizes);

// Whether every tensor argument and result has a type that kernels know, and every result is dense and not empty.
bool HasPlainTypes(const TraceOp& op);

}  // namespace lazuli::codegen
