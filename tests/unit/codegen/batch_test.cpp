// Kernels that run together: which ones, where their memory lies, how their units are divided, and what a failure leaves out.
#include "codegen/passes/batch.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <atomic>

#include "codegen/kernel_runner.h"
#include "codegen/passes/plan.h"
#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;
using runtime::BoundKernel;
using runtime::KernelLaunch;
using runtime::MemorySpec;
using runtime::ProgramSpec;
using runtime::StepSpec;
using ::testing::ElementsAre;

// Doubles the first number of its first buffer into its second one.
void Double(const void*, void* const* buffers, const uint64_t*, const int64_t*) {
  static_cast<float*>(buffers[1])[0] = 2 * static_cast<float*>(buffers[0])[0];
}

int g_batched = 0;

void DoubleBatch(absl::Span<const BoundKernel> batch) {
  g_batched += static_cast<int>(batch.size());
  for (size_t i = batch.size(); i-- > 0;) Double(batch[i].kernel, batch[i].buffers, batch[i].scalars, batch[i].symbols);
}

StepSpec Launch(int32_t from, int32_t to, bool batchable = true) {
  StepSpec step;
  KernelLaunch launch;
  launch.name = std::to_string(from) + ">" + std::to_string(to);
  launch.run = &Double;
  if (batchable) launch.run_batch = &DoubleBatch;
  launch.buffers = {{from, -1, 4}, {to, -1, 4}};
  step.work = std::move(launch);
  step.reads = {from};
  step.writes = {to};
  return step;
}

MemorySpec Arena(int64_t nbytes) {
  MemorySpec memory;
  memory.nbytes = nbytes;
  return memory;
}

MemorySpec Input(int32_t storage) {
  MemorySpec memory;
  memory.kind = MemorySpec::Kind::kInput;
  memory.storage = storage;
  memory.nbytes = 64;
  return memory;
}

// The steps after the pass: "0>1 2>3 | 1>4", batches between bars.
std::string Batched(ProgramSpec spec) {
  BatchKernels(&spec);
  std::string text;
  for (size_t i = 0; i < spec.steps.size();) {
    if (i > 0) text += " | ";
    const int32_t count = spec.steps[i].batch;
    for (int32_t k = 0; k < count; ++k, ++i) {
      text += (k > 0 ? " " : "") + std::get<KernelLaunch>(spec.steps[i].work).name;
      EXPECT_EQ(spec.steps[i].batch, k == 0 ? count : 1);
    }
  }
  return text;
}

ProgramSpec SpecOf(int num_inputs, std::vector<StepSpec> steps) {
  ProgramSpec spec;
  for (int i = 0; i < num_inputs; ++i) spec.memories.push_back(Input(i));
  spec.steps = std::move(steps);
  return spec;
}

TEST(BatchPassTest, IndependentLaunchesAreOneBatch) { EXPECT_EQ(Batched(SpecOf(4, {Launch(0, 1), Launch(2, 3)})), "0>1 2>3"); }

TEST(BatchPassTest, ReadersOfOneMemoryAreIndependent) { EXPECT_EQ(Batched(SpecOf(3, {Launch(0, 1), Launch(0, 2)})), "0>1 0>2"); }

TEST(BatchPassTest, EachKindOfDependenceKeepsThemApart) {
  EXPECT_EQ(Batched(SpecOf(3, {Launch(0, 1), Launch(1, 2)})), "0>1 | 1>2");
  EXPECT_EQ(Batched(SpecOf(3, {Launch(1, 2), Launch(0, 1)})), "1>2 | 0>1");
  EXPECT_EQ(Batched(SpecOf(3, {Launch(0, 2), Launch(1, 2)})), "0>2 | 1>2");
}

TEST(BatchPassTest, ChainsRunSideBySide) {
  EXPECT_EQ(Batched(SpecOf(6, {Launch(0, 1), Launch(1, 2), Launch(3, 4), Launch(4, 5)})), "0>1 3>4 | 1>2 4>5");
}

TEST(BatchPassTest, OthersStayInOrderAndLaunchesMovePastThem) {
  EXPECT_EQ(Batched(SpecOf(8, {Launch(0, 1), Launch(2, 3, false), Launch(4, 5, false), Launch(3, 6), Launch(0, 7)})),
            "0>1 0>7 | 2>3 | 4>5 | 3>6");
}

