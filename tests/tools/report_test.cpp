// lazuli-report: from lines to numbers, from numbers to a page, and the page in a browser.

#include "tools/report_html.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"
#include "tools/json_line.h"
#include "tools/report_data.h"

namespace lazuli::tools {
namespace {

using lazuli::testing::CountOf;
using lazuli::testing::LogFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStart[] = "{\"event\":\"start\",\"t\":1,\"version\":1,\"pid\":77}\n";

constexpr char kLog[] =
    "{\"event\":\"compile_start\",\"t\":1000000,\"trace\":0,\"site\":0,\"cause\":\"start\",\"ops\":5,\"first_ops\":\"aten::mul.Tensor, "
    "...\",\"variant\":1}\n"
    "{\"event\":\"compile_end\",\"t\":31000000,\"trace\":0,\"site\":0,\"ns\":30000000,\"kernels_compiled\":2,\"kernel_cache_hits\":1,"
    "\"groups\":3,"
    "\"arena_bytes\":4096,\"passes\":{\"fuse\":2000000,\"plan\":28000000}}\n"
    "{\"event\":\"record\",\"t\":500000,\"trace\":0,\"site\":0,\"ops\":5,\"cut\":\"sync\",\"ns\":400000}\n"
    "{\"event\":\"run\",\"t\":31000000,\"trace\":0,\"site\":0,\"ops\":5,\"cut\":\"sync\",\"count\":1,\"until\":32000000,\"ns\":1000000,"
    "\"min\":1000000,"
    "\"max\":1000000,\"record_ns\":400000,\"predicted\":0,\"hit\":0,\"miss\":1,\"kernels\":3,\"aten_calls\":2}\n"
    "{\"event\":\"run\",\"t\":33000000,\"trace\":0,\"site\":0,\"ops\":5,\"cut\":\"sync\",\"count\":9,\"until\":60000000,\"ns\":4500000,"
    "\"min\":400000,"
    "\"max\":700000,\"record_ns\":900000,\"predicted\":7,\"hit\":2,\"miss\":0,\"kernels\":27,\"aten_calls\":18}\n"
    "{\"event\":\"recompile\",\"t\":61000000,\"trace\":1,\"site\":0,\"variant\":2,\"reason\":\"size mismatch. expected 4, actual "
    "<b>5</b>\",\"op\":0,"
    "\"op_name\":\"aten::mul.Tensor\",\"argument\":\"size\",\"expected\":\"4\",\"actual\":\"5\"}\n"
    "{\"event\":\"compile_start\",\"t\":61000000,\"trace\":1,\"site\":0,\"cause\":\"start\",\"ops\":6,\"first_ops\":\"aten::mul.Tensor, "
    "...\",\"variant\":2}\n"
    "{\"event\":\"compile_end\",\"t\":71000000,\"trace\":1,\"site\":0,\"ns\":10000000,\"kernels_compiled\":0,\"kernel_cache_hits\":3,"
    "\"passes\":{\"fuse\":1000000}}\n"
    "{\"event\":\"recompile_limit\",\"t\":80000000,\"trace\":2,\"site\":0,\"limit\":\"recompile_limit (2)\",\"reason\":\"r\"}\n"
    "{\"event\":\"fallback\",\"t\":81000000,\"op\":\"evil::<script>alert(1)</script>\",\"why\":\"a & b\",\"count\":3,\"until\":82000000}\n"
    "{\"event\":\"fallback\",\"t\":83000000,\"op\":\"aten::nonzero\",\"why\":\"cannot be recorded\",\"count\":12,\"until\":84000000}\n"
    "{\"event\":\"cut\",\"t\":81000000,\"cause\":\"sync\",\"count\":10,\"until\":84000000}\n"
    "{\"event\":\"memory\",\"t\":85000000,\"used\":1048576,\"idle\":1048576,\"peak\":2097152}\n"
    "{\"event\":\"verify_mismatch\",\"t\":86000000,\"trace\":1,\"op\":\"aten::tanh\",\"message\":\"trace #1, op 3 aten::tanh\"}\n"
    "{\"event\":\"exit\",\"t\":90000000}\n";

absl::StatusOr<ReportData> Read(const std::string& text) {
  std::istringstream log(text);
  return ReadReport(log);
}

ReportData Sample() { return *Read(std::string(kStart) + kLog); }

TEST(JsonLineTest, ReadsWhatEventsWrite) {
  const auto line = ReadJsonLine(R"( {"a":-5, "b":"x \"y\" \u000a\\\n", "c":{"d":1,"e":2}, "f":{}} )");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->number("a"), -5);
  EXPECT_EQ(line->text("b"), "x \"y\" \n\\\n");
  EXPECT_EQ(line->objects.at("c").at("e"), 2);
  EXPECT_TRUE(line->objects.at("f").empty());
  EXPECT_EQ(line->number("none", 9), 9);
  EXPECT_EQ(line->text("none"), "");
}

TEST(JsonLineTest, RefusesAnythingElse) {
  for (const char* text :
       {"", "{", "x", "[1]", "{\"a\":1", "{\"a\":}", "{\"a\" 1}", "{\"a\":1}x", "{\"a\":\"b}", "{\"a\":\"\\q\"}", "{\"a\":\"\\u12\"}",
        "{\"a\":[1]}", "{\"a\":true}", "{\"a\":{\"b\":\"c\"}}", "{\"a\":1,}", "{\"a\":99999999999999999999}"}) {
    EXPECT_FALSE(ReadJsonLine(text).has_value()) << text;
  }
}

TEST(ReportDataTest, AddsUp) {
  const ReportData data = Sample();
  EXPECT_EQ(data.pid, 77);
  EXPECT_EQ(data.end, 90000000);
  EXPECT_TRUE(data.ended);
  EXPECT_EQ(data.runs, 10);
  EXPECT_EQ(data.ops, 50);
  EXPECT_EQ(data.hits, 9);
  EXPECT_EQ(data.predicted, 7);
  EXPECT_EQ(data.misses, 1);
  EXPECT_EQ(data.run_ns, 5500000);
  EXPECT_EQ(data.record_ns, 1300000);
  EXPECT_EQ(data.compiles, 2);
  EXPECT_EQ(data.recompiles, 1);
  EXPECT_EQ(data.compile_ns, 40000000);
  EXPECT_EQ(data.passes.at("fuse"), 3000000);
  EXPECT_EQ(data.sites.at(0).limit_hits, 1);
  EXPECT_THAT(data.sites.at(0).traces, ElementsAre(0, 1));
  EXPECT_EQ(data.traces.at(0).min_ns, 400000);
  EXPECT_EQ(data.traces.at(0).max_ns, 1000000);
  EXPECT_EQ(data.fallbacks[0].op, "aten::nonzero");  // The most frequent first.
  EXPECT_EQ(data.cuts.at("sync"), 10);
  EXPECT_EQ(data.skipped_lines, 0);
}

TEST(ReportDataTest, UnreadableLinesAreSkippedAndCounted) {
  const auto data = Read(std::string(kStart) +
                         "garbage\n\n{\"event\":\"new\",\"t\":5}\n{\"t\":1}\n{\"event\":\"run\",\"t\":7,\"trace\":1,\"count\":2}\n" +
                         "{\"event\":\"run\",\"t\":8,\"tra");
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->skipped_lines, 4);
  EXPECT_EQ(data->unknown_events, 1);
  EXPECT_EQ(data->runs, 2);
  EXPECT_FALSE(data->ended);
  const std::string html = ReportHtml(*data, "log");
  EXPECT_THAT(html, HasSubstr("4 unreadable lines skipped"));
  EXPECT_THAT(html, HasSubstr("1 unknown events skipped"));
  EXPECT_THAT(html, HasSubstr("the process did not end in order"));
}

