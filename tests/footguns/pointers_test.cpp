// Memory that the program reaches past the dispatcher.

#include <ATen/DLConvertor.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/native/cpu/Loops.h>
#include <ATen/ops/_lazy_clone.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

// The host's memory, and pointers that the host reads through.
class PointersTest : public BackendTest {
 protected:
  void SetUp() override {
    LAZULI_CPU_ONLY("the host reads memory");
    BackendTest::SetUp();
  }
};

// Memory and metadata that tensors share by ways of their own.
class SharingTest : public BackendTest {};

TEST_P(PointersTest, BlobThatItsOwnerOverwritesAndFrees) {
  ExpectSameAsEager([] {
    Tensors kept;
    torch::Tensor sum = torch::zeros({4}) * 1;
    for (int frame = 0; frame < 3; ++frame) {
      std::vector<float> memory{1.0f + frame, 2, 3, 4};
      const auto blob = torch::from_blob(memory.data(), {4});
      kept.push_back(blob.clone());
      kept.push_back(blob.to(torch::kDouble));
      sum = sum + blob * 2;
      sum.add_(blob);
      std::fill(memory.begin(), memory.end(), -100.0f);
    }
    kept.push_back(sum);
    return kept;
  });
}

TEST_P(PointersTest, BlobIsWrittenAtOnce) {
  const lazuli::DeviceMode mode(options());
  std::vector<float> memory{1, 2, 3, 4, 5, 6};
  auto blob = torch::from_blob(memory.data(), {2, 3});
  const auto pending = torch::ones({3}) * 2;
  blob.add_(pending);
  EXPECT_EQ(memory[0], 3);
  blob.t().select(0, 2).zero_();
  EXPECT_EQ(memory[5], 0);
  const auto doubled = blob * 2;
  blob.copy_(doubled);
  EXPECT_EQ(memory[0], 6);
  torch::exp_out(blob, torch::zeros({2, 3}) * 1);
  EXPECT_EQ(memory[4], 1);
  EXPECT_EQ(doubled[0][0].item<float>(), 6);
}

