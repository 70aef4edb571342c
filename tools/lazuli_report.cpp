// Turns an event log (LAZULI_TRACE) into one HTML page.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tools/report_data.h"
#include "tools/report_html.h"

namespace {

int Usage(const char* program, int status) {
  std::fprintf(status == 0 ? stdout : stderr,
               "usage: %s EVENTS.jsonl [-o REPORT.html]\n\n"
               "Makes one HTML page of an event log that a program wrote under LAZULI_TRACE=EVENTS.jsonl. Without -o the page goes to "
               "EVENTS.jsonl.html.\n",
               program);
  return status;
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "lazuli-report: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string input, output;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--help" || arg == "-h") return Usage(argv[0], 0);
    if (arg == "-o") {
      if (++i >= argc) return Usage(argv[0], 2);
      output = argv[i];
    } else if (!input.empty() || arg.empty() || arg[0] == '-') {
      return Usage(argv[0], 2);
    } else {
      input = arg;
    }
  }
  if (input.empty()) return Usage(argv[0], 2);
  if (output.empty()) output = input + ".html";
  std::ifstream log(input);
  if (!log) return Fail("cannot read " + input + ": " + std::strerror(errno));
  const auto data = lazuli::tools::ReadReport(log);
  if (!data.ok()) return Fail(input + ": " + std::string(data.status().message()));
  std::ofstream page(output);
  page << lazuli::tools::ReportHtml(*data, input);
  page.close();
  if (!page) return Fail("cannot write " + output + ": " + std::strerror(errno));
  if (data->skipped_lines > 0)
    std::fprintf(stderr, "lazuli-report: %lld unreadable lines skipped\n", static_cast<long long>(data->skipped_lines));
  std::printf("%s\n", output.c_str());
  return 0;
}
