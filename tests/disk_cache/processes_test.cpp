// Real processes that share a disk cache. Each is this program again, told by a variable which kernels to get.
#include <gmock/gmock.h>
#include <llvm/MC/TargetRegistry.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/disk_cache.h"
#include "tests/support/cache_fixture.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using codegen::KernelOrigin;
using ::testing::SizeIs;

constexpr int kKernels = 12;
constexpr const char* kFolderVariable = "LAZULI_TEST_CACHE_FOLDER";

codegen::KernelIR KernelOf(int i) {
  KernelBuilder k({100 + i});
  const int x = k.Load(k.Buffer(c10::ScalarType::Float));
  k.Store(k.Buffer(c10::ScalarType::Float, true), k.Op(codegen::KOp::kMul, x, k.Const(i)));
  return k.kernel();
}

// The child. Its exit status: 0 when all kernels were loaded, 1 when some were compiled, more when something is wrong.
TEST(DISABLED_Child, GetsKernels) {
  const char* folder = std::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  runtime::DiskCache disk(folder, int64_t{1} << 30);
  CheckOptions options;
  options.with_symbols = false;
  options.target.disk = &disk;
  bool compiled = false;
  for (int i = 0; i < kKernels; ++i) {
    KernelOrigin origin = KernelOrigin::kFound;
    const auto kernel = codegen::CompileKernel(KernelOf(i), options.target, &origin);
    if (!kernel.ok() || origin == KernelOrigin::kFound) _exit(2);
    compiled |= origin == KernelOrigin::kCompiled;
    if (!CheckKernel(KernelOf(i), options).empty()) _exit(3);
  }
  if (runtime::Counters::Get().disk_cache_errors.value() != 0) _exit(4);
  // LLVM's target is set up where code is generated, and only there.
  const auto targets = llvm::TargetRegistry::targets();
  if ((targets.begin() != targets.end()) != compiled) _exit(5);
  _exit(compiled ? 1 : 0);
}

class ProcessesTest : public CacheFixture {
 protected:
  pid_t Start() const {
    const pid_t child = fork();
    if (child == 0) {
      setenv(kFolderVariable, folder_.c_str(), 1);
      execl("/proc/self/exe", "disk_cache", "--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Child.*", "--gtest_brief=1",
            nullptr);
      _exit(99);
    }
    return child;
  }
  static int StatusOf(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

TEST_F(ProcessesTest, TheSecondLoadsWhatTheFirstCompiled) {
  EXPECT_EQ(StatusOf(Start()), 1);
  EXPECT_THAT(Entries(), SizeIs(kKernels));
  EXPECT_EQ(StatusOf(Start()), 0);
}

TEST_F(ProcessesTest, TwoAtOnce) {
  const pid_t children[2] = {Start(), Start()};
  for (const pid_t child : children) EXPECT_THAT(StatusOf(child), ::testing::AnyOf(0, 1));
  EXPECT_THAT(Entries(), SizeIs(kKernels));
  EXPECT_THAT(Temporaries(), SizeIs(0));
  EXPECT_EQ(StatusOf(Start()), 0);
}

}  // namespace
}  // namespace lazuli::testing
