// Schedules: that no result depends on them, and that timing chooses among them.
#include "codegen/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "codegen/kernel_compiler.h"
#include "runtime/counters.h"
#include "tests/support/random_kernel.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;
using codegen::Schedule;

constexpr int64_t kLarge = codegen::kStreamBytes / 4;
const codegen::IsaInfo kWide{64, true, true};

// Memory of one buffer, where stores past the caches are possible.
class Memory {
 public:
  Memory(const KernelIR& kernel, const codegen::KBuffer& buffer, std::mt19937_64* random) {
    int64_t elements = 1;
    for (size_t d = 0; d < kernel.sizes.size(); ++d) elements += buffer.strides[d] * (std::max<int64_t>(kernel.sizes[d], 1) - 1);
    bytes_ = (static_cast<size_t>(elements * codegen::ElementBytes(buffer.dtype)) + 63) / 64 * 64;
    data_ = static_cast<char*>(std::aligned_alloc(64, bytes_));
    std::memset(data_, 0, bytes_);
    if (buffer.dtype == T::Float) {
      std::uniform_real_distribution<float> values(-3, 3);
      std::generate_n(reinterpret_cast<float*>(data_), elements, [&] { return values(*random); });
    } else if (buffer.dtype != T::Bool) {
      std::generate_n(data_, bytes_, [&] { return static_cast<char>((*random)() % 60); });
    }
  }
  Memory(const Memory& other) : data_(static_cast<char*>(std::aligned_alloc(64, other.bytes_))), bytes_(other.bytes_) {
    std::memcpy(data_, other.data_, bytes_);
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ~Memory() { std::free(data_); }

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_;
  size_t bytes_;
};

// Random contents of all buffers, which `seed` decides.
std::vector<Memory> ContentsOf(const KernelIR& kernel, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Memory> contents;
  for (const auto& buffer : kernel.buffers) contents.emplace_back(kernel, buffer, &random);
  return contents;
}

// The bytes of all buffers after one run.
std::string BytesAfter(const KernelIR& kernel, const codegen::KernelTarget& target, std::vector<Memory> memory) {
  const auto made = codegen::CompileKernel(kernel, target, nullptr);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return "";
  std::vector<void*> pointers;
  for (const Memory& one : memory) pointers.push_back(one.data());
  const std::vector<uint64_t> scalars(static_cast<size_t>(kernel.num_scalars), 0x3fe0000000000000);
  (*made)->Run(pointers.data(), scalars.data());
  std::string all;
  for (const Memory& one : memory) all.append(one.data(), one.bytes());
  return all;
}

// Kernels that read where random indices say would leave their memory here; they have one schedule.
bool Gathers(const KernelIR& kernel) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(), [](const codegen::KInst& inst) { return inst.op == K::kGather; });
}

// One schedule for each value of each knob, and one with all knobs turned.
std::vector<Schedule> AllOf(const KernelIR& kernel) {
  const codegen::LoopPlan plan = codegen::PlanLoops(kernel, kWide);
  std::vector<Schedule> schedules;
  Schedule turned;
  for (const codegen::Knob knob : codegen::kAllKnobs) {
    for (const Schedule& schedule : codegen::Variations(plan, kWide, 4, {}, knob)) schedules.push_back(schedule);
    const auto more = codegen::Variations(plan, kWide, 4, turned, knob);
    if (!more.empty()) turned = more.back();
  }
  schedules.push_back(turned);
  return schedules;
}

std::string BytesAfter(const KernelIR& kernel, const codegen::KernelTarget& target, uint64_t seed) {
  return BytesAfter(kernel, target, ContentsOf(kernel, seed));
}

size_t ExpectEqualUnderAll(const KernelIR& kernel, uint64_t seed) {
  const std::vector<Memory> contents = ContentsOf(kernel, seed);
  const std::string expected = BytesAfter(kernel, {"avx512", "eager"}, contents);
  const std::vector<Schedule> schedules = AllOf(kernel);
  for (const Schedule& schedule : schedules) {
    codegen::KernelTarget target{"avx512", "eager"};
    target.schedule = codegen::PrintSchedule(schedule);
    EXPECT_TRUE(BytesAfter(kernel, target, contents) == expected) << target.schedule << "\n" << codegen::PrintKernel(kernel);
  }
  return schedules.size() - 1;
}

KernelIR Pointwise(c10::DimVector sizes, K op, bool in_place) {
  KernelBuilder b(std::move(sizes));
  const int from = b.Buffer(T::Float, in_place);
  const int x = b.Load(from);
  const int y = b.Op(K::kAdd, b.Op(op, x), b.Load(b.Buffer(T::Float)));
  b.Store(in_place ? from : b.Buffer(T::Float, true), b.Op(K::kMul, y, x));
  return b.kernel();
}

KernelIR Normalized(int64_t rows, int64_t columns) {
  KernelBuilder b({rows, columns}, 1);
  const int x = b.Load(b.Buffer(T::Float));
  const int sum = b.Op(K::kReduceSum, b.Op(K::kExp, x));
  b.Store(b.Buffer(T::Float, true), b.Op(K::kDiv, x, sum));
  return b.kernel();
}

KernelIR SumOfColumns(int64_t rows, int64_t columns) {
  KernelBuilder b({columns, rows}, 1);
  const int x = b.Load(b.Buffer(T::Float, {1, columns}));
  b.Store(b.Buffer(T::Float, {1, 0}, true), b.Op(K::kReduceSum, x));
  return b.kernel();
}

