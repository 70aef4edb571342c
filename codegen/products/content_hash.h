// Whether memory still holds what it held.
#pragma once

#include <array>
#include <cstdint>

namespace lazuli::codegen {

using ContentHash = std::array<uint64_t, 2>;

// Of `nbytes` bytes, on LibTorch's threads; the same for any number of them. As fast as memory is read. A change of any one word always
// changes it, other changes all but surely; not a defence against somebody who looks for two contents of one hash.
ContentHash HashContent(const void* data, int64_t nbytes);

}  // namespace lazuli::codegen
