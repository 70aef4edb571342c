#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen/lower.h"
#include "runtime/counters.h"
#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "tracer/mode.h"
#include "tracer/recorder.h"
#include "tracer/step_aside.h"

namespace lazuli::tracer {
namespace {

using codegen::MakeWord;
using codegen::Tag;
using codegen::TensorWord;
using codegen::Word;

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Whether some integer type cannot hold `number`.
bool IsWide(const at::Scalar& number) {
  return number.isComplex() || number.toDouble() < 0 || c10::overflows<int8_t, double>(number.toDouble());
}

// What kernels ask of numbers: their sign, and whether they are probabilities. (An integer's bits, and those of true, order like it.)
uint64_t ClassOf(c10::ScalarType type, uint64_t bits) {
  double value = static_cast<double>(static_cast<int64_t>(bits));
  if (type == c10::kDouble) std::memcpy(&value, &bits, sizeof(value));
  if (value == 0) return 0;
  if (value == 1) return 1;
  return value < 0 ? 2 : value < 1 ? 3 : value > 1 ? 4 : 5;
}

template <class Integer>
bool Fits(const at::Scalar& number) {
  try {
    number.to<Integer>();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool Recorder::IsSettledNumber(const at::Tensor& tensor, bool writes) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.dim() != 0 || !IsStridedWindow(impl) || !impl.key_set().has(c10::DispatchKey::CPU) || runtime::Active().record_scalars)
    return false;
  c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr || IsPending(*storage) || IsForeign(storage)) return false;
  if (!writes) return true;
  RecorderLock lock(this);
  if (FindStorage(storage) >= 0) return false;
  NoteUse(storage);
  return true;
}

OpRecording::OpRecording(Recorder* recorder, const codegen::OpInfo& info) : recorder_(recorder), lock_(recorder), info_(info) {
  recorder->CutOverBudget(info.id);
  const auto& log = recorder->log_;
  code_begin_ = log.code.size();
  shapes_begin_ = log.shapes.size();
  scalars_begin_ = log.scalars.size();
  offsets_begin_ = log.offsets.size();
  slots_begin_ = recorder->slots_.size();
  refused_ = info.hides_pieces && runtime::IsTraced();
  Append(codegen::OpWord(info.id, runtime::kCpuCode, recorder->default_dtype_, recorder->settings_number_));
}

OpRecording::~OpRecording() {
  if (committed_) return;
  auto& log = recorder_->log_;
  log.code.resize(code_begin_);
  log.shapes.resize(shapes_begin_);
  log.scalars.resize(scalars_begin_);
  if (log.offsets.size() != offsets_begin_) {
    for (auto it = recorder_->offset_slots_.begin(); it != recorder_->offset_slots_.end();) {
      if (it->second >= offsets_begin_) {
        recorder_->offset_slots_.erase(it++);
      } else {
        ++it;
      }
    }
    log.offsets.resize(offsets_begin_);
  }
  recorder_->UndoInputs(slots_begin_);
}

bool OpRecording::AddTensor(const at::Tensor& tensor) {
  const bool ok = AddTensorItem(tensor);
  ++arg_;
  return ok;
}

bool OpRecording::AddTensorList(at::ArrayRef<at::Tensor> tensors) {
  AddListHeader(tensors.size());
  for (const auto& tensor : tensors) {
    if (!AddTensorItem(tensor)) return false;
  }
  ++arg_;
  return true;
}

void OpRecording::AddListHeader(size_t size) { Append(MakeWord(Tag::kTensorList, size)); }

bool OpRecording::AddWrappedNumber(const at::Tensor& tensor) {
  const void* data = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data();
  switch (tensor.scalar_type()) {
    case c10::kDouble:
      AddSlot(c10::kDouble, BitsOf(*static_cast<const double*>(data)));
      return true;
    case c10::kLong:
      AddSlot(c10::kLong, static_cast<uint64_t>(*static_cast<const int64_t*>(data)));
      return true;
    case c10::kBool:
      AddSlot(c10::kBool, *static_cast<const bool*>(data) ? 1 : 0);
      return true;
    default:
      return false;
  }
}

bool OpRecording::AddTensorItem(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    Append(static_cast<Word>(Tag::kUndefined));
    return true;
  }
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!IsStridedWindow(*impl)) return false;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr) return false;
  const std::optional<runtime::DeviceCode> device = runtime::CodeOf(storage->device());
  if (!device.has_value()) return false;
  const bool mutated = (info_.mutated_args >> arg_ & 1) != 0;
  // Others like it, parameters that share memory, are there to stay: once the operator has run, they are adopted.
  if (mutated && IsPassingAlias(*impl)) return false;
  const bool wrapped = impl->is_wrapped_number();
  const bool is_read = wrapped && !mutated && *device == runtime::kCpuCode && impl->dim() == 0 && !IsPending(*storage);
  if (is_read && AddWrappedNumber(tensor)) return true;
  bool first_use = false;
  int64_t offset = impl->storage_offset();
  int32_t number = recorder_->NumberOfLazy(storage);
  if (number < 0) {
    c10::intrusive_ptr<c10::StorageImpl> snapshot;
    if (IsForeign(storage) && (mutated || *device != runtime::kCpuCode || !recorder_->foreign_.CanWait(storage, recorder_->epoch()))) {
      if (!mutated && *device == runtime::kCpuCode && !recorder_->NeedsCut(tensor, /*writes=*/false)) snapshot = Snapshot(*impl, storage);
      if (snapshot == nullptr) return false;
      storage = snapshot.get();
      offset = 0;
    }
    number = recorder_->StorageNumber(storage, &first_use);
    if (number < 0) return false;
    if (first_use) recorder_->slots_[number].parameter = tensor.requires_grad() && tensor.is_leaf();
  }
  if (mutated && !writes_parameters_) {
    writes_parameters_ = recorder_->slots_[number].parameter || (tensor.requires_grad() && tensor.is_leaf());
  }
  NoteDevice(*device, impl->dim() == 0 && !mutated);
  only_settled_numbers_ = only_settled_numbers_ && impl->dim() == 0 && !IsPending(*storage) && (first_use || !mutated);
  Adopt(impl);
  auto& log = recorder_->log_;
  const auto dtype = c10::typeMetaToScalarType(impl->dtype());
  if (info_.rejects_masks && (dtype == c10::kBool || dtype == c10::kByte) && operands_.size() > 0) return false;
  TensorWord word{dtype, static_cast<uint8_t>(impl->dim()), wrapped, first_use, *device, static_cast<uint32_t>(number), 0};
  if (offset != 0) {
    word.slot_plus_one = recorder_->OffsetSlot(word.storage, dtype, offset) + 1;
    // Where sizes never become symbols, one that moves would be a program each time.
    word.known_offset = !recorder_->slots_[number].is_input && runtime::Active().dynamic != runtime::When::kNever;
  }
  operands_.push_back({word.storage, static_cast<uint32_t>(log.code.size()), static_cast<uint32_t>(log.shapes.size()), word.ndim,
                       word.known_offset, mutated});
  log.code.push_back(word.Pack());
  // Few numbers: appending one by one beats a call.
  for (const int64_t size : impl->sizes()) log.shapes.push_back(static_cast<Word>(size));
  for (const int64_t stride : impl->strides()) log.shapes.push_back(static_cast<Word>(stride));
  if (word.known_offset) log.shapes.push_back(static_cast<Word>(offset));
  return true;
}

