// Prints the table of options: for a terminal (--help, or nothing), or with --markdown as docs/OPTIONS.md.
#include <cstdio>
#include <cstring>

#include "runtime/options.h"

int main(int argc, char** argv) {
  if (argc == 1 || (argc == 2 && std::strcmp(argv[1], "--help") == 0)) {
    std::fputs(lazuli::runtime::OptionsHelp().c_str(), stdout);
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--markdown") == 0) {
    std::fputs(lazuli::runtime::OptionsMarkdown().c_str(), stdout);
    return 0;
  }
  std::fprintf(stderr, "usage: %s [--help | --markdown]\n", argv[0]);
  return 2;
}
