#include "data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "options.h"

namespace char_gpt {
namespace {

namespace fs = std::filesystem;

// Links are left out: in a folder of licences they are second names of files that are read anyway.
std::vector<fs::path> TextFiles(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw UserError("No such file or folder: '" + path + "'. Give a text file or folder with --text PATH.");
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->is_regular_file() && !it->is_symlink()) files.push_back(it->path());
  }
  if (error) throw UserError("Cannot list '" + path + "': " + error.message() + ". Give another folder or file with --text PATH.");
  if (files.empty()) throw UserError("No files in '" + path + "'. Give a text file or a folder with some with --text PATH.");
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof()) throw UserError("Cannot read '" + path.string() + "'. Check its permissions, or give another --text PATH.");
  return text;
}

}  // namespace

Corpus::Corpus(const std::string& path, int64_t block) {
  std::string text;
  for (const fs::path& file : TextFiles(path)) {
    text += ReadFile(file);
    ++files_;
  }
  if (text.empty()) throw UserError("'" + path + "' holds no text. Give a text file or folder with --text PATH.");
  if (static_cast<int64_t>(text.size()) <= block) {
    throw UserError("'" + path + "' holds " + std::to_string(text.size()) + " characters, but --block " + std::to_string(block) +
                    " needs at least " + std::to_string(block + 1) + ". Give a longer text with --text PATH, or a smaller --block.");
  }
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  std::array<int64_t, 256> ids{};
  for (int c = 0; c < 256; ++c) {
    if (!seen[c]) continue;
    ids[c] = static_cast<int64_t>(alphabet_.size());
    alphabet_.push_back(static_cast<char>(c));
  }
  std::vector<int64_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(), [&](char c) { return ids[static_cast<unsigned char>(c)]; });
  tokens_ = torch::tensor(tokens, torch::kLong);
}

std::pair<torch::Tensor, torch::Tensor> Corpus::RandomBatch(int64_t batch, int64_t block) const {
  const torch::Tensor starts = torch::randint(size() - block, {batch, 1}, torch::kLong);
  const torch::Tensor places = starts + torch::arange(block);
  return {tokens_.index({places}), tokens_.index({places + 1})};
}

torch::Tensor Corpus::Prompt(int64_t length) const { return tokens_.narrow(0, 0, length).unsqueeze(0); }

}  // namespace char_gpt
