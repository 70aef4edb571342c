#include "codegen/caller_location.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <llvm/DebugInfo/Symbolize/Symbolize.h>

#include <mutex>
#include <string_view>

namespace lazuli::codegen {
namespace {

constexpr int kMaxFrames = 96;

bool IsForeignModule(std::string_view path) {
  for (const char* name : {"liblazuli", "libtorch", "libc10", "libgomp", "libc.so", "libstdc++", "libpthread", "ld-linux", "libpython"}) {
    if (path.find(name) != std::string_view::npos) return true;
  }
  return path.empty();
}

// Library code that is linked into the program itself (a sanitizer's, whose names begin with underscores), or inlined from headers.
bool IsForeignFunction(std::string_view name) {
  for (const char* space : {"__", "lazuli::", "at::", "c10::", "torch::", "std::", "operator", "void c10::"}) {
    if (name.rfind(space, 0) == 0) return true;
  }
  return name.find("lazuli::tracer") != std::string_view::npos;
}

std::string Describe(const llvm::DILineInfo& line) {
  if (line.Line == 0 || line.FileName == llvm::DILineInfo::BadString) return line.FunctionName;
  const std::string_view path = line.FileName;
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line.Line);
}

}  // namespace

CallStack CaptureStack() {
  CallStack stack(kMaxFrames);
  stack.resize(static_cast<size_t>(backtrace(stack.data(), kMaxFrames)));
  return stack;
}

std::string CallerLocation(const CallStack& stack) {
  static std::mutex mutex;
  static auto* symbolizer = new llvm::symbolize::LLVMSymbolizer;
  std::lock_guard<std::mutex> lock(mutex);
  for (void* const frame : stack) {
    Dl_info module;
    if (dladdr(frame, &module) == 0 || module.dli_fname == nullptr || IsForeignModule(module.dli_fname)) continue;
    // The frame's address is that of the next instruction.
    const auto address = static_cast<uint64_t>(static_cast<char*>(frame) - static_cast<char*>(module.dli_fbase)) - 1;
    auto lines = symbolizer->symbolizeInlinedCode(std::string(module.dli_fname), {address, llvm::object::SectionedAddress::UndefSection});
    if (!lines) {
      llvm::consumeError(lines.takeError());
      continue;
    }
    for (uint32_t inlined = 0; inlined < lines->getNumberOfFrames(); ++inlined) {
      const llvm::DILineInfo& line = lines->getFrame(inlined);
      if (line.FunctionName == llvm::DILineInfo::BadString || IsForeignFunction(line.FunctionName)) continue;
      return Describe(line);
    }
  }
  return "";
}

}  // namespace lazuli::codegen
