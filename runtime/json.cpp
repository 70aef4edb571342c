#include "runtime/json.h"

#include <cstdio>

namespace lazuli::runtime {

void AppendJsonString(std::string_view text, std::string* json) {
  *json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *json += '\\';
      *json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      *json += escape;
    } else {
      *json += c;
    }
  }
  *json += '"';
}

}  // namespace lazuli::runtime
