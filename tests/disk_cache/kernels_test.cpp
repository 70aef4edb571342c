// Kernels that come from the disk cache compute what compiled ones do; files and objects that are no good are compiled anew.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <random>

#include "codegen/kernel_store.h"
#include "runtime/disk_cache.h"
#include "tests/support/cache_fixture.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using codegen::CompileKernel;
using codegen::ForgetIdleKernels;
using codegen::KernelIR;
using codegen::KernelOrigin;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using T = c10::ScalarType;
using K = codegen::KOp;

constexpr int64_t kLarge = int64_t{1} << 30;

KernelIR Pointwise(K op, T type, int64_t size) {
  KernelBuilder k({size});
  const int x = k.Load(k.Buffer(type));
  k.Store(k.Buffer(type, true), k.Op(K::kMul, k.Op(op, x), x));
  return k.kernel();
}

KernelIR HalfKernel() {
  KernelBuilder k({91});
  const int x = k.Cast(k.Load(k.Buffer(T::Half)), T::Float);
  k.Store(k.Buffer(T::Half, true), k.Cast(k.Op(K::kAbs, x), T::Half));
  return k.kernel();
}

// Large enough to be split: several functions in one object.
KernelIR Sum(T type, int64_t size) {
  KernelBuilder k({size}, 1);
  const int x = k.Load(k.Buffer(type));
  k.Store(k.KeptBuffer(type, true), k.Op(K::kReduceSum, x));
  return k.kernel();
}

class KernelsOnDisk : public CacheFixture {
 protected:
  KernelsOnDisk() { ForgetIdleKernels(); }

  CheckOptions Options(const std::string& isa, const std::string& precision) {
    CheckOptions options;
    options.target = {isa, precision, &disk_};
    options.ulps = 1;
    options.whole = true;
    return options;
  }

  KernelOrigin Origin(const KernelIR& kernel, const CheckOptions& options) {
    KernelOrigin origin = KernelOrigin::kFound;
    const auto made = CompileKernel(kernel, options.target, &origin);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return origin;
  }

  // From nothing, from this process, and from disk; right each time.
  void ExpectLoads(const KernelIR& kernel, const CheckOptions& options) {
    EXPECT_EQ(Origin(kernel, options), KernelOrigin::kCompiled);
    EXPECT_EQ(Origin(kernel, options), KernelOrigin::kFound);
    EXPECT_EQ(CheckKernel(kernel, options), "");
    ForgetIdleKernels();
    EXPECT_EQ(Origin(kernel, options), KernelOrigin::kLoaded);
    EXPECT_EQ(Origin(kernel, options), KernelOrigin::kFound);
    EXPECT_EQ(CheckKernel(kernel, options), "");
  }

  runtime::DiskCache disk_{folder_, kLarge};
};

TEST_F(KernelsOnDisk, EveryTarget) {
  for (const std::string& isa : AllIsas()) {
    ExpectLoads(Pointwise(K::kAbs, T::Float, 1003), Options(isa, "eager"));
    ExpectLoads(Pointwise(K::kAbs, T::Float, 1003), Options(isa, "strict"));
    ExpectLoads(Sum(T::Double, 3000000), Options(isa, "eager"));
  }
  EXPECT_EQ(Counts().disk_cache_errors, 0);
  EXPECT_EQ(Counts().disk_cache_hits, Counts().disk_cache_writes);
}

// A schedule found in another process is used without being timed.
TEST_F(KernelsOnDisk, SchedulesAreRemembered) {
  const KernelIR kernel = Pointwise(K::kAbs, T::Float, 100003);
  CheckOptions options = Options("avx2", "eager");
  options.with_symbols = false;
  options.target.autotune_ms = 1000;
  const codegen::Isa isa = std::min(codegen::HostIsa(), codegen::Isa::kAvx2);
  const std::string text = PrintKernel(kernel), key = codegen::KernelKey(text, isa, "eager");
  codegen::KeepFastest(&disk_, codegen::MachineOf(at::get_num_threads()), key, "unroll=8 grain=1");
  EXPECT_EQ(Origin(kernel, options), KernelOrigin::kCompiled);
  EXPECT_EQ(CheckKernel(kernel, options), "");
  EXPECT_EQ(Counts().kernels_tuned, 0);
  EXPECT_FALSE(codegen::FindObject(&disk_, key).has_value());
  // How much work is worth a thread is no matter of code.
  EXPECT_TRUE(codegen::FindObject(&disk_, codegen::KernelKey(text, isa, "eager", "unroll=8")).has_value());
  ForgetIdleKernels();
  EXPECT_EQ(Origin(kernel, options), KernelOrigin::kLoaded);

  // What makes no sense is found out anew.
  codegen::KeepFastest(&disk_, codegen::MachineOf(at::get_num_threads()), key, "unroll=7");
  ForgetIdleKernels();
  EXPECT_EQ(Origin(kernel, options), KernelOrigin::kCompiled);
  EXPECT_EQ(CheckKernel(kernel, options), "");
}

