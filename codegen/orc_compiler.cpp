#include "codegen/orc_compiler.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"

namespace lazuli::codegen {
namespace {

absl::Status ToStatus(llvm::Error error, const char* what) {
  return absl::InternalError(absl::StrCat("kernel compiler: ", what, ": ", llvm::toString(std::move(error))));
}

const char* CpuName(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "x86-64-v4";
    case Isa::kAvx2:
      return "x86-64-v3";
    default:
      return "x86-64-v2";
  }
}

const char* VectorBits(Isa isa) { return isa == Isa::kAvx512 ? "512" : isa == Isa::kAvx2 ? "256" : "128"; }

void InitializeLlvm() {
  static const bool done = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    // Addresses are emitted in the form that x86 wants; loop strength reduction takes most of the time and finds nothing to gain.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("disable-lsr"); it != options.end()) it->second->addOccurrence(0, "disable-lsr", "true");
    return true;
  }();
  (void)done;
}

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(Isa isa) {
  InitializeLlvm();
  const std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) return absl::InternalError(absl::StrCat("kernel compiler: ", error));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(triple, CpuName(isa), "", options, llvm::Reloc::PIC_,
                                                                          llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default,
                                                                          /*JIT=*/true));
}

// A TargetMachine serves one thread at a time.
absl::StatusOr<llvm::TargetMachine*> ThreadTargetMachine(Isa isa) {
  thread_local std::unique_ptr<llvm::TargetMachine> machines[3];
  std::unique_ptr<llvm::TargetMachine>& machine = machines[static_cast<int>(isa)];
  if (machine == nullptr) {
    absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> made = MakeTargetMachine(isa);
    if (!made.ok()) return made.status();
    machine = *std::move(made);
  }
  return machine.get();
}

absl::Status Optimize(llvm::Module& module, llvm::TargetMachine& machine, Isa isa) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple().str());
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", CpuName(isa));
    function.addFnAttr("prefer-vector-width", VectorBits(isa));
    function.addFnAttr("min-legal-vector-width", VectorBits(isa));
  }
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (llvm::verifyModule(module, &stream)) return absl::InternalError(absl::StrCat("kernel compiler: invalid IR: ", stream.str()));

  // The emitter already writes vector code; what is left is to promote accumulators and to clean up. InstCombine is left out: LLVM 19's
  // turns select(isnan(|x|), |x|, select(|x| > 0, |x|, 0)) into select(x ugt 0, |x|, 0), which is wrong for negative x.
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&machine);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(graphs);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::FunctionPassManager pipeline;
  pipeline.addPass(llvm::PromotePass());
  pipeline.addPass(llvm::EarlyCSEPass());
  pipeline.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) pipeline.run(function, functions);
  }
  return absl::OkStatus();
}

// The process's one LLJIT; never destroyed, so that kernels may outlive static destructors.
class Jit {
 public:
  static absl::StatusOr<Jit*> Get() {
    static const absl::StatusOr<Jit*> jit = Create();
    return jit;
  }

  absl::Status DefineExternals(llvm::Module& module, const std::function<void*(const std::string&)>& resolve) {
    std::lock_guard<std::mutex> lock(mutex_);
    llvm::orc::SymbolMap symbols;
    for (llvm::Function& function : module) {
      const std::string name = function.getName().str();
      if (!function.isDeclaration() || function.isIntrinsic() || defined_.count(name) != 0) continue;
      void* address = resolve(name);
      if (address == nullptr) return absl::InternalError(absl::StrCat("kernel compiler: no function '", name, "' in this process"));
      symbols[lljit_->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                                llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
      defined_.insert(name);
    }
    if (symbols.empty()) return absl::OkStatus();
    if (llvm::Error error = dylib().define(llvm::orc::absoluteSymbols(std::move(symbols)))) return ToStatus(std::move(error), "symbols");
    return absl::OkStatus();
  }

  llvm::orc::LLJIT& lljit() { return *lljit_; }
  llvm::orc::JITDylib& dylib() { return lljit_->getMainJITDylib(); }

 private:
  static absl::StatusOr<Jit*> Create() {
    InitializeLlvm();
    llvm::orc::JITTargetMachineBuilder builder{llvm::Triple(llvm::sys::getProcessTriple())};
    llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> lljit =
        llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(builder)).create();
    if (!lljit) return ToStatus(lljit.takeError(), "LLJIT");
    auto jit = std::make_unique<Jit>();
    jit->lljit_ = std::move(*lljit);
    // What code generation itself may call: memcpy, fmaf.
    auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(jit->lljit_->getDataLayout().getGlobalPrefix());
    if (!process) return ToStatus(process.takeError(), "process symbols");
    jit->dylib().addGenerator(std::move(*process));
    return jit.release();
  }

