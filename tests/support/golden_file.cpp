#include "tests/support/golden_file.h"

#include <torch/torch.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "codegen/emit_aten.h"
#include "codegen/pipeline.h"
#include "runtime/cpu_features.h"
#include "runtime/dump.h"
#include "runtime/options.h"
#include "tests/support/tensor_diff.h"

namespace lazuli::testing {
namespace {

using codegen::StorageId;
using codegen::TensorRef;
using codegen::Trace;

// The words after "// NAME:", of the first line that starts so.
template <class T>
std::vector<T> ReadHeader(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line;
  std::vector<T> values;
  while (std::getline(lines, line)) {
    const std::string prefix = "// " + name + ":";
    if (line.rfind(prefix, 0) != 0) continue;
    std::istringstream words(line.substr(prefix.size()));
    for (T value; words >> value;) values.push_back(value);
    break;
  }
  return values;
}

template <class Fn>
void ForEachRef(const Trace& trace, const Fn& fn) {
  for (const auto& op : trace.ops) {
    for (const auto& arg : op.args) {
      for (const TensorRef& ref : arg.tensors) fn(ref);
    }
    for (const TensorRef& ref : op.results) fn(ref);
  }
}

// The storages' memory as flat tensors, in the dtype in which the trace first mentions each.
class Memory {
 public:
  explicit Memory(const GoldenFile& golden) : golden_(golden) {
    const size_t count = golden.trace.storages.size();
    dtypes_.resize(count, torch::kByte);
    std::vector<int64_t> elements(count, 0);
    std::vector<bool> seen(count, false);
    ForEachRef(golden.trace, [&](const TensorRef& ref) {
      if (!ref.defined()) return;
      if (!seen[ref.storage]) dtypes_[ref.storage] = ref.dtype;
      seen[ref.storage] = true;
      int64_t last = ref.offset_slot < 0 ? 0 : golden.offsets[ref.offset_slot];
      for (size_t d = 0; d < ref.sizes.size(); ++d) last += (ref.sizes[d] - 1) * ref.strides[d];
      const auto size = static_cast<int64_t>(c10::elementSize(ref.dtype)),
                 own = static_cast<int64_t>(c10::elementSize(dtypes_[ref.storage]));
      elements[ref.storage] = std::max(elements[ref.storage], ref.numel() == 0 ? 0 : ((last + 1) * size + own - 1) / own);
    });
    torch::manual_seed(3);
    for (size_t i = 0; i < count; ++i)
      inputs_.push_back(golden.trace.storages[i].is_input ? Random(elements[i], dtypes_[i]) : torch::Tensor());
  }

  // What each visible storage holds after `program` ran, flat; "" or the error in `error`.
  Tensors Run(runtime::Program* program, std::string* error) const {
    const size_t count = inputs_.size();
    Tensors memory;
    std::vector<c10::StorageImpl*> storages(count, nullptr);
    std::vector<at::DataPtr> outputs(count);
    for (size_t i = 0; i < count; ++i) {
      memory.push_back(inputs_[i].defined() ? inputs_[i].clone() : torch::Tensor());
      if (inputs_[i].defined()) storages[i] = memory[i].storage().unsafeGetStorageImpl();
    }
    const std::vector<uint64_t> scalars = ScalarBits();
    const runtime::RunResult result = program->Run({storages, scalars, golden_.offsets, absl::MakeSpan(outputs)});
    if (result.error != nullptr) *error = result.failed_op + " threw";
    for (size_t i = 0; i < count; ++i) {
      const auto& storage = golden_.trace.storages[i];
      if (storage.is_input || !storage.live_out) continue;
      if (outputs[i].get() == nullptr) {
        *error = absl::StrCat("storage %", i, " was left without memory");
        continue;
      }
      const auto elements = storage.nbytes / static_cast<int64_t>(c10::elementSize(dtypes_[i]));
      memory[i] = torch::from_blob(outputs[i].get(), {elements}, dtypes_[i]).clone();
    }
    return memory;
  }

 private:
  static torch::Tensor Random(int64_t elements, torch::ScalarType dtype) {
    if (c10::isFloatingType(dtype)) return torch::randn({elements}, torch::kDouble).to(dtype);
    return torch::randint(0, dtype == torch::kBool ? 2 : 7, {elements}, torch::kLong).to(dtype);
  }