TEST(BatchPassTest, NoMoreMemoryAtThePeak) {
  // 0>3 could run with 0>1, but then its result would be there while 1 and 2 are.
  const auto spec = [](int64_t first, int64_t second) {
    ProgramSpec spec = SpecOf(1, {Launch(0, 1), Launch(1, 2, false), Launch(2, 0, false), Launch(0, 3), Launch(3, 0, false)});
    spec.memories.insert(spec.memories.end(), {Arena(first), Arena(first), Arena(second)});
    spec.steps[2].reads = {2};
    spec.steps[2].writes = {4};
    spec.steps[4].reads = {3};
    spec.steps[4].writes = {4};
    spec.memories.push_back(Input(1));
    return spec;
  };
  EXPECT_EQ(Batched(spec(64, 64)), "0>1 | 1>2 | 2>0 | 0>3 | 3>0");
  ProgramSpec more = spec(64, 64);
  more.memories.push_back(Arena(64));  // Alive with 1 and 2: there is room for one more at their time.
  more.steps.push_back(Launch(0, 5, false));
  more.steps.push_back(Launch(0, 6, false));
  more.steps.push_back(Launch(0, 7, false));
  more.steps.push_back(Launch(5, 4, false));
  more.steps.back().reads = {5, 6, 7};
  more.memories.insert(more.memories.end(), {Arena(64), Arena(64)});
  EXPECT_EQ(Batched(more), "0>1 0>3 | 1>2 | 2>0 | 3>0 | 0>5 | 0>6 | 0>7 | 5>4");
}

TEST(BatchPassTest, LaunchesOverMuchMemoryOnlyJoinTheirNeighbours) {
  const auto spec = [](int64_t touched_bytes) {
    ProgramSpec spec = SpecOf(7, {Launch(0, 1), Launch(2, 3, false), Launch(0, 5), Launch(0, 6), Launch(5, 4, false)});
    std::get<KernelLaunch>(spec.steps[2].work).touched_bytes = touched_bytes;
    std::get<KernelLaunch>(spec.steps[3].work).touched_bytes = touched_bytes;
    return spec;
  };
  EXPECT_EQ(Batched(spec(1 << 10)), "0>1 0>5 0>6 | 2>3 | 5>4");
  EXPECT_EQ(Batched(spec(1 << 20)), "0>1 | 2>3 | 0>5 0>6 | 5>4");
}

// As on GPUs, where a batch is one launch of one kernel.
TEST(BatchPassTest, LaunchesWithKeysJoinThoseWithTheSame) {
  const int a = 0, b = 0;
  ProgramSpec spec = SpecOf(10, {Launch(0, 1), Launch(1, 2), Launch(3, 4), Launch(4, 5), Launch(6, 7)});
  for (const int i : {0, 2}) std::get<KernelLaunch>(spec.steps[i].work).batch_key = &a;
  for (const int i : {1, 3}) std::get<KernelLaunch>(spec.steps[i].work).batch_key = &b;
  EXPECT_EQ(Batched(spec), "0>1 3>4 | 1>2 4>5 | 6>7");
}

TEST(BatchPassTest, MuchMemoryIsMoreOnAGpu) {
  ProgramSpec spec = SpecOf(7, {Launch(0, 1), Launch(2, 3, false), Launch(0, 5), Launch(5, 4, false)});
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{1} << 25}) {
    std::get<KernelLaunch>(spec.steps[2].work).touched_bytes = bytes;
    for (MemorySpec& memory : spec.memories) memory.device = c10::Device(c10::kCUDA, 0);
    EXPECT_EQ(Batched(spec), bytes == 1 << 20 ? "0>1 0>5 | 2>3 | 5>4" : "0>1 | 2>3 | 0>5 | 5>4");
  }
}

// Inputs of one float each, from 1 on, run through `spec`.
struct Memories {
  explicit Memories(int count) {
    for (int i = 0; i < count; ++i) tensors.push_back(at::full({16}, i + 1.0F));
    for (const at::Tensor& tensor : tensors) storages.push_back(tensor.storage().unsafeGetStorageImpl());
  }
  runtime::RunResult Run(ProgramSpec spec) {
    runtime::RunArgs args;
    args.storages = storages;
    return runtime::MakeProgram(std::move(spec))->Run(args);
  }
  std::vector<float> values() const {
    std::vector<float> values;
    for (const at::Tensor& tensor : tensors) values.push_back(tensor[0].item<float>());
    return values;
  }
  std::vector<at::Tensor> tensors;
  std::vector<c10::StorageImpl*> storages;
};

TEST(BatchRunTest, RunsEachMemberOnce) {
  Memories memories(5);
  ProgramSpec spec = SpecOf(5, {Launch(0, 1), Launch(1, 2), Launch(3, 4)});
  BatchKernels(&spec);
  g_batched = 0;
  EXPECT_EQ(memories.Run(std::move(spec)).error, nullptr);
  EXPECT_EQ(g_batched, 2);
  EXPECT_THAT(memories.values(), ElementsAre(1, 2, 4, 4, 8));
}