// Weights of a model, mapped from a file: a snapshot for the first trace, which may be all that reads them before they go away.
TEST_P(PointersTest, LargeReadOnlyMappingIsReadInPlaceFromTheSecondTraceOn) {
  constexpr int64_t kCount = 1 << 19;
  const std::string path = ::testing::TempDir() + "lazuli_weights_" + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, kCount * sizeof(float)), 0);
  void* weights = mmap(nullptr, kCount * sizeof(float), PROT_READ, MAP_SHARED, file, 0);
  auto* writable = static_cast<float*>(mmap(nullptr, kCount * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  {
    const auto blob = torch::from_blob(weights, {kCount});
    const lazuli::DeviceMode mode(options());
    writable[kCount - 1] = 1;
    const auto first = blob * 2;
    writable[kCount - 1] = 2;  // As somebody else might; only to tell when it is read.
    EXPECT_EQ(first[kCount - 1].item<float>(), 2);
    const auto second = blob * 2;
    writable[kCount - 1] = 3;
    EXPECT_EQ(second[kCount - 1].item<float>(), 6);
    // The same block, but writable: always as it was.
    const auto other = torch::from_blob(writable, {kCount});
    for (int i = 0; i < 3; ++i) {
      writable[kCount - 1] = 5;
      const auto third = other * 2;
      writable[kCount - 1] = 6;
      EXPECT_EQ(third[kCount - 1].item<float>(), 10);
    }
  }
  munmap(weights, kCount * sizeof(float));
  munmap(writable, kCount * sizeof(float));
  close(file);
  std::remove(path.c_str());
}

TEST_P(PointersTest, WindowsOfABlob) {
  ExpectSameAsEager([] {
    std::vector<double> memory(24);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = 0.5 * static_cast<double>(i);
    const auto blob = torch::from_blob(memory.data(), {4, 6}, torch::kDouble);
    const auto strided = torch::from_blob(memory.data(), {3, 2}, {2, 7}, torch::kDouble);
    const auto column = blob.select(1, 3) * 2;
    const auto block = blob.slice(0, 1, 3).slice(1, 2, 5).t() + 1;
    const auto wide = blob.select(0, 2).expand({3, 6}) - 1;
    const auto product = torch::matmul(blob.t(), blob);
    const auto odd = strided * 3;
    const auto none = blob.slice(0, 2, 2).sum();
    memory.assign(memory.size(), 1e9);
    return Tensors{column, block, wide, product, odd, none};
  });
}

TEST_P(PointersTest, BlobWithGradients) {
  ExpectSameAsEager([] {
    std::vector<float> memory{1, 2, 3};
    const auto w = torch::linspace(1, 2, 3).requires_grad_();
    torch::Tensor loss;
    {
      auto x = torch::from_blob(memory.data(), {3});
      loss = (x * w).exp().sum();
    }
    loss.backward();
    return Tensors{w.grad(), loss.detach()};
  });
}

TEST_P(PointersTest, TrainingOnOneReusedBlobCompilesOnce) {
  const lazuli::DeviceMode mode(options());
  std::vector<float> memory(8);
  auto w = torch::ones({8}).requires_grad_();
  const StatsDelta delta;
  constexpr int kSteps = 10;
  for (int step = 0; step < kSteps; ++step) {
    std::fill(memory.begin(), memory.end(), static_cast<float>(step));
    const auto loss = (torch::from_blob(memory.data(), {8}) * w).sum();
    loss.backward();
    EXPECT_EQ(loss.item<float>(), 8.0f * static_cast<float>(step));
    EXPECT_EQ(w.grad()[3].item<float>(), step);
    w.mutable_grad().reset();
  }
  EXPECT_LE(delta.of(&Stats::programs_compiled), 4);
  EXPECT_GE(delta.of(&Stats::cache_hits), delta.of(&Stats::traces) - 4);
}

TEST_P(PointersTest, EveryKindOfPointerSeesRecordedWrites) {
  ExpectSameAsEager([] {
    Tensors out;
    const auto keep = [&out](double value) { out.push_back(torch::full({1}, value, torch::kDouble)); };
    auto x = torch::arange(6, torch::kFloat).view({2, 3}) * 1;
    keep(x.add_(1).data_ptr<float>()[5]);
    keep(x.add_(1).const_data_ptr<float>()[5]);
    keep(x.add_(1).mutable_data_ptr<float>()[5]);
    keep(static_cast<const float*>(x.add_(1).data_ptr())[5]);
    keep(static_cast<const float*>(x.add_(1).const_data_ptr())[5]);
    keep(static_cast<const float*>(x.add_(1).storage().data())[5]);
    keep(static_cast<const float*>(x.add_(1).storage().mutable_data())[5]);
    keep(static_cast<const float*>(x.add_(1).storage().data_ptr().get())[5]);
    keep(x.add_(1).accessor<float, 2>()[1][2]);
    keep(x.add_(1).packed_accessor32<float, 2>()[1][2]);
    keep(x.add_(1).packed_accessor64<float, 2>()[1][2]);
    keep(x.add_(1).select(0, 1).data_ptr<float>()[2]);
    keep(x.add_(1).detach().data_ptr<float>()[5]);
    keep(x.add_(1).data().data_ptr<float>()[5]);
    keep(x.add_(1).unsafeGetTensorImpl()->data_dtype_initialized<float>()[5]);
    out.push_back(x);
    return out;
  });
}

TEST_P(PointersTest, KeptPointerSeesLaterWritesAfterASync) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::zeros({4}) + 1;
  float* kept = x.data_ptr<float>();
  for (int i = 0; i < 3; ++i) {
    const float before = kept[0];
    x.add_(1);
    lazuli::sync();
    EXPECT_EQ(kept[0], before + 1);
    kept[3] = 100.0f * static_cast<float>(i);
    const auto read = x * 2;
    lazuli::sync();
    kept[3] = -1;
    EXPECT_EQ(read[3].item<float>(), 200.0f * static_cast<float>(i));
  }
  EXPECT_EQ(x.data_ptr<float>(), kept);
}

// An input that the program fills through a pointer, step by step, and nothing is read meanwhile: what was recorded saw the step before.
TEST_P(PointersTest, MemoryThatIsReadByWhatIsRecordedMayBeFilledAgain) {
  const auto outside = torch::zeros({4});
  ExpectSameAsEager([&outside] {
    Tensors all;
    for (auto input : {torch::empty({4}), torch::zeros({4}), torch::randn({4}), torch::ones({4}) * 2, outside}) {
      for (int step = 0; step < 3; ++step) {
        std::fill_n(input.data_ptr<float>(), 4, static_cast<float>(step));
        input.accessor<float, 1>()[1] = 10;
        all.push_back(input.clone());
        all.push_back(input.view({2, 2}).t() + 1);
      }
      static_cast<float*>(input.storage().mutable_data())[2] = 20;
      all.push_back(input * 2);
    }
    return all;
  });
}

