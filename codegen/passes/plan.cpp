#include "codegen/passes/plan.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/compile_kernels.h"
#include "codegen/cuda/open_size.h"
#include "codegen/cuda/partial_sums.h"
#include "codegen/lower_group.h"
#include "codegen/out_variants.h"
#include "codegen/passes/arena.h"
#include "codegen/passes/batch.h"
#include "codegen/passes/sink_updates.h"
#include "codegen/passes/value_uses.h"
#include "codegen/products/attention_op.h"
#include "codegen/products/direct_calls.h"
#include "codegen/products/fused_product.h"
#include "codegen/products/packed_convolution.h"
#include "runtime/dump.h"
#include "runtime/log.h"

namespace lazuli::codegen {
namespace {

using runtime::AddUnique;
using runtime::AtenCall;
using runtime::CallArg;
using runtime::KernelLaunch;
using runtime::MemorySpec;
using runtime::StepSpec;
using runtime::WindowSpec;

void RunKernel(const void* kernel, void* const* buffers, const uint64_t* scalars, const int64_t* symbols) {
  static_cast<const CompiledKernel*>(kernel)->Run(buffers, scalars, symbols);
}

bool IsTensorType(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::OptionalType && type.containedTypes()[0]->kind() == c10::TypeKind::TensorType;
}

bool IsOptionalList(const c10::Type& type) {
  const c10::Type* list = &type;
  if (list->kind() == c10::TypeKind::OptionalType) list = list->containedTypes()[0].get();
  return list->kind() == c10::TypeKind::ListType && list->containedTypes()[0]->kind() == c10::TypeKind::OptionalType;
}

class Planner {
 public:
  Planner(const Graph& graph, const PlanOptions& options, PlanReport* report)
      : graph_(graph), options_(options), report_(report), in_memory_(ValuesInMemory(graph)) {
    for (size_t s = 0; s < graph.contents.size(); ++s) {
      if (graph.contents[s] != kNoValue && !graph.storages[s].is_input) {
        output_of_[graph.MemoryOf(graph.contents[s])] = static_cast<StorageId>(s);
      }
    }
  }

  absl::StatusOr<runtime::ProgramSpec> Plan() {
    if (auto status = CompileGroups(); !status.ok()) return status;
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      const Group& group = graph_.groups[g];
      const auto status = group.is_kernel() ? AddKernel(g) : AddCall(graph_.nodes[group.nodes[0]]);
      if (!status.ok()) return status;
    }
    if (sizes_differ_) return absl::UnimplementedError("a result in memory of another size that changes");
    if (options_.direct_calls) BringProductsTogether();
    spec_.symbols = graph_.symbols;
    spec_.num_offsets = graph_.num_offsets;
    spec_.serial = options_.serial;
    spec_.offset_sums = graph_.offset_sums;
    spec_.known_at = options_.known_at;
    SinkUpdates(&spec_);
    BatchKernels(&spec_);
    LogBatches();
    PlaceInArena(&spec_, options_.own_memory);
    return std::move(spec_);
  }

 private:
  // The number of the memory that `value` lives in, made on first use.
  int32_t Memory(ValueId value) {
    const ValueId root = graph_.MemoryOf(value);
    const auto [it, inserted] = memory_of_.try_emplace(root, static_cast<int32_t>(spec_.memories.size()));
    if (!inserted) return it->second;
    MemorySpec memory;
    memory.device = DeviceOf(graph_, root);
    const Value& first = graph_.values[root];
    if (first.producer == kNoNode) {
      memory.kind = MemorySpec::Kind::kInput;
      memory.storage = first.storage;
    } else {
      memory.nbytes = BytesOf(first);
      const auto output = output_of_.find(root);
      memory.kind = output != output_of_.end() ? MemorySpec::Kind::kOutput : MemorySpec::Kind::kArena;
      memory.storage = output != output_of_.end() ? output->second : -1;
      if (output != output_of_.end()) memory.nbytes = Larger(memory.nbytes, graph_.storages[output->second].nbytes);
      if (adopted_.count(root) != 0) memory.kind = MemorySpec::Kind::kAdopted;
    }
    spec_.memories.push_back(memory);
    return it->second;
  }

  int64_t Larger(int64_t a, int64_t b) {
    if (a != b && (graph_.symbols.IsSymbolic(a) || graph_.symbols.IsSymbolic(b))) sizes_differ_ = true;
    return std::max(a, b);
  }

