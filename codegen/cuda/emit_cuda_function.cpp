#include "codegen/cuda/emit_cuda_function.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/emit_cuda_ops.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

constexpr int kWarpThreads = 32;

CudaFunctionEmitter::CudaFunctionEmitter(const CudaPlan& plan, const CudaLaunch::Phase& phase, int begin, int end, bool kept_effects)
    : plan_(plan), phase_(phase), begin_(begin), end_(end), kept_effects_(kept_effects) {}

std::string CudaFunctionEmitter::Run() {
  FindNeeds();
  FindDrawn();
  EmitSignature();
  EmitFacts();
  BeginPartialSums();
  BeginOwnPlaces();
  EmitKeptLoop();
  for (int stage = 0; stage <= plan_.num_passes; ++stage) {
    LoadPartials(stage);
    EmitKeptStage(stage);
    if (stage >= begin_ && stage < end_) EmitPass(stage);
  }
  if (kept_effects_) EmitKeptEffects();
  if (plan_.tile_dim >= 0) Close();
  if (Syncs()) Sync();
  Close();
  StorePartialSums();
  AddOwnPlaces();
  Close();
  EmitEntryPoints();
  return std::move(text_);
}

bool CudaFunctionEmitter::Syncs() const {
  if (plan_.tile_dim >= 0) return true;
  return Reduces() && (plan_.rows ? phase_.threads_x > kWarpThreads : phase_.threads_y > 1);
}

std::string CudaFunctionEmitter::Barrier() const {
  return HasRowsOfWarps() ? absl::StrCat("row_barrier((int)threadIdx.y + 1, ", phase_.threads_x, ");") : "__syncthreads();";
}

void CudaFunctionEmitter::Sync() {
  Line(Barrier());
  ++syncs_;
}

// Rows of warps may have gone round once less than the block's others, and so lack barriers: compute-sanitizer's racecheck counts them.
void CudaFunctionEmitter::CatchUpSyncs() {
  if (!HasRowsOfWarps() || syncs_ == 0) return;
  const std::string points = absl::StrCat("(U)(", ChunksText(0, plan_.num_kept), ")"),
                    first = absl::StrCat("block * ", phase_.kept_per_block);
  Line(absl::StrCat("const U last = ", points, " > ", first, " ? (", points, " - ", first, ") % (blocks * ", phase_.kept_per_block,
                    ") : 0;"));
  Open("if (last > 0 && threadIdx.y >= last)");
  for (int i = 0; i < syncs_; ++i) Line(Barrier());
  Close();
}

void CudaFunctionEmitter::Require(int i) {
  if (needs_[i]) return;
  needs_[i] = true;
  // Earlier functions have left its partial results.
  if (IsReduce(inst(i).op) && plan_.stage[i] <= begin_) return;
  for (int k = 0; k < KOpArity(inst(i).op); ++k) Require(inst(i).in[k]);
}

void CudaFunctionEmitter::FindNeeds() {
  needs_.assign(num_insts(), false);
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.live[i]) continue;
    const bool in_pass = plan_.pass[i] >= begin_ && plan_.pass[i] < end_;
    if (in_pass || (kept_effects_ && HasEffect(inst(i).op) && plan_.pass[i] < 0)) Require(i);
  }
}

void CudaFunctionEmitter::Line(const std::string& text) {
  absl::StrAppend(&text_, std::string(static_cast<size_t>(2 * depth_), ' '), text, "\n");
}

void CudaFunctionEmitter::Open(const std::string& text) {
  Line(text + " {");
  ++depth_;
}

void CudaFunctionEmitter::Close() {
  --depth_;
  Line("}");
}

std::string CudaFunctionEmitter::ProductText(const runtime::Product& product, bool wide) const {
  std::vector<std::string> factors;
  if (product.coefficient != 1 || product.IsConstant()) {
    factors.push_back(absl::StrCat(product.coefficient, plan_.wide || wide ? "ll" : ""));
  }
  for (const int32_t symbol : product.symbols) factors.push_back(absl::StrCat(wide ? "(i64)s" : "s", symbol));
  return factors.size() == 1 && product.coefficient >= 0 ? factors[0] : absl::StrCat("(", absl::StrJoin(factors, " * "), ")");
}

