// Text as token ids: one token per distinct byte of the text.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace char_gpt {

class Corpus {
 public:
  // Reads a file, or every regular file below a folder in name order. Throws UserError when there is nothing to read, or when the text
  // cannot hold one block of `block` characters and the one that follows it.
  Corpus(const std::string& path, int64_t block);

  // Inputs and targets, both [batch, block] of Long: `batch` random places of the text, targets one character further on.
  std::pair<torch::Tensor, torch::Tensor> RandomBatch(int64_t batch, int64_t block) const;

  // The text's first `length` characters as tokens, [1, length].
  torch::Tensor Prompt(int64_t length) const;

  char Decode(int64_t token) const { return alphabet_[token]; }
  int64_t vocabulary() const { return static_cast<int64_t>(alphabet_.size()); }
  int64_t size() const { return tokens_.numel(); }
  int files() const { return files_; }

 private:
  torch::Tensor tokens_;
  std::string alphabet_;
  int files_ = 0;
};

}  // namespace char_gpt
