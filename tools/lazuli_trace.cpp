// Looks into trace files (LAZULI_DUMP=trace, LAZULI_VERIFY): prints, runs, narrows down, makes smaller, writes as C++.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/ir/trace_text.h"
#include "codegen/kernel_compiler.h"
#include "codegen/kernel_ir.h"
#include "codegen/lower_group.h"
#include "codegen/pipeline.h"
#include "tools/trace_lab.h"

namespace {

using lazuli::tools::LabOptions;
using lazuli::tools::TraceCase;

constexpr char kUsage[] =
    "usage: lazuli-trace COMMAND FILE.trace [options]\n\n"
    "  print      the trace, or with --stop-after=PASS the graph after that pass (graph, fold, dce, cse, windows, ..., fuse, ...),\n"
    "             with --stop-after=kernel the kernels and what they are compiled from\n"
    "  run        runs it on random inputs op by op and on both backends, and says how far the results are apart\n"
    "  bisect     the fewest operators that have to be compiled for a difference to show\n"
    "  minimise   the trace with operators removed for as long as the difference shows\n"
    "  emit       a C++ program that runs it in a mode and compares with eager\n\n"
    "  --seed=N          of the random inputs (3)\n"
    "  --tolerance=N     machine epsilons that results may be off, of each element or of the largest one (64; 0: bit for bit)\n"
    "  --isa=NAME        avx512, avx2 or sse4 (the CPU's own)\n"
    "  --cuda-arch=NAME  sm_90, say: print for that GPU, of which none need be there\n"
    "  --precision=NAME  eager, strict or fast (eager)\n"
    "  -o FILE           where to write, instead of standard output\n\n"
    "Exit status: 0 no difference, 1 a difference, 2 an error.\n";

struct Arguments {
  std::string command, file, output, stop_after;
  LabOptions options = lazuli::tools::DefaultLabOptions();
};

int Fail(const std::string& message) {
  std::fprintf(stderr, "lazuli-trace: %s\n", message.c_str());
  return 2;
}

bool TakeOption(const std::string& arg, const char* name, std::string* value) {
  const std::string prefix = std::string("--") + name + "=";
  if (arg.rfind(prefix, 0) != 0) return false;
  *value = arg.substr(prefix.size());
  return true;
}

// Whether all of `text` was a number of at least 0.
bool ReadNumber(const std::string& text, double* number) {
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && *number >= 0;
}

// Empty on success.
std::string Parse(int argc, char** argv, Arguments* arguments) {
  double tolerance = 64, seed = 3;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    std::string value;
    if (arg == "-o") {
      if (++i >= argc) return "-o needs a file";
      arguments->output = argv[i];
    } else if (TakeOption(arg, "seed", &value)) {
      if (!ReadNumber(value, &seed)) return "--seed: expected a number, not '" + value + "'";
    } else if (TakeOption(arg, "tolerance", &value)) {
      if (!ReadNumber(value, &tolerance)) return "--tolerance: expected a number of at least 0, not '" + value + "'";
    } else if (TakeOption(arg, "stop-after", &arguments->stop_after) || TakeOption(arg, "isa", &arguments->options.target.isa) ||
               TakeOption(arg, "cuda-arch", &arguments->options.target.cuda_arch) ||
               TakeOption(arg, "precision", &arguments->options.target.precision)) {
      continue;
    } else if (arg.rfind("-", 0) == 0) {
      return "no such option: " + arg;
    } else if (arguments->command.empty()) {
      arguments->command = arg;
    } else if (arguments->file.empty()) {
      arguments->file = arg;
    } else {
      return "one file at a time";
    }
  }
  arguments->options.seed = static_cast<uint64_t>(seed);
  arguments->options.tolerance = {tolerance, tolerance};
  return arguments->file.empty() ? "a command and a file are needed" : "";
}