TEST(ReportDataTest, OtherFilesAreAClearError) {
  EXPECT_THAT(Read("").status().message(), HasSubstr("empty"));
  EXPECT_THAT(Read("hello\n").status().message(), HasSubstr("no event log"));
  EXPECT_THAT(Read("{\"event\":\"run\",\"t\":1}\n").status().message(), HasSubstr("no event log"));
  EXPECT_THAT(Read("{\"event\":\"start\",\"t\":1,\"version\":2}\n").status().message(),
              HasSubstr("an event log of version 2; this lazuli-report reads version 1"));
}

TEST(ReportDataTest, AgreesWithTheCountersOfARealRun) {
  lazuli::reset();
  const LogFile log;
  {
    const lazuli::DeviceMode mode(Options().trace(log.path()));
    for (int64_t size : {4, 4, 5, 4, 5, 6}) (torch::ones({size}) * 2).exp().sum(0).item<float>();
    torch::ones({3}).nonzero();
  }
  { const lazuli::DeviceMode off{Options()}; }  // Closes the file.
  std::ifstream file(log.path());
  const auto data = ReadReport(file);
  ASSERT_TRUE(data.ok()) << data.status();
  const Stats stats = lazuli::stats();
  EXPECT_EQ(data->skipped_lines, 0);
  EXPECT_EQ(data->unknown_events, 0);
  EXPECT_EQ(data->runs, stats.traces);
  EXPECT_EQ(data->ops, stats.ops_recorded);
  EXPECT_EQ(data->hits, stats.cache_hits);
  EXPECT_EQ(data->predicted, stats.predicted_hits);
  EXPECT_EQ(data->misses, stats.cache_misses);
  EXPECT_EQ(data->compiles, stats.programs_compiled);
  EXPECT_EQ(data->recompiles, stats.recompiles);
  EXPECT_EQ(data->cuts, stats.cuts);
  int64_t kernels = 0, calls = 0;
  for (const auto& [serial, trace] : data->traces) {
    kernels += trace.kernels;
    calls += trace.aten_calls;
  }
  EXPECT_EQ(kernels, stats.kernel_launches);
  EXPECT_EQ(calls, stats.aten_calls);
  std::map<std::string, int64_t> fallbacks;
  for (const Fallback& fallback : data->fallbacks) fallbacks[fallback.op] += fallback.count;
  EXPECT_EQ(fallbacks, stats.eager_fallbacks);
  lazuli::reset();
}

