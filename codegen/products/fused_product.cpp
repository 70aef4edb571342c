#include "codegen/products/fused_product.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "codegen/kernel_compiler.h"

namespace lazuli::codegen {
namespace {

using runtime::AtenCall;
using runtime::BoundKernel;
using runtime::FusedSteps;
using runtime::KernelLaunch;
using runtime::MemorySpec;
using runtime::ProgramSpec;
using runtime::StepSpec;
using runtime::WindowSpec;

// What a run needs to know of fused steps.
struct FusedProduct {
  bool (*describe)(const torch::jit::Stack& arguments, Product* product) = nullptr;
  bool fresh_w = false;  // As in Product.
  int x_buffer = -1;     // Of the prologue.
  int y_buffer = -1;     // Of the epilogue.
  bool private_x = false;
  bool private_y = false;
};

// A kernel on the rows of a matrix.
class RowKernel {
 public:
  // `buffer`: the kernel's, which is the matrix, of rows of `row` elements.
  RowKernel(const BoundKernel& launch, int buffer, int64_t row, int64_t rows) : launch_(launch), buffer_(buffer), row_(row) {
    if (!exists()) return;
    walk_ = kernel().WalkOf(buffer, launch.symbols);
    granule_ = walk_.elements == rows * row ? walk_.RowsOfUnits(row) : 0;
  }

  bool exists() const { return launch_.kernel != nullptr; }
  // Blocks of rows that begin and end at multiples of it are whole units. 0: the kernel goes over something else than the matrix.
  int64_t granule() const { return granule_; }

  // `rows`: where the matrix is for now; null: where it was bound to.
  void Run(int64_t begin, int64_t end, float* rows) const {
    if (!exists()) return;
    absl::InlinedVector<void*, 16> buffers(launch_.buffers, launch_.buffers + launch_.num_buffers);
    if (rows != nullptr) buffers[static_cast<size_t>(buffer_)] = rows;
    kernel().RunUnits(buffers.data(), launch_.scalars, launch_.symbols, walk_.UnitAt(begin * row_), walk_.UnitAt(end * row_));
  }

 private:
  const CompiledKernel& kernel() const { return *static_cast<const CompiledKernel*>(launch_.kernel); }

  BoundKernel launch_;
  int buffer_;
  int64_t row_;
  UnitWalk walk_;
  int64_t granule_ = 1;
};

bool Run(const void* plan, const torch::jit::Stack& arguments, const BoundKernel& before, const BoundKernel& after) {
  const auto& fused = *static_cast<const FusedProduct*>(plan);
  Product product;
  if (!fused.describe(arguments, &product)) return false;
  const RowKernel prologue(before, fused.x_buffer, product.depth, product.rows);
  const RowKernel epilogue(after, fused.y_buffer, product.cols, product.rows);
  if (prologue.granule() == 0 || epilogue.granule() == 0) return false;
  const auto before_rows = [&](int64_t begin, int64_t end, float* rows) { prologue.Run(begin, end, rows); };
  const auto after_rows = [&](int64_t begin, int64_t end, float* rows) { epilogue.Run(begin, end, rows); };
  const RowStages stages{before_rows, after_rows, fused.private_x, fused.private_y, std::lcm(prologue.granule(), epilogue.granule())};
  product.fresh_w = fused.fresh_w;
  if (!SuitsRowStages(product, stages.granule)) return false;
  RunProduct(product, stages, runtime::Active().isa);
  return true;
}

bool Contains(const std::vector<int32_t>& list, int32_t item) { return std::find(list.begin(), list.end(), item) != list.end(); }

bool Meet(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](int32_t item) { return Contains(b, item); });
}

bool Touches(const StepSpec& step, int32_t memory) { return Contains(step.reads, memory) || Contains(step.writes, memory); }

// Whether two steps can change places.
bool AreIndependent(const StepSpec& a, const StepSpec& b) {
  return !Meet(a.writes, b.writes) && !Meet(a.writes, b.reads) && !Meet(b.writes, a.reads);
}