// Element by element, through a pointer asked for each time: only what was recorded since the last time matters, also where the next tensor
// gets the memory of the last one.
TEST_P(PointersTest, AskedForAtEachElement) {
  ExpectSameAsEager([] {
    Tensors all;
    for (int step = 0; step < 20; ++step) {
      auto input = torch::empty({4});
      for (int i = 0; i < 4; ++i) input.data_ptr<float>()[i] = static_cast<float>(step + i);
      all.push_back(input + 1);
      for (int i = 0; i < 4; ++i) input.data_ptr<float>()[i] = -1;
      all.push_back(input * 2);
      for (int i = 0; i < 4; ++i) {
        input.data_ptr<float>()[i] = static_cast<float>(i);
        all.push_back(input - 3);
      }
    }
    return all;
  });
}

// The pointer is asked for again in the middle of what was recorded, which a trace that does not read it goes on over.
TEST_P(PointersTest, OnlyMemoryThatIsReadIsWaitedFor) {
  const DeviceMode mode(options());
  const auto input = torch::zeros({4}), other = torch::zeros({4});
  const auto once = [&] {
    const auto sum = input + 1;
    other.data_ptr<float>()[0] = 1;
    const auto twice = sum * 2;
    lazuli::sync();
  };
  once();
  const StatsDelta delta;
  once();
  EXPECT_EQ(delta.cuts("data_ptr"), 0);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
}

// Tensors over one memory that LibTorch makes without the dispatcher (Variable's data()), of results of operators that run eagerly.
TEST_P(PointersTest, WrittenThroughAnAlias) {
  ExpectSameAsEager([] {
    const auto noise = torch::randn({4});
    noise.variable_data().add_(1);  // Of what an operator wrote in place that ran eagerly; noise itself was not recorded yet.
    const float first = noise.data_ptr<float>()[0];
    const auto alias = noise.variable_data();
    alias.mul_(2);
    return Tensors{torch::full({1}, first), torch::full({1}, noise.data_ptr<float>()[1]), noise};
  });
}

TEST_P(PointersTest, ParallelForReadsAndWritesPendingTensors) {
  ExpectSameAsEager([] {
    auto x = torch::arange(64, torch::kFloat) * 0.5;
    auto y = torch::zeros({64}) + 1;
    const auto in = x.accessor<float, 1>();
    auto out = y.accessor<float, 1>();
    at::parallel_for(0, 64, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] += in[i] * 2;
    });
    x.mul_(3);
    // Asks for its pointers inside.
    at::parallel_for(0, 64, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y.data_ptr<float>()[i] += x.data_ptr<float>()[i];
    });
    return Tensors{x, y, y + x};
  });
}

TEST_P(PointersTest, ParallelForBodiesThatCallOperators) {
  const auto run = [] {
    const auto x = torch::arange(32, torch::kFloat).view({8, 4}) * 2;
    auto out = torch::zeros({8}) + 1;
    at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const torch::NoGradGuard no_grad;
        out.select(0, i).add_((x.select(0, i) * static_cast<float>(i)).sum());
      }
    });
    return Tensors{x, out, out * 2};
  };
  const auto eager = run();
  for (int round = 0; round < 3; ++round) {
    const lazuli::DeviceMode mode(options());
    ExpectSame(eager, run(), exact(), "round");
  }
}

// It compares addresses, past the tensors, before it asks for them.
TEST_P(PointersTest, TensorIteratorOfTheProgram) {
  ExpectSameAsEager([] {
    auto a = torch::arange(12, torch::kFloat).view({3, 4}) * 1;
    const auto b = (torch::ones({4, 3}) * 2).t();
    auto out = torch::empty({3, 4});
    auto iterator = at::TensorIteratorConfig().add_output(out).add_const_input(a).add_const_input(b).build();
    at::native::cpu_kernel(iterator, [](float x, float y) { return x * y + 1; });
    a.add_(out);
    auto second = at::TensorIteratorConfig().add_owned_output(at::Tensor()).add_owned_const_input(a).build();
    at::native::cpu_kernel(second, [](float x) { return -x; });
    auto allocated = second.output();
    allocated.mul_(2);
    return Tensors{a, out, allocated, allocated + b};
  });
}