  std::vector<uint64_t> ScalarBits() const {
    std::vector<uint64_t> bits(golden_.trace.num_scalars);
    for (const auto& op : golden_.trace.ops) {
      for (const auto& arg : op.args) {
        if (arg.kind != codegen::TraceArg::Kind::kScalar) continue;
        const double value = golden_.scalars[arg.slot];
        if (arg.scalar_type == torch::kDouble) {
          std::memcpy(&bits[arg.slot], &value, sizeof(value));
        } else {
          bits[arg.slot] = static_cast<uint64_t>(static_cast<int64_t>(value));
        }
      }
    }
    return bits;
  }

  const GoldenFile& golden_;
  std::vector<torch::ScalarType> dtypes_;
  Tensors inputs_;
};

absl::StatusOr<std::unique_ptr<runtime::Program>> CompileGolden(const GoldenFile& golden, const std::string& backend, int64_t serial) {
  codegen::PipelineOptions options;
  options.backend = backend;
  options.target.isa = runtime::IsaName(runtime::WidestIsa());
  options.target.precision = "eager";
  options.serial = serial;
  return codegen::Compile(golden.trace, options, nullptr);
}

}  // namespace

absl::StatusOr<GoldenFile> ReadGolden(const std::string& path) {
  GoldenFile golden;
  golden.path = path;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  golden.text = text.str();
  const auto stages = ReadHeader<std::string>(golden.text, "RUN");
  if (stages.size() != 1) return absl::InvalidArgumentError(absl::StrCat(path, ": no '// RUN: STAGE' line"));
  golden.stage = stages[0];
  auto trace = codegen::ParseTrace(golden.text);
  if (!trace.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", trace.status().message()));
  golden.trace = *std::move(trace);
  golden.scalars = ReadHeader<double>(golden.text, "SCALARS");
  golden.offsets = ReadHeader<int64_t>(golden.text, "OFFSETS");
  while (golden.scalars.size() < static_cast<size_t>(golden.trace.num_scalars))
    golden.scalars.push_back(0.75 + static_cast<double>(golden.scalars.size()));
  while (golden.offsets.size() < static_cast<size_t>(golden.trace.num_offsets))
    golden.offsets.push_back(1 + static_cast<int64_t>(golden.offsets.size()));
  const auto tolerance = ReadHeader<double>(golden.text, "TOLERANCE");
  if (!tolerance.empty()) golden.tolerance = tolerance[0];
  return golden;
}

std::vector<std::string> FindGoldens(const std::string& root) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".trace") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::string> DumpStage(const GoldenFile& golden, const std::string& stage) {
  if (stage == "trace") return codegen::PrintTrace(golden.trace);
  static int64_t serial = 0;
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / absl::StrCat("lazuli_golden.", getpid());
  runtime::ConfigureDump(stage, dir.string());
  const auto program = CompileGolden(golden, "llvm", ++serial);
  runtime::ConfigureDump("", "");
  if (!program.ok()) return program.status();
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::exists(dir)) {
    for (const auto& entry : std::filesystem::directory_iterator(dir)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) {
    std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    absl::StrAppend(&text, content.str());
  }
  std::filesystem::remove_all(dir);
  return text;
}

std::string CompareRuns(const GoldenFile& golden) {
  const Memory memory(golden);
  std::string error;
  const Tensors expected = memory.Run(codegen::MakeReplay(golden.trace).get(), &error);
  if (!error.empty()) return "op by op: " + error;
  for (const char* backend : {"aten", "llvm"}) {
    auto program = CompileGolden(golden, backend, 0);
    if (!program.ok()) return absl::StrCat(backend, ": ", std::string(program.status().message()));
    // Twice: a program must not depend on what its last run left behind.
    for (int run = 0; run < 2; ++run) {
      const Tensors actual = memory.Run(program->get(), &error);
      const double scale = std::string(backend) == "llvm" ? golden.tolerance : 0;
      if (error.empty()) error = DiffAll(expected, actual, {scale, scale});
      if (!error.empty()) return absl::StrCat(backend, ", run ", run, ": ", error);
    }
  }
  return "";
}

}  // namespace lazuli::testing
