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
  EXPECT_THAT(output, ::testing::AllOf(HasSubstr("exp "), HasSubstr("tanh "), HasSubstr(" of 44485 floats\n")));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("log")));
}

TEST(UlpCommandTest, MeasuresDoublesAndPairs) {
  int status = -1;
  const std::string output = RunUlp("--doubles=5000 exp pow", &status);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, ::testing::AllOf(HasSubstr("exp "), HasSubstr("pow "), HasSubstr(" of 5000 doubles\n")));
  EXPECT_THAT(RunUlp("--step=1000003 atan2", &status), HasSubstr(" of 4294 floats\n"));
  EXPECT_EQ(status, 0);
}

TEST(UlpCommandTest, SaysWhatIsWrong) {
  int status = -1;
  EXPECT_THAT(RunUlp("--step=100003 frobnicate", &status), HasSubstr("unknown function frobnicate"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunUlp("--step=no", &status), HasSubstr("--step must be a number of at least 1"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunUlp("--doubles=no", &status), HasSubstr("--doubles must be a number of at least 1"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunUlp("--frobnicate", &status), HasSubstr("unknown option --frobnicate"));
  EXPECT_EQ(status, 2);
}

}  // namespace
}  // namespace lazuli::testing
