// SipHash-2-4 with 128 bits of result: checksums and names of cache files. Not a defence against somebody who may write the files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lazuli::runtime {

using Hash128 = std::array<uint8_t, 16>;

// The hash of `data` under the key (key0, key1); different keys make unrelated hashes.
Hash128 SipHash128(std::string_view data, uint64_t key0, uint64_t key1);

// 32 lower-case hexadecimal digits.
std::string HexOf(const Hash128& hash);

}  // namespace lazuli::runtime