class Fuser {
 public:
  Fuser(const ProductSteps& products, ProgramSpec* spec) : spec_(*spec) {
    for (size_t s = 0; s < spec_.steps.size(); ++s) {
      const ProductCall& product = products[s];
      steps_.push_back({std::move(spec_.steps[s]), product, kFree});
    }
  }

  std::vector<std::string> Run() {
    for (int s = 0; s < size(); ++s) {
      if (steps_[s].product.describe != nullptr) TryFuse(s);
    }
    Arrange();
    return std::move(lines_);
  }

 private:
  static constexpr int kFree = -1;
  static constexpr int kFarthest = 12;  // Steps between two that are brought together.

  struct Step {
    StepSpec spec;
    ProductCall product;
    int chosen;  // Which of chosen_ it belongs to.
  };

  // Steps that will be neighbours. -1: none.
  struct Chosen {
    int before, call, after;
    FusedProduct plan;
    int last() const { return after >= 0 ? after : call; }
  };

  int size() const { return static_cast<int>(steps_.size()); }
  const StepSpec& spec(int s) const { return steps_[s].spec; }
  const KernelLaunch* LaunchOf(int s) const { return std::get_if<KernelLaunch>(&spec(s).work); }

  // The memory that the call's matrix y is, and the whole of it; -1 where it is not.
  int32_t ResultOf(int s) const {
    const auto& call = std::get<AtenCall>(spec(s).work);
    const WindowSpec& window = call.results.empty() ? call.args.back().windows[0] : call.results[0];
    return spec(s).writes.size() == 1 && IsMatrix(window) ? window.memory : -1;
  }

  int32_t OperandOf(int s) const {
    const WindowSpec& window = std::get<AtenCall>(spec(s).work).args[steps_[s].product.x].windows[0];
    return steps_[s].product.takes_all_rows && IsMatrix(window) ? window.memory : -1;
  }

  // Whether the window is a dense matrix from its memory's first element on.
  static bool IsMatrix(const WindowSpec& window) {
    return window.offset_slot < 0 && window.sizes.size() >= 2 && window.dtype == c10::kFloat && window.sizes[1] != 0 &&
           HasDenseRows(window.sizes, window.strides);
  }

  // The one buffer of a kernel that is `memory`, where it walks it in order; -1 if there is no such.
  int WalkedBuffer(const KernelLaunch& launch, int32_t memory) const {
    if (!launch.checks.empty()) return -1;
    int found = -1;
    for (size_t b = 0; b < launch.buffers.size(); ++b) {
      if (launch.buffers[b].memory != memory) continue;
      if (found >= 0 || launch.buffers[b].offset_slot >= 0 || launch.buffers[b].element_size != sizeof(float)) return -1;
      found = static_cast<int>(b);
    }
    return found >= 0 && static_cast<const CompiledKernel*>(launch.kernel.get())->Walks(found) ? found : -1;
  }

  // Whether nobody but steps `a` and `b` touches the memory, and nobody does after the run.
  bool IsPrivate(int32_t memory, int a, int b) const {
    if (spec_.memories[memory].storage >= 0) return false;
    for (int s = 0; s < size(); ++s) {
      if (s != a && s != b && Touches(spec(s), memory)) return false;
    }
    return true;
  }

  void TryFuse(int call) {
    Chosen chosen{-1, call, -1, {}};
    chosen.plan.describe = steps_[call].product.describe;
    chosen.plan.fresh_w = steps_[call].product.fresh_w;
    FindEpilogue(&chosen);
    FindPrologue(&chosen);
    const bool needs_epilogue = spec_.memories[spec(call).writes[0]].kind == MemorySpec::Kind::kAdopted;
    if ((chosen.after < 0 && chosen.before < 0) || (needs_epilogue && !chosen.plan.private_y)) return;
    for (const int s : {chosen.before, chosen.call, chosen.after}) {
      if (s >= 0) steps_[s].chosen = static_cast<int>(chosen_.size());
    }
    lines_.push_back(LineOf(chosen));
    chosen_.push_back(chosen);
  }