void OpRecording::AddSlot(c10::ScalarType type, uint64_t bits) {
  auto& scalars = recorder_->log_.scalars;
  slot_positions_.push_back(static_cast<uint32_t>(recorder_->log_.code.size()));
  Append(MakeWord(Tag::kScalarSlot, static_cast<uint64_t>(type) | scalars.size() << 8));
  scalars.push_back(bits);
}

void OpRecording::AddNumberSlot(c10::ScalarType type, uint64_t bits) {
  const size_t slot = recorder_->log_.scalars.size() - scalars_begin_;
  if (slot < 64) numbers_ |= uint64_t{1} << slot;
  AddSlot(type, bits);
}

void OpRecording::AddNone() {
  Append(static_cast<Word>(Tag::kNone));
  ++arg_;
}

void OpRecording::AddInt(int64_t value) {
  if (HoldsSizes()) {
    Append(static_cast<Word>(Tag::kSizes));
    recorder_->log_.shapes.push_back(static_cast<Word>(value));
  } else {
    Append(static_cast<Word>(Tag::kInt));
    Append(static_cast<Word>(value));
  }
  ++arg_;
}

void OpRecording::AddBool(bool value) {
  refused_ = refused_ || (value && arg_ == info_.pin_memory_arg);
  Append(MakeWord(Tag::kBool, value ? 1 : 0));
  ++arg_;
}

