// Every .trace file under tests/golden: its CHECK lines hold, and compiled it does what it does op by op.
#include <gtest/gtest.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/FileCheck/FileCheck.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include <filesystem>

#include "tests/support/golden_file.h"

namespace lazuli::testing {
namespace {

// "" when the CHECK lines of `checks` hold over `text`, else FileCheck's diagnostics.
std::string RunFileCheck(const std::string& checks, const std::string& text) {
  llvm::FileCheckRequest request;
  llvm::FileCheck file_check(request);
  if (!file_check.ValidateCheckPrefixes()) return "bad check prefixes";
  std::string diagnostics;
  llvm::SourceMgr sources;
  sources.setDiagHandler(
      [](const llvm::SMDiagnostic& diagnostic, void* context) {
        llvm::raw_string_ostream stream(*static_cast<std::string*>(context));
        diagnostic.print("", stream, false);
      },
      &diagnostics);
  llvm::SmallString<4096> check_space, text_space;
  const auto check_buffer = llvm::MemoryBuffer::getMemBuffer(checks, "checks");
  const llvm::StringRef check_text = file_check.CanonicalizeFile(*check_buffer, check_space);
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(check_text, "checks"), llvm::SMLoc());
  if (file_check.readCheckFile(sources, check_text)) return diagnostics.empty() ? "no CHECK lines" : diagnostics;
  const auto text_buffer = llvm::MemoryBuffer::getMemBuffer(text, "text");
  const llvm::StringRef canonical = file_check.CanonicalizeFile(*text_buffer, text_space);
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(canonical, "text"), llvm::SMLoc());
  return file_check.checkInput(sources, canonical) ? "" : diagnostics;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, HoldsAndRuns) {
  const auto golden = ReadGolden(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status();
  const auto text = DumpStage(*golden, golden->stage);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string diagnostics = RunFileCheck(golden->text, *text);
  EXPECT_EQ(diagnostics, "") << *text;
  EXPECT_EQ(CompareRuns(*golden), "");
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, ::testing::ValuesIn(FindGoldens(LAZULI_SOURCE_DIR "/tests/golden")),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           const std::filesystem::path path(info.param);
                           return path.parent_path().filename().string() + "_" + path.stem().string();
                         });

TEST(FileCheck, FailsWhereItShould) {
  EXPECT_EQ(RunFileCheck("// CHECK: two\n// CHECK-NOT: four", "one\ntwo\nthree\n"), "");
  EXPECT_NE(RunFileCheck("// CHECK: four", "one\ntwo\n"), "");
  EXPECT_NE(RunFileCheck("// CHECK-NOT: two", "one\ntwo\n"), "");
  EXPECT_NE(RunFileCheck("// nothing to check", "one\n"), "");
}

}  // namespace
}  // namespace lazuli::testing