// By an iterator, and by what kernels of programs call themselves, past the dispatcher.
TEST_P(PointersTest, ResultsThatTheProgramsKernelsResize) {
  ExpectSameAsEager([] {
    const auto a = torch::arange(12, torch::kFloat).view({3, 4}) * 1;
    auto first = torch::empty({0}), second = torch::empty({0}), third = torch::zeros({2}) + 1;
    auto iterator = at::TensorIteratorConfig().add_output(first).add_const_input(a).build();
    at::native::cpu_kernel(iterator, [](float x) { return x * 3; });
    at::native::resize_output(second, {4, 2});
    second.fill_(5);
    const auto before = third * 2;
    third.resize_({0});
    at::native::resize_output(third, {5});
    third.copy_(torch::arange(5, torch::kFloat));
    return Tensors{first, first + a, second, before, third};
  });
}

TEST_P(PointersTest, TensorIteratorChecksForOverlaps) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::ones({6}) * 2;
  const auto build = [&] {
    at::TensorIteratorConfig().add_owned_output(x.narrow(0, 0, 4)).add_owned_const_input(x.narrow(0, 1, 4)).build();
  };
  EXPECT_THROW(build(), c10::Error);
  x.add_(1);
  EXPECT_THROW(build(), c10::Error);
  EXPECT_EQ(x.sum().item<float>(), 18);
}

TEST_P(PointersTest, DlpackExportAndImport) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat).view({2, 3}) * 2;
    x.add_(1);
    auto* exported = at::toDLPack(x);
    const float seen = static_cast<const float*>(exported->dl_tensor.data)[5];
    auto imported = at::fromDLPack(exported);
    imported.mul_(10);
    const auto read = imported + x;
    imported.zero_();
    return Tensors{torch::full({1}, seen), x, read, imported};
  });
}

TEST_P(PointersTest, BlobOverATensorsMemory) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat) * 2;
    const auto alias = torch::from_blob(x.data_ptr<float>(), {2, 3});
    x.add_(1);
    const auto after_write = alias * 1;
    const auto before_write = x * 1;
    alias.mul_(10);
    const auto sum = x + 1;
    alias.slice(1, 0, 2).zero_();
    return Tensors{x, after_write, before_write, sum, alias};
  });
}

TEST_P(SharingTest, CopyOnWrite) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat) * 2;
    auto lazy = at::_lazy_clone(x);
    x.add_(1);
    const auto before = lazy * 1;
    lazy.mul_(3);
    auto twice = at::_lazy_clone(at::_lazy_clone(x));
    twice.select(0, 2).zero_();
    return Tensors{x, before, lazy, twice, twice + lazy};
  });
}

// Results of that size are in memory that is kept for reuse.
TEST_P(SharingTest, CopyOnWriteOfLargeResults) {
  ExpectSameAsEager([] {
    auto x = torch::arange(90000, torch::kFloat).view({300, 300}) * 2;
    auto lazy = at::_lazy_clone(x);
    EXPECT_EQ(x.const_data_ptr(), lazy.const_data_ptr());
    x.add_(1);
    lazy.select(0, 2).zero_();
    auto twice = at::_lazy_clone(x + lazy);
    twice.mul_(3);
    return Tensors{x, lazy, twice};
  });
}

TEST_P(SharingTest, MetadataCopiedBetweenTensors) {
  ExpectSameAsEager([] {
    auto plain = torch::zeros({2});
    auto pending = torch::arange(6, torch::kFloat) * 2;
    plain.set_data(pending);
    pending.add_(1);
    plain.mul_(2);
    auto other = torch::zeros({3}) + 1;
    other.unsafeGetTensorImpl()->shallow_copy_from(pending.getIntrusivePtr());
    auto alias = pending.unsafeGetTensorImpl()->shallow_copy_and_detach(/*version_counter=*/0, /*allow_tensor_metadata_change=*/true);
    const torch::Tensor view(alias);
    pending.sub_(0.5);
    auto left = torch::zeros({2}) + 1;
    auto right = torch::ones({3}) * 4;
    std::swap(left, right);
    left.add_(1);
    return Tensors{plain, other, view, left, right, other + plain};
  });
}

LAZULI_FOR_EACH_BACKEND(PointersTest);
LAZULI_FOR_EACH_BACKEND(SharingTest);

}  // namespace
}  // namespace lazuli::testing