void OpRecording::AddDouble(double value) {
  const bool is_dropout = arg_ == info_.dropout_arg;
  refused_ = refused_ || (is_dropout && info_.draws_dropout && value != 0);
  if (info_.static_scalars || is_dropout) {
    Append(static_cast<Word>(Tag::kDouble));
    Append(BitsOf(value));
  } else {
    AddNumberSlot(c10::kDouble, BitsOf(value));
  }
  ++arg_;
}

bool OpRecording::HasComplexOperand() const {
  return std::any_of(operands_.begin(), operands_.end(), [this](const Operand& operand) {
    return c10::isComplexType(TensorWord::Unpack(recorder_->log_.code[operand.code_position]).dtype);
  });
}

bool OpRecording::AddScalar(const at::Scalar& value) {
  const c10::ScalarType type = value.type();
  // Unsigned and complex numbers have no run-time slot; 0 and 1 as alpha and beta decide which formula is compiled,
  // and an infinity that fills scores, whether attention can be.
  const bool has_slot = type == c10::kDouble || type == c10::kLong || type == c10::kBool;
  if (value.isSymbolic() || (!has_slot && type != c10::kComplexDouble)) return false;
  // What ATen makes of a complex number among real operands, mostly an error, is up to its kernel.
  if (type == c10::kComplexDouble && !info_.is_factory && !HasComplexOperand()) return false;
  uint64_t bits = 0;
  bool is_default = false;
  if (type == c10::kDouble) {
    const double number = value.toDouble();
    bits = BitsOf(number);
    is_default = number == 1.0 || (number == 0.0 && bits == 0);
  } else if (has_slot) {
    bits = static_cast<uint64_t>(type == c10::kBool ? static_cast<int64_t>(value.toBool()) : value.toLong());
    is_default = bits <= 1;
  }
  const int arg = arg_++;
  if (has_slot && (info_.tensor_args >> arg & 1) != 0) {  // A scalar overload recorded as its tensor overload: a wrapped number.
    AddSlot(type, bits);
    return true;
  }
  if (type == c10::kLong && (info_.size_args >> arg & 1) != 0) {
    Append(static_cast<Word>(Tag::kSizes));
    recorder_->log_.shapes.push_back(bits);
    return true;
  }
  if (!is_default && IsWide(value)) wide_number_ = value;
  const bool is_factor = is_default && (info_.factor_args >> arg & 1) != 0;
  const bool hides = (info_.hiding_args >> arg & 1) != 0 && type == c10::kDouble && std::isinf(value.toDouble());
  if (has_slot && !info_.static_scalars && !is_factor && !hides) {
    AddNumberSlot(type, bits);
    return true;
  }
  Append(MakeWord(Tag::kScalarConst, static_cast<uint64_t>(type)));
  if (has_slot) {
    Append(bits);
  } else {
    const auto number = value.toComplexDouble();
    Append(BitsOf(number.real()));
    Append(BitsOf(number.imag()));
  }
  return true;
}

void OpRecording::AddIntList(at::IntArrayRef values) {
  const bool sizes = HoldsSizes();
  Append(sizes ? MakeWord(Tag::kSizes, values.size() + 1) : MakeWord(Tag::kIntList, values.size()));
  auto& words = sizes ? recorder_->log_.shapes : recorder_->log_.code;
  for (const int64_t value : values) words.push_back(static_cast<Word>(value));
  ++arg_;
}

void OpRecording::AddDoubleList(at::ArrayRef<double> values) {
  Append(MakeWord(Tag::kDoubleList, values.size()));
  for (const double value : values) Append(BitsOf(value));
  ++arg_;
}

void OpRecording::AddBoolList(const bool* values, size_t size) {
  Append(MakeWord(Tag::kBoolList, size));
  for (size_t i = 0; i < size; ++i) Append(values[i] ? 1 : 0);
  ++arg_;
}

