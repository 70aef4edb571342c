// What is read window by window: where it comes from, and what is left of what it was put together in.
#include "codegen/passes/windows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "codegen/lower_group.h"
#include "codegen/passes/window_map.h"
#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

const PipelineOptions& WindowOptions() {
  static const PipelineOptions* const options = [] {
    auto* const made = new PipelineOptions;
    made->target = {"avx2", "eager"};
    return made;
  }();
  return *options;
}

// The graph after the pass, and with its groups, whose kernels give what eager gave.
Graph ComputedInWindows(const EagerTrace& trace) {
  auto graph = RunPasses(trace.trace(), WindowOptions(), "windows");
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  const std::string text = PrintGraph(*graph);
  const auto parsed = ParseGraph(text);
  EXPECT_TRUE(parsed.ok() && PrintGraph(*parsed) == text) << text;
  const auto program = Compile(trace.trace(), WindowOptions(), nullptr);
  EXPECT_TRUE(program.ok()) << program.status();
  if (program.ok()) trace.ExpectMatches(**program, 1e-6, 1e-6);
  graph = RunPasses(trace.trace(), WindowOptions(), "fuse");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

int CountKernels(const Graph& graph) {
  int count = 0;
  const std::vector<bool> in_memory = ValuesInMemory(graph);
  for (const Group& group : graph.groups) {
    if (!group.is_kernel()) continue;
    const auto lowered = LowerGroup(graph, group, in_memory);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    if (lowered.ok() && !lowered->kernel.insts.empty()) ++count;
  }
  return count;
}

bool HasOp(const Graph& graph, const std::string& name) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& node) { return node.op.info != nullptr && node.op.info->name == name; });
}

int CountUpdates(const Graph& graph) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.kind == Node::Kind::kUpdate; }));
}

c10::List<at::Tensor> TensorsOf(const std::vector<at::Tensor>& tensors) { return c10::List<at::Tensor>(tensors); }

TEST(WindowsTest, ComponentsOfWhatIsComputedAreComputed) {
  EagerTrace trace;
  const at::Tensor o = trace.Input(at::randn({50, 3})), d = trace.Input(at::randn({50, 3})), t = trace.Input(at::randn({50}));
  const at::Tensor p = trace.Op1("aten::add.Tensor", {o, trace.Op1("aten::mul.Tensor", {d, t.unsqueeze(1)})});
  const at::Tensor xy = trace.Op1("aten::mul.Tensor", {p.select(1, 0), p.select(1, 1)});
  trace.Keep(trace.Op1("aten::sub.Tensor", {xy, p.select(1, 2)}));
  EXPECT_EQ(CountKernels(ComputedInWindows(trace)), 1);
}

// The length of a vector beside its coordinates.
TEST(WindowsTest, ReductionsOfComponents) {
  for (const bool keep : {false, true}) {
    for (const char* name : {"aten::linalg_vector_norm", "aten::sum.dim_IntList", "aten::amax"}) {
      SCOPED_TRACE(name);
      EagerTrace trace;
      const at::Tensor x = trace.Input(at::randn({50, 3}));
      const at::Tensor p = trace.Op1("aten::sin", {x});
      std::vector<c10::IValue> args = {p, std::vector<int64_t>{1}, keep};
      if (std::string(name) == "aten::linalg_vector_norm") args.insert(args.begin() + 1, 2);
      const at::Tensor reduced = trace.Op1(name, args);
      trace.Keep(trace.Op1("aten::mul.Tensor", {keep ? reduced.select(1, 0) : reduced, p.select(1, 1)}));
      EXPECT_EQ(CountKernels(ComputedInWindows(trace)), 1);
    }
  }
}

TEST(WindowsTest, SumsOfBooleansThatAreBooleans) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({50, 3}).to(at::kBool)), y = trace.Input(at::randn({50, 3}).to(at::kBool));
  const at::Tensor both = trace.Op1("aten::logical_and", {x, y});
  const at::Tensor any = trace.Op1("aten::sum.dim_IntList", {both, std::vector<int64_t>{1}, false, static_cast<int64_t>(at::kBool)});
  trace.Keep(trace.Op1("aten::eq.Tensor", {any, both.select(1, 1)}));
  ComputedInWindows(trace);
}

