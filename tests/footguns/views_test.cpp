// Views of pending tensors, and writes through them.

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

using torch::indexing::Slice;

class ViewsTest : public BackendTest {};

TEST_P(ViewsTest, WriteThroughBaseIsSeenByEarlierView) {
  ExpectSameAsEager([] {
    auto base = torch::arange(12, torch::kFloat).view({3, 4});
    auto row = base.select(0, 1);
    auto column = base.select(1, 2);
    base.mul_(2).add_(1);
    return Tensors{base, row, column, row + column.sum()};
  });
}

TEST_P(ViewsTest, WriteThroughViewIsSeenByBaseAndSiblings) {
  ExpectSameAsEager([] {
    auto base = torch::arange(24, torch::kFloat).view({4, 6});
    auto left = base.slice(1, 0, 3);
    auto middle = base.slice(1, 2, 5);
    auto before = left * 1;
    middle.neg_();
    auto after = left * 1;
    left.fill_(7);
    return Tensors{base, left, middle, before, after, base.t() + 1};
  });
}

TEST_P(ViewsTest, ValueReadBeforeAWriteKeepsTheOldContents) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat);
    auto old_sum = x + x;
    auto view = x.slice(0, 1, 4);
    view.copy_(view * 10);
    auto new_sum = x + x;
    x.zero_();
    return Tensors{old_sum, new_sum, x};
  });
}

TEST_P(ViewsTest, WritesThroughTransposedAndStridedViews) {
  ExpectSameAsEager([] {
    auto base = torch::arange(20, torch::kDouble).view({4, 5});
    base.t().add_(torch::arange(4, torch::kDouble));
    base.slice(0, 0, 4, 2).mul_(-1);
    base.diagonal().copy_(OnTestDevice(torch::tensor({9.0, 8.0, 7.0, 6.0}, torch::kDouble)));
    auto strided = base.as_strided({2, 3}, {7, 2}, 1);
    strided.add_(0.5);
    return Tensors{base, strided, base.diagonal() * 2};
  });
}

TEST_P(ViewsTest, MultiOutputViewsAliasTheirBase) {
  ExpectSameAsEager([] {
    const torch::NoGradGuard no_grad;
    auto base = torch::arange(24, torch::kFloat).view({4, 6}) + 0;
    auto rows = base.unbind(0);
    auto parts = base.split(4, 1);
    auto chunks = base.chunk(3, 1);
    rows[2].mul_(100);
    parts[1].sub_(1);
    chunks[0].fill_(3);
    base.add_(0.25);
    return Tensors{base, rows[0], rows[2], parts[0], parts[1], chunks[0], chunks[2], rows[1] + rows[2]};
  });
}

TEST_P(ViewsTest, ViewsThatChangeDtypeShareMemory) {
  ExpectSameAsEager([] {
    auto bits = torch::arange(8, torch::kFloat) * 1.5;
    auto ints = bits.view(torch::kInt);
    ints.add_(1);
    auto complex = torch::view_as_complex(bits.view({4, 2}));
    auto real = torch::view_as_real(complex);
    real.mul_(2);
    return Tensors{bits, ints + 0, complex, real, complex.conj(), torch::imag(complex.conj()) * 1};
  });
}

TEST_P(ViewsTest, IndexedAssignmentWritesTheBase) {
  ExpectSameAsEager([] {
    auto x = torch::zeros({5, 4});
    x.index_put_({Slice(1, 3)}, torch::ones({2, 4}));
    x.index_put_({OnTestDevice(torch::tensor({0, 4})), 2}, 5);
    x[3][1] = 8;
    x.index_put_({x > 4}, -1);
    return Tensors{x, x * 2};
  });
}

TEST_P(ViewsTest, ExpandedAndOverlappingReads) {
  ExpectSameAsEager([] {
    auto x = torch::arange(3, torch::kFloat);
    auto wide = x.expand({4, 3});
    auto y = wide + 1;
    x.add_(10);
    auto windows = torch::arange(8, torch::kFloat).unfold(0, 3, 1);
    return Tensors{y, wide * 2, windows.sum(1), windows * windows};
  });
}