void OpRecording::AddString(std::string_view value) {
  Append(MakeWord(Tag::kString, value.size()));
  for (size_t i = 0; i < value.size(); i += sizeof(Word)) {
    Word bytes = 0;
    std::memcpy(&bytes, value.data() + i, std::min(sizeof(Word), value.size() - i));
    Append(bytes);
  }
  ++arg_;
}

std::vector<Word> OpRecording::ShapeKey() const {
  const auto& log = recorder_->log_;
  std::vector<Word> key(log.code.begin() + code_begin_, log.code.end());
  for (const Operand& operand : operands_) key[operand.code_position - code_begin_] &= codegen::kShapeRelevantTensorBits;
  // A run-time scalar's slot number is not part of what the op computes, nor is its value but for what kernels check.
  for (const uint32_t position : slot_positions_) {
    Word& word = key[position - code_begin_];
    const uint64_t payload = codegen::PayloadOf(word), slot = payload >> 8, type = payload & 255;
    const uint64_t at = slot - scalars_begin_;
    const bool is_number = at < 64 && (numbers_ >> at & 1) != 0;
    word = MakeWord(Tag::kScalarSlot, type | (is_number ? ClassOf(static_cast<c10::ScalarType>(type), log.scalars[slot]) << 8 : 0));
  }
  // Nor does it matter where an operand begins.
  auto from = log.shapes.begin() + shapes_begin_;
  for (const Operand& operand : operands_) {
    if (!operand.known_offset) continue;
    const auto offset = log.shapes.begin() + operand.shape_position + 2 * operand.ndim;
    key.insert(key.end(), from, offset);
    from = offset + 1;
  }
  key.insert(key.end(), from, log.shapes.end());
  return key;
}

// Whether the numbers are of the same classes as when the prediction was recorded.
bool OpRecording::NumbersAreAlike() const {
  if (numbers_ == 0) return true;
  const auto& now = recorder_->log_.scalars;
  const auto& then = recorder_->prediction_->log.scalars;
  for (const uint32_t position : slot_positions_) {
    const uint64_t payload = codegen::PayloadOf(recorder_->log_.code[position]), slot = payload >> 8, at = slot - scalars_begin_;
    const auto type = static_cast<c10::ScalarType>(payload & 255);
    if (at < 64 && (numbers_ >> at & 1) != 0 && ClassOf(type, now[slot]) != ClassOf(type, then[slot])) return false;
  }
  return true;
}

const codegen::OutputMetas* OpRecording::Known() {
  if (MayRefuse()) return nullptr;
  predicted_ = recorder_->FollowsPrediction(code_begin_, shapes_begin_) || recorder_->TakesOtherBeginning(code_begin_, shapes_begin_);
  if (predicted_ && NumbersAreAlike()) {
    metas_ = recorder_->PredictedResults(recorder_->log_.ops.size());
    if (metas_ != nullptr) return metas_;
  }
  outputs_ = RecallShapes(ShapeKey());
  metas_ = outputs_.get();
  return metas_;
}

const codegen::OutputMetas* OpRecording::Learn(codegen::OutputMetas outputs) {
  outputs_ = std::make_shared<const codegen::OutputMetas>(std::move(outputs));
  RememberShapes(ShapeKey(), outputs_);
  metas_ = outputs_.get();
  return metas_;
}

bool OpRecording::FitsResult(const at::Scalar& number) const {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  if (!info_.returns_mutated_self) {
    if (!metas_->empty() && metas_->front().defined) dtype = metas_->front().dtype;
  } else if (!operands_.empty()) {
    dtype = TensorWord::Unpack(recorder_->log_.code[operands_.front().code_position]).dtype;
  }
  switch (dtype) {
    case c10::kByte:
      return Fits<uint8_t>(number);
    case c10::kChar:
      return Fits<int8_t>(number);
    case c10::kShort:
      return Fits<int16_t>(number);
    case c10::kInt:
      return Fits<int32_t>(number);
    case c10::kLong:
      return Fits<int64_t>(number);
    case c10::kFloat:
      return Fits<float>(number);
    case c10::kHalf:
      return Fits<c10::Half>(number);
    case c10::kBFloat16:
      return Fits<c10::BFloat16>(number);
    default:
      return true;
  }
}

