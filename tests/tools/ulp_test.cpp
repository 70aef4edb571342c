// lazuli-ulp from the command line.
#include <gmock/gmock.h>

#include "tests/tools/run_tool.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

std::string RunUlp(const std::string& arguments, int* status) { return RunTool("lazuli-ulp", arguments, status); }

TEST(UlpCommandTest, MeasuresTheFunctionsAskedFor) {
  int status = -1;
  const std::string output = RunUlp("--step=100003 exp tanh", &status);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, ::testing::AllOf(HasSubstr("exp "), HasSubstr("tanh "), HasSubstr(" of 42949 floats\n")));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("log")));
}

TEST(UlpCommandTest, SaysWhatIsWrong) {
  int status = -1;
  EXPECT_THAT(RunUlp("--step=100003 frobnicate", &status), HasSubstr("unknown function frobnicate"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunUlp("--step=no", &status), HasSubstr("--step must be a number of at least 1"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunUlp("--frobnicate", &status), HasSubstr("unknown option --frobnicate"));
  EXPECT_EQ(status, 2);
}

}  // namespace
}  // namespace lazuli::testing