std::string CudaFunctionEmitter::Number(int64_t number, bool wide) const {
  return ProductText(plan_.kernel.symbols.empty() ? runtime::Product{number, {}} : plan_.kernel.symbols.Decode(number), wide);
}

std::vector<std::string> CudaFunctionEmitter::Parameters(bool members) const {
  std::vector<std::string> parameters;
  for (size_t b = 0; b < plan_.kernel.buffers.size(); ++b) {
    const KBuffer& at = buffer(static_cast<int>(b));
    parameters.push_back(absl::StrCat(at.written ? "" : "const ", CudaMemoryType(at.dtype), members ? "*" : "* __restrict__", " b", b));
  }
  for (int x = 0; x < plan_.kernel.num_scalars; ++x) parameters.push_back(absl::StrCat("i64 x", x));
  for (int s = 0; s < plan_.kernel.symbols.size(); ++s) parameters.push_back(absl::StrCat("i64 s", s, "_"));
  // A batch has one scratch memory, in which each kernel has a place.
  if (plan_.launch.split && members) parameters.insert(parameters.end(), {"i64 w", "i64 splits"});
  if (plan_.launch.split && !members) parameters.insert(parameters.end(), {"char* __restrict__ w", "int splits"});
  return parameters;
}

std::string CudaFunctionEmitter::LaunchBounds() const {
  const int threads = phase_.threads_x * phase_.threads_y;
  const int blocks = plan_.launch.fixed_blocks > 0 ? static_cast<int>(CeilDiv(plan_.launch.fixed_blocks, kPlannedMultiprocessors))
                                                   : plan_.schedule.occupancy * CudaSchedule::kOccupancyThreads / threads;
  return absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", threads, blocks > 0 ? absl::StrCat(", ", blocks) : "", ")\n");
}

void CudaFunctionEmitter::EmitSignature() {
  const std::string parameters = absl::StrJoin(Parameters(/*members=*/false), ", ");
  Open(absl::StrCat("D void ", phase_.function, "_body(", parameters, ", const U block, const U blocks",
                    phase_.split ? ", const U split" : "", ")"));
}

void CudaFunctionEmitter::EmitCall(const std::string& from, const std::string& block, const std::string& blocks, const std::string& split) {
  Line("wait();");
  std::vector<std::string> arguments;
  for (const std::string& parameter : Parameters(/*members=*/false)) {
    const std::string name = parameter.substr(parameter.rfind(' ') + 1);
    const std::string value = absl::StrCat(!from.empty() && name == "w" ? "scratch + " : "", from, name);
    arguments.push_back(absl::StrContains(parameter, '*') ? absl::StrCat("waited(", value, ")") : value);
  }
  arguments.insert(arguments.end(), {block, blocks});
  if (phase_.split) arguments.push_back(split);
  Line(absl::StrCat(phase_.function, "_body(", absl::StrJoin(arguments, ", "), ");"));
}

void CudaFunctionEmitter::EmitEntryPoints() {
  Open(absl::StrCat(LaunchBounds(), phase_.function, "(", absl::StrJoin(Parameters(/*members=*/false), ", "), ")"));
  EmitCall("", "blockIdx.x", "gridDim.x", "blockIdx.y");
  Close();
  if (plan_.launch.batch_entries > 0) EmitBatchEntryPoint();
}

// A block of a batch looks for its kernel among the ends of all kernels' blocks.
void CudaFunctionEmitter::EmitBatchEntryPoint() {
  const CudaLaunch& launch = plan_.launch;
  if (&phase_ == launch.phases.data()) {
    const int entries = launch.batch_entries;
    Line(absl::StrCat("struct Entry { ", absl::StrJoin(Parameters(/*members=*/true), "; "), "; };"));
    Line(absl::StrCat("struct Table { Entry entries[", entries, "]; unsigned ends[", entries, "]; int count; };"));
  }
  const std::string& function = launch.batch[static_cast<size_t>(&phase_ - launch.phases.data())].function;
  Open(absl::StrCat(LaunchBounds(), function, "(const GRID_CONSTANT Table table", launch.split ? ", char* scratch" : "", ")"));
  Line("int first = 0, last = table.count - 1;");
  Open("while (first < last)");
  Line("const int middle = (first + last) / 2;");
  Line("if (blockIdx.x < table.ends[middle]) last = middle; else first = middle + 1;");
  Close();
  Line("const unsigned begin = first == 0 ? 0 : table.ends[first - 1];");
  Line("const Entry& entry = table.entries[first];");
  const std::string own = "blockIdx.x - begin";
  if (phase_.split) {
    EmitCall("entry.", "0", "1", own);  // What is split in batches has one kept point.
  } else {
    EmitCall("entry.", own, "table.ends[first] - begin", "");
  }
  Close();
}