  // A kernel that reads all of y, and writes nothing that the product reads.
  void FindEpilogue(Chosen* chosen) const {
    const int call = chosen->call;
    const int32_t y = ResultOf(call);
    if (y < 0) return;
    for (int s = call + 1; s < std::min(size(), call + kFarthest); ++s) {
      if (!Touches(spec(s), y)) continue;
      const KernelLaunch* launch = LaunchOf(s);
      if (launch == nullptr || steps_[s].chosen != kFree || Contains(spec(s).writes, y) || Meet(spec(s).writes, spec(call).reads)) return;
      const int buffer = WalkedBuffer(*launch, y);
      if (buffer < 0 || !CanMeet(*chosen, call, s)) return;
      chosen->after = s;
      chosen->plan.y_buffer = buffer;
      chosen->plan.private_y = IsPrivate(y, call, s);
      return;
    }
  }

  // The kernel that writes all of x, and nothing that the product's other operands or the epilogue have to do with.
  void FindPrologue(Chosen* chosen) const {
    const int call = chosen->call;
    const int32_t x = OperandOf(call);
    if (x < 0) return;
    for (int s = call - 1; s >= std::max(0, call - kFarthest); --s) {
      if (!Contains(spec(s).writes, x)) continue;
      const KernelLaunch* launch = LaunchOf(s);
      if (launch == nullptr || steps_[s].chosen != kFree || Contains(spec(s).reads, x)) return;
      for (const int32_t memory : spec(s).writes) {
        if (memory != x && Contains(spec(call).reads, memory)) return;
        if (chosen->after >= 0 && Touches(spec(chosen->after), memory)) return;
      }
      if (chosen->after >= 0 && Meet(spec(chosen->after).writes, spec(s).reads)) return;
      const int buffer = WalkedBuffer(*launch, x);
      Chosen with = *chosen;
      with.before = s;
      if (buffer < 0 || !CanMeet(with, s, with.last())) return;
      with.plan.x_buffer = buffer;
      with.plan.private_x = IsPrivate(x, s, call);
      *chosen = with;
      return;
    }
  }

  // Whether what stands between steps `first` and `last`, and is not `chosen` itself, can go before them all. Steps that were brought
  // together before stay so.
  bool CanMeet(const Chosen& chosen, int first, int last) const {
    for (int s = first + 1; s < last; ++s) {
      if (s == chosen.call || s == chosen.after) continue;
      if (steps_[s].chosen != kFree) return false;
      for (const int member : {chosen.before, chosen.call}) {
        if (member >= first && member < s && !AreIndependent(spec(member), spec(s))) return false;
      }
    }
    return true;
  }

  // Writes the steps back, chosen ones together where their last one was.
  void Arrange() {
    std::vector<StepSpec>& out = spec_.steps;
    out.clear();
    for (int s = 0; s < size(); ++s) {
      const int c = steps_[s].chosen;
      if (c == kFree) {
        out.push_back(std::move(steps_[s].spec));
      } else if (s == chosen_[c].last()) {
        Add(chosen_[c]);
      }
    }
  }

  void Add(const Chosen& chosen) {
    const size_t first = spec_.steps.size();
    FusedSteps fused;
    fused.has_before = chosen.before >= 0;
    fused.plan = std::make_shared<const FusedProduct>(chosen.plan);
    fused.run = &codegen::Run;
    for (const int s : {chosen.before, chosen.call, chosen.after}) {
      if (s >= 0) spec_.steps.push_back(std::move(steps_[s].spec));
    }
    spec_.steps[first].batch = static_cast<int32_t>(spec_.steps.size() - first);
    spec_.steps[first].fused = std::move(fused);
  }

  std::string LineOf(const Chosen& chosen) const {
    std::string line = std::get<AtenCall>(spec(chosen.call).work).name;
    if (chosen.before >= 0)
      absl::StrAppend(&line, ", its operand by ", LaunchOf(chosen.before)->name, chosen.plan.private_x ? " in cache" : "");
    if (chosen.after >= 0)
      absl::StrAppend(&line, ", its result into ", LaunchOf(chosen.after)->name, chosen.plan.private_y ? " from cache" : "");
    return line;
  }

  ProgramSpec& spec_;
  std::vector<Step> steps_;
  std::vector<Chosen> chosen_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> FuseProducts(const ProductSteps& products, ProgramSpec* spec) { return Fuser(products, spec).Run(); }

}  // namespace lazuli::codegen