  // Writing into what already has content keeps the rest of it, so it also counts as a read.
  void AddWrite(int32_t memory, StepSpec* step) {
    AddUnique(&step->writes, memory);
    has_content_.resize(spec_.memories.size(), false);
    if (has_content_[memory] || spec_.memories[memory].kind == MemorySpec::Kind::kInput) AddUnique(&step->reads, memory);
    has_content_[memory] = true;
  }

  // What `node`, a part of `step`, overwrites of the trace's inputs.
  void AddOverwrites(const Node& node, StepSpec* step) const {
    ForEachOverwritten(graph_, node, [&](int64_t bytes) {
      step->overwrites_at = std::max(step->overwrites_at, node.op.index + 1);
      step->overwrites += bytes;
    });
  }

  void AddOverwrites(size_t g, StepSpec* step) const {
    for (const NodeId n : graph_.groups[g].nodes) AddOverwrites(graph_.nodes[n], step);
  }

  static int64_t BytesOf(const Value& value) { return value.layout.numel() * static_cast<int64_t>(c10::elementSize(value.layout.dtype)); }

  // The kernels of all groups that are kernels.
  absl::Status CompileGroups() {
    lowered_.resize(graph_.groups.size());
    kernels_.resize(graph_.groups.size());
    names_.resize(graph_.groups.size());
    std::vector<KernelRequest> requests;
    std::vector<size_t> groups;
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      const Group& group = graph_.groups[g];
      if (!group.is_kernel()) continue;
      auto lowered = LowerGroup(graph_, group, in_memory_);
      if (!lowered.ok()) return lowered.status();
      lowered_[g] = *std::move(lowered);
      names_[g] = NameOf(group);
    }
    JoinColumns();
    OpenSizesOnGpu();
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      const Group& group = graph_.groups[g];
      if (!group.is_kernel() || lowered_[g].kernel.insts.empty()) continue;
      if (auto status = Dump(g, lowered_[g]); !status.ok()) return status;
      requests.push_back({&lowered_[g].kernel, TargetOf(group)});
      groups.push_back(g);
    }
    AskForBatches(&requests);
    auto made = CompileKernels(requests);
    if (!made.ok()) return made.status();
    for (size_t i = 0; i < groups.size(); ++i) {
      kernels_[groups[i]] = std::move((*made)[i].kernel);
      const KernelOrigin origin = (*made)[i].origin;
      spec_.bit_exact &= IsBitExact(*requests[i].kernel) && requests[i].target.cuda_arch.empty();
      report_->kernels_compiled += origin == KernelOrigin::kCompiled ? 1 : 0;
      report_->kernel_cache_hits += origin == KernelOrigin::kFound ? 1 : 0;
    }
    return absl::OkStatus();
  }

  void OpenSizesOnGpu() {
    std::vector<SizedKernel> kernels;
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      const Group& group = graph_.groups[g];
      if (!group.is_kernel() || lowered_[g].kernel.insts.empty() || TargetOf(group).cuda_arch.empty()) continue;
      kernels.push_back({&lowered_[g].kernel, &lowered_[g].symbols});
    }
    OpenSizes(kernels);
  }

  // Sums of columns that come right after a kernel of the rows that they are of (column_sums.h).
  void JoinColumns() {
    size_t rows = 0, sums = 0;
    for (size_t g = 1; g < graph_.groups.size(); ++g) {
      const bool both = graph_.groups[g].is_kernel() && graph_.groups[rows].is_kernel() && !lowered_[g].kernel.insts.empty() &&
                        !TargetOf(graph_.groups[g]).cuda_arch.empty() && !TargetOf(graph_.groups[rows]).cuda_arch.empty();
      if (both && JoinColumnSums(&lowered_[rows], &lowered_[g], &partial_bytes_)) {
        absl::StrAppend(&names_[rows], "+", names_[g]);
        if (sums > rows && JoinCombining(&lowered_[sums], &lowered_[g])) {
          absl::StrAppend(&names_[sums], "+", names_[g]);
          joined_[g] = sums;
        } else {
          sums = g;
        }
      } else {
        rows = g;
      }
    }
    partial_sums_.assign(partial_bytes_.size(), -1);
  }

  // The memory of partial sums, which `group` is about to write or read.
  int32_t PartialSums(int32_t number, const Group& group) {
    if (partial_sums_[number] < 0) partial_sums_[number] = AddScratch(partial_bytes_[number], graph_.nodes[group.nodes[0]].op.device);
    return partial_sums_[number];
  }

  // Kernels that a program has several of may run together on a GPU.
  static void AskForBatches(std::vector<KernelRequest>* requests) {
    absl::flat_hash_map<std::string, int> counts;
    const auto counted = [&](const KernelRequest& request) -> int& { return counts[PrintKernel(*request.kernel)]; };
    for (const KernelRequest& request : *requests) counted(request) += request.target.cuda_arch.empty() ? 0 : 1;
    for (KernelRequest& request : *requests) request.target.batches = !request.target.cuda_arch.empty() && counted(request) > 1;
  }

  absl::Status AddKernel(size_t g) {
    const Group& group = graph_.groups[g];
    const LoweredGroup* lowered = &lowered_[g];
    if (kernels_[g] == nullptr) return absl::OkStatus();
    StepSpec step;
    KernelLaunch launch;
    launch.kernel = kernels_[g];
    launch.run = &RunKernel;
    launch.scalar_slots = lowered->scalar_slots;
    launch.symbols = lowered->symbols;
    launch.touched_bytes = TouchedBytes(lowered->kernel, FirstSymbols(*lowered));
    launch.name = names_[g];
    for (const auto& buffer : lowered->buffers) {
      if (buffer.memory == kNoValue && buffer.partial_sums < 0) {
        launch.buffers.push_back({-1, -1, 1});
        continue;
      }
      const int32_t memory = buffer.partial_sums < 0 ? Memory(buffer.memory) : PartialSums(buffer.partial_sums, group);
      launch.buffers.push_back({memory, buffer.offset_slot, buffer.element_size});
      if (buffer.written) {
        AddWrite(memory, &step);
      } else {
        AddUnique(&step.reads, memory);
      }
    }
    for (const NodeId n : lowered->checks) launch.checks.push_back(CheckOf(group, n, &step));
    AddOverwrites(g, &step);
    for (const auto& [joined, into] : joined_) {
      if (into == g) AddOverwrites(joined, &step);
    }
    if (lowered->checks.empty() && static_cast<const CompiledKernel*>(launch.kernel.get())->CanBatch()) launch.run_batch = &RunBatch;
    if (!TargetOf(group).cuda_arch.empty()) launch.batch_key = launch.kernel.get();
    step.work = std::move(launch);
    spec_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  KernelTarget TargetOf(const Group& group) const {
    KernelTarget target = options_.target;
    if (graph_.nodes[group.nodes[0]].op.device.is_cpu()) target.cuda_arch.clear();
    return target;
  }

  // Node `n` of a group by itself. What has no memory only counts by its shape: indices have one. So does what it would write.
  KernelLaunch::Check CheckOf(const Group& group, NodeId n, StepSpec* step) {
    const TraceOp& op = graph_.nodes[n].op;
    KernelLaunch::Check check{{op.info->handle, op.info->name, {}, {}, op.index, op.device}, {}};
    const auto& schema = op.info->schema().arguments();
    for (size_t i = 0; i < op.args.size(); ++i) {
      check.call.args.push_back(Argument(op.args[i], *schema[i].type(), step));
      const bool target = graph_.nodes[n].is_scatter() && static_cast<int>(i) == graph_.nodes[n].target_arg();
      if (target) check.call.args.back().windows[0].memory = WindowSpec::kNoContent;
    }
    absl::flat_hash_set<ValueId> invalid;
    for (const NodeId member : group.nodes) {
      const Node& node = graph_.nodes[member];
      bool depends = member == n;
      ForEachUse(node, [&](const TensorRef& use) { depends = depends || invalid.count(use.storage) != 0; });
      if (!depends) continue;
      ForEachDef(node, [&](ValueId value) {
        invalid.insert(value);
        if (in_memory_[value]) AddUnique(&check.writes, Memory(value));
      });
    }
    return check;
  }

  // The first values of the kernel's symbols.
  std::vector<int64_t> FirstSymbols(const LoweredGroup& lowered) const {
    std::vector<int64_t> values;
    for (const int64_t number : lowered.symbols) values.push_back(graph_.symbols.Hint(number));
    return values;
  }

  absl::Status Dump(size_t g, const LoweredGroup& lowered) const {
    const Group& group = graph_.groups[g];
    const KernelIR& kernel = lowered.kernel;
    if (runtime::DumpEnabled("kernel")) runtime::WriteDump("kernel", options_.serial, PrintKernel(kernel));
    if (runtime::LogEnabled(runtime::LogCategory::kFusion)) {
      auto explained = ExplainKernel(kernel, TargetOf(group), FirstSymbols(lowered));
      if (!explained.ok()) return explained.status();
      runtime::Log(runtime::LogCategory::kFusion,
                   absl::StrCat("Fused kernel of trace #", options_.serial, ", ", names_[g], ": ", *explained));
    }
    const bool log = runtime::LogEnabled(runtime::LogCategory::kOutputCode);
    if (!log && !runtime::DumpEnabled("llvm")) return absl::OkStatus();
    auto text = KernelSource(kernel, TargetOf(group));
    if (!text.ok()) return text.status();
    runtime::WriteDump("llvm", options_.serial, *text);
    if (log) runtime::Log(runtime::LogCategory::kOutputCode, absl::StrCat("Kernel of trace #", options_.serial, "\n", *text));
    return absl::OkStatus();
  }

  void LogBatches() const {
    if (!runtime::LogEnabled(runtime::LogCategory::kFusion)) return;
    for (auto step = spec_.steps.begin(); step != spec_.steps.end(); step += step->batch) {
      if (step->batch == 1 || step->fused) continue;
      std::vector<std::pair<std::string, int>> names;
      for (auto member = step; member != step + step->batch; ++member) {
        const std::string& name = std::get<KernelLaunch>(member->work).name;
        if (names.empty() || names.back().first != name) names.emplace_back(name, 0);
        ++names.back().second;
      }
      const auto text = absl::StrJoin(names, ", ", [](std::string* out, const auto& name) {
        absl::StrAppend(out, name.second == 1 ? "" : absl::StrCat(name.second, " times "), name.first);
      });
      runtime::Log(runtime::LogCategory::kFusion, absl::StrCat("Batch of trace #", options_.serial, ": ", text));
    }
  }

  std::string NameOf(const Group& group) const {
    std::string name;
    for (NodeId n : group.nodes) {
      if (graph_.nodes[n].op.info != nullptr) absl::StrAppend(&name, name.empty() ? "" : "+", graph_.nodes[n].op.info->name);
    }
    return name;
  }

  absl::Status AddCall(const Node& node) {
    StepSpec step;
    AddOverwrites(node, &step);
    const OpInfo* out = FindOutVariant(node.op);
    AtenCall call{out != nullptr ? out->handle : node.op.info->handle,
                  node.op.info->name,
                  {},
                  {},
                  node.op.index,
                  node.op.device,
                  node.op.default_dtype};
    call.life = out != nullptr ? out->life : node.op.info->life;
    const auto& schema = node.op.info->schema().arguments();
    for (size_t i = 0; i < node.op.args.size(); ++i) call.args.push_back(Argument(node.op.args[i], *schema[i].type(), &step));
    for (size_t i = 0; i < node.op.results.size(); ++i) {
      const ValueId value = node.results[i];
      if (out == nullptr && value != kNoValue) adopted_.insert(graph_.MemoryOf(value));
      WindowSpec window;
      // An out-variant fills all its results, wanted or not.
      if (value != kNoValue || out != nullptr)
        window = Window(node.op.results[i], value != kNoValue ? Memory(value) : Scratch(node.op.results[i], node.op.device));
      if (window.memory >= 0) AddWrite(window.memory, &step);
      if (out == nullptr) {
        call.results.push_back(std::move(window));
      } else {
        CallArg arg;
        arg.kind = CallArg::Kind::kTensor;
        arg.windows = {std::move(window)};
        call.args.push_back(std::move(arg));
      }
    }
    for (ValueId version : node.versions) AddWrite(Memory(version), &step);
    const OpInfo& called = out != nullptr ? *out : *node.op.info;
    const bool direct = options_.direct_calls && node.op.device.is_cpu();
    if (options_.direct_calls) call.direct = FindDirectCall(node, called, graph_, lt_choice_);
    if (direct && options_.pack_weights) FindKeptCall(node, &call);
    spec_.bit_exact &= call.direct == nullptr && call.kept == nullptr && !IsAttentionOp(*node.op.info);
    products_.resize(spec_.steps.size());
    products_.push_back(direct ? FindProductCall(node, called, graph_) : ProductCall());
    step.work = std::move(call);
    spec_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  void FindKeptCall(const Node& node, AtenCall* call) {
    int weight = -1;
    std::shared_ptr<runtime::KeptCall> kept = FindPackedCall(node, graph_, &weight);
    if (kept == nullptr) return;
    call->kept_input = call->args[weight].windows[0].memory;
    call->kept = std::move(kept);
  }

  void BringProductsTogether() {
    products_.resize(spec_.steps.size());
    const std::vector<std::string> lines = FuseProducts(products_, &spec_);
    spec_.bit_exact &= lines.empty();
    if (!runtime::LogEnabled(runtime::LogCategory::kFusion)) return;
    for (const std::string& line : lines) {
      runtime::Log(runtime::LogCategory::kFusion, absl::StrCat("Fused rows of trace #", options_.serial, ": ", line));
    }
  }

  int32_t Scratch(const TensorRef& ref, c10::Device device) {
    return AddScratch(ref.numel() * static_cast<int64_t>(c10::elementSize(ref.dtype)), device);
  }

  int32_t AddScratch(int64_t nbytes, c10::Device device) {
    MemorySpec memory;
    memory.device = device;
    memory.nbytes = nbytes;
    spec_.memories.push_back(memory);
    return static_cast<int32_t>(spec_.memories.size()) - 1;
  }

  static WindowSpec Window(const TensorRef& ref, int32_t memory) {
    return {memory, ref.dtype, ref.sizes, ref.strides, ref.offset_slot, ref.wrapped_number};
  }

  CallArg Argument(const TraceArg& arg, const c10::Type& type, StepSpec* step) {
    CallArg out;
    switch (arg.kind) {
      case TraceArg::Kind::kConst:
        out.value = arg.value;
        break;
      case TraceArg::Kind::kScalar:
        out.kind = IsTensorType(type) ? CallArg::Kind::kScalarTensor : CallArg::Kind::kScalar;
        out.slot = arg.slot;
        out.scalar_type = arg.scalar_type;
        break;
      case TraceArg::Kind::kTensor:
      case TraceArg::Kind::kTensorList:
        // An optional tensor that is there but undefined is not what operators expect where there is none.
        if (arg.kind == TraceArg::Kind::kTensor && type.kind() == c10::TypeKind::OptionalType && !arg.tensors[0].defined()) break;
        out.kind = arg.kind == TraceArg::Kind::kTensor ? CallArg::Kind::kTensor
                   : IsOptionalList(type)              ? CallArg::Kind::kOptionalTensorList
                                                       : CallArg::Kind::kTensorList;
        for (const TensorRef& ref : arg.tensors) {
          if (!ref.defined()) {
            out.windows.emplace_back();
          } else if (graph_.values[ref.storage].producer != kNoNode && !in_memory_[ref.storage]) {
            out.windows.push_back(Window(ref, WindowSpec::kNoContent));
          } else {
            out.windows.push_back(Window(ref, Memory(ref.storage)));
            AddUnique(&step->reads, out.windows.back().memory);
          }
        }
        break;
    }
    return out;
  }

  const Graph& graph_;
  const PlanOptions& options_;
  const LtChoice lt_choice_ = options_.target.autotune_ms > 0 ? LtChoice::kFastest : LtChoice::kFirst;
  PlanReport* report_;
  const std::vector<bool> in_memory_;
  absl::flat_hash_map<ValueId, StorageId> output_of_;  // Memories that leave the trace.
  absl::flat_hash_set<ValueId> adopted_;
  absl::flat_hash_map<ValueId, int32_t> memory_of_;
  ProductSteps products_;
  std::vector<LoweredGroup> lowered_;                           // By group.
  std::vector<std::shared_ptr<const CompiledKernel>> kernels_;  // By group; null where there is nothing to run.
  std::vector<std::string> names_;                              // By group: of what its kernel computes.
  absl::flat_hash_map<size_t, size_t> joined_;                  // Groups whose kernel is part of another group's.
  std::vector<int64_t> partial_bytes_;                          // LoweredGroup::Buffer::partial_sums: their bytes
  std::vector<int32_t> partial_sums_;                           // and memories, made on first use. -1: not yet.
  bool sizes_differ_ = false;                                   // A memory has two sizes of which either may be the larger.
  std::vector<bool> has_content_;                               // By memory: some step wrote it.
  runtime::ProgramSpec spec_;
};

}  // namespace

absl::StatusOr<runtime::ProgramSpec> PlanProgram(const Graph& graph, const PlanOptions& options, PlanReport* report) {
  return Planner(graph, options, report).Plan();
}

}  // namespace lazuli::codegen
