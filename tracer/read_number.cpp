#include "tracer/read_number.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

template <class T>
at::Scalar Read(const void* data, int64_t offset) {
  return at::Scalar(static_cast<const T*>(data)[offset]);
}

}  // namespace

std::optional<at::Scalar> ReadNumber(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!IsStridedWindow(impl) || impl.numel() != 1 || !impl.key_set().has(c10::DispatchKey::CPU)) return std::nullopt;
  c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr || IsPending(*storage)) return std::nullopt;
  const void* const data = DataOf(storage).get();
  const int64_t offset = impl.storage_offset();
  const auto end = static_cast<size_t>(offset + 1) * impl.itemsize();
  if (data == nullptr || end > storage->nbytes()) return std::nullopt;
  switch (c10::typeMetaToScalarType(impl.dtype())) {
    case c10::kFloat:
      return Read<float>(data, offset);
    case c10::kDouble:
      return Read<double>(data, offset);
    case c10::kHalf:
      return Read<c10::Half>(data, offset);
    case c10::kBFloat16:
      return Read<c10::BFloat16>(data, offset);
    case c10::kLong:
      return Read<int64_t>(data, offset);
    case c10::kInt:
      return Read<int32_t>(data, offset);
    case c10::kShort:
      return Read<int16_t>(data, offset);
    case c10::kChar:
      return Read<int8_t>(data, offset);
    case c10::kByte:
      return Read<uint8_t>(data, offset);
    case c10::kBool:
      return Read<bool>(data, offset);
    default:
      return std::nullopt;
  }
}

}  // namespace lazuli::tracer