// Whether vectors of the buffer are aligned at any sizes if the first one is.
bool CudaFunctionEmitter::KeepsVectorsApart(int b) const {
  for (int d = 0; d < plan_.rank; ++d) {
    const int64_t stride = buffer(b).strides[d];
    if (d != plan_.vector_dim && (plan_.kernel.symbols.IsSymbolic(stride) || stride % plan_.lanes != 0)) return false;
  }
  return plan_.shift_buffer < 0;
}

// Whether vectors of the buffer are aligned.
void CudaFunctionEmitter::EmitFast(int b) {
  const KBuffer& at = buffer(b);
  if (at.strides[plan_.vector_dim] != 1) return;
  std::string fast = absl::StrCat("aligned<", plan_.lanes * ElementBytes(at.dtype), ">(b", b);
  if (plan_.shift_buffer >= 0)
    return Line(absl::StrCat("const bool fast", b, " = ", fast, " + (", Offset(b, /*in_row=*/false), ") - shift);"));
  fast += ")";
  for (int d = 0; d < plan_.rank; ++d) {
    if (d == plan_.vector_dim || at.strides[d] == 0) continue;
    if (plan_.kernel.symbols.IsSymbolic(at.strides[d])) {
      absl::StrAppend(&fast, " && ", Number(at.strides[d]), " % ", plan_.lanes, " == 0");
    } else if (at.strides[d] % plan_.lanes != 0) {
      fast = "false";
      break;
    }
  }
  Line(absl::StrCat("const bool fast", b, " = ", fast, ";"));
}

// Whether the pieces at the ends of a shifted row are whole vectors, of which some lanes belong to neighbours. Not where rows are reduced:
// there, masks of lanes take more than reading those pieces element by element.
bool CudaFunctionEmitter::HasWholeEnds() const { return plan_.shift_buffer >= 0 && !plan_.rows; }

// Whether lane v is one of a point: the first n are, and where ends are whole those whose bits are in `in`.
std::string CudaFunctionEmitter::InLanes() const { return HasWholeEnds() ? "(in >> v & 1) != 0" : "v < n"; }

// Which lanes `ld` and `st` are to move.
std::string CudaFunctionEmitter::LaneRange() const { return HasWholeEnds() ? "in" : "n"; }

// How far a row is past a multiple of a vector's bytes.
void CudaFunctionEmitter::EmitShift() {
  if (plan_.shift_buffer < 0) return;
  const int b = plan_.shift_buffer;
  Line(absl::StrCat("const int shift = (int)((u64)(b", b, " + (", Offset(b, /*in_row=*/false), ")) / ", ElementBytes(buffer(b).dtype),
                    " % ", plan_.lanes, ");"));
  for (int other = 0; other < static_cast<int>(plan_.kernel.buffers.size()); ++other) EmitFast(other);
  if (plan_.rows) {
    Line(absl::StrCat("const I pieces = (", Number(plan_.kernel.sizes[plan_.vector_dim]), " + shift + ", plan_.lanes - 1, ") / ",
                      plan_.lanes, ";"));
  }
}

