// Trains a character-level GPT on text twice from the same seed, eagerly and with Lazuli, and compares the two.
#include <ATen/Parallel.h>
#include <lazuli/lazuli.h>

#include <cstdio>
#include <exception>

#include "data.h"
#include "options.h"
#include "report.h"
#include "train.h"

namespace char_gpt {
namespace {

int Run(const Options& options) {
  Report::CheckModeIsOff();
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  const Corpus corpus(options.text, options.block);
  std::printf("text: %lld characters of %lld kinds from %d files; %d CPU threads\n", static_cast<long long>(corpus.size()),
              static_cast<long long>(corpus.vocabulary()), corpus.files(), at::get_num_threads());
  Report report(options);

  CharGpt eager_model = MakeModel(options, corpus);
  const TrainLog eager = Train(eager_model, corpus, options, report.EagerProgress());

  lazuli::DeviceMode mode;
  CharGpt model = MakeModel(options, corpus);
  const TrainLog log = Train(model, corpus, options, report.LazuliProgress());

  const int status = report.Compare(eager, log);
  if (options.sample) report.PrintSample(Sample(model, corpus, options, 400));
  return status;
}

}  // namespace
}  // namespace char_gpt

int main(int argc, char** argv) {
  try {
    const char_gpt::Options options = char_gpt::ParseOptions(argc, argv);
    if (options.help) {
      std::fputs(char_gpt::HelpText().c_str(), stdout);
      return 0;
    }
    return char_gpt::Run(options);
  } catch (const char_gpt::UserError& error) {
    std::fprintf(stderr, "char_gpt: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "char_gpt: %s\n", error.what());
    return 1;
  }
}