TEST(ReportHtmlTest, HasItsParts) {
  const std::string html = ReportHtml(Sample(), "a & b.jsonl");
  for (const char* part : {"tiles", "timeline", "slowest", "sites", "compiles", "passes", "fallbacks", "cuts", "memory", "notes"}) {
    EXPECT_EQ(CountOf(html, std::string("id=\"") + part + "\"") + CountOf(html, std::string("id=") + part + ">"), 1) << part;
  }
  EXPECT_THAT(html, HasSubstr("<title>Lazuli: a &amp; b.jsonl</title>"));
  EXPECT_THAT(html, HasSubstr("<span>Traces</span><b>10</b><i>50 operators</i>"));
  EXPECT_THAT(html, HasSubstr("<span>Hit rate</span><b>90.0 %</b><i>70.0 % predicted</i>"));
  EXPECT_THAT(html, HasSubstr("<span>Compiling</span><b>40.0 ms</b>"));
  EXPECT_THAT(html, HasSubstr("<span>Fallbacks</span><b>15</b>"));
  EXPECT_THAT(html, HasSubstr("recompile_limit (2) hit, 1 traces ran eagerly"));
  EXPECT_THAT(html, HasSubstr("<code>size mismatch. expected 4, actual &lt;b&gt;5&lt;/b&gt;</code>"));
  EXPECT_THAT(html, HasSubstr("<code>evil::&lt;script&gt;alert(1)&lt;/script&gt;</code></td><td>a &amp; b</td>"));
  EXPECT_THAT(html, HasSubstr("Verification: trace #1, op 3 aten::tanh"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
}

TEST(ReportHtmlTest, NeedsNothingElse) {
  const std::string html = ReportHtml(Sample(), "log");
  EXPECT_EQ(CountOf(html, "<script"), 1);
  for (const char* foreign : {"http:", "https:", "src=", "href=", "@import", "url("}) EXPECT_THAT(html, Not(HasSubstr(foreign)));
}

TEST(ReportHtmlTest, AnEmptyLogIsAPageToo) {
  const std::string html = ReportHtml(*Read(kStart), "log");
  EXPECT_THAT(html, HasSubstr("<span>Traces</span><b>0</b>"));
  EXPECT_THAT(html, HasSubstr("Nothing was compiled."));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

// The output of `command`, or of its errors with 2>&1 in it.
std::string OutputOf(const std::string& command, int* status) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  *status = pclose(pipe);
  return output;
}

TEST(ReportCommandTest, WritesThePageOrSaysWhyNot) {
  const LogFile log, page;
  std::ofstream(log.path()) << kStart << kLog << "{\"cut off";
  const std::string tool = std::string(LAZULI_BIN_DIR) + "/lazuli-report ";
  int status = -1;
  EXPECT_THAT(OutputOf(tool + log.path() + " -o " + page.path() + " 2>&1", &status), HasSubstr("1 unreadable lines skipped"));
  EXPECT_EQ(status, 0);
  EXPECT_THAT(page.text(), HasSubstr("<h1>Lazuli report</h1>"));
  std::ofstream(log.path()) << "{\"event\":\"start\",\"t\":1,\"version\":9}\n";
  EXPECT_THAT(OutputOf(tool + log.path() + " 2>&1", &status), HasSubstr("an event log of version 9"));
  EXPECT_NE(status, 0);
  EXPECT_THAT(OutputOf(tool + "/nowhere 2>&1", &status), HasSubstr("cannot read /nowhere"));
  EXPECT_NE(status, 0);
}

TEST(ReportBrowserTest, OpensWithoutErrors) {
  int status = -1;
  std::string browser = OutputOf("command -v chromium || command -v chromium-browser || command -v google-chrome", &status);
  if (status != 0) GTEST_SKIP() << "no Chromium here";
  browser = browser.substr(0, browser.find('\n'));
  const LogFile base, profile;
  const std::string page = base.path() + ".html", errors = base.path() + ".errors";
  std::ofstream(page) << ReportHtml(Sample(), "log");
  const std::string dom = OutputOf("timeout 60 " + browser +
                                       " --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir=" + profile.path() +
                                       " --dump-dom file://" + page + " 2>" + errors,
                                   &status);
  std::ifstream file(errors);
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(status, 0) << said;
  EXPECT_THAT(dom, HasSubstr("data-script=\"ran\""));  // To its last line.
  EXPECT_THAT(said, Not(HasSubstr("CONSOLE")));
  for (const char* part : {"tiles", "timeline", "slowest", "sites", "compiles", "passes", "fallbacks", "cuts", "memory", "notes"}) {
    EXPECT_THAT(dom, HasSubstr(std::string("id=\"") + part + "\""));
  }
  EXPECT_EQ(CountOf(dom, "data-sort=\"\""), CountOf(dom, "<th ") + CountOf(dom, "<th>"));
  EXPECT_THAT(dom, HasSubstr("evil::&lt;script&gt;"));
  for (const std::string& path : {page, errors}) std::remove(path.c_str());
  std::filesystem::remove_all(profile.path());
}

}  // namespace
}  // namespace lazuli::tools
