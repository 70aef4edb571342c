// What operands have to be for an operator to be recorded: on one device, and apart from what it writes.
#include <ATen/Context.h>

#include <algorithm>
#include <utility>

#include "codegen/lower.h"
#include "tracer/determinism.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {
namespace {

using codegen::TensorWord;
using codegen::Word;

// The bytes of one operand in its storage: from `begin`, one element at each sum of multiples of `steps`.
struct Bytes {
  int64_t begin = 0;
  int64_t element = 0;
  c10::SmallVector<std::pair<int64_t, int64_t>, 5> steps;  // Stride and last index of each dimension of more than one element.
};

// Whether the two have no byte in common because, counted modulo `period`, they lie in separate intervals (columns of one matrix).
// A period past the end of both compares the intervals themselves.
bool SeparateModulo(const Bytes& a, const Bytes& b, int64_t period) {
  const auto interval = [period](const Bytes& bytes) {
    int64_t end = bytes.begin % period + bytes.element;
    for (const auto& [stride, last] : bytes.steps) end += stride % period == 0 ? 0 : stride * last;
    return std::make_pair(bytes.begin % period, end);
  };
  const auto first = interval(a);
  const auto second = interval(b);
  return first.second <= period && second.second <= period && (first.second <= second.first || second.second <= first.first);
}

bool AreDisjoint(const Bytes& a, const Bytes& b) {
  constexpr int64_t kPastTheEnd = int64_t{1} << 62;
  if (SeparateModulo(a, b, kPastTheEnd)) return true;
  return std::any_of(a.steps.begin(), a.steps.end(), [&](const auto& step) { return step.first > 0 && SeparateModulo(a, b, step.first); });
}

// Whether one element of a window (`ndim` sizes, then strides) appears at several places: writing it is an error.
bool RepeatsElements(const Word* shape, size_t ndim) {
  for (size_t d = 0; d < ndim; ++d) {
    if (shape[ndim + d] == 0 && shape[d] > 1) return true;
  }
  return false;
}

// Whether a kernel of ours may do the same in another order each time on a GPU.
bool IsUnordered(const codegen::OpInfo& info) {
  const codegen::OpRow* row = codegen::FindRowByName(info.name);
  return row != nullptr && row->writes_at_indices;
}

}  // namespace

void OpRecording::NoteDevice(runtime::DeviceCode device, bool is_number) {
  if (device == runtime::kCpuCode) {
    on_cpu_ = on_cpu_ || !is_number;
    return;
  }
  refused_ = refused_ || (device_ != runtime::kCpuCode && device_ != device);
  device_ = device;
}

bool OpRecording::IsOnOneDevice() {
  if (info_.is_factory && asked_device_.has_value()) device_ = *asked_device_;
  if (refused_ || asked_device_.value_or(device_) != device_) return false;
  if (device_ == runtime::kCpuCode) return true;
  const c10::Device device = runtime::DeviceOf(device_);
  const c10::Stream stream = runtime::CurrentStream(device);
  if (on_cpu_ || recorder_->stream_.value_or(stream) != stream || runtime::IsCapturing(stream)) return false;
  if (at::globalContext().deterministicAlgorithms() && IsUnordered(info_)) return false;
  recorder_->log_.code[code_begin_] = codegen::OpWord(info_.id, device_, recorder_->default_dtype_, recorder_->settings_number_);
  return true;
}

bool OpRecording::MayRefuse() const { return tracer::MayRefuse(info_, device_ != runtime::kCpuCode); }

bool OpRecording::WritesAreApart() const {
  const auto& log = recorder_->log_;
  const auto bytes_of = [&log](const Operand& operand) {
    const auto word = TensorWord::Unpack(log.code[operand.code_position]);
    Bytes bytes;
    bytes.element = static_cast<int64_t>(c10::elementSize(word.dtype));
    bytes.begin = word.slot_plus_one == 0 ? 0 : log.offsets[word.slot_plus_one - 1] * bytes.element;
    for (size_t d = 0; d < word.ndim; ++d) {
      const auto size = static_cast<int64_t>(log.shapes[operand.shape_position + d]);
      const auto stride = static_cast<int64_t>(log.shapes[operand.shape_position + word.ndim + d]);
      if (size > 1) bytes.steps.emplace_back(stride * bytes.element, size - 1);
    }
    return bytes;
  };
  c10::SmallVector<const Operand*, 8> sorted;  // Those of one storage are neighbours: an optimizer's step has hundreds of operands.
  for (const Operand& operand : operands_) sorted.push_back(&operand);
  std::sort(sorted.begin(), sorted.end(), [](const Operand* a, const Operand* b) { return a->storage < b->storage; });
  size_t begin = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const Operand& written = *sorted[i];
    if (written.storage != sorted[begin]->storage) begin = i;
    if (!written.mutated) continue;
    if (RepeatsElements(log.shapes.data() + written.shape_position, written.ndim)) return false;
    for (size_t j = begin; j < sorted.size() && sorted[j]->storage == written.storage; ++j) {
      const Operand& other = *sorted[j];
      if (j == i) continue;
      const auto a = TensorWord::Unpack(log.code[written.code_position]);
      const auto b = TensorWord::Unpack(log.code[other.code_position]);
      const bool same = a.dtype == b.dtype && a.ndim == b.ndim && a.slot_plus_one == b.slot_plus_one &&
                        std::equal(log.shapes.begin() + written.shape_position, log.shapes.begin() + written.shape_position + 2 * a.ndim,
                                   log.shapes.begin() + other.shape_position);
      // Reading what one overwrites is an error for most operators that are not pointwise.
      const bool safe = same && !other.mutated && codegen::IsLoopOverElements(info_.name);
      if (!safe && !AreDisjoint(bytes_of(written), bytes_of(other))) return false;
    }
  }
  return true;
}

}  // namespace lazuli::tracer
