// Training and sampling.
#pragma once

#include <string>

#include "data.h"
#include "model.h"
#include "options.h"
#include "train_log.h"

namespace char_gpt {

// A new model with weights drawn from the seed.
CharGpt MakeModel(const Options& options, const Corpus& corpus);

// Trains for options.steps steps on batches drawn from the seed.
TrainLog Train(CharGpt& model, const Corpus& corpus, const Options& options, const StepHook& after_step);

// `length` characters that the model writes after the corpus's first block.
std::string Sample(CharGpt& model, const Corpus& corpus, const Options& options, int64_t length);

}  // namespace char_gpt
