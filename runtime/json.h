// Writes JSON: strings with their escapes.
#pragma once

#include <string>
#include <string_view>

namespace lazuli::runtime {

// Appends `text` in quotes. Control characters are escaped; other bytes stay as they are, so UTF-8 in is UTF-8 out.
void AppendJsonString(std::string_view text, std::string* json);

}  // namespace lazuli::runtime
