// The recorder's own form of a trace: a flat log of 64-bit words, cheap to append to and compared with memcmp.
//
//   code     the skeleton: op ids and the canonical words of each argument. Compared.
//   shapes   sizes, strides and known offsets of tensor operands, numbers of arguments that hold sizes, in order. Compared.
//   scalars  values of run-time scalars. Not compared.
//   offsets  values of run-time offsets. Not compared.
//   marks    what the program said of sizes. Not compared.
//
// Equality of two traces is equality of (code, shapes): an attribute cannot be in the hash and missing from the comparison.
// DecodeTrace turns a log into the structured Trace that codegen reads; only a cache miss pays for that.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/ir/trace.h"
#include "runtime/device.h"

namespace lazuli::codegen {

using Word = uint64_t;

// The low four bits of the first word of an item.
enum class Tag : uint8_t {
  kNone = 0,
  kTensor = 1,       // See TensorWord.
  kUndefined = 2,    // An undefined tensor.
  kTensorList = 3,   // Payload: length. That many kTensor/kUndefined items follow.
  kScalarSlot = 4,   // Payload: ScalarType | slot << 8.
  kScalarConst = 5,  // Payload: ScalarType. One word follows (two for ComplexDouble).
  kInt = 6,          // One word follows.
  kBool = 7,         // Payload: 0 or 1.
  kDouble = 8,       // One word follows.
  kIntList = 9,      // Payload: length. That many words follow.
  kDoubleList = 10,
  kBoolList = 11,
  kString = 12,   // Payload: length in bytes. The bytes follow, padded with zeros to whole words.
  kOp = 13,       // See OpWord. num_args items follow.
  kSizes = 15,    // Payload: 0, one number; n + 1, a list of n. The numbers are in `shapes`.
  kLiveOut = 14,  // Ends the code. Payload: number of storages. A bit set of the created storages still visible follows.
};

inline Word MakeWord(Tag tag, uint64_t payload) { return static_cast<Word>(tag) | payload << 4; }
inline Tag TagOf(Word word) { return static_cast<Tag>(word & 15); }
inline uint64_t PayloadOf(Word word) { return word >> 4; }

// An operator, the device that it runs on, where its results are, and the default dtype (torch::set_default_dtype) and the settings
// (runtime::KernelSettings::number(), 12 bits) that it was called under.
inline Word OpWord(int32_t op_id, runtime::DeviceCode device, c10::ScalarType default_dtype, uint16_t settings = 0) {
  return MakeWord(Tag::kOp, static_cast<uint64_t>(op_id) | static_cast<uint64_t>(device) << 32 |
                                static_cast<uint64_t>(default_dtype) << 40 | static_cast<uint64_t>(settings) << 48);
}
inline int32_t OpIdOf(Word word) { return static_cast<int32_t>(PayloadOf(word) & 0xFFFFFFFF); }
inline runtime::DeviceCode OpDeviceOf(Word word) { return static_cast<runtime::DeviceCode>(PayloadOf(word) >> 32 & 0xFF); }
inline c10::ScalarType DefaultDtypeOf(Word word) { return static_cast<c10::ScalarType>(PayloadOf(word) >> 40 & 0xFF); }
inline uint16_t SettingsOf(Word word) { return static_cast<uint16_t>(PayloadOf(word) >> 48); }

// A tensor operand packed into one word; its sizes and strides are in `shapes`.
struct TensorWord {
  c10::ScalarType dtype;  // Six bits.
  uint8_t ndim;           // At most kMaxDims.
  bool wrapped_number;
  bool first_use;  // First mention of an input storage.
  runtime::DeviceCode device;
  uint32_t storage;  // At most kMaxStorages.
  uint32_t slot_plus_one;
  // The offset follows the strides in `shapes`: of a window, not at the beginning, over what the trace makes. Where it lies there says what
  // it is a part of, while one over an input may move from run to run.
  bool known_offset = false;

  Word Pack() const {
    return static_cast<Word>(Tag::kTensor) | static_cast<Word>(dtype) << 4 | static_cast<Word>(known_offset) << 10 |
           static_cast<Word>(ndim) << 11 | static_cast<Word>(wrapped_number) << 16 | static_cast<Word>(first_use) << 17 |
           static_cast<Word>(device) << 18 | static_cast<Word>(storage) << 24 | static_cast<Word>(slot_plus_one) << 44;
  }
  static TensorWord Unpack(Word word);
};
constexpr int kMaxDims = 16;
constexpr uint32_t kMaxStorages = (1u << 20) - 1;
static_assert(static_cast<int>(c10::ScalarType::NumOptions) <= 64);
// What of a tensor's word decides an op's output shapes.
constexpr Word kShapeRelevantTensorBits = (((Word{1} << 17) - 1) & ~(Word{1} << 10)) | (Word{63} << 18);

// Metadata of one op's outputs.
struct OutputMeta {
  bool defined = true;
  bool is_number = false;  // An int, which the operands' shapes decide (flash attention's longest sequence): sizes[0]. Not defined.
  bool on_cpu = false;     // Though the operator runs on a GPU (the seeds of attention's dropout).
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::DimVector sizes;
  c10::DimVector strides;
  int64_t nbytes = 0;  // Of the storage that holds exactly this window from offset 0.

  bool operator==(const OutputMeta& o) const {
    if (defined != o.defined || is_number != o.is_number) return false;
    return sizes == o.sizes && (!defined || (dtype == o.dtype && on_cpu == o.on_cpu && strides == o.strides && nbytes == o.nbytes));
  }
};
using OutputMetas = std::vector<OutputMeta>;
using OutputMetasPtr = std::shared_ptr<const OutputMetas>;

// A size that the program has marked as one that changes, or as one that does not.
struct SizeMark {
  uint32_t position = 0;  // In TraceLog::shapes.
  bool dynamic = true;
  int64_t least = 0, most = 0;  // When dynamic: what it may become.
};

struct TraceLog {
  struct Op {
    uint32_t code_begin = 0;
    uint32_t shapes_begin = 0;
    int32_t op_id = 0;
    int32_t first_result = -1;  // Storage number of the first defined result; the others follow it.
    OutputMetasPtr outputs;
  };
  std::vector<Word> code;
  std::vector<Word> shapes;
  std::vector<uint64_t> scalars;
  std::vector<int64_t> offsets;
  std::vector<Op> ops;
  int32_t num_storages = 0;
  std::vector<SizeMark> marks;  // Found when nothing is known of a trace. Not compared.

  void Clear();
};

uint64_t HashWords(const Word* words, size_t count, uint64_t seed);

// The structured form. `log` must be complete (its code ends with the live-out set).
Trace DecodeTrace(const TraceLog& log);

}  // namespace lazuli::codegen