TEST(WindowsTest, HalvesOfRowsBesideABias) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({7, 20})), bias = trace.Input(at::randn({20}));
  const at::Tensor h = trace.Op1("aten::add.Tensor", {x, bias});
  trace.Keep(trace.Op1("aten::mul.Tensor", {trace.Op1("aten::sigmoid", {h.slice(1, 0, 10)}), h.slice(1, 10, 20)}));
  EXPECT_EQ(CountKernels(ComputedInWindows(trace)), 1);
}

TEST(WindowsTest, WindowsOfReshapedTensors) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({4, 6, 8})), bias = trace.Input(at::randn({8}));
  const at::Tensor h = trace.Op1("aten::add.Tensor", {x, bias}).view({24, 2, 4});
  trace.Keep(trace.Op1("aten::mul.Tensor", {h.select(1, 0), h.select(1, 1)}));
  EXPECT_EQ(CountKernels(ComputedInWindows(trace)), 1);
}

TEST(WindowsTest, TurnedWindowsInSteps) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({6, 9}));
  const at::Tensor h = trace.Op1("aten::tanh", {x.t()});  // [9, 6], rows side by side.
  trace.Keep(trace.Op1("aten::mul.Tensor", {h.slice(0, 1, 9, 3).t(), h.slice(0, 2, 9, 3).t()}));
  EXPECT_EQ(CountKernels(ComputedInWindows(trace)), 1);
}

// Each step of a simulation takes its state apart and stacks the next one.
TEST(WindowsTest, StatesThatAreStackedAgain) {
  EagerTrace trace;
  at::Tensor state = trace.Input(at::randn({40, 2}));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = state.select(1, 0), v = state.select(1, 1);
    const at::Tensor next_v = trace.Op1("aten::sub.Tensor", {v, trace.Op1("aten::mul.Tensor", {trace.Op1("aten::sin", {x}), 0.1})});
    const at::Tensor next_x = trace.Op1("aten::add.Tensor", {x, trace.Op1("aten::mul.Tensor", {next_v, 0.1})});
    state = trace.Op1("aten::stack", {TensorsOf({next_x, next_v}), 1});
  }
  trace.Keep(state);
  const Graph graph = ComputedInWindows(trace);
  EXPECT_EQ(CountKernels(graph), 1);
  EXPECT_EQ(CountUpdates(graph), 2) << "only the last state is put together";
}

TEST(WindowsTest, WhatAWriteThroughAWindowPutThere) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({8, 6}));
  const at::Tensor h = trace.Op1("aten::tanh", {x});
  trace.Op("aten::mul_.Tensor", {h.slice(1, 2, 6), 0.5});
  trace.Keep(trace.Op1("aten::exp", {h.slice(1, 3, 5)}));
  trace.Keep(h);
  ComputedInWindows(trace);
}

TEST(WindowsTest, WhatIsPutTogetherForOthersIsNotTakenApart) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({8, 6})), w = trace.Input(at::randn({3, 5}));
  const at::Tensor h = trace.Op1("aten::tanh", {x});
  trace.Keep(trace.Op1("aten::mm", {h.slice(1, 0, 3), w}));
  trace.Keep(trace.Op1("aten::exp", {h.slice(1, 3, 6)}));
  const Graph graph = ComputedInWindows(trace);
  EXPECT_TRUE(HasOp(graph, "aten::mm"));
  EXPECT_EQ(CountKernels(graph), 2) << "the product reads it in memory anyway";
}

TEST(WindowsTest, WhatIsNeededWholeIsNotTakenApart) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({8, 6}));
  const at::Tensor h = trace.Op1("aten::tanh", {x});
  trace.Keep(h);
  trace.Keep(trace.Op1("aten::exp", {h.select(1, 2)}));
  const Graph graph = ComputedInWindows(trace);
  EXPECT_EQ(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                          [](const Node& node) { return node.op.info != nullptr && node.op.info->name == "aten::tanh"; }),
            1);
}

// Each operator of a long chain would become eight.
TEST(WindowsTest, LongChainsInManyWindowsAreStored) {
  EagerTrace trace;
  at::Tensor x = trace.Input(at::rand({30, 8}));
  for (int i = 0; i < 30; ++i) x = trace.Op1(i % 2 == 0 ? "aten::sin" : "aten::tanh", {x});
  at::Tensor sum = x.select(1, 0);
  for (int i = 1; i < 8; ++i) sum = trace.Op1("aten::maximum", {sum, x.select(1, i)});
  trace.Keep(sum);
  const Graph graph = ComputedInWindows(trace);
  EXPECT_LE(graph.nodes.size(), 37u + 64u);
  EXPECT_EQ(CountKernels(graph), 2);
}