TEST(ScheduleTest, NoResultDependsOnIt) {
  EXPECT_GE(ExpectEqualUnderAll(Pointwise({100003}, K::kAbs, false), 1), 6);
  EXPECT_GE(ExpectEqualUnderAll(Pointwise({100003}, K::kTanh, false), 2), 5);
  EXPECT_GE(ExpectEqualUnderAll(Pointwise({77, 1000}, K::kErf, true), 3), 5);
  EXPECT_GE(ExpectEqualUnderAll(Pointwise({kLarge + 5}, K::kNeg, false), 4), 7);
  EXPECT_GE(ExpectEqualUnderAll(Normalized(300, 1000), 5), 3);
  EXPECT_GE(ExpectEqualUnderAll(SumOfColumns(20000, 300), 6), 3);
}

TEST(ScheduleTest, NoResultOfRandomKernelsDoes) {
  const int64_t first = EnvOr("LAZULI_FUZZ_SEED", 1), count = EnvOr("LAZULI_FUZZ_COUNT", 40);
  size_t schedules = 0;
  for (int64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("LAZULI_FUZZ_SEED=" + std::to_string(seed));
    const KernelIR kernel = RandomKernel(static_cast<uint64_t>(seed)).Build();
    if (!Gathers(kernel)) schedules += ExpectEqualUnderAll(kernel, static_cast<uint64_t>(seed));
  }
  EXPECT_GE(schedules, static_cast<size_t>(count / 4));
}

TEST(ScheduleTest, SumsKeepTheirLanes) {
  for (const codegen::Knob knob : {codegen::Knob::kUnroll, codegen::Knob::kWidth}) {
    EXPECT_TRUE(codegen::Variations(codegen::PlanLoops(SumOfColumns(20000, 300), kWide), kWide, 4, {}, knob).empty());
  }
}

TEST(ScheduleTest, KernelsThatGoWhereIndicesSayHaveNone) {
  KernelBuilder b({100000});
  const int offset = b.Op(K::kAnd, b.Load(b.Buffer(T::Long)), b.Const(511, T::Long));
  b.Store(b.Buffer(T::Float, true), b.Gather(b.Buffer(T::Float, c10::DimVector{0}), offset));
  for (const codegen::Knob knob : codegen::kAllKnobs) {
    EXPECT_TRUE(codegen::Variations(codegen::PlanLoops(b.kernel(), kWide), kWide, 4, {}, knob).empty());
  }
}

TEST(ScheduleTest, TextParsesBack) {
  Schedule schedule;
  EXPECT_EQ(codegen::PrintSchedule(schedule), "default");
  schedule.unroll = 4;
  schedule.stream = 0;
  schedule.grain = -1;
  EXPECT_EQ(codegen::PrintSchedule(schedule), "unroll=4 stream=0 grain=-1");
  const auto parsed = codegen::ParseSchedule("unroll=4 stream=0 grain=-1");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(*parsed == schedule);
  for (const char* bad : {"", "unroll", "unroll=3", "unroll=16", "prefetch=2", "speed=1", "grain=x"}) {
    EXPECT_FALSE(codegen::ParseSchedule(bad).ok()) << bad;
  }
}

class AutotuneTest : public ::testing::Test {
 protected:
  AutotuneTest() {
    codegen::ForgetIdleKernels();
    runtime::Counters::Get().Reset();
  }
  static Stats Counts() { return runtime::Counters::Get().Snapshot(); }
  static codegen::KernelTarget Target(int64_t ms) {
    codegen::KernelTarget target{"avx512", "eager"};
    target.autotune_ms = ms;
    return target;
  }
};

TEST_F(AutotuneTest, TimesSchedulesOnce) {
  const KernelIR kernel = Pointwise({200000}, K::kTanh, /*in_place=*/true);
  const std::string expected = BytesAfter(kernel, {"avx512", "eager"}, 1);
  EXPECT_EQ(Counts().kernels_tuned, 0);
  EXPECT_TRUE(BytesAfter(kernel, Target(10000), 1) == expected);
  EXPECT_EQ(Counts().kernels_tuned, 1);
  const int64_t timed = Counts().schedules_timed;
  EXPECT_GE(timed, 4);
  EXPECT_TRUE(BytesAfter(kernel, Target(10000), 1) == expected);
  EXPECT_EQ(Counts().schedules_timed, timed);
}

TEST_F(AutotuneTest, WithoutABudgetNothingIsTimed) {
  BytesAfter(Pointwise({200000}, K::kTanh, false), Target(0), 1);
  EXPECT_EQ(Counts().kernels_tuned + Counts().schedules_timed, 0);
}

TEST_F(AutotuneTest, ShortAndLargeKernelsAreNotTimed) {
  BytesAfter(Pointwise({64}, K::kTanh, false), Target(10000), 1);
  KernelBuilder fill({int64_t{1} << 28});
  fill.Store(fill.Buffer(T::Float, true), fill.Const(1));
  EXPECT_TRUE(codegen::CompileKernel(fill.kernel(), Target(10000), nullptr).ok());
  EXPECT_EQ(Counts().kernels_tuned + Counts().schedules_timed, 0);
}

TEST_F(AutotuneTest, ValuesDoNotDependOnTiming) {
  for (int64_t seed = 1; seed <= 10; ++seed) {
    const KernelIR kernel = RandomKernel(static_cast<uint64_t>(seed)).Build();
    if (Gathers(kernel)) continue;
    EXPECT_TRUE(BytesAfter(kernel, Target(1000), 1) == BytesAfter(kernel, {"avx512", "eager"}, 1)) << seed;
  }
}

}  // namespace
}  // namespace lazuli::testing
