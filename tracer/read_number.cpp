#include "tracer/read_number.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

template <class T>
at::Scalar Read(const void* number) {
  return at::Scalar(*static_cast<const T*>(number));
}

}  // namespace

void* FindNumber(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!IsStridedWindow(impl) || impl.numel() != 1 || !impl.key_set().has(c10::DispatchKey::CPU)) return nullptr;
  c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr || IsPending(*storage)) return nullptr;
  void* const data = DataOf(storage).get();
  const size_t begin = static_cast<size_t>(impl.storage_offset()) * impl.itemsize();
  return data == nullptr || begin + impl.itemsize() > storage->nbytes() ? nullptr : static_cast<char*>(data) + begin;
}

std::optional<at::Scalar> ReadNumber(const at::Tensor& tensor) {
  const void* const number = FindNumber(tensor);
  if (number == nullptr) return std::nullopt;
  switch (tensor.scalar_type()) {
    case c10::kFloat:
      return Read<float>(number);
    case c10::kDouble:
      return Read<double>(number);
    case c10::kHalf:
      return Read<c10::Half>(number);
    case c10::kBFloat16:
      return Read<c10::BFloat16>(number);
    case c10::kLong:
      return Read<int64_t>(number);
    case c10::kInt:
      return Read<int32_t>(number);
    case c10::kShort:
      return Read<int16_t>(number);
    case c10::kChar:
      return Read<int8_t>(number);
    case c10::kByte:
      return Read<uint8_t>(number);
    case c10::kBool:
      return Read<bool>(number);
    default:
      return std::nullopt;
  }
}

}  // namespace lazuli::tracer
