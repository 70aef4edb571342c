#include "codegen/orc_compiler.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
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

#include <array>

#include "absl/strings/str_cat.h"
#include "runtime/thread_object.h"

namespace lazuli::codegen {
namespace {

absl::Status CompilerError(llvm::Error error, const char* what) {
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
  using Machines = std::array<std::unique_ptr<llvm::TargetMachine>, 3>;
  std::unique_ptr<llvm::TargetMachine>& machine = runtime::ThreadObject<Machines>()[static_cast<size_t>(isa)];
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

std::string HostCpuName() { return llvm::sys::getHostCPUName().str(); }

absl::StatusOr<std::string> CompileObject(llvm::Module& module, Isa isa) {
  absl::StatusOr<llvm::TargetMachine*> machine = ThreadTargetMachine(isa);
  if (!machine.ok()) return machine.status();
  if (absl::Status status = Optimize(module, **machine, isa); !status.ok()) return status;
  llvm::orc::SimpleCompiler compiler(**machine);
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> object = compiler(module);
  if (!object) return CompilerError(object.takeError(), "code generation");
  return (*object)->getBuffer().str();
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
