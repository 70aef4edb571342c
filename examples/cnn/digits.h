// Drawn digits in MNIST's file format.
#pragma once

#include <cstdint>
#include <filesystem>

namespace cnn {

// Writes the four files of MNIST, 60000 images to train with and 10000 to test with, into `folder`.
void WriteDigits(const std::filesystem::path& folder, uint64_t seed);

// Throws examples::UserError when one of the four files is not in `folder`.
void CheckDigits(const std::filesystem::path& folder);

// A new folder that lives as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace cnn
