#include "tools/json_line.h"

#include <cctype>
#include <charconv>

namespace lazuli::tools {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool ReadLine(JsonLine* line) {
    if (!Accept('{')) return false;
    if (!Accept('}')) {
      do {
        std::string key;
        if (!ReadString(&key) || !Accept(':') || !ReadMember(key, line)) return false;
      } while (Accept(','));
      if (!Accept('}')) return false;
    }
    SkipSpaces();
    return at_ == text_.size();
  }

 private:
  void SkipSpaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Accept(char c) {
    SkipSpaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool ReadMember(const std::string& key, JsonLine* line) {
    SkipSpaces();
    if (at_ >= text_.size()) return false;
    if (text_[at_] == '"') return ReadString(&line->texts[key]);
    if (text_[at_] == '{') return ReadNumbers(&line->objects[key]);
    return ReadNumber(&line->numbers[key]);
  }

  bool ReadNumbers(std::map<std::string, int64_t>* numbers) {
    if (!Accept('{')) return false;
    if (Accept('}')) return true;
    do {
      std::string key;
      if (!ReadString(&key) || !Accept(':') || !ReadNumber(&(*numbers)[key])) return false;
    } while (Accept(','));
    return Accept('}');
  }

  bool ReadNumber(int64_t* number) {
    SkipSpaces();
    const char* begin = text_.data() + at_;
    const auto result = std::from_chars(begin, text_.data() + text_.size(), *number);
    if (result.ec != std::errc()) return false;
    at_ = static_cast<size_t>(result.ptr - text_.data());
    return true;
  }

  bool ReadString(std::string* value) {
    value->clear();
    if (!Accept('"')) return false;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        *value += c;
      } else if (!ReadEscape(value)) {
        return false;
      }
    }
    return false;
  }

  // At the backslash; leaves `at_` at the escape's last character.
  bool ReadEscape(std::string* value) {
    if (++at_ >= text_.size()) return false;
    const char c = text_[at_];
    if (c == 'u') {
      unsigned code = 0;
      if (at_ + 4 >= text_.size()) return false;
      const char* digits = text_.data() + at_ + 1;
      const auto result = std::from_chars(digits, digits + 4, code, 16);
      if (result.ptr != digits + 4) return false;
      at_ += 4;
      *value += code < 0x80 ? static_cast<char>(code) : '?';  // The log escapes control characters only.
      return true;
    }
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    const size_t index = kNames.find(c);
    if (index == std::string_view::npos) return false;
    *value += kValues[index];
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string JsonLine::text(const std::string& key) const {
  const auto it = texts.find(key);
  return it == texts.end() ? "" : it->second;
}

int64_t JsonLine::number(const std::string& key, int64_t missing) const {
  const auto it = numbers.find(key);
  return it == numbers.end() ? missing : it->second;
}

std::optional<JsonLine> ReadJsonLine(std::string_view line) {
  JsonLine result;
  if (!Reader(line).ReadLine(&result)) return std::nullopt;
  return result;
}

}  // namespace lazuli::tools
