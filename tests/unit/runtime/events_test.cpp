#include "runtime/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tests/support/log_file.h"

namespace lazuli::runtime {
namespace {

using lazuli::testing::CountOf;
using lazuli::testing::LogFile;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class EventsTest : public ::testing::Test {
 protected:
  void SetUp() override { ConfigureEvents(file_.path()); }
  void TearDown() override { ConfigureEvents(""); }

  static TraceRun RunAt(int64_t start, int64_t end) {
    TraceRun run;
    run.serial = 3;
    run.site = 1;
    run.ops = 7;
    run.cut = "sync";
    run.found = TraceRun::Found::kHit;
    run.record_start = start - 10;
    run.record_end = run.run_start = start;
    run.run_end = end;
    run.kernels = 2;
    run.aten_calls = 1;
    return run;
  }

  LogFile file_;
};

TEST_F(EventsTest, FirstLineNamesTheVersion) {
  EXPECT_THAT(file_.text(), MatchesRegex("\\{\"event\":\"start\",\"t\":[0-9]+,\"version\":1,\"pid\":[0-9]+\\}\n"));
}

TEST_F(EventsTest, MembersInOrderWithEscapes) {
  Event("recompile", 5).Add("trace", 4).Add("reason", "a \"b\"\n\\").AddTo("passes", "fuse", 1).AddTo("passes", "plan", 2).Add("n", -1);
  FlushEvents();
  EXPECT_THAT(file_.text(), HasSubstr("{\"event\":\"recompile\",\"t\":5,\"trace\":4,\"reason\":\"a \\\"b\\\"\\u000a\\\\\","
                                      "\"passes\":{\"fuse\":1,\"plan\":2},\"n\":-1}\n"));
}

TEST_F(EventsTest, OffMeansNothingIsWritten) {
  ConfigureEvents("");
  EXPECT_FALSE(EventsEnabled());
  EXPECT_EQ(EventTime(), 0);
  const std::string before = file_.text();
  Event("recompile").Add("trace", 4).AddTo("passes", "fuse", 1);
  WriteRun(RunAt(100, 200));
  WriteFallback("aten::nonzero", "cannot be recorded");
  FlushEvents();
  EXPECT_EQ(file_.text(), before);
}

TEST_F(EventsTest, ASecondTimeGoesOnWhereTheFirstEnded) {
  Event("one");
  ConfigureEvents("");
  ConfigureEvents(file_.path());
  Event("two");
  FlushEvents();
  const std::string text = file_.text();
  EXPECT_EQ(CountOf(text, "\"start\""), 1);
  EXPECT_LT(text.find("\"one\""), text.find("\"two\""));
}

TEST_F(EventsTest, RunsAreSummedUp) {
  constexpr int64_t kRuns = 100000, kEach = 1000;
  const int64_t start = EventTime();
  for (int64_t i = 0; i < kRuns; ++i) WriteRun(RunAt(start + i * kEach, start + i * kEach + 300 + i % 2 * 100));
  FlushEvents();
  const std::string text = file_.text();
  // 0.1 seconds of a microsecond each.
  EXPECT_LT(CountOf(text, "\"event\":\"run\""), 300);
  EXPECT_GT(CountOf(text, "\"event\":\"run\""), 10);
  int64_t runs = 0, ns = 0;
  for (size_t at = text.find("\"event\":\"run\""); at != std::string::npos; at = text.find("\"event\":\"run\"", at + 1)) {
    const auto number = [&](const char* key) { return std::stoll(text.substr(text.find(key, at) + std::string(key).size())); };
    runs += number("\"count\":");
    ns += number("\"ns\":");
    EXPECT_EQ(number("\"min\":"), number("\"count\":") == 1 ? number("\"max\":") : 300);
    EXPECT_EQ(number("\"kernels\":"), 2 * number("\"count\":"));
    EXPECT_EQ(number("\"record_ns\":"), 10 * number("\"count\":"));
    EXPECT_EQ(number("\"hit\":"), number("\"count\":"));
  }
  EXPECT_EQ(runs, kRuns);
  EXPECT_EQ(ns, kRuns / 2 * 700);
  EXPECT_EQ(text.substr(text.find("\"event\":\"run\"")).find("\"count\":1,") != std::string::npos, true);  // The first stands alone.
}

TEST_F(EventsTest, FallbacksAreCountedByOperatorAndReason) {
  for (int i = 0; i < 5; ++i) WriteFallback("aten::nonzero", "cannot be recorded");
  WriteFallback("aten::nonzero", "another");
  FlushEvents();
  const std::string text = file_.text();
  EXPECT_THAT(text, HasSubstr("\"op\":\"aten::nonzero\",\"why\":\"cannot be recorded\",\"count\":4,"));
  EXPECT_THAT(text, HasSubstr("\"why\":\"another\",\"count\":1,"));
}

TEST_F(EventsTest, LinesOfThreadsDoNotMix) {
  constexpr int kThreads = 4, kLines = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) {
        Event("tick", 1).Add("thread", t).Add("end", "x");
        WriteRun(RunAt(EventTime(), EventTime() + 1));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  FlushEvents();
  const std::string text = file_.text();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(CountOf(text, "\n{\"event\":\"tick\",\"t\":1,\"thread\":" + std::to_string(t) + ",\"end\":\"x\"}\n"), kLines);
  }
}

TEST_F(EventsTest, ADeadProcessLeavesWhatItFlushed) {
  const LogFile other;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ConfigureEvents("");
    ConfigureEvents(other.path());
    Event("before").Add("n", 1);
    FlushEvents();
    Event("lost");
    abort();
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  const std::string text = other.text();
  EXPECT_EQ(CountOf(text, "\n"), 3);  // start, before, memory.
  EXPECT_THAT(text, HasSubstr("\"event\":\"before\""));
}

TEST_F(EventsTest, AForkedChildWritesNothing) {
  Event("parent");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Event("child");
    FlushEvents();
    _exit(EventsEnabled() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  FlushEvents();
  EXPECT_EQ(CountOf(file_.text(), "\"parent\""), 1);
  EXPECT_EQ(CountOf(file_.text(), "\"child\""), 0);
}

TEST_F(EventsTest, AForkedChildHasAFileOfItsOwnWhereTheNameSaysSo) {
  const LogFile named;
  ConfigureEvents(named.path() + ".%p");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool off = !EventsEnabled();
    ConfigureEvents(named.path() + ".%p");
    Event("child");
    FlushEvents();
    _exit(off ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const pid_t pid : {getpid(), child}) {
    const std::string path = named.path() + "." + std::to_string(pid);
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(CountOf(text, "\"start\""), 1);
    EXPECT_EQ(CountOf(text, "\"child\""), pid == child ? 1 : 0);
    std::remove(path.c_str());
  }
}

TEST_F(EventsTest, AFileThatCannotBeWrittenLeavesThemOff) {
  ConfigureEvents("/nowhere/at/all.jsonl");
  EXPECT_FALSE(EventsEnabled());
}

TEST_F(EventsTest, PercentPIsTheProcess) {
  const LogFile named;
  ConfigureEvents(named.path() + ".%p");
  EXPECT_TRUE(EventsEnabled());
  const std::string path = named.path() + "." + std::to_string(getpid());
  EXPECT_EQ(access(path.c_str(), R_OK), 0);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace lazuli::runtime