TEST_P(ViewsTest, InPlaceOnOverlappingWindowsOfOneStorage) {
  ExpectSameAsEager([] {
    auto x = torch::arange(10, torch::kFloat);
    // Read and written windows overlap without being equal: eager copies first.
    x.slice(0, 1, 10).copy_(x.slice(0, 0, 9).clone());
    auto y = x * 2;
    y.add_(y);
    y.view({2, 5}).mul_(y.view({2, 5}));
    return Tensors{x, y};
  });
}

TEST_P(ViewsTest, DisjointWindowsOfOneStorageNeedNoCut) {
  ExpectSameAsEager([] {
    auto gates = torch::arange(24, torch::kFloat).view({2, 12}) * 0.1;
    const auto parts = gates.chunk(3, 1);
    parts[0].add_(parts[1]).sigmoid_();
    parts[2].mul_(parts[0]);
    auto rows = torch::arange(12, torch::kFloat) * 2;
    rows.slice(0, 0, 6).sub_(rows.slice(0, 6, 12));
    rows.slice(0, 0, 12, 2).mul_(rows.slice(0, 1, 12, 2));
    rows.slice(0, 6, 9).copy_(rows.slice(0, 0, 3));
    auto matrix = torch::arange(16, torch::kFloat).view({4, 4}) * 1;
    matrix.select(1, 0).copy_(matrix.select(1, 3));
    matrix.slice(0, 0, 2).addmm_(matrix.slice(0, 2, 4), torch::ones({4, 4}));
    return Tensors{gates, rows, matrix};
  });
  EXPECT_EQ(lazuli::stats().eager_fallbacks.size(), 0);
}

TEST_P(ViewsTest, PartlyOverlappingWindowsAreRefusedAsInEager) {
  const auto error = [](int64_t begin) {
    auto x = torch::arange(12, torch::kFloat) * 2;
    try {
      x.slice(0, begin, begin + 6).add_(x.slice(0, 4, 10));
      x.sum().item<float>();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  const std::string eager = error(2);
  ASSERT_NE(eager.find("single memory location"), std::string::npos);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(error(4), "");
  EXPECT_EQ(error(2), eager);
  EXPECT_EQ(error(4), "");
}

TEST_P(ViewsTest, MovingSliceReadsItsOwnOffset) {
  ExpectSameAsEager([] {
    auto data = torch::arange(40, torch::kFloat).view({10, 4}) + 0;
    Tensors out;
    for (int i = 0; i < 8; ++i) {
      out.push_back(data.slice(0, i, i + 2) * 2);
      data.select(0, i).add_(1);
    }
    out.push_back(data);
    return out;
  });
}

TEST_P(ViewsTest, ViewOutlivesItsBase) {
  ExpectSameAsEager([] {
    torch::Tensor view;
    {
      auto base = torch::arange(12, torch::kFloat) * 3;
      view = base.view({3, 4}).select(1, 1);
      base.add_(1);
    }
    view.mul_(2);
    return Tensors{view, view + view};
  });
}

TEST_P(ViewsTest, DeadResultWhoseWriteIsStillVisible) {
  ExpectSameAsEager([] {
    auto x = torch::ones({4, 4});
    x.select(0, 1).add_(5);  // Nobody keeps what add_ returned.
    { auto temporary = x.view({16}).slice(0, 8, 10).zero_(); }
    return Tensors{x};
  });
}

TEST_P(ViewsTest, InPlaceMetadataChanges) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat).view({2, 3}) + 0;
    x.t_();
    x.unsqueeze_(0);
    x.add_(1);
    auto y = x.squeeze(0).transpose_(0, 1);
    return Tensors{x, y, y * 2};
  });
}

LAZULI_FOR_EACH_BACKEND(ViewsTest);

}  // namespace
}  // namespace lazuli::testing
