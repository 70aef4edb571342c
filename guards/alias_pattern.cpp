#include "guards/alias_pattern.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "guards/guard.h"

namespace lazuli::guards {
namespace {

using codegen::TensorWord;
using codegen::TraceLog;
using codegen::Word;

// A tensor operand, where the code mentions it.
struct Mention {
  size_t position;
  size_t op;
  int32_t arg;
  bool written;
};

std::vector<Mention> MentionsIn(const TraceLog& log) {
  std::vector<Mention> mentions;
  for (const Guard& guard : BuildGuards(log)) {
    if (guard.kind != Guard::Kind::kOperand || codegen::TagOf(guard.expected) != codegen::Tag::kTensor) continue;
    const codegen::OpInfo& info = codegen::OpInfoById(log.ops[static_cast<size_t>(guard.op)].op_id);
    mentions.push_back({guard.position, static_cast<size_t>(guard.op), guard.arg, (info.mutated_args >> guard.arg & 1) != 0});
  }
  return mentions;
}

// Numbers the storages and offsets of a log anew, in the order in which it mentions them.
class Renumbering {
 public:
  Renumbering(const TraceLog& log, const std::vector<Mention>& mentions)
      : log_(log), mentions_(mentions), only_read_(static_cast<size_t>(log.num_storages), false), has_offsets_(only_read_.size(), false) {
    for (const Mention& mention : mentions) {
      const TensorWord word = WordOf(mention);
      if (word.first_use) only_read_[word.storage] = true;
      if (mention.written) only_read_[word.storage] = false;
    }
    for (const Mention& mention : mentions) {
      const TensorWord word = WordOf(mention);
      if (word.slot_plus_one == 0) continue;
      has_offsets_[word.storage] = true;
      if (only_read_[word.storage]) args_with_offsets_.insert({mention.op, mention.arg});
    }
  }

  bool changes() const {
    return std::any_of(mentions_.begin(), mentions_.end(), [this](const Mention& mention) {
      const TensorWord word = WordOf(mention);
      return only_read_[word.storage] && (!word.first_use || (HasOffset(mention) && word.slot_plus_one == 0));
    });
  }

  SeparatedLog Run() {
    out_.log = log_;
    out_.log.offsets.clear();
    new_storage_.assign(only_read_.size(), -1);
    new_slot_.assign(log_.offsets.size(), -1);
    auto mention = mentions_.begin();
    for (size_t op = 0; op < log_.ops.size(); ++op) {
      for (; mention != mentions_.end() && mention->op == op; ++mention) Renumber(*mention);
      const int32_t first = std::exchange(out_.log.ops[op].first_result, static_cast<int32_t>(out_.storages.size()));
      for (int32_t result = 0; result < NumResults(log_.ops[op]); ++result) NewStorage(first + result);
    }
    out_.log.num_storages = static_cast<int32_t>(out_.storages.size());
    EndWithVisible();
    return std::move(out_);
  }

 private:
  static int32_t NumResults(const TraceLog::Op& op) {
    if (codegen::OpInfoById(op.op_id).returns_mutated_self) return 0;
    return static_cast<int32_t>(std::count_if(op.outputs->begin(), op.outputs->end(), [](const auto& meta) { return meta.defined; }));
  }

  int32_t NewStorage(int32_t old) {
    const auto number = static_cast<int32_t>(out_.storages.size());
    out_.storages.push_back(old);
    new_storage_[static_cast<size_t>(old)] = number;
    return number;
  }

  TensorWord WordOf(const Mention& mention) const { return TensorWord::Unpack(log_.code[mention.position]); }

  // Whether a mention of what is only read has an offset, even of 0: where others of its storage or its list have one.
  bool HasOffset(const Mention& mention) const {
    return has_offsets_[WordOf(mention).storage] || args_with_offsets_.count({mention.op, mention.arg}) > 0;
  }

  void Renumber(const Mention& mention) {
    TensorWord word = WordOf(mention);
    const auto old = static_cast<int32_t>(word.storage);
    const bool apart = only_read_[word.storage];
    const int64_t slot = apart && HasOffset(mention) ? OwnSlot(word.slot_plus_one) : SharedSlot(word.slot_plus_one);
    if (apart) word.first_use = true;
    word.storage = static_cast<uint32_t>(word.first_use ? NewStorage(old) : new_storage_[word.storage]);
    word.slot_plus_one = static_cast<uint32_t>(slot + 1);
    out_.log.code[mention.position] = word.Pack();
  }

  int64_t NewSlot(int64_t offset) {
    out_.log.offsets.push_back(offset);
    return static_cast<int64_t>(out_.log.offsets.size()) - 1;
  }

  // A mention's own. Which of several windows is the one at 0, which has no slot in the original, is chance, too.
  int64_t OwnSlot(uint32_t slot_plus_one) { return NewSlot(slot_plus_one == 0 ? 0 : log_.offsets[slot_plus_one - 1]); }

  // One for all that have it; -1 for none.
  int64_t SharedSlot(uint32_t slot_plus_one) {
    if (slot_plus_one == 0) return -1;
    int64_t& slot = new_slot_[slot_plus_one - 1];
    if (slot < 0) slot = NewSlot(log_.offsets[slot_plus_one - 1]);
    return slot;
  }

  void EndWithVisible() {
    auto& code = out_.log.code;
    const size_t old_words = (only_read_.size() + 63) / 64;
    const std::vector<Word> old(code.end() - static_cast<std::ptrdiff_t>(old_words), code.end());
    code.resize(code.size() - old_words - 1);
    code.push_back(codegen::MakeWord(codegen::Tag::kLiveOut, static_cast<uint64_t>(out_.log.num_storages)));
    std::vector<Word> bits((out_.storages.size() + 63) / 64, 0);
    for (size_t i = 0; i < out_.storages.size(); ++i) {
      const auto from = static_cast<size_t>(out_.storages[i]);
      bits[i / 64] |= (old[from / 64] >> (from % 64) & 1) << (i % 64);
    }
    code.insert(code.end(), bits.begin(), bits.end());
  }

  const TraceLog& log_;
  const std::vector<Mention>& mentions_;
  std::vector<bool> only_read_;                                        // By storage: an input that no operator writes.
  std::vector<bool> has_offsets_;                                      // By storage: some mention has one.
  absl::flat_hash_set<std::pair<size_t, int32_t>> args_with_offsets_;  // Operators and their arguments where something only read has one.
  std::vector<int32_t> new_storage_;                                   // By old number, its latest new one.
  std::vector<int64_t> new_slot_;                                      // Of offsets that mentions share.
  SeparatedLog out_;
};

}  // namespace

std::optional<SeparatedLog> SeparateReads(const TraceLog& log) {
  const std::vector<Mention> mentions = MentionsIn(log);
  Renumbering renumbering(log, mentions);
  if (!renumbering.changes() || mentions.size() + static_cast<size_t>(log.num_storages) > codegen::kMaxStorages) return std::nullopt;
  return renumbering.Run();
}

}  // namespace lazuli::guards