// Calls into SLEEF, VML, libm and this library's own functions are resolved when an object is loaded.
TEST_F(KernelsOnDisk, CallsOfOtherLibraries) {
  for (const std::string& isa : AllIsas()) {
    for (const char* precision : {"eager", "strict"}) {
      for (K op : {K::kExp, K::kErfinv, K::kLgamma, K::kAsinh}) {
        CheckOptions options = Options(isa, precision);
        options.whole = false;
        options.low = 0.1;
        options.high = 0.9;
        options.ulps = 8;
        ExpectLoads(Pointwise(op, T::Double, 77), options);
        ExpectLoads(Pointwise(op, T::Float, 77), options);
      }
      ExpectLoads(HalfKernel(), Options(isa, precision));
    }
  }
  EXPECT_EQ(Counts().disk_cache_errors, 0);
}

TEST_F(KernelsOnDisk, KeysTellTargetsApart) {
  const std::string text = PrintKernel(Pointwise(K::kAbs, T::Float, 10));
  const std::string key = codegen::KernelKey(text, codegen::Isa::kAvx2, "eager");
  EXPECT_NE(key, codegen::KernelKey(text, codegen::Isa::kAvx512, "eager"));
  EXPECT_NE(key, codegen::KernelKey(text, codegen::Isa::kAvx2, "strict"));
  EXPECT_NE(key, codegen::KernelKey(PrintKernel(Pointwise(K::kAbs, T::Float, 11)), codegen::Isa::kAvx2, "eager"));
  EXPECT_NE(codegen::KernelSymbol(key), codegen::KernelSymbol(key + " "));
  for (const char* fact : {"codegen ", "libtorch 2.", "llvm 19.", "isa avx2\n", "precision eager\n"}) {
    EXPECT_THAT(key, HasSubstr(fact));
  }
}

TEST_F(KernelsOnDisk, AKernelWithoutWorkIsNotKept) {
  const CheckOptions options = Options("avx512", "eager");
  EXPECT_EQ(Origin(Pointwise(K::kAbs, T::Float, 0), options), KernelOrigin::kFound);
  EXPECT_THAT(Entries(), SizeIs(0));
}

// Objects whose checksum is right, and which still cannot be linked.
TEST_F(KernelsOnDisk, ObjectsThatDoNotLink) {
  const KernelIR kernel = Pointwise(K::kTan, T::Double, 55), other = Pointwise(K::kAbs, T::Double, 55);
  const CheckOptions options = Options("avx2", "eager");
  const auto key_of = [&](const KernelIR& k) {
    return codegen::KernelKey(PrintKernel(k), std::min(codegen::HostIsa(), codegen::Isa::kAvx2), "eager");
  };
  ASSERT_EQ(Origin(kernel, options), KernelOrigin::kCompiled);
  ASSERT_EQ(Origin(other, options), KernelOrigin::kCompiled);
  const std::string good = disk_.Get("kernel", key_of(kernel)).value();
  const std::string others = disk_.Get("kernel", key_of(other)).value();
  std::string unknown = good;
  const size_t call = unknown.find("Sleef");
  ASSERT_NE(call, std::string::npos);
  unknown.replace(call, 5, "nosuc");
  std::vector<std::string> objects = {"", "no object", others, unknown};
  for (size_t size = 1; size < good.size(); size += 97) objects.push_back(good.substr(0, size));
  int64_t errors = 0;
  for (const std::string& object : objects) {
    ForgetIdleKernels();
    disk_.Put("kernel", key_of(kernel), object);
    EXPECT_EQ(Origin(kernel, options), KernelOrigin::kCompiled) << object.size() << " of " << good.size() << " bytes";
    EXPECT_EQ(Counts().disk_cache_errors, ++errors);
    EXPECT_EQ(CheckKernel(kernel, options), "");
    EXPECT_EQ(disk_.Get("kernel", key_of(kernel)), good);  // Replaced, and code generation is reproducible.
  }
  EXPECT_THAT(Log(), HasSubstr("no function 'nosuc"));
}

TEST_F(KernelsOnDisk, DamagedFilesAreCompiledAnew) {
  const std::vector<KernelIR> kernels = {Pointwise(K::kAbs, T::Float, 100), Pointwise(K::kNeg, T::Float, 100), Sum(T::Int, 3000)};
  const CheckOptions options = Options("avx512", "eager");
  std::vector<std::filesystem::path> paths;
  std::vector<std::string> files;
  for (const KernelIR& kernel : kernels) {
    ASSERT_EQ(Origin(kernel, options), KernelOrigin::kCompiled);
    const std::string key = codegen::KernelKey(PrintKernel(kernel), codegen::HostIsa(), "eager");
    paths.push_back(folder_ / runtime::EntryName("kernel", key));
    files.push_back(ReadBytes(paths.back()));
  }
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    ForgetIdleKernels();
    const size_t which = i % kernels.size();
    std::string bytes = files[which];
    switch (i / static_cast<int>(kernels.size()) % 4) {
      case 0:
        bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
        break;
      case 1:
        bytes.resize(random() % bytes.size());
        break;
      case 2:
        bytes = files[(which + 1) % files.size()];
        break;
      default:
        bytes.append(1 + random() % 100, '\0');
    }
    WriteBytes(paths[which], bytes);
    EXPECT_EQ(Origin(kernels[which], options), KernelOrigin::kCompiled);
    EXPECT_EQ(CheckKernel(kernels[which], options), "");
    ASSERT_EQ(Counts().disk_cache_errors, i + 1);
    EXPECT_EQ(ReadBytes(paths[which]), files[which]);
  }
}

}  // namespace
}  // namespace lazuli::testing