int Write(const Arguments& arguments, const std::string& text) {
  if (arguments.output.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::ofstream file(arguments.output);
  file << text;
  file.close();
  return file ? 0 : Fail("cannot write " + arguments.output + ": " + std::strerror(errno));
}

bool DiffersOn(const Arguments& arguments, const TraceCase& test, const std::vector<bool>& compiled) {
  return !lazuli::tools::CompareWithReplay(test, arguments.options, compiled).difference.empty();
}

// Each kernel of a fused graph and its source.
absl::StatusOr<std::string> PrintKernels(const lazuli::codegen::Graph& graph, const lazuli::codegen::KernelTarget& target) {
  std::string text;
  const std::vector<bool> in_memory = ValuesInMemory(graph);
  for (const lazuli::codegen::Group& group : graph.groups) {
    if (!group.is_kernel()) continue;
    const auto lowered = LowerGroup(graph, group, in_memory);
    if (!lowered.ok()) return lowered.status();
    if (lowered->kernel.insts.empty()) continue;
    const auto source = KernelSource(lowered->kernel, target);
    if (!source.ok()) return source.status();
    text += PrintKernel(lowered->kernel) + *source;
  }
  return text;
}

int Print(const Arguments& arguments, const TraceCase& test) {
  if (arguments.stop_after.empty()) return Write(arguments, PrintTraceCase(test));
  lazuli::codegen::PipelineOptions pipeline;
  pipeline.target = arguments.options.target;
  const bool kernels = arguments.stop_after == "kernel";
  const auto graph = RunPasses(test.trace, pipeline, kernels ? lazuli::codegen::PassNames().back() : arguments.stop_after);
  if (!graph.ok()) return Fail(std::string(graph.status().message()));
  if (!kernels) return Write(arguments, PrintGraph(*graph));
  const auto text = PrintKernels(*graph, pipeline.target);
  return text.ok() ? Write(arguments, *text) : Fail(std::string(text.status().message()));
}

int Run(const Arguments& arguments, const TraceCase& test) {
  int differences = 0;
  for (const char* backend : {"aten", "llvm"}) {
    LabOptions options = arguments.options;
    options.backend = backend;
    if (options.backend == "aten") options.tolerance = {};
    const auto comparison = CompareWithReplay(test, options);
    std::printf("%s: %s\n", backend, comparison.difference.empty() ? "as op by op" : comparison.difference.c_str());
    for (const std::string& line : comparison.largest) std::printf("  %s\n", line.c_str());
    differences += comparison.difference.empty() ? 0 : 1;
  }
  return differences == 0 ? 0 : 1;
}

int Bisect(const Arguments& arguments, const TraceCase& test) {
  const auto ops = lazuli::tools::Bisect(
      test, [&](const TraceCase& candidate, const std::vector<bool>& compiled) { return DiffersOn(arguments, candidate, compiled); });
  if (ops.empty()) {
    std::printf("no difference\n");
    return 0;
  }
  std::vector<bool> compiled(test.trace.ops.size(), false);
  std::printf("a difference shows when these are compiled and all else is left to ATen:\n");
  for (const size_t op : ops) {
    compiled[op] = true;
    std::printf("  op %zu %s\n", op, CallText(test.trace.ops[op]).c_str());
  }
  std::printf("%s\n", CompareWithReplay(test, arguments.options, compiled).difference.c_str());
  return 1;
}

int Minimise(const Arguments& arguments, const TraceCase& test) {
  if (!DiffersOn(arguments, test, {})) {
    std::fprintf(stderr, "no difference\n");
    return 0;
  }
  const TraceCase small = lazuli::tools::Minimise(
      test, [&](const TraceCase& candidate, const std::vector<bool>& compiled) { return DiffersOn(arguments, candidate, compiled); });
  std::fprintf(stderr, "%zu of %zu operators left\n", small.trace.ops.size(), test.trace.ops.size());
  const int status = Write(arguments, PrintTraceCase(small));
  return status == 0 ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const std::string problem = Parse(argc, argv, &arguments);
  if (!problem.empty()) {
    std::fputs(kUsage, stderr);
    return Fail(problem);
  }
  std::ifstream file(arguments.file);
  if (!file) return Fail("cannot read " + arguments.file + ": " + std::strerror(errno));
  const auto test = lazuli::tools::ReadTraceCase({std::istreambuf_iterator<char>(file), {}});
  if (!test.ok()) return Fail(arguments.file + ": " + std::string(test.status().message()));
  if (arguments.command == "print") return Print(arguments, *test);
  if (arguments.command == "run" || arguments.command == "bisect" || arguments.command == "minimise") {
    const std::string error = CompareWithReplay(*test, arguments.options).error;
    if (!error.empty())
      return Fail("nothing was compared (another --seed, perhaps?), since the operators throw when run one by one: " + error);
  }
  if (arguments.command == "run") return Run(arguments, *test);
  if (arguments.command == "bisect") return Bisect(arguments, *test);
  if (arguments.command == "minimise") return Minimise(arguments, *test);
  if (arguments.command == "emit") return Write(arguments, EmitProgram(*test, arguments.options));
  std::fputs(kUsage, stderr);
  return Fail("no such command: " + arguments.command);
}
