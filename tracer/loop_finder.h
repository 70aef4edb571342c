// Where to cut a program that goes round without ever reading a result: a trainer that prints its loss every hundred steps, a simulator.
// Cut wherever a trace is full, each trace would start at another place of the loop than the last, and nothing would come back for long.
// Cut once a round, at the place where the least is alive, every trace is the same. Where it turns out that the program stops soon enough
// by itself (a first step of training may hold more memory than those that follow), that is forgotten.
//
// And where to cut a program whose traces differ by how often they go round (a recurrent network over sequences of many lengths, an episode
// of a simulator): where each length would need a program of its own, a piece of a few rounds needs one for all.
//
// And where to cut traces that begin in ever other ways and end alike (augmentation by chance, and then a step of training): where they
// begin to be alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lazuli::tracer {

class LoopFinder {
 public:
  // The next operator of the program, and the bytes of results that were alive before it. True when the trace should end after it: where
  // a round ends, if the trace is of some length by then, or one of blocks (block_cutter.h).
  bool EndsAfter(int32_t op_id, int64_t live, bool in_blocks) {
    ops_.push_back(op_id);
    live_.push_back(live);
    return !loops_.empty() && AtEnd(in_blocks);
  }

  // Whether the trace should end before operator `op_id`, which is next: where what such traces have in common begins, the first time.
  bool EndsBefore(int32_t op_id) const { return !endings_.empty() && BeginsEnding(op_id); }

  // The trace was cut because it was full: it has `max_ops` operators, or holds too much memory. Looks for a loop in what the program did
  // so far, once that is `max_ops` operators without a stop: a first step of training may hold more than those that follow.
  void OnFullTrace(size_t max_ops);

  enum class Found : uint8_t { kNothing, kRounds, kEnding };
  // The trace, of `size` operators, is about to be cut, and new; `is_one_of_many` that start alike, too many for a program each, or of
  // `new_in_a_row`, wherever they start. kRounds: one of many is another one of those that were new of late but for how often they go round
  // some loops: from here on they are cut there. kEnding: those were all new and end alike: from here on they are cut where that begins.
  Found OnNewTrace(size_t size, bool is_one_of_many, int64_t new_in_a_row);

  enum class Cut : uint8_t {
    kStop,          // For what the program did.
    kFull,          // Because the trace was full.
    kPiece,         // Between rounds, or into blocks: the next trace is another piece of this one.
    kBeforeEnding,  // As EndsBefore said: so it is.
  };
  // A trace was cut. Traces hold `max_ops` operators at most.
  void OnCut(Cut cut, size_t max_ops);

 private:
  using Ops = std::vector<int32_t>;
  static constexpr int kFirstPatience = 4, kSeveral = 4;

  struct Loop {
    Ops end;    // The last operators of a round, the last one first: as many as it takes to occur once a round.
    Ops start;  // Of the traces that are cut there, and their pieces; empty: of all, since it was found in a full one.
  };

  struct Ending {
    Ops begin;   // The operator before which a trace is cut, and those before it that tell it from others, the last one first.
    Ops ops;     // All of it, which such a trace ends with.
    Ops starts;  // One of these operators begins such a trace.
  };

  bool AtEnd(bool in_blocks) const;
  bool BeginsEnding(int32_t op_id) const;
  // Whether a round of `loop` ends before operator `position` of `ops_`.
  bool EndsAt(const Loop& loop, size_t position) const;
  // The length of a round, where the last operators, and at least two rounds of them, repeat themselves; 0: they do not.
  size_t Period() const;
  // Of rounds of `period` operators, two of which, at least, are those before operator `end` of `ops_`.
  Ops EndOfRound(size_t end, size_t period) const;
  // Whether one of `loops_` ends in the last of those.
  bool Knows(size_t end, size_t period) const;
  void AddLoop(size_t end, size_t period, Ops start);
  // Whether `trace`, the current one, ends as all in `new_` do, and where that begins is added to `endings_`.
  bool AddEnding(const Ops& trace);
  // Where `trace` ends as one of `endings_`, notes that traces that start like it do.
  void LearnStart(const Ops& trace);
  // Counts what the program did since it stopped, and forgets the loops of full traces where it stops soon enough without them.
  void NoteStop(Cut cut, size_t max_ops);
  // Whether the current trace, or the one that it is a piece of, starts like those that `loop` was found in.
  bool IsOf(const Loop& loop) const;
  Ops::const_iterator TraceBegin() const { return ops_.begin() + static_cast<std::ptrdiff_t>(begin_); }

  Ops ops_;
  std::vector<int64_t> live_;  // Before each of them.
  std::vector<Loop> loops_;
  std::vector<Ending> endings_;
  std::vector<Ops> new_;    // The last new traces.
  size_t begin_ = 0;        // Of the current trace in `ops_`.
  bool goes_on_ = false;    // It is a piece.
  bool in_ending_ = false;  // Of what comes where an ending begins, or after it.
  bool seen_full_trace_ = false;
  // Since the program stopped: operators, pieces between rounds or of blocks, and whether a trace was full.
  size_t since_stop_ = 0;
  int pieces_since_stop_ = 0;
  bool full_since_stop_ = false;
  int soon_stops_ = 0;             // In a row that came soon, and yet after several pieces.
  int patience_ = kFirstPatience;  // So many, and the loops of full traces are forgotten; the next time it takes twice as many.
};

}  // namespace lazuli::tracer