// Stencils: overlapping windows would compute everything several times.
TEST(WindowsTest, NeighboursAreNotComputedAgain) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::randn({100}));
  const at::Tensor h = trace.Op1("aten::exp", {x});
  const at::Tensor sum = trace.Op1("aten::add.Tensor", {h.slice(0, 0, 98), h.slice(0, 2, 100)});
  trace.Keep(trace.Op1("aten::add.Tensor", {sum, h.slice(0, 1, 99)}));
  EXPECT_EQ(CountKernels(ComputedInWindows(trace)), 2);
}

// A result of no dimensions does not decide in which type is computed.
TEST(WindowsTest, OneElementKeepsItsType) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::rand({4})), number = trace.Input(at::tensor(1.0 / 3, at::kDouble));
  const at::Tensor h = trace.Op1("aten::mul.Tensor", {x, number});
  trace.Keep(trace.Op1("aten::mul.Tensor", {h.select(0, 1), h.select(0, 3)}));
  const auto program = Compile(trace.trace(), WindowOptions(), nullptr);
  ASSERT_TRUE(program.ok()) << program.status();
  trace.ExpectMatches(**program);
}

TEST(WindowsTest, WindowsOfNumbersThatWereStacked) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::rand({7})), y = trace.Input(at::rand({7}));
  const at::Tensor both = trace.Op1("aten::stack", {TensorsOf({trace.Op1("aten::sum", {x}), trace.Op1("aten::sum", {y})}), 0});
  trace.Keep(trace.Op1("aten::mul.Tensor", {both.slice(0, 1, 2), 3.0}));
  trace.Keep(trace.Op1("aten::mul.Tensor", {both.select(0, 0).unsqueeze(0), 3.0}));
  const at::Tensor t = trace.Op1("aten::tanh", {x});
  trace.Op("aten::mul_.Tensor", {t.select(0, 1), 2.0});
  trace.Keep(trace.Op1("aten::mul.Tensor", {t.slice(0, 1, 2), 3.0}));
  ComputedInWindows(trace);
}

// What is written in place, and stays, is not stored a second time for who reads a part of it.
TEST(WindowsTest, WritesInPlaceOfWhatStaysAreReadThere) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::rand({10, 10}));
  const at::Tensor u = trace.Op1("aten::sin", {x});
  const at::Tensor inner = u.slice(0, 1, 9).slice(1, 1, 9);
  trace.Op("aten::add_.Tensor", {inner, trace.Op1("aten::cos", {u.slice(0, 0, 8).slice(1, 1, 9)})});
  trace.Op("aten::add_.Tensor", {inner, trace.Op1("aten::cos", {u.slice(0, 2, 10).slice(1, 1, 9)})});
  trace.Keep(u);
  trace.Keep(trace.Op1("aten::exp", {u.slice(0, 1, 9).slice(1, 1, 9)}));
  const Graph graph = ComputedInWindows(trace);
  for (const Node& node : graph.nodes) {
    if (node.op.info == nullptr || node.op.info->name != "aten::exp") continue;
    EXPECT_NE(graph.values[node.op.args[0].tensors[0].storage].previous, kNoValue) << "all of u";
  }
}

// The source is overwritten before the window is read.
TEST(WindowsTest, SourcesThatChangeAreReadWhereTheyWereCopied) {
  EagerTrace trace;
  const at::Tensor x = trace.Input(at::rand({4, 3})), y = trace.Input(at::rand({4, 3}));
  const at::Tensor both = trace.Op1("aten::cat", {TensorsOf({x, y}), 0});
  trace.Op("aten::mul_.Tensor", {x, 2.0});
  trace.Keep(trace.Op1("aten::exp", {both.slice(0, 0, 4)}));
  ComputedInWindows(trace);
}

