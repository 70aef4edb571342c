#include "runtime/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/dump.h"

namespace lazuli::runtime {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A fresh folder, and a log and dumps that are off again afterwards.
class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "lazuli_log_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    file_ = dir_ / "log.txt";
  }
  void TearDown() override {
    ConfigureLog("", "");
    ConfigureDump("", "");
    fs::remove_all(dir_);
  }

  fs::path dir_;
  fs::path file_;
};

TEST_F(LogTest, EveryLineIsPrefixed) {
  ConfigureLog("recompiles", file_);
  Log(LogCategory::kRecompiles, "Recompiling trace #4\n    triggered by the following guard failure(s):\n");
  EXPECT_EQ(ReadFile(file_), "[lazuli] Recompiling trace #4\n[lazuli]     triggered by the following guard failure(s):\n");
}

TEST_F(LogTest, OnlyCategoriesThatAreOn) {
  ConfigureLog("guards,perf_hints", file_);
  Log(LogCategory::kGuards, "g");
  Log(LogCategory::kFusion, "f");
  Log(LogCategory::kPerfHints, "p");
  EXPECT_EQ(ReadFile(file_), "[lazuli] g\n[lazuli] p\n");
}

TEST_F(LogTest, VerboseRecompilesBringRecompiles) {
  ConfigureLog("recompiles_verbose", file_);
  EXPECT_TRUE(LogEnabled(LogCategory::kRecompiles));
  EXPECT_TRUE(LogEnabled(LogCategory::kRecompilesVerbose));
  EXPECT_FALSE(LogEnabled(LogCategory::kGuards));
}

TEST_F(LogTest, LoudLinesIgnoreCategories) {
  ConfigureLog("", file_);
  LogAlways("hit recompile_limit (8)");
  LogOnce("once, in the log test");
  LogOnce("once, in the log test");
  EXPECT_EQ(ReadFile(file_), "[lazuli] hit recompile_limit (8)\n[lazuli] once, in the log test\n");
}

TEST_F(LogTest, FileIsAppendedTo) {
  ConfigureLog("", file_);
  LogAlways("first");
  ConfigureLog("", "");
  ConfigureLog("", file_);
  LogAlways("second");
  EXPECT_EQ(ReadFile(file_), "[lazuli] first\n[lazuli] second\n");
}

TEST_F(LogTest, UnwritableFileFallsBackToStderr) {
  ::testing::internal::CaptureStderr();
  ConfigureLog("guards", dir_ / "missing" / "log.txt");
  Log(LogCategory::kGuards, "still here");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("cannot write LAZULI_LOG_FILE '"), std::string::npos) << text;
  EXPECT_NE(text.find("[lazuli] still here\n"), std::string::npos) << text;
}

TEST_F(LogTest, BlocksOfThreadsDoNotMix) {
  ConfigureLog("guards", file_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const std::string block = "begin " + std::to_string(i) + "\nend " + std::to_string(i);
      for (int k = 0; k < 200; ++k) Log(LogCategory::kGuards, block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ifstream file(file_);
  std::string begin, end;
  int blocks = 0;
  while (std::getline(file, begin) && std::getline(file, end)) {
    ASSERT_EQ(begin.substr(0, 15), "[lazuli] begin ");
    ASSERT_EQ(end, "[lazuli] end " + begin.substr(15));
    ++blocks;
  }
  EXPECT_EQ(blocks, 800);
}

TEST_F(LogTest, NamesRoundTrip) {
  const std::vector<std::string> names = LogCategoryNames();
  ASSERT_EQ(names.size(), static_cast<size_t>(kNumLogCategories));
  for (int i = 0; i < kNumLogCategories; ++i) {
    ConfigureLog(names[i], file_);
    EXPECT_TRUE(LogEnabled(static_cast<LogCategory>(i))) << names[i];
    EXPECT_EQ(LogCategoryName(static_cast<LogCategory>(i)), names[i]);
  }
}

TEST_F(LogTest, DumpsOnlyStagesAskedFor) {
  EXPECT_FALSE(DumpEnabled("fuse"));
  ConfigureDump("fuse,plan", dir_ / "a" / "b");
  EXPECT_TRUE(DumpEnabled("fuse"));
  EXPECT_FALSE(DumpEnabled("cse"));
  EXPECT_EQ(WriteDump("cse", 1, "text"), "");
  EXPECT_EQ(WriteDump("fuse", 7, "text"), (dir_ / "a" / "b" / "0007.fuse.txt").string());
  EXPECT_EQ(ReadFile(dir_ / "a" / "b" / "0007.fuse.txt"), "text");
}

TEST_F(LogTest, SecondDumpOfAStageKeepsTheFirst) {
  ConfigureDump("all", dir_);
  EXPECT_TRUE(DumpEnabled("anything"));
  WriteDump("kernel", 3, "one");
  WriteDump("kernel", 3, "two");
  EXPECT_EQ(ReadFile(dir_ / "0003.kernel.txt"), "one");
  EXPECT_EQ(ReadFile(dir_ / "0003.kernel.1.txt"), "two");
}

TEST_F(LogTest, UnwritableDumpFolderIsSaidOnce) {
  ConfigureLog("", file_);
  std::ofstream(dir_ / "not_a_folder") << "x";
  ConfigureDump("fuse", dir_ / "not_a_folder");
  EXPECT_EQ(WriteDump("fuse", 1, "text"), "");
  EXPECT_EQ(WriteDump("fuse", 2, "text"), "");
  const std::string text = ReadFile(file_);
  EXPECT_EQ(text.find("[lazuli] cannot write into LAZULI_DUMP_DIR '"), 0u) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

}  // namespace
}  // namespace lazuli::runtime
