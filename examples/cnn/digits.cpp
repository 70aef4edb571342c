#include "digits.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "common/command_line.h"

namespace cnn {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 28;
constexpr uint32_t kImageMagic = 2051;
constexpr uint32_t kLabelMagic = 2049;
constexpr const char* kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

struct Stroke {
  float x0, y0, x1, y1;
};

// The bars of a seven-segment display, in a box of 1 by 2.
constexpr std::array<Stroke, 7> kBars = {{
    {0, 0, 1, 0},
    {1, 0, 1, 1},
    {1, 1, 1, 2},
    {0, 2, 1, 2},
    {0, 1, 0, 2},
    {0, 0, 0, 1},
    {0, 1, 1, 1},
}};
// Bit i is bar i.
constexpr std::array<uint8_t, 10> kDigits = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};

using Image = std::array<uint8_t, kSide * kSide>;

class Painter {
 public:
  explicit Painter(uint64_t seed) : random_(seed) {}

  // A digit of random place, size, slant, brightness and thickness, with some noise.
  Image Draw(int digit) {
    Image image{};
    const float width = Uniform(6, 11), height = Uniform(7, 10), slant = Uniform(-0.3F, 0.3F);
    const float left = Uniform(6, 11), top = Uniform(2, 6), thickness = Uniform(0.8F, 1.6F), bright = Uniform(150, 255);
    for (size_t bar = 0; bar < kBars.size(); ++bar) {
      if (((kDigits[static_cast<size_t>(digit)] >> bar) & 1) == 0) continue;
      for (int step = 0; step <= 16; ++step) {
        const float along = static_cast<float>(step) / 16;
        const float x = kBars[bar].x0 + along * (kBars[bar].x1 - kBars[bar].x0);
        const float y = kBars[bar].y0 + along * (kBars[bar].y1 - kBars[bar].y0);
        Dab(image, left + width * x + slant * height * (1 - y), top + height * y, thickness, bright);
      }
    }
    for (int i = 0; i < 20; ++i) image[random_() % image.size()] = static_cast<uint8_t>(random_() % 128);
    return image;
  }

  int Digit() { return static_cast<int>(random_() % 10); }

 private:
  float Uniform(float low, float high) { return low + (high - low) * static_cast<float>(random_() % 4096) / 4096; }

  static void Dab(Image& image, float x, float y, float radius, float bright) {
    const int reach = static_cast<int>(radius) + 1;
    const int column = static_cast<int>(x), row = static_cast<int>(y);
    for (int r = std::max(0, row - reach); r <= std::min(kSide - 1, row + reach); ++r) {
      for (int c = std::max(0, column - reach); c <= std::min(kSide - 1, column + reach); ++c) {
        const float dx = static_cast<float>(c) - x, dy = static_cast<float>(r) - y;
        const float ink = bright * (1.5F - std::sqrt(dx * dx + dy * dy) / radius);
        uint8_t& pixel = image[static_cast<size_t>(r * kSide + c)];
        pixel = static_cast<uint8_t>(std::clamp(ink, static_cast<float>(pixel), bright));
      }
    }
  }

  std::mt19937 random_;
};

// Numbers in idx files have their high byte first.
void WriteNumber(std::ofstream& out, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>((number >> shift) & 0xff));
}

void WriteSet(const fs::path& image_path, const fs::path& label_path, uint32_t count, Painter& painter) {
  std::ofstream images(image_path, std::ios::binary), labels(label_path, std::ios::binary);
  WriteNumber(images, kImageMagic);
  WriteNumber(images, count);
  WriteNumber(images, kSide);
  WriteNumber(images, kSide);
  WriteNumber(labels, kLabelMagic);
  WriteNumber(labels, count);
  for (uint32_t i = 0; i < count; ++i) {
    const int digit = painter.Digit();
    const Image image = painter.Draw(digit);
    images.write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
    labels.put(static_cast<char>(digit));
  }
  images.close();
  labels.close();
  if (!images || !labels) throw examples::UserError("Cannot write to '" + image_path.parent_path().string() + "'. Is the disk full?");
}

}  // namespace

void WriteDigits(const fs::path& folder, uint64_t seed) {
  Painter painter(seed);
  WriteSet(folder / kFiles[0], folder / kFiles[1], 60000, painter);
  WriteSet(folder / kFiles[2], folder / kFiles[3], 10000, painter);
}

void CheckDigits(const fs::path& folder) {
  for (const char* name : kFiles) {
    std::error_code error;
    if (fs::is_regular_file(folder / name, error)) continue;
    throw examples::UserError("No file '" + (folder / name).string() +
                              "'. Give the folder of MNIST's four files, unzipped, with --data DIR.");
  }
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "cnn_digits_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw examples::UserError("Cannot make a folder like '" + name + "'. Set TMPDIR to another place.");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace cnn