// Random programs of pointwise operators over windows, stacks and concatenations.
TEST(WindowsTest, RandomProgramsGiveWhatEagerGives) {
  for (uint64_t seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    at::manual_seed(seed);
    const auto pick = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
    EagerTrace trace;
    std::vector<at::Tensor> pool = {trace.Input(at::rand({6, 4})), trace.Input(at::rand({6, 4})), trace.Input(at::rand({4, 6}).t()),
                                    trace.Input(at::rand({6, 1})), trace.Input(at::rand({4}))};
    const auto whole = [&] { return pool[static_cast<size_t>(pick(static_cast<int64_t>(pool.size())))].expand({6, 4}); };
    for (int op = 0; op < 12; ++op) {
      const int64_t dim = pick(2), size = dim == 0 ? 6 : 4, cut = 1 + pick(size - 1);
      const at::Tensor a = trace.Op1("aten::sin", {whole()}), b = trace.Op1("aten::mul.Tensor", {whole(), whole()});
      const at::Tensor left = trace.Op1("aten::add.Tensor", {a.slice(dim, 0, cut), b.slice(dim, size - cut, size)});
      const at::Tensor right = trace.Op1("aten::mul.Tensor", {a.slice(dim, cut, size), pick(2) != 0 ? 0.5 : 2.0});
      at::Tensor result = trace.Op1("aten::cat", {TensorsOf({left, right}), dim});
      if (pick(3) == 0) {
        std::vector<at::Tensor> parts;
        for (int64_t i = 0; i < 4; ++i) parts.push_back(trace.Op1("aten::cos", {result.select(1, pick(4))}));
        result = trace.Op1("aten::stack", {TensorsOf(parts), 1});
      }
      if (pick(4) == 0) trace.Op("aten::mul_.Tensor", {result.select(pick(2), pick(4)), 0.5});
      pool.push_back(result);
      if (pick(5) == 0) trace.Keep(result);
    }
    trace.Keep(pool.back());
    const auto program = Compile(trace.trace(), WindowOptions(), nullptr);
    ASSERT_TRUE(program.ok()) << program.status();
    trace.ExpectMatches(**program, 1e-5, 1e-5);
    if (::testing::Test::HasFailure()) std::printf("%s\n", PrintTrace(trace.trace()).c_str());
  }
}

TEST(WindowMapTest, PartsOfWhatIsBroadcast) {
  runtime::SymbolTable none;
  TensorRef whole;
  whole.dtype = c10::kFloat;
  whole.sizes = {5, 6, 8};
  whole.strides = {48, 8, 1};
  TensorRef window = whole;  // [5, 3, 4] of every second row, the last columns.
  window.sizes = {5, 3, 4};
  window.strides = {48, 16, 1};
  const auto map = WindowMap::Of(window, whole, 8 + 4, none);
  ASSERT_TRUE(map.has_value());
  TensorRef column = whole;
  column.sizes = {6, 1};
  column.strides = {1, 1};
  std::vector<int64_t> terms;
  const auto part = map->PartOf(column, &terms);
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->sizes, (c10::DimVector{1, 3, 1}));
  EXPECT_EQ(part->strides[1], 2);
  EXPECT_EQ(terms, (std::vector<int64_t>{1}));
  window.sizes[1] = 4;
  EXPECT_FALSE(WindowMap::Of(window, whole, 8 + 4, none).has_value()) << "leaves the tensor";
  window.sizes = {5, 6};
  window.strides = {48, 9};
  EXPECT_FALSE(WindowMap::Of(window, whole, 0, none).has_value()) << "a diagonal";
}

TEST(WindowMapTest, SymbolsAreNotCompared) {
  const auto symbols = runtime::SymbolTable::Make({32}, {});
  const int64_t s = symbols.prime(0);
  TensorRef whole;
  whole.dtype = c10::kFloat;
  whole.sizes = {s, 3};
  whole.strides = {3, 1};
  TensorRef window = whole;
  window.sizes = {s};
  window.strides = {3};
  EXPECT_TRUE(WindowMap::Of(window, whole, 2, symbols).has_value());
  window.sizes = {5, 3};
  window.strides = {3, 1};
  EXPECT_FALSE(WindowMap::Of(window, whole, 0, symbols).has_value()) << "there may be fewer rows";
  whole.sizes = {2, s};
  whole.strides = {s, 1};
  window.sizes = {s};
  window.strides = {1};
  EXPECT_TRUE(WindowMap::Of(window, whole, s, symbols).has_value()) << "the second row";
  window.sizes = {2, 1};
  window.strides = {s, 1};
  EXPECT_FALSE(WindowMap::Of(window, whole, 5, symbols).has_value()) << "a row may be shorter";
}

}  // namespace
}  // namespace lazuli::codegen
