#include "codegen/orc_linker.h"

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>

#include <atomic>

#include "absl/strings/str_cat.h"

namespace lazuli::codegen {
namespace {

absl::Status LinkerError(llvm::Error error, const char* what) {
  return absl::InternalError(absl::StrCat("kernel linker: ", what, ": ", llvm::toString(std::move(error))));
}

// The process's one session; never destroyed, so that kernels may outlive static destructors.
class Linker {
 public:
  static absl::StatusOr<Linker*> Get() {
    static const absl::StatusOr<Linker*> linker = Create();
    return linker;
  }

  llvm::orc::ExecutionSession& session() { return *session_; }
  llvm::orc::ObjectLinkingLayer& layer() { return *layer_; }

 private:
  static absl::StatusOr<Linker*> Create() {
    auto process = llvm::orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<llvm::orc::InPlaceTaskDispatcher>());
    if (!process) return LinkerError(process.takeError(), "process");
    auto linker = std::make_unique<Linker>();
    linker->session_ = std::make_unique<llvm::orc::ExecutionSession>(std::move(*process));
    linker->layer_ = std::make_unique<llvm::orc::ObjectLinkingLayer>(*linker->session_);
    // Failures come back as statuses.
    linker->session_->setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
    return linker.release();
  }

  std::unique_ptr<llvm::orc::ExecutionSession> session_;
  std::unique_ptr<llvm::orc::ObjectLinkingLayer> layer_;
};

class OrcCode : public JitCode {
 public:
  OrcCode(llvm::orc::ExecutionSession& session, llvm::orc::JITDylib& dylib) : session_(session), dylib_(dylib) {}
  ~OrcCode() override { llvm::consumeError(session_.removeJITDylib(dylib_)); }
  llvm::orc::JITDylib& dylib() const { return dylib_; }
  void AddAddress(void* address) { addresses_.push_back(address); }

 private:
  llvm::orc::ExecutionSession& session_;
  llvm::orc::JITDylib& dylib_;
};

// The symbols that `object` refers to and does not define.
absl::StatusOr<std::vector<std::string>> UndefinedSymbols(llvm::MemoryBufferRef object) {
  auto file = llvm::object::ObjectFile::createObjectFile(object);
  if (!file) return LinkerError(file.takeError(), "object");
  std::vector<std::string> names;
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    llvm::Expected<uint32_t> flags = symbol.getFlags();
    if (!flags) return LinkerError(flags.takeError(), "symbol");
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) == 0) continue;
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!name) return LinkerError(name.takeError(), "symbol");
    // The linker makes the table itself.
    if (!name->empty() && *name != "_GLOBAL_OFFSET_TABLE_") names.push_back(name->str());
  }
  return names;
}

absl::Status DefineExternals(const std::vector<std::string>& names, const std::function<void*(const std::string&)>& resolve,
                             llvm::orc::JITDylib& dylib) {
  llvm::orc::SymbolMap symbols;
  for (const std::string& name : names) {
    void* address = resolve(name);
    if (address == nullptr) return absl::NotFoundError(absl::StrCat("kernel linker: no function '", name, "' in this process"));
    symbols[dylib.getExecutionSession().intern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                                         llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  }
  if (symbols.empty()) return absl::OkStatus();
  if (llvm::Error error = dylib.define(llvm::orc::absoluteSymbols(std::move(symbols)))) return LinkerError(std::move(error), "symbols");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const JitCode>> LinkObject(const std::string& object, const std::vector<std::string>& functions,
                                                          const std::function<void*(const std::string&)>& resolve) {
  absl::StatusOr<Linker*> linker = Linker::Get();
  if (!linker.ok()) return linker.status();
  // A copy, which the layer keeps until it has linked; aligned, as the reader of objects wants it.
  std::unique_ptr<llvm::MemoryBuffer> buffer = llvm::MemoryBuffer::getMemBufferCopy(object, functions.front());
  absl::StatusOr<std::vector<std::string>> externals = UndefinedSymbols(buffer->getMemBufferRef());
  if (!externals.ok()) return externals.status();

  llvm::orc::ExecutionSession& session = (*linker)->session();
  static std::atomic<int64_t> next_id{0};
  auto code = std::make_shared<OrcCode>(session, session.createBareJITDylib(absl::StrCat("kernel", next_id.fetch_add(1))));
  if (absl::Status status = DefineExternals(*externals, resolve, code->dylib()); !status.ok()) return status;
  if (llvm::Error error = (*linker)->layer().add(code->dylib(), std::move(buffer))) return LinkerError(std::move(error), "linking");
  llvm::orc::SymbolLookupSet wanted;
  for (const std::string& function : functions) wanted.add(session.intern(function));
  auto found = session.lookup(llvm::orc::makeJITDylibSearchOrder(&code->dylib()), std::move(wanted));
  if (!found) return LinkerError(found.takeError(), "lookup");
  for (const std::string& function : functions) code->AddAddress((*found)[session.intern(function)].getAddress().toPtr<void*>());
  return std::shared_ptr<const JitCode>(std::move(code));
}

}  // namespace lazuli::codegen