// Adds sizes that do not fit, into `memory`.
StepSpec FailingCall(int32_t memory) {
  StepSpec step;
  runtime::AtenCall call{c10::Dispatcher::singleton().findSchemaOrThrow("aten::add_", "Tensor"), "aten::add_", {}, {}, 0};
  for (const int64_t size : {2, 3}) {
    runtime::CallArg arg;
    arg.kind = runtime::CallArg::Kind::kTensor;
    arg.windows = {{memory, at::kFloat, {size}, {1}}};
    call.args.push_back(std::move(arg));
  }
  call.args.emplace_back();
  call.args.back().value = 1;
  step.work = std::move(call);
  step.reads = step.writes = {memory};
  return step;
}

TEST(BatchRunTest, AfterAFailureOnlyWhatDependsOnItIsLeftOut) {
  Memories memories(6);
  ProgramSpec spec = SpecOf(6, {FailingCall(0), Launch(0, 1), Launch(2, 3), Launch(1, 4), Launch(3, 5)});
  BatchKernels(&spec);
  ASSERT_EQ(spec.steps[1].batch, 2);
  ASSERT_EQ(spec.steps[3].batch, 2);
  g_batched = 0;
  const runtime::RunResult result = memories.Run(std::move(spec));
  EXPECT_NE(result.error, nullptr);
  EXPECT_EQ(result.failed_op, "aten::add_");
  EXPECT_EQ(g_batched, 0);
  EXPECT_THAT(memories.values(), ElementsAre(1, 2, 3, 6, 5, 12));
}

TEST(BatchRunTest, ABatchThatFailsFailsForEachMember) {
  Memories memories(6);
  ProgramSpec spec = SpecOf(6, {Launch(0, 1), Launch(2, 3), Launch(1, 4, false), Launch(0, 5, false)});
  for (size_t i = 0; i < 2; ++i) {
    std::get<KernelLaunch>(spec.steps[i].work).run_batch = [](absl::Span<const BoundKernel>) { throw std::bad_alloc(); };
  }
  spec.steps[0].batch = 2;
  EXPECT_NE(memories.Run(std::move(spec)).error, nullptr);
  EXPECT_THAT(memories.values(), ElementsAre(1, 2, 3, 4, 5, 2));
}

// Counts how often each of a kernel's units ran; its only buffer is the counts.
void CountUnits(void* const* buffers, const uint64_t*, const int64_t*, int64_t begin, int64_t end, void*) {
  for (int64_t unit = begin; unit < end; ++unit) static_cast<std::atomic<int>*>(buffers[0])[unit].fetch_add(1);
}

// The second phase: every unit adds up the scratch that the first one left.
void FillScratch(void* const*, const uint64_t*, const int64_t*, int64_t begin, int64_t end, void* scratch) {
  for (int64_t unit = begin; unit < end; ++unit) static_cast<int*>(scratch)[unit] = 1;
}
void AddScratch(void* const* buffers, const uint64_t*, const int64_t* symbols, int64_t begin, int64_t end, void* scratch) {
  for (int64_t unit = begin; unit < end; ++unit) {
    int sum = 0;
    for (int64_t i = 0; i < symbols[0]; ++i) sum += static_cast<int*>(scratch)[i];
    static_cast<std::atomic<int>*>(buffers[0])[unit].fetch_add(sum);
  }
}

RunnablePhase Phase(KernelFunction function, runtime::Product units, int64_t unit_ns) {
  RunnablePhase phase;
  phase.function = function;
  phase.units.outer = std::move(units);
  phase.unit_ns = unit_ns;
  phase.grain = std::max<int64_t>(1, kGrainNs / unit_ns);
  return phase;
}

class BatchUnitsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_P(BatchUnitsTest, EveryUnitRunsOnceForAllSizes) {
  const runtime::Product n{1, {0}}, twice{2, {0}}, one{1, {}};
  std::vector<KernelRunner> runners;
  runners.emplace_back(nullptr, std::vector<RunnablePhase>{Phase(&CountUnits, n, 10)}, ScratchSize(), true);
  runners.emplace_back(nullptr, std::vector<RunnablePhase>{Phase(&CountUnits, one, 3000)}, ScratchSize(), true);
  runners.emplace_back(nullptr, std::vector<RunnablePhase>(), ScratchSize(), true);
  runners.emplace_back(nullptr, std::vector<RunnablePhase>{Phase(&CountUnits, twice, 7000)}, ScratchSize(), true);
  runners.emplace_back(nullptr, std::vector<RunnablePhase>{Phase(&CountUnits, n, 1000)}, ScratchSize(), true);
  for (const int64_t size : {0, 1, 2, 3, 17, 1000}) {
    std::vector<std::vector<std::atomic<int>>> counts;
    std::vector<void*> buffers;
    for (size_t i = 0; i < runners.size(); ++i) {
      counts.emplace_back(2 * size + 2);
      buffers.push_back(counts.back().data());
    }
    std::vector<BoundKernel> batch;
    for (size_t i = 0; i < runners.size(); ++i)
      batch.push_back({static_cast<CompiledKernel*>(&runners[i]), &buffers[i], 1, nullptr, &size});
    RunBatch(batch);
    const int64_t units[] = {size, 1, 0, 2 * size, size};
    for (size_t i = 0; i < runners.size(); ++i) {
      for (size_t unit = 0; unit < counts[i].size(); ++unit) {
        ASSERT_EQ(counts[i][unit].load(), static_cast<int64_t>(unit) < units[i] ? 1 : 0) << "kernel " << i << " unit " << unit;
      }
    }
  }
}

