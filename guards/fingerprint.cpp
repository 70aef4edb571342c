#include "guards/program_cache.h"

namespace lazuli::guards {

uint64_t Fingerprint(const codegen::TraceLog& log) {
  const uint64_t seed = codegen::HashWords(log.shapes.data(), log.shapes.size(), 0x4C617A756C69ull);
  return codegen::HashWords(log.code.data(), log.code.size(), seed);
}

uint64_t HashCode(const codegen::TraceLog& log) { return codegen::HashWords(log.code.data(), log.code.size(), 0x536B656Cull); }

}  // namespace lazuli::guards