bool OpRecording::AddDevice(c10::Device device) {
  const std::optional<runtime::DeviceCode> code = runtime::CodeOf(device);
  if (!code.has_value()) return false;
  asked_device_ = *code;
  // The CPU's index is what the program wrote.
  const c10::Device named = device.is_cpu() ? device : runtime::DeviceOf(*code);
  AddInt(static_cast<int64_t>(named.type()) << 8 | static_cast<uint8_t>(named.index()));
  return true;
}

bool OpRecording::RunsAtOnce() const {
  if (!only_settled_numbers_ || device_ != runtime::kCpuCode || operands_.empty() || runtime::Active().record_scalars) return false;
  return std::all_of(metas_->begin(), metas_->end(), [](const codegen::OutputMeta& meta) { return !meta.defined || meta.sizes.empty(); });
}

bool OpRecording::MarkMutatedOperands() {
  c10::SmallVector<uint32_t, 4> marked;
  for (const Operand& operand : operands_) {
    const Recorder::Slot& slot = recorder_->slots_[operand.storage];
    if (!operand.mutated || !slot.is_input || slot.mutated) continue;
    if (recorder_->MarkMutated(operand.storage)) {
      marked.push_back(operand.storage);
      continue;
    }
    for (const uint32_t storage : marked) recorder_->UnmarkMutated(storage);
    return false;
  }
  return true;
}

bool OpRecording::Commit() {
  if (info_.mutated_args != 0 && !MarkMutatedOperands()) return false;
  Recorder& r = *recorder_;
  if (device_ != runtime::kCpuCode && !r.stream_.has_value()) {
    const c10::Device device = runtime::DeviceOf(device_);
    r.stream_ = runtime::CurrentStream(device);
    r.LimitBytes(device);
  }
  if (device_ != runtime::kCpuCode) KeepBackwardHere();
  if (r.log_.ops.empty()) NoteRecordedTrace(r.prediction_);
  committed_ = true;
  // What was inferred for other sizes may differ from what they were taken for.
  if (predicted_ && outputs_ != nullptr && r.symbols_.active()) predicted_ = r.symbols_.TakeResults(r.log_.ops.size(), *outputs_);
  if (!predicted_ && r.prediction_ != nullptr) r.CompleteOutputs();
  for (const Operand& operand : operands_) r.slots_[operand.storage].unwritten = false;
  r.FollowStep(writes_parameters_);
  codegen::TraceLog::Op op;
  op.code_begin = static_cast<uint32_t>(code_begin_);
  op.shapes_begin = static_cast<uint32_t>(shapes_begin_);
  op.op_id = info_.id;
  next_result_ = r.log_.num_storages;
  op.first_result = next_result_;
  if (!info_.returns_mutated_self) {
    for (const auto& meta : *metas_) r.log_.num_storages += meta.defined ? 1 : 0;
  }
  while (static_cast<int32_t>(r.slots_.size()) < r.log_.num_storages) r.slots_.emplace_back();
  op.outputs = std::move(outputs_);
  r.log_.ops.push_back(std::move(op));
  r.mark_.store(r.epoch() << 24 | (r.log_.ops.size() & 0xFFFFFF), std::memory_order_relaxed);
  if (r.keeps_stacks_) r.stacks_.push_back(codegen::CaptureStack());
  r.FollowBlocks();
  r.FollowLoops();
  return true;
}

at::Tensor OpRecording::Result(size_t index) {
  const codegen::OutputMeta& meta = (*metas_)[index];
  if (!meta.defined) return at::Tensor();
  const int32_t number = next_result_++;
  auto storage = c10::make_intrusive<LazyStorage>(meta.nbytes, runtime::DeviceOf(meta.on_cpu ? runtime::kCpuCode : device_), recorder_,
                                                  recorder_->epoch(), number);
  auto& slot = recorder_->slots_[number];
  slot.impl = storage.get();
  slot.unwritten = info_.is_allocation;
  recorder_->pending_bytes_ += meta.nbytes;
  return MakeLazyTensor(meta, std::move(storage));
}

}  // namespace lazuli::tracer