TEST_P(BatchUnitsTest, PhasesFollowEachOtherEachInScratchOfItsOwn) {
  const runtime::Product n{1, {0}}, one{1, {}};
  const int64_t sizes[] = {5, 300, 40};
  std::vector<KernelRunner> runners;
  for (int i = 0; i < 2; ++i) {
    ScratchSize scratch;
    scratch.kept = n;
    scratch.element_bytes = {4};
    runners.emplace_back(nullptr, std::vector<RunnablePhase>{Phase(&FillScratch, n, 4000), Phase(&AddScratch, one, 10)}, scratch, true);
  }
  runners.emplace_back(nullptr, std::vector<RunnablePhase>{Phase(&CountUnits, n, 4000)}, ScratchSize(), true);
  std::vector<std::atomic<int>> counts(64);
  void* buffers[] = {&counts[0], &counts[1], &counts[2]};
  std::vector<BoundKernel> batch;
  for (int i = 0; i < 3; ++i) batch.push_back({static_cast<CompiledKernel*>(&runners[i]), &buffers[i], 1, nullptr, &sizes[i]});
  RunBatch(batch);
  EXPECT_EQ(counts[0].load(), 5);
  EXPECT_EQ(counts[1].load(), 300);
  for (int i = 2; i < 42; ++i) EXPECT_EQ(counts[i].load(), 1) << i;
}

INSTANTIATE_TEST_SUITE_P(Threads, BatchUnitsTest, ::testing::Values(1, 2, 8));

absl::StatusOr<ProgramSpec> PlanOf(const EagerTrace& trace) {
  PipelineOptions options;
  options.backend = "llvm";
  options.target = {"avx512", "eager"};
  auto graph = RunPasses(trace.trace(), options, "fuse");
  if (!graph.ok()) return graph.status();
  PlanReport report;
  return PlanProgram(*graph, {options.target}, &report);
}

// Memories in use at the same time, those of a batch all at once, that share a place in the arena.
int Clashes(const ProgramSpec& spec) {
  struct Use {
    int first = -1, last = -1;
  };
  std::vector<Use> uses(spec.memories.size());
  int slot = -1, left = 0;
  for (const StepSpec& step : spec.steps) {
    if (left == 0) ++slot, left = step.batch;
    --left;
    for (const auto* list : {&step.reads, &step.writes}) {
      for (const int32_t m : *list) uses[m] = {uses[m].first < 0 ? slot : uses[m].first, slot};
    }
  }
  int clashes = 0;
  for (size_t a = 0; a < uses.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const MemorySpec &x = spec.memories[a], &y = spec.memories[b];
      if (x.kind != MemorySpec::Kind::kArena || y.kind != MemorySpec::Kind::kArena) continue;
      const bool at_once = uses[a].first <= uses[b].last && uses[b].first <= uses[a].last;
      clashes += at_once && x.offset < y.offset + y.nbytes && y.offset < x.offset + x.nbytes;
    }
  }
  return clashes;
}

TEST(BatchPlanTest, MembersShareNoMemoryWithEachOther) {
  EagerTrace t;
  const auto a = t.Input(at::randn({32, 32})), b = t.Input(at::randn({32, 32}));
  // Three products at a time, so that there is room for what follows.
  const auto p = t.Op1("aten::mm", {a, a}), q = t.Op1("aten::mm", {p, b}), r = t.Op1("aten::mm", {p, q});
  const auto x = t.Op1("aten::mm", {r, q});
  t.Keep(t.Op1("aten::relu", {x}));            // x is not needed any more,
  const auto z = t.Op1("aten::sigmoid", {b});  // and this has its size.
  t.Keep(t.Op1("aten::mm", {z, z}));
  auto spec = PlanOf(t);
  ASSERT_TRUE(spec.ok()) << spec.status();
  int batches = 0;
  for (const StepSpec& step : spec->steps) batches += step.batch > 1;
  EXPECT_EQ(batches, 1);
  EXPECT_EQ(Clashes(*spec), 0);
  ASSERT_EQ(spec->arenas.size(), 1u);
  EXPECT_EQ(spec->arenas[0].nbytes, 3 * 32 * 32 * 4);
}

}  // namespace
}  // namespace lazuli::codegen