void CudaFunctionEmitter::EmitValidLanes(const std::string& condition) {
  const int d = plan_.vector_dim;
  const int64_t size = plan_.kernel.sizes[d];
  std::string lanes = absl::StrCat("(int)min((I)", plan_.lanes, ", (I)(", Number(size), " - i", d, "))");
  if (HasWholeEnds()) {
    EmitShift();
    Line(absl::StrCat("const I i", d, " = r", d, " * ", plan_.lanes, " - shift;"));
    Line(absl::StrCat("const int first = r", d, " == 0 ? shift : 0;"));
  } else if (plan_.shift_buffer >= 0) {
    Line(absl::StrCat("const I i", d, " = r", d, " == 0 ? 0 : r", d, " * ", plan_.lanes, " - shift;"));
    lanes =
        absl::StrCat("(int)min((I)(r", d, " == 0 ? ", plan_.lanes, " - shift : ", plan_.lanes, "), (I)(", Number(size), " - i", d, "))");
  } else if (!plan_.kernel.symbols.IsSymbolic(size) && size % plan_.lanes == 0) {
    lanes = absl::StrCat(plan_.lanes);
  }
  Line(absl::StrCat("const int n = ", condition.empty() ? lanes : absl::StrCat(condition, " ? ", lanes, " : 0"), ";"));
  if (HasWholeEnds()) Line("const unsigned in = n > first ? (1u << n) - (1u << first) : 0u;");
}

// What is the same at all points.
void CudaFunctionEmitter::EmitFacts() {
  if (plan_.launch.row_bytes > 0) Line("extern __shared__ __align__(16) unsigned char row[];");
  for (int s = 0; s < plan_.kernel.symbols.size(); ++s) Line(absl::StrCat("const I s", s, " = (I)s", s, "_;"));
  for (int b = 0; plan_.lanes > 1 && plan_.shift_buffer < 0 && b < static_cast<int>(plan_.kernel.buffers.size()); ++b) EmitFast(b);
  if (plan_.launch.split) {
    for (int i = 0; i < num_insts(); ++i) {
      if (!plan_.live[i] || !IsReduce(inst(i).op)) continue;
      Line(absl::StrCat(CudaMemoryType(inst(i).type), "* const w", i, " = (", CudaMemoryType(inst(i).type), "*)w;"));
      Line(absl::StrCat("w += ((i64)splits * ", ProductText(plan_.launch.kept_points, true), " * ", ElementBytes(inst(i).type), " + ",
                        CudaLaunch::kAlignment - 1, ") / ", CudaLaunch::kAlignment, " * ", CudaLaunch::kAlignment, ";"));
    }
  }
  if (plan_.rows && phase_.threads_x > 1 && phase_.threads_x < kWarpThreads) {
    const int threads = phase_.threads_x;
    Line(absl::StrCat("const unsigned mask = ", (uint32_t{1} << threads) - 1, "u << (threadIdx.y * ", threads, " % 32);"));
  } else if (plan_.rows && phase_.threads_x >= kWarpThreads) {
    Line("const unsigned mask = 0xffffffffu;");
  }
}

std::string CudaFunctionEmitter::ChunksText(int begin, int end) const {
  std::string text;
  for (int d = begin; d < end; ++d) {
    std::string count = Number(plan_.kernel.sizes[d]);
    if (d == plan_.vector_dim && plan_.lanes > 1) {
      const int64_t size = plan_.kernel.sizes[d];
      const int64_t up = plan_.lanes - 1 + plan_.Extra();
      count = plan_.kernel.symbols.IsSymbolic(size) ? absl::StrCat("((", count, " + ", up, ") / ", plan_.lanes, ")")
                                                    : Number((size + up) / plan_.lanes);
    }
    absl::StrAppend(&text, text.empty() ? "" : " * ", count);
  }
  return text.empty() ? "1" : text;
}

// The coordinates, along loops [begin, end), of the chunk with this number.
void CudaFunctionEmitter::EmitCoordinates(const std::string& chunk, int begin, int end) {
  const std::string rest = absl::StrCat("q", begin);
  if (end - begin > 1) Line(absl::StrCat("U ", rest, " = (U)", chunk, ";"));
  for (int d = end - 1; d >= begin; --d) {
    const std::string count = ChunksText(d, d + 1);
    const bool shifts = d == plan_.vector_dim && plan_.shift_buffer >= 0;
    const std::string step = d == plan_.vector_dim && plan_.lanes > 1 && !shifts ? absl::StrCat(" * ", plan_.lanes) : "";
    const std::string into = absl::StrCat("const I ", shifts ? "r" : "i", d, " = ");
    if (end - begin == 1) {
      Line(absl::StrCat(into, chunk, step, ";"));
    } else if (d == begin) {
      Line(absl::StrCat(into, "(I)", rest, step, ";"));
    } else {
      Line(absl::StrCat(into, "(I)(", rest, " % (U)", count, ")", step, "; ", rest, " /= (U)", count, ";"));
    }
  }
}