  std::unique_ptr<llvm::orc::LLJIT> lljit_;
  std::mutex mutex_;
  std::set<std::string> defined_;  // Guarded by mutex_.
};

class OrcCode : public JitCode {
 public:
  explicit OrcCode(llvm::orc::ResourceTrackerSP tracker) : tracker_(std::move(tracker)) {}
  ~OrcCode() override { llvm::consumeError(tracker_->remove()); }
  void AddAddress(void* address) { addresses_.push_back(address); }

 private:
  llvm::orc::ResourceTrackerSP tracker_;
};

}  // namespace

Isa HostIsa() {
  static const Isa isa = [] {
    const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
    auto has = [&](std::initializer_list<const char*> names) {
      for (const char* name : names) {
        if (!features.lookup(name)) return false;
      }
      return true;
    };
    if (!has({"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"})) return Isa::kSse4;
    return has({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}) ? Isa::kAvx512 : Isa::kAvx2;
  }();
  return isa;
}

absl::StatusOr<std::shared_ptr<const JitCode>> CompileModule(llvm::Module& module, Isa isa, const std::vector<std::string>& functions,
                                                             const std::function<void*(const std::string&)>& resolve) {
  absl::StatusOr<Jit*> jit = Jit::Get();
  if (!jit.ok()) return jit.status();
  absl::StatusOr<llvm::TargetMachine*> machine = ThreadTargetMachine(isa);
  if (!machine.ok()) return machine.status();
  if (absl::Status status = (*jit)->DefineExternals(module, resolve); !status.ok()) return status;
  if (absl::Status status = Optimize(module, **machine, isa); !status.ok()) return status;
  llvm::orc::SimpleCompiler compiler(**machine);
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> object = compiler(module);
  if (!object) return ToStatus(object.takeError(), "code generation");

  llvm::orc::ResourceTrackerSP tracker = (*jit)->dylib().createResourceTracker();
  auto code = std::make_shared<OrcCode>(tracker);
  if (llvm::Error error = (*jit)->lljit().addObjectFile(tracker, std::move(*object))) return ToStatus(std::move(error), "linking");
  for (const std::string& function : functions) {
    llvm::Expected<llvm::orc::ExecutorAddr> address = (*jit)->lljit().lookup(function);
    if (!address) return ToStatus(address.takeError(), "lookup");
    code->AddAddress(address->toPtr<void*>());
  }
  return std::shared_ptr<const JitCode>(std::move(code));
}

absl::StatusOr<std::string> ModuleText(llvm::Module& module, Isa isa) {
  absl::StatusOr<llvm::TargetMachine*> machine = ThreadTargetMachine(isa);
  if (!machine.ok()) return machine.status();
  if (absl::Status status = Optimize(module, **machine, isa); !status.ok()) return status;
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  llvm::SmallString<0> assembly;
  llvm::raw_svector_ostream assembly_stream(assembly);
  llvm::legacy::PassManager passes;
  if ((*machine)->addPassesToEmitFile(passes, assembly_stream, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    return absl::InternalError("kernel compiler: cannot print assembly");
  }
  passes.run(module);
  return absl::StrCat(stream.str(), "\n", std::string(assembly.data(), assembly.size()));
}

}  // namespace lazuli::codegen
