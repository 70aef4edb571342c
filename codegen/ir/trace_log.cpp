#include "codegen/ir/trace_log.h"

#include <ATen/core/List.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cstring>

namespace lazuli::codegen {
namespace {

double AsDouble(Word bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Walks one log's code and shapes in step.
class Decoder {
 public:
  Decoder(const TraceLog& log, Trace* trace) : log_(log), trace_(trace) {}

  void Run() {
    trace_->storages.resize(log_.num_storages);
    trace_->num_scalars = static_cast<int32_t>(log_.scalars.size());
    trace_->num_offsets = static_cast<int32_t>(log_.offsets.size());
    trace_->ops.reserve(log_.ops.size());
    for (const auto& op : log_.ops) ReadOp(op);
    ReadLiveOut();
  }

 private:
  Word Next() { return log_.code.at(code_++); }

  void ReadOp(const TraceLog::Op& op) {
    const Word head = Next();
    TORCH_INTERNAL_ASSERT(TagOf(head) == Tag::kOp);
    TraceOp out;
    out.info = &OpInfoById(OpIdOf(head));
    out.device = runtime::DeviceOf(OpDeviceOf(head));
    out.default_dtype = DefaultDtypeOf(head);
    const auto& arguments = out.info->schema().arguments();
    for (const auto i : c10::irange(out.info->num_args)) {
      out.args.push_back(ReadArg(*arguments[i].type()));
      if ((out.info->mutated_args >> i & 1) != 0) MarkMutated(out.args.back());
    }
    if (!out.info->returns_mutated_self) ReadResults(op, &out);
    out.index = static_cast<int32_t>(trace_->ops.size());
    trace_->ops.push_back(std::move(out));
  }

  void MarkMutated(const TraceArg& arg) {
    for (const auto& ref : arg.tensors) {
      if (ref.defined() && trace_->storages[ref.storage].is_input) trace_->storages[ref.storage].mutated = true;
    }
  }

  void ReadResults(const TraceLog::Op& op, TraceOp* out) {
    StorageId next = op.first_result;
    for (const auto& meta : *op.outputs) {
      TensorRef ref;
      if (meta.defined) {
        ref.storage = next++;
        ref.dtype = meta.dtype;
        ref.sizes = meta.sizes;
        ref.strides = meta.strides;
        trace_->storages[ref.storage].nbytes = meta.nbytes;
        trace_->storages[ref.storage].device = meta.on_cpu ? c10::Device(c10::kCPU) : out->device;
      }
      out->results.push_back(std::move(ref));
    }
  }

  TensorRef ReadTensor(Word word) {
    const TensorWord packed = TensorWord::Unpack(word);
    TensorRef ref;
    ref.storage = static_cast<StorageId>(packed.storage);
    ref.dtype = packed.dtype;
    ref.wrapped_number = packed.wrapped_number;
    ref.offset_slot = static_cast<int32_t>(packed.slot_plus_one) - 1;
    for (int d = 0; d < packed.ndim; ++d) ref.sizes.push_back(static_cast<int64_t>(log_.shapes.at(shape_++)));
    for (int d = 0; d < packed.ndim; ++d) ref.strides.push_back(static_cast<int64_t>(log_.shapes.at(shape_++)));
    if (packed.known_offset) ref.offset = static_cast<int64_t>(log_.shapes.at(shape_++));
    auto& storage = trace_->storages[ref.storage];
    if (packed.first_use) storage.is_input = true;
    storage.device = runtime::DeviceOf(packed.device);
    return ref;
  }

  TraceArg ReadArg(const c10::Type& type) {
    const Word word = Next();
    TraceArg arg;
    switch (TagOf(word)) {
      case Tag::kNone:
        break;
      case Tag::kTensor:
        arg.kind = TraceArg::Kind::kTensor;
        arg.tensors.push_back(ReadTensor(word));
        break;
      case Tag::kUndefined:
        arg.kind = TraceArg::Kind::kTensor;
        arg.tensors.emplace_back();
        break;
      case Tag::kTensorList:
        arg.kind = TraceArg::Kind::kTensorList;
        for (uint64_t i = 0; i < PayloadOf(word); ++i) {
          const Word item = Next();
          arg.tensors.push_back(TagOf(item) == Tag::kTensor ? ReadTensor(item) : TensorRef());
        }
        break;
      case Tag::kScalarSlot:
        arg.kind = TraceArg::Kind::kScalar;
        arg.scalar_type = static_cast<c10::ScalarType>(PayloadOf(word) & 255);
        arg.slot = static_cast<int32_t>(PayloadOf(word) >> 8);
        break;
      default:
        arg.value = ReadConst(word, type);
    }
    return arg;
  }

  c10::IValue ReadConst(Word word, const c10::Type& type) {
    const size_t count = PayloadOf(word);
    switch (TagOf(word)) {
      case Tag::kScalarConst:
        return ReadScalar(static_cast<c10::ScalarType>(count));
      case Tag::kInt: {
        const auto value = static_cast<int64_t>(Next());
        const bool is_device =
            type.kind() == c10::TypeKind::DeviceObjType ||
            (type.kind() == c10::TypeKind::OptionalType && type.containedTypes()[0]->kind() == c10::TypeKind::DeviceObjType);
        if (is_device) return c10::Device(static_cast<c10::DeviceType>(value >> 8), static_cast<c10::DeviceIndex>(value & 255));
        return value;
      }
      case Tag::kBool:
        return count != 0;
      case Tag::kDouble:
        return AsDouble(Next());
      case Tag::kIntList: {
        std::vector<int64_t> values(count);
        for (auto& v : values) v = static_cast<int64_t>(Next());
        return values;
      }
      case Tag::kSizes: {
        if (count == 0) return static_cast<int64_t>(log_.shapes.at(shape_++));
        std::vector<int64_t> values(count - 1);
        for (auto& v : values) v = static_cast<int64_t>(log_.shapes.at(shape_++));
        return values;
      }
      case Tag::kDoubleList: {
        std::vector<double> values(count);
        for (auto& v : values) v = AsDouble(Next());
        return values;
      }
      case Tag::kBoolList: {
        c10::List<bool> values;
        for (size_t i = 0; i < count; ++i) values.push_back(Next() != 0);
        return values;
      }
      case Tag::kString: {
        std::string text(count, '\0');
        for (size_t i = 0; i < count; i += sizeof(Word)) {
          const Word bytes = Next();
          std::memcpy(text.data() + i, &bytes, std::min(sizeof(Word), count - i));
        }
        return text;
      }
      default:
        TORCH_INTERNAL_ASSERT(false, "unexpected tag in a trace log");
    }
  }

  c10::IValue ReadScalar(c10::ScalarType type) {
    const Word bits = Next();
    switch (type) {
      case c10::ScalarType::Double:
        return AsDouble(bits);
      case c10::ScalarType::Bool:
        return bits != 0;
      case c10::ScalarType::ComplexDouble: {
        const double imag = AsDouble(Next());
        return c10::complex<double>(AsDouble(bits), imag);
      }
      default:
        return static_cast<int64_t>(bits);
    }
  }

  void ReadLiveOut() {
    const Word head = Next();
    TORCH_INTERNAL_ASSERT(TagOf(head) == Tag::kLiveOut);
    for (size_t i = 0; i < trace_->storages.size(); i += 64) {
      const Word bits = Next();
      for (size_t b = 0; b < 64 && i + b < trace_->storages.size(); ++b) {
        auto& storage = trace_->storages[i + b];
        storage.live_out = !storage.is_input && (bits >> b & 1) != 0;
      }
    }
  }

  const TraceLog& log_;
  Trace* trace_;
  size_t code_ = 0;
  size_t shape_ = 0;
};

}  // namespace

TensorWord TensorWord::Unpack(Word word) {
  TensorWord out;
  out.dtype = static_cast<c10::ScalarType>(word >> 4 & 63);
  out.known_offset = (word >> 10 & 1) != 0;
  out.ndim = static_cast<uint8_t>(word >> 11 & 31);
  out.wrapped_number = (word >> 16 & 1) != 0;
  out.first_use = (word >> 17 & 1) != 0;
  out.device = static_cast<runtime::DeviceCode>(word >> 18 & 63);
  out.storage = static_cast<uint32_t>(word >> 24 & 0xFFFFF);
  out.slot_plus_one = static_cast<uint32_t>(word >> 44);
  return out;
}

void TraceLog::Clear() {
  code.clear();
  shapes.clear();
  scalars.clear();
  offsets.clear();
  ops.clear();
  num_storages = 0;
  marks.clear();
}

uint64_t HashWords(const Word* words, size_t count, uint64_t seed) {
  uint64_t hash = seed ^ (count * 0x9E3779B97F4A7C15ull);
  for (size_t i = 0; i < count; ++i) {
    const auto product = static_cast<unsigned __int128>(words[i] ^ hash) * 0xD6E8FEB86659FD93ull;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (hash << 7 | hash >> 57);
  }
  return hash;
}

Trace DecodeTrace(const TraceLog& log) {
  Trace trace;
  Decoder(log, &trace).Run();
  return trace;
}

bool TensorRef::operator==(const TensorRef& other) const {
  return storage == other.storage && dtype == other.dtype && sizes == other.sizes && strides == other.strides &&
         offset_slot == other.offset_slot && offset == other.offset && wrapped_number == other.wrapped_number;
}

bool TensorRef::is_contiguous() const {
  if (strides.size() != sizes.size()) return false;
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (strides[d] != expected) return false;
    expected *= std::max<int64_t>(sizes[d], 1);
  }
  return true;
}

int64_t TensorRef::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

}  // namespace lazuli::codegen