// Transposed buffers are read along the loop that they are contiguous in, and put down as the last loop takes them.
void CudaFunctionEmitter::EmitTileLoop() {
  const int across = plan_.tile_dim, along = plan_.vector_dim;
  const auto tiles = [&](int d) {
    return absl::StrCat("((", Number(plan_.kernel.sizes[d]), " + ", plan_.tile - 1, ") / ", plan_.tile, ")");
  };
  std::string count = absl::StrCat(tiles(across), " * ", tiles(along));
  for (int d = 0; d < along; ++d) {
    if (d != across) absl::StrAppend(&count, " * ", Number(plan_.kernel.sizes[d]));
  }
  Open(absl::StrCat("for (U k = block; k < (U)(", count, "); k += blocks)"));
  Line("U q = k;");
  for (const int d : {along, across}) {
    Line(absl::StrCat("const I first", d, " = (I)(q % (U)", tiles(d), ") * ", plan_.tile, "; q /= (U)", tiles(d), ";"));
  }
  for (int d = along - 1; d >= 0; --d) {
    if (d == across) continue;
    Line(absl::StrCat("const I i", d, " = (I)(q % (U)", Number(plan_.kernel.sizes[d]), "); q /= (U)", Number(plan_.kernel.sizes[d]), ";"));
  }
  const auto open = [&](int slow, int fast) {
    Line("#pragma unroll");
    Open(absl::StrCat("for (int j = threadIdx.y; j < ", plan_.tile, "; j += ", phase_.threads_y, ")"));
    Line(absl::StrCat("const I i", slow, " = first", slow, " + j, i", fast, " = first", fast, " + (int)threadIdx.x;"));
  };
  const std::string inside =
      absl::StrCat("i", across, " < ", Number(plan_.kernel.sizes[across]), " && i", along, " < ", Number(plan_.kernel.sizes[along]));
  for (int i = 0; i < num_insts(); ++i) {
    if (plan_.tiled[i])
      Line(absl::StrCat("__shared__ ", CudaMemoryType(inst(i).type), " h", i, "[", plan_.tile, "][", plan_.tile + 1, "];"));
  }
  open(along, across);
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.tiled[i]) continue;
    Line(absl::StrCat("if (", inside, ") h", i, "[j][threadIdx.x] = b", inst(i).imm, "[", Offset(static_cast<int>(inst(i).imm)), "];"));
  }
  Close();
  Line("__syncthreads();");
  open(across, along);
  Line(absl::StrCat("if (!(", inside, ")) continue;"));
  Line("const int n = 1;");
}

void CudaFunctionEmitter::EmitKeptLoop() {
  if (plan_.tile_dim >= 0) return EmitTileLoop();
  const std::string chunks = ChunksText(0, plan_.num_kept);
  if (!Syncs() || HasRowsOfWarps()) {
    const std::string own = plan_.rows ? "threadIdx.y" : "threadIdx.x";
    const int64_t step = phase_.kept_per_block;
    Open(absl::StrCat("for (U k = block * ", step, " + ", own, "; k < (U)(", chunks, "); k += blocks * ", step, ")"));
  } else if (plan_.rows) {
    Open(absl::StrCat("for (U k = block; k < (U)(", chunks, "); k += blocks)"));
  } else {
    const int64_t step = phase_.kept_per_block;
    Open(absl::StrCat("for (U base = block * ", step, "; base < (U)(", chunks, "); base += blocks * ", step, ")"));
    Line("const bool valid = base + threadIdx.x < (U)(" + chunks + ");");
    Line("const U k = valid ? base + threadIdx.x : 0;");
  }
  if (plan_.num_kept > 0) EmitCoordinates("(I)k", 0, plan_.num_kept);
  if (plan_.rows) return EmitShift();
  EmitValidLanes(IsColumns() && Syncs() ? "valid" : "");
}

}  // namespace lazuli::codegen
